"""The mailbox's own rules: the search language, threads, answers, drafts, labels, attachments and the filesystem."""

from __future__ import annotations

from typing import Any

import pytest
from server.registry import Context
from server.store import ToolError

ME, AMIR, JO, PIA = "dana@harbor.example", "amir@harbor.example", "jo@harbor.example", "pia@quaymark.example"


@pytest.fixture
def office(ctx: Context) -> Context:
    """Two conversations, a newsletter in spam, a draft and a file."""
    db = ctx.db
    for name in ("Customers", "Later"):
        db.insert("email.labels", name=name)
    _mail(ctx, "thr_1", PIA, "Pia Moor", [ME], "Crane sensors", "The second batch drifts by 4%.", "2026-03-02T10:00:00", labels=["Customers"])
    _mail(ctx, "thr_1", ME, "Dana Reyes", [PIA], "Re: Crane sensors", "Send us the logs, please.", "2026-03-03T09:00:00", folder="sent", reply="msg_1")
    _mail(ctx, "thr_1", PIA, "Pia Moor", [ME, JO], "Re: Crane sensors", "Logs attached. Who pays?", "2026-03-06T16:00:00", read=False, cc=[AMIR], reply="msg_2")
    _mail(ctx, "thr_2", AMIR, "Amir Nassar", [ME], "Budget numbers", "Forecast is 20% over budget.", "2026-02-10T08:00:00", folder="archive", starred=True)
    _mail(ctx, "thr_3", "deals@loud.example", "", [ME], "You won a crane", "Click!", "2026-03-08T03:00:00", folder="spam", read=False)
    db.insert("email.attachments", message_id="msg_3", filename="logs.csv", content_type="text/csv", size=12, content="t,drift\n1,4\n")
    db.insert("slack.users", handle="jo", name="Jo Sandoval", email=JO)
    db.insert("filesystem.entries", path="/docs", kind="directory", modified_at=ctx.now_text)
    db.insert("filesystem.entries", path="/docs/terms.md", content="# Terms\n", size=8, modified_at=ctx.now_text)
    return ctx


def _mail(
    ctx: Context, thread: str, sender: str, name: str, to: list[str], subject: str, body: str, at: str,
    *, folder: str = "inbox", read: bool = True, starred: bool = False, reply: str | None = None, labels: list[str] | None = None, cc: list[str] | None = None,
) -> None:  # fmt: skip
    if not ctx.db.count("email.threads", "id = ?", (thread,)):
        ctx.db.insert("email.threads", subject=subject)
    ctx.db.insert(
        "email.messages", thread_id=thread, from_address=sender, from_name=name, to=to, cc=cc or [], subject=subject, body=body, sent_at=at,
        folder=folder, is_read=read, is_starred=starred, in_reply_to=reply, labels=labels or [],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("crane", ["msg_3", "msg_2", "msg_1"]),
        ("crane in:anywhere", ["msg_5", "msg_3", "msg_2", "msg_1"]),
        ("from:pia is:unread", ["msg_3"]),
        ('subject:"budget numbers" OR "send us"', ["msg_2", "msg_4"]),
        ("(from:amir OR from:me) -budget", ["msg_2"]),
        ("crane -from:pia", ["msg_2"]),
        ("has:attachment filename:.csv", ["msg_3"]),
        ("label:customers", ["msg_1"]),
        ("after:2026-03-03 before:2026/03/06", ["msg_2"]),
        ("newer_than:5d", ["msg_3"]),
        ("older_than:2w is:starred", ["msg_4"]),
        ("cc:amir to:jo", ["msg_3"]),
        ("20%", ["msg_4"]),
        ("in:trash", []),
        ("", ["msg_3", "msg_2", "msg_1", "msg_4"]),
    ],
)
def test_search(office: Context, call: Any, query: str, found: list[str]) -> None:
    assert [m["id"] for m in call(office, "email_search", query=query)["messages"]] == found


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("form:pia", "no operator form:"),
        ("is:urgent", "not known"),
        ("in:outbox", "no folder"),
        ("label:customer", "no label"),
        ("(crane", "not closed"),
        ("crane)", "closing parenthesis"),
        ("OR crane", "between two terms"),
        ("before:yesterday", "no day"),
        ('"crane', "cannot be read"),
    ],
)
def test_search_says_what_it_cannot_read(office: Context, call: Any, query: str, message: str) -> None:
    with pytest.raises(ToolError, match=message) as caught:
        call(office, "email_search", query=query)
    assert caught.value.hint


