"""The projects' own rules: keys, workflow, sub-issues, blocking, mentions, milestones, time, many at once."""

from __future__ import annotations

from typing import Any

import pytest
from server.registry import Context
from server.store import ToolError

ME, LEO, ANA = "dana@harbor.example", "leo@harbor.example", "ana.lima@harbor.example"


@pytest.fixture
def plat(ctx: Context, call: Any) -> Context:
    """Two projects, a milestone each, five issues in PLAT (a story with two sub-issues, a bug, a task), one in WEB."""
    db = ctx.db
    for handle, name, email in (("dana", "Dana Reyes", ME), ("leo", "Leo Marsh", LEO), ("ana.lima", "Ana Lima", ANA)):
        db.insert("slack.users", handle=handle, name=name, email=email)
    db.insert("projects.projects", key="PLAT", name="Platform", lead=ME)
    db.insert("projects.projects", key="WEB", name="Website", lead=LEO)
    db.insert("projects.milestones", project_id="prj_1", name="Spring release", due_day="2026-03-20")
    db.insert("projects.milestones", project_id="prj_1", name="Summer release", due_day="2026-06-20")
    made = {"project_id": "PLAT", "milestone_id": "Spring release"}
    call(ctx, "projects_create_issue", **made, title="Login works with passkeys", type="story", estimate=8, due_day="2026-03-06")
    call(ctx, "projects_create_issue", **made, title="Store passkeys", parent_id="PLAT-1", estimate=3)
    call(ctx, "projects_create_issue", **made, title="Passkey page", parent_id="plat-1", estimate=2, labels=["UI"])
    call(ctx, "projects_create_issue", **made, title="Crash on empty name", type="bug", priority="urgent", estimate=1, due_day="2026-03-08")
    call(ctx, "projects_create_issue", project_id="Platform", title="Tidy the logs", status="backlog")
    call(ctx, "projects_create_issue", project_id="WEB", title="New footer")
    return ctx


def _refused(call: Any, ctx: Context, tool: str, /, **args: Any) -> ToolError:
    with pytest.raises(ToolError) as caught:
        call(ctx, tool, **args)
    return caught.value


def _finish(call: Any, ctx: Context, *issues: str) -> None:
    for issue in issues:
        for status in ("in_progress", "in_review", "done"):
            call(ctx, "projects_transition_issue", issue_id=issue, status=status)


def test_keys_are_accepted_wherever_an_issue_is(plat: Context, call: Any) -> None:
    assert call(plat, "projects_get_issue", issue_id="web-1")["issue"]["title"] == "New footer"
    assert call(plat, "projects_get_issue", issue_id="iss_6")["issue"]["key"] == "WEB-1"
    error = _refused(call, plat, "projects_get_issue", issue_id="PLAT-44")
    assert (error.type, "PLAT-4 (Crash on empty name)" in error.hint) == ("not_found", True)
    assert "PLAT-5 (Tidy the logs)" in _refused(call, plat, "projects_get_issue", issue_id="tidy logs").hint


def test_the_workflow_allows_single_steps(plat: Context, call: Any) -> None:
    error = _refused(call, plat, "projects_transition_issue", issue_id="PLAT-5", status="done")
    assert (error.type, "it can go to todo, cancelled" in error.message) == ("conflict", True)
    moved = call(plat, "projects_transition_issue", issue_id="PLAT-5", status="todo", comment="Picked up")
    assert (moved["issue"]["status"], moved["from_status"], moved["comment"]["body"]) == ("todo", "backlog", "Picked up")
    _finish(call, plat, "PLAT-5")
    assert _refused(call, plat, "projects_transition_issue", issue_id="PLAT-5", status="todo").type == "conflict"


