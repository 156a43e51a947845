"""The projects server: projects, issues with keys like PLAT-12, milestones, links, comments, time spent."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from _server.store import Row
from msgspec import UNSET, Meta, UnsetType

from ...lookup import Cursor, Limit, Name, Text, Where, address, changes, has_words, id_of, known_person, person, refuse_if_referred, select
from ...registry import Context, Day, page, tool
from ...store import ToolError
from . import keys, planning, workflow, worklogs
from .workflow import IssueId, Priority, Status

__all__ = ["planning", "workflow", "worklogs"]

IssueType = Literal["task", "bug", "story", "epic"]
ProjectId = Annotated[str, "id, key or name of the project"]
OneProject = Annotated[str | None, "only in this project (id, key or name)"]
Labels = Annotated[list[str], Meta(max_length=50)]
Estimate = Annotated[float, Meta(ge=0, le=10_000)]
_MENTION = re.compile(r"(?<![\w@.])@([\w.+-]+(?:@[\w-]+(?:\.[\w-]+)+)?)")


def _counts(ctx: Context, project_id: str) -> dict[str, int]:
    sql = "SELECT status, count(*) FROM projects_issues WHERE project_id = ? GROUP BY status ORDER BY status"
    return dict(ctx.db.connection.execute(sql, (project_id,)).fetchall())


@tool("projects", read_only=True)
def list_projects(
    ctx: Context,
    status: Annotated[Literal["planned", "active", "on_hold", "done"] | None, "only projects in this state"] = None,
    lead: Annotated[str | None, "only those this person leads: `me`, an e-mail address, a handle or a name"] = None,
) -> Row:
    """Projects with the number of their issues by status."""
    where = Where().add("status = ?", status).add("lower(lead) = ?", address(ctx, lead))
    return {"projects": [{**p, "issues": _counts(ctx, p["id"])} for p in select(ctx, "projects.projects", where, order="key")]}


@tool("projects", read_only=True)
def get_project(ctx: Context, project_id: ProjectId) -> Row:
    """A project with its milestones, the number of its issues by status and the people who have open ones."""
    project = keys.find_project(ctx, project_id)
    sql = f"SELECT DISTINCT assignee FROM projects_issues WHERE project_id = ? AND assignee IS NOT NULL AND {keys.OPEN_SQL} ORDER BY assignee"
    people = [r[0] for r in ctx.db.connection.execute(sql, (project["id"],))]
    milestones = ctx.db.rows("projects.milestones", "project_id = ?", (project["id"],), order="due_day, id")
    return {"project": project, "milestones": milestones, "issues": _counts(ctx, project["id"]), "people": people}


@tool("projects")
def create_project(
    ctx: Context,
    key: Annotated[str, Meta(pattern=r"^[A-Z][A-Z0-9]{1,9}$"), "what its issues' keys start with, like PLAT"],
    name: Annotated[Name, "its name"],
    description: Annotated[Text, "what it is for"] = "",
    lead: Annotated[str | None, "who leads it: `me`, an e-mail address, a handle or a name; left out: you"] = None,
    start_day: Annotated[Day | None, "its first day"] = None,
    due_day: Annotated[Day | None, "its last day"] = None,
) -> Row:
    """Start a project; a key that another one has is refused."""
    if taken := ctx.db.first("projects.projects", "key = ?", (key,)):
        raise ToolError("conflict", f"{taken['name']} ({taken['id']}) has the key {key}", "choose another key")
    if start_day and due_day and due_day < start_day:
        raise ToolError("invalid", f"due_day {due_day} is before start_day {start_day}")
    who = person(ctx, lead or "me")
    return {"project": ctx.db.insert("projects.projects", key=key, name=name, description=description, lead=who, start_day=start_day, due_day=due_day)}


@tool("projects", idempotent=True)
def update_project(
    ctx: Context,
    project_id: ProjectId,
    name: Annotated[Name | None, "its name"] = None,
    description: Annotated[Text | None, "what it is for"] = None,
    status: Annotated[Literal["planned", "active", "on_hold", "done"] | None, "its state; done is refused while issues are open"] = None,
    lead: Annotated[str | None, "who leads it: `me`, an e-mail address, a handle or a name"] = None,
    due_day: Annotated[Day | None, "its last day"] = None,
) -> Row:
    """Change what is given of a project."""
    project = keys.find_project(ctx, project_id)
    still_open = ctx.db.count("projects.issues", f"project_id = ? AND {keys.OPEN_SQL}", (project["id"],))
    if status == "done" and still_open:
        raise ToolError("conflict", f"{project['key']} has {still_open} open issues", "finish, cancel or move them first")
    given = changes(name=name, description=description, status=status, lead=known_person(ctx, lead), due_day=due_day)
    return {"project": ctx.db.update("projects.projects", project["id"], **given)}


@tool("projects", read_only=True, aliases=("projects_list_issues",))
def search_issues(
    ctx: Context,
    query: Annotated[str, "words that must all occur in key, title or description"] = "",
    project_id: OneProject = None,
    status: Annotated[list[Status] | None, "only these states"] = None,
    priority: Annotated[list[Priority] | None, "only these priorities"] = None,
    type: Annotated[IssueType | None, "only this type"] = None,
    assignee: Annotated[str | None, "only theirs: `me`, an e-mail address, a handle, a name, or `nobody`"] = None,
    reporter: Annotated[str | None, "only those reported by: `me`, an e-mail address, a handle or a name"] = None,
    label: Annotated[str | None, "only with this label"] = None,
    milestone_id: Annotated[str | None, "only of this milestone (id or name)"] = None,
    due_before: Annotated[Day | None, "due before this day"] = None,
    due_after: Annotated[Day | None, "due after this day"] = None,
    sort: Annotated[Literal["key", "priority", "due_day", "updated"], "order; the most urgent, the first due, the last changed come first"] = "key",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Row:
    """Issues by words, project, state, priority, type, people, label, milestone and due day."""
    where = Where().add("project_id = ?", keys.project_id(ctx, project_id)).any_of("status", status).any_of("priority", priority).add("type = ?", type)
    where.add("assignee IS NULL" if assignee == "nobody" else "lower(assignee) = ?", *([] if assignee == "nobody" else [address(ctx, assignee)]))
    where.add("lower(reporter) = ?", address(ctx, reporter)).add("EXISTS (SELECT 1 FROM json_each(labels) WHERE lower(value) = ?)", label and label.lower())
    where.add("milestone_id = ?", id_of(keys.find_milestone, ctx, milestone_id, keys.project_id(ctx, project_id)))
    where.add("due_day < ?", due_before).add("due_day > ?", due_after)
    by_key = "(SELECT key FROM projects_projects p WHERE p.id = project_id), number"
    urgency = "CASE priority WHEN 'urgent' THEN 0 WHEN 'high' THEN 1 WHEN 'medium' THEN 2 ELSE 3 END"
    orders = {"key": by_key, "priority": f"{urgency}, {by_key}", "due_day": f"due_day IS NULL, due_day, {by_key}", "updated": f"updated_at DESC, {by_key}"}
    rows = keys.show(ctx, select(ctx, "projects.issues", where, order=orders[sort]))
    return page([r for r in rows if has_words(query, r, ("key", "title", "description"))], limit, cursor, "issues")


@tool("projects", read_only=True)
def get_issue(ctx: Context, issue_id: IssueId) -> Row:
    """An issue with its project, comments, links both ways, parent, sub-issues and the minutes spent on it."""
    issue = keys.find_issue(ctx, issue_id)
    links = [
        {"id": r["id"], "kind": r["kind"], "direction": "to" if r["issue_id"] == issue["id"] else "from", "issue": _brief(ctx, r, issue["id"])}
        for r in ctx.db.rows("projects.links", "issue_id = ?1 OR target_id = ?1", (issue["id"],))
    ]
    return {
        "issue": issue,
        "project": ctx.db.get("projects.projects", issue["project_id"]),
        "milestone": ctx.db.get("projects.milestones", issue["milestone_id"]) if issue["milestone_id"] else None,
        "parent": keys.find_issue(ctx, issue["parent_id"]) if issue["parent_id"] else None,
        "sub_issues": keys.show(ctx, ctx.db.rows("projects.issues", "parent_id = ?", (issue["id"],), order="number")),
        "links": links,
        "comments": ctx.db.rows("projects.comments", "issue_id = ?", (issue["id"],), order="created_at, id"),
        "minutes_spent": worklogs.minutes_of(ctx, issue["id"]),
    }


def _brief(ctx: Context, link: Row, mine: str) -> Row:
    other = keys.find_issue(ctx, link["target_id"] if link["issue_id"] == mine else link["issue_id"])
    return {name: other[name] for name in ("id", "key", "title", "status")}


@tool("projects", aliases=("projects_add_issue",))
def create_issue(
    ctx: Context,
    project_id: ProjectId,
    title: Annotated[Name, "what is to be done, in a line"],
    description: Annotated[Text, "more about it"] = "",
    type: Annotated[IssueType, "what it is"] = "task",
    priority: Annotated[Priority, "how urgent"] = "medium",
    status: Annotated[Literal["backlog", "todo"], "where it starts"] = "todo",
    assignee: Annotated[str | None, "who does it: `me`, an e-mail address, a handle or a name"] = None,
    milestone_id: Annotated[str | None, "its milestone (id or name)"] = None,
    parent_id: Annotated[str | None, "the issue it is a part of (id or key), in the same project"] = None,
    labels: Annotated[Labels | None, "labels"] = None,
    estimate: Annotated[Estimate | None, "how much work, in the project's own measure"] = None,
    due_day: Annotated[Day | None, "the day it is due"] = None,
) -> Row:
    """Report an issue; it gets the project's next number, and its assignee a mail."""
    project = keys.find_project(ctx, project_id)
    number = ctx.db.connection.execute("SELECT coalesce(max(number), 0) + 1 FROM projects_issues WHERE project_id = ?", (project["id"],)).fetchone()[0]
    made = ctx.db.insert(
        "projects.issues", project_id=project["id"], number=number, title=title, description=description, type=type, priority=priority, status=status,
        assignee=known_person(ctx, assignee), reporter=ctx.user.email,
        milestone_id=id_of(keys.find_milestone, ctx, milestone_id, project["id"]),
        parent_id=_parent(ctx, parent_id, project["id"], None) if parent_id is not None else None, labels=list(dict.fromkeys(labels or [])), estimate=estimate,
        due_day=due_day, created_at=ctx.now_text, updated_at=ctx.now_text,
    )  # fmt: skip
    issue = keys.show(ctx, [made])[0]
    return {"issue": issue, "message": keys.mail_assigned(ctx, issue)}


