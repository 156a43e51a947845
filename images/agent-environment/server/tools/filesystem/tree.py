"""The sandboxed tree: paths are cleaned here, rows of `filesystem.entries` are found and made here, and nothing lies outside."""

from __future__ import annotations

import posixpath
import unicodedata

from _server.store import Row

from ...lookup import near_names
from ...registry import Context
from ...store import ToolError

MAX_FILE = 1 << 20
MAX_TREE = 64 << 20
MAX_ENTRIES = 20_000
MAX_NAME = 255
MAX_PATH = 1024


def clean(path: str) -> str:
    """An absolute path in its only spelling (NFC, no `.`, `..`, double or trailing slash); ToolError invalid for anything odd."""
    if not path.startswith("/"):
        raise ToolError("invalid", f"path {path[:80]!r} is not absolute", f"start at the root: {'/' + path[:80]!r}")
    kept: list[str] = []
    for name in unicodedata.normalize("NFC", path).split("/"):
        if name in ("", "."):
            continue
        if name == "..":
            if not kept:
                raise ToolError("invalid", f"path {path[:80]!r} leaves the tree", "there is nothing above /")
            kept.pop()
            continue
        _check_name(name)
        kept.append(name)
    cleaned = "/" + "/".join(kept)
    if len(cleaned) > MAX_PATH:
        raise ToolError("invalid", f"path has {len(cleaned)} characters, at most {MAX_PATH} are allowed")
    return cleaned


def _check_name(name: str) -> None:
    """Refuse what looks like something else on a screen or to another program: controls, format marks, surrogates, look-alike slashes and dots."""
    odd = [c for c in name if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp")]
    if odd:
        raise ToolError("invalid", f"the name {name!a} contains U+{ord(odd[0]):04X}, which a name must not")
    plain = unicodedata.normalize("NFKC", name)
    if "/" in plain or "\\" in plain or plain in (".", ".."):
        raise ToolError("invalid", f"the name {name!a} holds a look-alike of a slash or of '..'", "use / between names")
    if len(name.encode()) > MAX_NAME:
        raise ToolError("invalid", f"the name {name[:40]!r}... has {len(name.encode())} bytes, at most {MAX_NAME} are allowed")


def parent(path: str) -> str:
    """The directory a cleaned path lies in."""
    return posixpath.dirname(path)


def find(ctx: Context, path: str) -> Row | None:
    """The entry at a cleaned path; the root is there without a row."""
    row = ctx.db.first("filesystem.entries", "path = ?", (path,))
    if row is None and path == "/":
        return {"id": None, "path": "/", "kind": "directory", "content": "", "size": 0, "modified_at": None}
    return row


def entry(ctx: Context, path: str) -> Row:
    """The entry at a path as a client wrote it; ToolError not_found with near paths."""
    cleaned = clean(path)
    row = find(ctx, cleaned)
    if row is None:
        raise missing(ctx, cleaned)
    return row


def missing(ctx: Context, path: str) -> ToolError:
    """The error for a path that does not exist, with the nearest that do."""
    known = [str(r[0]) for r in ctx.db.connection.execute("SELECT path FROM filesystem_entries ORDER BY path")]
    same_name = [p for p in known if posixpath.basename(p).casefold() == posixpath.basename(path).casefold()]
    near = list(dict.fromkeys(same_name + near_names(path, [(p, p) for p in known])))[:3]
    return ToolError(
        "not_found", f"there is no {path}", "near: " + "; ".join(near) if near else "look with filesystem_list_directory or filesystem_search_files"
    )


def file(ctx: Context, path: str) -> Row:
    """The file at a path; ToolError not_found, or invalid for a directory."""
    row = entry(ctx, path)
    if row["kind"] != "file":
        raise ToolError("invalid", f"{row['path']} is a directory", "use filesystem_list_directory")
    return row


def directory(ctx: Context, path: str) -> Row:
    """The directory at a path; ToolError not_found, or invalid for a file."""
    row = entry(ctx, path)
    if row["kind"] != "directory":
        raise ToolError("invalid", f"{row['path']} is a file", "use filesystem_read_file")
    return row


def below(ctx: Context, path: str) -> list[Row]:
    """Every entry under a cleaned directory path, by path (names in code point order, so a directory's own come after it)."""
    prefix = "/" if path == "/" else path + "/"
    where = "path > ? AND substr(path, 1, ?) = ?"
    return sorted(ctx.db.rows("filesystem.entries", where, (prefix, len(prefix), prefix)), key=lambda r: r["path"].split("/"))


def children(ctx: Context, path: str) -> list[Row]:
    """The entries directly in a cleaned directory path, by name."""
    return [row for row in below(ctx, path) if parent(row["path"]) == path]


def make_directory(ctx: Context, path: str) -> list[Row]:
    """Make a cleaned directory path with its parents; the rows made, none when it is there; ToolError conflict for a file in the way."""
    there = find(ctx, path)
    if there is not None:
        if there["kind"] != "directory":
            raise ToolError("conflict", f"{path} is a file")
        return []
    made = make_directory(ctx, parent(path))
    _check_room(ctx, 0)
    return [*made, ctx.db.insert("filesystem.entries", path=path, kind="directory", modified_at=ctx.now_text)]


def need_parent(ctx: Context, path: str, create: bool) -> None:
    """See that the directory of a cleaned path exists, making it if `create`; ToolError not_found."""
    folder = parent(path)
    there = find(ctx, folder)
    if there is None and not create:
        error = missing(ctx, folder)
        raise ToolError("not_found", f"the directory {folder} does not exist", f"make it with create_parents or filesystem_create_directory; {error.hint}")
    make_directory(ctx, folder)


def put(ctx: Context, path: str, content: str, *, create_parents: bool = False, overwrite: bool = True) -> Row:
    """Write a file at a cleaned path; its row; ToolError conflict, not_found or invalid (too large)."""
    there = find(ctx, path)
    if there is not None and there["kind"] == "directory":
        raise ToolError("conflict", f"{path} is a directory", "name a file in it")
    if there is not None and not overwrite:
        raise ToolError("conflict", f"{path} exists", "set overwrite, or choose another name")
    size = size_of(content)
    _check_room(ctx, size - (there["size"] if there else 0), new=there is None)
    if there is not None:
        return ctx.db.update("filesystem.entries", there["id"], content=content, size=size, modified_at=ctx.now_text)
    need_parent(ctx, path, create_parents)
    return ctx.db.insert("filesystem.entries", path=path, content=content, size=size, modified_at=ctx.now_text)


def size_of(content: str) -> int:
    """The bytes of a file's text; ToolError invalid when it is too large or no text at all."""
    try:
        size = len(content.encode())
    except UnicodeEncodeError as error:
        raise ToolError("invalid", f"the content holds a lone surrogate at character {error.start}") from error
    if size > MAX_FILE:
        raise ToolError("invalid", f"the file would have {size} bytes, at most {MAX_FILE} are allowed", "split it")
    return size


def _check_room(ctx: Context, more: int, new: bool = True) -> None:
    used, entries = ctx.db.connection.execute("SELECT coalesce(sum(size), 0), count(*) FROM filesystem_entries").fetchone()
    if used + more > MAX_TREE or entries + new > MAX_ENTRIES:
        raise ToolError("conflict", f"the disk is full: {used} of {MAX_TREE} bytes and {entries} of {MAX_ENTRIES} entries are used", "delete something first")


def lines_of(content: str) -> list[str]:
    """The lines of a text, without their ends."""
    lines = content.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def without_content(row: Row) -> Row:
    """A row as lists show it."""
    return {name: value for name, value in row.items() if name != "content"}
