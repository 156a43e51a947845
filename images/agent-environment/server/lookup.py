"""How tools find rows and people from what a client wrote: ids, names, addresses, filters."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from decimal import ROUND_HALF_UP, Decimal
from typing import Annotated, Any

from _server.store import Row
from msgspec import Meta

from .registry import Context
from .store import ToolError

Limit = Annotated[int, Meta(ge=1, le=200), "how many at the most"]
Cursor = Annotated[str | None, "next_cursor of the answer before"]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Text = Annotated[str, Meta(max_length=50_000)]
Email = Annotated[str, Meta(max_length=254, pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$")]
Money = Annotated[float, Meta(ge=0, le=1_000_000_000)]


class Where:
    """SQL conditions joined by AND; a condition one of whose values is None is left out."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.params: list[Any] = []

    def add(self, sql: str, *values: Any) -> Where:
        """One more condition over the stored form."""
        if None not in values:
            self.parts.append(f"({sql})")
            self.params.extend(values)
        return self

    def any_of(self, column: str, values: Iterable[str] | None) -> Where:
        """`column` is one of `values`; None leaves the condition out, no values match nothing."""
        if values is not None:
            listed = list(values)
            self.parts.append(f"{column} IN ({', '.join('?' * len(listed))})")
            self.params.extend(listed)
        return self

    @property
    def sql(self) -> str:
        """The conditions as one."""
        return " AND ".join(self.parts)


def select(ctx: Context, table: str, where: Where, *, order: str = "id") -> list[Row]:
    """The rows that `where` selects."""
    return ctx.db.rows(table, where.sql, where.params, order=order)


def has_words(query: str, row: Row, columns: Iterable[str]) -> bool:
    """Whether every word of `query` occurs somewhere in `columns` (any case)."""
    text = " ".join(str(row[c]) for c in columns).casefold()
    return all(word in text for word in query.casefold().split())


def resolve(ctx: Context, table: str, key: str, *columns: str) -> Row:
    """The row with the id `key`, or the only one with `key` in one of `columns` (any case); ToolError not_found or conflict."""
    row = ctx.db.first(table, "id = ?", (key,))
    if row is not None:
        return row
    rows = ctx.db.rows(table) if columns else []
    wanted = key.strip().casefold()
    found = [r for r in rows if any(str(r[c]).casefold() == wanted for c in columns)]
    if len(found) > 1:
        raise ToolError("conflict", f"{len(found)} rows of {table} match {key!r}", "use the id: " + ", ".join(f"{r['id']} ({r[columns[0]]})" for r in found))
    if found:
        return found[0]
    near = near_names(wanted, [(str(r[c]), f"{r['id']} ({r[columns[0]]})") for r in rows for c in columns])
    if near:
        raise ToolError("not_found", f"no row {key!r} in {table}", "near: " + "; ".join(near))
    raise ctx.db.missing(table, key)


def near_names(wanted: str, known: Iterable[tuple[str, str]]) -> list[str]:
    """The labels of up to three (text, label) whose text is like `wanted` or shares a word with it, best first."""
    wanted = wanted[:200]
    words = {w for w in wanted.casefold().split() if len(w) > 2}
    scored: dict[str, float] = {}
    for text, label in known:
        folded = text.casefold()
        score = difflib.SequenceMatcher(None, wanted.casefold(), folded).ratio() + (0.5 if words & set(folded.split()) else 0)
        if score >= 0.6:
            scored[label] = max(score, scored.get(label, 0))
    return sorted(scored, key=lambda label: (-scored[label], label))[:3]


def person(ctx: Context, text: str) -> str:
    """The e-mail address of somebody known: `me`, an address, a Slack handle or a full name; ToolError not_found or conflict."""
    wanted = text.strip().removeprefix("@").casefold()
    if wanted in ("me", ctx.user.email.casefold(), ctx.user.name.casefold()):
        return ctx.user.email
    staff = [(u["email"], (u["email"], u["name"], u["handle"])) for u in ctx.db.rows("slack.users", "NOT is_bot")]
    others = [(p["email"], (p["email"], p["name"])) for p in ctx.db.rows("contacts.people")]
    for known in (staff, others):
        found = {email for email, names in known if wanted in [n.casefold() for n in names]}
        if len(found) == 1:
            return str(found.pop())
        if found:
            raise ToolError("conflict", f"{len(found)} people are called {text!r}", "use an address: " + ", ".join(sorted(found)))
    near = near_names(wanted, [(name, f"{names[1]} <{email}>") for email, names in staff + others for name in names])
    raise ToolError("not_found", f"nobody is known as {text!r}", "near: " + "; ".join(near) if near else "use an e-mail address from slack or contacts")


def address(ctx: Context, text: str | None) -> str | None:
    """For filters: an address as it is (lower case), or that of somebody known by name; None stays None."""
    if text is None or "@" in text.strip()[1:]:
        return text if text is None else text.strip().lower()
    return person(ctx, text).lower()


def known_person(ctx: Context, text: str | None) -> str | None:
    """The e-mail address of somebody known; None for None."""
    return None if text is None else person(ctx, text)


def id_of(find: Callable[..., Row], ctx: Context, key: str | None, *more: str | None) -> str | None:
    """The id of the row that `find` finds for what a client wrote; None for None (an empty text is an id like any other)."""
    return None if key is None else str(find(ctx, key, *more)["id"])


def person_name(ctx: Context, email: str) -> str:
    """The name that goes with an address, or the address."""
    if email.casefold() == ctx.user.email.casefold():
        return ctx.user.name
    for table in ("slack.users", "contacts.people"):
        if row := ctx.db.first(table, "lower(email) = ?", (email.lower(),)):
            return str(row["name"])
    return email


def refuse_if_referred(ctx: Context, what: str, users: dict[str, tuple[str, list[Any]]]) -> None:
    """ToolError conflict naming the rows that still refer to `what`; `users` is {table: (where, params)}."""
    found = {table: [r["id"] for r in ctx.db.rows(table, where, params)] for table, (where, params) in users.items()}
    used = [f"{table}: {', '.join(ids[:5])}{' and more' if len(ids) > 5 else ''}" for table, ids in found.items() if ids]
    if used:
        raise ToolError("conflict", f"{what} is still used by {'; '.join(used)}", "remove, move or merge these first")


def changes(**values: Any) -> Row:
    """The values that were given; ToolError invalid when there are none."""
    given = {name: value for name, value in values.items() if value is not None}
    if not given:
        raise ToolError("invalid", "nothing to change", "give at least one of " + ", ".join(values))
    return given


def cents(value: Any) -> float:
    """A sum of money rounded to cents (half away from zero)."""
    number = Decimal(str(value))
    if not number.is_finite():
        raise ToolError("invalid", f"{value!r} is no amount of money")
    return float(number.quantize(Decimal("0.01"), ROUND_HALF_UP))
