"""Invoices: made as drafts, sent by mail, reminded of, credited, voided."""

from __future__ import annotations

from typing import Annotated, Literal

from _server.store import Row
from msgspec import Meta

from ...effects import send_mail
from ...lookup import Cursor, Limit, Where, changes, has_words, id_of, select
from ...registry import Context, Day, page, tool
from ...store import ToolError
from . import ledger
from .ledger import Amount, InvoiceLine, Short

InvoiceId = Annotated[str, "id or number of the invoice"]
Lines = Annotated[list[InvoiceLine], Meta(min_length=1, max_length=200)]


def whole(ctx: Context, invoice: Row) -> Row:
    """An invoice with its lines."""
    return {"invoice": invoice, "lines": ctx.db.rows("accounting.invoice_lines", "invoice_id = ?", (invoice["id"],), order="length(id), id")}


@tool("accounting", aliases=("accounting_add_invoice",))
def create_invoice(
    ctx: Context,
    customer_id: Annotated[str, "id, name or e-mail address of the customer"],
    lines: Annotated[Lines, "what is charged"],
    issue_day: Annotated[Day | None, "the invoice's day; left out: today"] = None,
    due_day: Annotated[Day | None, "left out: the issue day and the customer's terms"] = None,
    memo: Annotated[Short, "a note on the invoice"] = "",
) -> Row:
    """Make a draft invoice: sums in cents, tax line by line, the next number of the series; accounting_send_invoice sends it."""
    customer = ledger.find_customer(ctx, customer_id)
    if not customer["is_active"]:
        raise ToolError("conflict", f"{customer['name']} is inactive", "make the customer active first")
    issued = issue_day or ctx.today
    due = due_day or ledger.due_day(issued, customer["terms_days"])
    if due < issued:
        raise ToolError("invalid", f"due_day {due} is before issue_day {issued}")
    priced = ledger.priced(ctx, lines)
    amounts = ledger.sums(priced)
    invoice = ctx.db.insert(
        "accounting.invoices", number=ledger.next_number(ctx), customer_id=customer["id"], issue_day=issued, due_day=due, memo=memo, **amounts,
        balance=amounts["total"],
    )  # fmt: skip
    return {"invoice": invoice, "lines": [ctx.db.insert("accounting.invoice_lines", invoice_id=invoice["id"], **line) for line in priced]}


@tool("accounting", idempotent=True)
def update_invoice(
    ctx: Context,
    invoice_id: InvoiceId,
    lines: Annotated[Lines | None, "drafts only: all its lines, in place of those that are there"] = None,
    due_day: Annotated[Day | None, "another due day, also when it is sent already"] = None,
    memo: Annotated[Short | None, "a note on the invoice"] = None,
) -> Row:
    """Change an invoice: its lines while it is a draft (sums follow), its due day and memo until it is paid or void."""
    invoice = ledger.find_invoice(ctx, invoice_id)
    ledger.refuse_status(invoice, "changed", "paid", "void")
    given = changes(lines=lines, due_day=due_day, memo=memo)
    if (due_day or invoice["due_day"]) < invoice["issue_day"]:
        raise ToolError("invalid", f"due_day {due_day} is before issue_day {invoice['issue_day']}")
    if given.pop("lines", None):
        ledger.refuse_status(invoice, "given other lines", "sent", "partial")
        priced = ledger.priced(ctx, lines or [])
        given |= ledger.sums(priced)
        given["balance"] = given["total"]
        ctx.db.delete("accounting.invoice_lines", "invoice_id = ?", (invoice["id"],))
        for line in priced:
            ctx.db.insert("accounting.invoice_lines", invoice_id=invoice["id"], **line)
    return whole(ctx, ctx.db.update("accounting.invoices", invoice["id"], **given))


@tool("accounting", read_only=True)
def get_invoice(ctx: Context, invoice_id: InvoiceId) -> Row:
    """An invoice with its lines, its customer and its payments."""
    invoice = ledger.find_invoice(ctx, invoice_id)
    payments = ctx.db.rows("accounting.payments", "invoice_id = ?", (invoice["id"],), order="day, id")
    return {**whole(ctx, invoice), "customer": ctx.db.get("accounting.customers", invoice["customer_id"]), "payments": payments}


