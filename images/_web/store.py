"""One session's rows: writes that are noted, so that an action can be undone, and what was worked out of rows kept until one changes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from _server.faults import Fault
from _server.store import SCHEMA, Row, Rows, encode

from .tables import Tables

T = TypeVar("T")

HISTORY = (
    "CREATE TABLE _log (n INTEGER PRIMARY KEY, at TEXT NOT NULL, event_type TEXT NOT NULL, element_id TEXT, value TEXT, url TEXT, "
    "source TEXT NOT NULL, caller TEXT NOT NULL, detail TEXT)",
    "CREATE TABLE _actions (n INTEGER PRIMARY KEY, name TEXT NOT NULL, label TEXT NOT NULL, changes TEXT NOT NULL, undone INTEGER NOT NULL DEFAULT 0)",
)


@dataclass(frozen=True, slots=True)
class Change:
    """One row before and after, in stored form; None where there was or is none."""

    table: str
    id: str
    before: Row | None
    after: Row | None


class Db(Rows):
    """Rows of one session, and what was changed of them."""

    def __init__(self, connection: sqlite3.Connection, zone: ZoneInfo, tables: Tables) -> None:
        super().__init__(connection, zone, tables.by_name.__getitem__)
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

    def get(self, name: str, id: str) -> Row:
        """The row with this id; Fault 404."""
        row = self.first(name, "id = ?", (id,))
        if row is None:
            raise Fault(404, "NotFound", f"There is no {id} in {name}.", "It may have been deleted, or belong to another session.")
        return row

    def insert(self, name: str, /, id: str | None = None, **values: Any) -> Row:
        """Add a row and return it; columns left out take their default; instants may be any ISO 8601 text."""
        row = self.stored(name, id, values)
        self.write(name, row["id"], row)
        return self.get(name, row["id"])

    def update(self, name: str, id: str, /, **values: Any) -> Row:
        """Change columns of one row and return it whole; nothing is written when nothing differs. Fault 404."""
        table = self.find(name)
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
            self.put(self.find(name), row)
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
    for statement in (*SCHEMA, *HISTORY, *(sql for t in tables.by_name.values() for sql in t.create(deferred=True))):
        connection.execute(statement)
