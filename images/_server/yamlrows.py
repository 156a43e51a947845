"""YAML as packs and universes are written: scalars of YAML 1.2 (no, on, times and days stay text), every value with its line, no key twice."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml

MAX_VALUES = 200_000

_NULL, _BOOL, _INT, _FLOAT, _TEXT = (f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str"))


class _Loader(yaml.CSafeLoader):
    """A loader that resolves the scalars of YAML 1.2's core schema and nothing else."""


_Loader.yaml_implicit_resolvers = {}
_Loader.add_implicit_resolver(_NULL, re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver(_BOOL, re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_Loader.add_implicit_resolver(_INT, re.compile(r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$"), list("-+0123456789"))
_REAL = r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
_Loader.add_implicit_resolver(_FLOAT, re.compile(_REAL), list("-+0123456789."))


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault of a file: `file` as given, `line` from 1."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


@dataclass(frozen=True, slots=True)
class Located:
    """A value and the line it stands on; the items of a list and the values of a mapping are Located too."""

    value: Any
    line: int

    def plain(self) -> Any:
        """The value without lines."""
        if isinstance(self.value, list):
            return [item.plain() for item in self.value]
        if isinstance(self.value, dict):
            return {key: item.plain() for key, item in self.value.items()}
        return self.value


def load(text: str, file: str) -> tuple[Located | None, list[Problem]]:
    """The document in `text` (None when empty or unreadable) and every problem found in it."""
    problems: list[Problem] = []
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        return None, [Problem(file, line, str(error.problem or error.context))]
    except yaml.YAMLError as error:
        return None, [Problem(file, 1, str(error))]
    if node is None:
        return None, problems
    budget = iter(range(MAX_VALUES))
    try:
        return _convert(node, budget, lambda line, message: problems.append(Problem(file, line, message))), problems
    except StopIteration:
        return None, [Problem(file, 1, f"more than {MAX_VALUES} values (do aliases multiply?)")]
    except RecursionError:
        return None, [Problem(file, 1, "nested too deeply")]


def _convert(node: yaml.Node, budget: Iterator[int], report: Callable[[int, str], None]) -> Located:
    line = node.start_mark.line + 1
    next(budget)
    if isinstance(node, yaml.SequenceNode):
        return Located([_convert(item, budget, report) for item in list(node.value)], line)
    if isinstance(node, yaml.MappingNode):
        return Located(_mapping(node, budget, report), line)
    return Located(_scalar(node, line, report), line)


def _mapping(node: yaml.MappingNode, budget: Iterator[int], report: Callable[[int, str], None]) -> dict[str, Located]:
    found: dict[str, Located] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            report(line, "a key must be text")
            continue
        key = str(key_node.value)
        if key in found:
            report(line, f"{key!r} is here twice (first in line {found[key].line})")
        found[key] = _convert(value_node, budget, report)
    return found


def _scalar(node: yaml.Node, line: int, report: Callable[[int, str], None]) -> Any:
    text: str = node.value
    if node.tag == _NULL:
        return None
    if node.tag == _BOOL:
        return text.lower() == "true"
    if node.tag == _INT:
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if node.tag == _FLOAT:
        number = float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        if not math.isfinite(number):
            report(line, f"{text} is no number here")
        return number
    if node.tag != _TEXT:
        report(line, f"tag {node.tag} is not allowed")
    return text
