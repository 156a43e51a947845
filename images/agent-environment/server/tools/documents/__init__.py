"""The documents server: Markdown documents in folders, with revisions, comments and shares.

Everybody may read every document. Its owner and those it is shared with as editors may change it, commenters may comment.
"""

from __future__ import annotations

from typing import Annotated, Literal

from _server.store import Row
from msgspec import Meta

from ...lookup import Cursor, Limit, Name, Where, address, has_words, id_of, person, select
from ...registry import Context, page, tool
from ...store import ToolError
from . import access, editing, folders, revisions, sharing

__all__ = ["editing", "folders", "revisions", "sharing"]

DocumentId = Annotated[str, "id or title of the document"]
Status = Literal["draft", "published", "archived"]
Folder = Annotated[str | None, "only in this folder (id, name or path), not in those below it"]
Owner = Annotated[str | None, "only those of this owner: `me`, an e-mail address, a handle or a name"]


def _selected(ctx: Context, folder_id: str | None, status: str | None, owner: str | None) -> list[Row]:
    where = Where().add("folder_id = ?", id_of(access.find_folder, ctx, folder_id)).add("status = ?", status)
    where.add("lower(owner) = ?", address(ctx, owner))
    return select(ctx, "documents.documents", where, order="coalesce(updated_at, created_at) DESC, id")


@tool("documents", read_only=True)
def list_documents(
    ctx: Context,
    folder_id: Folder = None,
    status: Annotated[Status | None, "only documents in this state"] = None,
    owner: Owner = None,
    shared_with_me: Annotated[bool, "only what others share with you"] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Row:
    """Documents by folder, state and owner, the last changed first; with their length and your role, without their text."""
    rows = [access.without_body(ctx, d) for d in _selected(ctx, folder_id, status, owner)]
    if shared_with_me:
        mine = {s["document_id"] for s in ctx.db.rows("documents.shares", "lower(email) = ?", (ctx.user.email.lower(),))}
        rows = [r for r in rows if r["id"] in mine and r["role"] != "owner"]
    return page(rows, limit, cursor, "documents")


@tool("documents", read_only=True)
def search_documents(
    ctx: Context,
    query: Annotated[str, Meta(min_length=1), "words that must all occur in title or text"],
    folder_id: Folder = None,
    status: Annotated[Status | None, "only documents in this state"] = None,
    owner: Owner = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> Row:
    """Search titles and texts; hits in titles first, each with the text around its first word."""
    found = [d for d in _selected(ctx, folder_id, status, owner) if has_words(query, d, ("title", "body"))]
    found.sort(key=lambda d: not has_words(query, d, ("title",)))
    return page([{**access.without_body(ctx, d), "snippet": _snippet(d["body"], query)} for d in found], limit, cursor, "documents")


def _snippet(body: str, query: str) -> str:
    text = " ".join(body.split())
    folded = text.casefold()
    at = max(0, min((folded.find(w) for w in query.casefold().split() if w in folded), default=0))
    start, end = max(0, at - 80), at + 120
    return ("..." if start else "") + text[start:end] + ("..." if end < len(text) else "")


@tool("documents", read_only=True)
def get_document(ctx: Context, document_id: DocumentId) -> Row:
    """A document with its text, where it lies, your role, its latest revision's number and its open comments."""
    document = access.find(ctx, document_id)
    comments = ctx.db.rows("documents.comments", "document_id = ? AND NOT is_resolved", (document["id"],), order="created_at, id")
    return {
        "document": document,
        "folder_path": access.folder_path(ctx, document["folder_id"]),
        "role": access.role(ctx, document),
        "revision": access.last_number(ctx, document["id"]),
        "open_comments": comments,
    }


@tool("documents", aliases=("documents_add_document",))
def create_document(
    ctx: Context,
    title: Annotated[Name, "the title"],
    body: Annotated[str, Meta(max_length=500_000), "the text, as Markdown"] = "",
    folder_id: Annotated[str | None, "the folder it goes into (id, name or path); left out: none"] = None,
    status: Annotated[Literal["draft", "published"], "draft or published"] = "draft",
) -> Row:
    """Make a document of your own, with its first revision."""
    folder = id_of(access.find_folder, ctx, folder_id)
    document = ctx.db.insert(
        "documents.documents", folder_id=folder, title=title, body=body, owner=ctx.user.email, status=status, created_at=ctx.now_text, updated_at=ctx.now_text
    )
    return {"document": document, "revision": access.first_revision(ctx, document, "created")}


@tool("documents", idempotent=True)
def move_document(
    ctx: Context, document_id: DocumentId, folder_id: Annotated[str | None, "the folder it goes into (id, name or path); null: out of all folders"]
) -> Row:
    """Move a document to another folder; owner and editors only."""
    document = access.find(ctx, document_id)
    access.require(ctx, document, "editor", "move it")
    folder = id_of(access.find_folder, ctx, folder_id)
    return {"document": ctx.db.update("documents.documents", document["id"], folder_id=folder), "folder_path": access.folder_path(ctx, folder)}


def _set_status(ctx: Context, document: Row, status: str) -> Row:
    if document["status"] == status:
        raise ToolError("conflict", f"{document['title']!r} is {status} already")
    return {"document": ctx.db.update("documents.documents", document["id"], status=status, updated_at=ctx.now_text)}


@tool("documents")
def publish_document(ctx: Context, document_id: DocumentId) -> Row:
    """Publish a draft, or bring an archived document back; owner and editors only."""
    document = access.find(ctx, document_id)
    access.require(ctx, document, "editor", "publish it")
    return _set_status(ctx, document, "published")


@tool("documents")
def archive_document(ctx: Context, document_id: DocumentId) -> Row:
    """Archive a document: it stays readable and cannot be edited; its owner only."""
    document = access.find(ctx, document_id)
    access.require(ctx, document, "owner", "archive it")
    return _set_status(ctx, document, "archived")


@tool("documents", destructive=True)
def delete_document(ctx: Context, document_id: DocumentId) -> Row:
    """Delete a document for good, with its revisions, comments and shares; its owner only."""
    document = access.find(ctx, document_id)
    access.require(ctx, document, "owner", "delete it")
    gone = {t: ctx.db.delete(f"documents.{t}", "document_id = ?", (document["id"],)) for t in ("revisions", "comments", "shares")}
    ctx.db.delete("documents.documents", "id = ?", (document["id"],))
    return {"deleted": document, "with": gone}


@tool("documents")
def transfer_ownership(ctx: Context, document_id: DocumentId, to: Annotated[str, "the new owner: an e-mail address, a handle or a name"]) -> Row:
    """Give a document to somebody else, who gets a mail; you stay as an editor. Its owner only."""
    document = access.find(ctx, document_id)
    access.require(ctx, document, "owner", "give it away")
    new = person(ctx, to)
    if new.lower() == ctx.user.email.lower():
        raise ToolError("conflict", f"{document['title']!r} is yours already")
    ctx.db.delete("documents.shares", "document_id = ? AND lower(email) = ?", (document["id"], new.lower()))
    share = ctx.db.insert("documents.shares", document_id=document["id"], email=ctx.user.email, role="editor")
    changed = ctx.db.update("documents.documents", document["id"], owner=new)
    text = f"{ctx.user.name} made you the owner of the document {document['title']!r}."
    return {"document": changed, "share": share, "message": sharing.mail(ctx, new, f"You own {document['title']!r}", text)}
