"""python3 build.py --output DIR [--format all|oci|qcow2] [--set NAME=VALUE]...: linux-desktop from distribution packages, as OCI image and virtual disk.

Inputs (--set): suite (bookworm), mirror (a URL, or `host`: this machine's own sources), packages (a file's path), cache (a directory for what is slow
to make). Needs root, mmdebstrap, GNU tar, python3 with pip; for qcow2 also mke2fs and qemu-img.
Outputs: rootfs.tar, linux-desktop.tar (OCI layout and docker archive in one), linux-desktop.qcow2, linux-desktop.zstd.qcow2, vmlinuz, initrd.img,
SHA256SUMS, image.json (packages, digests, provenance). The same package versions give the same rootfs.tar, byte for byte; a second run on the same
inputs does nothing. On stdout a line a step; a failure is `error:` and `hint:` on stderr, with rootfs.py's exit codes.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).parent))
import formats  # they stand beside this file, which is run by its path
import rootfs
from rootfs import BUSY, LACKING, USAGE, fail

HERE = Path(__file__).resolve().parent
GUEST = HERE.parent / "_guest"
DEFAULTS = {"suite": "bookworm", "mirror": "host", "packages": str(HERE / "packages.txt"), "cache": ""}
FORMAT_VERSION = 2
UBUNTU = ("focal", "jammy", "noble")
SOURCES = ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list.d/ubuntu.sources", "/etc/apt/sources.list")
NEEDED_GIB = {"oci": 10, "qcow2": 12, "all": 14}
"""At most, while it is made."""
FULL = re.compile("No space left on device|don't have enough free space")
HERMETIC = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
"""mmdebstrap mounts things: a killed one must leave none of them, and no process, behind."""


def tree_digest(*trees: Path) -> str:
    """The digest of trees: names, modes that matter, contents."""
    digest = hashlib.sha256()
    for tree in trees:
        for path in sorted(p for p in tree.rglob("*") if p.is_file() and p.suffix != ".pyc"):
            digest.update(f"{path.relative_to(tree)}\0{path.stat().st_mode & 0o111:o}\0{formats.sha256(path)}\0".encode())
    return digest.hexdigest()


def say(text: str) -> None:
    """A line of progress."""
    print(text, flush=True)  # noqa: T201  # who started this reads it


def package_list(file: Path, suite: str) -> list[str]:
    """The packages for a suite: lines `package [debian|ubuntu]`."""
    family = "ubuntu" if suite in UBUNTU else "debian"
    try:
        lines = [line.split() for line in file.read_text().splitlines() if line.strip() and not line.startswith("#")]
    except (OSError, UnicodeDecodeError) as error:
        fail(USAGE, f"--set packages={file}: {error}", "a text file, one package a line")
    good = re.compile(r"[a-z0-9][\w.+:=~-]*( debian| ubuntu)?")
    odd = [line for line in map(" ".join, lines) if not good.fullmatch(line)]
    if odd or not lines:
        fail(USAGE, f"--set packages={file}: {f'no package is {odd[0]!r}' if odd else 'it names no package'}", "lines are `package [debian|ubuntu]`")
    return [words[0] for words in lines if len(words) == 1 or words[1] == family]


def sources(mirror: str, suite: str) -> list[str]:
    """What mmdebstrap takes for a mirror: the host's own file of sources, or lines made from a URL."""
    if mirror == "host":
        found = next((s for s in SOURCES if Path(s).exists() and suite in Path(s).read_text()), None)
        if not found:
            fail(LACKING, f"this machine has no package sources for {suite}", "--set mirror=URL names a mirror of that distribution")
        return [found]
    components = "main universe" if suite in UBUNTU else "main"
    return [f"deb {mirror} {name} {components}" for name in (suite, f"{suite}-updates")]


def inputs(settings: Mapping[str, str]) -> dict[str, Any]:
    """Everything that decides what the root file system is."""
    return {
        "format_version": FORMAT_VERSION, "suite": settings["suite"], "mirror": settings["mirror"],
        "packages": package_list(Path(settings["packages"]), settings["suite"]), "wheels": (HERE / "wheels.txt").read_text(),
        "sources": tree_digest(HERE, GUEST),
    }  # fmt: skip


