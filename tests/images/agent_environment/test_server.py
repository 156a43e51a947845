"""The tool server over HTTP: both surfaces, every spelling, sessions that share nothing and lose nothing."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.images.serving import IMAGE, Client, Served, served

UNIVERSE = "software-team"
READ = {"toolName": "contacts_search_people", "toolArguments": {"query": "", "limit": 1}}


def tags(name: str) -> dict[str, Any]:
    return {"tags": {"assignmentId": name}}


def write(client: Client, session: str | None, title: str) -> Any:
    return client.call(session, "calendar_add_event", title=title, start="2026-03-20T10:00:00", end="2026-03-20T11:00:00")


def titles(client: Client, session: str | None) -> set[str]:
    body = {"serverName": "calendar", **({} if session is None else tags(session))}
    return {row["title"] for row in client.post("/show-data", body).json["events"]}


def test_health_and_the_servers(server: Served) -> None:
    answer = server.get("/health")
    assert answer.status == 200
    assert answer.json["status"] == "ok"
    assert answer.json["version"]
    assert answer.headers["x-session"] == "@instance"
    enabled = server.get("/enabled-servers").json
    assert (enabled["total"], enabled["online"], enabled["offline"]) == (9, 9, 0)
    assert ["calendar", "OK"] in enabled["servers"]


def test_every_path_answers_under_api_too(server: Served) -> None:
    assert server.get("/api/health").status == 200
    assert server.post("/api/list-tools").json == server.post("/list-tools").json
    assert server.post("/api/call-tools", {**READ, **tags("under-api")}).json["isError"] is False


def test_there_are_at_least_nine_servers_and_ninety_tools(server: Served) -> None:
    tools = server.post("/list-tools").json
    assert len(tools) >= 90
    assert len({tool["name"].partition("_")[0] for tool in tools}) >= 9
    names = [tool["name"] for tool in tools]
    assert len(set(names)) == len(names)
    for tool in tools:
        assert tool["description"], tool["name"]
        assert tool["inputSchema"]["type"] == "object"
        assert all(p.get("description") or "$ref" in p or "anyOf" in p for p in tool["inputSchema"].get("properties", {}).values()), tool["name"]
        assert set(tool["annotations"]) == {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}


def test_list_tools_has_two_shapes(server: Served) -> None:
    assert isinstance(server.post("/list-tools").json, list)
    assert isinstance(server.post("/list-tools", {}).json, list)
    assert server.post("/list-tools", {"image": "x", **tags("shape")}).json["tools"] == server.post("/list-tools").json


@pytest.mark.parametrize("body", [
    {"tool_name": "contacts_search_people", "tool_args": {"query": ""}, "use_cache": False},
    {"toolName": "contacts_search_people", "toolArgs": {"query": ""}},
    {"toolName": "contacts_search_people", "toolArguments": {"query": ""}},
])  # fmt: skip
def test_every_spelling_of_a_call(server: Served, body: dict[str, Any]) -> None:
    (block,) = server.post("/call-tool", {**body, **tags("spelling")}).json
    assert block["type"] == "text"
    assert json.loads(block["text"])["people"]
    both = server.post("/call-tools", {**body, **tags("spelling")}).json
    assert both == {"content": [block], "isError": False}


@pytest.mark.parametrize("session", [
    {"tags": {"assignmentId": "who"}}, {"tags": {"assignment_id": "who"}}, {"sessionId": "who"}, {"session_id": "who"}, {"assignmentId": "who"},
])  # fmt: skip
def test_every_spelling_of_a_session(server: Served, session: dict[str, Any]) -> None:
    answer = server.post("/call-tools", {**READ, **session})
    assert answer.headers["x-session"] == "who"


@pytest.mark.parametrize("name", ["assignmentId", "assignment_id", "sessionId", "session_id"])
def test_a_session_in_the_query_counts_for_every_method(server: Served, name: str) -> None:
    assert server.post(f"/call-tools?{name}=who", READ).headers["x-session"] == "who"
    assert server.get(f"/log?{name}=who").headers["x-session"] == "who"


@pytest.mark.parametrize("query", ["assignmentId=a&assignmentId=b", "session_id=a&assignmentId=b", "assignmentId=%ff", "assignmentId="])
def test_a_query_that_names_no_one_session_is_refused(server: Served, query: str) -> None:
    for method, path in (("GET", "/log"), ("POST", "/call-tools"), ("POST", "/mcp")):
        assert server.send(method, f"{path}?{query}", READ if method == "POST" else None).status == 400, path
    assert server.post("/call-tools?assignmentId=a", {**READ, "tags": {"assignmentId": "b"}}).status == 400


@pytest.mark.parametrize("name", [" a ", "ü", "%41", "a\nb", "a b"])
def test_a_session_of_any_name_is_on_its_answer(server: Served, name: str) -> None:
    assert unquote(server.post("/call-tools", {**READ, "tags": {"assignmentId": name}}).headers["x-session"]) == name


def test_quick_start_aliases(server: Served) -> None:
    added = server.call("aliases", "add_calendar_event", title="Alias", start="2026-03-20T10:00:00", end="2026-03-20T11:00:00")
    assert not added["isError"], added
    assert not server.call("aliases", "calendar_get_events")["isError"]
    assert not server.call("aliases", "send_email", to=["a@b.example"], subject="s", body="b")["isError"]
    assert [row["tool"] for row in server.get("/log?session_id=aliases").json["log"] if row["call"] == "tool"] == [
        "calendar_add_event", "calendar_get_calendar_events", "email_send",
    ]  # fmt: skip


def test_times_are_iso_or_unix_seconds(server: Served) -> None:
    iso = server.call("times", "calendar_get_calendar_events", start="2026-03-09T00:00:00Z", end="2026-03-16T00:00:00Z")
    unix = server.call("times", "calendar_get_calendar_events", start=1773014400, end=1773619200.0)
    assert iso["content"] == unix["content"]


class TestErrors:
    """Each trouble of the tool servers' table ends in an answer that names it and the way out."""

    def test_unknown_tool(self, server: Served) -> None:
        answer = server.post("/call-tool", {"tool_name": "calendar_get_calender_events", "tool_args": {}})
        assert answer.status == 404
        error = answer.json["error"]
        assert error["type"] == "UnknownTool"
        assert "calendar_get_calendar_events" in error["hint"]
        assert "case-sensitive" in error["message"]
        assert answer.json["detail"] == error["message"]

    def test_the_wrong_case(self, server: Served) -> None:
        error = server.call("errors", "Email_Search")["error"]
        assert "case-sensitive" in error["message"]
        assert "email_search" in error["hint"]

    def test_the_tool_of_another_server(self, server: Served) -> None:
        error = server.call("errors", "email_get_calendar_events")["error"]
        assert "'calendar_get_calendar_events' belongs to server 'calendar'" in error["message"]

    def test_every_fault_of_the_arguments(self, server: Served) -> None:
        body = {"tool_name": "calendar_get_event", "tool_args": {"event": "x", "limit": "ten", "evnt_id": 1}}
        answer = server.post("/call-tool", body)
        assert answer.status == 422
        error = answer.json["error"]
        assert error["type"] == "InvalidArguments"
        assert {p["path"] for p in error["problems"]} == {"$.event_id", "$.evnt_id", "$.event", "$.limit"}
        assert "did you mean 'event_id'" in answer.json["detail"]
        assert error["schema"]["required"] == ["event_id"]
        assert server.post("/call-tools", body).json["error"]["problems"] == error["problems"]

    def test_a_bad_time_names_its_argument(self, server: Served) -> None:
        for start in ("yesterday", "2026-02-30T10:00:00", 1e300, True):
            error = server.call("errors", "calendar_get_calendar_events", start=start)["error"]
            assert error["type"] == "InvalidArguments", start
            assert error["problems"][0]["path"].startswith("$.start"), error

    def test_a_tool_that_fails(self, server: Served) -> None:
        answer = server.post("/call-tool", {"tool_name": "calendar_get_event", "tool_args": {"event_id": "nope"}, **tags("errors")})
        assert answer.status == 500
        assert answer.json["error"]["type"] == "not_found"
        assert answer.json["detail"]
        assert answer.json["request_id"] == answer.headers["x-request-id"]

    def test_a_failed_call_leaves_nothing_but_its_row_in_the_log(self, server: Served) -> None:
        before = server.post("/state", tags("rollback")).json
        failed = server.call("rollback", "email_send", to=["a@b.example"], subject="s", body="b", attachments=["atc-nope"])
        assert failed["isError"]
        assert server.post("/state", tags("rollback")).json == before
        row = server.get("/log?session_id=rollback").json["log"][-2]
        assert (row["call"], row["tool"], row["ok"]) == ("tool", "email_send", False)

    def test_a_disabled_tool(self, server: Served) -> None:
        server.post("/reset", {**tags("disabled"), "tools": ["email_search", "send_email"]})
        assert [t["name"] for t in server.post("/list-tools", tags("disabled")).json["tools"]] == ["email_search", "email_send"]
        error = server.call("disabled", "calendar_add_event")["error"]
        assert error["type"] == "DisabledTool"
        assert "not enabled" in error["message"]
        assert "'calendar'" in error["message"]
        assert not server.call("disabled", "email_search", query="")["isError"]
        server.post("/reset", tags("disabled"))
        assert len(server.post("/list-tools", tags("disabled")).json["tools"]) >= 90

    def test_unknown_names_list_the_known_ones(self, server: Served) -> None:
        universe = server.post("/reset", {**tags("errors"), "options": {"universe_id": "softwareteam"}})
        assert universe.status == 404
        assert set(universe.json["error"]["universes"]) == {"software-team", "sales-team", "accountants-office", "clinic-front-desk"}
        shown = server.post("/show-data", {**tags("errors"), "serverName": "calender"})
        assert shown.status == 404
        assert "calendar" in shown.json["error"]["hint"]
        assert server.post("/state", {**tags("errors"), "serverName": "calendar", "table": "x"}).status == 404
        tool = server.post("/reset", {**tags("errors"), "tools": ["email_serch"]})
        assert tool.status == 404
        assert "email_search" in tool.json["error"]["hint"]

    def test_paths_and_methods(self, server: Served) -> None:
        missing = server.get("/nope")
        assert (missing.status, missing.json["error"]["type"]) == (404, "NotFound")
        wrong = server.get("/call-tools")
        assert (wrong.status, wrong.json["error"]["type"]) == (405, "MethodNotAllowed")
        assert wrong.headers["x-session"]

    @pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://[::1", "http://localhost"])
    def test_a_foreign_origin(self, server: Served, origin: str) -> None:
        for path in ("/reset", "/mcp", "/call-tool"):
            answer = server.post(path, {}, Origin=origin)
            assert (answer.status, answer.json["error"]["type"]) == (403, "ForeignOrigin")

    def test_its_own_origin(self, server: Served) -> None:
        assert server.get("/health", Origin=f"http://127.0.0.1:{server.port}").status == 200

    def test_a_rebound_name_is_foreign(self, server: Served) -> None:
        assert server.get("/health", Host="evil.example", Origin="http://evil.example").status == 403

    def test_too_large(self, server: Served) -> None:
        answer = server.post("/call-tool", b'{"tool_name": "' + b"x" * (5 << 20) + b'"}')
        assert (answer.status, answer.json["error"]["type"]) == (413, "PayloadTooLarge")
        server.close()

    def test_unknown_fields_are_named_in_warnings(self, server: Served) -> None:
        answer = server.post("/call-tools", {**READ, "toolArgumens": {}, "tags": {"assignmentId": "warned", "runId": 1}})
        assert answer.json["isError"] is False
        assert answer.json["warnings"][0] == "unknown field toolArgumens was ignored (did you mean 'toolArguments'?)"
        assert answer.json["warnings"][1].startswith("unknown field tags.runId was ignored")
        bare = server.post("/call-tool", {**READ, "extra": 1})
        assert isinstance(bare.json, list)
        assert "extra" in bare.headers["x-warnings"]

    @pytest.mark.parametrize("body", [
        b"{", b"[]", b"1", b'"x"', b"\xff", b'{"tool_name": 1}', b'{"tool_name": "email_search", "tool_args": []}', b'{"tool_name": "a", "toolName": "b"}',
        b'{"tags": []}', b'{"tags": {"assignmentId": 1}}', b'{"tags": {"assignmentId": ""}}', b'{"tags": {"assignmentId": "@instance"}}',
        b'{"tool_name": "email_search", "tool_args": {"query": NaN}}', b"[" * 100000, b'{"a":' * 100000, b'{"tool_args": {}}',
        json.dumps({"tags": {"assignmentId": "x" * 513}}).encode(), b'{"tags": {"assignmentId": "\\ud800"}}',
    ])  # fmt: skip
    def test_faulty_envelopes(self, server: Served, body: bytes) -> None:
        for path in ("/call-tool", "/call-tools"):
            answer = server.post(path, body)
            assert (answer.status, answer.json["error"]["type"]) == (400, "InvalidRequest"), answer.json

    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        path=st.sampled_from(["/call-tool", "/call-tools", "/reset", "/verifier", "/show-data", "/state", "/log", "/list-tools"]),
        fields=st.dictionaries(
            st.sampled_from(
                ["tags", "toolName", "toolArguments", "options", "tools", "checks", "serverName", "table", "seed", "timeout", "since", "claims", "x"]
            ),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
                lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["assignmentId", "id", "type", "asserts", "q"]), inner, max_size=3),
                max_leaves=6,
            ),
        ),
    )
    def test_no_envelope_breaks_it(self, server: Served, path: str, fields: dict[str, Any]) -> None:
        answer = server.post(path, fields)
        assert answer.status != 500
        assert b"Traceback" not in answer.content
        if answer.status >= 400:
            assert set(answer.json["error"]) >= {"type", "message", "hint"}

    def test_numbers_too_large_for_a_row(self, server: Served) -> None:
        answer = server.post("/call-tool", {"tool_name": "contacts_search_people", "tool_args": {"query": "", "limit": 10**30}, **tags("errors")})
        assert answer.status == 422