def test_paging_goes_through_all_and_refuses_invented_cursors(office: Context, call: Any) -> None:
    seen, cursor = [], None
    while True:
        answer = call(office, "email_search", query="", limit=3, cursor=cursor)
        seen += [m["id"] for m in answer["messages"]]
        cursor = answer["next_cursor"]
        if cursor is None:
            break
    assert seen == ["msg_3", "msg_2", "msg_1", "msg_4"]
    with pytest.raises(ToolError) as caught:
        call(office, "email_list_messages", cursor="-1")
    assert caught.value.type == "bad_cursor"


def test_reply_goes_to_the_sender_in_the_thread(office: Context, call: Any) -> None:
    sent = call(office, "email_reply", message_id="msg_3", body="We do.", quote=True, attachments=["/docs/terms.md"])
    assert (sent["to"], sent["cc"], sent["subject"], sent["thread_id"], sent["in_reply_to"]) == ([PIA], [], "Re: Crane sensors", "thr_1", "msg_3")
    assert sent["body"] == "We do.\n\nOn Fri 6 Mar 2026 at 16:00, Pia Moor wrote:\n> Logs attached. Who pays?\n"
    assert [(a["filename"], a["content_type"], a["size"]) for a in sent["attachments"]] == [("terms.md", "text/markdown", 8)]
    assert sent["sent_at"] == "2026-03-09T08:30:00-04:00"


def test_reply_all_leaves_the_user_out(office: Context, call: Any) -> None:
    sent = call(office, "email_reply_all", message_id="msg_3", body="Split it.")
    assert (sent["to"], sent["cc"]) == ([PIA, JO], [AMIR])
    own = call(office, "email_reply", message_id="msg_2", body="Logs?")
    assert own["to"] == [PIA]


def test_forward_takes_text_and_attachments_along(office: Context, call: Any) -> None:
    sent = call(office, "email_forward", message_id="msg_3", to=["Jo Sandoval"], note="Yours?")
    assert (sent["to"], sent["subject"]) == ([JO], "Fwd: Re: Crane sensors")
    assert sent["body"].startswith("Yours?\n\n---------- Forwarded message ----------\nFrom: Pia Moor <pia@quaymark.example>\n")
    assert sent["body"].endswith(f"To: {ME}, {JO}\nCc: {AMIR}\n\nLogs attached. Who pays?")
    assert [a["filename"] for a in sent["attachments"]] == ["logs.csv"]
    assert call(office, "email_forward", message_id="msg_3", to=[JO], include_attachments=False)["attachments"] == []


def test_mail_to_oneself_arrives_and_bad_addresses_do_not_leave(office: Context, call: Any) -> None:
    call(office, "send_email", to=["Dana <dana@harbor.example>", JO], subject="Note", body="Call Pia", bcc=[JO])
    rows = office.db.rows("email.messages", "subject = 'Note'")
    assert [(r["folder"], r["is_read"], r["to"], r["bcc"]) for r in rows] == [("sent", True, [ME, JO], []), ("inbox", False, [ME, JO], [])]
    for to, kind in ((["jo@harbor"], "invalid"), (["Jo Sandovall"], "not_found"), ([], "invalid")):
        with pytest.raises(ToolError) as caught:
            call(office, "email_send", to=to, subject="x", body="y")
        assert caught.value.type == kind
        assert kind != "not_found" or "Jo Sandoval <jo@harbor.example>" in caught.value.hint


def test_a_draft_lives_until_it_is_sent(office: Context, call: Any) -> None:
    draft = call(office, "email_create_draft", reply_to_message_id="msg_3", body="Hm.", attachments=["/docs/terms.md"])
    assert (draft["to"], draft["subject"], draft["folder"], draft["sent_at"]) == ([PIA], "Re: Crane sensors", "drafts", None)
    call(office, "email_update_draft", draft_id=draft["id"], body="We pay half.", cc=[JO])
    sent = call(office, "email_send_draft", draft_id=draft["id"])
    assert (sent["folder"], sent["body"], sent["cc"], sent["in_reply_to"], sent["thread_id"]) == ("sent", "We pay half.", [JO], "msg_3", "thr_1")
    assert [a["filename"] for a in sent["attachments"]] == ["terms.md"]
    assert office.db.count("email.messages", "folder = 'drafts'") == 0
    with pytest.raises(ToolError, match="is no draft"):
        call(office, "email_update_draft", draft_id=sent["id"], body="Wait")
    with pytest.raises(ToolError, match="there is no draft"):
        call(office, "email_send_draft", draft_id=draft["id"])


