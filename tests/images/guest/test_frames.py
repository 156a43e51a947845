"""Frames: pixels, cursor, sequence, and what they say of themselves."""

from __future__ import annotations

import io
import time

import pytest

from tests.images.guest.desk import Desk

WIDTH, HEIGHT = 1280, 720


@pytest.fixture
def gray(desk: Desk) -> Desk:
    """Nothing moves: the pointer lies in a corner."""
    desk.act({"mouse": {"move": [1, 1]}})
    desk.get("/frame?stable=0.3&timeout=5&format=jpeg")
    return desk


def pixel(frame: bytes, x: int, y: int) -> tuple[int, ...]:
    """B, G, R of a raw frame."""
    at = (y * WIDTH + x) * 4
    return tuple(frame[at : at + 3])


def test_raw_and_png_are_the_same_pixels(gray: Desk) -> None:
    image = pytest.importorskip("PIL.Image")
    raw, png = gray.get("/frame"), gray.get("/screenshot")
    if raw.headers["x-frame-sequence"] != png.headers["x-frame-sequence"]:  # the panel's clock has moved on
        raw, png = gray.get("/frame"), gray.get("/screenshot")
    assert len(raw.content) == WIDTH * HEIGHT * 4
    assert raw.headers["x-frame-sequence"] == png.headers["x-frame-sequence"]
    shown = image.open(io.BytesIO(png.content))
    assert shown.size == (WIDTH, HEIGHT)
    assert shown.tobytes() == image.frombytes("RGB", (WIDTH, HEIGHT), raw.content, "raw", "BGRX").tobytes()


def test_the_cursor_is_drawn_where_the_pointer_is(desk: Desk) -> None:
    desk.terminal("cursor", "sleep 100")
    desk.act({"mouse": {"move": [700, 600]}})
    away = desk.get("/frame").content
    desk.act({"mouse": {"move": [800, 620]}})
    here = desk.get("/frame").content
    changed = {(x, y) for y in range(560, 680) for x in range(660, 860) if pixel(away, x, y) != pixel(here, x, y)}
    assert any(690 <= x <= 720 and 590 <= y <= 625 for x, y in changed)
    assert any(790 <= x <= 820 and 610 <= y <= 645 for x, y in changed)
    assert all(690 <= x <= 730 or 785 <= x <= 830 for x, y in changed)
    assert desk.get("/cursor_position").json == [800, 620]


@pytest.mark.parametrize("corner", [(0, 0), (WIDTH - 1, 0), (0, HEIGHT - 1), (WIDTH - 1, HEIGHT - 1)])
def test_a_cursor_at_the_edge_is_cut_off(desk: Desk, corner: tuple[int, int]) -> None:
    desk.act({"mouse": {"move": list(corner)}})
    assert desk.get("/frame").status == 200


def test_unchanged_costs_nothing(gray: Desk) -> None:
    first = gray.get("/frame")
    again = gray.get("/frame", If_None_Match=first.headers["etag"])
    assert (again.status, again.content) == (304, b"")
    assert gray.get("/frame?format=jpeg", If_None_Match=first.headers["etag"]).status == 200
    gray.act({"mouse": {"move": [5, 5]}})
    moved = gray.get("/frame", If_None_Match=first.headers["etag"])
    assert moved.status == 200
    assert int(moved.headers["x-frame-sequence"]) > int(first.headers["x-frame-sequence"])
    assert abs(float(moved.headers["x-frame-time"]) - time.time()) < 5


def test_waiting_for_a_newer_frame(gray: Desk) -> None:
    first = gray.get("/frame")
    started = time.monotonic()
    stale = gray.get(f"/frame?after={first.headers['x-frame-sequence']}&timeout=0.4")
    assert time.monotonic() - started >= 0.4
    assert "stale" in stale.headers["x-frame-notes"]
    gray.post("/setup/launch", {"command": "sleep 0.5; xterm -geometry 20x4+900+500 -e sleep 3", "shell": True})
    newer = gray.get(f"/frame?after={stale.headers['x-frame-sequence']}&timeout=20")
    assert "x-frame-notes" not in newer.headers
    assert newer.content != first.content
    gray.until(lambda: not any(w["instance"] == "xterm" for w in gray.windows()))


