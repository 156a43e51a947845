"""Who may do what with a document, and what people say about it."""

from __future__ import annotations

from typing import Annotated, Literal

from _server.store import Row
from msgspec import Meta

from ...effects import send_mail
from ...lookup import address, id_of, near_names
from ...registry import Context, tool
from ...store import ToolError
from . import access

DocumentId = Annotated[str, "id or title of the document"]
Who = Annotated[str, "an e-mail address, or a handle or name of somebody known"]
Message = Annotated[str, Meta(max_length=5000)]


def mail(ctx: Context, to: str, subject: str, text: str) -> Row:
    """A notice about a document."""
    return send_mail(ctx, [to], subject, text)


@tool("documents")
def share_document(
    ctx: Context,
    document_id: DocumentId,
    email: Who,
    role: Annotated[Literal["viewer", "commenter", "editor"], "what they may do"] = "viewer",
    message: Annotated[Message, "a word to go with it"] = "",
) -> Row:
    """Share a document with somebody, who gets a mail; somebody it is shared with already gets the new role. Owner and editors only."""
    document = access.find(ctx, document_id)
    access.require(ctx, document, "editor", "share it")
    to = address(ctx, email) or email
    if to == document["owner"].lower():
        raise ToolError("conflict", f"{to} owns {document['title']!r}")
    known = ctx.db.first("documents.shares", "document_id = ? AND lower(email) = ?", (document["id"], to))
    if known:
        share = ctx.db.update("documents.shares", known["id"], role=role)
    else:
        share = ctx.db.insert("documents.shares", document_id=document["id"], email=to, role=role)
    text = f"{ctx.user.name} shared the document {document['title']!r} with you ({role})." + (f"\n\n{message}" if message else "")
    return {"share": share, "message": mail(ctx, to, f"{ctx.user.name} shared {document['title']!r} with you", text)}


@tool("documents", destructive=True)
def unshare_document(ctx: Context, document_id: DocumentId, email: Who) -> Row:
    """Stop sharing a document with somebody. Owner and editors only."""
    document = access.find(ctx, document_id)
    access.require(ctx, document, "editor", "stop sharing it")
    to = address(ctx, email) or email
    share = ctx.db.first("documents.shares", "document_id = ? AND lower(email) = ?", (document["id"], to))
    if share is None:
        known = [s["email"] for s in ctx.db.rows("documents.shares", "document_id = ?", (document["id"],))]
        near = near_names(to, [(e, e) for e in known]) or known
        raise ToolError("not_found", f"{document['title']!r} is not shared with {to}", f"it is shared with: {', '.join(near) or 'nobody'}")
    ctx.db.delete("documents.shares", "id = ?", (share["id"],))
    return {"deleted": share}


@tool("documents", read_only=True, aliases=("documents_list_shares",))
def get_permissions(ctx: Context, document_id: DocumentId) -> Row:
    """Who owns a document, with whom it is shared and as what, and what you may do."""
    document = access.find(ctx, document_id)
    mine = access.ROLES.index(access.role(ctx, document))
    may = {"comment": mine >= 1, "edit": mine >= 2 and document["status"] != "archived", "share": mine >= 2, "archive": mine == 3, "delete": mine == 3}
    shares = ctx.db.rows("documents.shares", "document_id = ?", (document["id"],), order="email")
    return {"document_id": document["id"], "owner": document["owner"], "shares": shares, "role": access.ROLES[mine], "may": may}


@tool("documents")
def add_comment(
    ctx: Context,
    document_id: DocumentId,
    body: Annotated[str, Meta(min_length=1, max_length=10_000), "what you have to say"],
    quote: Annotated[str, "the piece of the text it is about; must occur in the document"] = "",
) -> Row:
    """Comment on a document or a piece of its text. Owner, editors and commenters only."""
    document = access.find(ctx, document_id)
    access.require(ctx, document, "commenter", "comment on it")
    if quote and quote not in document["body"]:
        raise ToolError("invalid", f"the quote {quote[:80]!r} does not occur in {document['title']!r}", "quote it character by character, or leave it out")
    return {"comment": ctx.db.insert("documents.comments", document_id=document["id"], author=ctx.user.email, body=body, quote=quote, created_at=ctx.now_text)}


@tool("documents", read_only=True)
def list_comments(
    ctx: Context,
    document_id: Annotated[str | None, "only those on this document (id or title); left out: on all of them"] = None,
    is_resolved: Annotated[bool | None, "only resolved, or only open ones"] = None,
    author: Annotated[str | None, "only this author's: `me`, an e-mail address, a handle or a name"] = None,
) -> Row:
    """Comments, the oldest first, each with its document's title."""
    document = id_of(access.find, ctx, document_id)
    who = address(ctx, author)
    where = "(?1 IS NULL OR document_id = ?1) AND (?2 IS NULL OR is_resolved = ?2) AND (?3 IS NULL OR lower(author) = ?3)"
    titles = {d["id"]: d["title"] for d in ctx.db.rows("documents.documents")}
    rows = ctx.db.rows("documents.comments", where, (document, is_resolved, who), order="created_at, id")
    return {"comments": [{**r, "document_title": titles[r["document_id"]]} for r in rows], "total": len(rows)}


@tool("documents")
def resolve_comment(ctx: Context, comment_id: Annotated[str, "id of the comment"]) -> Row:
    """Mark a comment as resolved; its author, or the document's owner and editors."""
    comment = ctx.db.get("documents.comments", comment_id)
    if comment["author"].lower() != ctx.user.email.lower():
        access.require(ctx, ctx.db.get("documents.documents", comment["document_id"]), "editor", "resolve others' comments")
    if comment["is_resolved"]:
        raise ToolError("conflict", f"{comment_id} is resolved already")
    return {"comment": ctx.db.update("documents.comments", comment_id, is_resolved=True)}
