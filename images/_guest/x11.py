"""libX11 and its extensions through ctypes: the calls used here with their types, and a connection that outlives neither errors nor its server."""

from __future__ import annotations

import ctypes
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_long, c_short, c_ubyte, c_uint, c_ulong, c_ushort, c_void_p
from typing import Any

from .faults import Fault

PROPERTY_NOTIFY, CONFIGURE_NOTIFY, SELECTION_CLEAR, SELECTION_REQUEST, SELECTION_NOTIFY, CLIENT_MESSAGE, MAPPING_NOTIFY = 28, 22, 29, 30, 31, 33, 34
STRUCTURE_NOTIFY, SUBSTRUCTURE_NOTIFY, SUBSTRUCTURE_REDIRECT, PROPERTY_CHANGE = 1 << 17, 1 << 19, 1 << 20, 1 << 22
Z_PIXMAP = 2
ALL_PLANES = 0xFFFFFFFFFFFFFFFF
EVENT_LONGS = 24
"""An XEvent is as large as this many longs."""


class XImage(Structure):
    """The fields of an XImage up to its size; what follows is not used."""

    _fields_ = (
        ("width", c_int), ("height", c_int), ("xoffset", c_int), ("format", c_int), ("data", c_void_p), ("byte_order", c_int),
        ("bitmap_unit", c_int), ("bitmap_bit_order", c_int), ("bitmap_pad", c_int), ("depth", c_int), ("bytes_per_line", c_int),
        ("bits_per_pixel", c_int),
    )  # fmt: skip


class ShmSegment(Structure):
    """XShmSegmentInfo"""

    _fields_ = (("shmseg", c_ulong), ("shmid", c_int), ("shmaddr", c_void_p), ("read_only", c_int))


class CursorImage(Structure):
    """XFixesCursorImage: `pixels` are premultiplied ARGB, one long each."""

    _fields_ = (
        ("x", c_short), ("y", c_short), ("width", c_ushort), ("height", c_ushort), ("xhot", c_ushort), ("yhot", c_ushort),
        ("serial", c_ulong), ("pixels", POINTER(c_ulong)),
    )  # fmt: skip


class XErrorEvent(Structure):
    """XErrorEvent"""

    _fields_ = (
        ("type", c_int), ("display", c_void_p), ("resourceid", c_ulong), ("serial", c_ulong), ("error_code", c_ubyte), ("request_code", c_ubyte),
        ("minor_code", c_ubyte),
    )  # fmt: skip


class XkbState(Structure):
    """XkbStateRec"""

    _fields_ = (
        ("group", c_ubyte), ("locked_group", c_ubyte), ("base_group", c_ushort), ("latched_group", c_ushort), ("mods", c_ubyte), ("base_mods", c_ubyte),
        ("latched_mods", c_ubyte), ("locked_mods", c_ubyte), ("compat_state", c_ubyte), ("grab_mods", c_ubyte), ("compat_grab_mods", c_ubyte),
        ("lookup_mods", c_ubyte), ("compat_lookup_mods", c_ubyte), ("ptr_buttons", c_ushort),
    )  # fmt: skip


class ScreenResources(Structure):
    """XRRScreenResources up to its CRTCs."""

    _fields_ = (("timestamp", c_ulong), ("config_timestamp", c_ulong), ("ncrtc", c_int), ("crtcs", POINTER(c_ulong)))


class CrtcInfo(Structure):
    """XRRCrtcInfo up to its mode."""

    _fields_ = (("timestamp", c_ulong), ("x", c_int), ("y", c_int), ("width", c_uint), ("height", c_uint), ("mode", c_ulong))


class SaverInfo(Structure):
    """XScreenSaverInfo"""

    _fields_ = (("window", c_ulong), ("state", c_int), ("kind", c_int), ("til_or_since", c_ulong), ("idle", c_ulong), ("event_mask", c_ulong))


