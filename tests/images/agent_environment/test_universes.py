"""The universes themselves: large enough, written by hand, and agreeing with themselves across servers."""

# ruff: noqa: E501 - a case is easier to read in one row
from __future__ import annotations

import difflib
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from server import rowcheck, universe
from server.tables import SERVERS

Rows = dict[str, list[dict[str, Any]]]
ADDRESS = re.compile(r"[\w.+-]+@[\w.-]+\.\w+")
DIRECTORIES = (("slack", "users"), ("contacts", "people"), ("crm", "contacts"), ("accounting", "customers"), ("accounting", "vendors"))
PEOPLE = {
    "calendar.calendars": ("owner",), "calendar.events": ("organizer",), "calendar.attendees": ("email",), "crm.companies": ("owner",), "crm.contacts": ("owner",),
    "crm.deals": ("owner",), "crm.activities": ("owner",), "projects.projects": ("lead",), "projects.issues": ("assignee", "reporter"), "projects.comments": ("author",),
    "projects.worklogs": ("author",), "documents.documents": ("owner",), "documents.revisions": ("author",), "documents.comments": ("author",), "documents.shares": ("email",),
}  # fmt: skip
# Texts that agree on purpose: a message's subject in its thread, a document's present text in its last revision.
COPIES = {("email.threads", "subject"), ("email.messages", "subject"), ("documents.revisions", "body"), ("documents.revisions", "title")}
LIKENESS = 0.8


@pytest.fixture(scope="module", params=universe.names())
def checked(request: pytest.FixtureRequest) -> rowcheck.Checked:
    return rowcheck.check(universe.FOLDER / request.param)


def test_there_are_four() -> None:
    assert universe.names() == ["accountants-office", "clinic-front-desk", "sales-team", "software-team"]


def test_no_problems(checked: rowcheck.Checked) -> None:
    assert [str(problem) for problem in checked.problems] == []


def test_at_least_400_rows_over_every_server(checked: rowcheck.Checked) -> None:
    assert sum(map(len, checked.rows.values())) >= 400
    empty = [f"{server}.{name}" for server, tables in SERVERS.items() for name in tables if not checked.rows.get(f"{server}.{name}")]
    assert len(empty) <= 2, empty


def test_no_text_is_another_with_a_name_or_number_changed(checked: rowcheck.Checked) -> None:
    like = [pair for key, column, texts in _columns(checked.rows) if (key, column) not in COPIES for pair in _like(key, column, texts)]
    assert not like, "\n".join(like)


def _columns(rows: Rows) -> Iterator[tuple[str, str, dict[str, str]]]:
    for key, found in rows.items():
        server, _, table = key.partition(".")
        for column in (c.name for c in SERVERS[server][table].columns.values() if c.type == "text" and not c.ref):
            yield key, column, {row["id"]: row[column] for row in found if isinstance(row[column], str) and len(row[column]) >= 25}


def _like(key: str, column: str, texts: dict[str, str]) -> Iterator[str]:
    for (one, a), (other, b) in itertools.combinations(texts.items(), 2):
        if " " not in a or " " not in b:
            continue  # an address, a path or a rule of recurrence: no text that somebody wrote
        matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
        if matcher.real_quick_ratio() > LIKENESS and matcher.quick_ratio() > LIKENESS and (ratio := matcher.ratio()) > LIKENESS:
            yield f"{key}.{column}: {one} and {other} are alike by {ratio:.2f}: {a[:60]!r}, {b[:60]!r}"


def _known(rows: Rows) -> set[str]:
    known = {row["email"].lower() for server, table in DIRECTORIES for row in rows.get(f"{server}.{table}", [])}
    return known | {row["owner"].lower() for row in rows["calendar.calendars"] if not row["is_primary"]}


def test_everybody_is_known(checked: rowcheck.Checked) -> None:
    known = _known(checked.rows) | {checked.head["user"]["email"].lower()}
    strangers = {
        f"{key}.{column}: {row['id']}: {row[column]}"
        for key, columns in PEOPLE.items()
        for column in columns
        for row in checked.rows.get(key, [])
        if row[column] and row[column].lower() not in known
    }
    assert not strangers, "\n".join(sorted(strangers))


