"""Changing and reading the text of documents."""

from __future__ import annotations

from typing import Annotated, Literal

from _server.store import Row
from msgspec import Meta

from ...lookup import Name, id_of
from ...registry import Context, tool
from ...store import ToolError
from ..filesystem import tree
from . import access, markdown

DocumentId = Annotated[str, "id or title of the document"]
Body = Annotated[str, Meta(max_length=500_000)]
Summary = Annotated[str, Meta(max_length=500), "what changed and why, for the list of revisions"]


@tool("documents")
def update_document(
    ctx: Context,
    document_id: DocumentId,
    title: Annotated[Name | None, "another title"] = None,
    body: Annotated[Body | None, "the whole new text, as Markdown"] = None,
    summary: Summary = "",
) -> Row:
    """Give a document another title or a whole new text; makes a revision. Owner and editors only; archived ones are refused."""
    return access.revise(ctx, access.editable(ctx, document_id), title=title, body=body, summary=summary)


@tool("documents")
def append_section(
    ctx: Context,
    document_id: DocumentId,
    heading: Annotated[Name, "the section's heading, without #"],
    text: Annotated[Body, "the section's text, as Markdown"],
    level: Annotated[int, Meta(ge=1, le=6), "the heading's level"] = 2,
    after: Annotated[str | None, "put it behind the section with this heading; left out: at the end"] = None,
    summary: Summary = "",
) -> Row:
    """Add a section with a heading to a document; makes a revision. Owner and editors only."""
    document = access.editable(ctx, document_id)
    body = markdown.insert_section(document["body"], heading, text, level, after)
    return access.revise(ctx, document, body=body, summary=summary or f"added {heading}")


@tool("documents")
def replace_text(
    ctx: Context,
    document_id: DocumentId,
    old_text: Annotated[str, Meta(min_length=1), "what is there now, character by character"],
    new_text: Annotated[Body, "what takes its place"],
    replace_all: Annotated[bool, "every occurrence; otherwise it must occur exactly once"] = False,
    summary: Summary = "",
) -> Row:
    """Replace an exact piece of a document's text; makes a revision. Owner and editors only."""
    document = access.editable(ctx, document_id)
    found = document["body"].count(old_text)
    if found == 0:
        raise ToolError("not_found", f"{old_text[:80]!r} does not occur in {document['title']!r}", "read the document first; capitals and spaces count")
    if found > 1 and not replace_all:
        raise ToolError("conflict", f"{old_text[:80]!r} occurs {found} times in {document['title']!r}", "take in more text around it, or set replace_all")
    changed = access.revise(ctx, document, body=document["body"].replace(old_text, new_text), summary=summary or "replaced text")
    return {**changed, "replaced": found}


@tool("documents", read_only=True)
def get_outline(ctx: Context, document_id: DocumentId) -> Row:
    """A document's headings with level, line (counted from 1) and words of their section, and the words of the whole text."""
    document = access.find(ctx, document_id)
    lines = document["body"].split("\n")
    outline = [
        {"level": h.level, "text": h.text, "line": h.line + 1, "words": len(" ".join(lines[h.line + 1 : h.end]).split())}
        for h in markdown.headings(document["body"])
    ]
    return {"document_id": document["id"], "title": document["title"], "headings": outline, "words": len(document["body"].split())}


@tool("documents", read_only=True)
def get_section(ctx: Context, document_id: DocumentId, heading: Annotated[str, "the section's heading (any case)"]) -> Row:
    """One section of a document, with the sections below it."""
    document = access.find(ctx, document_id)
    found = markdown.section(document["body"], heading)
    lines = document["body"].split("\n")
    return {"document_id": document["id"], "heading": found.text, "level": found.level, "text": "\n".join(lines[found.line : found.end]).rstrip()}


@tool("documents", read_only=True, aliases=("documents_word_count",))
def count_words(
    ctx: Context,
    folder_id: Annotated[str | None, "the documents of this folder and those below (id, name or path); left out: all"] = None,
    document_id: Annotated[str | None, "only this document (id or title)"] = None,
    status: Annotated[Literal["draft", "published", "archived"] | None, "only documents in this state"] = None,
) -> Row:
    """Words and characters of each document, the longest first, and their total."""
    rows = [access.find(ctx, document_id)] if document_id else ctx.db.rows("documents.documents")
    base = access.folder_path(ctx, access.find_folder(ctx, folder_id)["id"]) + "/" if folder_id else ""
    counted = [
        {"document_id": d["id"], "title": d["title"], "words": len(d["body"].split()), "characters": len(d["body"])}
        for d in rows
        if status in (None, d["status"]) and (access.folder_path(ctx, d["folder_id"]) + "/").startswith(base)
    ]
    counted.sort(key=lambda c: (-c["words"], c["title"]))
    return {"documents": counted, "words": sum(c["words"] for c in counted), "characters": sum(c["characters"] for c in counted)}


@tool("documents")
def export_document(
    ctx: Context,
    document_id: DocumentId,
    path: Annotated[str, "absolute path of the Markdown file in the filesystem, like /exports/plan.md"],
    create_parents: Annotated[bool, "make missing directories on the way"] = True,
    overwrite: Annotated[bool, "replace a file that is there"] = False,
) -> Row:
    """Write a document into the filesystem as Markdown, its title as the first heading."""
    document = access.find(ctx, document_id)
    heading = f"# {document['title']}"
    body = document["body"].rstrip()
    content = body if body.split("\n")[0].strip() == heading else f"{heading}\n\n{body}".rstrip()
    return {"entry": tree.put(ctx, tree.clean(path), content + "\n", create_parents=create_parents, overwrite=overwrite), "document_id": document["id"]}


@tool("documents")
def import_document(
    ctx: Context,
    path: Annotated[str, "absolute path of a text file in the filesystem"],
    title: Annotated[Name | None, "left out: the file's first heading, else its name"] = None,
    folder_id: Annotated[str | None, "the folder it goes into (id, name or path); left out: none"] = None,
) -> Row:
    """Make a draft document of your own from a text file."""
    row = tree.file(ctx, path)
    first = next(iter(markdown.headings(row["content"])), None)
    name = row["path"].rpartition("/")[2]
    document = ctx.db.insert(
        "documents.documents", folder_id=id_of(access.find_folder, ctx, folder_id),
        title=title or (first.text if first else name.rpartition(".")[0] or name), body=row["content"], owner=ctx.user.email,
        created_at=ctx.now_text, updated_at=ctx.now_text,
    )  # fmt: skip
    return {"document": document, "revision": access.first_revision(ctx, document, f"imported from {row['path']}")}
