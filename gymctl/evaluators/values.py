"""A value against a rule {method, ref}, as the OSWorld format has them; patterns run in linear time (google-re2)."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

FLAGS = {"I": "i", "IGNORECASE": "i", "M": "m", "MULTILINE": "m", "S": "s", "DOTALL": "s"}
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}
METHODS = "eq, ne, lt, le, gt, ge, re[.FLAG...], approx:THRESHOLD, range.XY (t or e), str_list_eq, str_set_eq, spreadsheet_range"


def same(a: Any, b: Any) -> bool:
    """Equal, and true is not 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    return bool(a == b)


def pattern(text: str, flags: str = "") -> Any:
    """A compiled pattern; ValueError says what is wrong with it. `flags` as in `re.I.S`."""
    import re2  # type: ignore[import-untyped]  # it has no stubs

    letters = ""
    for flag in filter(None, flags.split(".")):
        if flag not in FLAGS:
            raise ValueError(f"no flag {flag!r}; known: {', '.join(FLAGS)}")
        letters += FLAGS[flag]
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(f"(?{letters})(?:{text})" if letters else text, options)
    except re2.error as error:
        why = error.args[0]
        raise ValueError(f"pattern {text!r}: {why.decode() if isinstance(why, bytes) else why}") from error


def faults(rule: Any, place: str) -> list[str]:
    """What is wrong with a rule, each with its place."""
    if not isinstance(rule, dict):
        return [f"{place}: must be a mapping with method and ref"]
    method = rule.get("method")
    if not isinstance(method, str):
        return [f"{place}.method: missing; one of {METHODS}"]
    if "ref" not in rule:
        return [f"{place}.ref: missing"]
    return [f"{place}: {why}" for why in _method_faults(method, rule["ref"])]


def _method_faults(method: str, ref: Any) -> list[str]:
    if method == "re" or method.startswith("re."):
        try:
            pattern(str(ref), method[3:])
        except ValueError as error:
            return [str(error)]
        return []
    if method in ("eq", "ne", "str_list_eq", "str_set_eq", *COMPARISONS):
        return []
    if method.startswith("approx:"):
        return [] if _number(method[7:]) is not None and _number(ref) is not None else ["approx needs a threshold, `approx:0.1`, and a number as ref"]
    if re.fullmatch(r"range\.[te][te]", method) or method == "spreadsheet_range":
        return [] if isinstance(ref, list) and len(ref) == 2 else [f"{method} needs a ref of two"]
    return [f"unknown method {method!r}; known: {METHODS}"]


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def matches(value: Any, rule: dict[str, Any]) -> bool:
    """Whether a value fits a rule that has no faults. What cannot be compared (a text with a number) does not fit."""
    method, ref = rule["method"], rule["ref"]
    if method in ("eq", "ne"):
        return same(value, ref) is (method == "eq")
    if method == "re" or method.startswith("re."):
        return isinstance(value, str) and pattern(str(ref), method[3:]).search(value) is not None
    if method.startswith("approx:"):
        number = _number(value)
        return number is not None and abs(number - float(ref)) <= float(method[7:])
    if method in ("str_list_eq", "str_set_eq"):
        items = str(value).strip("\"'").split(",")
        return items == list(ref) if method == "str_list_eq" else set(items) == set(ref)
    if method == "spreadsheet_range":
        return _between_ranges(value, ref)
    return _ordered(value, method, ref)


def _ordered(value: Any, method: str, ref: Any) -> bool:
    try:
        if method in COMPARISONS:
            return COMPARISONS[method](value, ref)
        return COMPARISONS[f"l{method[6]}"](ref[0], value) and COMPARISONS[f"l{method[7]}"](value, ref[1])
    except TypeError:
        return False


def _between_ranges(value: Any, ref: list[str]) -> bool:
    """Cell ranges that hold the first of two and lie within the second."""
    from openpyxl.worksheet.cell_range import MultiCellRange

    least, most = MultiCellRange(ref[0]), MultiCellRange(ref[1])
    ranges = value if isinstance(value, MultiCellRange) else MultiCellRange(str(value))
    return all(r in ranges for r in least) and all(r in most for r in ranges)
