"""Actions as gym-anything's JSON has them, checked as a whole before the first is done, then done in their order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .faults import bad, did_you_mean
from .hands import Hands, Untyped, button
from .keys import chord, keysym

LONGEST_WAIT = 60
MOST_ACTIONS = 1000


@dataclass
class Done:
    """What came of a list of actions: how many were done, what could not be typed, what is still held."""

    actions: int = 0
    untyped: list[Untyped] = field(default_factory=list)


Step = Callable[[Done], object]


class Actions:
    """Turns actions into steps for a pair of hands."""

    def __init__(self, hands: Hands) -> None:
        self._hands = hands
        self._mouse: Mapping[str, Callable[[Any], Step]] = {
            "move": self._move,
            "left_click": lambda at: self._click("left", 1, at), "right_click": lambda at: self._click("right", 1, at),
            "middle_click": lambda at: self._click("middle", 1, at), "double_click": lambda at: self._click("left", 2, at),
            "triple_click": lambda at: self._click("left", 3, at),
            "left_click_drag": lambda path: self._drag("left", path), "right_click_drag": lambda path: self._drag("right", path),
            "middle_click_drag": lambda path: self._drag("middle", path),
            "scroll": lambda n: self._scroll(n, False), "scroll_x": lambda n: self._scroll(n, True), "buttons": self._buttons,
        }  # fmt: skip
        self._keyboard: Mapping[str, Callable[[Any], Step]] = {
            "text": self._text, "keys": self._keys, "keys_down": lambda names: self._hold(names, True), "keys_up": lambda names: self._hold(names, False),
        }  # fmt: skip

    def perform(self, actions: object) -> Done:
        """Do one action or a list of them; 400 before anything is done when one of them is faulty."""
        items = actions if isinstance(actions, list) else [actions]
        if len(items) > MOST_ACTIONS:
            raise bad(f"{len(items)} actions at once", f"at most {MOST_ACTIONS} a request")
        done = Done()
        with self._hands.acting():
            steps = [self._steps(item, number) for number, item in enumerate(items)]
            for group in steps:
                for step in group:
                    step(done)
                done.actions += 1
        return done

    def _steps(self, action: object, number: int) -> list[Step]:
        if not isinstance(action, dict) or not action:
            raise bad(f"action {number}: {action!r} is no action", 'an object such as {"mouse": {"left_click": [10, 20]}}')
        if action.get("action") == "wait":
            return [_wait(action.get("seconds", action.get("time")), number)]
        steps: list[Step] = []
        for device, table in (("mouse", self._mouse), ("keyboard", self._keyboard)):
            events = action.get(device, {})
            if not isinstance(events, dict):
                raise bad(f"action {number}: {device} {events!r} is no object")
            for name, value in events.items():
                if name not in table:
                    raise bad(f"action {number}: no {device} event {name!r}{did_you_mean(name, table)}", ", ".join(table))
                steps.append(table[name](value))
        unknown = set(action) - {"mouse", "keyboard"}
        if unknown or not steps:
            hint = 'mouse, keyboard, or {"action": "wait", "seconds": 1}; frames come from /frame'
            raise bad(f"action {number}: {', '.join(sorted(map(str, unknown))) or 'nothing'} is nothing that hands can do", hint)
        return steps

    def _move(self, at: Any) -> Step:
        point = self._hands.point(at)
        return lambda done: self._hands.move(point)

    def _click(self, name: str, count: int, at: Any) -> Step:
        point = self._hands.point(at)
        return lambda done: self._hands.click(button(name), count, point)

    def _drag(self, name: str, path: Any) -> Step:
        if not isinstance(path, list) or len(path) < 2:
            raise bad(f"drag {path!r} is no path", "[[x, y], [x, y]]: at least two points")
        points = [self._hands.point(at) for at in path]
        return lambda done: self._hands.drag(button(name), points)

    def _scroll(self, notches: Any, horizontal: bool) -> Step:
        if isinstance(notches, bool) or not isinstance(notches, int):
            raise bad(f"scroll {notches!r} is no number of notches", "a whole number; positive is down (scroll_x: right)")
        return lambda done: self._hands.scroll(notches, horizontal)

    def _buttons(self, events: Any) -> Step:
        if not isinstance(events, dict) or not events:
            raise bad(f"buttons {events!r} is no object", '{"left_down": true}')
        wanted = []
        for event, value in events.items():
            name, _, direction = str(event).rpartition("_")
            if direction not in ("down", "up") or not isinstance(value, bool):
                raise bad(f"no button event {event!r}: {value!r}", '"left_down", "left_up", ...: true')
            button(name)
            if value:
                wanted.append((name, direction == "down"))
        return lambda done: self._hands.hold_buttons(wanted)

    def _text(self, text: Any) -> Step:
        if not isinstance(text, str):
            raise bad(f"text {text!r} is no text")
        return lambda done: done.untyped.extend(self._hands.type(text))

    def _keys(self, keys: Any) -> Step:
        names = _known(keys)
        return lambda done: self._hands.press(names)

    def _hold(self, keys: Any, down: bool) -> Step:
        names = _known(keys)
        return lambda done: self._hands.hold_keys(names, down)


def _known(keys: Any) -> list[str]:
    names = chord(keys)
    for name in names:
        keysym(name)
    return names


def _wait(seconds: Any, number: int) -> Step:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds <= LONGEST_WAIT:
        raise bad(f"action {number}: wait {seconds!r} is no time", f"seconds, 0 to {LONGEST_WAIT}")
    return lambda done: threading.Event().wait(seconds)
