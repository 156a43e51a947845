"""Saved machines: the memory as a sparse file that clones map privately, the devices' state without it, and the frozen layers of the disk."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gymctl.errors import IntegrityError, StartError, Unavailable
from gymctl.vm import disk
from gymctl.vm.machine import Topology
from gymctl.vm.qmp import Qmp

VERSION = 1
MANIFEST, MEMORY, STATE = "manifest.json", "memory", "state"
SECONDS = 120.0
CANCEL_SECONDS = 10.0
PIECE = 1 << 16
ZEROS = bytes(PIECE)


@contextlib.contextmanager
def paused(qmp: Qmp) -> Iterator[None]:
    """The machine stands still for a block, and goes on whatever comes."""
    qmp.execute("stop")
    try:
        yield
    finally:
        qmp.execute("cont")


def layers_of(qmp: Qmp) -> tuple[str, list[Path]]:
    """(the node on top, the files from the base up to its), as QEMU has them now."""
    block = next(row["inserted"] for row in qmp.execute("query-block") if row.get("inserted"))
    image, files = block["image"], []
    while image:
        files.append(_file(image["filename"]))
        image = image.get("backing-image")
    return str(block["node-name"]), files[::-1]


def _file(name: str) -> Path:
    """QEMU writes `json:` and all of it for a layer whose header does not say what is below it."""
    return Path(json.loads(name[5:])["file"]["filename"] if name.startswith("json:") else name)


def freeze(qmp: Qmp, folder: Path) -> list[Path]:
    """Put an empty overlay over the disk: the layers below it, which never change again."""
    top, files = layers_of(qmp)
    mark = secrets.token_hex(4)  # one who was killed in here may have left a node without a place
    over = folder / f"overlay-{mark}.qcow2"
    disk.create(over, disk.size(files[-1]))
    node = f"{disk.TOP}-{mark}"
    qmp.execute("blockdev-add", **{key.replace("-", "_"): value for key, value in disk.overlay_node(node, over).items()})
    qmp.execute("blockdev-snapshot", node=top, overlay=node)
    files[-1].chmod(0o444)
    return files


def keep_layers(layers: Sequence[Path], folder: Path) -> list[str]:
    """The layers over the base, into a checkpoint's folder: by a second name for the same bytes where that goes."""
    names = []
    for number, path in enumerate(layers[1:], 1):
        names.append(f"layer{number}.qcow2")
        try:
            os.link(path, folder / names[-1])
        except OSError:  # another file system
            shutil.copyfile(path, folder / names[-1])
            (folder / names[-1]).chmod(0o444)
    return names


def save_state(qmp: Qmp, folder: Path, *, memory: Path) -> None:
    """Write the devices' state and a copy of the memory (QEMU's own shared file) of a machine that stands still."""
    _capabilities(qmp, ignore_memory=True)
    try:
        with (folder / STATE).open("wb") as file:
            qmp.execute("getfd", fdname="state", fds=[file.fileno()])
            _migrate(qmp, "state")
        copy_sparse(memory, folder / MEMORY)
    finally:
        _capabilities(qmp, ignore_memory=False)
    for name in (STATE, MEMORY):
        (folder / name).chmod(0o444)


def load_state(qmp: Qmp, folder: Path) -> None:
    """Give a waiting machine its devices' state; it stands still then. StartError."""
    _capabilities(qmp, ignore_memory=True)
    with (folder / STATE).open("rb") as file:
        qmp.execute("getfd", fdname="state", fds=[file.fileno()])
        qmp.execute("migrate-incoming", uri="fd:state")
        _migrated(qmp)
    _capabilities(qmp, ignore_memory=False)


