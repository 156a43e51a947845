"""Completions of words that depend on this machine: recipes, tasks, running instances, their tools. Never fails, never prints."""

from __future__ import annotations

import contextlib
import os

import click

from gymctl.errors import GymctlError


def recipes(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The bundled recipes."""
    from gymctl import recipe

    with contextlib.suppress(GymctlError):
        return [name for name in recipe.names() if name.startswith(incomplete)]
    return []


def tasks(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The tasks of the recipe (or of the instance's recipe) already on the line."""
    from gymctl import instances, recipe

    # Behind an option that has no value yet click leaves the arguments before it in ctx.args.
    given = ctx.params.get("recipe") or ctx.params.get("name") or next(iter(ctx.args), "")
    with contextlib.suppress(GymctlError):
        name = given if "recipe" in ctx.params or ctx.info_name == "run" else instances.get(given).source
        return [task for task in recipe.task_ids(recipe.load(name).directory) if task.startswith(incomplete)]
    return []


def names(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The running instances."""
    from gymctl import instances

    with contextlib.suppress(GymctlError):
        return [name for name in instances.names() if name.startswith(incomplete)]
    return []


def runners(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The runners."""
    from gymctl import runners as known

    return [name for name in known.available() if name.startswith(incomplete)]


def actions(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The tools of the instance on the line, asked of it."""
    if ctx.params.get("action"):
        return []
    from gymctl import session

    with contextlib.suppress(GymctlError, OSError), session.opened(ctx.params["name"]) as (instance, client):
        return [tool["name"] for tool in session.tools(instance, client) if tool["name"].startswith(incomplete)]
    return []


def images(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The bundled images."""
    from gymctl import paths

    with contextlib.suppress(GymctlError, OSError):
        return sorted(e.name for e in os.scandir(paths.bundled("images")) if e.name.startswith(incomplete) and os.path.exists(f"{e.path}/image.yaml"))
    return []
