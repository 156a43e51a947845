"""Files of the guest: given out, taken in whole or not at all, listed, fetched from elsewhere."""

from __future__ import annotations

import io
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from .faults import Fault, bad

CHUNK = 1 << 18
DEEPEST = 40
TRIES = 3
DOWNLOAD_TIMEOUT = 300
LARGEST_GUESS = 4096
"""What /sys says of each of its files; a small one that takes no room on a disk is read before its length is told."""
LARGEST_KERNEL = 16 << 20


def path(text: object, what: str = "path") -> Path:
    """A path as requests have it: `~` and variables are the session's, a relative one begins at its home; 400 for none."""
    if not isinstance(text, str) or not text or "\0" in text:
        raise bad(f"{what} is missing" if not text else f"{what} {text!r} is no path")
    return Path.home() / os.path.expandvars(os.path.expanduser(text))


def opened(at: Path) -> IO[bytes]:
    """A regular file, open for reading; 404, 400 for a directory or a device, 403."""
    try:
        file = os.fdopen(os.open(at, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")  # a pipe would wait for its other end
    except FileNotFoundError as error:
        raise Fault(404, "NotFound", f"there is no file {at} in the guest") from error
    except IsADirectoryError as error:
        raise bad(f"{at} is a directory", "POST /list_directory lists it") from error
    except OSError as error:
        raise Fault(403, "Forbidden", f"cannot read {at}: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise bad(f"{at} is no regular file")
    return file


def whole(file: IO[bytes], at: Path) -> IO[bytes]:
    """The file itself, or its content where its size is not to be believed: the kernel's own (/proc, /sys); 403, 413."""
    found = os.fstat(file.fileno())
    if found.st_blocks or found.st_size > LARGEST_GUESS:
        return file
    with file:
        try:
            content = file.read(LARGEST_KERNEL + 1) or b""
        except OSError as error:
            raise Fault(403, "Forbidden", f"cannot read {at}: {error.strerror}") from error
    if len(content) > LARGEST_KERNEL:
        raise Fault(413, "TooLarge", f"{at} has no size, and more than {LARGEST_KERNEL} bytes")
    return io.BytesIO(content)


def write(at: Path, read: Callable[[int], bytes], mode: int | None = None) -> int:
    """Write a file through a temporary one beside it, with its parent directories; its size. A file that is there keeps its mode."""
    try:
        at.parent.mkdir(parents=True, exist_ok=True)
        target = Path(os.path.realpath(at)) if at.is_symlink() else at
        if target.is_dir():
            raise bad(f"{at} is a directory")
        if target.exists() and not target.is_file():
            raise bad(f"{at} is no regular file", "a device or a pipe is not replaced by one")
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}.")
        try:
            with os.fdopen(handle, "wb") as file:
                for chunk in iter(lambda: read(CHUNK), b""):
                    file.write(chunk)
                size = file.tell()
            os.chmod(temporary, mode if mode is not None else _mode_of(target))
            os.replace(temporary, target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise Fault(500, "NotWritten", f"cannot write {at}: {error.strerror}", "df -h, ls -ld in the guest tell more") from error
    return size


def _mode_of(target: Path) -> int:
    if target.exists():
        return stat.S_IMODE(target.stat().st_mode)
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def tree(at: Path, depth: int = 0) -> dict[str, Any]:
    """A directory as OSWorld lists it: {type, name, children}; links are not followed."""
    try:
        entries = sorted(os.scandir(at), key=lambda e: e.name)
    except OSError as error:
        return {"error": f"{at}: {error.strerror}"}
    children: list[dict[str, Any]] = []
    for entry in entries:
        if entry.is_dir(follow_symlinks=False) and depth < DEEPEST:
            children.append(tree(Path(entry.path), depth + 1))
        else:
            children.append({"type": "file", "name": entry.name})
    return {"type": "directory", "name": at.name, "children": children}


def download(url: object, at: Path) -> int:
    """Fetch a URL into a file; its size. 400 for no URL, 502 when it cannot be fetched whole."""
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise bad(f"url {url!r} is no http or https address")
    import http.client
    import urllib.error
    import urllib.request  # brings ssl, which a start need not pay for

    reason = ""
    for _ in range(TRIES):
        try:
            request = urllib.request.Request(url, headers={"Accept-Encoding": "identity"})  # noqa: S310  # http and https only
            with urllib.request.urlopen(request, timeout=DOWNLOAD_TIMEOUT) as answer, tempfile.TemporaryFile() as whole:  # noqa: S310
                shutil.copyfileobj(answer, whole, CHUNK)
                expected = answer.headers.get("Content-Length")
                if expected and whole.tell() != int(expected):
                    reason = f"{whole.tell()} of {expected} bytes came"
                    continue
                whole.seek(0)
                return write(at, whole.read)
        except urllib.error.HTTPError as error:
            reason = f"it answers {error.code} {error.reason}"
            if error.code < 500:
                break
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = str(error)
    raise Fault(502, "NotFetched", f"cannot fetch {url}: {reason}", "has the guest a network? resources.network in the recipe")
