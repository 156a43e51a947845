"""Desktop evaluators: what passes, what fails, what is no verdict and names the path or address, and what is faulty; on a real desktop where one is asked."""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from openpyxl.chart import BarChart, Reference
from openpyxl.formatting.rule import CellIsRule, FormulaRule
from openpyxl.styles import Font, PatternFill
from openpyxl.worksheet.datavalidation import DataValidation

from gymctl import proc
from gymctl.errors import NoVerdict
from gymctl.evaluators import metrics, reading, tables, values
from tests.desktops import Machine

Json = dict[str, Any]


def rule(rules: Any) -> Json:
    return {"type": "rule", "rules": rules}


def evaluator(func: Any, result: Any, expected: Any = None, **more: Any) -> Json:
    return {"id": "e", "type": "evaluator", "func": func, "result": result, **({"expected": expected} if expected is not None else {}), **more}


def test_a_folder_of_our_name_where_gymctl_is_called_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gymctl").mkdir()
    (tmp_path / "gymctl/__init__.py").write_text("raise SystemExit('somebody else')")
    (tmp_path / "json.py").write_text("raise SystemExit('somebody else')")
    monkeypatch.chdir(tmp_path)
    for module, said in (("gymctl.evaluators", "JSONDecodeError"), ("gymctl.desktop", "not enough values"), ("gymctl.browser", "")):
        done = proc.run([sys.executable, "-m", module], timeout=60, env=proc.module_environment("state/name"), input="")
        assert "somebody else" not in done.stderr, module
        assert said in done.stderr, done.stderr


FILE = {"type": "vm_file", "path": "~/x", "dest": "x"}
LINE = {"type": "vm_command_line", "command": "true"}


# Faults


@pytest.mark.parametrize(("check", "faults"), [
    (evaluator("exact_mach", LINE, rule({"expected": "x"})), ["e.func: unknown func 'exact_mach'; did you mean exact_match?"]),
    (evaluator("exact_match", LINE), ["e.expected: missing; exact_match needs it"]),
    (evaluator("exact_match", LINE, rule({"expect": "x"})), ["e.expected.rules: needs expected"]),
    (evaluator("exact_match", {"type": "vm_comand_line", "command": "x"}, rule({"expected": 1})),
     ["e.result.type: unknown getter 'vm_comand_line'; did you mean vm_command_line?"]),
    (evaluator("exact_match", {"type": "vm_command_line"}, rule({"expected": 1})), ["e.result.command: missing; vm_command_line needs it"]),
    (evaluator("compare_csv", LINE, {"type": "cloud_file", "pth": "http://x"}), [
        "e.result.type: compare_csv takes a file, and vm_command_line gives text",
        "e.expected.path: missing; cloud_file needs it",
        "e.expected.pth: cloud_file has no such field; did you mean path?",
    ]),
    (evaluator("compare_text_file", FILE, rule({"expected": "x"})), ["e.expected.type: compare_text_file takes a file, and rule gives rule"]),
    (evaluator("compare_text_file", FILE, FILE, options={"ignore_blank": True}),
     ["e.options.ignore_blank: compare_text_file has no such option; did you mean ignore_blanks?"]),
    (evaluator(["exact_match", "check_file_exists"], [LINE, FILE], [rule({"expected": "x"})]), ["e.expected: 1 of them for 2 funcs"]),
    (evaluator(["exact_match"], LINE), ["e.result: must be a list, as func is"]),
    (evaluator(["exact_match", "nope"], [LINE, FILE], [rule({}), None]), ["e.expected[0].rules: needs expected", "e.func[1]: unknown func 'nope'"]),
    (evaluator("check_json", FILE, rule({"expect": [{"key": ["a"], "method": "regex", "ref": "x"}, {"method": "eq", "ref": 1}]})), [
        f"e.expected.rules.expect[0]: unknown method 'regex'; known: {values.METHODS}",
        "e.expected.rules.expect[1].key: missing; the list of keys that leads to the value",
    ]),
    (evaluator("check_list", FILE, rule({"expect": ["(?=x)"]})), ["e.expected.rules.expect[0]: pattern '(?=x)': invalid perl operator: (?="]),
    (evaluator("check_accessibility_tree", {"type": "accessibility_tree"}, rule([{"xpath": "//["}])), ["e.expected.rules[0]: //[: Invalid expression"]),
    (evaluator("compare_table", FILE, options={"rules": [{"type": "sheet_dat"}, {"type": "zoom", "sheet_idx": "X", "method": "eq", "ref": 1}]}), [
        f"e.options.rules[0].type: unknown rule 'sheet_dat'; did you mean sheet_data?; known: {', '.join(tables.RULES)}",
        "e.options.rules[1].sheet_idx: 'X' is no sheet: 0, RI0, RNName, EI0 or ENName",
    ]),
    (evaluator("compare_table", FILE), ["e.options.rules: missing; a list of rules"]),
    (evaluator("exact_match", LINE, rule({"expected": 1}), conj="xor", extra=1, postconfig=[{"type": "slep"}]), [
        "e.extra: unknown field", "e.conj: 'xor' is neither and nor or",
        "e.postconfig[0].type: unknown type 'slep'; did you mean sleep?; known: download, upload, upload_file, open, launch, execute, command, "
        "execute_with_verification, sleep, activate_window, close_window, change_wallpaper, chrome_open_tabs",
    ]),
    ({"id": "e", "type": "state"}, ["e.type: a desktop has checks of type evaluator, not 'state'"]),
    ({"type": "evaluator", "func": "infeasible"}, ["checks[0].id: must be a text of its own"]),
])  # fmt: skip
def test_every_fault_is_named_with_its_place(check: Json, faults: list[str]) -> None:
    assert reading.faults([check]) == faults


