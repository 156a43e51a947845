"""One session's rows: typed reads over its SQLite file, and ids that are the same at every run."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from .tables import REQUIRED, Column, Table
from .times import show_time, stored_time

Row = dict[str, Any]
SCHEMA = (
    "CREATE TABLE _counters (name TEXT PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE _meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
)


def connect(path: Path) -> sqlite3.Connection:
    """A session's file, opened."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=512)
    connection.row_factory = sqlite3.Row
    # One process serves a session: an exclusive lock spares the shared-memory file and two locks a transaction.
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def encode(column: Column, value: Any, zone: ZoneInfo) -> Any:
    """A column's value as SQLite keeps it."""
    if value is None:
        return None
    if column.type == "json":
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    if column.type in ("time", "when"):
        return stored_time(value, zone)
    return int(value) if column.type == "bool" else value


def decode(table: Table, raw: sqlite3.Row | Row, zone: ZoneInfo) -> Row:
    """A row of SQLite, whole or in part, as pages, tools and checks see it."""
    row: Row = dict(raw)
    for name, kind in table.special:
        value = row.get(name)
        if value is None:
            continue
        row[name] = json.loads(value) if kind == "json" else bool(value) if kind == "bool" else show_time(value, zone)
    return row


class Rows:
    """Rows of one session. `where` is SQL over the stored form (instants as UTC text); `find` gives the table of a name."""

    def __init__(self, connection: sqlite3.Connection, zone: ZoneInfo, find: Callable[[str], Table]) -> None:
        self.connection = connection
        self.zone = zone
        self.find = find

    def rows(self, name: str, where: str = "", params: Iterable[Any] = (), *, order: str = "id") -> list[Row]:
        """Every row that `where` selects, in `order`."""
        table = self.find(name)
        sql = f"SELECT * FROM {table.sql_name}{' WHERE ' + where if where else ''} ORDER BY {order}"
        return [decode(table, raw, self.zone) for raw in self.connection.execute(sql, tuple(params))]

    def first(self, name: str, where: str, params: Iterable[Any] = (), *, order: str = "id") -> Row | None:
        """The first row that `where` selects, or None."""
        found = self.rows(name, where, params, order=f"{order} LIMIT 1")
        return found[0] if found else None

    def stored(self, name: str, id: str | None, values: Row) -> Row:
        """A new row in its stored form; an id and columns left out take their default; instants may be any ISO 8601 text."""
        table = self.find(name)
        if unknown := values.keys() - table.columns.keys():
            raise TypeError(f"{name} has no column {sorted(unknown)}")
        row: Row = {"id": id or self._new_id(table)}
        for column in table.columns.values():
            value = values.get(column.name, column.default)
            if value is REQUIRED:
                raise TypeError(f"{name}.{column.name} has no value")
            row[column.name] = encode(column, value, self.zone)
        return row

    def _new_id(self, table: Table) -> str:
        """The next id of a table: its number counts from 1 and is never used again."""
        sql = "INSERT INTO _counters VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET n = n + 1 RETURNING n"
        return f"{table.prefix}{table.joint}{self.connection.execute(sql, (table.sql_name,)).fetchone()[0]}"

    def put(self, table: Table, row: Row) -> None:
        """Add a row that is in its stored form."""
        names = ", ".join(f'"{c}"' for c in row)
        self.connection.execute(f"INSERT INTO {table.sql_name} ({names}) VALUES ({', '.join('?' * len(row))})", tuple(row.values()))
