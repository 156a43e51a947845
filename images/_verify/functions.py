"""Selections (`_result[*].title`) and the functions of the check language, over the rows of a table or of the call log."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .faults import ExecutionFailed
from .matching import MISSING, equal, matches

_STEP = re.compile(r"\[\*\]|\[(?P<index>\d{1,6})\]|\.(?P<name>[A-Za-z_][A-Za-z0-9_]*)")
ALL = "_result[*]"


def steps(selection: str) -> list[str | int | None] | None:
    """A selection as field names, indices and None for `[*]`; None when it is malformed."""
    if not selection.startswith("_result"):
        return None
    found: list[str | int | None] = []
    at = len("_result")
    while at < len(selection):
        step = _STEP.match(selection, at)
        if step is None:
            return None
        found.append(int(step["index"]) if step["index"] else step["name"])
        at = step.end()
    return found


def select(rows: list[Any], selection: str) -> Any:
    """What a selection leads to: a list when it has a `[*]`, one value otherwise, MISSING when there is none."""
    value: Any = rows
    many = False
    for step in steps(selection) or []:
        if step is None:
            value = [item for v in value if isinstance(v, list) for item in v] if many else (value if isinstance(value, list) else MISSING)
            if value is MISSING:
                return MISSING
            many = True
        elif many:
            value = [found for v in value if (found := _take(v, step)) is not MISSING]
        else:
            value = _take(value, step)
    return value


def _take(value: Any, step: str | int) -> Any:
    if isinstance(step, int):
        return value[step] if isinstance(value, list) and step < len(value) else MISSING
    return value.get(step, MISSING) if isinstance(value, dict) else MISSING


@dataclass(frozen=True, slots=True)
class Result:
    """A function's value, and the rows that made it so."""

    value: Any
    matching: list[Any]


@dataclass(frozen=True, slots=True)
class Function:
    """How a function is called: kinds of its arguments after the selection; those from `needed` on may be left out."""

    kinds: tuple[str, ...]
    needed: int
    run: Callable[..., Result]
    selects: bool = True
    only: str | None = None


def _list(value: Any, name: str) -> list[Any]:
    if value is MISSING:
        return []
    if not isinstance(value, list):
        raise ExecutionFailed(f"{name} works on a list, not on {type(value).__name__}")
    return value


def _matching(value: Any, pattern: Any, name: str) -> list[Any]:
    items = _list(value, name)
    return items if pattern is None else [item for item in items if matches(item, pattern)]


def _object_contains(value: Any, pattern: Any) -> Result:
    items = [value] if isinstance(value, dict) else value
    found = _matching(items, pattern, "object_contains")
    return Result(bool(found), found)


def _count(value: Any, pattern: Any = None) -> Result:
    found = _matching(value, pattern, "count")
    return Result(len(found), found if pattern is not None else [])


def _exists(value: Any) -> Result:
    return Result(value is not MISSING and value != [], [])


def _column(value: Any, column: str, pattern: Any, name: str) -> tuple[list[Any], list[Any]]:
    found = _matching(value, pattern, name)
    for item in found:
        if not isinstance(item, dict) or column not in item:
            raise ExecutionFailed(f"{name}: a row has no column {column!r}")
    return [item[column] for item in found], found


def _pluck(value: Any, column: str, pattern: Any = None) -> Result:
    return Result(*_column(value, column, pattern, "pluck"))


def _sum(value: Any, column: str | None = None, pattern: Any = None) -> Result:
    numbers, found = (_list(value, "sum"), []) if column is None else _column(value, column, pattern, "sum")
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ExecutionFailed(f"sum: {number!r} is no number")
    if all(isinstance(number, int) for number in numbers):
        return Result(sum(numbers), found)
    # Amounts of money add up to what a person writes: 0.1 + 0.2 is 0.3.
    return Result(round(math.fsum(numbers), 6), found)


def _unique(value: Any, column: str | None = None, pattern: Any = None) -> Result:
    values, found = (_list(value, "unique"), []) if column is None else _column(value, column, pattern, "unique")
    distinct: list[Any] = []
    for item in values:
        if not any(equal(item, other) for other in distinct):
            distinct.append(item)
    return Result(distinct, found)


def _length(value: Any) -> Result:
    if value is MISSING:
        return Result(MISSING, [])
    if not isinstance(value, list | str | dict):
        raise ExecutionFailed(f"length: {value!r} has none")
    return Result(len(value), [])


def _sorted_by(value: Any, column: str, direction: str = "asc") -> Result:
    values, _ = _column(value, column, None, "sorted_by")
    pairs = list(itertools.pairwise(values))
    try:
        return Result(all(a <= b if direction == "asc" else a >= b for a, b in pairs), [])
    except TypeError:
        raise ExecutionFailed(f"sorted_by: the values of {column!r} are not of one type") from None


def _called(rows: list[Any], tool: str, pattern: Any = None) -> Result:
    found = [row for row in rows if row["ok"] and row["tool"] == tool and (pattern is None or matches(row["args"], pattern))]
    return Result(len(found), found)


def _order(rows: list[Any], tools: list[str]) -> Result:
    found: list[Any] = []
    for row in rows:
        if row["ok"] and len(found) < len(tools) and row["tool"] == tools[len(found)]:
            found.append(row)
    return Result(len(found) == len(tools), found)


FUNCTIONS: dict[str, Function] = {
    "object_contains": Function(("pattern",), 1, _object_contains),
    "count": Function(("pattern",), 0, _count),
    "exists": Function((), 0, _exists),
    "pluck": Function(("column", "pattern"), 1, _pluck),
    "sum": Function(("column", "pattern"), 0, _sum),
    "unique": Function(("column", "pattern"), 0, _unique),
    "length": Function((), 0, _length),
    "sorted_by": Function(("column", "direction"), 1, _sorted_by),
    "called": Function(("tool", "pattern"), 1, _called, selects=False, only="trajectory"),
    "order": Function(("tools",), 1, _order, selects=False, only="trajectory"),
}
