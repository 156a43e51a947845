"""The mouse cursor, which no X server puts into the pixels it hands out: fetched when its shape changes, drawn into a frame."""

from __future__ import annotations

from .x11 import X11, XFIXES, Connection

Run = tuple[int, int, bytes]
"""dx, dy of the first pixel, and opaque BGRX bytes."""
Blend = tuple[int, int, int, tuple[int, int, int]]
"""dx, dy, what remains of the background (0..255), and the premultiplied B, G, R on top of it."""


class Cursor:
    """A cursor's shape, split into runs of opaque pixels (copied) and single translucent ones (blended)."""

    def __init__(self, connection: Connection) -> None:
        image = XFIXES.XFixesGetCursorImage(connection.display)
        if not image:
            self.runs: list[Run] = []
            self.blends: list[Blend] = []
            return
        shape = image.contents
        self.runs, self.blends = _split(shape.pixels[: shape.width * shape.height], shape.width, shape.xhot, shape.yhot)
        X11.XFree(image)

    def draw(self, pixels: memoryview, width: int, height: int, stride: int, x: int, y: int) -> None:
        """Put the cursor with its hot spot at x, y into BGRX `pixels`; what stands out of the screen is cut off."""
        for dx, dy, row in self.runs:
            left, top = x + dx, y + dy
            if 0 <= top < height and left < width and left + len(row) // 4 > 0:
                first, last = max(0, -left), min(len(row) // 4, width - left)
                start = top * stride + (left + first) * 4
                pixels[start : start + (last - first) * 4] = row[first * 4 : last * 4]
        for dx, dy, rest, (blue, green, red) in self.blends:
            left, top = x + dx, y + dy
            if 0 <= top < height and 0 <= left < width:
                at = top * stride + left * 4
                pixels[at] = blue + pixels[at] * rest // 255
                pixels[at + 1] = green + pixels[at + 1] * rest // 255
                pixels[at + 2] = red + pixels[at + 2] * rest // 255


def _split(pixels: list[int], width: int, xhot: int, yhot: int) -> tuple[list[Run], list[Blend]]:
    runs: list[Run] = []
    blends: list[Blend] = []
    for number, argb in enumerate(pixels):
        dx, dy = number % width - xhot, number // width - yhot
        alpha = argb >> 24 & 255
        color = (argb & 255, argb >> 8 & 255, argb >> 16 & 255)
        if alpha == 255:
            last = runs[-1] if runs else None
            if last and last[1] == dy and last[0] + len(last[2]) // 4 == dx:
                runs[-1] = (last[0], dy, last[2] + bytes((*color, 255)))
            else:
                runs.append((dx, dy, bytes((*color, 255))))
        elif alpha:
            # Some themes hold colors above their alpha, which are no premultiplied ones.
            blends.append((dx, dy, 255 - alpha, tuple(min(c, alpha) for c in color)))  # type: ignore[arg-type]  # three of them
    return runs, blends
