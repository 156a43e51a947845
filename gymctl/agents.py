"""A whole episode: run, reset, agent, verify, stop; and how an agent is spoken to."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shlex
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gymctl import film, instances, launch, paths, proc, session, wire
from gymctl.episode import Action, Json, Observation, Verdict, no_verdict
from gymctl.errors import EnvError, GymctlError, NotFound, StartError, Unavailable, UsageError
from gymctl.instances import Instance
from gymctl.recipe import Task
from gymctl.runner import Told

BUILT_IN = ("oracle", "noop", "random")
RANDOM_STEPS = 20
CONTROL_CALLS = ("reset", "create", "verifier", "state", "show-data", "setup", "recording")
ARBITRARY: dict[str, list[Any]] = {
    "boolean": [True, False],
    "null": [None],
    "string": ["a", "the", "2026-01-01", "meeting", "1", "report", "x@y.example"],
}


@dataclass(frozen=True)
class Episode:
    """What an episode left: the instance as it was, the verdict, how the agent ended, how many steps it took, where its files are, the film among them."""

    instance: Instance
    verdict: Verdict
    agent: Json
    steps: int
    directory: Path
    recording: Path | None = None

    def json(self) -> Json:
        """The document of `run --agent --json`."""
        return {**launch.document(self.instance), "task": self.instance.task, "seed": self.instance.seed, **self.verdict.json(),
                "agent": self.agent, "steps": self.steps, "dir": str(self.directory),
                "recording": str(self.recording) if self.recording else None}  # fmt: skip

    def kept(self) -> Json:
        """The same without the instance's token, for a folder that is handed around; the instance may live on."""
        found = self.json()
        return {**found, "token": "", "env": {**found["env"], "GYMCTL_TOKEN": ""}}


@dataclass(frozen=True)
class Order:
    """What an episode is asked to be: which task (and its file, if it is not the recipe's), which agent (a command, or a built-in's name), for how long,
    and what judges and remains."""

    task: Task
    agent: list[str]
    timeout: float
    task_file: str | None = None
    judge: list[str] | None = None
    keep: bool = False


def run(request: launch.Request, order: Order, told: Told, shown: Callable[[Action, Observation | GymctlError], None]) -> Episode:
    """Start, reset, let the agent act, verify, stop (unless it is kept), write result.json; the verdict counts whatever the agent did.

    What is filmed is kept also when the episode is interrupted. StartError and Unavailable before anything starts
    when the agent's program is not there, or evaluators lack a package.
    """
    _need_agent(order.agent)
    _need_evaluators(order.task)
    with launch.started(replace(request, task=order.task), told, keep=order.keep) as instance, session.opened(instance.name) as (_, client):
        directory = _directory_of(instance.name)
        reset = session.reset(instance, client, task=order.task, task_file=order.task_file, seed=request.seed)
        mark = _last_call(instance, client)
        told.step(f"agent {shlex.join(order.agent)} acts in {instance.session}")
        with _filmed(instance, directory) if request.record else contextlib.nullcontext():
            steps, agent, answer = _act(instance, client, order, shown)
        told.step("verifying")
        verdict = _verify(instance, client, order, answer, mark)
        instances.append(instance.name, {"type": "end", "agent": agent, "reset": reset["state"], "steps": steps})
        _keep_files(instance, directory)
    recording = directory / film.FILM
    episode = Episode(instance, verdict, agent, steps, directory, recording if recording.exists() else None)
    (directory / "result.json").write_text(json.dumps(episode.kept(), indent=1, ensure_ascii=False))
    return episode


def _need_agent(agent: list[str]) -> None:
    """StartError when its program is not there."""
    if not (len(agent) == 1 and agent[0] in BUILT_IN) and shutil.which(agent[0]) is None:
        hint = f"built in: {', '.join(BUILT_IN)}; else a command line, split as a shell splits words, and never given to a shell"
        raise StartError(f"cannot start {agent[0]}: no program of that name can be run here", hint=hint)


def _need_evaluators(task: Task) -> None:
    """Unavailable when a desktop task could never have a verdict here."""
    if checks := [check for check in task.asked() if check.get("type") == "evaluator"]:
        from gymctl.evaluators import reading

        try:
            reading.faults(checks)  # what is wrong with them is the verdict's to say
        except ModuleNotFoundError as error:
            raise Unavailable(f"task {task.id} is judged with the Python package {error.name}", hint="pip install 'gymctl[evaluators]'") from error


