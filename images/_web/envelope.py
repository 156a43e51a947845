"""The body of an API call: every spelling of its fields, whose session it is for and who sends it."""

from __future__ import annotations

from _server.envelope import MAX_CALLER, Fields, document
from starlette.requests import Request

from .sessions import checked_name

# Each spelling that a public client uses, and what it means here.
SPELLINGS = {
    "sessionId": "session", "session_id": "session", "dataPack": "pack", "data_pack": "pack", "pack": "pack", "baseWeek": "base", "base_week": "base",
    "seed": "seed", "prompt": "prompt", "checks": "checks", "claims": "claims", "timeout": "timeout", "table": "table", "since": "since",
    "events": "events", "page": "page",
}  # fmt: skip


class Envelope(Fields):
    """What a request says besides its path: its fields, and the caller."""

    __slots__ = ("caller",)

    def __init__(self, caller: str) -> None:
        super().__init__(SPELLINGS)
        self.caller = caller

    @property
    def session(self) -> str:
        """The session's name; Fault 400 when it is missing or cannot be one."""
        return checked_name(self.need("session", str))


def caller_of(request: Request) -> str:
    """Who asks, as the log names them."""
    headers = request.headers
    return (headers.get("x-caller") or headers.get("user-agent") or "unknown")[:MAX_CALLER]


async def read(request: Request, accepted: frozenset[str]) -> Envelope:
    """The envelope of a request: its query, and its JSON body for POST; fields that are not `accepted` are named in its warnings. Fault 400, 413."""
    made = Envelope(caller_of(request))
    known = accepted | {"session"}
    made.collect_query(request, known)
    made.collect(await document(request), "", known)
    return made
