"""Commands, files, windows, accessibility, and the end of a desktop."""

from __future__ import annotations

import contextlib
import http.server
import importlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.conftest import lacking
from tests.images.guest.desk import Desk

STATE = "{https://accessibility.ubuntu.example.org/ns/state}"
COMPONENT = "{https://accessibility.ubuntu.example.org/ns/component}"


def test_a_command_in_all_spellings(desk: Desk) -> None:
    done = desk.run("sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done["output"], done["error"], done["returncode"]) == ("out\n", "err\n", 3)
    assert (done["stdout"], done["stderr"], done["exit_code"], done["status"]) == ("out\n", "err\n", 3, "success")
    assert desk.post("/execute", {"command": "echo $((1+1))", "shell": True}).json["output"] == "2\n"
    assert desk.post("/setup/execute", {"command": "echo 'a b'"}).json["output"] == "a b\n"
    assert desk.post("/run_python", {"code": "print(6*7)"}).json["output"] == "42\n"
    assert desk.post("/run_bash_script", {"script": "echo a; echo b >&2; [[ 1 == 1 ]]"}).json["output"] == "a\nb\n"
    assert desk.run("cat", input="given")["output"] == "given"
    assert desk.run("pwd", cwd="/")["output"] == "/\n"
    assert desk.post("/execute", {"command": ["no-such-program"]}).json["error"]["type"] == "NotFound"
    wrongs: list[dict[str, Any]] = [
        {},
        {"command": []},
        {"command": [1]},
        {"command": "a 'b"},
        {"command": ["a"], "timeout": 0},
        {"command": ["a"], "cwd": "/nowhere"},
    ]
    for wrong in wrongs:
        assert desk.post("/execute", wrong).status == 400, wrong


def test_the_deadline_ends_the_whole_group(desk: Desk, tmp_path: Path) -> None:
    line = f"trap '' TERM; sleep 345 & echo $! > {tmp_path}/child; echo before; sleep 345"
    started = time.monotonic()
    done = desk.post("/execute", {"command": line, "shell": True, "timeout": 0.5}).json
    assert time.monotonic() - started < 5
    assert done["timed_out"]
    assert done["status"] == "error"
    assert "the deadline" in done["error"]
    assert done["output"] == "before\n"
    child = int((tmp_path / "child").read_text())
    desk.until(lambda: not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2])


def test_a_child_in_the_background_does_not_hold_the_answer_up(desk: Desk) -> None:
    started = time.monotonic()
    assert desk.post("/execute", {"command": "sleep 20 & echo done", "shell": True}).json["output"] == "done\n"
    assert time.monotonic() - started < 5


def test_the_token_reaches_no_child(desk: Desk) -> None:
    assert desk.token not in desk.run("env")["output"]
    for pid in desk.family():
        if b"_guest.desktop" in Path(f"/proc/{pid}/cmdline").read_bytes():
            continue  # it was given the token; other users, and programs of the same one, cannot look into it
        for name in ("environ", "cmdline"):
            try:
                assert desk.token.encode() not in Path(f"/proc/{pid}/{name}").read_bytes(), pid
            except OSError:
                continue


def test_files_there_and_back(desk: Desk, tmp_path: Path) -> None:
    content = os.urandom(3_000_000) + b"\r\n--bound" + b"\r\n" * 5
    body = b"".join([
        b'--bound2\r\nContent-Disposition: form-data; name="file_path"\r\n\r\n', str(tmp_path / "new" / "a.bin").encode(),
        b'\r\n--bound2\r\nContent-Disposition: form-data; name="file_data"; filename="a.bin"\r\nContent-Type: application/octet-stream\r\n\r\n', content,
        b"\r\n--bound2--\r\n",
    ])  # fmt: skip
    answer = desk.post("/setup/upload", body, Content_Type="multipart/form-data; boundary=bound2")
    assert answer.content == f"File Uploaded: {len(content)} bytes".encode()
    assert (tmp_path / "new" / "a.bin").read_bytes() == content
    got = desk.post("/file", f"file_path={tmp_path}/new/a.bin".encode(), Content_Type="application/x-www-form-urlencoded")
    assert got.content == content
    cut = desk.post("/setup/upload", body[:-40], Content_Type="multipart/form-data; boundary=bound2")
    assert cut.status == 400
    assert desk.send("PUT", f"/files?path={tmp_path}/run.sh&mode=0750", b"#!/bin/sh\n").status == 200
    back = desk.get(f"/files?path={tmp_path}/run.sh")
    assert (back.content, back.headers["x-file-mode"]) == (b"#!/bin/sh\n", "0750")


