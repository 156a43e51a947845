"""What a desktop needs of its distribution, by the names of Debian's packages: looked at before anything starts."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

PROGRAMS = {
    "openbox": "openbox", "dbus-daemon": "dbus", "xdg-open": "xdg-utils",
    "update-mime-database": "shared-mime-info", "update-desktop-database": "desktop-file-utils", "/usr/libexec/at-spi-bus-launcher": "at-spi2-core",
}  # fmt: skip
LIBRARIES = {
    "libX11.so.6": "libx11-6", "libXext.so.6": "libxext6", "libXtst.so.6": "libxtst6", "libXfixes.so.3": "libxfixes3", "libXdamage.so.1": "libxdamage1",
    "libXrandr.so.2": "libxrandr2", "libXss.so.1": "libxss1", "libxkbcommon.so.0": "libxkbcommon0",
}  # fmt: skip
MODULES = {"PIL": "python3-pil", "gi": "python3-gi"}
TYPES = ("lib/*/girepository-1.0", "lib64/girepository-1.0", "lib/girepository-1.0")
COMMANDS = {"libreoffice-calc": "localc"}
"""Of packages whose program is not called as they are."""
PLUGINS = {"libreoffice-gtk3": "lib*/libreoffice/program/libvclplug_gtk3lo.so"}
"""Of packages without any program."""


def missing(server: str, vnc: bool, wanted: Sequence[str]) -> list[str]:
    """The packages that are not there: those of the X server `server`, of VNC, of the guest's server, and those `wanted` by an image."""
    x = {"Xorg": ("/usr/lib/xorg/Xorg", "xserver-xorg-core")}.get(server, ("Xvnc", "tigervnc-standalone-server"))
    programs = {x[0]: x[1], **PROGRAMS, **({"vncpasswd": "tigervnc-tools"} if vnc else {})}
    programs |= {COMMANDS.get(name, name): name for name in wanted if name not in PLUGINS}
    found = [package for program, package in programs.items() if not shutil.which(program)]
    found += [package for library, package in LIBRARIES.items() if not _loads(library)]
    found += [package for module, package in MODULES.items() if importlib.util.find_spec(module) is None]
    if not any(any(Path("/usr").glob(f"{place}/Atspi-2.0.typelib")) for place in TYPES):
        found.append("gir1.2-atspi-2.0")
    return [*found, *(name for name in wanted if name in PLUGINS and not any(Path("/usr").glob(PLUGINS[name])))]


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def complaint(wanted: Sequence[str]) -> str:
    """What to tell who lacks something; nothing when all is there."""
    lacking = missing(os.environ.get("X_SERVER", "Xvnc"), bool(os.environ.get("VNC_PASSWORD") and os.environ.get("VNC_PORT")), wanted)
    return f"not installed: {', '.join(lacking)} (apt-get install --no-install-recommends {' '.join(lacking)})" if lacking else ""
