"""Files put into a guest: regular ones, whole, their mode kept. Names are bytes on both sides, whatever their encoding."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import quote

from gymctl import wire
from gymctl.errors import EnvError

TIMEOUT = 600.0
LARGEST_KERNEL = 16 << 20
"""Of a file whose size is not to be believed: /proc, /sys."""


def place(path: str) -> str:
    """The guest's address of a file."""
    return f"/files?path={quote(os.fsencode(path), safe='')}"


def put(client: wire.Client, source: str | Path, path: str) -> wire.Reply:
    """A file of this host into the guest, whatever it answers; EnvError when there is none to be read, Unavailable."""
    with _opened(source) as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        with _sized(file) as sent:
            return client.send("PUT", f"{place(path)}&mode={mode:04o}", data=sent, timeout=TIMEOUT)


@contextlib.contextmanager
def _opened(source: str | Path) -> Iterator[BinaryIO]:
    """A regular file; a pipe or a device would never end, or never begin."""
    try:
        with os.fdopen(os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                what = "a directory" if stat.S_ISDIR(os.fstat(file.fileno()).st_mode) else "no regular file"
                raise EnvError(f"cannot read {os.fspath(source)!a}: it is {what}", hint="`tar` makes one file of many", type="file")
            yield cast(BinaryIO, file)
    except OSError as error:
        raise EnvError(f"cannot read {os.fspath(source)!a}: {error.strerror}", type="file") from error


@contextlib.contextmanager
def _sized(file: BinaryIO) -> Iterator[BinaryIO]:
    """The file itself, or a copy of one that says it is empty, or takes no room, and is not so."""
    found = os.fstat(file.fileno())
    if found.st_blocks or found.st_size > io.DEFAULT_BUFFER_SIZE:
        yield file
        return
    with tempfile.TemporaryFile() as copy:
        copy.write(file.read(LARGEST_KERNEL))
        copy.seek(0)
        yield cast(BinaryIO, copy)
