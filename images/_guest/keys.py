"""The names of keys: everybody's short ones, X's own, and single characters."""

from __future__ import annotations

from .faults import bad, did_you_mean
from .x11 import X11, XKBCOMMON

NAMES = {
    "ctrl": "Control_L", "control": "Control_L", "ctrlleft": "Control_L", "ctrlright": "Control_R", "alt": "Alt_L", "altleft": "Alt_L", "altright": "Alt_R",
    "option": "Alt_L", "altgr": "ISO_Level3_Shift", "shift": "Shift_L", "shiftleft": "Shift_L", "shiftright": "Shift_R", "super": "Super_L",
    "win": "Super_L", "winleft": "Super_L", "winright": "Super_R", "cmd": "Super_L", "command": "Super_L", "meta": "Super_L", "hyper": "Hyper_L",
    "enter": "Return", "return": "Return", "esc": "Escape", "escape": "Escape", "tab": "Tab", "space": "space", "spacebar": "space",
    "backspace": "BackSpace", "delete": "Delete", "del": "Delete", "insert": "Insert", "ins": "Insert", "home": "Home", "end": "End",
    "pageup": "Prior", "pgup": "Prior", "page_up": "Prior", "pagedown": "Next", "pgdn": "Next", "pgdown": "Next", "page_down": "Next",
    "up": "Up", "down": "Down", "left": "Left", "right": "Right", "arrowup": "Up", "arrowdown": "Down", "arrowleft": "Left", "arrowright": "Right",
    "capslock": "Caps_Lock", "numlock": "Num_Lock", "scrolllock": "Scroll_Lock", "printscreen": "Print", "prtsc": "Print", "prtscr": "Print",
    "prntscrn": "Print", "print": "Print", "pause": "Pause", "menu": "Menu", "apps": "Menu", "help": "Help",
    "minus": "minus", "plus": "plus", "add": "KP_Add", "subtract": "KP_Subtract", "multiply": "KP_Multiply", "divide": "KP_Divide",
    "decimal": "KP_Decimal", "volumeup": "XF86AudioRaiseVolume", "volumedown": "XF86AudioLowerVolume", "volumemute": "XF86AudioMute",
    **{f"f{n}": f"F{n}" for n in range(1, 25)}, **{f"num{n}": f"KP_{n}" for n in range(10)}, **{f"numpad{n}": f"KP_{n}" for n in range(10)},
}  # fmt: skip


def character(keysym: int) -> str:
    """The character that a keysym writes, or nothing."""
    code = XKBCOMMON.xkb_keysym_to_utf32(keysym)
    return chr(code) if code else ""


def keysym_of_character(char: str) -> int:
    """The keysym that writes a character; 0 when X has none."""
    return 0 if "\ud800" <= char <= "\udfff" else int(XKBCOMMON.xkb_utf32_to_keysym(ord(char)))


def keysym(name: str) -> int:
    """The keysym that a name means; 400 for an unknown one, with the near names."""
    if len(name) == 1:
        found = {"\n": X11.XStringToKeysym(b"Return"), "\t": X11.XStringToKeysym(b"Tab")}.get(name) or keysym_of_character(name)
    else:  # C would stop reading at a NUL
        found = 0 if "\0" in name else X11.XStringToKeysym(NAMES.get(name.lower(), name).encode("ascii", "replace"))
    if not found:
        raise bad(f"no key {name!r}{did_you_mean(name, NAMES)}", "a character, a name such as ctrl, enter, f5, or an X keysym's name such as ISO_Left_Tab")
    return int(found)


def chord(keys: object) -> list[str]:
    """The names in a chord: a list of them, or a text such as `ctrl+shift+t` (`ctrl++` ends in a plus)."""
    if isinstance(keys, str):
        parts = [keys] if len(keys) == 1 else keys[:-1].split("+") if keys.endswith("++") else keys.split("+")
        if keys.endswith("++") and len(keys) > 1:
            parts[-1] = "+"
        keys = parts
    if not isinstance(keys, list) or not keys or not all(isinstance(k, str) and k for k in keys):
        raise bad(f"keys {keys!r} is no chord", "a text such as ctrl+s, or a list of keys pressed together")
    return [key if len(key) == 1 else key.strip() for key in keys]
