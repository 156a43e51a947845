"""One request on stdin, one answer on stdout, what is being done on stderr.

{url, token, checks, folder, failed, timeout} -> {status, body}: what a verifier answers over HTTP. `failed`: the agent said that it cannot be done.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from pathlib import Path

from gymctl import wire
from gymctl.evaluators import evaluate, reading
from gymctl.evaluators.getters import Guest

MOST_MEMORY = 4 << 30
"""Bytes: a workbook from a guest may unpack to anything."""
SLACK = 10
"""Seconds beyond the deadline, at which gymctl ends us itself."""


def main() -> int:
    """Read, check, evaluate, answer."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    request = json.load(sys.stdin)
    signal.alarm(int(request["timeout"]) + SLACK)  # a gymctl that was killed cannot end us
    try:
        faults = reading.faults(request["checks"])
    except ModuleNotFoundError as error:
        return answer(500, {"error": {"type": "EvaluatorFailed", "message": evaluate.lacking(error)}})
    if faults:
        body = {"error": {"type": "ValidationError", "message": "\n".join(faults), "hint": reading.known()}}
        return answer(400, body)
    client = wire.Client(request["url"], headers={"Authorization": f"Bearer {request['token']}"})
    guest = Guest(client, Path(request["folder"]), float(request["timeout"]), bool(request["failed"]), say)
    try:
        return answer(*evaluate.verdict(guest, request["checks"]))
    finally:
        client.close()


def say(text: str) -> None:
    """The last line tells what was going on when the deadline came."""
    sys.stderr.write(f"{wire.printable(text)}\n")
    sys.stderr.flush()


def answer(status: int, body: object) -> int:
    """Print it."""
    sys.stdout.write(json.dumps({"status": status, "body": body}, allow_nan=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
