"""Actions done: each found, sent and answered by the guest's server, with nothing in between that nobody asked for."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from xml.etree import ElementTree

from gymctl import trees, wire
from gymctl.desktop import gestures, screen, targets, transfer
from gymctl.desktop.gestures import Action
from gymctl.episode import Json
from gymctl.errors import EnvError, GymctlError
from gymctl.runner import Displays

if TYPE_CHECKING:
    from gymctl.instances import Instance

INPUT_TIMEOUT = 120.0
LONGEST_WAIT = 60.0
"""Seconds that the guest waits in one of its actions."""
CLICKS = {("left", 1): "left_click", ("right", 1): "right_click", ("middle", 1): "middle_click", ("left", 2): "double_click", ("left", 3): "triple_click"}
UNTYPED_TOLD = 10
PROGRAM = re.compile(r"[\w./+-]+")


class Desk(wire.Client):
    """A connection to the server in the guest, and what of its instance an action needs to know."""

    def __init__(self, instance: Instance) -> None:
        super().__init__(instance.url, name=instance.name, headers={"Authorization": f"Bearer {instance.token}"})
        self.instance = instance
        self.steps = instance.directory / "steps"
        self.settle = float(instance.plan.get("settle") or 0)
        self._open = contextlib.ExitStack()
        self._console: Any = None

    def console(self) -> Any:
        """Its runner's own screen and input, where it was started with --fast-io on one that has them (gymctl.vm.console), opened once; else None."""
        module = self.instance.module() if self.instance.plan.get("fast_io") else None
        if self._console is None and isinstance(module, Displays):
            self._console = self._open.enter_context(module.display(self.instance.handle or {}, self.instance.token))
        return self._console

    def close(self) -> None:
        """Close the connection, and let go of what was pressed by fast I/O."""
        self._open.close()
        self._console = None
        super().close()

    def send(self, method: str, path: str, document: Any = None, *, timeout: float = 60, data: bytes | BinaryIO | None = None) -> wire.Reply:
        """As any client; EnvError when the guest refuses the token that the record has."""
        reply = super().send(method, path, document, timeout=timeout, data=data)
        if reply.status == 401:
            hint = f"something else listens there, or was started with another GUEST_TOKEN: `gymctl reset {self.name}` starts it anew"
            raise EnvError(f"wrong secret: {self.host}:{self.port} refuses the token of {self.name}", hint=hint, type="Unauthorized", status=401)
        return reply


@dataclass(slots=True)
class Done:
    """What came of an action: JSON, and the files it wrote on this machine."""

    value: Json = field(default_factory=dict)
    files: list[str] = field(default_factory=list)


def do(desk: Desk, action: Action) -> Done:
    """Do an action; then wait for quiet where the recipe asks for it, and take the screenshot that was asked for. EnvError, Unavailable."""
    done = DO[type(action)](desk, action)
    quiet = desk.settle if desk.settle and isinstance(action, CHANGING) else None
    shown = done.value["results"][-1] if isinstance(action, gestures.Actions) else done.value
    if action.screenshot and "screen" not in shown:
        done.value["screen"], path = screen.keep(desk, desk.steps, stable=quiet)
        done.files.append(path)
    elif quiet:
        late = screen.take(desk, look=True, stable=quiet).late()
        done.value |= {"notes": [late]} if late else {}
    return done


def _input(desk: Desk, *documents: Json, seconds: float = 0, allow_untyped: bool = False) -> Json:
    """Send actions in gym-anything's words; what is still held, and what could not be typed (an error unless it is allowed)."""
    console = desk.console()
    answer = console.act(documents) if console else desk.call("/input", list(documents), timeout=INPUT_TIMEOUT + seconds)
    untyped = answer["untyped"]
    if untyped and not allow_untyped:
        raise _not_typed(untyped)
    return {name: answer[name] for name in ("untyped", "held") if answer[name]}


def _not_typed(untyped: list[Json]) -> EnvError:
    told = ", ".join(f"{u['code']} ({u['reason']})" for u in untyped[:UNTYPED_TOLD])
    more = f" and {len(untyped) - UNTYPED_TOLD} more" if len(untyped) > UNTYPED_TOLD else ""
    hint = "all the others are typed; `clipboard TEXT` and `key ctrl+v` take any character, allow_untyped:=true lists what is left out"
    return EnvError(wire.printable(f"{len(untyped)} character{'s' if len(untyped) > 1 else ''} could not be typed: {told}{more}"), hint=hint, type="untyped")


def _move(desk: Desk, action: gestures.Move) -> Done:
    found = targets.find(desk, action)
    return Done({**found.json(), **_input(desk, {"mouse": {"move": found.point}})})