def test_a_parent_waits_for_its_sub_issues(plat: Context, call: Any) -> None:
    call(plat, "projects_transition_issue", issue_id="PLAT-1", status="in_progress")
    call(plat, "projects_transition_issue", issue_id="PLAT-1", status="in_review")
    _finish(call, plat, "PLAT-2")
    error = _refused(call, plat, "projects_transition_issue", issue_id="PLAT-1", status="done")
    assert "PLAT-3" in error.message
    assert "PLAT-2" not in error.message
    call(plat, "projects_transition_issue", issue_id="PLAT-3", status="cancelled")
    assert call(plat, "projects_transition_issue", issue_id="PLAT-1", status="done")["issue"]["status"] == "done"


def test_parents_make_no_circle_and_stay_in_their_project(plat: Context, call: Any) -> None:
    assert _refused(call, plat, "projects_update_issue", issue_id="PLAT-1", parent_id="PLAT-2").type == "conflict"
    assert _refused(call, plat, "projects_update_issue", issue_id="PLAT-5", parent_id="WEB-1").type == "invalid"
    freed = call(plat, "projects_update_issue", issue_id="PLAT-2", parent_id=None, estimate=None)["issue"]
    assert (freed["parent_id"], freed["estimate"], freed["milestone_id"]) == (None, None, "mst_1")
    assert _refused(call, plat, "projects_update_issue", issue_id="PLAT-2").type == "invalid"


def test_circles_of_blocking_are_refused_with_their_path(plat: Context, call: Any) -> None:
    call(plat, "projects_link_issues", issue_id="PLAT-2", kind="blocks", target_id="PLAT-3")
    call(plat, "projects_link_issues", issue_id="PLAT-3", kind="blocks", target_id="WEB-1")
    error = _refused(call, plat, "projects_link_issues", issue_id="WEB-1", kind="blocks", target_id="PLAT-2")
    assert (error.type, "PLAT-2 blocks PLAT-3 blocks WEB-1" in error.message) == ("conflict", True)
    assert _refused(call, plat, "projects_link_issues", issue_id="PLAT-2", kind="blocks", target_id="PLAT-3").type == "conflict"
    call(plat, "projects_link_issues", issue_id="PLAT-4", kind="relates_to", target_id="PLAT-5")
    assert _refused(call, plat, "projects_link_issues", issue_id="PLAT-5", kind="relates_to", target_id="PLAT-4").type == "conflict"
    moved = call(plat, "projects_transition_issue", issue_id="WEB-1", status="in_progress")
    assert [b["key"] for b in moved["open_blockers"]] == ["PLAT-3"]
    call(plat, "projects_unlink_issues", issue_id="WEB-1", target_id="PLAT-3")
    assert call(plat, "projects_link_issues", issue_id="WEB-1", kind="blocks", target_id="PLAT-2")["link"]["kind"] == "blocks"
    assert _refused(call, plat, "projects_unlink_issues", issue_id="WEB-1", target_id="PLAT-4").type == "not_found"


def test_assigning_mails_the_assignee_but_not_oneself(plat: Context, call: Any) -> None:
    given = call(plat, "projects_assign_issue", issue_id="PLAT-4", assignee="Leo Marsh")
    assert (given["issue"]["assignee"], given["message"]["to"]) == (LEO, [LEO])
    assert given["message"]["subject"] == "[PLAT-4] Assigned to you: Crash on empty name"
    assert call(plat, "projects_assign_issue", issue_id="PLAT-4", assignee=LEO)["message"] is None
    assert call(plat, "projects_assign_issue", issue_id="PLAT-4", assignee="me")["message"] is None
    assert call(plat, "projects_assign_issue", issue_id="PLAT-4", assignee=None)["issue"]["assignee"] is None
    assert "Leo Marsh <leo@harbor.example>" in _refused(call, plat, "projects_assign_issue", issue_id="PLAT-4", assignee="leo.marsh").hint
    assert plat.db.count("email.messages") == 1


def test_mentions_are_mailed(plat: Context, call: Any) -> None:
    body = "Ask @leo, @ana.lima. and @leo again; not @ghost, @dana or mail@leo.example"
    said = call(plat, "projects_add_comment", issue_id="PLAT-4", body=body)
    assert (said["mentioned"], said["unknown_mentions"]) == ([LEO, ANA, ME], ["@ghost"])
    assert [m["to"] for m in said["messages"]] == [[LEO], [ANA]]
    assert call(plat, "projects_get_issue", issue_id="PLAT-4")["comments"] == [said["comment"]]


