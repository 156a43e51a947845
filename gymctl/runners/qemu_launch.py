"""From a plan to a running QEMU: its folders, overlay, secrets and ports, and what its last words mean."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gymctl import paths, proc
from gymctl.errors import Conflict, GymctlError, NotFound, StartError, Unavailable, Unsupported, UsageError
from gymctl.runner import Handle, Plan
from gymctl.vm import accel, disk, machine
from gymctl.vm.console import KEYBOARDS
from gymctl.vm.machine import EMULATOR, Machine, Topology
from gymctl.vm.qmp import Qmp, listener

SOCKETS = ("qmp", "io", "channel")
"""Control and input each have their own: QEMU serves one client a socket, and a long session must not keep `stop` out."""
MEMORY = "1g"
SIZE = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
VNC_VARIABLE = "VNC_PORT"
GREETING_SECONDS = 30.0
DBUS_PACKAGES = "Debian: apt-get install qemu-system-gui (from 13 on qemu-system-modules-opengl)"


@dataclass(frozen=True, slots=True)
class Saved:
    """What a machine is started from when it is not its image's first boot: layers over the base, and perhaps a memory."""

    layers: tuple[Path, ...] = ()
    topology: Topology | None = None
    memory: Path | None = None


def size(name: str, text: str) -> int:
    """`512m`, `2g` in bytes; UsageError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgt]?)(?:i?b)?", str(text).strip().lower())
    if not found or not float(found[1]):
        raise UsageError(f"--opt {name}={text}: expected a size", hint="for example 512m or 2g")
    return int(float(found[1]) * SIZE[found[2]])


def topology(plan: Plan, chosen: accel.Accelerator, *, qemu: str = "") -> Topology:
    """The machine that a plan asks for, on this QEMU when none is named; UsageError, Unavailable without QEMU."""
    given = plan.options
    qemu = qemu or machine.version()
    cpus = int(given["cpus"]) if "cpus" in given else max(1, round(plan.cpus or 2))
    memory = size("memory", given["memory"]) if "memory" in given else int((plan.mem_gb or 1) * 2**30)
    asked = str(given.get("resolution") or plan.env.get("RESOLUTION") or "1920x1080")
    found = re.fullmatch(r"([1-9]\d{2,3})x([1-9]\d{2,3})", asked)
    if not found:
        raise UsageError(f"--opt resolution={asked}: expected a size of the screen", hint="for example 1920x1080")
    if cpus < 1:
        raise UsageError(f"--opt cpus={cpus}: expected at least 1")
    width, height = int(found[1]), int(found[2])
    return Topology(qemu, machine.machine_type(qemu), chosen.name, chosen.cpu, cpus, memory >> 20, width, height, machine.devices(width, height))


def launch(plan: Plan, about: Topology, saved: Saved) -> tuple[Handle, Qmp]:
    """A QEMU whose control socket answers: stopped when it waits for a state, else booting. StartError, Conflict, NotFound, Unavailable."""
    base = Path(plan.image["disk"])
    layers = (base, *saved.layers)
    virtual = max(disk.size(base), size("disk", plan.options["disk"]) if "disk" in plan.options else 0)
    kernel = (Path(plan.image["kernel"]), Path(plan.image["initrd"]) if plan.image.get("initrd") else None, str(plan.image.get("append") or ""))
    wanted = Machine(
        topology=about, layers=layers, overlay=plan.directory / "vm" / "overlay.qcow2", log=plan.directory / "vm" / "serial.log", fds={},
        network=_network(plan), kernel=kernel if plan.image.get("kernel") else None, display=str(plan.options.get("display") or "qmp").replace("qmp", "none"),
        vnc=bool(plan.secrets.get("VNC_PASSWORD")), memory=saved.memory, incoming=saved.memory is not None, label=plan.label,
    )  # fmt: skip
    failure: GymctlError | None = None
    for ports, note in _ports(plan):
        with contextlib.ExitStack() as undo:
            folder = _folders(plan, undo)
            disk.create(wanted.overlay, virtual)
            try:
                handle, qmp = _spawn(plan, replace(wanted, ports=ports), folder, undo)
            except Conflict as error:
                failure = error
                if plan.host_port:
                    raise
                continue
            handle["notes"] += [note] if note else []
            undo.pop_all()
            return handle, qmp
    raise failure or StartError("QEMU found no free port on 127.0.0.1")


def _network(plan: Plan) -> bool:
    return bool(plan.options.get("network", plan.network))


def _ports(plan: Plan) -> Iterator[tuple[tuple[tuple[int, int], ...], str]]:
    """The forwards to try, one after the other, and what is to be said of them; 0 is the kernel's choice."""
    others = tuple((0, inside) for variable, inside in plan.ports.items() if variable != VNC_VARIABLE)
    note = ""
    if plan.host_port is None:
        if _free(plan.port):
            yield ((plan.port, plan.port), *others), ""
        note = f"port {plan.port} is taken, so another was chosen"
    yield ((plan.host_port or 0, plan.port), *others), note


