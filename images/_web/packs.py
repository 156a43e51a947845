"""Packs: data files checked row by row, placed relative to a base week, and the SQLite file that every session starts as a copy of."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from _server import datafiles, templates
from _server.store import Row, encode
from _server.tables import REQUIRED, Column
from _server.times import stored_time
from _server.yamlrows import Located, Problem
from _verify.faults import did_you_mean

from . import dates, store

if TYPE_CHECKING:
    from .site import Site

HEAD = {"id": "text", "title": "text", "timezone": "zone", "base_week": "day", "now": "time", "user": "text"}


class UnknownPack(Exception):
    """There is no pack of this name; `known` are those there are."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(f"no pack {name!r}; there are: {', '.join(known)}")
        self.known = known


class BrokenPack(Exception):
    """A pack's files are wrong; `problems` says each fault as `file:line: message`."""

    def __init__(self, name: str, problems: list[str]) -> None:
        super().__init__(f"pack {name!r} has {len(problems)} problem(s): {'; '.join(problems[:5])}")
        self.problems = problems


@dataclass
class Checked:
    """A pack as read: its head, rows by table (placed relative to the base week), where each row stands, and all problems."""

    name: str
    head: Row = field(default_factory=dict)
    rows: dict[str, list[Row]] = field(default_factory=dict)
    places: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def add(self, table: str, row: Row, file: str, line: int) -> None:
        """Take a row that is complete."""
        self.rows.setdefault(table, []).append(row)
        self.places.setdefault(table, []).append((file, line))

    def fault(self, table: str, n: int, message: str) -> None:
        """A problem of the n-th row of a table."""
        file, line = self.places[table][n]
        self.problems.append(Problem(file, line, message))


def names(folder: Path) -> list[str]:
    """The names of all packs."""
    return sorted(path.parent.name for path in folder.glob("*/pack.yaml"))


def check(site: Site, folder: Path, base: date | None = None) -> Checked:
    """A pack's folder as rows, with every problem; `base` is a day of the base week (left out: the pack's own)."""
    checked = Checked(folder.name)
    checked.head, checked.problems = datafiles.head(folder / "pack.yaml", HEAD, _head_fault)
    if checked.problems:
        return checked
    base = dates.monday(base or date.fromisoformat(checked.head["base_week"]))
    checked.head |= {"base_week": base.isoformat(), "now": dates.from_templates(checked.head["now"], base)}
    files = sorted(p for p in folder.rglob("*.yaml") if p.name != "pack.yaml")
    for path in files:
        _Reader(site, checked, base, f"{folder.name}/{path.relative_to(folder)}").table(path, path.relative_to(folder).parts[0].removesuffix(".yaml"))
    _check_references(site, checked)
    if not checked.problems:
        site.complete(checked)
    return checked


def _head_fault(kind: str, value: Any) -> str:
    if kind == "zone":
        return datafiles.zone_fault(value)
    return value_fault(kind, dates.from_templates(value, date(2026, 3, 9)) if isinstance(value, str) else value)


class _Reader:
    """Reads the rows of one file."""

    def __init__(self, site: Site, checked: Checked, base: date, file: str) -> None:
        self.tables = site.tables
        self.checked = checked
        self.base = base
        self.file = file

    def report(self, line: int, message: str) -> None:
        self.checked.problems.append(Problem(self.file, line, message))

    def table(self, path: Path, name: str) -> None:
        own = [t for t in self.tables.by_name if t not in self.tables.parents]
        if name not in own:
            self.report(1, f"no table {name!r}{did_you_mean(name, own)}; tables: {', '.join(own)}")
            return
        items, problems = datafiles.items(path, self.file)
        self.checked.problems += problems
        for item in items:
            self.row(item, name)

    def row(self, item: Located, name: str, given_id: str | None = None) -> None:
        table = self.tables.by_name[name]
        children = self.tables.children.get(name, ())
        given: dict[str, Located] = item.value
        for key in given.keys() - {"id", *table.columns, *children}:
            self.report(given[key].line, f"unknown column {key!r}{did_you_mean(key, ['id', *table.columns, *children])}")
        row: Row = {"id": given_id or (given["id"].plain() if "id" in given else None)}
        if given_id is None and (fault := _id_fault(row["id"], table.prefix)):
            self.report(item.line, f"id: {fault}")
        row |= {column.name: self.value(item, column, table.values.get(column.name)) for column in table.columns.values()}
        self.checked.add(name, row, self.file, item.line)
        for child in children:
            if child in given:
                self.children(given[child], child, str(row["id"]))

    def value(self, item: Located, column: Column, allowed: tuple[str, ...] | None) -> Any:
        given = item.value.get(column.name)
        if given is None and column.default is REQUIRED:
            self.report(item.line, f"{column.name!r} is missing")
            return None
        value = column.default if given is None else self.placed(given.plain())
        if given is not None and (fault := datafiles.column_fault(column, allowed, value, value_fault)):
            self.report(given.line, f"{column.name}: {fault}")
        return value

    def children(self, items: Located, name: str, parent: str) -> None:
        if not isinstance(items.value, list):
            self.report(items.line, f"{name} must be a list")
            return
        table, to_parent = self.tables.by_name[name], self.tables.parent_column(name)
        first = next(iter(table.columns))
        for n, item in enumerate(items.value, 1):
            values = item.value if isinstance(item.value, dict) else {first: item}
            self.row(Located({to_parent: Located(parent, item.line), **values}, item.line), name, f"{table.prefix}-{parent.partition('-')[2]}-{n}")

    def placed(self, value: Any) -> Any:
        if isinstance(value, str):
            return dates.from_templates(value, self.base)
        if isinstance(value, dict):
            return {key: self.placed(v) for key, v in value.items()}
        return [self.placed(v) for v in value] if isinstance(value, list) else value


