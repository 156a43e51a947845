"""What can be searched for in the mailbox: `from:amir subject:"design review" is:unread -label:Later after:2026-03-01 (budget OR forecast)`."""

from __future__ import annotations

import difflib
import re

from _server.times import utc_text
from dateutil.relativedelta import relativedelta

from ...querylang import Language, Operator, Sql, day_start, like, one_of
from ...registry import Context
from ...store import ToolError

FOLDERS = ("inbox", "sent", "drafts", "archive", "trash", "spam")
_ATTACHED = "EXISTS (SELECT 1 FROM email_attachments a WHERE a.message_id = m.id"


def _text(ctx: Context, value: str) -> Sql:
    columns = ("subject", "body", "from_address", "from_name", '"to"', "cc")
    return "(" + " OR ".join(f"m.{c} LIKE ? ESCAPE '\\'" for c in columns) + ")", [like(value)] * len(columns)


def _column(*columns: str) -> Operator:
    def build(ctx: Context, value: str) -> Sql:
        text = ctx.user.email if value.lower() == "me" else value
        return "(" + " OR ".join(f"m.{c} LIKE ? ESCAPE '\\'" for c in columns) + ")", [like(text)] * len(columns)

    return build


def _label(ctx: Context, value: str) -> Sql:
    known = [r["name"] for r in ctx.db.rows("email.labels")]
    name = next((n for n in known if n.lower().replace(" ", "-") == value.lower().replace(" ", "-")), None)
    if name is None:
        near = difflib.get_close_matches(value.lower(), [n.lower() for n in known], n=3, cutoff=0.4)
        shown = [n for n in known if n.lower() in near] or known
        raise ToolError("not_found", f"there is no label {value!r}", f"labels: {', '.join(shown)}")
    return "EXISTS (SELECT 1 FROM json_each(m.labels) WHERE value = ?)", [name]


def _in(ctx: Context, value: str) -> Sql:
    folder = value.lower()
    if folder in ("anywhere", "all"):
        return "1", []
    if folder not in FOLDERS:
        raise ToolError("invalid", f"there is no folder {value!r}", f"folders: {', '.join(FOLDERS)}, anywhere")
    return "m.folder = ?", [folder]


def _ago(ctx: Context, value: str) -> str:
    match = re.fullmatch(r"(\d{1,4})([hdwmy])", value.lower())
    if match is None:
        raise ToolError("invalid", f"{value!r} is no age", "write 12h, 7d, 2w, 3m or 1y")
    n = int(match[1])
    age = {"h": relativedelta(hours=n), "d": relativedelta(days=n), "w": relativedelta(weeks=n), "m": relativedelta(months=n), "y": relativedelta(years=n)}
    try:
        return utc_text(ctx.now - age[match[2]])
    except (ValueError, OverflowError) as error:
        raise ToolError("invalid", f"{value!r} is too long ago") from error


_OPERATORS: dict[str, Operator] = {
    "from": _column("from_address", "from_name"),
    "to": _column('"to"'),
    "cc": _column("cc"),
    "bcc": _column("bcc"),
    "subject": _column("subject"),
    "body": _column("body"),
    "label": _label,
    "in": _in,
    "is": one_of("is", {"unread": "NOT m.is_read", "read": "m.is_read", "starred": "m.is_starred", "unstarred": "NOT m.is_starred"}),
    "has": one_of("has", {"attachment": f"{_ATTACHED})", "label": "m.labels != '[]'"}),
    "filename": lambda ctx, value: (f"{_ATTACHED} AND a.filename LIKE ? ESCAPE '\\')", [like(value)]),
    "before": lambda ctx, value: ("m.sent_at < ?", [day_start(ctx, value)]),
    "after": lambda ctx, value: ("m.sent_at >= ?", [day_start(ctx, value)]),
    "older_than": lambda ctx, value: ("m.sent_at < ?", [_ago(ctx, value)]),
    "newer_than": lambda ctx, value: ("m.sent_at >= ?", [_ago(ctx, value)]),
}

LANGUAGE = Language(_OPERATORS, _text)
