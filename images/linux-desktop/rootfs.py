"""One root file system: the packages, our files, the user, and nothing of the build left in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

USAGE, LACKING, BUSY, BROKEN = 2, 5, 7, 8
"""Exit codes: wrong words, this machine lacks something, somebody else writes there, anything else."""
EPOCH = 1767225600
"""2026-01-01: no file is newer, so that two builds do not differ by their clocks."""
UID = 1000
HOME = "home/ga"
MODULES = ("virtio_pci", "virtio_mmio", "virtio_blk", "virtio_scsi", "sd_mod", "ahci", "ext4")
MASKED = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap.service", "fstrim.timer", "man-db.timer",
    "systemd-networkd-wait-online.service", "getty@tty1.service", "getty@tty7.service", "serial-getty@ttyS0.service",
)  # fmt: skip
EMPTIED = ("tmp", "var/tmp", "var/log", "var/cache", "var/lib/apt/lists", "run", "dev", "proc", "sys", "root")
REMOVED = (
    "etc/hostname", "etc/resolv.conf", "var/lib/dbus/machine-id", "var/lib/systemd/random-seed", "etc/.pwd.lock", "etc/mtab", "var/lib/dpkg/lock",
    "var/lib/dpkg/lock-frontend", "var/lib/dpkg/status-old", "var/lib/dpkg/available", "var/lib/dpkg/diversions-old", "var/lib/dpkg/statoverride-old",
    "etc/passwd-", "etc/group-", "etc/shadow-", "etc/gshadow-", "etc/subuid-", "etc/subgid-", "etc/apt/sources.list",
)  # fmt: skip
PACKAGES_OF_ARCHIVES = ("mouseinfo", "pyautogui", "pygetwindow", "pyrect", "pymsgbox", "pyperclip", "pyscreeze", "pytweening")


class Failed(Exception):
    """A command that ended with an error; `said` is all that it wrote to stderr."""

    def __init__(self, argv: Sequence[str], code: int, said: str) -> None:
        lines = [line for line in said.strip().splitlines() if line]
        super().__init__(f"{argv[0]} ended with {code}: {lines[-1][:500] if lines else ' '.join(argv)[:300]}")
        self.said = said


def fail(code: int, message: str, hint: str = "") -> NoReturn:
    """Say what is wrong and end."""
    print(f"error: {message}", *([f"hint: {hint}"] if hint else []), sep="\n", file=sys.stderr, flush=True)  # noqa: T201  # the command's own words
    sys.exit(code)


def call(argv: Sequence[str], told: Callable[[str], None] = lambda line: None, **env: str) -> str:
    """A command that must succeed (Failed); its output. `told` hears each line of its stderr, which also goes to ours when it fails."""
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "SOURCE_DATE_EPOCH": str(EPOCH), **env}
    with tempfile.TemporaryFile("w+") as out:
        with subprocess.Popen(list(argv), text=True, errors="replace", stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE, env=environment) as child:
            said = []
            try:
                for line in child.stderr or ():
                    said.append(line)
                    told(line.rstrip())
            except BaseException:
                child.kill()
                raise
        if child.returncode:
            sys.stderr.write("".join(said[-40:]))
            raise Failed(argv, child.returncode, "".join(said))
        out.seek(0)
        return out.read()


def inside(root: Path, *argv: str) -> str:
    """A command in the new system."""
    return call(["chroot", str(root), *argv])


def unpack(packages: Path, root: Path) -> dict[str, str]:
    """Unpack the installed packages; their versions by name."""
    root.mkdir()
    call(["tar", "-C", str(root), "--numeric-owner", "--xattrs", "--xattrs-include=*", "-xpf", str(packages)])
    lines = inside(root, "dpkg-query", "-W", "-f", "${Package}:${Architecture} ${Version}\\n").splitlines()
    return dict(sorted(line.split(" ", 1) for line in lines))


def customize(root: Path, image: Path, guest: Path, wheels: Path, folder: Path) -> None:
    """The user, our files, the guest's server, what OSWorld's clients call, the services."""
    inside(root, "useradd", "--create-home", "--uid", str(UID), "--user-group", "--shell", "/bin/bash", "--password", "!", "ga")
    for group in ("video", "audio", "input", "sudo"):
        inside(root, "usermod", "--append", "--groups", group, "ga")
    _copy(image / "root", root)
    _copy(image / "config", root / HOME / ".config")
    for name in ("Desktop", "Documents", "Downloads"):
        (root / HOME / name).mkdir(exist_ok=True)
    (root / "home/user").symlink_to("ga")  # the home that tasks of the OSWorld format name
    _copy(guest, root / "opt/images/_guest")
    _archives(root, wheels, folder)
    (root / "etc/sudoers.d/ga").chmod(0o440)
    (root / "etc/fstab").write_text("/dev/vda / ext4 noatime,errors=remount-ro,x-systemd.growfs 0 1\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost desktop\n")
    (root / "etc/default/locale").write_text("LANG=C.UTF-8\n")
    for path in [root / HOME, *(root / HOME).rglob("*")]:
        os.chown(path, UID, UID, follow_symlinks=False)
    inside(root, "systemctl", "-q", "enable", "desktop.service", "channel.service", "ssh.socket", "systemd-networkd.service")
    inside(root, "systemctl", "-q", "disable", "ssh.service")  # started by its socket, and its key made, when somebody connects
    inside(root, "systemctl", "-q", "mask", *MASKED)
    inside(root, "systemctl", "-q", "set-default", "multi-user.target")
    _initrd(root)


def _copy(source: Path, target: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(source, target, dirs_exist_ok=True, symlinks=True, ignore=ignored)


def _archives(root: Path, wheels: Path, folder: Path) -> None:
    """Pure Python packages out of archives whose digests are written down, fetched into `folder`; nothing of theirs is run."""
    argv = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", "--dest", str(folder)]
    try:
        call([*argv, "--requirement", str(wheels)])
    except Failed as error:
        fail(LACKING, f"cannot fetch {wheels.name}: {str(error).partition(': ')[2]}", "does this Python have pip, and this machine a network?")
    version = inside(root, "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    site = root / f"usr/local/lib/python{version}/dist-packages"
    site.mkdir(parents=True, exist_ok=True)
    for archive in sorted(folder.iterdir()):
        for name, content in _members(archive):
            parts = name.split("/")
            at = next((n for n, part in enumerate(parts[:-1]) if part in PACKAGES_OF_ARCHIVES), None)
            if at is None or ".." in parts or not parts[-1].endswith((".py", ".png")):
                continue
            place = site.joinpath(*parts[at:])
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)


def _members(archive: Path) -> list[tuple[str, bytes]]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as zipped:
            return [(name, zipped.read(name)) for name in zipped.namelist() if not name.endswith("/")]
    found = []
    with tarfile.open(archive) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isreg() else None
            if file:
                found.append((member.name, file.read()))
    return found


def _initrd(root: Path) -> None:
    """A small initrd that finds a virtio or AHCI disk; Debian's usual one holds drivers for everything."""
    config = root / "etc/initramfs-tools/initramfs.conf"
    if not config.exists():
        return
    lines = ["MODULES=list" if line.startswith("MODULES=") else line for line in config.read_text().splitlines()]
    config.write_text("\n".join("COMPRESS=zstd" if line.startswith("COMPRESS=") else line for line in lines) + "\n")
    (root / "etc/initramfs-tools/modules").write_text("".join(f"{name}\n" for name in MODULES))
    inside(root, "update-initramfs", "-u", "-k", "all")


