"""gymctl cache: list, check and clean the cache; remove what killed commands left."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from gymctl.cli import ui
from gymctl.errors import Conflict, IntegrityError, Unavailable

if TYPE_CHECKING:
    from gymctl.levels import Store

EPILOG = ui.examples("gymctl cache ls", "gymctl cache verify", "gymctl cache gc", "gymctl cache gc --all")


@click.group("cache", epilog=EPILOG)
def command() -> None:
    """What gymctl can make or fetch again, and what killed commands left behind."""


@command.command("ls", epilog=ui.examples("gymctl cache ls --json"))
@ui.json_option
def ls(as_json: bool) -> None:
    """List the objects, largest first, and the checkpoints that runners keep."""
    from gymctl import cache

    rows, kept = cache.entries(), list(_checkpoints())
    if as_json:
        ui.print_json([*rows, *({"checkpoint": key, "runner": store.runner, "form": store.form, "what": what} for store, key, what in kept)])
    elif rows or kept:
        uses = ["; ".join(str(use.get("what", use["key"][:12])) for use in row["used_by"]) for row in rows]
        objects = [[row["sha256"][:20], ui.size(row["bytes"]), use] for row, use in zip(rows, uses, strict=True)]
        ui.table(("OBJECT", "SIZE", "WHAT"), [*objects, *([key[:20], "", f"checkpoint on {store.runner}: {what}"] for store, key, what in kept)])
    else:
        click.echo("the cache is empty", err=True)


def _checkpoints() -> Iterator[tuple[Store, str, str]]:
    """(where, key, what it is) of every checkpoint that a runner keeps; one that cannot be asked is named and left out."""
    from gymctl import levels

    for store in levels.stores():
        try:
            kept = store.kept()
        except Unavailable as error:
            ui.note(f"{store.runner}: not asked: {error.message}")
            continue
        yield from ((store, key, what) for key, what in sorted(kept.items()))


def _drop_checkpoints() -> Iterator[dict[str, Any]]:
    """Remove those that nobody uses: {path, bytes} each."""
    for store, key, what in list(_checkpoints()):
        try:
            store.drop(key)
        except Conflict as error:
            ui.note(error.message)
            continue
        yield {"path": f"checkpoint {key[:12]} on {store.runner}: {what}", "bytes": 0}


@command.command("verify", epilog=ui.examples("gymctl cache verify"))
@ui.json_option
def verify(as_json: bool) -> None:
    """Hash every object again."""
    from gymctl import cache

    with ui.telling() as told:
        told.step("hashing the cache")
        damaged = cache.verify()
    if damaged:
        raise IntegrityError(f"changed since they were made: {', '.join(damaged)}", hint="`gymctl cache gc --all` removes them; they are made or fetched again")
    if as_json:
        ui.print_json({"damaged": []})
    else:
        click.echo("every object is what its name says")


@command.command("gc", epilog=ui.examples("gymctl cache gc", "gymctl cache gc --all --json"))
@click.option("--all", "everything", is_flag=True, help="Also objects and checkpoints that could be used again; one that an instance uses stays.")
@ui.json_option
def gc(everything: bool, as_json: bool) -> None:
    """Remove temp files, dead claims, orphaned processes, containers and networks of ours, and objects nothing names."""
    from gymctl import cache, instances, runners

    with ui.telling() as told:
        ended = []
        for name, (runner_name, handle) in instances.orphans(ui.note).items():
            told.step(f"stopping {name} on {runner_name}")
            runners.load(runner_name).stop(handle)
            ended.append(name)
        for name in instances.dead_claims():
            instances.stop(name, told.step)
            ended.append(name)
        checkpoints = list(_drop_checkpoints()) if everything else []
        removed = [*checkpoints, *cache.gc(everything=everything), *_tidied(runners)]
    freed = sum(row["bytes"] for row in removed)
    if as_json:
        ui.print_json({"ended": ended, "removed": removed, "bytes": freed})
    else:
        click.echo(f"ended {ui.count(ended, 'leftover')}, removed {ui.count(removed, 'thing')}, freed {ui.size(freed)}")


def _tidied(runners: ModuleType) -> Iterator[dict[str, Any]]:
    """What runners keep for all instances and nothing uses now, removed: {path, bytes} each."""
    for name in runners.available():
        with contextlib.suppress(Unavailable):  # an engine that is not there; the orphans' search has said so
            module = runners.load(name)
            yield from ({"path": gone, "bytes": 0} for gone in (module.tidy() if hasattr(module, "tidy") else ()))
