"""What the screen shows: frames in shared memory with a sequence and a capture time, taken only when something has changed, and what state the screen is in."""

from __future__ import annotations

import ctypes
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import byref, c_int, c_ubyte, c_ushort
from dataclasses import dataclass

from .cursor import Cursor
from .faults import Fault
from .x11 import (
    ALL_PLANES,
    CONFIGURE_NOTIFY,
    LIBC,
    STRUCTURE_NOTIFY,
    X11,
    XDAMAGE,
    XEXT,
    XFIXES,
    XRANDR,
    XSS,
    XTST,
    Z_PIXMAP,
    Connection,
    SaverInfo,
    ShmSegment,
)

DAMAGE_NON_EMPTY = 3
BUFFERS = 3
"""Frames that can be in use at once before somebody waits for one to be given back."""
CONDITION_AGE = 0.1
"""Seconds that an answer about sleep and modes is good for; a frame of one color asks anew."""
BUFFER_TIMEOUT = 10
SAMPLES = 1999
"""Pixels looked at before all are; a prime, so that they do not stand in columns."""
IPC_RMID = 0
SCREEN_SAVER_ON = 1
SHIFT_KEYCODE = 50


class Buffer:
    """One XImage in shared memory."""

    def __init__(self, connection: Connection, width: int, height: int) -> None:
        self.segment = ShmSegment()
        visual, depth = X11.XDefaultVisual(connection.display, 0), X11.XDefaultDepth(connection.display, 0)
        self.image = XEXT.XShmCreateImage(connection.display, visual, depth, Z_PIXMAP, None, byref(self.segment), width, height)
        if not self.image or self.image.contents.bits_per_pixel != 32:
            raise Fault(503, "NoDisplay", f"the screen has {depth} bits a pixel, and 24 are needed", "start X with -depth 24")
        self.stride: int = self.image.contents.bytes_per_line
        self.length = self.stride * height
        self.segment.shmid = LIBC.shmget(0, self.length, 0o1600)
        if self.segment.shmid < 0:
            raise Fault(503, "NoMemory", f"no shared memory for a frame: {ctypes.get_errno()}", "give the guest more memory, or a larger /dev/shm")
        self.address = self.segment.shmaddr = self.image.contents.data = LIBC.shmat(self.segment.shmid, None, 0)
        XEXT.XShmAttach(connection.display, byref(self.segment))
        errors = connection.sync()
        LIBC.shmctl(self.segment.shmid, IPC_RMID, None)  # it lives on until both sides have let go
        if errors:
            raise Fault(503, "NoDisplay", "the X server cannot attach shared memory", "run the guest's server on the machine of its X server")
        self.pixels = memoryview((c_ubyte * self.length).from_address(self.address)).cast("B")
        self.users = 0

    def free(self, connection: Connection) -> None:
        """Give the memory back."""
        if not connection.dead:
            XEXT.XShmDetach(connection.display, byref(self.segment))
            connection.sync()
        self.pixels.release()
        LIBC.shmdt(self.address)


@dataclass(frozen=True)
class Frame:
    """Pixels (BGRX rows of `stride` bytes) valid while it is held, and what is known of them.

    `sequence` counts changes of what is seen; `time` is the capture's Unix time; `state` is ok, one-color, asleep, woken or unmoded.
    """

    buffer: Buffer
    width: int
    height: int
    sequence: int
    time: float
    state: str

    @property
    def pixels(self) -> memoryview:
        """The rows, one after the other."""
        return self.buffer.pixels

    @property
    def stride(self) -> int:
        """Bytes from one row to the next."""
        return self.buffer.stride


