"""reset, step and verify an instance, each a line in its episode.jsonl."""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymctl import instances, proc, wire
from gymctl.episode import MACHINES, Action, Json, Observation, Verdict, no_verdict, score
from gymctl.errors import EnvError, GymctlError, NotFound, NoVerdict, RecipeError, StartError, Unavailable, UsageError
from gymctl.instances import Instance

if TYPE_CHECKING:
    from gymctl.recipe import Task

JUDGE_TIMEOUT = 120.0
VERIFY_TIMEOUT = 60.0
COVERAGE = 0.75
RUBRIC_TEXT = ("rubric", "claim", "criterion", "criteria", "text", "description")
"""Where a rubric check says what is asked; without any of them its id is."""
FULFILLMENT = {"fulfilled": 1.0, "partially": 0.5, "partially_fulfilled": 0.5, "not": 0.0, "not_fulfilled": 0.0}


@contextlib.contextmanager
def opened(name: str) -> Iterator[tuple[Instance, wire.Client]]:
    """An instance, held against being stopped, and a connection to it."""
    with instances.locked(name):
        instance = instances.get(name)
        if not instance.url:
            raise Unavailable(f"{name} was never started", hint=f"`gymctl stop {name}` removes it")
        client: wire.Client = instances.kind(instance.kind).connect(instance)
        try:
            yield instance, client
        except Unavailable as error:
            raise explained(instance, error) from error
        finally:
            client.close()


def explained(instance: Instance, error: Unavailable) -> Unavailable:
    """The same failure to reach it, with what the host says of it."""
    if instance.handle is None:
        return error
    status = instance.module().status(instance.handle)
    if status.state == "running":
        answering = getattr(instances.kind(instance.kind), "answering", None)
        standing = answering(instance) if answering else ""
        return Unavailable(f"{instance.name}: {error.message}", hint=standing) if standing else error
    code = f" with exit code {status.exit_code}" if status.exit_code is not None else ""
    limit = f": {status.killed}" if status.killed else ""
    hint = f"`gymctl logs {instance.name}` shows why; `gymctl run {instance.recipe} --replace` starts it again"
    return Unavailable(f"{instance.name} is no longer running ({status.state}{code}{limit})", hint=hint)


def task_file(name: str | None) -> str | None:
    """Where a task that was named by its file is; None for one that was named by its id, or not at all."""
    from gymctl import recipe

    return os.path.abspath(name) if name and recipe.is_path(name) else None


def task_of(instance: Instance, name: str | None) -> Task | None:
    """The task by id or path; without a name the one the instance was reset to."""
    from gymctl import recipe  # YAML costs 20 ms, and a step needs none

    chosen = name if name is not None else instance.task_file or instance.task
    return recipe.load_task(Path(instance.source), chosen) if chosen is not None else None


def session_of(instance: Instance, asked: str | None) -> str:
    """The session asked for, else the instance's own. UsageError for an empty name: a script's unset variable must not act in another session."""
    if asked == "":
        raise UsageError("a session's name cannot be empty", hint="leave it out for the instance's own session")
    return instance.session if asked is None else asked


def reset(
    instance: Instance, client: wire.Client, *,
    session: str | None = None, state: str | None = None, task: Task | None = None, task_file: str | None = None, seed: int | None = None,
) -> Json:  # fmt: skip
    """Put a session into the first state of a universe (or pack) or task (`task_file`: where it is, if not the recipe's).

    {session, state, form, checkpoint, contents}; contents is what the environment says it has loaded.
    """
    chosen = session_of(instance, session)
    if state == "":
        raise UsageError("the name of a state cannot be empty", hint="leave it out for the one the session is in")
    wanted = state or (task and (task.reset.universe or task.reset.pack)) or None
    seed = seed if seed is not None else task.reset.seed if task else None
    tools = task.enabled_tools if task else None
    answer = instances.kind(instance.kind).reset(client, chosen, state=wanted, tools=tools, seed=seed)
    form = instance.form if instance.kind in MACHINES else "fresh"
    reached = answer.get("universe_id") or answer.get("dataPack") or wanted
    contents = answer.get("servers") or answer.get("loadSummary") or {}
    document = {"session": chosen, "state": reached, "form": form, "checkpoint": instance.checkpoint, "contents": contents}
    if chosen == instance.session:
        with instance.changing():
            instance.task, instance.task_file = (task.id, task_file) if task else (None, None)
            instance.universe, instance.seed = reached, seed
    instances.append(instance.name, {"type": "reset", **document, "task": task.id if task else None, "seed": seed, "generation": answer.get("generation")})
    return document