def packages_tar(settings: Mapping[str, str], cache: Path, work: Path) -> Path:
    """The packages, installed and nothing else: minutes, so it is kept by its inputs."""
    wanted = package_list(Path(settings["packages"]), settings["suite"])
    key = hashlib.sha256(json.dumps([settings["suite"], settings["mirror"], wanted, rootfs.EPOCH]).encode()).hexdigest()[:24]
    made = cache / f"packages-{key}.tar"
    if made.exists():
        return made
    say(f"installing {len(wanted)} packages of {settings['suite']}")
    excluded = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "info", "locale", "help", "lintian")]
    argv = [
        *HERMETIC, "mmdebstrap", "--variant=minbase", "--mode=root", f"--include={','.join(wanted)}", '--aptopt=Acquire::Languages "none"',
        '--aptopt=APT::Install-Recommends "false"', *excluded, "--dpkgopt=path-include=/usr/share/doc/*/copyright",
        settings["suite"], str(work / "packages.tar"), *sources(settings["mirror"], settings["suite"]),
    ]  # fmt: skip
    try:
        rootfs.call(argv, lambda line: say(line[3:].rstrip(".")) if line.startswith("I: ") else None, TMPDIR=str(work))
    except rootfs.Failed as error:
        if FULL.search(error.said):
            raise
        lines = [line for line in error.said.splitlines() if line.startswith(("E: ", "W: Failed to fetch"))]
        why = next((line for line in lines if not line.startswith(("E: mmdebstrap", "E: setup failed"))), lines[-1] if lines else error.said[-300:])
        hint = "does this machine reach that mirror, and are all packages on it? --set mirror=URL, --set packages=FILE"
        fail(LACKING, f"cannot install the packages of {settings['suite']} from mirror {settings['mirror']}: {why[3:].strip()}", hint)
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".part-") as folder:  # the cache may be on another disk
        os.replace(shutil.move(work / "packages.tar", folder), made)
    return made


def previous(output: Path, key: str) -> tuple[set[str], bool]:
    """The forms that are there of these inputs, and whether every file of them is whole."""
    try:
        document = json.loads((output / "image.json").read_text())
        if document["inputs_digest"] != key:
            return set(), False
        return set(document["formats"]), all(formats.sha256(output / name) == digest for name, digest in document["files"].items())
    except (OSError, ValueError, KeyError, TypeError):
        return set(), False


@contextlib.contextmanager
def alone(output: Path) -> Iterator[None]:
    """Hold the output, without what a killed build has left in it."""
    try:
        output.mkdir(parents=True, exist_ok=True)
        handle = os.open(output, os.O_RDONLY)
    except OSError as error:
        fail(LACKING, f"cannot write in {output}: {error.strerror}", "--output DIR takes another directory")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fail(BUSY, f"another build writes into {output}", "wait for it, or take another --output")
    try:
        for left in output.glob(".build-*"):
            shutil.rmtree(left)
        yield
    finally:
        os.close(handle)


def build(settings: Mapping[str, str], form: str, output: Path) -> None:
    """Make everything beside the output, then move it there: image.json, which vouches for the rest, last."""
    given = inputs(settings)
    key = hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()
    with alone(output):
        say(f"looking at what is in {output}")
        there, whole = previous(output, key)
        wanted = set(formats.FORMATS) if form == "all" else {form}
        if whole and wanted <= there:
            say("up to date")
            return
        check_machine(wanted, form, output)
        with tempfile.TemporaryDirectory(dir=output, prefix=".build-", ignore_cleanup_errors=True) as folder:
            document, made = make(settings, given, sorted(wanted | there), Path(folder), Path(settings["cache"] or output / ".cache"))
            (output / "image.json").unlink(missing_ok=True)
            for path in made:
                os.replace(path, output / path.name)
            text = json.dumps({"inputs_digest": key, **document}, indent=1) + "\n"
            (Path(folder) / "image.json").write_text(text)
            sums = {**document["files"], "image.json": hashlib.sha256(text.encode()).hexdigest()}
            (Path(folder) / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items())))
            for name in ("SHA256SUMS", "image.json"):
                os.replace(Path(folder) / name, output / name)


