"""Which keys of one keyboard the X server has taken: raw events of XInput 2, counted on a connection of its own."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_ubyte, c_ulong, c_void_p

from .faults import Fault
from .x11 import Connection

ALL_DEVICES = 0
SLAVE_KEYBOARD = 4
RAW_KEY_PRESS, RAW_KEY_RELEASE = 13, 14
GENERIC_EVENT = 35

XI = ctypes.CDLL("libXi.so.6")


class _Device(Structure):
    _fields_ = (
        ("deviceid", c_int), ("name", c_char_p), ("use", c_int), ("attachment", c_int), ("enabled", c_int), ("num_classes", c_int), ("classes", c_void_p),
    )  # fmt: skip


class _Mask(Structure):
    _fields_ = (("deviceid", c_int), ("mask_len", c_int), ("mask", POINTER(c_ubyte)))


for _name, _result, _arguments in (
    ("XIQueryVersion", c_int, (c_void_p, c_void_p, c_void_p)), ("XIQueryDevice", POINTER(_Device), (c_void_p, c_int, c_void_p)),
    ("XIFreeDeviceInfo", None, (c_void_p,)), ("XISelectEvents", c_int, (c_void_p, c_ulong, POINTER(_Mask), c_int)),
):  # fmt: skip
    _function = getattr(XI, _name)
    _function.restype, _function.argtypes = _result, _arguments


class Taken:
    """Counts the transitions (down or up) of a keyboard that the X server has taken."""

    def __init__(self, name: str, keyboard: str) -> None:
        self.connection = Connection(name)
        self.count = 0
        with self.connection.held() as display:
            if XI.XIQueryVersion(display, byref(c_int(2)), byref(c_int(2))):
                raise Fault(503, "NoKeyboard", "the X server lacks XInput 2.2")
            self.device = self._find(keyboard)
            bits = (c_ubyte * 4)()
            for kind in (RAW_KEY_PRESS, RAW_KEY_RELEASE):
                bits[kind >> 3] |= 1 << (kind & 7)
            XI.XISelectEvents(display, self.connection.root, byref(_Mask(self.device, len(bits), bits)), 1)
            self.connection.sync()

    def _find(self, keyboard: str) -> int:
        count = c_int()
        devices = XI.XIQueryDevice(self.connection.display, ALL_DEVICES, byref(count))
        try:
            names = {
                devices[n].name.decode(errors="replace"): devices[n] for n in range(count.value) if devices[n].use == SLAVE_KEYBOARD and devices[n].enabled
            }
            if keyboard not in names:
                raise Fault(503, "NoKeyboard", f"the X server has no keyboard {keyboard!r}", f"it has: {', '.join(names) or 'none'}")
            return int(names[keyboard].deviceid)
        finally:
            XI.XIFreeDeviceInfo(devices)

    def wait(self, until: int, seconds: float) -> bool:
        """Wait until `until` transitions have been taken since the start; False when none came for `seconds`."""
        with self.connection.held():
            while True:
                self.count += sum(1 for event in self.connection.events() if event[0] & 0xFFFFFFFF == GENERIC_EVENT)
                if self.count >= until:
                    return True
                if not self.connection.wait(seconds):
                    return False

    def close(self) -> None:
        """Leave the X server."""
        self.connection.close()