def _click(desk: Desk, action: gestures.Click) -> Done:
    found = targets.find(desk, action)
    return Done({**found.json(), **_input(desk, {"mouse": {CLICKS[action.button, action.count]: found.point}})})


def _drag(desk: Desk, action: gestures.Drag) -> Done:
    start, end = targets.find(desk, action), targets.find(desk, action.to)
    held = _input(desk, {"mouse": {f"{action.button}_click_drag": [start.point, end.point]}})
    return Done({**start.json(), "to": end.json(), **held})


def _scroll(desk: Desk, action: gestures.Scroll) -> Done:
    found = targets.find(desk, action) if action.named else None
    turns = {name: notches for name, notches in (("scroll", action.dy), ("scroll_x", action.dx)) if notches}
    mouse = {**({"move": found.point} if found else {}), **turns}
    return Done({**(found.json() if found else {}), **(_input(desk, {"mouse": mouse}) if mouse else {})})


def _buttons(desk: Desk, action: gestures.ButtonsDown) -> Done:
    way = "up" if isinstance(action, gestures.ButtonsUp) else "down"
    return Done(_input(desk, {"mouse": {"buttons": {f"{button}_{way}": True for button in action.buttons}}}))


def _type(desk: Desk, action: gestures.Type) -> Done:
    seconds = len(action.text) / 20
    return Done(_input(desk, {"keyboard": {"text": action.text}}, seconds=seconds, allow_untyped=action.allow_untyped))


def _keys(word: str) -> Callable[[Desk, Any], Done]:
    return lambda desk, action: Done(_input(desk, {"keyboard": {word: action.keys}}))


def _wait(desk: Desk, action: gestures.Wait) -> Done:
    whole, rest = divmod(action.seconds, LONGEST_WAIT)
    pauses = [*[LONGEST_WAIT] * int(whole), rest]
    return Done(_input(desk, *({"action": "wait", "seconds": pause} for pause in pauses), seconds=action.seconds))


def _wait_change(desk: Desk, action: gestures.WaitChange) -> Done:
    return _looked(screen.take(desk, look=True, since="action", timeout=action.timeout))


def _wait_stable(desk: Desk, action: gestures.WaitStable) -> Done:
    return _looked(screen.take(desk, look=True, stable=action.seconds, timeout=max(action.timeout, action.seconds)))


def _looked(frame: screen.Frame) -> Done:
    if frame.late():
        raise EnvError(frame.late(), hint="timeout:=SECONDS waits longer; `screenshot` shows what there is", type="timeout")
    return Done({"sequence": frame.sequence, "notes": list(frame.notes)})


def _screenshot(desk: Desk, action: gestures.Screenshot) -> Done:
    waiting = {"since": "action", "timeout": action.timeout} if action.fresh else {}
    shown, path = screen.keep(desk, desk.steps, action.path, **waiting, quality=action.quality, width=action.width, height=action.height)
    return Done({"screen": shown}, [path])


def _a11y(desk: Desk, action: gestures.A11y) -> Done:
    root, cut = targets.tree(desk)
    text = ElementTree.tostring(root, encoding="unicode") if action.xml else targets.outline(root, action.within)
    return Done({"a11y": text, **({"cut": cut} if cut else {})})


def _windows(desk: Desk, action: gestures.Windows) -> Done:
    return Done({"windows": targets.windows(desk)})


def _on_window(path: str) -> Callable[[Desk, Any], Done]:
    def act(desk: Desk, action: gestures.Activate | gestures.Close) -> Done:
        found, _ = targets.window(desk, action.window)
        reply = desk.send("POST", path, {"window_name": found["title"], "strict": True})
        if reply.status >= 400:
            raise wire.error_of(reply, desk.name)
        return Done({"window": found["title"]})

    return act


def _exec(desk: Desk, action: gestures.Exec) -> Done:
    asked = {"command": action.command, "shell": isinstance(action.command, str), "timeout": action.timeout}
    further = {name: value for name, value in (("cwd", action.cwd), ("input", action.input)) if value is not None}
    answer = desk.call("/execute", {**asked, **further}, timeout=action.timeout + screen.SLACK)
    ended = {"exit": answer["returncode"], "stdout": answer["stdout"], "stderr": answer["stderr"]}
    return Done({**ended, "timed_out": answer["timed_out"], "seconds": answer["seconds"]})


def _launch(desk: Desk, action: gestures.Launch) -> Done:
    line = isinstance(action.command, str) and not PROGRAM.fullmatch(action.command)  # a program alone needs no shell, which would not say that it is not there
    command = action.command if line or not isinstance(action.command, str) else [action.command]
    reply = desk.send("POST", "/setup/launch", {"command": command, "shell": line})
    if reply.status >= 400:
        raise wire.error_of(reply, desk.name)
    return Done({"pid": int(reply.headers["x-pid"])})


