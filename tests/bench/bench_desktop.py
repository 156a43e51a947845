"""Desktops: `gymctl run` to painted against the slowest of a desktop's own programs on a bare Xvnc; on docker, less what a container takes to start.

python -m tests.bench.bench_desktop [local] [docker] [--pairs=N]        docker needs an engine that has linux-desktop:latest, named by DOCKER_HOST
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.bench import pairs, report
from tests.conftest import ROOT
from tests.desktops import image

sys.path.insert(0, str(ROOT / "images"))
from _guest.windows import Windows
from _guest.x11 import Connection

GOAL = 1.3
PARTS = {"tint2": ["tint2"], "pcmanfm": ["dbus-run-session", "--", "pcmanfm", "--desktop"]}
"""{a window's instance: what makes it}: the panel, and the desktop's icons, which need a session bus."""


@contextlib.contextmanager
def child(argv: list[str], env: dict[str, str] | None = None, fds: tuple[int, ...] = ()) -> Iterator[None]:
    """A program for the length of a block."""
    process = subprocess.Popen(argv, env=env, pass_fds=fds, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def alone(name: str) -> Callable[[], object]:
    """From nothing (no X server, no window manager either) until the window of one program is there; what ends it."""
    read, write = os.pipe()
    argv = ["Xvnc", "-displayfd", str(write), "-SecurityTypes", "None", "-rfbport", "-1", "-geometry", "1280x720", "-depth", "24", "-nolisten", "tcp", "-ac"]
    with contextlib.ExitStack() as stack:
        stack.enter_context(child(argv, fds=(write,)))
        os.close(write)
        with os.fdopen(read) as told:
            display = f":{told.readline().strip()}"
        env = {**os.environ, "DISPLAY": display}
        windows, deadline = Windows(Connection(display)), time.monotonic() + 60
        stack.callback(windows.close)
        stack.enter_context(child(["openbox"], env))
        while not windows.manager():  # what is shown before there is a window manager may not be seen by it
            time.sleep(0.002)
        stack.enter_context(child(PARTS[name], env))
        while not any(window.instance == name for window in windows.all()):
            assert time.monotonic() < deadline, name
            time.sleep(0.002)
        return stack.pop_all().close


def slowest() -> str:
    """The program that takes longest by itself, of five tries each."""
    taken = {name: statistics.median(_timed(partial(alone, name)) for _ in range(5)) for name in PARTS}
    print("alone: " + ", ".join(f"{name} {seconds * 1000:.0f} ms" for name, seconds in taken.items()))
    return max(taken, key=lambda name: taken[name])


def _timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    end = call()
    taken = time.perf_counter() - began
    if callable(end):
        end()
    return taken


def run(runner: str, env: dict[str, str], *more: str) -> Callable[[], object]:
    """`gymctl run` to painted; what ends it."""

    def call(*words: str) -> None:
        subprocess.run([sys.executable, "-m", "gymctl", *words], env=env, capture_output=True, check=True)

    call("run", "linux-desktop", "--runner", runner, "--port", "0", "--json", *more)
    return lambda: call("stop", "linux-desktop")


def main() -> None:
    count = next((int(word.partition("=")[2]) for word in sys.argv[1:] if word.startswith("--pairs=")), 15)
    chosen = [word for word in sys.argv[1:] if not word.startswith("--")] or ["local", "docker"]
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "GYMCTL_STATE_DIR": str(Path(folder) / "state"), "GYMCTL_CACHE_DIR": str(Path(folder) / "cache")}
        part, met = slowest(), []
        if "local" in chosen:
            met.append(report(f"local desktop up / {part} alone", *pairs(lambda: run("local", env), lambda: alone(part), count), GOAL))
        if "docker" in chosen:
            ref = image(os.environ["DOCKER_HOST"])
            argv = ["docker", "run", "--rm", "--entrypoint", "true", ref]
            container = statistics.median(_timed(lambda: subprocess.run(argv, check=True, capture_output=True)) for _ in range(7))
            taken = pairs(lambda: run("docker", env, "--image", ref), lambda: alone(part), count)
            met.append(report(f"docker desktop up, less a container ({container * 1000:.0f} ms) / {part} alone", *taken, GOAL, plus=container))
    sys.exit(0 if all(met) else 1)


if __name__ == "__main__":
    main()
