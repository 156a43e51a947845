"""What can be done in a browser: the gestures, their arguments as types and JSON Schemas, and their words on a command line."""

from __future__ import annotations

import difflib
import shlex
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from gymctl.episode import Json
from gymctl.errors import EnvError, NotFound, UsageError

FIND_TIMEOUT = 3.0
WAIT_TIMEOUT = 10.0
LOAD_TIMEOUT = 30.0
NUMBERS = frozenset({"x", "y", "to_x", "to_y", "dx", "dy"})

Selector = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        description='an element: CSS (#save), text=Save, role=button[name="Save"]; " >> nth=0" behind it takes the first of several',
        examples=["a >> nth=0", "a >> nth=1", "button >> nth=0", "button >> nth=1", "input >> nth=0", "h1"],
    ),
]
Coordinate = Annotated[float, msgspec.Meta(ge=0, le=10_000, description="CSS pixels from the left or top of the visible page", examples=[20, 200, 640])]
Distance = Annotated[float, msgspec.Meta(ge=-100_000, le=100_000, description="CSS pixels; down and right are positive", examples=[-400, 400])]
Keys = Annotated[str, msgspec.Meta(min_length=1, description="a key or a chord: Enter, ArrowDown, Control+S", examples=["Tab", "Enter", "Escape"])]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=120, description="how long it may take, in seconds", examples=[2])]