def _put(desk: Desk, action: gestures.Put) -> Done:
    reply = transfer.put(desk, action.src, action.dst)
    if reply.status >= 400:
        raise wire.error_of(reply, desk.name)
    return Done({"path": action.dst, "bytes": reply.json()["size"]})


def _get(desk: Desk, action: gestures.Get) -> Done:
    reply = desk.send("GET", transfer.place(action.src), timeout=INPUT_TIMEOUT)
    if reply.status >= 400:
        raise wire.error_of(reply, desk.name)
    target = Path(action.dst or Path(action.src).name).absolute()
    target = target / Path(action.src).name if target.is_dir() else target
    given = reply.headers.get("x-file-mode", "")
    mode = int(given, 8) & 0o777 if re.fullmatch("[0-7]{1,5}", given) else 0o644
    try:
        with trees.arriving(target, tree=False) as made:
            made.write_bytes(reply.body)
            made.chmod(mode)
    except OSError as error:
        raise EnvError(f"cannot write {target}: {error.strerror}", type="file") from error
    return Done({"path": str(target), "bytes": len(reply.body)}, [str(target)])


def _clipboard(desk: Desk, action: gestures.Clipboard) -> Done:
    if action.text is None:
        return Done({"text": desk.call("/clipboard")["text"]})
    desk.call("/clipboard", {"text": action.text})
    return Done({"text": action.text})


def _actions(desk: Desk, action: gestures.Actions) -> Done:
    """All are read before the first is done; neighbors in gym-anything's words are sent together."""
    steps = [_step(document, number) for number, document in enumerate(action.actions)]
    done, results, number = Done(), [], 0
    while number < len(steps):
        together = 0
        while number + together < len(steps) and isinstance(steps[number + together], dict):
            together += 1
        try:
            one = Done(_input(desk, *steps[number : number + together])) if together else DO[type(steps[number])](desk, steps[number])
        except GymctlError as error:
            raise _at(error, number, together, len(steps)) from error
        results += [one.value, *({} for _ in range(together - 1))]
        done.files += one.files
        done.value |= {"screen": one.value["screen"]} if "screen" in one.value else {}
        number += max(together, 1)
    done.value["results"] = results
    return done


def _step(document: Json, number: int) -> Any:
    """One of a list: what is sent as it is (gym-anything's mouse and keyboard), or an action of ours."""
    if "voice" in document:
        raise EnvError(f"action {number}: there is no microphone here", type="ValidationError")
    if "mouse" in document or "keyboard" in document:
        return document
    try:
        name, args = gestures.named(document)
        action = gestures.read(name, args)
    except GymctlError as error:
        raise EnvError(f"action {number}: {error.message}", hint=error.hint, type="ValidationError") from error
    if isinstance(action, gestures.Actions):
        raise EnvError(f"action {number}: a list holds no lists", type="ValidationError")
    return action


def _at(error: GymctlError, number: int, together: int, total: int) -> GymctlError:
    """The same failure, with which of the list it was (the guest counts within what was sent together)."""
    if total > 1 and isinstance(error, EnvError):
        which = f"{number} to {number + together - 1}" if together > 1 else str(number)
        error.message = f"action {which} of 0 to {total - 1}: {error.message}"
    return error


CHANGING = (
    gestures.Place, gestures.ButtonsDown, gestures.Type, gestures.Key, gestures.KeysDown, gestures.KeysUp, gestures.Activate, gestures.Close,
    gestures.Launch, gestures.Actions,
)  # fmt: skip
"""After these a recipe's `settle` is waited for."""
DO: dict[type[Action], Callable[[Desk, Any], Done]] = {
    gestures.Move: _move, gestures.Click: _click, gestures.Drag: _drag, gestures.Scroll: _scroll, gestures.ButtonsDown: _buttons,
    gestures.ButtonsUp: _buttons, gestures.Type: _type, gestures.Key: _keys("keys"), gestures.KeysDown: _keys("keys_down"),
    gestures.KeysUp: _keys("keys_up"), gestures.Wait: _wait, gestures.WaitChange: _wait_change, gestures.WaitStable: _wait_stable,
    gestures.Screenshot: _screenshot, gestures.A11y: _a11y, gestures.Windows: _windows, gestures.Activate: _on_window("/setup/activate_window"),
    gestures.Close: _on_window("/setup/close_window"), gestures.Exec: _exec, gestures.Launch: _launch, gestures.Put: _put, gestures.Get: _get,
    gestures.Clipboard: _clipboard, gestures.Actions: _actions, gestures.Fail: lambda desk, action: Done(),
}  # fmt: skip
