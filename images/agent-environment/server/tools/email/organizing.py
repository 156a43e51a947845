"""Keeping order: folders, trash, read and starred marks, labels, attachments into the filesystem."""

from __future__ import annotations

from typing import Annotated, Literal

from _server.store import Row
from msgspec import Meta

from ...registry import Context, tool
from ...store import ToolError
from ..filesystem import tree
from .mailbox import MessageIds, chosen, drop_messages, headers, label_names

Ids = Annotated[MessageIds | None, "ids of messages"]
Thread = Annotated[str | None, "instead: every message of this thread"]
LabelName = Annotated[str, Meta(min_length=1, max_length=100)]
LabelNames = Annotated[list[LabelName], Meta(max_length=50)]
Color = Annotated[str, Meta(pattern=r"^#[0-9a-fA-F]{6}$")]


def _moved(ctx: Context, messages: list[Row], folder: str) -> Row:
    """Put messages into a folder; ToolError conflict where they do not belong."""
    me = ctx.user.email.lower()
    for m in messages:
        if (m["sent_at"] is None) != (folder == "drafts") and folder != "trash":
            raise ToolError(
                "conflict",
                f"{m['id']} ({m['subject']}) {'is a draft' if m['sent_at'] is None else 'was sent already'}",
                "drafts stay in drafts or go to the trash",
            )
        if folder == "sent" and m["from_address"].lower() != me:
            raise ToolError("conflict", f"{m['id']} was sent by {m['from_address']}", "only your own mail goes into sent")
    rows = [ctx.db.update("email.messages", m["id"], folder=folder) for m in messages]
    return {"messages": headers(ctx, rows), "changed": sum(m["folder"] != folder for m in messages)}


@tool("email", idempotent=True, aliases=("email_move_message", "email_move_messages"))
def move(
    ctx: Context,
    folder: Annotated[Literal["inbox", "sent", "archive", "trash", "spam"], "where to"],
    message_ids: Ids = None,
    thread_id: Thread = None,
) -> Row:
    """Put messages into another folder."""
    return _moved(ctx, chosen(ctx, message_ids, thread_id), folder)


@tool("email", idempotent=True, aliases=("email_archive_message", "email_archive_messages"))
def archive(ctx: Context, message_ids: Ids = None, thread_id: Thread = None) -> Row:
    """Take messages out of the inbox but keep them. Of a thread, only what is in the inbox."""
    messages = chosen(ctx, message_ids, thread_id)
    return _moved(ctx, [m for m in messages if thread_id is None or m["folder"] == "inbox"], "archive")


@tool("email", destructive=True, idempotent=True, aliases=("email_delete_message", "email_delete", "email_trash_message"))
def trash(ctx: Context, message_ids: Ids = None, thread_id: Thread = None) -> Row:
    """Put messages (drafts, too) into the trash; email_restore brings them back."""
    return _moved(ctx, chosen(ctx, message_ids, thread_id), "trash")


@tool("email", idempotent=True, aliases=("email_untrash",))
def restore(ctx: Context, message_ids: Ids = None, thread_id: Thread = None) -> Row:
    """Bring messages back from trash or spam: drafts to drafts, your own mail to sent, the rest to the inbox."""
    messages = chosen(ctx, message_ids, thread_id)
    out = [m for m in messages if m["folder"] in ("trash", "spam")]
    if not out:
        raise ToolError("conflict", "none of these messages is in trash or spam", "email_search with in:trash shows what is")
    me, rows = ctx.user.email.lower(), []
    for m in out:
        home = "drafts" if m["sent_at"] is None else "sent" if m["from_address"].lower() == me and m["folder"] == "trash" else "inbox"
        rows.append(ctx.db.update("email.messages", m["id"], folder=home))
    return {"messages": headers(ctx, rows), "changed": len(rows)}


@tool("email", destructive=True, idempotent=True)
def empty_trash(
    ctx: Context,
    message_ids: Annotated[MessageIds | None, "only these messages of the trash; all of it when left out"] = None,
) -> Row:
    """Delete what is in the trash for good, with attachments and the threads that are empty then; answers to it stay."""
    messages = ctx.db.rows("email.messages", "folder = 'trash'") if message_ids is None else chosen(ctx, message_ids, None)
    for m in messages:
        if m["folder"] != "trash":
            raise ToolError("conflict", f"{m['id']} ({m['subject']}) is in {m['folder']}, not in the trash", "put it there with email_trash first")
    drop_messages(ctx, messages)
    return {"deleted": headers(ctx, messages), "total": len(messages)}


@tool("email", idempotent=True, aliases=("email_mark_as_read", "email_mark"))
def mark_read(
    ctx: Context,
    message_ids: Ids = None,
    thread_id: Thread = None,
    is_read: Annotated[bool, "false: mark as unread"] = True,
) -> Row:
    """Mark messages as read, or as unread."""
    messages = chosen(ctx, message_ids, thread_id)
    rows = [ctx.db.update("email.messages", m["id"], is_read=is_read) for m in messages]
    return {"messages": headers(ctx, rows), "changed": sum(m["is_read"] != is_read for m in messages)}


