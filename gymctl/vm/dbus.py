"""As much of the D-Bus protocol as two ends of a socket pair need: no bus, a handful of messages, file descriptors."""

from __future__ import annotations

import array
import contextlib
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gymctl.errors import Unavailable

CALL, RETURN, ERROR = 1, 2, 3
NO_REPLY = 1
PATH, INTERFACE, MEMBER, ERROR_NAME, REPLY_TO, DESTINATION, SIGNATURE, FDS = 1, 2, 3, 4, 5, 6, 8, 9
KINDS = {PATH: "o", INTERFACE: "s", MEMBER: "s", ERROR_NAME: "s", REPLY_TO: "u", DESTINATION: "s", SIGNATURE: "g", FDS: "u"}
MOST_FDS = 4
LARGEST = 256 << 20


@dataclass(frozen=True, slots=True)
class Message:
    """A message that came: `body` is good until the next one is received, the descriptors are the receiver's to close."""

    kind: int
    flags: int
    serial: int
    fields: Mapping[int, str | int]
    body: memoryview
    fds: tuple[int, ...] = ()

    @property
    def member(self) -> str:
        """The method that is called, or the name of an error."""
        return str(self.fields.get(MEMBER) or self.fields.get(ERROR_NAME) or "")


class Link:
    """One end of a connection to QEMU, on which it is the server of the authentication."""

    def __init__(self, link: socket.socket) -> None:
        self._socket = link
        self._serial = 0
        self._body = bytearray(1 << 16)
        link.settimeout(10)
        with contextlib.ExitStack() as undo:
            undo.callback(link.close)
            self._say(b"\0AUTH EXTERNAL " + str(os.getuid()).encode().hex().encode() + b"\r\n", b"OK")
            self._say(b"NEGOTIATE_UNIX_FD\r\n", b"AGREE_UNIX_FD")
            link.sendall(b"BEGIN\r\n")
            undo.pop_all()

    def _say(self, line: bytes, expected: bytes) -> None:
        self._socket.sendall(line)
        answer = b""
        while not answer.endswith(b"\r\n"):
            got = self._socket.recv(1)
            if not got:
                raise Unavailable("QEMU closed its D-Bus display")
            answer += got
        if not answer.startswith(expected):
            raise Unavailable(f"QEMU's D-Bus display answers {answer.decode(errors='replace').strip()!r}")

    def patient(self) -> None:
        """From here on it is waited without a limit."""
        self._socket.settimeout(None)

    def close(self) -> None:
        """End the connection; a thread that waits for a message is woken."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def call(self, path: str, interface: str, member: str, signature: str = "", body: bytes = b"", fds: Sequence[int] = ()) -> int:
        """Call a method; the serial that its answer will name."""
        fields: dict[int, str | int] = {PATH: path, DESTINATION: "org.qemu", INTERFACE: interface, MEMBER: member}
        return self._send(CALL, {**fields, **({SIGNATURE: signature} if signature else {}), **({FDS: len(fds)} if fds else {})}, body, fds)

    def answer(self, to: Message, signature: str = "", body: bytes = b"") -> None:
        """Answer a call, unless it wants none."""
        if to.kind == CALL and not to.flags & NO_REPLY:
            self._send(RETURN, {REPLY_TO: to.serial, **({SIGNATURE: signature} if signature else {})}, body, ())

    def _send(self, kind: int, fields: Mapping[int, str | int], body: bytes, fds: Sequence[int]) -> int:
        self._serial += 1
        listed = b""
        for code, value in fields.items():  # each begins at a multiple of 8; what follows the last one does not count
            listed += bytes(-len(listed) % 8) + _field(code, value)
        head = struct.pack("<cBBBIII", b"l", kind, 0, 1, len(body), self._serial, len(listed))
        data = head + listed + bytes(-len(listed) % 8) + body
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        sent = self._socket.sendmsg([data], ancillary)
        self._socket.sendall(data[sent:])
        return self._serial

    def receive(self) -> Message:
        """The next message; OSError at the end of the connection."""
        head, fds = self._start()
        kind, flags, length, serial, listed = head[1], head[2], *struct.unpack_from("<III", head, 4)
        if length > LARGEST or head[:1] != b"l":
            raise ConnectionResetError("a message that QEMU would not send")
        fields = bytearray((listed + 7) // 8 * 8)
        self._fill(memoryview(fields))
        if length > len(self._body):
            self._body = bytearray(length)
        body = memoryview(self._body)[:length]
        self._fill(body)
        return Message(kind, flags, serial, _fields(bytes(fields[:listed])), body, tuple(fds))

    def _start(self) -> tuple[bytes, array.array[int]]:
        fds, head = array.array("i"), b""
        while len(head) < 16:
            data, ancillary, _, _ = self._socket.recvmsg(16 - len(head), socket.CMSG_SPACE(MOST_FDS * fds.itemsize))
            if not data:
                raise ConnectionResetError("QEMU closed its D-Bus display")
            head += data
            for level, kind, content in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
        return head, fds

    def _fill(self, view: memoryview) -> None:
        while view:
            count = self._socket.recv_into(view)
            if not count:
                raise ConnectionResetError("QEMU closed its D-Bus display")
            view = view[count:]


def text(value: str) -> bytes:
    """A string as D-Bus has it."""
    data = value.encode()
    return struct.pack("<I", len(data)) + data + b"\0"


def _field(code: int, value: str | int) -> bytes:
    kind = KINDS[code]
    made = bytes((code, 1)) + kind.encode() + b"\0"
    if kind == "u":
        return made + struct.pack("<I", value)
    if kind == "g":
        return made + bytes((len(str(value)),)) + str(value).encode() + b"\0"
    return made + text(str(value))


def _fields(data: bytes) -> dict[int, str | int]:
    found: dict[int, str | int] = {}
    at = 0
    while at + 4 < len(data):
        code, kind = data[at], chr(data[at + 2])
        at += 4  # code, length of the signature (1), the signature, its end
        if kind == "u":
            found[code] = struct.unpack_from("<I", data, at)[0]
            at += 4
        elif kind == "g":
            found[code] = data[at + 1 : at + 1 + data[at]].decode()
            at += data[at] + 2
        else:
            length = struct.unpack_from("<I", data, at)[0]
            found[code] = data[at + 4 : at + 4 + length].decode()
            at += length + 5
        at += -at % 8
    return found