def test_less_than_was_asked_for_is_said(gray: Desk) -> None:
    assert "x-frame-notes" not in gray.get("/frame?format=png").headers
    assert "lossy" in gray.get("/frame?format=jpeg&quality=50").headers["x-frame-notes"]
    smaller = gray.get("/frame?format=png&width=1920&height=1080").headers
    assert "smaller than asked" in smaller["x-frame-notes"]
    assert (smaller["x-frame-width"], smaller["x-frame-height"]) == ("1280", "720")
    half = gray.get("/frame?width=640&height=360")
    assert len(half.content) == 640 * 360 * 4
    assert "reduced" in half.headers["x-frame-notes"]
    for wrong in ("format=gif", "quality=0", "width=100", "width=a&height=2", "after=x", "timeout=-1", "timeout=nan"):
        assert gray.get(f"/frame?{wrong}").status == 400, wrong


def test_a_sleeping_screen_is_news_to_who_has_the_same_picture(gray: Desk) -> None:
    tag = gray.get("/frame").headers["etag"]
    assert gray.get("/frame", If_None_Match=tag).status == 304
    gray.run("xset", "s", "activate")
    gray.sleep(0.2)
    woken = gray.get("/frame", If_None_Match=tag)
    assert (woken.status, woken.headers["x-frame-state"]) == (200, "woken")
    gray.sleep(0.2)
    tag = gray.get("/frame", If_None_Match=woken.headers["etag"]).headers["etag"]
    assert gray.get("/frame", If_None_Match=tag).status == 304


def test_a_sleeping_screen_is_woken_once_and_says_so(gray: Desk) -> None:
    gray.run("xset", "s", "activate")
    gray.sleep(0.2)
    assert gray.get("/frame").headers["x-frame-state"] == "woken"
    gray.sleep(0.2)
    assert gray.get("/frame").headers["x-frame-state"] == "ok"


def test_a_screen_of_one_color_says_so(desk: Desk) -> None:
    cover = "import tkinter as t; r=t.Tk(className='cover'); r.configure(background='#204060', cursor='none'); r.attributes('-fullscreen', True); r.mainloop()"
    if desk.run("/usr/bin/python3", "-c", "import tkinter")["returncode"]:
        pytest.skip("no python3-tk")
    desk.open("cover", "/usr/bin/python3", "-c", cover)
    desk.act({"mouse": {"move": [640, 360]}})
    seen = desk.until(lambda: (h := desk.get("/frame").headers)["x-frame-state"] == "one-color" and h)
    assert "one color" in seen["x-frame-notes"]
    desk.close_programs()
    desk.until(lambda: desk.get("/frame").headers["x-frame-state"] == "ok")


def test_an_output_without_a_mode_says_so(desk: Desk) -> None:
    output = next(line.split()[0] for line in desk.run("xrandr")["output"].splitlines() if " connected" in line)
    desk.run("xrandr", "--output", output, "--off")
    try:
        seen = desk.until(lambda: (h := desk.get("/frame?format=jpeg").headers)["x-frame-state"] == "unmoded" and h)
        assert "no output shows a mode" in seen["x-frame-notes"]
        assert desk.get("/health").status == 503
    finally:
        desk.run("xrandr", "--output", output, "--mode", "1280x720")
    desk.until(lambda: desk.get("/health").status == 200)


def test_a_new_resolution_is_followed(desk: Desk) -> None:
    modes = desk.run("xrandr")["output"]
    assert "1024x768" in modes
    desk.run("xrandr", "-s", "1024x768")
    try:
        desk.until(lambda: desk.post("/screen_size").json == {"width": 1024, "height": 768})
        answer = desk.until(lambda: (a := desk.get("/frame")).status == 200 and a)
        assert len(answer.content) == 1024 * 768 * 4
        assert desk.post("/input", {"mouse": {"move": [1100, 10]}}).status == 400
    finally:
        desk.run("xrandr", "-s", "1280x720")
    desk.until(lambda: len(desk.get("/frame").content) == WIDTH * HEIGHT * 4)


def test_what_is_painted_right_after_an_action_began_is_not_lost(desk: Desk) -> None:
    line = "echo; for i in $(seq 200); do echo $i; sleep 0.02; done; sleep 100"
    answer = desk.post("/setup/launch", {"command": ["xterm", "-T", "busy", "-e", "sh", "-c", line]})
    desk.launched.append(int(answer.headers["x-pid"]))
    desk.until(lambda: any(window["title"] == "busy" for window in desk.windows()))
    desk.sleep(0.5)
    desk.act({"action": "wait", "seconds": 0})  # it begins while something is being painted, and that goes on for a while
    desk.sleep(7)
    assert "stale" not in desk.get("/frame?since=action&timeout=0.5&format=jpeg").headers.get("x-frame-notes", "")
