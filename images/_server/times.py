"""Instants and days as they are stored and as they are shown."""

from __future__ import annotations

import functools
from datetime import UTC, datetime
from zoneinfo import ZoneInfo


@functools.lru_cache(maxsize=65536)
def show_time(stored: str, zone: ZoneInfo) -> str:
    """A stored instant (UTC, `...Z`) or day as rows show it: with `zone`'s offset; a day stays a day."""
    if len(stored) == 10:
        return stored
    return datetime.fromisoformat(stored).astimezone(zone).isoformat()


@functools.lru_cache(maxsize=65536)
def stored_time(text: str, zone: ZoneInfo) -> str:
    """ISO 8601 text (without an offset: in `zone`) as it is stored: `YYYY-MM-DDTHH:MM:SSZ`, or a day unchanged; ValueError."""
    if len(text) == 10:
        return datetime.fromisoformat(text).date().isoformat()
    moment = datetime.fromisoformat(text)
    return utc_text(moment if moment.tzinfo else moment.replace(tzinfo=zone))


def utc_text(moment: datetime) -> str:
    """An aware datetime as it is stored."""
    return moment.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def now_text() -> str:
    """The wall clock as the log records it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
