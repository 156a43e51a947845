"""run: choose a runner, claim a name, fetch the image, start, wait until it serves. Whatever fails or interrupts undoes what was done."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import secrets
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from gymctl import __version__, assets, instances, paths, proc, recipe, runners, wire
from gymctl.errors import Conflict, NotFound, StartError, Unavailable, Unsupported, UsageError
from gymctl.instances import Instance
from gymctl.marked import near
from gymctl.recipe import Source
from gymctl.runner import Handle, Option, Plan, Told


@dataclass(frozen=True)
class Request:
    """What a `run` asks for; None and empty mean: as the recipe says."""

    recipe: str
    runner: str | None = None
    name: str | None = None
    port: int | None = None
    image: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    seed: int | None = None
    replace: bool = False


def run(request: Request, told: Told) -> Instance:
    """Start an instance and wait until it serves."""
    source = recipe.load(request.recipe)
    runner_name, module, passed_over = choose(source, request.runner)
    options = read_options(module, {**source.recipe.options.get(runner_name, {}), **request.options}, runner_name)
    name = request.name or source.recipe.name
    with contextlib.ExitStack() as undo:
        _make_way(name, runner_name, request.replace, told)
        with proc.shielded():  # between the claim and its undo no signal comes
            directory = instances.claim(name)
            undo.callback(_forget, directory)
        instance = _record(name, source, runner_name, request)
        instance.notes += passed_over if module.SPEC.isolated else [*passed_over, f"{runner_name} does not isolate. {module.SPEC.notes}"]
        instance.save()
        with instances.locked(name, exclusive=True):
            shutil.copyfile(source.directory / "recipe.yaml", directory / "recipe.yaml")
            told.step(f"fetching {source.image.name} for {runner_name}")
            fetched = assets.fetch(source, module, request.image, told.progress)
            instance.image = {"format": fetched.format, "digest": fetched.digest, **{k: v for k, v in fetched.image.items() if k == "ref"}}
            instance.key = source.key(fetched.digest)
            plan = Plan(
                name=name, label=instance.label, directory=directory, format=fetched.format, image=fetched.image, port=source.recipe.port,
                host_port=request.port, env={**source.recipe.env, **request.env}, options=options,
                cpus=source.recipe.resources.cpus, mem_gb=source.recipe.resources.mem_gb, network=source.recipe.resources.network,
                told=told.step,
            )  # fmt: skip
            told.step(f"starting {name} on {runner_name}")
            instance.handle = _start(module, plan, undo)
            instance.url = instance.handle["url"]
            instance.notes += [*fetched.notes, *instance.handle.get("notes", [])]
            instance.save()
            _await(instance, module, source, told)
        undo.pop_all()
    return instance


def _start(module: ModuleType, plan: Plan, undo: contextlib.ExitStack) -> Handle:
    """Start it; from here on giving up ends what carries the label. A Conflict leaves it: that is an earlier run's, for --replace to remove."""
    undo.pop_all()
    undo.callback(_give_up, plan.name)
    try:
        return module.start(plan)  # type: ignore[no-any-return]  # the runners' contract
    except Conflict:
        undo.pop_all()
        undo.callback(_forget, plan.directory)
        raise


def _forget(directory: Path) -> None:
    """Undo a claim under which nothing was started."""
    shutil.rmtree(directory, ignore_errors=True)


def _make_way(name: str, runner_name: str, replace: bool, told: Told) -> None:
    if not instances.NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot be a name", hint="use lower-case letters, digits, - _ . and at most 63 of them")
    if replace:
        try:
            instances.stop(name, told.step)
        except NotFound:
            instances.sweep(runner_name, name)  # what a killed gymctl left, and no record names any more


def _record(name: str, source: Source, runner_name: str, request: Request) -> Instance:
    pid = os.getpid()
    return Instance(
        name=name, kind=source.recipe.kind, runner=runner_name, recipe=source.recipe.name, source=str(source.directory), started=time.time(),
        owner={"pid": pid, "started": proc.start_time(pid) or 0}, session=f"s-{secrets.token_hex(8)}", seed=request.seed,
        versions={"gymctl": __version__, "python": platform.python_version()},
    )  # fmt: skip


def _give_up(name: str) -> None:
    """Undo a start that failed; what cannot be undone now stays listed and `stop` ends it later."""
    try:
        instances.end(name)
    except Unavailable:
        return


