"""A desktop as child processes, and what tests ask of it."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.conftest import ROOT
from tests.images.serving import Answer, Client

PYTHON = "/usr/bin/python3"
IMAGES = ROOT / "images"
ASK_MODULES = "import gi, PIL; gi.require_version('Atspi', '2.0'); from gi.repository import Atspi"


def missing_modules() -> list[str]:
    """Nothing when the distribution's python3 has what the guest's server needs."""
    done = subprocess.run([PYTHON, "-c", ASK_MODULES], capture_output=True, text=True, check=False)
    return [done.stderr.strip().splitlines()[-1]] if done.returncode else []


class Desk(Client):
    """A desktop of its own, and a client with its token."""

    def __init__(self, folder: Path, *packages: str, **env: str) -> None:
        self.token = secrets.token_urlsafe(24)
        self.folder = folder
        self.launched: list[int] = []
        bound = socket.create_server(("127.0.0.1", 0), backlog=128)
        bound.set_inheritable(True)
        home = folder / "home"
        (home / "Desktop").mkdir(parents=True)
        kept = {k: v for k, v in os.environ.items() if k in ("PATH", "TZ", "LD_LIBRARY_PATH")}
        environment = {**kept, "HOME": str(home), "GUEST_TOKEN": self.token, "LISTEN_FD": str(bound.fileno()), "RESOLUTION": "1280x720", **env}
        self.log = (folder / "log").open("wb")
        self.process = subprocess.Popen(
            [PYTHON, "-m", "_guest.desktop", *packages], cwd=IMAGES, env=environment, pass_fds=[bound.fileno()],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
        )  # fmt: skip
        port = bound.getsockname()[1]
        bound.close()
        super().__init__(port)

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """One request with the token."""
        headers.setdefault("Authorization", f"Bearer {self.token}")
        return super().send(method, path, body, **headers)

    def await_painted(self, seconds: float = 60) -> None:
        """Wait until /health says that the desktop has painted."""
        until = time.monotonic() + seconds
        while (answer := self.get("/health")).status != 200:
            assert time.monotonic() < until, answer.json
            self.sleep()

    @staticmethod
    def sleep(seconds: float = 0.05) -> None:
        """What only time brings."""
        time.sleep(seconds)

    def run(self, *argv: str, **more: Any) -> dict[str, Any]:
        """A command in the desktop, to its end."""
        answer = self.post("/execute", {"command": list(argv), **more})
        assert answer.status == 200, answer.json
        done: dict[str, Any] = answer.json
        return done

    def act(self, *actions: dict[str, Any]) -> dict[str, Any]:
        """Actions, which must be accepted."""
        answer = self.post("/input", list(actions))
        assert answer.status == 200, answer.json
        done: dict[str, Any] = answer.json
        return done

    def windows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("/windows").json["windows"]
        return found

    def open(self, title: str, *argv: str) -> dict[str, Any]:
        """Start a program; its window, active, once it has stopped changing."""
        # An editor that was killed would offer to restore what it had.
        data = tempfile.mkdtemp(dir=self.folder)
        answer = self.post("/setup/launch", {"command": list(argv), "env": {"XDG_DATA_HOME": data, "XDG_CONFIG_HOME": data}})
        assert answer.status == 200, answer.json
        self.launched.append(int(answer.headers["x-pid"]))
        self.until(lambda: any(title in w["title"] for w in self.windows()))
        assert self.post("/setup/activate_window", {"window_name": title}).status == 200
        self.get("/frame?format=jpeg&stable=0.3&timeout=10")
        return next(w for w in self.windows() if title in w["title"])

    def terminal(self, title: str, line: str) -> dict[str, Any]:
        """An xterm that runs a shell's line, with the keyboard."""
        window = self.open(title, "xterm", "-T", title, "-fa", "DejaVu Sans Mono", "-fs", "10", "-geometry", "100x25+60+60", "-e", "sh", "-c", line)
        self.act({"mouse": {"left_click": [window["x"] + window["width"] // 2, window["y"] + window["height"] // 2]}})
        return window

    def until(self, true: Any, seconds: float = 20) -> Any:
        """Ask until the answer is true."""
        end = time.monotonic() + seconds
        while not (found := true()):
            assert time.monotonic() < end, f"{true} is not true after {seconds} s"
            self.sleep()
        return found

    def close_programs(self) -> None:
        """End what was opened."""
        for pid in self.launched:
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.launched.clear()
        names = ("xterm", "mousepad")
        self.until(lambda: not any(w["instance"] in names for w in self.windows()))

    def family(self) -> list[int]:
        """The pids of everything that the desktop has started, itself too, while it runs."""
        return [self.process.pid, *children_of(self.process.pid)]

    def stop(self) -> int:
        """TERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(20)
        self.close()
        self.log.close()
        return code


def children_of(pid: int) -> list[int]:
    """All descendants of a process."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, todo = [], [pid]
    while todo:
        for child in parents.get(todo.pop(), []):
            found.append(child)
            todo.append(child)
    return found
