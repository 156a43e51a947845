"""The API that every site has: /reset, /task, /prompt, /verifier, /state, /log, /interactions, /health, /openapi.json."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from datetime import date
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from _server import verdicts
from _server.answers import answer
from _server.faults import Fault
from _server.openapi import Api
from _server.store import Row
from _verify.faults import did_you_mean
from starlette.requests import Request
from starlette.responses import Response

from . import dates
from .envelope import SPELLINGS, Envelope
from .sessions import COOKIE, LOG_COLUMNS, Session, Sessions

if TYPE_CHECKING:
    from _verify.evaluate import Data
    from _verify.verifier import Verifier

    from .site import Site

Handler = Callable[[Request, Envelope], Awaitable[Response]]
INTERACTIONS = ("click", "submit", "input", "change", "drag", "resize", "key", "navigate")
MAX_INTERACTIONS = 500


def _sessions(request: Request) -> Sessions:
    found: Sessions = request.app.state.sessions
    return found


def _named(request: Request, asked: Envelope) -> str:
    """The session's name, remembered so that the answer can say whose it was."""
    name = asked.session
    request.scope["session_name"] = name
    return name


async def health(request: Request, asked: Envelope) -> Response:
    """200 when it can serve: a writable data folder, a sound default pack; else 503 with the reasons."""
    sessions = _sessions(request)
    reasons = []
    if not os.access(sessions.folder, os.W_OK):
        reasons.append(f"DATA_DIR {sessions.data_dir} is not writable")
    else:
        try:
            await sessions.template(sessions.pack)
        except Fault as fault:
            reasons.append(f"DATA_PACK: {fault.message}; {fault.hint}")
    if reasons:
        raise Fault(503, "Unhealthy", "; ".join(reasons), reasons=reasons)
    return answer({"status": "ok", "version": sessions.site.version, "site": sessions.site.name, "dataPack": sessions.pack}, asked.warnings)


async def reset(request: Request, asked: Envelope) -> Response:
    """Put a session to the first state of a data pack, or make it; {message, dataPack, baseWeek, resetSummary, loadSummary}."""
    name = _named(request, asked)
    pack, base, seed = asked.get("pack", str), asked.get("base", str), asked.get("seed", int)
    args = {k: v for k, v in {"dataPack": pack, "baseWeek": base, "seed": seed}.items() if v is not None}
    session, used, cleared, loaded = await _sessions(request).reset(name, asked.caller, pack, _day(base), args)
    message = f"session {name!r} is at the start of data pack {used!r}, base week {session.base}"
    found = {"message": message, "dataPack": used, "baseWeek": session.base.isoformat(), "resetSummary": cleared, "loadSummary": loaded}
    return answer(found, asked.warnings)


def _day(text: str | None) -> date | None:
    if text is None:
        return None
    try:
        if len(text) != 10:
            raise ValueError(text)
        day = date.fromisoformat(text)
    except ValueError:
        raise Fault(400, "InvalidRequest", f"'baseWeek' must be a day, YYYY-MM-DD, not {text[:40]!r}") from None
    if not 1971 <= day.year <= 2200:
        raise Fault(400, "InvalidRequest", f"'baseWeek' must be of the years 1971 to 2200, not {text}")
    return day


async def task(request: Request, asked: Envelope) -> Response:
    """Absolute dates of a prompt as `{+N Day}` of the session's base week; {originalPrompt, transformedPrompt}."""
    prompt: str = asked.need("prompt", str)
    async with _sessions(request).use(_named(request, asked), "task") as session:
        return answer({"originalPrompt": prompt, "transformedPrompt": dates.to_templates(prompt, session.base)}, asked.warnings)


async def prompt(request: Request, asked: Envelope) -> Response:
    """`{+N Day}` of a prompt as ISO dates; {originalPrompt, convertedPrompt}."""
    text: str = asked.need("prompt", str)
    asked.warnings += [f"{found} is no {{+N Day}}, and stays as it is" for found in dates.unread(text)[:20]]
    async with _sessions(request).use(_named(request, asked), "prompt") as session:
        return answer({"originalPrompt": text, "convertedPrompt": dates.from_templates(text, session.base)}, asked.warnings)


async def state(request: Request, asked: Envelope) -> Response:
    """{table: [rows]} of a session, of one table or all."""
    table = asked.get("table", str)
    known = _sessions(request).site.tables.by_name
    name = _named(request, asked)
    if table is not None and table not in known:
        raise Fault(404, "UnknownTable", f"there is no table {table!r}{did_you_mean(table, known)}", f"tables: {', '.join(known)}")
    async with _sessions(request).use(name, "state") as session:
        session.record("control", None, "state", None, "api", asked.caller, {"table": table} if table else None)
        return answer({t: session.db.rows(t) for t in known if table in (None, t)}, asked.warnings)


