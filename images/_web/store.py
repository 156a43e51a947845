"""One session's rows: typed reads and writes over its SQLite file, ids that are the same at every run, and undo."""

from __future__ import annotations

import functools
import json
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from .faults import Fault
from .tables import REQUIRED, Column, Table, Tables

Row = dict[str, Any]
T = TypeVar("T")

SCHEMA = (
    "CREATE TABLE _counters (name TEXT PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE _log (n INTEGER PRIMARY KEY, at TEXT NOT NULL, event_type TEXT NOT NULL, element_id TEXT, value TEXT, url TEXT, "
    "source TEXT NOT NULL, caller TEXT NOT NULL, detail TEXT)",
    "CREATE TABLE _meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE _actions (n INTEGER PRIMARY KEY, name TEXT NOT NULL, label TEXT NOT NULL, changes TEXT NOT NULL, undone INTEGER NOT NULL DEFAULT 0)",
)


@functools.lru_cache(maxsize=65536)
def show_time(stored: str, zone: ZoneInfo) -> str:
    """A stored instant (UTC, `...Z`) or day as rows show it: with `zone`'s offset; a day stays a day."""
    if len(stored) == 10:
        return stored
    return datetime.fromisoformat(stored).astimezone(zone).isoformat()


@functools.lru_cache(maxsize=65536)
def stored_time(text: str, zone: ZoneInfo) -> str:
    """ISO 8601 text (without an offset: in `zone`) as it is stored: `YYYY-MM-DDTHH:MM:SSZ`, or a day unchanged; ValueError."""
    if len(text) == 10:
        return datetime.fromisoformat(text).date().isoformat()
    moment = datetime.fromisoformat(text)
    return utc_text(moment if moment.tzinfo else moment.replace(tzinfo=zone))


def utc_text(moment: datetime) -> str:
    """An aware datetime as it is stored."""
    return moment.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def encode(column: Column, value: Any, zone: ZoneInfo) -> Any:
    """A column's value as SQLite keeps it."""
    if value is None:
        return None
    if column.type == "json":
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    if column.type in ("time", "when"):
        return stored_time(value, zone)
    return int(value) if column.type == "bool" else value


def decode(table: Table, raw: sqlite3.Row, zone: ZoneInfo) -> Row:
    """A row of SQLite as pages, /state and checks see it."""
    row: Row = dict(raw)
    for name, kind in table.special:
        value = row[name]
        if value is None:
            continue
        row[name] = json.loads(value) if kind == "json" else bool(value) if kind == "bool" else show_time(value, zone)
    return row


@dataclass(frozen=True, slots=True)
class Change:
    """One row before and after, in stored form; None where there was or is none."""

    table: str
    id: str
    before: Row | None
    after: Row | None


