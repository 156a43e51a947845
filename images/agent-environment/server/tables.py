"""Every table of every server: one place to read the whole data model.

Columns are written as _server/tables.py says. People are known across servers by their e-mail address.
"""

# ruff: noqa: E501 - a table is easier to read in one row
from __future__ import annotations

from _server.tables import Table, columns

VALUES: dict[str, tuple[str, ...]] = {
    "calendar.events.status": ("confirmed", "tentative", "cancelled"),
    "calendar.events.visibility": ("default", "private"),
    "calendar.attendees.response": ("needsAction", "accepted", "declined", "tentative"),
    "email.messages.folder": ("inbox", "sent", "drafts", "archive", "trash", "spam"),
    "slack.channels.kind": ("channel", "dm", "group"),
    "crm.contacts.status": ("lead", "prospect", "customer", "inactive"),
    "crm.stages.outcome": ("open", "won", "lost"),
    "crm.deals.status": ("open", "won", "lost"),
    "crm.activities.type": ("call", "email", "meeting", "note", "task"),
    "filesystem.entries.kind": ("file", "directory"),
    "projects.projects.status": ("planned", "active", "on_hold", "done"),
    "projects.milestones.status": ("open", "done"),
    "projects.issues.type": ("task", "bug", "story", "epic"),
    "projects.issues.status": ("backlog", "todo", "in_progress", "in_review", "done", "cancelled"),
    "projects.issues.priority": ("low", "medium", "high", "urgent"),
    "projects.links.kind": ("blocks", "relates_to", "duplicates"),
    "documents.documents.status": ("draft", "published", "archived"),
    "documents.shares.role": ("viewer", "commenter", "editor"),
    "accounting.invoices.status": ("draft", "sent", "partial", "paid", "void"),
    "accounting.bills.status": ("open", "partial", "paid", "void"),
    "accounting.payments.kind": ("received", "made"),
}


def _server(server: str, **tables: tuple[str, dict[str, str]]) -> dict[str, Table]:
    return {name: Table(name, prefix, columns(text), _allowed(server, name), server, "_") for name, (prefix, text) in tables.items()}


def _allowed(server: str, table: str) -> dict[str, tuple[str, ...]]:
    start = f"{server}.{table}."
    return {key.removeprefix(start): found for key, found in VALUES.items() if key.startswith(start)}


