"""Accounting's own rules: decimal sums, number series, states that follow payments, aging, profit and loss, doubles."""

from __future__ import annotations

from typing import Any

import pytest
from server.registry import Context
from server.store import ToolError

ME = "dana@harbor.example"


@pytest.fixture
def books(ctx: Context, call: Any) -> Context:
    """Two customers, two vendors, two items; an invoice TC-0099 of January with a part payment, a bill of February."""
    db = ctx.db
    db.insert("accounting.customers", name="Kirkgate Coffee", email="ap@kirkgate.example", terms_days=14)
    db.insert("accounting.customers", name="Holbeck Bikes", email="gaz@holbeck.example")
    db.insert("accounting.vendors", name="Aire IT Support", email="billing@aireit.example")
    db.insert("accounting.vendors", name="Aire IT Supplies", email="sales@aitsupplies.example")
    db.insert("accounting.items", name="Bookkeeping hour", sku="BK-HR", unit_price=38.0, tax_rate=0.2)
    db.insert("accounting.items", name="Paper ledger", sku="OLD", unit_price=10.0, is_active=False)
    db.insert(
        "accounting.invoices", number="TC-0099", customer_id="cus_1", issue_day="2026-01-05", due_day="2026-01-19", status="partial", subtotal=100.0,
        tax=20.0, total=120.0, balance=70.0,
    )  # fmt: skip
    db.insert("accounting.invoice_lines", invoice_id="inv_1", item_id="itm_1", description="January", quantity=2.0, unit_price=50.0, tax_rate=0.2, amount=100.0)
    db.insert("accounting.payments", kind="received", customer_id="cus_1", invoice_id="inv_1", amount=50.0, day="2026-02-20", reference="TC99")
    _bill(call, ctx, "AIS-2214", 300.0, vendor="ven_1", day="2026-02-10")
    return ctx


def _bill(call: Any, ctx: Context, number: str, amount: float, vendor: str = "ven_1", day: str = "2026-02-10", account: str = "IT") -> Any:
    lines = [{"account": account, "description": "Service", "unit_price": amount}, {"account": "Input VAT", "description": "VAT", "unit_price": 60.0}]
    return call(ctx, "accounting_create_bill", vendor_id=vendor, number=number, bill_day=day, lines=lines)["bill"]


def _invoice(call: Any, ctx: Context, customer: str = "Holbeck Bikes", **more: Any) -> Any:
    return call(ctx, "accounting_create_invoice", customer_id=customer, lines=[{"item_id": "BK-HR", "quantity": 10}], **more)["invoice"]


def _refused(call: Any, ctx: Context, tool: str, /, **args: Any) -> ToolError:
    with pytest.raises(ToolError) as caught:
        call(ctx, tool, **args)
    return caught.value


def test_sums_are_decimal_and_tax_is_rounded_line_by_line(books: Context, call: Any) -> None:
    lines = [
        {"item_id": "BK-HR", "quantity": 0.1},
        {"description": "Postage", "quantity": 3, "unit_price": 1.1, "tax_rate": 0.075},
        {"description": "Discount", "unit_price": -0.005},
    ]
    made = call(books, "accounting_create_invoice", customer_id="ap@kirkgate.example", lines=lines)
    assert [line["amount"] for line in made["lines"]] == [3.8, 3.3, -0.01]
    invoice = made["invoice"]
    assert (invoice["subtotal"], invoice["tax"], invoice["total"], invoice["balance"]) == (7.09, 1.01, 8.1, 8.1)
    assert (invoice["number"], invoice["status"], invoice["issue_day"], invoice["due_day"]) == ("TC-0100", "draft", "2026-03-09", "2026-03-23")


def test_lines_that_cannot_be_sold(books: Context, call: Any) -> None:
    free = [{"description": "Nothing", "unit_price": 0}]
    assert _refused(call, books, "accounting_create_invoice", customer_id="cus_1", lines=free).type == "invalid"
    assert "lines[0]" in _refused(call, books, "accounting_create_invoice", customer_id="cus_1", lines=[{"quantity": 2}]).message
    assert _refused(call, books, "accounting_create_invoice", customer_id="cus_1", lines=[{"item_id": "OLD"}]).type == "conflict"
    assert "itm_1" in _refused(call, books, "accounting_create_invoice", customer_id="cus_1", lines=[{"item_id": "Bookkeping hour"}]).hint
    call(books, "accounting_update_customer", customer_id="cus_2", is_active=False)
    assert _refused(call, books, "accounting_create_invoice", customer_id="cus_2", lines=[{"item_id": "BK-HR"}]).type == "conflict"
    assert books.db.count("accounting.invoices") == 1


