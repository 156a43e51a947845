"""Every task of Calendr in a real Chromium: its solution passes, and so does another way; nothing, almost everything and the wrong row fail."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import gymctl
from gymctl import recipe, session
from gymctl.browser import client as browser
from gymctl.episode import Verdict
from gymctl.kinds import website
from tests.conftest import ROOT, lacking

FOLDER = ROOT / "recipes" / "calendr"
ROUTES = Path(__file__).parent / "routes"
LOOKS = {"goto", "scroll", "back", "wait-for", "snapshot", "screenshot"}

Steps = list[dict[str, Any]]
Run = Callable[[Steps], Verdict]


@pytest.fixture(scope="module")
def calendr(tmp_path_factory: pytest.TempPathFactory) -> Iterator[gymctl.Env]:
    """One Calendr with one browser for all tasks: a reset makes both as new."""
    missing = browser.lacking()
    if missing:
        lacking("browser", f"{missing.message}: {missing.hint}")
    folder = tmp_path_factory.mktemp("gymctl")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"GYMCTL_STATE_DIR": folder / "state", "GYMCTL_CACHE_DIR": folder / "cache", "XDG_RUNTIME_DIR": folder}.items():
            patch.setenv(name, str(value))
        with gymctl.open("calendr", runner="local") as env:
            yield env


@pytest.fixture(params=recipe.task_ids(FOLDER))
def task(request: pytest.FixtureRequest) -> recipe.Task:
    return recipe.load_task(FOLDER, request.param)


@pytest.fixture
def run(calendr: gymctl.Env, task: recipe.Task) -> Run:
    """Reset to the task's start, act, verify. An action that cannot be done is an error of the test."""
    calendr.task = session.task_of(calendr.instance, task.id)

    def episode(steps: Steps) -> Verdict:
        calendr.reset()
        for step in steps:
            calendr.step({"action": step["action"], "args": step["args"]})
        verdict: Verdict = calendr.verify()
        return verdict

    return episode


def solution(task: recipe.Task) -> Steps:
    return [{"action": call.tool, "args": call.args} for call in task.solution]


def others(task: str, kind: str) -> list[Steps]:
    """The routes or near misses of a task."""
    path = ROUTES / f"{task}.yaml"
    found: dict[str, list[Steps]] = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}
    assert found.keys() <= {"routes", "near_misses"}, path
    return found.get(kind) or []


def log(env: gymctl.Env) -> list[dict[str, Any]]:
    """The session's interactions since the reset, oldest first."""
    with contextlib.closing(website.connect(env.instance)) as client:
        return website.log(client, env.instance.session)


def explain(verdict: Verdict) -> str:
    failed = {c["id"]: [(a["actual_value"], a["expected_value"]) for a in c["asserts"] if not a["success"]] for c in verdict.checks if not c["success"]}
    return f"{verdict.reason} {failed}"


def test_solution_passes(task: recipe.Task, run: Run) -> None:
    verdict = run(solution(task))
    assert verdict.verdict == "passed", explain(verdict)


def test_doing_nothing_fails(run: Run) -> None:
    assert run([]).verdict == "failed"


def test_solution_without_its_last_act_fails(task: recipe.Task, run: Run) -> None:
    steps = solution(task)
    last = max(n for n, step in enumerate(steps) if step["action"] not in LOOKS)
    assert run(steps[:last] + steps[last + 1 :]).verdict == "failed"


def test_another_route_passes(task: recipe.Task, run: Run) -> None:
    routes = others(task.id, "routes")
    assert routes, "a task has more than one way"
    for n, route in enumerate(routes):
        assert route != solution(task)
        verdict = run(route)
        assert verdict.verdict == "passed", f"route {n}: {explain(verdict)}"


def test_near_misses_fail(calendr: gymctl.Env, task: recipe.Task, run: Run) -> None:
    misses = others(task.id, "near_misses")
    assert misses, "a task has a wrong row to choose"
    for n, miss in enumerate(misses):
        verdict = run(miss)
        assert verdict.verdict == "failed", f"near miss {n} passes"
        done = [row["detail"]["status"] for row in log(calendr) if row["event_type"] == "action"]
        assert set(done) == {303}, f"near miss {n} did not do what it says: {done} {explain(verdict)}"


def test_there_are_enough() -> None:
    tasks = list(recipe.tasks(FOLDER))
    assert len(tasks) >= 16
    assert {task.reset.pack for task in tasks} == {"default", "professional-swe"}
    assert {path.stem for path in ROUTES.glob("*.yaml")} == {task.id for task in tasks}
    assert {kind for task in tasks for check in task.checks for kind in [check["type"]]} == {"state", "log"}
    assert all(any(check["type"] == "state" for check in task.checks) for task in tasks), "what counts is how it ends"
    lengths = sorted(len(task.solution) for task in tasks)
    assert lengths[0] <= 3
    assert lengths[-1] >= 18
    assert not [task.id for task in tasks for word in ("evt-", "cal-", "#") if word in task.prompt], "a prompt says what a person would"
