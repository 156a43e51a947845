"""python3 build.py --output DIR [--set NAME=VALUE]...: linux-desktop from distribution packages, as an OCI image and as a virtual disk.

Inputs (--set): suite (bookworm), mirror (a URL, or `host`: this machine's own sources), packages (a file's path), format (all, oci, qcow2),
cache (a directory for what is slow to make). Needs root, mmdebstrap, GNU tar, python3 with pip; for qcow2 also mke2fs and qemu-img.
Outputs: rootfs.tar, linux-desktop.tar (OCI layout and docker archive in one), linux-desktop.qcow2, linux-desktop.zstd.qcow2, vmlinuz, initrd.img,
SHA256SUMS, image.json (packages, digests, provenance). The same package versions give the same rootfs.tar, byte for byte; a second run
on the same inputs does nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import formats  # they stand beside this file, which is run by its path
import rootfs

HERE = Path(__file__).resolve().parent
GUEST = HERE.parent / "_guest"
DEFAULTS = {"suite": "bookworm", "mirror": "host", "packages": str(HERE / "packages.txt"), "format": "all", "cache": ""}
FORMAT_VERSION = 1
UBUNTU = ("focal", "jammy", "noble")
SOURCES = ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list.d/ubuntu.sources", "/etc/apt/sources.list")


def sha256(path: Path) -> str:
    """A file's digest."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            digest.update(chunk)
    return digest.hexdigest()


def tree_digest(*trees: Path) -> str:
    """The digest of trees: names, modes that matter, contents."""
    digest = hashlib.sha256()
    for tree in trees:
        for path in sorted(p for p in tree.rglob("*") if p.is_file() and p.suffix != ".pyc"):
            digest.update(f"{path.relative_to(tree)}\0{path.stat().st_mode & 0o111:o}\0{sha256(path)}\0".encode())
    return digest.hexdigest()


def run(argv: Sequence[str], **more: Any) -> subprocess.CompletedProcess[str]:
    """A command that must succeed; its own words when it does not."""
    done = subprocess.run(list(argv), check=False, text=True, **more)
    if done.returncode:
        sys.exit(f"{argv[0]} ended with {done.returncode}: {' '.join(argv)[:400]}\n{(done.stderr or '')[-2000:]}")
    return done


def package_list(file: Path, suite: str) -> list[str]:
    """The packages for a suite: lines `package [debian|ubuntu]`."""
    family = "ubuntu" if suite in UBUNTU else "debian"
    lines = [line.split() for line in file.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return [words[0] for words in lines if len(words) == 1 or words[1] == family]


def sources(mirror: str, suite: str) -> list[str]:
    """What mmdebstrap takes for a mirror: the host's own file of sources, or lines made from a URL."""
    if mirror == "host":
        found = next((s for s in SOURCES if Path(s).exists() and suite in Path(s).read_text()), None)
        if not found:
            sys.exit(f"this machine has no package sources for {suite}: --set mirror=URL")
        return [found]
    components = "main universe" if suite in UBUNTU else "main"
    return [f"deb {mirror} {name} {components}" for name in (suite, f"{suite}-updates")]


def inputs(settings: Mapping[str, str]) -> dict[str, Any]:
    """Everything that decides what is made."""
    return {
        "format_version": FORMAT_VERSION, "suite": settings["suite"], "mirror": settings["mirror"], "formats": settings["format"],
        "packages": package_list(Path(settings["packages"]), settings["suite"]), "wheels": (HERE / "wheels.txt").read_text(),
        "sources": tree_digest(HERE, GUEST),
    }  # fmt: skip


def packages_tar(settings: Mapping[str, str], cache: Path) -> Path:
    """The packages, installed and nothing else: minutes, so it is kept by its inputs."""
    wanted = package_list(Path(settings["packages"]), settings["suite"])
    key = hashlib.sha256(json.dumps([settings["suite"], settings["mirror"], wanted, rootfs.EPOCH]).encode()).hexdigest()[:24]
    made = cache / f"packages-{key}.tar"
    if made.exists():
        return made
    part = cache / f"part-{key}.tar"  # mmdebstrap knows a tar by its name
    print(f"installing {len(wanted)} packages of {settings['suite']}", file=sys.stderr)  # noqa: T201
    excluded = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "info", "locale", "help", "lintian")]
    argv = [
        "mmdebstrap", "--variant=minbase", "--mode=root", f"--include={','.join(wanted)}", '--aptopt=Acquire::Languages "none"',
        '--aptopt=APT::Install-Recommends "false"', *excluded, "--dpkgopt=path-include=/usr/share/doc/*/copyright",
        settings["suite"], str(part), *sources(settings["mirror"], settings["suite"]),
    ]  # fmt: skip
    run(argv, env={**os.environ, "SOURCE_DATE_EPOCH": str(rootfs.EPOCH)}, stdin=subprocess.DEVNULL)
    os.replace(part, made)
    return made


