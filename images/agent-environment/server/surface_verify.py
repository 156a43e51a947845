"""Verification over HTTP: POST /verifier answers whether a session's data and calls are as the checks say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from .answers import answer, encode
from .calls import Caller
from .envelope import Envelope
from .faults import Fault
from .registry import ALIASES, TOOLS
from .sessions import Session
from .store import Row
from .surface_control import rows
from .tables import SERVERS

if TYPE_CHECKING:
    from _verify.evaluate import Data
    from _verify.verifier import Verifier

LOG_COLUMNS = ["n", "at", "caller", "call", "tool", "args", "ok", "result"]


async def verifier(request: Request, asked: Envelope) -> Response:
    """{session_id, success: true|false|"PENDING", verifiers}; 400 ValidationError, 500 ExecutionError, 504 VerifierTimeout."""
    checks = asked.need("checks", list) if "claims" not in asked.fields else asked.get("checks", list, [])
    verdict = await _verdict(request, asked, checks)
    return answer({"session_id": asked.key.name, **verdict}, asked.warnings)


def _tool_of(request: Request) -> Verifier:
    """The application's verifier, made at its first use: most of a server's life needs none."""
    from _verify.checks import Vocabulary
    from _verify.verifier import Verifier

    state = request.app.state
    if state.verifier is None:
        tables = {server: {name: ["id", *table.columns] for name, table in tables.items()} for server, tables in SERVERS.items()}
        state.verifier = Verifier(Vocabulary(tables, LOG_COLUMNS, {**ALIASES, **{name: name for name in TOOLS}}))
    found: Verifier = state.verifier
    return found


async def _verdict(request: Request, asked: Envelope, checks: list[Any]) -> dict[str, Any]:
    from _verify.faults import ExecutionFailed, InvalidChecks, TimedOut
    from _verify.verifier import DEFAULT_S, MOST_S

    seconds = asked.get("timeout", (int, float), DEFAULT_S)
    if not 0 < seconds <= MOST_S:
        raise Fault(400, "InvalidRequest", f"'timeout' must be over 0 and at most {MOST_S:g} seconds")
    caller: Caller = request.app.state.caller

    async def read(tables: list[tuple[str, str]], log: bool) -> tuple[Data, list[Row]]:
        async with caller.sessions.use(asked.key, asked.caller, "verifier") as session:
            return await session.in_thread(_snapshot, session, asked.caller, checks, tables, log)

    try:
        return await _tool_of(request).verify(checks, asked.get("claims", list), read, seconds)
    except InvalidChecks as error:
        raise Fault(400, "ValidationError", f"{len(error.faults)} fault(s) in the checks: {error}", "see faults", faults=error.faults) from None
    except ExecutionFailed as error:
        raise Fault(500, "ExecutionError", f"the checks could not be evaluated: {error}") from None
    except TimedOut as error:
        raise Fault(504, "VerifierTimeout", str(error), "give a longer timeout, or simpler checks") from None


def _snapshot(session: Session, caller: str, checks: list[Any], tables: list[tuple[str, str]], log: bool) -> tuple[Data, list[Row]]:
    """The rows and the log as they are together: the session's lock is held."""
    found = rows(session, tables), session.log() if log else []
    ids = [check.get("id") for check in checks]
    session.record(caller, "verifier", None, encode({"checks": ids}).decode(), True, b"null")
    return found
