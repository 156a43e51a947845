"""What documents were before: listed, compared, restored."""

from __future__ import annotations

import difflib
from typing import Annotated

from _server.store import Row
from msgspec import Meta

from ...lookup import Cursor, Limit
from ...registry import Context, page, tool
from ...store import ToolError
from . import access

DocumentId = Annotated[str, "id or title of the document"]
Number = Annotated[int, Meta(ge=1)]


def _revision(ctx: Context, document: Row, number: int) -> Row:
    row = ctx.db.first("documents.revisions", "document_id = ? AND number = ?", (document["id"], number))
    if row is None:
        known = [str(r["number"]) for r in ctx.db.rows("documents.revisions", "document_id = ?", (document["id"],), order="number")]
        raise ToolError("not_found", f"{document['title']!r} has no revision {number}", f"there are: {', '.join(known) or 'none'}")
    return row


@tool("documents", read_only=True)
def list_revisions(ctx: Context, document_id: DocumentId, limit: Limit = 50, cursor: Cursor = None) -> Row:
    """A document's revisions, the latest first, without their texts."""
    document = access.find(ctx, document_id)
    rows = ctx.db.rows("documents.revisions", "document_id = ?", (document["id"],), order="number DESC")
    return page([{**{k: v for k, v in r.items() if k != "body"}, "words": len(r["body"].split())} for r in rows], limit, cursor, "revisions")


@tool("documents", read_only=True)
def get_revision(ctx: Context, document_id: DocumentId, number: Annotated[Number, "the revision's number"]) -> Row:
    """One revision with its whole text."""
    return {"revision": _revision(ctx, access.find(ctx, document_id), number)}


@tool("documents", read_only=True)
def diff_revisions(
    ctx: Context,
    document_id: DocumentId,
    from_number: Annotated[Number, "the earlier revision"],
    to_number: Annotated[Number | None, "the later revision; left out: the document as it is now"] = None,
) -> Row:
    """The difference between two revisions, or between one and the present text, as a unified diff."""
    document = access.find(ctx, document_id)
    one = _revision(ctx, document, from_number)
    two = _revision(ctx, document, to_number) if to_number else document
    names = (f"revision {from_number}", f"revision {to_number}" if to_number else "now")
    diff = list(difflib.unified_diff(one["body"].splitlines(), two["body"].splitlines(), *names, lineterm=""))
    added = sum(line.startswith("+") and not line.startswith("+++") for line in diff)
    removed = sum(line.startswith("-") and not line.startswith("---") for line in diff)
    return {"titles": [one["title"], two["title"]], "added": added, "removed": removed, "diff": "\n".join(diff)}


@tool("documents")
def restore_revision(ctx: Context, document_id: DocumentId, number: Annotated[Number, "the revision to go back to"]) -> Row:
    """Bring back a revision's title and text; that makes a new revision, nothing is lost. Owner and editors only."""
    document = access.editable(ctx, document_id)
    old = _revision(ctx, document, number)
    return access.revise(ctx, document, title=old["title"], body=old["body"], summary=f"restored revision {number}")