def up_to_date(output: Path, key: str) -> bool:
    """Whether the output is what these inputs gave, every file of it whole."""
    try:
        document = json.loads((output / "image.json").read_text())
        return document["inputs_digest"] == key and all(sha256(output / name) == digest for name, digest in document["files"].items())
    except (OSError, ValueError, KeyError):
        return False


def build(settings: Mapping[str, str], output: Path) -> None:
    """Make everything beside the output, then move it there: image.json, which vouches for the rest, last."""
    given = inputs(settings)
    key = hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()
    output.mkdir(parents=True, exist_ok=True)
    if up_to_date(output, key):
        print(f"{output} is up to date")  # noqa: T201  # the command's answer
        return
    if os.geteuid() != 0:
        sys.exit("building needs root: the file system's owners and devices are root's")
    cache = Path(settings["cache"] or output / ".cache")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output, prefix=".build-") as folder:
        work = Path(folder)
        tree = work / "root"
        packages = rootfs.unpack(packages_tar(settings, cache), tree)
        rootfs.customize(tree, HERE, GUEST, HERE / "wheels.txt", cache)
        rootfs.clean(tree)
        made = formats.make(tree, work / "out", settings["format"])
        files = {path.name: sha256(path) for path in made}
        document = {
            "name": "linux-desktop", "suite": settings["suite"], "inputs_digest": key, "inputs": {k: v for k, v in given.items() if k != "packages"},
            "packages": packages, "rootfs": f"sha256:{files['rootfs.tar']}", "files": files,
            "kernel": {"file": "vmlinuz", "initrd": "initrd.img", "append": "root=/dev/vda rw quiet"} if "vmlinuz" in files else None,
            "provenance": {"builder": f"images/linux-desktop/build.py {FORMAT_VERSION}", "mirror": settings["mirror"], "sources": given["sources"]},
        }  # fmt: skip
        (output / "image.json").unlink(missing_ok=True)
        for path in made:
            os.replace(path, output / path.name)
    (output / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in sorted(files.items())))
    part = output / ".image.json.part"
    part.write_text(json.dumps(document, indent=1) + "\n")
    os.replace(part, output / "image.json")


def main() -> None:
    """Parse, check, build."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    settings = dict(DEFAULTS)
    for word in options.set:
        name, sep, value = word.partition("=")
        if not sep or name not in DEFAULTS:
            parser.error(f"--set {word}: the names are {', '.join(DEFAULTS)}")
        settings[name] = value
    needed = ["mmdebstrap", "tar", *(["mke2fs", "qemu-img"] if settings["format"] in ("all", "qcow2") else [])]
    missing = [name for name in needed if not shutil.which(name)]
    if missing or settings["format"] not in formats.FORMATS:
        parser.error(f"not installed: {', '.join(missing)}" if missing else f"format={settings['format']}: one of {', '.join(formats.FORMATS)}")
    build(settings, options.output.resolve())


if __name__ == "__main__":
    main()
