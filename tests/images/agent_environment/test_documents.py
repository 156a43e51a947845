"""The documents' own rules: every change a revision, roles, sections, comments, folders, files."""

from __future__ import annotations

from typing import Any

import pytest
from server.registry import Context
from server.store import ToolError

ME, LEO = "dana@harbor.example", "leo@harbor.example"
PLAN = "# Plan\n\nIntro words here.\n\n## Scope\n\nThree ships.\n\n### Later\n\nTwo more.\n\n## Risks\n\nWeather.\n"


@pytest.fixture
def shelf(ctx: Context) -> Context:
    """Two folders; a plan of Dana's, three documents of Leo's, one of which she edits, one comments on and one only reads."""
    db = ctx.db
    db.insert("slack.users", handle="leo", name="Leo Marsh", email=LEO)
    db.insert("documents.folders", name="Engineering")
    db.insert("documents.folders", name="Specs", parent_id="fld_1")
    at = "2026-03-01T10:00:00"
    db.insert("documents.documents", folder_id="fld_2", title="Harbor plan", body=PLAN, owner=ME, created_at=at, updated_at=at)
    for title, role in (("Budget", "editor"), ("Minutes", "commenter"), ("Rules", None)):
        made = db.insert("documents.documents", title=title, body=f"{title} of the harbor.", owner=LEO, status="published", created_at=at, updated_at=at)
        if role:
            db.insert("documents.shares", document_id=made["id"], email=ME, role=role)
    return ctx


def _refused(call: Any, ctx: Context, tool: str, /, **args: Any) -> ToolError:
    with pytest.raises(ToolError) as caught:
        call(ctx, tool, **args)
    return caught.value


def test_every_change_makes_a_revision_and_nothing_is_lost(shelf: Context, call: Any) -> None:
    changed = call(shelf, "documents_update_document", document_id="Harbor plan", body="New text.", summary="rewritten")
    assert (changed["revision"]["number"], changed["revision"]["summary"], changed["document"]["updated_at"]) == (2, "rewritten", "2026-03-09T08:30:00-04:00")
    call(shelf, "documents_update_document", document_id="doc_1", title="Harbor plan 2026")
    listed = call(shelf, "documents_list_revisions", document_id="doc_1")["revisions"]
    assert [(r["number"], r["title"], r["author"]) for r in listed] == [(3, "Harbor plan 2026", ME), (2, "Harbor plan", ME), (1, "Harbor plan", ME)]
    restored = call(shelf, "documents_restore_revision", document_id="doc_1", number=1)
    assert (restored["document"]["body"], restored["document"]["title"], restored["revision"]["number"]) == (PLAN, "Harbor plan", 4)
    assert _refused(call, shelf, "documents_update_document", document_id="doc_1", body=PLAN).type == "invalid"
    missing = _refused(call, shelf, "documents_restore_revision", document_id="doc_1", number=9)
    assert (missing.type, missing.hint) == ("not_found", "there are: 1, 2, 3, 4")


def test_a_text_newer_than_its_last_revision_is_kept(shelf: Context, call: Any) -> None:
    shelf.db.insert("documents.revisions", document_id="doc_1", number=1, title="Harbor plan", body="First.", author=ME, created_at="2026-02-01T10:00:00")
    assert call(shelf, "documents_update_document", document_id="doc_1", body="Third.")["revision"]["number"] == 3
    assert call(shelf, "documents_get_revision", document_id="doc_1", number=2)["revision"]["body"] == PLAN


def test_diff_of_revisions(shelf: Context, call: Any) -> None:
    call(shelf, "documents_replace_text", document_id="doc_1", old_text="Three ships.", new_text="Four ships.")
    diff = call(shelf, "documents_diff_revisions", document_id="doc_1", from_number=1)
    assert (diff["added"], diff["removed"]) == (1, 1)
    assert "-Three ships." in diff["diff"]
    assert call(shelf, "documents_diff_revisions", document_id="doc_1", from_number=2, to_number=2)["diff"] == ""


