"""People: finding, keeping, duplicates, birthdays, what there was between you and them."""

from __future__ import annotations

import difflib
from datetime import date, datetime, timedelta
from typing import Annotated, Any

from _server.store import Row
from msgspec import UNSET, Meta, UnsetType

from ...addresses import is_address
from ...lookup import Cursor, Email, Limit, Name, has_words, resolve
from ...registry import Context, Day, page, tool
from ...store import ToolError

PersonRef = Annotated[str, Meta(min_length=1, max_length=254), "a person's id, e-mail address or full name"]
Words = Annotated[str, Meta(max_length=300)]
Notes = Annotated[str, Meta(max_length=20000)]
_SEARCHED = ("name", "email", "company", "title", "notes")
_FIELDS = ("phone", "company", "title", "address", "birthday")


def person(ctx: Context, ref: str) -> Row:
    """The person that a client means; ToolError not_found with near ones, conflict for several."""
    return resolve(ctx, "contacts.people", ref, "name", "email")


def groups_of(ctx: Context, person_id: str) -> list[Row]:
    """The groups somebody is in, by name."""
    return ctx.db.rows("contacts.groups", "id IN (SELECT group_id FROM contacts_memberships WHERE person_id = ?)", (person_id,), order="name, id")


def whole(ctx: Context, row: Row) -> Row:
    """A person with the names of their groups."""
    return {**row, "groups": [g["name"] for g in groups_of(ctx, row["id"])]}


