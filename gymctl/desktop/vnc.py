"""A desktop's VNC: where it is now, and whether it greets."""

from __future__ import annotations

import contextlib
import json
import socket
from dataclasses import dataclass
from pathlib import Path

from gymctl.errors import Unavailable, Unsupported

VARIABLE = "VNC_PORT"
"""What a recipe's `ports` calls it."""
GREETING = b"RFB "
GREETING_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class Address:
    """Where a VNC viewer connects on this machine, and the password."""

    port: int
    password: str

    @property
    def url(self) -> str:
        """vnc://127.0.0.1:5901"""
        return f"vnc://127.0.0.1:{self.port}"


def number(directory: Path) -> int:
    """The port of VNC inside, as the recipe of an instance's directory says; Unsupported when it has none."""
    from gymctl import marked, recipe

    ports = marked.load(directory / "recipe.yaml").convert(recipe.Recipe).ports
    if VARIABLE not in ports:
        raise Unsupported(f"{directory.name} has no VNC: its recipe publishes no port {VARIABLE}", hint=f"`ports: {{{VARIABLE}: 5900}}` in the recipe")
    return ports[VARIABLE]


def address(directory: Path, inside: int) -> Address:
    """Where it is now: read anew each time, since a reset may change it. Unavailable while it is not started."""
    try:
        record = json.loads((directory / "instance.json").read_text())
    except (OSError, ValueError) as error:
        raise Unavailable(f"{directory.name} is gone", hint="`gymctl ps` shows what runs") from error
    port = ((record.get("handle") or {}).get("ports") or {}).get(str(inside))
    if not port:
        raise Unavailable(f"{directory.name} has no display now: its VNC port is not published", hint="it is being started; `gymctl ps` shows its ports")
    return Address(int(port), record.get("secrets", {}).get("VNC_PASSWORD", ""))


def check(where: Address, name: str) -> None:
    """Unavailable when VNC refuses the connection, or takes it and says nothing: then there is no display behind it."""
    try:
        link = socket.create_connection(("127.0.0.1", where.port), GREETING_TIMEOUT)
    except OSError as error:
        why = f"VNC refused: nothing listens at 127.0.0.1:{where.port}"
        raise Unavailable(why, hint=f"`gymctl logs {name}` shows whether its X server runs; `gymctl reset {name}` starts it anew") from error
    said = b""
    with link, contextlib.suppress(OSError):
        said = link.recv(len(GREETING))
    if said != GREETING:
        why = f"no display: 127.0.0.1:{where.port} takes the connection, and no X server greets there"
        raise Unavailable(why, hint=f"`gymctl logs {name}` shows why its X server ended; `gymctl reset {name}` starts it anew")
