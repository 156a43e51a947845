"""The process that reads and evaluates checks, so that whatever they do can be killed: `python -m _verify.worker`.

Frames on stdin and stdout: four bytes of length, then JSON. A request is {"checks", "claims", "vocabulary", "alarm"}; the
answer names what to read, {"needs"}, or {"faults"}; then {"data", "log"} is answered by the verdict or {"failure"}.
"""

from __future__ import annotations

import resource
import signal
import sys
from typing import Any, BinaryIO

import msgspec

from .checks import Vocabulary, read
from .evaluate import evaluate, needs
from .faults import ExecutionFailed, InvalidChecks

MEMORY = 2 << 30


def receive(stream: BinaryIO) -> Any:
    """The next frame, or None at the end."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    return msgspec.json.decode(stream.read(int.from_bytes(head, "big")))


def send(stream: BinaryIO, message: Any) -> None:
    """Write one frame."""
    content = msgspec.json.encode(message)
    stream.write(len(content).to_bytes(4, "big") + content)
    stream.flush()


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """One verification after the other until the stream ends."""
    while (request := receive(source)) is not None:
        # Should the server be killed meanwhile, nobody is left to end a long evaluation: the kernel does it then.
        signal.setitimer(signal.ITIMER_REAL, request["alarm"])
        try:
            checks = read(request["checks"], request["claims"], Vocabulary(**request["vocabulary"]))
        except InvalidChecks as error:
            send(sink, {"faults": error.faults})
        else:
            send(sink, {"needs": needs(checks)})
            found = receive(source)
            if found is None:
                return
            send(sink, _verdict(checks, found))
        signal.setitimer(signal.ITIMER_REAL, 0)


def _verdict(checks: list[Any], found: Any) -> dict[str, Any]:
    try:
        return evaluate(checks, found["data"], found["log"])
    except ExecutionFailed as error:
        return {"failure": str(error)}


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    serve(sys.stdin.buffer, sys.stdout.buffer)
