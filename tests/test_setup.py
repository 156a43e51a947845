"""Set-up steps of desktop tasks on a real desktop: each does what it says, and one that cannot says which it was and why."""

from __future__ import annotations

import hashlib
import http.server
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gymctl import recipe, wire
from gymctl.desktop import setup
from gymctl.errors import EnvError, IntegrityError, RecipeError, Unavailable
from gymctl.recipe import SetUp
from tests.conftest import lacking
from tests.desktops import Machine

BODY = bytes(range(256)) * 4096
"""What the server of these tests has: a mebibyte."""


class Files(http.server.BaseHTTPRequestHandler):
    """/whole gives it; /breaks ends in the middle of each answer, and takes ranges; /changes too, and is another file each time; else 404."""

    protocol_version = "HTTP/1.1"
    asked: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers.get("Range")))
        if self.path not in ("/whole", "/breaks", "/changes"):
            return self.send_error(404)
        tag = f'"{len(self.asked) if self.path == "/changes" else 1}"'
        start = 0
        if self.headers.get("Range") and self.headers.get("If-Range") == tag:
            start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(BODY) - start))
        self.send_header("ETag", tag)
        self.end_headers()
        half = len(BODY) if self.path == "/whole" else start + (len(BODY) - start) // 2 + 1
        self.wfile.write(BODY[start:half])
        self.close_connection = True
        return None

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def files() -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """Its address, and what it was asked."""
    asked: list[tuple[str, str | None]] = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Asked", (Files,), {"asked": asked})) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


# Downloads


def test_a_download_is_whole_or_not_there(files: Any, tmp_path: Path) -> None:
    url, _ = files
    wire.download(f"{url}/whole", tmp_path / "a", sha256=f"sha256:{hashlib.sha256(BODY).hexdigest()}")
    assert (tmp_path / "a").read_bytes() == BODY
    with pytest.raises(IntegrityError, match="expected 1234"):
        wire.download(f"{url}/whole", tmp_path / "b", sha256="1234")
    with pytest.raises(Unavailable, match="/none: it answers 404"):
        wire.download(f"{url}/none", tmp_path / "c")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


