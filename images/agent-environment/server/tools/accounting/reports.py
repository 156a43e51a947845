"""Reports: aging, profit and loss, statements, sales, spending, cash."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal

from _server.store import Row
from msgspec import Meta

from ...lookup import Limit, cents, id_of
from ...registry import Context, Day, tool
from ...store import ToolError
from . import ledger

FromDay = Annotated[Day, "first day"]
ToDay = Annotated[Day, "last day"]
TAX_ACCOUNTS = ("input vat", "input tax", "vat", "sales tax", "gst")
BUCKETS = ("current", "1-30", "31-60", "61-90", "over 90")


def _check_period(from_day: str, to_day: str) -> None:
    if to_day < from_day:
        raise ToolError("invalid", f"to_day {to_day} is before from_day {from_day}")


def _bucket(days: int) -> str:
    return BUCKETS[0] if days <= 0 else BUCKETS[min(4, 1 + (days - 1) // 30)]


def _by(rows: list[tuple[str, float]]) -> dict[str, float]:
    """Sums by name, in the order of the names."""
    grouped: dict[str, list[float]] = {}
    for name, amount in rows:
        grouped.setdefault(name, []).append(amount)
    return {name: ledger.total(amounts) for name, amounts in sorted(grouped.items())}


@tool("accounting", read_only=True)
def aging_report(
    ctx: Context,
    kind: Annotated[Literal["receivable", "payable"], "what customers owe us, or what we owe vendors"] = "receivable",
    as_of: Annotated[Day | None, "as it was at the end of this day; left out: today"] = None,
) -> Row:
    """What is open, by customer or vendor and by days past due: current (not yet due), 1-30, 31-60, 61-90, over 90."""
    day = str(as_of or ctx.today)
    table, party, column, dated = {
        "receivable": ("accounting.invoices", "customer", "invoice_id", "issue_day"),
        "payable": ("accounting.bills", "vendor", "bill_id", "bill_day"),
    }[kind]
    parties: dict[str, Row] = {}
    for row in ctx.db.rows(table, f"{ledger.ISSUED} AND {dated} <= ?", (day,)):
        left = ledger.balance_on(ctx, row, day, column)
        if left > 0:
            mine = parties.setdefault(row[f"{party}_id"], dict.fromkeys((*BUCKETS, "total"), 0.0))
            for name in (_bucket(ledger.days_between(row["due_day"], day)), "total"):
                mine[name] = ledger.total([mine[name], left])
    rows = [{f"{party}_id": i, "name": ctx.db.get(f"accounting.{party}s", i)["name"], **amounts} for i, amounts in parties.items()]
    rows.sort(key=lambda r: (-r["total"], r["name"]))
    return {"kind": kind, "as_of": day, "rows": rows, "totals": {name: ledger.total(r[name] for r in rows) for name in (*BUCKETS, "total")}}


@tool("accounting", read_only=True)
def profit_and_loss(ctx: Context, from_day: FromDay, to_day: ToDay) -> Row:
    """Revenue (issued invoices without tax, by their day), credits, expenses by account (bills; recoverable tax apart) and what is left, whole and by month."""
    _check_period(from_day, to_day)
    invoices = ctx.db.rows("accounting.invoices", f"{ledger.ISSUED} AND issue_day BETWEEN ? AND ?", (from_day, to_day))
    revenue = [(r["issue_day"][:7], r["subtotal"]) for r in invoices]
    credited = [
        (p["day"][:7], _net_credit(ctx, p)) for p in ctx.db.rows("accounting.payments", "method = ? AND day BETWEEN ? AND ?", (ledger.CREDIT, from_day, to_day))
    ]
    bills = {b["id"]: b["bill_day"][:7] for b in ctx.db.rows("accounting.bills", "status != 'void' AND bill_day BETWEEN ? AND ?", (from_day, to_day))}
    lines = [line for line in ctx.db.rows("accounting.bill_lines") if line["bill_id"] in bills]
    taxes = [line["amount"] for line in lines if line["account"].casefold() in TAX_ACCOUNTS]
    costs = [line for line in lines if line["account"].casefold() not in TAX_ACCOUNTS]
    parts = {"revenue": revenue, "credits": credited, "expenses": [(bills[line["bill_id"]], line["amount"]) for line in costs]}
    by_month = {name: _by(rows) for name, rows in parts.items()}
    months = []
    for month in sorted({m for sums in by_month.values() for m in sums}):
        mine = {name: sums.get(month, 0.0) for name, sums in by_month.items()}
        months.append({"month": month, **mine, "net": ledger.total([mine["revenue"], -mine["credits"], -mine["expenses"]])})
    whole = {name: ledger.total(amount for _, amount in rows) for name, rows in parts.items()}
    net = ledger.total([whole["revenue"], -whole["credits"], -whole["expenses"]])
    accounts = _by([(line["account"], line["amount"]) for line in costs])
    return {
        "from_day": str(from_day),
        "to_day": str(to_day),
        **whole,
        "net": net,
        "expenses_by_account": accounts,
        "recoverable_tax": ledger.total(taxes),
        "months": months,
    }


def _net_credit(ctx: Context, credit: Row) -> float:
    """A credit without the tax in it."""
    invoice = ctx.db.get("accounting.invoices", credit["invoice_id"])
    return cents(Decimal(str(credit["amount"])) * Decimal(str(invoice["subtotal"])) / Decimal(str(invoice["total"])))


@tool("accounting", read_only=True)
def customer_statement(
    ctx: Context,
    customer_id: Annotated[str, "id, name or e-mail address of the customer"],
    from_day: Annotated[Day | None, "first day; left out: from the start"] = None,
    to_day: Annotated[Day | None, "last day; left out: today"] = None,
) -> Row:
    """A customer's account: opening balance, invoices and payments in order with the running balance, closing balance."""
    customer = ledger.find_customer(ctx, customer_id)
    first, last = from_day and str(from_day), str(to_day or ctx.today)
    entries: list[Row] = [
        {"day": r["issue_day"], "kind": "invoice", "id": r["id"], "number": r["number"], "amount": r["total"]}
        for r in ctx.db.rows("accounting.invoices", f"customer_id = ? AND {ledger.ISSUED}", (customer["id"],))
    ]
    for p in ctx.db.rows("accounting.payments", "kind = 'received' AND customer_id = ?", (customer["id"],)):
        kind = "credit" if p["method"] == ledger.CREDIT else "payment"
        entries.append({"day": p["day"], "kind": kind, "id": p["id"], "number": p["reference"], "amount": -p["amount"]})
    entries.sort(key=lambda e: (e["day"], e["kind"] != "invoice", e["id"]))
    opening = ledger.total(e["amount"] for e in entries if from_day and e["day"] < from_day)
    shown, balance = [], opening
    for entry in entries:
        if (from_day or "") <= entry["day"] <= last:
            balance = ledger.total([balance, entry["amount"]])
            shown.append({**entry, "balance": balance})
    return {"customer": customer, "from_day": first, "to_day": last, "opening": opening, "entries": shown, "closing": balance}


