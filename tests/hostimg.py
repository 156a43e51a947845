"""A root file system with Python, made from this machine's own Debian packages: a base for images where nothing can be pulled.

python tests/hostimg.py OUT.tar        the same packages give the same bytes; no network
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

PYTHON = "python3.11"
PACKAGES = [
    f"{PYTHON}-minimal", f"lib{PYTHON}-minimal", f"lib{PYTHON}-stdlib", "python3-minimal", "libpython3-stdlib", "media-types", "tzdata",
    "base-files", "base-passwd", "dash", "coreutils", "libc-bin", "libstdc++6",
]  # fmt: skip
LEFT_OUT = (
    "/usr/share/doc",
    "/usr/share/man",
    "/usr/share/locale",
    "/usr/share/lintian",
    "/usr/share/info",
    "/usr/share/doc-base",
    "/etc/apt",
    "/var/lib/dpkg",
)
MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")  # links into usr/ since Debian 12
EMPTY = {"tmp": 0o1777, "proc": 0o755, "sys": 0o755, "dev": 0o755, "run": 0o755, "root": 0o700, "etc": 0o755, "var": 0o755, "var/tmp": 0o1777}
WRITTEN = {
    "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
    "etc/group": b"root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": b"hosts: files dns\n",
}
TIME = 315532800  # 1980-01-01: the least that every tool takes


def closure(names: list[str]) -> list[str]:
    """The packages and all they depend on (an alternative counts when it is installed), as dpkg knows them."""
    asked = subprocess.run(["dpkg-query", "-W", "-f", "${Package}\t${Depends}, ${Pre-Depends}\t${Provides}\n"], capture_output=True, text=True, check=True)
    depends: dict[str, list[str]] = {}
    for line in asked.stdout.splitlines():
        name, needs, provides = line.split("\t")
        for known in [name, *_names(provides)]:
            depends.setdefault(known, []).append(name)
        depends[f"needs {name}"] = _names(needs)
    wanted, found = list(names), set()
    while wanted:
        for real in depends.get(wanted.pop(), []):
            if real not in found:
                found.add(real)
                wanted += depends.get(f"needs {real}", [])
    missing = [name for name in names if name not in found]
    if missing:
        raise SystemExit(f"not installed here: {', '.join(missing)}; apt-get install {' '.join(missing)}")
    return sorted(found - {"perl-base", "debconf", "dpkg", "tar"})


def _names(text: str) -> list[str]:
    words = text.replace("|", ",").split(",")
    return [word.split("(")[0].split(":")[0].strip() for word in words if word.strip()]


def files(packages: list[str]) -> Iterator[str]:
    """The packages' paths without the leading slash, where they really are on this machine."""
    listed = subprocess.run(["dpkg-query", "-L", *packages], capture_output=True, text=True, check=True).stdout.splitlines()
    for line in listed:
        if not line.startswith("/") or line == "/." or line.startswith(LEFT_OUT):
            continue
        parts = PurePosixPath(line).parts[1:]
        name = "/".join(("usr", *parts) if parts[0] in MERGED else parts)
        if name not in WRITTEN and name.removeprefix("usr/") not in MERGED and "dist-packages" not in name:
            yield name


def write(out: Path) -> None:
    """The tar at `out`: sorted, owned by root, one time for all."""
    names = set(files(closure(PACKAGES)))
    alternatives = {f"usr/bin/{link}": target for link, target in (("sh", "dash"), ("python3", PYTHON)) if f"usr/bin/{link}" not in names}
    with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as tar:
        for name in sorted({*names, *EMPTY, *WRITTEN, *alternatives, *(f"usr/{m}" for m in MERGED), *MERGED}):
            if name in WRITTEN:
                _add(tar, name, tarfile.REGTYPE, 0o644, WRITTEN[name])
            elif name in MERGED or name in alternatives:
                _add(tar, name, tarfile.SYMTYPE, 0o777, link=f"usr/{name}" if name in MERGED else alternatives[name])
            elif name in EMPTY or name.removeprefix("usr/") in MERGED:
                _add(tar, name, tarfile.DIRTYPE, EMPTY.get(name, 0o755))
            else:
                _copy(tar, name)


def _copy(tar: tarfile.TarFile, name: str) -> None:
    path = Path("/") / name
    if path.is_symlink():
        _add(tar, name, tarfile.SYMTYPE, 0o777, link=str(path.readlink()))
    elif path.is_dir():
        _add(tar, name, tarfile.DIRTYPE, path.stat().st_mode & 0o7777)
    elif path.is_file():
        _add(tar, name, tarfile.REGTYPE, path.stat().st_mode & 0o7777, path.read_bytes())


def _add(tar: tarfile.TarFile, name: str, kind: bytes, mode: int, data: bytes = b"", link: str = "") -> None:
    member = tarfile.TarInfo(name)
    member.type, member.mode, member.size, member.linkname, member.mtime = kind, mode, len(data), link, TIME
    tar.addfile(member, io.BytesIO(data))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    write(Path(sys.argv[1]))
    print(f"{sys.argv[1]}: {Path(sys.argv[1]).stat().st_size >> 20} MiB")
