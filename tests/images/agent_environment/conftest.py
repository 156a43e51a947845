"""A session without a server: an empty database, a frozen clock and a way to call tools as the server does."""

from __future__ import annotations

import importlib
import sqlite3
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol
from zoneinfo import ZoneInfo

import msgspec
import pytest

IMAGE = Path(__file__).parents[3] / "images" / "agent-environment"
for _folder in (IMAGE, IMAGE.parent):
    if str(_folder) not in sys.path:
        sys.path.insert(0, str(_folder))

from server import registry, store, tools  # noqa: E402

ZONE = ZoneInfo("America/New_York")
NOW = datetime(2026, 3, 9, 8, 30, tzinfo=ZONE)  # a Monday, the day after the clocks went forward


class Call(Protocol):
    """`call(ctx, "email_search", query="...")`: one tool call, read and checked as the server reads it."""

    def __call__(self, ctx: registry.Context, name: str, /, **args: Any) -> Any: ...


@pytest.fixture
def ctx() -> Iterator[registry.Context]:
    """Dana Reyes <dana@harbor.example> on an empty database."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA foreign_keys = ON")
    store.create(connection)
    yield registry.Context(store.Db(connection, ZONE), NOW, ZONE, registry.User("Dana Reyes", "dana@harbor.example"))
    connection.close()


@pytest.fixture
def call() -> Call:
    """Calls a tool by its name or alias."""

    def run(ctx: registry.Context, name: str, /, **args: Any) -> Any:
        family = name.partition("_")[0]
        importlib.import_module(f"server.tools.{family}") if family in tools.FAMILIES else tools.load()
        tool = registry.TOOLS[registry.ALIASES.get(name, name)]
        answer = tool.function(ctx, **tool.read(args, ctx.zone))
        msgspec.json.encode(answer)  # as the server does: plain values only
        return answer

    return run
