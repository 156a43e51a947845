"""Runner `qemu`: a virtual machine of its own kernel, on an overlay over a read-only disk; clones of a saved one start in a tenth of a second."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from gymctl import paths, proc
from gymctl.errors import GymctlError, Unavailable
from gymctl.proc import Process, Result
from gymctl.runner import Handle, Need, Option, Plan, Spec, Status
from gymctl.runners import qemu_launch
from gymctl.runners.qemu_probe import doctor
from gymctl.runners.qemu_saved import checkpoints, drop, drop_memory, memory_checkpoints, restore, restore_memory, rewind, save, save_memory
from gymctl.vm import accel, channel, console, machine
from gymctl.vm.console import Console
from gymctl.vm.qmp import Qmp

__all__ = [
    "SPEC", "checkpoints", "display", "doctor", "drop", "drop_memory", "exec", "find", "logs", "memory_checkpoints", "restore", "restore_memory", "rewind",
    "save", "save_memory", "start", "status", "stop",
]  # fmt: skip
SPEC = Spec(
    name="qemu",
    summary="A virtual machine by QEMU; needs no KVM",
    guests=("linux",),
    formats=("qcow2",),
    hosts=("linux",),
    needs=(Need("QEMU 7.2 or newer for x86-64", machine.INSTALL), Need("qemu-img", "install QEMU's tools (Debian: apt-get install qemu-utils)")),
    options=(
        Option("accel", str, "auto, kvm or tcg; auto measures whether KVM is any good", "auto"),
        Option("cpus", int, "how many processors"),
        Option("memory", str, "size of the memory: 1g, 512m"),
        Option("disk", str, "size of the disk, when it is to be larger than the image's: 20g"),
        Option("network", bool, "true: may reach the network; false: may not", keyed=False),
        Option("resolution", str, "size of the screen: 1920x1080"),
        Option("display", str, "how frames are taken with --fast-io: qmp or dbus", "qmp", keyed=False),
        Option("keyboard", str, "what types with --fast-io: uinput (the guest's), virtio, or qmp-experimental (loses letters)", "uinput", keyed=False),
        Option("clock", str, "a clone's clock: now, or frozen at the time it was saved", "now", keyed=False),
        Option("checkpoint", str, "what --checkpoint keeps: memory (with devices and disk), or the disk alone", "memory", keyed=False),
        Option("shutdown", float, "seconds that a guest is given to power down when it is stopped; 0: its disk is thrown away, so none", 0.0, keyed=False),
        Option("launcher", str, "how QEMU is started: native", "native", keyed=False),
    ),
    isolated=True,
    notes="Its port is forwarded from 127.0.0.1; without `network` its own connections fail at once.",
)
TAIL = 1 << 14
LAST_LINES = 6
STOPPED = {"paused": "it is paused", "io-error": "its disk has no room or cannot be read", "internal-error": "the accelerator gave up"}


def start(plan: Plan, /) -> Handle:
    """Boot a machine: {pid, started, url, ports, topology, ...} once its control socket answers. StartError, Conflict, NotFound, Unavailable, UsageError."""
    qemu_launch.check(plan)
    chosen = accel.choose(plan.options.get("accel", "auto"), machine.EMULATOR)
    handle, qmp = qemu_launch.launch(plan, qemu_launch.topology(plan, chosen), qemu_launch.Saved())
    qmp.close()
    handle["notes"].append(f"accelerator {chosen.name}: {chosen.why}")
    return handle


def status(handle: Handle, /) -> Status:
    """running; exited with its last serial lines; panicked when the guest's kernel did, stopped when QEMU stopped it."""
    process = _process(handle)
    if not proc.alive(process):
        return Status("exited", proc.reap(process), detail=_last_words(handle))
    serial = _tail(Path(handle["directory"]) / "serial.log")
    if "Kernel panic - not syncing" in serial:
        return Status("panicked", detail=_last(serial))
    try:
        with Qmp(Path(handle["runtime"]) / "qmp", timeout=0.5) as qmp:
            now = str(qmp.execute("query-status", timeout=0.5)["status"])
    except GymctlError as error:
        return Status("running", detail=f"its control socket does not answer: {error.message}" if proc.alive(process) else "")
    return Status("running" if now not in ("io-error", "internal-error") else "stopped", detail=STOPPED.get(now, ""))


