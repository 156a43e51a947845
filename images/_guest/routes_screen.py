"""What is seen and done: frames, accessibility, windows, input, clipboard, recording, health."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

from . import VERSION
from .a11y_names import STATE
from .desk import Desk
from .edge import Answer, Request, Routes, document, text
from .faults import Fault, bad
from .frames import Frame
from .multipart import form
from .pictures import Picture, picture, wanted

LONGEST_WAIT = 600.0


def routes(desk: Desk) -> Routes:
    """Method and path to handler."""
    return {
        ("GET", "/health"): lambda r: _health(desk),
        ("GET", "/frame"): lambda r: _frame(desk, r),
        ("HEAD", "/frame"): lambda r: _look(desk, r),
        ("GET", "/screenshot"): lambda r: _screenshot(desk, r),
        ("GET", "/accessibility"): lambda r: _accessibility(desk),
        ("GET", "/terminal"): lambda r: _terminal(desk),
        ("GET", "/windows"): lambda r: document({"windows": [w.document() for w in desk.windows.all()]}),
        ("POST", "/input"): lambda r: document(desk.act(_actions(r.any_json()), r.query.get("hands", "xtest"))),
        ("POST", "/reset"): lambda r: document(desk.reset()),
        ("GET", "/clipboard"): lambda r: document({"text": desk.clipboard.get()}),
        ("POST", "/clipboard"): lambda r: _set_clipboard(desk, r),
        ("GET", "/cursor_position"): lambda r: _cursor_position(desk),
        **{(method, "/screen_size"): lambda r: _screen_size(desk) for method in ("GET", "POST")},
        ("POST", "/window_size"): lambda r: _window_size(desk, r),
        ("POST", "/setup/activate_window"): lambda r: _on_window(desk, r, desk.windows.activate, "Window activated successfully"),
        ("POST", "/setup/close_window"): lambda r: _on_window(desk, r, desk.windows.shut, "Window closed successfully."),
        ("POST", "/start_recording"): lambda r: _start_recording(desk),
        ("POST", "/end_recording"): lambda r: _end_recording(desk),
    }


def _health(desk: Desk) -> Answer:
    good, facts = desk.health()
    why = {} if good else {"detail": "; ".join(facts["reasons"])}
    return document({"status": "ok" if good else "unavailable", **why, "version": VERSION, **facts}, 200 if good else 503)


def _seconds(request: Request, name: str) -> float | None:
    value = request.query.get(name)
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= LONGEST_WAIT:
        raise bad(f"{name}={value!r} is no time", f"seconds, 0 to {LONGEST_WAIT:.0f}")
    return seconds


def _frame(desk: Desk, request: Request) -> Answer:
    """The screen: raw BGRX rows, or png, jpeg. `after=SEQUENCE`, `since=action` and `stable=SECONDS` wait for it, each up to `timeout`."""
    screen, want = desk.screen, wanted(request.query, "raw")
    timeout = _seconds(request, "timeout")
    notes = _waited(desk, request, 5.0 if timeout is None else timeout)
    kind = f"{want.format}-{want.quality}-{'x'.join(map(str, want.size or ()))}"
    with screen.frame() as frame:  # unchanged, no pixel of it is touched
        tag = f'"{screen.epoch}-{frame.sequence}-{frame.state}-{kind}"'  # one that fell asleep looks as it did, and is news
        if request.headers.get("If-None-Match") == tag:
            return Answer(status=304, headers={"ETag": tag})
        made = picture(frame, want)
        headers = _headers(frame, made, [*notes, *_state_notes(frame)])
    return Answer(made.content, made.type, headers={"ETag": tag, **headers})


def _look(desk: Desk, request: Request) -> Answer:
    """What is to be said of a frame, without its picture."""
    timeout = _seconds(request, "timeout")
    notes = _waited(desk, request, 5.0 if timeout is None else timeout)
    with desk.screen.frame() as frame:
        return Answer(headers=_headers(frame, Picture(b"", "", (frame.width, frame.height), []), [*notes, *_state_notes(frame)]))


def _waited(desk: Desk, request: Request, timeout: float) -> list[str]:
    notes = []
    after, stable = request.query.get("after"), _seconds(request, "stable")
    if request.query.get("since") == "action" and not desk.screen.repainted(timeout):
        notes.append(f"stale: nothing has been painted since the last action began, {timeout:g} s ago or more")
    if after is not None:
        if not (after.isascii() and after.isdigit() and len(after) < 19):
            raise bad(f"after={after!r} is no sequence", "the X-Frame-Sequence of a frame before")
        if desk.screen.wait(int(after), timeout) <= int(after):
            notes.append(f"stale: nothing has changed for {timeout:g} s")
    if stable is not None and not desk.screen.settle(stable, timeout):
        notes.append(f"not stable: the screen was never quiet for {stable:g} s within {timeout:g} s")
    return notes


def _state_notes(frame: Frame) -> list[str]:
    words = {
        "one-color": "the whole screen is of one color: nothing painted yet, or a program covers it", "asleep": "the screen is asleep, and could not be woken",
        "woken": "the screen was asleep, and has been woken", "unmoded": "no output shows a mode: the picture is on no monitor",
    }  # fmt: skip
    return [words[frame.state]] if frame.state in words else []


def _headers(frame: Frame, made: Picture, notes: list[str]) -> dict[str, str]:
    notes = [*made.notes, *notes]
    return {
        "X-Frame-Sequence": str(frame.sequence), "X-Frame-Time": f"{frame.time:.6f}", "X-Frame-Age": f"{max(0.0, time.time() - frame.time):.3f}",
        "X-Frame-State": frame.state,
        "X-Frame-Width": str(made.size[0]), "X-Frame-Height": str(made.size[1]), "X-Screen-Width": str(frame.width), "X-Screen-Height": str(frame.height),
        **({"X-Frame-Notes": "; ".join(notes)} if notes else {}),
    }  # fmt: skip


def _screenshot(desk: Desk, request: Request) -> Answer:
    with desk.screen.frame() as frame:
        made = picture(frame, wanted(request.query, "png"))
        return Answer(made.content, made.type, headers=_headers(frame, made, _state_notes(frame)))


def _accessibility(desk: Desk) -> Answer:
    tree = desk.accessibility.tree()
    return document({"AT": tree["xml"], "nodes": tree["nodes"], "cut": tree["cut"]})


def _terminal(desk: Desk) -> Answer:
    """The text of the terminal that has the keyboard; null when none has."""
    root = ElementTree.fromstring(desk.accessibility.tree()["xml"])  # noqa: S314  # written by our own worker
    texts = [node.text or "" for node in root.iter("terminal") if node.get(f"{{{STATE}}}focused") == "true"]
    return document({"output": texts[0].rstrip() if len(texts) == 1 else None, "status": "success"})


def _actions(body: Any) -> Any:
    return body["actions"] if isinstance(body, dict) and set(body) == {"actions"} else body


def _set_clipboard(desk: Desk, request: Request) -> Answer:
    desk.clipboard.set(request.json().get("text"))
    return document({"status": "success"})


def _cursor_position(desk: Desk) -> Answer:
    with desk.screen.connection.held():
        return document(desk.screen.connection.pointer()[:2])


def _screen_size(desk: Desk) -> Answer:
    with desk.screen.connection.held():
        width, height = desk.screen.connection.size()
    return document({"width": width, "height": height})


def _window_size(desk: Desk, request: Request) -> Answer:
    name = form(request.headers.get("Content-Type", ""), request.read).fields.get("app_class_name")
    if not name:
        raise bad("app_class_name is required")
    for window in desk.windows.all():
        if name.lower() in (window.class_name.lower(), window.instance.lower()):
            return document({"width": window.width, "height": window.height})
    raise _no_window(desk, name)


def _no_window(desk: Desk, name: str) -> Fault:
    shown = [f"{w.title!r} ({w.instance}.{w.class_name})" for w in desk.windows.all()]
    return Fault(404, "NotFound", f"no window {name!r}", f"there are: {', '.join(shown) or 'none'}")


def _on_window(desk: Desk, request: Request, act: Callable[[Any], None], words: str) -> Answer:
    body = request.json()
    name = body.get("window_name")
    if not isinstance(name, str) or not name:
        raise bad("window_name required")
    window = desk.windows.find(name, bool(body.get("strict")), bool(body.get("by_class")))
    if window is None:
        raise _no_window(desk, name)
    act(window)
    return text(words)


def _start_recording(desk: Desk) -> Answer:
    with desk.screen.connection.held():
        size = desk.screen.connection.size()
    desk.recorder.start(size)
    return document({"status": "success", "message": "Started recording successfully."})


def _end_recording(desk: Desk) -> Answer:
    film = desk.recorder.stop()
    if film is None:
        raise Fault(400, "NotRecording", "No recording in progress to stop.")
    return Answer(type="video/mp4", file=film, headers={"Content-Disposition": 'attachment; filename="recording.mp4"'})
