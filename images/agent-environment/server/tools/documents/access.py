"""Documents found, what the acting user may do with them, and the one way they change: by a revision."""

from __future__ import annotations

from _server.store import Row

from ...lookup import near_names, resolve
from ...registry import Context
from ...store import ToolError

ROLES = ("viewer", "commenter", "editor", "owner")


def find(ctx: Context, key: str) -> Row:
    """A document by id or title."""
    return resolve(ctx, "documents.documents", key, "title")


def find_folder(ctx: Context, key: str) -> Row:
    """A folder by id, name or path (`Engineering/Specs`)."""
    if "/" not in key:
        return resolve(ctx, "documents.folders", key, "name")
    paths = {folder_path(ctx, f["id"]): f for f in ctx.db.rows("documents.folders")}
    wanted = key.strip("/").casefold()
    for path, folder in paths.items():
        if path.casefold() == wanted:
            return folder
    near = near_names(wanted, [(p, f"{p} ({f['id']})") for p, f in paths.items()])
    raise ToolError("not_found", f"there is no folder {key!r}", "near: " + "; ".join(near) if near else "see documents_list_folders")


def folder_path(ctx: Context, folder_id: str | None) -> str:
    """`Engineering/Specs`; nothing for the top."""
    names: list[str] = []
    while folder_id is not None:
        folder = ctx.db.get("documents.folders", folder_id)
        names.append(folder["name"])
        folder_id = folder["parent_id"]
    return "/".join(reversed(names))


def role(ctx: Context, document: Row, email: str | None = None) -> str:
    """What somebody (by default the acting user) is to a document: its owner, what it is shared as, else a viewer."""
    who = (email or ctx.user.email).lower()
    if document["owner"].lower() == who:
        return "owner"
    share = ctx.db.first("documents.shares", "document_id = ? AND lower(email) = ?", (document["id"], who))
    return str(share["role"]) if share else "viewer"


def require(ctx: Context, document: Row, least: str, what: str) -> None:
    """ToolError forbidden unless the acting user is at least `least`."""
    mine = role(ctx, document)
    if ROLES.index(mine) < ROLES.index(least):
        raise ToolError("forbidden", f"{ctx.user.email} is a {mine} of {document['title']!r} and may not {what}", f"ask its owner, {document['owner']}")


def editable(ctx: Context, key: str) -> Row:
    """A document that the acting user may edit now; ToolError forbidden or conflict."""
    document = find(ctx, key)
    require(ctx, document, "editor", "edit it")
    if document["status"] == "archived":
        raise ToolError("conflict", f"{document['title']!r} is archived", "publish it again with documents_publish_document first")
    return document


def last_number(ctx: Context, document_id: str) -> int:
    """The number of the latest revision; 0 when there is none."""
    sql = "SELECT coalesce(max(number), 0) FROM documents_revisions WHERE document_id = ?"
    return int(ctx.db.connection.execute(sql, (document_id,)).fetchone()[0])


def revise(ctx: Context, document: Row, *, title: str | None = None, body: str | None = None, summary: str = "") -> Row:
    """Give a document another title or text: {document, revision}; ToolError invalid when nothing would change.

    When the text as it was is not the latest revision (seed data without revisions), it first becomes one: nothing is lost.
    """
    new_title, new_body = title or document["title"], document["body"] if body is None else body
    if (new_title, new_body) == (document["title"], document["body"]):
        raise ToolError("invalid", f"{document['title']!r} would stay as it is", "give another title or text")
    last = ctx.db.first("documents.revisions", "document_id = ?", (document["id"],), order="number DESC")
    number = last["number"] if last else 0
    if last is None or (last["title"], last["body"]) != (document["title"], document["body"]):
        number += 1
        _add(ctx, document, number, document["owner"], document["updated_at"] or document["created_at"] or ctx.now_text, "as it was")
    changed = ctx.db.update("documents.documents", document["id"], title=new_title, body=new_body, updated_at=ctx.now_text)
    return {"document": changed, "revision": _add(ctx, changed, number + 1, ctx.user.email, ctx.now_text, summary)}


def first_revision(ctx: Context, document: Row, summary: str) -> Row:
    """Revision 1 of a new document."""
    return _add(ctx, document, 1, ctx.user.email, ctx.now_text, summary)


def _add(ctx: Context, document: Row, number: int, author: str, at: str, summary: str) -> Row:
    return ctx.db.insert(
        "documents.revisions", document_id=document["id"], number=number, title=document["title"], body=document["body"], author=author, created_at=at,
        summary=summary,
    )  # fmt: skip


def without_body(ctx: Context, document: Row) -> Row:
    """A document as lists show it: its text left out, its length and the acting user's role put in."""
    row = {name: value for name, value in document.items() if name != "body"}
    return {**row, "words": len(document["body"].split()), "role": role(ctx, document)}
