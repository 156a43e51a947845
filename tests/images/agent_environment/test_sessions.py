"""Sessions under stress: slow and failing tools, a full disk, damaged files, many open at once."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from _server.faults import Fault
from server import app, calls, registry, sessions
from server.sessions import Key, Session, Sessions
from starlette.testclient import TestClient

from tests.images.serving import served

EVENT = {"title": "Written", "start": "2026-03-20T10:00:00", "end": "2026-03-20T11:00:00"}
A, B = Key("assignment", "a"), Key("assignment", "b")


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[calls.Caller]:
    from server import tools

    tools.load()
    made = calls.Caller(Sessions(tmp_path, "software-team", max_open=3))
    yield made
    made.sessions.close()


@contextlib.contextmanager
def extra_tool(function: Callable[..., Any]) -> Iterator[str]:
    """A tool of the server `contacts` for the length of a block."""
    registry.tool("contacts")(function)
    name = f"contacts_{function.__name__}"
    try:
        yield name
    finally:
        del registry.TOOLS[name]


def test_a_slow_call_holds_up_its_own_session_only(caller: calls.Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def slow(ctx: registry.Context) -> str:
        """Wait."""
        entered.set()
        assert go_on.wait(30)
        return "done"

    async def run(name: str) -> None:
        first = asyncio.create_task(caller.call(A, "me", name, {}))
        await asyncio.to_thread(entered.wait, 30)
        assert (await caller.call(B, "me", "calendar_get_calendar_events", {})).fault is None
        monkeypatch.setattr(sessions, "WAIT_S", 0.05)
        with pytest.raises(Fault, match=f"call of {name} of session 'a' has not ended") as busy:
            await caller.call(A, "me", "calendar_get_calendar_events", {})
        assert busy.value.status == 409
        monkeypatch.setattr(sessions, "WAIT_S", 30)
        waiting = asyncio.create_task(caller.call(A, "me", "calendar_get_calendar_events", {}))
        go_on.set()
        assert (await first).text == b'"done"'
        assert (await waiting).fault is None

    with extra_tool(slow) as name:
        asyncio.run(run(name))


def test_a_cancelled_call_keeps_its_session_until_it_has_ended(caller: calls.Caller) -> None:
    """As an MCP client cancels: the tool's thread is still in the middle of its transaction."""
    entered, go_on = threading.Event(), threading.Event()

    def slow(ctx: registry.Context) -> None:
        """Write, then wait."""
        ctx.db.insert("contacts.groups", name="late")
        entered.set()
        assert go_on.wait(30)

    async def run(name: str) -> None:
        first = asyncio.create_task(caller.call(A, "me", name, {}))
        await asyncio.to_thread(entered.wait, 30)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        second = asyncio.create_task(caller.call(A, "me", "contacts_list_groups", {}))
        assert not (await asyncio.wait([second], timeout=0.1))[0]
        go_on.set()
        assert b'"late"' in (await second).text

    with extra_tool(slow) as name:
        asyncio.run(run(name))


def test_short_calls_need_no_thread(caller: calls.Caller) -> None:
    seen: list[threading.Thread] = []

    def where(ctx: registry.Context) -> None:
        """Note the thread."""
        seen.append(threading.current_thread())

    async def run(name: str) -> None:
        for _ in range(3):
            assert (await caller.call(A, "me", name, {})).fault is None

    with extra_tool(where) as name:
        asyncio.run(run(name))
    assert [thread is threading.main_thread() for thread in seen] == [False, True, True]


def test_a_bug_in_a_tool_is_told_without_its_inside_and_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken(ctx: registry.Context, secret: Annotated[str, "x"]) -> None:
        """Fail half-way."""
        ctx.db.insert("contacts.groups", name="half")
        raise KeyError(secret)

    with extra_tool(broken) as name, TestClient(app.make(tmp_path, "software-team")) as client:
        for path in ("/call-tool", "/call-tools"):
            answer = client.post(path, json={"toolName": name, "toolArguments": {"secret": "s3cret"}})
            assert answer.status_code == 500
            assert answer.json()["error"]["type"] == "InternalError"
            assert "s3cret" not in answer.text
            assert answer.json()["request_id"] in caplog.text
        assert "KeyError" in caplog.text
        groups = client.post("/show-data", json={"serverName": "contacts"}).json()["groups"]
        assert "half" not in {group["name"] for group in groups}
        rows = client.get("/log").json()["log"]
        assert [(r["tool"], r["ok"]) for r in rows if r["call"] == "tool"] == [(name, False)] * 2