def _await(instance: Instance, module: ModuleType, source: Source, told: Told) -> None:
    said: list[str] = []

    def alive() -> str:
        status = module.status(instance.handle)
        if status.state == "running":
            said[:] = [status.detail] if status.detail else []
            return ""
        how = f"exit code {status.exit_code}" if status.exit_code is not None else status.state
        return f"{instance.name} ended before it served: {how}{f': {status.killed}' if status.killed else ''}"

    client = wire.Client(instance.url, name=instance.name)
    told.step(f"waiting for {instance.url}{source.recipe.ready.path}")
    try:
        instances.kind(instance.kind).ready(client, source.recipe.ready.path, source.recipe.ready.timeout, alive, lambda last: told.step(f"waiting: {last}"))
    except StartError as error:  # its log goes with the instance
        lines = [wire.printable(line).rstrip() for line in module.logs(instance.handle)][-8:]
        last = "; it printed nothing" if not lines else "; it printed last:\n  " + "\n  ".join(lines)
        unhealthy = f"; {said[0]}" if said else ""
        raise StartError(f"{error.message}{unhealthy}{last}", hint=error.hint) from error
    finally:
        client.close()


def choose(source: Source, wanted: str | None) -> tuple[str, ModuleType, list[str]]:
    """(name, module, notes): the runner asked for by flag or variable, else the first that boots the image and answers here."""
    named = wanted or os.environ.get(paths.RUNNER_VARIABLE)
    if named and named != "auto":
        module = runners.load(named)
        return named, _fitting(named, module, source), []
    notes: list[str] = []
    for name in source.recipe.runners or runners.available():
        module = runners.load(name)
        if not set(module.SPEC.formats) & set(source.image.offered()):
            continue
        try:
            module.find()
        except Unavailable as error:
            notes.append(f"{name} passed over: {error.message.splitlines()[0]}")
            continue
        return name, module, notes
    why = "; ".join(notes) or f"no runner boots {', '.join(source.image.offered())}"
    raise Unavailable(f"no runner can start {source.recipe.name} here: {why}", hint="`gymctl doctor` says what each runner lacks")


def _fitting(name: str, module: ModuleType, source: Source) -> ModuleType:
    offered = source.image.offered()
    if set(module.SPEC.formats) & set(offered):
        return module
    can = [n for n in runners.BUILT_IN if set(runners.load(n).SPEC.formats) & set(offered)]
    raise Unsupported(
        f"{name} boots {', '.join(module.SPEC.formats)}, and {source.image.name} is offered as {', '.join(offered)}", hint=f"can: {', '.join(can) or 'none'}"
    )


def runner_problems(source: Source) -> list[str]:
    """What a recipe says of runners that are not there, or of options they do not have: `file: what`."""
    file, found = source.directory / "recipe.yaml", []
    for name in source.recipe.runners:
        if name not in runners.available():
            found.append(f"{file}: runners: no runner {name!r}{near(name, runners.available())}")
    for name, options in source.recipe.options.items():
        try:
            read_options(runners.load(name), options, name)
        except (NotFound, UsageError) as error:
            found.append(f"{file}: options.{name}: {error.message}")
    return found


def read_options(module: ModuleType, given: dict[str, Any], runner_name: str) -> dict[str, Any]:
    """Options as the runner's SPEC types them; UsageError names the near ones."""
    known: dict[str, Option] = {option.name: option for option in module.SPEC.options}
    read = {name: option.default for name, option in known.items() if option.default is not None}
    for name, value in given.items():
        if name not in known:
            raise UsageError(f"{runner_name} has no option {name!r}{near(name, known)}", hint=f"options: {', '.join(known) or 'none'}")
        try:
            read[name] = _typed(value, known[name].kind)
        except ValueError as error:
            raise UsageError(f"--opt {name}={value}: expected {known[name].kind.__name__}", hint=known[name].help) from error
    return read


def _typed(value: Any, kind: type) -> Any:
    if kind is bool and value not in (True, False):
        if str(value).lower() not in ("true", "on", "yes", "1", "false", "off", "no", "0"):
            raise ValueError(value)
        return str(value).lower() in ("true", "on", "yes", "1")
    if kind is float and not math.isfinite(float(value)):
        raise ValueError(value)
    return kind(value)


@contextlib.contextmanager
def started(request: Request, told: Told, *, keep: bool) -> Iterator[Instance]:
    """An instance for the length of a block: ended at its close, at an error and at a signal, unless `keep`."""
    instance = run(request, told)
    try:
        yield instance
    finally:
        if not keep:
            instances.stop(instance.name, told.step)


def document(instance: Instance) -> dict[str, Any]:
    """The document of `run --json`."""
    return {
        "name": instance.name, "url": instance.url, "kind": instance.kind, "runner": instance.runner, "recipe": instance.recipe,
        "session": instance.session, "image": instance.image, "key": instance.key, "token": instance.token, "env": environment(instance),
        "started": instance.started, "notes": instance.notes, "versions": instance.versions,
    }  # fmt: skip


def environment(instance: Instance) -> dict[str, str]:
    """What an agent needs to reach the instance by itself."""
    return {"GYMCTL_URL": instance.url, "GYMCTL_SESSION": instance.session, "GYMCTL_TOKEN": instance.token}