def test_a_download_that_breaks_off_is_taken_up_again(files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, asked = files
    monkeypatch.setattr(wire, "TRIES", 40)  # half of what is left comes each time
    wire.download(f"{url}/breaks", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == BODY
    assert asked[1] == ("/breaks", f"bytes={len(BODY) // 2 + 1}-")
    assert len(asked) < 25


def test_parts_of_two_files_never_become_one(files: Any, tmp_path: Path) -> None:
    url, asked = files
    with pytest.raises(Unavailable, match="/changes: "):
        wire.download(f"{url}/changes", tmp_path / "a")
    assert len(asked) == wire.TRIES
    assert list(tmp_path.iterdir()) == []


def test_a_proxy_plays_no_part_on_this_host(files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    wire.download(f"{files[0]}/whole", tmp_path / "a")
    assert (tmp_path / "a").stat().st_size == len(BODY)


# What is written


@pytest.mark.parametrize(("steps", "faults"), [
    ([{"type": "opn", "parameters": {}}], ["setup[0].type: unknown type 'opn'; did you mean open?; known: download, upload,"]),
    ([{"type": "sleep"}, {"type": "open", "parameters": {"pth": "x"}}], [
        "setup[0].parameters.seconds: missing; sleep needs it", "setup[1].parameters.path: missing; open needs it",
        "setup[1].parameters.pth: open has no such parameter; did you mean path?",
    ]),
    ([{"type": "download", "parameters": {"files": [{"url": "http://x"}]}}], ["setup[0].parameters.files[0].path: missing"]),
    ([{"type": "upload_file", "parameters": {"files": {"local_path": "a", "path": "b"}}}],
     ["setup[0].parameters.files: must be a list of mappings with local_path, path"]),
])  # fmt: skip
def test_every_fault_is_said_before_anything_is_done(steps: list[Any], faults: list[str]) -> None:
    with pytest.raises(EnvError) as caught:
        setup.read(steps)
    assert len(caught.value.message.splitlines()) == len(faults)
    for said, wanted in zip(caught.value.message.splitlines(), faults, strict=True):
        assert said.startswith(wanted)
    assert "known steps: download, upload" in caught.value.hint


def test_files_of_a_task_stand_beside_it(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    task = tmp_path / "tasks/t.yaml"
    task.write_text(
        "prompt: x\nsetup:\n- {type: upload, parameters: {files: [{local_path: ../a.txt, path: ~/a.txt}, {local_path: /b.txt, path: ~/b.txt}]}}\n"
        "evaluator: {func: compare_csv, result: {type: vm_file, path: a.csv}, expected: {type: cloud_file, multi: true, path: [gold.csv, 'https://x/y.csv']}}\n"
    )
    read = recipe.load_task(tmp_path, str(task))
    assert [file["local_path"] for file in read.setup[0].parameters["files"]] == [str(tmp_path / "a.txt"), "/b.txt"]
    evaluator = read.evaluator
    assert evaluator is not None
    assert evaluator.expected == {"type": "cloud_file", "multi": True, "path": [str(tmp_path / "tasks/gold.csv"), "https://x/y.csv"]}
    assert evaluator.result == {"type": "vm_file", "path": "a.csv"}
    task.write_text("prompt: x\nsetup: [{type: 5}]\nevaluator: {func: infeasible}\n")
    with pytest.raises(RecipeError, match="setup"):
        recipe.load_task(tmp_path, str(task))


# On a desktop


@pytest.fixture
def prepare(local_desk: Machine) -> Iterator[Callable[..., list[str]]]:
    """prepare(step, ...) does (type, parameters) steps; what was told."""
    token = local_desk.document["token"]
    client = wire.Client(local_desk.document["url"], name="", headers={"Authorization": f"Bearer {token}"})

    def do(*steps: tuple[str, dict[str, Any]], disk_is_ready: bool = False) -> list[str]:
        told: list[str] = []
        setup.prepare(client, [SetUp(name, given) for name, given in steps], told.append, disk_is_ready=disk_is_ready)
        return told

    yield do
    client.close()
    local_desk.close_windows()
    local_desk.step("exec", "rm -rf ~/set")


def titles(desk: Machine) -> list[str]:
    return [window["title"] for window in desk.step("windows")["windows"]]


def read(desk: Machine, path: str) -> str:
    return str(desk.step("exec", f"cat {path}")["stdout"])


def test_files_come_in(local_desk: Machine, prepare: Callable[..., list[str]], files: Any, tmp_path: Path) -> None:
    url, asked = files
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/sh\necho ran\n")
    script.chmod(0o755)
    told = prepare(
        ("download", {"files": [{"url": f"{url}/whole", "path": "~/set/a file.bin", "sha256": hashlib.sha256(BODY).hexdigest()},
                                {"url": script.as_uri(), "path": "~/set/plain.sh"}]}),
        ("upload_file", {"files": [{"local_path": str(script), "path": "~/set/deep/run.sh"}]}),
        ("upload", {"files": [{"local_path": str(script), "path": "~/set/again.sh"}]}),
    )  # fmt: skip
    assert told == ["setup 1 of 3: download", "setup 2 of 3: upload_file", "setup 3 of 3: upload"]
    assert asked == [("/whole", None)]
    assert read(local_desk, "~/set/a*.bin | sha256sum").split()[0] == hashlib.sha256(BODY).hexdigest()
    assert local_desk.step("exec", "~/set/deep/run.sh")["stdout"] == "ran\n"
    assert local_desk.step("exec", "~/set/plain.sh")["exit"] != 0


def test_commands_run(local_desk: Machine, prepare: Callable[..., list[str]]) -> None:
    prepare(
        ("execute", {"command": ["mkdir", "-p", "~/set"]}),
        ("command", {"command": "echo {SCREEN_WIDTH_HALF},{SCREEN_HEIGHT} > ~/set/size", "shell": True}),
        ("execute", {"command": "exit 4", "shell": True, "check": False}),
        ("execute", {"command": "echo x >> ~/set/count; wc -l < ~/set/count", "shell": True, "until": {"stdout": "3"}, "timeout": 20}),
        ("execute", {"command": "exit 4", "shell": True, "until": {"returncode": 4}}),
        ("execute_with_verification", {"command": "touch ~/set/ok", "shell": True, "verification": {"command_success": "test -e ~/set/ok"}}),
    )
    assert read(local_desk, "~/set/size") == "640,720\n"
    assert read(local_desk, "~/set/count") == "x\n" * 3


def test_programs_and_windows(local_desk: Machine, prepare: Callable[..., list[str]]) -> None:
    prepare(
        ("execute", {"command": "mkdir -p ~/set && echo hello > ~/set/letter.txt && echo y > ~/set/second.txt", "shell": True}),
        ("open", {"path": "~/set/letter.txt"}),
        ("launch", {"command": ["mousepad", "--disable-server", "~/set/second.txt"]}),
        ("activate_window", {"window_name": "second.txt"}),
        ("activate_window", {"window_name": "letter.txt"}),
    )
    windows = local_desk.step("windows")["windows"]
    assert ["letter.txt" in window["title"] for window in windows if window["active"]] == [True]
    prepare(("close_window", {"window_name": "second.txt"}), ("sleep", {"seconds": 0.5}))
    assert not any("second.txt" in title for title in titles(local_desk))
    assert any("letter.txt" in title for title in titles(local_desk))


def test_tabs_of_a_browser(local_desk: Machine, prepare: Callable[..., list[str]]) -> None:
    if not shutil.which("falkon"):
        lacking("desktop", "not installed: falkon")
    prepare(
        ("execute", {"command": "mkdir -p ~/set; for n in one two; do echo \"<title>Page $n</title>\" > ~/set/$n.html; done", "shell": True}),
        ("chrome_open_tabs", {"urls_to_open": [f"file://{local_desk.home()}/set/one.html", f"file://{local_desk.home()}/set/two.html"]}),
        ("execute_with_verification", {"command": ["true"], "verification": {"window_exists": "Page two"}, "max_wait_time": 30}),
    )  # fmt: skip
    assert sum("Falkon" in title for title in titles(local_desk)) == 1


def test_a_disk_that_is_ready_is_left_alone(local_desk: Machine, prepare: Callable[..., list[str]]) -> None:
    local_desk.step("exec", "mkdir -p ~/set; echo kept > ~/set/kept.txt")
    told = prepare(
        ("execute", {"command": "echo lost > ~/set/kept.txt", "shell": True}),
        ("upload", {"files": [{"local_path": "/etc/hostname", "path": "~/set/kept.txt"}]}),
        ("open", {"path": "~/set/kept.txt"}), disk_is_ready=True,
    )  # fmt: skip
    assert told == ["setup 3 of 3: open"]
    assert read(local_desk, "~/set/kept.txt") == "kept\n"
    assert any("kept.txt" in title for title in titles(local_desk))


@pytest.mark.parametrize(("step", "why"), [
    (("execute", {"command": "echo half done; echo no room >&2; exit 28", "shell": True}), "exit code 28; it printed: half done\nno room"),
    (("execute", {"command": "sleep 60", "shell": True, "timeout": 0.5}), "it did not end within 0.5 s; it printed: killed with its whole group"),
    (("execute", {"command": "echo 1", "shell": True, "until": {"stdout": "2"}, "timeout": 1}),
     "after 1 s still not {'stdout': '2'}: exit code 0; it printed: 1"),
    (("execute", {"command": ["no-such-program"]}), "there is no program 'no-such-program' in the guest"),
    (("execute_with_verification", {"command": "echo x", "shell": True, "verification": {"window_exists": "Nope"}, "max_wait_time": 0.3}),
     "after 0.3 s there is still not {'window_exists': 'Nope'}; it printed: x"),
    (("open", {"path": "~/no/such.file"}), "Application/file not found: ~/no/such.file"),
    (("activate_window", {"window_name": "No such window"}), "No such window"),
    (("close_window", {"window_name": "No such window"}), "No such window"),
    (("upload", {"files": [{"local_path": "/no/such/file", "path": "~/x"}]}), "there is no file /no/such/file on this host"),
    (("upload", {"files": [{"local_path": "/etc/hostname", "path": "/proc/x"}]}), "cannot write /proc/x"),
    (("download", {"files": [{"url": "http://127.0.0.1:9/x", "path": "~/x"}]}), "cannot fetch http://127.0.0.1:9/x: "),
    (("download", {"files": [{"url": "/etc/hostname", "path": "~/x", "sha256": "00"}]}), "/etc/hostname is not what it should be: sha256 "),
    (("change_wallpaper", {"path": "~/none.png"}), "File not found: "),
    (("launch", {"command": ["no-such-program"]}), "there is no program 'no-such-program'"),
])  # fmt: skip
def test_a_step_that_fails_says_which_it_was_and_why(
    prepare: Callable[..., list[str]], step: tuple[str, dict[str, Any]], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup, "WINDOW_SECONDS", 0.5)
    with pytest.raises(EnvError) as caught:
        prepare(("sleep", {"seconds": 0.01}), step, ("execute", {"command": "touch ~/never", "shell": True}))
    message = caught.value.message
    assert message.startswith(f"setup step 2 of 3 ({step[0]}): "), message
    assert why in message


def test_a_guest_that_has_gone_is_no_fault_of_a_step(local_desk: Machine) -> None:
    client = wire.Client("http://127.0.0.1:9")
    with pytest.raises(Unavailable, match=r"setup step 1 of 1 \(sleep\): nothing listens"):
        setup.prepare(client, [SetUp("sleep", {"seconds": 1})], lambda text: None)
