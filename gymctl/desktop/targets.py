"""Where an action points, found at that moment: a point, a place in a window, or an element of the accessibility tree."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from gymctl import wire
from gymctl.desktop.gestures import Place
from gymctl.episode import Json
from gymctl.errors import EnvError

ROOT = "https://accessibility.ubuntu.example.org/ns"
STATE, COMPONENT = f"{{{ROOT}/state}}", f"{{{ROOT}/component}}"
"""The namespaces of the tree, as OSWorld has them."""
SEEN = (f"{STATE}visible", f"{STATE}showing")
USABLE = (f"{STATE}enabled", f"{STATE}sensitive")
TOPLEVELS = ("frame", "dialog", "window", "alert", "file-chooser", "color-chooser")
TOLD = 8
"""Candidates that an error lists."""
TREE_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class Node:
    """An element: the XML, the program it belongs to, and the window it is in ("" for none)."""

    xml: ElementTree.Element
    program: str
    window: str

    @property
    def name(self) -> str:
        """Its accessible name, its blanks as single spaces (menus are padded for the keys behind them)."""
        return _plain(self.xml.get("name", ""))

    @property
    def box(self) -> tuple[int, int, int, int] | None:
        """x, y, width, height on the screen; None when it is not shown."""
        place, size = self.xml.get(f"{COMPONENT}screencoord"), self.xml.get(f"{COMPONENT}size")
        if place is None or size is None or any(self.xml.get(state) != "true" for state in SEEN):
            return None
        x, y, width, height = (int(number) for number in re.findall(r"-?\d+", place + size))
        return (x, y, width, height) if width > 0 and height > 0 else None

    def words(self) -> str:
        """`push button=Save in Notes at 120,40`"""
        name = f"={self.name}" if self.name else ""
        where = f" at {self.box[0]},{self.box[1]}" if self.box else " (not shown)"
        return f"{self.xml.tag.replace('-', ' ')}{name} in {self.window or self.program}{where}"


@dataclass(frozen=True, slots=True)
class Found:
    """A point of the screen, and in words what is there ("" for a point that was given)."""

    x: float
    y: float
    what: str = ""

    def json(self) -> Json:
        """{at: [x, y], target?}"""
        return {"at": [int(self.x), int(self.y)], **({"target": self.what} if self.what else {})}

    @property
    def point(self) -> list[float]:
        """[x, y]"""
        return [int(value) if value == int(value) else value for value in (self.x, self.y)]


def _plain(text: str) -> str:
    return " ".join(text.split())


def find(client: wire.Client, place: Place) -> Found:
    """Where a place is now; EnvError says why it is nowhere, or which ones it may mean."""
    if place.element is not None:
        return _element(client, place.element, place.within)
    if place.window is not None:
        return _in_window(client, place)
    if isinstance(place.x, str) or isinstance(place.y, str):
        size = client.call("/screen_size")
        return Found(_pixels(place.x, size["width"]), _pixels(place.y, size["height"]))
    assert place.x is not None and place.y is not None  # noqa: S101, PT018  (the type says so)
    return Found(place.x, place.y)


def _pixels(value: float | str | None, length: int) -> float:
    """Pixels; of a share, the pixel there (100% is the last one)."""
    if isinstance(value, str):
        return min(int(float(value[:-1]) * length / 100), length - 1)
    return length // 2 if value is None else value


def windows(client: wire.Client) -> list[Json]:
    """Every window, the lowest first: {id, title, class, instance, pid, x, y, width, height, active, minimized}."""
    listed: list[Json] = client.call("/windows")["windows"]
    return listed


def window(client: wire.Client, name: str) -> tuple[Json, list[Json]]:
    """The one window a name means, and those above it: the name is the title, else the title or else the class holds it, not minding case."""
    stack = windows(client)
    exact = [w for w in stack if name == w["title"]]
    found = exact or [w for w in stack if name.lower() in w["title"].lower()] or [w for w in stack if name.lower() in f"{w['instance']}.{w['class']}".lower()]
    if len(found) == 1:
        return found[0], stack[stack.index(found[0]) + 1 :]
    listed = "; ".join(_titled(w) for w in found or stack) or "none"
    if found:
        raise EnvError(f"{len(found)} windows are called {name!r}: {listed}", hint="give more of the title", type="ambiguous")
    raise EnvError(f"no window {name!r}", hint=f"there are: {listed}", type="not_found")


def _titled(window: Json) -> str:
    return wire.printable(f"{window['title']!r} ({window['instance']}.{window['class']})")


def _in_window(client: wire.Client, place: Place) -> Found:
    chosen, above = window(client, place.window or "")
    x, y = _pixels(place.x, chosen["width"]), _pixels(place.y, chosen["height"])
    if chosen["minimized"]:
        raise EnvError(f"the window {chosen['title']!r} is minimized", hint=f"`activate {place.window!r}` brings it back", type="not_shown")
    if not (0 <= x < chosen["width"] and 0 <= y < chosen["height"]):
        what = f"{x:g}, {y:g} is outside the window {chosen['title']!r}, which is {chosen['width']}x{chosen['height']}"
        raise EnvError(what, hint="shares such as 50% are inside whatever its size", type="outside")
    _check_uncovered(chosen["title"], chosen["x"] + x, chosen["y"] + y, above)
    return Found(chosen["x"] + x, chosen["y"] + y, f"window={wire.printable(chosen['title'])}")


def _check_uncovered(what: str, x: float, y: float, above: list[Json]) -> None:
    """EnvError when a window lies over the point."""
    for other in reversed(above):
        if not other["minimized"] and other["x"] <= x < other["x"] + other["width"] and other["y"] <= y < other["y"] + other["height"]:
            raise EnvError(f"{what!r} is covered by the window {_titled(other)} at {x:g},{y:g}", hint="`activate WINDOW` raises one", type="covered")


def tree(client: wire.Client) -> tuple[ElementTree.Element, list[str]]:
    """The accessibility tree, and what had to be left out of it."""
    answer = client.call("/accessibility", timeout=TREE_TIMEOUT)
    try:
        return ElementTree.fromstring(answer["AT"]), answer["cut"]  # noqa: S314  # expat expands no external entities, and there is no DTD
    except ElementTree.ParseError as error:
        raise EnvError(f"the accessibility tree is no XML: {error}") from error


def nodes(root: ElementTree.Element) -> Iterator[Node]:
    """Every element below the programs, in reading order."""
    for program in root:
        yield from _below(program, program.get("name", ""), "")


def _below(xml: ElementTree.Element, program: str, window: str) -> Iterator[Node]:
    for child in xml:
        inside = window or (child.get("name", "") if child.tag in TOPLEVELS else "")  # the outermost one is the window manager's
        yield Node(child, program, inside)
        yield from _below(child, program, inside)


def _element(client: wire.Client, element: str, within: str | None) -> Found:
    """The middle of the one shown element of a role (and name)."""
    role, sign, name = element.partition("=")
    tag = role.strip().lower().replace(" ", "-")
    root, cut = tree(client)
    every = [node for node in nodes(root) if within is None or within.lower() in f"{node.window}\n{node.program}".lower()]
    same = [node for node in every if node.xml.tag == tag and (not sign or node.name == _plain(name))]
    shown = [node for node in same if node.box]
    if len(shown) != 1:
        raise _none_or_many(element, within, same, shown, every, cut)
    node = shown[0]
    x, y, width, height = node.box or (0, 0, 0, 0)
    if not any(node.xml.get(state) == "true" for state in USABLE):
        raise EnvError(f"{node.words()} is there, and cannot be used now (it is gray)", hint="`wait-stable` waits until a program is done", type="disabled")
    found = Found(x + width // 2, y + height // 2, wire.printable(node.words()))
    _check_reachable(client, node, found)
    return found


def _check_reachable(client: wire.Client, node: Node, found: Found) -> None:
    """EnvError when the point is not on the screen, or another window lies over the element's own. A menu's window is none of the window manager's."""
    size = client.call("/screen_size")
    if not (0 <= found.x < size["width"] and 0 <= found.y < size["height"]):
        raise EnvError(f"{found.what} is outside the screen, which is {size['width']}x{size['height']}", hint="`scroll` or move its window", type="outside")
    stack = windows(client)
    own = [number for number, w in enumerate(stack) if w["title"] == node.window]
    if len(own) == 1:
        _check_uncovered(found.what, found.x, found.y, stack[own[0] + 1 :])


