"""`make demo`, as a newcomer types it: it says PASSED; when the oracle leaves out its last call it says FAILED and ends with an error."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT, Cli, lacking


def demo(cli: Cli, *words: str) -> subprocess.CompletedProcess[str]:
    """`make demo` with the environment of this interpreter in the place of `.venv`."""
    if not shutil.which("make"):
        lacking("make", "not installed")
    venv = cli.folder / "venv"
    venv.mkdir()
    (venv / "bin").symlink_to(Path(sys.executable).parent)
    (venv / ".installed").touch()
    return subprocess.run(["make", "demo", f"VENV={venv}", *words], env=cli.env, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_it_passes_and_prints_each_command(cli: Cli) -> None:
    done = demo(cli)
    assert done.returncode == 0, done.stderr
    assert "PASSED" in done.stdout
    for command in ("gymctl doctor local", "gymctl run agent-environment --runner local --task move-standup --agent oracle --rm", "gymctl ps"):
        assert command in done.stdout
    assert cli("ps", "--all", "--json").json == []


@pytest.mark.parametrize("direct", [False, True])
def test_without_the_oracles_last_call_it_fails(cli: Cli, direct: bool) -> None:
    """The command ends with 1; make says so, and ends with a code of its own."""
    task = yaml.safe_load((ROOT / "recipes/agent-environment/tasks/move-standup.yaml").read_text())
    task["solution"].pop()
    path = cli.folder / "move-standup.yaml"
    path.write_text(yaml.safe_dump(task))
    if direct:
        assert "FAILED" in cli("run", "agent-environment", "--runner", "local", "--task", str(path), "--agent", "oracle", "--rm", code=1).out
        return
    done = demo(cli, f"TASK={path}")
    assert "FAILED" in done.stdout
    assert "PASSED" not in done.stdout
    assert "Error 1" in done.stderr
    assert done.returncode == 2
    assert os.listdir(cli.state / "instances") == []
