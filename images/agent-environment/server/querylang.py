"""The search language of mailbox and chat: words, "phrases", operator:value, -negation, OR and parentheses become SQL."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from _server.times import utc_text

from .registry import Context
from .store import ToolError

_TOKEN = re.compile(r"""\s*(?:(?P<paren>[()])|(?P<minus>-)?(?:(?P<name>[A-Za-z_]+):(?!//))?(?:"(?P<quoted>[^"]*)"|(?P<word>[^\s()"]+)))""")
_DEEP = 20
_PARENS = "parentheses that belong to the text go into quotes"

Sql = tuple[str, list[Any]]
Operator = Callable[[Context, str], Sql]


class Token(NamedTuple):
    """One word of a query: `-name:value`, a bare word, or a parenthesis (as `value`)."""

    name: str | None
    value: str
    negated: bool
    quoted: bool


class Language(NamedTuple):
    """What may stand in a query: operators by name, and what a bare word or phrase looks at."""

    operators: Mapping[str, Operator]
    text: Operator

    def compile(self, ctx: Context, query: str) -> tuple[str, list[Any], set[str]]:
        """SQL, its parameters, and the operators used without negation; ToolError invalid (also not_found, of an operator)."""
        tokens = _tokens(query)
        sql, params, rest = _all_of(ctx, self, tokens, 0)
        if rest:
            raise ToolError("invalid", "a closing parenthesis has no opening one", _PARENS)
        return sql, params, {t.name for t in tokens if t.name is not None and not t.negated}


def like(text: str) -> str:
    """A LIKE pattern (ESCAPE '\\') for text anywhere in a column."""
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"


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


def _all_of(ctx: Context, language: Language, tokens: list[Token], depth: int) -> tuple[str, list[Any], list[Token]]:
    """Terms side by side must all hold; OR joins its two neighbors first. Ends at a closing parenthesis, which stays in the rest."""
    if depth > _DEEP:
        raise ToolError("invalid", f"parentheses are nested more than {_DEEP} deep")
    groups: list[list[Sql]] = []
    while tokens and not _is(tokens[0], ")"):
        joins = _is(tokens[0], "OR")
        if joins and (not groups or len(tokens) == 1 or _is(tokens[1], "OR") or _is(tokens[1], ")")):
            raise ToolError("invalid", "OR stands between two terms", 'for instance from:amir OR from:jo; as a word of the text: "OR"')
        term, tokens = _operand(ctx, language, tokens[joins:], depth)
        if joins:
            groups[-1].append(term)
        else:
            groups.append([term])
    parts = ["(" + " OR ".join(sql for sql, _ in group) + ")" for group in groups]
    return " AND ".join(parts) or "1", [value for group in groups for _, params in group for value in params], tokens


def _operand(ctx: Context, language: Language, tokens: list[Token], depth: int) -> tuple[Sql, list[Token]]:
    """One term or one parenthesis, and what follows it."""
    if not _is(tokens[0], "("):
        return _term(ctx, language, tokens[0]), tokens[1:]
    sql, params, rest = _all_of(ctx, language, tokens[1:], depth + 1)
    if not rest:
        raise ToolError("invalid", "a parenthesis is not closed", _PARENS)
    return (f"({sql})", params), rest[1:]


def _is(token: Token, word: str) -> bool:
    return token.name is None and not token.quoted and token.value == word


def _term(ctx: Context, language: Language, token: Token) -> Sql:
    if token.name is None:
        sql, params = language.text(ctx, token.value)
    elif token.name in language.operators:
        if not token.value:
            raise ToolError("invalid", f"{token.name}: has no value")
        sql, params = language.operators[token.name](ctx, token.value)
    else:
        near = difflib.get_close_matches(token.name, language.operators, n=2)
        hint = f"did you mean {' or '.join(near)}?" if near else f"operators: {', '.join(language.operators)}; put other text in quotes"
        raise ToolError("invalid", f"the search has no operator {token.name}:", hint)
    return (f"NOT COALESCE({sql}, 0)", params) if token.negated else (sql, params)


def one_of(name: str, known: dict[str, str]) -> Operator:
    """An operator that takes a few words, each with its SQL."""

    def build(ctx: Context, value: str) -> Sql:
        if value.lower() not in known:
            raise ToolError("invalid", f"{name}:{value} is not known", f"{name}: takes {', '.join(known)}")
        return known[value.lower()], []

    return build


def day_start(ctx: Context, value: str, later: int = 0) -> str:
    """The first instant of a day of the universe's zone (or of the day `later` days on), as stored; ToolError invalid."""
    try:
        day = datetime.strptime(value.replace("/", "-"), "%Y-%m-%d")
    except ValueError as error:
        raise ToolError("invalid", f"{value!r} is no day", "write 2026-03-10 or 2026/03/10") from error
    return utc_text((day + timedelta(days=later)).replace(tzinfo=ctx.zone))