class TestSessions:
    """One assignment never sees another, and a killed server loses nothing."""

    def test_the_instances_own_session(self, server: Served) -> None:
        server.post("/reset")
        assert not write(server, None, "own")["isError"]
        assert "own" in titles(server, None)
        assert "own" not in titles(server, "another")

    def test_any_text_is_a_session(self, server: Served) -> None:
        names = ["ä", "a/b", "../x", "a b", "A", "a", "instance", "%41", "日本", "x" * 512, "'; --"]
        for n, name in enumerate(names):
            assert not write(server, name, f"title {n}")["isError"]
        for n, name in enumerate(names):
            assert {t for t in titles(server, name) if t.startswith("title ")} == {f"title {n}"}

    def test_a_reset_is_complete_and_of_its_own_session_only(self, server: Served) -> None:
        write(server, "left", "before")
        write(server, "right", "kept")
        answer = server.post("/reset", tags("left")).json
        assert answer["universe_id"] == UNIVERSE
        assert answer["servers"]["calendar"]["events"] == len(server.post("/show-data", {**tags("left"), "serverName": "calendar"}).json["events"])
        assert "before" not in titles(server, "left")
        assert "kept" in titles(server, "right")

    def test_a_reset_keeps_the_sessions_universe(self, server: Served) -> None:
        server.post("/reset", {**tags("keeps"), "options": {"universe_id": "sales-team"}, "seed": 7})
        assert server.post("/reset", tags("keeps")).json["universe_id"] == "sales-team"
        assert server.post("/reset", {**tags("keeps"), "universe_id": "clinic-front-desk"}).json["universe_id"] == "clinic-front-desk"

    def test_the_log_says_who_made_each_call(self, server: Served) -> None:
        server.post("/reset", {"tags": {"assignmentId": "logged", "userId": "u-1"}, "seed": 3}, X_Caller="gym")
        server.post("/call-tools", {**READ, "tags": {"assignmentId": "logged", "userId": "u-1"}})
        server.post("/call-tools", {"toolName": "email_serch", **tags("logged")}, User_Agent="curl/8")
        server.post("/show-data", {**tags("logged"), "serverName": "email"}, X_Caller="spy")
        server.get("/state?assignmentId=logged")
        rows = server.get("/log?session_id=logged").json["log"]
        assert [(r["call"], r["caller"], r["ok"]) for r in rows] == [
            ("reset", "gym", True), ("tool", "u-1", True), ("tool", "curl/8", False), ("show-data", "spy", True), ("state", "unknown", True),
        ]  # fmt: skip
        assert rows[0]["args"] == {"universe_id": UNIVERSE, "seed": 3}
        assert rows[1]["result"]["people"]
        assert rows[2]["result"]["type"] == "UnknownTool"
        assert [r["n"] for r in rows] == [rows[0]["n"] + i for i in range(5)]

    def test_somebody_elses_reset_is_told(self, server: Served) -> None:
        write(server, "reset-by", "mine")
        server.post("/reset", tags("reset-by"), X_Caller="somebody else")
        rows = server.get("/log?session_id=reset-by").json["log"]
        assert [(r["call"], r["caller"]) for r in rows] == [("create", "unknown"), ("reset", "somebody else")]
        assert rows[1]["at"] > rows[0]["at"]
        last = rows[1]["n"]
        assert last == 3, "numbers go on, so a reader sees that calls are gone"
        assert server.get(f"/log?session_id=reset-by&since={last}").json["log"] == []

    def test_a_killed_server_has_lost_nothing(self, tmp_path: Path) -> None:
        done: dict[str, set[str]] = {}
        with served(tmp_path) as first:
            stop = threading.Event()
            threads = [threading.Thread(target=_write_until, args=(first.port, f"s{n}", done, stop)) for n in range(4)]
            for thread in threads:
                thread.start()
            _wait_for(lambda: sum(map(len, done.values())) > 200)
            first.kill()
            stop.set()
            for thread in threads:
                thread.join()
        with served(tmp_path) as second:
            for session, answered in done.items():
                assert answered <= titles(second, session)
                rows = second.get(f"/log?session_id={session}").json["log"]
                assert sum(r["call"] == "tool" for r in rows) >= len(answered)

    def test_a_kill_while_resetting_leaves_the_old_or_the_new_state(self, tmp_path: Path) -> None:
        for attempt in range(5):
            with served(tmp_path) as first:
                first.post("/reset", tags("torn"))
                assert not write(first, "torn", "marker")["isError"]
                resetting = threading.Thread(target=_reset_until_dead, args=(first.port,))
                resetting.start()
                for _ in range(attempt * 3):
                    first.get("/health")
                first.kill()
                resetting.join()
            with served(tmp_path) as second:
                events = second.post("/show-data", {**tags("torn"), "serverName": "calendar"}).json["events"]
                fresh = second.post("/reset", tags("fresh")).json["servers"]["calendar"]["events"]
                assert len(events) in (fresh, fresh + 1)
                assert not write(second, "torn", "again")["isError"]
                assert list((tmp_path / "sessions").glob("*.tmp*")) == []

    def test_five_hundred_sessions(self, tmp_path: Path) -> None:
        with served(tmp_path) as many:
            for n in range(500):
                assert write(many, f"m{n}", f"only in {n}")["result"]["event"]["id"] == "evt_1"
            for n in range(0, 500, 25):
                assert {t for t in titles(many, f"m{n}") if t.startswith("only in")} == {f"only in {n}"}
            assert len(list(Path(f"/proc/{many.process.pid}/fd").iterdir())) < 400

    def test_the_same_calls_give_the_same_bytes(self, tmp_path: Path) -> None:
        runs = []
        for folder in ("one", "two"):
            with served(tmp_path / folder) as fresh:
                runs.append([answer.content for answer in _transcript(fresh)])
        assert runs[0] == runs[1]


