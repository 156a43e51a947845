"""Pages: a request's session, form and rows for a handler of the site; templates; what a form did is one action that can be undone."""

from __future__ import annotations

import functools
import json
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, parse_qsl, quote, unquote, urlencode, urlsplit

import jinja2
import msgspec
from _server.answers import noted
from _server.envelope import body
from _server.faults import Fault
from _server.numbers import whole
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from . import answers, api, envelope
from .sessions import COOKIE, Session, Sessions, checked_name, reset_call

if TYPE_CHECKING:
    from .assets import Assets
    from .site import Route, Site

MOST_ACTIONS = 10**9
MAX_KEPT = 256  # rendered pages, of some 80 kB
POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'"
)


class Form:
    """A form's or a query's fields: texts without surrounding space."""

    def __init__(self, fields: Mapping[str, list[str]]) -> None:
        self.fields = fields

    def get(self, name: str, default: str = "") -> str:
        """The field's first value, or the default when it is not there."""
        found = self.fields.get(name)
        return found[0].strip() if found else default

    def all(self, name: str) -> list[str]:
        """Every value of a field, empty ones left out."""
        return [v.strip() for v in self.fields.get(name, []) if v.strip()]

    def __contains__(self, name: str) -> bool:
        return name in self.fields


class Page:
    """What a handler of a site gets: `query`, `form` (of a POST), the session and its rows."""

    # Stands for the session's version in what is rendered, so that sessions with the same rows share it; nobody knows it, so no row has it.
    version = secrets.token_hex(16)

    def __init__(self, request: Request, session: Session, site: Site, form: Form) -> None:
        self.request = request
        self.session = session
        self.site = site
        self.db = session.db
        self.form = form
        self.query = Form(parse_qs(request.url.query, keep_blank_values=True))
        self.label = ""
        self.target: str | None = None
        self.rendered: tuple[str, int] | None = None

    def path(self, name: str) -> str:
        """A part of the address."""
        return str(self.request.path_params[name])

    @cached_property
    def here(self) -> str:
        """This page's own address, without the session and the message of the last action."""
        kept = [(k, v) for k, v in parse_qsl(self.request.url.query) if k not in ("session_id", "done", "back")]
        return self.request.url.path + (f"?{urlencode(kept)}" if kept else "")

    @cached_property
    def here_quoted(self) -> str:
        """The same, for a query."""
        return quote(self.here, safe="/")

    def back(self, default: str) -> str:
        """Where to go after this page: what `back` says, when it is an address of this site."""
        asked = self.form.get("back") or self.query.get("back")
        # A browser leaves tabs and line ends out of an address, and takes \\ for /: what is no plain path may lead elsewhere.
        return asked if asked.startswith("/") and not asked.startswith("//") and "\\" not in asked and asked.isprintable() else default

    def render(self, template: str, status: int = 200, **context: Any) -> Response:
        """A page from a template of the site."""
        found = self.site.shell(self) | context | {"page": self, "toast": self._toast()}
        self.rendered = (render(self.request, template, found), status)
        return self.show(*self.rendered)

    def show(self, html: str, status: int) -> Response:
        """A rendered page as this session's."""
        return HTMLResponse(html.replace(self.version, self.session.version), status)

    def done(self, label: str, to: str) -> Response:
        """The end of an action: `label` says what happened, beside a button that undoes it, on the page it leads to."""
        self.label, self.target = label, to
        return RedirectResponse(to, 303)

    def _toast(self) -> dict[str, Any] | None:
        asked = self.query.get("done")
        found = whole(asked, MOST_ACTIONS)
        action = None if found is None else self.db.action(found)
        if action is None:
            return None
        return {"n": action["n"], "label": action["label"], "can_undo": not action["undone"] and action["name"] != "undo" and action["changes"] != "[]"}


def render(request: Request, template: str, context: Mapping[str, Any]) -> str:
    """A template's text."""
    templates: jinja2.Environment = request.app.state.templates
    return templates.get_template(template).render(context)


def environment(site: Site, assets: Assets) -> jinja2.Environment:
    """Templates of the site and of all sites; what is put into them is escaped."""
    from pathlib import Path

    folders = [site.folder / "templates", Path(__file__).parent / "templates"]
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, auto_reload=False
    )  # fmt: skip
    made.globals.update(site=site, asset=assets.address, icon=functools.cache(functools.partial(_icon, assets)))
    made.filters["urlencode_path"] = lambda text: quote(str(text), safe="/")
    return made


def _icon(assets: Assets, name: str, size: int = 20) -> Markup:
    return Markup(
        '<svg class="icon" width="{0}" height="{0}" aria-hidden="true" focusable="false"><use href="{1}#{2}"/></svg>'
    ).format(size, assets.address("icons.svg"), name)  # fmt: skip


def session_name(request: Request) -> tuple[str, bool]:
    """Whose page is asked for, and whether the cookie must be set; Fault 400."""
    asked = request.query_params.get("session_id")
    kept = request.cookies.get(COOKIE)
    if asked is None and kept is None:
        raise Fault(400, "NoSession", "This page needs a session.", "Make one, then open its address.")
    name = checked_name(asked if asked is not None else unquote(str(kept)))
    return name, asked is not None and kept != quote(name, safe="")


