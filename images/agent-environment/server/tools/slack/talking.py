"""Writing in Slack: messages, answers, direct messages, edits, reactions, pins, one's status."""

from __future__ import annotations

from typing import Annotated

from _server.store import Row
from msgspec import Meta

from ...registry import Context, tool
from ...store import ToolError
from .channels import conversation
from .workspace import ChannelRef, MessageId, Text, UserRefs, channel, me, message, own_message, shown, writable

Emoji = Annotated[str, Meta(pattern=r"^:?[a-z0-9_+'-]{1,80}:?$"), "an emoji's name, like thumbsup"]


def _post(ctx: Context, where: Row, text: str, thread_id: str | None = None) -> Row:
    writable(ctx, where)
    row = ctx.db.insert("slack.messages", channel_id=where["id"], user_id=me(ctx)["id"], text=text, sent_at=ctx.now_text, thread_id=thread_id)
    return shown(ctx, [row])[0]


@tool("slack", aliases=("slack_send_message", "slack_post", "slack_chat_post_message"))
def post_message(
    ctx: Context,
    channel_ref: ChannelRef,
    text: Annotated[Text, "the message; @handle mentions somebody"],
    thread_id: Annotated[str | None, "a message's id: answer in its thread"] = None,
) -> Row:
    """Write into a channel or conversation you are in; conflict in an archived one."""
    where = channel(ctx, channel_ref)
    if thread_id is None:
        return {"message": _post(ctx, where, text)}
    root, home = message(ctx, thread_id)
    if home["id"] != where["id"]:
        raise ToolError("conflict", f"{thread_id} is in #{home['name']}, not in #{where['name']}", "answer in its own channel")
    return {"message": _post(ctx, where, text, root["thread_id"] or root["id"])}


@tool("slack", aliases=("slack_reply", "slack_reply_to_thread"))
def reply_in_thread(
    ctx: Context,
    message_id: MessageId,
    text: Annotated[Text, "the answer"],
    also_to_channel: Annotated[bool, "write it into the channel as a message, too"] = False,
) -> Row:
    """Answer a message in its thread (an answer's answer goes into the same thread)."""
    root, where = message(ctx, message_id)
    answer = {"message": _post(ctx, where, text, root["thread_id"] or root["id"])}
    if also_to_channel:
        answer["channel_message"] = _post(ctx, where, text)
    return answer


@tool("slack", aliases=("slack_send_dm",))
def send_direct_message(
    ctx: Context,
    users: Annotated[UserRefs, "one person or several: @handles, e-mail addresses, full names or ids"],
    text: Annotated[Text, "the message"],
) -> Row:
    """Write to one person or, as a group, to several; their conversation is opened when there is none yet."""
    where, opened = conversation(ctx, users)
    return {"message": _post(ctx, where, text), "channel": where, "opened": opened}


@tool("slack", idempotent=True, aliases=("slack_update_message",))
def edit_message(ctx: Context, message_id: MessageId, text: Annotated[Text, "the new text"]) -> Row:
    """Change the text of your own message; forbidden for others' messages."""
    row, _ = own_message(ctx, message_id)
    if row["text"] != text:
        row = ctx.db.update("slack.messages", message_id, text=text, edited_at=ctx.now_text)
    return {"message": shown(ctx, [row])[0]}


@tool("slack", destructive=True, idempotent=True)
def delete_message(ctx: Context, message_id: MessageId) -> Row:
    """Remove your own message with its reactions; refused when it has answers, forbidden for others' messages."""
    row, _ = own_message(ctx, message_id)
    answers = ctx.db.rows("slack.messages", "thread_id = ?", (message_id,))
    if answers:
        names = ", ".join(a["id"] for a in answers[:5])
        raise ToolError("conflict", f"{message_id} has {len(answers)} answers: {names}", "edit it instead, so that the thread keeps its beginning")
    gone = shown(ctx, [row])[0]
    ctx.db.delete("slack.reactions", "message_id = ?", (message_id,))
    ctx.db.delete("slack.messages", "id = ?", (message_id,))
    return {"deleted": gone}


@tool("slack", idempotent=True)
def add_reaction(ctx: Context, message_id: MessageId, emoji: Emoji) -> Row:
    """React to a message; the same reaction twice counts once."""
    row, where = message(ctx, message_id)
    writable(ctx, where)
    key = (message_id, me(ctx)["id"], emoji.strip(":"))
    if not ctx.db.count("slack.reactions", "message_id = ? AND user_id = ? AND emoji = ?", key):
        ctx.db.insert("slack.reactions", message_id=key[0], user_id=key[1], emoji=key[2])
    return {"message": shown(ctx, [row])[0]}


@tool("slack", destructive=True, idempotent=True)
def remove_reaction(ctx: Context, message_id: MessageId, emoji: Emoji) -> Row:
    """Take back a reaction of yours."""
    row, where = message(ctx, message_id)
    writable(ctx, where)
    key = (message_id, me(ctx)["id"])
    if not ctx.db.delete("slack.reactions", "message_id = ? AND user_id = ? AND emoji = ?", (*key, emoji.strip(":"))):
        own = [r["emoji"] for r in ctx.db.rows("slack.reactions", "message_id = ? AND user_id = ?", key)]
        raise ToolError("not_found", f"you have not reacted with {emoji.strip(':')}", f"your reactions: {', '.join(own) or 'none'}")
    return {"message": shown(ctx, [row])[0]}


@tool("slack", idempotent=True)
def pin_message(ctx: Context, message_id: MessageId, is_pinned: Annotated[bool, "false: take the pin off"] = True) -> Row:
    """Pin a message to its channel, or take the pin off."""
    _, where = message(ctx, message_id)
    writable(ctx, where)
    return {"message": shown(ctx, [ctx.db.update("slack.messages", message_id, is_pinned=is_pinned)])[0]}


@tool("slack", idempotent=True)
def set_status(
    ctx: Context,
    text: Annotated[str, Meta(max_length=100), "the status; empty takes it away"],
    emoji: Annotated[str, Meta(max_length=80), "an emoji's name; empty for none"] = "",
) -> Row:
    """Set the status that others see beside your name."""
    return {"user": ctx.db.update("slack.users", me(ctx)["id"], status_text=text, status_emoji=emoji)}


@tool("slack", aliases=("slack_forward_message",))
def share_message(ctx: Context, message_id: MessageId, channel_ref: ChannelRef, comment: Annotated[str, Meta(max_length=40000), "a line above it"] = "") -> Row:
    """Quote a message in another channel that you are in, with its author, channel and time; nothing leaves a private conversation this way."""
    row, home = message(ctx, message_id)
    target = channel(ctx, channel_ref)
    if (home["is_private"] or home["kind"] != "channel") and home["id"] != target["id"]:
        raise ToolError("forbidden", f"#{home['name']} is private; its messages stay there", "write in your own words what may be told")
    quoted = "\n".join(f"> {line}".rstrip() for line in row["text"].split("\n"))
    author = ctx.db.get("slack.users", row["user_id"])["name"]
    return {"message": _post(ctx, target, f"{comment}\n{quoted}\n- {author} in #{home['name']}, {row['sent_at']}".lstrip("\n"))}
