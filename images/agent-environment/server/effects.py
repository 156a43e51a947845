"""What one server's act brings about in another: mail that is sent and delivered."""

from __future__ import annotations

from collections.abc import Iterable

from _server.store import Row

from .registry import Context


def send_mail(
    ctx: Context,
    to: Iterable[str],
    subject: str,
    body: str,
    *,
    cc: Iterable[str] = (),
    bcc: Iterable[str] = (),
    thread_id: str | None = None,
    in_reply_to: str | None = None,
    attachments: Iterable[Row] = (),
) -> Row:
    """Send a mail as the acting user: a row in `sent`, and one in `inbox` when the user is a recipient; the sent row.

    `attachments` are {filename, content_type, content}.
    """
    to, cc, bcc, attachments = list(to), list(cc), list(bcc), list(attachments)
    thread = thread_id or ctx.db.insert("email.threads", subject=subject)["id"]
    recipients = {address.lower() for address in (*to, *cc, *bcc)}
    folders = ["sent", "inbox"] if ctx.user.email.lower() in recipients else ["sent"]
    sent = [
        ctx.db.insert(
            "email.messages", thread_id=thread, from_address=ctx.user.email, from_name=ctx.user.name, to=to, cc=cc, bcc=bcc if folder == "sent" else [],
            subject=subject, body=body, sent_at=ctx.now_text, folder=folder, is_read=folder == "sent", in_reply_to=in_reply_to,
        )
        for folder in folders
    ]  # fmt: skip
    for message in sent:
        for item in attachments:
            size = len(item["content"].encode())
            ctx.db.insert(
                "email.attachments", message_id=message["id"], filename=item["filename"], content_type=item["content_type"], size=size, content=item["content"]
            )  # fmt: skip
    return sent[0]
