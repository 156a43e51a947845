"""The file server: text files and directories in a tree of the session's own. Paths are absolute, like /reports/march.csv."""

from __future__ import annotations

import difflib
from typing import Annotated

import msgspec
from _server.store import Row
from msgspec import Meta

from ...lookup import Cursor, Limit
from ...registry import Context, page, tool
from ...store import ToolError
from . import finding, tree

__all__ = ["finding"]

FilePath = Annotated[str, "absolute path of a file"]
Content = Annotated[str, "text"]
Line = Annotated[int, Meta(ge=1)]


class Edit(msgspec.Struct, forbid_unknown_fields=True):
    """One replacement in a text."""

    old_text: Annotated[str, Meta(min_length=1, description="what is there now, character by character; must occur exactly once")]
    new_text: Annotated[str, Meta(description="what takes its place")]


def _numbered(row: Row, start: int, end: int) -> Row:
    lines = tree.lines_of(row["content"])
    shown = lines[start - 1 : end]
    return {"path": row["path"], "start_line": start, "end_line": start - 1 + len(shown), "total_lines": len(lines), "content": "\n".join(shown)}


@tool("filesystem", read_only=True, aliases=("filesystem_read", "filesystem_read_text_file"))
def read_file(
    ctx: Context,
    path: FilePath,
    start_line: Annotated[Line | None, "first line, counted from 1"] = None,
    end_line: Annotated[Line | None, "last line"] = None,
) -> Row:
    """Read a file whole, or some of its lines."""
    row = tree.file(ctx, path)
    if start_line is None and end_line is None:
        return {**row, "total_lines": len(tree.lines_of(row["content"]))}
    start, end = start_line or 1, end_line or tree.MAX_FILE
    if end < start:
        raise ToolError("invalid", f"end_line {end} is before start_line {start}")
    if start > max(1, len(tree.lines_of(row["content"]))):
        raise ToolError("invalid", f"{row['path']} has {len(tree.lines_of(row['content']))} lines; start_line is {start}")
    return _numbered(row, start, end)


@tool("filesystem", read_only=True)
def read_multiple_files(ctx: Context, paths: Annotated[list[str], Meta(min_length=1, max_length=50), "absolute paths"]) -> Row:
    """Read several files; one that cannot be read is shown with its error, and the others are still read."""
    files: list[Row] = []
    for path in paths:
        try:
            files.append(tree.file(ctx, path))
        except ToolError as error:
            files.append({"path": path, "error": {"type": error.type, "message": error.message, "hint": error.hint}})
    return {"files": files, "failed": sum("error" in f for f in files)}


@tool("filesystem", read_only=True)
def head_file(ctx: Context, path: FilePath, lines: Annotated[int, Meta(ge=1, le=10_000), "how many lines"] = 10) -> Row:
    """The first lines of a file."""
    return _numbered(tree.file(ctx, path), 1, lines)


@tool("filesystem", read_only=True)
def tail_file(ctx: Context, path: FilePath, lines: Annotated[int, Meta(ge=1, le=10_000), "how many lines"] = 10) -> Row:
    """The last lines of a file."""
    row = tree.file(ctx, path)
    total = len(tree.lines_of(row["content"]))
    return _numbered(row, max(1, total - lines + 1), max(1, total))


@tool("filesystem", destructive=True, idempotent=True, aliases=("filesystem_write",))
def write_file(
    ctx: Context,
    path: FilePath,
    content: Content,
    create_parents: Annotated[bool, "make missing directories on the way"] = False,
    overwrite: Annotated[bool, "replace a file that is there"] = True,
) -> Row:
    """Write a file: a new one, or in place of the one that is there. At most 1 MiB."""
    return {"entry": tree.put(ctx, tree.clean(path), content, create_parents=create_parents, overwrite=overwrite)}


