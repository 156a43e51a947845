"""Rows of the mailbox as the tools show and find them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from _server.store import Row
from msgspec import Meta

from ...registry import Context
from ...store import ToolError

MessageId = Annotated[str, Meta(min_length=1, max_length=200), "a message's id"]
MessageIds = Annotated[list[Annotated[str, Meta(min_length=1, max_length=200)]], Meta(max_length=200)]


def headers(ctx: Context, messages: Iterable[Row]) -> list[Row]:
    """Messages as a list shows them: without the body, with its beginning as `snippet`, and the attachments' names."""
    shown = [dict(m) for m in messages]
    attached = attachments_of(ctx, [m["id"] for m in shown])
    for message in shown:
        message["snippet"] = " ".join(message.pop("body").split())[:160]
        message["attachments"] = [a["filename"] for a in attached.get(message["id"], [])]
    return shown


def attachments_of(ctx: Context, ids: list[str]) -> dict[str, list[Row]]:
    """{message id: [{id, filename, content_type, size}]}."""
    found: dict[str, list[Row]] = {}
    for start in range(0, len(ids), 500):
        some = ids[start : start + 500]
        sql = f"SELECT message_id, id, filename, content_type, size FROM email_attachments WHERE message_id IN ({','.join('?' * len(some))}) ORDER BY id"
        for raw in ctx.db.connection.execute(sql, some):
            row = dict(raw)
            found.setdefault(row.pop("message_id"), []).append(row)
    return found


def whole(ctx: Context, message: Row) -> Row:
    """A message with its body and what is attached to it."""
    return {**message, "attachments": attachments_of(ctx, [message["id"]]).get(message["id"], [])}


def chosen(ctx: Context, message_ids: list[str] | None, thread_id: str | None) -> list[Row]:
    """The messages that were named, or all of a thread; ToolError invalid, not_found."""
    if (message_ids is None) == (thread_id is None):
        raise ToolError("invalid", "which messages are meant is not clear", "give message_ids or thread_id, not both")
    if thread_id is not None:
        return ctx.db.rows("email.messages", "thread_id = ?", (ctx.db.get("email.threads", thread_id)["id"],), order="sent_at IS NULL, sent_at, id")
    return [ctx.db.get("email.messages", each) for each in dict.fromkeys(message_ids or [])]


def drop_messages(ctx: Context, messages: list[Row]) -> None:
    """Remove messages for good, with their attachments and the threads that are empty then; answers to them lose the link."""
    for message in messages:
        ctx.db.connection.execute("UPDATE email_messages SET in_reply_to = NULL WHERE in_reply_to = ?", (message["id"],))
    for message in messages:
        ctx.db.delete("email.attachments", "message_id = ?", (message["id"],))
        ctx.db.delete("email.messages", "id = ?", (message["id"],))
        if not ctx.db.count("email.messages", "thread_id = ?", (message["thread_id"],)):
            ctx.db.delete("email.threads", "id = ?", (message["thread_id"],))


def label_names(ctx: Context, names: Iterable[str]) -> list[str]:
    """Labels as they are spelled; ToolError not_found with the labels there are."""
    known = {r["name"].lower(): r["name"] for r in ctx.db.rows("email.labels", order="name")}
    for name in names:
        if name.lower() not in known:
            near = [n for low, n in known.items() if name.lower() in low or low in name.lower()] or list(known.values())
            raise ToolError("not_found", f"there is no label {name!r}", f"labels: {', '.join(near)}; email_create_label makes one")
    return [known[name.lower()] for name in names]
