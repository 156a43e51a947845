"""Slack's own rules: who sees what, own messages only, archived channels, conversations, search, mentions."""

from __future__ import annotations

from typing import Any

import pytest
from server.registry import Context
from server.store import ToolError


@pytest.fixture
def office(ctx: Context) -> Context:
    """Dana (usr_1), Amir, Jo and a bot; #ops (all), #board (private, not Dana's), #attic (archived), #quiet (Dana is not in it), a DM with Amir."""
    db = ctx.db
    for handle, name in (("dana", "Dana Reyes"), ("amir", "Amir Nassar"), ("jo.s", "Jo Sandoval"), ("jo.k", "Jo Kim")):
        db.insert("slack.users", handle=handle, name=name, email=f"{handle}@harbor.example")
    for name, kind, private, archived in (
        ("ops", "channel", 0, 0), ("board", "channel", 1, 0), ("attic", "channel", 0, 1), ("quiet", "channel", 0, 0), ("amir, dana", "dm", 1, 0),
    ):  # fmt: skip
        db.insert("slack.channels", name=name, kind=kind, is_private=private, is_archived=archived, created_by="usr_2", created_at="2026-01-05T09:00:00")
    for channel, users in (("chn_1", "1234"), ("chn_2", "23"), ("chn_3", "12"), ("chn_4", "2"), ("chn_5", "12")):
        for n in users:
            db.insert("slack.members", channel_id=channel, user_id=f"usr_{n}")
    _say(ctx, "chn_1", 2, "Crane 4 is down. @dana can you call Pia?", "2026-03-06T09:00:00")
    _say(ctx, "chn_1", 1, "Calling now", "2026-03-06T09:05:00", "pst_1")
    _say(ctx, "chn_1", 3, "Manual: https://lifting.example/4", "2026-03-07T10:00:00")
    _say(ctx, "chn_2", 3, "Crane budget is gone @dana", "2026-03-07T11:00:00")
    _say(ctx, "chn_5", 2, "Crane talk at lunch?", "2026-03-08T12:00:00")
    _say(ctx, "chn_1", 4, "@here coffee machine works again, mail dana@harbor.example", "2026-03-08T13:00:00")
    db.insert("slack.reactions", message_id="pst_3", user_id="usr_2", emoji="eyes")
    db.insert("slack.reactions", message_id="pst_3", user_id="usr_4", emoji="eyes")
    return ctx


def _say(ctx: Context, channel: str, user: int, text: str, at: str, thread: str | None = None) -> None:
    ctx.db.insert("slack.messages", channel_id=channel, user_id=f"usr_{user}", text=text, sent_at=at, thread_id=thread)


def _refused(call: Any, ctx: Context, name: str, /, **args: Any) -> ToolError:
    with pytest.raises(ToolError) as caught:
        call(ctx, name, **args)
    return caught.value


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("crane", ["pst_5", "pst_1"]),
        ("crane in:#ops", ["pst_1"]),
        ("in:@amir", ["pst_5"]),
        ("from:@jo.s", ["pst_3"]),
        ("from:me", ["pst_2"]),
        ("has:link", ["pst_3"]),
        ("has::eyes:", ["pst_3"]),
        ("has:thread", ["pst_1"]),
        ("is:thread OR is:dm", ["pst_5", "pst_2"]),
        ("on:2026-03-06", ["pst_2", "pst_1"]),
        ("after:2026-03-06 before:2026-03-08", ["pst_3"]),
        ('"coffee machine" -manual', ["pst_6"]),
    ],
)
def test_search_sees_what_the_user_sees(office: Context, call: Any, query: str, found: list[str]) -> None:
    assert [m["id"] for m in call(office, "slack_search", query=query)["messages"]] == found


def test_private_channels_do_not_exist_for_others(office: Context, call: Any) -> None:
    assert [c["name"] for c in call(office, "slack_list_channels")["channels"]] == ["amir, dana", "ops", "quiet"]
    for name, args in (("slack_get_channel", {"channel_ref": "board"}), ("slack_get_thread", {"message_id": "pst_4"}), ("slack_search", {"query": "in:board"})):
        assert _refused(call, office, name, **args).type == "not_found"


def test_history_counts_threads_and_pages(office: Context, call: Any) -> None:
    first = call(office, "slack_get_channel_history", channel_ref="#ops", limit=2)
    assert [m["id"] for m in first["messages"]] == ["pst_6", "pst_3"]
    assert first["messages"][1]["reactions"] == [{"emoji": "eyes", "users": ["amir", "jo.k"], "count": 2}]
    second = call(office, "slack_get_channel_history", channel_ref="ops", limit=2, cursor=first["next_cursor"])
    assert [(m["id"], m["reply_count"]) for m in second["messages"]] == [("pst_1", 1)]
    assert second["next_cursor"] is None
    assert _refused(call, office, "slack_get_channel_history", channel_ref="ops", cursor="9").type == "bad_cursor"
    assert [m["id"] for m in call(office, "slack_get_thread", message_id="pst_2")["messages"]] == ["pst_1", "pst_2"]


def test_unknown_names_come_with_near_ones(office: Context, call: Any) -> None:
    assert "quiet (chn_4)" in _refused(call, office, "slack_get_channel", channel_ref="quite").hint
    assert "usr_3 (jo.s)" in _refused(call, office, "slack_get_user", user_ref="Jo Sandovall").hint
    assert _refused(call, office, "slack_search", query="form:amir").hint == "did you mean from or before?"


