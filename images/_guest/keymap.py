"""How characters are typed on the keyboard as it is mapped now: directly, by a dead key, or by a spare key that is given the character."""

from __future__ import annotations

import unicodedata
from ctypes import byref, c_int, c_uint, c_ulong
from dataclasses import dataclass

from . import keys
from .x11 import X11, Connection, XkbState

CORE_KEYBOARD = 0x100
SHIFT, LOCK = 1, 2
FIRST_MEDIA_KEY = 149
"""From here on there are keys of one level only (media keys): writing them back as they are changes nothing."""
KEYPAD = range(0xFF80, 0xFFBE)
DEAD = {
    "\u0300": "dead_grave", "\u0301": "dead_acute", "\u0302": "dead_circumflex", "\u0303": "dead_tilde", "\u0304": "dead_macron", "\u0306": "dead_breve",
    "\u0307": "dead_abovedot", "\u0308": "dead_diaeresis", "\u030a": "dead_abovering", "\u030b": "dead_doubleacute", "\u030c": "dead_caron",
    "\u0327": "dead_cedilla", "\u0328": "dead_ogonek",
}  # fmt: skip
DEAD_ALONE = {"^": "dead_circumflex", "`": "dead_grave", "~": "dead_tilde"}
"""What a dead key and the space bar write."""


@dataclass(frozen=True)
class Stroke:
    """One key with the modifier keys (by keycode) to hold meanwhile."""

    keycode: int
    modifiers: tuple[int, ...] = ()


class Keymap:
    """A picture of the keyboard's mapping; made anew when the server says that it changed, or when a lock or the group did."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        low, high = c_int(), c_int()
        X11.XDisplayKeycodes(connection.display, byref(low), byref(high))
        self._codes = range(low.value, high.value + 1)
        self._state = (-1, -1)
        self._strokes: dict[int, Stroke] = {}
        self._plain: dict[int, int] = {}
        self._typed: dict[str, list[Stroke] | None] = {}
        self.spare: list[int] = []
        """The keycodes that nothing is mapped to."""

    @property
    def caps_lock(self) -> bool:
        """Whether Caps Lock was on when it was looked at."""
        return bool(self._state[1] & LOCK)

    def refresh(self, changed: bool) -> bool:
        """Look at the mapping when it has changed, or when a lock or the group has; whether it was looked at."""
        state = XkbState()
        X11.XkbGetState(self._connection.display, CORE_KEYBOARD, byref(state))
        now = (state.group, state.locked_mods)
        if not changed and now == self._state:
            return False
        self._state = now
        self._read()
        return True

    def _read(self) -> None:
        group, locks = self._state
        self._strokes, self._plain, self._typed = {}, {}, {}
        used: set[int] = set()
        base = locks | group << 13
        self._combine(base, (), used, plain=True)
        shift = self._plain.get(keys.keysym("Shift_L"))
        level3 = X11.XStringToKeysym(b"ISO_Level3_Shift")
        mask = X11.XkbKeysymToModifiers(self._connection.display, level3)
        altgr = self._plain.get(level3) if mask else None
        if shift:
            self._combine(base | SHIFT, (shift,), used)
        if altgr:
            self._combine(base | mask, (altgr,), used)
        if shift and altgr:
            self._combine(base | mask | SHIFT, (shift, altgr), used)
        self.spare = sorted((code for code in self._codes if code not in used and code > 8), key=lambda code: (code < FIRST_MEDIA_KEY, code))

    def _combine(self, state: int, modifiers: tuple[int, ...], used: set[int], plain: bool = False) -> None:
        """What each key means with modifiers: the first way found to a keysym is the simplest one."""
        left, keysym = c_uint(), c_ulong()
        for code in self._codes:
            if not X11.XkbLookupKeySym(self._connection.display, code, state, byref(left), byref(keysym)) or not keysym.value:
                continue
            used.add(code)
            if plain:
                self._plain.setdefault(keysym.value, code)
            if keysym.value not in KEYPAD:
                self._strokes.setdefault(keysym.value, Stroke(code, modifiers))
                char = keys.character(keysym.value)
                if char and (keysym.value < 0xFF00 or keysym.value > 0x1000000):
                    # A layout may use an old name of a character (EuroSign); it is asked for by its present one.
                    self._strokes.setdefault(keys.keysym_of_character(char), Stroke(code, modifiers))

    def means(self, code: int, keysym: int) -> bool:
        """Whether a key alone gives a keysym."""
        return self._plain.get(keysym) == code or self._strokes.get(keysym) == Stroke(code)

    def stroke(self, keysym: int) -> Stroke | None:
        """The key (and modifiers) that gives a keysym, if one does."""
        if keysym in KEYPAD and keysym in self._plain:
            return Stroke(self._plain[keysym])
        return self._strokes.get(keysym)

    def typed(self, char: str) -> list[Stroke] | None:
        """The strokes that write a character, if the layout has any: one, or a dead key and a base."""
        if char not in self._typed:
            self._typed[char] = self._way(char)
        return self._typed[char]

    def _way(self, char: str) -> list[Stroke] | None:
        direct = self.stroke(keys.keysym(char) if char in "\n\t" else keys.keysym_of_character(char))
        if direct:
            return [direct]
        parts = unicodedata.normalize("NFD", char)
        pair = (DEAD_ALONE[char], " ") if char in DEAD_ALONE else (DEAD.get(parts[1], ""), parts[0]) if len(parts) == 2 else ("", "")
        if not pair[0]:
            return None
        dead, base = self.stroke(X11.XStringToKeysym(pair[0].encode())), self.stroke(keys.keysym_of_character(pair[1]))
        return [dead, base] if dead and base else None

    def give(self, assignments: dict[int, int]) -> None:
        """Map keycodes to keysyms (0: nothing). Every change makes every program read the keyboard anew, so there are few: one for all media keys."""
        media = sorted(code for code in assignments if code >= FIRST_MEDIA_KEY)
        for code in assignments:
            if code < FIRST_MEDIA_KEY:
                self._change(code, code, assignments)
        if media:
            self._change(media[0], media[-1], assignments)
        self._connection.sync()

    def _change(self, first: int, last: int, assignments: dict[int, int]) -> None:
        width, count = c_int(), last - first + 1
        found = X11.XGetKeyboardMapping(self._connection.display, first, count, byref(width))
        symbols = (c_ulong * (count * width.value)).from_buffer_copy((c_ulong * (count * width.value)).from_address(found))
        X11.XFree(found)
        for code, keysym in assignments.items():
            if first <= code <= last:
                start = (code - first) * width.value
                symbols[start : start + width.value] = [keysym, keysym, *[0] * (width.value - 2)]
        X11.XChangeKeyboardMapping(self._connection.display, first, width.value, byref(symbols), count)
