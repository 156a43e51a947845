"""The customer relations server: contacts, companies and deals. Owners are e-mail addresses; deals move through stages."""

from __future__ import annotations

from typing import Annotated, Literal

from _server.store import Row
from msgspec import Meta

from ...lookup import (
    Cursor,
    Email,
    Limit,
    Money,
    Name,
    Text,
    Where,
    address,
    changes,
    has_words,
    id_of,
    known_person,
    person,
    refuse_if_referred,
    resolve,
    select,
)
from ...registry import Context, Day, Time, page, tool
from ...store import ToolError
from . import activities, cleanup, pipeline

__all__ = ["activities", "cleanup", "pipeline"]

ContactStatus = Literal["lead", "prospect", "customer", "inactive"]
Count = Annotated[int, Meta(ge=0, le=10_000_000)]
ContactId = Annotated[str, "id, e-mail address or full name of the contact"]
CompanyId = Annotated[str, "id, name or domain of the company"]
DealId = Annotated[str, "id or name of the deal"]
Owner = Annotated[str | None, "only those of this owner: `me`, an e-mail address, a handle or a name"]
NewOwner = Annotated[str | None, "who looks after it: `me`, an e-mail address, a handle or a name; left out: you"]


def find_contact(ctx: Context, key: str) -> Row:
    """A contact by id, address or name."""
    return resolve(ctx, "crm.contacts", key, "name", "email")


def find_company(ctx: Context, key: str) -> Row:
    """A company by id, name or domain."""
    return resolve(ctx, "crm.companies", key, "name", "domain")


def find_deal(ctx: Context, key: str) -> Row:
    """A deal by id or name."""
    return resolve(ctx, "crm.deals", key, "name")


def _company_id(ctx: Context, key: str | None) -> str | None:
    return id_of(find_company, ctx, key)


def _recent(ctx: Context, where: str, id: str) -> list[Row]:
    return ctx.db.rows("crm.activities", where, (id,), order="coalesce(occurred_at, due_at) DESC, id LIMIT 10")


