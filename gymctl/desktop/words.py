"""Actions as words on a command line: `click 100 200`, `click 'push button=Save' in Mousepad`, `drag window=Notes 5 5 to 50% 50%`."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from typing import Any

from gymctl.desktop import gestures
from gymctl.episode import Json
from gymctl.errors import UsageError

NUMBER = re.compile(r"-?\d+(\.\d+)?")
COORDINATE = re.compile(r"-?\d+(\.\d+)?%?")
WINDOW = "window="
CLICKS: dict[str, Json] = {"left": {}, "right": {"button": "right"}, "middle": {"button": "middle"}, "double": {"count": 2}, "triple": {"count": 3}}

Reader = Callable[[list[str]], Json]
"""Takes words from the front of a list and says what they stand for; IndexError when there are too few, ValueError when they do not fit."""


def _coordinate(word: str) -> float | str:
    if not COORDINATE.fullmatch(word):
        raise ValueError(word)
    return word if word.endswith("%") else float(word)


def _point(words: list[str]) -> Json:
    if words[0].count(",") == 1 and all(map(COORDINATE.fullmatch, words[0].split(","))):
        words[:1] = words[0].split(",")
    return {"x": _coordinate(words.pop(0)), "y": _coordinate(words.pop(0))}


def _place(words: list[str]) -> Json:
    """X Y, or window=W [X Y], or an element [in W]."""
    if COORDINATE.fullmatch(words[0].partition(",")[0]):
        return _point(words)
    first = words.pop(0)
    if first.startswith(WINDOW):
        place: Json = {"window": first.removeprefix(WINDOW)}
        return {**place, **_point(words)} if words and COORDINATE.fullmatch(words[0].partition(",")[0]) else place
    if words and words[0] == "in":
        del words[0]
        return {"element": first, "in": words.pop(0)}
    return {"element": first}


def _to(words: list[str]) -> Json:
    if words[0] == "to":
        del words[0]
    return {"to": _place(words)}


def _clicks(words: list[str]) -> Json:
    return CLICKS[words.pop(0)] if words[0] in CLICKS else {}


def _wheel(words: list[str]) -> Json:
    """[PLACE] DY [DX]: the last one or two words of three or more that are numbers, else the only one."""
    count = 2 if len(words) in (2, 4) and all(NUMBER.fullmatch(word) for word in words) else 1
    notches, place = words[-count:], words[:-count]
    words.clear()
    found = _place(place) if place else {}
    if place:
        raise ValueError(place)
    return {**found, **dict(zip(("dy", "dx"), map(int, notches), strict=False))}


def _one(field: str) -> Reader:
    return lambda words: {field: words.pop(0)}


def _maybe(field: str) -> Reader:
    return lambda words: {field: words.pop(0)} if words else {}


def _number(field: str, *, optional: bool = False) -> Reader:
    return lambda words: {} if optional and not words else {field: float(words.pop(0))}


def _all(field: str, words: list[str]) -> Json:
    taken, words[:] = list(words), []
    if not taken:
        raise IndexError(field)
    return {field: taken}


def _command(words: list[str]) -> Json:
    """One word is a shell command line, several are an argv."""
    found = _all("command", words)
    return {"command": found["command"][0]} if len(found["command"]) == 1 else found


def _fresh(words: list[str]) -> Json:
    """[FILE] [--fresh]"""
    fresh = "--fresh" in words
    words[:] = [word for word in words if word != "--fresh"]
    return {**({"fresh": True} if fresh else {}), **({"path": words.pop(0)} if words else {})}


def _tree(words: list[str]) -> Json:
    """[in WINDOW]"""
    if words and words[0] == "in":
        del words[0]
    return {"in": words.pop(0)} if words else {}


FORMS: dict[str, tuple[str, tuple[Reader, ...]]] = {
    "move": ("PLACE", (_place,)),
    "click": ("[left|right|middle|double|triple] PLACE", (_clicks, _place)),
    "drag": ("PLACE [to] PLACE", (_place, _to)),
    "scroll": ("[PLACE] DY [DX]", (_wheel,)),
    "buttons_down": ("left|right|middle...", (lambda words: _all("buttons", words),)),
    "buttons_up": ("left|right|middle...", (lambda words: _all("buttons", words),)),
    "type": ("TEXT", (_one("text"),)),
    "key": ("CHORD", (_one("keys"),)),
    "keys_down": ("KEY...", (lambda words: _all("keys", words),)),
    "keys_up": ("KEY...", (lambda words: _all("keys", words),)),
    "wait": ("SECONDS", (_number("seconds"),)),
    "wait-change": ("[TIMEOUT]", (_number("timeout", optional=True),)),
    "wait-stable": ("[SECONDS]", (_number("seconds", optional=True),)),
    "screenshot": ("[FILE] [--fresh]", (_fresh,)),
    "a11y": ("[in WINDOW]", (_tree,)),
    "windows": ("", ()),
    "activate": ("WINDOW", (_one("window"),)),
    "close": ("WINDOW", (_one("window"),)),
    "exec": ("LINE | WORD WORD...", (_command,)),
    "launch": ("LINE | WORD WORD...", (_command,)),
    "put": ("FILE PATH-IN-GUEST", (_one("src"), _one("dst"))),
    "get": ("PATH-IN-GUEST [FILE]", (_one("src"), _maybe("dst"))),
    "clipboard": ("[TEXT]", (_maybe("text"),)),
    "actions": ("actions:=[...]", ()),
    "fail": ("", ()),
}
"""What is written behind an action's name, and how it is read. PLACE: X Y, window=W [X Y], or ROLE=NAME [in W]."""


def parse(name: str, words: list[str]) -> Json:
    """The arguments that words stand for; FIELD:=JSON at their end are further ones. UsageError shows how it is written."""
    fields = gestures.fields(name)
    options = next((n for n, word in enumerate(reversed(words)) if ":=" not in word or word.partition(":=")[0] not in fields), len(words))
    for count in range(options, -1, -1):  # `type timeout:=3` types that: only words that no form needs are options
        rest = words[: len(words) - count]
        made = _read(name, rest)
        if made is not None:
            return {**made, **{field: _json(text, field) for field, _, text in (word.partition(":=") for word in words[len(rest) :])}}
    usage = f"{name} {FORMS[name][0]}".rstrip()
    where = "; PLACE is X Y, window=W [X Y], or ROLE=NAME [in W]" if "PLACE" in usage else ""
    raise UsageError(f"`{shlex.join((name, *words))}` cannot be read", hint=f"write: {usage}{where}")


def _read(name: str, words: list[str]) -> Json | None:
    left, made = list(words), {}
    try:
        for reader in FORMS[name][1]:
            made.update(reader(left))
    except (IndexError, ValueError):
        return None
    return None if left else made


def _json(text: str, field: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"{field}:={text[:80]} is not FIELD:=JSON: {error}") from error