def test_search_filters_and_pages(plat: Context, call: Any) -> None:
    def found(**args: Any) -> list[str]:
        return [i["key"] for i in call(plat, "projects_search_issues", **args)["issues"]]

    assert found(query="passkey") == ["PLAT-1", "PLAT-2", "PLAT-3"]
    assert found(label="ui") == ["PLAT-3"]
    assert found(due_before="2026-03-08") == ["PLAT-1"]
    assert found(priority=["urgent", "high"], status=["todo"]) == ["PLAT-4"]
    assert found(project_id="PLAT", sort="due_day")[:2] == ["PLAT-1", "PLAT-4"]
    assert found(query="plat-4") == ["PLAT-4"]
    call(plat, "projects_assign_issue", issue_id="WEB-1", assignee="leo")
    assert found(assignee="Leo Marsh") == ["WEB-1"]
    assert found(assignee="nobody", project_id="WEB") == []
    first = call(plat, "projects_search_issues", limit=4)
    second = call(plat, "projects_search_issues", limit=4, cursor=first["next_cursor"])
    assert ([i["key"] for i in second["issues"]], second["total"]) == (["PLAT-5", "WEB-1"], 6)
    assert _refused(call, plat, "projects_search_issues", project_id="PLOT").hint == "near: prj_1 (PLAT)"


def test_many_at_once_or_none(plat: Context, call: Any) -> None:
    error = _refused(call, plat, "projects_bulk_update_issues", issue_ids=["PLAT-2", "PLAT-5", "PLAT-1"], status="in_review", priority="high")
    assert (error.type, "3 of 3" in error.message, "PLAT-5: from backlog" in error.message) == ("conflict", True, True)
    assert plat.db.count("projects.issues", "priority = 'high'") == 0
    keys = ["PLAT-1", "PLAT-2", "PLAT-3"]
    for status in ("in_progress", "in_review"):
        call(plat, "projects_bulk_update_issues", issue_ids=keys, status=status)
    done = call(plat, "projects_bulk_update_issues", issue_ids=keys, status="done", assignee="leo", add_labels=["passkeys"], remove_labels=["UI"])
    assert {i["status"] for i in done["issues"]} == {"done"}
    assert [i["labels"] for i in done["issues"]] == [["passkeys"]] * 3
    assert done["message"]["to"] == [LEO]
    assert plat.db.count("email.messages") == 1
    assert _refused(call, plat, "projects_bulk_update_issues", issue_ids=["WEB-1"], milestone_id="Spring release").type == "not_found"


def test_milestone_progress_and_completion(plat: Context, call: Any) -> None:
    _finish(call, plat, "PLAT-2", "PLAT-4")
    call(plat, "projects_transition_issue", issue_id="PLAT-3", status="cancelled")
    progress = call(plat, "projects_milestone_progress", milestone_id="Spring release")["progress"]
    assert (progress["done"], progress["total"], progress["percent"], progress["estimate_done"], progress["estimate_total"]) == (2, 3, 66.7, 4.0, 12.0)
    assert (progress["overdue"], progress["days_left"]) == (["PLAT-1"], 11)
    error = _refused(call, plat, "projects_complete_milestone", milestone_id="mst_1")
    assert (error.type, "PLAT-1" in error.message) == ("conflict", True)
    closed = call(plat, "projects_complete_milestone", milestone_id="mst_1", move_open_to="Summer release")
    assert (closed["milestone"]["status"], [(i["key"], i["milestone_id"]) for i in closed["moved"]]) == ("done", [("PLAT-1", "mst_2")])
    assert _refused(call, plat, "projects_complete_milestone", milestone_id="mst_1").type == "conflict"