def test_files_that_are_none(desk: Desk, tmp_path: Path) -> None:
    def ask(path: str) -> int:
        return desk.post("/file", f"file_path={path}".encode(), Content_Type="application/x-www-form-urlencoded").status

    assert [ask(""), ask(f"{tmp_path}/none"), ask(str(tmp_path)), ask("/dev/zero")] == [400, 404, 400, 400]
    tree = desk.post("/list_directory", {"path": desk.run("sh", "-c", "echo ~")["output"].strip()}).json["directory_tree"]
    assert {"type": "directory", "name": "Desktop", "children": []} in tree["children"]
    assert desk.post("/list_directory", {"path": "/nowhere"}).status == 400
    assert desk.post("/desktop_path").json["desktop_path"].endswith("/Desktop")


def test_relative_paths_and_tildes_begin_at_the_sessions_home(desk: Desk) -> None:
    home = Path(desk.run("sh", "-c", "echo ~")["output"].strip())
    assert desk.send("PUT", "/files?path=Documents/deep/a.txt", b"one").status == 200
    assert (home / "Documents/deep/a.txt").read_bytes() == b"one"
    for name in ("Documents/deep/a.txt", "~/Documents/deep/a.txt", "$HOME/Documents/deep/a.txt"):
        assert desk.get(f"/files?path={name}").content == b"one"
        assert desk.post("/file", f"file_path={name}".encode(), Content_Type="application/x-www-form-urlencoded").content == b"one"
    assert desk.run("cat", "Documents/deep/a.txt")["output"] == "one"
    assert desk.run("cat", "~/Documents/deep/a.txt")["output"] == "one"
    assert desk.run("cat", "a.txt", cwd="Documents/deep")["output"] == "one"
    assert desk.run("pwd", cwd="~")["output"] == f"{home}\n"
    assert desk.post("/list_directory", {"path": "Documents"}).json["directory_tree"]["children"] == [
        {"type": "directory", "name": "deep", "children": [{"type": "file", "name": "a.txt"}]}
    ]


