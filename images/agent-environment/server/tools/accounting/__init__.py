"""The accounting server: customers, vendors, items; invoices and bills with their payments; reports. Sums are in the company's own currency."""

from __future__ import annotations

from typing import Annotated

from _server.store import Row
from msgspec import Meta

from ...lookup import Cursor, Email, Limit, Name, changes, has_words, refuse_if_referred, resolve
from ...registry import Context, page, tool
from ...store import ToolError
from . import bills, invoices, ledger, payments, reports
from .ledger import Price, Rate, Short

__all__ = ["bills", "invoices", "payments", "reports"]

CustomerId = Annotated[str, "id, name or e-mail address of the customer"]
VendorId = Annotated[str, "id, name or e-mail address of the vendor"]
Terms = Annotated[int, Meta(ge=0, le=3650)]
Days = Annotated[Terms, "days from an invoice's day to the day it is due"]


def _refuse_same_name(ctx: Context, table: str, name: str, but: str = "") -> None:
    taken = next((r for r in ctx.db.rows(table, "id != ?", (but,)) if r["name"].casefold() == name.casefold()), None)
    if taken:
        raise ToolError("conflict", f"{taken['id']} is called {taken['name']!r} already", "use that one, or tell the names apart")


def _with_balance(ctx: Context, party: Row, table: str, column: str) -> Row:
    """A customer or vendor with what is open and what of it is overdue."""
    issued = ctx.db.rows(table, f"{column} = ? AND {ledger.ISSUED} AND balance > 0", (party["id"],))
    overdue = [r["balance"] for r in issued if r["due_day"] < ctx.today]
    return {**party, "open_balance": ledger.total(r["balance"] for r in issued), "overdue_balance": ledger.total(overdue)}


