"""A bare QEMU with a firmware screen: real, and up in a tenth of a second."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gymctl.vm import machine
from gymctl.vm.qmp import Qmp, listener
from tests.conftest import lacking

Bare = Callable[..., Qmp]


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Bare]:
    """Start one with more words of its command line; its control socket. It ends with the test."""
    if not shutil.which(machine.EMULATOR):
        lacking("qemu", f"no {machine.EMULATOR}")
    with contextlib.ExitStack() as undo:

        def start(*words: str) -> Qmp:
            path = tmp_path / f"q{len(list(tmp_path.iterdir()))}"
            with listener(path) as sock:
                argv = [machine.EMULATOR, "-nodefaults", "-no-user-config", "-accel", "tcg", "-m", "32", "-chardev"]
                argv += [f"socket,id=qmp,fd={sock.fileno()},server=on,wait=off", "-mon", "chardev=qmp,mode=control"]
                with path.with_suffix(".log").open("w") as log:
                    child = undo.enter_context(subprocess.Popen([*argv, *words], pass_fds=[sock.fileno()], stderr=log))
            undo.callback(child.kill)
            return undo.enter_context(Qmp(path))

        yield start