def test_renaming_and_deleting_a_label_reaches_its_messages(office: Context, call: Any) -> None:
    assert call(office, "email_apply_labels", thread_id="thr_1", add=["later"])["changed"] == 3
    assert call(office, "email_update_label", name="Later", new_name="Soon")["messages"] == 3
    assert office.db.get("email.messages", "msg_1")["labels"] == ["Customers", "Soon"]
    with pytest.raises(ToolError) as caught:
        call(office, "email_update_label", name="Soon", new_name="customers")
    assert caught.value.type == "conflict"
    assert call(office, "email_delete_label", name="Customers")["messages"] == 1
    assert office.db.get("email.messages", "msg_1")["labels"] == ["Soon"]
    with pytest.raises(ToolError) as caught:
        call(office, "email_apply_labels", message_ids=["msg_1"], add=["Customers"])
    assert caught.value.hint.startswith("labels: Soon")


def test_trash_and_back_and_gone(office: Context, call: Any) -> None:
    call(office, "email_trash", message_ids=["msg_2", "msg_3"])
    assert call(office, "email_restore", message_ids=["msg_2"])["messages"][0]["folder"] == "sent"
    answer = call(office, "email_empty_trash")
    assert [m["id"] for m in answer["deleted"]] == ["msg_3"]
    assert office.db.count("email.attachments") == 0
    call(office, "email_trash", message_ids=["msg_1", "msg_4"])
    call(office, "email_empty_trash")
    assert office.db.get("email.messages", "msg_2")["in_reply_to"] is None
    assert [t["id"] for t in office.db.rows("email.threads")] == ["thr_1", "thr_3"]
    with pytest.raises(ToolError, match="not in the trash"):
        call(office, "email_empty_trash", message_ids=["msg_2"])


def test_messages_stay_where_they_belong(office: Context, call: Any) -> None:
    with pytest.raises(ToolError, match="was sent by"):
        call(office, "email_move", message_ids=["msg_1"], folder="sent")
    assert call(office, "email_archive", thread_id="thr_1")["changed"] == 2
    assert office.db.get("email.messages", "msg_2")["folder"] == "sent"
    with pytest.raises(ToolError) as caught:
        call(office, "email_mark_read", message_ids=["msg_9"])
    assert caught.value.type == "not_found"
    with pytest.raises(ToolError, match="not clear"):
        call(office, "email_star")


def test_attachments_and_files(office: Context, call: Any) -> None:
    answer = call(office, "email_save_attachment", attachment_id="atc_1", path="/docs")
    assert (answer["file"]["path"], answer["file"]["content"], answer["file"]["size"]) == ("/docs/logs.csv", "t,drift\n1,4\n", 12)
    with pytest.raises(ToolError) as caught:
        call(office, "email_save_attachment", attachment_id="atc_1", path="/docs/terms.md")
    assert caught.value.type == "conflict"
    with pytest.raises(ToolError):
        call(office, "email_save_attachment", attachment_id="atc_1", path="/../etc/passwd")
    with pytest.raises(ToolError) as caught:
        call(office, "email_send", to=[JO], subject="x", body="y", attachments=["/docs/term.md"])
    assert "/docs/terms.md" in caught.value.hint


def test_threads_and_what_waits(office: Context, call: Any) -> None:
    threads = call(office, "email_list_threads", folder=None)["threads"]
    assert [(t["id"], t["messages"], t["unread"]) for t in threads] == [("thr_3", 1, 1), ("thr_1", 3, 1), ("thr_2", 1, 0)]
    assert threads[1]["participants"] == [PIA, ME, JO, AMIR]
    assert [m["id"] for m in call(office, "email_get_thread", thread_id="msg_2")["messages"]] == ["msg_1", "msg_2", "msg_3"]
    assert [m["id"] for m in call(office, "email_find_unanswered")["messages"]] == ["msg_4", "msg_3"]
    assert [m["id"] for m in call(office, "email_find_unanswered", older_than_days=7)["messages"]] == ["msg_4"]
    call(office, "email_reply", message_id="msg_4", body="Cut travel.")
    assert [m["thread_id"] for m in call(office, "email_find_unanswered", waiting="for_others")["messages"]] == ["thr_2"]
    assert call(office, "email_mailbox_counts")["folders"]["inbox"] == {"total": 2, "unread": 1, "starred": 0}


def test_addresses_are_looked_at(office: Context, call: Any) -> None:
    known, typo, broken = call(office, "email_validate_addresses", addresses=[JO, "jo@harbour.example", "jo@@x"])["addresses"]
    assert (known["name"], known["source"], known["is_valid"]) == ("Jo Sandoval", "slack.users", True)
    assert (typo["is_valid"], typo["is_known"], typo["near"]) == (True, False, [JO])
    assert broken["is_valid"] is False
