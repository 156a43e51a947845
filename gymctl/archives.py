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
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from gymctl.errors import IntegrityError, NotFound, Unavailable, Unsupported

CHUNK = 1 << 20
Progress = Callable[[str, int, int], None]
MAX_DOCUMENT = 4 << 20  # bytes of one JSON document; layers are never kept
MAX_DOCUMENTS = 64 << 20
MAX_MEMBERS = 20_000
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


@dataclass(slots=True)
class Contents:
    """An archive's files and links by name; where its last member ends (in the unpacked tar); what no image archive has; bytes of documents kept."""

    files: dict[str, Member] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    end: int = 0
    problem: str = ""
    kept: int = 0

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
    found, at = Contents(), 0
    with opened(path, kind) as (stream, raw):
        try:
            with tarfile.open(fileobj=stream, mode="r:" if stream is raw else "r|", tarinfo=_Header, bufsize=CHUNK) as tar:
                for number, member in enumerate(tar):
                    at = member.offset
                    if at < found.end or number > MAX_MEMBERS:
                        raise tarfile.ReadError("its members overlap" if at < found.end else f"it has more than {MAX_MEMBERS} members")
                    content = None if not member.isreg() else _Part(raw, member) if stream is raw else tar.extractfile(member)
                    _take(member, content, found)
                    at = found.end = member.offset_data + (-(-member.size // 512) * 512 if member.isreg() else 0)
                    progress("checking", raw.tell(), size)
        except _DAMAGE as error:
            raise _damaged(path, stream is raw, at, raw, size, error) from error
    if stream is raw and found.end > size:
        raise IntegrityError(f"{path} is cut off: it ends at byte {size}, and its last member at {found.end}", hint=AGAIN)
    return found


def _damaged(path: Path, plain: bool, at: int, raw: IO[bytes], size: int, error: Exception) -> IntegrityError:
    words = str(error) or type(error).__name__
    cut = any(sign in words.lower() for sign in ("unexpected end", "end-of-stream", "truncated", "ended before", "empty file"))
    where = f"in the member that begins at byte {at}" if plain else f"near byte {raw.tell()} of its {size}"
    return IntegrityError(f"{path} is {'cut off' if cut else 'damaged'} {where} (it has {size} bytes): {words}", hint=AGAIN)


def _take(member: tarfile.TarInfo, content: Any, found: Contents) -> None:
    """Note a member; one that no image archive has is a problem for who wants an image, not for who looks what this is."""
    name = posixpath.normpath(member.name)
    target = posixpath.normpath(posixpath.join(posixpath.dirname(name) if member.issym() else "", member.linkname))
    link = member.issym() or member.islnk()
    if _outside(name) or (link and _outside(target)):
        found.problem = found.problem or f"the archive's member {member.name!r} points outside of it"
    elif name in found.files or name in found.links:
        found.problem = found.problem or f"the archive has {member.name!r} twice"
    elif link:
        found.links[name] = target
    elif member.isreg() and not member.issparse():
        found.files[name] = made = _hashed(content, member.size, found.kept < MAX_DOCUMENTS)
        found.kept += len(made.document or b"")
        expected = BLOB.fullmatch(name)
        if expected and expected[1] != made.sha256:
            raise IntegrityError(f"the blob {name} at byte {member.offset_data} has sha256 {made.sha256}", hint=AGAIN)
    elif not member.isdir():
        found.problem = found.problem or f"the archive's member {member.name!r} is no file, directory or link"


def _outside(path: str) -> bool:
    return path.startswith(("/", "../")) or path == ".."


class _Part(io.RawIOBase):
    """A member's bytes straight from the file; tarfile's own reader copies them twice."""

    def __init__(self, file: BinaryIO, member: tarfile.TarInfo) -> None:
        self.file, self.left = file, member.size
        file.seek(member.offset_data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self.file.readinto(memoryview(buffer)[: self.left]) if self.left else 0  # type: ignore[attr-defined]  # every binary file here has it
        if self.left and not count:
            raise tarfile.ReadError("unexpected end of data")
        self.left -= count
        return int(count)


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
    buffer = bytearray(CHUNK // 4)  # one for all: new ones cost as much as the hash
    view = memoryview(buffer)
    while count := content.readinto(buffer):  # type: ignore[attr-defined]  # every binary file here has it
        total.update(view[:count])
    return str(total.hexdigest())


class _Spliced(io.RawIOBase):
    """The head, the first `length` bytes of a stream, the tail."""

    def __init__(self, head: bytes, stream: BinaryIO, length: int, tail: bytes) -> None:
        self.head, self.stream, self.left, self.tail = head, stream, length, tail

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self.head:
            part, self.head = self.head[: len(buffer)], self.head[len(buffer) :]
        elif self.left:
            part = self.stream.read(min(len(buffer), self.left))
            if not part:
                raise EOFError("the file became shorter while it was read")
            self.left -= len(part)
        else:
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
        tail = (_member("manifest.json", manifest) if manifest is not None else b"") + bytes(1024)
        yield cast(BinaryIO, io.BufferedReader(_Spliced(b"", stream, end, tail), CHUNK)), end + len(tail)


def _member(name: str, data: bytes) -> bytes:
    return _tar_header(name, len(data)) + data + bytes(-len(data) % 512)


def _tar_header(name: str, size: int) -> bytes:
    header = tarfile.TarInfo(name)
    header.size, header.mode = size, 0o644
    return header.tobuf(tarfile.GNU_FORMAT)  # which says sizes past 8 GiB


def unpacked(path: Path, kind: str) -> tuple[int, str]:
    """(bytes, sha256) of what a file unpacks to."""
    total, size = hashlib.sha256(), 0
    with opened(path, kind) as (stream, raw):
        try:
            while chunk := stream.read(CHUNK):
                total.update(chunk)
                size += len(chunk)
        except _DAMAGE as error:
            raise _damaged(path, stream is raw, size, raw, path.stat().st_size, error) from error
    return size, total.hexdigest()


@contextlib.contextmanager
def wrapped(path: Path, kind: str, size: int, documents: dict[str, bytes]) -> Iterator[tuple[BinaryIO, int]]:
    """(stream, bytes) of an image archive made of a file (of `size` bytes unpacked) as `layer.tar`, and documents."""
    head = b"".join(_member(name, data) for name, data in documents.items()) + _tar_header("layer.tar", size)
    tail = bytes(-size % 512 + 1024)
    with opened(path, kind) as (stream, _):
        yield cast(BinaryIO, io.BufferedReader(_Spliced(head, stream, size, tail), CHUNK)), len(head) + size + len(tail)


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
