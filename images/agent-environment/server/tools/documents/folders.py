"""The folders documents lie in."""

from __future__ import annotations

from typing import Annotated

from _server.store import Row

from ...lookup import Name, id_of, refuse_if_referred
from ...registry import Context, tool
from ...store import ToolError
from . import access

FolderId = Annotated[str, "id, name or path of the folder"]


@tool("documents", read_only=True)
def list_folders(ctx: Context) -> Row:
    """All folders as a tree: {id, name, documents, folders}, by name; `documents` counts what lies directly in one."""
    count_of = dict(ctx.db.connection.execute("SELECT folder_id, count(*) FROM documents_documents GROUP BY folder_id").fetchall())
    nodes: dict[str | None, Row] = {None: {"id": None, "name": "", "documents": count_of.get(None, 0), "folders": []}}
    rows = ctx.db.rows("documents.folders", order="name, id")
    for row in rows:
        nodes[row["id"]] = {"id": row["id"], "name": row["name"], "documents": count_of.get(row["id"], 0), "folders": []}
    for row in rows:
        nodes[row["parent_id"]]["folders"].append(nodes[row["id"]])
    return {"folders": nodes[None]["folders"], "documents_outside": nodes[None]["documents"], "total": len(rows)}


def _refuse_same_name(ctx: Context, name: str, parent: str | None, but: str = "") -> None:
    if "/" in name:
        raise ToolError("invalid", f"the name {name!r} holds a slash", "slashes stand between folders in a path")
    taken = ctx.db.first("documents.folders", "parent_id IS ? AND lower(name) = ? AND id != ?", (parent, name.lower(), but))
    if taken:
        raise ToolError("conflict", f"there is a folder {taken['name']!r} ({taken['id']}) already", "use that one, or another name")


@tool("documents")
def create_folder(
    ctx: Context, name: Annotated[Name, "the folder's name"], parent_id: Annotated[str | None, "the folder it lies in; left out: at the top"] = None
) -> Row:
    """Make a folder; two in one place cannot have the same name."""
    parent = id_of(access.find_folder, ctx, parent_id)
    _refuse_same_name(ctx, name, parent)
    return {"folder": ctx.db.insert("documents.folders", name=name, parent_id=parent)}


@tool("documents", idempotent=True)
def move_folder(
    ctx: Context,
    folder_id: FolderId,
    parent_id: Annotated[str | None, "the folder it goes into (id, name or path); null: to the top"],
    new_name: Annotated[Name | None, "another name for it"] = None,
) -> Row:
    """Move a folder with everything in it, and rename it if a name is given; into itself or a folder below it is refused."""
    folder = access.find_folder(ctx, folder_id)
    parent = id_of(access.find_folder, ctx, parent_id)
    above = parent
    while above is not None:
        if above == folder["id"]:
            raise ToolError("conflict", f"{folder['name']!r} cannot be moved into itself or a folder below it")
        above = ctx.db.get("documents.folders", above)["parent_id"]
    _refuse_same_name(ctx, new_name or folder["name"], parent, folder["id"])
    moved = ctx.db.update("documents.folders", folder["id"], parent_id=parent, name=new_name or folder["name"])
    return {"folder": moved, "path": access.folder_path(ctx, folder["id"])}


@tool("documents", destructive=True)
def delete_folder(ctx: Context, folder_id: FolderId) -> Row:
    """Delete an empty folder; one with documents or folders in it is refused."""
    folder = access.find_folder(ctx, folder_id)
    users: dict[str, tuple[str, list[str]]] = {
        "documents.documents": ("folder_id = ?", [folder["id"]]),
        "documents.folders": ("parent_id = ?", [folder["id"]]),
    }
    refuse_if_referred(ctx, f"folder {folder['name']!r}", users)
    ctx.db.delete("documents.folders", "id = ?", (folder["id"],))
    return {"deleted": folder}