def step(instance: Instance, client: wire.Client, action: Action, *, session: str | None = None) -> Observation:
    """Do one action; the line in episode.jsonl is written whether it worked or not."""
    chosen = session_of(instance, session)
    line: Json = {"type": "step", "session": chosen, "action": action.name, "args": action.args}
    began = time.monotonic()
    try:
        observation: Observation = instances.kind(instance.kind).step(client, chosen, action)
    except GymctlError as error:
        told = {"type": type(error).__name__, "message": error.message}
        instances.append(instance.name, {**line, "error": told, "elapsed": round(time.monotonic() - began, 6)})
        raise
    instances.append(instance.name, {**line, "observation": observation.value, "elapsed": round(observation.elapsed, 6)})
    return observation


def tools(instance: Instance, client: wire.Client, session: str | None = None) -> list[Json]:
    """What can be done in a session."""
    listed: list[Json] = instances.kind(instance.kind).tools(client, session_of(instance, session))
    return listed


def load_checks(path: Path) -> tuple[list[Json], list[str]]:
    """(checks, claims) of a checks file: a YAML or JSON list of checks, or a mapping with `checks` and `claims` (a task file too)."""
    from gymctl import marked

    if not path.is_file():
        raise NotFound(f"no checks file {path}")
    try:
        text = marked.read(path)
        if text.lstrip().startswith(("[", "- ")):
            text = "checks:\n" + "\n".join(f"  {line}" for line in text.splitlines())
        data = marked.Document(path, text).data
    except RecipeError as error:
        raise EnvError(error.message) from error
    checks, claims = data.get("checks", []), data.get("claims", [])
    if not isinstance(checks, list) or not all(isinstance(c, dict) for c in checks) or not _texts(claims):
        raise EnvError(f"{path}: `checks` must be a list of mappings and `claims` a list of texts")
    if not checks and not claims:
        raise EnvError(f"{path} holds no checks and no claims")
    if not wire.finite(checks):
        raise EnvError(f"{path}: a check cannot hold NaN or an infinity")
    return checks, claims


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def verify(
    instance: Instance, client: wire.Client, checks: list[Json], claims: list[str], *,
    session: str | None = None, answer: str | None = None, judge: list[str] | None = None, prompt: str = "", timeout: float = VERIFY_TIMEOUT,
) -> Verdict:  # fmt: skip
    """Was it done? passed, failed, or none with the reason. EnvError when the checks themselves are faulty, UsageError when there are none and no claims."""
    if not checks and not claims:
        raise UsageError("nothing says what to verify", hint="name a task, or give checks")
    chosen = session_of(instance, session)
    if (failed := _after_task(instance, client)) is not None:
        return failed
    asked = [{**check, "answer": answer} if check.get("type") == "evaluator" else check for check in checks if check.get("type") != "rubric"]
    questions = _questions([check for check in checks if check.get("type") == "rubric"], claims)
    verdict = _state_verdict(instance, client, chosen, asked, timeout) if asked else Verdict("passed", 1.0)
    if questions and verdict.verdict == "passed":
        verdict = _judged(verdict, questions, answer, judge, prompt, timeout, instance.label)
    instances.append(instance.name, {"type": "verify", "session": chosen, "answer": answer, **verdict.json()})
    return verdict


def _after_task(instance: Instance, client: wire.Client) -> Verdict | None:
    """Run the recipe's hook for the end of a task; no verdict when it fails."""
    hooks = instance.plan.get("hooks") or {}
    if not hooks.get("post_task"):
        return None
    from gymctl import levels  # it loads YAML

    try:
        levels.hook(instance, client, "post_task", hooks["post_task"], hooks["timeout"])
    except StartError as error:
        return no_verdict("hook_failed", error.message)
    return None


