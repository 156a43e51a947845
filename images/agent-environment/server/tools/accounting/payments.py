"""Money that moves: received for invoices, made for bills, taken back when it was booked wrongly."""

from __future__ import annotations

from itertools import combinations
from typing import Annotated, Literal

from _server.store import Row
from msgspec import Meta

from ...lookup import Cursor, Limit, Where, has_words, id_of, select
from ...registry import Context, Day, page, tool
from ...store import ToolError
from . import ledger
from .ledger import Amount, Short

Method = Annotated[str, Meta(min_length=1, max_length=60), "how it was paid, like bank transfer, card, cash, check"]
PaidOn = Annotated[Day | None, "the day it was paid; left out: today"]


@tool("accounting", aliases=("accounting_receive_payment",))
def record_payment(
    ctx: Context,
    invoice_id: Annotated[str, "id or number of the invoice"],
    amount: Annotated[Amount, "how much; at most the balance"],
    day: PaidOn = None,
    method: Method = "bank transfer",
    reference: Annotated[Short, "what the payer wrote, or a number"] = "",
    memo: Annotated[Short, "a note"] = "",
) -> Row:
    """Record money received for an invoice, in part or whole; balance and state follow. More than the balance is refused, so are drafts and void ones."""
    invoice = ledger.find_invoice(ctx, invoice_id)
    ledger.refuse_status(invoice, "paid", "draft", "void", "paid")
    paid_on = ledger.past_day(ctx, day, "day")
    settled = ledger.settle(ctx, "accounting.invoices", invoice, amount)
    payment = ctx.db.insert(
        "accounting.payments", kind="received", customer_id=invoice["customer_id"], invoice_id=invoice["id"], amount=ledger.total([amount]), day=paid_on,
        method=method, reference=reference, memo=memo,
    )  # fmt: skip
    return {"payment": payment, "invoice": settled}


@tool("accounting")
def pay_bill(
    ctx: Context,
    bill_id: Annotated[str, "id or number of the bill"],
    amount: Annotated[Amount | None, "how much; left out: the balance"] = None,
    day: PaidOn = None,
    method: Method = "bank transfer",
    reference: Annotated[Short, "what the vendor will read, or a number"] = "",
    memo: Annotated[Short, "a note"] = "",
) -> Row:
    """Pay a bill in part or whole; balance and state follow. More than the balance is refused, so are void ones."""
    bill = ledger.find_bill(ctx, bill_id)
    ledger.refuse_status(bill, "paid", "void", "paid")
    paid_on = ledger.past_day(ctx, day, "day")
    paid = ledger.total([bill["balance"] if amount is None else amount])
    settled = ledger.settle(ctx, "accounting.bills", bill, paid)
    payment = ctx.db.insert(
        "accounting.payments", kind="made", vendor_id=bill["vendor_id"], bill_id=bill["id"], amount=paid, day=paid_on, method=method,
        reference=reference, memo=memo,
    )  # fmt: skip
    return {"payment": payment, "bill": settled}


@tool("accounting")
def apply_payment(
    ctx: Context, payment_id: Annotated[str, "id of the payment"], invoice_id: Annotated[str, "id or number of an invoice of the same customer"]
) -> Row:
    """Put money received that belongs to no invoice yet onto one of the customer's; balance and state follow."""
    payment = ctx.db.get("accounting.payments", payment_id)
    invoice = ledger.find_invoice(ctx, invoice_id)
    if payment["kind"] != "received" or payment["invoice_id"]:
        where = f"is on invoice {payment['invoice_id']}" if payment["invoice_id"] else "was made to a vendor"
        raise ToolError("conflict", f"{payment_id} {where}", "reverse it first with accounting_reverse_payment" if payment["invoice_id"] else "")
    if payment["customer_id"] != invoice["customer_id"]:
        raise ToolError("invalid", f"{payment_id} is of customer {payment['customer_id']}, {invoice['number']} of {invoice['customer_id']}")
    ledger.refuse_status(invoice, "paid", "draft", "void", "paid")
    settled = ledger.settle(ctx, "accounting.invoices", invoice, payment["amount"])
    return {"payment": ctx.db.update("accounting.payments", payment_id, invoice_id=invoice["id"]), "invoice": settled}


@tool("accounting", destructive=True)
def reverse_payment(ctx: Context, payment_id: Annotated[str, "id of the payment or credit"]) -> Row:
    """Delete a payment or credit that was booked wrongly; the invoice or bill is owed again by that amount."""
    payment = ctx.db.get("accounting.payments", payment_id)
    ctx.db.delete("accounting.payments", "id = ?", (payment_id,))
    answer: Row = {"deleted": payment}
    for what, column in (("invoice", "invoice_id"), ("bill", "bill_id")):
        if payment[column]:
            table = f"accounting.{what}s"
            answer[what] = ledger.settle(ctx, table, ctx.db.get(table, payment[column]), -payment["amount"])
    return answer


@tool("accounting", read_only=True)
def list_payments(
    ctx: Context,
    query: Annotated[str, "words that must all occur in reference or memo"] = "",
    kind: Annotated[Literal["received", "made"] | None, "only money received, or only money paid"] = None,
    customer_id: Annotated[str | None, "only those of this customer (id, name or e-mail address)"] = None,
    vendor_id: Annotated[str | None, "only those to this vendor (id, name or e-mail address)"] = None,
    from_day: Annotated[Day | None, "on this day or later"] = None,
    to_day: Annotated[Day | None, "on this day or earlier"] = None,
    amount: Annotated[float | None, "only exactly this amount"] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Row:
    """Payments (credits too, with the method `credit note`) by kind, party, days and amount, the oldest first, with their sum."""
    where = Where().add("kind = ?", kind).add("customer_id = ?", id_of(ledger.find_customer, ctx, customer_id))
    where.add("vendor_id = ?", id_of(ledger.find_vendor, ctx, vendor_id))
    where.add("day >= ?", from_day).add("day <= ?", to_day).add("abs(amount - ?) < 0.005", amount)
    rows = [r for r in select(ctx, "accounting.payments", where, order="day, id") if has_words(query, r, ("reference", "memo"))]
    return {**page(rows, limit, cursor, "payments"), "sum": ledger.total(r["amount"] for r in rows)}


@tool("accounting", read_only=True)
def find_duplicate_payments(ctx: Context, days: Annotated[int, Meta(ge=0, le=400), "at most so many days apart"] = 14) -> Row:
    """Pairs of payments of one kind and one party with the same amount within some days; the same reference is named as a further reason."""
    pairs = []
    for one, two in combinations(ctx.db.rows("accounting.payments", "method != ?", (ledger.CREDIT,), order="day, id"), 2):
        if any(one[c] != two[c] for c in ("kind", "customer_id", "vendor_id", "amount")) or ledger.days_between(one["day"], two["day"]) > days:
            continue
        reasons = ["same party and amount"]
        reasons += ["same reference"] if one["reference"] and one["reference"].casefold() == two["reference"].casefold() else []
        reasons += ["same invoice or bill"] if (one["invoice_id"], one["bill_id"]) == (two["invoice_id"], two["bill_id"]) else []
        pairs.append({"payments": [one, two], "reasons": reasons})
    return {"pairs": pairs, "total": len(pairs)}
