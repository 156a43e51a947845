"""Files and trees copied whole or not at all: modes and times kept, no symbolic link that leads out, nothing but files, folders and links."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import posixpath
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from gymctl.errors import Conflict, IntegrityError, NotFound, Unavailable, UsageError

CHUNK = 1 << 20
END = 2 * tarfile.BLOCKSIZE
"""Bytes, all zero, that end a tar."""
MODE = 0o777
"""Bits that are kept: a copy runs as nobody else than who starts it."""


def entries(src: Path) -> Iterator[tuple[str, Path, os.stat_result]]:
    """(path in the tree, where it is, lstat) of a file or a tree, folders first, the root as ""; NotFound, UsageError for what cannot be copied."""
    root = src.resolve()
    if not root.exists():
        raise NotFound(f"there is no {src}")
    yield "", root, root.lstat()
    for folder, folders, files in os.walk(root):
        for name in sorted((*folders, *files)):
            path = Path(folder, name)
            relative, found = path.relative_to(root).as_posix(), path.lstat()
            if stat.S_ISLNK(found.st_mode) and leads_out(relative, os.readlink(path)):
                raise UsageError(f"{path} is a link to {os.readlink(path)}, which is not in {src}", hint="put the file itself in its place")
            if not (stat.S_ISLNK(found.st_mode) or stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
                raise UsageError(f"{path} is no file, folder or link", hint="sockets, pipes and devices cannot be copied")
            yield relative, path, found


def leads_out(link: str, target: str) -> bool:
    """Whether a link at a tree's `link` ends outside of the tree."""
    return target.startswith("/") or posixpath.normpath(posixpath.join(posixpath.dirname(link), target)).split("/")[0] == ".."


@contextlib.contextmanager
def arriving(dst: Path, *, tree: bool) -> Iterator[Path]:
    """A path beside `dst` to fill; it takes the name when the block ends well. Conflict for a name that is taken: only a file replaces a file."""
    if dst.is_dir() or (tree and os.path.lexists(dst)):
        raise Conflict(f"{dst} is there already", hint="name the copy itself, not the folder it goes into")
    dst.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".gymctl-", dir=dst.parent) as folder:
        made = Path(folder, "copy")
        yield made
        os.rename(made, dst)


def copy(src: Path, dst: Path) -> None:
    """Copy a file or a tree on this machine. NotFound, UsageError, Conflict."""
    listed = list(entries(src))
    root = listed[0][1]
    with arriving(dst, tree=root.is_dir()) as made:
        if root.is_dir():
            shutil.copytree(root, made, symlinks=True)
        else:
            shutil.copy2(root, made)
        for relative, _, found in listed:
            if not stat.S_ISLNK(found.st_mode):
                (made / relative).chmod(found.st_mode & MODE)


def packed(src: Path, name: str, owner: tuple[int, int], above: Sequence[str] = ()) -> Iterator[bytes]:
    """A tar of a file or a tree under `name`, everything belonging to `owner`, the folders `above` before it; made while it is read.

    NotFound and UsageError come before the first byte.
    """
    listed = list(entries(src))
    return itertools.chain((_header(folder, tarfile.DIRTYPE, 0o755, owner) for folder in above), _packed(listed, name, owner))


def _packed(listed: list[tuple[str, Path, os.stat_result]], name: str, owner: tuple[int, int]) -> Iterator[bytes]:
    for relative, path, found in listed:
        inside = f"{name}/{relative}" if relative else name
        if stat.S_ISDIR(found.st_mode):
            yield _header(inside, tarfile.DIRTYPE, found.st_mode & MODE, owner, mtime=int(found.st_mtime))
        elif stat.S_ISLNK(found.st_mode):
            yield _header(inside, tarfile.SYMTYPE, MODE, owner, mtime=int(found.st_mtime), linkname=os.readlink(path))
        else:
            yield _header(inside, tarfile.REGTYPE, found.st_mode & MODE, owner, mtime=int(found.st_mtime), size=found.st_size)
            yield from _content(path, found.st_size)
    yield bytes(END)


