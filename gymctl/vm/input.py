"""Mouse and keyboard of a machine, from outside: a tablet and a virtio keyboard by QEMU's `input-send-event`, or the keyboard in the guest's kernel.

Every movement, press and release is a command of its own, sent once, in its order. What was pressed here is released at the end.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from gymctl.errors import EnvError, UsageError
from gymctl.vm.qmp import Qmp

FULL = 0x7FFF
"""The tablet's largest coordinate, whatever the size of the screen."""
TABLET_SECONDS = 0.008
"""Between movements of a drag and notches of a wheel: the guest asks a USB tablet that often, and its queue holds sixteen."""
CLICK_SECONDS = 0.03
ARRIVAL_SECONDS = 0.08
"""Between the mouse and a key after it: they come to the guest by different ways, and the tablet's is the slower one."""
KEY_SECONDS = 0.002
DRAG_STEP = 16
HOLD_MS, GAP_MS = 5, 10
LONGEST_WAIT = 60
BUTTONS = {"left": "left", "middle": "middle", "right": "right", "back": "side", "forward": "extra"}
CLICKS = {"left_click": ("left", 1), "right_click": ("right", 1), "middle_click": ("middle", 1), "double_click": ("left", 2), "triple_click": ("left", 3)}
DRAGS = {"left_click_drag": "left", "right_click_drag": "right", "middle_click_drag": "middle"}
PLAIN = {
    " ": "spc", "\n": "ret", "\t": "tab", "-": "minus", "=": "equal", "[": "bracket_left", "]": "bracket_right", "\\": "backslash", ";": "semicolon",
    "'": "apostrophe", "`": "grave_accent", ",": "comma", ".": "dot", "/": "slash", **{c: c for c in "abcdefghijklmnopqrstuvwxyz0123456789"},
}  # fmt: skip
SHIFTED = dict(zip('!@#$%^&*()_+{}|:"~<>?', "1234567890-=[]\\;'`,./", strict=True)) | {c.upper(): c for c in "abcdefghijklmnopqrstuvwxyz"}
NAMED = {
    "ctrl": "ctrl", "control": "ctrl", "alt": "alt", "shift": "shift", "super": "meta_l", "win": "meta_l", "cmd": "meta_l", "enter": "ret", "return": "ret",
    "esc": "esc", "escape": "esc", "tab": "tab", "space": "spc", "backspace": "backspace", "delete": "delete", "del": "delete", "insert": "insert",
    "home": "home", "end": "end", "pageup": "pgup", "page_up": "pgup", "pagedown": "pgdn", "page_down": "pgdn", "up": "up", "down": "down", "left": "left",
    "right": "right", "capslock": "caps_lock", "menu": "compose", "printscreen": "print", **{f"f{n}": f"f{n}" for n in range(1, 13)},
}  # fmt: skip
"""A US keyboard's keys by QEMU's names."""

Step = Callable[[], None]


class Keyboard(Protocol):
    """Where keys go: one gym-anything keyboard event each; what could not be typed comes back."""

    def checked(self, event: str, value: Any) -> Callable[[], list[dict[str, Any]]]:
        """What to do for an event, once all are known to be possible; UsageError."""

    def held(self) -> list[str]:
        """The keys that are down."""

    def release(self) -> None:
        """Nothing that was pressed here stays down."""


