"""compare_table: workbooks by openpyxl, under the OSWorld format's rules. A sheet is named 0, RI0, RNName (the result's) or EI0, ENName (the expected's)."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import openpyxl
from openpyxl.utils import get_column_letter
from openpyxl.utils.datetime import to_excel
from openpyxl.utils.exceptions import InvalidFileException
from openpyxl.workbook import Workbook
from openpyxl.worksheet.cell_range import MultiCellRange
from openpyxl.worksheet.worksheet import Worksheet

from gymctl.episode import Json
from gymctl.errors import NoVerdict
from gymctl.evaluators import sheets, values
from gymctl.evaluators.metrics import Compared, read

UNREADABLE = (zipfile.BadZipFile, InvalidFileException, KeyError, ValueError, OSError, EOFError)
PRECISION = 4
ALIKE = 85.0


@dataclass(frozen=True)
class Book:
    """A workbook as it was saved: with formulas, and with the values they had."""

    path: Path
    formulas: Workbook
    values: Workbook

    def sheet(self, name: str, *, values: bool = False) -> Worksheet | None:
        """A sheet of cells by name."""
        book = self.values if values else self.formulas
        return book[name] if name in book.sheetnames else None


class NoSheet(Exception):
    """The result has no such sheet."""


def load(path: Path) -> Book:
    """Read a workbook; ValueError when it is none."""
    try:
        return Book(path, openpyxl.load_workbook(path), openpyxl.load_workbook(path, data_only=True))
    except UNREADABLE as error:
        raise ValueError(f"{path.name} is no workbook: {error}") from error


@dataclass(frozen=True)
class Pair:
    """The result's workbook and the expected one, where there is one."""

    result: Book
    expected: Book | None

    def find(self, index: Any) -> tuple[Book, str]:
        """The book and the sheet's name of an index; NoSheet when the result has none, NoVerdict when the expected one has none."""
        text = str(index) if isinstance(index, str) else f"RI{index}"
        book = self.expected if text[0] == "E" else self.result
        if book is None:
            raise NoVerdict(f"{text} names a sheet of the expected workbook, and there is none")
        names = book.formulas.sheetnames
        names = [name for number, name in enumerate(names) if (text[1] == "I" and number == int(text[2:])) or (text[1] == "N" and name == text[2:])]
        if not names:
            why = f"there is no sheet {text}: {', '.join(book.formulas.sheetnames)}"
            raise NoSheet(why) if book is self.result else NoVerdict(f"expected {book.path.name}: {why}")
        return book, names[0]

    def cells(self, index: Any, *, values: bool = False) -> Worksheet:
        """The sheet itself."""
        book, name = self.find(index)
        sheet = book.sheet(name, values=values)
        assert sheet is not None  # noqa: S101  (find has seen it)
        return sheet


def compare_table(result: Path, expected: Path | None, options: Json) -> Compared:
    """All rules hold, looked at in their order; a result that is no workbook, or lacks a sheet, is a 0."""
    try:
        wanted = load(expected) if expected else None
    except ValueError as error:
        raise NoVerdict(f"expected {error}") from error
    try:
        pair = Pair(load(result), wanted)
    except ValueError as error:
        return Compared(0.0, str(error))
    for number, rule in enumerate(options["rules"]):
        try:
            why = RULES[rule["type"]].do(pair, rule)
        except NoSheet as error:
            why = str(error)
        if why:
            return Compared(0.0, f"rules[{number}] {rule['type']}: {why}")
    return Compared(1.0)


def _sheet_name(pair: Pair, rule: Json) -> str:
    if pair.expected is None:
        raise NoVerdict("sheet_name compares with an expected workbook, and there is none")
    ours, theirs = pair.result.formulas.sheetnames, pair.expected.formulas.sheetnames
    return "" if ours == theirs else f"sheets {ours}, expected {theirs}"


def _sheet_data(pair: Pair, rule: Json) -> str:
    """Values cell by cell, numbers rounded to `precision` digits; empty rows and columns at the end do not count."""
    digits = int(rule.get("precision", PRECISION))
    ours, theirs = (grid(pair.cells(rule[field], values=True), digits) for field in ("sheet_idx0", "sheet_idx1"))
    for row in range(max(len(ours), len(theirs))):
        left, right = (g[row] if row < len(g) else [] for g in (ours, theirs))
        for column in range(max(len(left), len(right))):
            a, b = (cells[column] if column < len(cells) else None for cells in (left, right))
            if not values.same(a, b):
                return f"{get_column_letter(column + 1)}{row + 1} is {a!r}, expected {b!r}"
    return ""


