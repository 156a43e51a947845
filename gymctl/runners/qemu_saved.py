"""Checkpoints of runner `qemu`: a disk to boot from again, or a whole machine to clone; kept in the cache under the key they were asked for by."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from gymctl import cache, proc
from gymctl.errors import Conflict, GymctlError, IntegrityError, NotFound, StartError
from gymctl.proc import Process
from gymctl.runner import Handle, Plan
from gymctl.runners import qemu_launch
from gymctl.runners.qemu_launch import Saved
from gymctl.vm import accel, channel, disk, machine, template
from gymctl.vm.machine import Machine, Topology
from gymctl.vm.qmp import Qmp, listener

TOLD_SECONDS = 60.0


def checkpoints() -> dict[str, str]:
    """{key: what it is} of the saved disks."""
    return _kept("disk")


def memory_checkpoints() -> dict[str, str]:
    """{key: what it is} of the saved machines."""
    return _kept("memory")


def _kept(form: str) -> dict[str, str]:
    found = {}
    for row in cache.entries():
        for use in row["used_by"]:
            if use.get("form") == f"qemu {form}":
                found[str(use["checkpoint"])] = f"{use['what']}, {row['bytes'] / 2**20:,.0f} MiB"
    return found


def _key(form: str, key: str) -> str:
    return cache.key(what=f"qemu {form}", version=template.VERSION, checkpoint=key)


def save(handle: Handle, key: str, /) -> None:
    """Keep the disk: what was written is flushed, its overlay is frozen, and the machine goes on with a new one. Unavailable, EnvError."""
    _keep(handle, key, "disk", lambda qmp, layers, folder: None)


def save_memory(handle: Handle, key: str, /) -> None:
    """Keep memory, devices and disk; the machine stands still meanwhile."""

    def whole(qmp: Qmp, layers: list[Path], folder: Path) -> None:
        memory = template.shared_memory(handle["pid"])
        if memory:
            template.save_state(qmp, folder, memory=memory)
            return
        with _twin(handle, layers) as (twin, pid):
            template.hand_over(qmp, twin)
            shared = template.shared_memory(pid)
            assert shared is not None  # noqa: S101  (a twin's memory is a shared file)
            template.save_state(twin, folder, memory=shared)

    _keep(handle, key, "memory", whole)


def _keep(handle: Handle, key: str, form: str, write: Callable[[Qmp, list[Path], Path], None]) -> None:
    def make(folder: Path) -> None:
        folder.mkdir()
        _wake(handle)
        channel.ask(Path(handle["runtime"]) / "channel", "prepare", timeout=TOLD_SECONDS)
        with Qmp(Path(handle["runtime"]) / "qmp") as qmp:
            about = {**handle["topology"], "qemu": qmp.version}
            with template.paused(qmp):
                layers = template.freeze(qmp, Path(handle["directory"]))
                write(qmp, layers, folder)
                names = template.keep_layers(layers, folder)
        template.write_manifest(folder, form=form, about=about, base=handle["base"], layers=names, saved=time.time())

    note = {"what": f"{form} checkpoint of {handle['label'].partition('/')[2]}", "form": f"qemu {form}", "checkpoint": key}
    cache.get_or_make(_key(form, key), make, note=note)


def _wake(handle: Handle) -> None:
    """A gymctl that was killed while it saved has left the machine standing still, and perhaps a twin."""
    for label, process in proc.labeled(handle["label"]):
        if label == handle["label"] and process.pid != handle["pid"] and _is_twin(process, handle):
            proc.end_group(process, grace=0.2)
    for folder in Path(handle["runtime"]).glob("twin-*"):
        shutil.rmtree(folder, ignore_errors=True)
    with Qmp(Path(handle["runtime"]) / "qmp") as qmp:
        template.end_migration(qmp)
        if qmp.execute("query-status")["status"] != "running":
            qmp.execute("cont")


def _is_twin(process: Process, handle: Handle) -> bool:
    try:
        return f"{handle['runtime']}/twin-".encode() in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    except OSError:
        return False


@contextlib.contextmanager
def _twin(handle: Handle, layers: list[Path]) -> Iterator[tuple[Qmp, int]]:
    """A machine like a clone that waits for its state, with a memory that can be saved; gone after the block."""
    folder = Path(tempfile.mkdtemp(prefix="twin-", dir=handle["runtime"]))
    about = template.topology_of(handle)
    with contextlib.ExitStack() as undo:
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        overlay = folder / "overlay.qcow2"
        disk.create(overlay, disk.size(layers[-1]))
        sockets = {name: listener(folder / name) for name in qemu_launch.SOCKETS}
        fds = {name: made.fileno() for name, made in sockets.items()}
        made = Machine(topology=about, layers=tuple(layers), overlay=overlay, log=folder / "serial.log", fds=fds, incoming=True, label=handle["label"])
        env = proc.environment({proc.LABEL_VARIABLE: handle["label"]})
        files = {name: folder / name.rpartition("/")[2] for name in handle["files"]}
        for path in files.values():
            path.write_text("-")
        process = proc.spawn(replace(made, files=files).argv(machine.EMULATOR), env=env, cwd=folder, log=folder / "qemu.log", pass_fds=list(fds.values()))
        for sock in sockets.values():
            sock.close()
        undo.callback(proc.end_group, process, grace=0.2)
        qmp = undo.enter_context(Qmp(folder / "qmp"))
        yield qmp, process.pid


def restore(plan: Plan, key: str, /) -> Handle:
    """Boot a machine from a saved disk. NotFound, IntegrityError."""
    qemu_launch.check(plan)
    tree, manifest = _found("disk", key, plan)
    chosen = accel.choose(plan.options.get("accel", "auto"), machine.EMULATOR)
    handle, qmp = qemu_launch.launch(plan, qemu_launch.topology(plan, chosen), Saved(tuple(tree / name for name in manifest["layers"])))
    qmp.close()
    handle["notes"].append(f"accelerator {chosen.name}: {chosen.why}")
    return handle


def restore_memory(plan: Plan, key: str, /) -> Handle:
    """A clone that is a machine of its own: time, names, address, keys, token. NotFound, IntegrityError naming the field that differs."""
    handle, qmp = resume(plan, key)
    with contextlib.ExitStack() as undo:
        undo.callback(proc.end_group, Process(handle["pid"], handle["started"]), grace=0.2)
        with qmp:
            settle(handle, qmp, plan)
        undo.pop_all()
    return handle


def resume(plan: Plan, key: str) -> tuple[Handle, Qmp]:
    """A clone that runs, its network cable out, still with the names and the time of the machine that was saved."""
    qemu_launch.check(plan)
    tree, manifest = _found("memory", key, plan)
    saved = template.topology_of(manifest)
    asked = _asked(plan, saved)
    _refuse(template.difference(saved, asked))
    handle, qmp = qemu_launch.launch(plan, saved, Saved(tuple(tree / name for name in manifest["layers"]), saved, tree / template.MEMORY))
    with contextlib.ExitStack() as undo:
        undo.callback(proc.end_group, Process(handle["pid"], handle["started"]), grace=0.2)
        _refuse("" if qmp.version == saved.qemu else f"qemu was {saved.qemu}, and is {qmp.version} now")
        template.load_state(qmp, tree)
        qmp.execute("set_link", name="nic0", up=False)
        qmp.execute("cont")
        undo.pop_all()
    return handle, qmp


def settle(handle: Handle, qmp: Qmp, plan: Plan) -> None:
    """Tell a clone who it is, and put its network cable in when it knows; StartError."""
    clock = None if plan.options.get("clock") == "frozen" else time.time()
    wanted = channel.identity(plan.name, plan.secrets.get("GUEST_TOKEN", ""), clock=clock)
    try:
        told = channel.ask(Path(handle["runtime"]) / "channel", "identity", timeout=TOLD_SECONDS, **wanted)
    except GymctlError as error:
        raise StartError(f"the clone was not told who it is: {error.message}", hint=error.hint) from error
    if not told.get("server"):
        handle["notes"].append("the guest's server was not running when this machine was saved")
    if clock is None:
        handle["notes"].append(f"its clock stands where it was saved: {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(told['time']))} UTC")
    qmp.execute("set_link", name="nic0", up=True)


def _asked(plan: Plan, saved: Topology) -> Topology:
    """The machine that a plan asks for, with what only QEMU can tell taken from the saved one."""
    name = plan.options.get("accel", "auto")
    chosen = accel.Accelerator(saved.accel if name == "auto" else name, "")
    return qemu_launch.topology(plan, chosen, qemu=saved.qemu)


def _refuse(difference: str) -> None:
    if difference:
        hint = "ask for the same machine, or make the checkpoint anew: `gymctl cache gc --all` removes the old one"
        raise IntegrityError(f"the checkpoint is of another machine: {difference}", hint=hint)


def _found(form: str, key: str, plan: Plan) -> tuple[Path, dict[str, Any]]:
    tree = cache.lookup(_key(form, key))
    if tree is None:
        raise NotFound(f"there is no {form} checkpoint {key[:12]}", hint="`gymctl run RECIPE --checkpoint LEVEL` makes one")
    manifest = template.read_manifest(tree)
    _refuse("" if manifest["base"] == plan.image["digest"] else f"its base was {manifest['base']}, and is {plan.image['digest']} now")
    return tree, manifest


def drop(key: str, /) -> None:
    """Remove a saved disk; Conflict while a machine stands on it."""
    _drop("disk", key)


def drop_memory(key: str, /) -> None:
    """Remove a saved machine; Conflict while a clone of it runs."""
    _drop("memory", key)


def _drop(form: str, key: str) -> None:
    tree = cache.lookup(_key(form, key))
    if tree is None:
        return
    if holders := disk.users_of(tree):
        raise Conflict(f"the checkpoint {key[:12]} is in use by {', '.join(holders)}", hint="`gymctl ps` shows what runs; stop it first")
    cache.drop(_key(form, key))


def rewind(handle: Handle, tag: str, *, make: bool) -> None:
    """Save a running machine inside its own disk (`make`), or put it back to that moment in place; told who it is as a clone is. StartError."""
    with Qmp(Path(handle["runtime"]) / "qmp") as qmp:
        if make:
            template.snapshot(qmp, "snapshot-save", tag)
            return
        template.snapshot(qmp, "snapshot-load", tag)
        qmp.execute("cont")
