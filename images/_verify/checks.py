"""Reading checks: every fault of every check with its path, before any data is touched."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from . import functions
from .faults import InvalidChecks, did_you_mean
from .matching import COMPARATORS, MAX_DEPTH, depth, is_condition, value_fault

TYPES = ("state", "log", "trajectory", "rubric")
ASSERTS = ("asserts", "assertions", "conditions")
MAX_CHECKS = 200
MAX_ASSERTS = 100


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What checks may speak of: columns by server and table (a website has one server), columns of the log, tools and their aliases."""

    tables: dict[str, dict[str, list[str]]]
    log: list[str]
    tools: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Assertion:
    """`args` are those after the selection; `function` is None when the selection's own value is compared."""

    comparator: str
    value: Any
    function: str | None
    selection: str
    args: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Check:
    """One check as read; `server` and `table` are empty but for state checks."""

    id: str
    type: str
    server: str
    table: str
    asserts: tuple[Assertion, ...]


def read(raw: Any, claims: Any, vocabulary: Vocabulary) -> list[Check]:
    """The checks of a request, claims as rubrics behind them; InvalidChecks with all faults."""
    reader = _Reader(vocabulary)
    checks = reader.checks(raw if raw is not None else [])
    if claims is not None and not (isinstance(claims, list) and all(isinstance(c, str) for c in claims)):
        reader.fault("$.claims", "must be a list of texts")
    else:
        checks += [Check(f"claim-{n}", "rubric", "", "", ()) for n, _ in enumerate(claims or [], 1)]
    if not checks and not reader.faults:
        reader.fault("$.checks", "there is nothing to check")
    if reader.faults:
        raise InvalidChecks(reader.faults)
    return checks