def grid(sheet: Worksheet, digits: int) -> list[list[Any]]:
    """The values of a sheet, without the empty cells at the end of a row and the empty rows at the end."""
    rows = []
    for cells in sheet.iter_rows(values_only=True):
        row = [round(v, digits) if isinstance(v, float) else v for v in cells]
        while row and row[-1] is None:
            row.pop()
        rows.append(row)
    while rows and not rows[-1]:
        rows.pop()
    return rows


def _sheet_print(pair: Pair, rule: Json) -> str:
    """As shown: `BOOK-SHEET.csv` beside each workbook, which the getters fetched too."""
    lines = []
    for field in ("sheet_idx0", "sheet_idx1"):
        book, name = pair.find(rule[field])
        beside = book.path.with_name(f"{book.path.stem}-{name}.csv")
        if not beside.is_file():
            if book is pair.result:
                return f"there is no {beside.name} beside the result"
            raise NoVerdict(f"there is no {beside.name} beside the expected workbook")
        text = read(beside).lower() if rule.get("ignore_case") else read(beside)
        lines.append([line.strip() for line in text.rstrip().splitlines()])
    differing = next((n for n, (a, b) in enumerate(zip(*lines, strict=False), 1) if a != b), None)
    if differing:
        return f"line {differing} is {lines[0][differing - 1]!r}, expected {lines[1][differing - 1]!r}"
    return "" if len(lines[0]) == len(lines[1]) else f"{len(lines[0])} lines, expected {len(lines[1])}"


def raw(cell: Any) -> Any:
    """A cell's value as the file has it: numbers as floats, dates as serial numbers."""
    value = cell.value
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    return float(value) if isinstance(value, int | float) else to_excel(value)  # type: ignore[no-untyped-call]


def _sheet_fuzzy(pair: Pair, rule: Json) -> str:
    """Ranges of two sheets as texts, after what each inner rule leaves out."""
    ours, theirs = (pair.cells(rule[field], values=True) for field in ("sheet_idx0", "sheet_idx1"))
    for inner in rule["rules"]:
        for cells in MultiCellRange(" ".join(inner["range"])):
            for row, column in cells.cells:
                a, b = (_normal(str(raw(sheet.cell(row, column))), inner) for sheet in (ours, theirs))
                if not ALIKENESS[inner["type"]](a, b, inner):
                    return f"{get_column_letter(column)}{row} is {a!r}, expected {b!r} ({inner['type']})"
    return ""


def _normal(text: str, rule: Json) -> str:
    for old, new in rule.get("normalization", []):
        text = text.replace(old, new)
    text = text.lstrip(rule["trim_leadings"]) if "trim_leadings" in rule else text
    text = text.rstrip(rule["trim_trailings"]) if "trim_trailings" in rule else text
    text = "".join(c for c in text if c not in rule.get("ignore_chars", ""))
    return text.lower() if rule.get("ignore_case") else text


def _alike(a: str, b: str, rule: Json) -> bool:
    from rapidfuzz import fuzz

    return bool(fuzz.ratio(a, b) >= rule.get("threshold", ALIKE))


ALIKENESS: dict[str, Callable[[str, str, Json], bool]] = {
    "includes": lambda a, b, rule: b in a, "included_by": lambda a, b, rule: a in b, "exact_match": lambda a, b, rule: a == b, "fuzzy_match": _alike,
}  # fmt: skip


def _check_cell(pair: Pair, rule: Json) -> str:
    shown, formed = (pair.cells(rule["sheet_idx"], values=values)[rule["coordinate"]] for values in (True, False))
    for name, wanted in rule["props"].items():
        value = raw(shown) if name == "value" else sheets.style(name, formed)
        if not values.matches(value, wanted):
            return f"{rule['coordinate']} {name} is {value!r}, expected {wanted['method']} {wanted['ref']!r}"
    return ""


def _zoom(pair: Pair, rule: Json) -> str:
    scale = pair.cells(rule["sheet_idx"]).sheet_view.zoomScale or 100.0
    return "" if values.matches(scale, rule) else f"{scale}, expected {rule['method']} {rule['ref']}"


def _freeze(pair: Pair, rule: Json) -> str:
    ours, theirs = (pair.cells(rule[field]).freeze_panes for field in ("sheet_idx0", "sheet_idx1"))
    return "" if ours == theirs else f"frozen at {ours}, expected {theirs}"


def _data_validation(pair: Pair, rule: Json) -> str:
    """As many validations as `dv_props` at least, and each fits one of them."""
    found = pair.cells(rule["sheet_idx"]).data_validations.dataValidation
    if len(found) < len(rule["dv_props"]):
        return f"{len(found)} validations, expected {len(rule['dv_props'])}"
    for each in found:
        if not any(all(values.matches(getattr(each, name, None), wanted) for name, wanted in props.items()) for props in rule["dv_props"]):
            return f"the validation of {each.sqref} is none of those expected"
    return ""


