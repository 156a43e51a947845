"""Headings and sections of Markdown text."""

from __future__ import annotations

import re
from typing import NamedTuple

from ...lookup import near_names
from ...store import ToolError

_HEADING = re.compile(r"^(#{1,6})[ \t]+(\S.*)$")


class Heading(NamedTuple):
    """One heading: its level, text and line (counted from 0), and the line after its section."""

    level: int
    text: str
    line: int
    end: int


def headings(body: str) -> list[Heading]:
    """Every heading outside of fenced code; a section ends at the next heading of its level or above."""
    lines = body.split("\n")
    found: list[tuple[int, str, int]] = []
    fenced = False
    for number, line in enumerate(lines):
        fenced ^= line.lstrip().startswith("```")
        match = None if fenced else _HEADING.match(line)
        if match:
            found.append((len(match[1]), match[2].rstrip(" #"), number))
    ends = [next((n for lv, _, n in found[i + 1 :] if lv <= level), len(lines)) for i, (level, _, _) in enumerate(found)]
    return [Heading(*heading, end) for heading, end in zip(found, ends, strict=True)]


def section(body: str, heading: str) -> Heading:
    """The section with a heading (any case); ToolError not_found or conflict."""
    known = headings(body)
    wanted = heading.strip().lstrip("#").strip().casefold()
    found = [h for h in known if h.text.casefold() == wanted]
    if len(found) > 1:
        raise ToolError("conflict", f"{len(found)} headings are called {heading!r}", "lines " + ", ".join(str(h.line + 1) for h in found))
    if found:
        return found[0]
    near = near_names(wanted, [(h.text, h.text) for h in known])
    raise ToolError("not_found", f"there is no heading {heading!r}", "near: " + "; ".join(near) if near else "see documents_get_outline")


def insert_section(body: str, heading: str, text: str, level: int, after: str | None) -> str:
    """The text with a new section at its end, or behind the section `after`."""
    new = f"{'#' * level} {heading.strip()}\n\n{text.strip()}"
    if after is None:
        return "\n\n".join(part for part in (body.rstrip(), new) if part) + "\n"
    lines = body.split("\n")
    end = section(body, after).end
    before, behind = "\n".join(lines[:end]).rstrip(), "\n".join(lines[end:]).lstrip("\n")
    return "\n\n".join(part for part in (before, new, behind) if part).rstrip("\n") + "\n"
