"""Keeping the CRM tidy: duplicates, merges, leads that become business, owners who change."""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Callable
from itertools import combinations
from typing import Annotated, Literal

from _server.store import Row

from ...effects import send_mail
from ...lookup import Limit, Money, Name, person, person_name, resolve
from ...registry import Context, Day, tool
from ...store import ToolError
from . import pipeline

Kind = Literal["companies", "contacts", "deals", "activities"]
_LEGAL_FORMS = re.compile(r"\b(gmbh|ag|kg|ltd|limited|llc|inc|corp|co|bv|sarl|sas|srl|spa|plc|oy|ab|aps)\b")


def _plain(name: str) -> str:
    """A company's name without case, punctuation and legal form."""
    return " ".join(_LEGAL_FORMS.sub(" ", re.sub(r"[^\w\s]", " ", name.casefold())).split())


def _alike(one: str, two: str) -> bool:
    matcher = difflib.SequenceMatcher(None, one, two)
    return matcher.real_quick_ratio() >= 0.85 and matcher.quick_ratio() >= 0.85 and matcher.ratio() >= 0.85


def _contact_reasons(one: Row, two: Row) -> list[str]:
    digits = [re.sub(r"\D", "", r["phone"]) for r in (one, two)]
    same_name = one["name"].casefold() == two["name"].casefold()
    tests = {
        "same e-mail address": one["email"].casefold() == two["email"].casefold(),
        "same name": same_name,
        "same telephone number": bool(digits[0]) and digits[0] == digits[1],
        "similar name in the same company": not same_name and one["company_id"] == two["company_id"] and _alike(one["name"].casefold(), two["name"].casefold()),
    }
    return [reason for reason, holds in tests.items() if holds]


def _company_reasons(one: Row, two: Row) -> list[str]:
    names = [_plain(r["name"]) for r in (one, two)]
    tests = {
        "same domain": bool(one["domain"]) and one["domain"].casefold() == two["domain"].casefold(),
        "same name but for the legal form": names[0] == names[1],
        "similar name": names[0] != names[1] and _alike(*names),
    }
    return [reason for reason, holds in tests.items() if holds]


@tool("crm", read_only=True)
def find_duplicates(ctx: Context, kind: Annotated[Literal["contacts", "companies"], "what to compare"], limit: Limit = 50) -> Row:
    """Pairs that may be the same person or company, each with the reasons; a similar name alone proves nothing: look before merging."""
    reasons: Callable[[Row, Row], list[str]] = _contact_reasons if kind == "contacts" else _company_reasons
    pairs = [(one, two, why) for one, two in combinations(ctx.db.rows(f"crm.{kind}"), 2) if (why := reasons(one, two))]
    pairs.sort(key=lambda pair: all("similar" in reason for reason in pair[2]))
    return {"pairs": [{"rows": [one, two], "reasons": why} for one, two, why in pairs[:limit]], "total": len(pairs)}


def _merge(ctx: Context, table: str, keep: Row, gone: Row, column: str, referring: tuple[str, ...]) -> Row:
    """Let everything that refers to `gone` refer to `keep`, fill `keep`'s empty fields, remove `gone`; how many rows moved, by table."""
    if keep["id"] == gone["id"]:
        raise ToolError("invalid", f"{keep['id']} cannot be merged into itself")
    moved = {}
    for other in referring:
        rows = ctx.db.rows(other, f"{column} = ?", (gone["id"],))
        for row in rows:
            ctx.db.update(other, row["id"], **{column: keep["id"]})
        moved[other] = len(rows)
    filled = {name: value for name, value in gone.items() if value not in (None, "") and keep[name] in (None, "")}
    ctx.db.update(table, keep["id"], **filled)
    ctx.db.delete(table, "id = ?", (gone["id"],))
    return moved


@tool("crm", destructive=True)
def merge_contacts(
    ctx: Context,
    keep_id: Annotated[str, "the contact that stays (id, e-mail or name)"],
    merge_id: Annotated[str, "the contact that goes (id, e-mail or name)"],
) -> Row:
    """Merge one contact into another: deals and activities move over, empty fields are filled, the later last_contacted_at stays; the other is deleted."""
    keep, gone = (resolve(ctx, "crm.contacts", key, "name", "email") for key in (keep_id, merge_id))
    moved = _merge(ctx, "crm.contacts", keep, gone, "contact_id", ("crm.deals", "crm.activities"))
    touched = [t for t in (keep["last_contacted_at"], gone["last_contacted_at"]) if t]
    if touched:
        ctx.db.update("crm.contacts", keep["id"], last_contacted_at=max(touched, key=ctx.local))
    return {"contact": ctx.db.get("crm.contacts", keep["id"]), "deleted": gone, "moved": moved}