def _none_or_many(element: str, within: str | None, same: list[Node], shown: list[Node], every: list[Node], cut: list[str]) -> EnvError:
    where = f" in {within!r}" if within else ""
    if len(shown) > 1:
        hint = "`in WINDOW` chooses a window; else a place: `click X Y`"
        return EnvError(f"{len(shown)} elements are {element!r}{where}: {_listed(shown)}", hint=hint, type="ambiguous")
    if same:
        return EnvError(f"{element!r}{where} is there, and not shown: {_listed(same)}", hint="open what it is in, or scroll", type="not_shown")
    near = _near(element, [node for node in every if node.box])
    left_out = f" (the tree was cut: {'; '.join(cut[:3])})" if cut else ""
    nothing = "a program may not tell what it shows: `a11y` is what is told; `windows` and `click window=W X Y` always work"
    hint = f"shown are: {_listed(near)}" if near else nothing
    return EnvError(f"no element {element!r}{where}{left_out}", hint=hint, type="not_found")


def _listed(some: list[Node]) -> str:
    more = f"; {len(some) - TOLD} more" if len(some) > TOLD else ""
    return wire.printable("; ".join(node.words() for node in some[:TOLD])) + more


def _near(element: str, shown: list[Node]) -> list[Node]:
    """The elements whose role and name are most like what was asked for: names first, then those of the same role."""
    role, _, name = element.partition("=")
    tag = role.strip().lower().replace(" ", "-")
    named = [node for node in shown if node.name]
    close = difflib.get_close_matches(name.lower(), {node.name.lower() for node in named}, n=TOLD, cutoff=0.6) if name else []
    like = [node for node in named if node.name.lower() in close or (name and name.lower() in node.name.lower())]
    return like or [node for node in shown if node.xml.tag == tag] or named


