"""Mouse and keyboard through XTest. What an action presses is released at its end, whatever happens; what a client holds, at the latest after a while."""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_char, c_int, c_ulong
from dataclasses import dataclass

from . import keys
from .faults import Fault, bad, did_you_mean
from .keymap import CORE_KEYBOARD, LOCK, Keymap, Stroke
from .windows import Windows
from .x11 import MAPPING_NOTIFY, X11, XTST, Connection

BUTTONS = {"left": 1, "middle": 2, "right": 3, "back": 8, "forward": 9}
WHEEL = {"up": 4, "down": 5, "left": 6, "right": 7}
DRAG_STEP = 16
"""Pixels between the positions of a drag: enough of them that a program sees a movement, not a jump."""
MARK = "_GUEST_GIVEN_KEYS"
CLICK_GAP = 0.03
"""Seconds between the clicks of a double one: toolkits take presses of the same millisecond for one."""
LET_THROUGH_SECONDS = 2.0
LOOK_SECONDS = 0.001
HOLD_SECONDS = 60
LARGEST_SCROLL = 200
LARGEST_TEXT = 200_000
READ_SECONDS = 10
"""How long a program is given to read what was typed before a key gets another character."""


@dataclass
class Untyped:
    """A character that could not be typed: where, which, why."""

    index: int
    char: str
    reason: str


