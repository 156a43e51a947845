"""The body of a request: every spelling of its fields, whom it is for and who sends it."""

from __future__ import annotations

from _server.envelope import MAX_CALLER, Fields, document, headers_of, short
from _server.faults import Fault
from starlette.requests import Request

from .sessions import OWN_KEY, Key, assignment

# Each spelling that a public client uses, and what it means here.
SPELLINGS = {
    "tags": "tags", "image": "image", "assignmentId": "session", "assignment_id": "session", "sessionId": "session", "session_id": "session",
    "userId": "user", "user_id": "user", "toolName": "tool", "tool_name": "tool", "toolArguments": "args", "toolArgs": "args",
    "tool_args": "args", "tool_arguments": "args", "use_cache": "use_cache", "useCache": "use_cache", "serverName": "server",
    "server_name": "server", "server": "server", "table": "table", "options": "options", "universe_id": "universe", "universeId": "universe",
    "universe": "universe", "seed": "seed", "tools": "tools", "enabled_tools": "tools", "checks": "checks", "claims": "claims",
    "timeout": "timeout", "since": "since",
}  # fmt: skip
EVERYWHERE = frozenset({"tags", "image", "session", "user"})
IN_TAGS = frozenset({"session", "user"})


class Envelope(Fields):
    """What a request says besides its path: its fields, the session's key, and the caller."""

    __slots__ = ("caller", "key")

    def __init__(self, key: Key = OWN_KEY, caller: str = "") -> None:
        super().__init__(SPELLINGS)
        self.key = key
        self.caller = caller


async def read(request: Request, accepted: frozenset[str]) -> Envelope:
    """The envelope of a request: its query, and its body unless it is a GET; fields that are not `accepted` are named in its warnings. Fault 400, 413."""
    given = await document(request)
    made = Envelope()
    known = EVERYWHERE | accepted
    made.collect_query(request, known)
    made.collect(given, "", known)
    tags = made.fields.get("tags")
    if tags is not None:
        if not isinstance(tags, dict):
            raise Fault(400, "InvalidRequest", "'tags' must be an object, {\"assignmentId\": text}")
        made.collect(tags, "tags.", IN_TAGS)
    made.key = _key(made.fields.get("session"))
    # Remembered here so that the answer, also an error's, can say whose it was.
    request.scope["session_name"] = made.key.name
    user = made.fields.get("user")
    headers = headers_of(request)
    caller = headers.get("x-caller") or (user if isinstance(user, str) else None) or headers.get("user-agent") or "unknown"
    made.caller = caller[:MAX_CALLER]
    return made


def _key(name: object) -> Key:
    if name is None:
        return OWN_KEY
    if not isinstance(name, str):
        raise Fault(400, "InvalidRequest", f"'tags.assignmentId' must be text, not {short(name)}")
    return assignment(name)


def session_of(request: Request) -> Key:
    """The session that a request's query names, in any spelling, else the instance's own; Fault 400."""
    found = Envelope()
    found.collect_query(request, EVERYWHERE)
    return _key(found.fields.get("session"))