def _header(name: str, kind: bytes, mode: int, owner: tuple[int, int], **more: int | str) -> bytes:
    made = tarfile.TarInfo(name)
    made.type, made.mode, made.uid, made.gid = kind, mode, *owner
    for field, value in more.items():
        setattr(made, field, value)
    return made.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _content(path: Path, size: int) -> Iterator[bytes]:
    left = size
    with path.open("rb") as file:
        while left and (chunk := file.read(min(CHUNK, left))):
            yield chunk
            left -= len(chunk)
    if left:
        raise Unavailable(f"{path} became shorter while it was read")
    yield bytes(-size % tarfile.BLOCKSIZE)


class _Reader(io.RawIOBase):
    """Chunks of bytes as a file."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks, self._rest = iter(chunks), b""
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # any writable buffer
        self._rest = self._rest or next(self._chunks, b"")
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        self.count += count
        return count


def unpacked(chunks: Iterable[bytes], dst: Path) -> None:
    """Write a tar of one file or tree as `dst`; IntegrityError for members that lie or lead outside of it, or are damaged. Conflict."""
    raw = _Reader(chunks)
    stream = io.BufferedReader(raw, CHUNK)
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            first = archive.next()
            if first is None:
                raise IntegrityError("the archive is empty")
            with arriving(dst, tree=first.isdir()) as made:
                _Tree(made, first.name.strip("/")).write(archive, first)
                while stream.read(CHUNK):
                    pass
                if raw.count < archive.offset + END:  # tarfile takes a header that is cut off for the end
                    raise IntegrityError("the copy broke off", hint="try again")
    except (tarfile.TarError, EOFError) as error:
        raise IntegrityError(f"the copy broke off: {error}", hint="try again") from error
    except (FileExistsError, FileNotFoundError, NotADirectoryError) as error:  # what it says of one name contradicts what it said before
        raise IntegrityError(f"a member of the copy has no place: {error.filename}") from error


class _Tree:
    """A tree that is being written: links come last, so nothing is ever written through one; folders get their modes after what is in them."""

    def __init__(self, made: Path, root: str) -> None:
        self._made, self._root = made, root
        self._files: set[str] = set()
        self._folders: dict[str, tarfile.TarInfo] = {}
        self._links: dict[str, str] = {}

    def write(self, archive: tarfile.TarFile, first: tarfile.TarInfo) -> None:
        """Everything from the archive's first member on."""
        member: tarfile.TarInfo | None = first
        while member is not None:
            self._take(archive, member, self._inside(member.name))
            member = archive.next()
        for relative, target in self._links.items():
            os.symlink(target, self._made / relative)
        for relative, folder in reversed(self._folders.items()):
            _settle(self._made / relative, folder)

    def _inside(self, name: str) -> str:
        """The path in the tree of a member's name."""
        relative = posixpath.relpath(f"/{name.strip('/')}", f"/{self._root}")
        if ".." in name.split("/") or relative.split("/")[0] == "..":
            raise IntegrityError(f"a member of the copy lies outside of it: {name!r}")
        return "" if relative == "." else relative

    def _take(self, archive: tarfile.TarFile, member: tarfile.TarInfo, relative: str) -> None:
        path = self._made / relative
        if member.isdir():
            path.mkdir(mode=0o700)
            self._folders[relative] = member
        elif member.issym():
            if not relative or leads_out(relative, member.linkname):
                raise IntegrityError(f"a link of the copy leads outside of it: {member.name!r} to {member.linkname!r}")
            self._links[relative] = member.linkname
        elif member.islnk():
            target = self._inside(member.linkname)
            if target not in self._files:
                raise IntegrityError(f"a link of the copy leads outside of it: {member.name!r} to {member.linkname!r}")
            os.link(self._made / target, path)
        elif member.isfile():
            with path.open("xb") as file:
                shutil.copyfileobj(_body(archive, member), file, CHUNK)
            self._files.add(relative)
            _settle(path, member)
        else:
            raise IntegrityError(f"{member.name!r} is no file, folder or link", hint="sockets, pipes and devices cannot be copied")


def _body(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    body = archive.extractfile(member)
    assert body is not None  # noqa: S101  (it is a file)
    return body


def _settle(path: Path, member: tarfile.TarInfo) -> None:
    os.utime(path, (member.mtime, member.mtime))
    path.chmod(member.mode & MODE)