def _transcript(server: Served) -> Iterator[Any]:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("calendar_get_calendar_events", {}),
        ("calendar_add_event", {"title": "Same", "start": "2026-03-20T10:00:00", "end": "2026-03-20T11:00:00", "attendees": ["a@b.example"]}),
        ("email_send", {"to": ["a@b.example"], "subject": "s", "body": "b"}),
        ("email_search", {"query": ""}),
        ("contacts_search_people", {"query": "nobody at all"}),
        ("filesystem_list_directory", {"path": "/"}),
        ("calendar_get_event", {"event_id": "evt-nope"}),
    ]
    yield server.post("/reset", tags("same"))
    for name, args in calls:
        yield server.post("/call-tools", {"toolName": name, "toolArguments": args, **tags("same")})
    yield server.post("/state", tags("same"))


def _write_until(port: int, session: str, done: dict[str, set[str]], stop: threading.Event) -> None:
    client = Client(port)
    answered = done.setdefault(session, set())
    n = 0
    while not stop.is_set():
        n += 1
        try:
            if not write(client, session, f"{session} {n}")["isError"]:
                answered.add(f"{session} {n}")
        except (OSError, http.client.HTTPException, json.JSONDecodeError):
            client.close()
            return


def _reset_until_dead(port: int) -> None:
    client = Client(port)
    try:
        while client.post("/reset", tags("torn")).status == 200:
            pass
    except (OSError, http.client.HTTPException):
        client.close()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _wait_for(condition: Any, seconds: float = 30) -> None:
    changed = threading.Event()
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        changed.wait(0.01)


