"""What can be done on a desktop: the actions and their arguments as types and JSON Schemas."""

from __future__ import annotations

import difflib
from typing import Annotated, Any, Literal

import msgspec

from gymctl.episode import Json
from gymctl.errors import EnvError, NotFound, UsageError

NAMES, ARGUMENTS = ("action", "tool", "tool_name"), ("args", "arguments", "tool_args")
"""How an action as JSON calls its name and its arguments."""

Coordinate = Annotated[float | str, msgspec.Meta(description='pixels (120), or a share ("50%"), from the left or top', examples=[40, 300, "50%"])]
Element = Annotated[
    str, msgspec.Meta(min_length=1, description="an element by its accessibility role and name, `push button=Save`, or by its role alone", examples=["text"])
]
Window = Annotated[str, msgspec.Meta(min_length=1, description="part of a window's title, or its class; it must mean one window", examples=["Mousepad"])]
Keys = Annotated[list[str] | str, msgspec.Meta(description="a key or a chord: Return, ctrl+s, [ctrl, shift, t]", examples=["Tab", "Escape", "ctrl+a"])]
Deadline = Annotated[float, msgspec.Meta(gt=0, le=600, description="how long it may take, in seconds", examples=[2])]
Path = Annotated[str, msgspec.Meta(min_length=1, description="a path", examples=["report.txt"])]
Text = Annotated[str, msgspec.Meta(min_length=1)]
Words = Annotated[list[Text], msgspec.Meta(min_length=1)]
Command = Annotated[Words | Text, msgspec.Meta(description="a shell command line, or a list of words for no shell", examples=["ls", "pwd"])]


