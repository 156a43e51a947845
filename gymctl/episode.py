"""What passes between an agent, an environment and whoever judges: Action, Observation, Verdict."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from gymctl.errors import ANSWER_IS_NO, PASSED, NoVerdict

Json = dict[str, Any]
MACHINES = ("desktop",)
"""Kinds that are one machine, in which commands run and which is reset by being started anew; of the others a server resets one session of many."""


@dataclass(frozen=True, slots=True)
class Action:
    """One thing an agent does: the tool's (or gesture's) name, its arguments, and the agent's own id for it."""

    name: str
    args: Json = field(default_factory=dict)
    id: str | int | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """What an action brought: `value` is JSON (for tools: MCP content blocks), `files` were written, `elapsed` in seconds."""

    value: Any
    files: tuple[str, ...] = ()
    elapsed: float = 0.0

    def __getitem__(self, key: str | int) -> Any:
        """A part of the value: `observation["screen"]["path"]`."""
        return self.value[key]

    def json(self) -> Json:
        """The document of `step --json`."""
        return {"observation": self.value, "files": list(self.files), "elapsed": round(self.elapsed, 6)}


@dataclass(frozen=True, slots=True)
class Verdict:
    """passed, failed or none; `score` in [0, 1] or None exactly when there is no verdict; `reason` says why there is none."""

    verdict: Literal["passed", "failed", "none"]
    score: float | None
    checks: list[Json] = field(default_factory=list)
    reason: Json | None = None

    def json(self) -> Json:
        """The document of `verify --json`."""
        return {"verdict": self.verdict, "score": self.score, "checks": self.checks, "reason": self.reason}

    @property
    def exit_code(self) -> int:
        """0 passed, 1 failed, 11 no verdict."""
        return {"passed": PASSED, "failed": ANSWER_IS_NO, "none": NoVerdict.exit_code}[self.verdict]


def entries(path: Path) -> Iterator[Json]:
    """What an episode.jsonl says, oldest first, without a line that a full disk cut off; nothing where there is no such file."""
    for line in path.read_bytes().split(b"\n") if path.exists() else ():  # str.splitlines would also split at what a text in it holds
        try:
            entry = json.loads(line.decode("utf-8", "replace"))
        except ValueError:
            continue
        if isinstance(entry, dict):
            yield entry


def no_verdict(type: str, message: str, checks: list[Json] | None = None) -> Verdict:
    """The third answer: nobody can say. Never counted as 0."""
    return Verdict("none", None, checks or [], {"type": type, "message": message})


def score(value: Any) -> float:
    """A score as a judge or verifier gave it: a finite number from 0 to 1, no bool, no text; ValueError says what it was."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"a score must be a number from 0 to 1, got {type(value).__name__} {value!r}")
    if not math.isfinite(value):
        raise ValueError(f"a score must be finite, got {value!r}")
    if not 0 <= value <= 1:
        raise ValueError(f"a score must lie between 0 and 1, got {value!r}")
    return float(value)
