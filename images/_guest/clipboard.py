"""The clipboard as text: read from whoever owns it, and owned by this server once it was set."""

from __future__ import annotations

import threading
import time
from ctypes import byref, c_char_p, c_long, c_ulong, c_void_p, cast
from typing import Any

from .faults import Fault, bad
from .x11 import EVENT_LONGS, PROPERTY_CHANGE, PROPERTY_NOTIFY, SELECTION_CLEAR, SELECTION_NOTIFY, SELECTION_REQUEST, X11, Connection

ANSWER_SECONDS = 3.0
TURN_SECONDS = 0.25
LARGEST = 8 << 20
TEXTS = ("UTF8_STRING", "text/plain;charset=utf-8", "STRING", "TEXT", "text/plain")
CURRENT_TIME = 0


class Clipboard:
    """CLIPBOARD over a connection of its own; a thread serves the programs that paste."""

    def __init__(self, name: str) -> None:
        self.connection = Connection(name)
        self._text: bytes | None = None
        self._asking = threading.Lock()
        self._answers: list[tuple[int, int]] = []
        self._new_value = 0
        self._heard = threading.Condition()
        with self.connection.held() as display:
            self._window = X11.XCreateSimpleWindow(display, self.connection.root, -1, -1, 1, 1, 0, 0, 0)
            X11.XSelectInput(display, self._window, PROPERTY_CHANGE)
            self.connection.sync()
        threading.Thread(target=self._serve, daemon=True).start()

    def set(self, text: object) -> None:
        """Own the clipboard with a text."""
        if not isinstance(text, str):
            raise bad(f"text {text!r} is no text")
        content = text.encode()
        with self.connection.held() as display:
            room = (X11.XExtendedMaxRequestSize(display) or X11.XMaxRequestSize(display)) * 4 - 256
            if len(content) > min(LARGEST, room):
                raise Fault(413, "TooLarge", f"{len(content)} bytes are too many for the clipboard", f"at most {min(LARGEST, room)}; put a file instead")
            self._text = content
            X11.XSetSelectionOwner(display, self.connection.atom("CLIPBOARD"), self._window, CURRENT_TIME)
            self.connection.sync()
            if X11.XGetSelectionOwner(display, self.connection.atom("CLIPBOARD")) != self._window:
                raise Fault(500, "NotOwned", "the X server did not give the clipboard away")

    def get(self, selection: str = "CLIPBOARD") -> str:
        """The text in the clipboard, empty when it holds none; 504 when its owner does not answer."""
        with self._asking:
            with self.connection.held() as display:
                owner = X11.XGetSelectionOwner(display, self.connection.atom(selection))
                if not owner:
                    return ""
                if owner == self._window:
                    return (self._text or b"").decode("utf-8", "replace")
            for target in ("UTF8_STRING", "STRING"):
                content = self._convert(selection, target)
                if content is not None:
                    return content.decode("utf-8" if target == "UTF8_STRING" else "latin-1", "replace")
            return ""

    def _convert(self, selection: str, target: str) -> bytes | None:
        """Ask the owner for the text in one form; None when it has none in it."""
        with self._heard:
            self._answers.clear()
        with self.connection.held() as display:
            asked, form, place = (self.connection.atom(name) for name in (selection, target, "_GUEST_PASTE"))
            X11.XConvertSelection(display, asked, form, place, self._window, CURRENT_TIME)
            X11.XFlush(display)
        with self._heard:
            if not self._heard.wait_for(lambda: bool(self._answers), ANSWER_SECONDS):
                raise Fault(504, "NoAnswer", "the program that owns the clipboard does not answer", "is it hung? GET /windows, GET /screenshot")
            _, given = self._answers[0]
            before = self._new_value
        if not given:
            return None
        value = self._taken()
        return self._in_pieces(before) if isinstance(value, list) else value

    def _taken(self) -> bytes | list[int] | None:
        with self.connection.held() as display:
            value = self.connection.property(self._window, "_GUEST_PASTE", LARGEST)
            X11.XDeleteProperty(display, self._window, self.connection.atom("_GUEST_PASTE"))
            X11.XFlush(display)
            return value

    def _in_pieces(self, seen: int) -> bytes:
        """The pieces of a large text (INCR): each is taken, which asks for the next; an empty one is the end."""
        whole = b""
        until = time.monotonic() + ANSWER_SECONDS
        while True:
            with self._heard:
                if not self._heard.wait_for(lambda before=seen: self._new_value > before, until - time.monotonic()):  # type: ignore[misc]  # bound now
                    raise Fault(504, "NoAnswer", "the program that owns the clipboard stopped in the middle of its text")
                seen = self._new_value
            piece = self._taken()
            if not isinstance(piece, bytes) or not piece:
                return whole
            whole += piece
            until = time.monotonic() + ANSWER_SECONDS
            if len(whole) > LARGEST:
                raise Fault(413, "TooLarge", f"the clipboard holds more than {LARGEST} bytes")

    def _serve(self) -> None:
        """Answer programs that paste, and pass on what concerns our own asking."""
        while not self.connection.dead:
            self.connection.wait(TURN_SECONDS)
            if self.connection.dead:
                return
            try:
                with self.connection.held():
                    for event in self.connection.events():
                        self._event(event)
                    X11.XFlush(self.connection.display)
            except Fault:
                return  # the X server has gone, and this clipboard with it

    def _event(self, event: Any) -> None:
        kind = event[0] & 0xFFFFFFFF
        if kind == SELECTION_REQUEST:
            self._hand_out(event)
        elif kind == SELECTION_CLEAR and event[5] & 0xFFFFFFFFFFFFFFFF == self.connection.atom("CLIPBOARD"):
            self._text = None
        elif kind == SELECTION_NOTIFY:
            with self._heard:
                self._answers.append((event[5], event[7]))
                self._heard.notify_all()
        elif kind == PROPERTY_NOTIFY and event[5] == self.connection.atom("_GUEST_PASTE") and event[7] & 0xFFFFFFFF == 0:
            with self._heard:
                self._new_value += 1
                self._heard.notify_all()

    def _hand_out(self, event: Any) -> None:
        """A SelectionRequest: owner [4], requestor [5], selection [6], target [7], property [8], time [9]."""
        requestor, selection, target, place, when = event[5], event[6], event[7], event[8] or event[7], event[9]
        if target == self.connection.atom("TARGETS"):
            targets = [self.connection.atom(name) for name in ("TARGETS", *TEXTS)]
            values = (c_ulong * len(targets))(*targets)
            X11.XChangeProperty(self.connection.display, requestor, place, self.connection.atom("ATOM"), 32, 0, byref(values), len(targets))
        elif target in [self.connection.atom(name) for name in TEXTS] and self._text is not None:
            content = c_char_p(self._text)
            X11.XChangeProperty(self.connection.display, requestor, place, target, 8, 0, cast(content, c_void_p), len(self._text))
        else:
            place = 0
        answer = (c_long * EVENT_LONGS)()
        answer[0], answer[4], answer[5], answer[6], answer[7], answer[8] = SELECTION_NOTIFY, requestor, selection, target, place, when
        X11.XSendEvent(self.connection.display, requestor, 0, 0, byref(answer))

    def close(self) -> None:
        """Give the clipboard up, and leave the X server."""
        self.connection.close()
