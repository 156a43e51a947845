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


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)`, or nothing."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean {found[0]!r}?)" if found else ""
