"""Channels and conversations: opening, joining, inviting, topics, archiving."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from _server.store import Row
from msgspec import Meta

from ...registry import Context, tool
from ...store import ToolError
from .workspace import ChannelRef, UserRefs, channel, is_member, me, members, user, writable

ChannelName = Annotated[str, Meta(pattern=r"^#?[a-z0-9][a-z0-9_-]{0,79}$"), "lower case letters, digits, - and _"]
Words = Annotated[str, Meta(max_length=250)]


def conversation(ctx: Context, refs: Iterable[str]) -> tuple[Row, bool]:
    """The direct (one other) or group conversation with exactly these people, and whether it had to be opened."""
    mine = me(ctx)
    others = {row["id"]: row for row in (user(ctx, ref) for ref in refs) if row["id"] != mine["id"]}
    people = sorted([mine, *others.values()], key=lambda r: r["handle"])
    kind = "dm" if len(people) <= 2 else "group"
    wanted = {r["id"] for r in people}
    for row in ctx.db.rows("slack.channels", "kind = ? AND NOT is_archived", (kind,)):
        if {m["id"] for m in members(ctx, row["id"])} == wanted:
            return row, False
    name = ", ".join(r["handle"] for r in people)
    row = ctx.db.insert("slack.channels", kind=kind, name=name, is_private=True, created_by=mine["id"], created_at=ctx.now_text)
    for person in people:
        ctx.db.insert("slack.members", channel_id=row["id"], user_id=person["id"])
    return row, True


def _whole(ctx: Context, row: Row) -> Row:
    return {**row, "members": [m["handle"] for m in members(ctx, row["id"])]}


def _real(row: Row) -> Row:
    """The row if it is a channel; ToolError conflict for a direct or group conversation."""
    if row["kind"] != "channel":
        raise ToolError("conflict", f"{row['name']} is a {'direct' if row['kind'] == 'dm' else 'group'} conversation, its people are fixed", "open another one")
    return row


@tool("slack", idempotent=True, aliases=("slack_open_dm", "slack_open_group_dm"))
def open_conversation(ctx: Context, users: Annotated[UserRefs, "the other people: @handles, e-mail addresses, full names or ids"]) -> Row:
    """The direct conversation with one person, or the group conversation with several; opened when there is none yet."""
    row, opened = conversation(ctx, users)
    return {"channel": _whole(ctx, row), "opened": opened}


@tool("slack")
def create_channel(
    ctx: Context,
    name: ChannelName,
    topic: Annotated[Words, "what it is about now"] = "",
    purpose: Annotated[Words, "what it is for"] = "",
    is_private: Annotated[bool, "only people invited see it"] = False,
    invite: Annotated[list[str] | None, "people to take in at once: @handles, e-mail addresses, full names or ids"] = None,
) -> Row:
    """Make a channel with you and those invited in it."""
    name = name.removeprefix("#")
    _check_name(ctx, name)
    guests = [user(ctx, ref)["id"] for ref in invite or []]
    mine = me(ctx)["id"]
    row = ctx.db.insert("slack.channels", name=name, topic=topic, purpose=purpose, is_private=is_private, created_by=mine, created_at=ctx.now_text)
    for person in dict.fromkeys([mine, *guests]):
        ctx.db.insert("slack.members", channel_id=row["id"], user_id=person)
    return {"channel": _whole(ctx, row)}


def _check_name(ctx: Context, name: str) -> None:
    taken = ctx.db.first("slack.channels", "kind = 'channel' AND name = ? COLLATE NOCASE", (name,))
    if taken is not None:
        raise ToolError("conflict", f"there is a channel #{name} already{' (archived)' if taken['is_archived'] else ''}", "choose another name")


@tool("slack", idempotent=True, aliases=("slack_set_topic", "slack_set_channel_topic"))
def update_channel(
    ctx: Context,
    channel_ref: ChannelRef,
    topic: Annotated[Words | None, "new topic; empty takes it away"] = None,
    purpose: Annotated[Words | None, "new purpose"] = None,
    name: Annotated[ChannelName | None, "new name"] = None,
) -> Row:
    """Change topic, purpose or name of a channel you are in; what is not given stays."""
    row = writable(ctx, channel(ctx, channel_ref))
    row = row if name is None else _real(row)
    if name is not None and name.removeprefix("#") != row["name"]:
        _check_name(ctx, name.removeprefix("#"))
    values = {"topic": topic, "purpose": purpose, "name": name.removeprefix("#") if name else None}
    return {"channel": _whole(ctx, ctx.db.update("slack.channels", row["id"], **{k: v for k, v in values.items() if v is not None}))}


@tool("slack", idempotent=True)
def archive_channel(ctx: Context, channel_ref: ChannelRef) -> Row:
    """Close a channel you are in: it can be read and searched, but nobody writes there any more."""
    row = _real(channel(ctx, channel_ref))
    if not row["is_archived"]:
        writable(ctx, row)
    return {"channel": _whole(ctx, ctx.db.update("slack.channels", row["id"], is_archived=True))}


@tool("slack", idempotent=True)
def unarchive_channel(ctx: Context, channel_ref: ChannelRef) -> Row:
    """Open an archived channel again."""
    row = _real(channel(ctx, channel_ref))
    return {"channel": _whole(ctx, ctx.db.update("slack.channels", row["id"], is_archived=False))}


@tool("slack", idempotent=True)
def join_channel(ctx: Context, channel_ref: ChannelRef) -> Row:
    """Go into a public channel."""
    row = _real(channel(ctx, channel_ref))
    if row["is_archived"]:
        raise ToolError("conflict", f"#{row['name']} is archived", "slack_unarchive_channel opens it again")
    _take_in(ctx, row, [me(ctx)["id"]])
    return {"channel": _whole(ctx, row)}


def _take_in(ctx: Context, row: Row, ids: Iterable[str]) -> list[str]:
    added = [i for i in dict.fromkeys(ids) if not is_member(ctx, row["id"], i)]
    for person in added:
        ctx.db.insert("slack.members", channel_id=row["id"], user_id=person)
    return added


@tool("slack", idempotent=True)
def leave_channel(ctx: Context, channel_ref: ChannelRef) -> Row:
    """Go out of a channel; you come back by slack_join_channel, into a private one only by invitation."""
    row = _real(channel(ctx, channel_ref))
    ctx.db.delete("slack.members", "channel_id = ? AND user_id = ?", (row["id"], me(ctx)["id"]))
    return {"channel": _whole(ctx, row)}


@tool("slack", idempotent=True)
def invite_to_channel(ctx: Context, channel_ref: ChannelRef, users: Annotated[UserRefs, "@handles, e-mail addresses, full names or ids"]) -> Row:
    """Take people into a channel that you are in; who is in it already stays."""
    row = writable(ctx, _real(channel(ctx, channel_ref)))
    people = {u["id"]: u["handle"] for u in (user(ctx, ref) for ref in users)}
    added = _take_in(ctx, row, people)
    return {"channel": _whole(ctx, row), "added": [people[i] for i in added]}


@tool("slack", destructive=True, idempotent=True, aliases=("slack_kick_from_channel",))
def remove_from_channel(ctx: Context, channel_ref: ChannelRef, users: Annotated[UserRefs, "@handles, e-mail addresses, full names or ids"]) -> Row:
    """Take people out of a channel that you are in; its founder stays."""
    row = writable(ctx, _real(channel(ctx, channel_ref)))
    people = [user(ctx, ref) for ref in users]
    for person in people:
        if person["id"] == me(ctx)["id"]:
            raise ToolError("conflict", "you cannot remove yourself", "slack_leave_channel lets you out")
        if person["id"] == row["created_by"]:
            raise ToolError("forbidden", f"{person['name']} has founded #{row['name']}")
        if not is_member(ctx, row["id"], person["id"]):
            inside = ", ".join(m["handle"] for m in members(ctx, row["id"]))
            raise ToolError("not_found", f"{person['name']} is not in #{row['name']}", f"in it: {inside}")
    for person in people:
        ctx.db.delete("slack.members", "channel_id = ? AND user_id = ?", (row["id"], person["id"]))
    return {"channel": _whole(ctx, row)}
