"""Virtual disks: read-only layers under one writable overlay. A qcow2 header of ours names no other file: the layers are named at launch."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gymctl import proc
from gymctl.errors import Conflict, IntegrityError, NotFound, StartError, Unavailable

MAGIC = b"QFI\xfb"
QEMU_IMG = "qemu-img"
INSTALL = "install QEMU's tools (Debian: apt-get install qemu-utils)"
TOP = "top"


def size(path: Path) -> int:
    """The virtual size in bytes; NotFound, Unavailable (not readable), IntegrityError (no qcow2, cut off, or one that names another file)."""
    try:
        with path.open("rb") as file:
            head = file.read(32)
    except FileNotFoundError as error:
        raise NotFound(f"the disk {path} is not there", hint="was it moved? load or build the image again: `gymctl build-image`") from error
    except OSError as error:
        raise Unavailable(f"the disk {path} cannot be read: {error.strerror}") from error
    if len(head) < 32 or not head.startswith(MAGIC):
        raise IntegrityError(f"{path} is no qcow2 disk", hint="load or build the image again: `gymctl build-image`")
    backing, _, _, virtual = struct.unpack(">QIIQ", head[8:32])
    if backing:
        raise IntegrityError(f"{path} is an overlay over another disk, which it names", hint=f"make it whole: {QEMU_IMG} convert -O qcow2 {path} WHOLE.qcow2")
    return int(virtual)


def create(path: Path, virtual_size: int) -> None:
    """An empty overlay; Unavailable without qemu-img or space."""
    made = proc.run([QEMU_IMG, "create", "-q", "-f", "qcow2", str(path), str(virtual_size)], timeout=60)
    if made.code:
        raise Unavailable(f"cannot make the disk {path}: {made.stderr.strip() or 'no answer in time'}", hint="is there room? `gymctl cache gc` frees some")


def block_devices(layers: Sequence[Path], overlay: Path) -> list[dict[str, Any]]:
    """What `-blockdev` is told, the deepest layer first; the overlay's node is `top`."""
    nodes: list[dict[str, Any]] = []
    below: str | None = None
    for number, path in enumerate(layers):
        name = f"layer{number}"
        nodes.append(_node(name, path, below, writable=False))
        below = name
    nodes.append(_node(TOP, overlay, below, writable=True))
    return nodes


def _node(name: str, path: Path, below: str | None, *, writable: bool) -> dict[str, Any]:
    return {
        "driver": "qcow2", "node-name": name, "read-only": not writable, "discard": "unmap", "cache": {"direct": False, "no-flush": True},
        "file": {"driver": "file", "filename": str(path), "aio": "threads", "cache": {"direct": False, "no-flush": True}}, "backing": below,
    }  # fmt: skip


def overlay_node(name: str, path: Path) -> dict[str, Any]:
    """A node to put over the present ones with `blockdev-snapshot`."""
    return {**_node(name, path, None, writable=True)}


def locked(line: str, paths: Sequence[Path]) -> Conflict | StartError:
    """QEMU's `Failed to get lock`, with who holds the disk."""
    for path in paths:
        if holders := holders_of(path):
            which = ", ".join(holders)
            hint = "end that process; a base is never written to, each machine has an overlay of its own"
            return Conflict(f"the disk {path} is in use for writing by {which}", hint=hint)
    return StartError(f"QEMU could not lock its disk: {line}", hint="does another QEMU use that disk?")


def holders_of(path: Path) -> list[str]:
    """`pid 12 (qemu-system-x86)` of each process that has the file open for writing."""
    found = []
    with contextlib.suppress(OSError):
        wanted = os.stat(path)
        for entry in Path("/proc").glob("[0-9]*/fd/*"):
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(entry), wanted) and _writes(entry):
                    found.append(_named(entry))
    return sorted(set(found))


def users_of(folder: Path) -> list[str]:
    """The same of each process that has a file open by its name in a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(entry).startswith(f"{folder}/"):
                found.append(_named(entry))
    return sorted(set(found))


def _named(entry: Path) -> str:
    pid = entry.parts[2]
    return f"pid {pid} ({Path(f'/proc/{pid}/comm').read_text().strip()})"


def _writes(entry: Path) -> bool:
    for line in entry.parent.with_name("fdinfo").joinpath(entry.name).read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "flags":
            return int(value, 8) & os.O_ACCMODE != os.O_RDONLY
    return False
