"""Who and where: the acting user, channels they can see, messages as the tools show them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from _server.store import Row
from msgspec import Meta

from ...lookup import near_names, resolve
from ...registry import Context
from ...store import ToolError

ChannelRef = Annotated[str, Meta(min_length=1, max_length=200), "a channel's name (with or without #) or id"]
UserRef = Annotated[str, Meta(min_length=1, max_length=254), "a person's @handle, e-mail address, full name or id"]
UserRefs = Annotated[list[Annotated[str, Meta(min_length=1, max_length=254)]], Meta(min_length=1, max_length=50)]
MessageId = Annotated[str, Meta(min_length=1, max_length=200), "a message's id"]
Text = Annotated[str, Meta(min_length=1, max_length=40000)]

# Channels that somebody can see: public ones, and those they are in.
SEEN = "((kind = 'channel' AND NOT is_private) OR id IN (SELECT channel_id FROM slack_members WHERE user_id = ?))"


def me(ctx: Context) -> Row:
    """The acting user's row; ToolError not_found when Slack does not know them."""
    row = ctx.db.first("slack.users", "email = ? COLLATE NOCASE", (ctx.user.email,))
    if row is None:
        raise ToolError("not_found", f"{ctx.user.email} has no account in Slack")
    return row


def user(ctx: Context, ref: str) -> Row:
    """The person that a client means; ToolError not_found with near ones, conflict for several."""
    text = ref.strip().removeprefix("@")
    return me(ctx) if text.lower() == "me" else resolve(ctx, "slack.users", text, "handle", "email", "name")


def channel(ctx: Context, ref: str) -> Row:
    """The channel or conversation that a client means, if the acting user can see it; ToolError not_found with near ones."""
    text = ref.strip().removeprefix("#")
    rows = ctx.db.rows("slack.channels", SEEN, (me(ctx)["id"],))
    found = [r for r in rows if r["id"] == text] or [r for r in rows if r["name"].lower() == text.lower()]
    if len(found) == 1:
        return found[0]
    if found:
        raise ToolError("conflict", f"{len(found)} conversations are called {ref!r}", f"use the id: {', '.join(r['id'] for r in found)}")
    near = near_names(text, [(r["name"], f"{r['name']} ({r['id']})") for r in rows])
    raise ToolError("not_found", f"there is no channel {ref!r} that you can see", f"near: {', '.join(near)}" if near else "slack_list_channels lists them")


def is_member(ctx: Context, channel_id: str, user_id: str) -> bool:
    """Whether somebody is in a channel."""
    return ctx.db.count("slack.members", "channel_id = ? AND user_id = ?", (channel_id, user_id)) > 0


def writable(ctx: Context, where: Row) -> Row:
    """The channel if the acting user may write there; ToolError conflict (archived) or forbidden (not in it)."""
    if where["is_archived"]:
        raise ToolError("conflict", f"#{where['name']} is archived", "slack_unarchive_channel opens it again")
    if not is_member(ctx, where["id"], me(ctx)["id"]):
        raise ToolError("forbidden", f"you are not in #{where['name']}", "slack_join_channel lets you in")
    return where


def message(ctx: Context, message_id: str) -> tuple[Row, Row]:
    """A message and its channel, if the acting user can see it; ToolError not_found."""
    row = ctx.db.get("slack.messages", message_id)
    where = ctx.db.first("slack.channels", f"id = ? AND {SEEN}", (row["channel_id"], me(ctx)["id"]))
    if where is None:
        raise ToolError("not_found", f"no row {message_id!r} in slack.messages", "it may be in a private conversation")
    return row, where


def own_message(ctx: Context, message_id: str) -> tuple[Row, Row]:
    """A message of the acting user and its channel; ToolError forbidden for somebody else's, conflict in an archived channel."""
    row, where = message(ctx, message_id)
    if row["user_id"] != me(ctx)["id"]:
        raise ToolError("forbidden", f"{message_id} is {ctx.db.get('slack.users', row['user_id'])['name']}'s message", "you can change your own messages only")
    if where["is_archived"]:
        raise ToolError("conflict", f"#{where['name']} is archived", "slack_unarchive_channel opens it again")
    return row, where


def shown(ctx: Context, messages: Iterable[Row]) -> list[Row]:
    """Messages with `channel` and `user` names, their reactions and how many answers they have."""
    rows = list(messages)
    users = {r["id"]: r for r in ctx.db.rows("slack.users")}
    channels = {r["id"]: r["name"] for r in ctx.db.rows("slack.channels")}
    ids = [r["id"] for r in rows]
    marks = ",".join("?" * len(ids))
    reactions: dict[str, dict[str, list[str]]] = {}
    for reaction in ctx.db.rows("slack.reactions", f"message_id IN ({marks})", ids):
        reactions.setdefault(reaction["message_id"], {}).setdefault(reaction["emoji"], []).append(users[reaction["user_id"]]["handle"])
    counted = ctx.db.connection.execute(f"SELECT thread_id, COUNT(*) FROM slack_messages WHERE thread_id IN ({marks}) GROUP BY thread_id", ids)
    answers = {row[0]: row[1] for row in counted}
    return [
        {
            **r, "channel": channels[r["channel_id"]], "user": users[r["user_id"]]["handle"], "user_name": users[r["user_id"]]["name"],
            "reactions": [{"emoji": emoji, "users": handles, "count": len(handles)} for emoji, handles in reactions.get(r["id"], {}).items()],
            "reply_count": answers.get(r["id"], 0),
        }
        for r in rows
    ]  # fmt: skip


def members(ctx: Context, channel_id: str) -> list[Row]:
    """The people in a channel, by handle."""
    return ctx.db.rows("slack.users", "id IN (SELECT user_id FROM slack_members WHERE channel_id = ?)", (channel_id,), order="handle")