def _questions(rubrics: list[Json], claims: list[str]) -> dict[str, str]:
    """{id: what a judge is asked}: rubric checks by their text, and claims."""
    found = {}
    for number, check in enumerate(rubrics):
        name = check.get("id")
        if not isinstance(name, str) or not name or name in found:
            raise EnvError(f"rubric check {number + 1}: `id` must be a text of its own")
        found[name] = next((str(check[k]) for k in RUBRIC_TEXT if isinstance(check.get(k), str)), name)
    return found | {f"claim-{number}": claim for number, claim in enumerate(claims, 1)}


def _state_verdict(instance: Instance, client: wire.Client, session: str, checks: list[Json], timeout: float) -> Verdict:
    try:
        reply = instances.kind(instance.kind).verify(client, session, checks, timeout)
    except Unavailable as error:
        return no_verdict("verifier_unreachable", error.message)
    if reply.status >= 500:
        told = wire.error_of(reply, instance.name)
        return no_verdict(told.type if isinstance(told, EnvError) and told.type else "ExecutionError", told.message)
    if reply.status >= 400:
        raise wire.error_of(reply, instance.name)
    try:
        return read_reply(reply.json(), len(checks))
    except (ValueError, EnvError) as error:
        return no_verdict("garbled_answer", str(error))


def read_reply(answer: Any, expected: int) -> Verdict:
    """A verifier's answer as a verdict; ValueError for anything that is not exactly one."""
    if not isinstance(answer, dict):
        raise ValueError(f"the verifier answered {type(answer).__name__} instead of an object")
    if not wire.finite(answer):
        raise ValueError("the verifier's answer holds NaN or an infinity")
    given = [score(answer[k]) for k in ("score", "reward", "evaluation_score") if k in answer]
    listed = answer.get("verifiers")
    if not isinstance(listed, list) or len(listed) != expected or not all(isinstance(v, dict) for v in listed):
        raise ValueError(f"the verifier was asked {expected} checks and answered {len(listed) if isinstance(listed, list) else 'none'}")
    outcomes = [_outcome(v.get("success")) for v in listed]
    if _outcome(answer.get("success")) != _together(outcomes):
        raise ValueError(f"the verifier says success is {answer.get('success')!r}, and its checks say {_together(outcomes)!r}")
    if "PENDING" in outcomes and False not in outcomes:
        return no_verdict("pending", f"{outcomes.count('PENDING')} checks wait for a judge", listed)
    share = given[0] if given else sum(o is True for o in outcomes) / expected
    return Verdict("passed" if all(o is True for o in outcomes) else "failed", share, listed)


def _outcome(value: Any) -> bool | str:
    if value is True or value is False or value == "PENDING":
        return value if isinstance(value, str) else bool(value)
    raise ValueError(f"success must be true, false or PENDING, got {value!r}")


def _together(outcomes: list[bool | str]) -> bool | str:
    return False if False in outcomes else "PENDING" if "PENDING" in outcomes else True


def _judged(
    verdict: Verdict, questions: dict[str, str], answer: str | None, judge: list[str] | None, prompt: str, timeout: float, label: str
) -> Verdict:  # fmt: skip
    """Complete a verdict with the judge's word on each question."""
    if judge is None:
        pending = [{"id": name, "claim": claim, "success": "PENDING"} for name, claim in questions.items()]
        return no_verdict("pending", f"{len(questions)} claims wait for a judge: --judge CMD", [*verdict.checks, *pending])
    try:
        grades = _ask_judge(judge, {"claims": list(questions.values()), "answer": answer, "prompt": prompt}, min(timeout, JUDGE_TIMEOUT), label)
    except (ValueError, NoVerdict) as error:
        return no_verdict("judge_failed", str(error), verdict.checks)
    except (StartError, Unavailable) as error:
        return no_verdict("judge_failed", error.message, verdict.checks)
    coverage = sum(grades) / len(grades)
    graded = zip(questions.items(), grades, strict=True)
    rows = [{"id": name, "claim": claim, "success": grade == 1, "score": grade} for (name, claim), grade in graded]
    total = (len(verdict.checks) + sum(grades)) / (len(verdict.checks) + len(grades))
    return Verdict("passed" if coverage >= COVERAGE else "failed", total, [*verdict.checks, *rows])


