"""YAML as data with line numbers: YAML 1.2 scalars, duplicate keys and anchor bombs refused, every fault of a document at once."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from gymctl.errors import RecipeError

MAX_BYTES = 2_000_000
MAX_NODES = 200_000
MAX_DEPTH = 60
Place = tuple[str | int, ...]
T = TypeVar("T")

_TYPE_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "list", dict: "mapping", type(None): "null"}


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # chosen at run time: libyaml may be missing
    """The YAML 1.2 core schema: `no`, `on`, `1:30`, `0755` and dates are text."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  (PyYAML's own protocol)


for _tag, _pattern, _first in (
    ("null", r"^(?:~|null|Null|NULL|)$", [*"~nN", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"^[-+]?(?:0|[1-9][0-9]*)$|^0o[0-7]+$|^0x[0-9a-fA-F]+$", list("-+0123456789")),
    ("float", r"^[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$|^[-+]?\.(?:inf|Inf|INF)$|^\.(?:nan|NaN|NAN)$", list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), _first)


class Document:
    """A file's data and where each part of it stands; problems gather here and are raised together."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.lines: dict[Place, int] = {}
        self.problems: list[tuple[int, str]] = []
        self._count = 0
        self.data = self._load(text)

    def line(self, place: Place) -> int:
        """The line of a place, or of the nearest thing around it that has one."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)

    def problem(self, place: Place, message: str) -> None:
        """Note a fault at a place."""
        dotted = ".".join(str(part) if str(part).isprintable() else ascii(part) for part in place)
        entry = (self.line(place), f"{dotted}: {message}" if dotted else message)
        if entry not in self.problems:
            self.problems.append(entry)

    def check(self) -> None:
        """RecipeError with every fault noted so far, one a line with its file and line number."""
        if self.problems:
            raise RecipeError("\n".join(f"{self.path}:{line}: {message}" for line, message in sorted(self.problems)))

    def convert(self, kind: type[T]) -> T:
        """The data as `kind`; RecipeError with every fault."""
        try:
            value = msgspec.convert(self.data, kind)
        except msgspec.ValidationError as error:
            self._list_faults(kind, str(error))
            self.check()
            raise AssertionError("check raised nothing") from error
        self.check()
        return value

    def _load(self, text: str) -> Any:
        if len(text) > MAX_BYTES:
            raise RecipeError(f"{self.path}: larger than {MAX_BYTES:,} bytes")
        try:
            node = yaml.compose(text, Loader=_Loader)
            data = None if node is None else self._value(node, (), frozenset())
        except yaml.MarkedYAMLError as error:
            where = error.problem_mark.line + 1 if error.problem_mark else 1
            raise RecipeError(f"{self.path}:{where}: {error.problem or error.context or 'not YAML'}") from error
        except yaml.YAMLError as error:
            raise RecipeError(f"{self.path}: not YAML: {' '.join(str(error).split())}") from error
        except RecursionError as error:
            raise RecipeError(f"{self.path}: nested deeper than {MAX_DEPTH} levels") from error
        if not isinstance(data, dict):
            self.problem((), f"expected a mapping, got {_TYPE_NAMES[type(data)]}")
            self.check()
        return data

    def _value(self, node: yaml.Node, place: Place, above: frozenset[int]) -> Any:
        self._count += 1
        if self._count > MAX_NODES or len(place) > MAX_DEPTH or id(node) in above:
            raise RecipeError(f"{self.path}:{node.start_mark.line + 1}: too large once its aliases are expanded, or nested without end")
        self.lines.setdefault(place, node.start_mark.line + 1)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, place)
        above |= {id(node)}
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, (*place, index), above) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, place, above)
        raise AssertionError(node)

    def _mapping(self, node: yaml.MappingNode, place: Place, above: frozenset[int]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = self._scalar(key_node, place) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                shown = _TYPE_NAMES.get(type(key), "this")
                self.problems.append((line, f"a key must be a string, got {shown}; quote it"))
                continue
            if key in made:
                self.problems.append((line, f"{'.'.join(map(str, (*place, key)))}: given twice, first at line {self.lines[(*place, key)]}"))
                continue
            self.lines[(*place, key)] = line
            made[key] = self._value(value_node, (*place, key), above)
        return made

    def _scalar(self, node: yaml.ScalarNode, place: Place) -> Any:
        text, tag = node.value, node.tag.rpartition(":")[2]
        try:
            if tag == "null":
                return None
            if tag == "bool":
                return text.lower() == "true"
            if tag == "int":
                return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
            if tag == "float":
                return self._float(text, place)
        except ValueError as error:
            self.problem(place, f"{str(error).partition(':')[0]}")
            return None
        if tag != "str":
            self.problem(place, f"the tag {node.tag} is not known here")
        return str(text)

    def _float(self, text: str, place: Place) -> float:
        number = float(re.sub(r"\.(inf|nan)$", r"\1", text.lower()))
        if not math.isfinite(number):  # no time, no size and no check is one, and JSON has none
            self.problem(place, f"expected a finite number, got {text}")
        return number

    def _list_faults(self, kind: type, first: str) -> None:
        import jsonschema  # only a faulty file pays for it

        schema = msgspec.json.schema(kind)
        for error in jsonschema.Draft202012Validator(schema).iter_errors(self.data):
            for place, message in _explain(error):
                self.problem(place, message)
        if not self.problems:  # what JSON Schema lets pass, as 1984.0 for an integer
            message, _, at = first.partition(" - at `$")
            self.problem(tuple(int(i) if i else n for n, i in re.findall(r"\.(\w+)|\[(\d+)\]", at)), message)


def load(path: Path) -> Document:
    """Read a YAML file; RecipeError names the line of what is no YAML."""
    return Document(path, read(path))


def read(path: Path) -> str:
    """The text of a file; RecipeError when it is none."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path}: not UTF-8 at byte {error.start}") from error
    except OSError as error:
        raise RecipeError(f"{path}: {error.strerror}") from error


def near(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, or nothing."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {found[0]}?" if found else ""


def _explain(error: Any) -> Iterable[tuple[Place, str]]:
    """A jsonschema error as (place, message for people); unions are explained by their nearest branch."""
    place: Place = tuple(error.absolute_path)
    if error.validator in ("anyOf", "oneOf") and error.context:
        deepest = max(error.context, key=lambda e: len(e.absolute_path))
        if len(deepest.absolute_path) > len(place):
            yield from _explain(deepest)
            return
        if about := [e for e in error.context if e.validator != "type"]:
            yield place, _of_value(about[0])
            return
        wanted = [e.validator_value for e in error.context if e.validator == "type" and e.validator_value != "null"]
        yield place, f"expected {' or '.join(map(str, wanted)) or 'something else'}, {_got(error.instance, wanted)}"
    elif error.validator == "additionalProperties":
        known = error.schema.get("properties", {})
        for name in error.instance.keys() - known.keys():
            yield (*place, name), f"unknown field{near(name, known)}"
    elif error.validator == "required":
        missing = [name for name in error.validator_value if name not in error.instance]
        for name in missing:
            yield place, f"the field {name} is missing"
    else:
        yield place, _of_value(error)


def _of_value(error: Any) -> str:
    if error.validator == "type":
        return f"expected {error.validator_value}, {_got(error.instance, [error.validator_value])}"
    if error.validator == "enum":
        words = [str(v) for v in error.validator_value]
        return f"expected one of {', '.join(words)}, got {error.instance!r}{near(str(error.instance), words)}"
    return str(error.message)[:300]


def _got(value: Any, wanted: list[str]) -> str:
    name = _TYPE_NAMES[type(value)]
    quote = "; quote it" if "string" in wanted and isinstance(value, bool | int | float) else ""
    shown = f" {value!r}"[:80] if isinstance(value, str | bool | int | float) else ""
    return f"got {name}{shown}{quote}"
