"""The file of X cookies: what lets a program of the session in."""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path

LOCAL, WILD = 256, 0xFFFF
"""Families of addresses: this host by its name, any host."""


def entry(cookie: bytes, family: int, host: str = "", number: str = "") -> bytes:
    """One line of the file."""
    parts = (host.encode(), number.encode(), b"MIT-MAGIC-COOKIE-1", cookie)
    return struct.pack(">H", family) + b"".join(struct.pack(">H", len(part)) + part for part in parts)


def add_name(host: str) -> None:
    """Let clients that look for this host's name find the cookie under its new one."""
    path = Path(os.environ.get("XAUTHORITY", "/nonexistent"))
    number = os.environ.get("DISPLAY", ":0").partition(":")[2].partition(".")[0]
    with contextlib.suppress(OSError):
        content = path.read_bytes()
        path.write_bytes(entry(content[-16:], LOCAL, host, number) + content)
