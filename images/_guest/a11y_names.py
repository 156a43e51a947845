"""The XML namespaces of the accessibility tree, as OSWorld's evaluators know them."""

from __future__ import annotations

_ROOT = "https://accessibility.ubuntu.example.org/ns"
STATE = f"{_ROOT}/state"
NAMESPACES = {
    "st": STATE, "attr": f"{_ROOT}/attributes", "cp": f"{_ROOT}/component", "doc": f"{_ROOT}/document", "docattr": f"{_ROOT}/document/attributes",
    "txt": f"{_ROOT}/text", "val": f"{_ROOT}/value", "act": f"{_ROOT}/action",
}  # fmt: skip
