"""What people see: progress on stderr while something takes time, tables and colors on a terminal, JSON when asked. Only here: rich and tqdm."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import click

if TYPE_CHECKING:
    from gymctl.runner import Told

QUIET_SECONDS = 0.5
LEAST_FOLDED = 40
"""Columns that a table's last column keeps on a narrow terminal."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


LEVELS = ("pre_start", "post_start", "post_task")
"""recipe.LEVELS, whose import would cost every call of the command 20 ms; a test holds them together."""


def examples(*lines: str) -> str:
    """The epilog of a verb: its examples."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


class Seconds(click.FloatRange):
    """A time in seconds: over 0, at most `most`, and a number (FloatRange lets nan pass)."""

    def __init__(self, most: float) -> None:
        super().__init__(min=0, max=most, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value} is no time", param, ctx)
        return seconds


def print_json(document: Any) -> None:
    """One document on stdout."""
    click.echo(json.dumps(document, ensure_ascii=not _unicode(sys.stdout)))


def note(text: str) -> None:
    """A remark on stderr."""
    click.echo(f"note: {text}", err=True)


def warn(text: str) -> None:
    """A warning on stderr."""
    click.echo(f"warning: {text}", err=True)


def lively() -> bool:
    """Whether stderr is a terminal that can redraw a line."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("CI")


def plain() -> bool:
    """Whether colors and bold are unwanted, or would be garbage."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def _unicode(stream: TextIO) -> bool:
    return (stream.encoding or "").lower().replace("-", "") == "utf8"


@contextlib.contextmanager
def telling() -> Iterator[Told]:
    """Where a verb tells its news. On a terminal one line that is redrawn and goes away; elsewhere a line a step once it takes longer than a second."""
    from gymctl.runner import Told

    teller = _Redrawn() if lively() else _Lines()
    _open.append(teller)
    try:
        yield Told(teller.step, teller.progress)
    finally:
        _open.remove(teller)
        teller.close()


def line(text: str) -> None:
    """A line on stdout while a verb tells its news: the redrawn line is taken away for it and comes back below."""
    for teller in _open:
        teller.pause()
    click.echo(text)
    for teller in _open:
        teller.resume()


def width(least: int = LEAST_FOLDED) -> int:
    """Columns of the terminal; 120 where stdout is none."""
    return max(least, shutil.get_terminal_size().columns) if sys.stdout.isatty() else 120


class _Lines:
    """News as lines, for logs: none in the first second, then each new step once."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._last = ""

    def step(self, text: str) -> None:
        if text != self._last and time.monotonic() - self._began > 1:
            click.echo(f"{text} ...", err=True)
            self._last = text

    def progress(self, what: str, done: int, total: int) -> None:
        tenth = f" {done * 10 // total * 10}%" if total else ""
        self.step(f"{what}{tenth}")

    def pause(self) -> None:
        """Nothing is redrawn."""

    def resume(self) -> None:
        """Nothing was taken away."""

    def close(self) -> None:
        """Nothing is open."""


_open: list[_Lines | _Redrawn] = []
"""What is telling news now."""


class _Redrawn:
    """News on a terminal: rich's spinner for steps, tqdm's bar for bytes; neither is imported before half a second has passed."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._status: Any = None
        self._bar: Any = None
        self._what = ""
        self._width = 80

    def step(self, text: str) -> None:
        self._end_bar()
        if self._status is None and time.monotonic() - self._began > QUIET_SECONDS:
            from rich.console import Console

            console = Console(stderr=True)
            self._width = console.width
            self._status = console.status("", spinner="dots" if _unicode(sys.stderr) else "line")
            self._status.start()
        if self._status is not None:
            from rich.markup import escape

            self._status.update(escape(" ".join(text.split())[: self._width - 4]))  # more than one line is not redrawn in place

    def progress(self, what: str, done: int, total: int) -> None:
        if self._what != what:
            self._end_bar()
            self._end_status()
            from tqdm import tqdm

            self._bar = tqdm(total=total or None, desc=what, unit="B", unit_scale=True, unit_divisor=1024, leave=False, file=sys.stderr, delay=QUIET_SECONDS)
            self._what = what
        self._bar.update(done - self._bar.n)

    def pause(self) -> None:
        """Take the redrawn line away; a bar ends for good, the next news opens one."""
        self._end_bar()
        if self._status is not None:
            self._status.stop()

    def resume(self) -> None:
        """Bring it back."""
        if self._status is not None:
            self._status.start()

    def close(self) -> None:
        self._end_bar()
        self._end_status()

    def _end_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
        self._bar, self._what = None, ""

    def _end_status(self) -> None:
        if self._status is not None:
            self._status.stop()
        self._status = None


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table on stdout: aligned columns, bold heads on a terminal. Only the last column is ever folded: a name or URL can be copied from any terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    made = Table(box=None, pad_edge=False, header_style="bold")
    for n, name in enumerate(columns):
        made.add_column(name, overflow="fold", no_wrap=n < len(columns) - 1)
    for row in cells:
        made.add_row(*map(Text, row))
    widths = [max(len(row[n]) for row in [list(columns), *cells]) for n in range(len(columns))]
    least = sum(widths[:-1]) + 2 * len(widths) + min(widths[-1], LEAST_FOLDED)
    bold = sys.stdout.isatty() and not plain()
    console = Console(width=max(Console().width, least) if sys.stdout.isatty() else 100_000, color_system="standard" if bold else None, force_terminal=bold)
    with console.capture() as captured:
        console.print(made)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def count(things: Sequence[Any], name: str) -> str:
    """How many, for people: `1 step`, `2 steps`."""
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


def size(count: int) -> str:
    """Bytes for people: `12.3 MiB`."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def mark(outcome: bool | str | None) -> str:
    """A colored word for yes, no and nobody knows."""
    if outcome is True:
        return click.style("ok", fg="green")
    if outcome is False:
        return click.style("FAILED", fg="red")
    return click.style("not proven" if outcome is None else str(outcome), fg="yellow")
