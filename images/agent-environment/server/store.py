"""One session's rows: typed reads and writes over its SQLite file, with ids and times that are the same at every run."""

from __future__ import annotations

import difflib
import functools
import json
import sqlite3
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from .tables import REQUIRED, SERVERS, Column, Table

Row = dict[str, Any]
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


@functools.lru_cache(maxsize=65536)
def show_time(stored: str, zone: ZoneInfo) -> str:
    """A stored instant (UTC, `...Z`) or day as users see it: with `zone`'s offset; a day stays a day."""
    if len(stored) == 10:
        return stored
    return datetime.fromisoformat(stored).astimezone(zone).isoformat()


@functools.lru_cache(maxsize=65536)
def stored_time(text: str, zone: ZoneInfo) -> str:
    """ISO 8601 text (without an offset: in `zone`) as it is stored: `YYYY-MM-DDTHH:MM:SSZ`, or a day unchanged; ValueError."""
    if len(text) == 10:
        return datetime.fromisoformat(text).date().isoformat()
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    return utc_text(moment)


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


def decode(table: Table, raw: sqlite3.Row | Row, zone: ZoneInfo) -> Row:
    """A row of SQLite as tools, /show-data and checks see it."""
    row: Row = dict(raw)
    for name, column in _special(table.sql_name):
        value = row.get(name)
        if value is None:
            continue
        if column == "json":
            row[name] = json.loads(value)
        elif column == "bool":
            row[name] = bool(value)
        else:
            row[name] = show_time(value, zone)
    return row


@functools.cache
def _special(sql_name: str) -> tuple[tuple[str, str], ...]:
    server, _, name = sql_name.partition("_")
    return tuple((c.name, c.type) for c in SERVERS[server][name].columns.values() if c.type in ("json", "bool", "time", "when"))


class Db:
    """Rows of one session. Tables are named `server.table`; `where` is SQL over the stored form (instants as UTC text)."""

    def __init__(self, connection: sqlite3.Connection, zone: ZoneInfo) -> None:
        self.connection = connection
        self.zone = zone
        self.logged = 0
        self._texts: dict[tuple[str, tuple[Any, ...]], str] = {}
        self._texts_at = 0

    def rows(self, name: str, where: str = "", params: Iterable[Any] = (), *, order: str = "id") -> list[Row]:
        """Every row that `where` selects, in `order`."""
        source = table(name)
        sql = f"SELECT * FROM {source.sql_name}{' WHERE ' + where if where else ''} ORDER BY {order}"
        return [decode(source, raw, self.zone) for raw in self.connection.execute(sql, tuple(params))]

    def first(self, name: str, where: str, params: Iterable[Any] = (), *, order: str = "id") -> Row | None:
        """The first row that `where` selects, or None."""
        found = self.rows(name, where, params, order=f"{order} LIMIT 1")
        return found[0] if found else None

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
        source = table(name)
        if unknown := values.keys() - source.columns.keys():
            raise TypeError(f"{name} has no column {sorted(unknown)}")
        row = {"id": self.new_id(source)}
        for column in source.columns.values():
            value = values.get(column.name, column.default)
            if value is REQUIRED:
                raise TypeError(f"{name}.{column.name} has no value")
            row[column.name] = encode(column, value, self.zone)
        self.insert_raw(source, row)
        return self.get(name, row["id"])

    def insert_raw(self, source: Table, row: Row) -> None:
        """Add a row whose values are already in their stored form."""
        names = ", ".join(f'"{c}"' for c in row)
        sql = f"INSERT INTO {source.sql_name} ({names}) VALUES ({', '.join('?' * len(row))})"
        self.connection.execute(sql, tuple(row.values()))

    def new_id(self, source: Table) -> str:
        """The next id of a table: its prefix and a number that counts from 1 and is never used again."""
        sql = "INSERT INTO _counters VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET n = n + 1 RETURNING n"
        return f"{source.prefix}_{self.connection.execute(sql, (source.sql_name,)).fetchone()[0]}"

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


SCHEMA = (
    "CREATE TABLE _counters (name TEXT PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE _log (n INTEGER PRIMARY KEY, "
    "at TEXT NOT NULL, caller TEXT NOT NULL, call TEXT NOT NULL, tool TEXT, args TEXT, ok INTEGER NOT NULL, result TEXT)",
    "CREATE TABLE _meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
)


def create(connection: sqlite3.Connection) -> None:
    """Every table, in an empty database."""
    for statement in (*SCHEMA, *(sql for tables in SERVERS.values() for t in tables.values() for sql in t.create())):
        connection.execute(statement)