def endpoint(route: Route) -> answers.Endpoint:
    """A route's handler with everything around it: session, form, version, transaction, log."""

    async def answered(request: Request) -> Response:
        name, is_new = session_name(request)
        request.scope["session_name"] = name
        fields = await _fields(request) if route.method == "POST" else {}
        sessions: Sessions = request.app.state.sessions
        async with sessions.use(name, route.name) as session:
            page = Page(request, session, sessions.site, Form(fields))
            response = _act(page, route) if route.method == "POST" else _look(page, route)
        response.headers["Cache-Control"] = "no-store"
        response.headers["Content-Security-Policy"] = POLICY
        response.headers["Referrer-Policy"] = "same-origin"
        response.headers["X-Content-Type-Options"] = "nosniff"
        if is_new:
            response.set_cookie(COOKIE, quote(name, safe=""), path="/", httponly=True, samesite="lax")
        return response

    return answered


async def _fields(request: Request) -> dict[str, list[str]]:
    content = (await body(request)).decode("utf-8", "replace")
    try:
        return parse_qs(content, keep_blank_values=True, max_num_fields=2000)
    except ValueError:
        raise Fault(413, "PayloadTooLarge", "A form has at most 2000 fields.") from None


def _look(page: Page, route: Route) -> Response:
    response = _kept(page) or _handled(page, route)
    if page.request.headers.get("x-partial") is None:
        page.session.record("navigate", route.name, None, page.here, "server", envelope.caller_of(page.request), {"status": response.status_code})
    return response


def _key(page: Page) -> tuple[Any, ...]:
    """What a page depends on: the rows and the address, the session's name left out."""
    query = parse_qsl(page.request.url.query, keep_blank_values=True)
    return page.db.version, page.request.url.path, *(pair for pair in query if pair[0] != "session_id")


def _kept(page: Page) -> Response | None:
    """The page as it was rendered before from the same rows."""
    pages: OrderedDict[Any, tuple[str, int]] = page.request.app.state.pages
    found = pages.get(_key(page))
    if found is None:
        return None
    pages.move_to_end(_key(page))
    return page.show(*found)


def _handled(page: Page, route: Route) -> Response:
    response = route.handle(page)
    if page.rendered is not None:
        pages: OrderedDict[Any, tuple[str, int]] = page.request.app.state.pages
        pages[_key(page)] = page.rendered
        while len(pages) > MAX_KEPT:
            pages.popitem(last=False)
    return response


def _act(page: Page, route: Route) -> Response:
    """Run a form's handler as one transaction; a page opened before a reset does nothing."""
    session, form = page.session, page.form
    if form.get("_page") != session.version:
        raise Fault(
            409, "StalePage", "This page was opened before the session was reset, so nothing was done.",
            "Open the page again: it shows what there is now.", again=page.back("/"),
        )  # fmt: skip
    caller = envelope.caller_of(page.request)
    api.take_interactions(session, _seen(form), caller)
    db = session.db
    db.changes.clear()
    fields = {k: v for k, v in form.fields.items() if not k.startswith("_")}
    detail: dict[str, Any] = {"fields": fields}
    db.connection.execute("BEGIN")
    try:
        response = route.handle(page)
        detail["changes"] = [{"table": c.table, "id": c.id, "op": _op(c.before, c.after)} for c in db.changes]
        if page.target is not None:
            n = db.keep_action(route.name, page.label)
            response.headers["Location"] = _with(page.target, done=str(n))
        db.connection.execute("COMMIT")
    except Fault as fault:
        db.connection.execute("ROLLBACK")
        session.record("action", route.name, fault.message, page.request.url.path, "server", caller, {**detail, "status": fault.status})
        raise
    except BaseException:
        db.connection.execute("ROLLBACK")
        raise
    finally:
        db.changes.clear()
        db.forget()
    session.record("action", route.name, page.label or None, page.request.url.path, "server", caller, {**detail, "status": response.status_code})
    return response


def _op(before: Any, after: Any) -> str:
    return "insert" if before is None else "delete" if after is None else "update"


def _seen(form: Form) -> list[Any]:
    """What the page's script saw before the form was sent, which it sends along so that the log keeps the order."""
    try:
        found = msgspec.json.decode(form.get("_seen") or "[]")
    except (msgspec.DecodeError, RecursionError):
        return []
    return found if isinstance(found, list) else []


def _with(address: str, **more: str) -> str:
    parts = urlsplit(address)
    query = [(k, v) for k, v in parse_qsl(parts.query) if k not in more] + list(more.items())
    return parts._replace(query=urlencode(query)).geturl()


def undo(page: Page) -> Response:
    """Take back an action (left out: the last one)."""
    asked = page.form.get("action")
    last = page.db.last_action()
    if not asked and last is None:
        raise Fault(409, "NothingToUndo", "There is nothing to undo.")
    label = page.db.undo(last["n"] if last and not asked else whole(asked, MOST_ACTIONS) or 0)
    return page.done(f"Undone: {label}", page.back("/"))


def show_fault(request: Request, fault: Fault) -> Response:
    """A fault as a page; as JSON for who asks for it."""
    if "application/json" in request.headers.get("accept", ""):
        return answers.as_json(request, fault)
    origin = answers.origin(request)
    name = str(fault.extra.get("sessionId", "my-session"))
    again = str(fault.extra.get("again") or ("" if fault.type in ("NoSession", "SessionNotFound") else "/"))
    context = {
        "fault": fault, "origin": origin, "call": reset_call(name, origin), "address": f"{origin}/?session_id={quote(name, safe='')}", "again": again,
        "data": json.dumps(fault.body()), "request_id": noted(fault) if fault.status >= 500 else "",
    }  # fmt: skip
    response = HTMLResponse(render(request, "fault.html", context), fault.status)
    response.headers["Content-Security-Policy"] = POLICY
    response.headers["Cache-Control"] = "no-store"
    return response