def test_what_has_no_faults() -> None:
    good = [
        {**evaluator("infeasible", {}), "id": "a"},
        {**evaluator(["exact_match", "check_file_exists"], [LINE, FILE], [rule({"expected": "x"}), None], options=[None, {}]), "id": "b"},
        {**evaluator("check_file_exists", FILE, None, options={}), "id": "c"},
        {**evaluator("compare_table", {**FILE, "multi": True, "path": ["a", "b"], "dest": ["a", "b"], "gives": [0]}, {"type": "cloud_file", "path": "http://x"},
                     options={"rules": [{"type": "sheet_print", "sheet_idx0": "RNMarch", "sheet_idx1": "EI0"}]}), "id": "d"},
    ]  # fmt: skip
    assert reading.faults(good) == []


# Values and texts


@pytest.mark.parametrize(("value", "wanted", "fits"), [
    (3.0, {"method": "eq", "ref": 3}, True), (True, {"method": "eq", "ref": 1}, False), ("1", {"method": "eq", "ref": 1}, False),
    (3, {"method": "ne", "ref": 3}, False), (None, {"method": "gt", "ref": 3}, False), (4, {"method": "gt", "ref": 3}, True),
    ("Total: 9", {"method": "re", "ref": r"^total"}, False), ("Total: 9", {"method": "re.I", "ref": r"^total"}, True), (9, {"method": "re", "ref": "9"}, False),
    ("3.14", {"method": "approx:0.01", "ref": 3.145}, True), ("pi", {"method": "approx:0.01", "ref": 3}, False), (3, {"method": "approx:0.5", "ref": 4}, False),
    (0, {"method": "range.te", "ref": [0, 2]}, False), (2, {"method": "range.te", "ref": [0, 2]}, True),
    ('"a,b"', {"method": "str_list_eq", "ref": ["a", "b"]}, True), ("b,a", {"method": "str_list_eq", "ref": ["a", "b"]}, False),
    ("b,a", {"method": "str_set_eq", "ref": ["a", "b"]}, True), ("A1:B4", {"method": "spreadsheet_range", "ref": ["A1:B2", "A1:C9"]}, True),
    ("A1:B40", {"method": "spreadsheet_range", "ref": ["A1:B2", "A1:C9"]}, False),
])  # fmt: skip
def test_a_value_against_a_rule(value: Any, wanted: Json, fits: bool) -> None:
    assert values.faults(wanted, "r") == []
    assert values.matches(value, wanted) is fits


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str, str], Path]:
    def write(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text, newline="")
        return tmp_path / name

    return write