class Db:
    """Rows of one session. `where` is SQL over the stored form (instants as UTC text)."""

    def __init__(self, connection: sqlite3.Connection, zone: ZoneInfo, tables: Tables) -> None:
        self.connection = connection
        self.zone = zone
        self.tables = tables
        self.changes: list[Change] = []
        self._memory: dict[Any, Any] = {}
        # Equal only where all rows are: a copy of a template has the template's name until a row changes.
        self.version: object = object()

    def remembered(self, key: Any, make: Callable[[], T]) -> T:
        """What `make` gives, kept until a row of the session changes."""
        if key not in self._memory:
            self._memory[key] = make()
        found: T = self._memory[key]
        return found

    def forget(self) -> None:
        """Drop what was remembered: rows changed."""
        self._memory.clear()
        self.version = object()

    def rows(self, name: str, where: str = "", params: Iterable[Any] = (), *, order: str = "id") -> list[Row]:
        """Every row that `where` selects, in `order`."""
        table = self.tables.by_name[name]
        sql = f"SELECT * FROM {name}{' WHERE ' + where if where else ''} ORDER BY {order}"
        return [decode(table, raw, self.zone) for raw in self.connection.execute(sql, tuple(params))]

    def first(self, name: str, where: str, params: Iterable[Any] = (), *, order: str = "id") -> Row | None:
        """The first row that `where` selects, or None."""
        found = self.rows(name, where, params, order=f"{order} LIMIT 1")
        return found[0] if found else None

    def get(self, name: str, id: str) -> Row:
        """The row with this id; Fault 404."""
        row = self.first(name, "id = ?", (id,))
        if row is None:
            raise Fault(404, "NotFound", f"There is no {id} in {name}.", "It may have been deleted, or belong to another session.")
        return row

    def insert(self, name: str, /, id: str | None = None, **values: Any) -> Row:
        """Add a row and return it; columns left out take their default; instants may be any ISO 8601 text."""
        table = self.tables.by_name[name]
        if unknown := values.keys() - table.columns.keys():
            raise TypeError(f"{name} has no column {sorted(unknown)}")
        row: Row = {"id": id or self.new_id(table)}
        for column in table.columns.values():
            value = values.get(column.name, column.default)
            if value is REQUIRED:
                raise TypeError(f"{name}.{column.name} has no value")
            row[column.name] = encode(column, value, self.zone)
        self.write(name, row["id"], row)
        return self.get(name, row["id"])

    def new_id(self, table: Table) -> str:
        """The next id of a table: a number that counts from 1 and is never used again."""
        sql = "INSERT INTO _counters VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET n = n + 1 RETURNING n"
        return f"{table.prefix}-{self.connection.execute(sql, (table.name,)).fetchone()[0]}"

    def update(self, name: str, id: str, /, **values: Any) -> Row:
        """Change columns of one row and return it whole; nothing is written when nothing differs. Fault 404."""
        table = self.tables.by_name[name]
        before = self._stored(name, id)
        if before is None:
            return self.get(name, id)
        self.write(name, id, before | {c: encode(table.columns[c], v, self.zone) for c, v in values.items()})
        return self.get(name, id)

    def delete(self, name: str, where: str, params: Iterable[Any] = ()) -> int:
        """Remove rows; the number removed."""
        ids = [r[0] for r in self.connection.execute(f"SELECT id FROM {name} WHERE {where}", tuple(params))]
        for found in ids:
            self.write(name, found, None)
        return len(ids)

    def _stored(self, name: str, id: str) -> Row | None:
        raw = self.connection.execute(f"SELECT * FROM {name} WHERE id = ?", (id,)).fetchone()
        return None if raw is None else dict(raw)

    def write(self, name: str, id: str, row: Row | None) -> None:
        """Make the row with this id be `row` (stored form; None: no such row), and note the change."""
        before = self._stored(name, id)
        if before == row:
            return
        if row is None:
            self.connection.execute(f"DELETE FROM {name} WHERE id = ?", (id,))
        elif before is None:
            columns = ", ".join(f'"{c}"' for c in row)
            self.connection.execute(f"INSERT INTO {name} ({columns}) VALUES ({', '.join('?' * len(row))})", tuple(row.values()))
        else:
            sets = ", ".join(f'"{c}" = ?' for c in row)
            self.connection.execute(f"UPDATE {name} SET {sets} WHERE id = ?", (*row.values(), id))
        self.changes.append(Change(name, id, before, row))
        self.forget()

    def keep_action(self, name: str, label: str) -> int:
        """Note the changes since the last call as one action that can be undone; its number."""
        changes = json.dumps([[c.table, c.id, c.before, c.after] for c in self.changes])
        cursor = self.connection.execute("INSERT INTO _actions (name, label, changes) VALUES (?, ?, ?)", (name, label, changes))
        return int(cursor.lastrowid or 0)

    def action(self, n: int) -> sqlite3.Row | None:
        """{n, name, label, changes, undone} of an action."""
        found: sqlite3.Row | None = self.connection.execute("SELECT * FROM _actions WHERE n = ?", (n,)).fetchone()
        return found

    def last_action(self) -> sqlite3.Row | None:
        """The newest action that is not undone and no undo itself."""
        found: sqlite3.Row | None = self.connection.execute("SELECT * FROM _actions WHERE undone = 0 AND name != 'undo' ORDER BY n DESC LIMIT 1").fetchone()
        return found

    def undo(self, n: int) -> str:
        """Take back an action, when the rows it changed are still as it left them; its label. Fault 404, 409."""
        action = self.action(n)
        if action is None:
            raise Fault(404, "NotFound", f"There is no action {n} to undo.")
        if action["undone"]:
            raise Fault(409, "AlreadyUndone", f"“{action['label']}” was already undone.")
        changes = [Change(*c) for c in json.loads(action["changes"])]
        left = {(c.table, c.id): c.after for c in changes}
        if any(self._stored(table, row_id) != after for (table, row_id), after in left.items()):
            raise Fault(409, "ChangedSince", f"“{action['label']}” cannot be undone: what it changed was changed again.", "Undo the later change first.")
        for change in reversed(changes):
            self.write(change.table, change.id, change.before)
        self.connection.execute("UPDATE _actions SET undone = 1 WHERE n = ?", (n,))
        return str(action["label"])


def create(connection: sqlite3.Connection, tables: Tables) -> None:
    """Every table, in an empty database."""
    for statement in (*SCHEMA, *(sql for t in tables.by_name.values() for sql in t.create())):
        connection.execute(statement)
