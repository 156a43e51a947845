"""Hands: what is typed and clicked arrives, exactly; nothing stays pressed."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.images.guest.desk import Desk

ASCII = "".join(map(chr, range(32, 127)))
LAYOUTS = [("us",), ("de",), ("fr",), ("de", "nodeadkeys"), ("us", "intl")]


def typed(desk: Desk, folder: Path, text: str) -> tuple[str, list[dict[str, Any]]]:
    """A text typed into `cat > file` in a terminal: what the file holds, and what could not be typed."""
    desk.terminal("typing", f"stty -ixon; cat > {folder}/typed; touch {folder}/closed")
    untyped = desk.act({"keyboard": {"text": text}})["untyped"]
    desk.act({"keyboard": {"keys": "ctrl+d"}})
    desk.until((folder / "closed").exists)
    return (folder / "typed").read_text(), untyped


@pytest.mark.parametrize("layout", LAYOUTS, ids="-".join)
def test_all_of_ascii_on_each_layout(desk: Desk, tmp_path: Path, layout: tuple[str, ...]) -> None:
    desk.run("setxkbmap", *layout)
    text = f"{ASCII}\n{ASCII[::-1]}\n"
    assert typed(desk, tmp_path, text) == (text, [])


@pytest.mark.parametrize("layout", [("us",), ("de",), ("fr",)], ids="-".join)
def test_other_scripts(desk: Desk, tmp_path: Path, layout: tuple[str, ...]) -> None:
    desk.run("setxkbmap", *layout)
    text = "äöüß éèêëñÀÊ €µ Привет, мир — żółw ŵ ∀x∈ℝ 日本語"  # noqa: RUF001  # the look-alikes are the point
    editor(desk, tmp_path)
    assert desk.act({"keyboard": {"text": text}})["untyped"] == []
    assert saved(desk, tmp_path) == text


def test_more_characters_than_spare_keys_into_an_editor(desk: Desk, tmp_path: Path) -> None:
    text = "".join(chr(0x4E00 + 37 * n) for n in range(120))
    editor(desk, tmp_path)
    assert desk.act({"keyboard": {"text": text}})["untyped"] == []
    assert saved(desk, tmp_path) == text


def test_two_thousand_characters_into_an_editor(desk: Desk, tmp_path: Path) -> None:
    generator = random.Random(7)
    text = "\n".join("".join(generator.choice(ASCII) for _ in range(39)) for _ in range(50))
    editor(desk, tmp_path)
    desk.act({"keyboard": {"text": text}})
    assert saved(desk, tmp_path) == text


def test_what_cannot_be_typed_is_listed(desk: Desk, tmp_path: Path) -> None:
    text, untyped = typed(desk, tmp_path, "a\x07b\x1bc\ud800d\n")
    assert text == "abcd\n"
    assert [(u["index"], u["code"]) for u in untyped] == [(1, "U+0007"), (3, "U+001B"), (5, "U+D800")]
    assert all(u["reason"] for u in untyped)


def editor(desk: Desk, folder: Path) -> dict[str, Any]:
    """Mousepad with an empty file, and the keyboard in it."""
    (folder / "note.txt").write_text("")
    window = desk.open("note.txt", "mousepad", "--disable-server", str(folder / "note.txt"))
    desk.act({"mouse": {"left_click": [window["x"] + 200, window["y"] + 200]}})
    return window


def saved(desk: Desk, folder: Path) -> str:
    """What Ctrl+S has written, once the editor knows that there is something to save."""
    desk.until(lambda: any(w["title"].startswith("*") for w in desk.windows()))
    desk.get("/frame?format=jpeg&stable=0.2&timeout=10")
    desk.act({"keyboard": {"keys": "ctrl+s"}})
    desk.until(lambda: not any(w["title"].startswith("*") for w in desk.windows()) and (folder / "note.txt").read_text())
    return (folder / "note.txt").read_text().removesuffix("\n")


def test_selecting_with_the_mouse(desk: Desk, tmp_path: Path) -> None:
    window = editor(desk, tmp_path)
    desk.act({"keyboard": {"text": "alpha beta gamma\nsecond line"}})
    at = first_line(desk)
    desk.act({"mouse": {"left_click": [window["x"] + 300, window["y"] + 300]}})  # the editor hides the pointer while one types
    desk.get("/frame?format=jpeg&stable=0.6&timeout=5")
    copied(desk, {"double_click": at}, "alpha")
    copied(desk, {"triple_click": at}, "alpha beta gamma\n")
    copied(desk, {"left_click_drag": [[at[0] - 10, at[1]], [window["x"] + window["width"] - 20, at[1]]]}, "alpha beta gamma")


def copied(desk: Desk, selecting: dict[str, Any], text: str) -> None:
    """Select with the mouse and copy, until the editor has noticed that there is something to copy."""
    desk.act({"mouse": selecting})
    desk.get("/frame?format=jpeg&stable=0.6&timeout=5")  # longer than the time between the clicks of a double one
    desk.until(lambda: desk.act({"keyboard": {"keys": ["ctrl", "c"]}}) and desk.get("/clipboard").json["text"] in (text, text.rstrip("\n")))


def first_line(desk: Desk) -> list[int]:
    """A point in the first word of the text, by accessibility."""
    tree = desk.until(lambda: (t := desk.get("/accessibility").json["AT"]) and "alpha beta" in t and t)
    node = next(n for n in re.findall(r"<text [^>]*>", tree) if "editable" in n)
    x, y = re.search(r'screencoord="\((-?\d+), (-?\d+)\)"', node).groups()  # type: ignore[union-attr]  # a shown node has a place
    return [int(x) + 12, int(y) + 10]


def test_events_that_programs_see(desk: Desk, tmp_path: Path) -> None:
    log = tmp_path / "events"
    desk.post("/setup/launch", {"command": f"exec stdbuf -oL xinput test-xi2 --root > {log}", "shell": True})
    desk.until(lambda: (log.exists() and "RawMotion" in log.read_text()) or not desk.act({"mouse": {"move": [640, 300]}}, {"mouse": {"move": [641, 301]}}))
    before = Counter(re.findall(r"\((Raw\w+)\)", log.read_text()))
    desk.act(
        {"mouse": {"left_click": [10, 300]}}, {"mouse": {"double_click": [10, 300]}}, {"mouse": {"right_click": [10, 400]}}, {"keyboard": {"keys": "escape"}},
        {"mouse": {"scroll": -3}}, {"mouse": {"scroll": 2}},
    )  # fmt: skip
    wanted = {"RawButtonPress": 9, "RawButtonRelease": 9, "RawKeyPress": 1, "RawKeyRelease": 1}

    def seen() -> dict[str, int]:
        now = Counter(re.findall(r"\((Raw\w+)\)", log.read_text()))
        return {name: now[name] - before[name] for name in wanted}

    desk.until(lambda: seen() == wanted)
    desk.run("pkill", "-x", "xinput")


@pytest.mark.parametrize(
    ("action", "word"),
    [
        ({"mouse": {"left_click": [1280, 10]}}, "outside the screen"), ({"mouse": {"left_click": [-1, 10]}}, "outside the screen"),
        ({"mouse": {"left_click": [10]}}, "no point"), ({"mouse": {"left_click": [True, 1]}}, "no point"), ({"mouse": {"leftclick": [1, 1]}}, "left_click"),
        ({"mouse": {"left_click_drag": [[1, 1], [1, 720]]}}, "outside"), ({"mouse": {"scroll": 1.5}}, "scroll"),
        ({"mouse": {"buttons": {"left": 1}}}, "button"),
        ({"keyboard": {"keys": "ctrl+entr"}}, "'enter'"), ({"keyboard": {"keys": []}}, "chord"), ({"keyboard": {"text": 5}}, "no text"),
        ({"action": "wait", "seconds": -1}, "wait"), ({"action": "screenshot"}, "frames come from"), ({}, "no action"), (5, "no action"),
        ({"mouse": {"move": [1, 1]}, "voice": 1}, "voice"),
    ],
)  # fmt: skip
def test_what_is_refused_is_refused_before_anything_is_done(desk: Desk, action: Any, word: str) -> None:
    desk.act({"mouse": {"move": [33, 44]}})
    answer = desk.post("/input", [{"mouse": {"move": [55, 66]}}, action])
    assert answer.status == 400
    assert word in answer.content.decode()
    assert desk.get("/cursor_position").json == [33, 44]


def pressed(desk: Desk) -> bool:
    """Whether xinput sees any key or button down."""
    devices = [line for line in desk.run("xinput", "list", "--short")["output"].splitlines() if "XTEST" in line]
    ids = [re.search(r"id=(\d+)", line)[1] for line in devices]  # type: ignore[index]  # each line has one
    return any("=down" in desk.run("xinput", "query-state", number)["output"] for number in ids)


def test_nothing_stays_pressed(desk: Desk) -> None:
    held = desk.act({"keyboard": {"keys_down": ["ctrl", "shift"]}}, {"mouse": {"buttons": {"left_down": True}}})["held"]
    assert held == ["ctrl", "shift", "left button"]
    assert pressed(desk)
    assert desk.act({"keyboard": {"keys_up": ["shift"]}})["held"] == ["ctrl", "left button"]
    assert desk.post("/input", {"keyboard": {"keys": "nonsense"}}).status == 400  # an error lets go
    assert not pressed(desk)
    desk.act({"keyboard": {"keys_down": ["alt"]}}, {"mouse": {"buttons": {"right_down": True}}})
    assert desk.post("/reset").json["released"] == [] or not pressed(desk)
    assert not pressed(desk)
    desk.act({"keyboard": {"text": "Ab^é"}}, {"mouse": {"left_click_drag": [[5, 300], [50, 350]]}}, {"keyboard": {"keys": "ctrl+shift+F9"}})
    assert not pressed(desk)


def test_capitals_are_the_same_with_caps_lock(desk: Desk, tmp_path: Path) -> None:
    desk.act({"keyboard": {"keys": "capslock"}})
    try:
        text = "aBc 1! äÄ öÖ ŵŴ жЖ αΑ\n"  # noqa: RUF001  # the look-alikes are the point
        assert typed(desk, tmp_path, text) == (text, [])
        desk.act({"keyboard": {"keys": "capslock"}})
        desk.terminal("same", f"cat > {tmp_path}/same; touch {tmp_path}/ended")
        desk.act({"keyboard": {"keys": "capslock"}}, {"keyboard": {"text": text}}, {"keyboard": {"keys": "ctrl+d"}})
        desk.until((tmp_path / "ended").exists)
        assert (tmp_path / "same").read_text() == text
        assert "Caps Lock:   on" in desk.run("xset", "q")["output"]
    finally:
        desk.act({"keyboard": {"keys": "capslock"}})


def test_the_clipboard_both_ways(desk: Desk, tmp_path: Path) -> None:
    for text in ("", "häl 日本 😀\nline", "x" * 300_000):
        assert desk.post("/clipboard", {"text": text}).status == 200
        assert desk.get("/clipboard").json["text"] == text
    desk.post("/clipboard", {"text": "pasted ∀"})
    editor(desk, tmp_path)
    desk.act({"keyboard": {"keys": "ctrl+v"}})
    assert saved(desk, tmp_path) == "pasted ∀"
    big = "".join(f"line {n} äöü\n" for n in range(60_000))
    desk.post("/clipboard", {"text": big})
    desk.act({"keyboard": {"keys": "ctrl+a"}}, {"keyboard": {"keys": "ctrl+v"}})
    desk.get("/frame?format=jpeg&stable=1&timeout=20")
    desk.act({"keyboard": {"keys": "ctrl+a"}})
    copied(desk, {"scroll": 1}, big)
