"""Frames straight from QEMU: by `screendump` (any QEMU), or by its D-Bus display, which pushes every change to us as it happens."""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from gymctl.errors import EnvError, Unavailable, Unsupported
from gymctl.vm.dbus import CALL, ERROR, REPLY_TO, Link, Message, text
from gymctl.vm.qmp import Qmp, Refused

BGRX_FORMATS = (0x20020888, 0x20028888)
"""pixman's x8r8g8b8 and a8r8g8b8."""
FIRST_FRAME_SECONDS = 5.0
BUFFER = 8 << 20
MOVED_SECONDS = 0.5
MAP_INTERFACE = "org.qemu.Display1.Listener.Unix.Map"
DBUS_HINT = "start it with `--opt display=dbus`"


@dataclass(frozen=True, slots=True)
class Frame:
    """Rows of pixels, one after the other: `order` is RGB (3 bytes) or BGRX (4). `sequence` counts changes, `time` is Unix seconds."""

    pixels: bytes | bytearray | memoryview
    width: int
    height: int
    order: str
    sequence: int
    time: float


class Display(Protocol):
    """Where frames come from."""

    def frame(self, *, cursor: bool = False) -> Frame:
        """The newest one, as a copy of one's own; `cursor`: with the mouse's in it. Unavailable."""

    def wait(self, after: int, seconds: float) -> int:
        """Wait until there is a frame newer than sequence `after`, or the time is up; the sequence then."""

    def size(self) -> tuple[int, int]:
        """Width and height now; a guest may change them."""

    def close(self) -> None:
        """Let go of QEMU."""


class Screendump:
    """A picture on demand, written by QEMU into memory that both have open: no file, no path."""

    def __init__(self, qmp: Qmp, device: str = "video0", head: int = 0) -> None:
        self._qmp, self._device, self._head = qmp, device, head
        self._memory = os.memfd_create("frame", os.MFD_CLOEXEC)
        self._write = os.open(f"/proc/self/fd/{self._memory}", os.O_WRONLY | os.O_CLOEXEC)
        self._set = qmp.execute("add-fd", fds=[self._write])["fdset-id"]
        self._last: Frame | None = None

    def frame(self, *, cursor: bool = False) -> Frame:
        """The screen as it is now."""
        if cursor:
            raise Unsupported("a screendump has no mouse cursor in it", hint=DBUS_HINT)
        os.lseek(self._write, 0, os.SEEK_SET)
        taken = time.time()
        try:
            self._qmp.execute("screendump", filename=f"/dev/fdset/{self._set}", device=self._device, head=self._head)
        except Refused as error:
            raise Unavailable(f"there is no picture of this machine: {error.message}", hint="has its display a mode yet?") from error
        width, height, start = _ppm(os.pread(self._memory, 64, 0))
        pixels = bytearray(width * height * 3)
        if os.preadv(self._memory, [pixels], start) != len(pixels):
            raise EnvError("QEMU wrote half a picture")
        last = self._last
        changed = last is None or last.pixels != pixels
        self._last = Frame(pixels, width, height, "RGB", (last.sequence if last else 0) + changed, taken)
        return self._last

    def wait(self, after: int, seconds: float) -> int:
        """Look again and again: QEMU does not say when something changes here."""
        until = time.monotonic() + seconds
        while (now := self.frame().sequence) <= after and time.monotonic() < until:
            threading.Event().wait(0.005)
        return now

    def size(self) -> tuple[int, int]:
        """That of the last frame, or of a new one."""
        last = self._last or self.frame()
        return last.width, last.height

    def close(self) -> None:
        """Give the memory back."""
        with contextlib.suppress(EnvError, Unavailable):
            self._qmp.execute("remove-fd", fdset_id=self._set)
        os.close(self._write)
        os.close(self._memory)


def _ppm(head: bytes) -> tuple[int, int, int]:
    """Width, height, and where the pixels begin."""
    kind, size, most, _ = (head + b"\n").split(b"\n", 3)
    if kind != b"P6" or most != b"255":
        raise EnvError("QEMU wrote a picture that is no PPM")
    width, height = map(int, size.split())
    return width, height, len(kind) + len(size) + len(most) + 3


