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
from tests.murder import is_clean, labeled_containers, signaled

MOMENTS = ("claimed", "started", "ready", "resetting", "stepping", "verifying")

WORDS = ["run", RECIPE, "--name", "victim", "--port", "0", "--task", "move-standup", "--agent", "oracle", "--rm", "--json"]


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
        delay = choices.uniform(0, 0.004) if n // len(MOMENTS) % 3 == 2 else 0
        reached = signaled(cli, moment, [*WORDS, "--runner", runner], delay=delay)
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
