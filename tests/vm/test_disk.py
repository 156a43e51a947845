"""Disks: what is none, what is locked and by whom, memory files with holes, machines that differ."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from gymctl.errors import Conflict, IntegrityError, NotFound, Unavailable
from gymctl.vm import accel, disk, machine, template
from gymctl.vm.machine import Topology
from tests.conftest import lacking
from tests.vm.conftest import Bare


@pytest.fixture
def base(tmp_path: Path) -> Path:
    if not shutil.which(disk.QEMU_IMG):
        lacking("qemu", f"no {disk.QEMU_IMG}")
    disk.create(tmp_path / "base.qcow2", 64 << 20)
    return tmp_path / "base.qcow2"


def test_an_overlay_names_no_other_file(base: Path) -> None:
    assert disk.size(base) == 64 << 20
    assert str(base).encode() not in base.read_bytes()


def test_missing_foreign_and_backed_disks_are_told_apart(base: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"nowhere\.qcow2"):
        disk.size(tmp_path / "nowhere.qcow2")
    other = tmp_path / "raw"
    other.write_bytes(b"no disk" * 100)
    with pytest.raises(IntegrityError, match="no qcow2"):
        disk.size(other)
    cut = tmp_path / "cut"
    cut.write_bytes(base.read_bytes()[:20])
    with pytest.raises(IntegrityError):
        disk.size(cut)
    named = bytearray(base.read_bytes())
    named[8:16] = (0x200).to_bytes(8, "big")  # where the name of a backing file would be
    other.write_bytes(named)
    with pytest.raises(IntegrityError, match="overlay over another"):
        disk.size(other)


def test_who_holds_a_disk_for_writing_is_named(base: Path, bare: Bare, tmp_path: Path) -> None:
    assert disk.holders_of(base) == []
    node = json.dumps({"driver": "qcow2", "node-name": "x", "file": {"driver": "file", "filename": str(base)}})
    bare("-machine", "none", "-display", "none", "-blockdev", node)
    (holder,) = disk.holders_of(base)
    assert "qemu-system" in holder
    with pytest.raises(Unavailable):
        bare("-machine", "none", "-display", "none", "-blockdev", node)
    logs = "".join(path.read_text() for path in tmp_path.glob("*.log"))
    assert "lock" in logs
    told = disk.locked(logs, [base])
    assert isinstance(told, Conflict)
    assert holder in told.message


def test_many_machines_read_one_base(base: Path, bare: Bare, tmp_path: Path) -> None:
    for number in range(3):
        overlay = tmp_path / f"over{number}"
        disk.create(overlay, disk.size(base))
        words = [word for node in disk.block_devices([base], overlay) for word in ("-blockdev", json.dumps(node))]
        qmp = bare("-machine", "none", "-display", "none", *words)
        assert {row["node-name"] for row in qmp.execute("query-named-block-nodes")} >= {"layer0", "top"}
    assert disk.holders_of(base) == []


def test_the_probe_tells_a_guest_that_counts_from_one_that_does_not() -> None:
    if not shutil.which(machine.EMULATOR):
        lacking("qemu", f"no {machine.EMULATOR}")
    seconds = accel.probe("tcg", machine.EMULATOR, seconds=20)
    assert seconds is not None
    assert accel.probe("tcg", machine.EMULATOR, seconds=0.001) is None
    chosen = accel.choose("auto", machine.EMULATOR)
    assert chosen.why
    assert (chosen.name, chosen.cpu) in {("tcg", "max"), ("kvm", "host")}


def test_kvm_that_is_none_is_an_error_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accel, "KVM", Path("/nonexistent/kvm"))
    with pytest.raises(Unavailable, match="no /dev/kvm") as error:
        accel.choose("kvm", machine.EMULATOR)
    assert "accel=tcg" in error.value.hint
    assert accel.choose("auto", machine.EMULATOR).name == "tcg"


def test_a_copied_memory_has_its_holes_and_no_pages_of_zeros(tmp_path: Path) -> None:
    source, copy = tmp_path / "memory", tmp_path / "copy"
    with source.open("wb") as file:
        file.truncate(64 << 20)
        file.seek(5 << 20)
        file.write(b"x" * 100_000)
        file.seek(20 << 20)
        file.write(bytes(8 << 20))
        file.seek((64 << 20) - 3)
        file.write(b"end")
    template.copy_sparse(source, copy)
    assert copy.read_bytes() == source.read_bytes()
    assert os.stat(copy).st_blocks * 512 < 1 << 20


def test_the_field_that_differs_is_named() -> None:
    one = Topology("7.2.22", "pc-q35-7.2", "tcg", "max", 2, 1024, 1280, 720, machine.devices(1280, 720))
    assert template.difference(one, one) == ""
    for change, said in (
        ({"cpus": 4}, "cpus was 2, and is 4"), ({"mem_mb": 2048}, "mem_mb"), ({"qemu": "10.0.1"}, "qemu was 7.2.22"), ({"cpu": "host"}, "cpu was max"),
        ({"devices": (*one.devices, "usb-kbd,bus=xhci.0")}, "usb-kbd"),
    ):  # fmt: skip
        assert said in template.difference(one, replace(one, **change))


def test_a_checkpoint_that_is_not_whole(tmp_path: Path) -> None:
    one = Topology("7.2.22", "pc-q35-7.2", "tcg", "max", 2, 1024, 1280, 720)
    with pytest.raises(IntegrityError, match="cannot be read"):
        template.read_manifest(tmp_path)
    template.write_manifest(tmp_path, form="memory", about=one.document(), base="sha256:x", layers=["layer1.qcow2"], saved=1.0)
    with pytest.raises(IntegrityError, match=r"layer1\.qcow2, state, memory"):
        template.read_manifest(tmp_path)
    for name in ("layer1.qcow2", "state", "memory"):
        (tmp_path / name).touch()
    assert template.topology_of(template.read_manifest(tmp_path)) == one