class _Reader:
    """Walks the checks and gathers faults."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.faults: list[dict[str, str]] = []

    def fault(self, path: str, message: str) -> None:
        self.faults.append({"path": path, "message": message})

    def checks(self, raw: Any) -> list[Check]:
        if not isinstance(raw, list) or len(raw) > MAX_CHECKS:
            self.fault("$.checks", f"must be a list of at most {MAX_CHECKS} checks")
            return []
        seen: set[str] = set()
        found = []
        for n, item in enumerate(raw):
            path = f"$.checks[{n}]"
            if not isinstance(item, dict):
                self.fault(path, "must be an object")
                continue
            name = item.get("id")
            if not isinstance(name, str) or not name:
                self.fault(f"{path}.id", "is missing" if name is None else "must be text")
            elif name in seen:
                self.fault(f"{path}.id", f"two checks are called {name!r}")
            seen.add(str(name))
            found.append(self._check(str(name), item, path))
        return found

    def _check(self, id: str, item: dict[str, Any], path: str) -> Check:
        kind = item.get("type")
        if kind == "rubric":
            return Check(id, "rubric", "", "", ())
        known = ["id", "type", *ASSERTS, *(("server", "table") if kind == "state" else ("table",) if kind == "log" else ())]
        self._unknown(item, known, path)
        if kind not in TYPES:
            self.fault(f"{path}.type", "is missing" if kind is None else f"no type {kind!r}{did_you_mean(str(kind), TYPES)}; types: {', '.join(TYPES)}")
            return Check(id, "state", "", "", ())
        server, table = self._table(item, path) if kind == "state" else ("", "")
        columns = self.vocabulary.log if kind != "state" else self.vocabulary.tables.get(server, {}).get(table, [])
        return Check(id, kind, server, table, self._asserts(item, path, kind, columns))

    def _unknown(self, item: dict[str, Any], known: Iterable[str], path: str) -> None:
        known = list(known)
        for name in item:
            if name not in known:
                self.fault(f"{path}.{name}", f"unknown field{did_you_mean(name, known)}; known: {', '.join(known)}")

    def _table(self, item: dict[str, Any], path: str) -> tuple[str, str]:
        tables = self.vocabulary.tables
        server = item.get("server", next(iter(tables)) if len(tables) == 1 else None)
        if not self._is_one_of(server, tables, f"{path}.server", "server"):
            return "", ""
        table = item.get("table")
        return (server, table) if self._is_one_of(table, tables[server], f"{path}.table", "table") else ("", "")

    def _is_one_of(self, name: Any, known: Iterable[str], path: str, what: str) -> TypeGuard[str]:
        known = list(known)
        if isinstance(name, str) and name in known:
            return True
        said = "is missing" if name is None else f"no {what} {name!r}{did_you_mean(str(name), known)}"
        self.fault(path, f"{said}; {what}s: {', '.join(known)}")
        return False

    def _asserts(self, item: dict[str, Any], path: str, kind: str, columns: list[str]) -> tuple[Assertion, ...]:
        given = [name for name in ASSERTS if name in item]
        if len(given) != 1:
            self.fault(f"{path}.asserts", "is missing" if not given else f"{' and '.join(given)} mean the same: give one")
            return ()
        raw = item[given[0]]
        if not isinstance(raw, list) or not 0 < len(raw) <= MAX_ASSERTS:
            self.fault(f"{path}.{given[0]}", f"must be a list of 1 to {MAX_ASSERTS} assertions")
            return ()
        made = [self._assertion(entry, f"{path}.{given[0]}[{n}]", kind, columns) for n, entry in enumerate(raw)]
        return tuple(a for a in made if a is not None)

    def _assertion(self, entry: Any, path: str, kind: str, columns: list[str]) -> Assertion | None:
        if not isinstance(entry, dict):
            self.fault(path, "must be an object")
            return None
        self._unknown(entry, ("comparator", "function", "function_args", "value"), path)
        comparator = entry.get("comparator")
        if self._is_one_of(comparator, COMPARATORS, f"{path}.comparator", "comparator"):
            self._value(entry, comparator, path)
        args = entry.get("function_args", [])
        if not isinstance(args, list):
            self.fault(f"{path}.function_args", "must be a list")
            return None
        function = entry.get("function")
        known = [name for name, f in functions.FUNCTIONS.items() if f.only in (None, kind)]
        if function is not None and not self._is_one_of(function, known, f"{path}.function", "function"):
            return None
        return self._call(comparator, entry.get("value"), function, args, f"{path}.function_args", columns)

    def _value(self, entry: dict[str, Any], comparator: str, path: str) -> None:
        if "value" not in entry:
            self.fault(f"{path}.value", "is missing")
        elif depth(entry["value"]) > MAX_DEPTH:
            self.fault(f"{path}.value", f"is nested more than {MAX_DEPTH} deep")
        elif fault := value_fault(comparator, entry["value"]):
            self.fault(f"{path}.value", fault)
        elif comparator == "contains":
            self._pattern(entry["value"], f"{path}.value", None)

    def _call(self, comparator: Any, value: Any, function: str | None, args: list[Any], path: str, columns: list[str]) -> Assertion:
        selection = functions.ALL
        spec = functions.FUNCTIONS.get(function or "", functions.Function((), 0, functions._exists))
        first = 0
        if spec.selects and args and isinstance(args[0], str) and args[0].startswith("_result"):
            selection, first = args[0], 1
            self._selection(selection, f"{path}[0]", columns)
        rest = args[first:]
        if not spec.needed <= len(rest) <= len(spec.kinds):
            wanted = ", ".join(spec.kinds[: spec.needed] + tuple(f"{k}?" for k in spec.kinds[spec.needed :])) or "nothing"
            self.fault(
                path, f"{function or 'a comparison without function'} takes {'a selection?, ' if spec.selects else ''}{wanted}; there are {len(rest)} after it"
            )
        on_rows = columns if selection in (functions.ALL, "_result") else None
        read = [self._argument(kind, arg, f"{path}[{first + n}]", on_rows) for n, (kind, arg) in enumerate(zip(spec.kinds, rest, strict=False))]
        return Assertion(str(comparator), value, function, selection, tuple(read))

    def _selection(self, selection: str, path: str, columns: list[str]) -> None:
        found = functions.steps(selection)
        if found is None:
            self.fault(path, f"bad selection {selection!r}: write _result[*], _result[0].title or _result[*].title")
            return
        column = next((step for step in found if isinstance(step, str)), None)
        if column is not None and found.index(column) == 1 and column not in columns:
            self.fault(path, f"no column {column!r}{did_you_mean(column, columns)}; columns: {', '.join(columns)}")

    def _argument(self, kind: str, arg: Any, path: str, columns: list[str] | None) -> Any:
        if kind == "pattern":
            return self._pattern_argument(arg, path, columns if columns is not self.vocabulary.log else None)
        if kind == "direction":
            self._is_one_of(arg, ("asc", "desc"), path, "direction")
        elif kind == "column":
            self._is_one_of(arg, columns or [str(arg)], path, "column")
        elif kind == "tool":
            return self._tool(arg, path)
        elif not isinstance(arg, list) or not arg:
            self.fault(path, "must be a list of tools")
        else:
            return [self._tool(name, f"{path}[{n}]") for n, name in enumerate(arg)]
        return arg

    def _tool(self, name: Any, path: str) -> str:
        return self.vocabulary.tools[name] if self._is_one_of_tools(name, path) else ""

    def _is_one_of_tools(self, name: Any, path: str) -> bool:
        known = self.vocabulary.tools
        if isinstance(name, str) and name in known:
            return True
        self.fault(path, f"no tool {name!r}{did_you_mean(str(name), known)}")
        return False

    def _pattern_argument(self, pattern: Any, path: str, columns: list[str] | None) -> Any:
        if depth(pattern) > MAX_DEPTH:
            self.fault(path, f"is nested more than {MAX_DEPTH} deep")
            return pattern
        if columns is not None and not isinstance(pattern, dict):
            self.fault(path, "must be an object: the columns that a row must have")
            return pattern
        if columns is not None and not is_condition(pattern):
            for name in pattern:
                if name not in columns:
                    self.fault(f"{path}.{name}", f"no column {name!r}{did_you_mean(name, columns)}; columns: {', '.join(columns)}")
        self._pattern(pattern, path, columns)
        return pattern

    def _pattern(self, pattern: Any, path: str, columns: list[str] | None) -> None:
        if is_condition(pattern):
            self._unknown(pattern, ("comparator", "value"), path)
            comparator = pattern["comparator"]
            if self._is_one_of(comparator, COMPARATORS, f"{path}.comparator", "comparator"):
                self._value(pattern, comparator, path)
        elif isinstance(pattern, dict):
            for name, sub in pattern.items():
                self._pattern(sub, f"{path}.{name}", None)
        elif isinstance(pattern, list):
            for n, sub in enumerate(pattern):
                self._pattern(sub, f"{path}[{n}]", None)
        elif fault := value_fault("eq", pattern):
            self.fault(path, fault)
