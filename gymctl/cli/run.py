"""gymctl run: start an environment, or a whole episode."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import click

from gymctl.cli import complete, fields, ui
from gymctl.errors import UsageError

EPILOG = ui.examples(
    "gymctl run agent-environment --runner local",
    "gymctl run agent-environment --name mine --port 0 -e UNIVERSE_ID=sales-team",
    "gymctl run agent-environment --task move-standup --agent oracle --rm",
    "gymctl run agent-environment --task move-standup --agent 'python my_agent.py' --timeout 120 --rm --json",
    "gymctl run ./my-recipe --image their-image.tar",
)


@click.command("run", epilog=EPILOG)
@click.argument("recipe", shell_complete=complete.recipes)
@click.option("--runner", metavar="R", help="How to start it; `auto` takes the first that works here.", shell_complete=complete.runners)
@click.option("--name", metavar="N", help="The instance's name (default: the recipe's; with --agent --rm and six hex digits more).")
@click.option("--port", type=click.IntRange(0, 65535), metavar="P", help="Port on 127.0.0.1; 0 for any free one (default: the documented one when free).")
@click.option("--image", metavar="REF|FILE", help="Run the recipe on another image: a reference, an archive or a directory.")
@click.option("-e", "--env", multiple=True, metavar="K=V", help="A variable of the environment's server; may be repeated.")
@click.option("--opt", multiple=True, metavar="K=V", help="An option of the runner (`gymctl doctor --features` lists them); may be repeated.")
@click.option("--checkpoint", type=click.Choice(ui.LEVELS), help="Start a desktop from this checkpoint, or the next below; made when it is missing.")
@click.option("--fast-io", is_flag=True, help="See and act by the fastest way the runner has (desktops).")
@click.option("--record", is_flag=True, help="Film the episode of a desktop: recording.mp4, and its steps in recording.vtt.")
@click.option("--task", metavar="T", help="Reset to this task: its id, or a task file.", shell_complete=complete.tasks)
@click.option("--agent", metavar="CMD", help="Let an agent act, verify, report: a command, or oracle, noop, random.")
@click.option("--seed", type=int, metavar="N", help="Seed of everything random.")
@click.option("--timeout", type=ui.Seconds(7 * 86400), metavar="S", help="The agent's time (default: the task's).")
@click.option("--judge", metavar="CMD", help="Who judges claims: reads {claims, answer}, prints {verdicts}.")
@click.option("--rm", "remove", is_flag=True, help="Stop it when the agent is done.")
@click.option("--replace", is_flag=True, help="Stop an instance of the same name first.")
@ui.json_option
def command(**given: Any) -> int:
    """Start an environment and wait until it serves; with --agent run a whole episode and exit with its verdict."""
    for option, value in given.items():
        if value == "":
            said = "RECIPE" if option == "recipe" else f"--{option}"
            raise UsageError(f"{said} is empty", hint="is a variable of your script unset? an option that is left out is as the recipe says")
    episode = given["agent"] is not None
    if episode and given["task"] is None:
        raise UsageError("--agent needs --task", hint=f"`gymctl recipes {given['recipe']}` lists the tasks")
    for option in ("remove", "timeout", "judge", "record"):
        if given[option] and not episode:
            raise UsageError(f"--{'rm' if option == 'remove' else option} needs --agent")
    if given["checkpoint"] == "post_task" and given["task"] is None:
        raise UsageError("--checkpoint post_task needs --task", hint="it is the state in which that task begins")
    return _episode(given) if episode else _start(given)


def _request(given: dict[str, Any], name: str | None, task: Any) -> Any:
    from gymctl import launch

    return launch.Request(
        recipe=given["recipe"], runner=given["runner"], name=name, port=given["port"], image=given["image"],
        env=fields(given["env"], "-e"), options=fields(given["opt"], "--opt"), seed=given["seed"], replace=given["replace"],
        checkpoint=given["checkpoint"], fast_io=given["fast_io"], record=given["record"], task=task,
    )  # fmt: skip


def _start(given: dict[str, Any]) -> int:
    from gymctl import instances, launch, recipe, session

    task = recipe.load_task(recipe.load(given["recipe"]).directory, given["task"]) if given["task"] else None
    with ui.telling() as told:
        instance = launch.run(_request(given, given["name"], task), told)
        if task or getattr(instances.kind(instance.kind), "NEEDS_RESET", False):
            with contextlib.ExitStack() as undo:  # when what was asked for does not come about, nothing of it stays
                undo.callback(instances.stop, instance.name, told.step)
                with session.opened(instance.name) as (_, client):
                    session.reset(instance, client, task=task, task_file=session.task_file(given["task"]), seed=given["seed"])
                undo.pop_all()
    if given["as_json"]:
        ui.print_json(launch.document(instance))
        return 0
    for note in instance.notes:
        ui.note(note)
    origin = launch.origin(instance)
    click.echo(f"{instance.name} runs on {instance.runner}: {instance.url}{f', started {origin}' if origin else ''}")
    click.echo(f"session {instance.session}{f', at the start of {task.id}' if task else ''}")
    click.echo(f"next: gymctl step {instance.name} ACTION; gymctl stop {instance.name}", err=True)
    return 0


def _episode(given: dict[str, Any]) -> int:
    import secrets

    from gymctl import agents, proc, recipe, session

    source = recipe.load(given["recipe"])
    task = recipe.load_task(source.directory, given["task"])
    name = given["name"] or (f"{source.recipe.name}-{secrets.token_hex(3)}" if given["remove"] else None)
    agent = proc.words(given["agent"], "--agent")
    judge = None if given["judge"] is None else proc.words(given["judge"], "--judge")
    order = agents.Order(task, agent, given["timeout"] or task.timeout, session.task_file(given["task"]), judge, keep=not given["remove"])
    if not given["as_json"]:
        click.echo(f"task {task.id}: {task.prompt.strip()}")
    with ui.telling() as told:
        episode = agents.run(_request(given, name, task), order, told, _quiet if given["as_json"] else _show)
    if given["as_json"]:
        ui.print_json(episode.json())
    else:
        for note in episode.instance.notes:
            ui.note(note)
        _show_end(episode)
        if not given["remove"]:
            click.echo(f"next: gymctl verify {episode.instance.name}; gymctl stop {episode.instance.name}", err=True)
    return episode.verdict.exit_code


def _quiet(action: Any, outcome: Any) -> None:
    """With --json nothing but the document is printed."""


def _show(action: Any, outcome: Any) -> None:
    import json

    from gymctl.errors import GymctlError
    from gymctl.wire import printable

    args = printable(json.dumps(action.args, ensure_ascii=False))
    answer = f"{ui.mark(False)} {outcome.message}" if isinstance(outcome, GymctlError) else f"{ui.mark(True)} {outcome.elapsed * 1000:.0f} ms"
    room = max(24, ui.width() - len(f"  {action.name}   {click.unstyle(answer)}"))
    ui.line(f"  {action.name} {args if len(args) <= room else f'{args[: room - 1]}…'}  {answer}")
    if isinstance(outcome, GymctlError) and outcome.hint:
        ui.line(f"      hint: {printable(outcome.hint)}")


def _show_end(episode: Any) -> None:
    from gymctl import launch
    from gymctl.cli.verify import show

    agent, instance = episode.agent, episode.instance
    if origin := launch.origin(instance):
        click.echo(f"{instance.name} was started {origin}")
    if episode.recording:
        click.echo(f"film: {episode.recording}")
    if agent["timed_out"]:
        ui.warn("the agent ran out of time")
    elif agent["exit"]:
        log = episode.directory / "agent.log"
        ui.warn(f"the agent ended with exit code {agent['exit']}{_last_words(log)}; all it printed: {log}")
    click.echo(f"{episode.steps} step{'' if episode.steps == 1 else 's'} on {instance.name} ({instance.runner}); files: {episode.directory}")
    show(episode.verdict)


def _last_words(log: Path) -> str:
    """` and the words ...`: the last line an agent printed, mostly the error it died of."""
    from gymctl.wire import printable

    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 4096))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    said = [line.strip() for line in lines if line.strip()]
    return f" and the words: {printable(said[-1])[:200]}" if said else ""