def _parent(ctx: Context, key: str, project_id: str, child: str | None) -> str:
    """The id of an issue that may become the parent of `child`; ToolError invalid or conflict."""
    parent = keys.find_issue(ctx, key)
    if parent["project_id"] != project_id:
        raise ToolError("invalid", f"{parent['key']} is in another project", "a parent and its sub-issues are in one project; link them instead")
    above: Row | None = parent
    while above is not None:
        if above["id"] == child:
            raise ToolError("conflict", f"{parent['key']} is the issue itself or a part of it")
        above = ctx.db.get("projects.issues", above["parent_id"]) if above["parent_id"] else None
    return str(parent["id"])


@tool("projects", idempotent=True)
def update_issue(
    ctx: Context,
    issue_id: IssueId,
    title: Annotated[Name | None, "what is to be done, in a line"] = None,
    description: Annotated[Text | None, "more about it; replaces what is there"] = None,
    type: Annotated[IssueType | None, "what it is"] = None,
    priority: Annotated[Priority | None, "how urgent"] = None,
    labels: Annotated[Labels | None, "all its labels, in place of those that are there"] = None,
    milestone_id: Annotated[str | UnsetType | None, "its milestone (id or name); null: none"] = UNSET,
    parent_id: Annotated[str | UnsetType | None, "the issue it is a part of (id or key); null: none"] = UNSET,
    estimate: Annotated[Estimate | UnsetType | None, "how much work; null: unknown"] = UNSET,
    due_day: Annotated[Day | UnsetType | None, "the day it is due; null: none"] = UNSET,
) -> Row:
    """Change what is given of an issue. Its status is changed by projects_transition_issue, its assignee by projects_assign_issue."""
    issue = keys.find_issue(ctx, issue_id)
    if isinstance(milestone_id, str):
        milestone_id = str(keys.find_milestone(ctx, milestone_id, issue["project_id"])["id"])
    if isinstance(parent_id, str):
        parent_id = _parent(ctx, parent_id, issue["project_id"], issue["id"])
    nullable = {"milestone_id": milestone_id, "parent_id": parent_id, "estimate": estimate, "due_day": due_day}
    plain = {"title": title, "description": description, "type": type, "priority": priority, "labels": labels}
    given: Row = {name: value for name, value in nullable.items() if value is not UNSET}
    given |= {name: value for name, value in plain.items() if value is not None}
    if not given:
        raise ToolError("invalid", "nothing to change", "give at least one of " + ", ".join((*plain, *nullable)))
    return {"issue": keys.update_issue(ctx, issue["id"], **given)}