class Tablet:
    """The mouse: absolute positions, at the size that the screen really has."""

    def __init__(self, qmp: Qmp, size: Callable[[], tuple[int, int]], moved: Callable[[Step], None] | None = None) -> None:
        """`moved`: send a movement and wait until the guest has taken it."""
        self._qmp, self._size = qmp, size
        self._moved = moved or _send_and_pause
        self._down: dict[str, None] = {}
        self._last: tuple[int, int] | None = None
        self._used = 0.0

    def point(self, value: Any) -> tuple[int, int]:
        """A point on the screen; UsageError for one that is outside, or none."""
        if not isinstance(value, list | tuple) or len(value) != 2 or any(isinstance(v, bool) or not isinstance(v, int | float) or v != v for v in value):
            raise UsageError(f"{value!r} is no point", hint="[x, y], in pixels from the top left")
        width, height = self._size()
        if not (0 <= value[0] < width and 0 <= value[1] < height):
            raise UsageError(f"the point {value[0]}, {value[1]} is outside the screen, which is {width}x{height}")
        return int(value[0]), int(value[1])

    def move(self, to: tuple[int, int]) -> None:
        """Put the pointer somewhere; returns when QEMU has handed it to the tablet.

        The guest's kernel passes no position on that it has already; meanwhile something else may have moved the pointer. So the same again,
        and the first one, come by way of the pixel beside it. QEMU makes one of two movements that the guest has not taken yet.
        """
        if self._last in (None, to):
            beside = (to[0] - 1 if to[0] else 1, to[1] - 1 if to[1] else 1)
            self._moved(lambda: self._send(beside))
        self._send(to)
        self._last = to

    def _send(self, to: tuple[int, int]) -> None:
        size = self._size()
        axes = [{"type": "abs", "data": {"axis": axis, "value": round(v * FULL / (length - 1))}} for axis, v, length in zip("xy", to, size, strict=True)]
        self._qmp.execute("input-send-event", events=axes)
        self._used = time.monotonic()

    def button(self, name: str, down: bool) -> None:
        """Press or release a button."""
        self._qmp.execute("input-send-event", events=[{"type": "btn", "data": {"button": BUTTONS.get(name, name), "down": down}}])
        self._used = time.monotonic()
        (self._down.__setitem__(name, None) if down else self._down.pop(name, None))

    def click(self, name: str, count: int, at: tuple[int, int]) -> None:
        """Move, then press and release so often."""
        self.move(at)
        for number in range(count):
            if number:
                _pause(CLICK_SECONDS)
            self.button(name, True)
            self.button(name, False)

    def drag(self, name: str, path: Sequence[tuple[int, int]]) -> None:
        """Press at the first point, pass through the others, release at the last."""
        self.move(path[0])
        self.button(name, True)
        try:
            for (x0, y0), (x1, y1) in itertools.pairwise(path):
                steps = max(2, max(abs(x1 - x0), abs(y1 - y0)) // DRAG_STEP)
                for n in range(1, steps + 1):
                    _pause(TABLET_SECONDS)
                    self.move((x0 + (x1 - x0) * n // steps, y0 + (y1 - y0) * n // steps))
            _pause(TABLET_SECONDS)
        finally:
            self.button(name, False)

    def scroll(self, name: str, notches: int) -> None:
        """Turn the wheel, one notch after the other."""
        for _ in range(notches):
            self.button(name, True)
            self.button(name, False)
            _pause(TABLET_SECONDS)

    def arrive(self) -> None:
        """Before a key: what the mouse did shortly before is given time to arrive."""
        if (left := self._used + ARRIVAL_SECONDS - time.monotonic()) > 0:
            _pause(left)

    def held(self) -> list[str]:
        """The buttons that are down."""
        return [f"{name} button" for name in self._down]

    def release(self) -> None:
        """No button stays down."""
        for name in list(self._down):
            self.button(name, False)

    def checked(self, event: str, value: Any) -> Step:
        """What to do for one of gym-anything's mouse events; UsageError."""
        if event == "move":
            point = self.point(value)
            return lambda: self.move(point)
        if event in CLICKS:
            (name, count), at = CLICKS[event], self.point(value)
            return lambda: self.click(name, count, at)
        if event in DRAGS:
            if not isinstance(value, list) or len(value) < 2:
                raise UsageError(f"drag {value!r} is no path", hint="[[x, y], [x, y]]: at least two points")
            path = [self.point(at) for at in value]
            return lambda: self.drag(DRAGS[event], path)
        return self._checked_rest(event, value)

    def _checked_rest(self, event: str, value: Any) -> Step:
        if event in ("scroll", "scroll_x"):
            if isinstance(value, bool) or not isinstance(value, int):
                raise UsageError(f"scroll {value!r} is no number of notches", hint="a whole number; positive is down (scroll_x: right)")
            names = ("wheel-down", "wheel-up") if event == "scroll" else ("wheel-right", "wheel-left")
            return lambda: self.scroll(names[value < 0], abs(value))
        if event != "buttons" or not isinstance(value, dict):
            raise UsageError(f"no mouse event {event!r}: {value!r}", hint=", ".join(["move", *CLICKS, *DRAGS, "scroll", "scroll_x", "buttons"]))
        wanted = []
        for key, on in value.items():
            name, _, way = str(key).rpartition("_")
            if name not in BUTTONS or way not in ("down", "up") or not isinstance(on, bool):
                raise UsageError(f"no button event {key!r}: {on!r}", hint='"left_down", "left_up", ...: true')
            wanted += [(name, way == "down")] if on else []
        return lambda: self._buttons(wanted)

    def _buttons(self, wanted: Sequence[tuple[str, bool]]) -> None:
        for name, down in wanted:
            self.button(name, down)


class UsKeyboard:
    """QEMU's keyboard, for guests without a server of ours and with the US layout. `hold_ms` makes it QEMU's own `send-key`, which loses letters."""

    def __init__(self, qmp: Qmp, *, hold_ms: int | None = None, gap_ms: int = GAP_MS) -> None:
        self._qmp, self._hold, self._gap = qmp, hold_ms, gap_ms
        self._down: dict[str, None] = {}

    def checked(self, event: str, value: Any) -> Callable[[], list[dict[str, Any]]]:
        """As of any keyboard; a character that the layout lacks is told before any key is pressed."""
        if event == "text":
            strokes = [self._stroke(char) for char in str(value).replace("\r\n", "\n")]
            return lambda: self._each(strokes)
        if event not in ("keys", "keys_down", "keys_up"):
            raise UsageError(f"no keyboard event {event!r}", hint="text, keys, keys_down, keys_up")
        names = value if isinstance(value, list) else [value] if len(value) == 1 else value.split("+")
        chord = list(dict.fromkeys(itertools.chain.from_iterable(self._stroke(name) if len(name) == 1 else (self._named(name),) for name in names)))
        if event == "keys":
            return lambda: self._each([tuple(chord)])
        return lambda: self._hold_keys(chord, event == "keys_down")

    def _hold_keys(self, chord: Sequence[str], down: bool) -> list[dict[str, Any]]:
        for name in chord:
            self._key(name, down)
        return []

    def _named(self, name: str) -> str:
        if name.lower() not in NAMED:
            raise UsageError(f"this keyboard has no key {name!r}", hint=f"a character, or {', '.join(sorted(NAMED))}")
        return NAMED[name.lower()]

    def _stroke(self, char: str) -> tuple[str, ...]:
        if char in PLAIN:
            return (PLAIN[char],)
        if char in SHIFTED:
            return ("shift", PLAIN[SHIFTED[char]])
        raise UsageError(f"U+{ord(char):04X} is on no US keyboard, and nothing was typed", hint="the guest's own keyboard types it: `--opt keyboard=uinput`")

    def _each(self, strokes: Sequence[tuple[str, ...]]) -> list[dict[str, Any]]:
        for stroke in strokes:
            if self._hold is not None:
                self._qmp.execute("send-key", keys=[{"type": "qcode", "data": name} for name in stroke], hold_time=self._hold)
                _pause(self._gap / 1000)
                continue
            for name in stroke:
                self._key(name, True)
            for name in reversed(stroke):
                self._key(name, False)
        return []

    def _key(self, name: str, down: bool) -> None:
        self._qmp.execute("input-send-event", events=[{"type": "key", "data": {"down": down, "key": {"type": "qcode", "data": name}}}])
        (self._down.__setitem__(name, None) if down else self._down.pop(name, None))
        _pause(KEY_SECONDS)

    def held(self) -> list[str]:
        """The keys that are down, by QEMU's names."""
        return list(self._down)

    def release(self) -> None:
        """No key stays down."""
        for name in list(self._down):
            self._key(name, False)


class GuestKeyboard:
    """The keyboard in the guest's kernel, by the guest's server: a key counts when the X server there has taken it. No other is used in its place."""

    def __init__(self, post: Callable[[list[Any]], Mapping[str, Any]]) -> None:
        self._post = post
        self._held: list[str] = []
        try:
            post([{"keyboard": {"keys": "shift"}}])
        except EnvError as error:
            raise EnvError(f"the keyboard in the guest is not proven: {error.message}", hint=error.hint or "`--opt keyboard=virtio` needs no server") from error

    def checked(self, event: str, value: Any) -> Callable[[], list[dict[str, Any]]]:
        """The guest checks what it is told before it presses anything."""
        if event not in ("text", "keys", "keys_down", "keys_up"):
            raise UsageError(f"no keyboard event {event!r}", hint="text, keys, keys_down, keys_up")
        return lambda: self._act({event: value})

    def _act(self, event: dict[str, Any]) -> list[dict[str, Any]]:
        answer = self._post([{"keyboard": event}])
        self._held = list(answer["held"])
        return list(answer["untyped"])

    def held(self) -> list[str]:
        """As the guest told it last."""
        return self._held

    def release(self) -> None:
        """What it holds for us."""
        if self._held:
            self._act({"keys_up": self._held})


def perform(actions: Sequence[Any], tablet: Tablet, keyboard: Keyboard) -> dict[str, Any]:
    """Do gym-anything's actions: all are checked before the first is done. {actions, untyped, held}; UsageError, EnvError."""
    untyped: list[dict[str, Any]] = []
    steps: list[Step] = []
    for number, action in enumerate(actions):
        steps += _steps(action, number, tablet, keyboard, untyped)
    for step in steps:
        step()
    return {"actions": len(actions), "untyped": untyped, "held": [*tablet.held(), *keyboard.held()]}


def _steps(action: Any, number: int, tablet: Tablet, keyboard: Keyboard, untyped: list[dict[str, Any]]) -> list[Step]:
    if not isinstance(action, dict) or not action:
        raise UsageError(f"action {number}: {action!r} is no action", hint='an object such as {"mouse": {"left_click": [10, 20]}}')
    if action.get("action") == "wait":
        seconds = action.get("seconds", action.get("time"))
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= LONGEST_WAIT:
            raise UsageError(f"action {number}: wait {seconds!r} is no time", hint=f"seconds, 0 to {LONGEST_WAIT}")
        return [lambda: _pause(seconds)]
    if unknown := set(action) - {"mouse", "keyboard"}:
        raise UsageError(f"action {number}: {', '.join(sorted(map(str, unknown)))} is nothing that hands can do", hint="mouse, keyboard, wait")
    steps = [tablet.checked(name, value) for name, value in action.get("mouse", {}).items()]
    typed = [keyboard.checked(name, value) for name, value in action.get("keyboard", {}).items()]
    return [*steps, *([tablet.arrive] if typed else []), *(_typing(step, untyped) for step in typed)]


def _typing(step: Callable[[], list[dict[str, Any]]], untyped: list[dict[str, Any]]) -> Step:
    return lambda: untyped.extend(step())


def _send_and_pause(send: Step) -> None:
    send()
    _pause(ARRIVAL_SECONDS)


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)