def clean(root: Path) -> None:
    """Take out what differs from build to build, and what must be each machine's own: keys, ids, logs, caches, compiled files."""
    for name in EMPTIED:
        for entry in (root / name).iterdir():
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    for name in REMOVED:
        path = root / name
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    for pattern in ("etc/ssh/ssh_host_*", "etc/ssl/private/*", "var/lib/dpkg/*-old", "etc/apt/sources.list.d/*", "var/lib/systemd/catalog/database"):
        for path in root.glob(pattern):
            path.unlink()
    for folder in list(root.glob("usr/**/__pycache__")) + list(root.glob("opt/**/__pycache__")):
        shutil.rmtree(folder)
    (root / "etc/machine-id").write_text("")
    (root / "etc/hostname").write_text("desktop\n")
    (root / "etc/resolv.conf").write_text("nameserver 10.0.2.3\n")
    for name in ("var/log/journal", "var/cache/apt/archives/partial", "var/lib/apt/lists/partial", "var/cache/fontconfig"):
        (root / name).mkdir(parents=True, exist_ok=True)
    compiled = ("usr/lib/python3", "usr/local/lib", "opt/images", *(str(p.relative_to(root)) for p in root.glob("usr/lib/python3.*")))
    inside(root, "python3", "-m", "compileall", "-q", "-j", "1", "--invalidation-mode", "unchecked-hash", *(f"/{name}" for name in compiled))