def test_roles_decide_who_may_what(shelf: Context, call: Any) -> None:
    assert call(shelf, "documents_update_document", document_id="Budget", body="Less.")["document"]["body"] == "Less."
    error = _refused(call, shelf, "documents_update_document", document_id="Minutes", body="x")
    assert (error.type, LEO in error.hint) == ("forbidden", True)
    assert call(shelf, "documents_add_comment", document_id="Minutes", body="Agreed?", quote="of the harbor")["comment"]["author"] == ME
    assert _refused(call, shelf, "documents_add_comment", document_id="Rules", body="Hm").type == "forbidden"
    assert _refused(call, shelf, "documents_archive_document", document_id="Budget").type == "forbidden"
    assert _refused(call, shelf, "documents_delete_document", document_id="Budget").type == "forbidden"
    assert call(shelf, "documents_get_permissions", document_id="Budget")["may"] == {
        "comment": True, "edit": True, "share": True, "archive": False, "delete": False,
    }  # fmt: skip
    assert [d["title"] for d in call(shelf, "documents_list_documents", shared_with_me=True)["documents"]] == ["Budget", "Minutes"]


def test_sharing_mails_once_per_share_and_changes_the_role(shelf: Context, call: Any) -> None:
    shared = call(shelf, "documents_share_document", document_id="doc_1", email="@leo", role="viewer", message="Have a look")
    assert (shared["share"]["email"], shared["message"]["to"]) == (LEO, [LEO])
    assert "Have a look" in shared["message"]["body"]
    again = call(shelf, "documents_share_document", document_id="doc_1", email="Leo@Harbor.example", role="editor")
    assert (again["share"]["id"], again["share"]["role"]) == (shared["share"]["id"], "editor")
    assert _refused(call, shelf, "documents_share_document", document_id="doc_1", email=ME).type == "conflict"
    assert LEO in _refused(call, shelf, "documents_unshare_document", document_id="doc_1", email="leo@harbour.example").hint
    call(shelf, "documents_unshare_document", document_id="doc_1", email=LEO)
    assert shelf.db.count("documents.shares", "document_id = 'doc_1'") == 0


def test_ownership_is_given_away(shelf: Context, call: Any) -> None:
    given = call(shelf, "documents_transfer_ownership", document_id="doc_1", to="Leo Marsh")
    assert (given["document"]["owner"], given["share"]["role"], given["message"]["to"]) == (LEO, "editor", [LEO])
    assert _refused(call, shelf, "documents_transfer_ownership", document_id="doc_1", to="me").type == "forbidden"


def test_sections_go_where_they_belong(shelf: Context, call: Any) -> None:
    outline = call(shelf, "documents_get_outline", document_id="doc_1")["headings"]
    assert [(h["level"], h["text"], h["words"]) for h in outline] == [(1, "Plan", 14), (2, "Scope", 6), (3, "Later", 2), (2, "Risks", 1)]
    changed = call(shelf, "documents_append_section", document_id="doc_1", heading="Crew", text="Nine people.", after="scope")
    assert changed["document"]["body"] == PLAN.replace("## Risks", "## Crew\n\nNine people.\n\n## Risks")
    last = call(shelf, "documents_append_section", document_id="doc_1", heading="End", text="Done.")
    assert last["document"]["body"].endswith("Weather.\n\n## End\n\nDone.\n")
    assert call(shelf, "documents_get_section", document_id="doc_1", heading="SCOPE")["text"] == "## Scope\n\nThree ships.\n\n### Later\n\nTwo more."
    assert "Risks" in _refused(call, shelf, "documents_get_section", document_id="doc_1", heading="Risk").hint


def test_a_hash_in_code_is_no_heading(shelf: Context, call: Any) -> None:
    call(shelf, "documents_update_document", document_id="doc_1", body="# A\n```\n# not\n```\n## B ##\n#no\n")
    assert [h["text"] for h in call(shelf, "documents_get_outline", document_id="doc_1")["headings"]] == ["A", "B"]


def test_replacing_needs_one_match_or_all(shelf: Context, call: Any) -> None:
    assert _refused(call, shelf, "documents_replace_text", document_id="doc_1", old_text="## ", new_text="x").type == "conflict"
    assert call(shelf, "documents_replace_text", document_id="doc_1", old_text="## ", new_text="### ", replace_all=True)["replaced"] == 3
    assert _refused(call, shelf, "documents_replace_text", document_id="doc_1", old_text="Whales", new_text="x").type == "not_found"


def test_publish_archive_and_back(shelf: Context, call: Any) -> None:
    assert call(shelf, "documents_publish_document", document_id="doc_1")["document"]["status"] == "published"
    assert _refused(call, shelf, "documents_publish_document", document_id="doc_1").type == "conflict"
    call(shelf, "documents_archive_document", document_id="doc_1")
    assert _refused(call, shelf, "documents_append_section", document_id="doc_1", heading="x", text="y").type == "conflict"
    call(shelf, "documents_publish_document", document_id="doc_1")
    assert call(shelf, "documents_append_section", document_id="doc_1", heading="x", text="y")["revision"]["summary"] == "added x"


