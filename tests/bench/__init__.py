"""Ratios from one run: ours against a floor or a peer, interleaved, median and 95th percentile. A missed goal is printed as missed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def pairs(ours: Callable[[], object], other: Callable[[], object], count: int = 15) -> tuple[list[float], list[float]]:
    """Seconds of each call, in turn: ours, the other, the other, ours, ...; a pair before that does not count.

    A call may return what ends it: that is called too, and not measured.
    """
    first: list[float] = []
    second: list[float] = []
    for n in range(count + 1):
        for call, taken in ((ours, first), (other, second)) if n % 2 else ((other, second), (ours, first)):
            began = time.perf_counter()
            end = call()
            taken.append(time.perf_counter() - began)
            if callable(end):
                end()
    return first[1:], second[1:]


def percentile(values: list[float], share: float) -> float:
    """The value below which `share` of the values lie."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def report(what: str, ours: list[float], other: list[float], goal: float, *, at_least: bool = False, unit: str = "ms", plus: float = 0.0) -> bool:
    """Print one line: medians, 95th percentiles, the ratio (ours - plus) / other of the medians against its goal; whether it is met."""
    ratio = (statistics.median(ours) - plus) / statistics.median(other)
    met = ratio >= goal if at_least else ratio <= goal
    scale = {"ms": 1000.0, "s": 1.0, "1/s": 1.0}[unit]
    shown = [f"{statistics.median(v) * scale:.1f} (p95 {percentile(v, 0.95) * scale:.1f}) {unit}" for v in (ours, other)]
    print(f"{what}: ours {shown[0]}, other {shown[1]}, ratio {ratio:.2f}, goal {'>=' if at_least else '<='} {goal}: {'met' if met else 'MISSED'}")
    return met


def bound(what: str, values: list[float], goal_ms: float) -> bool:
    """Print one line: the median of `values` (seconds) against a bound in milliseconds; whether it is met."""
    median = statistics.median(values) * 1000
    print(f"{what}: {median:.2f} (p95 {percentile(values, 0.95) * 1000:.2f}) ms, goal <= {goal_ms} ms: {'met' if median <= goal_ms else 'MISSED'}")
    return median <= goal_ms
