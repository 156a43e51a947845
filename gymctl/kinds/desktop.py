"""Kind `desktop`: a machine with a screen, acted on through the server inside it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gymctl import wire
from gymctl.desktop import acting, gestures, judge, screen, setup, viewing, vnc, words
from gymctl.desktop.acting import Desk
from gymctl.episode import Action, Json, Observation
from gymctl.errors import Unavailable, Unsupported, UsageError
from gymctl.proc import Result

if TYPE_CHECKING:
    from gymctl.instances import Instance
    from gymctl.recipe import SetUp

SECRETS = {"GUEST_TOKEN": 24, "VNC_PASSWORD": 6}
"""{variable: bytes of randomness}: VNC takes eight characters."""


def connect(instance: Instance) -> Desk:
    """A connection to the server inside."""
    return Desk(instance)


def ready(client: wire.Client, path: str, timeout: float, alive: Callable[[], str], told: Callable[[str], None]) -> None:
    """Wait until its desktop has painted."""
    wire.wait(client, path, timeout, alive, told)


def shell(client: wire.Client, command: str, timeout: float) -> Result:
    """Run a shell command line in the guest."""
    answer = client.call("/execute", {"command": command, "shell": True, "timeout": timeout}, timeout=timeout + 10)
    return Result(answer["returncode"], answer["stdout"], answer["stderr"], bool(answer.get("timed_out")))


def start_recording(client: wire.Client) -> None:
    """Film the screen from now on; EnvError where the guest cannot."""
    client.call("/start_recording", {}, timeout=30)


def end_recording(client: wire.Client) -> bytes:
    """End the film: an MP4, as large as wire.MAX_ANSWER at most."""
    reply = client.send("POST", "/end_recording", {}, timeout=45)
    if reply.status >= 400:
        raise wire.error_of(reply, client.name)
    return reply.body


def prepare(client: wire.Client, steps: list[SetUp], told: Callable[[str], None], *, disk_is_ready: bool = False) -> None:
    """Do a task's setup; `disk_is_ready`: a checkpoint of the disk was started from. EnvError names the step."""
    setup.prepare(client, steps, told, disk_is_ready=disk_is_ready)


def check_session(client: Desk, session: str) -> None:
    """UsageError for another session than the instance's own: there is one screen."""
    if session != client.instance.session:
        hint = f"leave --session out; `gymctl run {client.instance.recipe} --name ANOTHER` starts a machine of its own"
        raise UsageError(f"{client.name} is one machine, and so one session: {client.instance.session}, not {session!r}", hint=hint)


def reset(client: Desk, session: str, *, state: str | None = None, tools: list[str] | None = None, seed: int | None = None) -> Json:
    """Release every key and button, stop commands and a recording."""
    check_session(client, session)
    client.call("/reset", {})
    return {}


def tools(client: Desk, session: str) -> list[Json]:
    """What can be done: [{name, description, inputSchema}]."""
    check_session(client, session)
    return gestures.tools()


def parse(line: list[str]) -> Action:
    """`click 100 200`, `click 'push button=Save' in Notes screenshot:=true`, `type TEXT` as an action; UsageError."""
    name, *rest = line
    gestures.known(name)
    return Action(name, words.parse(name, rest))


def read(document: Any) -> Action:
    """{action, args, id?}, gym-anything's JSON as it is, or a list of either (one step) as an action; UsageError."""
    identity = document.get("id") if isinstance(document, dict) else None
    if identity is not None and (isinstance(identity, bool) or not isinstance(identity, str | int)):
        raise UsageError("`id` must be a text or a whole number")
    if isinstance(document, list):
        return Action("actions", {"actions": document})
    if isinstance(document, dict) and any(key in document for key in ("mouse", "keyboard", "voice")):
        return Action("actions", {"actions": [{key: value for key, value in document.items() if key != "id"}]}, identity)
    if isinstance(document, dict) and set(document) - {"id"} == {"actions"}:
        return Action("actions", {"actions": document["actions"]}, identity)
    name, args = gestures.named(document)
    return Action(name, args, identity)


def step(client: Desk, session: str, action: Action) -> Observation:
    """Act: what it brought, with `screenshot` also {screen: {path, resolution, sequence, age, notes}}."""
    check_session(client, session)
    began = time.monotonic()
    done = acting.do(client, gestures.read(action.name, action.args))
    return Observation(done.value, tuple(done.files), elapsed=time.monotonic() - began)


def picture(client: Desk) -> Json:
    """The screen for one who is fast: {image: PIL.Image (RGB), format, mode, resolution, sequence, age, notes}; no file is written."""
    console = client.console()
    shown, frame = screen.pushed(console) if console else screen.image(client)
    return {"image": shown, "format": "pil", "mode": shown.mode, **frame.json()}


def verify(client: Desk, session: str, checks: list[Json], timeout: float) -> wire.Reply:
    """What the evaluators say, whatever that is."""
    return judge.verify(client, session, checks, timeout)


def answering(instance: Instance) -> str:
    """What of a running machine still answers, when the server in it does not, and how to go on; "" when it does."""
    probe = wire.Client(instance.url)
    try:
        probe.send("GET", "/platform", timeout=PROBE_TIMEOUT)
        return ""
    except Unavailable:
        pass  # as it was said
    finally:
        probe.close()
    try:
        where = vnc.address(instance.directory, vnc.number(instance.directory))
        vnc.check(where, instance.name)
        display = f"VNC greets at 127.0.0.1:{where.port}, so its X server lives"
    except (Unavailable, Unsupported) as error:
        display = error.message
    return f"it runs; {display}; the server in it does not answer; `gymctl reset {instance.name}` starts it anew"


def watch(instance: Instance) -> Json:
    """Where a person watches it, and takes part: {url, port, vnc, password}; the URL is good once. Unavailable, Unsupported."""
    return viewing.show(instance)


PROBE_TIMEOUT = 2.0
CONTROL = {"reset": "reset", "setup": "setup", "start_recording": "recording", "end_recording": "recording"}
"""{first part of a path: what such a call is named}: they put the machine into another state, or end what watches it."""


def log(client: Desk, session: str) -> list[Any]:
    """The requests of the guest's log, oldest first; one that controls the machine and was not gymctl's also says its `call`."""
    check_session(client, session)
    rows = client.call("/log")["log"]
    return [{**row, "call": call} if (call := _control(row)) else row for row in rows]


def _control(row: Json) -> str:
    first = row["path"].removeprefix("/api").split("/")[1]
    ours = row["caller"] == wire.CALLER or row["method"] == "GET" or row["status"] in (401, 403, 404, 405)
    return "" if ours else CONTROL.get(first, "")