class Hands:
    """One pair of hands on a display; actions of several clients come one after the other."""

    def __init__(self, name: str, windows: Windows) -> None:
        self.connection = Connection(name)
        self._windows = windows
        self._held_keys: OrderedDict[int, str] = OrderedDict()
        self._held_buttons: OrderedDict[int, str] = OrderedDict()
        self._given: OrderedDict[int, int] = OrderedDict()
        self._alarm: threading.Timer | None = None
        with self.connection.held() as display:
            numbers = [byref(c_int()) for _ in range(4)]
            if not XTST.XTestQueryExtension(display, *numbers):
                raise Fault(503, "NoDisplay", "the X server lacks the extension XTEST", "use Xorg or Xvnc with its usual extensions")
            XTST.XTestGrabControl(display, 1)
            self._keymap = Keymap(self.connection)
            # What a server before this one has left on the spare keys; it may have been killed.
            self._keymap.give(dict.fromkeys(self._marked(), 0))
            self._mark([])
            self._keymap.refresh(True)
        self.release_all()

    def _marked(self) -> list[int]:
        marked = self.connection.property(self.connection.root, MARK)
        return marked if isinstance(marked, list) else []

    def _mark(self, codes: Sequence[int]) -> None:
        """Write down on the root window which keys were given characters."""
        values = (c_ulong * len(codes))(*codes)
        atom, cardinal = self.connection.atom(MARK), self.connection.atom("CARDINAL")
        X11.XChangeProperty(self.connection.display, self.connection.root, atom, cardinal, 32, 0, byref(values), len(codes))

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Around the actions of one request: nobody else acts meanwhile, and an error leaves nothing pressed."""
        with self.connection.held():
            try:
                self._notice()
                yield
                self.connection.sync()  # all is in the server's queue of input,
                self.connection.sync()  # and this one is answered after that queue was worked off
            except BaseException:
                if not self.connection.dead:
                    self.release_all()
                raise
            finally:
                self._set_alarm()

    def _notice(self) -> None:
        """Read the keyboard's mapping anew when somebody has changed it."""
        self.connection.sync()
        changed = False
        for event in self.connection.events():
            if event[0] & 0xFFFFFFFF == MAPPING_NOTIFY:
                X11.XRefreshKeyboardMapping(byref(event))
                changed = True
        if self._keymap.refresh(changed):
            kept = [(code, keysym) for code, keysym in self._given.items() if self._keymap.means(code, keysym)]
            self._given = OrderedDict(kept)  # a new layout takes the characters away

    def _set_alarm(self) -> None:
        if self._alarm:
            self._alarm.cancel()
            self._alarm = None
        if self._held_keys or self._held_buttons:
            self._alarm = threading.Timer(HOLD_SECONDS, self._forgotten)
            self._alarm.daemon = True
            self._alarm.start()

    def _forgotten(self) -> None:
        """A client pressed something and went away."""
        if not self.connection.dead:
            with self.connection.held():
                self.release_held()

    # -- mouse

    def point(self, value: object) -> tuple[int, int]:
        """A point on the screen; 400 for what is none, or is outside."""
        if not isinstance(value, (list, tuple)) or len(value) != 2 or any(isinstance(v, bool) or not isinstance(v, (int, float)) for v in value):
            raise bad(f"{value!r} is no point", "[x, y], in pixels from the top left")
        width, height = self.connection.size()
        if any(v != v or v in (float("inf"), float("-inf")) for v in value) or not (0 <= value[0] < width and 0 <= value[1] < height):
            raise bad(f"the point {value[0]}, {value[1]} is outside the screen, which is {width}x{height}", f"x 0 to {width - 1}, y 0 to {height - 1}")
        return int(value[0]), int(value[1])

    def move(self, to: tuple[int, int]) -> None:
        """Move the pointer."""
        XTST.XTestFakeMotionEvent(self.connection.display, -1, *to, 0)

    def click(self, button: int, count: int = 1, at: tuple[int, int] | None = None) -> None:
        """Press and release a button `count` times, fast enough for a double or triple click."""
        if at:
            self.move(at)
            self.connection.sync()
        wheel = button in WHEEL.values()
        for number in range(count):
            if number and not wheel:
                threading.Event().wait(CLICK_GAP)
            self._button(button, True)
            self._button(button, False)
            self._let_through(button)

    def drag(self, button: int, path: Sequence[tuple[int, int]]) -> None:
        """Press at the first point, pass through the others, release at the last."""
        self.move(path[0])
        self._button(button, True)
        try:
            for (x0, y0), (x1, y1) in itertools.pairwise(path):
                steps = max(2, max(abs(x1 - x0), abs(y1 - y0)) // DRAG_STEP)
                for n in range(1, steps + 1):
                    self.move((x0 + (x1 - x0) * n // steps, y0 + (y1 - y0) * n // steps))
                    self.connection.sync()  # one position after the other: motion is put together by who reads late
        finally:
            self._button(button, False)
            self._let_through(button)

    def scroll(self, notches: int, horizontal: bool = False) -> None:
        """Turn the wheel: positive is down (or right)."""
        if isinstance(notches, bool) or not isinstance(notches, int) or abs(notches) > LARGEST_SCROLL:
            raise bad(f"scroll {notches!r} is no number of notches", f"a whole number, positive is down, at most {LARGEST_SCROLL}")
        names = ("right", "left") if horizontal else ("down", "up")
        self.click(WHEEL[names[0] if notches > 0 else names[1]], abs(notches))

    def hold_buttons(self, wanted: Sequence[tuple[str, bool]]) -> None:
        """Press buttons and keep them, or let them go: names, and whether down."""
        for name, down in wanted:
            number = button(name)
            self._button(number, down)
            if down:
                self._held_buttons[number] = name
            else:
                self._held_buttons.pop(number, None)
        self.connection.sync()

    def _let_through(self, number: int) -> None:
        """Wait until a released button is up: a window manager that looks at a press first holds pointer events back, but not keys, which would overtake."""
        until = time.monotonic() + LET_THROUGH_SECONDS
        self.connection.sync()
        while self.connection.pointer()[2] & 0x80 << number and time.monotonic() < until:
            threading.Event().wait(LOOK_SECONDS)

    def _button(self, number: int, down: bool) -> None:
        XTST.XTestFakeButtonEvent(self.connection.display, number, down, 0)

    # -- keyboard

    def press(self, names: Sequence[str]) -> None:
        """A chord: the keys go down in their order, and up in the reverse one."""
        strokes = [self._stroke(name) for name in names]
        codes = list(dict.fromkeys(code for stroke in strokes for code in (*stroke.modifiers, stroke.keycode)))
        self._down(codes)
        self.connection.sync()

    def hold_keys(self, names: Sequence[str], down: bool) -> None:
        """Press keys and keep them, or let them go."""
        strokes = [(name, self._stroke(name)) for name in names]
        for name, stroke in strokes if down else reversed(strokes):
            self._key(stroke.keycode, down)
            if down:
                self._held_keys[stroke.keycode] = name
            else:
                self._held_keys.pop(stroke.keycode, None)
        self.connection.sync()

    def _stroke(self, name: str) -> Stroke:
        keysym = keys.keysym(name)
        found = self._keymap.stroke(keysym)
        if found is None and keys.character(keysym):
            self._give([keysym])
            found = self._keymap.stroke(keysym)
        if found is None:
            raise bad(f"this keyboard has no key {name!r}", "choose another key, or another layout: setxkbmap us")
        return found

    def _down(self, codes: Sequence[int]) -> None:
        done: list[int] = []
        try:
            for code in codes:
                self._key(code, True)
                done.append(code)
        finally:
            for code in reversed(done):
                if code not in self._held_keys:
                    self._key(code, False)

    def _key(self, code: int, down: bool) -> None:
        XTST.XTestFakeKeyEvent(self.connection.display, code, down, 0)

    def type(self, text: str) -> list[Untyped]:
        """Type a text; what could not be typed is left out and told."""
        if len(text) > LARGEST_TEXT:
            raise bad(f"a text of {len(text)} characters is too long to be typed", f"at most {LARGEST_TEXT}; put a file into the guest instead")
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        with self._caps_off():
            return self._typed(text)

    @contextmanager
    def _caps_off(self) -> Iterator[None]:
        """While a text is typed: programs make capitals of whatever spare keys are given."""
        self._notice()  # a key before the text may have turned it on
        was_on = self._keymap.caps_lock
        if was_on:
            self._set_caps(False)
        try:
            yield
        finally:
            if was_on and not self.connection.dead:
                self._set_caps(True)

    def _set_caps(self, on: bool) -> None:
        self.connection.sync()
        self.connection.sync()  # what was pressed before was pressed under the other state
        X11.XkbLockModifiers(self.connection.display, CORE_KEYBOARD, LOCK, LOCK if on else 0)
        self._notice()

    def _typed(self, text: str) -> list[Untyped]:
        missing: list[Untyped] = []
        at = 0
        while at < len(text):
            upto, wanted = self._batch(text, at)
            if wanted:
                self._give(wanted)
            for index in range(at, upto):
                strokes = _reason(text[index]) or self._keymap.typed(text[index]) or "the keyboard has no key left for it"
                if isinstance(strokes, str):
                    missing.append(Untyped(index, text[index], strokes))
                    continue
                for stroke in strokes:
                    self._down((*stroke.modifiers, stroke.keycode))
            at = upto
        self.connection.sync()
        return missing

    def _batch(self, text: str, start: int) -> tuple[int, list[int]]:
        """How far the text can be typed with the spare keys there are, and the keysyms that they must be given for it."""
        wanted: dict[int, None] = {}
        room = len(self._keymap.spare) + len(self._given)
        in_use: set[int] = set()
        for index in range(start, len(text)):
            char = text[index]
            if _reason(char):
                continue
            keysym = keys.keysym_of_character(char)
            if keysym in self._given.values():
                in_use.add(keysym)
            elif self._keymap.typed(char) is None:
                if keysym not in wanted and len(wanted) + len(in_use) >= room:
                    return (index, list(wanted)) if index > start else (index + 1, [])
                wanted[keysym] = None
            for code, given in self._given.items():
                if given == keysym:
                    self._given.move_to_end(code)
                    break
        return len(text), list(wanted)

    def _give(self, keysyms: Sequence[int]) -> None:
        """Spare keys for characters that the layout lacks. A key is given anew only when what was typed with it has been read."""
        free = [code for code in self._keymap.spare if code not in self._given]
        taken = list(self._given)[: max(0, len(keysyms) - len(free))]
        if taken:
            self.connection.sync()
            self._windows.read_up(READ_SECONDS)
        assignments = dict(zip([*free, *taken], keysyms, strict=False))
        for code, keysym in assignments.items():
            self._given.pop(code, None)
            self._given[code] = keysym
        self._mark(list(self._given))
        self._keymap.give(assignments)
        self._notice()

    # -- letting go

    def held(self) -> list[str]:
        """What a client holds, in the order it was pressed."""
        return [*self._held_keys.values(), *(f"{name} button" for name in self._held_buttons.values())]

    def release_held(self) -> None:
        """Let go of what clients hold."""
        for code in reversed(self._held_keys):
            self._key(code, False)
        for number in reversed(self._held_buttons):
            self._button(number, False)
        self._held_keys.clear()
        self._held_buttons.clear()
        self.connection.sync()

    def release_all(self) -> list[int]:
        """Let go of every key and button that is down, whoever pressed it; the keycodes and buttons that were."""
        with self.connection.held() as display:
            self.release_held()
            down = pressed_keys(self.connection)
            for code in down:
                self._key(code, False)
            mask = self.connection.pointer()[2]
            buttons = [n for n in range(1, 6) if mask >> 7 + n & 1]
            for number in buttons:
                self._button(number, False)
            X11.XFlush(display)
            self.connection.sync()
            return [*down, *buttons]

    def forget_characters(self) -> None:
        """Take the characters back from the spare keys."""
        with self.connection.held():
            self._keymap.give(dict.fromkeys(self._given, 0))
            self._given.clear()
            self._mark([])
            self._notice()

    def close(self) -> None:
        """Let go of everything, and leave the X server."""
        if self._alarm:
            self._alarm.cancel()
        if not self.connection.dead:
            self.release_all()
        self.connection.close()


def button(name: object) -> int:
    """The number of a mouse button."""
    if not isinstance(name, str) or name not in BUTTONS:
        raise bad(f"no mouse button {name!r}{did_you_mean(str(name), BUTTONS)}", ", ".join(BUTTONS))
    return BUTTONS[name]


def pressed_keys(connection: Connection) -> list[int]:
    """The keycodes that are down."""
    bits = (c_char * 32)()
    X11.XQueryKeymap(connection.display, byref(bits))
    return [n * 8 + bit for n, byte in enumerate(bits.raw) for bit in range(8) if byte >> bit & 1]


def _reason(char: str) -> str:
    """Why no keyboard can type a character, or nothing."""
    code = ord(char)
    if char in "\n\t":
        return ""
    if code < 32 or 127 <= code < 160:
        return "a control character"
    if 0xD800 <= code < 0xE000:
        return "half of a surrogate pair"
    return "" if keys.keysym_of_character(char) else "X has no keysym for it"