def _ask_judge(argv: list[str], question: Json, timeout: float, label: str) -> list[float]:
    """The judge's grade of each claim, 0 to 1, in order; ValueError for garbage, NoVerdict for a crash or a time-out."""
    done = proc.run(argv, timeout=timeout, env={**os.environ, proc.LABEL_VARIABLE: label}, input=json.dumps(question))
    if done.timed_out:
        raise NoVerdict(f"the judge did not answer within {timeout:g} s")
    if done.code:
        raise NoVerdict(f"the judge ended with exit code {done.code}: {wire.printable(done.stderr.strip()[-300:])}")
    try:
        verdicts = wire.parsed(done.stdout)["verdicts"]
    except (ValueError, TypeError, KeyError):
        raise ValueError('the judge must print {"verdicts": [...]}, one a claim') from None
    if not isinstance(verdicts, list) or len(verdicts) != len(question["claims"]):
        raise ValueError(f"the judge must print {len(question['claims'])} verdicts")
    return [_grade(v) for v in verdicts]


def _grade(verdict: Any) -> float:
    value = verdict.get("verdict", verdict.get("score")) if isinstance(verdict, dict) else verdict
    if isinstance(value, str):
        if value.lower() not in FULFILLMENT:
            raise ValueError(f"a claim is {', '.join(FULFILLMENT)}, not {value!r}")
        return FULFILLMENT[value.lower()]
    return score(value)


def parse_action(words: list[str], kind: str = "mcp") -> Action:
    """`NAME k=v k:=json`, `NAME {json}` or `{"action": ..., "args": ...}` as an action, or in the kind's own words; UsageError."""
    head, *rest = words
    if head.lstrip().startswith(("{", "[")):
        return read_action(_json(head, head), kind)
    parse = getattr(instances.kind(kind), "parse", None)
    if parse:
        return parse(words)  # type: ignore[no-any-return]  # the kind's: list[str] -> Action
    if len(rest) == 1 and rest[0].lstrip().startswith("{"):
        return Action(head, _json_object(rest[0]))
    args: Json = {}
    for word in rest:
        name, sign, value = word.partition("=")
        if not sign or not name:
            raise UsageError(f"{word!r} is no argument", hint="write key=text, key:=JSON, or one JSON object")
        if name.endswith(":"):
            args[name[:-1]] = _json(value, word)
        else:
            args[name] = value
    return Action(head, args)


def read_action(document: Any, kind: str = "mcp") -> Action:
    """{action, args?, id?} (also tool, tool_name; tool_args, arguments) as an action, or the kind's own JSON; UsageError says what is wrong."""
    read = getattr(instances.kind(kind), "read", None)
    if read:
        theirs: Action = read(document)
        return theirs
    if not isinstance(document, dict):
        raise UsageError(f"an action is a JSON object, not {type(document).__name__}", hint='{"action": "email_send", "args": {...}}')
    name: Any = next((document[k] for k in ("action", "tool", "tool_name") if k in document), None)
    args: Any = next((document[k] for k in ("args", "arguments", "tool_args") if k in document), {})
    if not isinstance(name, str) or not name:
        raise UsageError("an action needs the field `action`, a text", hint='{"action": "email_send", "args": {...}}')
    if not isinstance(args, dict):
        raise UsageError("`args` must be an object")
    identity = document.get("id")
    if identity is not None and (isinstance(identity, bool) or not isinstance(identity, str | int)):
        raise UsageError("`id` must be a text or a whole number")
    return Action(name, args, identity)


def _json_object(text: str) -> Json:
    value = _json(text, text)
    if not isinstance(value, dict):
        raise UsageError("the arguments must be one JSON object")
    return value


def _json(text: str, word: str) -> Any:
    try:
        return wire.strict(text)
    except ValueError as error:
        raise UsageError(f"{word[:80]!r} is not JSON: {error}") from error


def seeded(seed: int | None) -> random.Random:
    """The source of every random choice of an episode."""
    return random.Random(0 if seed is None else seed)  # noqa: S311  (an agent's choices, no secrets)
