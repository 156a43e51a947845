"""gymctl logs: show what an instance printed; bundle a report."""

from __future__ import annotations

from pathlib import Path

import click

from gymctl.cli import complete, ui
from gymctl.errors import Unavailable

EPILOG = ui.examples("gymctl logs agent-environment", "gymctl logs agent-environment --bundle report.zip")


@click.command("logs", epilog=EPILOG)
@click.argument("name", shell_complete=complete.names)
@click.option("--bundle", metavar="FILE.zip", type=click.Path(dir_okay=False), help="Gather what a maintainer needs, secrets removed.")
@ui.json_option
def command(name: str, bundle: str | None, as_json: bool) -> None:
    """Show what an instance's server printed so far."""
    from gymctl import instances
    from gymctl.wire import printable

    instance = instances.get(name)
    if bundle:
        from gymctl import doctor

        with ui.telling() as told:
            told.step("gathering")
            members = doctor.bundle(instance, Path(bundle).absolute())
        if as_json:
            ui.print_json({"bundle": bundle, "members": members})
        else:
            click.echo(f"{bundle}: {', '.join(members)}")
        return
    if instance.handle is None:
        raise Unavailable(f"{name} was never started", hint=f"`gymctl stop {name}` removes it")
    lines = instance.module().logs(instance.handle)
    if as_json:
        ui.print_json({"name": name, "lines": [line.rstrip("\n") for line in lines]})
        return
    silent = True
    for line in lines:
        click.echo(printable(click.unstyle(line.rstrip("\n"))))
        silent = False
    if silent:
        ui.note(f"{name} has printed nothing")
