"""QEMU's control socket: commands by id from any number of threads, events, deadlines, file descriptors. Nothing is ever sent twice."""

from __future__ import annotations

import array
import contextlib
import itertools
import json
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from gymctl.errors import EnvError, Unavailable

CHUNK = 1 << 16
KEPT_EVENTS = 1000
T = TypeVar("T")


class Refused(EnvError):
    """QEMU answered a command with an error; `type` is its class."""


class Qmp:
    """A connection to a running QEMU. Whoever waits for an answer reads for all: no thread of our own stands between the socket and the caller."""

    def __init__(self, path: Path, *, timeout: float = 10) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._ids = itertools.count(1)
        self._sending = threading.Lock()
        self._turn = threading.Condition()
        self._reading = False
        self._ended = ""
        self._buffer = b""
        self._replies: dict[int, dict[str, Any]] = {}
        self._given_up: set[int] = set()
        self._events: list[dict[str, Any]] = []
        self._greeting: dict[str, Any] | None = None
        try:
            self._socket.connect(os.fspath(path))
            self.version: str = _version(self._wait(lambda: self._greeting, timeout, "its greeting"))
            self.execute("qmp_capabilities", timeout=timeout)
        except OSError as error:
            self._socket.close()
            raise Unavailable(f"no QEMU answers at {path}: {error.strerror or error}") from error
        except Unavailable:
            self._socket.close()
            raise

    def close(self) -> None:
        """Let go of the socket; QEMU goes on."""
        self._socket.close()

    def __enter__(self) -> Qmp:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def execute(self, command: str, /, *, timeout: float = 30, fds: Sequence[int] = (), **arguments: Any) -> Any:
        """The answer to one command; Refused, Unavailable at the deadline or when QEMU has gone. `_` in names of arguments is sent as `-`."""
        with self._sending:
            number = next(self._ids)
            self._send({"execute": command, "id": number, **({"arguments": _dashed(arguments)} if arguments else {})}, fds)
        try:
            reply = self._wait(lambda: self._replies.pop(number, None), timeout, f"an answer to {command}")
        except Unavailable:
            self._given_up.add(number)
            raise
        if "error" in reply:
            raise Refused(f"QEMU refused {command}: {reply['error'].get('desc', '')}", type=str(reply["error"].get("class", "")))
        return reply["return"]

    def event(self, *names: str, timeout: float, match: Callable[[dict[str, Any]], bool] = lambda data: True) -> dict[str, Any]:
        """The data of the next event of one of these names (`event` holds which); those before it stay for others. Unavailable at the deadline."""

        def take() -> dict[str, Any] | None:
            for found in self._events:
                data = found.get("data", {})
                if found["event"] in names and match(data):
                    self._events.remove(found)
                    return {**data, "event": found["event"]}
            return None

        return self._wait(take, timeout, f"the event {' or '.join(names)}")

    def _send(self, document: dict[str, Any], fds: Sequence[int]) -> None:
        data = json.dumps(document).encode() + b"\n"
        try:
            if fds:  # the descriptors go with the first byte, in the same message as the command that takes them
                sent = self._socket.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
                data = data[sent:]
            self._socket.sendall(data)
        except OSError as error:
            raise Unavailable(f"QEMU has closed its control socket: {error.strerror}") from error

    def _wait(self, take: Callable[[], T | None], timeout: float, what: str) -> T:
        """What `take` finds once it finds something; one of those who wait reads the socket, the others are woken by it."""
        deadline = time.monotonic() + timeout
        with self._turn:
            while (found := take()) is None:
                left = deadline - time.monotonic()
                if self._ended:
                    raise Unavailable(self._ended)
                if left <= 0:
                    raise Unavailable(f"QEMU did not give {what} within {timeout:g} s", hint="is the machine out of memory, or its disk full?")
                if self._reading:
                    self._turn.wait(left)
                    continue
                with self._reader():
                    data = self._read(left)
                self._take_in(data)
                self._turn.notify_all()
            return found

    @contextlib.contextmanager
    def _reader(self) -> Iterator[None]:
        """While one reads, the others may come and look."""
        self._reading = True
        self._turn.release()
        try:
            yield
        finally:
            self._turn.acquire()
            self._reading = False

    def _read(self, seconds: float) -> bytes | None:
        """What came; nothing at the deadline, None at the end."""
        try:
            if not select.select([self._socket], [], [], seconds)[0]:
                return b""
            return self._socket.recv(CHUNK) or None
        except (OSError, ValueError):
            return None

    def _take_in(self, data: bytes | None) -> None:
        if data is None:
            self._ended = "QEMU has closed its control socket"
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in filter(None, map(bytes.strip, lines)):
            document = json.loads(line)
            if "QMP" in document:
                self._greeting = document["QMP"]
            elif "event" in document:
                self._events.append(document)
                del self._events[:-KEPT_EVENTS]
            elif document.get("id") in self._given_up:
                self._given_up.discard(document["id"])
            else:
                self._replies[document.get("id", 0)] = document


def _dashed(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "-"): value for name, value in arguments.items() if value is not None}


def _version(greeting: dict[str, Any]) -> str:
    """`7.2.22`"""
    numbers = greeting["version"]["qemu"]
    return f"{numbers['major']}.{numbers['minor']}.{numbers['micro']}"


def listener(path: Path) -> socket.socket:
    """A listening socket to hand to QEMU: whoever connects before QEMU is up waits for its greeting, and hears at once when QEMU dies."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.bind(os.fspath(path))
    made.listen(8)
    return made
