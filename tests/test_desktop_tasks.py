"""The tasks of linux-desktop, each on a real desktop: its own solution passes, nothing done fails, and what is almost right fails too."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gymctl import recipe
from tests.conftest import ROOT, Cli
from tests.desktops import Machine, start

RECIPE = ROOT / "recipes/linux-desktop"
TASKS = {task.id: task for task in recipe.tasks(RECIPE)}
ON_DOCKER = ("bookmark-rules", "collect-errors", "file-invoices", "move-due-date", "total-the-trip")
"""All with LONG=1: it is the same guest."""
NEAR: dict[str, dict[str, str]] = {
    "add-key-holder": {"Marion Ashworth       01947 555 0162": "Marian Asher          01947 555 0126"},
    "bookmark-rules": {"Allotment rules": "Plot rules"},
    "clear-done-items": {r"\\[x\\].*\\n": r"\\[x\\] b.*\\n"},
    "collect-errors": {"2026-03-04 [0-9:]* ERROR": "2026-03-04.*ERROR"},
    "export-prices": {"prices.csv": "price-list.csv"},
    "file-invoices": {"ctrl+x": "ctrl+c"},
    "folder-for-whitby": {"ctrl+c": "ctrl+x"},
    "head-the-stock": {r'"A2\n"': r'"A3\n"'},
    "move-due-date": {"14 March 2026": "14 ", "28 March 2026": "28 "},
    "open-water-rota": {"link=Water rota": "link=Plots"},
    "print-on-kyocera": {'"fail"': '"windows"'},
    "rename-scan": {"tenancy-agreement.pdf": "tenancy-agreement"},
    "run-backup": {"chmod 700": "chmod 755"},
    "total-the-trip": {"=SUM(D2:D8)": "338.25"},
    "write-standup-note": {"standup-2026-03-05.md": "standup-2026-03-05.txt"},
}
"""What somebody does who almost understood: {words of the solution: words instead}."""


@pytest.fixture(scope="session")
def started(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Machine]]:
    """started(RUNNER): one desktop a runner, which every test rewinds; started anew when a reset that failed has ended it."""
    cli = Cli(tmp_path_factory.mktemp("tasks"))
    machines: dict[str, Machine] = {}

    def get(runner: str) -> Machine:
        if runner not in machines or f"tasks-{runner}" not in [row["name"] for row in cli("ps", "--json").json]:
            machines[runner] = start(cli, runner, request, name=f"tasks-{runner}")
        return machines[runner]

    yield get
    cli.close()


@pytest.fixture
def desktop(request: pytest.FixtureRequest, started: Callable[[str], Machine]) -> Machine:
    """The desktop of a runner."""
    return started(request.param)


def on_runners() -> list[Any]:
    wanted = TASKS if os.environ.get("LONG") else ON_DOCKER
    return [pytest.param("local", task, id=f"local-{task}") for task in TASKS] + [pytest.param("docker", t, id=f"docker-{t}") for t in wanted]


def rewind(desktop: Machine, task: str) -> None:
    desktop.cli("reset", desktop.name, "--task", task, "--json", timeout=300)


def act(desktop: Machine, actions: list[dict[str, Any]]) -> None:
    """Do actions, as an agent does; each must find what it is aimed at. (On a busy machine a change may be over before it is waited for.)"""
    lines = "".join(json.dumps({**action, "id": number}) + "\n" for number, action in enumerate(actions))
    answers = [json.loads(line) for line in desktop.cli("step", desktop.name, "--stdin", input=lines, code=None, timeout=300).out.splitlines()]
    assert [a for a, action in zip(answers, actions, strict=True) if "error" in a and action["action"] != "wait-change"] == []
    assert len(answers) == len(actions)


def verdict(desktop: Machine, task: str, *more: str) -> dict[str, Any]:
    found: dict[str, Any] = desktop.cli("verify", desktop.name, "--task", task, "--json", *more, code=None).json
    return found


def solution(task: str) -> list[dict[str, Any]]:
    return [{"action": call.tool, "args": call.args} for call in TASKS[task].solution]


def test_every_task_has_a_near_miss_and_reads_like_one() -> None:
    assert list(NEAR) == list(TASKS)
    assert len(TASKS) >= 12
    for task in TASKS.values():
        assert task.summary
        assert task.solution
        assert task.setup


@pytest.mark.parametrize(("desktop", "task"), on_runners(), indirect=["desktop"])
def test_solved_untouched_and_almost(desktop: Machine, task: str) -> None:
    rewind(desktop, task)
    untouched = verdict(desktop, task)
    assert untouched["verdict"] == "failed", untouched
    evaluator = TASKS[task].evaluator
    if evaluator and evaluator.postconfig:
        rewind(desktop, task)
    act(desktop, solution(task))
    solved = verdict(desktop, task)
    assert solved["verdict"] == "passed", solved
    _keep_picture(desktop, task)
    rewind(desktop, task)
    actions = json.dumps(solution(task))
    for words, instead in NEAR[task].items():
        assert words in actions
        actions = actions.replace(words, instead)
    act(desktop, json.loads(actions))
    almost = verdict(desktop, task)
    assert almost["verdict"] == "failed", almost


def _keep_picture(desktop: Machine, task: str) -> None:
    """For whoever wants to look: PICTURES=FOLDER."""
    if folder := os.environ.get("PICTURES"):
        desktop.step("screenshot", str(Path(folder).absolute() / f"{desktop.runner}-{task}.png"))


LOCAL = pytest.mark.parametrize("desktop", ["local"], indirect=True)


@LOCAL
def test_who_says_fail_fails_what_can_be_done(desktop: Machine) -> None:
    rewind(desktop, "collect-errors")
    act(desktop, solution("collect-errors"))
    said = verdict(desktop, "collect-errors", "--answer", "FAIL")
    assert said["verdict"] == "failed"
    assert "the agent said FAIL" in said["checks"][0]["metrics"][0]["why"]
    assert verdict(desktop, "collect-errors", "--answer", "It is done.")["verdict"] == "passed"
    act(desktop, [{"action": "fail"}])
    assert verdict(desktop, "collect-errors")["verdict"] == "failed"
    assert verdict(desktop, "print-on-kyocera", "--answer", "fail")["verdict"] == "passed"


@LOCAL
def test_a_task_as_the_public_format_has_it(desktop: Machine, tmp_path: Path) -> None:
    """JSON, with `instruction`, `config`, the fields that say nothing, null for what a metric does not need, and a wait for a command's output."""
    task = {
        "id": "0a1b2c3d-1111-4222-8333-444455556666", "snapshot": "os", "instruction": "Make the folder reports.", "source": "https://example.org",
        "config": [
            {"type": "execute", "parameters": {"command": ["python3", "-c", "import os; os.makedirs(os.path.expanduser('~/work'))"]}},
            {"type": "command", "parameters": {"command": "ls ~", "shell": True, "until": {"stdout": "work"}}},
            {"type": "launch", "parameters": {"command": ["mousepad"]}}, {"type": "sleep", "parameters": {"seconds": 0.5}},
            {"type": "activate_window", "parameters": {"window_name": "Mousepad"}},
        ],
        "trajectory": "trajectories/x", "related_apps": ["os"], "proxy": False,
        "evaluator": {
            "postconfig": [{"type": "execute", "parameters": {"command": ["true"], "stdout": "out.txt"}}],
            "func": ["exact_match", "check_file_exists"], "conj": "and",
            "result": [
                {"type": "vm_command_line", "command": "[ -d ~/reports ] && echo yes", "shell": True},
                {"type": "vm_file", "path": "~/reports/one.txt", "dest": "one.txt"},
            ],
            "expected": [{"type": "rule", "rules": {"expected": "yes\n"}}, None], "options": [None, None],
        },
    }  # fmt: skip
    file = tmp_path / "public.json"
    file.write_text(json.dumps(task))
    desktop.cli("reset", desktop.name, "--task", str(file), "--json", timeout=300)
    assert any("Mousepad" in window["title"] for window in desktop.step("windows")["windows"])
    assert verdict(desktop, str(file))["verdict"] == "failed"
    desktop.step("exec", "mkdir ~/reports; echo 1 > ~/reports/one.txt")
    assert verdict(desktop, str(file))["score"] == 1.0