def make(settings: Mapping[str, str], given: Mapping[str, Any], wanted: list[str], work: Path, cache: Path) -> tuple[dict[str, Any], list[Path]]:
    """The files of the forms wanted, in `work`, and what image.json says of them."""
    tree = work / "root"
    packages_file = packages_tar(settings, cache, work)
    say("unpacking")
    packages = rootfs.unpack(packages_file, tree)
    say("adding the user, the guest's server and its settings")
    rootfs.customize(tree, HERE, GUEST, HERE / "wheels.txt", work / "wheels")
    rootfs.clean(tree)
    made = formats.make(tree, work / "out", wanted, say)
    say("hashing")
    files = {path.name: formats.sha256(path) for path in made}
    document = {
        "name": "linux-desktop", "formats": wanted, "suite": settings["suite"], "inputs": {k: v for k, v in given.items() if k != "packages"},
        "packages": packages, "rootfs": f"sha256:{files['rootfs.tar']}", "files": files,
        "provenance": {"builder": f"images/linux-desktop/build.py {FORMAT_VERSION}", "mirror": settings["mirror"], "sources": given["sources"]},
    }  # fmt: skip
    if "oci" in wanted:
        document["oci"] = formats.image_of(work / "out" / "linux-desktop.tar")
    return document, made


def check_machine(wanted: set[str], form: str, output: Path) -> None:
    """What can be known to be missing before minutes are spent."""
    if os.geteuid() != 0:
        fail(LACKING, "building needs root: the file system's owners and devices are root's", "sudo gymctl build-image linux-desktop, or in a root shell")
    tools = ["mmdebstrap", "tar", "unshare", "chroot", *(["mke2fs", "qemu-img"] if "qcow2" in wanted else [])]
    packages = {"mke2fs": "e2fsprogs", "qemu-img": "qemu-utils", "unshare": "util-linux", "chroot": "coreutils"}
    missing = [name for name in tools if not shutil.which(name)]
    if missing:
        fail(LACKING, f"not installed: {', '.join(missing)}", f"apt-get install {' '.join(packages.get(name, name) for name in missing)}")
    free = shutil.disk_usage(output).free / 2**30
    if free < NEEDED_GIB[form]:
        fail(LACKING, f"{free:.1f} GiB are free in {output}, and up to {NEEDED_GIB[form]} are needed", "--output DIR takes another place")


def settings_of(words: list[str]) -> dict[str, str]:
    """The inputs, from NAME=VALUE words."""
    settings = dict(DEFAULTS)
    for word in words:
        name, sep, value = word.partition("=")
        if not sep or name not in DEFAULTS:
            fail(USAGE, f"--set {word}: there is no such input", f"{', '.join(DEFAULTS)}, each as NAME=VALUE")
        settings[name] = value
    if not re.fullmatch(r"[a-z][a-z0-9-]*", settings["suite"]):
        fail(USAGE, f"--set suite={settings['suite']}: no distribution is called that", "such as bookworm, trixie, jammy")
    if settings["mirror"] != "host" and not re.fullmatch(r"(https?|file)://[^\s\]\[]+", settings["mirror"]):
        fail(USAGE, f"--set mirror={settings['mirror']}: neither a URL nor `host`", "http://HOST/debian, or host for this machine's own sources")
    return settings


def _ended(number: int, frame: object) -> NoReturn:
    sys.exit(128 + number)


def main() -> None:
    """Parse, check, build."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _ended)
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--format", choices=("all", *formats.FORMATS), default="all")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    try:
        build(settings_of(options.set), options.format, options.output.resolve())
    except rootfs.Failed as error:
        if FULL.search(error.said):
            fail(LACKING, f"the disk of {options.output} is full", "--output DIR takes another place")
        fail(rootfs.BROKEN, str(error), "the lines above are that program's own")
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
        fail(LACKING if full else rootfs.BROKEN, f"cannot write in {options.output}: {error}", "--output DIR takes another place")


if __name__ == "__main__":
    main()