def test_release_notes_and_burndown(plat: Context, call: Any) -> None:
    _finish(call, plat, "PLAT-2", "PLAT-4")
    notes = call(plat, "projects_release_notes", milestone_id="Spring release", title="Harbor 5.0")
    assert notes["markdown"] == "# Harbor 5.0\n\n## Fixes\n\n- Crash on empty name (PLAT-4)\n\n## Other work\n\n- Store passkeys (PLAT-2)\n"
    assert (notes["done"], notes["open"]) == (2, 2)
    chart = call(plat, "projects_burndown", milestone_id="Spring release")
    assert (chart["unit"], chart["total"], chart["remaining"]) == ("estimate", 14.0, 10.0)
    assert chart["days"][0] == {"day": "2026-03-09", "ideal": 14.0, "remaining": 10.0}
    assert chart["days"][-1] == {"day": "2026-03-20", "ideal": 0.0, "remaining": None}
    assert _refused(call, plat, "projects_burndown", milestone_id="Summer release").type == "conflict"


def test_board_overdue_and_workload(plat: Context, call: Any) -> None:
    board = call(plat, "projects_board", milestone_id="Spring release")
    assert [(c["status"], c["count"]) for c in board["columns"]] == [("backlog", 0), ("todo", 4), ("in_progress", 0), ("in_review", 0), ("done", 0)]
    assert board["columns"][1]["issues"][0]["key"] == "PLAT-4"
    assert [(i["key"], i["days_overdue"]) for i in call(plat, "projects_overdue_issues")["issues"]] == [("PLAT-1", 3), ("PLAT-4", 1)]
    call(plat, "projects_bulk_update_issues", issue_ids=["PLAT-1", "PLAT-4"], assignee=LEO)
    people = call(plat, "projects_workload", project_id="PLAT")["people"]
    assert people == [
        {"assignee": None, "issues": 3, "estimate": 5.0, "overdue": 0, "urgent": 0},
        {"assignee": LEO, "issues": 2, "estimate": 9.0, "overdue": 2, "urgent": 1},
    ]


def test_time_is_added_up_and_a_day_has_24_hours(plat: Context, call: Any) -> None:
    assert call(plat, "projects_log_work", issue_id="PLAT-2", minutes=90, day="2026-03-05", note="Tables")["minutes_spent"] == 90
    call(plat, "projects_log_work", issue_id="PLAT-2", minutes=30)
    call(plat, "projects_log_work", issue_id="WEB-1", minutes=45, day="2026-03-05")
    plat.db.insert("projects.worklogs", issue_id="iss_2", author=LEO, minutes=60, day="2026-03-05")
    report = call(plat, "projects_worklog_report", group_by="issue", author="me")
    assert (report["totals"], report["minutes"], report["hours"]) == ([{"issue": "PLAT-2", "minutes": 120}, {"issue": "WEB-1", "minutes": 45}], 165, 2.75)
    assert call(plat, "projects_worklog_report", group_by="day", project_id="PLAT", to_day="2026-03-05")["totals"] == [{"day": "2026-03-05", "minutes": 150}]
    assert _refused(call, plat, "projects_log_work", issue_id="PLAT-2", minutes=1400, day="2026-03-05").type == "conflict"
    assert _refused(call, plat, "projects_log_work", issue_id="PLAT-2", minutes=5, day="2026-03-10").type == "invalid"


def test_what_is_in_use_stays(plat: Context, call: Any) -> None:
    assert "iss_2, iss_3" in _refused(call, plat, "projects_delete_issue", issue_id="PLAT-1").message
    call(plat, "projects_add_comment", issue_id="PLAT-3", body="Bye")
    call(plat, "projects_link_issues", issue_id="PLAT-2", kind="blocks", target_id="PLAT-3")
    assert call(plat, "projects_delete_issue", issue_id="PLAT-3")["with"] == {"comments": 1, "worklogs": 0, "links": 1}
    assert call(plat, "projects_create_issue", project_id="PLAT", title="Next")["issue"]["key"] == "PLAT-6"
    assert _refused(call, plat, "projects_update_project", project_id="PLAT", status="done").type == "conflict"
    assert _refused(call, plat, "projects_create_project", key="PLAT", name="Other").type == "conflict"
