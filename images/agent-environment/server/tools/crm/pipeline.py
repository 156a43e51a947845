"""Deals on their way: stages, won and lost, what is in the pipeline, what is expected and what lies still."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from _server.store import Row
from _server.times import utc_text
from msgspec import Meta

from ...lookup import Limit, Text, Where, address, cents, resolve, select
from ...registry import Context, tool
from ...store import ToolError

Month = Annotated[str, Meta(pattern=r"^[0-9]{4}-(0[1-9]|1[0-2])$")]
Owner = Annotated[str | None, "only deals of this owner: `me`, an e-mail address, a handle or a name"]


def find_stage(ctx: Context, key: str) -> Row:
    """A stage by id or name."""
    return resolve(ctx, "crm.stages", key, "name")


def open_deal(ctx: Context, name: str, company_id: str, contact_id: str | None, amount: float, stage: str | None, **values: Any) -> Row:
    """A new deal in an open stage, by default the first; ToolError invalid for a closing stage."""
    row = find_stage(ctx, stage) if stage is not None else ctx.db.first("crm.stages", "outcome = 'open'", order="position, id")
    if row is None:
        raise ToolError("conflict", "there is no open stage")
    if row["outcome"] != "open":
        raise ToolError("invalid", f"stage {row['name']!r} closes a deal", "open the deal first, then move it with crm_move_deal_stage")
    return ctx.db.insert(
        "crm.deals", name=name, company_id=company_id, contact_id=contact_id, stage_id=row["id"], amount=amount, created_at=ctx.now_text,
        updated_at=ctx.now_text, **values,
    )  # fmt: skip


@tool("crm", idempotent=True)
def move_deal_stage(
    ctx: Context,
    deal_id: Annotated[str, "id or name of the deal"],
    stage: Annotated[str, "id or name of the stage it moves to"],
    lost_reason: Annotated[Text, "why it was lost; required for a lost stage"] = "",
) -> Row:
    """Move a deal to another stage; a won or lost stage closes it, an open one reopens it.

    Losing needs a reason. Winning makes the company a customer in accounting when it is none yet (found by name, or by the
    company's domain in the customer's address), and the deal's contact one in the CRM.
    """
    deal = resolve(ctx, "crm.deals", deal_id, "name")
    target = find_stage(ctx, stage)
    if target["outcome"] == "lost" and not lost_reason.strip():
        raise ToolError("invalid", f"{target['name']!r} needs a lost_reason", "say why the deal was lost")
    if target["outcome"] != "lost" and lost_reason:
        raise ToolError("invalid", f"lost_reason given, but {target['name']!r} does not lose the deal", "leave lost_reason out")
    moved = ctx.db.update("crm.deals", deal["id"], stage_id=target["id"], status=target["outcome"], lost_reason=lost_reason, updated_at=ctx.now_text)
    answer: Row = {"deal": moved, "stage": target, "from_stage": ctx.db.get("crm.stages", deal["stage_id"])}
    if target["outcome"] == "won":
        answer |= _won(ctx, moved)
    return answer


def _won(ctx: Context, deal: Row) -> Row:
    company = ctx.db.get("crm.companies", deal["company_id"])
    contact = ctx.db.get("crm.contacts", deal["contact_id"]) if deal["contact_id"] else None
    if contact and contact["status"] != "customer":
        contact = ctx.db.update("crm.contacts", contact["id"], status="customer")
    name, domain = company["name"].casefold(), company["domain"].casefold()
    for customer in ctx.db.rows("accounting.customers"):
        if customer["name"].casefold() == name or (domain and customer["email"].casefold().endswith(f"@{domain}")):
            return {"customer": customer, "customer_created": False, "contact": contact}
    email = contact["email"] if contact else (f"accounts@{domain}" if domain else "")
    customer = ctx.db.insert("accounting.customers", name=company["name"], email=email, phone=company["phone"], address=company["city"])
    return {"customer": customer, "customer_created": True, "contact": contact}


def _open_deals(ctx: Context, owner: str | None) -> list[Row]:
    """Open deals with their stage's probability in `probability`."""
    chances = {s["id"]: s["probability"] for s in ctx.db.rows("crm.stages")}
    where = Where().add("status = 'open'").add("lower(owner) = ?", address(ctx, owner))
    return [{**d, "probability": chances[d["stage_id"]]} for d in select(ctx, "crm.deals", where, order="expected_close, id")]