@tool("filesystem", aliases=("filesystem_append",))
def append_file(ctx: Context, path: FilePath, content: Content) -> Row:
    """Add text at the end of a file; a line break goes in between when the file does not end with one."""
    row = tree.file(ctx, path)
    before = row["content"]
    between = "\n" if before and not before.endswith("\n") else ""
    return {"entry": tree.put(ctx, row["path"], before + between + content)}


@tool("filesystem", destructive=True, aliases=("filesystem_edit",))
def edit_file(
    ctx: Context,
    path: FilePath,
    edits: Annotated[list[Edit], Meta(min_length=1, max_length=100), "replacements, made one after the other"],
    dry_run: Annotated[bool, "only show the difference"] = False,
) -> Row:
    """Replace exact pieces of a file's text; each must occur exactly once when its turn comes, or nothing is changed. Shows the difference."""
    row = tree.file(ctx, path)
    text = row["content"]
    for number, edit in enumerate(edits):
        text = _replace_once(row["path"], text, edit, number)
    diff = difflib.unified_diff(tree.lines_of(row["content"]), tree.lines_of(text), row["path"], row["path"], lineterm="")
    if not dry_run:
        row = tree.put(ctx, row["path"], text)
    return {"diff": "\n".join(diff), "dry_run": dry_run, "entry": row}


def _replace_once(path: str, text: str, edit: Edit, number: int) -> str:
    found = text.count(edit.old_text)
    if found > 1:
        at = [n for n, line in enumerate(tree.lines_of(text), 1) if edit.old_text.split("\n")[0] in line][:5]
        raise ToolError("conflict", f"edits[{number}].old_text occurs {found} times in {path}", f"take in more text around it; its first line is on lines {at}")
    if found == 0:
        near = difflib.get_close_matches(edit.old_text.split("\n")[0], tree.lines_of(text), n=2, cutoff=0.5)
        raise ToolError(
            "not_found", f"edits[{number}].old_text does not occur in {path}", "near: " + "; ".join(map(repr, near)) if near else "read the file first"
        )
    return text.replace(edit.old_text, edit.new_text)


@tool("filesystem", idempotent=True, aliases=("filesystem_mkdir",))
def create_directory(ctx: Context, path: Annotated[str, "absolute path"]) -> Row:
    """Make a directory and any missing one above it; one that is there is left as it is."""
    cleaned = tree.clean(path)
    made = tree.make_directory(ctx, cleaned)
    return {"entry": tree.entry(ctx, cleaned), "created": [row["path"] for row in made]}


@tool("filesystem", aliases=("filesystem_move",))
def move_file(ctx: Context, source: Annotated[str, "what is moved: a file or a whole directory"], destination: Annotated[str, "its whole new path"]) -> Row:
    """Move or rename a file or a directory with everything in it; refused when the new path exists."""
    row, target = _source_and_target(ctx, source, destination, "moved")
    old = row["path"]
    inside = tree.below(ctx, old) if row["kind"] == "directory" else []
    moved = [ctx.db.update("filesystem.entries", r["id"], path=tree.clean(target + r["path"][len(old) :])) for r in (row, *inside)]
    return {"entry": moved[0], "moved": [r["path"] for r in moved]}


@tool("filesystem", aliases=("filesystem_copy",))
def copy_file(ctx: Context, source: Annotated[str, "what is copied: a file or a whole directory"], destination: Annotated[str, "path of the copy"]) -> Row:
    """Copy a file or a directory with everything in it; refused when the new path exists."""
    row, target = _source_and_target(ctx, source, destination, "copied")
    inside = tree.below(ctx, row["path"]) if row["kind"] == "directory" else []
    made = []
    for original in (row, *inside):
        path = tree.clean(target + original["path"][len(row["path"]) :])
        made.append(tree.put(ctx, path, original["content"]) if original["kind"] == "file" else tree.make_directory(ctx, path)[0])
    return {"entry": made[0], "copied": [r["path"] for r in made]}


