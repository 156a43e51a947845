"""The token on every path, and what is answered to what is wrong."""

from __future__ import annotations

import base64
import http.client
import statistics
import time

import pytest

from tests.images.guest.desk import Desk


@pytest.mark.parametrize("path", ["/health", "/", "/screenshot", "/openapi.json", "/nothing-here", "/api/health"])
def test_each_path_asks_for_the_token(desk: Desk, path: str) -> None:
    for wrong in ("", "Bearer", "Bearer wrong", f"Bearer {desk.token}x", "Basic !", "Basic " + base64.b64encode(b"gym:wrong").decode()):
        answer = desk.get(path, Authorization=wrong)
        assert answer.status == 401, wrong
        assert answer.headers["www-authenticate"].startswith("Basic ")
        assert desk.token not in answer.content.decode()


def test_the_token_as_bearer_password_or_cookie(desk: Desk) -> None:
    basic = "Basic " + base64.b64encode(f"anybody:{desk.token}".encode()).decode()
    assert desk.get("/platform", Authorization=f"bearer {desk.token}").status == 200
    assert desk.get("/platform", Authorization=basic).content == b"Linux"
    assert desk.get("/platform", Authorization="", Cookie=f"a=b; token={desk.token}").status == 200


def test_a_foreign_page_is_refused(desk: Desk) -> None:
    assert desk.get("/platform", Origin="https://example.org").status == 403
    assert desk.get("/platform", Origin=f"http://127.0.0.1:{desk.port}").status == 200


def test_wrong_requests(desk: Desk) -> None:
    assert "'/screenshot'" in desk.get("/screenshott").json["detail"]
    assert desk.get("/execute").status == 405
    assert desk.post("/execute", b"{").status == 400
    assert desk.post("/execute", b"[1]").status == 400
    assert desk.get("/api/platform").status == 200
    paths = desk.get("/openapi.json").json["paths"]
    assert {"/execute", "/frame", "/input", "/setup/upload"} <= set(paths)
    assert any(entry["status"] == 401 for entry in desk.get("/log").json["log"])


def test_an_unread_body_does_not_become_the_next_request(desk: Desk) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", desk.port, timeout=10)
    connection.request("POST", "/nothing", b"GET /platform HTTP/1.1\r\n\r\n", {"Authorization": f"Bearer {desk.token}"})
    answer = connection.getresponse()
    assert answer.status == 404
    assert answer.getheader("Connection") == "close"
    connection.close()


@pytest.mark.alone
def test_answers_do_not_wait_for_acknowledgements(desk: Desk) -> None:
    times = []
    for _ in range(20):
        started = time.perf_counter()
        desk.get("/platform")
        times.append(time.perf_counter() - started)
    assert statistics.median(times) < 0.02  # 0.04 s and more when headers and body are two writes