@tool("email", idempotent=True, aliases=("email_star_message",))
def star(
    ctx: Context,
    message_ids: Ids = None,
    thread_id: Thread = None,
    is_starred: Annotated[bool, "false: take the star off"] = True,
) -> Row:
    """Put a star on messages, or take it off."""
    messages = chosen(ctx, message_ids, thread_id)
    rows = [ctx.db.update("email.messages", m["id"], is_starred=is_starred) for m in messages]
    return {"messages": headers(ctx, rows), "changed": sum(m["is_starred"] != is_starred for m in messages)}


@tool("email", read_only=True)
def list_labels(ctx: Context) -> Row:
    """Every label; email_mailbox_counts says how many messages each has."""
    rows = ctx.db.rows("email.labels", order="name, id")
    return {"labels": rows, "total": len(rows)}


def _check_new(ctx: Context, name: str, id: str | None = None) -> None:
    row = ctx.db.first("email.labels", "name = ? COLLATE NOCASE", (name.strip(),))
    if row is not None and row["id"] != id:
        raise ToolError("conflict", f"there is a label {row['name']!r} already", f"use {row['id']}")
    if not name.strip():
        raise ToolError("invalid", "a label needs a name")


@tool("email")
def create_label(ctx: Context, name: Annotated[LabelName, "its name"], color: Annotated[Color, "#rrggbb"] = "#777777") -> Row:
    """Make a label."""
    _check_new(ctx, name)
    return {"label": ctx.db.insert("email.labels", name=name.strip(), color=color)}


@tool("email", idempotent=True, aliases=("email_rename_label",))
def update_label(
    ctx: Context,
    name: Annotated[LabelName, "the label's name now"],
    new_name: Annotated[LabelName | None, "its new name, on every message too"] = None,
    color: Annotated[Color | None, "#rrggbb"] = None,
) -> Row:
    """Rename or recolor a label; messages that have it get the new name."""
    row = _label(ctx, name)
    changed = 0
    if new_name is not None:
        _check_new(ctx, new_name, row["id"])
        changed = _relabel(ctx, row["name"], new_name.strip())
    values = {"name": new_name.strip() if new_name is not None else None, "color": color}
    return {"label": ctx.db.update("email.labels", row["id"], **{k: v for k, v in values.items() if v is not None}), "messages": changed}


def _label(ctx: Context, name: str) -> Row:
    """The label called so, in any case; ToolError not_found."""
    (spelled,) = label_names(ctx, [name])
    return next(r for r in ctx.db.rows("email.labels") if r["name"] == spelled)


def _relabel(ctx: Context, old: str, new: str | None) -> int:
    """Replace a label on every message, or take it off (None); how many had it."""
    rows = ctx.db.rows("email.messages", "EXISTS (SELECT 1 FROM json_each(labels) WHERE value = ?)", (old,))
    for row in rows:
        names = [new if n == old else n for n in row["labels"]]
        ctx.db.update("email.messages", row["id"], labels=[n for n in dict.fromkeys(names) if n is not None])
    return len(rows)


@tool("email", destructive=True, idempotent=True)
def delete_label(ctx: Context, name: Annotated[LabelName, "the label's name"]) -> Row:
    """Remove a label, from every message too; the messages stay."""
    row = _label(ctx, name)
    changed = _relabel(ctx, row["name"], None)
    ctx.db.delete("email.labels", "id = ?", (row["id"],))
    return {"deleted": row, "messages": changed}


@tool("email", idempotent=True, aliases=("email_label_messages", "email_add_labels"))
def apply_labels(
    ctx: Context,
    message_ids: Ids = None,
    thread_id: Thread = None,
    add: Annotated[LabelNames | None, "names of labels to put on"] = None,
    remove: Annotated[LabelNames | None, "names of labels to take off"] = None,
) -> Row:
    """Put labels on messages and take others off."""
    plus, minus = label_names(ctx, add or []), label_names(ctx, remove or [])
    if not plus and not minus:
        raise ToolError("invalid", "no label was given", "give add or remove")
    rows, changed = [], 0
    for m in chosen(ctx, message_ids, thread_id):
        labels = [n for n in dict.fromkeys([*m["labels"], *plus]) if n not in minus]
        changed += labels != m["labels"]
        rows.append(ctx.db.update("email.messages", m["id"], labels=labels))
    return {"messages": headers(ctx, rows), "changed": changed}


@tool("email", read_only=True)
def get_attachment(ctx: Context, attachment_id: Annotated[str, Meta(max_length=200), "the attachment's id"]) -> Row:
    """An attachment with its content."""
    return ctx.db.get("email.attachments", attachment_id)


@tool("email", destructive=True, idempotent=True, aliases=("email_download_attachment",))
def save_attachment(
    ctx: Context,
    attachment_id: Annotated[str, Meta(max_length=200), "the attachment's id"],
    path: Annotated[str, Meta(max_length=1024), "where in the filesystem: a file's path, or a directory that exists"],
    overwrite: Annotated[bool, "replace a file that is there"] = False,
) -> Row:
    """Write an attachment into the filesystem."""
    item = ctx.db.get("email.attachments", attachment_id)
    target = tree.clean(path)
    there = tree.find(ctx, target)
    if there is not None and there["kind"] == "directory":
        target = f"{target.rstrip('/')}/{item['filename']}"
    return {"file": tree.put(ctx, tree.clean(target), item["content"], overwrite=overwrite)}
