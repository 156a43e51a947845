"""gymctl reset: put a session into a known state."""

from __future__ import annotations

import click

from gymctl.cli import complete, ui
from gymctl.errors import UsageError

EPILOG = ui.examples(
    "gymctl reset agent-environment --universe sales-team",
    "gymctl reset agent-environment --task move-standup",
    "gymctl reset agent-environment --session mine",
)


@click.command("reset", epilog=EPILOG)
@click.argument("name", shell_complete=complete.names)
@click.option("--session", metavar="S", help="Another session than the instance's own; made when it is new.")
@click.option("--universe", metavar="U", help="The scenario to load.")
@click.option("--pack", metavar="P", help="The data pack to load.")
@click.option("--task", metavar="T", help="The state in which this task begins, with only its tools.", shell_complete=complete.tasks)
@click.option("--seed", type=int, metavar="N", help="Seed of everything random.")
@ui.json_option
def command(name: str, session: str | None, universe: str | None, pack: str | None, task: str | None, seed: int | None, as_json: bool) -> None:
    """Put a session into a known state. Nothing else of the instance is touched."""
    from gymctl import session as sessions

    state = universe if universe is not None else pack
    if state is not None and task is not None:
        raise UsageError("--task says the state itself", hint="leave --universe and --pack out")
    if universe is not None and pack is not None:
        raise UsageError("--universe and --pack are the same thing for different kinds: give one")
    with ui.telling() as told, sessions.opened(name) as (instance, client):
        told.step(f"resetting {name}")
        chosen = sessions.task_of(instance, task) if task is not None else None
        file = sessions.task_file(task)
        document = sessions.reset(instance, client, session=session, state=state, task=chosen, task_file=file, seed=seed)
    if as_json:
        ui.print_json(document)
        return
    rows = sum(count for tables in document["contents"].values() if isinstance(tables, dict) for count in tables.values())
    click.echo(f"session {document['session']} is at the start of {chosen.id if chosen else document['state']}{f' ({rows} rows)' if rows else ''}")
    if chosen:
        click.echo(chosen.prompt)
