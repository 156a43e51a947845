"""Levels: how a machine comes to where it is wanted, from the highest checkpoint on the way, by hooks and a task's setup; and the checkpoints' keys."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import msgspec

from gymctl import instances, runners, wire
from gymctl.errors import EnvError, NotFound, StartError, Unavailable, Unsupported, UsageError
from gymctl.instances import Instance
from gymctl.proc import Result
from gymctl.recipe import FORMAT_VERSION, LEVELS, Level, Source, Task
from gymctl.runner import Checkpoints, Handle, Memory, Plan

OUTPUT_KEPT = 4000
"""Characters of a hook's output that episode.jsonl keeps."""
MADE = "made the checkpoint"
UNKEYED = ("summary", "runners", "options", "env", "universes", "packs")
"""Fields of a recipe that decide nothing, or what stands in the plan as it is in force."""


@dataclass(frozen=True)
class Store:
    """Where a runner keeps checkpoints of one form: `clone` (memory, devices and disk) or `disk`."""

    runner: str
    form: str
    kept: Callable[[], dict[str, str]]
    save: Callable[[Handle, str], None]
    restore: Callable[[Plan, str], Handle]
    drop: Callable[[str], None]


def stores() -> Iterator[Store]:
    """All of every runner's; a broken one is `doctor`'s affair."""
    for name in runners.available():
        with contextlib.suppress(Unavailable):
            yield from _of(name, runners.load(name))


def _of(name: str, module: ModuleType) -> Iterator[Store]:
    if isinstance(module, Memory):
        yield Store(name, "clone", module.memory_checkpoints, module.save_memory, module.restore_memory, module.drop_memory)
    if isinstance(module, Checkpoints):
        yield Store(name, "disk", module.checkpoints, module.save, module.restore, module.drop)


def store(module: ModuleType, options: dict[str, Any]) -> Store:
    """The runner's checkpoints, with memory where it can and `--opt checkpoint=disk` does not say otherwise; Unsupported names who can."""
    form = "clone" if isinstance(module, Memory) and options.get("checkpoint", "memory") == "memory" else "disk"
    found = next((kept for kept in _of(module.SPEC.name, module) if kept.form == form), None)
    if found is not None:
        return found
    can = [name for name in runners.available() if isinstance(runners.load(name), Checkpoints | Memory)]
    raise Unsupported(f"the runner {module.SPEC.name} cannot checkpoint", hint=f"can: {', '.join(can) or 'none'}")


def key(level: Level, source: Source, plan: Plan, runner: str, digest: str, task: Task | None) -> str:
    """The hash of everything that a checkpoint is made from: image, recipe with its hooks, variables, options, level, and the task's setup and its files."""
    unkeyed = {option.name for option in runners.load(runner).SPEC.options if not option.keyed}
    recipe = {name: value for name, value in msgspec.to_builtins(source.recipe).items() if name not in UNKEYED}
    inputs = {
        "version": FORMAT_VERSION, "runner": runner, "image": digest, "recipe": recipe, "level": level, "env": dict(plan.env),
        "options": {name: value for name, value in plan.options.items() if name not in unkeyed}, "cpus": plan.cpus, "mem_gb": plan.mem_gb,
        "task": [task.setup, _files(msgspec.to_builtins(task.setup))] if task and level == "post_task" else None,
    }  # fmt: skip
    return hashlib.sha256(msgspec.json.encode(inputs, order="deterministic")).hexdigest()


def _files(value: Any) -> dict[str, str]:
    """{path: digest} of the files of this host that a setup names: as a `local_path`, or by a file: address."""
    found: dict[str, str] = {}
    for name, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        found |= _files(each)
        path = each.removeprefix("file://") if isinstance(each, str) and (name == "local_path" or each.startswith("file://")) else ""
        if os.path.isfile(path):
            with open(path, "rb") as opened:
                found[path] = hashlib.file_digest(opened, "sha256").hexdigest()
    return found


@dataclass(frozen=True)
class Way:
    """How far to go, with which task, and where to keep the level reached (None: nowhere)."""

    source: Source
    plan: Plan
    level: Level | None
    task: Task | None
    digest: str

    def keys(self, runner: str) -> dict[Level, str]:
        """The keys of the level wanted and of those below it, the highest first."""
        wanted = LEVELS[: LEVELS.index(self.level) + 1] if self.level else ()
        return {level: key(level, self.source, self.plan, runner, self.digest, self.task) for level in reversed(wanted)}