class Gesture(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What every gesture takes: a deadline, and whether the observation shows the page afterwards."""

    FORMS: ClassVar[tuple[tuple[str, ...], ...]] = ((),)
    PATIENCE: ClassVar[float] = FIND_TIMEOUT

    timeout: Seconds | None = None
    snapshot: bool = False
    screenshot: bool = False

    @property
    def seconds(self) -> float:
        """How long it may take."""
        return self.timeout or self.PATIENCE


class Goto(Gesture, frozen=True, kw_only=True):
    """Open a page of the website: a path, or a whole URL of it."""

    FORMS: ClassVar = (("url",),)
    PATIENCE: ClassVar = LOAD_TIMEOUT
    url: Annotated[str, msgspec.Meta(min_length=1, description="a path (/settings) or a URL of this website", examples=["/"])]


class Click(Gesture, frozen=True, kw_only=True):
    """Click an element, or a point of the visible page."""

    FORMS: ClassVar = (("x", "y"), ("selector",))
    selector: Selector | None = None
    x: Coordinate | None = None
    y: Coordinate | None = None
    button: Literal["left", "right", "middle"] = "left"
    count: Annotated[int, msgspec.Meta(ge=1, le=3, description="2 is a double click")] = 1

    def __post_init__(self) -> None:
        _one_way(self, ("selector",), ("x", "y"))


class Fill(Gesture, frozen=True, kw_only=True):
    """Replace what a field holds."""

    FORMS: ClassVar = (("selector", "value"),)
    selector: Selector
    value: str


class Type(Gesture, frozen=True, kw_only=True):
    """Press the keys of a text one after the other, in an element or where the focus is."""

    FORMS: ClassVar = (("text",), ("selector", "text"))
    text: str
    selector: Selector | None = None


class Press(Gesture, frozen=True, kw_only=True):
    """Press a key or a chord, in an element or where the focus is."""

    FORMS: ClassVar = (("key",), ("selector", "key"))
    key: Keys
    selector: Selector | None = None


class Select(Gesture, frozen=True, kw_only=True):
    """Choose an option of a list by its value or its label."""

    FORMS: ClassVar = (("selector", "value"),)
    selector: Selector
    value: str


class Drag(Gesture, frozen=True, kw_only=True):
    """Drag from an element or a point to another element or point."""

    FORMS: ClassVar = (("x", "y", "to_x", "to_y"), ("selector", "to_x", "to_y"), ("selector", "target"))
    selector: Selector | None = None
    x: Coordinate | None = None
    y: Coordinate | None = None
    target: Selector | None = None
    to_x: Coordinate | None = None
    to_y: Coordinate | None = None

    def __post_init__(self) -> None:
        _one_way(self, ("selector",), ("x", "y"))
        _one_way(self, ("target",), ("to_x", "to_y"))


class Scroll(Gesture, frozen=True, kw_only=True):
    """Scroll the page or an element by a distance, or bring an element into view."""

    FORMS: ClassVar = (("dy",), ("dx", "dy"), ("selector", "dy"), ("selector",))
    selector: Selector | None = None
    dx: Distance = 0
    dy: Distance = 0


class Back(Gesture, frozen=True, kw_only=True):
    """Go to the page before, as the browser's button does."""

    PATIENCE: ClassVar = LOAD_TIMEOUT


class WaitFor(Gesture, frozen=True, kw_only=True):
    """Wait until an element is to be seen, or no more."""

    FORMS: ClassVar = (("selector",), ("selector", "state"))
    PATIENCE: ClassVar = WAIT_TIMEOUT
    selector: Selector
    state: Literal["visible", "hidden"] = "visible"


class Upload(Gesture, frozen=True, kw_only=True):
    """Choose files in a file field."""

    FORMS: ClassVar = (("selector", "files"),)
    selector: Selector
    files: Annotated[list[str], msgspec.Meta(min_length=1, description="paths on the machine that runs gymctl")]


class Snapshot(Gesture, frozen=True, kw_only=True):
    """The page's accessibility tree as text: roles, names, values."""

    FORMS: ClassVar = ((), ("selector",))
    selector: Selector | None = None


class Screenshot(Gesture, frozen=True, kw_only=True):
    """A picture of the page: PNG, or JPEG where the path ends in .jpg."""

    FORMS: ClassVar = ((), ("path",))
    path: Annotated[str, msgspec.Meta(min_length=1, description="where to write it (default: the instance's folder)", examples=["page.png"])] | None = None
    full_page: bool = False
    selector: Selector | None = None


GESTURES: dict[str, type[Gesture]] = {
    "goto": Goto, "click": Click, "fill": Fill, "type": Type, "press": Press, "select": Select, "drag": Drag, "scroll": Scroll,
    "back": Back, "wait-for": WaitFor, "upload": Upload, "snapshot": Snapshot, "screenshot": Screenshot,
}  # fmt: skip


def _one_way(gesture: Gesture, *ways: tuple[str, ...]) -> None:
    """ValueError unless exactly one of the ways to say a place is used, and whole."""
    used = [way for way in ways if any(getattr(gesture, name) is not None for name in way)]
    if len(used) != 1 or any(getattr(gesture, name) is None for name in used[0]):
        raise ValueError(f"give {' or '.join(' and '.join(way) for way in ways)}")


def tools() -> list[Json]:
    """[{name, description, inputSchema}] of every gesture."""
    _, components = msgspec.json.schema_components(GESTURES.values())
    listed = []
    for name, kind in GESTURES.items():
        schema = {key: value for key, value in components[kind.__name__].items() if key not in ("title", "description")}
        listed.append({"name": name, "description": kind.__doc__, "inputSchema": schema})
    return listed


def read(name: str, args: Json) -> Gesture:
    """An action as a gesture; NotFound with the near ones, EnvError when the arguments are wrong."""
    try:
        return msgspec.convert(args, known(name))
    except msgspec.ValidationError as error:
        raise EnvError(f"{name}: {error}", hint=f"`{usage(name)}`; fields: {', '.join(known(name).__struct_fields__)}", type="ValidationError") from error


def known(name: str) -> type[Gesture]:
    """A gesture's type by its name; NotFound names the near ones."""
    if name not in GESTURES:
        near = difflib.get_close_matches(name, GESTURES, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise NotFound(f"no action {name!r}{meant}", hint=f"actions: {', '.join(GESTURES)}; `state [TABLE]` reads the rows")
    return GESTURES[name]


def usage(name: str) -> str:
    """`click X Y | click SELECTOR`"""
    return " | ".join(" ".join((name, *(word.upper() for word in form))) for form in known(name).FORMS)


def words(name: str, given: list[str], options: Json) -> Json:
    """The arguments that positional words stand for, with `options` by name; UsageError shows the ways to write it."""
    kind = known(name)
    for form in kind.FORMS:
        made = _fitted(form, given)
        if made is not None:
            return {**made, **options}
    raise UsageError(f"`{shlex.join((name, *given))}` cannot be read", hint=f"write: {usage(name)}")


def fits(name: str, given: list[str]) -> bool:
    """Whether positional words are one of an action's forms."""
    return any(_fitted(form, given) is not None for form in known(name).FORMS)


def _fitted(form: tuple[str, ...], given: list[str]) -> Json | None:
    """{field: value} when the words fit a form: as many as it has, numbers where it has numbers."""
    if form[-1:] == ("files",) and len(given) >= len(form):
        return {form[0]: given[0], "files": given[1:]}
    if len(form) == 2 and len(given) == 1 and set(form) <= NUMBERS and given[0].count(",") == 1:
        given = given[0].split(",")
    if len(form) != len(given):
        return None
    made: dict[str, Any] = {}
    for field, word in zip(form, given, strict=True):
        made[field] = _number(word) if field in NUMBERS else word
        if made[field] is None:
            return None
    return made


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None
