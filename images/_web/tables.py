"""A site's tables, written as text: `TYPE[?][ = JSON default]`. `?` allows null. Types:

    text, int, real, bool
    time    an instant; in packs wall-clock time of the pack's zone; shown with that zone's offset
    day     YYYY-MM-DD
    when    a time, or a day
    json    a list or object
    -> t    the id of a row of table t

Every table has `id` (text, unique) first; a new row's is the table's prefix, `-` and a number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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

    def sql(self) -> str:
        refers = f" REFERENCES {self.ref}(id) DEFERRABLE INITIALLY DEFERRED" if self.ref else ""
        return f'"{self.name}" {_SQL_TYPES[self.type]}{"" if self.null else " NOT NULL"}{refers}'


@dataclass(frozen=True)
class Table:
    """One table; `values` are the allowed values of some columns."""

    name: str
    prefix: str
    columns: dict[str, Column]
    values: dict[str, tuple[str, ...]]

    @cached_property
    def special(self) -> tuple[tuple[str, str], ...]:
        """The columns whose stored form is not the shown one."""
        return tuple((c.name, c.type) for c in self.columns.values() if c.type in ("json", "bool", "time", "when"))

    def create(self) -> list[str]:
        """The statements that make it."""
        columns = ", ".join(["id TEXT PRIMARY KEY", *(c.sql() for c in self.columns.values())])
        indexed = [c.name for c in self.columns.values() if c.ref]
        indexes = [f"CREATE INDEX {self.name}_{name} ON {self.name}({name})" for name in indexed]
        return [f"CREATE TABLE {self.name} ({columns}) WITHOUT ROWID", *indexes]


@dataclass(frozen=True)
class Tables:
    """All tables by name; `children` are those that packs write inside the rows of another."""

    by_name: dict[str, Table]
    children: dict[str, tuple[str, ...]]

    @cached_property
    def parents(self) -> dict[str, str]:
        """The table in whose rows a child table is written."""
        return {child: parent for parent, found in self.children.items() for child in found}

    def parent_column(self, child: str) -> str:
        """The column of a child table that names its parent's row."""
        parent = self.parents[child]
        return next(c.name for c in self.by_name[child].columns.values() if c.ref == parent)


def tables(
    children: Mapping[str, tuple[str, ...]], values: Mapping[str, tuple[str, ...]], **described: tuple[str, dict[str, str]]
) -> Tables:  # fmt: skip
    """Tables from {name: (prefix, {column: text})}; `values` are the allowed ones by `table.column`."""
    made = {}
    for name, (prefix, columns) in described.items():
        allowed = {key.partition(".")[2]: found for key, found in values.items() if key.startswith(f"{name}.")}
        made[name] = Table(name, prefix, {c: _column(c, text) for c, text in columns.items()}, allowed)
    return Tables(made, dict(children))


def _column(name: str, text: str) -> Column:
    spec, _, default = text.partition(" = ")
    null = spec.endswith("?")
    kind = spec.rstrip("?")
    if "?" in spec[:-1]:
        raise ValueError(f"column {name}: {text}")
    ref = kind[3:] if kind.startswith("-> ") else None
    value = json.loads(default) if default else (None if null else REQUIRED)
    return Column(name, "text" if ref else kind, null, value, ref)
