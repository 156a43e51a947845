"""The guest channel: JSON lines over a virtio port, from the host to a small root service in the guest. It needs no network and no token."""

from __future__ import annotations

import base64
import itertools
import json
import os
import secrets
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gymctl import wire
from gymctl.errors import EnvError, Unavailable
from gymctl.proc import Result

_ids = itertools.count(1)
LARGEST = 64 << 20


def ask(path: Path, operation: str, *, timeout: float, **arguments: Any) -> dict[str, Any]:
    """Ask the guest for one thing; its answer. Unavailable when it does not answer in time, EnvError when it cannot."""
    number = f"{os.getpid()}-{next(_ids)}"
    line = json.dumps({"id": number, "op": operation, **arguments}).encode() + b"\n"
    deadline = time.monotonic() + timeout
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        try:
            link.settimeout(timeout)
            link.connect(os.fspath(path))
            link.sendall(line)
            reply = _reply(link, number, deadline)
        except TimeoutError as error:
            why = f"the guest did not answer `{operation}` over its channel within {timeout:g} s"
            raise Unavailable(why, hint="it hangs, or has not come so far") from error
        except OSError as error:
            raise Unavailable(f"the guest's channel is broken: {error.strerror or error}", hint="QEMU has ended: `gymctl logs NAME`") from error
    if "error" in reply:
        raise EnvError(f"the guest cannot {operation}: {wire.printable(str(reply['error']))}")
    return reply


def _reply(link: socket.socket, number: str, deadline: float) -> dict[str, Any]:
    """The answer of this number: those to askers who went away before are passed over."""
    buffer = b""
    while True:
        while b"\n" not in buffer:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            link.settimeout(left)
            chunk = link.recv(1 << 16)
            if not chunk:
                raise ConnectionResetError("QEMU closed it")
            buffer += chunk
            if len(buffer) > LARGEST:
                raise ConnectionResetError("the guest's answer is too long")
        line, _, buffer = buffer.partition(b"\n")
        try:
            document = wire.strict(line)
        except ValueError:
            continue  # the end of an answer to somebody who left
        if isinstance(document, dict) and document.get("id") == number:
            return document


def identity(name: str, token: str, *, clock: float | None) -> dict[str, Any]:
    """What makes a clone a machine of its own; `clock`: Unix seconds, None leaves the guest's time as it was saved."""
    mac = bytes([0x52, 0x54, 0x00]) + secrets.token_bytes(3)
    return {
        "time": clock, "entropy": base64.b64encode(secrets.token_bytes(64)).decode(), "machine_id": secrets.token_hex(16),
        "hostname": f"{name.replace('_', '-').replace('.', '-')[:48].strip('-')}-{secrets.token_hex(3)}", "mac": mac.hex(":"), "token": token,
    }  # fmt: skip


def run(path: Path, argv: list[str], *, input: str | None, timeout: float, env: Mapping[str, str] | None = None) -> Result:
    """A command in the guest, by root; at the deadline it is killed in there."""
    reply = ask(path, "run", timeout=timeout + 10, argv=argv, input=input, seconds=timeout, env=dict(env or {}))
    return Result(int(reply["code"]), str(reply["stdout"]), str(reply["stderr"]), bool(reply["timed_out"]))
