"""Kind `mcp`: a tool server, spoken to over the API that isolates by `tags.assignmentId`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from gymctl import wire
from gymctl.episode import Action, Json, Observation
from gymctl.errors import EnvError, NotFound

if TYPE_CHECKING:
    from gymctl.instances import Instance


def connect(instance: Instance) -> wire.Client:
    """A connection to its server."""
    return wire.Client(instance.url, name=instance.name)


def ready(client: wire.Client, path: str, timeout: float, alive: Callable[[], str], told: Callable[[str], None]) -> None:
    """Wait until it serves."""
    wire.wait(client, path, timeout, alive, told)


def reset(client: wire.Client, session: str, *, state: str | None = None, tools: list[str] | None = None, seed: int | None = None) -> Json:
    """Put a session into the first state of a universe; what is in it: {message, universe_id, servers: {name: {table: rows}}}."""
    body: Json = {"tags": {"assignmentId": session}, "options": {"universe_id": state} if state else {}}
    if tools is not None:
        body["tools"] = tools
    if seed is not None:
        body["seed"] = seed
    answer = client.call("/reset", body, timeout=120)
    if not isinstance(answer, dict):
        raise EnvError(f"/reset answered {type(answer).__name__} instead of an object")
    return answer


def tools(client: wire.Client, session: str) -> list[Json]:
    """The tools of a session: [{name, description, inputSchema, ...}]."""
    answer = client.call("/list-tools", {"image": "", "tags": {"assignmentId": session}})
    listed = answer.get("tools") if isinstance(answer, dict) else answer
    if not isinstance(listed, list):
        raise EnvError("/list-tools answered no list of tools")
    return listed


def step(client: wire.Client, session: str, action: Action, *, timeout: float = 120) -> Observation:
    """Call a tool: its MCP content blocks; NotFound for an unknown tool, EnvError for everything else it refuses."""
    body = {"image": "", "tags": {"assignmentId": session}, "toolName": action.name, "toolArguments": action.args}
    began = time.monotonic()
    reply = client.send("POST", "/call-tools", body, timeout=timeout)
    elapsed = time.monotonic() - began
    answer = reply.json() if reply.status < 400 else None
    if not isinstance(answer, dict):
        raise wire.error_of(reply, client.name)
    wire.own(reply, session)
    if answer.get("isError"):
        raise _tool_error(answer, action.name)
    return Observation(answer.get("content"), elapsed=elapsed)


def _tool_error(answer: Json, tool: str) -> Exception:
    error = answer.get("error")
    told = error if isinstance(error, dict) else {}
    message = wire.printable(str(told.get("message") or _text(answer) or f"{tool} failed"))
    hint = wire.printable(_arguments(told["schema"]) if isinstance(told.get("schema"), dict) else str(told.get("hint") or ""))
    if told.get("type") in ("tool_not_found", "unknown_tool", "UnknownTool", "ToolNotFound"):
        return NotFound(message, hint=hint)
    return EnvError(message, hint=hint, type=str(told.get("type") or "tool_error"), status=200)


def _arguments(schema: Json) -> str:
    """What a tool takes, in a line: those that it needs first."""
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict) or not properties:
        return "it takes no arguments"
    needed = [name for name in properties if isinstance(required, list) and name in required]
    return f"it takes {', '.join([*(f'{name} (required)' for name in needed), *(name for name in properties if name not in needed)])}"


def _text(answer: Json) -> str:
    blocks = answer.get("content")
    return " ".join(str(b.get("text", "")) for b in blocks if isinstance(b, dict)) if isinstance(blocks, list) else ""


def verify(client: wire.Client, session: str, checks: list[Json], timeout: float) -> wire.Reply:
    """What the verifier answers, whatever that is."""
    body = {"tags": {"assignmentId": session}, "session_id": session, "checks": checks, "timeout": timeout}
    return client.send("POST", "/verifier", body, timeout=timeout + 5)


def log(client: wire.Client, session: str) -> list[Any]:
    """The calls of a session, oldest first, with who made them; NotFound, or EnvError of status 404, where an environment keeps none."""
    answer = client.call(f"/log?session_id={quote(session, safe='')}")
    rows = answer.get("log", answer.get("calls")) if isinstance(answer, dict) else answer
    if not isinstance(rows, list):
        raise EnvError("/log answered no list")
    return rows