def test_texts(written: Callable[[str, str], Path]) -> None:
    a, b = written("a", "One  two\r\nthree\r\n"), written("b", "one two three\n")
    assert metrics.compare_text_file(a, a, {}).score == 1
    assert metrics.compare_text_file(a, b, {}) == (0.0, "line 1 is 'One  two', expected 'one two three'")
    assert metrics.compare_text_file(a, b, {"ignore_blanks": True}).score == 0
    assert metrics.compare_text_file(a, b, {"ignore_blanks": True, "ignore_case": True}).score == 1
    assert 0 < metrics.diff_text_file(written("c", "x\ny\nz"), written("d", "x\nq\nz"), {}).score < 1
    assert metrics.exact_match(a, {"expected": "One  two\nthree\n"}, {}).score == 1
    assert metrics.exact_match(1, {"expected": True}, {}) == (0.0, "it is 1, not True")
    assert metrics.literal_match("Yes", "no", {}) == (0.0, "it is 'Yes', not 'no'")
    far = metrics.exact_match("a" * 500 + "b" + "c" * 500, {"expected": "a" * 500 + "d"}, {}).why
    assert far == f"it is …{'a' * 20}b{'c' * 39}…, not …{'a' * 20}d'"
    assert metrics.fuzzy_match("Harbor Street", {"expected": "Harbour Street"}, {}).score == pytest.approx(26 / 27)
    assert metrics.fuzzy_match("Harbor Street", {"expected": "Harbour Street"}, {"threshold": 0.9}).score == 1
    assert metrics.fuzzy_match("Quay", {"expected": "Harbour Street"}, {"threshold": 0.9}).score < 0.5
    assert metrics.check_include_exclude("a b", {"include": ["a"], "exclude": ["c"]}, {}).score == 1
    assert metrics.check_include_exclude("a b", {"include": ["z"], "exclude": ["b"]}, {}).why == "'z' is not in it; 'b' is in it"
    assert metrics.match_in_list("b", {"expected": ["a", "b"]}, {}).score == 1
    assert metrics.is_in_list("a\nb", {"expected": "c"}, {}).score == 0
    assert metrics.literal_match(["A", 1], ["a", "1"], {"type": "list", "ignore_case": True}).score == 1


def test_tables_of_text(written: Callable[[str, str], Path]) -> None:
    a, b = written("a.csv", "Name,Town\nIda, Leeds\n"), written("b.csv", "name,town\nida, leeds \n")
    assert metrics.compare_csv(a, b, {}).why == "line 1 is 'Name,Town', expected 'name,town'"
    assert metrics.compare_csv(a, b, {"ignore_case": True}).score == 0
    assert metrics.compare_csv(a, b, {"ignore_case": True, "strict": False}).score == 1
    assert metrics.compare_csv(a, [b, a], {}).score == 1
    assert metrics.check_csv(a, {"expect": [{"Name": "Ida"}], "unexpect": [{"Town": "York"}]}, {}).score == 1
    assert metrics.check_csv(a, {"expect": [{"Name": "Ida", "Town": "York"}]}, {}).score == 0
    assert metrics.check_list(a, {"expect": ["^Ida"], "unexpect": ["York"]}, {}).score == 1
    assert metrics.check_list(a, {"expect": ["^Leeds"]}, {}).score == 0


def test_json_and_yaml(written: Callable[[str, str], Path]) -> None:
    data = written("a.json", '{"font": {"size": 12}, "tabs": [{"url": "file:///x"}]}')
    size, url = {"key": ["font", "size"], "method": "eq", "ref": 12}, {"key": ["tabs", 0, "url"], "method": "re", "ref": "^file:"}
    assert metrics.check_json(data, {"expect": [size, url]}, {}).score == 1
    assert metrics.check_json(data, {"unexpect": [size]}, {}).score == 0
    assert metrics.check_json(data, {"expect": [{**size, "key": ["font", "name"]}]}, {}).score == 0
    assert "cannot be read" in metrics.check_json(written("b.json", "{"), {"expect": [size]}, {}).why
    assert metrics.check_json(written("c.yaml", "font: {size: 12}\n"), {"expect": [size]}, {"is_yaml": True}).score == 1


def test_a_pattern_from_outside_runs_in_linear_time(written: Callable[[str, str], Path]) -> None:
    began = time.monotonic()
    assert metrics.check_list(written("a", "a" * 50_000 + "!"), {"expect": ["(a+)+$"]}, {}).score == 0
    assert time.monotonic() - began < 2


