"""run: choose a runner, claim a name, fetch the image, start, wait until it serves. Whatever fails or interrupts undoes what was done."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gymctl import __version__, assets, instances, levels, paths, proc, recipe, runners, wire
from gymctl.episode import MACHINES
from gymctl.errors import Conflict, NotFound, StartError, Unavailable, Unsupported, UsageError
from gymctl.instances import Instance
from gymctl.levels import Way
from gymctl.marked import near
from gymctl.recipe import Level, Source, Task
from gymctl.runner import Option, Plan, Told


@dataclass(frozen=True)
class Request:
    """What a `run` asks for; None and empty mean: as the recipe says. `task` is for machines, which come to a task's state while they start."""

    recipe: str
    runner: str | None = None
    name: str | None = None
    port: int | None = None
    image: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    seed: int | None = None
    replace: bool = False
    checkpoint: Level | None = None
    fast_io: bool = False
    record: bool = False
    task: Task | None = None


def run(request: Request, told: Told) -> Instance:
    """Start an instance and wait until it serves."""
    source = recipe.load(request.recipe)
    runner_name, module, passed_over = choose(source, request.runner)
    options = read_options(module, {**source.recipe.options.get(runner_name, {}), **request.options}, runner_name)
    name = request.name or source.recipe.name
    check_machine(source.recipe.kind, source.recipe.name, {"--checkpoint": request.checkpoint, "--fast-io": request.fast_io, "--record": request.record})
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
            instance.notes += fetched.notes
            instance.plan = {
                "format": fetched.format, "image": fetched.image, "env": {**source.recipe.env, **request.env}, "options": options,
                "hooks": msgspec.to_builtins(source.recipe.hooks), "settle": source.recipe.settle, "fast_io": request.fast_io, "level": request.checkpoint,
            }  # fmt: skip
            way = _way(instance, source, request.port, request.checkpoint, request.task, told)
            told.step(f"starting {name} on {runner_name}")
            _come_up(instance, module, way, told, undo)
        undo.pop_all()
    return instance


def is_machine(instance: Instance) -> bool:
    """Whether it is reset by being started anew."""
    return instance.kind in MACHINES


def check_machine(kind: str, name: str, options: Mapping[str, Any]) -> None:
    """Unsupported when an option that only a machine has was given, and this is a server."""
    given = next((option for option, value in options.items() if value), None)
    if given and kind not in MACHINES:
        raise Unsupported(f"{given} is for desktops, and {name} is a {kind}", hint="leave it out")


def anew(instance: Instance, told: Told, *, level: Level | None = None, task: Task | None = None) -> None:
    """What comes before `session.reset` of a machine: it is started anew, at `task` when there is one.

    From a checkpoint at or below `level`, NotFound where there is none; without a level from the one it was run with (kept anew
    where it has gone), and cold when that was none. The instance's `form` and `checkpoint` say what came of it. Connections to it end.
    """
    if not instance.url:
        raise Unavailable(f"{instance.name} was never started", hint=f"`gymctl stop {instance.name}` removes it")
    wanted = level or instance.plan.get("level")
    if level is None and wanted == "post_task" and task is None:
        wanted = "post_start"
    _rewind(instance, told, level=wanted, task=task, must_exist=level is not None)


def _rewind(instance: Instance, told: Told, *, level: Level | None, task: Task | None, must_exist: bool) -> None:
    """Start a machine anew under the same name, port and secrets: from the highest checkpoint up to `level` that is there, without a level cold.

    Where none is there: NotFound if one `must_exist`, else cold, and the level is kept once it is reached. Conflict, StartError, Unsupported.
    """
    source, module = recipe.load(instance.source), instance.module()
    port = int(urlsplit(instance.url).port or 0)
    way = _way(instance, source, port, level, task, told)
    if level:
        levels.check(instance, module, way, must_exist=must_exist)
    told.step(f"stopping {instance.name}")
    for helper in instance.helpers:
        if helper["what"] != "view":  # who watches goes on watching
            proc.end_group(proc.Process(helper["pid"], helper["started"]))
    instance.helpers = [helper for helper in instance.helpers if helper["what"] == "view"]
    instance.notes = [note for note in instance.notes if not note.startswith(levels.MADE)]
    module.stop({**(instance.handle or {}), "spared": [helper["pid"] for helper in instance.helpers]})
    told.step(f"starting {instance.name} again")
    with contextlib.ExitStack() as undo:
        _come_up(instance, module, way, told, undo, must_exist=level is not None and must_exist)
        undo.pop_all()


def _way(instance: Instance, source: Source, host_port: int | None, level: Level | None, task: Task | None, told: Told) -> Way:
    """The plan for a runner, out of the record and the recipe, and how far to go."""
    kept, wanted = instance.plan, source.recipe.resources
    plan = Plan(
        name=instance.name, label=instance.label, directory=instance.directory, format=kept["format"], image=kept["image"], port=source.recipe.port,
        host_port=host_port, env=kept["env"], options=kept["options"], cpus=wanted.cpus, mem_gb=wanted.mem_gb, network=wanted.network,
        ports=source.recipe.ports, secrets=instance.secrets, told=told.step,
    )  # fmt: skip
    return Way(source, plan, level, task, instance.image["digest"])


def _come_up(instance: Instance, module: ModuleType, way: Way, told: Told, undo: contextlib.ExitStack, *, must_exist: bool = False) -> None:
    """Start it and bring it where it is wanted; from here on giving up ends what carries the label. A Conflict leaves what is an earlier run's."""
    undo.pop_all()
    undo.callback(_give_up, instance.name)
    try:
        reached = levels.start(instance, module, way, must_exist=must_exist)
    except Conflict:
        undo.pop_all()
        undo.callback(_forget, instance.directory)
        raise
    assert instance.handle is not None  # noqa: S101  (levels.start sets it)
    instance.url = instance.handle["url"]
    instance.notes += [note for note in instance.handle.get("notes", []) if note not in instance.notes]
    instance.save()
    _await(instance, module, way.source, told)
    if is_machine(instance):
        client = instances.kind(instance.kind).connect(instance)
        try:
            levels.go_on(instance, client, module, way, reached, told.step)
        finally:
            client.close()
        instance.save()


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
    secret_sizes: dict[str, int] = getattr(instances.kind(source.recipe.kind), "SECRETS", {})
    return Instance(
        name=name, kind=source.recipe.kind, runner=runner_name, recipe=source.recipe.name, source=str(source.directory), started=time.time(),
        owner={"pid": pid, "started": proc.start_time(pid) or 0}, session=f"s-{secrets.token_hex(8)}", seed=request.seed,
        secrets={variable: secrets.token_urlsafe(size) for variable, size in secret_sizes.items()},
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

    client = instances.kind(instance.kind).connect(instance)
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
        "form": instance.form, "checkpoint": instance.checkpoint, "started": instance.started, "notes": instance.notes, "versions": instance.versions,
    }  # fmt: skip


def origin(instance: Instance) -> str:
    """How a machine came up, for people: `cold`, or `from the checkpoint post_start (disk)`; "" for a server."""
    if not is_machine(instance):
        return ""
    return f"from the checkpoint {instance.checkpoint} ({instance.form})" if instance.checkpoint else instance.form


def environment(instance: Instance) -> dict[str, str]:
    """What an agent needs to reach the instance by itself."""
    return {"GYMCTL_URL": instance.url, "GYMCTL_SESSION": instance.session, "GYMCTL_TOKEN": instance.token}


