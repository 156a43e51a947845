"""Bytes by digest, keys by inputs: `objects/<sha256>` never changes, `keys/<key>.json` says which object the inputs made.

Whoever makes an object writes it under tmp/, hashes it, syncs it and renames it: a killed maker leaves only a temp file that
`gc` removes. The lock saves work, it does not protect: without working locks two makers do the work twice and agree.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from gymctl import paths
from gymctl.errors import Conflict, IntegrityError, Unavailable

CHUNK = 1 << 20
TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# This directory holds what gymctl can make or fetch again.\n"


def _folder(name: str) -> Path:
    root = paths.cache_dir()
    folder = root / name
    if not folder.is_dir():
        with disk_errors(root):
            folder.mkdir(parents=True, exist_ok=True)
            if not (root / "CACHEDIR.TAG").exists():
                (root / "CACHEDIR.TAG").write_text(TAG)
    return folder


@contextlib.contextmanager
def disk_errors(where: Path) -> Iterator[None]:
    """Full, read-only and forbidden disks as an Unavailable that names the place."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM):
            raise
        hint = _ways_to_space() if error.errno in (errno.ENOSPC, errno.EDQUOT) else f"set {paths.CACHE_VARIABLE} to a directory that can be written"
        raise Unavailable(f"cannot write in {where}: {error.strerror}", hint=hint) from error


def need(count: int) -> None:
    """Unavailable when the cache's file system has no room for so many bytes: said before the work, not in the middle of it."""
    root = paths.cache_dir()
    free = shutil.disk_usage(root).free
    if free < count:
        raise Unavailable(f"{free / 2**20:,.1f} MiB are free in {root}, and {count / 2**20:,.1f} MiB are needed", hint=_ways_to_space())


def _ways_to_space() -> str:
    """What can be freed, in words."""
    kept = sum(_size(path) for path in (paths.cache_dir() / "objects").glob("*"))
    return f"`gymctl cache gc --all` frees {kept / 2**20:,.1f} MiB that can be made or fetched again; {paths.CACHE_VARIABLE} names another place"


def key(**inputs: Any) -> str:
    """The hash of every input, each a JSON value; order does not matter."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def digest(path: Path, seen: Callable[[int], None] = lambda n: None) -> str:
    """A file's sha256 in hex; `seen` is told of each chunk's length."""
    total = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            total.update(chunk)
            seen(len(chunk))
    return total.hexdigest()


def lookup(key: str) -> Path | None:
    """The object that these inputs made, when it is there."""
    try:
        name = json.loads((_folder("keys") / f"{key}.json").read_text())["sha256"]
    except (OSError, ValueError, KeyError):
        return None
    path = _folder("objects") / name
    return path if path.exists() else None


def get_or_make(key: str, make: Callable[[Path], None], *, note: dict[str, Any] | None = None, waiting: Callable[[str], None] = lambda text: None) -> Path:
    """The object for `key`; `make(path)` fills a file (or makes a directory) there when it is missing. Ten processes make it once."""
    if found := lookup(key):
        return found
    with lock(key, waiting):
        if found := lookup(key):
            return found
        with scratch() as folder:
            made = folder / "object"
            make(made)
            return _keep(made, key, note or {})


def point(key: str, made: Path, note: dict[str, Any]) -> None:
    """Let a key name an object that is there, whatever it named before."""
    with disk_errors(made):
        _write_key(key, {"sha256": made.name, **note})


def add(source: Path, digest: str, *, waiting: Callable[[str], None] = lambda text: None) -> Path:
    """The object that is a file's copy, made when it is not there yet; no key names it. IntegrityError when its bytes are not those of `digest`."""
    target = _folder("objects") / digest
    with lock(digest, waiting):
        if target.exists():
            check(target)
            return target
        need(source.stat().st_size)
        with scratch() as folder, disk_errors(folder):
            shutil.copyfile(source, folder / "object")
            made = _keep(folder / "object", None, {})
    if made != target:
        raise IntegrityError(f"{source} has sha256 {made.name}, and {digest} was expected", hint="was it changed while it was copied?")
    return target


def _keep(made: Path, key: str | None, note: dict[str, Any]) -> Path:
    with disk_errors(made):
        if made.is_dir():  # a tree (a venv) cannot be one file: it is named by its key and never hashed again
            name = f"tree-{key}"
            target = _folder("objects") / name
        else:
            with made.open("rb") as file:
                os.fsync(file.fileno())
            name = digest(made)
            target = _folder("objects") / name
            made.chmod(0o444)
        if not target.exists():
            with contextlib.suppress(FileExistsError):
                made.rename(target)
        if key is not None:
            _write_key(key, {"sha256": name, **note})
        return target


