"""gymctl stop: end instances."""

from __future__ import annotations

from typing import Any

import click

from gymctl.cli import complete, ui
from gymctl.errors import GymctlError, UsageError

EPILOG = ui.examples("gymctl stop agent-environment", "gymctl stop --all")


@click.command("stop", epilog=EPILOG)
@click.argument("names", nargs=-1, shell_complete=complete.names)
@click.option("--all", "everything", is_flag=True, help="Every instance, also those whose record is lost.")
@ui.json_option
def command(names: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """End instances and remove all they left on this machine. Episodes that were kept stay."""
    from gymctl import instances

    if everything == bool(names):
        raise UsageError("name instances, or --all", hint="`gymctl ps` lists them")
    lost = instances.orphans() if everything or set(names) - set(instances.names()) else {}
    wanted = [*instances.names(), *lost] if everything else list(dict.fromkeys(names))
    with ui.telling() as told:
        failures = {name: error for name in wanted if (error := _stop(name, lost.get(name), told))}
    for name in wanted if not as_json else ():  # printed when all is done: a reader that goes (`| head`) must not save the others
        if name not in failures:
            click.echo(f"stopped {name}")
    first, *others = failures.values() or (None,)
    for error in others:
        ui.warn(error.message)
    if first:
        raise first
    if as_json:
        ui.print_json({"stopped": wanted})


def _stop(name: str, lost: Any, told: Any) -> GymctlError | None:
    """End one; its failure, so that the others are still ended."""
    from gymctl import instances, runners

    try:
        if lost:
            runner_name, handle = lost
            runners.load(runner_name).stop(handle)
        else:
            instances.stop(name, told.step)
    except GymctlError as error:
        return error
    return None
