"""What a one-shot browser step costs: `python -m tests.bench.bench_browser`. Whole processes, against `ps --json` plus the gesture itself."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench import bound, pairs, percentile
from tests.bench.bench_cli import gymctl
from tests.conftest import ROOT, Cli

SITE = str(ROOT / "tests/fakes/site")
GESTURES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "scroll": (["scroll", "10"], {"dy": 10}),
    "fill": (["fill", "#title", "Lunch"], {"selector": "#title", "value": "Lunch"}),
    "snapshot": (["snapshot"], {}),
}
ALLOWED_MS = 100


def main() -> int:
    """Run all; 1 when a goal is missed."""
    cli = Cli(Path(tempfile.mkdtemp(prefix="bench-")))
    quiet: dict[str, Any] = {"env": cli.env, "stdout": subprocess.DEVNULL, "check": True}
    try:
        cli("run", SITE, "--runner", "local", "--port", "0")
        cli("reset", "site")
        began = time.perf_counter()
        cli("step", "site", "goto", "/")
        print(f"first step, which starts the browser: {time.perf_counter() - began:.2f} s")
        met = []
        for name, (words, args) in GESTURES.items():
            step = [*gymctl(), "step", "site", *words]
            ours, ps = pairs(lambda step=step: subprocess.run(step, **quiet), lambda: subprocess.run([*gymctl(), "ps", "--json"], **quiet), 25)  # type: ignore[misc]
            itself = kept(cli, name, args)
            print(f"one-shot {name}: {shown(ours)}, ps --json {shown(ps)}, the gesture over a kept connection {shown(itself)}")
            beyond = statistics.median(itself) + statistics.median(ps)
            met.append(bound(f"one-shot {name} less the gesture and ps --json", [taken - beyond for taken in ours], ALLOWED_MS))
    finally:
        cli.close()
    return 0 if all(met) else 1


def shown(values: list[float]) -> str:
    """Median and 95th percentile in milliseconds."""
    return f"{statistics.median(values) * 1000:.1f} (p95 {percentile(values, 0.95) * 1000:.1f}) ms"


def kept(cli: Cli, action: str, args: dict[str, Any]) -> list[float]:
    """Seconds of a gesture through `step --stdin`, the process's start not counted."""
    child = subprocess.Popen([*gymctl(), "step", "site", "--stdin"], env=cli.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    assert child.stdin is not None
    assert child.stdout is not None
    taken = []
    with child:
        for _ in range(30):
            began = time.perf_counter()
            child.stdin.write(json.dumps({"action": action, "args": args}) + "\n")
            assert "observation" in json.loads(child.stdout.readline())
            taken.append(time.perf_counter() - began)
        child.stdin.close()
    return taken[5:]


if __name__ == "__main__":
    sys.exit(main())