def _source_and_target(ctx: Context, source: str, destination: str, verb: str) -> tuple[Row, str]:
    row, target = tree.entry(ctx, source), tree.clean(destination)
    if row["path"] == "/" or target == row["path"] or target.startswith(row["path"] + "/"):
        raise ToolError("invalid", f"{row['path']} cannot be {verb} into itself")
    there = tree.find(ctx, target)
    if there is not None:
        hint = f"to put it in there, name the whole path: {target.rstrip('/')}/{row['path'].rpartition('/')[2]}"
        raise ToolError("conflict", f"{target} exists", hint if there["kind"] == "directory" else "delete it first, or choose another name")
    tree.need_parent(ctx, target, create=False)
    return row, target


@tool("filesystem", destructive=True, aliases=("filesystem_delete",))
def delete_file(
    ctx: Context,
    path: Annotated[str, "absolute path of a file or directory"],
    recursive: Annotated[bool, "also a directory that is not empty, with everything in it"] = False,
) -> Row:
    """Delete a file or a directory; one with something in it only with `recursive`."""
    row = tree.entry(ctx, path)
    if row["path"] == "/":
        raise ToolError("invalid", "the root cannot be deleted")
    inside = tree.below(ctx, row["path"]) if row["kind"] == "directory" else []
    if inside and not recursive:
        names = ", ".join(r["path"] for r in inside[:5])
        raise ToolError("conflict", f"{row['path']} is not empty: {names}{' and more' if len(inside) > 5 else ''}", "set recursive to delete it all")
    for gone in (*inside, row):
        ctx.db.delete("filesystem.entries", "id = ?", (gone["id"],))
    return {"deleted": [r["path"] for r in (row, *inside)]}


@tool("filesystem", read_only=True, aliases=("filesystem_list",))
def list_directory(ctx: Context, path: Annotated[str, "absolute path of a directory"] = "/", limit: Limit = 200, cursor: Cursor = None) -> Row:
    """What lies directly in a directory: directories first, then files, each by name, without their content."""
    folder = tree.directory(ctx, path)["path"]
    rows = sorted(tree.children(ctx, folder), key=lambda r: (r["kind"] == "file", r["path"]))
    return {"path": folder, **page([tree.without_content(r) for r in rows], limit, cursor, "entries")}


@tool("filesystem", read_only=True, aliases=("filesystem_tree",))
def directory_tree(
    ctx: Context, path: Annotated[str, "absolute path of a directory"] = "/", depth: Annotated[int, Meta(ge=1, le=50), "how many levels down"] = 10
) -> Row:
    """A directory with everything in it, nested: {name, kind, size | children}; what lies deeper is counted in `more`."""
    folder = tree.directory(ctx, path)["path"]
    root: Row = {"name": folder, "kind": "directory", "children": []}
    nodes = {folder: root}
    for row in tree.below(ctx, folder):
        above = nodes.get(tree.parent(row["path"]))
        if above is None:
            continue
        if row["path"].rstrip("/").count("/") - folder.rstrip("/").count("/") > depth:
            above["more"] = above.get("more", 0) + 1
            continue
        node: Row = {"name": row["path"].rpartition("/")[2], "kind": row["kind"]}
        if row["kind"] == "directory":
            node["children"] = []
            nodes[row["path"]] = node
        else:
            node["size"] = row["size"]
        above["children"].append(node)
    return root


@tool("filesystem", read_only=True)
def get_file_info(ctx: Context, path: Annotated[str, "absolute path of a file or directory"]) -> Row:
    """Kind, size, time of change; for a file its lines and words, for a directory what is in it."""
    row = tree.entry(ctx, path)
    if row["kind"] == "file":
        return {**tree.without_content(row), **finding.counts(row["content"])}
    inside = tree.below(ctx, row["path"])
    files = [r for r in inside if r["kind"] == "file"]
    totals = {"files": len(files), "directories": len(inside) - len(files), "total_size": sum(r["size"] for r in files)}
    return {**tree.without_content(row), **totals}
