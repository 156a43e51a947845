"""Tables written as text, a column as `TYPE[?][ = JSON default]`. `?` allows null. Types:

    text, int, real, bool
    time    an instant; in data files wall-clock time of their own zone; shown with that zone's offset
    day     YYYY-MM-DD
    when    a time, or a day
    json    a list or object
    -> t    the id of a row of table t

Every table has `id` (text, unique) first; a new row's is the table's prefix and a number.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

_SQL_TYPES = {"text": "TEXT", "int": "INTEGER", "real": "REAL", "bool": "INTEGER", "time": "TEXT", "day": "TEXT", "when": "TEXT", "json": "TEXT"}
REQUIRED = object()


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its type (see the module), whether null is allowed, its default and the table it refers to."""

    name: str
    type: str
    null: bool
    default: Any
    ref: str | None


@dataclass(frozen=True)
class Table:
    """One table of `server` (a tool server's; a website has none): `values` are the allowed values of some columns, new ids are `prefix`, `joint`, number."""

    name: str
    prefix: str
    columns: dict[str, Column]
    values: dict[str, tuple[str, ...]]
    server: str = ""
    joint: str = "-"

    @cached_property
    def sql_name(self) -> str:
        """Its name in SQLite."""
        return self._sql_name(self.name)

    @cached_property
    def special(self) -> tuple[tuple[str, str], ...]:
        """The columns whose stored form is not the shown one."""
        return tuple((c.name, c.type) for c in self.columns.values() if c.type in ("json", "bool", "time", "when"))

    def create(self, *, deferred: bool = False) -> list[str]:
        """The statements that make it; references are checked at once, or `deferred` to the end of a transaction."""
        columns = ", ".join(["id TEXT PRIMARY KEY", *(self._column(c, deferred) for c in self.columns.values())])
        indexed = [c.name for c in self.columns.values() if c.ref]
        indexes = [f"CREATE INDEX {self.sql_name}_{name} ON {self.sql_name}({name})" for name in indexed]
        return [f"CREATE TABLE {self.sql_name} ({columns}) WITHOUT ROWID", *indexes]

    def _sql_name(self, name: str) -> str:
        return f"{self.server}_{name}" if self.server else name

    def _column(self, column: Column, deferred: bool) -> str:
        refers = f" REFERENCES {self._sql_name(column.ref)}(id)" if column.ref else ""
        if refers and deferred:
            refers += " DEFERRABLE INITIALLY DEFERRED"
        return f'"{column.name}" {_SQL_TYPES[column.type]}{"" if column.null else " NOT NULL"}{refers}'


def columns(described: dict[str, str]) -> dict[str, Column]:
    """Columns from {name: text}."""
    return {name: _column(name, text) for name, text in described.items()}


def _column(name: str, text: str) -> Column:
    spec, _, default = text.partition(" = ")
    null = spec.endswith("?")
    kind = spec.rstrip("?")
    if "?" in spec[:-1]:
        raise ValueError(f"column {name}: {text}")
    ref = kind[3:] if kind.startswith("-> ") else None
    value = json.loads(default) if default else (None if null else REQUIRED)
    return Column(name, "text" if ref else kind, null, value, ref)
