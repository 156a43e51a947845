"""gymctl recipes: list recipes and tasks, or check your own."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from gymctl.cli import complete, ui
from gymctl.errors import RecipeError

EPILOG = ui.examples(
    "gymctl recipes",
    "gymctl recipes agent-environment",
    "gymctl recipes ./my-recipe",
    "gymctl recipes ./my-task.yaml",
    "gymctl recipes --schema task > task.schema.json",
)


@click.command("recipes", epilog=EPILOG)
@click.argument("name", required=False, metavar="[NAME|PATH]", shell_complete=complete.recipes)
@click.option("--schema", type=click.Choice(["recipe", "image", "task"]), help="Print a JSON Schema, for your editor.")
@ui.json_option
def command(name: str | None, schema: str | None, as_json: bool) -> None:
    """List the recipes that came with gymctl, or show one with its tasks; a PATH is checked as well, every problem at once."""
    from gymctl import recipe

    if schema:
        ui.print_json(recipe.schemas()[schema])
    elif name is None:
        sources = [recipe.load(each) for each in recipe.names()]
        rows = [{"name": s.recipe.name, "kind": s.recipe.kind, "summary": s.recipe.summary, "tasks": len(recipe.task_ids(s.directory))} for s in sources]
        if as_json:
            ui.print_json(rows)
        else:
            ui.table(("NAME", "KIND", "TASKS", "SUMMARY"), [[r["name"], r["kind"], r["tasks"], r["summary"]] for r in rows])
    elif recipe.is_task(name):
        _show_task(name, as_json)
    else:
        _show(name, as_json)


def _show(name: str, as_json: bool) -> None:
    from gymctl import launch, recipe

    source = recipe.load(name)
    if found := [*launch.runner_problems(source), *recipe.problems(name)]:
        raise RecipeError("\n".join(found))
    tasks = list(recipe.tasks(source.directory))
    _check_desktop([(task, str(source.directory / "tasks" / f"{task.id}.yaml")) for task in tasks])
    r = source.recipe
    if as_json:
        document = {
            "name": r.name, "kind": r.kind, "image": r.image, "runners": r.runners, "universes": r.universes, "packs": r.packs,
            "tasks": [msgspec.to_builtins(task) for task in tasks],
        }  # fmt: skip
        ui.print_json(document)
        return
    click.echo(f"{r.name}: {r.summary}" if r.summary else r.name)
    click.echo(f"kind {r.kind}, image {r.image}, port {r.port}, runners {', '.join(r.runners) or 'any'}")
    if r.universes or r.packs:
        click.echo(f"{'universes' if r.universes else 'packs'}: {', '.join(r.universes or r.packs)}")
    if r.universes or r.packs:
        ui.table(("TASK", "STATE", "PROMPT"), [[t.id, t.reset.universe or t.reset.pack, _beginning(t.prompt)] for t in tasks])
    else:
        ui.table(("TASK", "PROMPT"), [[t.id, _beginning(t.prompt)] for t in tasks])


def _show_task(name: str, as_json: bool) -> None:
    """A task file by itself: it was read and checked; what checks of tables mean is the environment's to say."""
    from pathlib import Path

    from gymctl import recipe

    task = recipe.load_task(Path(name).parent, name)
    _check_desktop([(task, name)])
    if as_json:
        ui.print_json(msgspec.to_builtins(task))
        return
    click.echo(f"task {task.id}: {_beginning(task.prompt)}")
    click.echo(f"{ui.count(task.solution, 'step')} in its solution, {ui.count(task.asked(), 'check')}, {ui.count(task.claims, 'claim')}")


def _check_desktop(tasks: list[tuple[Any, str]]) -> None:
    """RecipeError with every fault of (task, its file); a note names the tasks whose evaluators this host cannot read."""
    found, unread, lacking = [], [], set()
    for task, file in tasks:
        try:
            found += _desktop_faults(task, file)
        except ModuleNotFoundError as error:
            unread.append(task.id)
            lacking.add(str(error.name))
    if unread:
        packages = f"{' and '.join(sorted(lacking))}: pip install 'gymctl[evaluators]'"
        ui.note(f"the evaluators of {', '.join(unread)} are not checked, and give no verdict, without {packages}")
    if found:
        from gymctl.evaluators import reading

        raise RecipeError("\n".join(found), hint=reading.known())


def _desktop_faults(task: Any, file: str) -> list[str]:
    """What is wrong with a desktop task's set-up steps and evaluators, which gymctl itself runs."""
    steps, checks = msgspec.to_builtins(task.setup), [check for check in task.asked() if check.get("type") == "evaluator"]
    if not steps and not checks:
        return []
    from gymctl.desktop import setup
    from gymctl.evaluators import reading

    return [f"{file}: {fault}" for fault in [*setup.faults_of(steps, "setup"), *reading.faults(checks)]]


def _beginning(prompt: str) -> str:
    """A prompt's first line, at most 90 characters, cut between words."""
    first = prompt.strip().split("\n")[0]
    return first if len(first) <= 90 else f"{first[:89].rsplit(' ', 1)[0]}…"
