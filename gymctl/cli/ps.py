"""gymctl ps: list what runs."""

from __future__ import annotations

from typing import Any

import click

from gymctl.cli import ui

EPILOG = ui.examples("gymctl ps", "gymctl ps --all", "gymctl ps --json")


@click.command("ps", epilog=EPILOG)
@click.option("--all", "everything", is_flag=True, help="Also what still runs of instances whose record is lost.")
@ui.json_option
def command(everything: bool, as_json: bool) -> None:
    """List the instances, with their state as the host tells it now."""
    from gymctl import instances

    rows = instances.rows(everything=everything, told=ui.note)
    if as_json:
        ui.print_json(rows)
    elif rows:
        _explain(rows)
        ui.table(("NAME", "RECIPE", "RUNNER", "STATUS", "URL", "PORTS", "AGE", "RESTARTS"), [_cells(row, instances.describe_age) for row in rows])
    else:
        click.echo("nothing runs; `gymctl run RECIPE` starts something", err=True)


def _explain(rows: list[dict[str, Any]]) -> None:
    """Why a state is not known, or not a good one; each reason once."""
    reasons = dict.fromkeys(row["detail"] for row in rows if row["status"] in ("unknown", "broken") and row.get("detail"))
    for text in reasons:
        ui.note(text)


def _cells(row: dict[str, Any], age: Any) -> list[Any]:
    code = row.get("exit_code")
    status = f"{row['status']}{f' ({code})' if code is not None else ''}{', out of memory' if row.get('oom') else ''}"
    ports = ", ".join(f"{host}->{guest}" for guest, host in (row.get("ports") or {}).items())
    return [row["name"], row.get("recipe"), row.get("runner"), status, row.get("url"), ports, age(row["age"]) if "age" in row else "", row.get("restarts", "")]