X11 = ctypes.CDLL("libX11.so.6")
XEXT = ctypes.CDLL("libXext.so.6")
XTST = ctypes.CDLL("libXtst.so.6")
XFIXES = ctypes.CDLL("libXfixes.so.3")
XDAMAGE = ctypes.CDLL("libXdamage.so.1")
XRANDR = ctypes.CDLL("libXrandr.so.2")
XSS = ctypes.CDLL("libXss.so.1")
XKBCOMMON = ctypes.CDLL("libxkbcommon.so.0")
LIBC = ctypes.CDLL("libc.so.6", use_errno=True)

_D, _W, _I = c_void_p, c_ulong, c_int
_PROTOTYPES: dict[ctypes.CDLL, dict[str, tuple[Any, ...]]] = {
    X11: {
        "XOpenDisplay": (_D, c_char_p), "XCloseDisplay": (_I, _D), "XDefaultRootWindow": (_W, _D), "XDefaultVisual": (c_void_p, _D, _I),
        "XDefaultDepth": (_I, _D, _I), "XSync": (_I, _D, _I), "XFlush": (_I, _D), "XPending": (_I, _D), "XNextEvent": (_I, _D, c_void_p),
        "XConnectionNumber": (_I, _D), "XFree": (_I, c_void_p), "XInitThreads": (_I,), "XSelectInput": (_I, _D, _W, c_long),
        "XMaxRequestSize": (c_long, _D), "XExtendedMaxRequestSize": (c_long, _D),
        "XInternAtom": (_W, _D, c_char_p, _I), "XGetAtomName": (c_void_p, _D, _W),
        "XGetGeometry": (_I, _D, _W, *(c_void_p,) * 7), "XTranslateCoordinates": (_I, _D, _W, _W, _I, _I, c_void_p, c_void_p, c_void_p),
        "XQueryPointer": (_I, _D, _W, *(c_void_p,) * 7), "XQueryKeymap": (_I, _D, c_void_p),
        "XGetWindowProperty": (_I, _D, _W, _W, c_long, c_long, _I, _W, *(c_void_p,) * 5),
        "XChangeProperty": (_I, _D, _W, _W, _W, _I, _I, c_void_p, _I), "XDeleteProperty": (_I, _D, _W, _W),
        "XSendEvent": (_I, _D, _W, _I, c_long, c_void_p), "XCreateSimpleWindow": (_W, _D, _W, _I, _I, c_uint, c_uint, c_uint, _W, _W),
        "XSetSelectionOwner": (_I, _D, _W, _W, _W), "XGetSelectionOwner": (_W, _D, _W), "XConvertSelection": (_I, _D, _W, _W, _W, _W, _W),
        "XDisplayKeycodes": (_I, _D, c_void_p, c_void_p), "XStringToKeysym": (_W, c_char_p), "XChangeKeyboardMapping": (_I, _D, _I, _I, c_void_p, _I),
        "XGetKeyboardMapping": (c_void_p, _D, c_ubyte, _I, c_void_p),
        "XRefreshKeyboardMapping": (_I, c_void_p), "XkbGetState": (_I, _D, c_uint, c_void_p), "XkbKeysymToModifiers": (c_uint, _D, _W),
        "XkbLockModifiers": (_I, _D, c_uint, c_uint, c_uint),
        "XkbLookupKeySym": (_I, _D, c_ubyte, c_uint, c_void_p, c_void_p), "XForceScreenSaver": (_I, _D, _I),
        "XSetErrorHandler": (c_void_p, c_void_p), "XSetIOErrorExitHandler": (None, _D, c_void_p, c_void_p), "XSetIOErrorHandler": (c_void_p, c_void_p),
    },
    XEXT: {
        "XShmQueryExtension": (_I, _D), "XShmCreateImage": (POINTER(XImage), _D, c_void_p, c_uint, _I, c_char_p, POINTER(ShmSegment), c_uint, c_uint),
        "XShmAttach": (_I, _D, POINTER(ShmSegment)), "XShmDetach": (_I, _D, POINTER(ShmSegment)),
        "XShmGetImage": (_I, _D, _W, POINTER(XImage), _I, _I, c_ulong), "DPMSQueryExtension": (_I, _D, c_void_p, c_void_p),
        "DPMSInfo": (_I, _D, c_void_p, c_void_p), "DPMSForceLevel": (_I, _D, c_ushort),
    },
    XTST: {
        "XTestQueryExtension": (_I, _D, *(c_void_p,) * 4), "XTestFakeKeyEvent": (_I, _D, c_uint, _I, c_ulong), "XTestGrabControl": (_I, _D, _I),
        "XTestFakeButtonEvent": (_I, _D, c_uint, _I, c_ulong), "XTestFakeMotionEvent": (_I, _D, _I, _I, _I, c_ulong),
    },
    XFIXES: {
        "XFixesQueryExtension": (_I, _D, c_void_p, c_void_p), "XFixesGetCursorImage": (POINTER(CursorImage), _D),
        "XFixesSelectCursorInput": (None, _D, _W, c_ulong),
    },
    XDAMAGE: {
        "XDamageQueryExtension": (_I, _D, c_void_p, c_void_p), "XDamageCreate": (_W, _D, _W, _I), "XDamageSubtract": (None, _D, _W, _W, _W),
    },
    XRANDR: {
        "XRRQueryExtension": (_I, _D, c_void_p, c_void_p), "XRRGetScreenResourcesCurrent": (POINTER(ScreenResources), _D, _W),
        "XRRFreeScreenResources": (None, c_void_p), "XRRGetCrtcInfo": (POINTER(CrtcInfo), _D, c_void_p, _W), "XRRFreeCrtcInfo": (None, c_void_p),
    },
    XSS: {"XScreenSaverQueryExtension": (_I, _D, c_void_p, c_void_p), "XScreenSaverQueryInfo": (_I, _D, _W, c_void_p)},
    XKBCOMMON: {"xkb_keysym_to_utf32": (c_uint, c_uint), "xkb_utf32_to_keysym": (c_uint, c_uint)},
    LIBC: {
        "shmget": (_I, _I, ctypes.c_size_t, _I), "shmat": (c_void_p, _I, c_void_p, _I), "shmdt": (_I, c_void_p), "shmctl": (_I, _I, _I, c_void_p),
        "memcmp": (_I, c_void_p, c_void_p, ctypes.c_size_t), "prctl": (_I, _I, c_ulong, c_ulong, c_ulong, c_ulong),
    },
}  # fmt: skip
for _library, _functions in _PROTOTYPES.items():
    for _name, (_result, *_arguments) in _functions.items():
        _function = getattr(_library, _name)
        _function.restype, _function.argtypes = _result, _arguments