def _last_words(handle: Handle) -> str:
    folder = Path(handle["directory"])
    return _last(_tail(folder / "serial.log")) or _last(_tail(folder / "qemu.log"))


def _tail(path: Path) -> str:
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - TAIL))
        return file.read().decode("utf-8", "replace")
    return ""


def _last(text: str) -> str:
    return "; ".join([line.strip() for line in text.splitlines() if line.strip()][-LAST_LINES:])


def stop(handle: Handle, /) -> None:
    """Power down (when it is given time for that), quit, TERM, KILL; then its overlay and sockets go. Idempotent."""
    process = _process(handle)
    if proc.alive(process):
        _ask_to_end(handle, process)
    proc.end_group(process, grace=1.0)
    for folder in filter(None, (handle.get("directory"), handle.get("runtime"))):
        shutil.rmtree(folder, ignore_errors=True)


def _ask_to_end(handle: Handle, process: Process) -> None:
    with contextlib.suppress(GymctlError), Qmp(Path(handle["runtime"]) / "qmp", timeout=1.0) as qmp:
        patience = float(handle.get("shutdown") or 0)
        if patience:
            qmp.execute("system_powerdown", timeout=1.0)
            if proc.wait_gone(process, patience):
                return
        qmp.execute("quit", timeout=1.0)
    proc.wait_gone(process, 2.0)


def find() -> dict[str, Handle]:
    """Our machines that run, by label, read from their command lines; Unavailable where there is no /proc, or no QEMU."""
    if not Path("/proc/self/environ").exists():
        raise Unavailable("there is no /proc", hint="this runner needs Linux")
    found: dict[str, Handle] = {}
    for label, process in proc.labeled(f"{paths.state_id()}/"):
        argv = _argv(process)
        ours = str(paths.instances_dir() / label.partition("/")[2] / "vm")
        if argv and Path(argv[0]).name.startswith("qemu-system") and any(ours in word for word in argv):  # and no twin of a machine that was being saved
            found[label] = _adopted(label, process, argv)
    if not found and not shutil.which(machine.EMULATOR):
        raise Unavailable(f"{machine.EMULATOR} is not installed", hint=machine.INSTALL)
    return found


def _argv(process: Process) -> list[str]:
    try:
        return Path(f"/proc/{process.pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _adopted(label: str, process: Process, argv: list[str]) -> Handle:
    name = label.partition("/")[2]
    folder = paths.instances_dir() / name / "vm"
    runtime = next(iter(paths.runtime_dirs(qemu_launch.runtime_name(name))), Path("/nonexistent"))
    handle: Handle = {"pid": process.pid, "started": process.started, "label": label, "directory": str(folder), "runtime": str(runtime)}
    ports: dict[str, int] = {}
    with contextlib.suppress(GymctlError), Qmp(runtime / "qmp", timeout=0.5) as qmp:
        ports = qemu_launch.forwards(qmp)
    return {**handle, "ports": ports, "url": next((f"http://127.0.0.1:{port}" for port in ports.values()), ""), "notes": []}


def exec(handle: Handle, argv: list[str], /, *, input: str | None = None, timeout: float = 60) -> Result:
    """Run a command in the guest as root, over its channel; at the deadline it is killed in there. Unavailable, EnvError."""
    return channel.run(Path(handle["runtime"]) / "channel", argv, input=input, timeout=timeout)


def logs(handle: Handle, /) -> Iterator[str]:
    """What the guest's kernel and services wrote to the serial line, then what QEMU itself said."""
    for name in ("serial.log", "qemu.log"):
        with contextlib.suppress(OSError), open(Path(handle["directory"]) / name, encoding="utf-8", errors="replace") as file:
            yield from file


def display(handle: Handle, token: str, /) -> AbstractContextManager[Console]:
    """Its screen, mouse and keyboard without the server's pictures: fast I/O. Unavailable, EnvError (the guest's keyboard is not proven)."""
    socket = Path(handle["runtime"]) / "io"
    return console.opened(socket, display=handle["display"], keyboard=handle["keyboard"], url=handle["url"], token=token)


def _process(handle: dict[str, Any]) -> Process:
    return Process(handle["pid"], handle["started"])
