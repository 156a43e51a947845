"""What a sheet looks like: styles, charts, filters, pivot tables, rows and columns, sparklines; each as plain values that can be compared."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from openpyxl.cell.cell import MergedCell
from openpyxl.worksheet.worksheet import Worksheet

from gymctl.episode import Json
from gymctl.errors import NoVerdict

MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
X14 = "{http://schemas.microsoft.com/office/spreadsheetml/2009/9/main}"
XM = "{http://schemas.microsoft.com/office/excel/2006/main}"
OPERATORS: dict[str, Callable[[Any, list[Any]], bool]] = {
    "lessThan": lambda v, r: v < r[0], "lessThanOrEqual": lambda v, r: v <= r[0], "equal": lambda v, r: v == r[0], "notEqual": lambda v, r: v != r[0],
    "greaterThan": lambda v, r: v > r[0], "greaterThanOrEqual": lambda v, r: v >= r[0],
    "between": lambda v, r: min(r) <= v <= max(r), "notBetween": lambda v, r: not min(r) <= v <= max(r),
}  # fmt: skip


def difference(ours: Any, theirs: Any) -> str:
    """What differs, in words; "" when nothing does."""
    if ours == theirs:
        return ""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in [*theirs, *ours]:
            if ours.get(name) != theirs.get(name):
                return f"{name}: {_short(ours.get(name))}, expected {_short(theirs.get(name))}"
    return f"{_short(ours)}, expected {_short(theirs)}"


def _short(value: Any) -> str:
    return repr(value)[:200]


def _written(get: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A style of cells that hold something; None for the others."""
    return lambda cell: get(cell) if cell.value is not None else None


STYLES: dict[str, Callable[[Any], Any]] = {
    "number_format": lambda cell: cell.number_format if cell.value is not None and cell.data_type == "n" else None,
    "font_name": _written(lambda cell: cell.font.name),
    "font_family": _written(lambda cell: cell.font.family),
    "font_color": _written(lambda cell: cell.font.color.rgb if cell.font.color else None),
    "font_bold": _written(lambda cell: cell.font.bold),
    "font_italic": _written(lambda cell: cell.font.italic),
    "font_underline": _written(lambda cell: cell.font.underline),
    "font_size": _written(lambda cell: cell.font.size),
    "fill_type": lambda cell: cell.fill.tagname,
    "bgcolor": lambda cell: cell.fill.fgColor.rgb,
    "fgcolor": lambda cell: cell.fill.fgColor.rgb,
    "hyperlink": _written(lambda cell: cell.hyperlink.target if cell.hyperlink else ""),
    "merge": lambda cell: isinstance(cell, MergedCell),
}


def style(name: str, cell: Any) -> Any:
    """One style of a cell; None where it has none."""
    try:
        return STYLES[name](cell)
    except AttributeError:  # a merged cell has no fill or font
        return None


def styles(sheet: Worksheet, rule: Json) -> dict[str, Any]:
    """{cell: its styles}, with those that a conditional format gives where its condition is a comparison with constants."""
    found = {cell.coordinate: [style(name, cell) for name in rule["props"]] for cells in sheet.iter_cols() for cell in cells}
    for block in sheet.conditional_formatting:
        for each in block.rules:
            holds = _condition(each, sheet.title)
            for cells in block.cells:
                for row, column in cells.cells:
                    cell = sheet.cell(row, column)
                    if cell.value is not None and holds(cell.value):
                        found[cell.coordinate] = [_conditional(name, each.dxf, cell) for name in rule["props"]]
    return {place: value for place, value in found.items() if any(value)}


def _condition(rule: Any, sheet: str) -> Callable[[Any], bool]:
    """The condition of a conditional format; NoVerdict for one that would need a spreadsheet's formulas."""
    try:
        if rule.type != "cellIs":
            raise ValueError
        reference = [float(text) if not text.startswith('"') else text.strip('"') for text in rule.formula]
        compare = OPERATORS[rule.operator]
    except (ValueError, KeyError) as error:
        raise NoVerdict(f"sheet {sheet}: a conditional format by {rule.type} {rule.formula} cannot be judged") from error

    def holds(value: Any) -> bool:
        try:
            return compare(value, reference)
        except TypeError:
            return False

    return holds


def _conditional(name: str, given: Any, cell: Any) -> Any:
    """A style as a conditional format sets it, else the cell's own."""
    try:
        if name in ("bgcolor", "fgcolor"):
            return given.fill.bgColor.rgb
        if name == "number_format":
            return given.numFmt.formatCode
        return getattr(given.font, {"font_color": "color", "font_size": "sz"}.get(name, name.removeprefix("font_")))
    except AttributeError:
        return style(name, cell)


def rows(sheet: Worksheet, rule: Json) -> Json:
    """{row: its properties}: hidden, collapsed, height."""
    return {str(number): {name: getattr(row, name, None) for name in rule["props"]} for number, row in sheet.row_dimensions.items()}