def test_sending_mails_the_customer_with_the_invoice_attached(books: Context, call: Any) -> None:
    invoice = _invoice(call, books)
    assert _refused(call, books, "accounting_record_payment", invoice_id=invoice["number"], amount=1).type == "conflict"
    sent = call(books, "accounting_send_invoice", invoice_id=invoice["number"])
    assert (sent["invoice"]["status"], sent["message"]["to"], sent["message"]["subject"]) == ("sent", ["gaz@holbeck.example"], "Invoice TC-0100")
    attached = books.db.rows("email.attachments")
    assert [a["filename"] for a in attached] == ["TC-0100.txt"]
    assert "Total: 456.00" in attached[0]["content"]


def test_payments_move_balance_and_status(books: Context, call: Any) -> None:
    over = _refused(call, books, "accounting_record_payment", invoice_id="TC-0099", amount=70.01)
    assert (over.type, "70.00" in over.message) == ("invalid", True)
    part = call(books, "accounting_record_payment", invoice_id="tc-0099", amount=0.1, day="2026-03-01")
    assert (part["invoice"]["status"], part["invoice"]["balance"]) == ("partial", 69.9)
    rest = call(books, "accounting_record_payment", invoice_id="TC-0099", amount=69.9)
    assert (rest["invoice"]["status"], rest["invoice"]["balance"], rest["payment"]["day"]) == ("paid", 0.0, "2026-03-09")
    assert _refused(call, books, "accounting_record_payment", invoice_id="TC-0099", amount=1).type == "conflict"
    assert _refused(call, books, "accounting_record_payment", invoice_id="TC-0099", amount=1, day="2026-03-10").type in ("conflict", "invalid")
    undone = call(books, "accounting_reverse_payment", payment_id=rest["payment"]["id"])
    assert (undone["invoice"]["status"], undone["invoice"]["balance"]) == ("partial", 69.9)


def test_void_and_credit(books: Context, call: Any) -> None:
    paid = _refused(call, books, "accounting_void_invoice", invoice_id="TC-0099", reason="x")
    assert (paid.type, "pay_1" in paid.message) == ("conflict", True)
    invoice = _invoice(call, books)
    call(books, "accounting_send_invoice", invoice_id=invoice["id"])
    credited = call(books, "accounting_credit_invoice", invoice_id=invoice["id"], amount=56, reason="Late delivery")
    assert (credited["invoice"]["balance"], credited["invoice"]["status"]) == (400.0, "partial")
    assert (credited["credit"]["method"], credited["credit"]["reference"]) == ("credit note", "CN-TC-0100")
    assert call(books, "accounting_cash_position")["received"] == 50.0
    other = _invoice(call, books, memo="Second")
    voided = call(books, "accounting_void_invoice", invoice_id=other["id"], reason="Wrong customer")["invoice"]
    assert (voided["status"], voided["balance"], voided["memo"]) == ("void", 0.0, "Second; Void: Wrong customer")
    assert _refused(call, books, "accounting_void_invoice", invoice_id=other["id"], reason="x").type == "conflict"


def test_only_drafts_get_other_lines(books: Context, call: Any) -> None:
    invoice = _invoice(call, books)
    changed = call(
        books, "accounting_update_invoice", invoice_id=invoice["id"], lines=[{"item_id": "itm_1", "quantity": 1}, {"item_id": "itm_1", "quantity": 2}]
    )
    assert (changed["invoice"]["total"], [line["quantity"] for line in changed["lines"]]) == (136.8, [1.0, 2.0])
    call(books, "accounting_send_invoice", invoice_id=invoice["id"])
    assert _refused(call, books, "accounting_update_invoice", invoice_id=invoice["id"], lines=[{"item_id": "itm_1"}]).type == "conflict"
    assert call(books, "accounting_update_invoice", invoice_id=invoice["id"], due_day="2026-05-01")["invoice"]["due_day"] == "2026-05-01"


