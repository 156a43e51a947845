"""A keyboard in the kernel: the X server reads it as it reads real ones. Root makes it; whoever has the open file types on it."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Sequence

PATH = "/dev/uinput"
NAME = "gymctl keyboard"
UI_SET_EVBIT, UI_SET_KEYBIT, UI_DEV_SETUP, UI_DEV_CREATE = 0x40045564, 0x40045565, 0x405C5503, 0x5501
EV_SYN, EV_KEY = 0, 1
KEYS = range(1, 248)
MACHINE_KEYS = (116, 142, 143, 205)
"""Power, sleep, wake-up, suspend: the system itself would listen."""
X_OFFSET = 8
"""An X keycode is the kernel's code plus this."""
_EVENT = struct.Struct("llHHi")
_SYN = _EVENT.pack(0, 0, EV_SYN, 0, 0)


def create() -> int:
    """A new keyboard; it lives as long as the descriptor is open. OSError where there is no uinput."""
    fd = os.open(PATH, os.O_WRONLY)
    try:
        fcntl.ioctl(fd, UI_SET_EVBIT, EV_KEY)
        for code in KEYS:
            if code not in MACHINE_KEYS:
                fcntl.ioctl(fd, UI_SET_KEYBIT, code)
        fcntl.ioctl(fd, UI_DEV_SETUP, struct.pack("HHHH80sI", 6, 0x1209, 0xA111, 1, NAME.encode(), 0))
        fcntl.ioctl(fd, UI_DEV_CREATE)
    except OSError:
        os.close(fd)
        raise
    return fd


def send(fd: int, transitions: Sequence[tuple[int, bool]]) -> None:
    """Keys that go down and up, as X keycodes, in one write; more than the kernel's buffer of 64 events would be lost."""
    os.write(fd, b"".join(_EVENT.pack(0, 0, EV_KEY, code - X_OFFSET, down) + _SYN for code, down in transitions))