def _sums(deals: list[Row]) -> Row:
    """How many deals, and by currency what they are worth, plainly and weighted by their probability."""
    amount: dict[str, float] = {}
    weighted: dict[str, float] = {}
    for deal in deals:
        currency = deal["currency"]
        amount[currency] = cents(amount.get(currency, 0) + deal["amount"])
        weighted[currency] = weighted.get(currency, 0) + deal["amount"] * deal["probability"]
    return {"deals": len(deals), "amount": amount, "weighted": {c: cents(v) for c, v in weighted.items()}}


@tool("crm", read_only=True, aliases=("crm_list_stages",))
def pipeline_summary(ctx: Context, owner: Owner = None) -> Row:
    """Every stage in order, with the number of its deals, their worth by currency, and weighted by the stage's probability (open stages)."""
    deals = _open_deals(ctx, owner)
    stages = ctx.db.rows("crm.stages", order="position, id")
    closed = select(ctx, "crm.deals", Where().add("status != 'open'").add("lower(owner) = ?", address(ctx, owner)))
    rows = []
    for stage in stages:
        mine = [{**d, "probability": stage["probability"]} for d in (*deals, *closed) if d["stage_id"] == stage["id"]]
        rows.append({**stage, **_sums(mine)})
    return {"stages": rows, "open": _sums(deals)}


@tool("crm", read_only=True)
def forecast(
    ctx: Context,
    from_month: Annotated[Month | None, "first month, YYYY-MM; left out: this month"] = None,
    months: Annotated[int, Meta(ge=1, le=24), "how many months"] = 6,
    owner: Owner = None,
) -> Row:
    """Open deals by the month of their expected close, plainly and weighted by probability; earlier, later and undated ones apart."""
    first = from_month or ctx.today[:7]
    start = int(first[:4]) * 12 + int(first[5:]) - 1
    names = [f"{n // 12:04d}-{n % 12 + 1:02d}" for n in range(start, start + months)]
    deals = _open_deals(ctx, owner)
    dated = [d for d in deals if d["expected_close"]]
    return {
        "months": [{"month": m, **_sums([d for d in dated if d["expected_close"][:7] == m])} for m in names],
        "earlier": _sums([d for d in dated if d["expected_close"][:7] < names[0]]),
        "later": _sums([d for d in dated if d["expected_close"][:7] > names[-1]]),
        "undated": _sums([d for d in deals if not d["expected_close"]]),
        "total": _sums(deals),
    }


@tool("crm", read_only=True)
def stale_deals(
    ctx: Context,
    days: Annotated[int, Meta(ge=1, le=3650), "no activity and no change for so many days"] = 14,
    owner: Owner = None,
    limit: Limit = 50,
) -> Row:
    """Open deals that nobody has touched for a while, the stillest first, with the last touch and days since."""
    before = utc_text(ctx.now - timedelta(days=days))
    sql = (
        "SELECT d.id, max(coalesce(d.updated_at, d.created_at, ''), coalesce((SELECT max(occurred_at) FROM crm_activities a WHERE a.deal_id = d.id), ''))"
        " AS touched FROM crm_deals d WHERE d.status = 'open' AND (? IS NULL OR lower(d.owner) = ?) AND touched <= ? ORDER BY touched, d.id"
    )
    who = address(ctx, owner)
    found = list(ctx.db.connection.execute(sql, (who, who, before)))
    rows = []
    for deal_id, touched in found[:limit]:
        at = ctx.local(touched) if touched else None
        days_since = (ctx.now - at).days if at else None
        rows.append({**ctx.db.get("crm.deals", deal_id), "last_touch": at.isoformat() if at else None, "days_since": days_since})
    return {"deals": rows, "total": len(found)}