def hand_over(source: Qmp, target: Qmp) -> None:
    """All of a machine that stands still, memory too, into one that waits: its twin."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for qmp, end in ((source, ours), (target, theirs)):
            _capabilities(qmp, ignore_memory=False)
            qmp.execute("getfd", fdname="twin", fds=[end.fileno()])
    target.execute("migrate-incoming", uri="fd:twin")
    _migrate(source, "twin")
    _migrated(target)


def _capabilities(qmp: Qmp, *, ignore_memory: bool) -> None:
    wanted = {"x-ignore-shared": ignore_memory, "events": True}
    qmp.execute("migrate-set-capabilities", capabilities=[{"capability": name, "state": state} for name, state in wanted.items()])


def end_migration(qmp: Qmp) -> None:
    """One that somebody began and did not see the end of is over when this returns. Unavailable."""
    deadline = time.monotonic() + CANCEL_SECONDS
    while qmp.execute("query-migrate").get("status") not in (None, "none", "completed", "failed", "cancelled"):
        qmp.execute("migrate_cancel")
        if time.monotonic() > deadline:
            raise Unavailable(f"QEMU has been saving this machine for more than {CANCEL_SECONDS:g} s, for somebody who is gone", hint="reset the machine")
        threading.Event().wait(0.02)


def _migrate(qmp: Qmp, name: str) -> None:
    qmp.execute("migrate-set-parameters", max_bandwidth=1 << 40)
    qmp.execute("migrate", uri=f"fd:{name}")
    _migrated(qmp)


def _migrated(qmp: Qmp) -> None:
    ended = qmp.event("MIGRATION", timeout=SECONDS, match=lambda data: data.get("status") in ("completed", "failed", "cancelled"))
    if ended["status"] != "completed":
        raise StartError(f"QEMU could not read or write the machine's state: {ended['status']}", hint="`gymctl logs NAME` has QEMU's reason")


def shared_memory(pid: int) -> Path | None:
    """QEMU's memory as a file of /proc, when it is shared; None for a clone, whose changes are its own."""
    for entry in Path(f"/proc/{pid}/fd").glob("*"):
        with contextlib.suppress(OSError):
            if os.readlink(entry).startswith("/memfd:memory-backend-memfd"):
                return entry
    return None


def copy_sparse(source: Path, target: Path) -> None:
    """Copy what is there; holes, and pages of zeros, are holes."""
    with source.open("rb", buffering=0) as read, target.open("wb", buffering=0) as write:
        end = os.fstat(read.fileno()).st_size
        write.truncate(end)
        at = 0
        while at < end:
            try:
                start = os.lseek(read.fileno(), at, os.SEEK_DATA)
            except OSError:  # only a hole is left
                break
            at = os.lseek(read.fileno(), start, os.SEEK_HOLE)
            for place in range(start, at, PIECE):
                piece = os.pread(read.fileno(), min(PIECE, at - place), place)
                if piece != ZEROS[: len(piece)]:
                    os.pwrite(write.fileno(), piece, place)


def write_manifest(folder: Path, *, form: str, about: dict[str, Any], base: str, layers: list[str], saved: float) -> None:
    """manifest.json, the last file of a checkpoint."""
    document = {"version": VERSION, "form": form, "topology": about, "base": base, "layers": layers, "saved": saved}
    (folder / MANIFEST).write_text(json.dumps(document, indent=1))
    (folder / MANIFEST).chmod(0o444)


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a checkpoint whose files are all there; IntegrityError."""
    try:
        document: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
        names = [*document["layers"], *([STATE, MEMORY] if document["form"] == "memory" else [])]
        missing = [name for name in names if not (folder / name).exists()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise IntegrityError(f"the checkpoint in {folder} cannot be read: {error}", hint="`gymctl cache gc --all` removes it") from error
    if missing or document["version"] != VERSION:
        raise IntegrityError(f"the checkpoint in {folder} is not whole: {', '.join(missing) or 'another version'}", hint="`gymctl cache gc --all` removes it")
    return document


def topology_of(manifest: dict[str, Any]) -> Topology:
    """The machine that a checkpoint was saved on."""
    about = manifest["topology"]
    return Topology(**{**about, "devices": tuple(about["devices"])})


def difference(saved: Topology, asked: Topology) -> str:
    """The first field in which two machines differ, in words, or nothing."""
    for name, value in saved.document().items():
        other = asked.document()[name]
        if value != other:
            if name == "devices":
                value, other = (sorted(set(a) - set(b)) for a, b in ((value, other), (other, value)))
            return f"{name} was {value}, and is {other} now"
    return ""


def snapshot(qmp: Qmp, verb: str, tag: str) -> None:
    """snapshot-save, -load or -delete: memory, devices and disk inside the machine's own overlay, for rewinding it in place. StartError."""
    top, _ = layers_of(qmp)
    job = f"{verb}-{tag}"
    where: dict[str, Any] = {} if verb == "snapshot-delete" else {"vmstate": top}
    qmp.execute(verb, job_id=job, tag=tag, devices=[top], **where)
    qmp.event("JOB_STATUS_CHANGE", timeout=SECONDS, match=lambda data: data.get("id") == job and data.get("status") == "concluded")
    error = next((row.get("error") for row in qmp.execute("query-jobs") if row["id"] == job), None)
    qmp.execute("job-dismiss", id=job)
    if error:
        raise StartError(f"QEMU cannot rewind the machine: {error}")
