"""Verification over HTTP: POST /verifier answers whether a session's data and calls are as the checks say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from _server import verdicts
from _server.answers import encode
from _server.store import Row
from starlette.requests import Request
from starlette.responses import Response

from .answers import answer
from .calls import Caller
from .envelope import Envelope
from .registry import ALIASES, TOOLS
from .sessions import Session
from .surface_control import rows
from .tables import SERVERS

if TYPE_CHECKING:
    from _verify.evaluate import Data
    from _verify.verifier import Verifier

LOG_COLUMNS = ["n", "at", "caller", "call", "tool", "args", "ok", "result"]


async def verifier(request: Request, asked: Envelope) -> Response:
    """{session_id, success: true|false|"PENDING", verifiers}; 400 ValidationError, 500 ExecutionError, 504 VerifierTimeout."""
    checks = verdicts.checks_of(asked)
    caller: Caller = request.app.state.caller

    async def read(tables: list[tuple[str, str]], log: bool) -> tuple[Data, list[Row]]:
        async with caller.sessions.use(asked.key, asked.caller, "verifier") as session:
            return await session.in_thread(_snapshot, session, asked.caller, checks, tables, log)

    found = await verdicts.verdict(asked, checks, _verifier_of(request), read)
    return answer({"session_id": asked.key.name, **found}, asked.warnings)


def _verifier_of(request: Request) -> Verifier:
    """The application's verifier, made at its first use: most of a server's life needs none."""
    from _verify.checks import Vocabulary
    from _verify.verifier import Verifier

    state = request.app.state
    if state.verifier is None:
        tables = {server: {name: ["id", *table.columns] for name, table in tables.items()} for server, tables in SERVERS.items()}
        state.verifier = Verifier(Vocabulary(tables, LOG_COLUMNS, {**ALIASES, **{name: name for name in TOOLS}}))
    found: Verifier = state.verifier
    return found


def _snapshot(session: Session, caller: str, checks: list[Any], tables: list[tuple[str, str]], log: bool) -> tuple[Data, list[Row]]:
    """The rows and the log as they are together: the session's lock is held."""
    found = rows(session, tables), session.log() if log else []
    ids = [check.get("id") for check in checks]
    session.record(caller, "verifier", None, encode({"checks": ids}).decode(), True, b"null")
    return found
