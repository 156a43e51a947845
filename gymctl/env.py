"""The same verbs from Python: `with gymctl.open("agent-environment", task="move-standup") as env: ...`"""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import replace
from types import TracebackType
from typing import Any

from gymctl import instances, launch, recipe, session
from gymctl.episode import MACHINES, Action, Json, Observation, Verdict
from gymctl.recipe import Level
from gymctl.runner import Told


class Env:
    """One environment for the length of a `with` block. Errors are those of `gymctl.errors`."""

    def __init__(self, request: launch.Request, task: str | None) -> None:
        self._request = request
        self._task_name = task
        self._stack = contextlib.ExitStack()
        self._connected = contextlib.ExitStack()

    def __enter__(self) -> Env:
        with contextlib.ExitStack() as stack:
            self.instance = stack.enter_context(launch.started(self._request, Told(), keep=False))
            stack.callback(lambda: self._connected.close())
            self._connect()
            self.task = session.task_of(self.instance, self._task_name)
            self._task_file = session.task_file(self._task_name)
            self._untouched = True
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.__exit__(kind, error, trace)

    def _connect(self) -> None:
        self.instance, self._client = self._connected.enter_context(session.opened(self.instance.name))

    @property
    def url(self) -> str:
        """Where it serves."""
        return self.instance.url

    def reset(self, *, universe: str | None = None, pack: str | None = None, seed: int | None = None, checkpoint: Level | None = None) -> Json:
        """Put the session into the task's first state (or a universe's, or a data pack's): {session, state, form, checkpoint, contents}.

        A desktop is started anew for it (from `checkpoint`, else as it was opened), unless nothing was done since it came up; then
        there is {screen: {path, resolution, sequence, age, notes}} too, with fast_io {image: PIL.Image, ...} instead of the path.
        """
        state = universe or pack
        task = None if state else self.task
        launch.check_machine(self.instance.kind, self.instance.name, {"checkpoint": checkpoint})
        if launch.is_machine(self.instance) and (checkpoint or not self._untouched):
            self._connected.close()
            with instances.locked(self.instance.name, exclusive=True):
                launch.anew(self.instance, Told(), level=checkpoint, task=task)
            self._connect()
        self._untouched = True
        document = session.reset(self.instance, self._client, state=state, task=task, task_file=self._task_file, seed=seed)
        return {**document, **self._screen()}

    def _screen(self) -> Json:
        """{screen: what a desktop shows now}; nothing of a server."""
        kind = instances.kind(self.instance.kind)
        if not launch.is_machine(self.instance):
            return {}
        if self._request.fast_io:
            return {"screen": kind.picture(self._client)}
        shown: Json = kind.step(self._client, self.instance.session, Action("screenshot")).value
        return shown

    def tools(self) -> list[Json]:
        """What can be done: [{name, description, inputSchema}]."""
        return session.tools(self.instance, self._client)

    def step(self, action: str | Json | list[Json], **args: Any) -> Observation:
        """Do one action: `env.step("email_search", query="invoice")`, `env.step({"action": ..., "args": {...}})`; of a desktop also a list.

        A desktop's observation has the screen, as `reset` does; `screenshot=False` leaves it out.
        """
        chosen = Action(action, args) if isinstance(action, str) else session.read_action(action, self.instance.kind)
        if not launch.is_machine(self.instance):
            return session.step(self.instance, self._client, chosen)
        self._untouched = False
        fast, wanted = self._request.fast_io, chosen.args.get("screenshot", True)
        asked = replace(chosen, args={**chosen.args, "screenshot": bool(wanted) and not fast})
        observation = session.step(self.instance, self._client, asked)
        return replace(observation, value={**observation.value, **self._screen()}) if fast and wanted else observation

    def verify(self, *, answer: str | None = None, judge: list[str] | None = None, checks: list[Json] | None = None) -> Verdict:
        """Was it done? By the task's checks and claims, or by `checks` (UsageError without any). A crashed verifier raises nothing: that is no verdict."""
        self._untouched = False  # a hook or the evaluators' own steps may have changed it
        asked = checks if checks is not None else self.task.asked() if self.task else []
        claims = self.task.claims if self.task and checks is None else []
        return session.verify(self.instance, self._client, asked, claims, answer=answer, judge=judge, prompt=self.task.prompt if self.task else "")


def open(  # noqa: A001  (as gzip.open and tarfile.open)
    name: str, *, task: str | None = None, runner: str | None = None, image: str | None = None,
    env: dict[str, str] | None = None, options: dict[str, str] | None = None, seed: int | None = None,
    fast_io: bool = False, checkpoint: Level | None = None,
) -> Env:  # fmt: skip
    """An environment by its recipe's name or path, on any free port, under a name of its own; use it in a `with` block.

    Of desktops: `fast_io` gives the screen as a PIL image and writes no file; `checkpoint` is the level to start from (made when missing).
    """
    source = recipe.load(name)
    machine = source.recipe.kind in MACHINES
    if fast_io and machine:
        from gymctl.desktop import screen

        screen.pillow()
    unique = f"{source.recipe.name}-{secrets.token_hex(3)}"
    chosen = recipe.load_task(source.directory, task) if task is not None and machine else None
    request = launch.Request(
        name, runner=runner, name=unique, port=0, image=image, env=env or {}, options=options or {}, seed=seed,
        fast_io=fast_io, checkpoint=checkpoint, task=chosen,
    )  # fmt: skip
    return Env(request, task)
