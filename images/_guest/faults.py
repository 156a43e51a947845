"""What goes wrong, as the answer that says so: status, type, message, the way out."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class Fault(Exception):
    """An answer that is an error: HTTP status, short type word, message, hint, and further fields of `error`."""

    def __init__(self, status: int, type: str, message: str, hint: str = "", **extra: Any) -> None:
        super().__init__(message)
        self.status = status
        self.type = type
        self.message = message
        self.hint = hint
        self.extra = extra

    def body(self) -> dict[str, Any]:
        """The JSON answer: ours, and `status` and `message` where OSWorld's clients look."""
        error = {"type": self.type, "message": self.message, "hint": self.hint, **self.extra}
        return {"error": error, "detail": self.message, "status": "error", "message": self.message}


def bad(message: str, hint: str = "") -> Fault:
    """400: the request cannot be meant as it stands."""
    return Fault(400, "BadRequest", message, hint)


def seconds(value: Any, what: str, most: float, least: float = 0.0) -> float:
    """A time from a request; 400 for what is none, or is too short or too long."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise bad(f"{what} {value!r} is no time", f"seconds, {least:g} to {most:g}")
    return float(value)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)`, or nothing."""
    found = difflib.get_close_matches(word.lower(), list(known), n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""
