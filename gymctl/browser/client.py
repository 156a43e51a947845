"""How a command asks its instance's browser: over the driver's unix socket; the first one that needs it starts it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymctl import paths, proc, wire
from gymctl.episode import Json
from gymctl.errors import EnvError, GymctlError, Unavailable

if TYPE_CHECKING:
    from gymctl.instances import Instance

NAMES = ("chromium", "chromium-browser", "google-chrome")
START_TIMEOUT = 60.0
SLACK = 45.0
"""Seconds a step may take beyond the gesture's own: a context's start and its start page."""


def lacking() -> Unavailable | None:
    """What this host lacks for a browser, and how to get it; None when it has all."""
    import importlib.util

    if importlib.util.find_spec("playwright") is None:
        return Unavailable("acting on a website needs the Python package playwright", hint="pip install 'gymctl[browser]'; its own browsers are not needed")
    if executable() is None:
        return Unavailable(f"acting on a website needs Chromium, and none of {', '.join(NAMES)} is on PATH", hint="Debian, Ubuntu: apt-get install chromium")
    return None


def executable() -> str | None:
    """The browser on PATH."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Link:
    """A connection to the driver of an instance's browser, made at the first request."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._socket: socket.socket | None = None
        self._lines: Any = None

    def close(self) -> None:
        """Close the connection; the browser stays."""
        if self._socket:
            self._lines.close()
            self._socket.close()
            self._socket = None

    def step(self, session: str, action: str, args: Json, seconds: float) -> Json:
        """Do a gesture: {value, files, elapsed}; EnvError, Unavailable."""
        if self._socket is None:
            self._take(self._reach() or self._start())
        answer = self._ask({"session": session, "action": action, "args": args}, seconds * 2 + SLACK)
        if "error" in answer:
            raise _error(answer["error"])
        return answer

    def forget(self, session: str) -> None:
        """Let a session's next step begin at the start page. Starts nothing."""
        found = None if self._socket else self._reach()
        if found:
            self._take(found)
        if self._socket:
            with contextlib.suppress(EnvError):  # gone with its pages
                self._ask({"session": session, "forget": True}, SLACK)

    def _take(self, connected: socket.socket) -> None:
        self._socket, self._lines = connected, connected.makefile("rb")

    def _ask(self, request: Json, timeout: float) -> Json:
        assert self._socket  # noqa: S101  (both callers connect)
        self._socket.settimeout(timeout)
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            line = self._lines.readline()
        except TimeoutError as error:
            self.close()
            raise EnvError(f"the browser did not answer within {timeout:g} s", hint="`gymctl stop` and `run` start anew", type="timeout") from error
        except OSError:
            line = b""
        if not line:
            self.close()
            self._forget_driver()
            raise EnvError("the browser ended during the step", hint="the next step starts it again, at the start page", type="browser_lost")
        answer: Json = json.loads(line)
        return answer

    def _recorded(self) -> Json | None:
        return next((helper for helper in self._instance.helpers if helper["what"] == "browser"), None)

    def _reach(self) -> socket.socket | None:
        """A connection to the driver on record, if it answers."""
        helper = self._recorded()
        if helper is None:
            return None
        link = socket.socket(socket.AF_UNIX)
        try:
            link.connect(helper["socket"])
        except OSError:
            link.close()
            return None
        return link

    def _forget_driver(self) -> None:
        with self._instance.changing():
            self._instance.helpers = [helper for helper in self._instance.helpers if helper["what"] != "browser"]

    def _start(self) -> socket.socket:
        """Start the driver, once however many want it; EnvError when an earlier one had ended: its page is lost, and nothing is done on another."""
        _check_server(self._instance)
        with (self._instance.directory / "browser.lock").open("a") as lock:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)  # the holder starts it within START_TIMEOUT
            with self._instance.changing():
                before = self._recorded()
            link = self._reach()
            if link:
                return link
            self._spawn()
        if before:
            raise EnvError("the browser had ended, and its pages with it", hint="a new one stands at the start page: do the action again", type="browser_lost")
        link = self._reach()
        if link is None:
            raise Unavailable("the browser ended as soon as it was started", hint=f"{self._instance.directory / 'browser.log'}")
        return link

    def _spawn(self) -> None:
        missing = lacking()
        if missing:
            raise missing
        instance = self._instance
        folder = paths.make_runtime_dir(instance.name)  # its own: a driver that was given up cannot take this one's
        reader, writer = os.pipe()
        with open(reader, "rb") as said:
            env = proc.module_environment(instance.label, TMPDIR=str(folder), HOME=str(folder))
            argv = [sys.executable, "-m", "gymctl.browser", instance.url, str(instance.directory), str(folder), str(executable()), str(writer)]
            try:
                process = proc.spawn(argv, env=env, cwd=instance.directory, log=instance.directory / "browser.log", pass_fds=[writer])
            finally:
                os.close(writer)
            with instance.changing():
                others = [helper for helper in instance.helpers if helper["what"] != "browser"]
                mine = {"what": "browser", "pid": process.pid, "started": process.started, "label": instance.label, "socket": str(folder / "browser")}
                instance.helpers = [*others, mine]
            told = proc.first_line(said.fileno(), START_TIMEOUT)
        silent = {"error": "the browser's driver ended before it listened", "hint": _last_line(instance.directory / "browser.log")}
        answer = json.loads(told) if told else silent
        if "error" in answer:
            proc.end_group(process)
            self._forget_driver()
            raise Unavailable(wire.printable(answer["error"]), hint=wire.printable(answer.get("hint", "")))


def _check_server(instance: Instance) -> None:
    """Unavailable when the website itself does not answer: no browser is started for it."""
    server = wire.Client(instance.url, name=instance.name)
    try:
        server.send("GET", "/health", timeout=10)
    finally:
        server.close()


def _last_line(log: Path) -> str:
    with contextlib.suppress(OSError):
        lines = log.read_text("utf-8", "replace").strip().splitlines()
        return lines[-1][:300] if lines else ""
    return ""


def _error(told: Json) -> GymctlError:
    message, hint = wire.printable(told["message"]), wire.printable(told["hint"])
    return Unavailable(message, hint=hint) if told["kind"] == "Unavailable" else EnvError(message, hint=hint, type=told["type"])