def _free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError as error:
            return error.errno == errno.EACCES
    return True


def _folders(plan: Plan, undo: contextlib.ExitStack) -> Path:
    """`vm` in the instance's directory, empty, and a short one for sockets, which is returned."""
    folder = plan.directory / "vm"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    undo.callback(shutil.rmtree, folder, ignore_errors=True)
    runtime = paths.make_runtime_dir(runtime_name(plan.name))
    undo.callback(shutil.rmtree, runtime, ignore_errors=True)
    return runtime


def runtime_name(name: str) -> str:
    """Apart from the folder of the instance's helpers, which come and go while the machine runs."""
    return f"{name}/vm"


def _spawn(plan: Plan, wanted: Machine, runtime: Path, undo: contextlib.ExitStack) -> tuple[Handle, Qmp]:
    folder = wanted.overlay.parent
    with contextlib.ExitStack() as ours:
        sockets = {name: ours.enter_context(listener(runtime / name)) for name in SOCKETS}
        wanted = replace(wanted, fds={name: made.fileno() for name, made in sockets.items()}, files=_secrets(plan, folder))
        argv = wanted.argv(EMULATOR)
        (folder / "argv.json").write_text(json.dumps(argv, indent=1))
        env = proc.environment({proc.LABEL_VARIABLE: plan.label})
        process = proc.spawn(argv, env=env, cwd=folder, log=folder / "qemu.log", pass_fds=list(wanted.fds.values()))
    undo.callback(proc.end_group, process, grace=0.5)
    try:
        qmp = Qmp(runtime / "qmp", timeout=GREETING_SECONDS)
    except Unavailable as error:
        proc.wait_gone(process, 0.5)
        raise _explained(folder / "qemu.log", wanted, error) from error
    undo.callback(qmp.close)
    for path in wanted.files.values():  # QEMU has read them
        path.unlink()
    published = forwards(qmp)
    if wanted.vnc:
        qmp.execute("set_password", protocol="vnc", password=plan.secrets["VNC_PASSWORD"][:8])
        published[str(plan.ports.get(VNC_VARIABLE, 5900))] = int(qmp.execute("query-vnc")["service"])
    return {
        "pid": process.pid, "started": process.started, "label": plan.label, "directory": str(folder), "runtime": str(runtime),
        "url": f"http://127.0.0.1:{published[str(plan.port)]}", "ports": published, "topology": wanted.topology.document(),
        "layers": [str(path) for path in wanted.layers], "overlay": str(wanted.overlay), "display": wanted.display, "notes": [],
        "keyboard": str(plan.options.get("keyboard", "uinput")),
        "shutdown": float(plan.options.get("shutdown", 0)), "base": str(plan.image["digest"]), "files": list(wanted.files),
    }, qmp  # fmt: skip


