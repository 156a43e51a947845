"""Levels: how a machine comes to where it is wanted, from the highest checkpoint on the way, by hooks and a task's setup; and the checkpoints' keys."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import msgspec

from gymctl import instances, runners, wire
from gymctl.errors import NotFound, StartError, Unsupported, UsageError
from gymctl.instances import Instance
from gymctl.recipe import FORMAT_VERSION, LEVELS, Level, Source, Task
from gymctl.runner import Checkpoints, Handle, Memory, Plan

OUTPUT_KEPT = 4000
"""Characters of a hook's output that episode.jsonl keeps."""


@dataclass(frozen=True)
class Store:
    """Where a runner keeps checkpoints of one form: `clone` (memory, devices and disk) or `disk`."""

    form: str
    kept: Callable[[], dict[str, str]]
    save: Callable[[Handle, str], None]
    restore: Callable[[Plan, str], Handle]


def store(module: ModuleType, options: dict[str, Any]) -> Store:
    """The runner's checkpoints, with memory where it can and `--opt checkpoint=disk` does not say otherwise; Unsupported names who has any."""
    if isinstance(module, Memory) and options.get("checkpoint", "memory") == "memory":
        return Store("clone", module.memory_checkpoints, module.save_memory, module.restore_memory)
    if isinstance(module, Checkpoints):
        return Store("disk", module.checkpoints, module.save, module.restore)
    can = [name for name in runners.available() if isinstance(runners.load(name), Checkpoints)]
    raise Unsupported(f"the runner {module.SPEC.name} cannot checkpoint", hint=f"can: {', '.join(can) or 'none'}")


def key(level: Level, source: Source, plan: Plan, runner: str, digest: str, task: Task | None) -> str:
    """The hash of everything that a checkpoint is made from: image, recipe with its hooks, variables, options, level, and the task's setup and its files."""
    unkeyed = {option.name for option in runners.load(runner).SPEC.options if not option.keyed}
    inputs = {
        "version": FORMAT_VERSION, "runner": runner, "image": digest, "recipe": source.recipe, "level": level, "env": dict(plan.env),
        "options": {name: value for name, value in plan.options.items() if name not in unkeyed}, "cpus": plan.cpus, "mem_gb": plan.mem_gb,
        "task": [task.setup, _files(task)] if task and level == "post_task" else None,
    }  # fmt: skip
    return hashlib.sha256(msgspec.json.encode(inputs, order="deterministic")).hexdigest()


def _files(task: Task) -> dict[str, str]:
    """The digests of the files that a setup uploads."""
    found = {}
    for step in task.setup:
        for file in step.parameters.get("files", []) if step.type == "upload" else []:
            path = str(file.get("local_path", "")) if isinstance(file, dict) else ""
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


def start(instance: Instance, module: ModuleType, way: Way, *, must_exist: bool = False) -> Level | None:
    """Start from the highest checkpoint that is there, else cold; the level it came from. The handle and the form are set in `instance`, not saved.

    UsageError, Unsupported; NotFound where none is there and one must be.
    """
    if way.level == "post_task" and way.task is None:
        raise UsageError("--checkpoint post_task needs --task: it is the state in which that task begins")
    if way.level is None:
        instance.handle, instance.form, instance.checkpoint = module.start(way.plan), "cold", None
        return None
    keeper = store(module, dict(way.plan.options))
    kept, keys = keeper.kept(), way.keys(instance.runner)
    found = next((level for level, its_key in keys.items() if its_key in kept), None)
    if found is None:
        if must_exist:
            hint = f"`gymctl run {instance.recipe} --checkpoint {way.level}` makes one"
            raise NotFound(f"there is no checkpoint {way.level} of {instance.name}, nor one below it", hint=hint)
        instance.handle, instance.form, instance.checkpoint = module.start(way.plan), "cold", None
        return None
    instance.handle, instance.form, instance.checkpoint = keeper.restore(way.plan, keys[found]), keeper.form, found
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
    keeper = store(module, dict(way.plan.options))
    keeper.save(instance.handle, way.keys(instance.runner)[level])
    instance.notes.append(f"made the checkpoint {level} ({keeper.form})")


def _hook(instance: Instance, client: wire.Client, stage: str, text: str | None, timeout: float, told: Callable[[str], None]) -> None:
    if text is not None:
        told(f"hook {stage}")
        hook(instance, client, stage, text, timeout)


def hook(instance: Instance, client: wire.Client, stage: str, text: str, timeout: float) -> None:
    """Run a hook in the guest, its line in episode.jsonl whatever comes; StartError unless it ends with 0 in time."""
    began = time.monotonic()
    done = instances.kind(instance.kind).shell(client, text, timeout)
    line = {"type": "hook", "stage": stage, "command": text, "exit": done.code, "timed_out": done.timed_out, "elapsed": round(time.monotonic() - began, 3)}
    instances.append(instance.name, {**line, "stdout": done.stdout[-OUTPUT_KEPT:], "stderr": done.stderr[-OUTPUT_KEPT:]})
    if done.timed_out or done.code:
        how = f"did not end within {timeout:g} s" if done.timed_out else f"ended with exit code {done.code}"
        last = (done.stderr.strip() or done.stdout.strip() or "it printed nothing").splitlines()[-1]
        raise StartError(f"the hook {stage} {how}: {wire.printable(last)[:300]}", hint=f"it ran in the guest: {text[:200]}")
