"""Searching, counting and comparing in the tree."""

from __future__ import annotations

import difflib
import functools
from typing import Annotated, Any, Literal

import re2  # type: ignore[import-untyped]
from _server.store import Row
from _server.times import stored_time
from msgspec import Meta

from ...lookup import Cursor, Limit
from ...registry import Context, Time, page, tool
from ...store import ToolError
from . import tree

Below = Annotated[str, "absolute path: only this directory (or file)"]
Pattern = Annotated[str, Meta(min_length=1, max_length=1000)]


def counts(content: str) -> Row:
    """Lines, words, characters and bytes of a text."""
    return {"lines": len(tree.lines_of(content)), "words": len(content.split()), "characters": len(content), "bytes": len(content.encode())}


@functools.lru_cache(maxsize=256)
def compiled(pattern: str, ignore_case: bool) -> Any:
    """A pattern of RE2 (linear time); ToolError invalid."""
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else error.args[0]
        raise ToolError("invalid", f"bad pattern: {reason}", "patterns are RE2: no look-around, no back-references; or set fixed_string") from error


def glob_pattern(glob: str) -> str:
    """A file name pattern as a regular expression: `*` and `?` stay within a name, `**` goes over directories, `[a-c]` and `[!a-c]` are sets."""
    out, at = [], 0
    while at < len(glob):
        token, piece = _glob_token(glob, at)
        out.append(piece)
        at += len(token)
    return "^" + "".join(out) + "$"