@tool("accounting", read_only=True)
def overdue_invoices(
    ctx: Context,
    min_days: Annotated[int, Meta(ge=1, le=10_000), "at least so many days past due"] = 1,
    customer_id: Annotated[str | None, "only those of this customer (id, name or e-mail address)"] = None,
    limit: Limit = 100,
) -> Row:
    """Invoices that are past due and not paid, the longest overdue first, with days overdue and the customer's name and address."""
    customer = id_of(ledger.find_customer, ctx, customer_id)
    where = f"{ledger.ISSUED} AND balance > 0 AND due_day < ? AND (? IS NULL OR customer_id = ?)"
    rows = []
    for invoice in ctx.db.rows("accounting.invoices", where, (ctx.today, customer, customer), order="due_day, number"):
        days = ledger.days_between(invoice["due_day"], ctx.today)
        if days >= min_days:
            who = ctx.db.get("accounting.customers", invoice["customer_id"])
            rows.append({**invoice, "days_overdue": days, "customer_name": who["name"], "customer_email": who["email"]})
    return {"invoices": rows[:limit], "total": len(rows), "balance": ledger.total(r["balance"] for r in rows)}


def _sold(ctx: Context, from_day: str, to_day: str) -> list[tuple[Row, Row]]:
    """Issued invoices of a period with their lines."""
    _check_period(from_day, to_day)
    issued = {r["id"]: r for r in ctx.db.rows("accounting.invoices", f"{ledger.ISSUED} AND issue_day BETWEEN ? AND ?", (from_day, to_day))}
    return [(issued[line["invoice_id"]], line) for line in ctx.db.rows("accounting.invoice_lines") if line["invoice_id"] in issued]


