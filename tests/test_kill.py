"""kill -9 of gymctl at named moments of a run: what is listed is true, what is ended is gone, and nothing else is touched."""

from __future__ import annotations

import collections
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import RECIPE, Cli

MOMENTS = ("claimed", "started", "ready", "resetting", "stepping", "verifying")

# Runs gymctl and kills it `delay` seconds after the moment it is told; writes down each moment it reaches.
MURDER = """
import os, pathlib, signal, sys, threading
moment, delay, diary, *words = sys.argv[1:]
from gymctl import instances, launch, wire, runners
from gymctl.runner import Plan

def reached(name):
    with open(diary, "w") as file:
        file.write(name)
    if name == moment:
        if float(delay) == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        threading.Timer(float(delay), os.kill, (os.getpid(), signal.SIGKILL)).start()

def after(module, name, moment):
    real = getattr(module, name)
    def wrapped(*args, **kwargs):
        made = real(*args, **kwargs)
        reached(moment)
        return made
    setattr(module, name, wrapped)

after(instances, "claim", "claimed")
after(runners.load(words[words.index("--runner") + 1]), "start", "started")
after(launch, "_await", "ready")
send = wire.Client.send
PATHS = {"/reset": "resetting", "/call-tools": "stepping", "/verifier": "verifying"}
def sending(self, method, path, document=None, *, timeout=60):
    if path in PATHS and float(delay) > 0:
        reached(PATHS[path])
    reply = send(self, method, path, document, timeout=timeout)
    if path in PATHS and float(delay) == 0:
        reached(PATHS[path])
    return reply
wire.Client.send = sending
sys.argv = ["gymctl", *words]
from gymctl.cli import main
main()
"""


@pytest.fixture(scope="module")
def bystanders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], None]]:
    """An instance of another state directory and a process without a label; the function says whether both still live."""
    other = Cli(tmp_path_factory.mktemp("other"))
    other("run", RECIPE, "--runner", "local", "--name", "bystander", "--port", "0")
    plain = subprocess.Popen(["sleep", "3600"])

    def unharmed() -> None:
        assert other("ps", "--json").json[0]["status"] == "running"
        other("step", "bystander", "contacts_search_people", "query=a", "limit:=1")
        assert plain.poll() is None

    yield unharmed
    plain.kill()
    plain.wait()
    other.close()


def murder(cli: Cli, runner: str, moment: str, delay: float) -> str:
    """Run an episode that is killed; the moment it had reached."""
    diary = cli.folder / "diary"
    diary.write_text("")
    words = ["run", RECIPE, "--runner", runner, "--name", "victim", "--port", "0", "--task", "move-standup", "--agent", "oracle", "--rm", "--json"]
    argv = [sys.executable, "-c", MURDER, moment, str(delay), str(diary), *words]
    done = subprocess.run(argv, env=cli.env, capture_output=True, text=True, cwd=cli.folder, timeout=120, check=False)
    assert done.returncode in (-signal.SIGKILL, 0), done.stderr
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
        assert not listens(port)


def listens(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("runner", ["local", "docker"])
def test_killed_at_any_moment(
    runner: str, cli: Cli, bystanders: Callable[[], None], request: pytest.FixtureRequest,
    long_count: Callable[[int, int], int], capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Long: each round is a whole start; `make test LONG=1` does 100 a runner, CI 10."""
    containers: Callable[[], list[str]] = list
    if runner == "docker":
        cli.env |= request.getfixturevalue("docker_env")
        containers = lambda: labeled_containers(cli)  # noqa: E731
    rounds = long_count(10, 100)
    choices = random.Random(rounds)
    histogram: collections.Counter[str] = collections.Counter()
    began = time.monotonic()
    for n in range(rounds):
        moment = MOMENTS[n % len(MOMENTS)]
        # At the moment itself in two of three rounds, a little later in the third: then it may have reached the next one.
        reached = murder(cli, runner, moment, choices.uniform(0, 0.004) if n // len(MOMENTS) % 3 == 2 else 0)
        histogram[reached] += 1
        is_clean(cli, runner, containers)
        if n % 10 == 0:
            bystanders()
    bystanders()
    with capsys.disabled():
        print(f"\nkill -9, {runner}: {json.dumps(histogram)} in {time.monotonic() - began:.0f} s")
    assert set(MOMENTS) <= set(histogram)
    if rounds >= 100:
        assert all(histogram[moment] >= 10 for moment in MOMENTS), histogram


def labeled_containers(cli: Cli) -> list[str]:
    """The ids of containers with our label, asked of the engine."""
    argv = ["docker", "ps", "-a", "--format", '{{.ID}} {{.Label "gymctl.label"}}']
    rows = subprocess.run(argv, env=cli.env, capture_output=True, text=True, check=True).stdout.split("\n")
    return [row for row in rows if row.partition(" ")[2].startswith(cli.label())]


def test_killed_while_it_waits_for_a_lock_or_holds_one(cli: Cli) -> None:
    cli("run", RECIPE, "--runner", "local", "--name", "held", "--port", "0")
    hold = "import time\nfrom gymctl import instances\nwith instances.locked('held', exclusive=True):\n    print('held', flush=True)\n    time.sleep(60)"
    holder = subprocess.Popen([sys.executable, "-c", hold], env=cli.env, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    waiter = cli.spawn("step", "held", "contacts_search_people", "query=a")
    time.sleep(0.5)
    assert waiter.poll() is None
    holder.kill()
    holder.wait()
    holder.stdout.close()
    assert waiter.wait(timeout=10) == 0
    waiter.communicate()


def test_a_foreign_pid_is_not_ours(cli: Cli) -> None:
    """A record whose pid now belongs to somebody else: said to be exited, and that process is left alone."""
    cli("run", RECIPE, "--runner", "local", "--name", "stale", "--port", "0")
    record = cli.state / "instances" / "stale" / "instance.json"
    document = json.loads(record.read_text())
    victim = document["handle"]["pid"]
    import os

    os.killpg(victim, signal.SIGKILL)
    other = subprocess.Popen(["sleep", "60"])
    try:
        document["handle"]["pid"] = other.pid
        record.write_text(json.dumps(document))
        deadline = time.monotonic() + 5
        while cli.leftovers() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert cli("ps", "--json").json[0]["status"] == "exited"
        cli("stop", "stale")
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_half_written_record_is_listed_and_can_be_stopped(cli: Cli) -> None:
    cli("run", RECIPE, "--runner", "local", "--name", "torn", "--port", "0")
    path: Path = cli.state / "instances" / "torn" / "instance.json"
    path.write_text(path.read_text()[:40])
    assert cli("ps", "--json").json[0]["status"] == "broken"
    assert cli("ps", "--all", "--json").json[0]["status"] == "orphaned"
    cli("stop", "torn")
    assert cli.leftovers() == []
    assert cli("ps", "--all", "--json").json == []