def _secrets(plan: Plan, folder: Path) -> dict[str, Path]:
    """What the guest is told before it boots, as files that only this user reads and that are gone once QEMU has read them."""
    variables = {**plan.env, **{name: str(port) for name, port in plan.ports.items() if name != VNC_VARIABLE}}
    variables |= {name: value for name, value in plan.secrets.items() if name not in ("GUEST_TOKEN", "VNC_PASSWORD")}
    contents = {machine.ENVIRONMENT_FILE: "".join(f"{name}={_quoted(value)}\n" for name, value in variables.items()) or "\n"}
    if "GUEST_TOKEN" in plan.secrets:
        contents[machine.TOKEN_FILE] = plan.secrets["GUEST_TOKEN"]
    made = {}
    for name, content in contents.items():
        made[name] = folder / name.rpartition("/")[2]
        with open(os.open(made[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(content)
    return made


def _quoted(value: str) -> str:
    """As systemd reads a file of variables."""
    return '"' + re.sub(r'(["\\`$])', r"\\\1", value) + '"'


def forwards(qmp: Qmp) -> dict[str, int]:
    """{guest port: host port}, read back from QEMU."""
    table = qmp.execute("human-monitor-command", command_line="info usernet")
    found = re.findall(r"TCP\[HOST_FORWARD\]\s+\d+\s+127\.0\.0\.1\s+(\d+)\s+\S+\s+(\d+)", table)
    return {inside: int(outside) for outside, inside in found}


def _explained(log: Path, wanted: Machine, error: Unavailable) -> GymctlError:
    """QEMU's last words as one of our errors."""
    with contextlib.suppress(OSError):
        text = log.read_text(errors="replace").strip()
        for pattern, make in _MEANINGS.items():
            if re.search(pattern, text):
                explained: GymctlError = make(text.splitlines()[-1], wanted)
                return explained
        if text:
            return StartError(f"QEMU ended at once: {text.splitlines()[-1][:500]}", hint="`gymctl doctor qemu` tries what it needs")
    return StartError(f"QEMU started and does not answer: {error.message}")


def _port_taken(line: str, wanted: Machine) -> GymctlError:
    found = re.search(r"127\.0\.0\.1:(\d+)-", line)
    port = int(found[1]) if found else wanted.ports[0][0]
    holder = proc.listener(port)
    return Conflict(f"port {port} is taken{f' by {holder}' if holder else ''}", hint="`--port 0` takes any free one")


_MEANINGS: Mapping[str, Any] = {
    "Could not set up host forwarding": _port_taken,
    "Failed to get .*lock|Failed to lock": lambda line, wanted: disk.locked(line, [*wanted.layers, wanted.overlay]),
    "Could not open '.*': No such file": lambda line, wanted: NotFound(f"a disk is missing: {line}", hint="load or build the image again"),
    "does not accept value 'dbus'|[Dd]isplay 'dbus' is not|ui-dbus": lambda line, wanted: Unavailable("this QEMU has no D-Bus display", hint=DBUS_PACKAGES),
    "set MSR|[Kk][Vv][Mm].*(failed|denied|error)": lambda line, wanted: Unavailable(f"KVM does not work here: {line}", hint="`--opt accel=tcg`"),
    "cannot set up guest memory|[Cc]annot allocate memory": lambda line, wanted: Unavailable(
        f"this machine has no room for {wanted.topology.mem_mb} MiB of memory", hint="`--opt memory=` asks for less"
    ),
    "[Uu]nsupported machine type": lambda line, wanted: Unavailable(f"this QEMU has no {wanted.topology.machine}", hint="use the QEMU it was saved with"),
    "Could not read|[Ii]mage is not in qcow2|is corrupt": lambda line, wanted: StartError(f"a disk cannot be read: {line}", hint="`gymctl cache verify`"),
}


def check(plan: Plan) -> None:
    """Unsupported, UsageError for options that no machine of ours has."""
    if plan.options.get("launcher", "native") != "native":
        raise Unsupported(f"--opt launcher={plan.options['launcher']}: only native so far", hint="leave it out")
    for name, known in (
        ("display", ("qmp", "dbus")),
        ("keyboard", KEYBOARDS),
        ("clock", ("now", "frozen")),
        ("checkpoint", ("memory", "disk")),
        ("accel", ("auto", "tcg", "kvm")),
    ):
        if (value := plan.options.get(name)) is not None and value not in known:
            raise UsageError(f"--opt {name}={value}: one of {', '.join(known)}")
