"""How a verification ends when it has no verdict."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InvalidChecks(Exception):
    """The checks are malformed (HTTP 400 ValidationError); `faults` are all of them as {path, message}."""

    def __init__(self, faults: list[dict[str, str]]) -> None:
        super().__init__("; ".join(f"{f['path']}: {f['message']}" for f in faults))
        self.faults = faults


class ExecutionFailed(Exception):
    """The evaluation failed: a function could not be computed, or the worker died (HTTP 500 ExecutionError)."""


class TimedOut(Exception):
    """The deadline passed and the worker was killed (HTTP 504 VerifierTimeout)."""


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