def test_mails_are_between_known_people(checked: rowcheck.Checked) -> None:
    known = _known(checked.rows) | {checked.head["user"]["email"].lower()}
    strangers = [
        f"{row['id']}: {address}"
        for row in checked.rows["email.messages"]
        if row["folder"] != "spam"
        for address in (row["from_address"], *row["to"], *row["cc"], *row["bcc"])
        if address.lower() not in known
    ]
    # A mailbox also has newsletters, portals and lists that nobody keeps as a person.
    assert len(strangers) <= len(checked.rows["email.messages"]) * 0.4, "\n".join(strangers)


def test_only_example_domains(checked: rowcheck.Checked) -> None:
    found = {address for rows in checked.rows.values() for row in rows for value in row.values() for address in ADDRESS.findall(str(value))}
    assert {address for address in found if not address.lower().endswith(".example")} == set()


def test_replies_are_in_their_thread(checked: rowcheck.Checked) -> None:
    messages = {row["id"]: row for row in checked.rows["email.messages"]}
    for row in messages.values():
        if row["in_reply_to"]:
            assert messages[row["in_reply_to"]]["thread_id"] == row["thread_id"], row["id"]
            assert not row["sent_at"] or messages[row["in_reply_to"]]["sent_at"] < row["sent_at"], row["id"]


def test_money_adds_up(checked: rowcheck.Checked) -> None:
    rows = checked.rows
    paid: dict[str, float] = defaultdict(float)
    for payment in rows["accounting.payments"]:
        paid[payment["invoice_id"] or payment["bill_id"] or ""] += payment["amount"]
    wrong = [*_wrong_invoices(rows, paid), *_wrong_bills(rows, paid)]
    assert not wrong, "\n".join(wrong)


def _wrong_invoices(rows: Rows, paid: dict[str, float]) -> Iterator[str]:
    lines: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in rows["accounting.invoice_lines"]:
        lines[line["invoice_id"]].append(line)
        if not same(line["amount"], line["quantity"] * line["unit_price"]):
            yield f"{line['id']}: amount"
    for invoice in rows["accounting.invoices"]:
        name, found = invoice["id"], lines[invoice["id"]]
        if not same(invoice["subtotal"], sum(line["amount"] for line in found)):
            yield f"{name}: subtotal {invoice['subtotal']} is not the sum of its lines {sum(line['amount'] for line in found)}"
        if not same(invoice["tax"], sum(line["amount"] * line["tax_rate"] for line in found), 0.011):
            yield f"{name}: tax"
        if not same(invoice["total"], invoice["subtotal"] + invoice["tax"]):
            yield f"{name}: total"
        open_amount = 0 if invoice["status"] == "void" else invoice["total"] - paid[name]
        if not same(invoice["balance"], open_amount):
            yield f"{name}: balance {invoice['balance']}, {open_amount} is open"
        if invoice["status"] in ("partial", "paid") and (invoice["balance"] == 0) != (invoice["status"] == "paid"):
            yield f"{name}: status"


def _wrong_bills(rows: Rows, paid: dict[str, float]) -> Iterator[str]:
    lines: dict[str, float] = defaultdict(float)
    for line in rows["accounting.bill_lines"]:
        lines[line["bill_id"]] += line["amount"]
    for bill in rows["accounting.bills"]:
        if not same(bill["total"], lines[bill["id"]]):
            yield f"{bill['id']}: total {bill['total']} is not the sum of its lines {lines[bill['id']]}"
        open_amount = 0 if bill["status"] == "void" else bill["total"] - paid[bill["id"]]
        if not same(bill["balance"], open_amount):
            yield f"{bill['id']}: balance {bill['balance']}, {open_amount} is open"


def same(a: float, b: float, within: float = 0.005) -> bool:
    return abs(a - b) <= within


def test_enumerated_values_are_those_of_the_readme() -> None:
    from server.tables import VALUES

    text = (universe.FOLDER / "README.md").read_text()
    listed = {}
    for names, values in re.findall(r"^\| ([\w., ]+) \| ([^|]+) \|$", text, re.MULTILINE):
        for name in names.split(", "):
            listed[name] = tuple(values.partition(" (")[0].split(", "))
    assert {name: values for name, values in listed.items() if name in VALUES} == VALUES
