"""Looking around in Slack: channels, history, threads, search, mentions, people."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from _server.store import Row
from msgspec import Meta

from ...lookup import Cursor, Limit, Name, has_words
from ...querylang import Language, Operator, Sql, day_start, like, one_of
from ...registry import Context, Time, page, tool
from ...store import ToolError
from .workspace import SEEN, ChannelRef, MessageId, UserRef, channel, is_member, me, members, message, shown, user

_QUERY = (
    "words and operators: from:@handle|me in:#channel|@handle has:link|reaction|pin|thread|:emoji: is:dm|thread before:2026-03-10 after:2026-03-10"
    ' (that day is left out) on: "a phrase" -not (a OR b)'
)
_IN_SEEN = f"channel_id IN (SELECT id FROM slack_channels WHERE {SEEN})"


def _page(ctx: Context, rows: list[Row], limit: int, cursor: str | None) -> Row:
    answer = page(rows, limit, cursor, "messages")
    answer["messages"] = shown(ctx, answer["messages"])
    return answer


@tool("slack", read_only=True)
def list_channels(
    ctx: Context,
    query: Annotated[Name | None, "words that must all occur in name, topic or purpose"] = None,
    kind: Annotated[Literal["channel", "dm", "group"] | None, "only channels, direct messages or group messages"] = None,
    mine_only: Annotated[bool, "only those you are in"] = False,
    include_archived: Annotated[bool, "archived ones too"] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Row:
    """The channels and conversations that you can see, by name, with how many people are in them and when somebody last wrote."""
    mine = me(ctx)["id"]
    where = SEEN + ("" if include_archived else " AND NOT is_archived") + (" AND kind = ?" if kind else "")
    rows = ctx.db.rows("slack.channels", where, [mine, *([kind] if kind else [])], order="name, id")
    sizes = dict(ctx.db.connection.execute("SELECT channel_id, COUNT(*) FROM slack_members GROUP BY channel_id").fetchall())
    last = dict(ctx.db.connection.execute("SELECT channel_id, MAX(sent_at) FROM slack_messages GROUP BY channel_id").fetchall())
    found = []
    for row in rows:
        inside = is_member(ctx, row["id"], mine)
        if (inside or not mine_only) and has_words(query or "", row, ("name", "topic", "purpose")):
            at = last.get(row["id"])
            found.append({**row, "members": sizes.get(row["id"], 0), "is_member": inside, "last_message_at": ctx.local(at).isoformat() if at else None})
    return page(found, limit, cursor, "channels")


@tool("slack", read_only=True, aliases=("slack_list_members",))
def get_channel(ctx: Context, channel_ref: ChannelRef) -> Row:
    """One channel: topic, purpose, the people in it, how many messages and what is pinned."""
    row = channel(ctx, channel_ref)
    people = [{k: u[k] for k in ("id", "handle", "name", "title", "is_bot")} for u in members(ctx, row["id"])]
    pinned = ctx.db.rows("slack.messages", "channel_id = ? AND is_pinned", (row["id"],), order="sent_at DESC, id")
    return {**row, "members": people, "messages": ctx.db.count("slack.messages", "channel_id = ?", (row["id"],)), "pinned": shown(ctx, pinned)}


@tool("slack", read_only=True, aliases=("slack_get_channel_messages", "slack_conversations_history"))
def get_channel_history(
    ctx: Context,
    channel_ref: ChannelRef,
    after: Annotated[Time | None, "only messages at or after this"] = None,
    before: Annotated[Time | None, "only messages before this"] = None,
    user_ref: Annotated[Name | None, "only messages of this person"] = None,
    oldest_first: Annotated[bool, "from the beginning instead of newest first"] = False,
    limit: Limit = 30,
    cursor: Cursor = None,
) -> Row:
    """The messages of a channel, newest first; answers in threads are counted here and shown by slack_get_thread."""
    conditions: list[tuple[str, Any]] = [("channel_id = ?", channel(ctx, channel_ref)["id"]), ("thread_id IS NULL AND 1 = ?", 1)]
    conditions += [("sent_at >= ?", after)] if after else []
    conditions += [("sent_at < ?", before)] if before else []
    conditions += [("user_id = ?", user(ctx, user_ref)["id"])] if user_ref else []
    order = "sent_at, id" if oldest_first else "sent_at DESC, id DESC"
    rows = ctx.db.rows("slack.messages", " AND ".join(c for c, _ in conditions), [v for _, v in conditions], order=order)
    return _page(ctx, rows, limit, cursor)


@tool("slack", read_only=True)
def get_thread(ctx: Context, message_id: MessageId) -> Row:
    """A whole thread, from the message that began it to the last answer; any message of it will do."""
    row, where = message(ctx, message_id)
    root = ctx.db.get("slack.messages", row["thread_id"]) if row["thread_id"] else row
    answers = ctx.db.rows("slack.messages", "thread_id = ?", (root["id"],), order="sent_at, id")
    found = shown(ctx, [root, *answers])
    return {"channel": where["name"], "thread_id": root["id"], "messages": found, "participants": list(dict.fromkeys(m["user"] for m in found))}


@tool("slack", read_only=True, aliases=("slack_search_messages",))
def search(
    ctx: Context,
    query: Annotated[str, Meta(max_length=800), _QUERY],
    limit: Limit = 20,
    cursor: Cursor = None,
) -> Row:
    """Find messages in everything that you can see, newest first. Every term must hold, OR joins its neighbors."""
    sql, params, _ = _LANGUAGE.compile(ctx, query)
    where = f"{_IN_SEEN} AND id IN (SELECT m.id FROM slack_messages m WHERE {sql})"
    return _page(ctx, ctx.db.rows("slack.messages", where, [me(ctx)["id"], *params], order="sent_at DESC, id DESC"), limit, cursor)


def _has(ctx: Context, value: str) -> Sql:
    emoji = value.strip(":").lower()
    if value.startswith(":") and emoji:
        return "EXISTS (SELECT 1 FROM slack_reactions r WHERE r.message_id = m.id AND r.emoji = ?)", [emoji]
    return _HAS(ctx, value)


_HAS = one_of("has", {
    "link": "(m.text LIKE '%http://%' OR m.text LIKE '%https://%')",
    "reaction": "EXISTS (SELECT 1 FROM slack_reactions r WHERE r.message_id = m.id)",
    "pin": "m.is_pinned",
    "thread": "EXISTS (SELECT 1 FROM slack_messages t WHERE t.thread_id = m.id)",
})  # fmt: skip


def _in(ctx: Context, value: str) -> Sql:
    if not value.startswith("@"):
        return "m.channel_id = ?", [channel(ctx, value)["id"]]
    pair = [me(ctx)["id"], user(ctx, value)["id"]]
    both = "(SELECT COUNT(DISTINCT user_id) FROM slack_members x WHERE x.channel_id = m.channel_id AND x.user_id IN (?, ?))"
    return f"(m.channel_id IN (SELECT id FROM slack_channels WHERE kind = 'dm') AND {both} = 2)", pair


_OPERATORS: dict[str, Operator] = {
    "from": lambda ctx, value: ("m.user_id = ?", [user(ctx, value)["id"]]),
    "in": _in,
    "has": _has,
    "is": one_of("is", {"dm": "m.channel_id IN (SELECT id FROM slack_channels WHERE kind != 'channel')", "thread": "m.thread_id IS NOT NULL"}),
    "before": lambda ctx, value: ("m.sent_at < ?", [day_start(ctx, value)]),
    "after": lambda ctx, value: ("m.sent_at >= ?", [day_start(ctx, value, 1)]),
    "on": lambda ctx, value: ("(m.sent_at >= ? AND m.sent_at < ?)", [day_start(ctx, value), day_start(ctx, value, 1)]),
}
_LANGUAGE = Language(_OPERATORS, lambda ctx, value: ("m.text LIKE ? ESCAPE '\\'", [like(value)]))


@tool("slack", read_only=True)
def list_mentions(
    ctx: Context,
    after: Annotated[Time | None, "only messages at or after this"] = None,
    include_channel_wide: Annotated[bool, "@channel, @here and @everyone count, too"] = True,
    unanswered_only: Annotated[bool, "only where you have neither answered in the thread, nor written in the channel later, nor reacted"] = False,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> Row:
    """Messages of others that mention you by @handle in channels you are in, newest first."""
    mine = me(ctx)
    names = [re.escape(mine["handle"]), *(("channel", "here", "everyone") if include_channel_wide else ())]
    pattern = re.compile(rf"(?<![\w.])@({'|'.join(names)})(?![\w-]|\.\w)", re.IGNORECASE)
    where = "channel_id IN (SELECT channel_id FROM slack_members WHERE user_id = ?) AND user_id != ? AND text LIKE '%@%' AND sent_at >= ?"
    rows = ctx.db.rows("slack.messages", where, (mine["id"], mine["id"], after or ""), order="sent_at DESC, id DESC")
    found = [r for r in rows if pattern.search(r["text"]) and not (unanswered_only and _is_answered(ctx, r, mine["id"]))]
    return _page(ctx, found, limit, cursor)


def _is_answered(ctx: Context, row: Row, mine: str) -> bool:
    at = ctx.db.connection.execute("SELECT sent_at FROM slack_messages WHERE id = ?", (row["id"],)).fetchone()[0]
    later = "user_id = ? AND sent_at >= ? AND (thread_id = ? OR (channel_id = ? AND thread_id IS NULL))"
    written = ctx.db.count("slack.messages", later, (mine, at, row["thread_id"] or row["id"], row["channel_id"]))
    return bool(written or ctx.db.count("slack.reactions", "message_id = ? AND user_id = ?", (row["id"], mine)))


@tool("slack", read_only=True)
def list_pins(ctx: Context, channel_ref: ChannelRef) -> Row:
    """The pinned messages of a channel, newest first."""
    rows = ctx.db.rows("slack.messages", "channel_id = ? AND is_pinned", (channel(ctx, channel_ref)["id"],), order="sent_at DESC, id")
    return {"messages": shown(ctx, rows), "total": len(rows)}


@tool("slack", read_only=True)
def list_users(
    ctx: Context,
    query: Annotated[Name | None, "words that must all occur in handle, name, e-mail, title or status"] = None,
    include_bots: Annotated[bool, "bots, too"] = True,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Row:
    """The people of the workspace, by name."""
    rows = ctx.db.rows("slack.users", "" if include_bots else "NOT is_bot", order="name, id")
    return page([r for r in rows if has_words(query or "", r, ("handle", "name", "email", "title", "status_text"))], limit, cursor, "users")


@tool("slack", read_only=True)
def get_user(ctx: Context, user_ref: UserRef) -> Row:
    """One person: title, status, the channels that both of you can see them in, and their last message there."""
    row = user(ctx, user_ref)
    where = f"id IN (SELECT channel_id FROM slack_members WHERE user_id = ?) AND {SEEN}"
    rooms = ctx.db.rows("slack.channels", where, (row["id"], me(ctx)["id"]), order="name")
    last = ctx.db.first("slack.messages", f"user_id = ? AND {_IN_SEEN}", (row["id"], me(ctx)["id"]), order="sent_at DESC, id")
    return {**row, "channels": [r["name"] for r in rooms if r["kind"] == "channel"], "last_message": shown(ctx, [last])[0] if last else None}


@tool("slack", read_only=True)
def summarize_channel(
    ctx: Context,
    channel_ref: ChannelRef,
    after: Annotated[Time | None, "only messages at or after this"] = None,
    before: Annotated[Time | None, "only messages before this"] = None,
) -> Row:
    """Figures of a channel: messages, threads and reactions in a time, who wrote how much, the messages with the most reactions."""
    row = channel(ctx, channel_ref)
    if after and before and before <= after:
        raise ToolError("invalid", "before is not after `after`", "swap them")
    rows = ctx.db.rows("slack.messages", "channel_id = ? AND sent_at >= ? AND sent_at < ?", (row["id"], after or "", before or "9999"), order="sent_at, id")
    found = shown(ctx, rows)
    writers: dict[str, int] = {}
    for m in found:
        writers[m["user"]] = writers.get(m["user"], 0) + 1
    liked = sorted((m for m in found if m["reactions"]), key=lambda m: (-sum(r["count"] for r in m["reactions"]), m["id"]))
    return {
        "channel": row["name"], "messages": len(found), "threads": sum(m["reply_count"] > 0 for m in found),
        "reactions": sum(r["count"] for m in found for r in m["reactions"]), "top": liked[:3],
        "by_user": [{"user": u, "messages": n} for u, n in sorted(writers.items(), key=lambda i: (-i[1], i[0]))],
    }  # fmt: skip
