"""Writing: sending, answering, forwarding and drafts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated

from _server.store import Row
from msgspec import Meta

from ...addresses import Recipients, addresses
from ...effects import send_mail
from ...registry import Context, tool
from ...store import ToolError
from ..filesystem import tree
from .mailbox import MessageId, attachments_of, drop_messages, whole

Body = Annotated[str, Meta(max_length=100000)]
Subject = Annotated[str, Meta(max_length=998)]
Paths = Annotated[list[Annotated[str, Meta(max_length=1024)]], Meta(max_length=20)]
_TO = "e-mail addresses (or names of people known here)"
_TYPES = {
    "csv": "text/csv", "md": "text/markdown", "txt": "text/plain", "json": "application/json", "html": "text/html", "pdf": "application/pdf",
    "ics": "text/calendar", "vcf": "text/vcard", "xml": "application/xml", "yaml": "application/yaml",
}  # fmt: skip


def from_files(ctx: Context, paths: Iterable[str]) -> list[Row]:
    """Files of the filesystem as attachments: {filename, content_type, content}; ToolError not_found, invalid."""
    found = []
    for path in paths:
        entry = tree.file(ctx, path)
        name = entry["path"].rpartition("/")[2]
        found.append({"filename": name, "content_type": _TYPES.get(name.rpartition(".")[2].lower(), "text/plain"), "content": entry["content"]})
    return found


def _send(ctx: Context, to: list[str], cc: list[str], bcc: list[str], subject: str, body: str, attachments: Iterable[Row], after: Row | None = None) -> Row:
    """Send a mail after a look at its recipients: each once, in the first place it was named; ToolError invalid.

    `after` is {thread_id, in_reply_to}: the conversation that it goes on with.
    """
    seen: set[str] = set()
    places = []
    for place in (to, cc, bcc):
        places.append([a for a in place if a.lower() not in seen])
        seen |= {a.lower() for a in place}
    if not seen:
        raise ToolError("invalid", "the mail has no recipient", "give at least one address in to, cc or bcc")
    return whole(ctx, send_mail(ctx, places[0], subject, body, cc=places[1], bcc=places[2], attachments=attachments, **(after or {})))


@tool("email", aliases=("send_email", "email_send_email", "email_send_message"))
def send(
    ctx: Context,
    to: Annotated[Recipients, _TO],
    subject: Annotated[Subject, "what it is about"],
    body: Annotated[Body, "the text"],
    cc: Annotated[Recipients | None, "copies to"] = None,
    bcc: Annotated[Recipients | None, "blind copies to"] = None,
    attachments: Annotated[Paths | None, "paths of files in the filesystem"] = None,
) -> Row:
    """Send a new mail as yourself; the answer is the message in `sent`."""
    return _send(ctx, addresses(ctx, to), addresses(ctx, cc or []), addresses(ctx, bcc or []), subject, body, from_files(ctx, attachments or []))


def _answered(ctx: Context, message_id: str) -> Row:
    """The message that is answered or forwarded; ToolError conflict for a draft."""
    message = ctx.db.get("email.messages", message_id)
    if message["folder"] == "drafts":
        raise ToolError("conflict", f"{message_id} is a draft, it was never sent", "use email_update_draft and email_send_draft")
    return message


def _prefixed(prefix: str, subject: str) -> str:
    return subject if subject.lower().startswith(prefix.lower()) else f"{prefix} {subject}"


def _quoted(message: Row, body: str) -> str:
    when = datetime.fromisoformat(message["sent_at"]) if message["sent_at"] else None
    head = f"On {when:%a %-d %b %Y at %H:%M}, " if when else ""
    lines = [f"> {line}".rstrip() for line in message["body"].rstrip("\n").split("\n")]
    return f"{body.rstrip()}\n\n{head}{message['from_name'] or message['from_address']} wrote:\n" + "\n".join(lines) + "\n"


def reply_recipients(ctx: Context, message: Row, everyone: bool) -> tuple[list[str], list[str]]:
    """(to, cc) of an answer: the sender (of an own mail: its recipients); with `everyone` all others too, never the user."""
    me = ctx.user.email.lower()
    own = message["from_address"].lower() == me
    to = list(message["to"]) if own else [message["from_address"]]
    cc = list(message["cc"]) if everyone else []
    if everyone and not own:
        to += message["to"]
    keep = [a for a in dict.fromkeys(to) if a.lower() != me or (own and len(to) == 1)]
    return keep, [a for a in dict.fromkeys(cc) if a.lower() != me]


@tool("email", aliases=("email_reply_to_message", "reply_email"))
def reply(
    ctx: Context,
    message_id: MessageId,
    body: Annotated[Body, "the text"],
    cc: Annotated[Recipients | None, "copies to"] = None,
    attachments: Annotated[Paths | None, "paths of files in the filesystem"] = None,
    quote: Annotated[bool, "put the answered message below, with > before each line"] = False,
) -> Row:
    """Answer the sender of a message (of your own mail: its recipients), in the same conversation."""
    return _reply(ctx, message_id, body, cc, attachments, quote, everyone=False)


@tool("email", aliases=("email_reply_to_all",))
def reply_all(
    ctx: Context,
    message_id: MessageId,
    body: Annotated[Body, "the text"],
    cc: Annotated[Recipients | None, "copies to more people"] = None,
    attachments: Annotated[Paths | None, "paths of files in the filesystem"] = None,
    quote: Annotated[bool, "put the answered message below, with > before each line"] = False,
) -> Row:
    """Answer the sender and everybody else in To and Cc but you, in the same conversation."""
    return _reply(ctx, message_id, body, cc, attachments, quote, everyone=True)


def _reply(ctx: Context, message_id: str, body: str, cc: list[str] | None, paths: list[str] | None, quote: bool, *, everyone: bool) -> Row:
    message = _answered(ctx, message_id)
    to, copies = reply_recipients(ctx, message, everyone)
    text = _quoted(message, body) if quote else body
    copies += addresses(ctx, cc or [])
    return _send(ctx, to, copies, [], _prefixed("Re:", message["subject"]), text, from_files(ctx, paths or []), _after(message))


def _after(message: Row) -> Row:
    """What puts a mail behind `message` in its conversation."""
    return {"thread_id": message["thread_id"], "in_reply_to": message["id"]}


@tool("email", aliases=("email_forward_message", "forward_email"))
def forward(
    ctx: Context,
    message_id: MessageId,
    to: Annotated[Recipients, _TO],
    note: Annotated[Body, "a text above the forwarded message"] = "",
    cc: Annotated[Recipients | None, "copies to"] = None,
    include_attachments: Annotated[bool, "forward what is attached, too"] = True,
) -> Row:
    """Send a message on to others: its text with its head below your note, and its attachments."""
    message = _answered(ctx, message_id)
    sender = f"{message['from_name']} <{message['from_address']}>" if message["from_name"] else message["from_address"]
    head = ["---------- Forwarded message ----------", f"From: {sender}", f"Date: {message['sent_at']}", f"Subject: {message['subject']}"]
    head += [f"{name}: {', '.join(message[name.lower()])}" for name in ("To", "Cc") if message[name.lower()]]
    body = (f"{note.rstrip()}\n\n" if note else "") + "\n".join(head) + f"\n\n{message['body']}"
    attached = ctx.db.rows("email.attachments", "message_id = ?", (message_id,)) if include_attachments else []
    return _send(ctx, addresses(ctx, to), addresses(ctx, cc or []), [], _prefixed("Fwd:", message["subject"]), body, attached, _after(message))


def attach(ctx: Context, message_id: str, files: Iterable[Row]) -> None:
    """Put files {filename, content_type, content} on a message."""
    for item in files:
        row = {k: item[k] for k in ("filename", "content_type", "content")}
        ctx.db.insert("email.attachments", message_id=message_id, size=len(item["content"].encode()), **row)


def draft_of(ctx: Context, draft_id: str) -> Row:
    """The draft; ToolError not_found with the drafts there are, or conflict for what is none."""
    message = ctx.db.first("email.messages", "id = ?", (draft_id,))
    if message is None:
        drafts = ctx.db.rows("email.messages", "folder = 'drafts'")
        raise ToolError("not_found", f"there is no draft {draft_id!r}", "drafts: " + ("; ".join(f"{d['id']} ({d['subject']})" for d in drafts[:5]) or "none"))
    if message["folder"] != "drafts":
        raise ToolError("conflict", f"{draft_id} is no draft, it is in {message['folder']}", "only drafts can be changed")
    return message


@tool("email", aliases=("email_save_draft", "create_draft"))
def create_draft(
    ctx: Context,
    to: Annotated[Recipients | None, _TO] = None,
    subject: Annotated[Subject | None, "what it is about; of an answer: Re: and the answered subject"] = None,
    body: Annotated[Body, "the text"] = "",
    cc: Annotated[Recipients | None, "copies to"] = None,
    bcc: Annotated[Recipients | None, "blind copies to"] = None,
    attachments: Annotated[Paths | None, "paths of files in the filesystem"] = None,
    reply_to_message_id: Annotated[str | None, "the message it answers; its sender is the recipient when `to` is left out"] = None,
) -> Row:
    """Write a mail without sending it."""
    answered = _answered(ctx, reply_to_message_id) if reply_to_message_id is not None else None
    files = from_files(ctx, attachments or [])
    to_list = addresses(ctx, to) if to is not None else (reply_recipients(ctx, answered, False)[0] if answered else [])
    title = subject if subject is not None else (_prefixed("Re:", answered["subject"]) if answered else "")
    thread = answered["thread_id"] if answered else ctx.db.insert("email.threads", subject=title)["id"]
    draft = ctx.db.insert(
        "email.messages", thread_id=thread, from_address=ctx.user.email, from_name=ctx.user.name, to=to_list, cc=addresses(ctx, cc or []),
        bcc=addresses(ctx, bcc or []), subject=title, body=body, folder="drafts", in_reply_to=reply_to_message_id,
    )  # fmt: skip
    attach(ctx, draft["id"], files)
    return whole(ctx, draft)


@tool("email", idempotent=True)
def update_draft(
    ctx: Context,
    draft_id: MessageId,
    to: Annotated[Recipients | None, "all recipients from now on"] = None,
    subject: Annotated[Subject | None, "new subject"] = None,
    body: Annotated[Body | None, "new text"] = None,
    cc: Annotated[Recipients | None, "all copies from now on"] = None,
    bcc: Annotated[Recipients | None, "all blind copies from now on"] = None,
) -> Row:
    """Change what is given of a draft, leave the rest."""
    draft = draft_of(ctx, draft_id)
    lists = {name: addresses(ctx, value) for name, value in (("to", to), ("cc", cc), ("bcc", bcc)) if value is not None}
    texts = {name: value for name, value in (("subject", subject), ("body", body)) if value is not None}
    row = ctx.db.update("email.messages", draft_id, **lists, **texts)
    if subject is not None and ctx.db.count("email.messages", "thread_id = ?", (draft["thread_id"],)) == 1:
        ctx.db.update("email.threads", draft["thread_id"], subject=subject)
    return whole(ctx, row)


@tool("email")
def send_draft(ctx: Context, draft_id: MessageId) -> Row:
    """Send a draft as it is; it leaves the drafts, the answer is the new message in `sent`."""
    draft = draft_of(ctx, draft_id)
    attached = ctx.db.rows("email.attachments", "message_id = ?", (draft_id,))
    to, cc, bcc = (addresses(ctx, draft[name]) for name in ("to", "cc", "bcc"))
    after = {"thread_id": draft["thread_id"], "in_reply_to": draft["in_reply_to"]}
    sent = _send(ctx, to, cc, bcc, draft["subject"], draft["body"], attached, after)
    drop_messages(ctx, [draft])
    return sent


@tool("email", aliases=("email_attach_file",))
def add_attachments(ctx: Context, draft_id: MessageId, paths: Annotated[Paths, "paths of files in the filesystem"]) -> Row:
    """Attach files to a draft; a file of the same name replaces the one attached before."""
    draft = draft_of(ctx, draft_id)
    for item in from_files(ctx, paths):
        ctx.db.delete("email.attachments", "message_id = ? AND filename = ?", (draft_id, item["filename"]))
        attach(ctx, draft_id, [item])
    return whole(ctx, draft)


@tool("email", destructive=True, idempotent=True)
def remove_attachment(ctx: Context, draft_id: MessageId, attachment_id: Annotated[str, Meta(max_length=200), "the attachment's id"]) -> Row:
    """Take a file off a draft."""
    draft = draft_of(ctx, draft_id)
    on_it = attachments_of(ctx, [draft_id]).get(draft_id, [])
    if attachment_id not in [a["id"] for a in on_it]:
        raise ToolError(
            "not_found",
            f"{attachment_id} is not attached to {draft_id}",
            "attached: " + ("; ".join(f"{a['id']} ({a['filename']})" for a in on_it) or "nothing"),
        )
    ctx.db.delete("email.attachments", "id = ?", (attachment_id,))
    return whole(ctx, draft)