async def log(request: Request, asked: Envelope) -> Response:
    """{session_id, dataPack, log: [{n, at, event_type, element_id, value, url, source, caller, detail}]}, oldest first; `since` leaves out numbers up to it."""
    since = asked.since()
    async with _sessions(request).use(_named(request, asked), "log") as session:
        return answer({"session_id": session.name, "dataPack": session.meta["id"], "log": session.log(since)}, asked.warnings)


async def interactions(request: Request, asked: Envelope) -> Response:
    """Take what a page saw: `events` are [{event_type, element_id, value, url}]. Pages send this by themselves."""
    found = asked.get("events", list, [])
    if "session" not in asked.fields and COOKIE in request.cookies:
        asked.fields["session"] = unquote(request.cookies[COOKIE])
    name = _named(request, asked)
    async with _sessions(request).use(name, "interactions") as session:
        if asked.get("page", str) != session.version:
            raise Fault(409, "StalePage", "the page was opened before the session's last reset", "load it again")
        return answer({"recorded": take_interactions(session, found, asked.caller)}, asked.warnings)


def take_interactions(session: Session, found: list[Any], caller: str) -> int:
    """Record what a page's script saw, what is well-formed of it; the number recorded."""
    recorded = 0
    for item in found[:MAX_INTERACTIONS]:
        if not isinstance(item, dict) or item.get("event_type") not in INTERACTIONS:
            continue
        element_id, value, url = (None if item.get(k) is None else str(item[k])[:2000] for k in ("element_id", "value", "url"))
        session.record(item["event_type"], element_id, value, url, "page", caller)
        recorded += 1
    return recorded


async def verifier(request: Request, asked: Envelope) -> Response:
    """{session_id, success: true|false|"PENDING", verifiers}; 400 ValidationError, 500 ExecutionError, 504 VerifierTimeout."""
    checks = verdicts.checks_of(asked)
    name = _named(request, asked)
    sessions = _sessions(request)
    app = request.app.state
    if app.verifier is None:
        app.verifier = verifier_of(sessions.site)

    async def read(tables: list[tuple[str, str]], with_log: bool) -> tuple[Data, list[Row]]:
        async with sessions.use(name, "verifier") as session:
            found: Data = {"": {table: session.db.rows(table) for _, table in tables}}
            rows = session.log() if with_log else []
            session.record("control", None, "verifier", None, "api", asked.caller, {"checks": [check.get("id") for check in checks]})
            return found, rows

    sessions.known(name)  # an unknown session is said before the checks are looked at
    found = await verdicts.verdict(asked, checks, app.verifier, read)
    return answer({"session_id": name, **found}, asked.warnings)


def verifier_of(site: Site) -> Verifier:
    """The verifier of a site's tables."""
    from _verify.checks import Vocabulary
    from _verify.verifier import Verifier

    tables = {name: ["id", *table.columns] for name, table in site.tables.by_name.items()}
    return Verifier(Vocabulary({"": tables}, list(LOG_COLUMNS)))


async def openapi(request: Request, asked: Envelope) -> Response:
    """This description of the paths."""
    site = _sessions(request).site
    types: dict[str, dict[str, Any]] = {"base": {"type": "string", "format": "date"}, "events": {"type": "array", "items": {"type": "object"}}}
    described = Api(site.name, site.version, "Every path also answers under /api. Pages are at /?session_id=ID.", SPELLINGS, types)
    return answer(described.document((p, m, (h.__doc__ or "").strip(), f) for p, m, h, f in PATHS), asked.warnings)


POST, GET, BOTH = ["POST"], ["GET"], ["GET", "POST"]
# Path, methods, handler, fields beside the session.
PATHS: list[tuple[str, list[str], Handler, tuple[str, ...]]] = [
    ("/interactions", POST, interactions, ("events", "page")),
    ("/reset", POST, reset, ("pack", "base", "seed")),
    ("/task", POST, task, ("prompt",)),
    ("/prompt", POST, prompt, ("prompt",)),
    ("/verifier", POST, verifier, ("checks", "claims", "timeout")),
    ("/state", BOTH, state, ("table",)),
    ("/log", BOTH, log, ("since",)),
    ("/health", GET, health, ()),
    ("/openapi.json", GET, openapi, ()),
]
