"""Whether the files of a universe are right: every unknown, missing or mistyped value, with its file and line."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any

from _server import datafiles
from _server.tables import REQUIRED, Table
from _server.yamlrows import Located, Problem
from _verify.faults import did_you_mean

from .tables import SERVERS

Rows = dict[str, list[dict[str, Any]]]
HEAD = {"id": "text", "title": "text", "story": "text", "now": "time", "timezone": "zone", "user": "user"}


@dataclass(slots=True)
class Checked:
    """A universe's files after reading: its head, its rows by `server.table` (defaults filled in), and all problems."""

    id: str
    head: dict[str, Any] = field(default_factory=dict)
    rows: Rows = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def check(folder: Path) -> Checked:
    """Read every file of the universe in `folder`; nothing is raised, see `problems`."""
    checked = Checked(folder.name)
    checked.head, checked.problems = datafiles.head(folder / "universe.yaml", HEAD, _head_fault)
    places: dict[str, list[tuple[str, Located]]] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != "universe.yaml":
            _read_table(path, name, checked, places)
    _check_references(checked, places)
    _check_events(checked, places)
    _check_paths(checked, places)
    checked.problems.sort(key=lambda p: (p.file, p.line))
    return checked


def _head_fault(kind: str, value: Any) -> str:
    if kind == "user":
        good = isinstance(value, dict) and value.keys() == {"name", "email"} and all(isinstance(v, str) for v in value.values())
        return "" if good else "must be {name, email}"
    if kind == "zone":
        return datafiles.zone_fault(value)
    return value_fault(kind, value)


def _read_table(path: Path, name: str, checked: Checked, places: dict[str, list[tuple[str, Located]]]) -> None:
    file = f"{checked.id}/{name}"
    server, _, rest = name.partition("/")
    short = rest.removesuffix(".yaml")
    if not rest.endswith(".yaml") or short not in SERVERS.get(server, {}):
        known = [f"{s}/{t}.yaml" for s, tables in SERVERS.items() for t in tables]
        checked.problems.append(Problem(file, 1, f"no such table{did_you_mean(name, known)}"))
        return
    items, problems = datafiles.items(path, file)
    checked.problems += problems
    table = SERVERS[server][short]
    key = f"{server}.{short}"
    checked.rows[key] = [_row(item, table, lambda line, message: checked.problems.append(Problem(file, line, message))) for item in items]
    places[key] = [(file, item) for item in items]


def _row(item: Located, table: Table, report: Callable[[int, str], None]) -> dict[str, Any]:
    given = item.value
    columns = ["id", *table.columns]
    for key in given.keys() - set(columns):
        report(given[key].line, f"unknown column {key!r}{did_you_mean(key, columns)}")
    row: dict[str, Any] = {"id": given["id"].plain() if "id" in given else None}
    if fault := _id_fault(row["id"], table):
        report(item.line, f"id: {fault}")
    for column in table.columns.values():
        if column.name not in given:
            if column.default is REQUIRED:
                report(item.line, f"{column.name!r} is missing")
            row[column.name] = None if column.default is REQUIRED else column.default
            continue
        row[column.name] = given[column.name].plain()
        if fault := datafiles.column_fault(column, table.values.get(column.name), row[column.name], value_fault):
            report(given[column.name].line, f"{column.name}: {fault}")
    return row


def _id_fault(value: Any, table: Table) -> str:
    if not isinstance(value, str) or not value:
        return "must be text"
    if value.startswith(f"{table.prefix}_") and value[len(table.prefix) + 1 :].isdigit():
        return f"{value!r} is of the form that new rows get; choose another"
    return ""


def value_fault(kind: str, value: Any) -> str:
    """What is wrong with a value of a column's type, or nothing."""
    if kind in ("text", "bool", "json"):
        wanted: Any = {"text": str, "bool": bool, "json": list | dict}[kind]
        return "" if isinstance(value, wanted) else f"must be {kind}, not {value!r}{'' if isinstance(value, dict | list) or kind != 'text' else ' (quote it)'}"
    if kind in ("int", "real"):
        number = isinstance(value, int if kind == "int" else int | float) and not isinstance(value, bool) and math.isfinite(value)
        return "" if number else f"must be {'a whole number' if kind == 'int' else 'a number'}, not {value!r}"
    if not isinstance(value, str):
        return f"must be text, not {value!r}"
    return _moment_fault(kind, value)


