"""One real desktop for the tests here: Xvnc, openbox and the guest's server, as runner `local` starts them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import lacking
from tests.images.guest.desk import PYTHON, Desk, missing_modules

PROGRAMS = ("Xvnc", "openbox", "xterm", "mousepad", "xsetroot", "xset", "xrandr", "setxkbmap", "xinput", "dbus-daemon")


@pytest.fixture(scope="session")
def parts() -> None:
    """What a desktop here needs; else the tests are skipped."""
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if not Path(PYTHON).exists():
        lacking("desktop", f"no {PYTHON}")
    missing += missing_modules()
    if missing:
        lacking("desktop", f"not installed: {', '.join(missing)}")


@pytest.fixture(scope="session")
def desk(parts: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A running desktop of 1280x720."""
    made = Desk(tmp_path_factory.mktemp("desk"))
    made.await_painted()
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def _clean(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test: nothing pressed, no window left, the us layout."""
    yield
    if "desk" in request.fixturenames:
        desk: Desk = request.getfixturevalue("desk")
        desk.run("setxkbmap", "us")
        desk.post("/reset")
        desk.close_programs()
