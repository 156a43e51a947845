"""Evaluators as they are written: every fault with its place, before anything is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gymctl.desktop import setup
from gymctl.episode import Json
from gymctl.evaluators import metrics, values
from gymctl.evaluators.getters import GETTERS
from gymctl.evaluators.metrics import Compared
from gymctl.marked import near

FIELDS = ("id", "type", "func", "result", "expected", "options", "conj", "postconfig")
Faults = Callable[[Any, str], list[str]]


def _no_faults(rules: Any, place: str) -> list[str]:
    return []


def _needs(*fields: str) -> Faults:
    """Rules that need one field at least of those named."""

    def faults(rules: Any, place: str) -> list[str]:
        if isinstance(rules, dict) and any(field in rules for field in fields):
            return []
        return [f"{place}: needs {' or '.join(fields)}"]

    return faults


_record_faults = _needs("expect", "unexpect")


def _pattern_faults(rules: Any, place: str) -> list[str]:
    return _record_faults(rules, place) or [
        f"{place}.{part}[{n}]: {why}" for part in ("expect", "unexpect") for n, text in enumerate(rules.get(part, [])) for why in _why_no_pattern(text)
    ]


def _why_no_pattern(text: Any) -> list[str]:
    try:
        values.pattern(str(text))
    except ValueError as error:
        return [str(error)]
    return []


def _json_faults(rules: Any, place: str) -> list[str]:
    found = _record_faults(rules, place)
    for part in ("expect", "unexpect") if not found else ():
        for number, rule in enumerate(rules.get(part, [])):
            at = f"{place}.{part}[{number}]"
            if not isinstance(rule, dict) or not isinstance(rule.get("key"), list):
                found.append(f"{at}.key: missing; the list of keys that leads to the value")
            else:
                found += values.faults(rule, at)
    return found


def _tree_faults(rules: Any, place: str) -> list[str]:
    from lxml import etree

    if not isinstance(rules, list):
        return [f"{place}: must be a list of rules with xpath or selectors"]
    found = []
    for number, rule in enumerate(rules):
        if not isinstance(rule, dict) or not ("xpath" in rule or isinstance(rule.get("selectors"), list)):
            found.append(f"{place}[{number}]: needs xpath or selectors (a list)")
            continue
        try:
            metrics.selected(etree.Element("desktop-frame"), rule)
        except ValueError as error:
            found.append(f"{place}[{number}]: {error}")
    return found


def _table_faults(options: Any, place: str) -> list[str]:
    from gymctl.evaluators import tables

    return tables.faults(options, place)


def _compare_table(result: Any, expected: Any, options: Json) -> Compared:
    from gymctl.evaluators import tables  # openpyxl takes 0.2 s to import

    return tables.compare_table(result, expected, options)


class Metric(NamedTuple):
    """A metric: what compares; what it takes as `result` (file, text, any); what `expected` is (rules, file, nothing; `?`: may be left out);
    the options it has; what finds faults in its rules and in its options."""

    do: Callable[[Any, Any, Json], Compared]
    result: str
    expected: str
    options: tuple[str, ...] = ()
    rules: Faults = _no_faults
    read_options: Faults = _no_faults


_EXPECTED = _needs("expected")
METRICS: dict[str, Metric] = {
    "exact_match": Metric(metrics.exact_match, "any", "rules", rules=_EXPECTED),
    "fuzzy_match": Metric(metrics.fuzzy_match, "text", "rules", ("threshold",), _EXPECTED),
    "match_in_list": Metric(metrics.match_in_list, "any", "rules", rules=_EXPECTED),
    "is_in_list": Metric(metrics.is_in_list, "any", "rules", rules=_EXPECTED),
    "literal_match": Metric(metrics.literal_match, "any", "rules", ("type", "ignore_case")),
    "check_include_exclude": Metric(metrics.check_include_exclude, "text", "rules", rules=_needs("include", "exclude")),
    "check_file_exists": Metric(metrics.check_file_exists, "any", "rules?", rules=_needs("file_name", "expected")),
    "compare_text_file": Metric(metrics.compare_text_file, "file", "file", ("ignore_blanks", "ignore_case")),
    "diff_text_file": Metric(metrics.diff_text_file, "file", "file"),
    "compare_csv": Metric(metrics.compare_csv, "file", "file", ("strict", "ignore_case")),
    "check_csv": Metric(metrics.check_csv, "file", "rules", rules=_record_faults),
    "check_list": Metric(metrics.check_list, "file", "rules", rules=_pattern_faults),
    "check_json": Metric(metrics.check_json, "file", "rules", ("is_yaml",), _json_faults),
    "check_accessibility_tree": Metric(metrics.check_accessibility_tree, "text", "rules", ("osname",), _tree_faults),  # there is one system only
    "compare_table": Metric(_compare_table, "file", "file?", ("rules",), read_options=_table_faults),
}
INFEASIBLE = "infeasible"


class Part(NamedTuple):
    """One metric of an evaluator, with what it gets and its options."""

    func: str
    result: Json
    expected: Json | None
    options: Json


def parts(check: Json) -> list[Part]:
    """The metrics of an evaluator that has no faults, in their order."""
    funcs = check["func"] if isinstance(check["func"], list) else [check["func"]]
    results, expecteds, options = (_listed(check.get(field), len(funcs)) for field in ("result", "expected", "options"))
    return [Part(*row) for row in zip(funcs, [r or {} for r in results], [e or None for e in expecteds], [o or {} for o in options], strict=True)]


def _listed(value: Any, count: int) -> list[Any]:
    if isinstance(value, list):
        return value or [None] * count
    return [value or None] * count


def known() -> str:
    """What there is to choose from, for the hint of a faulty evaluator."""
    return f"getters: {', '.join(GETTERS)}; funcs: {', '.join(METRICS)}"


def faults(checks: Any) -> list[str]:
    """Every fault of a list of checks; none when they can be evaluated."""
    if not isinstance(checks, list) or not all(isinstance(check, dict) for check in checks):
        return ["checks: must be a list of mappings"]
    found, seen = [], set()
    for number, check in enumerate(checks):
        name = check.get("id")
        place = name if isinstance(name, str) and name else f"checks[{number}]"
        if not isinstance(name, str) or not name or name in seen:
            found.append(f"{place}.id: must be a text of its own")
        seen.add(name if isinstance(name, str) else "")
        found += _check_faults(check, place)
    return found


def _check_faults(check: Json, place: str) -> list[str]:
    if check.get("type") != "evaluator":
        return [f"{place}.type: a desktop has checks of type evaluator, not {check.get('type')!r}"]
    found = [f"{place}.{field}: unknown field{near(str(field), FIELDS)}" for field in check if field not in FIELDS]
    if check.get("conj", "and") not in ("and", "or"):
        found.append(f"{place}.conj: {check['conj']!r} is neither and nor or")
    found += setup.faults_of(check.get("postconfig") or [], f"{place}.postconfig")
    func = check.get("func")
    if func == INFEASIBLE:
        return found
    if not func or not isinstance(func, str | list):
        return [*found, f"{place}.func: missing"]
    return found + _part_faults(check, func if isinstance(func, list) else [func], place)


def _part_faults(check: Json, funcs: list[Any], place: str) -> list[str]:
    found = []
    for field in ("result", "expected", "options"):
        value = check.get(field)
        if isinstance(value, list) and value and len(value) != len(funcs):
            found.append(f"{place}.{field}: {len(value)} of them for {len(funcs)} funcs")
        elif isinstance(value, dict) and value and isinstance(check["func"], list):
            found.append(f"{place}.{field}: must be a list, as func is")
    if found:
        return found
    many = isinstance(check["func"], list)
    for number, part in enumerate(parts({**check, "func": funcs})):
        found += _faults_of(part, place, f"[{number}]" if many else "")
    return found


def _faults_of(part: Part, place: str, index: str) -> list[str]:
    metric = METRICS.get(str(part.func))
    if metric is None:
        return [f"{place}.func{index}: unknown func {part.func!r}{near(str(part.func), METRICS)}"]
    found = _getter_faults(part.result, f"{place}.result{index}", part.func, metric.result)
    if part.expected is not None:
        expected = _getter_faults(part.expected, f"{place}.expected{index}", part.func, metric.expected.rstrip("?"))
        if part.expected.get("type") == "rule" and not expected:
            expected = metric.rules(part.expected["rules"], f"{place}.expected{index}.rules")
        found += expected
    elif not metric.expected.endswith("?"):
        found.append(f"{place}.expected{index}: missing; {part.func} needs it")
    options = f"{place}.options{index}"
    found += [f"{options}.{name}: {part.func} has no such option{near(str(name), metric.options)}" for name in part.options if name not in metric.options]
    return found + metric.read_options(part.options, options)


def _getter_faults(config: Any, place: str, func: str, wanted: str) -> list[str]:
    name = config.get("type") if isinstance(config, dict) else None
    if name is None:
        return [f"{place}.type: missing; one of {', '.join(GETTERS)}"]
    getter = GETTERS.get(name)
    if getter is None:
        return [f"{place}.type: unknown getter {name!r}{near(str(name), GETTERS)}"]
    known = ("type", *getter.needs, *getter.takes)
    found = [f"{place}.{field}: missing; {name} needs it" for field in getter.needs if config.get(field) in (None, "", [])]
    found += [f"{place}.{field}: {name} has no such field{near(str(field), known)}" for field in config if field not in known]
    return found + _fit_faults(place, func, name, getter.gives, wanted)


def _fit_faults(place: str, func: str, name: str, gives: str, wanted: str) -> list[str]:
    """A getter that does not give what its metric takes; a metric of texts reads a file."""
    fits = {"rules": ("rule",), "file": ("file",), "text": ("text", "file")}.get(wanted, ("text", "file", "json"))
    word = {"rules": "a rule", "file": "a file", "text": "a text or a file"}.get(wanted, "something of the guest")
    return [] if gives in fits else [f"{place}.type: {func} takes {word}, and {name} gives {gives}"]