def columns(sheet: Worksheet, rule: Json) -> Json:
    """{column: its properties}: width, auto_size, hidden, collapsed, min, max."""
    return {letter: {name: getattr(column, name, None) for name in rule["props"]} for letter, column in sheet.column_dimensions.items()}


def charts(sheet: Worksheet, rule: Json) -> Json:
    """{what a chart draws: its properties}: title, legend, anchor, width, height, type, direction, xtitle, ytitle, ztitle."""
    asked = rule.get("chart_props", [])
    drawn = sheet._charts  # type: ignore[attr-defined]  # openpyxl keeps them there
    return {_series(chart): {name: CHART[name](chart) for name in asked if name in CHART} for chart in drawn}


def _series(chart: Any) -> str:
    def source(data: Any) -> str:
        return next((ref.f for name in ("numRef", "strRef") if data is not None and (ref := getattr(data, name, None)) is not None), "")

    return ";".join(f"{source(each.val)},{source(each.cat)}" for each in chart.series)


def _title(of: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def text(chart: Any) -> Any:
        try:
            return of(chart).title.tx.rich.p[0].r[0].t
        except (AttributeError, IndexError, TypeError):
            return None

    return text


def _anchor(chart: Any) -> list[Any]:
    start, end = chart.anchor._from, getattr(chart.anchor, "to", None)
    return [getattr(chart.anchor, "editAs", None), start.col, start.row, end.col if end else None, end.row if end else None]


CHART: dict[str, Callable[[Any], Any]] = {
    "title": _title(lambda chart: chart),
    "xtitle": _title(lambda chart: chart.x_axis),
    "ytitle": _title(lambda chart: chart.y_axis),
    "ztitle": _title(lambda chart: chart.z_axis),
    "legend": lambda chart: chart.legend.position if chart.legend else None,
    "anchor": _anchor,
    "width": lambda chart: chart.width,
    "height": lambda chart: chart.height,
    "type": lambda chart: chart.tagname,
    "direction": lambda chart: getattr(chart, "barDir", None),
}


def filters(sheet: Worksheet, rule: Json) -> Json:
    """The automatic filter: its range, what each column lets through, how it sorts."""
    found = sheet.auto_filter
    per_column = {}
    for column in found.filterColumn:
        custom = column.customFilters
        per_column[column.colId] = {
            "hidden_button": column.hiddenButton,
            "show_button": column.showButton,
            "blank": column.filters.blank if column.filters else None,
            "filters": sorted(map(str, column.filters.filter)) if column.filters else None,
            "custom": [custom._and, sorted((str(each.operator), str(each.val)) for each in custom.customFilter)] if custom else None,
        }
    sort = found.sortState
    order = [(each.descending, each.sortBy, each.ref) for each in sort.sortCondition] if sort else None
    return {"ref": found.ref, "columns": per_column, "sort": [sort.ref, sort.caseSensitive, order] if sort else None}


def pivots(sheet: Worksheet, rule: Json) -> Json:
    """{what a pivot table summarizes: its properties}, those named by `pivot_props`."""
    asked = rule.get("pivot_props", [])
    found = {}
    for pivot in sheet._pivots:  # type: ignore[attr-defined]  # openpyxl keeps them there
        source = pivot.cache.cacheSource.worksheetSource
        found[f"{source.sheet}!{source.ref}"] = {name: PIVOT[name](pivot) for name in asked if name in PIVOT}
    return found


PIVOT: dict[str, Callable[[Any], Any]] = {
    "name": lambda pivot: pivot.name,
    "show_total": lambda pivot: pivot.visualTotals,
    "show_empty_row": lambda pivot: pivot.showEmptyRow,
    "show_empty_col": lambda pivot: pivot.showEmptyCol,
    "show_headers": lambda pivot: pivot.showHeaders,
    "location": lambda pivot: pivot.location.ref,
    "filter": lambda pivot: sorted(field.fld for field in pivot.pageFields),
    "selection": lambda pivot: [sorted((item.x, bool(item.h)) for item in field.items if item.x is not None) for field in pivot.pivotFields],
    "col_fields": lambda pivot: [field.x for field in pivot.colFields],
    "row_fields": lambda pivot: [field.x for field in pivot.rowFields],
    "data_fields": lambda pivot: [(field.fld, field.subtotal, field.showDataAs) for field in pivot.dataFields],
    "data_fields_name": lambda pivot: [field.name for field in pivot.dataFields],
}


def sparklines(path: Path, sheet: str) -> dict[str, str]:
    """{cell: the range it draws}; openpyxl does not read them."""
    with zipfile.ZipFile(path) as book:
        listed = ElementTree.fromstring(book.read("xl/workbook.xml")).iter(f"{MAIN}sheet")  # noqa: S314  # expat refuses entity bombs
        names = [each.get("name") for each in listed]
        member = f"xl/worksheets/sheet{names.index(sheet) + 1}.xml"
        root = ElementTree.fromstring(book.read(member))  # noqa: S314
    return {str(each.findtext(f"{XM}sqref")): str(each.findtext(f"{XM}f")) for each in root.iter(f"{X14}sparkline")}