@LOCAL
def test_a_setup_that_fails_says_which_step(desktop: Machine, tmp_path: Path) -> None:
    steps = [{"type": "execute", "parameters": {"command": "true"}}, {"type": "execute", "parameters": {"command": "echo no such disk; exit 3", "shell": True}}]
    file = tmp_path / "broken.yaml"
    file.write_text(json.dumps({"prompt": "x", "setup": steps, "evaluator": {"func": "infeasible"}}))
    began = time.monotonic()
    words = ["run", "linux-desktop", "--runner", "local", "--name", "broken", "--port", "0", "--task", str(file), "--agent", "noop", "--rm", "--json"]
    error = desktop.cli(*words, code=9, timeout=300).json["error"]
    assert error["message"] == "setup step 2 of 2 (execute): exit code 3; it printed: no such disk"
    assert time.monotonic() - began < 60


def test_without_the_packages_of_the_evaluators_nothing_is_started(cli: Cli) -> None:
    (cli.folder / "re2.py").write_text("raise ModuleNotFoundError(\"No module named 're2'\", name='re2')\n")
    cli.env["PYTHONPATH"] = str(cli.folder)
    done = cli("run", "linux-desktop", "--runner", "local", "--task", "add-key-holder", "--agent", "noop", "--rm", "--json", code=5)
    assert done.json["error"]["message"] == "task add-key-holder is judged with the Python package re2"
    assert done.json["error"]["hint"] == "pip install 'gymctl[evaluators]'"
    assert not list((cli.state / "instances").glob("*"))
    notes = [line for line in cli("recipes", "linux-desktop").err.splitlines() if line.startswith("note: ")]
    assert len(notes) == 1
    assert "add-key-holder, bookmark-rules, clear-done-items are not checked" in notes[0]
    assert "without re2: pip install" in notes[0]


def test_recipes_checks_what_a_desktop_task_says(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "typo.yaml"
    evaluator = {"func": "exact_mach", "result": {"type": "vm_command_line", "command": "x"}, "expected": {"type": "rule", "rules": {"expected": 1}}}
    file.write_text(json.dumps({"prompt": "x", "setup": [{"type": "opn", "parameters": {}}], "evaluator": evaluator}))
    error = cli("recipes", str(file), "--json", code=3).json["error"]
    message = error["message"]
    assert "vm_command_line" in error["hint"]
    assert "exact_match" in error["hint"]
    assert [line.removeprefix(f"{file}: ").split(";")[0] for line in message.splitlines()] == [
        "setup[0].type: unknown type 'opn'", "evaluator.func: unknown func 'exact_mach'",
    ]  # fmt: skip
    assert cli("recipes", str(RECIPE)).code == 0