class Pushed:
    """QEMU's D-Bus display without a bus: it calls us for every change, and the newest frame is always here."""

    def __init__(self, qmp: Qmp, console: int = 0) -> None:
        self._news = threading.Condition()
        self._pixels: bytearray | memoryview = bytearray()
        self._map: mmap.mmap | None = None
        self._size = (0, 0, 0)
        self._sequence = 0
        self._time = 0.0
        self._ended = ""
        self._mouse: tuple[int, int, bool] = (0, 0, False)
        self._shape: tuple[int, int, bytes] = (0, 0, b"")
        self.moves = 0
        """How often the guest's X server has put its cursor somewhere."""
        _painted(qmp)
        with contextlib.ExitStack() as undo:
            self._main = _connect(qmp)
            undo.callback(self._main.close)
            self._link = self._listen(console)
            undo.callback(self._link.close)
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
            with self._news:
                if not self._news.wait_for(lambda: self._sequence or self._ended, FIRST_FRAME_SECONDS):
                    raise Unavailable(f"console {console} of this machine showed nothing for {FIRST_FRAME_SECONDS:g} s", hint="has its display a mode yet?")
                self._check()
            undo.pop_all()

    def _listen(self, console: int) -> Link:
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                end.setsockopt(socket.SOL_SOCKET, option, BUFFER)
        path = f"/org/qemu/Display1/Console_{console}"
        with theirs:
            serial = self._main.call(path, "org.qemu.Display1.Console", "RegisterListener", "h", struct.pack("<I", 0), [theirs.fileno()])
        try:
            link = Link(ours)
        except (Unavailable, OSError) as error:
            raise Unsupported(f"this machine has no console {console}", hint="consoles are counted from 0") from error
        reply = self._main.receive()
        while reply.fields.get(REPLY_TO) != serial:
            reply = self._main.receive()
        if reply.kind == ERROR:
            link.close()
            raise Unsupported(f"this machine has no console {console}: {reply.member}", hint="consoles are counted from 0")
        link.patient()
        return link

    def _run(self) -> None:
        heard = {
            "Scanout": self._scanout, "Update": self._update, "ScanoutMap": self._scanout_map, "UpdateMap": lambda body, fds: self._changed(),
            "Disable": lambda body, fds: None, "MouseSet": self._mouse_set, "CursorDefine": self._cursor_define,
        }  # fmt: skip
        try:
            while True:
                message = self._link.receive()
                with self._news:
                    if message.kind == CALL and message.member in heard:
                        heard[message.member](message.body, message.fds)
                        self._news.notify_all()
                for fd in message.fds:
                    os.close(fd)
                self._reply(message)
        except (OSError, struct.error, ValueError, EnvError) as error:
            with self._news:
                self._ended = str(error) or type(error).__name__
                self._news.notify_all()

    def _reply(self, message: Message) -> None:
        if message.member in ("GetAll", "Get"):
            names = struct.pack("<I", len(text(MAP_INTERFACE))) + text(MAP_INTERFACE)
            variant = b"\2as\0" + names if message.member == "Get" else b""
            entry = text("Interfaces") + b"\2as\0"
            entry += bytes(-len(entry) % 4) + names
            body = variant if variant else struct.pack("<II", len(entry), 0) + entry
            self._link.answer(message, "v" if variant else "a{sv}", body)
        else:
            self._link.answer(message)

    def _changed(self) -> None:
        self._sequence += 1
        self._time = time.time()

    def _scanout(self, body: memoryview, fds: tuple[int, ...]) -> None:
        width, height, stride, form, length = struct.unpack_from("<IIIII", body)
        _bgrx(form)
        self._unmap()
        self._pixels, self._size = bytearray(body[20 : 20 + length]), (width, height, stride)
        self._changed()

    def _update(self, body: memoryview, fds: tuple[int, ...]) -> None:
        x, y, width, height, stride, form, length = struct.unpack_from("<iiiiIII", body)
        _bgrx(form)
        across, down, ours = self._size
        width, height = min(width, across - x), min(height, down - y)
        data = body[28 : 28 + length]
        if x == 0 and stride == ours and width == across:
            start = y * ours
            self._pixels[start : start + min(len(data), height * ours)] = data[: height * ours]
        else:
            for row in range(height):
                start = (y + row) * ours + x * 4
                self._pixels[start : start + width * 4] = data[row * stride : row * stride + width * 4]
        self._changed()

    def _scanout_map(self, body: memoryview, fds: tuple[int, ...]) -> None:
        _, offset, width, height, stride, form = struct.unpack_from("<IIIIII", body)
        _bgrx(form)
        self._unmap()
        self._map = mmap.mmap(fds[0], 0, mmap.MAP_SHARED, mmap.PROT_READ)
        self._pixels, self._size = memoryview(self._map)[offset : offset + height * stride], (width, height, stride)
        self._changed()

    def _unmap(self) -> None:
        if self._map is not None and isinstance(self._pixels, memoryview):
            self._pixels.release()
            self._map.close()
            self._map = None

    def _mouse_set(self, body: memoryview, fds: tuple[int, ...]) -> None:
        x, y, shown = struct.unpack_from("<iii", body)
        self._mouse = (x, y, bool(shown))
        self.moves += 1

    def _cursor_define(self, body: memoryview, fds: tuple[int, ...]) -> None:
        width, height, _, _, length = struct.unpack_from("<iiiiI", body)
        self._shape = (width, height, bytes(body[20 : 20 + length]))

    def frame(self, *, cursor: bool = False) -> Frame:
        """A copy of the newest frame; one that a guest painted into meanwhile is copied again."""
        with self._news:
            self._check()
            if cursor and not self._shape[0]:
                hint = "it is told when the guest changes it; the frames of the guest's server always have it drawn in"
                raise EnvError("QEMU has not been told what the mouse cursor looks like since this machine was restored", hint=hint)
            width, height, stride = self._size
            pixels = bytearray(self._pixels) if cursor or stride != width * 4 else bytes(self._pixels)
            if stride != width * 4:
                pixels = bytearray().join(pixels[row * stride : row * stride + width * 4] for row in range(height))
            made = Frame(pixels, width, height, "BGRX", self._sequence, self._time)
            if cursor and isinstance(pixels, bytearray):
                self._draw(pixels, width, height)
        return made

    def _draw(self, pixels: bytearray, width: int, height: int) -> None:
        """QEMU tells where the shape's corner is, its hot spot taken off."""
        left, top, shown = self._mouse
        across, down, shape = self._shape
        for number in range(across * down if shown else 0):
            blue, green, red, alpha = shape[number * 4 : number * 4 + 4]
            x, y = left + number % across, top + number // across
            if alpha and 0 <= x < width and 0 <= y < height:
                at = (y * width + x) * 4
                for place, value in enumerate((blue, green, red)):
                    pixels[at + place] = min(255, value + pixels[at + place] * (255 - alpha) // 255)

    def wait(self, after: int, seconds: float) -> int:
        """Woken by the change itself."""
        with self._news:
            self._news.wait_for(lambda: self._sequence > after or self._ended, seconds)
            self._check()
            return self._sequence

    def wait_moved(self, after: int, seconds: float) -> int:
        """Wait until the X server has put its cursor somewhere more often than `after` times; how often it has."""
        with self._news:
            self._news.wait_for(lambda: self.moves > after or self._ended, seconds)
            self._check()
            return self.moves

    def moved(self, send: Callable[[], None]) -> None:
        """Send a movement, and wait a moment until the X server has put its cursor somewhere."""
        before = self.moves
        send()
        self.wait_moved(before, MOVED_SECONDS)

    def size(self) -> tuple[int, int]:
        """As QEMU has told it last."""
        return self._size[:2]

    @property
    def mouse(self) -> tuple[int, int, bool]:
        """Where the corner of the cursor's shape is, and whether it is shown."""
        return self._mouse

    def _check(self) -> None:
        if self._ended:
            raise Unavailable(f"QEMU's display has ended: {self._ended}", hint="`gymctl ps` shows what runs")

    def close(self) -> None:
        """Let go of QEMU."""
        self._link.close()
        self._main.close()
        self._thread.join(5)
        self._unmap()


def _painted(qmp: Qmp) -> None:
    """QEMU does not paint what nobody looks at: who comes first would be given what was there before."""
    dump = Screendump(qmp)
    with contextlib.closing(dump), contextlib.suppress(Unavailable):
        dump.frame()


def _connect(qmp: Qmp) -> Link:
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            qmp.execute("getfd", fdname="display", fds=[theirs.fileno()])
            qmp.execute("add_client", protocol="@dbus-display", fdname="display")
        except Refused as error:
            ours.close()
            raise Unavailable(f"this machine has no D-Bus display: {error.message}", hint=DBUS_HINT) from error
    return Link(ours)


def _bgrx(form: int) -> None:
    if form not in BGRX_FORMATS:
        raise EnvError(f"the guest's screen has pixels of a format that is not read here: {form:#x}")
