"""One tool call: find the tool, read its arguments, run it with its log row in one transaction, and answer content or an error."""

from __future__ import annotations

import re
import sqlite3
import time
from dataclasses import dataclass, field
from typing import Any

import msgspec
from _server.faults import Fault
from _server.store import Row
from _verify.faults import did_you_mean, near

from .registry import ALIASES, TOOLS, Tool
from .sessions import Key, Session, Sessions
from .store import ToolError
from .tables import SERVERS

# Python lets another thread run every 5 ms. A tool whose last run took less than this holds the event loop no longer than
# a thread would hold the interpreter, so it is spared the two thread switches.
QUICK_S = 0.002
MAX_TIMED = 1000

_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Outcome:
    """What a call gave: `text` is the JSON of its result, or `fault` says why there is none."""

    text: bytes = b""
    fault: Fault | None = None


@dataclass(slots=True)
class Caller:
    """Runs calls over sessions; remembers how long each tool took last."""

    sessions: Sessions
    took: dict[str, float] = field(default_factory=dict)

    async def call(self, key: Key, caller: str, name: str, args: Row) -> Outcome:
        """Call a tool for a session. A tool's failure is an Outcome with a fault; it is in the session's log like a success."""
        if self._is_quick(name) and (idle := self.sessions.idle(key)):
            return self._timed(idle, caller, name, args)
        async with self.sessions.use(key, caller, f"call of {name}") as session:
            if self._is_quick(name):
                return self._timed(session, caller, name, args)
            return await session.in_thread(self._timed, session, caller, name, args)

    def _is_quick(self, name: str) -> bool:
        return self.took.get(name, 1.0) < QUICK_S

    def _timed(self, session: Session, caller: str, name: str, args: Row) -> Outcome:
        # The thread's own time: how long it waited for a busy machine says nothing of the tool.
        start = time.thread_time()
        outcome = run(session, caller, name, args)
        if len(self.took) > MAX_TIMED:  # names that no tool has are remembered too
            self.took.clear()
        self.took[name] = time.thread_time() - start
        return outcome


def run(session: Session, caller: str, name: str, args: Row) -> Outcome:
    """Call a tool on an open session; every call leaves one row in the log, a failed one nothing else."""
    context = session.open()
    connection = context.db.connection
    connection.execute("BEGIN")
    try:
        tool = find(name, session.tools)
        text = _encode(tool.function(context, **_read(tool, args, context.zone)))
        session.record(caller, "tool", tool.name, _encode(args).decode(), True, text)
        connection.execute("COMMIT")
        return Outcome(text)
    except BaseException as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        context.db.forget()
        fault = _as_fault(error)
        session.record(caller, "tool", ALIASES.get(name, name), _encode(args).decode(), False, _encode({"type": fault.type, "message": fault.message}))
        if fault.type == "InternalError":
            raise
        return Outcome(fault=fault)


def _as_fault(error: BaseException) -> Fault:
    match error:
        case Fault():
            return error
        case ToolError():
            return Fault(500, error.type, error.message, error.hint)
        case sqlite3.IntegrityError():
            return Fault(500, "conflict", f"the rows would no longer fit together: {error}", "something still refers to this, or it exists already")
        case OverflowError():
            return Fault(500, "invalid", f"a number is too large: {error}")
    return Fault(500, "InternalError", "the tool failed by a fault of its own")


def find(name: str, enabled: frozenset[str] | None) -> Tool:
    """The tool of this name or alias; Fault 404 for none, with near names, Fault 403 for one the task does not enable."""
    tool = TOOLS.get(ALIASES.get(name, name))
    if tool is None:
        raise unknown_tool(name)
    if enabled is not None and tool.name not in enabled:
        hint = f"enabled here: {', '.join(sorted(enabled))}"
        raise Fault(403, "DisabledTool", f"tool {tool.name!r} of server {tool.server!r} is not enabled in this session", hint)
    return tool


def unknown_tool(name: str) -> Fault:
    """The error for a tool that does not exist: near names, and the server that has it when only the prefix is wrong."""
    server, _, rest = name.partition("_")
    owners = [t for t in TOOLS.values() if t.name == f"{t.server}_{rest or name}" or t.name == f"{t.server}_{name}"]
    names = [*TOOLS, *ALIASES]
    if name.lower() in {n.lower() for n in names}:
        message = f"no tool {name!r}: tool names are case-sensitive"
    elif owners:
        belongs = "; ".join(f"{t.name!r} belongs to server {t.server!r}" for t in owners)
        message = f"no tool {name!r}: {belongs}"
    elif server in SERVERS:
        message = f"server {server!r} has no tool {name!r}; tool names are case-sensitive"
    else:
        message = f"no tool {name!r}; tool names are case-sensitive and begin with their server's name"
    found = [t.name for t in owners] or near(name, names)
    hint = f"did you mean {' or '.join(found)}?" if found else "POST /list-tools lists them"
    return Fault(404, "UnknownTool", message, hint, near=found)


def _read(tool: Tool, args: Row, zone: Any) -> Row:
    try:
        return tool.read(args, zone)
    except msgspec.ValidationError as error:
        problems = argument_problems(tool, args, str(error))
    message = f"{tool.name}: {len(problems)} problem(s) with the arguments: " + "; ".join(f"{p['path']}: {p['message']}" for p in problems)
    raise Fault(422, "InvalidArguments", message, "see schema", problems=problems, schema=tool.schema)


def argument_problems(tool: Tool, args: Row, first: str) -> list[dict[str, str]]:
    """Every fault of the arguments as {path, message}; `first` is what the reader said of the first one."""
    import jsonschema

    problems: list[dict[str, str]] = []
    for error in sorted(jsonschema.Draft202012Validator(tool.schema).iter_errors(args), key=lambda e: list(map(str, e.absolute_path))):
        problems += _problems_of(error)
    if not problems:
        message, _, path = first.partition(" - at `")
        problems.append({"path": path.rstrip("`") or "$", "message": message})
    return problems


def _problems_of(error: Any) -> list[dict[str, str]]:
    path = error.json_path
    if error.validator == "additionalProperties":
        known = list(error.schema.get("properties", {}))
        extra = [name for name in error.instance if name not in known]
        return [
            {"path": f"{path}.{name}", "message": f"unknown argument {name!r}{did_you_mean(name, known)}; known: {', '.join(known) or 'none'}"}
            for name in extra
        ]
    if error.validator == "required":
        missing = re.match(r"'(.*)' is a required", error.message)
        name = missing.group(1) if missing else ""
        return [{"path": f"{path}.{name}", "message": f"required argument {name!r} is missing"}]
    message = error.message if len(error.message) <= 300 else error.message[:300] + "..."
    return [{"path": path, "message": message}]
