"""Reads the accessibility tree by AT-SPI, as OSWorld's XML; a process of its own, because a hung program hangs whoever reads its tree.

Each line of stdin is a deadline in seconds; each line of stdout a JSON object {"xml", "nodes", "cut"}.
"""

from __future__ import annotations

import json
import re
import sys
import time
import warnings
from typing import Any
from xml.etree import ElementTree

import gi  # type: ignore[import-not-found]  # a Debian package of the guest

gi.require_version("Atspi", "2.0")
from gi.repository import Atspi, GLib  # type: ignore[import-not-found]  # noqa: E402  # the version has to be chosen first

from _guest.a11y_names import NAMESPACES  # noqa: E402

DEEPEST = 50
WIDEST = 1024
MOST_NODES = 20_000
LONGEST_TEXT = 1 << 20
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\ufffc\ufffd]")
NOT_NAME = re.compile(r"[^\w.-]", re.ASCII)


class Tree:
    """One reading of the tree, with what had to be left out."""

    def __init__(self, until: float) -> None:
        self._until = until
        self.nodes = 0
        self.cut: list[str] = []

    def read(self) -> ElementTree.Element:
        """The desktop and everything on it."""
        return self._element(Atspi.get_desktop(0), 0)

    def _element(self, node: Any, depth: int) -> ElementTree.Element:
        self.nodes += 1
        role = NOT_NAME.sub("-", _asked(node.get_role_name, "") or "unknown")
        element = ElementTree.Element(role if role[0].isalpha() else f"tag{role}", {"name": _clean(_asked(node.get_name, ""))})
        states = _asked(lambda: node.get_state_set().get_states(), [])
        names = {state.value_nick.replace("-", "_") for state in states}
        for name in sorted(names):
            element.set(_name("st", name), "true")
        for key, value in sorted((_asked(node.get_attributes, {}) or {}).items()):
            if key:
                element.set(_name("attr", key), _clean(value))
        interfaces = set(_asked(node.get_interfaces, []) or [])
        if {"visible", "showing"} <= names:
            _place(node, element)
        _details(node, interfaces, element)
        if depth >= DEEPEST:
            self.cut.append("deeper than 50 levels")
            return element
        for child in self._children(node):
            element.append(self._element(child, depth + 1))
        return element

    def _children(self, node: Any) -> list[Any]:
        count = _asked(node.get_child_count, 0)
        if not count or self._full():
            return []
        if count > WIDEST and _asked(node.get_table_iface, None):
            return self._cells(node)
        if count > WIDEST:
            self.cut.append(f"{count - WIDEST} children of one node")
        found = (_asked(lambda n=n: node.get_child_at_index(n), None) for n in range(min(count, WIDEST)))
        return [child for child in found if child]

    def _full(self) -> bool:
        if self.nodes >= MOST_NODES or time.monotonic() > self._until:
            if not self.cut or self.cut[-1] not in ("too many nodes", "no time was left"):
                self.cut.append("too many nodes" if self.nodes >= MOST_NODES else "no time was left")
            return True
        return False

    def _cells(self, node: Any) -> list[Any]:
        """The cells of a spreadsheet that are on the screen: those between the cells at the corners of its area."""
        area = _asked(lambda: node.get_extents(Atspi.CoordType.SCREEN), None)
        if area is None:
            return []
        table, columns = node.get_table_iface(), _asked(node.get_n_columns, 0)
        corners = []
        for x, y in ((area.x + 2, area.y + 2), (area.x + area.width - 3, area.y + area.height - 3)):
            cell = _asked(lambda x=x, y=y: node.get_accessible_at_point(x, y, Atspi.CoordType.SCREEN), None)
            index = _asked(cell.get_index_in_parent, -1) if cell else -1
            if index < 0 or not columns:
                return []
            corners.append(divmod(index, columns))
        (top, left), (bottom, right) = corners
        cells = []
        for row in range(top, min(bottom, top + WIDEST) + 1):
            for column in range(left, min(right, left + WIDEST) + 1):
                cell = _asked(lambda row=row, column=column: table.get_accessible_at(row, column), None)
                if cell:
                    cells.append(cell)
        return cells


def _asked(call: Any, default: Any) -> Any:
    """What a program answers about its own node; the default when it does not."""
    try:
        return call()
    except GLib.Error:
        return default


def _name(prefix: str, name: str) -> str:
    return f"{{{NAMESPACES[prefix]}}}{NOT_NAME.sub('-', name) if name[:1].isalpha() or name[:1] == '_' else '_' + NOT_NAME.sub('-', name)}"


def _clean(text: str | None) -> str:
    return NOT_XML.sub("", text or "")


def _place(node: Any, element: ElementTree.Element) -> None:
    area = _asked(lambda: node.get_extents(Atspi.CoordType.SCREEN), None)
    if area is not None:
        element.set(_name("cp", "screencoord"), f"({area.x}, {area.y})")
        element.set(_name("cp", "size"), f"({area.width}, {area.height})")


def _details(node: Any, interfaces: set[str], element: ElementTree.Element) -> None:
    """Text, image, selection, value and actions, where the node has them."""
    if "Text" in interfaces:
        length = min(_asked(node.get_character_count, 0) or 0, LONGEST_TEXT)
        element.text = _clean(_asked(lambda: Atspi.Text.get_text(node, 0, length), "")) or None
    if "Image" in interfaces:
        element.set("image", "true")
    if "Selection" in interfaces:
        element.set("selection", "true")
    if "Value" in interfaces:
        calls = {"value": "get_current_value", "min": "get_minimum_value", "max": "get_maximum_value", "step": "get_minimum_increment"}
        for key, call in calls.items():
            value = _asked(getattr(node, call), None)
            if value is not None:
                element.set(_name("val", key), str(value))
    if "Action" in interfaces:
        _actions(node, element)


def _actions(node: Any, element: ElementTree.Element) -> None:
    for n in range(_asked(node.get_n_actions, 0) or 0):
        name = (_asked(lambda n=n: node.get_action_name(n), "") or str(n)).replace(" ", "-")
        element.set(_name("act", f"{name}_desc"), _clean(_asked(lambda n=n: node.get_action_description(n), "")))
        element.set(_name("act", f"{name}_kb"), _clean(_asked(lambda n=n: node.get_key_binding(n), "")))


def main() -> None:
    """Answer until stdin ends."""
    for prefix, uri in NAMESPACES.items():
        ElementTree.register_namespace(prefix, uri)
    warnings.simplefilter("ignore", DeprecationWarning)  # the newer names of the same calls are missing in older releases
    Atspi.init()
    Atspi.set_timeout(2000, 5000)
    context = GLib.MainContext.default()
    for line in sys.stdin:
        while context.pending():  # what programs have told of since the last reading
            context.iteration(False)
        tree = Tree(time.monotonic() + float(line))
        xml = ElementTree.tostring(tree.read(), encoding="unicode")
        sys.stdout.write(json.dumps({"xml": xml, "nodes": tree.nodes, "cut": tree.cut}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
