"""POST /verifier: the checks of a request evaluated, and how that ends when there is no verdict."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from .envelope import Fields
from .faults import Fault
from .store import Row

if TYPE_CHECKING:
    from _verify.evaluate import Data
    from _verify.verifier import Verifier

    Read = Callable[[list[tuple[str, str]], bool], Awaitable[tuple[Data, list[Row]]]]


def checks_of(asked: Fields) -> list[Any]:
    """The checks of a request, which must have some unless it has claims; Fault 400."""
    checks: list[Any] = asked.need("checks", list) if "claims" not in asked.fields else asked.get("checks", list, [])
    return checks


async def verdict(asked: Fields, checks: list[Any], verifier: Verifier, read: Read) -> Row:
    """{success, verifiers}; Fault 400 ValidationError, 500 ExecutionError, 504 VerifierTimeout."""
    from _verify.faults import ExecutionFailed, InvalidChecks, TimedOut
    from _verify.verifier import DEFAULT_S, MOST_S

    seconds = asked.get("timeout", (int, float), DEFAULT_S)
    if not 0 < seconds <= MOST_S:
        raise Fault(400, "InvalidRequest", f"'timeout' must be over 0 and at most {MOST_S:g} seconds")
    try:
        return await verifier.verify(checks, asked.get("claims", list), read, seconds)
    except InvalidChecks as error:
        raise Fault(400, "ValidationError", f"{len(error.faults)} fault(s) in the checks: {error}", "see faults", faults=error.faults) from None
    except ExecutionFailed as error:
        raise Fault(500, "ExecutionError", f"the checks could not be evaluated: {error}") from None
    except sqlite3.DatabaseError as error:
        raise Fault(500, "ExecutionError", f"the checks could not be evaluated: the session's rows cannot be read: {error}", "reset the session") from error
    except TimedOut as error:
        raise Fault(504, "VerifierTimeout", str(error), "give a longer timeout, or simpler checks") from None
