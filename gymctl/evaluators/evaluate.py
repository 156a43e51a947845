"""From checks without faults to a verifier's answer."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from gymctl import wire
from gymctl.desktop import setup
from gymctl.episode import Json
from gymctl.errors import EnvError, NoVerdict, Unavailable
from gymctl.evaluators import getters
from gymctl.evaluators.getters import Guest
from gymctl.evaluators.reading import INFEASIBLE, METRICS, Part, parts

SHOWN = 1000
"""Characters of a value that a verdict shows."""
AGENTS_DOING = ("activate_window", "close_window", "execute", "command", "execute_with_verification")
"""Steps of postconfig that fail where an agent has closed a window or moved a file: that is judged, and no reason to judge nothing."""


def verdict(guest: Guest, checks: list[Json]) -> tuple[int, Json]:
    """(HTTP status, body): {success, score, verifiers}, or the error that says why there is no verdict."""
    rows: list[Json] = []
    for check in checks:
        try:
            rows.append(evaluated(guest, check))
        except NoVerdict as error:
            return 500, {"error": {"type": "EvaluatorFailed", "message": f"{check['id']}: {error.message}"}}
        except ModuleNotFoundError as error:
            return 500, {"error": {"type": "EvaluatorFailed", "message": f"{check['id']}: {lacking(error)}"}}
    return 200, {"success": all(row["success"] for row in rows), "score": sum(row["score"] for row in rows) / len(rows), "verifiers": rows}


def lacking(error: ModuleNotFoundError) -> str:
    """Which package a verdict needs, and what brings it."""
    return f"{error.name} is not installed: pip install 'gymctl[evaluators]'"


def evaluated(guest: Guest, check: Json) -> Json:
    """One evaluator: its postconfig, then its metrics in their order, until one decides it."""
    began = time.monotonic()
    notes = _postconfig(guest, check.get("postconfig") or [])
    if check["func"] == INFEASIBLE:
        score, rows = float(guest.failed), [{"func": INFEASIBLE, "score": float(guest.failed), "result": "FAIL" if guest.failed else "no FAIL"}]
    elif guest.failed:
        score, rows = 0.0, [{"func": "feasible", "score": 0.0, "why": "the agent said FAIL, and it can be done"}]
    else:
        score, rows = _joined(guest, check)
    row: Json = {"id": check["id"], "operator": "evaluator", "success": score == 1, "score": score, "metrics": rows}
    if notes:
        row["postconfig"] = notes
    return {**row, "seconds": round(time.monotonic() - began, 3)}


def _joined(guest: Guest, check: Json) -> tuple[float, list[Json]]:
    """As the format has it: `and` is 0 at the first 0, else the mean; `or` is 1 at the first 1, else the best."""
    rows: list[Json] = []
    decisive = 1.0 if check.get("conj", "and") == "or" else 0.0
    for part in parts(check):
        rows.append(_compared(guest, part))
        if rows[-1]["score"] == decisive:
            return decisive, rows
    scores = [row["score"] for row in rows]
    return (max(scores) if decisive else sum(scores) / len(scores)), rows


def _compared(guest: Guest, part: Part) -> Json:
    metric = METRICS[part.func]
    result = getters.get(guest, part.result, "result")
    row: Json = {"func": part.func, "result": {**part.result, "value": shown(result.value)}}
    if part.expected is not None:
        row["expected"] = dict(part.expected)
    if result.value is None or (isinstance(result.value, list) and not result.value):
        return {**row, "score": 0.0, "why": result.why or "there is nothing"}
    expected = None
    if part.expected is not None:
        expected = getters.get(guest, part.expected, "expected").value
        if part.expected["type"] != "rule":
            row["expected"]["value"] = shown(expected)
    guest.say(f"comparing: {part.func}")
    compared = metric.do(result.value, expected, part.options)
    return {**row, "score": compared.score, **({"why": compared.why[:SHOWN]} if compared.why else {})}


def shown(value: Any) -> Any:
    """A value as a verdict shows it: short, printable, JSON."""
    if isinstance(value, Path):
        data = value.read_bytes()
        text = data[: 4 * SHOWN].decode("utf-8", "replace")[:SHOWN] if b"\0" not in data[:SHOWN] and not data.startswith(b"PK") else None
        return {"bytes": len(data), **({"text": wire.printable(text)} if text is not None else {})}
    if isinstance(value, list) and any(isinstance(each, Path) for each in value):
        return [shown(each) for each in value]
    if isinstance(value, str):
        return wire.printable(value[:SHOWN])
    text = json.dumps(value, ensure_ascii=False)
    return value if len(text) <= SHOWN else wire.printable(text[:SHOWN])


def _postconfig(guest: Guest, steps: list[Json]) -> list[Json]:
    """Do the steps before judging; what failed by the agent's doing, as notes. NoVerdict for what else fails."""
    outputs = guest.folder / "outputs"
    outputs.mkdir(exist_ok=True)
    machine, notes = setup.Machine(guest.client, outputs), []
    for step in setup.read(steps, "postconfig"):
        guest.say(f"postconfig[{step.number}]: {step.type}")
        try:
            setup.do(machine, step)
        except EnvError as error:
            if step.type not in AGENTS_DOING:
                raise NoVerdict(f"postconfig[{step.number}] ({step.type}): {error.message}") from error
            notes.append({"step": step.number, "type": step.type, "failed": error.message[:SHOWN]})
        except Unavailable as error:
            raise NoVerdict(f"postconfig[{step.number}] ({step.type}): {error.message}") from error
    return notes