def _write_key(key: str, document: dict[str, Any]) -> None:
    fd, temporary = tempfile.mkstemp(dir=_folder("tmp"))
    with os.fdopen(fd, "w") as file:
        json.dump(document, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, _folder("keys") / f"{key}.json")


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A directory under tmp/ that goes away with this block, held by a lock so that gc knows it is in use."""
    folder, handle = _held_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _held_folder() -> tuple[Path, int]:
    while True:
        with disk_errors(paths.cache_dir()):
            folder = Path(tempfile.mkdtemp(dir=_folder("tmp")))
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(folder, os.O_RDONLY)
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if folder.exists():  # a gc between the two steps took it for a dead maker's
                return folder, handle
            os.close(handle)


@contextlib.contextmanager
def lock(name: str, waiting: Callable[[str], None], *, timeout: float = 900) -> Iterator[None]:
    """Hold `locks/<name>`; where the file system has no locks, nothing is held. The holder's end frees it, kill -9 included."""
    path = _folder("locks") / name
    deadline = time.monotonic() + timeout
    while (file := _locked_file(path)) is None:
        holder = _holder(path)
        waiting(f"waiting for another gymctl (pid {holder}) that makes the same thing")
        if time.monotonic() > deadline:
            raise Conflict(f"{path} has been held for {timeout:.0f} s by pid {holder}", hint="end that process, then try again")
        time.sleep(0.05)  # flock has no timeout of its own
    with file:
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _locked_file(path: Path) -> IO[str] | None:
    """The lock's file, locked by us and still the one of that name; None when somebody else holds it."""
    with disk_errors(path):
        file = path.open("a+")
    if _try_lock(file) is False:
        file.close()
        return None
    try:
        current = os.stat(path).st_ino == os.fstat(file.fileno()).st_ino
    except FileNotFoundError:
        current = False
    if not current:  # its last holder removed it between our opening and locking
        file.close()
        return _locked_file(path)
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file


def _try_lock(file: IO[str]) -> bool | None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError as error:
        return False if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else None


def _holder(path: Path) -> str:
    try:
        return path.read_text()[:20].strip() or "unknown"
    except OSError:
        return "unknown"


def entries() -> list[dict[str, Any]]:
    """What the cache holds: {sha256, bytes, used_by: [notes]}, largest first."""
    notes: dict[str, list[dict[str, Any]]] = {}
    for path in _folder("keys").glob("*.json"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            document = json.loads(path.read_text())
            notes.setdefault(document.pop("sha256"), []).append({"key": path.stem, **document})
    rows = [{"sha256": p.name, "bytes": _size(p), "used_by": notes.get(p.name, [])} for p in _folder("objects").iterdir()]
    return sorted(rows, key=lambda row: (-row["bytes"], row["sha256"]))


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(p.lstat().st_size for p in path.rglob("*") if not p.is_dir())


def verify() -> list[str]:
    """The objects whose bytes are no longer what their name says."""
    return [p.name for p in sorted(_folder("objects").iterdir()) if p.is_file() and digest(p) != p.name]


def check(path: Path) -> None:
    """IntegrityError when an object's bytes changed."""
    if path.is_file() and (found := digest(path)) != path.name:
        raise IntegrityError(f"{path} should have sha256 {path.name} and has {found}", hint="`gymctl cache gc --all` removes it; it is made or fetched again")


def gc(*, everything: bool = False) -> list[dict[str, Any]]:
    """Remove temp files and locks nobody holds, and objects no key names (with `everything`: all); what went."""
    removed = [*_remove_unheld(_folder("tmp")), *_remove_unheld(_folder("locks"))]
    for row in entries():
        if row["used_by"] and not everything:
            continue
        path = _folder("objects") / row["sha256"]
        for used in row["used_by"]:
            (_folder("keys") / f"{used['key']}.json").unlink(missing_ok=True)
        _remove(path)
        removed.append({"path": str(path), "bytes": row["bytes"]})
    return removed


def drop(key: str) -> None:
    """Forget what these inputs made, and remove the object when no other inputs made it too."""
    found = lookup(key)
    (_folder("keys") / f"{key}.json").unlink(missing_ok=True)
    if found and not any(row["used_by"] for row in entries() if row["sha256"] == found.name):
        _remove(found)


def _remove_unheld(folder: Path) -> Iterator[dict[str, Any]]:
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError), _opened(path) as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
            size = _size(path)
            _remove(path)
            yield {"path": str(path), "bytes": size}


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    handle = os.open(path, os.O_RDONLY)
    try:
        yield handle
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