TREE = """<desktop-frame xmlns:st="https://accessibility.ubuntu.example.org/ns/state"><application name="mousepad"><frame name="a.txt - Mousepad">
<text st:focused="true">Dear Ida</text><push-button name="Save"/></frame></application></desktop-frame>"""


@pytest.mark.parametrize(("rules", "score"), [
    ([{"xpath": "//push-button[@name='Save']"}, {"selectors": ["frame[name*=Mousepad] text"]}], 1), ([{"xpath": "//push-button[@name='Open']"}], 0),
    ([{"xpath": "//text[@st:focused='true']", "text": "Dear Ida"}], 1), ([{"xpath": "//text", "text": "Dear Ada"}], 0),
    ([{"selectors": ["text[st|focused=true]"], "text": "Dear Ada", "exact": False}], 0.875), ([{"xpath": "count(//frame) = 1"}], 1),
])  # fmt: skip
def test_accessibility(rules: list[Json], score: float) -> None:
    assert metrics.check_accessibility_tree(TREE, rules, {}).score == score


def test_a_directory_s_tree() -> None:
    tree = {"type": "directory", "name": "home", "children": [{"type": "directory", "name": "a", "children": [{"type": "file", "name": "b.txt"}]}]}
    assert metrics.check_file_exists(tree, {"file_name": "a/b.txt"}, {}).score == 1
    assert metrics.check_file_exists(tree, {"file_name": "a"}, {}).why == "a is a directory"
    assert metrics.check_file_exists(tree, {"file_name": "b.txt"}, {}).why == "there is no b.txt in home"


# Workbooks


def book(path: Path, change: Callable[[Any], object] = lambda sheet: None) -> Path:
    """A small workbook, changed."""
    made = openpyxl.Workbook()
    sheet = made.active
    assert sheet is not None
    sheet.title = "March"
    for row in (("Item", "Price"), ("Rye", 2.90004), ("Tin", 1.6), ("Oat", 2)):
        sheet.append(row)
    made.create_sheet("Notes")
    change(sheet)
    made.save(path)
    return path


def assign(place: str, value: Any) -> Callable[[Any], None]:
    def change(sheet: Any) -> None:
        sheet[place] = value

    return change


def bold(sheet: Any) -> None:
    sheet["A1"].font = Font(bold=True)


def chart(title: str) -> Callable[[Any], None]:
    def change(sheet: Any) -> None:
        drawn = BarChart()
        drawn.title = title
        drawn.add_data(Reference(sheet, min_col=2, min_row=1, max_row=4), titles_from_data=True)
        sheet.add_chart(drawn, "D2")

    return change


def validation(sheet: Any) -> None:
    listed = DataValidation(type="list", formula1='"Rye,Tin"')
    listed.add("A2:A9")
    sheet.add_data_validation(listed)


def red_above(limit: int) -> Callable[[Any], None]:
    def change(sheet: Any) -> None:
        red = CellIsRule(operator="greaterThan", formula=[str(limit)], fill=PatternFill(bgColor="FFFF0000"))  # type: ignore[no-untyped-call]
        sheet.conditional_formatting.add("B2:B4", red)

    return change


def hidden(sheet: Any) -> None:
    sheet.row_dimensions[3].hidden = True


def wide(sheet: Any) -> None:
    sheet.column_dimensions["A"].width = 30


def filtered(sheet: Any) -> None:
    sheet.auto_filter.ref = "A1:B4"
    sheet.auto_filter.add_filter_column(0, ["Rye"])


def frozen(sheet: Any) -> None:
    sheet.freeze_panes = "A2"


def zoomed(sheet: Any) -> None:
    sheet.sheet_view.zoomScale = 150


def renamed(sheet: Any) -> None:
    sheet.title = "April"


def unchanged(sheet: Any) -> None:
    pass


TWO: Json = {"sheet_idx0": 0, "sheet_idx1": "EI0"}


