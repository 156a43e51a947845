"""What the element of an event says of it beside its text: its state as classes, and where and when it is."""

from __future__ import annotations

from datetime import datetime

from _web.pages import Page
from markupsafe import Markup, escape

from .occurrences import Seen


def classes(seen: Seen, now: datetime) -> str:
    """Its color, the viewer's answer, and whether it is over."""
    answer = " asked" if seen.unanswered else " maybe" if seen.response == "tentative" else " declined" if seen.faded else ""
    return f"c-{seen.color}{answer}{' past' if seen.what.end <= now else ''}"


def attrs(page: Page, seen: Seen, id: str) -> Markup:
    """Its id and address; where the viewer may move it, what the page's script needs for that."""
    what, ref = seen.what, escape(seen.ref)
    found = f'id="{escape(id)}" href="/events/{ref}?back={escape(page.here_quoted)}" data-dialog'
    if seen.can_edit:
        found += f' data-ref="{ref}" data-start="{what.start.isoformat()[:16]}" data-end="{what.end.isoformat()[:16]}"'
        found += f"{' data-all-day' if what.all_day else ''}{' data-series' if what.is_series else ''}"
    return Markup(found)  # noqa: S704 - its parts are escaped, or times