def _verify(instance: Instance, client: wire.Client, order: Order, answer: str | None, mark: int | None) -> Verdict:
    """The verdict; faulty checks and a tampered session are no verdict here."""
    if (foreign := _tampering(instance, client, mark)) is not None:
        return foreign
    try:
        return session.verify(
            instance, client, order.task.asked(), order.task.claims,
            answer=answer, judge=order.judge, prompt=order.task.prompt, timeout=session.VERIFY_TIMEOUT,
        )  # fmt: skip
    except (EnvError, NotFound) as error:
        return no_verdict(getattr(error, "type", "") or type(error).__name__, error.message)


def _last_call(instance: Instance, client: wire.Client) -> int | None:
    """The number of the session's last logged call; None where an environment keeps no log: it has no such path. Any other failure is one."""
    try:
        return max((_number(row) for row in instances.kind(instance.kind).log(client, instance.session)), default=0)
    except NotFound:
        return None
    except EnvError as error:
        if error.status in (404, 405, 501):
            return None
        raise


def _number(row: Any) -> int:
    number = row.get("n") if isinstance(row, dict) else None
    return number if isinstance(number, int) else 0


def _tampering(instance: Instance, client: wire.Client, mark: int | None) -> Verdict | None:
    """Copy the server's own log into episode.jsonl; no verdict when somebody else reset, verified or read the state meanwhile."""
    if mark is None:
        return None
    try:
        rows = instances.kind(instance.kind).log(client, instance.session)
    except GymctlError as error:
        return no_verdict("log_lost", f"the session's log cannot be read: {error.message}")
    instances.append(instance.name, {"type": "log", "session": instance.session, "calls": rows})
    foreign = [row for row in rows if _number(row) > mark and row.get("call") in CONTROL_CALLS]
    if max(map(_number, rows), default=0) < mark:
        return no_verdict("tampering", "the session's log was replaced during the episode")
    if foreign:
        named = ", ".join(f"/{row['call']} by {wire.printable(str(row.get('caller')))} at {row.get('at')}" for row in foreign[:5])
        return no_verdict("tampering", f"control calls during the episode that were not gymctl's: {named}")
    return None


def _act(instance: Instance, client: wire.Client, order: Order, shown: Callable[[Action, Observation | GymctlError], None]) -> tuple[int, Json, str | None]:
    """(steps, how the agent ended, what it said at the end)"""

    def do(action: Action) -> Observation | GymctlError:
        try:
            done: Observation | GymctlError = session.step(instance, client, action)
        except GymctlError as error:
            done = error
        shown(action, done)
        return done

    if len(order.agent) == 1 and order.agent[0] in BUILT_IN:
        actions = _built_in(order, session.tools(instance, client), instance.seed)
        return len([do(action) for action in actions]), {"exit": 0, "timed_out": False}, None
    return _external(instance, client, order, do)


def _built_in(order: Order, tools: list[Json], seed: int | None) -> Iterator[Action]:
    if order.agent == ["oracle"]:
        yield from (Action(call.tool, call.args) for call in order.task.solution)
    elif order.agent == ["random"] and tools:
        choices = session.seeded(seed)
        for _ in range(RANDOM_STEPS):
            tool = choices.choice(tools)
            yield Action(tool["name"], arbitrary(tool.get("inputSchema", {}), choices))


def arbitrary(schema: Json, choices: random.Random) -> Any:
    """A value that fits a JSON Schema loosely, drawn from `choices`."""
    branches = schema.get("anyOf") or schema.get("oneOf")
    if branches:
        return arbitrary(choices.choice(branches), choices)
    if "enum" in schema or "examples" in schema:
        return choices.choice(schema.get("enum") or schema["examples"])
    kind = schema.get("type")
    if kind == "object":
        wanted = set(schema.get("required", []))
        return {name: arbitrary(s, choices) for name, s in schema.get("properties", {}).items() if name in wanted or choices.random() < 0.3}
    if kind == "array":
        return [arbitrary(schema.get("items", {}), choices) for _ in range(choices.randint(0, 2))]
    if kind in ("integer", "number"):
        return choices.randint(int(schema.get("minimum", 0)), int(schema.get("maximum", 50)))
    return choices.choice(ARBITRARY.get(str(kind), ARBITRARY["string"]))


