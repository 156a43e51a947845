"""What the MCP annotations promise is so: a read-only tool changes no row, an idempotent one changes nothing the second time."""

from __future__ import annotations

import random
from typing import Any

from server import registry, tools

from tests.images.agent_environment.test_isolation import TRIES, words
from tests.images.arguments import arguments
from tests.images.serving import Client, Served

TAGS = {"tags": {"assignmentId": "annotations"}}


class Session:
    """One session of its own and its rows."""

    def __init__(self, port: int) -> None:
        self.client = Client(port)
        self.client.post("/reset", TAGS)
        self.chance = random.Random(7)

    def rows(self) -> Any:
        """Every row there is."""
        return self.client.post("/state", TAGS).json

    def worked(self, name: str, args: dict[str, Any]) -> bool:
        """Whether a call was done."""
        return not self.client.post("/call-tools", {"toolName": name, "toolArguments": args, **TAGS}).json["isError"]

    def arguments(self, tool: registry.Tool, state: Any) -> dict[str, Any]:
        """Arguments by chance, with ids that exist."""
        ids = {table: [row["id"] for row in rows] for table, rows in state[tool.server].items() if rows}
        ids[tool.server] = [row["id"] for rows in state[tool.server].values() for row in rows]
        mails = [row["email"] for row in state["slack"]["users"]]
        paths = [row["path"] for row in state["filesystem"]["entries"]]
        return arguments(tool.schema, self.chance, words("heron", ids, mails, paths, tool.server))


def test_they_hold(server: Served) -> None:
    tools.load()
    session = Session(server.port)
    tried = {"read_only": 0, "idempotent": 0}
    for tool in sorted(registry.TOOLS.values(), key=lambda t: t.name):
        if not tool.idempotent:  # a read-only one is idempotent too
            continue
        before = session.rows()
        for _ in range(TRIES):
            args = session.arguments(tool, before)
            if not session.worked(tool.name, args):
                continue
            after = session.rows()
            if tool.read_only:
                assert after == before, f"{tool.name} says it is read-only and changed rows with {args}"
                tried["read_only"] += 1
            elif session.worked(tool.name, args):
                assert session.rows() == after, f"{tool.name} says it is idempotent and did it twice with {args}"
                tried["idempotent"] += 1
            break
    session.client.close()
    assert tried["read_only"] > 60, tried
    assert tried["idempotent"] > 20, tried


def test_what_destroys_says_so() -> None:
    tools.load()
    for tool in registry.TOOLS.values():
        verb = tool.name.partition("_")[2].split("_")[0]
        if verb in ("delete", "remove", "trash", "empty", "void", "merge", "archive") and not tool.read_only:
            assert tool.destructive or verb in ("archive", "remove", "trash", "merge"), f"{tool.name} destroys and does not say so"
        assert not (tool.read_only and tool.destructive), tool.name
