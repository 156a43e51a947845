"""Metrics: what was fetched against what is expected, under the names, rules and options of the OSWorld format. Each gives a score from 0 to 1."""

from __future__ import annotations

import csv
import difflib
import io
import json
from pathlib import Path
from typing import Any, NamedTuple

from gymctl.desktop import targets
from gymctl.episode import Json
from gymctl.evaluators import values

SHOWN = 60
"""Characters of each of two values that differ."""


class Compared(NamedTuple):
    """A score from 0 to 1, and why it is not 1."""

    score: float
    why: str = ""


def yes(holds: bool, why: str) -> Compared:
    """1, or 0 and why."""
    return Compared(1.0) if holds else Compared(0.0, why)


def differing(found: Any, wanted: Any) -> str:
    """What one is and the other is not; of long ones the part where they begin to differ."""
    one, other = repr(found), repr(wanted)
    alike = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    begin = max(0, alike - SHOWN // 3) if max(len(one), len(other)) > SHOWN else 0
    shown = (f"{'…' if begin else ''}{text[begin : begin + SHOWN]}{'…' if len(text) > begin + SHOWN else ''}" for text in (one, other))
    return "it is {}, not {}".format(*shown)


def text_of(value: Any) -> Any:
    """What metrics of texts compare: a file's text, anything else as it is."""
    return read(value) if isinstance(value, Path) else value


def read(path: Path) -> str:
    """A text file: UTF-8 (with or without a mark), else Latin-1; lines end with a newline."""
    data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def exact_match(result: Any, rules: Json, options: Json) -> Compared:
    return yes(values.same(text_of(result), rules["expected"]), differing(text_of(result), rules["expected"]))


def match_in_list(result: Any, rules: Json, options: Json) -> Compared:
    return yes(any(values.same(text_of(result), each) for each in rules["expected"]), "it is none of them")


def is_in_list(result: Any, rules: Json, options: Json) -> Compared:
    return yes(rules["expected"] in text_of(result), f"{rules['expected']!r} is not in it")


def literal_match(result: Any, expected: Any, options: Json) -> Compared:
    """As texts (or as lists of texts: `type: list`)."""
    fold = str.lower if options.get("ignore_case") else str
    if options.get("type", "str") == "list":
        listed = isinstance(result, list) and isinstance(expected, list)
        return yes(listed and [fold(str(v)) for v in result] == [fold(str(v)) for v in expected], differing(result, expected))
    return yes(fold(str(text_of(result))) == fold(str(expected)), differing(text_of(result), expected))


def fuzzy_match(result: Any, rules: Json, options: Json) -> Compared:
    """How alike two texts are, 0 to 1; with the option `threshold` from there on 1."""
    from rapidfuzz import fuzz

    ratio = fuzz.ratio(str(text_of(result)), str(rules["expected"])) / 100
    return Compared(1.0) if ratio >= options.get("threshold", 1.0) else Compared(ratio, f"alike by {ratio:.4f}")


def check_include_exclude(result: Any, rules: Json, options: Json) -> Compared:
    text = text_of(result)
    lacking = [part for part in rules.get("include", []) if part not in text]
    unwanted = [part for part in rules.get("exclude", []) if part in text]
    why = "; ".join([*(f"{part!r} is not in it" for part in lacking), *(f"{part!r} is in it" for part in unwanted)])
    return yes(not why, why)


def check_file_exists(result: Any, rules: Json | None, options: Json) -> Compared:
    """A file that was fetched is there; in a directory's tree `file_name` (a path within it) must be."""
    if not isinstance(result, dict):
        return Compared(1.0)
    name = str((rules or {}).get("file_name") or (rules or {}).get("expected") or "")
    node: Any = result
    for part in Path(name).parts:
        node = next((child for child in node.get("children", []) if child["name"] == part), None)
        if node is None:
            return Compared(0.0, f"there is no {name} in {result.get('name')}")
    return yes(node.get("type") == "file" or not name, f"{name} is a directory")


def compare_text_file(result: Path, expected: Path, options: Json) -> Compared:
    texts = [read(result), read(expected)]
    if options.get("ignore_blanks"):
        texts = [" ".join(text.split()) for text in texts]
    if options.get("ignore_case"):
        texts = [text.lower() for text in texts]
    return yes(texts[0] == texts[1], _difference(*texts))


def diff_text_file(result: Path, expected: Path, options: Json) -> Compared:
    """The share of lines that are alike."""
    ratio = difflib.SequenceMatcher(a=read(result).splitlines(), b=read(expected).splitlines()).ratio()
    return Compared(ratio, "" if ratio == 1 else f"alike by {ratio:.4f}")


def compare_csv(result: Path, expected: Path | list[Path], options: Json) -> Compared:
    """Line by line; with several expected files any of them will do."""
    why = ""
    for each in expected if isinstance(expected, list) else [expected]:
        texts = [read(path).splitlines() for path in (result, each)]
        if not options.get("strict", True):
            texts = [[line.strip() for line in lines] for lines in texts]
        if options.get("ignore_case"):
            texts = [[line.lower() for line in lines] for lines in texts]
        if texts[0] == texts[1]:
            return Compared(1.0)
        why = why or _difference("\n".join(texts[0]), "\n".join(texts[1]))
    return Compared(0.0, why)


def _difference(result: str, expected: str) -> str:
    """Where two texts first differ."""
    ours, theirs = result.splitlines(), expected.splitlines()
    for number, (a, b) in enumerate(zip(ours, theirs, strict=False), 1):
        if a != b:
            return f"line {number} is {a[:120]!r}, expected {b[:120]!r}"
    return f"it has {len(ours)} lines, expected {len(theirs)}" if len(ours) != len(theirs) else "they end differently"


def check_csv(result: Path, rules: Json, options: Json) -> Compared:
    """Each record of `expect` is in a row, and none of `unexpect`."""
    rows = list(csv.DictReader(io.StringIO(read(result))))

    def found(record: Json) -> bool:
        return any(all(row.get(field) == value for field, value in record.items()) for row in rows)

    return _expected(rules, found)


def check_list(result: Path, rules: Json, options: Json) -> Compared:
    """Each pattern of `expect` is in a line, and none of `unexpect`."""
    lines = read(result).splitlines()
    return _expected(rules, lambda text: any(values.pattern(text).search(line) for line in lines))


def check_json(result: Path, rules: Json, options: Json) -> Compared:
    """The value at each `key` fits its rule in `expect`, and none in `unexpect`; a JSON file, or YAML with `is_yaml`."""
    try:
        data = _loaded(result, bool(options.get("is_yaml")))
    except ValueError as error:
        return Compared(0.0, f"it cannot be read: {error}")
    return _expected(rules, lambda rule: _fits(data, rule))


def _loaded(path: Path, is_yaml: bool) -> Any:
    if not is_yaml:
        return json.loads(read(path))
    import yaml

    try:
        return yaml.safe_load(read(path))
    except yaml.YAMLError as error:
        raise ValueError(str(error).splitlines()[0]) from error


def _fits(data: Any, rule: Json) -> bool:
    for key in rule["key"]:
        try:
            data = data[key]
        except (KeyError, IndexError, TypeError):
            return False
    return values.matches(data, rule)


def _expected(rules: Json, found: Any) -> Compared:
    lacking = [f"not found: {each}" for each in rules.get("expect", []) if not found(each)]
    unwanted = [f"found: {each}" for each in rules.get("unexpect", []) if found(each)]
    why = "; ".join([*lacking, *unwanted])
    return yes(not why, why)


def check_accessibility_tree(result: str, rules: list[Json], options: Json) -> Compared:
    """Each rule finds an element by `xpath` or CSS `selectors`, and (with `text`) its text: exactly, or as alike as `exact: false` finds it."""
    from lxml import etree
    from rapidfuzz import fuzz

    root = etree.fromstring(result.encode(), etree.XMLParser(resolve_entities=False, huge_tree=True))
    score = 1.0
    for rule in rules:
        found = selected(root, rule)
        asked = rule.get("xpath") or ", ".join(rule.get("selectors", []))
        if not found:
            return Compared(0.0, f"nothing is {asked}")
        if "text" in rule:
            texts = [str(element.text or "") for element in found]
            exact = rule.get("exact", True)
            score *= max(float(text == rule["text"]) if exact else fuzz.ratio(rule["text"], text) / 100 for text in texts)
    return Compared(score, "" if score == 1 else "the text is another one")


def selected(root: Any, rule: Json) -> list[Any]:
    """The elements that a rule's `xpath` or `selectors` find; ValueError for what is none."""
    from lxml import cssselect, etree

    spaces = {name: f"{targets.ROOT}/{tail}" for name, tail in NAMESPACES.items()}
    try:
        if "xpath" in rule:
            found = root.xpath(rule["xpath"], namespaces=spaces)
            return found if isinstance(found, list) else [root] if found else []
        chosen: Any = cssselect.CSSSelector(", ".join(rule["selectors"]), namespaces=spaces)(root)
        return list(chosen)
    except (etree.XPathError, cssselect.SelectorError, cssselect.ExpressionError) as error:
        raise ValueError(f"{rule.get('xpath') or rule.get('selectors')}: {error}") from error


NAMESPACES = {
    "st": "state", "attr": "attributes", "cp": "component", "doc": "document", "docattr": "document/attributes",
    "txt": "text", "val": "value", "act": "action",
}  # fmt: skip
"""Prefixes that queries of the tree use, and how their addresses end."""
