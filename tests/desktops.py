"""Running desktops for tests: one a runner, with the guest's server as it is in this checkout."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, Cli, lacking
from tests.engine import docker_call
from tests.images.guest.desk import missing_modules

RUNNERS = ("local", "docker")
IMAGE = "gymctl-test-desktop:latest"
PROGRAMS = ("Xvnc", "vncpasswd", "openbox", "tint2", "pcmanfm", "mousepad", "dbus-daemon", "xset")


def check_host() -> None:
    """Skip where a desktop cannot run as plain processes."""
    missing = [name for name in PROGRAMS if not shutil.which(name)] + missing_modules()
    if missing:
        lacking("desktop", f"not installed: {', '.join(missing)}")


def image(host: str) -> str:
    """linux-desktop as the engine has it (the fixture `desktop_image`), with this checkout's guest in it."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as context:
        text = b"FROM linux-desktop:latest\nRUN rm -rf /opt/images/_guest\nCOPY _guest /opt/images/_guest\n"
        entry = tarfile.TarInfo("Dockerfile")
        entry.size = len(text)
        context.addfile(entry, io.BytesIO(text))
        context.add(ROOT / "images/_guest", "_guest", filter=lambda e: None if "__pycache__" in e.name else _plain(e))
    docker_call(host, "build", "-q", "-t", IMAGE, "-", input=made.getvalue())
    return IMAGE


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, 0, "", ""
    return entry


PATCH = """
import sys, tkinter
title, geometry, color, how = sys.argv[1:]
window = tkinter.Tk(className="Patch")
window.title(title)
window.geometry(geometry)
window.configure(bg=color)
window.attributes("-fullscreen", how == "full")
def busy(n=0):
    window.configure(bg=("red", "blue")[n % 2])
    window.after(50, busy, n + 1)
if how == "busy":
    busy()
window.mainloop()
"""


class Machine:
    """A running desktop and the command line that acts on it."""

    def __init__(self, cli: Cli, name: str, runner: str, document: dict[str, Any]) -> None:
        self.cli, self.name, self.runner, self.document = cli, name, runner, document
        self._patches: list[str] = []
        """The pids of windows made here: Tk does not say whose its windows are."""

    def step(self, *words: str, code: int = 0) -> Any:
        """What an action brought, or its error."""
        done = self.cli("step", self.name, "--json", "--", *words, code=code).json
        return done["observation"] if code == 0 else done["error"]

    def record(self) -> Any:
        """instance.json"""
        return json.loads((self.folder / "instance.json").read_text())

    @property
    def folder(self) -> Path:
        """The instance's directory."""
        return self.cli.state / "instances" / self.name

    def home(self) -> str:
        """The home of who sits there."""
        return str(self.step("exec", "cd; pwd")["stdout"].strip())

    def close_windows(self) -> None:
        """End the programs that have windows, but not the desktop's own."""
        deadline = time.monotonic() + 30
        while windows := [w for w in self.step("windows")["windows"] if w["class"] not in ("Pcmanfm", "Tint2")]:
            assert time.monotonic() < deadline, windows
            pids = [str(w["pid"]) for w in windows if w["pid"]]
            self.step("exec", f"kill -9 {' '.join([*pids, *self._patches])} 2>/dev/null; true")
            self.step("wait", "0.1")

    def window(self, title: str, geometry: str = "500x300+300+200", color: str = "white", how: str = "plain") -> None:
        """Open a window of one color (`how`: plain, full, busy); nothing waits for it."""
        self._patches.append(str(self.step("launch", "python3", "-c", PATCH, title, geometry, color, how)["pid"]))


def start(cli: Cli, runner: str, request: pytest.FixtureRequest, *more: str, name: str = "desk") -> Machine:
    """Run linux-desktop on a runner."""
    words = [*more]
    if runner == "docker":
        host = request.getfixturevalue("docker_host")
        request.getfixturevalue("desktop_image")
        cli.env["DOCKER_HOST"] = host
        words += ["--image", image(host)]
    else:
        check_host()
    recipe = [] if more and not more[0].startswith("-") else ["linux-desktop"]
    return Machine(cli, name, runner, cli("run", *recipe, *words, "--runner", runner, "--name", name, "--port", "0", "--json", timeout=300).json)


@pytest.fixture(scope="session", params=RUNNERS)
def desk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A desktop on each runner, shared by all tests that leave it as they found it."""
    cli = Cli(tmp_path_factory.mktemp("desk"))
    try:
        yield start(cli, request.param, request)
    finally:
        cli.close()


@pytest.fixture(scope="session")
def local_desk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """One as plain processes."""
    cli = Cli(tmp_path_factory.mktemp("local-desk"))
    try:
        yield start(cli, "local", request)
    finally:
        cli.close()
