"""gymctl doctor: prove what this machine can run."""

from __future__ import annotations

import contextlib
from typing import Any

import click

from gymctl.cli import complete, ui
from gymctl.errors import Unavailable

EPILOG = ui.examples("gymctl doctor", "gymctl doctor docker", "gymctl doctor --features", "gymctl doctor --json")


@click.command("doctor", epilog=EPILOG)
@click.argument("names", nargs=-1, metavar="[RUNNER]...", shell_complete=complete.runners)
@click.option("--features", is_flag=True, help="What each runner can do, and its options; nothing is tried.")
@ui.json_option
def command(names: tuple[str, ...], features: bool, as_json: bool) -> int:
    """Try what each runner needs on this machine, and say what to do about what fails.

    Without names the exit code is 0; with names it is 1 when one of them is unusable. What could not be tried is "not proven".
    """
    from gymctl import doctor, runners

    if features:
        _features(doctor.feature_table(), as_json)
        return 0
    for name in names:
        with contextlib.suppress(Unavailable):  # a broken one is a finding; one that nobody knows ends this before anything is tried
            runners.load(name)
    with ui.telling() as told:
        report: dict[str, Any] = {"host": doctor.host(), "runners": {}}
        for name in names or runners.available():
            told.step(f"trying {name}")
            report["runners"][name] = doctor.examine(name)
    if as_json:
        ui.print_json(report)
    else:
        _show("this machine", report["host"])
        for name, found in report["runners"].items():
            _show(f"{name}: {'usable' if found['usable'] else 'not usable'}", found["findings"])
    return 1 if names and not all(found["usable"] for found in report["runners"].values()) else 0


def _show(title: str, findings: list[dict[str, Any]]) -> None:
    click.echo(click.style(title, bold=True))
    for finding in findings:
        ok = None if finding["ok"] == "not proven" else finding["ok"]
        click.echo(f"  {ui.mark(ok)}  {': '.join(filter(None, (finding['what'], finding['detail'])))}")
        if finding["fix"]:
            click.echo(f"      fix: {finding['fix']}")


def _features(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        ui.print_json({row["name"]: row for row in rows})
        return
    abilities = list(rows[0]["abilities"])
    ui.table(
        ("RUNNER", "BOOTS", "ISOLATED", *(a.upper() for a in abilities), "SUMMARY"),
        [[r["name"], ", ".join(r["formats"]), _yes(r["isolated"]), *(_yes(r["abilities"][a]) for a in abilities), r["summary"]] for r in rows],
    )
    for row in rows:
        for option in row["options"]:
            click.echo(f"{row['name']} --opt {option['name']}={option['type']}: {option['help']}")


def _yes(value: bool) -> str:
    return "yes" if value else "-"
