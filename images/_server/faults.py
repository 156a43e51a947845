"""What goes wrong at the HTTP surface: one exception with its status, and the one shape in which every error is answered."""

from __future__ import annotations

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
