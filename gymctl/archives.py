"""Image files that somebody sent: what kind they are, whether they are whole, and an archive as a stream an engine can read.

A docker or OCI archive is read once from front to back, bounded in memory, every member hashed; nothing is unpacked.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import hashlib
import io
import lzma
import posixpath
import re
import struct
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from gymctl.errors import IntegrityError, NotFound, Unavailable, Unsupported
from gymctl.runner import Progress

CHUNK = 1 << 20
MAX_DOCUMENT = 4 << 20  # bytes of one JSON document; layers are never kept
MAX_DOCUMENTS = 64 << 20
MAX_MEMBERS = 200_000
MAX_EXTENDED_HEADER = 1 << 20
REFERENCE = re.compile(r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?::[0-9]+)?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?")
BLOB = re.compile(r"blobs/sha256/([0-9a-f]{64})")
AGAIN = "get the file again, and compare its size and sha256 with what the sender says"
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"QFI\xfb", "qcow2"), (b"\x1f\x8b", "gzip"), (b"BZh", "bzip2"), (b"\xfd7zXZ\x00", "xz"), (b"\x28\xb5\x2f\xfd", "zstd"),
)  # fmt: skip
_OPENERS: dict[str, Callable[[IO[bytes]], Any]] = {"gzip": lambda f: gzip.GzipFile(fileobj=f), "bzip2": bz2.BZ2File, "xz": lzma.LZMAFile}
_DAMAGE = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, OSError, ValueError, OverflowError)
_HEADERS_WITH_DATA = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)


@dataclass(frozen=True, slots=True)
class Member:
    """A file of an archive: its size, sha256, the sha256 of what it unpacks to (None: cannot tell), its bytes if it is a small document."""

    size: int
    sha256: str
    unpacked: str | None
    document: bytes | None = None


@dataclass(frozen=True, slots=True)
class Contents:
    """An archive's files and links by name, and where its last member ends (in the unpacked tar)."""

    files: dict[str, Member]
    links: dict[str, str]
    end: int

    def file(self, name: str) -> tuple[str, Member] | None:
        """A file by name, through links (an archive of an old engine links layers that are the same)."""
        for _ in range(8):
            if name in self.files:
                return name, self.files[name]
            if name not in self.links:
                return None
            name = self.links[name]
        return None


def sniff(path: Path) -> str:
    """qcow2, sif, tar, gzip, bzip2 or xz by its first bytes; IntegrityError says what else it is (a web page, an error message, nothing)."""
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {path}") from error
    except OSError as error:
        raise Unavailable(f"cannot read {path}: {error.strerror}") from error
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            if kind == "zstd":
                raise Unsupported(f"{path} is compressed with zstd, which is not read here", hint=f"unpack it first: zstd -d {path.name}")
            return kind
    if head[32:41] == b"SIF_MAGIC":
        return "sif"
    _refuse_text(path, head)
    return "tar"


def _refuse_text(path: Path, head: bytes) -> None:
    text = head.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    start = text[:200].lower()
    shown = " ".join("".join(c if c.isprintable() else " " for c in re.sub(r"<[^>]*>", " ", text)).split())[:120]
    if not head:
        raise IntegrityError(f"{path} is empty", hint=AGAIN)
    if start.startswith(("<!doctype html", "<html")):
        raise IntegrityError(f"{path} is a web page, not an image: {shown}", hint="the download was answered by a page (a log-in?); " + AGAIN)
    if start.startswith(("<?xml", "<error")):
        raise IntegrityError(f"{path} is an XML error message, not an image: {shown}", hint="is the link expired? " + AGAIN)
    if start.startswith("{"):
        raise IntegrityError(f"{path} is a JSON document, not an image: {shown}", hint=AGAIN)
    if start.startswith("version https://git-lfs"):
        raise IntegrityError(f"{path} is a Git LFS pointer, not the file it stands for", hint="git lfs pull")


