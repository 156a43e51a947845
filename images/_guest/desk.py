"""The desktop as the routes see it: eyes, hands, windows and clipboard, connected when first needed, and anew when the X server was started anew."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from .a11y import Accessibility
from .actions import Actions
from .clipboard import Clipboard
from .faults import Fault, bad
from .frames import Screen
from .hands import Hands
from .processes import Processes
from .recording import Recorder
from .windows import Windows
from .x11 import Connection


class _Part(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=_Part)


class Desk:
    """One display and what is done on it."""

    def __init__(self, display: str) -> None:
        self.display = display
        self.processes = Processes()
        self.accessibility = Accessibility()
        self.recorder = Recorder(display)
        self._awaited = set(os.environ.get("DESKTOP_CLASSES", "").lower().split())
        self._colorless = "tint2" in self._awaited
        """Nothing has been seen of a panel yet, which is never of one color; its window is there before it is painted."""
        self._parts: dict[str, tuple[Any, Connection]] = {}
        self._lock = threading.RLock()
        number = os.environ.pop("UINPUT_FD", None)
        self._keyboard = int(number) if number else None

    def _part(self, name: str, make: Callable[[], T], connection: Callable[[T], Connection]) -> T:
        with self._lock:
            part, link = self._parts.get(name, (None, None))
            if part is None or link is None or link.dead:
                if part is not None:
                    part.close()
                part = make()
                self._parts[name] = (part, connection(part))
            made: T = part
            return made

    @property
    def screen(self) -> Screen:
        """The eyes."""
        return self._part("screen", lambda: Screen(self.display), lambda s: s.connection)

    @property
    def windows(self) -> Windows:
        """The window manager's windows."""
        return self._part("windows", lambda: Windows(Connection(self.display)), lambda w: w.connection)

    @property
    def hands(self) -> Hands:
        """Mouse and keyboard."""
        return self._part("hands", lambda: Hands(self.display, self.windows), lambda h: h.connection)

    @property
    def clipboard(self) -> Clipboard:
        """The clipboard."""
        return self._part("clipboard", lambda: Clipboard(self.display), lambda c: c.connection)

    @property
    def uinput_hands(self) -> Hands:
        """Mouse, and the keyboard in the kernel; 503 where there is none."""
        fd = self._keyboard
        if fd is None:
            raise Fault(503, "NoKeyboard", "this desktop has no keyboard in the kernel", "it needs /dev/uinput, an Xorg and root: a virtual machine of ours")
        from .hands_uinput import UinputHands  # libXi, which a desktop without such a keyboard need not have

        return self._part("uinput hands", lambda: UinputHands(self.display, self.windows, fd), lambda h: h.connection)

    def act(self, actions: object, hands_name: str = "xtest") -> dict[str, Any]:
        """Do actions with the hands of that name (xtest, uinput); what was done, what could not be typed, what is still held."""
        if hands_name not in ("xtest", "uinput"):
            raise bad(f"there are no hands {hands_name!r}", "xtest or uinput")
        hands = self.hands if hands_name == "xtest" else self.uinput_hands
        done = Actions(hands).perform(actions)
        untyped = [{"index": u.index, "char": u.char, "code": f"U+{ord(u.char):04X}", "reason": u.reason} for u in done.untyped]
        return {"status": "success", "actions": done.actions, "untyped": untyped, "held": hands.held()}

    def mark(self) -> None:
        """Something is about to be done; without a display there is nothing to be seen of it."""
        with contextlib.suppress(Fault):
            self.screen.mark()

    def reset(self) -> dict[str, Any]:
        """Nothing pressed, nothing running for a client, no recording."""
        released = self.release()
        self.hands.forget_characters()
        return {"message": "released", "released": released, "stopped": self.processes.stop_all(), "recording": self.recorder.stop() is not None}

    def release(self) -> list[int]:
        """Nothing pressed, by whichever hands; the keycodes and buttons that were."""
        with self._lock:
            kept = self._parts.get("uinput hands")
        released = kept[0].release_all() if kept and not kept[1].dead else []
        return [*released, *self.hands.release_all()]

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether somebody could sit down and work, and the reasons when not: no X server, no window manager, nothing painted."""
        reasons: list[str] = []
        facts: dict[str, Any] = {"display": self.display, "painted": False}
        try:
            with self.screen.frame() as frame:
                facts |= {"screen": {"width": frame.width, "height": frame.height}, "state": frame.state, "sequence": frame.sequence}
            facts["window_manager"] = self.windows.manager()
            if frame.state in ("unmoded", "asleep"):
                reasons.append(f"the screen is {frame.state}")
            if facts["window_manager"] is None:
                reasons.append("no window manager runs yet")
            windows = self.windows.all()
            self._colorless = self._colorless and frame.state == "one-color"
            if self._colorless or (frame.state == "one-color" and not windows):
                reasons.append("nothing has been painted yet: the screen is of one color")
            self._awaited -= {window.class_name.lower() for window in windows}
            reasons += [f"{name} has not been painted yet" for name in sorted(self._awaited)]
        except Fault as fault:
            reasons.append(fault.message)
        facts |= {"painted": not reasons, "reasons": reasons}
        return not reasons, facts

    def close(self) -> None:
        """Release everything, and leave the X server."""
        self.recorder.stop()
        self.accessibility.close()
        with self._lock:
            for part, _ in self._parts.values():
                part.close()
            self._parts.clear()
