"""The address book: people and groups."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ..registry import Context, page, tool
from ..store import Row

Limit = Annotated[int, Meta(ge=1, le=200), "how many at the most"]


@tool("contacts", read_only=True)
def search_people(
    ctx: Context,
    query: Annotated[str, "words that must all occur in name, e-mail, company, title or notes"],
    limit: Limit = 20,
    cursor: Annotated[str | None, "next_cursor of the answer before"] = None,
) -> Row:
    """Find people in the address book."""
    words = query.lower().split()
    people = [
        person
        for person in ctx.db.rows("contacts.people", order="name, id")
        if all(w in " ".join(str(person[c]) for c in ("name", "email", "company", "title", "notes")).lower() for w in words)
    ]
    return page(people, limit, cursor, "people")