def test_bills_are_entered_once_and_paid(books: Context, call: Any) -> None:
    line = {"account": "IT", "description": "x", "unit_price": 1}
    again = _refused(call, books, "accounting_create_bill", vendor_id="Aire IT Support", number="ais 2214", lines=[line])
    assert (again.type, "bil_1" in again.message) == ("conflict", True)
    assert _bill(call, books, "AIS-2214", 5.0, vendor="Aire IT Supplies")["id"] == "bil_2"
    paid = call(books, "accounting_pay_bill", bill_id="bil_1", amount=100)
    assert (paid["bill"]["balance"], paid["bill"]["status"], paid["payment"]["vendor_id"]) == (260.0, "partial", "ven_1")
    assert call(books, "accounting_pay_bill", bill_id="bil_1")["payment"]["amount"] == 260.0
    assert _refused(call, books, "accounting_void_bill", bill_id="bil_1", reason="x").type == "conflict"
    ambiguous = _refused(call, books, "accounting_get_bill", bill_id="AIS-2214")
    assert (ambiguous.type, "bil_1" in ambiguous.hint) == ("conflict", True)


def test_duplicates(books: Context, call: Any) -> None:
    books.db.insert("accounting.bills", number="AIS2214", vendor_id="ven_1", bill_day="2026-02-20", due_day="2026-03-20", total=360.0, balance=360.0)
    _bill(call, books, "11873", 300.0, vendor="ven_2", day="2026-02-11")
    pairs = call(books, "accounting_find_duplicate_bills")["pairs"]
    assert [([b["id"] for b in p["bills"]], p["reasons"]) for p in pairs] == [(["bil_1", "bil_2"], ["same number", "same total"])]
    call(books, "accounting_record_payment", invoice_id="TC-0099", amount=50, day="2026-02-25", reference="tc99")
    doubled = call(books, "accounting_find_duplicate_payments")["pairs"]
    assert [([p["id"] for p in d["payments"]], d["reasons"]) for d in doubled] == [
        (["pay_1", "pay_2"], ["same party and amount", "same reference", "same invoice or bill"])
    ]
    assert call(books, "accounting_find_duplicate_payments", days=4)["total"] == 0
    call(books, "accounting_void_bill", bill_id="bil_2", reason="Entered twice")
    assert call(books, "accounting_find_duplicate_bills")["total"] == 0


def test_aging_by_days_past_due_now_and_then(books: Context, call: Any) -> None:
    report = call(books, "accounting_aging_report")
    assert report["totals"] == {"current": 0.0, "1-30": 0.0, "31-60": 70.0, "61-90": 0.0, "over 90": 0.0, "total": 70.0}
    assert report["rows"][0]["name"] == "Kirkgate Coffee"
    before = call(books, "accounting_aging_report", as_of="2026-02-18")
    assert (before["totals"]["1-30"], before["totals"]["total"]) == (120.0, 120.0)
    assert call(books, "accounting_aging_report", kind="payable")["totals"]["current"] == 360.0
    assert call(books, "accounting_aging_report", as_of="2026-01-01")["rows"] == []


def test_profit_and_loss_by_month(books: Context, call: Any) -> None:
    invoice = _invoice(call, books, issue_day="2026-03-02")
    report = call(books, "accounting_profit_and_loss", from_day="2026-01-01", to_day="2026-03-31")
    assert (report["revenue"], report["expenses"], report["net"], report["recoverable_tax"]) == (100.0, 300.0, -200.0, 60.0)
    call(books, "accounting_send_invoice", invoice_id=invoice["id"])
    call(books, "accounting_credit_invoice", invoice_id=invoice["id"], amount=12, reason="Goodwill")
    months = call(books, "accounting_profit_and_loss", from_day="2026-01-01", to_day="2026-03-31")["months"]
    assert months == [
        {"month": "2026-01", "revenue": 100.0, "credits": 0.0, "expenses": 0.0, "net": 100.0},
        {"month": "2026-02", "revenue": 0.0, "credits": 0.0, "expenses": 300.0, "net": -300.0},
        {"month": "2026-03", "revenue": 380.0, "credits": 10.0, "expenses": 0.0, "net": 370.0},
    ]
    assert _refused(call, books, "accounting_profit_and_loss", from_day="2026-02-01", to_day="2026-01-01").type == "invalid"


def test_a_statement_runs_from_opening_to_closing(books: Context, call: Any) -> None:
    invoice = _invoice(call, books, customer="Kirkgate Coffee", issue_day="2026-03-01")
    call(books, "accounting_send_invoice", invoice_id=invoice["id"])
    statement = call(books, "accounting_customer_statement", customer_id="Kirkgate Coffee", from_day="2026-02-01")
    assert statement["opening"] == 120.0
    assert [(e["kind"], e["amount"], e["balance"]) for e in statement["entries"]] == [("payment", -50.0, 70.0), ("invoice", 456.0, 526.0)]
    assert statement["closing"] == call(books, "accounting_get_customer", customer_id="cus_1")["customer"]["open_balance"] == 526.0