def test_only_own_messages_can_be_changed(office: Context, call: Any) -> None:
    assert _refused(call, office, "slack_edit_message", message_id="pst_1", text="x").type == "forbidden"
    assert _refused(call, office, "slack_delete_message", message_id="pst_3").type == "forbidden"
    edited = call(office, "slack_edit_message", message_id="pst_2", text="Called.")["message"]
    assert (edited["text"], edited["edited_at"]) == ("Called.", "2026-03-09T08:30:00-04:00")
    root = call(office, "slack_post_message", channel_ref="ops", text="Lunch at 12?")["message"]
    call(office, "slack_reply_in_thread", message_id=root["id"], text="or 13?")
    refused = _refused(call, office, "slack_delete_message", message_id=root["id"])
    assert (refused.type, "pst_8" in refused.message) == ("conflict", True)
    call(office, "slack_add_reaction", message_id="pst_8", emoji=":wave:")
    call(office, "slack_delete_message", message_id="pst_8")
    call(office, "slack_delete_message", message_id=root["id"])
    assert office.db.count("slack.messages") == 6
    assert office.db.count("slack.reactions") == 2


def test_writing_needs_an_open_channel_and_membership(office: Context, call: Any) -> None:
    assert _refused(call, office, "slack_post_message", channel_ref="attic", text="boo").type == "conflict"
    assert _refused(call, office, "slack_post_message", channel_ref="quiet", text="boo").type == "forbidden"
    call(office, "slack_join_channel", channel_ref="quiet")
    assert call(office, "slack_send_message", channel_ref="quiet", text="boo")["message"]["user"] == "dana"
    call(office, "slack_archive_channel", channel_ref="quiet")
    assert _refused(call, office, "slack_edit_message", message_id="pst_7", text="bah").type == "conflict"
    call(office, "slack_unarchive_channel", channel_ref="attic")
    assert call(office, "slack_post_message", channel_ref="attic", text="boo")["message"]["channel"] == "attic"


def test_answers_go_into_the_root_thread(office: Context, call: Any) -> None:
    answer = call(office, "slack_reply_in_thread", message_id="pst_2", text="Done", also_to_channel=True)
    assert (answer["message"]["thread_id"], answer["channel_message"]["thread_id"]) == ("pst_1", None)
    assert _refused(call, office, "slack_post_message", channel_ref="amir, dana", text="x", thread_id="pst_1").type == "conflict"


def test_direct_and_group_conversations_are_opened_once(office: Context, call: Any) -> None:
    known = call(office, "slack_send_direct_message", users=["@amir"], text="Yes")
    assert (known["opened"], known["message"]["channel_id"]) == (False, "chn_5")
    group = call(office, "slack_send_direct_message", users=["jo.k@harbor.example", "Jo Sandoval"], text="Both of you")
    assert (group["opened"], group["channel"]["kind"], group["channel"]["name"]) == (True, "group", "dana, jo.k, jo.s")
    again = call(office, "slack_open_group_dm", users=["jo.s", "jo.k"])
    assert (again["opened"], again["channel"]["id"]) == (False, group["channel"]["id"])
    assert _refused(call, office, "slack_invite_to_channel", channel_ref=group["channel"]["id"], users=["amir"]).type == "conflict"


def test_mentions(office: Context, call: Any) -> None:
    assert [m["id"] for m in call(office, "slack_list_mentions")["messages"]] == ["pst_6", "pst_1"]
    assert [m["id"] for m in call(office, "slack_list_mentions", include_channel_wide=False)["messages"]] == ["pst_1"]
    assert [m["id"] for m in call(office, "slack_list_mentions", unanswered_only=True)["messages"]] == ["pst_6"]


def test_reactions_pins_and_members(office: Context, call: Any) -> None:
    for _ in range(2):
        answer = call(office, "slack_add_reaction", message_id="pst_3", emoji="eyes")
    assert answer["message"]["reactions"][0]["count"] == 3
    assert _refused(call, office, "slack_remove_reaction", message_id="pst_3", emoji="tada").hint == "your reactions: eyes"
    call(office, "slack_pin_message", message_id="pst_3")
    assert [m["id"] for m in call(office, "slack_list_pins", channel_ref="ops")["messages"]] == ["pst_3"]
    assert _refused(call, office, "slack_remove_from_channel", channel_ref="ops", users=["amir"]).type == "forbidden"
    assert call(office, "slack_kick_from_channel", channel_ref="ops", users=["jo.k"])["channel"]["members"] == ["amir", "dana", "jo.s"]
    assert _refused(call, office, "slack_create_channel", name="ops").type == "conflict"


def test_private_words_are_not_shared(office: Context, call: Any) -> None:
    assert _refused(call, office, "slack_share_message", message_id="pst_5", channel_ref="ops").type == "forbidden"
    text = call(office, "slack_share_message", message_id="pst_3", channel_ref="amir, dana", comment="Look")["message"]["text"]
    assert text == "Look\n> Manual: https://lifting.example/4\n- Jo Sandoval in #ops, 2026-03-07T10:00:00-05:00"
    figures = call(office, "slack_summarize_channel", channel_ref="ops")
    assert (figures["messages"], figures["threads"], figures["reactions"], figures["by_user"][0]) == (4, 1, 2, {"user": "amir", "messages": 1})
