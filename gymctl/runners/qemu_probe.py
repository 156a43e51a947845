"""doctor for runner `qemu`: a guest that counts to millions, a disk that is made, and the displays there are."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from gymctl import proc
from gymctl.errors import GymctlError, Unavailable
from gymctl.runner import Finding
from gymctl.runners.qemu_launch import DBUS_PACKAGES
from gymctl.vm import accel, disk, machine

LEAST = (7, 2)


def doctor(workdir: Path, /) -> Iterator[Finding]:
    """QEMU's version, an emulated guest, KVM by the same guest, an overlay, the D-Bus display, memory that can be shared."""
    try:
        version = machine.version()
    except Unavailable as error:
        yield Finding("qemu", False, error.message, error.hint)
        return
    enough = tuple(map(int, version.split(".")[:2])) >= LEAST
    yield Finding("qemu", enough, f"QEMU {version}", "" if enough else f"{'.'.join(map(str, LEAST))} or newer is needed; {machine.INSTALL}")
    seconds = accel.probe("tcg", machine.EMULATOR, seconds=10)
    fine = seconds is not None
    told = (
        f"{accel.INSTRUCTIONS:,} instructions in {seconds:.2f} s, QEMU's start included" if seconds is not None else "a guest that counts did not end in 10 s"
    )
    yield Finding("guest", fine, told, "" if fine else f"try it by hand: {machine.EMULATOR} -accel tcg -M microvm")
    unfit = accel.unfit_kvm(machine.EMULATOR)
    yield Finding("kvm", None if unfit else True, unfit or "KVM ran the same guest in time", "guests are emulated, which is slower" if unfit else "")
    yield _overlay(workdir)
    shown = proc.run([machine.EMULATOR, "-display", "help"], timeout=20).stdout.split()
    yield Finding("dbus display", True if "dbus" in shown else None, "" if "dbus" in shown else "this QEMU has none", "" if "dbus" in shown else DBUS_PACKAGES)


def _overlay(workdir: Path) -> Finding:
    if not shutil.which(disk.QEMU_IMG):
        return Finding("qemu-img", False, "it is not installed, or not on PATH", disk.INSTALL)
    try:
        disk.create(workdir / "disk.qcow2", 1 << 30)
        fine = disk.size(workdir / "disk.qcow2") == 1 << 30
    except GymctlError as error:
        return Finding("qemu-img", False, error.message, error.hint)
    return Finding("qemu-img", fine, "an overlay of 1 GiB was made" if fine else "the overlay has another size", "" if fine else disk.INSTALL)
