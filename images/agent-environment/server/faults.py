"""What goes wrong at the HTTP surface: one exception with its status, and the one shape in which every error is answered."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class Fault(Exception):
    """An answer that is an error: HTTP status, short type word, message, hint (the way out), and further fields of `error`."""

    def __init__(self, status: int, type: str, message: str, hint: str = "", **extra: Any) -> None:
        super().__init__(message)
        self.status = status
        self.type = type
        self.message = message
        self.hint = hint
        self.extra = extra

    def error(self) -> dict[str, Any]:
        """{type, message, hint, ...} as answers carry it."""
        return {"type": self.type, "message": self.message, "hint": self.hint, **self.extra}

    def body(self) -> dict[str, Any]:
        """The whole JSON answer."""
        return {"error": self.error(), "detail": self.message}


def near(word: str, known: Iterable[str], n: int = 3, cutoff: float = 0.6) -> list[str]:
    """The most similar of `known`, not minding case, best first."""
    by_fold: dict[str, str] = {}
    for name in known:
        by_fold.setdefault(name.lower(), name)
    return [by_fold[m] for m in difflib.get_close_matches(word.lower(), by_fold, n=n, cutoff=cutoff)]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)`, or nothing."""
    found = near(word, known, n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""
