"""Issues by their keys (PLAT-12), projects and milestones by their names; issues as answers show them; mails about them."""

from __future__ import annotations

import re

from _server.store import Row

from ...effects import send_mail
from ...lookup import id_of, near_names, resolve
from ...registry import Context
from ...store import ToolError

CLOSED = ("done", "cancelled")
OPEN_SQL = "status NOT IN ('done', 'cancelled')"
_KEY = re.compile(r"^([A-Za-z][A-Za-z0-9]*)-([0-9]{1,9})$")


def find_project(ctx: Context, key: str) -> Row:
    """A project by id, key or name."""
    return resolve(ctx, "projects.projects", key, "key", "name")


def project_id(ctx: Context, key: str | None) -> str | None:
    """For filters: a project's id; None stays None."""
    return id_of(find_project, ctx, key)


def find_milestone(ctx: Context, key: str, project: str | None = None) -> Row:
    """A milestone by id or name, of one project if its id is given; ToolError not_found or conflict."""
    if project is None:
        return resolve(ctx, "projects.milestones", key, "name")
    mine = ctx.db.rows("projects.milestones", "project_id = ?", (project,))
    found = next((m for m in mine if m["id"] == key or m["name"].casefold() == key.casefold()), None)
    if found is None:
        raise ToolError("not_found", f"the project has no milestone {key!r}", "there are: " + ("; ".join(f"{m['name']} ({m['id']})" for m in mine) or "none"))
    return found


def prefixes(ctx: Context) -> dict[str, str]:
    """The keys of projects by their ids."""
    return dict(ctx.db.connection.execute("SELECT id, key FROM projects_projects").fetchall())


def find_issue(ctx: Context, key: str) -> Row:
    """An issue by id or key (any case), with its `key`; ToolError not_found with near ones."""
    row = ctx.db.first("projects.issues", "id = ?", (key,))
    match = _KEY.match(key.strip())
    if row is None and match:
        where = "number = ? AND project_id = (SELECT id FROM projects_projects WHERE upper(key) = ?)"
        row = ctx.db.first("projects.issues", where, (int(match[2]), match[1].upper()))
    if row is None:
        labels = [(shown["key"], shown["title"]) for shown in show(ctx, ctx.db.rows("projects.issues"))]
        near = near_names(key.strip(), [(text, f"{k} ({title})") for k, title in labels for text in (k, title)])
        raise ToolError("not_found", f"there is no issue {key!r}", "near: " + "; ".join(near) if near else "find it with projects_search_issues")
    return show(ctx, [row])[0]


def show(ctx: Context, rows: list[Row]) -> list[Row]:
    """Issues with their keys."""
    known = prefixes(ctx)
    return [{"id": r["id"], "key": f"{known[r['project_id']]}-{r['number']}", **r} for r in rows]


def update_issue(ctx: Context, issue_id: str, **values: object) -> Row:
    """Change an issue and its time of change; the issue with its key."""
    return show(ctx, [ctx.db.update("projects.issues", issue_id, **values, updated_at=ctx.now_text)])[0]


def mail(ctx: Context, to: str, issue: Row, what: str, text: str) -> Row | None:
    """Tell somebody about an issue; None when it is the acting user."""
    if to.lower() == ctx.user.email.lower():
        return None
    return send_mail(ctx, [to], f"[{issue['key']}] {what}: {issue['title']}", text)


def mail_assigned(ctx: Context, issue: Row) -> Row | None:
    """Tell an issue's assignee that it is theirs now."""
    if not issue["assignee"]:
        return None
    due = f"\nDue: {issue['due_day']}" if issue["due_day"] else ""
    text = f"{ctx.user.name} assigned {issue['key']} to you: {issue['title']}\nPriority: {issue['priority']}{due}\n\n{issue['description']}".rstrip()
    return mail(ctx, issue["assignee"], issue, "Assigned to you", text)
