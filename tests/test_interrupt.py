"""Ctrl-C, TERM and HUP at named moments of an episode: it ends soon, says so, and nothing of ours is left. A second one ends it at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import RECIPE, Cli
from tests.murder import SCRIPT, labeled_containers
from tests.test_cli import wait_for
from tests.test_kill import MOMENTS
from tests.test_session import STUB

BOUND = 7.5
"""Seconds from a signal to the end: a CI system that cancels sends KILL after that."""


@pytest.fixture(params=["local", "docker"])
def on(request: pytest.FixtureRequest, cli: Cli) -> tuple[Cli, Callable[[], list[str]]]:
    """gymctl on each runner, and what tells its containers."""
    cli.env["GYMCTL_RUNNER"] = request.param
    if request.param == "local":
        return cli, list
    cli.env |= request.getfixturevalue("docker_env")
    return cli, lambda: labeled_containers(cli)


@pytest.mark.parametrize("moment", MOMENTS)
def test_nothing_is_left_whenever_it_comes(on: tuple[Cli, Callable[[], list[str]]], moment: str) -> None:
    cli, containers = on
    signum = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)[MOMENTS.index(moment) % 3]
    diary = cli.folder / "diary"
    words = ["run", RECIPE, "--runner", cli.env["GYMCTL_RUNNER"], "--port", "0", "--task", "move-standup", "--agent", "oracle", "--rm", "--json"]
    began = time.monotonic()
    argv = [sys.executable, "-c", SCRIPT, moment, str(int(signum)), "0", str(diary), *words]
    done = subprocess.run(argv, env=cli.env, capture_output=True, text=True, cwd=cli.folder, timeout=60, check=False)
    assert done.returncode == 128 + signum, done.stderr
    assert json.loads(done.stdout)["error"]["message"] == f"ended by {signum.name}"
    assert time.monotonic() - began < BOUND + 20, "the episode's own time and the bound"
    assert cli("ps", "--all", "--json").json == []
    assert cli.leftovers() == []
    assert containers() == []


def test_a_second_one_ends_it_at_once_and_says_what_that_leaves(on: tuple[Cli, Callable[[], list[str]]]) -> None:
    """The unwinding is held up, as an engine that hangs would; gc and stop end what is left."""
    cli, containers = on
    code = (
        "import sys, time\nfrom gymctl import instances, launch\nfrom gymctl.cli import main\n"
        "def slow(*args):\n    print('unwinding', flush=True)\n    time.sleep(60)\n"
        "instances.end = slow\nlaunch._await = lambda *args: (print('up', flush=True), time.sleep(60))\nmain()"
    )
    argv = [sys.executable, "-c", code, "run", RECIPE, "--port", "0"]
    child = subprocess.Popen(argv, env=cli.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cli.folder)
    assert child.stdout is not None
    for line in ("up\n", "unwinding\n"):
        assert child.stdout.readline() == line
        child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=5)
    assert child.returncode == -signal.SIGINT
    assert "ended before all was undone" in err
    assert "gymctl ps --all" in err
    assert len(cli("ps", "--all", "--json").json) == 1
    cli("stop", RECIPE)
    assert cli("ps", "--all", "--json").json == []
    assert cli.leftovers() == []
    assert containers() == []


@pytest.mark.parametrize("words", [["step", "stub", "--stdin"], ["verify", "stub", "--task", "checked"]])
def test_the_instance_stays_when_a_command_on_it_is_interrupted(cli: Cli, words: list[str]) -> None:
    cli("run", STUB, "--runner", "local", "--name", "stub", "--port", "0", "-e", "STUB=sleep")
    child = cli.spawn(*words, stdin=subprocess.PIPE)
    lock = os.stat(cli.state / "instances" / "stub" / "lock").st_ino
    wait_for(lambda: any(f":{lock} " in line and str(child.pid) in line for line in Path("/proc/locks").read_text().splitlines()))
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=BOUND)
    assert (child.returncode, err) == (130, "error: ended by SIGINT\n")
    assert cli("ps", "--json").json[0]["status"] == "running"
    cli("step", "stub", "do_it")


def test_killed_by_ci(cli: Cli) -> None:
    """TERM, then KILL of the whole process group, as CI systems cancel: what ran is found and ended by the next job's gc."""
    words = ("run", STUB, "--runner", "local", "--task", "checked", "--agent", "sleep 60", "--rm")
    child = cli.spawn(*words, start_new_session=True)
    wait_for(lambda: len(list((cli.state / "instances").glob("*/agent.log"))) == 1)
    os.killpg(child.pid, signal.SIGKILL)
    child.communicate()
    assert cli("ps", "--json").json[0]["status"] == "running"
    cli("stop", "--all")
    assert cli.leftovers() == []