@tool("crm", read_only=True)
def search_contacts(
    ctx: Context,
    query: Annotated[str, "words that must all occur in name, e-mail, phone or title"] = "",
    company_id: Annotated[str | None, "only those of this company (id, name or domain)"] = None,
    status: Annotated[ContactStatus | None, "only those with this status"] = None,
    owner: Owner = None,
    not_contacted_since: Annotated[Time | None, "only those last contacted before this, or never"] = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> Row:
    """Find contacts by words, company, status, owner or the time since anybody spoke to them."""
    where = Where().add("company_id = ?", _company_id(ctx, company_id)).add("status = ?", status).add("lower(owner) = ?", address(ctx, owner))
    where.add("last_contacted_at IS NULL OR last_contacted_at < ?", not_contacted_since)
    rows = [r for r in select(ctx, "crm.contacts", where, order="name, id") if has_words(query, r, ("name", "email", "phone", "title"))]
    return page(rows, limit, cursor, "contacts")


@tool("crm", read_only=True)
def get_contact(ctx: Context, contact_id: ContactId) -> Row:
    """A contact with its company, its deals and its ten latest activities."""
    contact = find_contact(ctx, contact_id)
    company = ctx.db.get("crm.companies", contact["company_id"]) if contact["company_id"] else None
    deals = ctx.db.rows("crm.deals", "contact_id = ?", (contact["id"],))
    return {"contact": contact, "company": company, "deals": deals, "activities": _recent(ctx, "contact_id = ?", contact["id"])}


@tool("crm", aliases=("crm_add_contact",))
def create_contact(
    ctx: Context,
    name: Annotated[Name, "full name"],
    email: Annotated[Email, "e-mail address; no other contact may have it"],
    company_id: Annotated[str | None, "the company (id, name or domain)"] = None,
    phone: Annotated[Text, "telephone number"] = "",
    title: Annotated[Text, "position in the company"] = "",
    status: Annotated[ContactStatus, "where the relation stands"] = "lead",
    owner: NewOwner = None,
) -> Row:
    """Add a contact; an e-mail address that another contact has is refused."""
    _refuse_same_email(ctx, email)
    contact = ctx.db.insert(
        "crm.contacts", company_id=_company_id(ctx, company_id), name=name, email=email, phone=phone, title=title, status=status,
        owner=person(ctx, owner or "me"), created_at=ctx.now_text,
    )  # fmt: skip
    return {"contact": contact}


def _refuse_same_email(ctx: Context, email: str, but: str = "") -> None:
    if other := ctx.db.first("crm.contacts", "lower(email) = ? AND id != ?", (email.lower(), but)):
        raise ToolError("conflict", f"{other['name']} ({other['id']}) has the address {email}", "update that contact")


@tool("crm", idempotent=True)
def update_contact(
    ctx: Context,
    contact_id: ContactId,
    name: Annotated[Name | None, "full name"] = None,
    email: Annotated[Email | None, "e-mail address"] = None,
    company_id: Annotated[str | None, "the company (id, name or domain)"] = None,
    phone: Annotated[Text | None, "telephone number"] = None,
    title: Annotated[Text | None, "position in the company"] = None,
    status: Annotated[ContactStatus | None, "where the relation stands"] = None,
    owner: Annotated[str | None, "who looks after it: `me`, an e-mail address, a handle or a name"] = None,
) -> Row:
    """Change what is given of a contact."""
    contact = find_contact(ctx, contact_id)
    if email:
        _refuse_same_email(ctx, email, contact["id"])
    given = changes(name=name, email=email, company_id=_company_id(ctx, company_id), phone=phone, title=title, status=status, owner=known_person(ctx, owner))
    return {"contact": ctx.db.update("crm.contacts", contact["id"], **given)}


@tool("crm", destructive=True)
def delete_contact(ctx: Context, contact_id: ContactId) -> Row:
    """Delete a contact; refused while deals or activities refer to it (merge it into another instead)."""
    contact = find_contact(ctx, contact_id)
    where = ("contact_id = ?", [contact["id"]])
    refuse_if_referred(ctx, f"contact {contact['id']}", {"crm.deals": where, "crm.activities": where})
    ctx.db.delete("crm.contacts", "id = ?", (contact["id"],))
    return {"deleted": contact}


@tool("crm", read_only=True)
def search_companies(
    ctx: Context,
    query: Annotated[str, "words that must all occur in name, domain, industry, city or notes"] = "",
    industry: Annotated[str | None, "only this industry (any case)"] = None,
    city: Annotated[str | None, "only this city (any case)"] = None,
    owner: Owner = None,
    min_employees: Annotated[Count | None, "at least so many employees"] = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> Row:
    """Find companies by words, industry, city, owner or size."""
    where = Where().add("lower(owner) = ?", address(ctx, owner)).add("employees >= ?", min_employees)
    rows = [
        r
        for r in select(ctx, "crm.companies", where, order="name, id")
        if has_words(query, r, ("name", "domain", "industry", "city", "notes"))
        and (industry is None or r["industry"].casefold() == industry.casefold())
        and (city is None or r["city"].casefold() == city.casefold())
    ]
    return page(rows, limit, cursor, "companies")


@tool("crm", read_only=True)
def get_company(ctx: Context, company_id: CompanyId) -> Row:
    """A company with its contacts, its deals and its ten latest activities."""
    company = find_company(ctx, company_id)
    contacts = ctx.db.rows("crm.contacts", "company_id = ?", (company["id"],), order="name, id")
    deals = ctx.db.rows("crm.deals", "company_id = ?", (company["id"],))
    return {"company": company, "contacts": contacts, "deals": deals, "activities": _recent(ctx, "company_id = ?", company["id"])}


@tool("crm", aliases=("crm_add_company",))
def create_company(
    ctx: Context,
    name: Annotated[Name, "the company's name"],
    domain: Annotated[Text, "its mail domain; no other company may have it"] = "",
    industry: Annotated[Text, "what it does"] = "",
    employees: Annotated[Count | None, "how many people work there"] = None,
    city: Annotated[Text, "where it sits"] = "",
    phone: Annotated[Text, "telephone number"] = "",
    notes: Annotated[Text, "anything worth knowing"] = "",
    owner: NewOwner = None,
) -> Row:
    """Add a company; a name or domain that another company has is refused."""
    taken = ctx.db.first("crm.companies", "lower(name) = ? OR (domain != '' AND lower(domain) = ?)", (name.lower(), domain.lower()))
    if taken:
        raise ToolError("conflict", f"{taken['name']} ({taken['id']}) has this name or domain", "update that company")
    company = ctx.db.insert(
        "crm.companies", name=name, domain=domain, industry=industry, employees=employees, city=city, phone=phone, notes=notes,
        owner=person(ctx, owner or "me"), created_at=ctx.now_text,
    )  # fmt: skip
    return {"company": company}


@tool("crm", idempotent=True)
def update_company(
    ctx: Context,
    company_id: CompanyId,
    name: Annotated[Name | None, "the company's name"] = None,
    domain: Annotated[Text | None, "its mail domain"] = None,
    industry: Annotated[Text | None, "what it does"] = None,
    employees: Annotated[Count | None, "how many people work there"] = None,
    city: Annotated[Text | None, "where it sits"] = None,
    phone: Annotated[Text | None, "telephone number"] = None,
    notes: Annotated[Text | None, "anything worth knowing; replaces the notes that are there"] = None,
    owner: Annotated[str | None, "who looks after it: `me`, an e-mail address, a handle or a name"] = None,
) -> Row:
    """Change what is given of a company."""
    company = find_company(ctx, company_id)
    given = changes(name=name, domain=domain, industry=industry, employees=employees, city=city, phone=phone, notes=notes, owner=known_person(ctx, owner))
    return {"company": ctx.db.update("crm.companies", company["id"], **given)}


@tool("crm", read_only=True)
def list_deals(
    ctx: Context,
    query: Annotated[str, "words that must all occur in the name"] = "",
    stage: Annotated[str | None, "only this stage (id or name)"] = None,
    status: Annotated[Literal["open", "won", "lost"] | None, "only deals that are open, won or lost"] = None,
    owner: Owner = None,
    company_id: Annotated[str | None, "only those of this company (id, name or domain)"] = None,
    min_amount: Annotated[float | None, "at least this amount"] = None,
    closing_from: Annotated[Day | None, "expected to close on this day or later"] = None,
    closing_to: Annotated[Day | None, "expected to close on this day or earlier"] = None,
    sort: Annotated[Literal["expected_close", "amount", "name", "updated_at"], "order; amount and updated_at come largest first"] = "expected_close",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Row:
    """Deals by stage, status, owner, company, amount or expected close."""
    where = Where().add("stage_id = ?", id_of(pipeline.find_stage, ctx, stage)).add("status = ?", status)
    where.add("lower(owner) = ?", address(ctx, owner)).add("company_id = ?", _company_id(ctx, company_id)).add("amount >= ?", min_amount)
    where.add("expected_close >= ?", closing_from).add("expected_close <= ?", closing_to)
    order = {"expected_close": "expected_close IS NULL, expected_close, id", "name": "name, id"}.get(sort, f"{sort} DESC, id")
    return page([r for r in select(ctx, "crm.deals", where, order=order) if has_words(query, r, ("name",))], limit, cursor, "deals")


@tool("crm", read_only=True)
def get_deal(ctx: Context, deal_id: DealId) -> Row:
    """A deal with its stage, company, contact and ten latest activities."""
    deal = find_deal(ctx, deal_id)
    return {
        "deal": deal,
        "stage": ctx.db.get("crm.stages", deal["stage_id"]),
        "company": ctx.db.get("crm.companies", deal["company_id"]),
        "contact": ctx.db.get("crm.contacts", deal["contact_id"]) if deal["contact_id"] else None,
        "activities": _recent(ctx, "deal_id = ?", deal["id"]),
    }


@tool("crm", aliases=("crm_add_deal",))
def create_deal(
    ctx: Context,
    name: Annotated[Name, "what the deal is called"],
    company_id: CompanyId,
    amount: Annotated[Money, "its worth"],
    contact_id: Annotated[str | None, "the person to talk to (id, e-mail or name)"] = None,
    stage: Annotated[str | None, "an open stage (id or name); left out: the first"] = None,
    currency: Annotated[str, "ISO 4217 code"] = "USD",
    expected_close: Annotated[Day | None, "the day it should close"] = None,
    owner: NewOwner = None,
) -> Row:
    """Open a deal in an open stage; closing is done by moving it to a won or lost stage."""
    deal = pipeline.open_deal(
        ctx, name, find_company(ctx, company_id)["id"], id_of(find_contact, ctx, contact_id), amount, stage,
        currency=currency, expected_close=expected_close, owner=person(ctx, owner or "me"),
    )  # fmt: skip
    return {"deal": deal}


@tool("crm", idempotent=True)
def update_deal(
    ctx: Context,
    deal_id: DealId,
    name: Annotated[Name | None, "what the deal is called"] = None,
    amount: Annotated[Money | None, "its worth"] = None,
    contact_id: Annotated[str | None, "the person to talk to (id, e-mail or name)"] = None,
    currency: Annotated[str | None, "ISO 4217 code"] = None,
    expected_close: Annotated[Day | None, "the day it should close"] = None,
    owner: Annotated[str | None, "who looks after it: `me`, an e-mail address, a handle or a name"] = None,
) -> Row:
    """Change what is given of a deal; its stage is changed by crm_move_deal_stage."""
    deal = find_deal(ctx, deal_id)
    contact = id_of(find_contact, ctx, contact_id)
    given = changes(name=name, amount=amount, contact_id=contact, currency=currency, expected_close=expected_close, owner=known_person(ctx, owner))
    return {"deal": ctx.db.update("crm.deals", deal["id"], **given, updated_at=ctx.now_text)}


@tool("crm", destructive=True)
def delete_deal(ctx: Context, deal_id: DealId) -> Row:
    """Delete an open or lost deal together with its activities; a won one is refused."""
    deal = find_deal(ctx, deal_id)
    if deal["status"] == "won":
        raise ToolError("conflict", f"{deal['id']} is won", "won deals stay as a record; move it to another stage first")
    activities = ctx.db.delete("crm.activities", "deal_id = ?", (deal["id"],))
    ctx.db.delete("crm.deals", "id = ?", (deal["id"],))
    return {"deleted": deal, "activities_deleted": activities}


@tool("crm", read_only=True)
def search(
    ctx: Context,
    query: Annotated[str, "words that must all occur"],
    limit: Limit = 30,
    cursor: Cursor = None,
) -> Row:
    """Search companies, contacts, deals and activities at once; each hit names its table and carries the row."""
    columns = {
        "companies": ("name", "domain", "industry", "city", "notes"),
        "contacts": ("name", "email", "phone", "title"),
        "deals": ("name", "lost_reason"),
        "activities": ("subject", "body"),
    }
    hits = [{"table": t, "row": row} for t, searched in columns.items() for row in ctx.db.rows(f"crm.{t}") if has_words(query, row, searched)]
    return page(hits, limit, cursor, "hits")