@tool("contacts", read_only=True, aliases=("contacts_search", "contacts_search_contacts", "contacts_list_people"))
def search_people(
    ctx: Context,
    query: Annotated[str, Meta(max_length=200), "words that must all occur in name, e-mail, company, title or notes; empty: everybody"],
    company: Annotated[Name | None, "only people of this company (any case, a part of its name will do)"] = None,
    group: Annotated[Name | None, "only members of this group, by name or id"] = None,
    starred_only: Annotated[bool, "only people with a star"] = False,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> Row:
    """Find people in the address book, by name."""
    where, params = "1", list[Any]()
    if group is not None:
        where = "id IN (SELECT person_id FROM contacts_memberships WHERE group_id = ?)"
        params = [resolve(ctx, "contacts.groups", group, "name")["id"]]
    people = [
        row
        for row in ctx.db.rows("contacts.people", where, params, order="name, id")
        if has_words(query, row, _SEARCHED) and (company or "").casefold() in row["company"].casefold() and (row["is_starred"] or not starred_only)
    ]
    return page(people, limit, cursor, "people")


@tool("contacts", read_only=True, aliases=("contacts_get_contact",))
def get_person(ctx: Context, person_ref: PersonRef) -> Row:
    """One person of the address book, with the groups they are in."""
    return whole(ctx, person(ctx, person_ref))


def add_person(ctx: Context, values: Row) -> Row:
    """A new row of people; ToolError invalid for a faulty address, conflict when it is known already."""
    if not is_address(values["email"]):
        raise ToolError("invalid", f"{values['email']!r} is no e-mail address")
    known = ctx.db.first("contacts.people", "email = ? COLLATE NOCASE", (values["email"],))
    if known is not None:
        raise ToolError("conflict", f"{known['email']} is {known['name']}'s address already", f"use contacts_update_person with {known['id']}")
    return ctx.db.insert("contacts.people", **values)


@tool("contacts", aliases=("contacts_add_person", "contacts_create_contact", "contacts_add_contact"))
def create_person(
    ctx: Context,
    name: Annotated[Name, "full name"],
    email: Annotated[Email, "e-mail address; nobody else in the address book may have it"],
    phone: Annotated[Words, "telephone number"] = "",
    company: Annotated[Words, "company"] = "",
    title: Annotated[Words, "job title"] = "",
    address: Annotated[Words, "postal address"] = "",
    birthday: Annotated[Day | None, "date of birth"] = None,
    notes: Annotated[Notes, "what to remember"] = "",
    is_starred: Annotated[bool, "put a star on them"] = False,
) -> Row:
    """Put a person into the address book."""
    values = {
        "name": name.strip(), "email": email, "phone": phone, "company": company, "title": title, "address": address,
        "birthday": _past(ctx, birthday), "notes": notes, "is_starred": is_starred,
    }  # fmt: skip
    return {"person": whole(ctx, add_person(ctx, values))}


def _past(ctx: Context, birthday: str | None) -> str | None:
    if birthday is not None and birthday > ctx.today:
        raise ToolError("invalid", f"the birthday {birthday} is in the future", f"today is {ctx.today}")
    return birthday


@tool("contacts", idempotent=True, aliases=("contacts_update_contact",))
def update_person(
    ctx: Context,
    person_ref: PersonRef,
    name: Annotated[Name | None, "new name"] = None,
    email: Annotated[Email | None, "new e-mail address"] = None,
    phone: Annotated[Words | None, "new telephone number"] = None,
    company: Annotated[Words | None, "new company"] = None,
    title: Annotated[Words | None, "new job title"] = None,
    address: Annotated[Words | None, "new postal address"] = None,
    birthday: Annotated[Day | UnsetType | None, "new date of birth; null takes it away"] = UNSET,
    notes: Annotated[Notes | None, "new notes instead of the old"] = None,
    is_starred: Annotated[bool | None, "star on or off"] = None,
) -> Row:
    """Change what is given of a person, leave the rest. contacts_add_note adds to the notes."""
    row = person(ctx, person_ref)
    given: Row = {
        "name": name, "email": email, "phone": phone, "company": company, "title": title, "address": address, "notes": notes, "is_starred": is_starred,
    }  # fmt: skip
    values = {k: v for k, v in given.items() if v is not None}
    if birthday is not UNSET:
        values["birthday"] = _past(ctx, birthday)
    if email is not None:
        other = ctx.db.first("contacts.people", "email = ? COLLATE NOCASE AND id != ?", (email, row["id"]))
        if other is not None:
            raise ToolError("conflict", f"{email} is {other['name']}'s address already", "contacts_merge_people joins two entries")
    return {"person": whole(ctx, ctx.db.update("contacts.people", row["id"], **values))}


@tool("contacts", destructive=True, idempotent=True, aliases=("contacts_delete_contact",))
def delete_person(ctx: Context, person_ref: PersonRef) -> Row:
    """Take a person out of the address book and out of every group."""
    row = whole(ctx, person(ctx, person_ref))
    drop(ctx, row["id"])
    return {"deleted": row}


def drop(ctx: Context, person_id: str) -> None:
    """Remove a person and their memberships."""
    ctx.db.delete("contacts.memberships", "person_id = ?", (person_id,))
    ctx.db.delete("contacts.people", "id = ?", (person_id,))


@tool("contacts")
def add_note(ctx: Context, person_ref: PersonRef, note: Annotated[str, Meta(min_length=1, max_length=5000), "the note"]) -> Row:
    """Add a line with today's date to what is noted about a person."""
    row = person(ctx, person_ref)
    notes = f"{row['notes'].rstrip()}\n{ctx.today}: {note.strip()}".lstrip("\n")
    return {"person": whole(ctx, ctx.db.update("contacts.people", row["id"], notes=notes))}


@tool("contacts", read_only=True)
def find_duplicates(
    ctx: Context,
    person_ref: Annotated[str | None, "only duplicates of this person, by id, e-mail address or full name"] = None,
    min_score: Annotated[float, Meta(ge=0.5, le=1), "how alike two names must be, 1 for the same"] = 0.88,
) -> Row:
    """Pairs of entries that may be one person (same telephone number or address, names the same or nearly so), with the reasons; nothing is changed."""
    rows = ctx.db.rows("contacts.people", order="name, id")
    only = person(ctx, person_ref)["id"] if person_ref is not None else None
    pairs: list[Row] = []
    for n, first in enumerate(rows):
        for second in rows[n + 1 :]:
            if only in (None, first["id"], second["id"]) and (found := _alike(first, second, min_score)):
                names = ("id", "name", "email", "phone", "company")
                pairs.append({"people": [{k: r[k] for k in names} for r in (first, second)], "reasons": found})
    pairs.sort(key=lambda p: -len(p["reasons"]))
    return {"duplicates": pairs, "total": len(pairs)}


def _alike(first: Row, second: Row, min_score: float) -> list[str]:
    """Why two entries may be the same person."""
    reasons = []
    names = [sorted(r["name"].casefold().replace(".", " ").split()) for r in (first, second)]
    score = difflib.SequenceMatcher(None, " ".join(names[0]), " ".join(names[1])).ratio()
    if names[0] == names[1]:
        reasons.append("same name")
    elif score >= min_score:
        reasons.append(f"names alike ({score:.2f})")
    digits = ["".join(c for c in r["phone"] if c.isdigit())[-9:] for r in (first, second)]
    if digits[0] == digits[1] and len(digits[0]) >= 7:
        reasons.append("same phone")
    if first["email"].casefold() == second["email"].casefold():
        reasons.append("same e-mail")
    return reasons


@tool("contacts", destructive=True, idempotent=True)
def merge_people(
    ctx: Context,
    keep: Annotated[str, "who stays: id, e-mail address or full name; what is known of them wins"],
    merge: Annotated[list[str], Meta(min_length=1, max_length=20), "who is taken over into that entry and then removed: ids, e-mail addresses or full names"],
) -> Row:
    """Join entries of one person: empty fields are filled, notes joined, other e-mail addresses noted, groups taken over, the star too."""
    kept = person(ctx, keep)
    gone = {row["id"]: row for row in (person(ctx, ref) for ref in merge)}
    if kept["id"] in gone:
        raise ToolError("conflict", f"{kept['name']} cannot be merged into itself", "name the other entry by its id")
    values: dict[str, Any] = {"is_starred": kept["is_starred"] or any(r["is_starred"] for r in gone.values())}
    notes = [kept["notes"]]
    for row in gone.values():
        values.update({f: row[f] for f in _FIELDS if not kept[f] and f not in values and row[f]})
        notes += [row["notes"]] if row["notes"] not in notes else []
        notes += [f"Also: {row['email']}"] if row["email"].casefold() != kept["email"].casefold() else []
        for group in groups_of(ctx, row["id"]):
            if group["id"] not in [g["id"] for g in groups_of(ctx, kept["id"])]:
                ctx.db.insert("contacts.memberships", group_id=group["id"], person_id=kept["id"])
        drop(ctx, row["id"])
    values["notes"] = "\n".join(n for n in notes if n)
    return {"person": whole(ctx, ctx.db.update("contacts.people", kept["id"], **values)), "removed": list(gone.values())}


@tool("contacts", read_only=True)
def upcoming_birthdays(
    ctx: Context,
    days: Annotated[int, Meta(ge=0, le=366), "how many days ahead, today counts"] = 30,
    group: Annotated[Name | None, "only members of this group, by name or id"] = None,
) -> Row:
    """Whose birthday comes next, soonest first, and how old they get. The 29th of February falls on the 28th in other years."""
    where, params = "birthday IS NOT NULL", list[Any]()
    if group is not None:
        where += " AND id IN (SELECT person_id FROM contacts_memberships WHERE group_id = ?)"
        params = [resolve(ctx, "contacts.groups", group, "name")["id"]]
    today = date.fromisoformat(ctx.today)
    found = []
    for row in ctx.db.rows("contacts.people", where, params):
        born = date.fromisoformat(row["birthday"])
        coming = next(day for day in (_in_year(born, today.year), _in_year(born, today.year + 1)) if day >= today)
        if coming <= today + timedelta(days=days):
            found.append(
                {**row, "next_birthday": coming.isoformat(), "weekday": f"{coming:%A}", "turns": coming.year - born.year, "in_days": (coming - today).days}
            )
    found.sort(key=lambda r: (r["next_birthday"], r["name"], r["id"]))
    return {"people": found, "total": len(found)}


def _in_year(born: date, year: int) -> date:
    try:
        return born.replace(year=year)
    except ValueError:
        return date(year, 2, 28)


@tool("contacts", read_only=True)
def get_history(ctx: Context, person_ref: PersonRef, limit: Annotated[int, Meta(ge=1, le=50), "how many of each at the most"] = 5) -> Row:
    """What there was and will be between you and a person: the latest mails, the meetings to come (single ones) and where else they are known."""
    row = person(ctx, person_ref)
    email = row["email"]
    quoted = '%"' + email.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + '"%'
    where = "folder NOT IN ('trash', 'spam', 'drafts') AND (from_address = ? COLLATE NOCASE OR \"to\" LIKE ? ESCAPE '\\' OR cc LIKE ? ESCAPE '\\')"
    mails = ctx.db.rows("email.messages", where, (email, quoted, quoted), order="sent_at DESC, id")
    attends = "id IN (SELECT event_id FROM calendar_attendees WHERE email = ? COLLATE NOCASE) AND \"end\" > ? AND recurrence IS NULL AND status != 'cancelled'"
    events = ctx.db.rows("calendar.events", attends, (email, ctx.now_text), order="start, id")
    known = [s for s in ("slack.users", "crm.contacts", "accounting.customers", "accounting.vendors") if ctx.db.count(s, "email = ? COLLATE NOCASE", (email,))]
    last = datetime.fromisoformat(mails[0]["sent_at"]) if mails and mails[0]["sent_at"] else None
    return {
        "person": whole(ctx, row), "mails": [{k: m[k] for k in ("id", "thread_id", "from_address", "subject", "sent_at", "folder")} for m in mails[:limit]],
        "events": [{k: e[k] for k in ("id", "title", "start", "end")} for e in events[:limit] if e["visibility"] == "default"],
        "known_in": known, "days_since_last_mail": (ctx.now - last).days if last else None,
    }  # fmt: skip
