"""Desktops acted on: actions arrive where they point, what is said of the screen is true, and what cannot be done is said with what there is instead."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shlex
import signal
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from PIL import Image

import gymctl
from gymctl import instances, session, wire
from gymctl.desktop import gestures, transfer, words
from gymctl.desktop.acting import Desk
from gymctl.errors import EnvError, Unavailable, UsageError
from gymctl.kinds import desktop
from tests.conftest import ROOT, Cli, lacking
from tests.desktops import PATCH, Machine, check_host, desk, local_desk, start

__all__ = ["desk", "local_desk"]


@pytest.fixture
def notes(desk: Machine) -> Iterator[str]:
    """Mousepad with a file that holds a line; its path in the guest."""
    path = f"{desk.home()}/notes.txt"
    desk.step("exec", f"printf 'alpha beta gamma\\n' > {path}; rm -f {path}.new")
    desk.step("launch", "mousepad", "--disable-server", path)
    _until(lambda: any("notes.txt" in w["title"] and w["active"] for w in desk.step("windows")["windows"]), "no editor")
    desk.step("wait-stable")
    yield path
    desk.close_windows()


def _until(holds: Any, why: str, seconds: float = 30) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, why
        time.sleep(0.05)
    return found


# What can be said


def test_every_action_has_a_schema_and_words() -> None:
    listed = gestures.tools()
    assert [tool["name"] for tool in listed] == list(gestures.ACTIONS) == list(words.FORMS)
    for tool in listed:
        Draft202012Validator.check_schema(tool["inputSchema"])
        assert tool["description"]
        assert "$ref" not in json.dumps(tool)
    click = Draft202012Validator(next(tool for tool in listed if tool["name"] == "click")["inputSchema"])
    assert click.is_valid({"x": 5, "y": "50%"})
    assert not click.is_valid({"x": 5, "y": 5, "z": 1})


@pytest.mark.parametrize(("line", "args"), [
    ("click 100 200", {"x": 100, "y": 200}),
    ("click 100,200", {"x": 100, "y": 200}),
    ("click double 50% 20", {"count": 2, "x": "50%", "y": 20}),
    ("click right 'push button=Save' in 'My Notes'", {"button": "right", "element": "push button=Save", "in": "My Notes"}),
    ("click window=Mousepad 50% 30", {"window": "Mousepad", "x": "50%", "y": 30}),
    ("move window=Mousepad", {"window": "Mousepad"}),
    ("drag 1 2 3 4", {"x": 1, "y": 2, "to": {"x": 3, "y": 4}}),
    ("drag icon=a to window=Trash 5 5", {"element": "icon=a", "to": {"window": "Trash", "x": 5, "y": 5}}),
    ("scroll -3", {"dy": -3}),
    ("scroll 10 20 3", {"x": 10, "y": 20, "dy": 3}),
    ("scroll text in Notes 2", {"element": "text", "in": "Notes", "dy": 2}),
    ("type 'a b'", {"text": "a b"}),
    ("type screenshot:=true", {"text": "screenshot:=true"}),
    ("type x screenshot:=true", {"text": "x", "screenshot": True}),
    ("key ctrl+s", {"keys": "ctrl+s"}),
    ("keys_down ctrl shift", {"keys": ["ctrl", "shift"]}),
    ("buttons_down left", {"buttons": ["left"]}),
    ("wait 0.5", {"seconds": 0.5}),
    ("screenshot a.png --fresh", {"path": "a.png", "fresh": True}),
    ("exec ls -l", {"command": ["ls", "-l"]}),
    ("exec 'ls | wc -l'", {"command": "ls | wc -l"}),
    ("get /etc/hostname", {"src": "/etc/hostname"}),
    ("clipboard", {}),
])  # fmt: skip
def test_words(line: str, args: dict[str, Any]) -> None:
    found = desktop.parse(shlex.split(line))
    assert found.args == args
    gestures.read(found.name, found.args)


@pytest.mark.parametrize(("document", "name", "args"), [
    ({"action": "click", "args": {"x": 1, "y": 2}}, "click", {"x": 1, "y": 2}),
    ({"action": "click", "x": 1, "y": 2, "id": 7}, "click", {"x": 1, "y": 2}),
    ({"tool": "key", "arguments": {"keys": "a"}}, "key", {"keys": "a"}),
    ({"mouse": {"left_click": [1, 2]}}, "actions", {"actions": [{"mouse": {"left_click": [1, 2]}}]}),
    ({"mouse": {"move": [1, 2]}, "keyboard": {"keys": "a"}, "id": 1}, "actions", {"actions": [{"mouse": {"move": [1, 2]}, "keyboard": {"keys": "a"}}]}),
    ({"action": "wait", "time": 1}, "wait", {"seconds": 1}),
    ({"action": "screenshot"}, "screenshot", {}),
    ({"api_call": {"name": "exec", "args": {"command": "ls"}}}, "exec", {"command": "ls"}),
    ([{"action": "windows"}], "actions", {"actions": [{"action": "windows"}]}),
    ({"actions": [{"action": "windows"}], "id": "b"}, "actions", {"actions": [{"action": "windows"}]}),
])  # fmt: skip
def test_json_of_both_kinds(document: Any, name: str, args: dict[str, Any]) -> None:
    found = desktop.read(document)
    assert (found.name, found.args) == (name, args)
    gestures.read(found.name, found.args)


@pytest.mark.parametrize("args", [
    {}, {"x": 1}, {"x": "5", "y": 1}, {"x": "101%", "y": 1}, {"element": "a", "x": 1, "y": 2}, {"in": "W", "x": 1, "y": 2}, {"x": 1, "y": 2, "z": 3},
    {"x": 1, "y": 2, "count": 2, "button": "right"}, {"x": True, "y": 1},
])  # fmt: skip
def test_a_place_is_one_place(args: dict[str, Any]) -> None:
    with pytest.raises(EnvError):
        gestures.read("click", args)


@pytest.mark.parametrize("document", [[], {}, 3, {"action": 5}, {"id": [1], "action": "wait"}, {"args": {}}])
def test_what_is_no_action(document: Any) -> None:
    with pytest.raises((UsageError, EnvError)):
        _understood(document)


def _understood(document: Any) -> gestures.Action:
    found = desktop.read(document)
    return gestures.read(found.name, found.args)


# Acting


def test_menus_dialogs_and_buttons_are_found_by_name(desk: Machine, notes: str) -> None:
    assert desk.step("click", "menu=File")["target"].startswith("menu=File in ")
    desk.step("wait-stable")
    desk.step("click", "menu item=Save As...", "in", "Mousepad")
    _until(lambda: any(w["title"] == "Save As" for w in desk.step("windows")["windows"]), "no dialog")
    desk.step("wait-stable")
    desk.step("key", "ctrl+a")
    desk.step("type", f"{notes}.new")
    desk.step("click", "push button=Save", "in", "Save As")
    said = _until(lambda: desk.step("exec", f"cat {notes}.new 2>/dev/null; true")["stdout"], "not saved")
    assert said == "alpha beta gamma\n"


def test_a_click_a_double_and_a_triple_select_what_they_do(desk: Machine, notes: str) -> None:
    text = next(line for line in desk.step("a11y", "in", "notes.txt")["a11y"].splitlines() if "text=" in line)
    x, y = (int(number) for number in text.split()[-2].split(","))
    for how, selected in (("double", "alpha"), ("triple", "alpha beta gamma")):
        desk.step("clipboard", "")
        desk.step("click", how, str(x + 12), str(y + 10))
        desk.step("key", "ctrl+c")
        _until(lambda selected=selected: desk.step("clipboard")["text"] == selected, f"{how}: {desk.step('clipboard')}")
    desk.step("clipboard", "")
    assert desk.step("drag", str(x + 1), str(y + 10), str(x + 400), str(y + 10))["to"]["at"] == [x + 400, y + 10]
    desk.step("key", "ctrl+c")
    _until(lambda: desk.step("clipboard")["text"] == "alpha beta gamma", desk.step("clipboard")["text"])
    desk.step("click", "right", "text", "in", "notes.txt")
    _until(lambda: "menu item=Paste" in desk.step("a11y")["a11y"], "no context menu")
    desk.step("key", "Escape")


def test_keys_do_not_overtake_a_click(local_desk: Machine) -> None:
    path = f"{local_desk.home()}/order.txt"
    local_desk.step("exec", f"echo old > {path}")
    local_desk.step("launch", "mousepad", "--disable-server", path)
    _until(lambda: any("order.txt" in w["title"] and w["active"] for w in local_desk.step("windows")["windows"]), "no editor")
    local_desk.step("wait-stable")
    at = local_desk.step("move", "text", "in", "order.txt")["at"]
    manager = _process(local_desk, "openbox")
    os.kill(manager, signal.SIGSTOP)  # it looks at each press first, and pointer events wait for it; keys would not
    step = [{"mouse": {"left_click": at}}, {"keyboard": {"keys": "ctrl+a"}}, {"action": "wait", "seconds": 1.5}, {"keyboard": {"text": "new"}}]
    acted = local_desk.cli.spawn("step", "desk", json.dumps(step))
    try:
        time.sleep(0.7)
    finally:
        os.kill(manager, signal.SIGCONT)
    acted.communicate(timeout=30)
    assert acted.returncode == 0
    _until(lambda: "text='new'" in local_desk.step("a11y", "in", "order.txt")["a11y"], local_desk.step("a11y", "in", "order.txt")["a11y"])
    local_desk.close_windows()


def test_a_place_in_a_window(desk: Machine, notes: str) -> None:
    window = next(w for w in desk.step("windows")["windows"] if "notes.txt" in w["title"])
    at = desk.step("click", "window=notes.txt", "50%", "30")["at"]
    assert at == [window["x"] + window["width"] // 2, window["y"] + 30]
    assert desk.step("move", "window=notes.txt")["at"] == [window["x"] + window["width"] // 2, window["y"] + window["height"] // 2]
    assert "outside the window" in desk.step("click", "window=notes.txt", "5000", "1", code=9)["message"]
    error = desk.step("click", "window=nobody", "1", "1", code=9)
    assert "no window 'nobody'" in error["message"]
    assert "notes.txt" in error["hint"]


def test_a_target_that_is_not_there_lists_the_near_ones(desk: Machine, notes: str) -> None:
    error = desk.step("click", "menu=Fiel", code=9)
    assert "no element 'menu=Fiel'" in error["message"]
    assert "menu=File in" in error["hint"]
    assert "not shown" in desk.step("click", "menu item=Save As...", code=9)["message"]
    error = desk.step("click", "menu", code=9)
    assert "6 elements are 'menu'" in error["message"]
    assert "menu=Edit" in error["message"]
    assert "no element 'menu=File' in 'Elsewhere'" in desk.step("click", "menu=File", "in", "Elsewhere", code=9)["message"]


def test_what_is_gray_or_covered_is_not_clicked(desk: Machine, notes: str) -> None:
    desk.step("click", "menu=File")
    desk.step("wait-stable")
    assert "gray" in desk.step("click", "menu item=Detach Tab", code=9)["message"]
    desk.step("key", "Escape")
    desk.step("key", "Escape")
    desk.step("wait-stable")
    window = next(w for w in desk.step("windows")["windows"] if "notes.txt" in w["title"])
    desk.window("over", f"500x300+{window['x']}+{window['y'] - 10}")
    _until(lambda: any(w["title"] == "over" and w["active"] for w in desk.step("windows")["windows"]), "no terminal")
    for place in (("menu=File",), ("window=notes.txt", "10", "10")):
        error = desk.step("click", *place, code=9)
        assert "covered by the window 'over'" in error["message"], error
    assert desk.step("activate", "notes.txt")["window"].endswith("Mousepad")
    _until(lambda: any("notes.txt" in w["title"] and w["active"] for w in desk.step("windows")["windows"]), "not raised")
    desk.step("click", "menu=File")
    desk.step("key", "Escape")
    desk.step("close", "over")
    _until(lambda: not any(w["title"] == "over" for w in desk.step("windows")["windows"]), "not closed")


def test_two_windows_of_one_name(desk: Machine, notes: str) -> None:
    desk.window("twin")
    desk.window("twin")
    _until(lambda: sum(w["title"] == "twin" for w in desk.step("windows")["windows"]) == 2, "no terminals")
    assert "2 windows are called 'twin'" in desk.step("activate", "twin", code=9)["message"]


def test_gym_anything_s_json_as_it_is(desk: Machine, notes: str) -> None:
    window = next(w for w in desk.step("windows")["windows"] if "notes.txt" in w["title"])
    middle = [window["x"] + 200, window["y"] + 200]
    step = [
        {"mouse": {"left_click": middle}}, {"keyboard": {"keys": ["ctrl", "a"]}}, {"keyboard": {"text": "neu: äöü\n"}}, {"action": "wait", "time": 0.3},
        {"action": "wait-stable"},
        {"keyboard": {"keys": "ctrl+s"}}, {"action": "screenshot"}, {"api_call": {"name": "windows"}},
    ]  # fmt: skip
    found = desk.step(json.dumps(step))
    assert len(found["results"]) == len(step)
    assert Path(found["screen"]["path"]).is_file()
    assert found["results"][-1]["windows"]
    _until(lambda: desk.step("exec", f"cat {notes}")["stdout"] == "neu: äöü\n", "not saved")
    error = desk.step('[{"mouse": {"move": [1, 1]}}, {"mouse": {"left_click": [99999, 1]}}]', code=9)
    assert "action 0 to 1 of 0 to 1: the point 99999, 1 is outside the screen" in error["message"]
    assert "microphone" in desk.step('{"voice": {"pcm16_b64": ""}}', code=9)["message"]


def test_keys_and_buttons_are_held_and_released(desk: Machine) -> None:
    assert desk.step("keys_down", "shift")["held"] == ["shift"]
    assert desk.step("buttons_down", "left")["held"] == ["shift", "left button"]
    assert desk.step("keys_up", "shift") == {"held": ["left button"]}
    assert desk.step("buttons_up", "left") == {}
    desk.step("keys_down", "shift")
    assert "no key" in desk.step("key", "nokey", code=9)["message"]
    assert desk.step("move", "5", "5") == {"at": [5, 5]}, "an error releases what is held"


def test_what_cannot_be_typed_is_an_error_unless_it_is_allowed(desk: Machine) -> None:
    error = desk.step("type", "a\x07b", code=9)
    assert "U+0007" in error["message"]
    assert "clipboard" in error["hint"]
    assert desk.step("type", "a\x07b", "allow_untyped:=true")["untyped"][0]["index"] == 1


def test_commands_files_and_the_clipboard(desk: Machine, tmp_path: Path) -> None:
    found = desk.step("exec", "echo out; echo err >&2; exit 3")
    assert (found["exit"], found["stdout"], found["stderr"], found["timed_out"]) == (3, "out\n", "err\n", False)
    assert desk.step("exec", "printf", "%s|", "a b", "$HOME")["stdout"] == "a b|$HOME|"
    assert desk.cli("step", desk.name, "exec", "printf 'a\\nb\\n'; exit 3").out.endswith("\n}\na\nb\n"), "what it printed, as it printed it"
    assert desk.step("launch", "no-such-program", code=9)["message"].endswith("there is no program 'no-such-program' in the guest")
    late = desk.step("exec", "sleep 60", "timeout:=0.5")
    assert (late["timed_out"], late["seconds"] < 5) == (True, True)
    data, there = os.urandom(300_000), f"{desk.home()}/in/deep file"
    (tmp_path / "a").write_bytes(data)
    (tmp_path / "a").chmod(0o750)
    assert desk.step("put", str(tmp_path / "a"), there)["bytes"] == len(data)
    assert desk.step("exec", f"stat -c %a '{there}'")["stdout"] == "750\n"
    assert desk.step("get", there, str(tmp_path / "b"))["path"] == str(tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == data
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o750
    assert "no file /nowhere in the guest" in desk.step("get", "/nowhere", str(tmp_path / "c"), code=4)["message"]
    assert "cannot read" in desk.step("put", str(tmp_path / "nothing"), "/tmp/x", code=9)["message"]
    assert "cannot write" in desk.step("get", there, "/proc/nope/x", code=9)["message"]
    desk.step("clipboard", "grüße\n日本")
    assert desk.step("clipboard") == {"text": "grüße\n日本"}


def test_what_is_put_is_a_file_and_whole(desk: Machine, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "no regular file" in desk.step("put", str(tmp_path / "pipe"), "x", code=9)["message"]
    assert "Is a directory" in desk.step("put", str(tmp_path), "x", code=9)["message"]
    kernel = Path("/proc/version").read_bytes()
    assert desk.step("put", "/proc/version", "version")["bytes"] == len(kernel)
    desk.step("get", "/proc/version", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes().startswith(b"Linux version")


def test_a_name_of_other_bytes_than_utf8(desk: Machine, tmp_path: Path) -> None:
    here, there = os.fsdecode(os.fsencode(tmp_path) + b"/\xff"), os.fsdecode(b"gr\xfcn")
    Path(here).write_bytes(b"green")
    with contextlib.closing(_client(desk)) as client:
        assert transfer.put(client, here, there).json()["size"] == 5
    assert desk.step("exec", "cat gr?n")["stdout"] == "green"
    env = {**os.environ, **desk.cli.env}
    subprocess.run([sys.executable, "-m", "gymctl", "step", desk.name, "get", there, str(tmp_path)], check=True, capture_output=True, env=env, cwd=ROOT)
    assert Path(os.fsdecode(os.fsencode(tmp_path) + b"/gr\xfcn")).read_bytes() == b"green"


def _client(desk: Machine) -> wire.Client:
    found = desk.record()
    return wire.Client(found["url"], headers={"Authorization": f"Bearer {found['secrets']['GUEST_TOKEN']}"})


def test_a_file_that_changes_while_it_is_put(desk: Machine, tmp_path: Path) -> None:
    """Neither more than was announced, which would be taken for the next request, nor a wait for what never comes."""
    at = tmp_path / "log"
    for size, code in ((6 << 20, 0), (1 << 20, 5)):
        at.write_bytes(b"x" * (4 << 20))
        with at.open("rb") as file, contextlib.closing(_client(desk)) as client:
            announced = os.fstat(file.fileno()).st_size

            def read(count: int, file: Any = file, size: int = size) -> bytes:
                os.truncate(at, size)
                return bytes(file.raw.read(count))

            changing = SimpleNamespace(read=read, fileno=file.fileno)
            if code:
                with pytest.raises(Unavailable, match="became shorter"):
                    client.send("PUT", "/files?path=log", data=changing)  # type: ignore[arg-type]  # what put reads of a file
            else:
                assert client.send("PUT", "/files?path=log", data=changing).json()["size"] == announced  # type: ignore[arg-type]
            assert client.send("GET", "/platform").body == b"Linux"


# Seeing


def test_a_screenshot_with_any_action(desk: Machine, tmp_path: Path) -> None:
    shown = desk.step("move", "100", "100", "screenshot:=true")["screen"]
    assert set(shown) == {"path", "resolution", "sequence", "age", "notes"}
    assert Path(shown["path"]).parent == desk.folder / "steps"
    with Image.open(shown["path"]) as picture:
        assert list(picture.size) == shown["resolution"] == [1280, 720]
    again = desk.step("move", "200", "100", "screenshot:=true")["screen"]
    assert again["sequence"] > shown["sequence"]
    assert again["path"] != shown["path"]
    assert 0 <= again["age"] < 5
    assert again["notes"] == []
    done = desk.cli("step", desk.name, "screenshot", str(tmp_path / "a.jpg"), "quality:=30", "width:=320", "height:=180", "--json").json
    assert done["files"] == [str(tmp_path / "a.jpg")]
    assert done["observation"]["screen"]["resolution"] == [320, 180]
    notes = " ".join(done["observation"]["screen"]["notes"])
    assert "reduced: the screen is 1280x720, and 320x180 was asked for" in notes
    assert "lossy: JPEG of quality 30, and format=png is exact" in notes
    larger = desk.step("screenshot", "width:=1920", "height:=1080")["screen"]
    assert larger["resolution"] == [1280, 720]
    assert "RESOLUTION=1920x1080" in larger["notes"][0]
    assert "no picture's name" in desk.step("screenshot", str(tmp_path / "a.gif"), code=9)["message"]


def test_change_and_quiet_are_waited_for(desk: Machine) -> None:
    desk.step("wait-stable", "1", "timeout:=30")
    unchanged = "nothing has been painted since the last action began"
    _until(lambda: unchanged in _error_of(desk, "move 600 300", "wait-change 0.5"), "a pointer that moves is no change")
    desk.window("late")
    assert desk.step("wait-change", "60")["sequence"] > 0
    desk.step("wait-stable")
    assert desk.step("wait-change")["sequence"] > 0, "it has changed since the launch: there is nothing to wait for"
    fresh = desk.step("screenshot", "--fresh")["screen"]
    assert fresh["notes"] == []
    desk.window("busy", how="busy")
    _until(lambda: any(w["title"] == "busy" for w in desk.step("windows")["windows"]), "no terminal")
    assert "not stable" in desk.step("wait-stable", "0.5", "timeout:=2", code=9)["message"]
    desk.close_windows()
    desk.step("wait-stable", "1", "timeout:=30")
    stale = _until(lambda: [shown for shown in [_fresh(desk)] if shown["notes"]], "something is always painted")[0]
    assert stale["notes"][0].startswith("stale: nothing has been painted")
    assert stale["age"] >= 0.3


def _error_of(desk: Machine, *lines: str) -> str:
    """The message of the last of some actions; "" when it worked (the panel's clock may tick)."""
    for line in lines:
        done = desk.cli("step", desk.name, "--json", "--", *line.split(), code=None)
    return str(done.json["error"]["message"]) if done.code else ""


def _fresh(desk: Machine) -> Any:
    desk.step("wait", "0")
    return desk.step("screenshot", "--fresh", "timeout:=0.3")["screen"]


def test_a_screen_that_sleeps_or_is_of_one_color_says_so(desk: Machine) -> None:
    desk.step("exec", "xset s activate")
    assert "has been woken" in " ".join(desk.step("screenshot")["screen"]["notes"])
    assert desk.step("screenshot")["screen"]["notes"] == []
    desk.window("black", color="black", how="full")
    desk.step("move", "1279", "719")
    _until(lambda: any("one color" in note for note in desk.step("screenshot")["screen"]["notes"]), str(desk.step("screenshot")))
    desk.close_windows()


def test_the_outline_of_what_is_shown(desk: Machine, notes: str) -> None:
    text = desk.cli("step", desk.name, "a11y", "in", "notes.txt").out
    assert text.startswith("frame=")
    assert "  menu=File " in text
    assert "alpha beta gamma" in text
    assert "<desktop-frame" in desk.step("a11y", "xml:=true")["a11y"]


def test_settle_is_the_recipe_s(tmp_path: Path, request: pytest.FixtureRequest, cli: Cli) -> None:
    folder = tmp_path / "calm"
    folder.mkdir()
    text = (ROOT / "recipes/linux-desktop/recipe.yaml").read_text().replace("name: linux-desktop", "name: calm")
    (folder / "recipe.yaml").write_text(text.replace("image: linux-desktop", f"image: {ROOT}/images/linux-desktop") + "settle: 0.4\n")
    calm = start(cli, "local", request, str(folder), name="calm")
    for action, least in ((["move", "10", "10"], 0.4), (["windows"], 0.0)):
        elapsed = cli("step", "calm", *action, "--json").json["elapsed"]
        assert (elapsed >= 0.4) == bool(least), action
    shown = calm.step("launch", "python3", "-c", PATCH, "calm", "500x300+100+100", "white", "plain", "screenshot:=true")["screen"]
    with Image.open(shown["path"]) as picture:
        assert picture.convert("L").getextrema() == (0, 255)
    assert shown["notes"] == []
    calm.step("exec", "true")
    calm.step("launch", "python3", "-c", PATCH, "loud", "500x300+100+100", "white", "busy")
    _until(lambda: any(w["title"] == "loud" for w in calm.step("windows")["windows"]), "no window")
    loud = calm.step("move", "20", "20")
    assert loud["notes"][0].startswith("not stable"), loud


# Sessions, Python, agents


def test_a_desktop_is_one_session(desk: Machine) -> None:
    own = desk.document["session"]
    desk.cli("step", desk.name, "--session", own, "wait", "0")
    for verb in (["step", desk.name, "wait", "0"], ["view", desk.name], ["reset", desk.name]):
        done = desk.cli(*verb, "--session", "other", code=2)
        assert "one machine" in done.err
    assert "--name ANOTHER" in desk.cli("step", desk.name, "--session", "other", "wait", "0", code=2).err


def test_lines_on_stdin(desk: Machine) -> None:
    lines = [
        '{"action": "move", "args": {"x": 5, "y": 6}, "id": 1}', '{"mouse": {"move": [7, 8]}, "id": 2}',
        '[{"mouse": {"move": [9, 9]}}, {"action": "windows"}]', '{"action": "klick", "id": 3}', "no json",
    ]  # fmt: skip
    answers = [json.loads(line) for line in desk.cli("step", desk.name, "--stdin", input="\n".join(lines) + "\n").out.splitlines()]
    assert answers[0]["observation"] == {"at": [5, 6]}
    assert (answers[1]["id"], answers[1]["observation"]) == (2, {"results": [{}]})
    assert answers[2]["observation"]["results"][1]["windows"]
    assert (answers[3]["id"], answers[3]["error"]["type"]) == (3, "NotFound")
    assert "click" in answers[3]["error"]["message"]
    assert answers[4]["error"]["type"] == "UsageError"


def test_python_sees_by_file_and_by_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_host()
    monkeypatch.setenv("GYMCTL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GYMCTL_CACHE_DIR", str(tmp_path / "cache"))
    with gymctl.open("linux-desktop", runner="local") as env:
        seen = env.reset()
        with Image.open(seen["screen"]["path"]) as picture:
            assert list(picture.size) == seen["screen"]["resolution"]
            assert len(picture.convert("RGB").getcolors(1 << 20) or []) > 2, "the first frame shows a desktop"
        done = env.step([{"mouse": {"left_click": [40, 40]}}, {"keyboard": {"text": "x"}}])
        assert Path(done["screen"]["path"]).is_file()
        assert "screen" not in env.step("windows", screenshot=False).value
        env.step("exec", command="touch ~/mark")
        assert env.step("exec", command="ls ~/mark")["exit"] == 0
        before = env.instance.handle
        assert env.reset()["form"] == "cold"
        assert env.instance.handle != before
        assert env.step("exec", command="ls ~/mark")["exit"] != 0, "a reset starts the machine anew"
    with gymctl.open("linux-desktop", runner="local", fast_io=True) as env:
        seen = env.reset()
        first = seen["screen"]["image"]
        assert (first.size, first.mode, seen["screen"]["format"]) == ((1280, 720), "RGB", "pil")
        env.step("launch", command=["python3", "-c", PATCH, "green", "500x300+100+100", "#10f020", "plain"])
        env.step("wait-change")
        after = env.step("wait-stable")["screen"]["image"]
        assert sum(count for count, color in after.getcolors(1 << 20) if color == (0x10, 0xF0, 0x20)) > 10_000, "colors are where they belong"
        assert not (env.instance.directory / "steps").exists(), "fast means that nothing is written"
    assert instances.names() == []


def test_fast_io_without_pillow_is_said_before_anything_starts(tmp_path: Path) -> None:
    code = "import sys; sys.modules['PIL'] = None\nimport gymctl\ngymctl.open('linux-desktop', runner='local', fast_io=True)"
    env = {**os.environ, "GYMCTL_STATE_DIR": str(tmp_path / "s"), "GYMCTL_CACHE_DIR": str(tmp_path / "c")}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert "gymctl.errors.Unavailable: fast_io needs the Python package Pillow" in done.stderr


def post(machine: Machine, path: str, document: Any, token: str | None = None) -> int:
    """A request as an agent makes it by itself."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token or machine.document['token']}", "X-Caller": "agent"}
    request = urllib.request.Request(machine.record()["url"] + path, json.dumps(document).encode(), headers)
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_the_guest_s_log_names_foreign_control_calls(desk: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYMCTL_STATE_DIR", str(desk.cli.state))
    with session.opened(desk.name) as (instance, client):
        assert isinstance(client, Desk)
        session.reset(instance, client)
        mark = max(row["n"] for row in desktop.log(client, instance.session))
        assert post(desk, "/reset", {}, token="x" * 32) == 401
        assert post(desk, "/input", {"mouse": {"move": [3, 3]}}) == 200
        for _ in range(3):
            assert post(desk, "/reset", {}) == 200
        assert post(desk, "/api/setup/execute", {"command": ["true"]}) == 200
        session.step(instance, client, desktop.parse(["activate", "tint2"]))
        rows = [row for row in desktop.log(client, instance.session) if row["n"] > mark and row.get("call")]
    assert [(row["call"], row["caller"]) for row in rows] == [("reset", "agent")] * 3 + [("setup", "agent")]


def test_tampering_is_no_verdict(tmp_path: Path, request: pytest.FixtureRequest, cli: Cli) -> None:
    check_host()
    task = tmp_path / "claim.yaml"
    task.write_text("id: claim\nprompt: Nothing.\nclaims: [It is so.]\ntimeout: 30\n")
    agent = tmp_path / "agent.py"
    agent.write_text(
        "import json, os, urllib.request as u, sys\n"
        "json.loads(input())\n"
        "headers = {'Authorization': 'Bearer ' + os.environ['GYMCTL_TOKEN']}\n"
        "for path in sys.argv[1:]:\n"
        "    u.urlopen(u.Request(os.environ['GYMCTL_URL'] + path, b'{}', headers))\n"
        "print(json.dumps({'type': 'done'}))\n"
    )
    words = ["run", "linux-desktop", "--runner", "local", "--task", str(task), "--rm", "--json", "--agent"]
    for paths, reason in (("/screen_size", "pending"), ("/reset", "tampering")):
        found = cli(*words, f"{sys.executable} {agent} {paths}", code=11).json
        assert found["reason"]["type"] == reason, found
    assert "/reset by" in found["reason"]["message"]


# Troubles


def test_a_guest_that_hangs_says_what_still_answers(local_desk: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYMCTL_STATE_DIR", str(local_desk.cli.state))
    pid = _process(local_desk, "-m _guest")
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(Unavailable) as caught, session.opened(local_desk.name) as (_, client):
            client.send("GET", "/health", timeout=1)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert "did not answer /health within 1 s" in caught.value.message
    assert "it runs; VNC greets at 127.0.0.1:" in caught.value.hint
    assert f"gymctl reset {local_desk.name}" in caught.value.hint


def _process(machine: Machine, words: str) -> int:
    """The pid of a process of the instance, by a part of its command line."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            ours = f"GYMCTL_LABEL={machine.cli.label()}/{machine.name}".encode() in (entry / "environ").read_bytes().split(b"\0")
            if ours and words in (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode():
                return int(entry.name)
        except OSError:
            continue
    raise AssertionError(f"no process {words!r} of {machine.name}")


def test_a_wrong_secret_and_a_dead_desktop_are_two_troubles(request: pytest.FixtureRequest, cli: Cli) -> None:
    ill = start(cli, "local", request, name="ill")
    record = ill.record()
    (ill.folder / "instance.json").write_text(json.dumps({**record, "secrets": {**record["secrets"], "GUEST_TOKEN": "x" * 32}}))
    error = ill.step("windows", code=9)
    assert "wrong secret" in error["message"]
    assert "gymctl reset ill" in error["hint"]
    (ill.folder / "instance.json").write_text(json.dumps(record))
    os.kill(_process(ill, "Xvnc"), signal.SIGKILL)
    _until(lambda: cli("ps", "--json").json[0]["status"] == "exited", "it runs without its X server")
    error = ill.step("windows", code=5)
    assert "no longer running" in error["message"]
    assert "gymctl logs ill" in error["hint"]
    cli("stop", "ill")
    assert cli.leftovers() == []


# The public client


def test_osworld_s_controller_unchanged(tmp_path: Path, request: pytest.FixtureRequest, cli: Cli, runner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there = tmp_path / "there"
    _install(there, "--no-deps", "desktop-env")
    more = []
    if runner == "local":  # the image has it
        _install(tmp_path / "autogui", "pyautogui")
        more = ["-e", f"PYTHONPATH={tmp_path / 'autogui'}"]
    machine = start(cli, runner, request, *more)
    monkeypatch.syspath_prepend(str(there))
    try:
        made = importlib.import_module("desktop_env.controllers.python").PythonController
        controller = made(f"gym:{machine.document['token']}@127.0.0.1", int(machine.document["url"].rpartition(":")[2]))
        controller.retry_interval = 0
        assert controller.get_screenshot().startswith(b"\x89PNG")
        assert "<desktop-frame" in controller.get_accessibility_tree()
        assert controller.get_vm_screen_size() == {"width": 1280, "height": 720}
        assert controller.get_vm_platform().strip() == "Linux"
        assert controller.execute_python_command("pyautogui.moveTo(321, 123); print('moved')")["output"] == "moved\n"
        assert machine.step("exec", "true")["exit"] == 0
        with urllib.request.urlopen(_asked(machine, "/cursor_position")) as answer:
            assert json.load(answer) == [321, 123]
        machine.step("exec", "printf hello > ~/greeting")
        assert controller.get_file(f"{machine.home()}/greeting") == b"hello"
        assert controller.get_file("/nowhere") is None
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "desktop_env"]:
            del sys.modules[name]


def _asked(machine: Machine, path: str) -> urllib.request.Request:
    return urllib.request.Request(machine.document["url"] + path, headers={"Authorization": f"Bearer {machine.document['token']}"})


@pytest.fixture(params=["local", "docker"])
def runner(request: pytest.FixtureRequest) -> str:
    """Each runner."""
    return str(request.param)


def _install(target: Path, *words: str) -> None:
    argv = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", str(target), *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        lacking("desktop-env", f"pip cannot install {words[-1]}: {done.stderr.strip().splitlines()[-1]}")
