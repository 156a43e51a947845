"""Runs of gymctl that get a signal at a named moment, and what must be true after it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.conftest import Cli

# Runs gymctl and signals it `delay` seconds after the moment it is told; writes down each moment it reaches.
SCRIPT = """
import os, signal, sys, threading
moment, number, delay, diary, *words = sys.argv[1:]
from gymctl import agents, assets, instances, launch, levels, paths, runners, session, wire
runner = runners.load(words[words.index("--runner") + 1])

def reached(name):
    with open(diary, "w") as file:
        file.write(name)
    if name == moment:
        if float(delay) == 0:
            os.kill(os.getpid(), int(number))
        else:
            main_thread = threading.main_thread().ident  # to which a terminal's signals go, while there is no other
            threading.Timer(float(delay), signal.pthread_kill, (main_thread, int(number))).start()

def at(module, name, before=None, after=None):
    real = getattr(module, name)
    def wrapped(*args, **kwargs):
        if before:
            reached(before)
        made = real(*args, **kwargs)
        if after:
            reached(after)
        return made
    setattr(module, name, wrapped)

at(instances, "claim", after="claimed")
at(assets, "fetch", after="fetched")
at(paths, "make_runtime_dir", after="folder made")
at(runner, "start", after="started")
at(launch, "_await", after="ready")
at(session, "reset", after="reset")
at(session, "step", after="stepped")
at(agents, "_keep_files", after="files kept")
at(instances, "end", before="stopping", after="removed")
at(runner, "stop", after="stopped")
if hasattr(runner, "save"):
    from docker.api.client import APIClient
    from gymctl.runners import docker_checkpoints
    at(APIClient, "commit", before="committing", after="committed")
    at(docker_checkpoints, "_publish", after="published")
    at(runner, "save", after="kept")
from gymctl.kinds import desktop
at(desktop, "shell", after="hooked")
at(desktop, "prepare", before="preparing", after="prepared")
at(desktop, "start_recording", after="recording")
at(desktop, "end_recording", after="filmed")
at(desktop, "verify", before="judging")
send = wire.Client.send
EARLY = {"/execute": "in a hook", "/input": "acting", "/end_recording": "film ending"}
PATHS = {"/reset": "resetting", "/call-tools": "stepping", "/verifier": "verifying", **EARLY}
def sending(self, method, path, *args, **kwargs):
    known = PATHS.get(path)
    if known and (float(delay) > 0 or path in EARLY):
        reached(known)
    reply = send(self, method, path, *args, **kwargs)
    if known and float(delay) == 0:
        reached(known)
    return reply
wire.Client.send = sending
sys.argv = ["gymctl", *words]
from gymctl.cli import main
main()
"""


def signaled(cli: Cli, moment: str, words: list[str], *, signum: int = signal.SIGKILL, delay: float = 0) -> str:
    """Run an episode that gets a signal; the moment it had reached, or `ended`."""
    diary = cli.folder / "diary"
    diary.write_text("")
    argv = [sys.executable, "-c", SCRIPT, moment, str(int(signum)), str(delay), str(diary), *words]
    done = subprocess.run(argv, env=cli.env, capture_output=True, text=True, cwd=cli.folder, timeout=300, check=False)
    wanted = -signum if signum == signal.SIGKILL else 128 + signum
    assert done.returncode in (wanted, 0), f"{moment}: {done.returncode}: {done.stderr}"
    return diary.read_text() if done.returncode else "ended"


def is_clean(cli: Cli, runner: str, containers: Callable[[], list[str]]) -> None:
    """What `ps --all` says is true; after `cache gc` and `stop` nothing of ours is left."""
    rows = {row["name"]: row for row in cli("ps", "--all", "--json").json}
    alive = bool(cli.leftovers() if runner == "local" else containers())
    said = rows.get("victim", {}).get("status")
    assert alive == (said in ("running", "orphaned")), f"{said}, and it {'lives' if alive else 'does not live'}"
    ports = [int(port) for port in (rows.get("victim", {}).get("ports") or {}).values()]
    cli("cache", "gc", "--json")
    for name in [row["name"] for row in cli("ps", "--all", "--json").json]:
        cli("stop", name)
    assert cli("ps", "--all", "--json").json == []
    assert cli.leftovers() == []
    assert containers() == []
    assert not list((cli.state / "instances").iterdir())
    left = [p for folder in ("tmp", "locks") for p in (cli.folder / "cache" / folder).glob("*")]
    assert left == []
    for port in ports:
        assert not listens(("127.0.0.1", port))


def listens(address: tuple[str, int] | Path) -> bool:
    """Whether somebody takes connections there."""
    with socket.socket(socket.AF_UNIX if isinstance(address, Path) else socket.AF_INET) as probe:
        return probe.connect_ex(str(address) if isinstance(address, Path) else address) == 0


def labeled_containers(cli: Cli) -> list[str]:
    """The ids of containers with our label, asked of the engine."""
    argv = ["docker", "ps", "-a", "--format", '{{.ID}} {{.Label "gymctl.label"}}']
    rows = subprocess.run(argv, env=cli.env, capture_output=True, text=True, check=True).stdout.split("\n")
    return [row for row in rows if row.partition(" ")[2].startswith(cli.label())]
