"""What all tests share: the command line as a person uses it, in folders of its own, and skips that CI can forbid."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

ROOT = Path(__file__).resolve().parent.parent
RECIPE = "agent-environment"
pytest_plugins = ["tests.engine", "tests.desktops", "tests.machines", "tests.runners.qemu_clones"]


# Whoever started us in the background left INT ignored, and children inherit that: the tests send them signals.
for _signum, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_signum) is signal.SIG_IGN:
        signal.signal(_signum, _handler)


BUILT = {"desktop_image", "desktop_files"}
"""Fixtures that wait for a build of minutes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of desktops, of the engine and of QEMU keep each to one worker: they share images, networks, a machine's screen, a cold boot."""
    last = []
    for item in items:
        path, fixtures = item.nodeid.partition("::")[0], set(getattr(item, "fixturenames", ()))
        desktop = "/guest/" in path or "desktop" in path or any("desk" in name for name in fixtures)
        engine = "docker" in item.nodeid or "/runners/" in path or "docker_host" in fixtures
        qemu = "qemu" in item.nodeid or "/vm/" in path
        if desktop or engine or qemu:
            item.add_marker(pytest.mark.xdist_group("qemu" if qemu else "desktop" if desktop else "docker"))
        elif "/images/" in path:
            item.add_marker(pytest.mark.xdist_group(path))
        last.append(bool(fixtures & BUILT or qemu or (desktop and engine)))  # by then the image may have been built
    items[:] = [item for wait in (False, True) for item, waits in zip(items, last, strict=True) if waits is wait]


@dataclass
class Done:
    """A finished gymctl: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """stdout, which must be one JSON document."""
        return json.loads(self.out)


class Cli:
    """gymctl as a child process with state and cache folders of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("GYMCTL_")}
        self.env |= {"GYMCTL_STATE_DIR": str(folder / "state"), "GYMCTL_CACHE_DIR": str(folder / "cache"), "XDG_RUNTIME_DIR": str(folder)}

    def argv(self, *words: str) -> list[str]:
        """The command line of a call."""
        return [sys.executable, "-m", "gymctl", *words]

    def __call__(self, *words: str, code: int | None = 0, input: str | None = None, env: dict[str, str] | None = None, timeout: float = 120) -> Done:
        """Run to the end; the exit code must be `code` (None: any)."""
        done = subprocess.run(
            self.argv(*words), env={**self.env, **(env or {})}, input=input, capture_output=True, text=True, timeout=timeout, cwd=self.folder, check=False
        )
        if code is not None:
            assert done.returncode == code, f"gymctl {' '.join(words)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    def spawn(self, *words: str, env: dict[str, str] | None = None, **more: Any) -> subprocess.Popen[str]:
        """Start one and let it run."""
        return subprocess.Popen(
            self.argv(*words), env={**self.env, **(env or {})}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder, **more
        )

    @property
    def state(self) -> Path:
        """The state directory."""
        return self.folder / "state"

    def label(self) -> str:
        """What everything started from here carries."""
        import hashlib

        return hashlib.sha256(os.fsencode(self.state)).hexdigest()[:12]

    def leftovers(self) -> list[int]:
        """The pids of what still runs with our label."""
        wanted = f"GYMCTL_LABEL={self.label()}/".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if wanted in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def close(self) -> None:
        """Stop everything that a test left."""
        subprocess.run(self.argv("stop", "--all"), env=self.env, capture_output=True, check=False, cwd=self.folder)
        if "DOCKER_HOST" in self.env:  # an engine has addresses for about thirty networks
            subprocess.run(self.argv("cache", "gc"), env=self.env, capture_output=True, check=False, cwd=self.folder)
        for pid in self.leftovers():
            with contextlib.suppress(ProcessLookupError):  # it ended in between
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    """gymctl with empty folders; what it leaves running is ended."""
    made = Cli(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """One running local instance, `office`, for tests that only act in sessions of their own."""
    made = Cli(tmp_path_factory.mktemp("shared"))
    made("run", RECIPE, "--runner", "local", "--name", "office", "--port", "0")
    yield made
    made.close()


def lacking(part: str, why: str) -> NoReturn:
    """Skip because this machine lacks a part, unless NO_SKIP names it: then fail."""
    if part in os.environ.get("NO_SKIP", "").split(","):
        pytest.fail(f"NO_SKIP names {part}, and it cannot be used here: {why}")
    pytest.skip(f"{part}: {why}")


@pytest.fixture
def long_count() -> Callable[[int, int], int]:
    """count(short, long): how many rounds; `make test LONG=1` takes the long ones."""
    return lambda short, long: long if os.environ.get("LONG") else short