def _glob_token(glob: str, at: int) -> tuple[str, str]:
    for token, piece in (("**/", "(?:.*/)?"), ("**", ".*"), ("*", "[^/]*"), ("?", "[^/]")):
        if glob.startswith(token, at):
            return token, piece
    end = glob.find("]", at + 2) if glob[at] == "[" else -1
    if end > 0:
        inner = glob[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
        return glob[at : end + 1], "[" + ("^" + inner[1:] if inner.startswith("!") else inner) + "]"
    return glob[at], re2.escape(glob[at])


def _under(ctx: Context, path: str) -> tuple[str, list[Row]]:
    """The cleaned base, and the entries in it (or the one file)."""
    row = tree.entry(ctx, path)
    return row["path"], [row] if row["kind"] == "file" else tree.below(ctx, row["path"])


def _matching(base: str, rows: list[Row], glob: str, ignore_case: bool = True) -> list[Row]:
    """The rows whose name (or, for a pattern with a slash, path below the base) fits the glob."""
    regex = compiled(glob_pattern(glob.removeprefix("/")), ignore_case)
    skip = 1 if base == "/" else len(base) + 1
    return [r for r in rows if regex.search(r["path"][skip:] if "/" in glob else r["path"].rpartition("/")[2])]


@tool("filesystem", read_only=True, aliases=("filesystem_search",))
def search_files(
    ctx: Context,
    pattern: Annotated[Pattern, "glob over names, like *.csv; with a slash over the path below, like reports/**/*.md"],
    path: Below = "/",
    kind: Annotated[Literal["file", "directory"] | None, "only files, or only directories"] = None,
    modified_after: Annotated[Time | None, "only what was changed after this"] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Row:
    """Find files and directories by name (any case); without their content."""
    base, rows = _under(ctx, path)
    rows = [r for r in _matching(base, rows, pattern) if kind in (None, r["kind"])]
    if modified_after:
        rows = [r for r in rows if stored_time(r["modified_at"], ctx.zone) > modified_after]
    return page([tree.without_content(r) for r in rows], limit, cursor, "entries")


@tool("filesystem", read_only=True, aliases=("filesystem_grep", "filesystem_search_content"))
def grep_files(
    ctx: Context,
    pattern: Annotated[Pattern, "regular expression (RE2) that a line must contain"],
    path: Below = "/",
    glob: Annotated[str | None, "only files whose name fits, like *.md"] = None,
    ignore_case: Annotated[bool, "capitals do not matter"] = False,
    fixed_string: Annotated[bool, "the pattern is plain text"] = False,
    context: Annotated[int, Meta(ge=0, le=10), "lines shown before and after each"] = 0,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Row:
    """Lines of files that match a pattern: {path, line, text, before, after}, by path and line."""
    regex = compiled(re2.escape(pattern) if fixed_string else pattern, ignore_case)
    base, rows = _under(ctx, path)
    matches = []
    for row in rows if glob is None else _matching(base, rows, glob):
        lines = tree.lines_of(row["content"]) if row["kind"] == "file" else []
        for number, text in enumerate(lines):
            if regex.search(text):
                around = {"before": lines[max(0, number - context) : number], "after": lines[number + 1 : number + 1 + context]} if context else {}
                matches.append({"path": row["path"], "line": number + 1, "text": text, **around})
    return {**page(matches, limit, cursor, "matches"), "files": len({m["path"] for m in matches})}


@tool("filesystem", read_only=True, aliases=("filesystem_word_count",))
def count_words(
    ctx: Context, path: Annotated[str, "a file, or a directory with all its files"], glob: Annotated[str | None, "only files whose name fits"] = None
) -> Row:
    """Lines, words, characters and bytes of each file, and their total."""
    base, rows = _under(ctx, path)
    files = [r for r in (rows if glob is None else _matching(base, rows, glob)) if r["kind"] == "file"]
    each = [{"path": r["path"], **counts(r["content"])} for r in files]
    return {"files": each, "total": {name: sum(f[name] for f in each) for name in counts("")}}


@tool("filesystem", read_only=True)
def disk_usage(ctx: Context, path: Annotated[str, "absolute path of a directory"] = "/") -> Row:
    """What a directory takes up: each thing directly in it with its bytes and number of files, the largest first, and what is left of the disk."""
    folder = tree.directory(ctx, path)["path"]
    files = [r for r in tree.below(ctx, folder) if r["kind"] == "file"]
    usage = []
    for child in tree.children(ctx, folder):
        inside = [r for r in files if r["path"] == child["path"] or r["path"].startswith(child["path"] + "/")]
        usage.append({"path": child["path"], "kind": child["kind"], "bytes": sum(r["size"] for r in inside), "files": len(inside)})
    used = ctx.db.connection.execute("SELECT coalesce(sum(size), 0) FROM filesystem_entries").fetchone()[0]
    usage.sort(key=lambda u: (-u["bytes"], u["path"]))
    return {"path": folder, "bytes": sum(r["size"] for r in files), "files": len(files), "entries": usage, "disk": {"used": used, "size": tree.MAX_TREE}}


@tool("filesystem", read_only=True)
def diff_files(ctx: Context, path_a: Annotated[str, "absolute path of a file"], path_b: Annotated[str, "absolute path of the other"]) -> Row:
    """The difference between two files, as a unified diff."""
    one, two = tree.file(ctx, path_a), tree.file(ctx, path_b)
    diff = list(difflib.unified_diff(tree.lines_of(one["content"]), tree.lines_of(two["content"]), one["path"], two["path"], lineterm=""))
    added = sum(line.startswith("+") and not line.startswith("+++") for line in diff)
    removed = sum(line.startswith("-") and not line.startswith("---") for line in diff)
    return {"identical": one["content"] == two["content"], "added": added, "removed": removed, "diff": "\n".join(diff)}


@tool("filesystem", read_only=True)
def find_duplicate_files(ctx: Context, path: Below = "/") -> Row:
    """Groups of files with the same content (empty ones left out), the largest first, with the bytes that deleting the copies would free."""
    _, rows = _under(ctx, path)
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row["kind"] == "file" and row["content"]:
            groups.setdefault(row["content"], []).append(row)
    same = [{"size": g[0]["size"], "paths": [r["path"] for r in g]} for g in groups.values() if len(g) > 1]
    same.sort(key=lambda g: (-g["size"], g["paths"]))
    return {"groups": same, "bytes_to_free": sum(g["size"] * (len(g["paths"]) - 1) for g in same)}