def _id_fault(value: Any, prefix: str) -> str:
    if not isinstance(value, str) or not value.startswith(f"{prefix}-"):
        return f"must be text that begins with {prefix}-, not {value!r}"
    rest = value[len(prefix) + 1 :]
    if rest.isdigit() or not rest.replace("-", "").isalnum() or rest != rest.lower():
        return f"{value!r}: behind {prefix}- come lower-case words and numbers joined by -, not a number alone"
    return ""


def value_fault(kind: str, value: Any) -> str:
    """What is wrong with a value of a column's type, or nothing."""
    wanted: Any = {"text": str, "bool": bool, "json": list | dict, "int": int, "real": int | float}.get(kind, str)
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind != "bool"):
        return f"must be {kind}, not {value!r}{' (quote it)' if kind == 'text' else ''}"
    if kind in ("text", "bool", "json", "int", "real"):
        return ""
    shape = {"day": "YYYY-MM-DD or {+N Day}", "time": "{+N Day} HH:MM", "when": "{+N Day} or {+N Day} HH:MM"}[kind]
    try:
        moment_is_day = (len(value) == 10 and bool(date.fromisoformat(value))) or not datetime.fromisoformat(value)
    except ValueError:
        return f"must be {shape}, not {value!r}"
    return "" if kind == "when" or moment_is_day == (kind == "day") else f"must be {shape}, not {value!r}"


def _check_references(site: Site, checked: Checked) -> None:
    ids: dict[str, set[str]] = {}
    for name, rows in checked.rows.items():
        seen = ids.setdefault(name, set())
        for n, row in enumerate(rows):
            if row["id"] in seen:
                checked.fault(name, n, f"id {row['id']!r} is here twice")
            seen.add(row["id"])
    for name, rows in checked.rows.items():
        for column in (c for c in site.tables.by_name[name].columns.values() if c.ref):
            known = ids.get(str(column.ref), set())
            for n, row in enumerate(rows):
                value = row.get(column.name)
                if isinstance(value, str) and value not in known:
                    checked.fault(name, n, f"{column.name}: no row {value!r} in {column.ref}{did_you_mean(value, known)}")


def template_path(site: Site, name: str, base: date | None, data_dir: Path) -> Path:
    """Where the template of a pack and base week is, or will be; UnknownPack."""
    if name not in names(site.packs):
        raise UnknownPack(name, names(site.packs))
    week = dates.monday(base).isoformat() if base else "own"
    return data_dir / "templates" / f"{name}-{week}-{_digest(site, site.packs / name)}.sqlite"


def template(site: Site, name: str, base: date | None, data_dir: Path) -> Path:
    """The SQLite file that a session of this pack and base week starts as a copy of, built if need be; UnknownPack, BrokenPack."""
    path = template_path(site, name, base, data_dir)
    return templates.made(path, name, lambda connection: _build(site, site.packs / name, base, connection))


def _digest(site: Site, folder: Path) -> str:
    """Of all that a template is made from: the pack's files, by their sizes and times, and the code that reads and lays them out."""
    digest = hashlib.sha256(site.code_digest.encode())
    for path in sorted(p for p in folder.rglob("*.yaml")):
        found = path.stat()
        digest.update(f"{path.relative_to(folder)}\0{found.st_size}\0{found.st_mtime_ns}\0".encode())
    return digest.hexdigest()[:16]


def _build(site: Site, folder: Path, base: date | None, connection: sqlite3.Connection) -> None:
    checked = check(site, folder, base)
    if checked.problems:
        raise BrokenPack(folder.name, [str(problem) for problem in checked.problems])
    store.create(connection, site.tables)
    _fill(site, connection, checked)


def _fill(site: Site, connection: sqlite3.Connection, checked: Checked) -> None:
    zone = ZoneInfo(checked.head["timezone"])
    counts = {name: len(checked.rows.get(name, [])) for name in site.tables.by_name}
    meta = {**checked.head, "now": stored_time(checked.head["now"], zone), "counts": json.dumps(counts)}
    connection.executemany("INSERT INTO _meta VALUES (?, ?)", meta.items())
    db = store.Db(connection, zone, site.tables)
    for name, table in site.tables.by_name.items():
        for row in checked.rows.get(name, []):
            stored = {"id": row["id"]} | {c.name: encode(c, row[c.name], zone) for c in table.columns.values()}
            db.write(name, row["id"], stored)


def main(site: Site, argv: list[str], say: Callable[[str], object] = print) -> int:
    """`check [PACK...]`: every problem, or the rows of each table; 1 when there is a problem."""
    if argv[:1] != ["check"]:
        print("usage: python -m server.packs check [PACK...]", file=sys.stderr)  # noqa: T201
        return 2
    failed = False
    for name in argv[1:] or names(site.packs):
        checked = check(site, site.packs / name)
        failed = failed or bool(checked.problems)
        for problem in checked.problems:
            say(str(problem))
        if not checked.problems:
            say(f"{name}: {', '.join(f'{len(rows)} {table}' for table, rows in checked.rows.items())}")
    return int(failed)
