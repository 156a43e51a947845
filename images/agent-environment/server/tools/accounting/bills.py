"""Bills of vendors: entered, listed, voided, and looked over for doubles."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Annotated, Literal

from _server.store import Row
from msgspec import Meta

from ...lookup import Cursor, Limit, Where, has_words, id_of, select
from ...registry import Context, Day, page, tool
from ...store import ToolError
from . import ledger
from .ledger import BillLine, Short

BillId = Annotated[str, "id or number of the bill"]


def _plain_number(number: str) -> str:
    return re.sub(r"[^a-z0-9]", "", number.casefold())


@tool("accounting", aliases=("accounting_add_bill",))
def create_bill(
    ctx: Context,
    vendor_id: Annotated[str, "id, name or e-mail address of the vendor"],
    number: Annotated[str, Meta(min_length=1, max_length=100), "the number on the vendor's bill"],
    lines: Annotated[list[BillLine], Meta(min_length=1, max_length=200), "what is charged; recoverable tax is a line of its own"],
    bill_day: Annotated[Day | None, "the day on the bill; left out: today"] = None,
    due_day: Annotated[Day | None, "left out: the bill's day and the vendor's terms"] = None,
    memo: Annotated[Short, "a note"] = "",
) -> Row:
    """Enter a vendor's bill; a number that this vendor's bills have already (whatever its dashes and capitals) is refused."""
    vendor = ledger.find_vendor(ctx, vendor_id)
    if not vendor["is_active"]:
        raise ToolError("conflict", f"{vendor['name']} is inactive", "make the vendor active first")
    for other in ctx.db.rows("accounting.bills", "vendor_id = ? AND status != 'void'", (vendor["id"],)):
        if _plain_number(other["number"]) == _plain_number(number):
            raise ToolError("conflict", f"bill {other['number']} of {vendor['name']} is entered as {other['id']}", "look at that one")
    billed = ledger.past_day(ctx, bill_day, "bill_day")
    priced: list[Row] = [{"account": i.account, "description": i.description, "quantity": i.quantity, "unit_price": i.unit_price} for i in lines]
    amounts = [ledger.times(line["quantity"], line["unit_price"]) for line in priced]
    total = ledger.total(amounts)
    if total <= 0:
        raise ToolError("invalid", f"the bill comes to {total}", "it must come to more than zero")
    bill = ctx.db.insert(
        "accounting.bills", number=number, vendor_id=vendor["id"], bill_day=billed, due_day=due_day or ledger.due_day(billed, vendor["terms_days"]),
        memo=memo, total=total, balance=total,
    )  # fmt: skip
    made = [ctx.db.insert("accounting.bill_lines", bill_id=bill["id"], **line, amount=amount) for line, amount in zip(priced, amounts, strict=True)]
    return {"bill": bill, "lines": made}


@tool("accounting", read_only=True)
def get_bill(ctx: Context, bill_id: BillId) -> Row:
    """A bill with its lines, its vendor and its payments."""
    bill = ledger.find_bill(ctx, bill_id)
    lines = ctx.db.rows("accounting.bill_lines", "bill_id = ?", (bill["id"],), order="length(id), id")
    payments = ctx.db.rows("accounting.payments", "bill_id = ?", (bill["id"],), order="day, id")
    return {"bill": bill, "lines": lines, "vendor": ctx.db.get("accounting.vendors", bill["vendor_id"]), "payments": payments}


@tool("accounting", read_only=True, aliases=("accounting_search_bills",))
def list_bills(
    ctx: Context,
    query: Annotated[str, "words that must all occur in number or memo"] = "",
    vendor_id: Annotated[str | None, "only those of this vendor (id, name or e-mail address)"] = None,
    status: Annotated[list[Literal["open", "partial", "paid", "void"]] | None, "only these states"] = None,
    billed_from: Annotated[Day | None, "billed on this day or later"] = None,
    billed_to: Annotated[Day | None, "billed on this day or earlier"] = None,
    due_before: Annotated[Day | None, "due before this day"] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Row:
    """Bills by vendor, state and days, the first due first, with the sum of their balances."""
    where = Where().add("vendor_id = ?", id_of(ledger.find_vendor, ctx, vendor_id)).any_of("status", status)
    where.add("bill_day >= ?", billed_from).add("bill_day <= ?", billed_to).add("due_day < ?", due_before)
    rows = [r for r in select(ctx, "accounting.bills", where, order="due_day, id") if has_words(query, r, ("number", "memo"))]
    return {**page(rows, limit, cursor, "bills"), "balance": ledger.total(r["balance"] for r in rows)}


@tool("accounting", destructive=True, idempotent=True)
def void_bill(ctx: Context, bill_id: BillId, reason: Annotated[str, Meta(min_length=1), "why; added to the memo"]) -> Row:
    """Void a bill on which nothing has been paid, for instance one entered twice."""
    bill = ledger.find_bill(ctx, bill_id)
    ledger.refuse_status(bill, "voided", "void")
    if paid := ctx.db.rows("accounting.payments", "bill_id = ?", (bill["id"],)):
        raise ToolError("conflict", f"{bill['number']} has payments: {', '.join(p['id'] for p in paid)}", "reverse them first")
    ledger.refuse_status(bill, "voided", "partial", "paid")
    memo = "; ".join(part for part in (bill["memo"], f"Void: {reason}") if part)
    return {"bill": ctx.db.update("accounting.bills", bill["id"], status="void", balance=0.0, memo=memo)}


@tool("accounting", read_only=True)
def find_duplicate_bills(ctx: Context, days: Annotated[int, Meta(ge=0, le=400), "bills of the same total at most so many days apart"] = 45) -> Row:
    """Pairs of one vendor's bills (void ones left out) with the same number but for dashes and capitals, or the same total within some days."""
    pairs = []
    for one, two in combinations(ctx.db.rows("accounting.bills", "status != 'void'", order="vendor_id, bill_day, id"), 2):
        if one["vendor_id"] != two["vendor_id"]:
            continue
        tests = {
            "same number": _plain_number(one["number"]) == _plain_number(two["number"]),
            "same total": one["total"] == two["total"] and abs(ledger.days_between(one["bill_day"], two["bill_day"])) <= days,
        }
        if reasons := [reason for reason, holds in tests.items() if holds]:
            pairs.append({"bills": [one, two], "reasons": reasons})
    return {"pairs": pairs, "total": len(pairs)}
