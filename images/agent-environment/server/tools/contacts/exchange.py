"""Between the address book and the rest: people from mails, vCards into and out of the filesystem."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated

from _server.store import Row
from msgspec import Meta

from ...lookup import resolve
from ...registry import Context, tool
from ...store import ToolError
from ..filesystem import tree
from .people import add_person, groups_of, person, whole

_ESCAPES = str.maketrans({"\\": "\\\\", ",": "\\,", ";": "\\;", "\n": "\\n"})
_PLAIN = {"FN": "name", "EMAIL": "email", "TEL": "phone", "ORG": "company", "TITLE": "title", "ADR": "address", "NOTE": "notes", "BDAY": "birthday"}


@tool("contacts")
def import_from_email(
    ctx: Context,
    message_id: Annotated[str, Meta(max_length=200), "the mail whose sender shall be added"],
    group: Annotated[str | None, "put them into this group, by name or id"] = None,
) -> Row:
    """Put the sender of a mail into the address book; company, title and telephone number come from the CRM when it knows them."""
    message = ctx.db.get("email.messages", message_id)
    email = message["from_address"]
    if email.lower() == ctx.user.email.lower():
        raise ToolError("conflict", f"{message_id} is your own mail", "choose a mail that you got")
    target = resolve(ctx, "contacts.groups", group, "name") if group is not None else None
    known = ctx.db.first("crm.contacts", "email = ? COLLATE NOCASE", (email,))
    company = ctx.db.get("crm.companies", known["company_id"]) if known and known["company_id"] else None
    company = company or ctx.db.first("crm.companies", "domain = ? COLLATE NOCASE AND domain != ''", (email.partition("@")[2],))
    name = message["from_name"] or (known["name"] if known else email.partition("@")[0].replace(".", " ").replace("_", " ").title())
    more = {k: known[k] for k in ("phone", "title")} if known else {}
    row = add_person(ctx, {"name": name, "email": email, "company": company["name"] if company else "", **more})
    if target is not None:
        ctx.db.insert("contacts.memberships", group_id=target["id"], person_id=row["id"])
    return {"person": whole(ctx, row), "source": message_id}


def vcard(ctx: Context, row: Row) -> str:
    """A person as vCard 4.0 (RFC 6350), lines ended by CR LF."""
    first, _, last = row["name"].rpartition(" ")
    lines = ["BEGIN:VCARD", "VERSION:4.0", f"FN:{_text(row['name'])}", f"N:{_text(last)};{_text(first)};;;", f"EMAIL:{_text(row['email'])}"]
    lines += [f"{key}:{_text(row[column])}" for key, column in (("TEL", "phone"), ("ORG", "company"), ("TITLE", "title")) if row[column]]
    lines += [f"ADR:;;{_text(row['address'])};;;;"] if row["address"] else []
    lines += [f"BDAY:{row['birthday'].replace('-', '')}"] if row["birthday"] else []
    lines += [f"NOTE:{_text(row['notes'])}"] if row["notes"] else []
    groups = [_text(g["name"]) for g in groups_of(ctx, row["id"])]
    lines += [f"CATEGORIES:{','.join(groups)}"] if groups else []
    return "\r\n".join([*(_folded(line) for line in lines), "END:VCARD", ""])


def _text(value: str) -> str:
    return value.translate(_ESCAPES)


def _folded(line: str) -> str:
    """At most 75 bytes a line; what follows begins with a space."""
    parts, size = [""], 0
    for char in line:
        width = len(char.encode())
        if size + width > 75:
            parts.append(" ")
            size = 1
        parts[-1] += char
        size += width
    return "\r\n".join(parts)


@tool("contacts", destructive=True, idempotent=True, aliases=("contacts_export_vcard",))
def export_vcards(
    ctx: Context,
    path: Annotated[str, Meta(max_length=1024), "the file to write in the filesystem, like /contacts/team.vcf"],
    people: Annotated[list[str] | None, "who: ids, e-mail addresses or full names"] = None,
    group: Annotated[str | None, "instead: everybody in this group, by name or id"] = None,
    overwrite: Annotated[bool, "replace a file that is there"] = False,
) -> Row:
    """Write people as vCards (RFC 6350) into one file of the filesystem; everybody when neither people nor a group is given."""
    if people is not None and group is not None:
        raise ToolError("invalid", "who is meant is not clear", "give people or group, not both")
    if people is not None:
        rows = [person(ctx, ref) for ref in dict.fromkeys(people)]
    elif group is not None:
        found = resolve(ctx, "contacts.groups", group, "name")
        rows = ctx.db.rows("contacts.people", "id IN (SELECT person_id FROM contacts_memberships WHERE group_id = ?)", (found["id"],), order="name, id")
    else:
        rows = ctx.db.rows("contacts.people", order="name, id")
    if not rows:
        raise ToolError("conflict", "there is nobody to write down")
    entry = tree.put(ctx, tree.clean(path), "".join(vcard(ctx, row) for row in rows), overwrite=overwrite)
    return {"file": entry, "people": [r["id"] for r in rows]}


@tool("contacts")
def import_vcards(
    ctx: Context,
    path: Annotated[str, Meta(max_length=1024), "a file of vCards in the filesystem"],
    group: Annotated[str | None, "put them into this group, by name or id"] = None,
) -> Row:
    """Add the people of a vCard file to the address book; those whose e-mail address is known already are skipped and named."""
    cards = [_read_card(text) for text in re.findall(r"BEGIN:VCARD\r?\n(.*?)END:VCARD", tree.file(ctx, path)["content"], re.DOTALL | re.IGNORECASE)]
    if not cards:
        raise ToolError("invalid", f"{path} holds no vCard", "a vCard begins with BEGIN:VCARD and ends with END:VCARD")
    target = resolve(ctx, "contacts.groups", group, "name") if group is not None else None
    added, skipped = [], []
    for card in cards:
        if not card.get("name") or not card.get("email"):
            raise ToolError("invalid", f"a vCard of {path} has no FN or no EMAIL: {card}", "nothing was added")
        known = ctx.db.first("contacts.people", "email = ? COLLATE NOCASE", (card["email"],))
        if known is not None:
            skipped.append({"email": card["email"], "known_as": known["id"]})
            continue
        row = add_person(ctx, card)
        if target is not None:
            ctx.db.insert("contacts.memberships", group_id=target["id"], person_id=row["id"])
        added.append(whole(ctx, row))
    return {"added": added, "skipped": skipped}


def _read_card(text: str) -> Row:
    card: Row = {}
    for line in re.sub(r"\r?\n[ \t]", "", text).splitlines():
        key, _, value = line.partition(":")
        column = _PLAIN.get(re.split("[;.]", key)[0].upper())
        if column and column not in card:
            parts = [re.sub(r"\\(.)", lambda m: "\n" if m[1] in "nN" else m[1], part) for part in re.split(r"(?<!\\);", value)]
            card[column] = ", ".join(p for p in parts if p).strip()
    if "birthday" in card:
        try:
            card["birthday"] = date.fromisoformat(card["birthday"]).isoformat()
        except ValueError:  # a year may be missing, or the text free: RFC 6350 allows both
            card["birthday"] = None
    return card
