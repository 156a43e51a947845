"""The search language: `from:amir subject:"design review" is:unread -label:Later after:2026-03-01 (budget OR forecast)`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from dateutil.relativedelta import relativedelta

from ...registry import Context
from ...store import ToolError, utc_text

FOLDERS = ("inbox", "sent", "drafts", "archive", "trash", "spam")
_TOKEN = re.compile(r"""\s*(?:(?P<paren>[()])|(?P<minus>-)?(?:(?P<name>[A-Za-z_]+):(?!//))?(?:"(?P<quoted>[^"]*)"|(?P<word>[^\s()"]+)))""")
_ATTACHED = "EXISTS (SELECT 1 FROM email_attachments a WHERE a.message_id = m.id"
_DEEP = 20
_PARENS = "parentheses that belong to the text go into quotes"

Sql = tuple[str, list[Any]]


class Token(NamedTuple):
    """One word of a query: `-name:value`, a bare word, or a parenthesis (as `word`)."""

    name: str | None
    value: str
    negated: bool
    quoted: bool


def like(text: str) -> str:
    """A LIKE pattern for text anywhere in a column."""
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"


def compile_query(ctx: Context, query: str) -> tuple[str, list[Any], bool]:
    """SQL over messages `m` and its parameters, and whether the query says where to look (`in:`); ToolError invalid."""
    tokens = _tokens(query)
    sql, params, rest = _all_of(ctx, tokens, 0)
    if rest:
        raise ToolError("invalid", "a closing parenthesis has no opening one", _PARENS)
    return sql, params, any(t.name == "in" and not t.negated for t in tokens)


def _tokens(query: str) -> list[Token]:
    tokens, at = [], 0
    text = query.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.end() == at:
            raise ToolError(
                "invalid", f"the query cannot be read from {text[at : at + 20]!r} on", 'quotes come in pairs; for instance subject:"design review" is:unread'
            )
        name = match["name"].lower() if match["name"] else None
        if match["paren"]:
            tokens.append(Token(None, match["paren"], False, False))
        else:
            quoted = match["quoted"] is not None
            tokens.append(Token(name, match["quoted"] if quoted else match["word"], match["minus"] is not None, quoted))
        at = match.end()
    return tokens


def _all_of(ctx: Context, tokens: list[Token], depth: int) -> tuple[str, list[Any], list[Token]]:
    """Terms side by side must all hold; OR joins its two neighbors first. Ends at a closing parenthesis, which stays in the rest."""
    if depth > _DEEP:
        raise ToolError("invalid", f"parentheses are nested more than {_DEEP} deep")
    groups: list[list[Sql]] = []
    while tokens and not _is(tokens[0], ")"):
        joins = _is(tokens[0], "OR")
        if joins and (not groups or len(tokens) == 1 or _is(tokens[1], "OR") or _is(tokens[1], ")")):
            raise ToolError("invalid", "OR stands between two terms", 'for instance from:amir OR from:jo; as a word of the text: "OR"')
        term, tokens = _operand(ctx, tokens[joins:], depth)
        if joins:
            groups[-1].append(term)
        else:
            groups.append([term])
    parts = ["(" + " OR ".join(sql for sql, _ in group) + ")" for group in groups]
    return " AND ".join(parts) or "1", [value for group in groups for _, params in group for value in params], tokens


def _operand(ctx: Context, tokens: list[Token], depth: int) -> tuple[Sql, list[Token]]:
    """One term or one parenthesis, and what follows it."""
    if not _is(tokens[0], "("):
        return _term(ctx, tokens[0]), tokens[1:]
    sql, params, rest = _all_of(ctx, tokens[1:], depth + 1)
    if not rest:
        raise ToolError("invalid", "a parenthesis is not closed", _PARENS)
    return (f"({sql})", params), rest[1:]


def _is(token: Token, word: str) -> bool:
    return token.name is None and not token.quoted and token.value == word


def _term(ctx: Context, token: Token) -> Sql:
    if token.name is None:
        sql, params = _text(token.value)
    elif token.name in _OPERATORS:
        if not token.value:
            raise ToolError("invalid", f"{token.name}: has no value")
        sql, params = _OPERATORS[token.name](ctx, token.value)
    else:
        near = difflib.get_close_matches(token.name, _OPERATORS, n=2)
        hint = f"did you mean {' or '.join(near)}?" if near else f"operators: {', '.join(_OPERATORS)}; put other text in quotes"
        raise ToolError("invalid", f"the search has no operator {token.name}:", hint)
    return (f"NOT COALESCE({sql}, 0)", params) if token.negated else (sql, params)


def _text(value: str) -> Sql:
    columns = ("subject", "body", "from_address", "from_name", '"to"', "cc")
    return "(" + " OR ".join(f"m.{c} LIKE ? ESCAPE '\\'" for c in columns) + ")", [like(value)] * len(columns)


def _column(*columns: str) -> Callable[[Context, str], Sql]:
    def build(ctx: Context, value: str) -> Sql:
        text = ctx.user.email if value.lower() == "me" else value
        return "(" + " OR ".join(f"m.{c} LIKE ? ESCAPE '\\'" for c in columns) + ")", [like(text)] * len(columns)

    return build


def _label(ctx: Context, value: str) -> Sql:
    known = [r["name"] for r in ctx.db.rows("email.labels")]
    name = next((n for n in known if n.lower().replace(" ", "-") == value.lower().replace(" ", "-")), None)
    if name is None:
        near = difflib.get_close_matches(value.lower(), [n.lower() for n in known], n=3, cutoff=0.4)
        shown = [n for n in known if n.lower() in near] or known
        raise ToolError("not_found", f"there is no label {value!r}", f"labels: {', '.join(shown)}")
    return "EXISTS (SELECT 1 FROM json_each(m.labels) WHERE value = ?)", [name]


def _in(ctx: Context, value: str) -> Sql:
    folder = value.lower()
    if folder in ("anywhere", "all"):
        return "1", []
    if folder not in FOLDERS:
        raise ToolError("invalid", f"there is no folder {value!r}", f"folders: {', '.join(FOLDERS)}, anywhere")
    return "m.folder = ?", [folder]


def _one_of(name: str, known: dict[str, str]) -> Callable[[Context, str], Sql]:
    def build(ctx: Context, value: str) -> Sql:
        if value.lower() not in known:
            raise ToolError("invalid", f"{name}:{value} is not known", f"{name}: takes {', '.join(known)}")
        return known[value.lower()], []

    return build


def _day(ctx: Context, value: str) -> str:
    try:
        day = datetime.strptime(value.replace("/", "-"), "%Y-%m-%d")
    except ValueError as error:
        raise ToolError("invalid", f"{value!r} is no day", "write 2026-03-10 or 2026/03/10") from error
    return utc_text(day.replace(tzinfo=ctx.zone))


def _ago(ctx: Context, value: str) -> str:
    match = re.fullmatch(r"(\d{1,4})([hdwmy])", value.lower())
    if match is None:
        raise ToolError("invalid", f"{value!r} is no age", "write 12h, 7d, 2w, 3m or 1y")
    unit = {"h": "hours", "d": "days", "w": "weeks", "m": "months", "y": "years"}[match[2]]
    try:
        return utc_text(ctx.now - relativedelta(**{unit: int(match[1])}))  # type: ignore[arg-type]
    except (ValueError, OverflowError) as error:
        raise ToolError("invalid", f"{value!r} is too long ago") from error


_OPERATORS: dict[str, Callable[[Context, str], Sql]] = {
    "from": _column("from_address", "from_name"),
    "to": _column('"to"'),
    "cc": _column("cc"),
    "bcc": _column("bcc"),
    "subject": _column("subject"),
    "body": _column("body"),
    "label": _label,
    "in": _in,
    "is": _one_of("is", {"unread": "NOT m.is_read", "read": "m.is_read", "starred": "m.is_starred", "unstarred": "NOT m.is_starred"}),
    "has": _one_of("has", {"attachment": f"{_ATTACHED})", "label": "m.labels != '[]'"}),
    "filename": lambda ctx, value: (f"{_ATTACHED} AND a.filename LIKE ? ESCAPE '\\')", [like(value)]),
    "before": lambda ctx, value: ("m.sent_at < ?", [_day(ctx, value)]),
    "after": lambda ctx, value: ("m.sent_at >= ?", [_day(ctx, value)]),
    "older_than": lambda ctx, value: ("m.sent_at < ?", [_ago(ctx, value)]),
    "newer_than": lambda ctx, value: ("m.sent_at >= ?", [_ago(ctx, value)]),
}