@tool("accounting", read_only=True)
def sales_by_item(ctx: Context, from_day: FromDay, to_day: ToDay) -> Row:
    """What was sold in a period, by item: quantity and amount without tax, the most first; lines without an item together."""
    groups: dict[str, list[Row]] = {}
    for _, line in _sold(ctx, from_day, to_day):
        groups.setdefault(line["item_id"] or "", []).append(line)
    rows: list[Row] = []
    for key, lines in groups.items():
        item = ctx.db.get("accounting.items", key) if key else {"name": "(no item)", "sku": ""}
        quantity = float(sum(Decimal(str(line["quantity"])) for line in lines))
        amount = ledger.total(line["amount"] for line in lines)
        rows.append({"item_id": key or None, "name": item["name"], "sku": item["sku"], "quantity": quantity, "amount": amount})
    rows.sort(key=lambda r: (-r["amount"], r["name"]))
    return {"rows": rows, "total": ledger.total(r["amount"] for r in rows)}


@tool("accounting", read_only=True)
def sales_by_customer(ctx: Context, from_day: FromDay, to_day: ToDay) -> Row:
    """What was sold in a period, by customer: number of invoices and amount without tax, the most first."""
    groups: dict[str, list[tuple[str, float]]] = {}
    for invoice, line in _sold(ctx, from_day, to_day):
        groups.setdefault(invoice["customer_id"], []).append((invoice["id"], line["amount"]))
    rows = [
        {
            "customer_id": key,
            "name": ctx.db.get("accounting.customers", key)["name"],
            "invoices": len({i for i, _ in found}),
            "amount": ledger.total(a for _, a in found),
        }
        for key, found in groups.items()
    ]
    rows.sort(key=lambda r: (-r["amount"], r["name"]))
    return {"rows": rows, "total": ledger.total(r["amount"] for r in rows)}


@tool("accounting", read_only=True)
def expenses_by_vendor(ctx: Context, from_day: FromDay, to_day: ToDay) -> Row:
    """What vendors billed in a period (tax included, void bills left out): number of bills, total and what is still open, the most first."""
    _check_period(from_day, to_day)
    groups: dict[str, list[Row]] = {}
    for bill in ctx.db.rows("accounting.bills", "status != 'void' AND bill_day BETWEEN ? AND ?", (from_day, to_day)):
        groups.setdefault(bill["vendor_id"], []).append(bill)
    rows = []
    for key, bills in groups.items():
        sums = {"total": ledger.total(b["total"] for b in bills), "balance": ledger.total(b["balance"] for b in bills)}
        rows.append({"vendor_id": key, "name": ctx.db.get("accounting.vendors", key)["name"], "bills": len(bills), **sums})
    rows.sort(key=lambda r: (-r["total"], r["name"]))
    return {"rows": rows, "total": ledger.total(r["total"] for r in rows)}


@tool("accounting", read_only=True)
def cash_position(ctx: Context, days: Annotated[int, Meta(ge=0, le=366), "how far to look ahead"] = 30) -> Row:
    """Money received and paid so far (credits are no money), what is expected by a day (overdue included), and where that leads."""
    horizon = ledger.due_day(ctx.today, days)
    moved = ctx.db.rows("accounting.payments", "method != ? AND day <= ?", (ledger.CREDIT, ctx.today))
    received = ledger.total(p["amount"] for p in moved if p["kind"] == "received")
    paid = ledger.total(p["amount"] for p in moved if p["kind"] == "made")
    due = f"{ledger.ISSUED} AND balance > 0 AND due_day <= ?"
    coming = ledger.total(r["balance"] for r in ctx.db.rows("accounting.invoices", due, (horizon,)))
    going = ledger.total(r["balance"] for r in ctx.db.rows("accounting.bills", due, (horizon,)))
    now = ledger.total([received, -paid])
    return {
        "as_of": ctx.today, "received": received, "paid": paid, "net": now, "until": horizon, "expected_in": coming, "expected_out": going,
        "expected_net": ledger.total([now, coming, -going]),
    }  # fmt: skip