class _Header(tarfile.TarInfo):
    """A header that is damaged is an error wherever it stands; tarfile takes one past the first for the end."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Header:
        if not buf.strip(b"\0"):
            return super().frombuf(buf, encoding, errors)
        try:
            made = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from error
        if made.size < 0 or (made.type in _HEADERS_WITH_DATA and made.size > MAX_EXTENDED_HEADER):
            raise tarfile.ReadError(f"a header says {made.size} bytes")
        return made


@contextlib.contextmanager
def opened(path: Path, kind: str) -> Iterator[tuple[BinaryIO, IO[bytes]]]:
    """(the unpacked tar, the file itself)"""
    with path.open("rb") as raw:
        if kind not in _OPENERS:
            yield raw, raw
            return
        with _OPENERS[kind](raw) as unpacked:
            yield cast(BinaryIO, unpacked), raw


def read(path: Path, kind: str, progress: Progress) -> Contents:
    """Read a whole archive once; IntegrityError names the byte or the member that is wrong."""
    size = path.stat().st_size
    found = Contents({}, {}, 0)
    end = at = 0
    with opened(path, kind) as (stream, raw):
        try:
            with tarfile.open(fileobj=stream, mode="r:" if stream is raw else "r|", tarinfo=_Header, bufsize=CHUNK) as tar:  # type: ignore[call-overload]  # a chosen mode
                for member in tar:
                    if member.offset < end or len(found.files) + len(found.links) > MAX_MEMBERS:
                        raise tarfile.ReadError("its members overlap" if member.offset < end else f"it has more than {MAX_MEMBERS} members")
                    at = member.offset
                    _take(tar, member, found)
                    end = member.offset_data + -(-member.size // 512) * 512 if member.isreg() else member.offset_data
                    tar.members.clear()  # type: ignore[attr-defined]  # else it keeps all of them
                    progress("checking", raw.tell(), size)
        except IntegrityError:
            raise
        except _DAMAGE as error:
            raise _damaged(path, stream is raw, at if at else end, raw, size, error) from error
    if stream is raw and end > size:
        raise IntegrityError(f"{path} is cut off: it ends at byte {size}, and its last member at {end}", hint=AGAIN)
    return Contents(found.files, found.links, end)


def _damaged(path: Path, plain: bool, at: int, raw: IO[bytes], size: int, error: Exception) -> IntegrityError:
    words = str(error) or type(error).__name__
    cut = any(sign in words.lower() for sign in ("unexpected end", "end-of-stream", "truncated", "ended before", "empty file"))
    where = f"in the member that begins at byte {at}" if plain else f"near byte {raw.tell()} of its {size}"
    return IntegrityError(f"{path} is {'cut off' if cut else 'damaged'} {where} (it has {size} bytes): {words}", hint=AGAIN)


def _take(tar: tarfile.TarFile, member: tarfile.TarInfo, found: Contents) -> None:
    name = _inside(member.name, "")
    if name in found.files or name in found.links:
        raise IntegrityError(f"the archive has {member.name} twice", hint="it was put together wrongly: ask for a new one")
    if member.isdir():
        return
    if member.issym() or member.islnk():
        found.links[name] = _inside(member.linkname, posixpath.dirname(name) if member.issym() else "")
    elif member.isreg() and not member.issparse():
        content = tar.extractfile(member)
        assert content is not None  # noqa: S101  # it is a regular file
        kept = sum(len(m.document or b"") for m in found.files.values()) if member.size <= MAX_DOCUMENT else 0
        found.files[name] = _hashed(cast(IO[bytes], content), member.size, kept < MAX_DOCUMENTS)
        expected = BLOB.fullmatch(name)
        if expected and expected[1] != found.files[name].sha256:
            raise IntegrityError(f"the blob {name} at byte {member.offset_data} has sha256 {found.files[name].sha256}", hint=AGAIN)
    else:
        raise IntegrityError(f"the archive's member {member.name} is no file, directory or link", hint="an image archive has no such members")


def _inside(name: str, folder: str) -> str:
    """A member's path from the archive's root; IntegrityError when it leads out."""
    joined = posixpath.normpath(posixpath.join("/" if name.startswith("/") else folder, name))
    if joined.startswith(("/", "../")) or joined == "..":
        raise IntegrityError(f"the archive's member {name!r} points outside of it", hint="do not load it: ask the sender")
    return joined


class _Hashing(io.RawIOBase):
    """A file that hashes what is read from it."""

    def __init__(self, content: IO[bytes], head: bytes) -> None:
        self.content, self.head, self.hash = content, head, hashlib.sha256(head)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self.head:
            part, self.head = self.head[: len(buffer)], self.head[len(buffer) :]
        else:
            part = self.content.read(len(buffer))
            self.hash.update(part)
        buffer[: len(part)] = part
        return len(part)


def _hashed(content: IO[bytes], size: int, keep: bool) -> Member:
    head = content.read(min(CHUNK, max(size, 1)))
    if keep and size <= MAX_DOCUMENT and head[:1] in (b"{", b"["):
        data = head + content.read()
        digest = hashlib.sha256(data).hexdigest()
        return Member(len(data), digest, digest, data)
    if head.startswith(b"\x1f\x8b"):
        source = _Hashing(content, head)
        with gzip.GzipFile(fileobj=io.BufferedReader(source, CHUNK)) as unpacked:
            inner = _digest(cast(IO[bytes], unpacked), hashlib.sha256())
        return Member(size, source.hash.hexdigest(), inner)
    digest = _digest(content, hashlib.sha256(head))
    return Member(size, digest, None if head.startswith(b"\x28\xb5\x2f\xfd") else digest)


def _digest(content: IO[bytes], total: Any) -> str:
    while chunk := content.read(CHUNK):
        total.update(chunk)
    return str(total.hexdigest())


class _Spliced(io.RawIOBase):
    """The first `length` bytes of a tar, then the tail."""

    def __init__(self, stream: BinaryIO, length: int, tail: bytes) -> None:
        self.stream, self.left, self.tail = stream, length, tail

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self.stream.read(min(len(buffer), self.left)) if self.left else b""
        self.left -= len(part)
        if not part:
            part, self.tail = self.tail[: len(buffer)], self.tail[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


@contextlib.contextmanager
def spliced(path: Path, kind: str, end: int, manifest: bytes | None) -> Iterator[tuple[BinaryIO, int]]:
    """(stream, bytes) of an archive as an engine takes it: unpacked, and with `manifest` as its last manifest.json, which is the one that counts."""
    with opened(path, kind) as (stream, raw):
        if manifest is None and stream is raw:
            yield stream, path.stat().st_size
            return
        tail = b""
        if manifest is not None:
            header = tarfile.TarInfo("manifest.json")
            header.size, header.mode = len(manifest), 0o644
            tail = header.tobuf(tarfile.USTAR_FORMAT) + manifest + bytes(-len(manifest) % 512)
        tail += bytes(1024)
        yield cast(BinaryIO, io.BufferedReader(_Spliced(stream, end, tail), CHUNK)), end + len(tail)


def check_qcow2(path: Path) -> None:
    """The header of a qcow2: Unsupported for an overlay or an encrypted one, IntegrityError for a cut-off one."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(104).ljust(104, b"\0")
    version, backing, _, cluster_bits, _, crypt, l1_size, l1_offset, table_offset = struct.unpack_from(">IQIIQIIQQ", head, 4)
    if version not in (2, 3) or not 9 <= cluster_bits <= 21:
        raise IntegrityError(f"{path} is no qcow2 of version 2 or 3 (version {version}, cluster bits {cluster_bits})", hint=AGAIN)
    if backing:
        raise Unsupported(f"{path} is an overlay: it needs a backing file that only its sender has", hint="ask for a flat one: qemu-img convert -O qcow2")
    if crypt:
        raise Unsupported(f"{path} is encrypted", hint="ask for one that is not")
    if version == 3 and struct.unpack_from(">Q", head, 72)[0] & 4:
        raise Unsupported(f"{path} keeps its data in a second file", hint="ask for a flat one: qemu-img convert -O qcow2")
    needed = max(l1_offset + 8 * l1_size, table_offset + 1)
    if needed > size:
        raise IntegrityError(f"{path} is cut off: it ends at byte {size}, and its tables at {needed}", hint=AGAIN)


def check_sif(path: Path) -> None:
    """The header of a SIF; IntegrityError for a cut-off one."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(128)
    if len(head) < 128:
        raise IntegrityError(f"{path} is cut off: it has {size} bytes", hint=AGAIN)
    *_, descriptors, descriptors_length, data, data_length = struct.unpack("<32s10s3s3s16sqqqqqqqq", head)
    needed = max(descriptors + descriptors_length, data + data_length)
    if not 0 < needed <= size:
        raise IntegrityError(f"{path} is cut off: it ends at byte {size}, and its data at {needed}", hint=AGAIN)