def outline(root: ElementTree.Element, within: str | None) -> str:
    """What is shown, a line an element, indented: role, name, text, place."""
    lines: list[str] = []
    for program in root:
        _outline(program, 0, lines, program.get("name", ""), within.lower() if within else None)
    return wire.printable("\n".join(lines))


def _outline(xml: ElementTree.Element, depth: int, lines: list[str], window: str, within: str | None) -> None:
    window = f"{window}\n{xml.get('name', '')}" if xml.tag in TOPLEVELS else window
    node = Node(xml, "", "")
    line = depth
    if node.box and (within is None or within in window.lower()) and (node.name or (xml.text or "").strip() or xml.tag in TOPLEVELS or len(xml) == 0):
        lines.append("  " * depth + _line(node))
        line = depth + 1
    for child in xml:
        _outline(child, line, lines, window, within)


def _line(node: Node) -> str:
    x, y, width, height = node.box or (0, 0, 0, 0)
    text = (node.xml.text or "").strip()
    said = f" text={text[:200]!r}" if text and text != node.name else ""
    states: list[Any] = [word for word in ("focused", "checked", "selected", "expanded") if node.xml.get(f"{STATE}{word}") == "true"]
    gray = [] if any(node.xml.get(state) == "true" for state in USABLE) else ["gray"]
    marks = "".join(f" [{word}]" for word in (*states, *gray))
    return f"{node.xml.tag.replace('-', ' ')}{f'={node.name}' if node.name else ''}{said}{marks} {x},{y} {width}x{height}"
