"""Kind `website`: pages of one session, acted on in a real Chromium; reset, checked and read over HTTP by `sessionId`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from gymctl import wire
from gymctl.browser import client as browser
from gymctl.browser import gestures
from gymctl.episode import Action, Json, Observation
from gymctl.errors import EnvError, UsageError

if TYPE_CHECKING:
    from gymctl.instances import Instance

STATE: Json = {
    "name": "state",
    "description": "Read the session's rows, without a browser.",
    "inputSchema": {"type": "object", "properties": {"table": {"type": "string"}}, "additionalProperties": False},
}


NEEDS_RESET = True
"""A session is there only once it was reset: `run` does it for the instance's own."""


class Site(wire.Client):
    """A connection to a website's server, and one to the browser that belongs to the instance."""

    def __init__(self, instance: Instance) -> None:
        super().__init__(instance.url, name=instance.name)
        self.browser = browser.Link(instance)

    def close(self) -> None:
        """Close both; the browser stays."""
        super().close()
        self.browser.close()


def connect(instance: Instance) -> Site:
    """A connection to its server, and to its browser once one is needed."""
    return Site(instance)


def ready(client: wire.Client, path: str, timeout: float, alive: Callable[[], str], told: Callable[[str], None]) -> None:
    """Wait until it serves."""
    wire.wait(client, path, timeout, alive, told)


def address(url: str, session: str) -> str:
    """Where a person, or a browser of one's own, opens a session."""
    return f"{url}/?session_id={quote(session, safe='')}"


def reset(client: Site, session: str, *, state: str | None = None, tools: list[str] | None = None, seed: int | None = None) -> Json:
    """Put a session into the first state of a data pack, its page back to the start: {message, dataPack, resetSummary, loadSummary}."""
    body: Json = {"sessionId": session}
    if state:
        body["dataPack"] = state
    if seed is not None:
        body["seed"] = seed
    answer = _answer(client, session, "/reset", body, timeout=120)
    if not isinstance(answer, dict):
        raise EnvError(f"/reset answered {type(answer).__name__} instead of an object")
    client.browser.forget(session)
    return answer


def _answer(client: wire.Client, session: str, path: str, document: Json | None = None, *, timeout: float = 60) -> Any:
    """What the session answers: POST of a document, else GET; the environment's errors as ours, another session's answer is one."""
    reply = client.send("GET" if document is None else "POST", path, document, timeout=timeout)
    if reply.status >= 400:
        raise wire.error_of(reply, client.name)
    return wire.own(reply, session).json()


def tools(client: Site, session: str) -> list[Json]:
    """What can be done in the browser: [{name, description, inputSchema}]; Unavailable when this host has no browser."""
    missing = browser.lacking()
    if missing:
        raise missing
    return gestures.tools()


def parse(words: list[str]) -> Action:
    """`click '#save'`, `click 100 200`, `fill '#title' Lunch snapshot:=true` as an action; UsageError."""
    name, *rest = words
    if name == STATE["name"]:
        if len(rest) > 1:
            raise UsageError("state takes one table, or none")
        return Action(name, {"table": rest[0]} if rest else {})
    fields = gestures.known(name).__struct_fields__
    named = next((n for n, word in enumerate(reversed(rest)) if word.partition(":=")[0] not in fields or ":=" not in word), len(rest))
    for count in range(named, 0, -1):  # `fill '#title' timeout:=3` fills in that text: only words that no form needs are options
        if gestures.fits(name, rest[:-count]):
            options = {field: _json(value, field) for field, _, value in (word.partition(":=") for word in rest[-count:])}
            return Action(name, gestures.words(name, rest[:-count], options))
    return Action(name, gestures.words(name, rest, {}))


def _json(text: str, field: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"{field}:={text[:80]} is not FIELD:=JSON: {error}") from error


def step(client: Site, session: str, action: Action, *, timeout: float = 120) -> Observation:
    """Act in the browser: {url, title, console_errors, snapshot?, screenshot?}; `state [TABLE]` reads the rows instead."""
    began = time.monotonic()
    if action.name == STATE["name"]:
        return _read_state(client, session, action.args, began)
    gesture = gestures.read(action.name, action.args)
    args = dict(action.args)
    if isinstance(gesture, gestures.Screenshot) and gesture.path:
        args["path"] = str(Path(gesture.path).absolute())
    if isinstance(gesture, gestures.Upload):
        args["files"] = [str(Path(file).absolute()) for file in gesture.files]
    answer = client.browser.step(session, action.name, args, gesture.seconds)
    return Observation(answer["value"], tuple(answer["files"]), elapsed=time.monotonic() - began)


def _read_state(client: Site, session: str, args: Json, began: float) -> Observation:
    unknown = [name for name in args if name != "table"]
    if unknown:
        raise EnvError(f"state: no field {unknown[0]!r}", hint="`state [TABLE]`", type="ValidationError")
    value: Json = {"state": observe(client, session, args.get("table"))}
    missing = browser.lacking()
    if missing:
        value["browser"] = f"{missing.message}: {missing.hint}"
    return Observation(value, elapsed=time.monotonic() - began)


def observe(client: wire.Client, session: str, table: str | None = None) -> Json:
    """Every row of a session, or of one table of it: {table: [rows]}."""
    only = f"&table={quote(table, safe='')}" if table else ""
    answer = _answer(client, session, f"/state?session_id={quote(session, safe='')}{only}")
    if not isinstance(answer, dict):
        raise EnvError(f"/state answered {type(answer).__name__} instead of an object")
    return answer


def verify(client: wire.Client, session: str, checks: list[Json], timeout: float) -> wire.Reply:
    """What the verifier answers, whatever that is."""
    return wire.own(client.send("POST", "/verifier", {"sessionId": session, "checks": checks, "timeout": timeout}, timeout=timeout + 5), session)


def log(client: wire.Client, session: str) -> list[Any]:
    """The interactions of a session, oldest first: [{event_type, element_id, value, url, at}]; what came over the API also says its `call`."""
    answer = _answer(client, session, f"/log?session_id={quote(session, safe='')}")
    rows = answer.get("log") if isinstance(answer, dict) else answer
    if not isinstance(rows, list):
        raise EnvError("/log answered no list")
    return [{**row, "call": row.get("value")} if isinstance(row, dict) and row.get("event_type") == "control" else row for row in rows]
