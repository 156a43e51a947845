"""The command line's own cost: `python -m tests.bench.bench_cli`. Whole processes, against `python -c "import click"` and a bare keep-alive loop."""

from __future__ import annotations

import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench import pairs, report
from tests.conftest import RECIPE, Cli

CALL = {"image": "", "tags": {"assignmentId": "bench"}, "toolName": "contacts_search_people", "toolArguments": {"query": "a", "limit": 5}}
STEPS = 2000


def gymctl() -> list[str]:
    """The installed command: what a person types."""
    return [str(Path(sys.executable).parent / "gymctl")]


def main() -> int:
    """Run all; 1 when a goal is missed."""
    cli = Cli(Path(tempfile.mkdtemp(prefix="bench-")))
    quiet = {"env": cli.env, "stdout": subprocess.DEVNULL, "check": True}

    def click() -> object:
        return subprocess.run([sys.executable, "-c", "import click"], **quiet)  # type: ignore[call-overload]

    met = []
    ours, floor = pairs(lambda: subprocess.run([*gymctl(), "ps", "--json"], **quiet), click, 25)  # type: ignore[call-overload]
    met.append(report("ps --json with nothing running / import click", ours, floor, 2.0))
    run = cli("run", RECIPE, "--runner", "local", "--name", "bench", "--port", "0", "--json").json
    try:
        port = int(run["url"].rpartition(":")[2])
        connection = http.client.HTTPConnection("127.0.0.1", port)
        bare = [once(connection) for _ in range(200)]
        step = [*gymctl(), "step", "bench", "contacts_search_people", "query=a", "limit:=5"]
        ours, floor = pairs(lambda: subprocess.run(step, **quiet), click, 25)  # type: ignore[call-overload]
        met.append(report("one-shot step less the bare answer / import click", ours, floor, 4.0, plus=statistics.median(bare)))
        rates = [(stdin_rate(cli), bare_rate(connection)) for _ in range(15)]
        met.append(report("step --stdin / bare keep-alive loop", [a for a, _ in rates], [b for _, b in rates], 0.6, at_least=True, unit="1/s"))
    finally:
        cli.close()
    return 0 if all(met) else 1


def once(connection: http.client.HTTPConnection) -> float:
    """Seconds of one bare call."""
    began = time.perf_counter()
    connection.request("POST", "/call-tools", json.dumps(CALL), {"Content-Type": "application/json"})
    json.loads(connection.getresponse().read())
    return time.perf_counter() - began


def bare_rate(connection: http.client.HTTPConnection) -> float:
    """Calls a second of a loop that only sends, reads and parses."""
    began = time.perf_counter()
    for _ in range(STEPS):
        once(connection)
    return STEPS / (time.perf_counter() - began)


def stdin_rate(cli: Cli) -> float:
    """Actions a second through `step --stdin`, one after the other answered; the process's start is not counted."""
    child = subprocess.Popen(
        [*gymctl(), "step", "bench", "--session", "bench", "--stdin"], env=cli.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert child.stdin is not None
    assert child.stdout is not None
    line = json.dumps({"action": CALL["toolName"], "args": CALL["toolArguments"]}) + "\n"
    with child:
        child.stdin.write(line)
        child.stdout.readline()
        began = time.perf_counter()
        for _ in range(STEPS):
            child.stdin.write(line)
            json.loads(child.stdout.readline())
        taken = time.perf_counter() - began
        child.stdin.close()
    return STEPS / taken


if __name__ == "__main__":
    sys.exit(main())
