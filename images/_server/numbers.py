"""Whole numbers as forms and queries write them."""

from __future__ import annotations


def whole(text: str, most: int, least: int = 0) -> int | None:
    """The number that ASCII digits write, None for any other text and for what is not from `least` to `most`."""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most))):
        return None
    return int(text) if least <= int(text) <= most else None
