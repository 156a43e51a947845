"""Runs inside a desktop: times frames against the bare XShm call, and a click's way over HTTP to an X client. The port and the token come on stdin."""

from __future__ import annotations

import ctypes
import http.client
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "images"))

from _guest.frames import Screen
from _guest.x11 import ALL_PLANES, X11, XEXT, Connection

BUTTON_PRESS, BUTTON_PRESS_MASK, EXPOSURE_MASK = 4, 1 << 2, 1 << 15
ROUNDS = 60


def frames() -> dict[str, list[float]]:
    """Seconds of a changed frame, an unchanged one, and the bare call, in turn."""
    screen = Screen(os.environ["DISPLAY"])
    taken: dict[str, list[float]] = {"frame": [], "same": [], "bare": []}
    with screen.frame():
        pass
    for _ in range(ROUNDS):
        screen._changed = True
        began = time.perf_counter()
        with screen.frame():
            taken["frame"].append(time.perf_counter() - began)
        began = time.perf_counter()
        with screen.frame():
            taken["same"].append(time.perf_counter() - began)
        buffer = next(b for b in screen._buffers if screen._last is None or b is not screen._last.buffer)
        began = time.perf_counter()
        XEXT.XShmGetImage(screen.connection.display, screen.connection.root, buffer.image, 0, 0, ALL_PLANES)
        taken["bare"].append(time.perf_counter() - began)
    screen.close()
    return taken


def clicks(port: int, token: str) -> list[float]:
    """Seconds from before the request of a click to its event at a window."""
    connection = Connection(os.environ["DISPLAY"])
    with connection.held() as display:
        window = X11.XCreateSimpleWindow(display, connection.root, 0, 0, 300, 300, 0, 0, 0x808080)
        X11.XSelectInput(display, window, BUTTON_PRESS_MASK | EXPOSURE_MASK)
        ctypes.CDLL("libX11.so.6").XMapRaised(ctypes.c_void_p(display), ctypes.c_ulong(window))
        connection.sync()
        await_event(connection, 12)  # Expose: it is on the screen
        time.sleep(1)  # where the window manager wants it
        x, y, child = ctypes.c_int(), ctypes.c_int(), ctypes.c_ulong()
        X11.XTranslateCoordinates(display, window, connection.root, 150, 150, ctypes.byref(x), ctypes.byref(y), ctypes.byref(child))
    client = http.client.HTTPConnection("127.0.0.1", port)
    taken = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        client.request("POST", "/input", json.dumps({"mouse": {"left_click": [x.value, y.value]}}), {"Authorization": f"Bearer {token}"})
        await_event(connection, BUTTON_PRESS)
        taken.append(time.perf_counter() - began)
        client.getresponse().read()
    return taken


def await_event(connection: Connection, kind: int) -> None:
    """Wait until an event of a kind has come."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        for event in connection.events():
            if event[0] & 0xFFFFFFFF == kind:
                return
        connection.wait(until - time.monotonic())
    raise SystemExit(f"no event of kind {kind}")


if __name__ == "__main__":
    given = json.load(sys.stdin)
    print(json.dumps({**frames(), "click": clicks(given["port"], given["token"])}))
