"""Whatever a client sends is answered, and is no bug of the server's: odd addresses, headers, letters, times, and files that are not what they seem."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.images.guest.desk import Desk

HALF = "\ud800"


def raw(desk: Desk, head: str, *headers: str, token: bool = True) -> bytes:
    """The answer's first line to a request written by hand; nothing when the connection just ends."""
    lines = [f"{head} HTTP/1.1", "Host: 127.0.0.1", "Connection: close", *([f"Authorization: Bearer {desk.token}"] if token else []), *headers]
    with socket.create_connection(("127.0.0.1", desk.port), timeout=10) as link:
        link.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))
        return link.makefile("rb").readline().strip()


@pytest.mark.parametrize("path", ["http://[/", "//[x", "http://127.0.0.1/nothing", "/[", "?"])
def test_an_odd_address_is_answered(desk: Desk, path: str) -> None:
    assert raw(desk, f"GET {path}", token=False).startswith(b"HTTP/1.1 401 ")
    assert raw(desk, f"GET {path}").split()[1] in (b"200", b"404")
    assert raw(desk, "GET http://127.0.0.1/platform").startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("length", ["\xb2", "9" * 5000, "-1", "+1", "1_0", ""])
def test_an_odd_length_is_refused(desk: Desk, length: str) -> None:
    assert raw(desk, "POST /execute", f"Content-Length: {length}").startswith(b"HTTP/1.1 411 ")


@pytest.mark.parametrize("origin", ["http://[", "null", "127.0.0.1", "http://127.0.0.1@evil"])
def test_an_odd_origin_is_foreign(desk: Desk, origin: str) -> None:
    assert raw(desk, "GET /platform", f"Origin: {origin}").startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/execute", {"command": ["echo", HALF]}),
        ("/execute", {"command": HALF, "shell": True}),
        ("/execute", {"command": "true", "env": {"A": "\0"}}),
        ("/execute", {"command": "true", "env": {"A=B": "x"}}),
        ("/execute", {"command": "true", "env": {HALF: "x"}}),
        ("/execute", {"command": "cat", "input": HALF}),
        ("/execute", {"command": "true", "cwd": HALF}),
        ("/execute_with_verification", {"command": "true", "verification": {"command_success": "false"}, "max_wait_time": "x"}),
        ("/execute_with_verification", {"command": "true", "verification": {"command_success": "false"}, "max_wait_time": None}),
        ("/execute_with_verification", {"command": "true", "verification": {"window_exists": "x"}, "check_interval": -1}),
        ("/setup/open_file", {"path": "xterm", "timeout": "soon"}),
        ("/setup/open_file", {"path": "xterm", "timeout": [1]}),
        ("/run_python", {"code": HALF}),
        ("/run_bash_script", {"script": HALF}),
        ("/setup/change_wallpaper", {"path": HALF}),
        ("/clipboard", {"text": HALF}),
        ("/input", {"keyboard": {"keys": HALF}}),
        ("/input", {"keyboard": {"keys": "a\0b"}}),
    ],
)
def test_what_cannot_be_meant_is_refused(desk: Desk, path: str, body: dict[str, Any]) -> None:
    answer = desk.post(path, body)
    assert answer.status == 400, answer.content
    assert answer.json["error"]["type"] == "BadRequest"


@pytest.mark.parametrize(("path", "body"), [("/execute", {"command": "true", "cwd": "a" * 5000}), ("/setup/open_file", {"path": "a" * 5000})])
def test_what_the_system_refuses_is_said_in_its_words(desk: Desk, path: str, body: dict[str, Any]) -> None:
    answer = desk.post(path, body)
    assert answer.json["error"]["type"] in ("Refused", "NotRunnable")
    assert "File name too long" in answer.json["message"]


def test_a_download_that_no_client_could_ask_for(desk: Desk) -> None:
    answer = desk.post("/setup/download_file", {"url": "http://127.0.0.1:1/a b", "path": "x"})
    assert answer.status == 502
    assert "control characters" in answer.json["message"]


def test_a_sequence_of_odd_digits(desk: Desk) -> None:
    for digits in ("%C2%B2", "9" * 5000):
        assert desk.get(f"/frame?after={digits}&timeout=0.1").status == 400


def test_a_pipe_and_a_device_are_neither_read_nor_replaced(desk: Desk, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert desk.get(f"/files?path={pipe}").status == 400
    assert desk.send("PUT", f"/files?path={pipe}", b"x").status == 400
    assert pipe.is_fifo()
    link = tmp_path / "link"
    link.symlink_to(pipe)
    assert desk.send("PUT", f"/files?path={link}", b"x").status == 400
    assert pipe.is_fifo()
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert desk.get(f"/files?path={loop}").status == 403


def test_the_kernels_own_files_come_whole(desk: Desk) -> None:
    assert desk.get("/files?path=/proc/version").content == Path("/proc/version").read_bytes()
    assert desk.get("/files?path=/sys/kernel/mm/transparent_hugepage/enabled").content == Path("/sys/kernel/mm/transparent_hugepage/enabled").read_bytes()
    assert desk.get("/files?path=/proc/self/mem").status == 403


def test_a_name_that_is_not_utf8(desk: Desk, tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/\xff"
    assert desk.send("PUT", f"/files?path={quote(name)}", b"there").status == 200
    assert Path(os.fsdecode(name)).read_bytes() == b"there"
    assert desk.get(f"/files?path={quote(name)}").content == b"there"
    listed = desk.post("/list_directory", {"path": str(tmp_path)}).json["directory_tree"]["children"]
    assert os.fsencode(listed[0]["name"]) == b"\xff"


def test_a_file_that_grows_meanwhile_does_not_spoil_the_next_answer(desk: Desk, tmp_path: Path) -> None:
    at = tmp_path / "log"
    at.write_bytes(b"x" * 5_000_000)
    ended = threading.Event()

    def grow() -> None:
        with at.open("ab") as file:
            while not ended.is_set():
                file.write(b"y" * 65536)
                file.flush()
                ended.wait(0.0005)

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        for _ in range(20):
            assert desk.get(f"/files?path={at}").content.startswith(b"x" * 5_000_000)
            assert desk.get("/platform").content == b"Linux"
    finally:
        ended.set()
        writer.join()
