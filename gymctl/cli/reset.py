"""gymctl reset: put a session into a known state."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import click

from gymctl.cli import complete, ui
from gymctl.errors import UsageError

if TYPE_CHECKING:
    from gymctl.episode import Json
    from gymctl.instances import Instance
    from gymctl.recipe import Task
    from gymctl.runner import Told

EPILOG = ui.examples(
    "gymctl reset agent-environment --universe sales-team",
    "gymctl reset agent-environment --task move-standup",
    "gymctl reset agent-environment --session mine",
    "gymctl reset linux-desktop --checkpoint post_start",
)


@click.command("reset", epilog=EPILOG)
@click.argument("name", shell_complete=complete.names)
@click.option("--session", metavar="S", help="Another session than the instance's own; made when it is new.")
@click.option("--universe", metavar="U", help="The scenario to load.")
@click.option("--pack", metavar="P", help="The data pack to load.")
@click.option("--task", metavar="T", help="The state in which this task begins, with only its tools.", shell_complete=complete.tasks)
@click.option("--checkpoint", type=click.Choice(ui.LEVELS), help="Start a desktop anew from this checkpoint, or the next below (default: as it was run).")
@click.option("--seed", type=int, metavar="N", help="Seed of everything random.")
@ui.json_option
def command(name: str, session: str | None, universe: str | None, pack: str | None, task: str | None, as_json: bool, **more: Any) -> None:
    """Put a session into a known state; nothing else of the instance is touched. A desktop, which is one machine, is started anew."""
    from gymctl import session as sessions

    state = universe if universe is not None else pack
    if state is not None and task is not None:
        raise UsageError("--task says the state itself", hint="leave --universe and --pack out")
    if universe is not None and pack is not None:
        raise UsageError("--universe and --pack are the same thing for different kinds: give one")
    with ui.telling() as told:
        notes = _anew(name, session, state, task, more["checkpoint"], told)
        with sessions.opened(name) as (instance, client):
            told.step(f"resetting {name}")
            chosen = sessions.task_of(instance, task) if task is not None else None
            file = sessions.task_file(task)
            document = sessions.reset(instance, client, session=session, state=state, task=chosen, task_file=file, seed=more["seed"])
    if as_json:
        ui.print_json(document)
        return
    for note in notes:
        ui.note(note)
    _show(instance, document, chosen)


def _anew(name: str, session: str | None, state: str | None, task: str | None, level: Any, told: Told) -> list[str]:
    """Start a machine anew, while nobody else uses it; what there is to say of that."""
    from gymctl import instances, launch
    from gymctl import session as sessions

    instance = instances.get(name)
    launch.check_machine(instance.kind, name, {"--checkpoint": level})
    if not launch.is_machine(instance):
        return []
    if (session is not None and session != instance.session) or state is not None:
        raise UsageError(f"{name} is one machine: it has one session, and no universes or packs", hint="leave --session, --universe and --pack out")
    with instances.locked(name, exclusive=True, told=told.step):
        instance = instances.get(name)
        before = instance.notes
        with contextlib.ExitStack() as undone:
            undone.callback(_say_gone, instance)
            launch.anew(instance, told, level=level, task=sessions.task_of(instance, task) if task is not None else None)
            undone.pop_all()
        return [note for note in instance.notes if note not in before]


def _say_gone(instance: Instance) -> None:
    """A machine that did not come up again is none any more."""
    if not instance.directory.exists():
        ui.note(f"{instance.name} had been ended to be started anew, and runs no more: `gymctl run` starts another")


def _show(instance: Instance, document: Json, task: Task | None) -> None:
    from gymctl import launch

    rows = sum(count for tables in document["contents"].values() if isinstance(tables, dict) for count in tables.values())
    origin = launch.origin(instance)
    place = f" is at the start of {task.id if task else document['state']}" if task or not origin else " is as it came up"
    click.echo(f"session {document['session']}{place}{f', started anew {origin}' if origin else ''}{f' ({rows} rows)' if rows else ''}")
    if task:
        click.echo(task.prompt)