@tool("crm", destructive=True)
def merge_companies(
    ctx: Context,
    keep_id: Annotated[str, "the company that stays (id, name or domain)"],
    merge_id: Annotated[str, "the company that goes (id, name or domain)"],
) -> Row:
    """Merge one company into another: contacts, deals and activities move over, empty fields are filled; the other is deleted."""
    keep, gone = (resolve(ctx, "crm.companies", key, "name", "domain") for key in (keep_id, merge_id))
    moved = _merge(ctx, "crm.companies", keep, gone, "company_id", ("crm.contacts", "crm.deals", "crm.activities"))
    return {"company": ctx.db.get("crm.companies", keep["id"]), "deleted": gone, "moved": moved}


@tool("crm")
def convert_lead(
    ctx: Context,
    contact_id: Annotated[str, "id, e-mail address or full name of a contact with status lead"],
    company_name: Annotated[Name | None, "the company, found by name or made; needed when the contact has none"] = None,
    deal_name: Annotated[Name | None, "also open a deal with this name"] = None,
    amount: Annotated[Money, "the deal's worth"] = 0,
    currency: Annotated[str, "the deal's currency, ISO 4217"] = "USD",
    stage: Annotated[str | None, "the deal's stage (id or name); left out: the first open one"] = None,
    expected_close: Annotated[Day | None, "the day the deal should close"] = None,
) -> Row:
    """Turn a lead into a prospect with a company and, if a name is given, an open deal."""
    contact = resolve(ctx, "crm.contacts", contact_id, "name", "email")
    if contact["status"] != "lead":
        raise ToolError("conflict", f"{contact['name']} is a {contact['status']}, no lead", "open a deal with crm_create_deal")
    company = _company_of(ctx, contact, company_name)
    contact = ctx.db.update("crm.contacts", contact["id"], status="prospect", company_id=company["id"])
    deal = None
    if deal_name:
        deal = pipeline.open_deal(
            ctx, deal_name, company["id"], contact["id"], amount, stage, currency=currency, expected_close=expected_close, owner=contact["owner"]
        )
    return {"contact": contact, "company": company, "deal": deal}


def _company_of(ctx: Context, contact: Row, name: str | None) -> Row:
    if name is None and contact["company_id"] is None:
        raise ToolError("invalid", f"{contact['name']} has no company", "give company_name")
    if name is None:
        return ctx.db.get("crm.companies", contact["company_id"])
    known = next((c for c in ctx.db.rows("crm.companies") if c["name"].casefold() == name.casefold()), None)
    return known or ctx.db.insert("crm.companies", name=name, domain=contact["email"].rpartition("@")[2], owner=contact["owner"], created_at=ctx.now_text)


@tool("crm", idempotent=True)
def reassign_owner(
    ctx: Context,
    from_owner: Annotated[str, "who has them now: an e-mail address, a handle or a name"],
    to_owner: Annotated[str, "who gets them: `me`, an e-mail address, a handle or a name"],
    kinds: Annotated[list[Kind] | None, "what changes hands; left out: all four"] = None,
    company_id: Annotated[str | None, "only what belongs to this company (id, name or domain)"] = None,
    notify: Annotated[bool, "mail the new owner a list"] = True,
) -> Row:
    """Give companies, contacts, open deals and open activities of one owner to another, who gets a mail; closed deals and done activities stay."""
    old, new = person(ctx, from_owner), person(ctx, to_owner)
    if old.lower() == new.lower():
        raise ToolError("invalid", f"{old} has them already", "name two different people")
    company = resolve(ctx, "crm.companies", company_id, "name", "domain")["id"] if company_id is not None else None
    still_open = {"deals": " AND status = 'open'", "activities": " AND NOT is_done"}
    changed: Row = {}
    for kind in dict.fromkeys(kinds or typing.get_args(Kind)):
        column = "id" if kind == "companies" else "company_id"
        where = f"lower(owner) = ? AND (? IS NULL OR {column} = ?)" + still_open.get(kind, "")
        found = ctx.db.rows(f"crm.{kind}", where, (old.lower(), company, company))
        changed[kind] = [ctx.db.update(f"crm.{kind}", row["id"], owner=new) for row in found]
    lines = [f"- {row.get('name') or row.get('subject')} ({kind})" for kind, rows in changed.items() for row in rows]
    message = None
    if lines and notify and new.lower() != ctx.user.email.lower():
        text = f"These are now yours, from {person_name(ctx, old)}:\n\n" + "\n".join(lines)
        message = send_mail(ctx, [new], f"{len(lines)} CRM records are now yours", text)
    return {"changed": changed, "message": message}
