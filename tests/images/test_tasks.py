"""Every task against the real server: its solution passes, and so does another way; nothing, something and almost everything fail."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from _server import yamlrows
from server import registry, tools

from tests.images.arguments import arguments
from tests.images.serving import Served

ROOT = Path(__file__).resolve().parents[2]
TASKS = sorted((ROOT / "recipes" / "agent-environment" / "tasks").glob("*.yaml"))
ROUTES = ROOT / "tests" / "images" / "agent_environment" / "routes"
RANDOM_CALLS = 30

tools.load()


def read(path: Path) -> dict[str, Any]:
    document, problems = yamlrows.load(path.read_text(encoding="utf-8"), path.name)
    assert not problems, problems
    assert document is not None
    plain: dict[str, Any] = document.plain()
    return plain


def other(task: dict[str, Any], kind: str) -> list[list[dict[str, Any]]]:
    path = ROUTES / f"{task['id']}.yaml"
    found: list[list[dict[str, Any]]] = read(path).get(kind) or [] if path.exists() else []
    return found


def is_state_only(task: dict[str, Any]) -> bool:
    return {check["type"] for check in task["checks"]} == {"state"} and not task.get("claims")


Run = Callable[[list[dict[str, Any]]], dict[str, Any]]


@pytest.fixture(params=TASKS, ids=[path.stem for path in TASKS])
def task(request: pytest.FixtureRequest) -> dict[str, Any]:
    return read(request.param)


@pytest.fixture
def run(server: Served, task: dict[str, Any]) -> Run:
    """Reset to the task's start, make the calls and verify; each call's answer under `answers`."""
    tags = {"assignmentId": f"task-{task['id']}"}

    def episode(calls: list[dict[str, Any]]) -> dict[str, Any]:
        reset = server.post("/reset", {"tags": tags, "options": {"universe_id": task["reset"]["universe"]}, "tools": task["enabled_tools"]})
        assert reset.status == 200, reset.json
        answers = [server.call(tags["assignmentId"], c["tool"], **c.get("args", {})) for c in calls]
        verdict = server.post("/verifier", {"tags": tags, "checks": task["checks"]})
        assert verdict.status == 200, verdict.json
        return {**verdict.json, "answers": answers}

    return episode


def explain(done: dict[str, Any]) -> str:
    errors = [f"call {n}: {a['error']['message']}" for n, a in enumerate(done["answers"]) if a["isError"]]
    failed = [
        (v["id"], [(a["function"], a["actual_value"], a["expected_value"]) for a in v["asserts"] if not a["success"]])
        for v in done["verifiers"]
        if not v["success"]
    ]
    return f"{errors} {failed}"


def test_its_file(task: dict[str, Any], request: pytest.FixtureRequest) -> None:
    assert f"[{task['id']}]" in request.node.name, "the file is named after the task"
    assert set(task["enabled_tools"]) <= registry.TOOLS.keys(), "a tool's own name, not an alias"
    assert 6 <= len(task["enabled_tools"]) <= 25
    assert not [name for name in registry.TOOLS if name in task["prompt"]], "the prompt names no tools"
    assert {call["tool"] for call in task["solution"]} <= set(task["enabled_tools"])


def test_solution_passes(task: dict[str, Any], run: Run) -> None:
    done = run(task["solution"])
    assert not any(answer["isError"] for answer in done["answers"]), explain(done)
    assert done["success"] is True, explain(done)


def test_doing_nothing_fails(run: Run) -> None:
    assert run([])["success"] is False


def test_solution_without_its_last_change_fails(task: dict[str, Any], run: Run) -> None:
    changes = [n for n, call in enumerate(task["solution"]) if not registry.TOOLS[call["tool"]].read_only]
    assert changes, "a solution changes something"
    assert run([call for n, call in enumerate(task["solution"]) if n != changes[-1]])["success"] is False


def test_another_route_passes(task: dict[str, Any], run: Run) -> None:
    routes = other(task, "routes")
    assert routes or not is_state_only(task), "a task judged by its final state has another route"
    for route in routes:
        assert route != task["solution"]
        done = run(route)
        assert done["success"] is True, explain(done)


def test_near_misses_fail(task: dict[str, Any], run: Run) -> None:
    misses = other(task, "near_misses")
    assert misses or not is_state_only(task), "a task judged by its final state has a near miss"
    for n, miss in enumerate(misses):
        done = run(miss)
        assert any(not a["isError"] and not registry.TOOLS[c["tool"]].read_only for a, c in zip(done["answers"], miss, strict=True)), (
            f"near miss {n} changes nothing: {explain(done)}"
        )
        assert done["success"] is False, f"near miss {n} passes"


def test_random_agent_fails(task: dict[str, Any], run: Run) -> None:
    chance = random.Random(task["id"])
    names = [chance.choice(task["enabled_tools"]) for _ in range(RANDOM_CALLS)]
    done = run([{"tool": name, "args": arguments(registry.TOOLS[name].schema, chance, word)} for name in names])
    assert done["success"] is False


def word(name: str, chance: random.Random) -> str:
    return chance.choice(["a", "report", "dana@harbor.example", "/", "evt-1"])


def test_there_are_enough() -> None:
    loaded = [read(path) for path in TASKS]
    assert len(loaded) >= 30
    assert len({task["reset"]["universe"] for task in loaded}) == 4
    assert sum(map(is_state_only, loaded)) * 3 >= len(loaded) * 2
    assert {path.stem for path in ROUTES.glob("*.yaml")} <= {task["id"] for task in loaded}
    servers = [{registry.TOOLS[call["tool"]].server for call in task["solution"]} for task in loaded]
    assert min(len(task["solution"]) for task in loaded) <= 2
    assert any(len(task["solution"]) >= 12 and len(used) >= 3 for task, used in zip(loaded, servers, strict=True))