@pytest.mark.parametrize(("wanted", "right", "wrong", "why"), [
    ({"type": "sheet_name"}, unchanged, renamed, "sheets ['April', 'Notes'], expected ['March', 'Notes']"),
    ({"type": "sheet_data", **TWO}, assign("B2", 2.9), assign("B3", 1.7), "B3 is 1.7, expected 1.6"),
    ({"type": "sheet_data", **TWO}, unchanged, assign("C9", "x"), "C9 is 'x', expected None"),
    ({"type": "sheet_data", "sheet_idx0": "RNMarch", "sheet_idx1": "ENMarch", "precision": 1}, assign("B2", 2.94), assign("B2", 2.96), "B2 is 3.0"),
    ({"type": "sheet_data", "sheet_idx0": "RNMarch", "sheet_idx1": "EI0"}, unchanged, renamed, "there is no sheet RNMarch: April, Notes"),
    ({"type": "sheet_fuzzy", **TWO, "rules": [{"range": ["A2:A4"], "type": "exact_match", "ignore_case": True, "ignore_chars": " "}]},
     assign("A2", "r y E"), assign("A2", "rue"), "A2 is 'rue', expected 'rye'"),
    ({"type": "sheet_fuzzy", **TWO, "rules": [{"range": ["B2:B2"], "type": "includes"}]},
     unchanged, assign("B2", 3), "B2 is '3.0', expected '2.90004' (includes)"),
    ({"type": "check_cell", "sheet_idx": 0, "coordinate": "B4", "props": {"value": {"method": "eq", "ref": 2}}},
     unchanged, assign("B4", "2"), "B4 value is '2'"),
    ({"type": "check_cell", "sheet_idx": 0, "coordinate": "A1", "props": {"font_bold": {"method": "eq", "ref": True}}},
     bold, unchanged, "A1 font_bold is False"),
    ({"type": "zoom", "sheet_idx": 0, "method": "ge", "ref": 120}, zoomed, unchanged, "100.0, expected ge 120"),
    ({"type": "data_validation", "sheet_idx": 0, "dv_props": [{"type": {"method": "eq", "ref": "list"}}]}, validation, unchanged, "0 validations, expected 1"),
])  # fmt: skip
def test_rules_of_a_workbook(tmp_path: Path, wanted: Json, right: Any, wrong: Any, why: str) -> None:
    expected = book(tmp_path / "expected.xlsx")
    assert tables.faults({"rules": [wanted]}, "o") == []
    assert tables.compare_table(book(tmp_path / "right.xlsx", right), expected, {"rules": [wanted]}) == (1.0, "")
    failed = tables.compare_table(book(tmp_path / "wrong.xlsx", wrong), expected, {"rules": [wanted]})
    assert failed.score == 0
    assert why in failed.why


@pytest.mark.parametrize(("wanted", "has", "lacks"), [
    ({"type": "freeze", **TWO}, frozen, unchanged), ({"type": "style", **TWO, "props": ["font_bold"]}, bold, unchanged),
    ({"type": "style", **TWO, "props": ["bgcolor"]}, red_above(2), unchanged),
    ({"type": "chart", **TWO, "chart_props": ["type", "title"]}, chart("Prices"), chart("x")),
    ({"type": "row_props", **TWO, "props": ["hidden"]}, hidden, unchanged), ({"type": "col_props", **TWO, "props": ["width"]}, wide, unchanged),
    ({"type": "filter", **TWO}, filtered, unchanged), ({"type": "pivot_table", **TWO, "pivot_props": ["name"]}, unchanged, None),
    ({"type": "sparkline", **TWO}, unchanged, None),
])  # fmt: skip
def test_rules_that_look_at_both_workbooks(tmp_path: Path, wanted: Json, has: Any, lacks: Any) -> None:
    expected = book(tmp_path / "expected.xlsx", has)
    assert tables.faults({"rules": [wanted]}, "o") == []
    assert tables.compare_table(book(tmp_path / "a.xlsx", has), expected, {"rules": [wanted]}).why == ""
    if lacks:
        assert tables.compare_table(book(tmp_path / "b.xlsx", lacks), expected, {"rules": [wanted]}).score == 0


