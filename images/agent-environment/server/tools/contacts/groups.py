"""Groups of people, and mail to all of one."""

from __future__ import annotations

from typing import Annotated

from _server.store import Row
from msgspec import Meta

from ...effects import send_mail
from ...lookup import Name, resolve
from ...registry import Context, tool
from ...store import ToolError
from ..email.writing import Paths, from_files
from .people import person

GroupRef = Annotated[str, Meta(min_length=1, max_length=200), "a group's name or id"]
People = Annotated[list[Annotated[str, Meta(min_length=1, max_length=254)]], Meta(min_length=1, max_length=200)]


def _members(ctx: Context, group_id: str) -> list[Row]:
    return ctx.db.rows("contacts.people", "id IN (SELECT person_id FROM contacts_memberships WHERE group_id = ?)", (group_id,), order="name, id")


def _whole(ctx: Context, row: Row) -> Row:
    people = _members(ctx, row["id"])
    return {**row, "members": [{k: p[k] for k in ("id", "name", "email", "company")} for p in people], "size": len(people)}


def _group(ctx: Context, ref: str) -> Row:
    return resolve(ctx, "contacts.groups", ref, "name")


@tool("contacts", read_only=True)
def list_groups(ctx: Context, person_ref: Annotated[Name | None, "only groups of this person: id, e-mail address or full name"] = None) -> Row:
    """Every group, with how many people are in it."""
    inside = person(ctx, person_ref)["id"] if person_ref is not None else None
    where = "" if inside is None else "id IN (SELECT group_id FROM contacts_memberships WHERE person_id = ?)"
    rows = ctx.db.rows("contacts.groups", where, [] if inside is None else [inside], order="name, id")
    return {"groups": [{**r, "size": ctx.db.count("contacts.memberships", "group_id = ?", (r["id"],))} for r in rows], "total": len(rows)}


@tool("contacts", read_only=True, aliases=("contacts_list_group_members",))
def get_group(ctx: Context, group: GroupRef) -> Row:
    """A group with its members."""
    return _whole(ctx, _group(ctx, group))


@tool("contacts")
def create_group(
    ctx: Context,
    name: Annotated[Name, "its name"],
    description: Annotated[str, Meta(max_length=1000), "what it is for"] = "",
    members: Annotated[People | None, "who is in it: ids, e-mail addresses or full names"] = None,
) -> Row:
    """Make a group, with people in it if you name some."""
    taken = ctx.db.first("contacts.groups", "name = ? COLLATE NOCASE", (name.strip(),))
    if taken is not None:
        raise ToolError("conflict", f"there is a group {taken['name']!r} already", f"use {taken['id']}")
    people = [person(ctx, ref)["id"] for ref in members or []]
    row = ctx.db.insert("contacts.groups", name=name.strip(), description=description)
    for each in dict.fromkeys(people):
        ctx.db.insert("contacts.memberships", group_id=row["id"], person_id=each)
    return {"group": _whole(ctx, row)}


@tool("contacts", destructive=True, idempotent=True)
def delete_group(ctx: Context, group: GroupRef) -> Row:
    """Remove a group; its members stay in the address book."""
    row = _whole(ctx, _group(ctx, group))
    ctx.db.delete("contacts.memberships", "group_id = ?", (row["id"],))
    ctx.db.delete("contacts.groups", "id = ?", (row["id"],))
    return {"deleted": row}


@tool("contacts", idempotent=True)
def add_to_group(ctx: Context, group: GroupRef, people: Annotated[People, "ids, e-mail addresses or full names"]) -> Row:
    """Put people into a group; who is in it already stays."""
    row = _group(ctx, group)
    present = {p["id"] for p in _members(ctx, row["id"])}
    added = [r for r in {r["id"]: r for r in (person(ctx, ref) for ref in people)}.values() if r["id"] not in present]
    for each in added:
        ctx.db.insert("contacts.memberships", group_id=row["id"], person_id=each["id"])
    return {"group": _whole(ctx, row), "added": [r["id"] for r in added]}


@tool("contacts", destructive=True, idempotent=True)
def remove_from_group(ctx: Context, group: GroupRef, people: Annotated[People, "ids, e-mail addresses or full names"]) -> Row:
    """Take people out of a group; they stay in the address book."""
    row = _group(ctx, group)
    inside = {p["id"]: p["name"] for p in _members(ctx, row["id"])}
    leaving = [person(ctx, ref) for ref in people]
    for each in leaving:
        if each["id"] not in inside:
            raise ToolError("not_found", f"{each['name']} is not in {row['name']!r}", f"in it: {', '.join(inside.values()) or 'nobody'}")
    for each in leaving:
        ctx.db.delete("contacts.memberships", "group_id = ? AND person_id = ?", (row["id"], each["id"]))
    return {"group": _whole(ctx, row), "removed": [r["id"] for r in leaving]}


@tool("contacts", aliases=("contacts_email_group", "contacts_send_to_group"))
def mail_group(
    ctx: Context,
    group: GroupRef,
    subject: Annotated[str, Meta(min_length=1, max_length=998), "what it is about"],
    body: Annotated[str, Meta(max_length=100000), "the text"],
    hide_recipients: Annotated[bool, "blind copies: nobody sees who else got it"] = False,
    exclude: Annotated[People | None, "members who shall not get it: ids, e-mail addresses or full names"] = None,
    attachments: Annotated[Paths | None, "paths of files in the filesystem"] = None,
) -> Row:
    """Send one mail to everybody in a group; the answer is the message in `sent`."""
    row = _group(ctx, group)
    left_out = {person(ctx, ref)["id"] for ref in exclude or []}
    to = list(dict.fromkeys(p["email"] for p in _members(ctx, row["id"]) if p["id"] not in left_out))
    if not to:
        raise ToolError("conflict", f"{row['name']!r} has nobody to write to", "contacts_add_to_group puts people into it")
    files = from_files(ctx, attachments or [])
    sent = send_mail(ctx, [] if hide_recipients else to, subject, body, bcc=to if hide_recipients else [], attachments=files)
    return {"message": sent, "recipients": to}
