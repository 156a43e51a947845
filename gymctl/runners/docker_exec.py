"""Runner `docker`, commands inside a container, with both outputs apart and a deadline that ends the command in there."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Any

from gymctl.errors import EnvError, NotFound
from gymctl.proc import Result
from gymctl.runners import docker_engine as engine

if TYPE_CHECKING:
    from docker.api.client import APIClient

# It waits for one line first, so that nothing is printed before somebody reads; then it says its pid, which the command keeps.
WRAPPER = 'read -r _; echo $$; exec "$@"'
START_TIMEOUT = 30.0  # the engine's own time to start it does not count
KILL = 'kill -9 "-$1" 2>/dev/null || kill -9 "$1"'


def run(container: str, argv: list[str], input: str | None, timeout: float) -> Result:
    """Run a command in a container; NotFound for one that is gone, EnvError for one that does not run, or has no `sh`."""
    from docker.errors import APIError
    from docker.errors import NotFound as Gone

    api = engine.client()
    with engine.failures(f"running {argv[0]} in the container"):
        try:
            made = api.exec_create(container, ["sh", "-c", WRAPPER, "sh", *argv], stdin=True)["Id"]
        except Gone as error:
            raise NotFound("the container is gone", hint="`gymctl ps` shows what runs") from error
        except APIError as error:
            raise EnvError(f"no command runs in the container: {engine.reason(error)}", hint="`gymctl ps` shows its state") from error
        return _converse(api, container, made, input, timeout)


def _converse(api: APIClient, container: str, made: str, input: str | None, timeout: float) -> Result:
    stream: Any = api.exec_start(made, socket=True)
    connection: socket.socket = getattr(stream, "_sock", stream)  # docker-py hands out a file over the socket, or the socket
    connection.settimeout(None)
    feeder = threading.Thread(target=_feed, args=(connection, b"\n" + (input or "").encode()), daemon=True)
    feeder.start()  # apart from reading: a command may answer before it has read everything
    raw = bytearray()
    try:
        finished = _read(connection, raw, time.monotonic() + START_TIMEOUT, until=b"\n") or _read(connection, raw, time.monotonic() + timeout)
        pid = _split(raw)[0]
        if not finished and pid.isdigit():
            api.exec_start(api.exec_create(container, ["sh", "-c", KILL, "sh", pid])["Id"], detach=True)
            _read(connection, raw, time.monotonic() + 5)
    finally:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        stream.close()
        connection.close()
    feeder.join(5)
    pid, stdout, stderr = _split(raw)
    if not pid.isdigit():
        raise EnvError(f"no command runs in the container: {pid or stdout or stderr or 'the engine did not start it in time'}")
    code = api.exec_inspect(made)["ExitCode"] if finished else -9
    return Result(code, stdout, stderr, timed_out=not finished)


def _feed(connection: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):  # it ended, or closed its input: its own affair
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)


def _read(connection: socket.socket, raw: bytearray, deadline: float, until: bytes | None = None) -> bool:
    """Read to the end of the stream; False at the deadline, or when `until` has come."""
    while until is None or until not in raw[8:]:  # the first eight bytes are a frame's header
        if not select.select([connection], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return False
        chunk = connection.recv(1 << 16)
        if not chunk:
            return True
        raw += chunk
    return False


def _split(raw: bytearray) -> tuple[str, str, str]:
    """(pid, stdout, stderr) of the engine's frames: one byte which output, three of padding, four of length, the text."""
    outputs, at = {1: bytearray(), 2: bytearray()}, 0
    while at + 8 <= len(raw):
        number, length = struct.unpack_from(">BxxxL", raw, at)
        outputs[2 if number == 2 else 1] += raw[at + 8 : at + 8 + length]
        at += 8 + length
    pid, _, stdout = outputs[1].decode("utf-8", "replace").partition("\n")
    return pid.strip(), stdout, outputs[2].decode("utf-8", "replace")
