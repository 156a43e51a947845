"""One session's rows: typed writes over its SQLite file, errors that name near rows, and texts kept until a row changes."""

from __future__ import annotations

import difflib
import sqlite3
from collections.abc import Iterable
from typing import Any
from zoneinfo import ZoneInfo

from _server.store import SCHEMA, Row, Rows, encode
from _server.tables import Table

from .tables import SERVERS

MAX_TEXTS = 32


class ToolError(Exception):
    """A tool cannot do what was asked: `type` is a short machine word, `hint` the way out."""

    def __init__(self, type: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.type = type
        self.message = message
        self.hint = hint


def table(name: str) -> Table:
    """The table called `server.table`."""
    server, _, short = name.partition(".")
    return SERVERS[server][short]


class Db(Rows):
    """Rows of one session. Tables are named `server.table`."""

    def __init__(self, connection: sqlite3.Connection, zone: ZoneInfo) -> None:
        super().__init__(connection, zone, table)
        self.logged = 0
        self._texts: dict[tuple[str, tuple[Any, ...]], str] = {}
        self._texts_at = 0

    def text(self, sql: str, params: Iterable[Any] = ()) -> str:
        """The one text (of JSON, say) that a query gives, remembered until a row changes; rows of the log, counted in `logged`, do not."""
        at = self.connection.total_changes - self.logged
        if at != self._texts_at or len(self._texts) >= MAX_TEXTS:
            self.forget()
            self._texts_at = at
        key = (sql, tuple(params))
        if key not in self._texts:
            self._texts[key] = str(self.connection.execute(*key).fetchone()[0])
        return self._texts[key]

    def forget(self) -> None:
        """Remember no text any more: what was changed has been rolled back."""
        self._texts.clear()

    def count(self, name: str, where: str = "", params: Iterable[Any] = ()) -> int:
        """How many rows `where` selects."""
        sql = f"SELECT COUNT(*) FROM {table(name).sql_name}{' WHERE ' + where if where else ''}"
        return int(self.connection.execute(sql, tuple(params)).fetchone()[0])

    def get(self, name: str, id: str) -> Row:
        """The row with this id; ToolError not_found with near ids (and their titles)."""
        row = self.first(name, "id = ?", (id,))
        if row is None:
            raise self.missing(name, id)
        return row

    def missing(self, name: str, id: str) -> ToolError:
        """The error for an id that does not exist, with the nearest that do."""
        source = table(name)
        label = next((c for c in ("title", "name", "subject", "number", "filename", "path", "email") if c in source.columns), "id")
        known = {str(r["id"]): str(r[label]) for r in self.connection.execute(f'SELECT id, "{label}" FROM {source.sql_name}')}
        near = difflib.get_close_matches(id, known, n=3, cutoff=0.5)
        near += [i for i, text in known.items() if text.lower() == id.lower() and i not in near]
        hint = "; ".join(f"{i} ({known[i]})" for i in near)
        return ToolError("not_found", f"no row {id!r} in {name}", f"near: {hint}" if hint else f"list or search {source.server} first")

    def insert(self, name: str, /, **values: Any) -> Row:
        """Add a row and return it; columns left out take their default; instants may be any ISO 8601 text."""
        row = self.stored(name, None, values)
        self.put(table(name), row)
        return self.get(name, row["id"])

    def update(self, name: str, id: str, /, **values: Any) -> Row:
        """Change columns of one row and return it whole; ToolError not_found."""
        source = table(name)
        if values:
            sets = ", ".join(f'"{c}" = ?' for c in values)
            encoded = [encode(source.columns[c], v, self.zone) for c, v in values.items()]
            self.connection.execute(f"UPDATE {source.sql_name} SET {sets} WHERE id = ?", (*encoded, id))
        return self.get(name, id)

    def delete(self, name: str, where: str, params: Iterable[Any] = ()) -> int:
        """Remove rows; the number removed. A row others refer to raises sqlite3.IntegrityError: remove or refuse first."""
        return self.connection.execute(f"DELETE FROM {table(name).sql_name} WHERE {where}", tuple(params)).rowcount


LOG = (
    "CREATE TABLE _log (n INTEGER PRIMARY KEY, "
    "at TEXT NOT NULL, caller TEXT NOT NULL, call TEXT NOT NULL, tool TEXT, args TEXT, ok INTEGER NOT NULL, result TEXT)"
)


def create(connection: sqlite3.Connection) -> None:
    """Every table, in an empty database."""
    for statement in (*SCHEMA, LOG, *(sql for tables in SERVERS.values() for t in tables.values() for sql in t.create())):
        connection.execute(statement)
