"""Completions in the real shells: verbs, recipes, tasks, running instances, the tools of a running instance."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import RECIPE, ROOT, Cli, lacking

CASES = [
    (["gymctl", "ver"], "verify"),
    (["gymctl", "run", "agent-e"], "agent-environment"),
    (["gymctl", "run", "agent-environment", "--task", "move-stand"], "move-standup"),
    (["gymctl", "run", "agent-environment", "--runner", "loc"], "local"),
    (["gymctl", "step", "off"], "office"),
    (["gymctl", "step", "office", "calendar_get_cal"], "calendar_get_calendar_events"),
    (["gymctl", "reset", "office", "--task", "move-stand"], "move-standup"),
]


def environment(shared: Cli) -> dict[str, str]:
    """With the gymctl of this interpreter first on PATH."""
    return {**shared.env, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def shell(name: str, script: str, shared: Cli) -> str:
    """What a script prints in the real shell."""
    if not shutil.which(name):
        lacking(name, "not installed")
    return subprocess.run([name, "-c", script], env=environment(shared), capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.parametrize(("words", "wanted"), CASES)
def test_bash(shared: Cli, words: list[str], wanted: str) -> None:
    script = f"""
        source {ROOT}/completions/gymctl.bash
        COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}
        $(complete -p gymctl | sed 's/.*-F \\([^ ]*\\).*/\\1/') gymctl
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    assert wanted in shell("bash", script, shared).split()


@pytest.mark.parametrize(("words", "wanted"), CASES)
def test_zsh(shared: Cli, words: list[str], wanted: str) -> None:
    script = f"""
        compdef() {{ :; }}
        compadd() {{ print -rl -- "${{(@P)@[-1]}}"; }}
        _describe() {{ print -rl -- "${{(@P)3}}"; }}
        commands[gymctl]=1
        source {ROOT}/completions/gymctl.zsh
        words=({" ".join(words)}); CURRENT={len(words)}
        _gymctl_completion
    """
    assert wanted in [line.split(":")[0] for line in shell("zsh", script, shared).splitlines()]


@pytest.mark.parametrize(("words", "wanted"), CASES)
def test_fish(shared: Cli, words: list[str], wanted: str) -> None:
    found = shell("fish", f'source {ROOT}/completions/gymctl.fish; complete -C "{" ".join(words)}"', shared)
    assert wanted in [line.split("\t")[0] for line in found.splitlines()]


def test_nothing_is_printed_when_nothing_can_be_known(cli: Cli) -> None:
    env = {"_GYMCTL_COMPLETE": "bash_complete", "COMP_WORDS": "gymctl step nobody x", "COMP_CWORD": "3", "GYMCTL_STATE_DIR": "/proc/nowhere"}
    done = cli(env=env, code=None)
    assert (done.out.strip(), done.err) == ("", "")


def test_completing_loads_no_docker_and_no_httpx(cli: Cli) -> None:
    heavy = "print(sorted({'docker', 'httpx', 'rich', 'tqdm'} & set(sys.modules)))"
    code = f"import sys\nfrom gymctl.cli import group\ntry:\n    group(prog_name='gymctl')\nexcept SystemExit:\n    pass\n{heavy}"
    env = {**cli.env, "_GYMCTL_COMPLETE": "bash_complete", "COMP_WORDS": "gymctl ", "COMP_CWORD": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert f"plain,{RECIPE}" not in done.stdout
    assert "plain,verify" in done.stdout
