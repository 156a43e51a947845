"""Canaries through every tool: what is written in one session is never answered in another that runs beside it."""

from __future__ import annotations

import json
import random
import re
import threading
from typing import Any

from server import registry, tools

from tests.images.arguments import Word, arguments
from tests.images.serving import Client, Served

TRIES = 12
MAIL = re.compile(r"mail|address|^to$|^cc$|^bcc$|attendee|owner|assignee|organizer|lead$|author|who|people|emails", re.IGNORECASE)


def words(canary: str, ids: dict[str, list[str]], mails: list[str], paths: list[str], server: str) -> Word:
    """Texts for arguments: ids where an id is asked for, else the canary."""

    def word(name: str, chance: random.Random) -> str:
        if name == "id" or name.endswith(("_id", "_ids", "id_or_name")) or name in ids:
            near = ids.get(name.removesuffix("_ids").removesuffix("_id").removesuffix("s") + "s") or ids[server]
            return chance.choice(near)
        if MAIL.search(name):
            return chance.choice(mails)
        if "path" in name or name in ("source", "destination", "root"):
            return chance.choice([*paths, f"/{canary}-{chance.randrange(1000)}.txt"])
        return chance.choice([f"{canary} {chance.randrange(1000)}", canary])

    return word


class Office:
    """One session whose every tool is called with its own canary."""

    def __init__(self, port: int, canary: str) -> None:
        self.client = Client(port)
        self.canary = canary
        self.answers: list[tuple[str, bytes]] = []
        self.worked: set[str] = set()

    def work(self) -> None:
        tags = {"tags": {"assignmentId": f"office of {self.canary}"}}
        self.client.post("/reset", tags)
        state = self.client.post("/state", tags).json
        mails = [row["email"] for row in state["slack"]["users"]]
        paths = [row["path"] for row in state["filesystem"]["entries"]]
        chance = random.Random(1)
        for tool in sorted(registry.TOOLS.values(), key=lambda t: (not t.read_only, t.destructive, t.name)) * 2:
            tables = state[tool.server]
            ids = {table: [row["id"] for row in rows] for table, rows in tables.items() if rows}
            ids[tool.server] = [row["id"] for rows in tables.values() for row in rows]
            self._try(tool, words(self.canary, ids, mails, paths, tool.server), chance, tags)
        self.answers.append(("/state", self.client.post("/state", tags).content))
        self.answers.append(("/log", self.client.send("GET", f"/log?session_id=office%20of%20{self.canary}").content))
        self.client.close()

    def _try(self, tool: registry.Tool, word: Word, chance: random.Random, tags: dict[str, Any]) -> None:
        for _ in range(TRIES):
            body = {"toolName": tool.name, "toolArguments": arguments(tool.schema, chance, word), **tags}
            answer = self.client.post("/call-tools", body)
            assert answer.status == 200, (tool.name, body, answer.content)
            self.answers.append((tool.name, answer.content))
            if not json.loads(answer.content)["isError"]:
                self.worked.add(tool.name)
                return


def test_canaries(server: Served) -> None:
    tools.load()
    offices = [Office(server.port, canary) for canary in ("ZEBRAFINCH", "KOOKABURRA")]
    threads = [threading.Thread(target=office.work) for office in offices]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for office, other in (offices, offices[::-1]):
        leaked = {name for name, content in office.answers if other.canary.encode() in content}
        assert not leaked
        seen = {name for name, content in office.answers if office.canary.encode() in content}
        assert {registry.TOOLS[n].server for n in seen if n in registry.TOOLS} == {tool.server for tool in registry.TOOLS.values()}
        assert {name for name, _ in office.answers} >= registry.TOOLS.keys()
        silent = registry.TOOLS.keys() - office.worked
        assert len(silent) * 3 < len(registry.TOOLS), f"too few tools worked for this to prove anything: {sorted(silent)}"