def test_a_conditional_format_that_acts_alike_is_alike(tmp_path: Path) -> None:
    wanted = {"rules": [{"type": "style", **TWO, "props": ["bgcolor"]}]}
    expected = book(tmp_path / "e.xlsx", red_above(2))
    assert tables.compare_table(book(tmp_path / "a.xlsx", lambda s: red_above(2)(s)), expected, wanted).score == 1
    assert tables.compare_table(book(tmp_path / "b.xlsx", red_above(1)), expected, wanted).score == 0
    odd = FormulaRule(formula=["ISODD(B2)"], font=Font(bold=True))  # type: ignore[no-untyped-call]
    by_formula = book(tmp_path / "c.xlsx", lambda s: s.conditional_formatting.add("B2:B4", odd))
    with pytest.raises(NoVerdict, match="ISODD"):
        tables.compare_table(by_formula, expected, wanted)


def test_as_printed(tmp_path: Path) -> None:
    result, expected = book(tmp_path / "r.xlsx"), book(tmp_path / "e.xlsx")
    options = {"rules": [{"type": "sheet_print", **TWO}]}
    assert tables.compare_table(result, expected, options).why == "rules[0] sheet_print: there is no r-March.csv beside the result"
    (tmp_path / "r-March.csv").write_text("Item,Price\nRye,£2.90\n\n")
    with pytest.raises(NoVerdict, match=r"no e-March\.csv beside the expected"):
        tables.compare_table(result, expected, options)
    (tmp_path / "e-March.csv").write_text("Item,Price\nRye,£2.90\n")
    assert tables.compare_table(result, expected, options).score == 1


def test_what_is_no_workbook(tmp_path: Path) -> None:
    none = tmp_path / "x.xlsx"
    none.write_text("not a zip")
    good = book(tmp_path / "e.xlsx")
    options = {"rules": [{"type": "sheet_name"}]}
    assert "x.xlsx is no workbook" in tables.compare_table(none, good, options).why
    with pytest.raises(NoVerdict, match=r"expected x\.xlsx is no workbook"):
        tables.compare_table(good, none, options)
    with pytest.raises(NoVerdict, match="there is none"):
        tables.compare_table(good, None, options)


# On a desktop

TWO_FILES = {"type": "vm_file", "path": ["~/judged/b.txt", "~/judged/deep/a.txt"], "dest": ["b", "a"], "multi": True}


def verify(desk: Machine, tmp_path: Path, *checks: Json, code: int = 0, timeout: float = 60) -> Json:
    """`verify --checks`, the checks in a file."""
    file = tmp_path / "checks.json"
    file.write_text(json.dumps([{**check, "id": f"c{number}"} for number, check in enumerate(checks)]))
    found: Json = desk.cli("verify", desk.name, "--checks", str(file), "--timeout", str(timeout), "--json", code=code).json
    return found


def says(desk: Machine, command: str, expected: str) -> Json:
    return evaluator("exact_match", {"type": "vm_command_line", "command": command, "shell": True}, rule({"expected": expected}))


def test_getters_of_the_guest(local_desk: Machine, tmp_path: Path) -> None:
    local_desk.step("exec", "mkdir -p ~/judged/deep; printf 'one\\n' > ~/judged/deep/a.txt; cp ~/judged/deep/a.txt ~/judged/b.txt")
    gold = tmp_path / "gold.txt"
    gold.write_text("one\n")
    width, height = (int(word) for word in local_desk.step("exec", "xdpyinfo | sed -n 's/.*dimensions: *\\([0-9x]*\\) .*/\\1/p'")["stdout"].split("x"))
    done = verify(
        local_desk, tmp_path, says(local_desk, "echo $((6 * 7))", "42\n"),
        evaluator("is_in_list", {"type": "vm_command_error", "command": ["ls", "/nowhere"]}, rule({"expected": "No such file"})),
        evaluator("compare_text_file", {"type": "vm_file", "path": "~/judged/deep/a.txt"}, {"type": "cloud_file", "path": str(gold), "dest": "a.txt"}),
        evaluator("compare_text_file", {"type": "vm_file", "path": "~/judged/b.txt"}, {"type": "cloud_file", "path": gold.as_uri()}),
        evaluator("check_file_exists", {"type": "list_directory", "path": "~/judged"}, rule({"file_name": "deep/a.txt"})),
        evaluator("check_file_exists", {**TWO_FILES, "gives": [0, 1]}),
        evaluator("exact_match", {"type": "vm_screen_size"}, rule({"expected": {"width": width, "height": height}})),
        evaluator("check_include_exclude", {"type": "vm_window_list", "by_class": True}, rule({"include": ["pcmanfm.Pcmanfm"], "exclude": ["mousepad"]})),
        evaluator("check_accessibility_tree", {"type": "accessibility_tree"}, rule([{"xpath": "/desktop-frame"}])),
        evaluator("exact_match", {"type": "cache_file", "path": "kept.txt"}, rule({"expected": "kept\n"}),
                  postconfig=[{"type": "execute", "parameters": {"command": ["echo", "kept"], "stdout": "kept.txt"}}]),
    )  # fmt: skip
    assert done["verdict"] == "passed", done
    assert done["checks"][2]["metrics"][0]["expected"]["value"] == {"bytes": 4, "text": "one\n"}