def _moment_fault(kind: str, text: str) -> str:
    wanted = {"day": "YYYY-MM-DD", "time": "YYYY-MM-DDTHH:MM:SS", "when": "YYYY-MM-DD or YYYY-MM-DDTHH:MM:SS"}[kind]
    is_day = len(text) == 10
    try:
        if is_day:
            date.fromisoformat(text)
        else:
            datetime.fromisoformat(text)
    except ValueError:
        return f"must be {wanted}, not {text!r}"
    return "" if kind == "when" or is_day == (kind == "day") else f"must be {wanted}, not {text!r}"


def _check_references(checked: Checked, places: dict[str, list[tuple[str, Located]]]) -> None:
    ids: dict[str, dict[str, int]] = {}
    for key, rows in checked.rows.items():
        seen = ids.setdefault(key, {})
        for row, (file, item) in zip(rows, places[key], strict=True):
            if row["id"] in seen:
                checked.problems.append(Problem(file, item.line, f"id {row['id']!r} is here twice (first in line {seen[row['id']]})"))
            seen.setdefault(row["id"], item.line)
    for key, rows in checked.rows.items():
        server, _, short = key.partition(".")
        for column in (c for c in SERVERS[server][short].columns.values() if c.ref):
            known = ids.get(f"{server}.{column.ref}", {})
            for row, (file, item) in zip(rows, places[key], strict=True):
                value = row[column.name]
                if isinstance(value, str) and value not in known:
                    line = item.value[column.name].line
                    checked.problems.append(Problem(file, line, f"{column.name}: no row {value!r} in {server}.{column.ref}{did_you_mean(value, known)}"))


def _check_events(checked: Checked, places: dict[str, list[tuple[str, Located]]]) -> None:
    for row, (file, item) in zip(checked.rows.get("calendar.events", []), places.get("calendar.events", []), strict=True):
        checked.problems += [Problem(file, item.line, fault) for fault in _event_faults(row)]


def _event_faults(row: dict[str, Any]) -> list[str]:
    start, end = row["start"], row["end"]
    if not isinstance(start, str) or not isinstance(end, str):
        return []
    faults = []
    if row["all_day"] is not (len(start) == 10) or len(start) != len(end):
        faults.append("start and end must be days of an all-day event, else times (all_day says which)")
    elif start > end or (row["all_day"] and start == end):
        faults.append(f"ends ({end}) before it starts ({start})" + (": an all-day event ends on the day after its last" if row["all_day"] else ""))
    for moment in row["exdates"] if isinstance(row["exdates"], list) else ["exdates"]:
        if value_fault("when", moment):
            faults.append(f"exdates: {value_fault('when', moment)}")
    if row["recurrence"] and (fault := _rule_fault(row["recurrence"])):
        faults.append(f"recurrence: {fault}")
    return faults


def _rule_fault(rule: str) -> str:
    from dateutil.rrule import rrulestr

    try:
        rrulestr(rule.replace("Z", ""), dtstart=datetime(2026, 1, 1))
    except (ValueError, TypeError, KeyError) as error:
        return f"no RFC 5545 rule: {error}"
    return ""


def _check_paths(checked: Checked, places: dict[str, list[tuple[str, Located]]]) -> None:
    key = "filesystem.entries"
    kinds = {row["path"]: row["kind"] for row in checked.rows.get(key, [])}
    seen: set[str] = set()
    for row, (file, item) in zip(checked.rows.get(key, []), places.get(key, []), strict=True):
        path = row["path"]
        if not isinstance(path, str):
            continue
        if not path.startswith("/") or (path != "/" and path.endswith("/")) or "//" in path:
            checked.problems.append(Problem(file, item.line, f"path: must be absolute and without a trailing slash, not {path!r}"))
        parent = path.rpartition("/")[0]
        if parent and kinds.get(parent) != "directory":
            checked.problems.append(Problem(file, item.line, f"path: no directory {parent!r}"))
        if path in seen:
            checked.problems.append(Problem(file, item.line, f"path: {path!r} is here twice"))
        seen.add(path)
