"""Money arithmetic and the rows of invoices and bills: lines, sums, numbers, balances. Decimal inside, rounded to cents."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, timedelta
from decimal import Decimal
from typing import Annotated

import msgspec
from _server.store import Row
from msgspec import Meta

from ...lookup import cents, resolve
from ...registry import Context
from ...store import ToolError

CREDIT = "credit note"
ISSUED = "status NOT IN ('draft', 'void')"
Amount = Annotated[float, Meta(gt=0, le=1_000_000_000)]
Quantity = Annotated[float, Meta(gt=0, le=1_000_000)]
Rate = Annotated[float, Meta(ge=0, le=1)]
Price = Annotated[float, Meta(ge=-1_000_000_000, le=1_000_000_000)]
Short = Annotated[str, Meta(max_length=2000)]


class InvoiceLine(msgspec.Struct, forbid_unknown_fields=True):
    """One line of an invoice."""

    item_id: Annotated[str | None, Meta(description="id, SKU or name of an item: its description, price and tax rate hold where none is given")] = None
    description: Annotated[str | None, Meta(description="what is charged; needed without an item")] = None
    quantity: Annotated[Quantity, Meta(description="how many")] = 1.0
    unit_price: Annotated[Price | None, Meta(description="price of one without tax, negative for a discount; needed without an item")] = None
    tax_rate: Annotated[Rate | None, Meta(description="as a fraction: 0.2 is 20 percent")] = None


class BillLine(msgspec.Struct, forbid_unknown_fields=True):
    """One line of a bill."""

    account: Annotated[str, Meta(min_length=1, max_length=100, description="the account it is booked to, like Rent")]
    description: Annotated[str, Meta(description="what is charged")]
    unit_price: Annotated[Price, Meta(description="price of one")]
    quantity: Annotated[Quantity, Meta(description="how many")] = 1.0


def find_customer(ctx: Context, key: str) -> Row:
    """A customer by id, name or e-mail address."""
    return resolve(ctx, "accounting.customers", key, "name", "email")


def find_vendor(ctx: Context, key: str) -> Row:
    """A vendor by id, name or e-mail address."""
    return resolve(ctx, "accounting.vendors", key, "name", "email")


def find_invoice(ctx: Context, key: str) -> Row:
    """An invoice by id or number."""
    return resolve(ctx, "accounting.invoices", key, "number")


def find_bill(ctx: Context, key: str) -> Row:
    """A bill by id or number."""
    return resolve(ctx, "accounting.bills", key, "number")


def times(one: float, other: float) -> float:
    """A product rounded to cents."""
    return cents(Decimal(str(one)) * Decimal(str(other)))


def total(amounts: Iterable[float]) -> float:
    """A sum without the errors of binary fractions."""
    return cents(sum((Decimal(str(a)) for a in amounts), Decimal(0)))


def priced(ctx: Context, lines: Iterable[InvoiceLine]) -> list[Row]:
    """The columns of invoice lines, completed from their items; ToolError invalid or conflict."""
    rows = []
    for number, line in enumerate(lines):
        item = resolve(ctx, "accounting.items", line.item_id, "sku", "name") if line.item_id else None
        if item and not item["is_active"]:
            raise ToolError("conflict", f"lines[{number}]: item {item['name']!r} is no longer sold", "use another item, or a line without one")
        known = item or {"id": None, "name": None, "unit_price": None, "tax_rate": 0.0}
        description = line.description or known["name"]
        price = known["unit_price"] if line.unit_price is None else line.unit_price
        if not description or price is None:
            raise ToolError("invalid", f"lines[{number}] has no item_id, so it needs a description and a unit_price")
        rate = known["tax_rate"] if line.tax_rate is None else line.tax_rate
        rows.append({
            "item_id": known["id"], "description": description, "quantity": line.quantity, "unit_price": price, "tax_rate": rate,
            "amount": times(line.quantity, price),
        })  # fmt: skip
    return rows


def sums(lines: list[Row]) -> Row:
    """Subtotal, tax (each line's rounded to cents) and total of invoice lines; ToolError invalid when nothing is to be paid."""
    subtotal = total(line["amount"] for line in lines)
    tax = total(times(line["amount"], line["tax_rate"]) for line in lines)
    if total([subtotal, tax]) <= 0:
        raise ToolError(
            "invalid", f"the invoice comes to {total([subtotal, tax])}", "it must come to more than zero; use accounting_credit_invoice for a credit"
        )
    return {"subtotal": subtotal, "tax": tax, "total": total([subtotal, tax])}


def next_number(ctx: Context) -> str:
    """The invoice number after the highest one of the series that was used last."""
    numbers = [r["number"] for r in ctx.db.rows("accounting.invoices", order="issue_day, number")]
    split = [m.groups() for n in numbers if (m := re.match(r"^(.*?)(\d+)$", n))]
    if not split:
        return "INV-1001"
    prefix = split[-1][0]
    digits = max((d for p, d in split if p == prefix), key=int)
    return f"{prefix}{int(digits) + 1:0{len(digits)}d}"


def due_day(start: str, days: int) -> str:
    """The day so many days later."""
    return (date.fromisoformat(start) + timedelta(days=days)).isoformat()


def days_between(earlier: str, later: str) -> int:
    """How many days from one day to another."""
    return (date.fromisoformat(later) - date.fromisoformat(earlier)).days


def settle(ctx: Context, table: str, row: Row, amount: float) -> Row:
    """An invoice or bill with `amount` less to be paid (negative: more), its status following; ToolError conflict or invalid."""
    left = total([row["balance"], -amount])
    if left < 0:
        raise ToolError("invalid", f"{amount:.2f} is more than the balance of {row['number']}, {row['balance']:.2f}", "pay the balance at the most")
    unpaid = "sent" if table == "accounting.invoices" else "open"
    status = "paid" if left == 0 else ("partial" if left < row["total"] else unpaid)
    return ctx.db.update(table, row["id"], balance=left, status=status)


def refuse_status(row: Row, verb: str, *refused: str) -> None:
    """ToolError conflict when the row's status is one of `refused`."""
    if row["status"] in refused:
        raise ToolError("conflict", f"{row['number']} ({row['id']}) is {row['status']} and cannot be {verb}")


def past_day(ctx: Context, day: str | None, what: str) -> str:
    """The day given or today; ToolError invalid for one still to come."""
    if day and day > ctx.today:
        raise ToolError("invalid", f"{what} {day} is still to come; today is {ctx.today}")
    return day or ctx.today


def balance_on(ctx: Context, row: Row, day: str, column: str) -> float:
    """What was open of an invoice or bill at the end of a day; `column` is invoice_id or bill_id."""
    if day >= ctx.today:
        return float(row["balance"])
    paid = ctx.db.rows("accounting.payments", f"{column} = ? AND day <= ?", (row["id"], day))
    return total([row["total"], *(-p["amount"] for p in paid)])
