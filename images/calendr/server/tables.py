"""Calendr's tables: one place to read the whole data model. The column types are explained in _server/tables.py."""

# ruff: noqa: E501 - a table is easier to read in one row
from __future__ import annotations

from _web.tables import tables

COLORS = ("blue", "teal", "green", "amber", "orange", "red", "pink", "purple", "slate")
RESPONSES = ("needs_action", "accepted", "tentative", "declined")

TABLES = tables(
    people=("per", {"name": "text", "email": "text", "title": "text = \"\"", "team": "text = \"\"", "color": "text = \"slate\"", "timezone": "text?"}),
    calendars=("cal", {
        "name": "text", "owner_id": "-> people", "color": "text = \"blue\"", "description": "text = \"\"", "is_primary": "bool = false", "is_visible": "bool = true",
    }),
    shares=("shr", {"calendar_id": "-> calendars", "person_id": "-> people", "role": "text = \"viewer\""}),
    events=("evt", {
        "calendar_id": "-> calendars", "title": "text", "start": "when", "end": "when", "all_day": "bool = false", "timezone": "text?",
        "location": "text = \"\"", "description": "text = \"\"", "organizer_id": "-> people", "color": "text?", "show_as": "text = \"busy\"", "visibility": "text = \"default\"",
        "recurrence": "text?", "exdates": "json = []", "recurring_event_id": "-> events?", "original_start": "when?",
        "created_at": "time?", "updated_at": "time?",
    }),
    guests=("gst", {"email": "text", "event_id": "-> events", "name": "text = \"\"", "response": "text = \"needs_action\"", "is_optional": "bool = false", "note": "text = \"\""}),
    reminders=("rem", {"minutes": "int", "event_id": "-> events", "method": "text = \"popup\""}),
    notices=("ntc", {"event_id": "text", "to_email": "text", "kind": "text", "subject": "text", "body": "text = \"\"", "sent_at": "time"}),
    dismissals=("dis", {"reminder_id": "text", "occurrence": "when"}),
    trash=("trs", {"event_id": "text", "title": "text", "start": "when", "calendar_id": "text", "deleted_at": "time", "rows": "json"}),
    settings=("set", {
        "week_start": "text = \"monday\"", "timezone": "text?", "theme": "text = \"system\"", "time_format": "text = \"24h\"", "default_view": "text = \"week\"",
        "default_minutes": "int = 30", "default_reminder": "int? = 10", "day_start": "text = \"09:00\"", "day_end": "text = \"17:30\"",
        "show_weekends": "bool = true", "show_declined": "bool = true",
    }),
    children={"events": ("guests", "reminders")},
    values={
        "people.color": COLORS, "calendars.color": COLORS, "events.color": COLORS,
        "shares.role": ("busy", "viewer", "editor"),
        "events.show_as": ("busy", "free"), "events.visibility": ("default", "private"),
        "guests.response": RESPONSES, "reminders.method": ("popup", "email"),
        "notices.kind": ("invitation", "update", "cancellation", "response"),
        "settings.week_start": ("monday", "sunday", "saturday"), "settings.theme": ("system", "light", "dark"),
        "settings.time_format": ("24h", "12h"), "settings.default_view": ("day", "week", "month", "agenda"),
    },
)  # fmt: skip