SERVERS: dict[str, dict[str, Table]] = {
    "calendar": _server(
        "calendar",
        calendars=("cal", {"name": "text", "owner": "text", "color": "text = \"#3f6fd8\"", "timezone": "text?", "is_primary": "bool = false"}),
        events=("evt", {
            "calendar_id": "-> calendars", "title": "text", "description": "text = \"\"", "location": "text = \"\"",
            "start": "when", "end": "when", "all_day": "bool = false", "timezone": "text?",
            "recurrence": "text?", "exdates": "json = []", "recurring_event_id": "-> events?", "original_start": "when?",
            "status": "text = \"confirmed\"", "visibility": "text = \"default\"", "organizer": "text", "reminders": "json = []",
            "created_at": "time?", "updated_at": "time?",
        }),
        attendees=("att", {
            "event_id": "-> events", "email": "text", "name": "text = \"\"", "response": "text = \"needsAction\"", "optional": "bool = false",
        }),
        tags=("tag", {"event_id": "-> events", "name": "text"}),
    ),
    "email": _server(
        "email",
        threads=("thr", {"subject": "text"}),
        messages=("msg", {
            "thread_id": "-> threads", "from_address": "text", "from_name": "text = \"\"", "to": "json = []", "cc": "json = []", "bcc": "json = []",
            "subject": "text", "body": "text", "sent_at": "time?", "folder": "text", "is_read": "bool = true", "is_starred": "bool = false",
            "labels": "json = []", "in_reply_to": "-> messages?",
        }),
        labels=("lbl", {"name": "text", "color": "text = \"#777777\""}),
        attachments=("atc", {"message_id": "-> messages", "filename": "text", "content_type": "text = \"text/plain\"", "size": "int", "content": "text"}),
    ),
    "slack": _server(
        "slack",
        users=("usr", {
            "handle": "text", "name": "text", "email": "text", "title": "text = \"\"", "status_text": "text = \"\"",
            "status_emoji": "text = \"\"", "is_bot": "bool = false",
        }),
        channels=("chn", {
            "kind": "text = \"channel\"", "name": "text", "topic": "text = \"\"", "purpose": "text = \"\"", "is_private": "bool = false",
            "is_archived": "bool = false", "created_by": "-> users?", "created_at": "time?",
        }),
        members=("mem", {"channel_id": "-> channels", "user_id": "-> users"}),
        messages=("pst", {
            "channel_id": "-> channels", "user_id": "-> users", "text": "text", "sent_at": "time", "thread_id": "-> messages?",
            "edited_at": "time?", "is_pinned": "bool = false",
        }),
        reactions=("rct", {"message_id": "-> messages", "user_id": "-> users", "emoji": "text"}),
    ),
    "contacts": _server(
        "contacts",
        people=("per", {
            "name": "text", "email": "text", "phone": "text = \"\"", "company": "text = \"\"", "title": "text = \"\"", "address": "text = \"\"",
            "birthday": "day?", "notes": "text = \"\"", "is_starred": "bool = false",
        }),
        groups=("grp", {"name": "text", "description": "text = \"\""}),
        memberships=("mbr", {"group_id": "-> groups", "person_id": "-> people"}),
    ),
    "crm": _server(
        "crm",
        companies=("cmp", {
            "name": "text", "domain": "text = \"\"", "industry": "text = \"\"", "employees": "int?", "city": "text = \"\"", "phone": "text = \"\"",
            "owner": "text", "notes": "text = \"\"", "created_at": "time?",
        }),
        contacts=("con", {
            "company_id": "-> companies?", "name": "text", "email": "text", "phone": "text = \"\"", "title": "text = \"\"",
            "status": "text = \"lead\"", "owner": "text", "created_at": "time?", "last_contacted_at": "time?",
        }),
        stages=("stg", {"name": "text", "position": "int", "probability": "real", "outcome": "text = \"open\""}),
        deals=("deal", {
            "name": "text", "company_id": "-> companies", "contact_id": "-> contacts?", "stage_id": "-> stages", "amount": "real",
            "currency": "text = \"USD\"", "owner": "text", "expected_close": "day?", "status": "text = \"open\"", "lost_reason": "text = \"\"",
            "created_at": "time?", "updated_at": "time?",
        }),
        activities=("act", {
            "type": "text", "subject": "text", "body": "text = \"\"", "company_id": "-> companies?", "contact_id": "-> contacts?", "deal_id": "-> deals?",
            "owner": "text", "due_at": "time?", "occurred_at": "time?", "is_done": "bool = false",
        }),
    ),
    "filesystem": _server(
        "filesystem",
        entries=("ent", {"path": "text", "kind": "text = \"file\"", "content": "text = \"\"", "size": "int = 0", "modified_at": "time"}),
    ),
    "projects": _server(
        "projects",
        projects=("prj", {
            "key": "text", "name": "text", "description": "text = \"\"", "status": "text = \"active\"", "lead": "text", "start_day": "day?", "due_day": "day?",
        }),
        milestones=("mst", {"project_id": "-> projects", "name": "text", "due_day": "day?", "status": "text = \"open\""}),
        issues=("iss", {
            "project_id": "-> projects", "number": "int", "title": "text", "description": "text = \"\"", "type": "text = \"task\"",
            "status": "text = \"todo\"", "priority": "text = \"medium\"", "assignee": "text?", "reporter": "text", "milestone_id": "-> milestones?",
            "parent_id": "-> issues?", "labels": "json = []", "estimate": "real?", "due_day": "day?", "created_at": "time?", "updated_at": "time?",
        }),
        comments=("cmt", {"issue_id": "-> issues", "author": "text", "body": "text", "created_at": "time"}),
        links=("lnk", {"issue_id": "-> issues", "kind": "text", "target_id": "-> issues"}),
        worklogs=("wrk", {"issue_id": "-> issues", "author": "text", "minutes": "int", "day": "day", "note": "text = \"\""}),
    ),
    "documents": _server(
        "documents",
        folders=("fld", {"name": "text", "parent_id": "-> folders?"}),
        documents=("doc", {
            "folder_id": "-> folders?", "title": "text", "body": "text", "owner": "text", "status": "text = \"draft\"",
            "created_at": "time?", "updated_at": "time?",
        }),
        revisions=("rev", {"document_id": "-> documents", "number": "int", "title": "text", "body": "text", "author": "text", "created_at": "time", "summary": "text = \"\""}),
        comments=("dcm", {"document_id": "-> documents", "author": "text", "body": "text", "quote": "text = \"\"", "is_resolved": "bool = false", "created_at": "time"}),
        shares=("shr", {"document_id": "-> documents", "email": "text", "role": "text = \"viewer\""}),
    ),
    "accounting": _server(
        "accounting",
        customers=("cus", {
            "name": "text", "email": "text", "phone": "text = \"\"", "address": "text = \"\"", "terms_days": "int = 30", "is_active": "bool = true", "notes": "text = \"\"",
        }),
        vendors=("ven", {
            "name": "text", "email": "text", "phone": "text = \"\"", "address": "text = \"\"", "terms_days": "int = 30", "is_active": "bool = true", "notes": "text = \"\"",
        }),
        items=("itm", {"name": "text", "sku": "text", "description": "text = \"\"", "unit_price": "real", "tax_rate": "real = 0.0", "is_active": "bool = true"}),
        invoices=("inv", {
            "number": "text", "customer_id": "-> customers", "issue_day": "day", "due_day": "day", "status": "text = \"draft\"", "memo": "text = \"\"",
            "subtotal": "real", "tax": "real", "total": "real", "balance": "real",
        }),
        invoice_lines=("ivl", {
            "invoice_id": "-> invoices", "item_id": "-> items?", "description": "text", "quantity": "real", "unit_price": "real", "tax_rate": "real = 0.0", "amount": "real",
        }),
        bills=("bil", {
            "number": "text", "vendor_id": "-> vendors", "bill_day": "day", "due_day": "day", "status": "text = \"open\"", "memo": "text = \"\"",
            "total": "real", "balance": "real",
        }),
        bill_lines=("bll", {"bill_id": "-> bills", "account": "text", "description": "text", "quantity": "real", "unit_price": "real", "amount": "real"}),
        payments=("pay", {
            "kind": "text", "customer_id": "-> customers?", "vendor_id": "-> vendors?", "invoice_id": "-> invoices?", "bill_id": "-> bills?",
            "amount": "real", "day": "day", "method": "text = \"bank transfer\"", "reference": "text = \"\"", "memo": "text = \"\"",
        }),
    ),
}  # fmt: skip