def test_directories_where_files_are_asked_for(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    refused = desk.get(f"/files?path={tmp_path}/folder")
    assert refused.status == 400
    assert "list_directory" in refused.json["error"]["hint"]
    assert desk.send("PUT", f"/files?path={tmp_path}/folder", b"x").status == 400
    assert desk.send("PUT", f"/files?path={tmp_path}/folder/", b"x").status == 400
    (tmp_path / "file").write_text("x")
    assert desk.send("PUT", f"/files?path={tmp_path}/file/inside", b"x").status == 500
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
    (tmp_path / "folder" / "loop").symlink_to(tmp_path / "folder")
    tree = desk.post("/list_directory", {"path": str(tmp_path)}).json["directory_tree"]
    assert {"type": "directory", "name": "folder", "children": [{"type": "file", "name": "loop"}]} in tree["children"]


def test_a_film_of_what_was_done(desk: Desk, tmp_path: Path) -> None:
    if not shutil.which("ffprobe"):
        lacking("desktop", "there is no ffmpeg")
    assert desk.post("/end_recording").status == 400
    assert desk.post("/start_recording").json["status"] == "success"
    assert desk.post("/start_recording").status == 400
    desk.terminal("filmed", "sleep 100")
    desk.sleep(1)
    film = desk.post("/end_recording")
    assert (film.status, film.headers["content-type"]) == (200, "video/mp4")
    (tmp_path / "film.mp4").write_bytes(film.content)
    shown = ["-count_frames", "-show_entries", "stream=codec_name,width,height,nb_read_frames", "-of", "json"]
    done = subprocess.run(["ffprobe", "-v", "error", *shown, str(tmp_path / "film.mp4")], capture_output=True, check=True)
    stream = json.loads(done.stdout)["streams"][0]
    assert (stream["codec_name"], stream["width"], stream["height"]) == ("h264", 1280, 720)
    assert int(stream["nb_read_frames"]) >= 15
    assert desk.post("/end_recording").status == 400
    desk.post("/start_recording")
    assert desk.post("/reset").json["recording"] is True


def test_files_directories_and_programs_are_opened(desk: Desk, tmp_path: Path) -> None:
    for program in ("xdg-open", "mousepad", "pcmanfm"):
        if not shutil.which(program):
            lacking("desktop", f"there is no {program}")
    (tmp_path / "a.txt").write_text("text of a")
    desk.terminal("a terminal", "sleep 100")  # `a` is in its title, too
    assert desk.post("/setup/open_file", {"path": str(tmp_path / "a.txt"), "timeout": 30}).status == 200
    desk.until(lambda: any(w["active"] and "a.txt" in w["title"] and w["instance"] == "mousepad" for w in desk.windows()))
    assert desk.post("/setup/open_file", {"path": str(tmp_path / "a.txt"), "timeout": 30}).status == 200  # it is open already
    (tmp_path / "many things").mkdir()
    assert desk.post("/setup/open_file", {"path": str(tmp_path / "many things"), "timeout": 30}).status == 200
    desk.until(lambda: any(w["active"] and "many things" in w["title"] for w in desk.windows()))
    assert desk.post("/setup/open_file", {"path": "xterm", "timeout": 30}).status == 200
    assert desk.post("/setup/open_file", {"path": "no-such-program"}).status == 404
    assert desk.post("/setup/open_file", {"path": "true", "timeout": 0.3}).status == 500
    for name, by_class in (("mousepad", True), ("many things", False), ("xterm", True)):
        assert desk.post("/setup/close_window", {"window_name": name, "by_class": by_class}).status == 200
    desk.until(lambda: {w["title"] for w in desk.windows()} <= {"pcmanfm", "tint2", "a terminal"})


@contextlib.contextmanager
def web(answers: dict[str, tuple[int, dict[str, str], bytes]]) -> Iterator[str]:
    """A server of these answers; its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = answers[self.path]
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_downloads_come_whole_or_not_at_all(desk: Desk, tmp_path: Path) -> None:
    content = os.urandom(1_000_000)
    answers: dict[str, tuple[int, dict[str, str], bytes]] = {
        "/a": (200, {}, content), "/to-a": (302, {"Location": "/a"}, b""), "/gone": (404, {}, b"no"), "/short": (200, {"Content-Length": "2000000"}, content),
    }  # fmt: skip
    with web(answers) as address:

        def ask(path: str, **more: Any) -> Any:
            return desk.post("/setup/download_file", {"url": f"{address}{path}", "path": str(tmp_path / "new" / "file"), **more})

        for path in ("/a", "/to-a"):
            assert ask(path).status == 200
            assert (tmp_path / "new" / "file").read_bytes() == content
        for path in ("/gone", "/short"):
            failed = ask(path)
            assert failed.status == 502
            assert "404" in failed.json["message"] or "1000000 of 2000000" in failed.json["message"]
        assert ask("/a", url="file:///etc/passwd").status == 400
        assert ask("/a", url="").status == 400
    assert ask("/a").status == 502
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["file"]
    assert (tmp_path / "new" / "file").read_bytes() == content


def test_windows_by_title_and_class(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("text of one")
    desk.open("one.txt", "mousepad", "--disable-server", str(tmp_path / "one.txt"))
    desk.terminal("second", "sleep 100")
    desk.until(lambda: any(w["active"] and w["title"] == "second" for w in desk.windows()))
    assert desk.post("/setup/activate_window", {"window_name": "ONE.TXT"}).status == 200
    desk.until(lambda: any(w["active"] and w["instance"] == "mousepad" for w in desk.windows()))
    assert desk.post("/setup/activate_window", {"window_name": "ONE.TXT", "strict": True}).status == 404
    size = desk.post("/window_size", b"app_class_name=xterm", Content_Type="application/x-www-form-urlencoded").json
    assert size["width"] > 300
    assert desk.post("/setup/close_window", {"window_name": "xterm.XTerm", "strict": True, "by_class": True}).status == 200
    desk.until(lambda: not any(w["instance"] == "xterm" for w in desk.windows()))
    assert "there are" in desk.post("/setup/close_window", {"window_name": "gone"}).json["error"]["hint"]


def test_the_accessibility_tree_is_osworlds(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "two.txt").write_text("words <in> the & file")
    window = desk.open("two.txt", "mousepad", "--disable-server", str(tmp_path / "two.txt"))
    answer = desk.until(lambda: (a := desk.get("/accessibility").json)["AT"] and "words &lt;in&gt;" in a["AT"] and a)
    root = ElementTree.fromstring(answer["AT"])
    assert root.tag == "desktop-frame"
    frame = root.find("application[@name='mousepad']/frame")
    assert frame is not None
    assert frame.get(f"{STATE}active") == "true"
    text = next(n for n in root.iter("text") if n.text == "words <in> the & file")
    x, y = map(int, str(text.get(f"{COMPONENT}screencoord")).strip("()").split(", "))
    assert window["x"] <= x < window["x"] + window["width"]
    assert window["y"] <= y < window["y"] + window["height"]
    assert any(n.get("name") == "File" for n in root.iter("menu"))
    assert answer["cut"] == []


def test_osworlds_own_client(desk: Desk, tmp_path: Path) -> None:
    try:
        controllers: Any = importlib.import_module("desktop_env.controllers.python")
    except ImportError as error:
        lacking("desktop-env", str(error))
    client = controllers.PythonController(vm_ip=f"gym:{desk.token}@127.0.0.1", server_port=desk.port, pkgs_prefix="{command}")
    client.retry_times = 1
    assert client.get_screenshot().startswith(b"\x89PNG")
    assert "<desktop-frame" in client.get_accessibility_tree()
    assert client.get_vm_screen_size() == {"width": 1280, "height": 720}
    assert client.execute_python_command("print(1)")["output"] == "1\n" if desk.run("sh", "-c", "command -v python || true")["output"] else True
    (tmp_path / "f").write_bytes(b"\0\1")
    assert client.get_file(str(tmp_path / "f")) == b"\0\1"
    assert client.run_bash_script("echo hi")["output"] == "hi\n"
    assert client.get_vm_desktop_path().endswith("Desktop")
    assert client.get_terminal_output() is None


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_desktop_ends_whole(parts: None, tmp_path: Path, how: signal.Signals) -> None:
    desk = Desk(tmp_path)
    desk.await_painted()
    desk.post("/setup/launch", {"command": ["setsid", "sleep", "1000"]})
    desk.get("/accessibility")
    family = desk.family()
    assert len(family) >= 5
    desk.process.send_signal(how)
    desk.process.wait(20)
    desk.until(lambda: not [pid for pid in family if alive(pid)])
    desk.close()
    desk.log.close()


def test_a_lost_x_server_is_said(parts: None, tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.await_painted()
    x = next(pid for pid in desk.family() if "Xvnc" in Path(f"/proc/{pid}/cmdline").read_text())
    os.kill(x, signal.SIGKILL)
    assert desk.process.wait(20) == 1
    desk.close()
    desk.log.close()


def test_missing_packages_are_named_in_one_line_before_anything_starts(parts: None, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for folder in map(Path, ("/usr/bin", "/bin", "/usr/sbin")):
        for program in folder.iterdir():
            if program.name not in ("Xvnc", "vncpasswd", "openbox") and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
    desk = Desk(tmp_path / "desk", "no-such-package", PATH=str(programs), VNC_PASSWORD="12345678", VNC_PORT="1")
    assert desk.process.wait(20) == 1
    desk.close()
    desk.log.close()
    [line] = (tmp_path / "desk" / "log").read_text().splitlines()
    assert line.startswith("not installed: tigervnc-standalone-server, openbox, tigervnc-tools, no-such-package (apt-get install ")


def test_no_token_no_server(parts: None, tmp_path: Path) -> None:
    desk = Desk(tmp_path, GUEST_TOKEN="")
    assert desk.process.wait(20) == 1
    desk.close()
    desk.log.close()
    assert "GUEST_TOKEN" in (tmp_path / "log").read_text()
