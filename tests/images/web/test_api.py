"""The API of a website: every call, every spelling, every way in which it can go wrong."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.images.serving import Answer, Client
from tests.images.web.website import IMAGES, PACKS, Visitor, Website, website

COUNT = {"comparator": "eq", "function": "count", "value": 0}


def count(table: str, pattern: dict[str, Any], value: int, id: str = "check") -> dict[str, Any]:
    """A check: how many rows match."""
    return {"id": id, "type": "state", "table": table, "asserts": [{**COUNT, "function_args": ["_result[*]", pattern], "value": value}]}


def test_reset_says_what_was_cleared_and_loaded(site: Website) -> None:
    first = site.reset("sum")
    assert first["dataPack"] == "studio"
    assert first["baseWeek"] == "2026-03-09"
    assert set(first["resetSummary"].values()) == {0}
    assert first["loadSummary"]["events"] == len(site.table("sum", "events"))
    again = site.reset("sum")
    assert again["resetSummary"] == first["loadSummary"]


@pytest.mark.parametrize("path", ["/reset", "/api/reset"])
@pytest.mark.parametrize("session", ["sessionId", "session_id"])
@pytest.mark.parametrize("pack", ["dataPack", "data_pack", "pack"])
@pytest.mark.parametrize("base", ["baseWeek", "base_week"])
def test_every_spelling_of_reset(site: Website, path: str, session: str, pack: str, base: str) -> None:
    answer = site.post(path, {session: "spelled", pack: "studio", base: "2025-01-08"})
    assert answer.status == 200
    assert answer.json["baseWeek"] == "2025-01-06"
    assert "warnings" not in answer.json
    assert answer.headers["x-session"] == "spelled"
    assert next(e for e in site.table("spelled", "events") if e["id"] == "evt-retro")["start"] == "2025-01-10T14:00:00-05:00"


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ({}, 400, "'sessionId' is missing"),
        ({"sessionId": ""}, 400, "1 to 200"),
        ({"sessionId": 7}, 400, "must be text"),
        ({"sessionId": "a\nb"}, 400, "printable"),
        ({"sessionId": "x" * 201}, 400, "1 to 200"),
        ({"sessionId": "s", "dataPack": "nope"}, 404, "no data pack 'nope'"),
        ({"sessionId": "s", "dataPack": "../studio"}, 404, "no data pack"),
        ({"sessionId": "s", "baseWeek": "2026-02-30"}, 400, "YYYY-MM-DD"),
        ({"sessionId": "s", "baseWeek": "next week"}, 400, "YYYY-MM-DD"),
        ({"sessionId": "s", "baseWeek": 20260309}, 400, "must be text"),
        ({"sessionId": "s", "session_id": "t"}, 400, "another spelling"),
        ([1], 400, "JSON object"),
        (b"{", 400, "not JSON"),
    ],
)
def test_bad_resets(site: Website, body: Any, status: int, word: str) -> None:
    answer = site.post("/reset", body)
    assert answer.status == status
    assert word in answer.json["error"]["message"]
    assert answer.json["detail"] == answer.json["error"]["message"]
    if status == 404:
        assert "studio" in answer.json["error"]["dataPacks"]


def test_unknown_fields_are_named(site: Website) -> None:
    answer = site.post("/reset", {"sessionId": "w", "dataPak": "studio", "verbose": True})
    assert answer.status == 200
    assert "did you mean 'dataPack'" in answer.json["warnings"][0]
    assert "verbose" in answer.json["warnings"][1]


def test_task_and_prompt(site: Website) -> None:
    site.reset("dates", baseWeek="2025-01-06")
    text = "Move the review of Wednesday, January 15, 2025 to 2025-01-24."
    there = site.post("/task", {"prompt": text, "sessionId": "dates"}).json
    assert there == {"originalPrompt": text, "transformedPrompt": "Move the review of {+1 Wed} to {+2 Fri}."}
    back = site.post("/api/prompt", {"prompt": there["transformedPrompt"], "session_id": "dates"}).json
    assert back == {"originalPrompt": there["transformedPrompt"], "convertedPrompt": "Move the review of 2025-01-15 to 2025-01-24."}
    assert "{+1 Foo}" in site.post("/prompt", {"prompt": "{+1 Foo}", "sessionId": "dates"}).json["warnings"][0]
    assert site.post("/task", {"sessionId": "dates"}).status == 400


@pytest.mark.parametrize("path", ["/task", "/prompt", "/state", "/log", "/verifier", "/"])
def test_a_session_that_does_not_exist(site: Website, path: str) -> None:
    body = {"sessionId": "nobody's", "prompt": "x", "checks": [count("events", {}, 0)]}
    answer = site.post(path, body) if path not in ("/", "/log") else site.get(f"{path}?session_id=nobody%27s")
    assert answer.status == 404
    if path == "/":
        assert "curl -X POST http://127.0.0.1" in answer.content.decode()
        assert "/?session_id=nobody%27s" in answer.content.decode()
    else:
        assert answer.json["error"]["type"] == "SessionNotFound"
        assert "curl -X POST" in answer.json["error"]["hint"]


def test_a_page_without_a_session_says_how_to_make_one(site: Website) -> None:
    answer = site.get("/week")
    assert answer.status == 400
    assert "needs a session" in answer.content.decode()
    assert "/reset" in answer.content.decode()
    named = site.get("/week", Accept="application/json")
    assert named.json["error"]["type"] == "NoSession"
    assert site.get("/state").json["error"]["message"] == "'sessionId' is missing"


def test_the_cookie(site: Website) -> None:
    site.reset("c\u00f6okie")
    answer = site.get("/?session_id=c%C3%B6okie")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("session_id=c%C3%B6okie;")
    assert all(part in cookie for part in ("HttpOnly", "Path=/", "SameSite=lax"))
    assert answer.headers["x-session"] == "c%C3%B6okie"
    assert Visitor(site, "c\u00f6okie").get("/week").status == 200


def test_state(site: Website) -> None:
    site.reset("st")
    everything = site.get("/state?session_id=st").json
    assert set(everything) == {"people", "calendars", "shares", "events", "guests", "reminders", "notices", "dismissals", "trash", "settings"}
    assert site.post("/state", {"sessionId": "st"}).json == everything
    assert site.get("/api/state?sessionId=st&table=people").json == {"people": everything["people"]}
    before = site.get("/state?session_id=st").headers["x-session-version"]
    assert Visitor(site, "st").get("/week").headers["x-session-version"] == before
    site.reset("st")
    assert site.get("/state?session_id=st").headers["x-session-version"] != before
    wrong = site.get("/state?session_id=st&table=event")
    assert wrong.status == 404
    assert "did you mean 'events'" in wrong.json["error"]["message"]


def test_verifier(site: Website) -> None:
    site.reset("v")
    passed = site.post("/verifier", {"sessionId": "v", "checks": [count("events", {"title": "Retrospective", "start": "2026-03-13T14:00:00-04:00"}, 1)]}).json
    assert passed["success"] is True
    assert passed["session_id"] == "v"
    assert "all_results" not in passed["verifiers"][0]
    failed = site.post("/verifier", {"sessionId": "v", "checks": [count("trash", {}, 1), count("people", {"id": "per-maya"}, 1, "other")]}).json
    assert failed["success"] is False
    assert [v["success"] for v in failed["verifiers"]] == [False, True]
    assert failed["verifiers"][0]["all_results"] == []
    pending = site.post("/verifier", {"sessionId": "v", "checks": [{"id": "polite", "type": "rubric"}]}).json
    assert pending["success"] == "PENDING"


def test_verifier_sees_the_log(site: Website) -> None:
    site.reset("vl")
    visitor = Visitor(site, "vl")
    visitor.get("/events/evt-retro/delete")
    assert visitor.submit("delete-form").status == 303
    asserts = [{"comparator": "eq", "function": "count", "function_args": ["_result[*]", {"event_type": "action", "element_id": "delete-event"}], "value": 1}]
    answer = site.post(
        "/verifier", {"sessionId": "vl", "checks": [{"id": "deleted", "type": "log", "asserts": asserts}, count("trash", {"event_id": "evt-retro"}, 1)]}
    )
    assert answer.json["success"] is True


def test_faulty_checks_are_all_named(site: Website) -> None:
    site.reset("f")
    checks = [
        {"id": "a", "type": "state", "table": "event", "asserts": [{"comparator": "eq", "function": "count", "value": 1}]},
        {"id": "b", "type": "state", "table": "events", "asserts": [{"comparator": "regex", "function_args": ["_result[0].title"], "value": "("}]},
        {"id": "c", "type": "state", "table": "events", "asserts": [{"comparator": "eq", "function": "cuont", "value": 1}]},
        {"id": "d", "type": "log", "asserts": []},
    ]
    answer = site.post("/verifier", {"sessionId": "f", "checks": checks})
    assert answer.status == 400
    assert answer.json["error"]["type"] == "ValidationError"
    paths = [fault["path"] for fault in answer.json["error"]["faults"]]
    assert [p.split("]")[0] for p in paths] == ["$.checks[0", "$.checks[1", "$.checks[2", "$.checks[3"]
    assert site.post("/verifier", {"sessionId": "f"}).status == 400


def test_health_and_openapi(site: Website) -> None:
    health = site.get("/health").json
    assert health["status"] == "ok"
    assert health["version"]
    document = site.get("/api/openapi.json").json
    assert {"/reset", "/task", "/prompt", "/verifier", "/state", "/log", "/health"} <= document["paths"].keys()
    assert document["paths"]["/reset"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"].keys() >= {
        "sessionId",
        "dataPack",
        "baseWeek",
    }


def test_health_names_what_is_wrong(tmp_path: Path) -> None:
    shutil.copytree(PACKS, tmp_path / "packs")
    (tmp_path / "packs" / "studio" / "people.yaml").write_text("- {id: per-x, name: 1}\n")
    with website(tmp_path / "data", PACKS=str(tmp_path / "packs")) as broken:
        answer = broken.get("/health")
        assert answer.status == 503
        assert "studio/people.yaml:1: name: must be text, not 1" in answer.json["error"]["reasons"][0]


@pytest.mark.parametrize(("name", "value"), [("PORT", "http"), ("LISTEN_FD", "x"), ("DATA_DIR", "/proc/nowhere"), ("DATA_PACK", "missing"), ("WAIT_S", "x")])
def test_wrong_settings_are_one_line(tmp_path: Path, name: str, value: str) -> None:
    env = {**os.environ, "DATA_DIR": str(tmp_path), name: value}
    done = subprocess.run([sys.executable, "-m", "server"], cwd=IMAGES / "calendr", env=env, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("error: ")
    assert name != "DATA_PACK" or "no pack 'missing'; there are: default, professional-swe" in done.stderr


def test_unknown_paths(site: Website) -> None:
    assert site.get("/nothing").json["error"]["type"] == "NotFound"
    assert site.get("/reset").json["error"]["type"] == "MethodNotAllowed"
    assert "<h1>" in site.get("/nothing", Accept="text/html").content.decode()


def test_foreign_origins_are_refused(site: Website) -> None:
    site.reset("o")
    for origin in ("http://evil.example", "null", f"http://localhost.evil.example:{site.port}", "http://127.0.0.1:1"):
        for method, path in (("POST", "/reset"), ("POST", "/events"), ("GET", "/state?session_id=o"), ("GET", "/week?session_id=o"), ("POST", "/interactions")):
            assert site.send(method, path, b"{}", Origin=origin).status == 403, (origin, path)
    assert site.post("/reset", {"sessionId": "o"}, Origin=site.origin).status == 200


def test_large_bodies(site: Website) -> None:
    assert site.post("/reset", b" " * (4 * 1024 * 1024 + 1)).status == 413
    site.close()  # the rest of the body was not read, so the connection has ended


def test_a_page_opened_before_a_reset_does_nothing(site: Website) -> None:
    site.reset("stale")
    visitor = Visitor(site, "stale")
    visitor.get("/events/evt-retro/delete")
    site.reset("stale")
    answer = visitor.submit("delete-form")
    assert answer.status == 409
    assert "opened before the session was reset" in visitor.html
    assert 'id="again"' in visitor.html
    assert site.table("stale", "trash") == []
    site.reset("other")
    other = Visitor(site, "other")
    other.get("/events/evt-retro/delete")
    visitor.html = other.html
    assert visitor.submit("delete-form").status == 409, "a form of another session's page must not act on this one"


def test_a_request_waits_for_an_unfinished_one_and_then_says_which(tmp_path: Path) -> None:
    with website(tmp_path, WAIT_S="0.3") as site:
        site.reset("busy")
        with (tmp_path / "templates" / "studio.lock").open("w") as lock:
            # The reset cannot build its template while this lock is held: it is the unfinished operation.
            fcntl.flock(lock, fcntl.LOCK_EX)
            other = Client(site.port)
            answers: list[Answer] = []
            slow = threading.Thread(target=lambda: answers.append(other.post("/reset", {"sessionId": "busy", "baseWeek": "2026-06-01"})))
            slow.start()
            answer = site.get("/state?session_id=busy")
            while answer.status == 200:
                answer = site.get("/state?session_id=busy")
            assert answer.status == 409
            assert answer.json["error"]["operation"] == "reset"
            assert "reset of session 'busy'" in answer.json["error"]["message"]
            assert site.reset("free")["dataPack"] == "studio", "other sessions go on"
            fcntl.flock(lock, fcntl.LOCK_UN)
            slow.join()
            other.close()
        assert answers[0].status == 200, answers[0].content
        assert next(e for e in site.table("busy", "events") if e["id"] == "evt-retro")["start"].startswith("2026-06-05")


def test_a_killed_server_has_lost_nothing(tmp_path: Path) -> None:
    with website(tmp_path) as first:
        first.reset("kept")
        visitor = Visitor(first, "kept")
        visitor.get("/events/evt-retro/delete")
        visitor.submit("delete-form")
        first.kill()
    with website(tmp_path) as second:
        assert [row["event_id"] for row in second.table("kept", "trash")] == ["evt-retro"]
        assert any(row["element_id"] == "delete-event" for row in second.log("kept"))
        assert second.stop() == ""


def test_the_log_keeps_resets_and_names_who(site: Website) -> None:
    site.reset("who")
    site.post("/reset", {"sessionId": "who"}, X_Caller="someone")
    site.get("/state?session_id=who", X_Caller="spy")
    log = site.log("who")
    assert [(row["value"], row["caller"]) for row in log[-2:]] == [("reset", "someone"), ("state", "spy")]
    assert [row["n"] for row in log] == sorted(row["n"] for row in log)
    assert len([row for row in log if row["value"] == "reset"]) == 2
    assert site.get(f"/log?session_id=who&since={log[-1]['n']}").json["log"] == []


def test_interactions(site: Website) -> None:
    site.reset("i")
    visitor = Visitor(site, "i")
    visitor.get("/week")
    version = visitor.html.split('page-version" content="')[1].split('"')[0]
    events = [
        {"event_type": "click", "element_id": "new-event", "value": "New event", "url": "/week"},
        {"event_type": "teleport", "element_id": "x"},
        "nonsense",
        {"event_type": "key", "element_id": "", "value": "c", "url": "/week"},
    ]
    cookie = {"Cookie": "session_id=i"}
    assert site.post("/interactions", {"page": version, "events": events}, **cookie).json == {"recorded": 2}
    assert site.post("/interactions", {"page": "0.x", "events": events}, **cookie).status == 409
    seen = [row for row in site.log("i") if row["source"] == "page"]
    assert [(row["event_type"], row["element_id"], row["value"], row["url"]) for row in seen] == [
        ("click", "new-event", "New event", "/week"),
        ("key", "", "c", "/week"),
    ]
    assert all(row["at"].endswith("Z") for row in seen)


def test_same_pack_and_same_clicks_same_bytes(tmp_path: Path) -> None:
    def run(folder: Path) -> tuple[list[bytes], bytes]:
        with website(folder) as site:
            site.reset("twin")
            visitor = Visitor(site, "twin")
            pages = [visitor.get("/week").content, visitor.get("/events/new").content]
            visitor.submit("event-form", title="Twin", guests="jonas@harbor.example", repeat="weekly")
            pages += [visitor.html.encode(), visitor.get("/month").content, visitor.get("/notices").content]
            return pages, site.get("/state?session_id=twin").content

    assert run(tmp_path / "a") == run(tmp_path / "b")


def test_packs_are_checked(tmp_path: Path) -> None:
    import subprocess
    import sys

    from tests.images.web.website import IMAGES, PACKS

    pack = tmp_path / "bad"
    pack.mkdir()
    for path in (PACKS / "studio").iterdir():
        (pack / path.name).write_text(path.read_text().replace("id: studio", "id: bad"))
    (pack / "events.yaml").write_text(
        "- {id: evt-1, calendar_id: cal-maya, title: A, start: '{+0 Mon} 10:00', end: '{+0 Mon} 11:00', organizer_id: per-maya}\n"
        "- {id: evt-b, calendar_id: cal-nobody, title: B, start: '{+0 Foo}', end: '{+0 Mon} 11:00', organizer_id: per-maya, colour: red}\n"
        "- {id: evt-c, calendar_id: cal-maya, title: C, start: '{+0 Mon} 10:00', end: '{+0 Mon} 11:00', organizer_id: per-maya, show_as: maybe}\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "server.packs", "check", "bad"], cwd=IMAGES / "calendr", env={"PACKS": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode == 1
    said = done.stdout.splitlines()
    assert any(line.startswith("bad/events.yaml:1: id: 'evt-1'") for line in said)
    assert any("bad/events.yaml:2: calendar_id: no row 'cal-nobody' in calendars" in line for line in said)
    assert any("bad/events.yaml:2: start: must be" in line for line in said)
    assert any("unknown column 'colour' (did you mean 'color'?)" in line for line in said)
    assert any("bad/events.yaml:3: show_as: must be one of busy, free" in line for line in said)
    with website(tmp_path / "data", PACKS=str(tmp_path), DATA_PACK="bad") as site:
        answer = site.post("/reset", {"sessionId": "s"})
        assert answer.status == 500
        assert answer.json["error"]["type"] == "BrokenPack"
        assert len(answer.json["error"]["problems"]) >= 5
        assert json.loads(site.get("/health").content)["error"]["type"] == "Unhealthy"