_ERRORS: dict[int, list[tuple[int, int]]] = {}
"""X errors by display pointer: (error code, request code), until somebody asks."""
_DEAD: set[int] = set()


def _on_error(display: int, event: Any) -> int:
    _ERRORS.setdefault(display, []).append((event.contents.error_code, event.contents.request_code))
    return 0


def _on_lost(display: int) -> int:
    _DEAD.add(display)
    return 0


def _stay_alive(display: int, data: int) -> None:
    """Xlib would end this process when the X server goes."""
    _DEAD.add(display)


# Xlib calls them for as long as the process lives, so they may not be collected.
_ERROR_HANDLER = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(XErrorEvent))(_on_error)
_LOST_HANDLER = ctypes.CFUNCTYPE(c_int, c_void_p)(_on_lost)
_EXIT_HANDLER = ctypes.CFUNCTYPE(None, c_void_p, c_void_p)(_stay_alive)
X11.XInitThreads()
X11.XSetErrorHandler(ctypes.cast(_ERROR_HANDLER, c_void_p))
X11.XSetIOErrorHandler(ctypes.cast(_LOST_HANDLER, c_void_p))


class Connection:
    """One connection to an X server. Its lock is held by whoever speaks; calls of `held` may nest."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.display = X11.XOpenDisplay(name.encode())
        if not self.display:
            raise Fault(503, "NoDisplay", f"no X server answers at {name!r}", "it is still starting, or it died: GET /health tells")
        X11.XSetIOErrorExitHandler(self.display, ctypes.cast(_EXIT_HANDLER, c_void_p), None)
        _DEAD.discard(self.display)
        _ERRORS.pop(self.display, None)
        self.root: int = X11.XDefaultRootWindow(self.display)
        self.fd: int = X11.XConnectionNumber(self.display)
        self._lock = threading.RLock()
        self._closed = False
        self._atoms: dict[str, int] = {}

    @property
    def dead(self) -> bool:
        """Whether the X server has gone."""
        return self._closed or self.display in _DEAD

    @contextmanager
    def held(self) -> Iterator[int]:
        """The display, for this thread alone; 503 when its server has gone, before or meanwhile."""
        with self._lock:
            self.check()
            yield self.display
            self.check()

    def check(self) -> None:
        """503 when the server has gone."""
        if self.dead:
            raise Fault(503, "NoDisplay", f"the X server of {self.name} has gone", "reset the desktop: gymctl reset NAME")

    def sync(self) -> list[tuple[int, int]]:
        """Wait until the server has done all that was asked; the errors since the last time, as (error code, request code)."""
        X11.XSync(self.display, 0)
        return _ERRORS.pop(self.display, [])

    def atom(self, name: str) -> int:
        """The number of an atom."""
        if name not in self._atoms:
            self._atoms[name] = X11.XInternAtom(self.display, name.encode(), 0)
        return self._atoms[name]

    def size(self) -> tuple[int, int]:
        """Width and height of the screen in pixels, as they are now."""
        return self.geometry(self.root)[2:]

    def geometry(self, window: int) -> tuple[int, int, int, int]:
        """x, y (of its parent), width, height of a window; LookupError when it has gone."""
        root, x, y, w, h, border, depth = c_ulong(), c_int(), c_int(), c_uint(), c_uint(), c_uint(), c_uint()
        if not X11.XGetGeometry(self.display, window, byref(root), byref(x), byref(y), byref(w), byref(h), byref(border), byref(depth)):
            raise LookupError(window)
        return x.value, y.value, w.value, h.value

    def pointer(self) -> tuple[int, int, int]:
        """The pointer's x and y, and the mask of buttons and modifiers."""
        root, child, mask = c_ulong(), c_ulong(), c_uint()
        x, y, wx, wy = c_int(), c_int(), c_int(), c_int()
        X11.XQueryPointer(self.display, self.root, byref(root), byref(child), byref(x), byref(y), byref(wx), byref(wy), byref(mask))
        return x.value, y.value, mask.value

    def events(self) -> Iterator[Any]:
        """The events that have arrived, as arrays of longs; never waits."""
        event = (c_long * EVENT_LONGS)()
        while not self.dead and X11.XPending(self.display):
            X11.XNextEvent(self.display, byref(event))
            yield event

    def wait(self, seconds: float) -> bool:
        """Wait, without the lock, until something arrives; False when nothing did."""
        if self.dead:
            return True
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        return bool(poll.poll(max(0, seconds * 1000)))

    def property(self, window: int, name: str, limit: int = 1 << 20) -> bytes | list[int] | None:
        """A window's property: bytes, or a list of numbers for wider formats; None when there is none (or the window has gone)."""
        kind, form, count, rest, data = c_ulong(), c_int(), c_ulong(), c_ulong(), c_void_p()
        arguments = (window, self.atom(name), 0, limit // 4, 0, 0, byref(kind), byref(form), byref(count), byref(rest), byref(data))
        if X11.XGetWindowProperty(self.display, *arguments) or not data.value:
            return None
        try:
            if form.value == 8:
                return ctypes.string_at(data.value, count.value)
            width = c_ulong if form.value == 32 else c_ushort
            return list((width * count.value).from_address(data.value))
        finally:
            X11.XFree(data)

    def send_to_root(self, window: int, kind: str, *values: int) -> None:
        """A client message about a window to the window manager."""
        event = (c_long * EVENT_LONGS)()
        event[0], event[4], event[5], event[6] = CLIENT_MESSAGE, window, self.atom(kind), 32
        for place, value in enumerate(values):
            event[7 + place] = value
        X11.XSendEvent(self.display, self.root, 0, SUBSTRUCTURE_NOTIFY | SUBSTRUCTURE_REDIRECT, byref(event))

    def close(self) -> None:
        """Leave the server; nothing is asked of one that has gone."""
        with self._lock:
            if not self.dead:
                X11.XCloseDisplay(self.display)
            self._closed = True