@tool("projects", destructive=True)
def delete_issue(ctx: Context, issue_id: IssueId) -> Row:
    """Delete an issue for good, with its comments, links and worklogs; one with sub-issues is refused (cancelling is the usual way)."""
    issue = keys.find_issue(ctx, issue_id)
    refuse_if_referred(ctx, f"{issue['key']} as a parent", {"projects.issues": ("parent_id = ?", [issue["id"]])})
    gone = {t: ctx.db.delete(f"projects.{t}", "issue_id = ?", (issue["id"],)) for t in ("comments", "worklogs")}
    gone["links"] = ctx.db.delete("projects.links", "issue_id = ?1 OR target_id = ?1", (issue["id"],))
    ctx.db.delete("projects.issues", "id = ?", (issue["id"],))
    return {"deleted": issue, "with": gone}


@tool("projects", aliases=("projects_comment_issue",))
def add_comment(
    ctx: Context,
    issue_id: IssueId,
    body: Annotated[str, Meta(min_length=1, max_length=20_000), "the comment; @handle or @address mentions somebody, who gets a mail"],
) -> Row:
    """Comment on an issue; people mentioned in it get a mail."""
    issue = keys.find_issue(ctx, issue_id)
    comment = ctx.db.insert("projects.comments", issue_id=issue["id"], author=ctx.user.email, body=body, created_at=ctx.now_text)
    people, unknown = _mentions(ctx, body)
    text = f"{ctx.user.name} wrote on {issue['key']} {issue['title']}:\n\n{body}"
    messages = [m for who in people if (m := keys.mail(ctx, who, issue, "You were mentioned", text))]
    return {"comment": comment, "mentioned": people, "unknown_mentions": unknown, "messages": messages}


def _mentions(ctx: Context, body: str) -> tuple[list[str], list[str]]:
    """The addresses of people mentioned in a text, and the mentions of nobody known."""
    people: dict[str, None] = {}
    unknown: dict[str, None] = {}
    for name in list(dict.fromkeys(found.rstrip(".-+") for found in _MENTION.findall(body)))[:50]:
        try:
            people[person(ctx, name)] = None
        except ToolError:
            unknown["@" + name] = None
    return list(people), list(unknown)