def _external(
    instance: Instance, client: wire.Client, order: Order, do: Callable[[Action], Observation | GymctlError]
) -> tuple[int, Json, str | None]:
    """Speak JSON lines with a command until it is done, ends or runs out of time."""
    deadline = time.monotonic() + order.timeout
    log = instance.directory / "agent.log"
    task = {
        "type": "task", "prompt": order.task.prompt, "tools": session.tools(instance, client), "session": instance.session,
        "deadline": round(time.time() + order.timeout, 3),
    }  # fmt: skip
    with proc.piped(order.agent, env={**os.environ, **launch.environment(instance), proc.LABEL_VARIABLE: instance.label}, log=log, deadline=deadline) as child:
        child.say(line_of(task))
        steps, answer, timed_out = _converse(child, instance.kind, do)
        code = child.finish(0 if timed_out else 2.0)
    return steps, {"exit": code, "timed_out": timed_out, "log": "agent.log"}, answer


def line_of(document: Json) -> bytes:
    """A document as one line."""
    return (json.dumps(document, ensure_ascii=False) + "\n").encode("utf-8", "replace")


def _converse(child: proc.Piped, kind: str, do: Callable[[Action], Observation | GymctlError]) -> tuple[int, str | None, bool]:
    """(steps, what was said at the end, whether time ran out)"""
    steps = 0
    while True:
        try:
            line = child.hear()
        except TimeoutError:
            return steps, None, True
        if line is None:
            return steps, None, False
        identity: Any = None
        began = time.monotonic()
        try:
            document = read_line(line)
            if document.get("type") == "done":
                said = document.get("answer")
                return steps, said if said is None or isinstance(said, str) else json.dumps(said), False
            identity = document.get("id")
            action = session.read_action(document, kind)
        except UsageError as error:
            child.say(line_of({"id": identity, "error": describe(error), "elapsed": 0.0}))
            continue
        steps += 1
        child.say(line_of(answer_line(identity, do(action), time.monotonic() - began)))


def read_line(line: bytes) -> Json:
    """One line of JSON from an agent; UsageError says what is wrong with it."""
    try:
        document = wire.strict(line)
    except ValueError as error:
        raise UsageError(f"not a line of JSON: {error}") from error
    if isinstance(document, list):  # several actions as one step, where a kind has such
        return {"actions": document}
    if not isinstance(document, dict):
        raise UsageError("a line must be a JSON object")
    return document


def answer_line(identity: Any, done: Observation | GymctlError, elapsed: float) -> Json:
    """What an agent is told of its action: {id, observation | error, elapsed}."""
    outcome = {"error": describe(done)} if isinstance(done, GymctlError) else {"observation": done.value}
    return {"id": identity, **outcome, "elapsed": round(elapsed, 6)}


def describe(error: GymctlError) -> Json:
    """{type, message, hint, exit_code} of an error."""
    return {"type": type(error).__name__, "message": error.message, "hint": error.hint, "exit_code": error.exit_code}


@contextlib.contextmanager
def _filmed(instance: Instance, directory: Path) -> Iterator[None]:
    """Film what is done inside; film and files are in `directory` after it, however it ends."""
    directory.mkdir(parents=True, mode=0o700, exist_ok=True)
    try:
        with film.filmed(instance, directory):
            yield
    finally:
        _keep_files(instance, directory)


def _directory_of(name: str) -> Path:
    """episodes/<name>-<time>: where an episode's files go, which outlive the instance."""
    return paths.state_dir() / "episodes" / f"{name}-{time.strftime('%Y%m%dT%H%M%S')}-{os.urandom(2).hex()}"


def _keep_files(instance: Instance, target: Path) -> None:
    """Copy what an episode leaves."""
    target.mkdir(parents=True, mode=0o700, exist_ok=True)
    for name in ("episode.jsonl", "agent.log", "recipe.yaml", "log", "browser.log"):
        if (instance.directory / name).exists():
            shutil.copyfile(instance.directory / name, target / name)
    if (instance.directory / "steps").is_dir():
        shutil.copytree(instance.directory / "steps", target / "steps", dirs_exist_ok=True)
