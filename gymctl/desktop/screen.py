"""What a desktop shows: frames with what has to be said of them, and the pictures that are kept."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from gymctl import wire
from gymctl.episode import Json
from gymctl.errors import EnvError, Unavailable

if TYPE_CHECKING:
    from PIL.Image import Image

SLACK = 30.0
"""Seconds that a frame may take beyond what it waits for."""
WAITING = ("since", "stable")
SETTLE_TIMEOUT = 10.0
STALE = ("stale", "not stable")
FORMATS = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg"}


@dataclass(frozen=True, slots=True)
class Frame:
    """A picture (PNG, JPEG or raw BGRX rows; none when only looked at), its size in pixels, its number, its age in seconds, and what is not as it should be."""

    content: bytes
    width: int
    height: int
    sequence: int
    age: float
    notes: tuple[str, ...]

    def json(self) -> Json:
        """{resolution: [width, height], sequence, age, notes}"""
        return {"resolution": [self.width, self.height], "sequence": self.sequence, "age": self.age, "notes": list(self.notes)}

    def late(self) -> str:
        """Why it is not the frame that was waited for; "" when it is."""
        return next((note for note in self.notes if note.startswith(STALE)), "")


def take(client: wire.Client, *, look: bool = False, **query: Any) -> Frame:
    """The screen as the guest's /frame gives it (`look`: without a picture); `query` are its own words; EnvError, Unavailable."""
    asked = {name: value for name, value in query.items() if value is not None}
    seconds = float(asked.setdefault("timeout", SETTLE_TIMEOUT)) if any(name in asked for name in WAITING) else 0.0
    reply = client.send("HEAD" if look else "GET", f"/frame?{urlencode(asked)}", timeout=seconds * 2 + SLACK)
    if reply.status >= 400:
        if look:  # such an answer has no body, and so no words: the same again with one
            return take(client, **query)
        raise wire.error_of(reply, client.name)
    head = reply.headers
    notes = tuple(filter(None, wire.printable(head.get("x-frame-notes", "")).split("; ")))
    return Frame(reply.body, int(head["x-frame-width"]), int(head["x-frame-height"]), int(head["x-frame-sequence"]), float(head["x-frame-age"]), notes)


def keep(client: wire.Client, folder: Path, path: str | None = None, **query: Any) -> tuple[Json, str]:
    """Take a picture and write it to `path`, else as the next of a folder: ({path, resolution, sequence, age, notes}, the path)."""
    kind = FORMATS.get(Path(path).suffix.lower(), "") if path else "png"
    if not kind:
        raise EnvError(f"{path} is no picture's name", hint=f"it ends in {', '.join(FORMATS)}", type="file")
    frame = take(client, format=kind, **query)
    try:
        target = Path(path).absolute() if path else _next_file(folder)
        target.write_bytes(frame.content)
    except OSError as error:
        raise EnvError(f"cannot write {path or folder}: {error.strerror}", type="file") from error
    return {"path": str(target), **frame.json()}, str(target)


def _next_file(folder: Path) -> Path:
    """A new file, under the next number: nobody else's, however many take pictures at once."""
    folder.mkdir(parents=True, exist_ok=True)
    number = sum(1 for _ in folder.iterdir())
    while True:
        number += 1
        with contextlib.suppress(FileExistsError):
            path = folder / f"{number:04}.png"
            path.touch(exist_ok=False)
            return path


def image(client: wire.Client, **query: Any) -> tuple[Image, Frame]:
    """The screen as a PIL image (RGB), from raw pixels: nothing is encoded and nothing is written. Unavailable without Pillow."""
    module = pillow()
    frame = take(client, format="raw", **query)
    made: Image = module.frombuffer("RGB", (frame.width, frame.height), frame.content, "raw", "BGRX", 0, 1)
    return made, frame


def pushed(console: Any) -> tuple[Image, Frame]:
    """The same from a runner's own display, as it is now."""
    frame = console.frame()
    made: Image = pillow().frombuffer("RGB", (frame.width, frame.height), frame.pixels, "raw", frame.order, 0, 1)
    return made, Frame(b"", frame.width, frame.height, frame.sequence, max(0.0, round(time.time() - frame.time, 3)), ())


def pillow() -> Any:
    """The module PIL.Image; Unavailable where Pillow is not installed."""
    try:
        from PIL import Image
    except ImportError as error:
        raise Unavailable("fast_io needs the Python package Pillow", hint="pip install 'gymctl[desktop]'") from error
    return Image