def test_rows_that_no_longer_fit_together_are_a_conflict(caller: calls.Caller) -> None:
    def orphan(ctx: registry.Context) -> None:
        """Refer to nothing."""
        ctx.db.insert("contacts.memberships", group_id="nope", person_id="nope")

    with extra_tool(orphan) as name:
        outcome = asyncio.run(caller.call(A, "me", name, {}))
    assert outcome.fault is not None
    assert outcome.fault.type == "conflict"


def test_what_was_remembered_before_a_rollback_is_forgotten(caller: calls.Caller) -> None:
    sql = "SELECT count(*) FROM contacts_groups"

    def peek_and_fail(ctx: registry.Context) -> None:
        """Look at one's own change, then fail."""
        ctx.db.insert("contacts.groups", name="gone")
        ctx.db.text(sql)
        raise Fault(400, "x", "x")

    async def run(name: str) -> tuple[str, str]:
        async with caller.sessions.use(A, "me", "test") as session:
            before = session.open().db.text(sql)
        assert (await caller.call(A, "me", name, {})).fault
        async with caller.sessions.use(A, "me", "test") as session:
            return before, session.open().db.text(sql)

    with extra_tool(peek_and_fail) as name:
        before, after = asyncio.run(run(name))
    assert before == after


def test_few_files_are_open_whatever_the_number_of_sessions(caller: calls.Caller) -> None:
    async def run() -> None:
        for turn in (1, 2):
            for n in range(8):
                outcome = await caller.call(Key("assignment", str(n)), "me", "calendar_add_event", EVENT)
                assert f'"evt_{turn}"' in outcome.text.decode()
                assert len(caller.sessions._open._found) <= 3
                assert sum(session.context is not None for session in caller.sessions._known.values()) <= 3

    asyncio.run(run())


def test_a_copy_that_was_never_finished_is_swept_away(tmp_path: Path) -> None:
    (tmp_path / "sessions").mkdir()
    for name in ("assignment-x.tmp", "assignment-x.tmp-wal", "mcp-old.sqlite", "assignment-y.sqlite"):
        (tmp_path / "sessions" / name).write_text("x")
    Sessions(tmp_path, "software-team")
    assert [path.name for path in (tmp_path / "sessions").iterdir()] == ["assignment-y.sqlite"]


def test_a_full_disk_is_told_and_loses_nothing(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        server.call("full", "calendar_add_event", **EVENT)
        pid = server.process.pid
        limit = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, limit[1]))
        for path, body in (
            ("/reset", {}),
            ("/call-tools", {"toolName": "email_send", "toolArguments": {"to": ["a@b.example"], "subject": "s", "body": "b" * 50_000}}),
        ):
            answer = server.post(path, {**body, "tags": {"assignmentId": "full"}})
            assert (answer.status, answer.json["error"]["type"]) == (503, "StorageUnavailable"), answer.json
            assert "DATA_DIR" in answer.json["error"]["hint"]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limit)
        titles = {row["title"] for row in server.post("/show-data", {"tags": {"assignmentId": "full"}, "serverName": "calendar"}).json["events"]}
        assert "Written" in titles
        assert server.post("/reset", {"tags": {"assignmentId": "full"}}).status == 200


def test_a_damaged_file_is_told_and_a_reset_mends_it(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        server.call("damaged", "calendar_add_event", **EVENT)
        server.stop()
    path = Session(Key("assignment", "damaged"), tmp_path / "sessions" / Key("assignment", "damaged").filename).path
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    with served(tmp_path) as server:
        answer = server.post("/call-tool", {"tool_name": "calendar_get_calendar_events", "tool_args": {}, "tags": {"assignmentId": "damaged"}})
        assert (answer.status, answer.json["error"]["type"]) == (503, "StorageUnavailable")
        assert server.post("/reset", {"tags": {"assignmentId": "damaged"}}).status == 200
        assert not server.call("damaged", "calendar_add_event", **EVENT)["isError"]
