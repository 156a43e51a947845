"""Runner `docker`, files: copied into and out of a container as streams of tar, running or not."""

from __future__ import annotations

import itertools
import posixpath
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymctl import trees
from gymctl.errors import Conflict, NotFound, UsageError
from gymctl.runners import docker_engine as engine

if TYPE_CHECKING:
    from docker.api.client import APIClient

DIRECTORY, LINK = 1 << 31, 1 << 27
"""Bits of a mode as the engine's language has it."""


def put(container: str, src: Path, dst: str) -> None:
    """Copy to the absolute path `dst`; what is new belongs to whom the nearest folder above belongs to."""
    path = _absolute(dst)
    api = engine.client(engine.LONG_TIMEOUT)
    with engine.failures(f"copying to {dst}"):
        there, is_tree = _stat(api, container, path), src.is_dir()
        if there is not None and (is_tree or there & DIRECTORY):
            raise Conflict(f"{path} is there already", hint="name the copy itself, not the folder it goes into")
        above, missing = posixpath.dirname(path), list[str]()
        while above != "/" and _stat(api, container, above) is None:
            missing.insert(0, above.lstrip("/"))
            above = posixpath.dirname(above)
        api.put_archive(container, "/", trees.packed(src, path.lstrip("/"), _owner(api, container, above), missing))


def get(container: str, src: str, dst: Path) -> None:
    """Copy the absolute path `src` (a link is followed to what it leads to) to `dst`."""
    api = engine.client(engine.LONG_TIMEOUT)
    with engine.failures(f"copying {src}"):
        chunks, _ = _followed(api, container, _absolute(src))
        trees.unpacked(chunks, dst)


def _absolute(path: str) -> str:
    if not path.startswith("/") or "\0" in path:
        raise UsageError(f"{path!r} is no absolute path in the container", hint="for example /home/ga/Documents/report.csv")
    return posixpath.normpath(path)


def _archive(api: APIClient, container: str, path: str) -> tuple[Iterable[bytes], dict[str, Any]] | None:
    """A path as a tar and its stat; None where there is nothing. NotFound when the container is gone."""
    from docker.errors import NotFound as Missing

    try:
        return api.get_archive(container, path, chunk_size=trees.CHUNK)
    except Missing as error:
        if "No such container" in engine.reason(error) and "path" not in engine.reason(error):
            raise NotFound("the container is gone", hint="`gymctl ps` shows what runs") from error
        return None


def _followed(api: APIClient, container: str, path: str) -> tuple[Iterable[bytes], dict[str, Any]]:
    """The same of what must be there, a link followed; NotFound."""
    found = _archive(api, container, path)
    if found and found[1]["mode"] & LINK:
        found = _archive(api, container, found[1]["linkTarget"])
    if found is None:
        raise NotFound(f"there is no {path} in the container")
    return found


def _stat(api: APIClient, container: str, path: str) -> int | None:
    """The mode of a path, links followed; None where there is nothing."""
    found = _archive(api, container, path)
    if found is None:
        return None
    chunks, about = found
    chunks.close()  # type: ignore[attr-defined]  # a generator
    return _stat(api, container, about["linkTarget"]) if about["mode"] & LINK else int(about["mode"])


def _owner(api: APIClient, container: str, folder: str) -> tuple[int, int]:
    """Whom a folder belongs to: its own entry is the first of its archive."""
    chunks, _ = _followed(api, container, folder)
    head = b"".join(itertools.islice(chunks, 1))[: tarfile.BLOCKSIZE]
    chunks.close()  # type: ignore[attr-defined]
    entry = tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    return entry.uid, entry.gid