@tool("accounting", read_only=True, aliases=("accounting_list_customers",))
def search_customers(
    ctx: Context,
    query: Annotated[str, "words that must all occur in name, e-mail, phone, address or notes"] = "",
    is_active: Annotated[bool | None, "only active, or only inactive ones"] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Row:
    """Find customers; each with its open and overdue balance."""
    rows = ctx.db.rows("accounting.customers", "? IS NULL OR is_active = ?", (is_active, is_active), order="name, id")
    found = [r for r in rows if has_words(query, r, ("name", "email", "phone", "address", "notes"))]
    return page([_with_balance(ctx, r, "accounting.invoices", "customer_id") for r in found], limit, cursor, "customers")


@tool("accounting", read_only=True)
def get_customer(ctx: Context, customer_id: CustomerId) -> Row:
    """A customer with its balance, its invoices, its payments and what of these is on no invoice yet (`unapplied`)."""
    customer = ledger.find_customer(ctx, customer_id)
    invoices = ctx.db.rows("accounting.invoices", "customer_id = ?", (customer["id"],), order="issue_day, number")
    payments = ctx.db.rows("accounting.payments", "customer_id = ?", (customer["id"],), order="day, id")
    unapplied = ledger.total(p["amount"] for p in payments if p["kind"] == "received" and p["invoice_id"] is None)
    found = _with_balance(ctx, customer, "accounting.invoices", "customer_id")
    return {"customer": found, "invoices": invoices, "payments": payments, "unapplied": unapplied}


@tool("accounting", aliases=("accounting_add_customer",))
def create_customer(
    ctx: Context,
    name: Annotated[Name, "the customer's name; no other may have it"],
    email: Annotated[Email, "where invoices go"],
    phone: Annotated[Short, "telephone number"] = "",
    address: Annotated[Short, "postal address"] = "",
    terms_days: Days = 30,
    notes: Annotated[Short, "anything worth knowing"] = "",
) -> Row:
    """Add a customer."""
    _refuse_same_name(ctx, "accounting.customers", name)
    return {"customer": ctx.db.insert("accounting.customers", name=name, email=email, phone=phone, address=address, terms_days=terms_days, notes=notes)}


@tool("accounting", idempotent=True)
def update_customer(
    ctx: Context,
    customer_id: CustomerId,
    name: Annotated[Name | None, "the customer's name"] = None,
    email: Annotated[Email | None, "where invoices go"] = None,
    phone: Annotated[Short | None, "telephone number"] = None,
    address: Annotated[Short | None, "postal address"] = None,
    terms_days: Annotated[Terms | None, "days from an invoice's day to the day it is due"] = None,
    is_active: Annotated[bool | None, "inactive customers get no new invoices"] = None,
    notes: Annotated[Short | None, "anything worth knowing; replaces the notes that are there"] = None,
) -> Row:
    """Change what is given of a customer."""
    customer = ledger.find_customer(ctx, customer_id)
    if name:
        _refuse_same_name(ctx, "accounting.customers", name, customer["id"])
    given = changes(name=name, email=email, phone=phone, address=address, terms_days=terms_days, is_active=is_active, notes=notes)
    return {"customer": ctx.db.update("accounting.customers", customer["id"], **given)}


@tool("accounting", destructive=True)
def delete_customer(ctx: Context, customer_id: CustomerId) -> Row:
    """Delete a customer without invoices and payments; others are refused (make them inactive)."""
    customer = ledger.find_customer(ctx, customer_id)
    where = ("customer_id = ?", [customer["id"]])
    refuse_if_referred(ctx, f"customer {customer['id']}", {"accounting.invoices": where, "accounting.payments": where})
    ctx.db.delete("accounting.customers", "id = ?", (customer["id"],))
    return {"deleted": customer}


@tool("accounting", read_only=True, aliases=("accounting_list_vendors",))
def search_vendors(
    ctx: Context,
    query: Annotated[str, "words that must all occur in name, e-mail, phone, address or notes"] = "",
    is_active: Annotated[bool | None, "only active, or only inactive ones"] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Row:
    """Find vendors; each with what we owe them and what of it is overdue."""
    rows = ctx.db.rows("accounting.vendors", "? IS NULL OR is_active = ?", (is_active, is_active), order="name, id")
    found = [r for r in rows if has_words(query, r, ("name", "email", "phone", "address", "notes"))]
    return page([_with_balance(ctx, r, "accounting.bills", "vendor_id") for r in found], limit, cursor, "vendors")


@tool("accounting", aliases=("accounting_add_vendor",))
def create_vendor(
    ctx: Context,
    name: Annotated[Name, "the vendor's name; no other may have it"],
    email: Annotated[Email, "where to write"],
    phone: Annotated[Short, "telephone number"] = "",
    address: Annotated[Short, "postal address"] = "",
    terms_days: Days = 30,
    notes: Annotated[Short, "anything worth knowing"] = "",
) -> Row:
    """Add a vendor."""
    _refuse_same_name(ctx, "accounting.vendors", name)
    return {"vendor": ctx.db.insert("accounting.vendors", name=name, email=email, phone=phone, address=address, terms_days=terms_days, notes=notes)}


@tool("accounting", idempotent=True)
def update_vendor(
    ctx: Context,
    vendor_id: VendorId,
    email: Annotated[Email | None, "where to write"] = None,
    phone: Annotated[Short | None, "telephone number"] = None,
    address: Annotated[Short | None, "postal address"] = None,
    terms_days: Annotated[Terms | None, "days from a bill's day to the day it is due"] = None,
    is_active: Annotated[bool | None, "inactive vendors get no new bills"] = None,
    notes: Annotated[Short | None, "anything worth knowing; replaces the notes that are there"] = None,
) -> Row:
    """Change what is given of a vendor."""
    vendor = ledger.find_vendor(ctx, vendor_id)
    given = changes(email=email, phone=phone, address=address, terms_days=terms_days, is_active=is_active, notes=notes)
    return {"vendor": ctx.db.update("accounting.vendors", vendor["id"], **given)}


@tool("accounting", read_only=True, aliases=("accounting_search_items",))
def list_items(
    ctx: Context,
    query: Annotated[str, "words that must all occur in name, SKU or description"] = "",
    is_active: Annotated[bool | None, "only active, or only inactive ones"] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Row:
    """What the company sells, with prices (without tax) and tax rates (fractions)."""
    rows = ctx.db.rows("accounting.items", "? IS NULL OR is_active = ?", (is_active, is_active), order="name, id")
    return page([r for r in rows if has_words(query, r, ("name", "sku", "description"))], limit, cursor, "items")


@tool("accounting")
def create_item(
    ctx: Context,
    name: Annotated[Name, "what it is called"],
    sku: Annotated[str, "short code; no other item may have it"],
    unit_price: Annotated[Price, "price of one, without tax"],
    tax_rate: Annotated[Rate, "as a fraction: 0.2 is 20 percent"] = 0.0,
    description: Annotated[Short, "more about it"] = "",
) -> Row:
    """Add an item to sell."""
    if taken := ctx.db.first("accounting.items", "lower(sku) = ?", (sku.lower(),)):
        raise ToolError("conflict", f"{taken['name']} ({taken['id']}) has the SKU {sku}", "change that item, or choose another SKU")
    return {"item": ctx.db.insert("accounting.items", name=name, sku=sku, unit_price=unit_price, tax_rate=tax_rate, description=description)}


@tool("accounting", idempotent=True)
def update_item(
    ctx: Context,
    item_id: Annotated[str, "id, SKU or name of the item"],
    name: Annotated[Name | None, "what it is called"] = None,
    unit_price: Annotated[Price | None, "price of one, without tax"] = None,
    tax_rate: Annotated[Rate | None, "as a fraction: 0.2 is 20 percent"] = None,
    description: Annotated[Short | None, "more about it"] = None,
    is_active: Annotated[bool | None, "inactive items cannot be put on invoices"] = None,
) -> Row:
    """Change what is given of an item; invoices that have it keep their prices."""
    item = resolve(ctx, "accounting.items", item_id, "sku", "name")
    given = changes(name=name, unit_price=unit_price, tax_rate=tax_rate, description=description, is_active=is_active)
    return {"item": ctx.db.update("accounting.items", item["id"], **given)}
