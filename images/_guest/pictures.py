"""Frames as pictures: PNG, JPEG or raw pixels, and what was lost on the way."""

from __future__ import annotations

import io
from dataclasses import dataclass

from .faults import bad, did_you_mean
from .frames import Frame

FORMATS = {"raw": "application/octet-stream", "png": "image/png", "jpeg": "image/jpeg"}
ALIASES = {"jpg": "jpeg", "bgrx": "raw"}
JPEG_QUALITY = 80
LARGEST = 16384


@dataclass(frozen=True)
class Wanted:
    """What a client asks for: a format, a JPEG quality, and a size (None: the screen's own)."""

    format: str = "raw"
    quality: int = JPEG_QUALITY
    size: tuple[int, int] | None = None


@dataclass(frozen=True)
class Picture:
    """Encoded (or raw BGRX) bytes, their type and size, and notes on what is less than was asked for."""

    content: bytes
    type: str
    size: tuple[int, int]
    notes: list[str]


def wanted(query: dict[str, str], default: str) -> Wanted:
    """What a query string asks for; 400 for a format, a quality or a size that does not exist."""
    form = query.get("format", default).lower()
    form = ALIASES.get(form, form)
    if form not in FORMATS:
        raise bad(f"no format {form!r}{did_you_mean(form, FORMATS)}", f"one of {', '.join(FORMATS)}")
    quality = _number(query, "quality", JPEG_QUALITY, 1, 100)
    width, height = _number(query, "width", 0, 1, LARGEST), _number(query, "height", 0, 1, LARGEST)
    if bool(width) != bool(height):
        raise bad("width and height go together")
    return Wanted(form, quality, (width, height) if width else None)


def _number(query: dict[str, str], name: str, default: int, least: int, most: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise bad(f"{name}={text!r} is no whole number from {least} to {most}")
    return int(text)


def picture(frame: Frame, want: Wanted) -> Picture:
    """A frame in the form that was asked for. It is never enlarged: a screen smaller than asked for is given as it is, with a note."""
    size = (frame.width, frame.height)
    notes = []
    target = size
    if want.size and want.size != size:
        if want.size[0] > size[0] or want.size[1] > size[1]:
            notes.append(f"smaller than asked: {_by(want.size)} was asked for, and the screen is {_by(size)}, start it with RESOLUTION={_by(want.size)}")
        else:
            target = want.size
            notes.append(f"reduced: the screen is {_by(size)}, and {_by(target)} was asked for")
    if want.format == "jpeg":
        notes.append(f"lossy: JPEG of quality {want.quality}, and format=png is exact")
    if want.format == "raw" and target == size:
        return Picture(_rows(frame), FORMATS["raw"], size, notes)
    return Picture(_encoded(frame, want, target), FORMATS[want.format], target, notes)


def _rows(frame: Frame) -> bytes:
    if frame.stride == frame.width * 4:
        return bytes(frame.pixels)
    return b"".join(bytes(frame.pixels[y * frame.stride : y * frame.stride + frame.width * 4]) for y in range(frame.height))


def _encoded(frame: Frame, want: Wanted, target: tuple[int, int]) -> bytes:
    from PIL import Image  # not paid by a client that takes raw frames

    image = Image.frombuffer("RGB", (frame.width, frame.height), bytes(frame.pixels), "raw", "BGRX", frame.stride, 1)
    if target != image.size:
        image = image.resize(target, Image.Resampling.BOX)
    if want.format == "raw":
        red, green, blue = image.split()
        return bytes(Image.merge("RGBX", (blue, green, red, Image.new("L", target, 255))).tobytes())
    out = io.BytesIO()
    if want.format == "png":
        image.save(out, "png", compress_level=1)  # a third of the time of the default level
    else:
        image.save(out, "jpeg", quality=want.quality)
    return out.getvalue()


def _by(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"
