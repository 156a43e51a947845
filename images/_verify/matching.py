"""Comparators and patterns: whether a value is what a check expects. Types are strict: "1" is not 1, true is not 1, 1 is 1.0."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from datetime import datetime
from typing import Any

import re2  # type: ignore[import-untyped]

MAX_DEPTH = 20
MAX_REGEX = 2000


class _Missing:
    """A path that leads nowhere: unlike null it satisfies no comparator."""

    def __repr__(self) -> str:
        return "missing"


MISSING = _Missing()


def equal(a: Any, b: Any) -> bool:
    """Deep equality with strict types."""
    if isinstance(a, bool) or isinstance(b, bool):
        return isinstance(a, bool) and isinstance(b, bool) and a == b
    if _is_number(a) and _is_number(b):
        return bool(a == b)
    if type(a) is not type(b):
        return False
    if isinstance(a, list):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    return bool(a == b)


def matches(value: Any, pattern: Any) -> bool:
    """Whether `value` contains `pattern`: an object by its keys, a list item by item, {comparator, value} by its comparison."""
    if is_condition(pattern):
        return compare(pattern["comparator"], value, pattern["value"])
    if isinstance(pattern, dict):
        return isinstance(value, dict) and all(key in value and matches(value[key], sub) for key, sub in pattern.items())
    if isinstance(pattern, list):
        return isinstance(value, list) and len(value) == len(pattern) and all(map(matches, value, pattern))
    return equal(value, pattern)


def is_condition(pattern: Any) -> bool:
    """Whether a pattern is {comparator, value} rather than an object to find."""
    return isinstance(pattern, dict) and "comparator" in pattern


@functools.lru_cache(maxsize=1024)
def compiled(pattern: str) -> Any:
    """A regular expression that runs in linear time; ValueError for a bad one."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        raise ValueError(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from None


def compare(comparator: str, actual: Any, expected: Any) -> bool:
    """One comparison; a value that does not exist satisfies none."""
    return actual is not MISSING and COMPARATORS[comparator](actual, expected)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _instant(text: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo else None


def _ordered(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Numbers with numbers, instants with instants, other texts with texts; all else is not in order."""

    def compared(actual: Any, expected: Any) -> bool:
        if _is_number(actual) and _is_number(expected):
            return test(actual, expected)
        if not (isinstance(actual, str) and isinstance(expected, str)):
            return False
        a, b = _instant(actual), _instant(expected)
        return test(a, b) if a and b else test(actual, expected)

    return compared


def _contains(actual: Any, expected: Any) -> bool:
    if isinstance(actual, str):
        return isinstance(expected, str) and expected in actual
    if isinstance(actual, list):
        return any(matches(item, expected) for item in actual)
    return isinstance(actual, dict) and isinstance(expected, dict) and matches(actual, expected)


COMPARATORS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": equal,
    "neq": lambda actual, expected: not equal(actual, expected),
    "gt": _ordered(lambda a, b: a > b),
    "gte": _ordered(lambda a, b: a >= b),
    "lt": _ordered(lambda a, b: a < b),
    "lte": _ordered(lambda a, b: a <= b),
    "in": lambda actual, expected: any(equal(actual, item) for item in expected),
    "contains": _contains,
    "regex": lambda actual, expected: isinstance(actual, str) and compiled(expected).search(actual) is not None,
    "deep_equal": equal,
}


def value_fault(comparator: str, value: Any) -> str:
    """What is wrong with the value that a comparator is given, or nothing."""
    if not finite(value):
        return "NaN and infinities are refused"
    if comparator in ("gt", "gte", "lt", "lte") and not (_is_number(value) or isinstance(value, str)):
        return f"{comparator} compares with a number or a text"
    if comparator == "in" and not isinstance(value, list):
        return "in takes a list"
    return _regex_fault(value) if comparator == "regex" else ""


def _regex_fault(value: Any) -> str:
    if not isinstance(value, str):
        return "regex takes a text"
    if len(value) > MAX_REGEX:
        return f"a pattern has at most {MAX_REGEX} characters"
    try:
        compiled(value)
    except ValueError as error:
        return f"bad pattern: {error} (the syntax is RE2's: no look-around, no back-references)"
    return ""


def finite(value: Any) -> bool:
    """Whether every number in a value is finite."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, list):
        return all(map(finite, value))
    return all(map(finite, value.values())) if isinstance(value, dict) else True


def depth(value: Any) -> int:
    """How deeply lists and objects are nested."""
    level, layer = 0, [value]
    while layer and level <= MAX_DEPTH:
        layer = [item for v in layer if isinstance(v, list | dict) for item in (v if isinstance(v, list) else v.values())]
        level += 1
    return level