class Action(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What every action takes: whether the observation shows the screen afterwards."""

    screenshot: bool | None = None


class Place(Action, frozen=True, kw_only=True):
    """Where an action points: x and y on the screen; x and y in a `window` (its middle without them); or the middle of an `element`, `in` a window."""

    x: Coordinate | None = None
    y: Coordinate | None = None
    window: Window | None = None
    element: Element | None = None
    within: Window | None = msgspec.field(default=None, name="in")

    def __post_init__(self) -> None:
        if (self.x is None) != (self.y is None):
            raise ValueError("x and y go together")
        if self.element is not None and (self.x is not None or self.window is not None):
            raise ValueError("give an element, or x and y, not both")
        if self.within is not None and self.element is None:
            raise ValueError("`in` says in which window an element is; a place in a window is `window` with x and y")
        for value in (self.x, self.y):
            if isinstance(value, str) and not _is_share(value):
                raise ValueError(f"{value!r} is neither pixels nor a share such as 50%")

    @property
    def named(self) -> bool:
        """Whether it says any place."""
        return self.x is not None or self.window is not None or self.element is not None


def _is_share(text: str) -> bool:
    number = text.removesuffix("%")
    return text.endswith("%") and number.replace(".", "", 1).isdigit() and float(number) <= 100


class Pointing(Place, frozen=True, kw_only=True):
    """An action at a place."""

    def __post_init__(self) -> None:
        Place.__post_init__(self)
        if not self.named:
            raise ValueError("give x and y, or an element, or a window")


class Move(Pointing, frozen=True, kw_only=True):
    """Move the pointer."""


class Click(Pointing, frozen=True, kw_only=True):
    """Click."""

    button: Literal["left", "right", "middle"] = "left"
    count: Annotated[int, msgspec.Meta(ge=1, le=3, description="2 is a double click, with the left button")] = 1

    def __post_init__(self) -> None:
        Pointing.__post_init__(self)
        if self.count > 1 and self.button != "left":
            raise ValueError("only the left button clicks more than once")


class Drag(Pointing, frozen=True, kw_only=True):
    """Press a button at one place and release it at another."""

    to: Place
    button: Literal["left", "right", "middle"] = "left"

    def __post_init__(self) -> None:
        Pointing.__post_init__(self)
        if not self.to.named or self.to.screenshot is not None:
            raise ValueError("`to` is a place: x and y, or an element, or a window")


Notches = Annotated[int, msgspec.Meta(ge=-100, le=100, description="notches of the wheel; down and right are positive", examples=[-3, 3])]


class Scroll(Place, frozen=True, kw_only=True):
    """Turn the wheel, at a place or where the pointer is."""

    dy: Notches = 0
    dx: Notches = 0


class ButtonsDown(Action, frozen=True, kw_only=True):
    """Press buttons and hold them."""

    buttons: Annotated[list[Literal["left", "right", "middle"]], msgspec.Meta(min_length=1)]


class ButtonsUp(ButtonsDown, frozen=True, kw_only=True):
    """Release buttons."""


class Type(Action, frozen=True, kw_only=True):
    """Type a text where the keyboard is."""

    text: str
    allow_untyped: Annotated[bool, msgspec.Meta(description="characters that no key makes are listed instead of being an error")] = False


class Key(Action, frozen=True, kw_only=True):
    """Press and release a key or a chord."""

    keys: Keys


class KeysDown(Action, frozen=True, kw_only=True):
    """Press keys and hold them."""

    keys: Keys


class KeysUp(Action, frozen=True, kw_only=True):
    """Release keys."""

    keys: Keys


class Wait(Action, frozen=True, kw_only=True):
    """Let time pass."""

    seconds: Annotated[float, msgspec.Meta(ge=0, le=600, examples=[0.1])]


class WaitChange(Action, frozen=True, kw_only=True):
    """Wait until the screen shows something else than when the last action began."""

    timeout: Deadline = 10


class WaitStable(Action, frozen=True, kw_only=True):
    """Wait until the screen has not changed for some seconds."""

    seconds: Annotated[float, msgspec.Meta(gt=0, le=60)] = 0.5
    timeout: Deadline = 20


class Screenshot(Action, frozen=True, kw_only=True):
    """A picture of the screen with its pointer: PNG, or JPEG where the path ends in .jpg."""

    path: Annotated[str, msgspec.Meta(min_length=1, description="where to write it (default: the instance's folder)", examples=["screen.png"])] | None = None
    fresh: Annotated[bool, msgspec.Meta(description="wait for a frame that shows something else than when the last action began")] = False
    timeout: Annotated[Deadline, msgspec.Meta(description="how long `fresh` waits, in seconds")] = 5
    quality: Annotated[int, msgspec.Meta(ge=1, le=100, description="of a JPEG")] | None = None
    width: Annotated[int, msgspec.Meta(ge=1, le=16384, description="with `height`: make it smaller")] | None = None
    height: Annotated[int, msgspec.Meta(ge=1, le=16384)] | None = None


class A11y(Action, frozen=True, kw_only=True):
    """The accessibility tree: an outline of what is shown (role, name, place), or all of it as OSWorld's XML."""

    within: Window | None = msgspec.field(default=None, name="in")
    xml: bool = False


class Windows(Action, frozen=True, kw_only=True):
    """The windows, the lowest first: title, class, place, which one has the keyboard."""


class Activate(Action, frozen=True, kw_only=True):
    """Bring a window to the front and give it the keyboard."""

    window: Window


class Close(Action, frozen=True, kw_only=True):
    """Ask a window to close."""

    window: Window


class Exec(Action, frozen=True, kw_only=True):
    """Run a command in the guest and wait for its end: exit code, output."""

    command: Command
    timeout: Deadline = 120
    cwd: Path | None = None
    input: str | None = None


class Launch(Action, frozen=True, kw_only=True):
    """Start a program in the guest's session and leave it running."""

    command: Command


class Put(Action, frozen=True, kw_only=True):
    """Copy a file into the guest."""

    src: Annotated[Path, msgspec.Meta(description="on the machine that runs gymctl")]
    dst: Annotated[Path, msgspec.Meta(description="in the guest")]


class Get(Action, frozen=True, kw_only=True):
    """Copy a file out of the guest."""

    src: Annotated[Path, msgspec.Meta(description="in the guest")]
    dst: Annotated[Path, msgspec.Meta(description="on the machine that runs gymctl (default: the same name, here)")] | None = None


class Clipboard(Action, frozen=True, kw_only=True):
    """What the clipboard holds; with a text, put that there."""

    text: str | None = None


class Actions(Action, frozen=True, kw_only=True):
    """Several actions, one after the other, as one step: of this list, or gym-anything's ({"mouse": ...}, {"keyboard": ...}, {"api_call": ...})."""

    actions: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1, max_length=1000, examples=[[{"mouse": {"left_click": [640, 360]}}]])]