def test_joined_by_and_and_by_or(local_desk: Machine, tmp_path: Path) -> None:
    lines = [{"type": "vm_command_line", "command": ["echo", word]} for word in ("left", "center", "right")]
    wanted = [rule({"expected": f"{word}\n"}) for word in ("left", "centre", "right")]
    funcs = ["exact_match", "fuzzy_match", "exact_match"]
    both = verify(local_desk, tmp_path, evaluator(funcs, lines, wanted), evaluator(funcs, lines, wanted, conj="or"), code=1)
    assert [row["score"] for row in both["checks"]] == [pytest.approx((2 + 12 / 14) / 3), 1.0]
    assert [len(row["metrics"]) for row in both["checks"]] == [3, 1]
    assert both["verdict"] == "failed"
    nothing = verify(local_desk, tmp_path, evaluator(["exact_match", "exact_match"], lines[:2], wanted[1::-1]), code=1)
    assert nothing["score"] == 0
    assert len(nothing["checks"][0]["metrics"]) == 1


def test_a_missing_result_fails_and_is_named(local_desk: Machine, tmp_path: Path) -> None:
    gold = tmp_path / "gold"
    gold.write_text("x")
    for path in ("~/judged-nowhere.csv", "/etc", "/proc/1/mem"):
        done = verify(local_desk, tmp_path, evaluator("compare_csv", {"type": "vm_file", "path": path}, {"type": "cloud_file", "path": str(gold)}), code=1)
        assert done["score"] == 0
        assert done["checks"][0]["metrics"][0]["why"].startswith(f"result {path}: "), done


@pytest.fixture
def serves() -> Iterator[str]:
    """An address where everything is refused with 403."""

    class Refuses(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(403)

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refuses) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_an_expected_file_that_cannot_be_had_is_no_verdict_and_named(local_desk: Machine, tmp_path: Path, serves: str) -> None:
    local_desk.step("exec", "echo x > ~/judged.txt")
    result = {"type": "vm_file", "path": "~/judged.txt"}
    for path, why in (
        (f"{serves}/gold.txt", "it answers 403 Forbidden"), ("http://127.0.0.1:9/gold.txt", "Connection refused"),
        ("/no/such/gold.txt", "No such file or directory"), ("ftp://x/gold.txt", "no http, https or file URL"),
    ):  # fmt: skip
        done = verify(local_desk, tmp_path, evaluator("compare_text_file", result, {"type": "cloud_file", "path": path}), code=11)
        assert (done["verdict"], done["score"], done["reason"]["type"]) == ("none", None, "EvaluatorFailed")
        assert f"expected {path}: " in done["reason"]["message"]
        assert why in done["reason"]["message"], done
    gold = tmp_path / "gold"
    gold.write_text("x\n")
    expected = {"type": "cloud_file", "path": str(gold), "sha256": "0" * 64}
    done = verify(local_desk, tmp_path, evaluator("compare_text_file", result, expected), code=11)
    assert "is not what it should be: sha256 " in done["reason"]["message"]


def test_a_command_that_hangs_or_is_not_there_is_no_verdict(local_desk: Machine, tmp_path: Path) -> None:
    began = time.monotonic()
    done = verify(local_desk, tmp_path, says(local_desk, "sleep 300", ""), code=11, timeout=4)
    assert time.monotonic() - began < 8
    assert "result sleep 300: the command did not end within" in done["reason"]["message"]
    command = {"type": "vm_command_line", "command": ["no-such-program"]}
    done = verify(local_desk, tmp_path, evaluator("exact_match", command, rule({"expected": ""})), code=11)
    assert "there is no program 'no-such-program' in the guest" in done["reason"]["message"]