def _both(look: Callable[[Worksheet, Json], Any]) -> Callable[[Pair, Json], str]:
    """A rule that looks at two sheets and compares what it sees."""

    def compared(pair: Pair, rule: Json) -> str:
        ours, theirs = (look(pair.cells(rule[field]), rule) for field in ("sheet_idx0", "sheet_idx1"))
        return sheets.difference(ours, theirs)

    return compared


def _sparkline(pair: Pair, rule: Json) -> str:
    ours, theirs = (sheets.sparklines(book.path, name) for book, name in (pair.find(rule["sheet_idx0"]), pair.find(rule["sheet_idx1"])))
    return sheets.difference(ours, theirs)


class Rule(NamedTuple):
    """A rule: what looks, the fields it needs and those it takes."""

    do: Callable[[Pair, Json], str]
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()


_TWO = ("sheet_idx0", "sheet_idx1")
RULES: dict[str, Rule] = {
    "sheet_name": Rule(_sheet_name),
    "sheet_data": Rule(_sheet_data, _TWO, ("precision",)),
    "sheet_print": Rule(_sheet_print, _TWO, ("ignore_case",)),
    "sheet_fuzzy": Rule(_sheet_fuzzy, (*_TWO, "rules")),
    "sparkline": Rule(_sparkline, _TWO),
    "chart": Rule(_both(sheets.charts), _TWO, ("chart_props",)),
    "style": Rule(_both(sheets.styles), (*_TWO, "props")),
    "freeze": Rule(_freeze, _TWO),
    "zoom": Rule(_zoom, ("sheet_idx", "method", "ref")),
    "data_validation": Rule(_data_validation, ("sheet_idx", "dv_props")),
    "row_props": Rule(_both(sheets.rows), (*_TWO, "props")),
    "col_props": Rule(_both(sheets.columns), (*_TWO, "props")),
    "filter": Rule(_both(sheets.filters), _TWO),
    "pivot_table": Rule(_both(sheets.pivots), _TWO, ("pivot_props",)),
    "check_cell": Rule(_check_cell, ("sheet_idx", "coordinate", "props")),
}


def faults(options: Json, place: str) -> list[str]:
    """What is wrong with the option `rules`."""
    rules = options.get("rules")
    if not isinstance(rules, list) or not rules:
        return [f"{place}.rules: missing; a list of rules"]
    return [fault for number, rule in enumerate(rules) for fault in _rule_faults(rule, f"{place}.rules[{number}]")]


def _rule_faults(rule: Any, place: str) -> list[str]:
    from gymctl.marked import near

    name = rule.get("type") if isinstance(rule, dict) else None
    if name not in RULES:
        return [f"{place}.type: unknown rule {name!r}{near(str(name), RULES)}; known: {', '.join(RULES)}"]
    known = ("type", *RULES[name].needs, *RULES[name].takes)
    found = [f"{place}.{field}: missing" for field in RULES[name].needs if field not in rule]
    found += [f"{place}.{field}: {name} has no such field{near(str(field), known)}" for field in rule if field not in known]
    return found or [*_index_faults(rule, place), *_inner_faults(rule, name, place)]


def _index_faults(rule: Json, place: str) -> list[str]:
    def good(index: Any) -> bool:
        if isinstance(index, int) and not isinstance(index, bool):
            return index >= 0
        return isinstance(index, str) and (index[:2] in ("RN", "EN") or (index[:2] in ("RI", "EI") and index[2:].isdigit()))

    return [f"{place}.{f}: {rule[f]!r} is no sheet: 0, RI0, RNName, EI0 or ENName" for f in ("sheet_idx", *_TWO) if f in rule and not good(rule[f])]


def _inner_faults(rule: Json, name: str, place: str) -> list[str]:
    if name == "zoom":
        return values.faults(rule, place)
    if name == "sheet_fuzzy":
        return [
            f"{place}.rules[{n}]: needs range (a list) and type ({', '.join(ALIKENESS)})"
            for n, inner in enumerate(rule["rules"])
            if not (isinstance(inner, dict) and isinstance(inner.get("range"), list) and inner.get("type") in ALIKENESS)
        ]
    if name == "check_cell":
        known = ("value", *sheets.STYLES)
        unknown = [f"{place}.props.{prop}: unknown; known: {', '.join(known)}" for prop in rule["props"] if prop not in known]
        return unknown or [fault for prop, inner in rule["props"].items() for fault in values.faults(inner, f"{place}.props.{prop}")]
    if name == "data_validation":
        return [fault for props in rule["dv_props"] for prop, inner in props.items() for fault in values.faults(inner, f"{place}.dv_props.{prop}")]
    if name == "style":
        return [f"{place}.props: unknown {prop!r}; known: {', '.join(sheets.STYLES)}" for prop in rule["props"] if prop not in sheets.STYLES]
    return []