def test_overdue_invoices_and_reminders(books: Context, call: Any) -> None:
    invoice = _invoice(call, books)
    call(books, "accounting_send_invoice", invoice_id=invoice["id"])
    overdue = call(books, "accounting_overdue_invoices")
    assert [(i["number"], i["days_overdue"], i["customer_email"]) for i in overdue["invoices"]] == [("TC-0099", 49, "ap@kirkgate.example")]
    assert call(books, "accounting_overdue_invoices", min_days=50)["total"] == 0
    reminded = call(books, "accounting_send_reminder", invoice_id="TC-0099", message="Please look.")
    assert (reminded["days_overdue"], reminded["message"]["body"]) == (49, "Please look.")
    assert _refused(call, books, "accounting_send_reminder", invoice_id=invoice["id"]).type == "conflict"


def test_sales_and_cash(books: Context, call: Any) -> None:
    invoice = _invoice(call, books, issue_day="2026-03-03")
    period = {"from_day": "2026-01-01", "to_day": "2026-12-31"}
    assert call(books, "accounting_sales_by_item", **period)["total"] == 100.0
    call(books, "accounting_send_invoice", invoice_id=invoice["id"])
    assert call(books, "accounting_sales_by_item", **period)["rows"] == [
        {"item_id": "itm_1", "name": "Bookkeeping hour", "sku": "BK-HR", "quantity": 12.0, "amount": 480.0}
    ]
    assert [(r["name"], r["amount"]) for r in call(books, "accounting_sales_by_customer", **period)["rows"]] == [
        ("Holbeck Bikes", 380.0),
        ("Kirkgate Coffee", 100.0),
    ]
    cash = call(books, "accounting_cash_position", days=14)
    assert (cash["net"], cash["expected_in"], cash["expected_out"], cash["expected_net"]) == (50.0, 70.0, 360.0, -240.0)
    assert call(books, "accounting_expenses_by_vendor", **period)["total"] == 360.0


def test_integrity_near_names_and_paging(books: Context, call: Any) -> None:
    error = _refused(call, books, "accounting_delete_customer", customer_id="cus_1")
    assert (error.type, "accounting.invoices: inv_1" in error.message) == ("conflict", True)
    assert call(books, "accounting_delete_customer", customer_id="cus_2")["deleted"]["name"] == "Holbeck Bikes"
    assert "inv_1 (TC-0099)" in _refused(call, books, "accounting_get_invoice", invoice_id="TC-0098").hint
    assert "ven_1 (Aire IT Support)" in _refused(call, books, "accounting_list_bills", vendor_id="Aire IT").hint
    first = call(books, "accounting_search_vendors", limit=1)
    second = call(books, "accounting_search_vendors", limit=1, cursor=first["next_cursor"])
    assert [first["vendors"][0]["name"], second["vendors"][0]["name"], second["next_cursor"]] == ["Aire IT Supplies", "Aire IT Support", None]
    assert call(books, "accounting_list_invoices", status=["draft", "void"])["total"] == 0
    assert call(books, "accounting_list_payments", amount=50, kind="received")["sum"] == 50.0
    assert _refused(call, books, "accounting_create_vendor", name="aire it support", email="a@b.example").type == "conflict"


def test_money_on_no_invoice_is_shown_and_applied(books: Context, call: Any) -> None:
    books.db.insert("accounting.payments", kind="received", customer_id="cus_1", amount=70.0, day="2026-03-08", reference="KCR")
    assert call(books, "accounting_get_customer", customer_id="cus_1")["unapplied"] == 70.0
    invoice = _invoice(call, books)
    call(books, "accounting_send_invoice", invoice_id=invoice["id"])
    assert _refused(call, books, "accounting_apply_payment", payment_id="pay_2", invoice_id=invoice["id"]).type == "invalid"
    assert _refused(call, books, "accounting_apply_payment", payment_id="pay_1", invoice_id="TC-0099").type == "conflict"
    applied = call(books, "accounting_apply_payment", payment_id="pay_2", invoice_id="TC-0099")
    assert (applied["payment"]["invoice_id"], applied["invoice"]["status"], applied["invoice"]["balance"]) == ("inv_1", "paid", 0.0)
    assert call(books, "accounting_get_customer", customer_id="cus_1")["unapplied"] == 0.0
