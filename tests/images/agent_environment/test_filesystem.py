"""The file server: nothing escapes the tree; editing, moving, searching and counting in it."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from server.registry import Context
from server.store import ToolError
from server.tools.filesystem import finding, tree

NOTES = "# Notes\n\nkeep this\nand this\nkeep that\n"


@pytest.fixture
def disk(ctx: Context, call: Any) -> Context:
    """A few directories with text files."""
    for path, content in {
        "/reports/2026/march.csv": "month,amount\nmarch,10\n",
        "/reports/2026/april.csv": "month,amount\napril,20\n",
        "/reports/readme.md": "Reports live here.\n",
        "/notes.md": NOTES,
        "/copy of notes.md": NOTES,
    }.items():
        call(ctx, "filesystem_write_file", path=path, content=content, create_parents=True)
    return ctx


def _refused(call: Any, ctx: Context, tool: str, /, **args: Any) -> ToolError:
    with pytest.raises(ToolError) as caught:
        call(ctx, tool, **args)
    return caught.value


@pytest.mark.parametrize(
    "path",
    [
        "notes.md", "", "/..", "/reports/../../etc/passwd", "/a\x00b", "/a\nb", "/\u202egpj.exe", "/a\u200bb", "/\ud800", "/a\uff0fb", "/\uff0e\uff0e/x",
        "/a\\b", "/" + "x" * 256, "/" + "y/" * 600, "/\u2025/x",
    ],
)  # fmt: skip
def test_paths_that_are_refused(disk: Context, call: Any, path: str) -> None:
    assert _refused(call, disk, "filesystem_write_file", path=path, content="x", create_parents=True).type == "invalid"
    assert _refused(call, disk, "filesystem_read_file", path=path).type == "invalid"


@given(st.text(max_size=60))
def test_a_cleaned_path_has_one_spelling_and_stays_inside(text: str) -> None:
    try:
        cleaned = tree.clean("/" + text)
    except ToolError:
        return
    assert cleaned == "/" + cleaned.strip("/")
    assert not {"..", ".", ""} & set(cleaned.split("/")[1:]) or cleaned == "/"
    assert tree.clean(cleaned) == cleaned


def test_spellings_of_one_path_are_one_file(disk: Context, call: Any) -> None:
    call(disk, "filesystem_write_file", path="/cafe\u0301.txt", content="one")
    call(disk, "filesystem_write_file", path="/reports/./../caf\u00e9.txt", content="two")
    assert call(disk, "filesystem_read_file", path="//caf\u00e9.txt")["content"] == "two"
    assert call(disk, "filesystem_search_files", pattern="caf*")["total"] == 1


def test_lines_head_and_tail(disk: Context, call: Any) -> None:
    part = call(disk, "filesystem_read_file", path="/notes.md", start_line=3, end_line=4)
    assert (part["content"], part["total_lines"], part["end_line"]) == ("keep this\nand this", 5, 4)
    assert call(disk, "filesystem_head_file", path="/notes.md", lines=1)["content"] == "# Notes"
    assert call(disk, "filesystem_tail_file", path="/notes.md", lines=2)["content"] == "and this\nkeep that"
    assert _refused(call, disk, "filesystem_read_file", path="/notes.md", start_line=6).type == "invalid"


def test_an_edit_must_match_exactly_once(disk: Context, call: Any) -> None:
    twice = _refused(call, disk, "filesystem_edit_file", path="/notes.md", edits=[{"old_text": "keep", "new_text": "drop"}])
    assert (twice.type, "2 times" in twice.message, "[3, 5]" in twice.hint) == ("conflict", True, True)
    never = _refused(call, disk, "filesystem_edit_file", path="/notes.md", edits=[{"old_text": "keep thus", "new_text": "x"}])
    assert (never.type, "'keep this'" in never.hint) == ("not_found", True)
    edits = [{"old_text": "keep this", "new_text": "drop this"}, {"old_text": "drop this\nand", "new_text": "drop"}]
    tried = call(disk, "filesystem_edit_file", path="/notes.md", edits=edits, dry_run=True)
    assert tried["diff"].splitlines()[-4:] == ["-keep this", "-and this", "+drop this", " keep that"]
    assert call(disk, "filesystem_read_file", path="/notes.md")["content"] == NOTES
    done = call(disk, "filesystem_edit_file", path="/notes.md", edits=edits)
    assert done["entry"]["content"] == "# Notes\n\ndrop this\nkeep that\n"
    assert done["entry"]["size"] == len(done["entry"]["content"])
    half = [{"old_text": "# Notes", "new_text": "# Other"}, {"old_text": "missing", "new_text": "x"}]
    assert _refused(call, disk, "filesystem_edit_file", path="/notes.md", edits=half).type == "not_found"
    assert call(disk, "filesystem_read_file", path="/notes.md")["content"].startswith("# Notes")


def test_moving_a_directory_takes_everything_along(disk: Context, call: Any) -> None:
    moved = call(disk, "filesystem_move_file", source="/reports", destination="/archive")
    assert moved["moved"] == ["/archive", "/archive/2026", "/archive/2026/april.csv", "/archive/2026/march.csv", "/archive/readme.md"]
    assert call(disk, "filesystem_read_file", path="/archive/2026/march.csv")["total_lines"] == 2
    assert _refused(call, disk, "filesystem_move_file", source="/archive", destination="/archive/2026/inside").type == "invalid"
    there = _refused(call, disk, "filesystem_move_file", source="/notes.md", destination="/archive")
    assert (there.type, there.hint.endswith("/archive/notes.md")) == ("conflict", True)
    missing = _refused(call, disk, "filesystem_move_file", source="/notes.md", destination="/nowhere/notes.md")
    assert missing.type == "not_found"


def test_copying_leaves_the_original(disk: Context, call: Any) -> None:
    copied = call(disk, "filesystem_copy_file", source="/reports/2026", destination="/backup")
    assert copied["copied"] == ["/backup", "/backup/april.csv", "/backup/march.csv"]
    call(disk, "filesystem_append_file", path="/backup/march.csv", content="extra,1")
    diff = call(disk, "filesystem_diff_files", path_a="/reports/2026/march.csv", path_b="/backup/march.csv")
    assert (diff["identical"], diff["added"], diff["removed"]) == (False, 1, 0)


def test_a_directory_in_use_is_not_deleted_by_accident(disk: Context, call: Any) -> None:
    error = _refused(call, disk, "filesystem_delete_file", path="/reports")
    assert (error.type, "/reports/2026" in error.message) == ("conflict", True)
    gone = call(disk, "filesystem_delete_file", path="/reports", recursive=True)["deleted"]
    assert len(gone) == 5
    assert [e["path"] for e in call(disk, "filesystem_list_directory")["entries"]] == ["/copy of notes.md", "/notes.md"]
    assert _refused(call, disk, "filesystem_delete_file", path="/", recursive=True).type == "invalid"


def test_missing_files_name_near_ones(disk: Context, call: Any) -> None:
    assert "/reports/2026/march.csv" in _refused(call, disk, "filesystem_read_file", path="/reports/march.csv").hint
    read = call(disk, "filesystem_read_multiple_files", paths=["/notes.md", "/note.md", "/reports"])
    assert [f.get("error", {}).get("type") for f in read["files"]] == [None, "not_found", "invalid"]
    assert "/notes.md" in read["files"][1]["error"]["hint"]
    assert _refused(call, disk, "filesystem_write_file", path="/new/file.txt", content="x").type == "not_found"
    assert _refused(call, disk, "filesystem_write_file", path="/notes.md/x", content="x", create_parents=True).type == "conflict"
    assert _refused(call, disk, "filesystem_write_file", path="/notes.md", content="x", overwrite=False).type == "conflict"


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("*.CSV", ["/reports/2026/april.csv", "/reports/2026/march.csv"]),
        ("reports/*.md", ["/reports/readme.md"]),
        ("**/*.md", ["/copy of notes.md", "/notes.md", "/reports/readme.md"]),
        ("[am]*h.csv", ["/reports/2026/march.csv"]),
        ("[!a]*.csv", ["/reports/2026/march.csv"]),
        ("20??", ["/reports/2026"]),
    ],
)
def test_globs(disk: Context, call: Any, glob: str, expected: list[str]) -> None:
    assert [e["path"] for e in call(disk, "filesystem_search_files", pattern=glob)["entries"]] == expected


def test_grep_pages_and_takes_hostile_patterns(disk: Context, call: Any) -> None:
    found = call(disk, "filesystem_grep_files", pattern="^KEEP", ignore_case=True, path="/notes.md", context=1)
    assert [(m["line"], m["text"], m["before"]) for m in found["matches"]] == [(3, "keep this", [""]), (5, "keep that", ["and this"])]
    first = call(disk, "filesystem_grep_files", pattern="keep", limit=3)
    assert (first["total"], first["files"], first["next_cursor"]) == (4, 2, "3")
    assert call(disk, "filesystem_grep_files", pattern="amount", glob="*.csv")["files"] == 2
    assert call(disk, "filesystem_grep_files", pattern="here.", fixed_string=True)["total"] == 1
    bad = _refused(call, disk, "filesystem_grep_files", pattern="(?=x)")
    assert (bad.type, "(?=" in bad.message) == ("invalid", True)
    call(disk, "filesystem_write_file", path="/long.txt", content="a" * 200_000)
    assert call(disk, "filesystem_grep_files", pattern="(a+)+$b", path="/long.txt")["total"] == 0


def test_counting_and_usage(disk: Context, call: Any) -> None:
    counted = call(disk, "filesystem_count_words", path="/reports", glob="*.csv")
    assert counted["total"] == {"lines": 4, "words": 4, "characters": 44, "bytes": 44}
    usage = call(disk, "filesystem_disk_usage", path="/")
    assert [(u["path"], u["files"]) for u in usage["entries"]] == [("/reports", 3), ("/copy of notes.md", 1), ("/notes.md", 1)]
    assert usage["bytes"] == usage["disk"]["used"] == sum(u["bytes"] for u in usage["entries"])
    assert call(disk, "filesystem_find_duplicate_files")["groups"] == [{"size": len(NOTES), "paths": ["/copy of notes.md", "/notes.md"]}]
    assert call(disk, "filesystem_get_file_info", path="/reports")["files"] == 3


def test_tree_and_depth(disk: Context, call: Any) -> None:
    whole = call(disk, "filesystem_directory_tree", path="/reports")
    assert [c["name"] for c in whole["children"]] == ["2026", "readme.md"]
    assert [c["name"] for c in whole["children"][0]["children"]] == ["april.csv", "march.csv"]
    flat = call(disk, "filesystem_directory_tree", path="/reports", depth=1)
    assert flat["children"][0] == {"name": "2026", "kind": "directory", "children": [], "more": 2}


def test_limits(disk: Context, call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _refused(call, disk, "filesystem_write_file", path="/big.txt", content="x" * (tree.MAX_FILE + 1)).type == "invalid"
    assert _refused(call, disk, "filesystem_write_file", path="/odd.txt", content="\ud800").type == "invalid"
    monkeypatch.setattr(tree, "MAX_TREE", 200)
    full = _refused(call, disk, "filesystem_write_file", path="/more.txt", content="x" * 150)
    assert (full.type, "full" in full.message) == ("conflict", True)


@given(st.text(alphabet="ab*?[]!/.\\-", max_size=12))
def test_a_glob_is_a_pattern_or_refused(glob: str) -> None:
    with contextlib.suppress(ToolError):
        finding.compiled(finding.glob_pattern(glob), False)
