"""Evaluating checks that were read: rows in, the answer of /verifier out."""

from __future__ import annotations

from typing import Any

from .checks import Assertion, Check
from .functions import FUNCTIONS, Result, select
from .matching import MISSING, compare

OPERATORS = {"state": "state_comparison", "log": "log_comparison", "trajectory": "trajectory_comparison", "rubric": "rubric_judgement"}
Data = dict[str, dict[str, list[Any]]]


def needs(checks: list[Check]) -> dict[str, Any]:
    """What the checks look at: {"tables": [[server, table]], "log": bool}."""
    tables = sorted({(c.server, c.table) for c in checks if c.type == "state"})
    return {"tables": [list(t) for t in tables], "log": any(c.type in ("log", "trajectory") for c in checks)}


def evaluate(checks: list[Check], data: Data, log: list[Any]) -> dict[str, Any]:
    """{"success": true|false|"PENDING", "verifiers": [...]}; ExecutionFailed."""
    verifiers = [_verify(check, log if check.type in ("log", "trajectory") else data.get(check.server, {}).get(check.table, [])) for check in checks]
    results = [v["success"] for v in verifiers]
    success: Any = False if False in results else "PENDING" if "PENDING" in results else True
    return {"success": success, "verifiers": verifiers}


def _verify(check: Check, rows: list[Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"id": check.id, "operator": OPERATORS[check.type]}
    if check.type == "rubric":
        return {**made, "success": "PENDING", "asserts": []}
    if check.type == "trajectory":
        rows = [row for row in rows if row.get("call") == "tool"]
    asserts = [_assert(assertion, rows) for assertion in check.asserts]
    made |= {"success": all(a["success"] for a in asserts), "asserts": asserts}
    return made if made["success"] else {**made, "all_results": rows}


def _assert(assertion: Assertion, rows: list[Any]) -> dict[str, Any]:
    result = _value(assertion, rows)
    actual = result.value
    made = {
        "actual_value": None if actual is MISSING else actual,
        "expected_value": assertion.value,
        "comparator": assertion.comparator,
        "function": assertion.function,
        "success": compare(assertion.comparator, actual, assertion.value),
        "matching_results": result.matching,
    }
    return {**made, "note": f"{assertion.selection} leads to nothing"} if actual is MISSING else made


def _value(assertion: Assertion, rows: list[Any]) -> Result:
    if assertion.function is None:
        return Result(select(rows, assertion.selection), [])
    function = FUNCTIONS[assertion.function]
    return function.run(select(rows, assertion.selection) if function.selects else rows, *assertion.args)