def children(desk: Machine) -> list[int]:
    """The evaluators that run for a desktop."""
    found = []
    for pid in desk.cli.leftovers():
        try:
            if b"gymctl.evaluators" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return found


def _until(holds: Callable[[], Any], seconds: float = 20) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


@pytest.fixture
def hanging(local_desk: Machine, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A verify whose evaluator waits for a page that never comes (on a socket that nobody accepts)."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        file = tmp_path / "checks.json"
        gold = {"type": "cloud_file", "path": f"http://127.0.0.1:{silent.getsockname()[1]}/gold"}
        file.write_text(json.dumps([evaluator("compare_text_file", {"type": "vm_file", "path": "/etc/hostname"}, gold)]))
        child = local_desk.cli.spawn("verify", local_desk.name, "--checks", str(file), "--timeout", "6", "--json")
        _until(lambda: children(local_desk))
        yield child
        child.kill()
        child.communicate()


def test_a_time_out_is_no_verdict_and_nothing_is_left(local_desk: Machine, hanging: subprocess.Popen[str]) -> None:
    out, _ = hanging.communicate(timeout=30)
    assert hanging.returncode == 11
    message = json.loads(out)["reason"]["message"]
    assert "expected http://127.0.0.1:" in message or "at the end: expected: cloud_file http://127.0.0.1:" in message
    assert children(local_desk) == []
    assert list(local_desk.folder.glob("verify-*")) == []


def test_a_crash_is_no_verdict(local_desk: Machine, hanging: subprocess.Popen[str]) -> None:
    os.kill(children(local_desk)[0], signal.SIGSEGV)
    out, _ = hanging.communicate(timeout=30)
    assert hanging.returncode == 11
    reason = json.loads(out)["reason"]
    assert reason["type"] == "EvaluatorCrashed"
    assert reason["message"].startswith("the evaluators ended with exit code -11")


def test_an_interrupt_ends_the_evaluators(local_desk: Machine, hanging: subprocess.Popen[str]) -> None:
    hanging.send_signal(signal.SIGINT)
    hanging.communicate(timeout=30)
    assert hanging.returncode == 130
    _until(lambda: children(local_desk) == [])


def test_a_killed_gymctl_leaves_evaluators_that_end_by_themselves(local_desk: Machine, hanging: subprocess.Popen[str]) -> None:
    hanging.kill()
    hanging.communicate()
    _until(lambda: children(local_desk) == [], 30)


def test_faults_are_exit_9_and_nothing_is_done(local_desk: Machine, tmp_path: Path) -> None:
    steps = [{"type": "execute", "parameters": {"command": "touch ~/was-done", "shell": True}}]
    bad = evaluator("exact_match", {"type": "vm_file"}, rule({}), postconfig=steps)
    error = verify(local_desk, tmp_path, bad, evaluator("exact_mach", LINE), code=9)["error"]
    assert error["message"] == (
        "c0.result.path: missing; vm_file needs it\nc0.expected.rules: needs expected\nc1.func: unknown func 'exact_mach'; did you mean exact_match?"
    )
    assert "compare_table" in error["hint"]
    assert local_desk.step("exec", "ls ~/was-done")["exit"] != 0


def test_postconfig_does_what_it_says_and_notes_what_the_agent_has_undone(local_desk: Machine, tmp_path: Path) -> None:
    steps = [
        {"type": "execute", "parameters": {"command": "echo judged > ~/after.txt", "shell": True}},
        {"type": "activate_window", "parameters": {"window_name": "No such window"}},
    ]
    done = verify(local_desk, tmp_path, {**says(local_desk, "cat ~/after.txt", "judged\n"), "postconfig": steps})
    assert done["verdict"] == "passed"
    (note,) = done["checks"][0]["postconfig"]
    assert (note["step"], note["type"]) == (1, "activate_window")
    lost = [{"type": "download", "parameters": {"files": [{"url": "/no/such/file", "path": "~/x"}]}}]
    done = verify(local_desk, tmp_path, {**says(local_desk, "true", ""), "postconfig": lost}, code=11)
    assert "postconfig[0] (download): cannot read /no/such/file" in done["reason"]["message"]
