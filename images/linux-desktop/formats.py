"""The forms that a root file system is handed out in: a tar, an OCI image that every engine reads, a virtual disk with its kernel."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rootfs import BROKEN, EPOCH, call, fail

FORMATS = ("oci", "qcow2")
DISK = "8G"
UUID = "6d0f5d1e-2c5b-4d0e-9a53-9a1c7f0e51d1"
REFERENCE = "linux-desktop:latest"
LEFT_OUT = ("./boot", "./lib/modules", "./usr/lib/modules", "./usr/lib/firmware")
"""A container has its host's kernel."""
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def make(root: Path, out: Path, wanted: Sequence[str], say: Callable[[str], None]) -> list[Path]:
    """The files of the forms wanted."""
    out.mkdir()
    whole = out / "rootfs.tar"
    say("packing the root file system")
    _tar(root, whole)
    made = [whole]
    if "oci" in wanted:
        say("packing the container image")
        made.append(_oci(root, out))
    if "qcow2" in wanted:
        say("making the virtual disk")
        made += _disk(root, out)
    return made


def _tar(root: Path, file: Path, excluded: Sequence[str] = ()) -> None:
    """Sorted, numbered owners, no time after EPOCH, no access times: the same tree gives the same bytes."""
    call([
        "tar", "-C", str(root), "--sort=name", "--format=posix", "--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime", "--numeric-owner",
        f"--mtime=@{EPOCH}", "--clamp-mtime", "--xattrs", "--xattrs-include=security.capability",
        *(f"--exclude={name}/*" for name in excluded), "-cf", str(file), ".",
    ])  # fmt: skip


def sha256(path: Path) -> str:
    """A file's digest."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            digest.update(chunk)
    return digest.hexdigest()


def _oci(root: Path, out: Path) -> Path:
    """One tar that is an OCI layout, and a docker archive for engines older than those."""
    layer = out / "layer.tar"
    _tar(root, layer, LEFT_OUT)
    digest = sha256(layer)
    made = "2026-01-01T00:00:00Z"
    config = {
        "architecture": MACHINES.get(platform.machine(), platform.machine()), "os": "linux", "created": made,
        "config": {
            "Entrypoint": ["/usr/local/bin/entrypoint"], "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"],
            "ExposedPorts": {"5000/tcp": {}, "5900/tcp": {}}, "StopSignal": "SIGTERM", "WorkingDir": "/",
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]}, "history": [{"created": made, "created_by": "images/linux-desktop/build.py"}],
    }  # fmt: skip
    blobs: dict[str, bytes] = {}
    config_name = _blob(blobs, config)
    manifest: dict[str, Any] = {
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": f"sha256:{config_name}", "size": len(blobs[config_name])},
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": f"sha256:{digest}", "size": layer.stat().st_size}],
    }  # fmt: skip
    manifest_name = _blob(blobs, manifest)
    entry = {"mediaType": manifest["mediaType"], "digest": f"sha256:{manifest_name}", "size": len(blobs[manifest_name])}
    names = {"org.opencontainers.image.ref.name": REFERENCE}
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [{**entry, "annotations": names}]}
    listed = [{"Config": f"blobs/sha256/{config_name}", "RepoTags": [REFERENCE], "Layers": [f"blobs/sha256/{digest}"]}]
    archive = out / "linux-desktop.tar"
    with tarfile.open(archive, "w") as tar:
        for name, content in sorted(blobs.items()):
            _add(tar, f"blobs/sha256/{name}", content)
        member = tarfile.TarInfo(f"blobs/sha256/{digest}")
        member.size, member.mtime = layer.stat().st_size, EPOCH
        with layer.open("rb") as file:
            tar.addfile(member, file)
        documents = {"index.json": index, "manifest.json": listed, "oci-layout": {"imageLayoutVersion": "1.0.0"}}
        for name, document in documents.items():
            _add(tar, name, json.dumps(document, sort_keys=True).encode())
    layer.unlink()
    return archive


def image_of(archive: Path) -> dict[str, str]:
    """The reference and digest that an archive's image has in an engine."""
    with tarfile.open(archive) as tar:
        listed = json.load(tar.extractfile("manifest.json") or io.BytesIO())
    return {"ref": listed[0]["RepoTags"][0], "digest": f"sha256:{listed[0]['Config'].rpartition('/')[2]}"}


def _blob(blobs: dict[str, bytes], document: Any) -> str:
    content = json.dumps(document, sort_keys=True).encode()
    name = hashlib.sha256(content).hexdigest()
    blobs[name] = content
    return name


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mtime = len(content), EPOCH
    tar.addfile(member, io.BytesIO(content))


def _disk(root: Path, out: Path) -> list[Path]:
    """An ext4 file system without partitions as qcow2, the same compressed for releases, kernel and initrd for a direct boot."""
    kernels, initrds = sorted((root / "boot").glob("vmlinuz-*")), sorted((root / "boot").glob("initrd.img-*"))
    if not kernels or not initrds:
        fail(BROKEN, "the root file system has no kernel", "put linux-image-amd64 into the package list, or take --format oci")
    vmlinuz, initrd = out / "vmlinuz", out / "initrd.img"
    vmlinuz.write_bytes(kernels[-1].read_bytes())
    initrd.write_bytes(initrds[-1].read_bytes())
    raw = out / "disk.raw"
    options = f"lazy_itable_init=1,lazy_journal_init=1,hash_seed={UUID}"
    argv = ["mke2fs", "-q", "-t", "ext4", "-L", "root", "-U", UUID, "-m", "0", "-E", options, "-d", str(root), str(raw), DISK]
    call(argv, E2FSPROGS_FAKE_TIME=str(EPOCH))
    disk, release = out / "linux-desktop.qcow2", out / "linux-desktop.zstd.qcow2"
    call(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(raw), str(disk)])
    call(["qemu-img", "convert", "-c", "-f", "raw", "-O", "qcow2", "-o", "compression_type=zstd", str(raw), str(release)])
    raw.unlink()
    return [disk, release, vmlinuz, initrd]
