"""How issues move: allowed steps, sub-issues first, whose they are, links between them, changes to many at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from _server.store import Row
from msgspec import Meta

from ...lookup import known_person
from ...registry import Context, Day, tool
from ...store import ToolError
from . import keys

Status = Literal["backlog", "todo", "in_progress", "in_review", "done", "cancelled"]
Priority = Literal["low", "medium", "high", "urgent"]
IssueId = Annotated[str, "id or key of the issue, like PLAT-12"]
MOVES: dict[str, tuple[str, ...]] = {
    "backlog": ("todo", "cancelled"),
    "todo": ("backlog", "in_progress", "cancelled"),
    "in_progress": ("todo", "in_review", "cancelled"),
    "in_review": ("in_progress", "done", "cancelled"),
    "done": ("in_progress",),
    "cancelled": ("backlog", "todo"),
}


def problem(ctx: Context, issue: Row, status: str, also_closed: Iterable[str] = ()) -> str | None:
    """Why an issue may not move to a status, or None; `also_closed` are ids that are being closed with it."""
    if issue["status"] == status:
        return f"it is {status} already"
    if status not in MOVES[issue["status"]]:
        return f"from {issue['status']} it can go to {', '.join(MOVES[issue['status']])}"
    if status == "done":
        children = ctx.db.rows("projects.issues", f"parent_id = ? AND {keys.OPEN_SQL}", (issue["id"],))
        still = [c["key"] for c in keys.show(ctx, children) if c["id"] not in set(also_closed)]
        if still:
            return f"its sub-issues {', '.join(still)} are open"
    return None


def open_blockers(ctx: Context, issue_id: str) -> list[Row]:
    """The open issues that block one."""
    where = f"{keys.OPEN_SQL} AND id IN (SELECT issue_id FROM projects_links WHERE kind = 'blocks' AND target_id = ?)"
    return keys.show(ctx, ctx.db.rows("projects.issues", where, (issue_id,)))


@tool("projects", aliases=("projects_move_issue", "projects_update_issue_status"))
def transition_issue(
    ctx: Context,
    issue_id: IssueId,
    status: Annotated[Status, "where it goes"],
    comment: Annotated[str, Meta(max_length=20_000), "a comment to go with it"] = "",
) -> Row:
    """Move an issue one step: backlog - todo - in_progress - in_review - done, each also back; cancelled from any open one, and back.

    A parent cannot be done while sub-issues are open. Open issues that block it are named, they do not stop it.
    """
    issue = keys.find_issue(ctx, issue_id)
    if why := problem(ctx, issue, status):
        raise ToolError("conflict", f"{issue['key']} cannot become {status}: {why}", "move it step by step with projects_transition_issue")
    moved = keys.update_issue(ctx, issue["id"], status=status)
    made = None
    if comment:
        made = ctx.db.insert("projects.comments", issue_id=issue["id"], author=ctx.user.email, body=comment, created_at=ctx.now_text)
    return {"issue": moved, "from_status": issue["status"], "open_blockers": open_blockers(ctx, issue["id"]), "comment": made}


@tool("projects", idempotent=True)
def assign_issue(ctx: Context, issue_id: IssueId, assignee: Annotated[str | None, "`me`, an e-mail address, a handle or a name; null: nobody"]) -> Row:
    """Give an issue to somebody, who gets a mail (unless it is you or it was theirs already), or to nobody."""
    issue = keys.find_issue(ctx, issue_id)
    who = known_person(ctx, assignee)
    if who == issue["assignee"]:
        return {"issue": issue, "message": None}
    changed = keys.update_issue(ctx, issue["id"], assignee=who)
    return {"issue": changed, "message": keys.mail_assigned(ctx, changed)}


@tool("projects")
def link_issues(
    ctx: Context,
    issue_id: IssueId,
    kind: Annotated[Literal["blocks", "relates_to", "duplicates"], "what the first issue does to the second"],
    target_id: Annotated[str, "id or key of the second issue"],
) -> Row:
    """Link two issues: the first blocks, relates to or duplicates the second. Doubles and circles of blocking are refused."""
    issue, target = keys.find_issue(ctx, issue_id), keys.find_issue(ctx, target_id)
    if issue["id"] == target["id"]:
        raise ToolError("invalid", f"{issue['key']} cannot be linked with itself")
    same = "kind = ?3 AND ((issue_id = ?1 AND target_id = ?2) OR (kind = 'relates_to' AND issue_id = ?2 AND target_id = ?1))"
    if known := ctx.db.first("projects.links", same, (issue["id"], target["id"], kind)):
        raise ToolError("conflict", f"{issue['key']} {kind} {target['key']} already ({known['id']})")
    if kind == "blocks" and (path := _blocking_path(ctx, target["id"], issue["id"])):
        chain = " blocks ".join(i["key"] for i in keys.show(ctx, [ctx.db.get("projects.issues", p) for p in path]))
        raise ToolError("conflict", f"{issue['key']} cannot block {target['key']}: {chain}", "remove one of these links with projects_unlink_issues")
    return {"link": ctx.db.insert("projects.links", issue_id=issue["id"], kind=kind, target_id=target["id"]), "issue": issue, "target": target}


def _blocking_path(ctx: Context, start: str, goal: str) -> list[str] | None:
    """The chain of blocking from one issue to another, or None."""
    blocks: dict[str, list[str]] = {}
    for link in ctx.db.rows("projects.links", "kind = 'blocks'"):
        blocks.setdefault(link["issue_id"], []).append(link["target_id"])
    paths, seen = [[start]], {start}
    while paths:
        path = paths.pop(0)
        if path[-1] == goal:
            return path
        for step in blocks.get(path[-1], []):
            if step not in seen:
                seen.add(step)
                paths.append([*path, step])
    return None


@tool("projects", destructive=True)
def unlink_issues(
    ctx: Context,
    issue_id: IssueId,
    target_id: Annotated[str, "id or key of the other issue"],
    kind: Annotated[Literal["blocks", "relates_to", "duplicates"] | None, "only links of this kind"] = None,
) -> Row:
    """Remove the links between two issues, in either direction."""
    issue, target = keys.find_issue(ctx, issue_id), keys.find_issue(ctx, target_id)
    where = "((issue_id = ?1 AND target_id = ?2) OR (issue_id = ?2 AND target_id = ?1)) AND (?3 IS NULL OR kind = ?3)"
    links = ctx.db.rows("projects.links", where, (issue["id"], target["id"], kind))
    if not links:
        raise ToolError("not_found", f"{issue['key']} and {target['key']} have no such link", "see projects_get_issue")
    for link in links:
        ctx.db.delete("projects.links", "id = ?", (link["id"],))
    return {"deleted": links}


@tool("projects")
def bulk_update_issues(
    ctx: Context,
    issue_ids: Annotated[list[str], Meta(min_length=1, max_length=100), "ids or keys"],
    status: Annotated[Status | None, "where they go, by the same rules as one"] = None,
    assignee: Annotated[str | None, "who gets them: `me`, an e-mail address, a handle or a name"] = None,
    priority: Annotated[Priority | None, "their priority"] = None,
    milestone_id: Annotated[str | None, "their milestone (id or name), of their own project"] = None,
    due_day: Annotated[Day | None, "the day they are due"] = None,
    add_labels: Annotated[list[str] | None, "labels they get"] = None,
    remove_labels: Annotated[list[str] | None, "labels they lose"] = None,
) -> Row:
    """Change many issues alike: all of them or, when one cannot be changed, none, with every reason. A new assignee gets one mail for all."""
    issues = list({i["id"]: i for i in (keys.find_issue(ctx, k) for k in issue_ids)}.values())
    who = known_person(ctx, assignee)
    closing = [i["id"] for i in issues] if status in keys.CLOSED else []
    reasons = [f"{i['key']}: {why}" for i in issues if status and (why := problem(ctx, i, status, closing))]
    if reasons:
        raise ToolError("conflict", f"{len(reasons)} of {len(issues)} issues cannot become {status}, none was changed: " + "; ".join(reasons))
    plain = {"status": status, "assignee": who, "priority": priority, "due_day": due_day}
    given: Row = {name: value for name, value in plain.items() if value is not None}
    if not given and milestone_id is None and not add_labels and not remove_labels:
        raise ToolError("invalid", "nothing to change", f"give at least one of {', '.join(plain)}, milestone_id, add_labels, remove_labels")
    changed = []
    for issue in issues:
        labels = [x for x in dict.fromkeys([*issue["labels"], *(add_labels or [])]) if x not in (remove_labels or [])]
        more = {"milestone_id": keys.find_milestone(ctx, milestone_id, issue["project_id"])["id"]} if milestone_id is not None else {}
        changed.append(keys.update_issue(ctx, issue["id"], **given, **more, labels=labels))
    new = [c for c, old in zip(changed, issues, strict=True) if who and old["assignee"] != who]
    return {"issues": changed, "message": _mail_many(ctx, who, new) if who and new else None}


def _mail_many(ctx: Context, who: str, issues: list[Row]) -> Row | None:
    if len(issues) == 1:
        return keys.mail_assigned(ctx, issues[0])
    text = f"{ctx.user.name} assigned these to you:\n\n" + "\n".join(f"- {i['key']} {i['title']}" for i in issues)
    return keys.mail(ctx, who, {"key": issues[0]["key"], "title": f"{issues[0]['title']} and {len(issues) - 1} more"}, "Assigned to you", text)
