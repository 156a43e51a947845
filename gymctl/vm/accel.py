"""Which accelerator is worth using, by measuring it: /dev/kvm may be there, start, and be hundreds of times slower than none."""

from __future__ import annotations

import contextlib
import os
import struct
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from gymctl import proc
from gymctl.errors import Unavailable

KVM = Path("/dev/kvm")
LOOPS = 2_000_000
INSTRUCTIONS = 2 * LOOPS
SECONDS = 1.0
"""A real accelerator takes some milliseconds for the loop, and QEMU 0.1 s to start."""
EXITED = 1
"""QEMU's exit code when the guest has written 0 to isa-debug-exit."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """The one chosen and why: `tcg` or `kvm`."""

    name: str
    why: str

    @property
    def cpu(self) -> str:
        """The processor that guests see."""
        return "host" if self.name == "kvm" else "max"


def choose(wanted: str, emulator: str) -> Accelerator:
    """auto, kvm or tcg; Unavailable when kvm was asked for and is none."""
    if wanted == "tcg":
        return Accelerator("tcg", "asked for")
    unfit = unfit_kvm(emulator)
    if not unfit:
        return Accelerator("kvm", "it ran the probe in time")
    if wanted == "kvm":
        raise Unavailable(f"KVM cannot be used: {unfit}", hint="`--opt accel=tcg` emulates the processor")
    return Accelerator("tcg", unfit)


def unfit_kvm(emulator: str) -> str:
    """Why KVM is not to be used, or nothing. The cheap signs first, then a guest that counts."""
    if not KVM.exists():
        return "there is no /dev/kvm"
    if not os.access(KVM, os.R_OK | os.W_OK):
        return "/dev/kvm may not be opened by this user"
    if Path("/sys/module/kvm_pvm").exists() or not _virtualization():
        return "/dev/kvm is there, and this processor shows no hardware virtualization (svm, vmx)"
    seconds = probe("kvm", emulator)
    return "" if seconds is not None else f"/dev/kvm is there, and {INSTRUCTIONS:,} instructions were not done in {SECONDS:g} s"


def _virtualization() -> bool:
    with contextlib.suppress(OSError):
        flags = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")), "")
        return bool({"svm", "vmx"} & set(flags.split()))
    return True  # no list: the probe will tell


def probe(name: str, emulator: str, *, seconds: float = SECONDS) -> float | None:
    """How long QEMU took to start and to count; None when it was not done in time."""
    with tempfile.TemporaryDirectory(prefix="gymctl-probe-") as folder:
        kernel = Path(folder) / "count"
        kernel.write_bytes(_program())
        cpu = "host,arch-capabilities=off" if name == "kvm" else "max"
        argv = [
            emulator, "-accel", name, "-M", "microvm", "-cpu", cpu, "-m", "64", "-display", "none", "-nodefaults", "-no-user-config",
            "-device", "isa-debug-exit,iobase=0xf4,iosize=4", "-kernel", str(kernel),
        ]  # fmt: skip
        began = time.monotonic()
        done = proc.run(argv, timeout=seconds)
        return time.monotonic() - began if done.code == EXITED and not done.timed_out else None


def _program() -> bytes:
    """A kernel that QEMU enters in 32-bit mode (the PVH protocol): counts down, then asks for the exit."""
    base, entry = 0x100000, 0x100000 + 0x1000
    code = b"\xb9" + struct.pack("<I", LOOPS) + b"\x49\x75\xfd" + b"\x30\xc0\xe6\xf4" + b"\xf4\xeb\xfd"
    # mov ecx, LOOPS; dec ecx; jnz -3;   xor al, al; out 0xf4, al;   hlt; jmp -3
    note = struct.pack("<III4sI", 4, 4, 18, b"Xen\0", entry)
    headers, at_note, at_code = 52 + 2 * 32, 0x200, 0x1000
    elf = b"\x7fELF\x01\x01\x01" + bytes(9) + struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, entry, 52, 0, 0, 52, 32, 2, 0, 0, 0)
    load = struct.pack("<IIIIIIII", 1, at_code, entry, entry, len(code), len(code), 5, 0x1000)
    noted = struct.pack("<IIIIIIII", 4, at_note, base + at_note, base + at_note, len(note), len(note), 4, 4)
    content = (elf + load + noted).ljust(headers, b"\0")
    return content.ljust(at_note, b"\0") + note.ljust(at_code - at_note, b"\0") + code
