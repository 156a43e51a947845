"""kill -9 and Ctrl-C of gymctl at named moments of a desktop's run: after `ps --all` and `cache gc` nothing of it is left anywhere."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests import machines
from tests.conftest import Cli
from tests.murder import is_clean, labeled_containers, listens, signaled

START = ("claimed", "fetched", "started", "ready", "in a hook", "hooked")
KEEP = ("committing", "committed", "published", "kept")
FILM = ("recording", "acting", "stepped", "film ending", "filmed")
EPISODE = ("preparing", "prepared", "reset", *FILM, "judging", "files kept", "stopping", "stopped", "removed")
MOMENTS = {"local": ("folder made", *START, *EPISODE), "docker": (*START, *KEEP, *EPISODE)}
IN_THE_MIDDLE = {"in a hook": 0.3, "film ending": 0.02, "judging": 0.1}
"""Seconds after which the signal comes, for what takes a while."""
INTERRUPTED = ("fetched", "in a hook", "committed", "prepared", "acting", "film ending")
STEPS = [{"type": "launch", "parameters": {"command": ["mousepad"]}}, {"type": "execute", "parameters": {"command": "true"}}]
SOLUTION = [{"action": "type", "args": {"text": "seen on the film"}}, {"action": "exec", "args": {"command": "printf yes > done"}}]


@dataclass
class Scene:
    """A runner with a recipe, and what of a desktop can be left on this host."""

    cli: Cli
    runner: str
    words: list[str]
    sockets: set[Path] = field(default_factory=set)

    def look(self) -> None:
        """Remember where the desktops that live now have sockets."""
        for pid in self.cli.leftovers():
            with contextlib.suppress(OSError):
                environment = dict(item.partition("=")[::2] for item in Path(f"/proc/{pid}/environ").read_text().split("\0"))
                if number := environment.get("DISPLAY", "").removeprefix(":"):
                    self.sockets |= {Path(f"/tmp/.X11-unix/X{number}"), Path(f"/tmp/.X{number}-lock")}
                for part in environment.get("DBUS_SESSION_BUS_ADDRESS", "").split(","):
                    self.sockets |= {Path(part.removeprefix("unix:path="))} if part.startswith("unix:path=") else set()

    def is_clean(self) -> None:
        """Nothing: processes, containers, images half made, sockets, folders."""
        self.look()
        is_clean(self.cli, self.runner, lambda: labeled_containers(self.cli) if self.runner == "docker" else [])
        left = [path for path in self.sockets if path.exists() and not (path.is_socket() and listens(path))]
        assert left == [], "sockets and locks that nobody holds"
        assert list((self.cli.folder / "t").iterdir()) == [], "temp files"
        assert list((self.cli.folder / "r").iterdir()) == [], "runtime folders"
        if self.runner == "docker":
            images = subprocess.run(["docker", "images", "--format", "{{.Repository}}:{{.Tag}}"], env=self.cli.env, capture_output=True, text=True, check=True)
            assert f"making:{cache_id(self.cli)}" not in images.stdout
        for film in (self.cli.state / "episodes").glob("*/recording.mp4"):
            assert film_seconds(film) > 0


def cache_id(cli: Cli) -> str:
    import hashlib

    return hashlib.sha256(str(cli.folder / "cache").encode()).hexdigest()[:12]


def film_seconds(film: Path) -> float:
    """How long a film is; it must be whole."""
    argv = ["ffprobe", "-v", "error", "-show_entries", "format=duration", "-of", "json", str(film)]
    return float(json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)["format"]["duration"])


@pytest.fixture
def scene(request: pytest.FixtureRequest, cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    runner: str = request.param
    for name in ("t", "r"):
        (cli.folder / name).mkdir(mode=0o700)
    short = Path("/tmp") / f"gymk-{cli.label()}"  # the runtime folder's path must be short
    short.symlink_to(cli.folder / "r")
    cli.env |= {"TMPDIR": str(cli.folder / "t"), "XDG_RUNTIME_DIR": str(short)}
    machines.prepared(runner, cli, request)
    hooks = {"pre_start": "sleep 0.6", "post_task": "true"}
    where = machines.recipe(cli.folder / "own", {"t": {"setup": STEPS, "solution": SOLUTION}}, hooks=hooks)
    more = ["--checkpoint", "post_start"] if runner == "docker" else []
    words = ["--runner", runner, "--name", "victim", "--port", "0", "--task", "t", "--agent", "oracle", "--record", "--rm", "--json"]
    yield Scene(cli, runner, machines.words(cli, where, *words, *more))
    short.unlink()
    if runner == "docker":
        cli("stop", "--all", code=None)
        cli("cache", "gc", "--all")


@pytest.mark.parametrize("scene", ["local", "docker"], indirect=True)
def test_killed_at_any_moment_of_a_desktops_run(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """Each of twenty moments and more, once; a checkpoint that came whole is removed, so that each run makes its own."""
    missed = []
    for moment in MOMENTS[scene.runner]:
        reached = signaled(scene.cli, moment, scene.words, delay=IN_THE_MIDDLE.get(moment, 0))
        print(moment)  # shown when a line below fails
        if reached != moment:
            missed.append((moment, reached))
        scene.is_clean()
        if scene.runner == "docker":
            scene.cli("cache", "gc", "--all")
    with capsys.disabled():
        print(f"\nkill -9 of a desktop's run, {scene.runner}: {len(MOMENTS[scene.runner])} moments, {len(missed)} reached another: {missed}")
    assert len(MOMENTS[scene.runner]) >= 20
    assert not missed


@pytest.mark.parametrize("scene", ["local", "docker"], indirect=True)
def test_interrupted_at_any_moment_of_a_desktops_run(scene: Scene) -> None:
    """Ctrl-C ends all by itself: `cache gc` finds nothing to do. Films of what was acted are whole."""
    for moment in [m for m in INTERRUPTED if m in MOMENTS[scene.runner]]:
        reached = signaled(scene.cli, moment, scene.words, signum=signal.SIGINT, delay=IN_THE_MIDDLE.get(moment, 0))
        print(moment)
        assert reached != "ended"
        assert scene.cli("ps", "--all", "--json").json == []
        assert scene.cli.leftovers() == []
        scene.is_clean()
        if scene.runner == "docker":
            scene.cli("cache", "gc", "--all")
    films = list((scene.cli.state / "episodes").glob("*/recording.mp4"))
    assert len(films) == 2, "of acting and of the film's end"
    for film in films:
        assert (film.parent / "recording.vtt").read_text().startswith("WEBVTT")
        assert (film.parent / "episode.jsonl").exists()
