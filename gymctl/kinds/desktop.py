"""Kind `desktop`: a machine with a screen, acted on through the server inside it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gymctl import wire
from gymctl.episode import Action, Json, Observation
from gymctl.proc import Result

if TYPE_CHECKING:
    from gymctl.instances import Instance
    from gymctl.recipe import SetUp

MACHINE = True
"""It is one machine: it is reset by starting it anew, from a checkpoint or cold."""
SECRETS = {"GUEST_TOKEN": 24, "VNC_PASSWORD": 6}
"""{variable: bytes of randomness}: VNC takes eight characters."""


def connect(instance: Instance) -> wire.Client:
    """A connection to the server inside."""
    return wire.Client(instance.url, name=instance.name, headers={"Authorization": f"Bearer {instance.token}"})


def ready(client: wire.Client, path: str, timeout: float, alive: Callable[[], str], told: Callable[[str], None]) -> None:
    """Wait until its desktop has painted."""
    wire.wait(client, path, timeout, alive, told)


def shell(client: wire.Client, command: str, timeout: float) -> Result:
    """Run a shell command line in the guest."""
    answer = client.call("/execute", {"command": command, "shell": True, "timeout": timeout}, timeout=timeout + 10)
    return Result(answer["returncode"], answer["stdout"], answer["stderr"], bool(answer.get("timed_out")))


def prepare(client: wire.Client, steps: list[SetUp], told: Callable[[str], None], *, disk_is_ready: bool = False) -> None:
    """Do a task's setup."""


def reset(client: wire.Client, session: str, *, state: str | None = None, tools: list[str] | None = None, seed: int | None = None) -> Json:
    """Release every key and button, stop commands and a recording."""
    client.call("/reset", {})
    return {}


def tools(client: wire.Client, session: str) -> list[Json]:
    """What can be done."""
    return []


def step(client: wire.Client, session: str, action: Action, *, timeout: float = 120) -> Observation:
    """Act."""
    began = time.monotonic()
    value: Any = client.call("/input", [action.args], timeout=timeout)
    return Observation(value, elapsed=time.monotonic() - began)


def verify(client: wire.Client, session: str, checks: list[Json], timeout: float) -> wire.Reply:
    """What the evaluators say."""
    return wire.Reply(501, {}, b"{}")


def log(client: wire.Client, session: str) -> list[Any]:
    """The requests of the guest's log."""
    return []
