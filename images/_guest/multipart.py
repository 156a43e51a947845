"""multipart/form-data and urlencoded forms, read as they stream in: files go to disk, never into memory."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO
from urllib.parse import parse_qsl

from .faults import bad

CHUNK = 1 << 16
LARGEST_FIELD = 1 << 20
LARGEST_HEAD = 1 << 16


@dataclass
class Form:
    """Fields by name, and files by name: open temporary files, at their beginning."""

    fields: dict[str, str] = field(default_factory=dict)
    files: dict[str, IO[bytes]] = field(default_factory=dict)

    def close(self) -> None:
        """Forget the files."""
        for file in self.files.values():
            file.close()


def form(content_type: str, read: Callable[[int], bytes], directory: str | None = None) -> Form:
    """A request's form; 400 when the body is none. `read(n)` gives at most n bytes, b"" at the end."""
    if content_type.startswith("application/x-www-form-urlencoded"):
        return Form(dict(parse_qsl(_all(read), keep_blank_values=True)))
    boundary = re.search(r'boundary="?([^";,\s]{1,200})"?', content_type)
    if not content_type.startswith("multipart/form-data") or not boundary:
        raise bad(f"a form is expected, not {content_type or 'a body without a type'}", "multipart/form-data or application/x-www-form-urlencoded")
    parts = _Parts(read, b"\r\n--" + boundary[1].encode())
    made = Form()
    while (head := parts.head()) is not None:
        name = re.search(r'(?i)content-disposition:[^\r\n]*?\bname="([^"]*)"', head)
        if not name:
            raise bad("a part of the form has no name")
        if re.search(r"(?i)content-disposition:[^\r\n]*?\bfilename\*?=", head):
            made.files[name[1]] = parts.to_file(directory)
        else:
            made.fields[name[1]] = parts.to_text()
    return made


def _all(read: Callable[[int], bytes]) -> str:
    content = b"".join(iter(lambda: read(CHUNK), b""))
    return content.decode("utf-8", "replace")


class _Parts:
    """The parts of a multipart body, one after the other."""

    def __init__(self, read: Callable[[int], bytes], boundary: bytes) -> None:
        self._read = read
        self._boundary = boundary
        self._buffer = b"\r\n"  # the first boundary has no line before it
        self._ended = False
        for _ in self._body():
            pass

    def _more(self) -> None:
        chunk = self._read(CHUNK)
        if not chunk:
            raise bad("the form ends before its last boundary: it was cut off on the way")
        self._buffer += chunk

    def _body(self) -> Iterator[bytes]:
        """What comes before the next boundary, in pieces; the boundary is taken too."""
        while (at := self._buffer.find(self._boundary)) < 0:
            keep = len(self._boundary) - 1
            if len(self._buffer) > keep:
                yield self._buffer[:-keep]
                self._buffer = self._buffer[-keep:]
            self._more()
        yield self._buffer[:at]
        self._buffer = self._buffer[at + len(self._boundary) :]
        while len(self._buffer) < 2:
            self._more()
        self._ended = self._buffer.startswith(b"--")

    def head(self) -> str | None:
        """The next part's headers; None after the last part."""
        if self._ended:
            while self._read(CHUNK):
                pass
            return None
        while (at := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > LARGEST_HEAD:
                raise bad("a part of the form has no end of its headers")
            self._more()
        head, self._buffer = self._buffer[:at], self._buffer[at + 2 :]
        self._buffer = self._buffer[2:] if not self._buffer[2:].startswith(self._boundary[2:]) else self._buffer
        return head.decode("utf-8", "replace")

    def to_text(self) -> str:
        """The part as a text."""
        content = b""
        for piece in self._body():
            content += piece
            if len(content) > LARGEST_FIELD:
                raise bad("a field of the form is too long", "send it as a file")
        return content.decode("utf-8", "replace")

    def to_file(self, directory: str | None) -> IO[bytes]:
        """The part as a temporary file."""
        file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115  # the form closes it
        for piece in self._body():
            file.write(piece)
        file.seek(0)
        return file
