"""All tables of a site. Columns are written as _server/tables.py says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from _server.tables import Table, columns


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
    for name, (prefix, text) in described.items():
        allowed = {key.partition(".")[2]: found for key, found in values.items() if key.startswith(f"{name}.")}
        made[name] = Table(name, prefix, columns(text), allowed)
    return Tables(made, dict(children))
