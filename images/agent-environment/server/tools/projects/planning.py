"""Milestones and views over many issues: progress, board, burndown, overdue, workload, release notes."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Annotated, Literal

from _server.store import Row
from msgspec import Meta

from ...lookup import Limit, Name, Where, address, changes, id_of, select
from ...registry import Context, Day, tool
from ...store import ToolError
from . import keys
from .workflow import MOVES

MilestoneId = Annotated[str, "id or name of the milestone"]
OneProject = Annotated[str | None, "only of this project (id, key or name)"]
Assignee = Annotated[str | None, "only theirs: `me`, an e-mail address, a handle or a name"]
NOTES = (("Features", ("story", "epic")), ("Fixes", ("bug",)), ("Other work", ("task",)))


def _issues(ctx: Context, milestone: Row) -> list[Row]:
    return keys.show(ctx, ctx.db.rows("projects.issues", "milestone_id = ?", (milestone["id"],), order="number"))


def _progress(ctx: Context, milestone: Row) -> Row:
    """Issues by status, what is done (cancelled ones do not count), estimates, what is overdue."""
    issues = _issues(ctx, milestone)
    counted = [i for i in issues if i["status"] != "cancelled"]
    done = [i for i in counted if i["status"] == "done"]
    late = [i["key"] for i in counted if i["status"] != "done" and i["due_day"] and i["due_day"] < ctx.today]
    return {
        "by_status": {s: n for s in MOVES if (n := sum(i["status"] == s for i in issues))},
        "done": len(done),
        "total": len(counted),
        "percent": round(100 * len(done) / len(counted), 1) if counted else 0.0,
        "estimate_done": sum(i["estimate"] or 0.0 for i in done),
        "estimate_total": sum(i["estimate"] or 0.0 for i in counted),
        "overdue": late,
        "days_left": (date.fromisoformat(milestone["due_day"]) - date.fromisoformat(ctx.today)).days if milestone["due_day"] else None,
    }


@tool("projects", read_only=True)
def list_milestones(
    ctx: Context, project_id: OneProject = None, status: Annotated[Literal["open", "done"] | None, "only open, or only done ones"] = None
) -> Row:
    """Milestones, the first due first, each with its progress."""
    where = Where().add("project_id = ?", keys.project_id(ctx, project_id)).add("status = ?", status)
    rows = select(ctx, "projects.milestones", where, order="due_day IS NULL, due_day, id")
    return {"milestones": [{**m, "progress": _progress(ctx, m)} for m in rows]}


@tool("projects", read_only=True)
def milestone_progress(ctx: Context, milestone_id: MilestoneId) -> Row:
    """How far a milestone is, with its open issues."""
    milestone = keys.find_milestone(ctx, milestone_id)
    still = [i for i in _issues(ctx, milestone) if i["status"] not in keys.CLOSED]
    return {"milestone": milestone, "progress": _progress(ctx, milestone), "open_issues": still}


@tool("projects")
def create_milestone(
    ctx: Context,
    project_id: Annotated[str, "id, key or name of the project"],
    name: Annotated[Name, "its name; no other of the project may have it"],
    due_day: Annotated[Day | None, "the day it is due"] = None,
) -> Row:
    """Add a milestone to a project."""
    project = keys.find_project(ctx, project_id)
    _refuse_same_name(ctx, project["id"], name)
    return {"milestone": ctx.db.insert("projects.milestones", project_id=project["id"], name=name, due_day=due_day)}


def _refuse_same_name(ctx: Context, project_id: str, name: str, but: str = "") -> None:
    if taken := ctx.db.first("projects.milestones", "project_id = ? AND lower(name) = ? AND id != ?", (project_id, name.lower(), but)):
        raise ToolError("conflict", f"the project has a milestone {taken['name']!r} ({taken['id']})", "use that one, or another name")


@tool("projects", idempotent=True)
def update_milestone(
    ctx: Context,
    milestone_id: MilestoneId,
    name: Annotated[Name | None, "its name"] = None,
    due_day: Annotated[Day | None, "the day it is due"] = None,
) -> Row:
    """Rename a milestone or give it another day; projects_complete_milestone closes it."""
    milestone = keys.find_milestone(ctx, milestone_id)
    if name:
        _refuse_same_name(ctx, milestone["project_id"], name, milestone["id"])
    return {"milestone": ctx.db.update("projects.milestones", milestone["id"], **changes(name=name, due_day=due_day))}


@tool("projects")
def complete_milestone(
    ctx: Context,
    milestone_id: MilestoneId,
    move_open_to: Annotated[str | None, "the open milestone of the same project (id or name) that gets the issues still open"] = None,
) -> Row:
    """Close a milestone; with issues still open only when these are moved to another one."""
    milestone = keys.find_milestone(ctx, milestone_id)
    if milestone["status"] == "done":
        raise ToolError("conflict", f"{milestone['name']!r} is done already")
    still = [i for i in _issues(ctx, milestone) if i["status"] not in keys.CLOSED]
    moved: list[Row] = []
    if still and move_open_to is None:
        raise ToolError("conflict", f"{milestone['name']!r} has open issues: {', '.join(i['key'] for i in still)}", "finish them, or give move_open_to")
    if still and move_open_to:
        target = keys.find_milestone(ctx, move_open_to, milestone["project_id"])
        if target["id"] == milestone["id"] or target["status"] == "done":
            raise ToolError("invalid", f"{target['name']!r} is no other open milestone")
        moved = [keys.update_issue(ctx, i["id"], milestone_id=target["id"]) for i in still]
    return {"milestone": ctx.db.update("projects.milestones", milestone["id"], status="done"), "moved": moved}


@tool("projects", read_only=True, aliases=("projects_get_board",))
def board(
    ctx: Context,
    project_id: OneProject = None,
    milestone_id: Annotated[str | None, "only of this milestone or sprint (id or name)"] = None,
    assignee: Assignee = None,
) -> Row:
    """Issues in columns by status, the most urgent first, with the number and estimate of each column; cancelled ones left out."""
    project = keys.project_id(ctx, project_id)
    where = Where().add("status != 'cancelled'").add("project_id = ?", project).add("lower(assignee) = ?", address(ctx, assignee))
    where.add("milestone_id = ?", id_of(keys.find_milestone, ctx, milestone_id, project))
    urgency = "CASE priority WHEN 'urgent' THEN 0 WHEN 'high' THEN 1 WHEN 'medium' THEN 2 ELSE 3 END, project_id, number"
    issues = keys.show(ctx, select(ctx, "projects.issues", where, order=urgency))
    columns = []
    for status in (s for s in MOVES if s != "cancelled"):
        mine = [i for i in issues if i["status"] == status]
        columns.append({"status": status, "count": len(mine), "estimate": sum(i["estimate"] or 0.0 for i in mine), "issues": mine})
    return {"columns": columns, "total": len(issues)}


@tool("projects", read_only=True)
def overdue_issues(ctx: Context, project_id: OneProject = None, assignee: Assignee = None, limit: Limit = 100) -> Row:
    """Open issues whose day is past, the longest overdue first, with the days."""
    where = Where().add(keys.OPEN_SQL).add("due_day < ?", ctx.today).add("project_id = ?", keys.project_id(ctx, project_id))
    where.add("lower(assignee) = ?", address(ctx, assignee))
    today = date.fromisoformat(ctx.today)
    issues = keys.show(ctx, select(ctx, "projects.issues", where, order="due_day, project_id, number"))
    rows = [{**i, "days_overdue": (today - date.fromisoformat(i["due_day"])).days} for i in issues]
    return {"issues": rows[:limit], "total": len(rows)}


@tool("projects", read_only=True)
def burndown(ctx: Context, milestone_id: MilestoneId) -> Row:
    """What was left of a milestone at the end of each day, beside an even pace: in estimates, or in issues when none has an estimate.

    An issue counts as done from the day of its last change; cancelled ones do not count.
    """
    milestone = keys.find_milestone(ctx, milestone_id)
    issues = [i for i in _issues(ctx, milestone) if i["status"] != "cancelled"]
    if not issues:
        raise ToolError("conflict", f"{milestone['name']!r} has no issues")
    estimated = any(i["estimate"] for i in issues)
    sized = [(i["estimate"] or 0.0 if estimated else 1.0, _done_day(i)) for i in issues]
    total = sum(size for size, _ in sized)
    start = date.fromisoformat(min(i["created_at"] or ctx.today for i in issues)[:10])
    end = max(start, date.fromisoformat(milestone["due_day"] or ctx.today))
    span = (end - start).days or 1
    step = max(1, -(-span // 60))
    days = []
    for passed in range(0, (max(end, date.fromisoformat(ctx.today)) - start).days + 1, step):
        day = (start + timedelta(days=passed)).isoformat()
        left = total - sum(size for size, done in sized if done and done <= day)
        ideal = round(max(0.0, total * (1 - passed / span)), 2)
        days.append({"day": day, "ideal": ideal, "remaining": left if day <= ctx.today else None})
    left = sum(size for size, done in sized if done is None)
    return {"milestone": milestone, "unit": "estimate" if estimated else "issues", "total": total, "remaining": left, "days": days}


def _done_day(issue: Row) -> str | None:
    if issue["status"] != "done":
        return None
    return str(issue["updated_at"] or issue["created_at"] or "")[:10]


@tool("projects", read_only=True)
def workload(ctx: Context, project_id: OneProject = None) -> Row:
    """Open issues by person, those with the most first: how many, their estimates, how many overdue; nobody's are under null."""
    where = Where().add(keys.OPEN_SQL).add("project_id = ?", keys.project_id(ctx, project_id))
    groups: dict[str | None, list[Row]] = {}
    for issue in select(ctx, "projects.issues", where):
        groups.setdefault(issue["assignee"], []).append(issue)
    rows = [
        {
            "assignee": who,
            "issues": len(mine),
            "estimate": sum(i["estimate"] or 0.0 for i in mine),
            "overdue": sum(bool(i["due_day"]) and i["due_day"] < ctx.today for i in mine),
            "urgent": sum(i["priority"] == "urgent" for i in mine),
        }
        for who, mine in groups.items()
    ]
    rows.sort(key=lambda r: (-r["issues"], r["assignee"] or ""))
    return {"people": rows}


@tool("projects", read_only=True)
def release_notes(
    ctx: Context,
    milestone_id: MilestoneId,
    title: Annotated[str, Meta(max_length=200), "the heading; left out: the milestone's name"] = "",
) -> Row:
    """Notes of what is done in a milestone, as Markdown: features, fixes, other work; sub-issues under their own type."""
    milestone = keys.find_milestone(ctx, milestone_id)
    issues = _issues(ctx, milestone)
    done = [i for i in issues if i["status"] == "done"]
    parts = [f"# {title or milestone['name']}"]
    for heading, types in NOTES:
        mine = [f"- {i['title']} ({i['key']})" for i in done if i["type"] in types]
        if mine:
            parts.append("\n".join([f"## {heading}", "", *mine]))
    still = sum(i["status"] not in keys.CLOSED for i in issues)
    return {"milestone": milestone, "markdown": "\n\n".join(parts) + "\n", "done": len(done), "open": still}
