"""Folders of data files: a head, a mapping in one file, and tables, a list of rows in each of the others; every fault with its file and line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from _verify.faults import did_you_mean

from .tables import Column
from .yamlrows import Located, Problem, load


def head(path: Path, wanted: Mapping[str, str], fault: Callable[[str, Any], str]) -> tuple[dict[str, Any], list[Problem]]:
    """The head of the folder that `path` is in, and its problems: `wanted` are its fields, `fault` says what is wrong with a value of a field's kind."""
    file = f"{path.parent.name}/{path.name}"
    if not path.is_file():
        return {}, [Problem(file, 1, "the file is missing")]
    document, problems = load(path.read_text(encoding="utf-8"), file)
    if document is None or not isinstance(document.value, dict):
        return {}, [*problems, Problem(file, 1, f"must be a mapping with {', '.join(wanted)}")]
    found = document.value
    problems += [Problem(file, found[key].line, f"unknown field {key!r}{did_you_mean(key, wanted)}") for key in found if key not in wanted]
    problems += [Problem(file, 1, f"{key!r} is missing") for key in wanted if key not in found]
    for key in wanted.keys() & found.keys():
        if wrong := fault(wanted[key], found[key].plain()):
            problems.append(Problem(file, found[key].line, f"{key}: {wrong}"))
    plain: dict[str, Any] = document.plain()
    if plain.get("id") not in (None, path.parent.name):
        problems.append(Problem(file, found["id"].line, f"id: must be {path.parent.name!r}, the folder's name"))
    return plain, problems


def items(path: Path, file: str) -> tuple[list[Located], list[Problem]]:
    """The rows of a table's file that are mappings, and all other problems of it."""
    document, problems = load(path.read_text(encoding="utf-8"), file)
    if document is None or document.value is None:
        return [], problems
    if not isinstance(document.value, list):
        return [], [*problems, Problem(file, document.line, "must be a list of rows")]
    problems += [Problem(file, item.line, "a row must be a mapping") for item in document.value if not isinstance(item.value, dict)]
    return [item for item in document.value if isinstance(item.value, dict)], problems


def zone_fault(value: Any) -> str:
    """What is wrong with the name of a time zone, or nothing."""
    try:
        ZoneInfo(value)
    except (TypeError, KeyError, ValueError, OSError):
        return f"no IANA time zone: {value!r}"
    return ""


def column_fault(column: Column, allowed: tuple[str, ...] | None, value: Any, fault: Callable[[str, Any], str]) -> str:
    """What is wrong with a column's value, or nothing; `fault` says it of a type's values."""
    if value is None:
        return "" if column.null else "must not be null"
    if wrong := fault(column.type, value):
        return wrong
    return f"must be one of {', '.join(allowed)}, not {value!r}" if allowed and value not in allowed else ""
