"""The same verbs from Python: `with gymctl.open("agent-environment", task="move-standup") as env: ...`"""

from __future__ import annotations

import contextlib
import secrets
from types import TracebackType
from typing import Any

from gymctl import launch, recipe, session
from gymctl.episode import Action, Json, Observation, Verdict
from gymctl.runner import Told


class Env:
    """One environment for the length of a `with` block. Errors are those of `gymctl.errors`."""

    def __init__(self, request: launch.Request, task: str | None) -> None:
        self._request = request
        self._task_name = task
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Env:
        with contextlib.ExitStack() as stack:
            self.instance = stack.enter_context(launch.started(self._request, Told(), keep=False))
            _, self._client = stack.enter_context(session.opened(self.instance.name))
            self.task = session.task_of(self.instance, self._task_name)
            self._task_file = session.task_file(self._task_name)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.__exit__(kind, error, trace)

    @property
    def url(self) -> str:
        """Where it serves."""
        return self.instance.url

    def reset(self, *, universe: str | None = None, pack: str | None = None, seed: int | None = None) -> Json:
        """Put the session into the task's first state (or a universe's, or a data pack's): {session, state, form, checkpoint, contents}."""
        state = universe or pack
        task = None if state else self.task
        return session.reset(self.instance, self._client, state=state, task=task, task_file=self._task_file, seed=seed)

    def tools(self) -> list[Json]:
        """What can be done: [{name, description, inputSchema}]."""
        return session.tools(self.instance, self._client)

    def step(self, action: str | Json, **args: Any) -> Observation:
        """Do one action: `env.step("email_search", query="invoice")` or `env.step({"action": ..., "args": {...}})`."""
        chosen = Action(action, args) if isinstance(action, str) else session.read_action(action)
        return session.step(self.instance, self._client, chosen)

    def verify(self, *, answer: str | None = None, judge: list[str] | None = None, checks: list[Json] | None = None) -> Verdict:
        """Was it done? By the task's checks and claims, or by `checks` (UsageError without any). A crashed verifier raises nothing: that is no verdict."""
        asked = checks if checks is not None else self.task.asked() if self.task else []
        claims = self.task.claims if self.task and checks is None else []
        return session.verify(self.instance, self._client, asked, claims, answer=answer, judge=judge, prompt=self.task.prompt if self.task else "")


def open(  # noqa: A001  (as gzip.open and tarfile.open)
    name: str, *, task: str | None = None, runner: str | None = None, image: str | None = None,
    env: dict[str, str] | None = None, options: dict[str, str] | None = None, seed: int | None = None,
) -> Env:  # fmt: skip
    """An environment by its recipe's name or path, on any free port, under a name of its own; use it in a `with` block."""
    source = recipe.load(name)
    unique = f"{source.recipe.name}-{secrets.token_hex(3)}"
    return Env(launch.Request(name, runner=runner, name=unique, port=0, image=image, env=env or {}, options=options or {}, seed=seed), task)