def test_comments_are_resolved_once(shelf: Context, call: Any) -> None:
    wrong = _refused(call, shelf, "documents_add_comment", document_id="doc_1", body="?", quote="five ships")
    assert wrong.type == "invalid"
    made = call(shelf, "documents_add_comment", document_id="doc_1", body="Why three?", quote="Three ships")["comment"]
    assert [c["document_title"] for c in call(shelf, "documents_list_comments", is_resolved=False)["comments"]] == ["Harbor plan"]
    assert call(shelf, "documents_resolve_comment", comment_id=made["id"])["comment"]["is_resolved"] is True
    assert _refused(call, shelf, "documents_resolve_comment", comment_id=made["id"]).type == "conflict"
    others = shelf.db.insert("documents.comments", document_id="doc_4", author=LEO, body="Mine", created_at="2026-03-02T10:00:00")
    assert _refused(call, shelf, "documents_resolve_comment", comment_id=others["id"]).type == "forbidden"


def test_search_shows_titles_first_with_snippets(shelf: Context, call: Any) -> None:
    found = call(shelf, "documents_search_documents", query="HARBOR")["documents"]
    assert [d["title"] for d in found] == ["Harbor plan", "Budget", "Minutes", "Rules"]
    assert found[1]["snippet"] == "Budget of the harbor."
    assert "body" not in found[0]
    first = call(shelf, "documents_search_documents", query="harbor", limit=3)
    assert [d["title"] for d in call(shelf, "documents_search_documents", query="harbor", limit=3, cursor=first["next_cursor"])["documents"]] == ["Rules"]
    assert call(shelf, "documents_search_documents", query="weather ships", folder_id="Engineering/Specs")["total"] == 1


def test_folders_hold_together(shelf: Context, call: Any) -> None:
    tree = call(shelf, "documents_list_folders")
    assert tree["folders"][0]["folders"][0] == {"id": "fld_2", "name": "Specs", "documents": 1, "folders": []}
    assert tree["documents_outside"] == 3
    assert _refused(call, shelf, "documents_move_folder", folder_id="Engineering", parent_id="Specs").type == "conflict"
    busy = _refused(call, shelf, "documents_delete_folder", folder_id="Specs")
    assert (busy.type, "documents.documents: doc_1" in busy.message) == ("conflict", True)
    assert _refused(call, shelf, "documents_create_folder", name="specs", parent_id="fld_1").type == "conflict"
    assert call(shelf, "documents_move_document", document_id="doc_1", folder_id=None)["folder_path"] == ""
    assert call(shelf, "documents_delete_folder", folder_id="Engineering/Specs")["deleted"]["id"] == "fld_2"
    assert "fld_1 (Engineering)" in _refused(call, shelf, "documents_move_document", document_id="doc_1", folder_id="Enginering").hint


def test_export_and_import_through_the_filesystem(shelf: Context, call: Any) -> None:
    exported = call(shelf, "documents_export_document", document_id="Budget", path="/exports/budget.md")
    assert exported["entry"]["content"] == "# Budget\n\nBudget of the harbor.\n"
    assert call(shelf, "filesystem_read_file", path="/exports/budget.md")["total_lines"] == 3
    assert _refused(call, shelf, "documents_export_document", document_id="Budget", path="/exports/budget.md").type == "conflict"
    assert _refused(call, shelf, "documents_export_document", document_id="Budget", path="/../x.md").type == "invalid"
    imported = call(shelf, "documents_import_document", path="/exports/budget.md", folder_id="Specs")["document"]
    assert (imported["title"], imported["owner"], imported["folder_id"], imported["status"]) == ("Budget", ME, "fld_2", "draft")


def test_deleting_takes_what_belongs_to_it(shelf: Context, call: Any) -> None:
    call(shelf, "documents_share_document", document_id="doc_1", email=LEO)
    call(shelf, "documents_add_comment", document_id="doc_1", body="x")
    call(shelf, "documents_update_document", document_id="doc_1", body="y")
    assert call(shelf, "documents_delete_document", document_id="doc_1")["with"] == {"revisions": 2, "comments": 1, "shares": 1}
    assert call(shelf, "documents_count_words")["words"] == 12