class Fail(Action, frozen=True, kw_only=True):
    """Say that the task cannot be done; as the last action it fails every task that can."""


ACTIONS: dict[str, type[Action]] = {
    "move": Move, "click": Click, "drag": Drag, "scroll": Scroll, "buttons_down": ButtonsDown, "buttons_up": ButtonsUp,
    "type": Type, "key": Key, "keys_down": KeysDown, "keys_up": KeysUp, "wait": Wait, "wait-change": WaitChange, "wait-stable": WaitStable,
    "screenshot": Screenshot, "a11y": A11y, "windows": Windows, "activate": Activate, "close": Close,
    "exec": Exec, "launch": Launch, "put": Put, "get": Get, "clipboard": Clipboard, "actions": Actions, "fail": Fail,
}  # fmt: skip


def tools() -> list[Json]:
    """[{name, description, inputSchema}] of every action."""
    _, components = msgspec.json.schema_components(ACTIONS.values())
    listed = []
    for name, kind in ACTIONS.items():
        schema = {key: value for key, value in components[kind.__name__].items() if key not in ("title", "description")}
        if kind is Drag:
            place = {key: value for key, value in components["Place"].items() if key != "title"}
            place["properties"] = {key: value for key, value in place["properties"].items() if key != "screenshot"}
            schema = {**schema, "properties": {**schema["properties"], "to": place}}
        listed.append({"name": name, "description": kind.__doc__, "inputSchema": schema})
    return listed


def known(name: str) -> type[Action]:
    """An action's type by its name; NotFound names the near ones."""
    if name not in ACTIONS:
        near = difflib.get_close_matches(name, ACTIONS, n=1)
        raise NotFound(f"no action {name!r}{f'; did you mean {near[0]}?' if near else ''}", hint=f"actions: {', '.join(ACTIONS)}")
    return ACTIONS[name]


def fields(name: str) -> tuple[str, ...]:
    """The names of an action's arguments, as JSON has them."""
    return known(name).__struct_encode_fields__


def read(name: str, args: Json) -> Action:
    """An action as its type; NotFound with the near ones, EnvError when the arguments are wrong."""
    try:
        return msgspec.convert(args, known(name))
    except msgspec.ValidationError as error:
        raise EnvError(f"{name}: {error}", hint=f"fields: {', '.join(fields(name))}", type="ValidationError") from error


def named(document: Any) -> tuple[str, Json]:
    """(name, arguments) of one action as JSON: {action, args}, the arguments beside `action`, or what an api_call says; UsageError."""
    if isinstance(document, dict) and isinstance(call := document.get("api_call"), dict):
        document = {"action": call.get("name"), "args": call.get("args", {})}
    name = next((document[key] for key in NAMES if key in document), None) if isinstance(document, dict) else None
    if not isinstance(name, str) or not name:
        raise UsageError(f"{document!r:.200} is no action", hint='{"action": "click", "args": {"x": 10, "y": 20}}, or {"mouse": {"left_click": [10, 20]}}')
    beside = {key: value for key, value in document.items() if key not in (*NAMES, *ARGUMENTS, "id")}
    args = next((document[key] for key in ARGUMENTS if key in document), beside)
    if not isinstance(args, dict):
        raise UsageError("`args` must be an object")
    if name == "wait" and "time" in args:  # gym-anything's other word for it
        args = {"seconds" if key == "time" else key: value for key, value in args.items()}
    return name, args