@tool("accounting", read_only=True, aliases=("accounting_search_invoices",))
def list_invoices(
    ctx: Context,
    query: Annotated[str, "words that must all occur in number or memo"] = "",
    customer_id: Annotated[str | None, "only those of this customer (id, name or e-mail address)"] = None,
    status: Annotated[list[Literal["draft", "sent", "partial", "paid", "void"]] | None, "only these states"] = None,
    issued_from: Annotated[Day | None, "issued on this day or later"] = None,
    issued_to: Annotated[Day | None, "issued on this day or earlier"] = None,
    due_before: Annotated[Day | None, "due before this day"] = None,
    min_total: Annotated[float | None, "a total of at least this"] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Row:
    """Invoices by customer, state, days and size, the oldest first, with the sum of their balances."""
    where = Where().add("customer_id = ?", id_of(ledger.find_customer, ctx, customer_id)).any_of("status", status)
    where.add("issue_day >= ?", issued_from).add("issue_day <= ?", issued_to).add("due_day < ?", due_before).add("total >= ?", min_total)
    rows = [r for r in select(ctx, "accounting.invoices", where, order="issue_day, number") if has_words(query, r, ("number", "memo"))]
    return {**page(rows, limit, cursor, "invoices"), "balance": ledger.total(r["balance"] for r in rows)}


def _as_text(ctx: Context, invoice: Row, customer: Row) -> str:
    """The invoice as it is attached to mails."""
    lines = whole(ctx, invoice)["lines"]
    rows = [f"{line['description']}: {line['quantity']:g} x {line['unit_price']:.2f} = {line['amount']:.2f}" for line in lines]
    head = [f"Invoice {invoice['number']}", f"To: {customer['name']}", f"Date: {invoice['issue_day']}", f"Due: {invoice['due_day']}", ""]
    foot = ["", f"Subtotal: {invoice['subtotal']:.2f}", f"Tax: {invoice['tax']:.2f}", f"Total: {invoice['total']:.2f}", f"Balance: {invoice['balance']:.2f}"]
    return "\n".join([*head, *rows, *foot, ""])


def _mail(ctx: Context, invoice: Row, subject: str, text: str) -> Row:
    customer = ctx.db.get("accounting.customers", invoice["customer_id"])
    if not customer["email"]:
        raise ToolError("conflict", f"{customer['name']} has no e-mail address", "give it one with accounting_update_customer")
    attached = {"filename": f"{invoice['number']}.txt", "content_type": "text/plain", "content": _as_text(ctx, invoice, customer)}
    return send_mail(ctx, [customer["email"]], subject, text, attachments=[attached])


@tool("accounting")
def send_invoice(ctx: Context, invoice_id: InvoiceId, message: Annotated[Short, "what the mail says; left out: a standard text"] = "") -> Row:
    """Mail an invoice to its customer with the invoice attached; a draft becomes sent. A sent one is mailed again; paid and void ones are refused."""
    invoice = ledger.find_invoice(ctx, invoice_id)
    ledger.refuse_status(invoice, "sent", "paid", "void")
    if invoice["status"] == "draft":
        invoice = ctx.db.update("accounting.invoices", invoice["id"], status="sent")
    text = message or f"Please find attached invoice {invoice['number']} over {invoice['total']:.2f}, due on {invoice['due_day']}."
    return {"invoice": invoice, "message": _mail(ctx, invoice, f"Invoice {invoice['number']}", text)}


@tool("accounting")
def send_reminder(ctx: Context, invoice_id: InvoiceId, message: Annotated[Short, "what the mail says; left out: a standard text"] = "") -> Row:
    """Mail the customer a reminder of an overdue invoice, attached; one that is not overdue is refused."""
    invoice = ledger.find_invoice(ctx, invoice_id)
    ledger.refuse_status(invoice, "reminded of", "draft", "paid", "void")
    days = ledger.days_between(invoice["due_day"], ctx.today)
    if days <= 0:
        raise ToolError("conflict", f"{invoice['number']} is due on {invoice['due_day']}, today is {ctx.today}", "only overdue invoices are reminded of")
    text = message or f"Invoice {invoice['number']} was due on {invoice['due_day']}. {invoice['balance']:.2f} is still open. Please pay it soon."
    return {"invoice": invoice, "days_overdue": days, "message": _mail(ctx, invoice, f"Reminder: invoice {invoice['number']}", text)}


@tool("accounting", destructive=True, idempotent=True)
def void_invoice(ctx: Context, invoice_id: InvoiceId, reason: Annotated[str, Meta(min_length=1), "why; added to the memo"]) -> Row:
    """Void an invoice on which nothing has been paid; it keeps its number and is no longer owed."""
    invoice = ledger.find_invoice(ctx, invoice_id)
    ledger.refuse_status(invoice, "voided", "void")
    if paid := ctx.db.rows("accounting.payments", "invoice_id = ?", (invoice["id"],)):
        listed = ", ".join(p["id"] for p in paid)
        raise ToolError("conflict", f"{invoice['number']} has payments: {listed}", "reverse them first, or credit the invoice")
    ledger.refuse_status(invoice, "voided", "partial", "paid")
    memo = "; ".join(part for part in (invoice["memo"], f"Void: {reason}") if part)
    return {"invoice": ctx.db.update("accounting.invoices", invoice["id"], status="void", balance=0.0, memo=memo)}


@tool("accounting")
def credit_invoice(
    ctx: Context,
    invoice_id: InvoiceId,
    amount: Annotated[Amount, "how much less is owed, tax included; at most the balance"],
    reason: Annotated[str, Meta(min_length=1, max_length=2000), "why"],
    day: Annotated[Day | None, "the credit's day; left out: today"] = None,
) -> Row:
    """Credit part or all of an invoice's balance: a row of payments with the method `credit note`; balance and state follow. No money moves."""
    invoice = ledger.find_invoice(ctx, invoice_id)
    ledger.refuse_status(invoice, "credited", "draft", "void", "paid")
    settled = ledger.settle(ctx, "accounting.invoices", invoice, amount)
    credit = ctx.db.insert(
        "accounting.payments", kind="received", customer_id=invoice["customer_id"], invoice_id=invoice["id"], amount=ledger.total([amount]),
        day=ledger.past_day(ctx, day, "day"), method=ledger.CREDIT, reference=f"CN-{invoice['number']}", memo=reason,
    )  # fmt: skip
    return {"invoice": settled, "credit": credit}