class Screen:
    """Takes frames over a connection of its own; any number of threads may ask."""

    def __init__(self, name: str) -> None:
        self.connection = Connection(name)
        self.epoch = secrets.token_hex(4)
        """Of this screen since it was connected: sequences of two epochs are not to be compared."""
        with self.connection.held():
            self._damage_event = self._extension("DAMAGE", XDAMAGE.XDamageQueryExtension)
            self._cursor_event = self._extension("XFIXES", XFIXES.XFixesQueryExtension) + 1
            self._extension("RANDR", XRANDR.XRRQueryExtension)
            self._dpms = bool(XEXT.DPMSQueryExtension(self.connection.display, byref(c_int()), byref(c_int())))
            self._saver = bool(XSS.XScreenSaverQueryExtension(self.connection.display, byref(c_int()), byref(c_int())))
            if not XEXT.XShmQueryExtension(self.connection.display):
                raise Fault(503, "NoDisplay", "the X server lacks MIT-SHM", "start it without -extension MIT-SHM")
            X11.XSelectInput(self.connection.display, self.connection.root, STRUCTURE_NOTIFY)
            XFIXES.XFixesSelectCursorInput(self.connection.display, self.connection.root, 1)
            self._damage = XDAMAGE.XDamageCreate(self.connection.display, self.connection.root, DAMAGE_NON_EMPTY)
        self._returned = threading.Condition()
        self._size = (0, 0)
        self._buffers: list[Buffer] = []
        self._last: Frame | None = None
        self._seen: tuple[int, int] | None = None
        self._cursor: Cursor | None = None
        self._changed = True
        self._sequence = 0
        self._paints = self._began = 0
        self._condition = ("ok", 0.0)
        self._tried_to_wake = False

    def _extension(self, name: str, query: ctypes._NamedFuncPointer) -> int:
        event, error = c_int(), c_int()
        if not query(self.connection.display, byref(event), byref(error)):
            raise Fault(503, "NoDisplay", f"the X server lacks the extension {name}", "use Xorg or Xvnc with its usual extensions")
        return event.value

    def renew(self) -> None:
        """What was seen so far was another machine's: the next frame is taken anew, and its sequence is of another epoch."""
        with self.connection.held():
            self.epoch = secrets.token_hex(4)
            self._changed = True

    def sequence(self) -> int:
        """The number of changes so far; no pixel is touched, so asking for an unchanged screen costs nothing."""
        with self.connection.held():
            x, y, _ = self.connection.pointer()  # a round trip: what was painted before it has been reported now
            self._drain()
            if self._changed or self._seen != (x, y):
                self._changed = False
                self._seen = (x, y)
                self._sequence += 1
                XDAMAGE.XDamageSubtract(self.connection.display, self._damage, 0, 0)  # before the pixels are read: what comes later counts anew
                self.connection.sync()  # not with the next request: until it has come there, nothing is told of what is painted
            return self._sequence

    def _drain(self) -> None:
        for event in self.connection.events():
            kind = ctypes.cast(event, ctypes.POINTER(c_int))[0]
            if kind == self._cursor_event:
                self._cursor = None
            elif kind == CONFIGURE_NOTIFY:
                self._size = (0, 0)
                self._paints += 1
            elif kind == self._damage_event:
                self._paints += 1
            else:
                continue
            self._changed = True

    def wait(self, after: int, seconds: float, count: Callable[[], int] | None = None) -> int:
        """Wait until the sequence (or another count of changes) is over `after`, or the time is up; what it is then."""
        count = count or self.sequence
        until = time.monotonic() + seconds
        while (now := count()) <= after:
            left = until - time.monotonic()
            if left <= 0 or not self.connection.wait(left):
                return count()
        return now

    def paints(self) -> int:
        """How often something was painted so far; a pointer that moves paints nothing."""
        self.sequence()
        return self._paints

    def mark(self) -> None:
        """An action begins: what is painted from now on may have come of it."""
        self._began = self.paints()

    def repainted(self, seconds: float) -> bool:
        """Wait until something has been painted since the last action began; False when the time was up before."""
        return self.wait(self._began, seconds, self.paints) > self._began

    def settle(self, quiet: float, seconds: float) -> bool:
        """Wait until nothing has been painted for `quiet` seconds; False when the time was up before."""
        until = time.monotonic() + seconds
        sequence = self.sequence()
        while time.monotonic() + quiet <= until:
            now = self.wait(sequence, quiet)
            if now == sequence:
                return True
            sequence = now
        return False

    @contextmanager
    def frame(self) -> Iterator[Frame]:
        """The screen as it is now, cursor and all; the same frame again when nothing has changed."""
        frame = self._hold()
        try:
            yield frame
        finally:
            with self._returned:
                frame.buffer.users -= 1
                self._returned.notify()

    def _hold(self) -> Frame:
        with self.connection.held():
            sequence = self.sequence()
            last = self._last
            state = self._state(last.state == "one-color" if last else False)
            if last is None or last.sequence != sequence or state == "woken" or not self._size[0]:
                last = self._take(sequence, state)
            elif last.state != state and last.state != "one-color":
                last = self._last = Frame(last.buffer, last.width, last.height, sequence, last.time, state)
            last.buffer.users += 1
            return last

    def _take(self, sequence: int, state: str) -> Frame:
        buffer = self._free_buffer()
        width, height = self._size
        taken = time.time()
        if not XEXT.XShmGetImage(self.connection.display, self.connection.root, buffer.image, 0, 0, ALL_PLANES):
            self.connection.check()
            self._size = (0, 0)
            raise Fault(503, "NoFrame", "the X server gave no picture: the screen is changing its size", "ask again")
        if _one_color(buffer):
            state = self._state(True)
            state = "one-color" if state == "ok" else state
        if self._cursor is None:
            self._cursor = Cursor(self.connection)
        x, y = self._seen or (0, 0)
        self._cursor.draw(buffer.pixels, width, height, buffer.stride, x, y)
        self._last = Frame(buffer, width, height, sequence, taken, state)
        return self._last

    def _free_buffer(self) -> Buffer:
        """A buffer that nobody uses and that the last frame is not in; made anew when the screen has changed its size."""
        if not self._size[0]:
            size = self.connection.size()
            self._last = None
            for buffer in self._buffers:
                if not buffer.users:
                    buffer.free(self.connection)
            self._buffers = [Buffer(self.connection, *size) for _ in range(BUFFERS)]
            self._size = size
        kept = self._last.buffer if self._last else None
        with self._returned:
            if not self._returned.wait_for(lambda: any(not b.users for b in self._buffers), BUFFER_TIMEOUT):
                raise Fault(503, "Busy", f"{BUFFERS} clients are still reading frames", "read each answer to its end")
            unused = [b for b in self._buffers if not b.users]
        return next((b for b in unused if b is not kept), unused[0])

    def _state(self, anew: bool) -> str:
        """ok, asleep, woken (it was asleep, and is not any more) or unmoded."""
        state, asked = self._condition
        if anew or time.monotonic() - asked > CONDITION_AGE:
            state = self._ask_state()
            self._condition = (state if state != "woken" else "ok", time.monotonic())
        return state

    def _ask_state(self) -> str:
        if not self._asleep():
            self._tried_to_wake = False
            return "ok" if self._moded() else "unmoded"
        if self._tried_to_wake:
            return "asleep"
        self._tried_to_wake = True
        return "woken" if self._wake() else "asleep"

    def _asleep(self) -> bool:
        if self._dpms:
            level, enabled = c_ushort(), c_ubyte()
            XEXT.DPMSInfo(self.connection.display, byref(level), byref(enabled))
            if enabled.value and level.value:
                return True
        info = SaverInfo()
        return self._saver and bool(XSS.XScreenSaverQueryInfo(self.connection.display, self.connection.root, byref(info))) and info.state == SCREEN_SAVER_ON

    def _wake(self) -> bool:
        """Once: by asking, then by a key that writes nothing; some only listen to keys."""
        if self._dpms:
            XEXT.DPMSForceLevel(self.connection.display, 0)
        X11.XForceScreenSaver(self.connection.display, 0)
        self.connection.sync()
        if self._asleep():
            XTST.XTestFakeKeyEvent(self.connection.display, SHIFT_KEYCODE, 1, 0)
            XTST.XTestFakeKeyEvent(self.connection.display, SHIFT_KEYCODE, 0, 0)
            self.connection.sync()
        self._changed = True
        return not self._asleep()

    def _moded(self) -> bool:
        """Whether any output shows a mode."""
        resources = XRANDR.XRRGetScreenResourcesCurrent(self.connection.display, self.connection.root)
        if not resources:
            return False
        try:
            return any(self._has_mode(resources, resources.contents.crtcs[n]) for n in range(resources.contents.ncrtc))
        finally:
            XRANDR.XRRFreeScreenResources(resources)

    def _has_mode(self, resources: ctypes._Pointer[ctypes.Structure], crtc: int) -> bool:
        info = XRANDR.XRRGetCrtcInfo(self.connection.display, resources, crtc)
        if not info:
            return False
        try:
            return bool(info.contents.mode)
        finally:
            XRANDR.XRRFreeCrtcInfo(info)

    def close(self) -> None:
        """Leave the X server."""
        self.connection.close()


def _one_color(buffer: Buffer) -> bool:
    """Whether each pixel is as the one before it. Some blues from all over the screen come first: they differ on an ordinary one."""
    step = max(1, buffer.length // 4 // SAMPLES) * 4
    if len(set(bytes(buffer.pixels[::step]))) > 1:
        return False
    return bool(LIBC.memcmp(buffer.address, buffer.address + 4, buffer.length - 4) == 0)
