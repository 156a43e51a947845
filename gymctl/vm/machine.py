"""A PC as QEMU is told of it: what a guest sees (its topology, which checkpoints depend on) and what it does not (ports, sockets, displays)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gymctl import proc
from gymctl.errors import Unavailable
from gymctl.vm import disk

EMULATOR = "qemu-system-x86_64"
INSTALL = "install QEMU (Debian: apt-get install qemu-system-x86 qemu-utils)"
CHANNEL = "gymctl"
MAC = "52:54:00:67:79:6d"
"""A machine's before it is told its own."""
APPEND = "console=ttyS0 net.ifnames=0 nokaslr mitigations=off loglevel=4 systemd.show_status=0 gymctl.network=user"
TOKEN_FILE = "opt/gymctl/token"  # noqa: S105  (the name of a file that holds one)
ENVIRONMENT_FILE = "opt/gymctl/environment"


@dataclass(frozen=True, slots=True)
class Topology:
    """What a guest sees. A state of memory and devices is of no use on another one."""

    qemu: str
    machine: str
    accel: str
    cpu: str
    cpus: int
    mem_mb: int
    width: int
    height: int
    devices: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {**{name: getattr(self, name) for name in self.__slots__}, "devices": list(self.devices)}


@dataclass(frozen=True, slots=True)
class Machine:
    """One to be started. `fds`: listening sockets by name; `ports`: (host port, guest port), 0 for any; `files`: fw_cfg names to host files.

    `memory` is a saved memory to be mapped privately; without it memory is anonymous, and can be saved as such a file.
    """

    topology: Topology
    layers: tuple[Path, ...]
    overlay: Path
    log: Path
    fds: Mapping[str, int]
    ports: tuple[tuple[int, int], ...] = ()
    network: bool = False
    files: Mapping[str, Path] = field(default_factory=dict)
    kernel: tuple[Path, Path | None, str] | None = None
    display: str = "none"
    vnc: bool = False
    memory: Path | None = None
    incoming: bool = False
    label: str = ""

    def argv(self, emulator: str) -> list[str]:
        """The command line. No secret is in it."""
        made = [emulator, "-name", f"guest={_escaped(self.label)}", "-nodefaults", "-no-user-config"]
        made += ["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"]
        made += [*self._processor(), *self._kernel(), "-vga", "none", "-display", "dbus,p2p=yes" if self.display == "dbus" else "none"]
        if self.vnc:
            made += ["-vnc", "127.0.0.1:0,to=999,password=on"]
        for node in disk.block_devices(self.layers, self.overlay):
            made += ["-blockdev", json.dumps(node)]
        for name in ("qmp", "io"):
            made += ["-chardev", f"socket,id={name},fd={self.fds[name]},server=on,wait=off", "-mon", f"chardev={name},mode=control"]
        made += ["-chardev", f"socket,id=channel,fd={self.fds['channel']},server=on,wait=off"]
        made += ["-chardev", f"file,id=serial,path={_escaped(self.log)},append=on", "-serial", "chardev:serial", "-rtc", "base=utc"]
        forwards = "".join(f",hostfwd=tcp:127.0.0.1:{outside}-:{inside}" for outside, inside in self.ports)
        made += ["-netdev", f"user,id=net0,restrict={'off' if self.network else 'on'}{forwards}"]
        for name, path in self.files.items():
            made += ["-fw_cfg", f"name={name},file={_escaped(path)}"]
        for device in self.topology.devices:
            made += ["-device", device]
        return [*made, *(["-incoming", "defer"] if self.incoming else [])]

    def _processor(self) -> list[str]:
        about, size = self.topology, f"size={self.topology.mem_mb}M"
        accel = "tcg,thread=multi,tb-size=512" if about.accel == "tcg" else about.accel
        cpu = f"{about.cpu},arch-capabilities=off" if about.cpu == "host" else about.cpu
        kind = f"memory-backend-file,share=off,mem-path={_escaped(self.memory)}" if self.memory else "memory-backend-memfd,share=on"
        return [
            "-accel", accel, "-machine", f"{about.machine},memory-backend=ram,i8042=off", "-cpu", cpu, "-smp", str(about.cpus), "-m", str(about.mem_mb),
            "-object", f"{kind},id=ram,{size}",
        ]  # fmt: skip

    def _kernel(self) -> list[str]:
        if not self.kernel:
            return []
        kernel, initrd, append = self.kernel
        return ["-kernel", str(kernel), *(["-initrd", str(initrd)] if initrd else []), "-append", f"{append} {APPEND}".strip()]


def devices(width: int, height: int) -> tuple[str, ...]:
    """The same for every machine, in this order: another topology would be another checkpoint's."""
    return (
        f"virtio-vga,id=video0,xres={width},yres={height}", f"virtio-blk-pci,drive={disk.TOP}", f"virtio-net-pci,id=nic0,netdev=net0,mac={MAC},romfile=",
        "qemu-xhci,id=xhci", "usb-tablet,id=tablet,bus=xhci.0", "virtio-keyboard-pci,id=keyboard", "virtio-serial-pci,id=serial0",
        f"virtserialport,chardev=channel,name={CHANNEL}", "virtio-rng-pci", "virtio-balloon-pci,free-page-reporting=on",
    )  # fmt: skip


def _escaped(value: object) -> str:
    """A comma ends a value in QEMU's options, two of them are one in it."""
    return str(value).replace(",", ",,")


def version(emulator: str = EMULATOR) -> str:
    """`7.2.22`; Unavailable where there is no QEMU."""
    try:
        told = proc.run([emulator, "--version"], timeout=20)
    except Unavailable as error:
        raise Unavailable(error.message, hint=INSTALL) from error
    found = re.search(r"version (\d+\.\d+\.\d+)", told.stdout)
    if not found:
        raise Unavailable(f"{emulator} does not say its version: {(told.stderr or told.stdout).strip()[:200]}", hint=INSTALL)
    return found[1]


def machine_type(qemu: str) -> str:
    """The versioned name of the PC: what `q35` alone means changes from QEMU to QEMU."""
    return f"pc-q35-{qemu.rpartition('.')[0]}"