def check(instance: Instance, module: ModuleType, way: Way, *, must_exist: bool = False) -> Level | None:
    """The highest checkpoint that is there, up to the level asked for. UsageError, Unsupported; NotFound where none is there and one must be."""
    if way.level is None:
        return None
    if way.level == "post_task" and way.task is None:
        raise UsageError("--checkpoint post_task needs --task: it is the state in which that task begins")
    kept = store(module, dict(way.plan.options)).kept()
    found = next((level for level, its_key in way.keys(instance.runner).items() if its_key in kept), None)
    if found is None and must_exist:
        task = f" --task {way.task.id}" if way.task and way.level == "post_task" else ""
        hint = f"`gymctl run {instance.recipe} --runner {instance.runner} --checkpoint {way.level}{task}` makes one"
        raise NotFound(f"there is no checkpoint {way.level} of {instance.name} as it was run, nor one below it", hint=hint)
    return found


def start(instance: Instance, module: ModuleType, way: Way, *, must_exist: bool = False) -> Level | None:
    """Start from the highest checkpoint that is there, else cold; the level it came from. The handle and the form are set in `instance`, not saved."""
    found = check(instance, module, way, must_exist=must_exist)
    if found is None:
        instance.handle, instance.form, instance.checkpoint = module.start(way.plan), "cold", None
        return None
    keeper = store(module, dict(way.plan.options))
    instance.handle, instance.form, instance.checkpoint = keeper.restore(way.plan, way.keys(instance.runner)[found]), keeper.form, found
    return found


def go_on(instance: Instance, client: wire.Client, module: ModuleType, way: Way, reached: Level | None, told: Callable[[str], None]) -> None:
    """From the level a running instance came from: the hooks above it, the task's setup, and the checkpoint asked for once its level is reached."""
    hooks, kind = way.source.recipe.hooks, instances.kind(instance.kind)
    done = LEVELS.index(reached) if reached else -1
    for number, level in enumerate(LEVELS[:2]):
        if number > done:
            _hook(instance, client, level, getattr(hooks, level), hooks.timeout, told)
            _keep(instance, module, way, level, told)
    if way.task is None:
        return
    if done < LEVELS.index("post_task"):
        _hook(instance, client, "pre_task", hooks.pre_task, hooks.timeout, told)
    kept_processes = done == LEVELS.index("post_task") and instance.form == "clone"
    if not kept_processes:
        kind.prepare(client, way.task.setup, told, disk_is_ready=done == LEVELS.index("post_task"))
    if done < LEVELS.index("post_task"):
        _keep(instance, module, way, "post_task", told)


def _keep(instance: Instance, module: ModuleType, way: Way, level: Level, told: Callable[[str], None]) -> None:
    if way.level != level or instance.handle is None:
        return
    told(f"keeping the checkpoint {level}")
    keeper, its_key = store(module, dict(way.plan.options)), way.keys(instance.runner)[level]
    if its_key in keeper.kept():
        instance.notes.append(f"another gymctl made the checkpoint {level} meanwhile")
        return
    keeper.save(instance.handle, its_key)
    instance.notes.append(f"{MADE} {level} ({keeper.form})")


def _hook(instance: Instance, client: wire.Client, stage: str, text: str | None, timeout: float, told: Callable[[str], None]) -> None:
    if text is not None:
        told(f"hook {stage}")
        hook(instance, client, stage, text, timeout)


def hook(instance: Instance, client: wire.Client, stage: str, text: str, timeout: float) -> None:
    """Run a hook in the guest, its line in episode.jsonl whatever comes; StartError unless it ends with 0 in time."""
    began = time.monotonic()
    line: dict[str, Any] = {"type": "hook", "stage": stage, "command": text}
    try:
        done: Result = instances.kind(instance.kind).shell(client, text, timeout)
    except (EnvError, NotFound, Unavailable) as error:
        instances.append(instance.name, {**line, "error": {"type": type(error).__name__, "message": error.message}})
        raise StartError(f"the hook {stage} did not run: {error.message}", hint=error.hint) from error
    line |= {"exit": done.code, "timed_out": done.timed_out, "elapsed": round(time.monotonic() - began, 3)}
    instances.append(instance.name, {**line, "stdout": done.stdout[-OUTPUT_KEPT:], "stderr": done.stderr[-OUTPUT_KEPT:]})
    if done.timed_out or done.code:
        how = f"did not end within {timeout:g} s" if done.timed_out else f"ended with exit code {done.code}"
        last = (done.stderr.strip() or done.stdout.strip() or "it printed nothing").splitlines()[-1]
        raise StartError(f"the hook {stage} {how}: {wire.printable(last)[:300]}", hint=f"it ran in the guest: {text[:200]}")
