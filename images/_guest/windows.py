"""The windows that the window manager knows: listed, activated, closed, and asked whether they have read what they were sent."""

from __future__ import annotations

import threading
import time
from ctypes import byref, c_int, c_ulong
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .x11 import CLIENT_MESSAGE, SUBSTRUCTURE_NOTIFY, X11, Connection

SOURCE_PAGER = 2
REST_SECONDS = 0.03


@dataclass(frozen=True)
class Window:
    """A window: its place is where its contents begin on the screen."""

    id: int
    title: str
    class_name: str
    instance: str
    pid: int | None
    x: int
    y: int
    width: int
    height: int
    active: bool
    minimized: bool

    def document(self) -> dict[str, Any]:
        """As JSON has it: `class` for the class's name."""
        fields = asdict(self)
        fields["class"] = fields.pop("class_name")
        return fields


class Windows:
    """Speaks to the window manager by the EWMH."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def manager(self) -> str | None:
        """The window manager's name; None when none runs."""
        with self.connection.held():
            check = self._number(self.connection.root, "_NET_SUPPORTING_WM_CHECK")
            if not check or self._number(check, "_NET_SUPPORTING_WM_CHECK") != check:
                self.connection.sync()
                return None
            return self._text(check, "_NET_WM_NAME") or "unknown"

    def all(self) -> list[Window]:
        """Every window, the lowest first."""
        with self.connection.held():
            root = self.connection.root
            active = self._number(root, "_NET_ACTIVE_WINDOW")
            ids = self.connection.property(root, "_NET_CLIENT_LIST_STACKING") or self.connection.property(root, "_NET_CLIENT_LIST") or []
            found = [self._window(number, active) for number in ids if isinstance(number, int)]
            self.connection.sync()  # the errors of windows that went meanwhile
            return [window for window in found if window]

    def _window(self, id: int, active: int) -> Window | None:
        x, y, child = c_int(), c_int(), c_ulong()
        try:
            width, height = self.connection.geometry(id)[2:]
        except LookupError:
            return None
        if self.connection.property(id, "WM_STATE") is None:
            return None  # a new window under the number of one that has gone, which a busy window manager has not noticed yet
        X11.XTranslateCoordinates(self.connection.display, id, self.connection.root, 0, 0, byref(x), byref(y), byref(child))
        instance, class_name, *_ = [*self._text(id, "WM_CLASS").split("\0"), "", ""]
        title = self._text(id, "_NET_WM_NAME") or self._text(id, "WM_NAME")
        states = self.connection.property(id, "_NET_WM_STATE") or []
        minimized = self.connection.atom("_NET_WM_STATE_HIDDEN") in states
        pid = self._number(id, "_NET_WM_PID") or None
        return Window(id, title, class_name, instance, pid, x.value, y.value, width, height, id == active, minimized)

    def _number(self, window: int, name: str) -> int:
        value = self.connection.property(window, name)
        return value[0] if isinstance(value, list) and value else 0

    def _text(self, window: int, name: str) -> str:
        value = self.connection.property(window, name)
        return value.decode("utf-8", "replace").rstrip("\0") if isinstance(value, bytes) else ""

    def find(self, name: str, strict: bool = False, by_class: bool = False) -> Window | None:
        """The topmost window whose title (or `instance.Class`) holds a name, not minding case; `strict`: is the name."""
        for window in reversed(self.all()):
            label = f"{window.instance}.{window.class_name}" if by_class else window.title
            if label == name if strict else name.lower() in label.lower():
                return window
        return None

    def activate(self, window: Window) -> None:
        """Bring a window to the front and give it the keyboard."""
        with self.connection.held():
            self.connection.send_to_root(window.id, "_NET_ACTIVE_WINDOW", SOURCE_PAGER)
            self.connection.sync()

    def shut(self, window: Window) -> None:
        """Ask a window to close, as its title bar's button does."""
        with self.connection.held():
            self.connection.send_to_root(window.id, "_NET_CLOSE_WINDOW", 0, SOURCE_PAGER)
            self.connection.sync()

    def close(self) -> None:
        """Leave the X server."""
        self.connection.close()

    def read_up(self, seconds: float) -> bool:
        """Wait until the active window's program has read all events sent before: it answers a ping, or (knowing none) has come to rest."""
        until = time.monotonic() + seconds
        with self.connection.held() as display:
            window = self._number(self.connection.root, "_NET_ACTIVE_WINDOW")
            ping = self.connection.atom("_NET_WM_PING")
            if not window or ping not in (self.connection.property(window, "WM_PROTOCOLS") or []):
                return _at_rest(self._number(window, "_NET_WM_PID") if window else 0, until)
            X11.XSelectInput(display, self.connection.root, SUBSTRUCTURE_NOTIFY)
            stamp = int(time.monotonic() * 1000) & 0x7FFFFFFF
            self._ping(window, ping, stamp)
            try:
                return self._pong(ping, stamp, until)
            finally:
                X11.XSelectInput(display, self.connection.root, 0)

    def _ping(self, window: int, ping: int, stamp: int) -> None:
        event = (c_ulong * 24)()
        event[0], event[4], event[5], event[6] = CLIENT_MESSAGE, window, self.connection.atom("WM_PROTOCOLS"), 32
        event[7], event[8], event[9] = ping, stamp, window
        X11.XSendEvent(self.connection.display, window, 0, 0, byref(event))
        X11.XFlush(self.connection.display)

    def _pong(self, ping: int, stamp: int, until: float) -> bool:
        while time.monotonic() < until:
            for event in self.connection.events():
                if event[0] & 0xFFFFFFFF == CLIENT_MESSAGE and event[7] == ping and event[8] == stamp:
                    return True
            if not self.connection.wait(until - time.monotonic()):
                return False
        return False


def _at_rest(pid: int, until: float) -> bool:
    """Wait until a program sleeps and has used no processor for a moment; a program of unknown pid is given that moment."""
    rested = threading.Event()
    before = ""
    while time.monotonic() < until:
        now = _use(pid)
        if now and now == before:
            return True
        before = now
        rested.wait(REST_SECONDS)  # nothing tells of another program's rest: it has to be looked at twice
        if not pid:
            return False
    return False


def _use(pid: int) -> str:
    """The processor time of a sleeping program; nothing for one that runs (or has gone)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return Path(f"/proc/{pid}/schedstat").read_text() if state == "S" else ""
    except OSError:
        return ""
