"""Time spent on issues."""

from __future__ import annotations

from typing import Annotated, Literal

from _server.store import Row
from msgspec import Meta

from ...lookup import address, id_of
from ...registry import Context, Day, tool
from ...store import ToolError
from . import keys
from .workflow import IssueId


def minutes_of(ctx: Context, issue_id: str) -> int:
    """The minutes spent on an issue so far."""
    return int(ctx.db.connection.execute("SELECT coalesce(sum(minutes), 0) FROM projects_worklogs WHERE issue_id = ?", (issue_id,)).fetchone()[0])


@tool("projects")
def log_work(
    ctx: Context,
    issue_id: IssueId,
    minutes: Annotated[int, Meta(ge=1, le=1440), "how long, in minutes"],
    day: Annotated[Day | None, "the day of the work; left out: today"] = None,
    note: Annotated[str, Meta(max_length=2000), "what was done"] = "",
) -> Row:
    """Log time that you spent on an issue; more than 24 hours of one day are refused."""
    issue = keys.find_issue(ctx, issue_id)
    worked = day or ctx.today
    if worked > ctx.today:
        raise ToolError("invalid", f"day {worked} is still to come; today is {ctx.today}")
    sql = "SELECT coalesce(sum(minutes), 0) FROM projects_worklogs WHERE lower(author) = ? AND day = ?"
    before = ctx.db.connection.execute(sql, (ctx.user.email.lower(), worked)).fetchone()[0]
    if before + minutes > 1440:
        raise ToolError("conflict", f"{before} minutes of {worked} are logged already; with {minutes} more the day would have more than 24 hours")
    log = ctx.db.insert("projects.worklogs", issue_id=issue["id"], author=ctx.user.email, minutes=minutes, day=worked, note=note)
    return {"worklog": log, "issue_key": issue["key"], "minutes_spent": minutes_of(ctx, issue["id"])}


@tool("projects", read_only=True)
def worklog_report(
    ctx: Context,
    group_by: Annotated[Literal["author", "issue", "project", "day"], "what the minutes are added up by"] = "author",
    project_id: Annotated[str | None, "only of this project (id, key or name)"] = None,
    issue_id: Annotated[str | None, "only of this issue (id or key)"] = None,
    author: Annotated[str | None, "only theirs: `me`, an e-mail address, a handle or a name"] = None,
    from_day: Annotated[Day | None, "on this day or later"] = None,
    to_day: Annotated[Day | None, "on this day or earlier"] = None,
) -> Row:
    """Time spent, added up by person, issue, project or day, with the entries it consists of."""
    issue = id_of(keys.find_issue, ctx, issue_id)
    where = (
        "(?1 IS NULL OR issue_id = ?1) AND (?2 IS NULL OR issue_id IN (SELECT id FROM projects_issues WHERE project_id = ?2))"
        " AND (?3 IS NULL OR lower(author) = ?3) AND (?4 IS NULL OR day >= ?4) AND (?5 IS NULL OR day <= ?5)"
    )
    rows = ctx.db.rows("projects.worklogs", where, (issue, keys.project_id(ctx, project_id), address(ctx, author), from_day, to_day), order="day, id")
    issue_keys = {i["id"]: i["key"] for i in keys.show(ctx, ctx.db.rows("projects.issues"))}
    totals: dict[str, int] = {}
    for row in rows:
        row["issue_key"] = issue_keys[row["issue_id"]]
        name = {"author": row["author"], "issue": row["issue_key"], "project": row["issue_key"].rpartition("-")[0], "day": row["day"]}[group_by]
        totals[name] = totals.get(name, 0) + row["minutes"]
    total = sum(totals.values())
    return {
        "totals": [{group_by: name, "minutes": minutes} for name, minutes in sorted(totals.items())],
        "minutes": total,
        "hours": round(total / 60, 2),
        "entries": rows,
    }