class TestProcess:
    """Listening, keeping connections, ending."""

    def test_it_ends_cleanly_and_quickly_with_a_connection_open(self, tmp_path: Path) -> None:
        took = []
        for _ in range(3):  # the best of three: the machine may be busy
            with served(tmp_path) as server:
                assert server.get("/health").status == 200
                server.post("/verifier", {"checks": [], "claims": ["x"]})
                start = time.monotonic()
                assert server.stop() == 0
                took.append(time.monotonic() - start)
        assert min(took) < 0.5

    def test_it_keeps_connections(self, server: Served) -> None:
        with socket.create_connection(("127.0.0.1", server.port)) as one:
            for _ in range(3):
                one.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                head = b""
                while not head.endswith(b"}"):
                    head += one.recv(4096)
                assert head.startswith(b"HTTP/1.1 200")

    def test_it_listens_on_host_and_port(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        env = {**os.environ, "PORT": str(port), "HOST": "127.0.0.1", "DATA_DIR": str(tmp_path)}
        env.pop("LISTEN_FD", None)
        process = subprocess.Popen([sys.executable, "-m", "server"], cwd=IMAGE, env=env)
        try:
            _wait_for(lambda: _listens(port))
            assert Client(port).get("/health", Connection="close").status == 200
        finally:
            process.terminate()
            assert process.wait(timeout=10) == 0

    @pytest.mark.parametrize(("name", "value"), [("PORT", "http"), ("LISTEN_FD", "x"), ("DATA_DIR", "/proc/nowhere"), ("UNIVERSE_ID", "nope")])
    def test_wrong_settings_are_one_line(self, tmp_path: Path, name: str, value: str) -> None:
        env = {**os.environ, "DATA_DIR": str(tmp_path), name: value}
        done = subprocess.run([sys.executable, "-m", "server"], cwd=IMAGE, env=env, capture_output=True, text=True, timeout=30, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert done.stderr.startswith("error: ")
        assert name != "UNIVERSE_ID" or "no universe 'nope'; there are: accountants-office," in done.stderr

    def test_without_a_data_folder_it_leaves_none_behind(self, tmp_path: Path) -> None:
        with served(Path(""), DATA_DIR="", TMPDIR=str(tmp_path)) as server:
            server.post("/reset")
            assert list(tmp_path.iterdir())
            assert server.stop() == 0
        assert list(tmp_path.iterdir()) == []

    def test_openapi_names_every_path(self, server: Served) -> None:
        document = server.get("/openapi.json").json
        assert {"/call-tool", "/call-tools", "/reset", "/verifier", "/state", "/log", "/health", "/list-tools", "/show-data"} <= set(document["paths"])
        fields = document["paths"]["/call-tools"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
        assert set(fields) == {"tags", "toolName", "toolArguments", "use_cache"}
