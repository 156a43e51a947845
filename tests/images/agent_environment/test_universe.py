"""The universe loader: every fault at once with its place, and a template that many processes may build."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from _server import yamlrows
from hypothesis import given
from hypothesis import strategies as st
from server import rowcheck, tables, universe

from tests.images.serving import IMAGE

HEAD = """
id: tiny
title: Tiny
story: One person.
now: "2026-03-09T08:30:00"
timezone: America/New_York
user: {name: Dana Reyes, email: dana@harbor.example}
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    folder = tmp_path / "universes" / "tiny"
    folder.mkdir(parents=True)
    (folder / "universe.yaml").write_text(HEAD)
    return folder


def put(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def faults(folder: Path) -> list[str]:
    return [str(problem) for problem in rowcheck.check(folder).problems]


def test_every_fault_at_once_with_its_line(tiny: Path) -> None:
    put(tiny, "calendar/calendars.yaml", "- {id: cal-a, name: A, owner: no}\n- {id: cal-a, name: 7, owner: x}\n- {id: cal_1, name: A}\n")
    put(
        tiny,
        "calendar/events.yaml",
        """
- id: evt-a
  calendar_id: cal-b
  title: T
  start: 2026-13-01T10:00:00
  end: "2026-03-09"
  status: maybe
  organizer: x
  titel: again
""",
    )
    put(tiny, "calender/events.yaml", "[]")
    put(tiny, "email/labels.yaml", "a: 1\n")
    put(tiny, "slack/users.yaml", "- {id: u\n")
    assert faults(tiny) == [
        "tiny/calendar/calendars.yaml:2: name: must be text, not 7 (quote it)",
        "tiny/calendar/calendars.yaml:2: id 'cal-a' is here twice (first in line 1)",
        "tiny/calendar/calendars.yaml:3: id: 'cal_1' is of the form that new rows get; choose another",
        "tiny/calendar/calendars.yaml:3: 'owner' is missing",
        "tiny/calendar/events.yaml:2: start and end must be days of an all-day event, else times (all_day says which)",
        "tiny/calendar/events.yaml:3: calendar_id: no row 'cal-b' in calendar.calendars (did you mean 'cal-a'?)",
        "tiny/calendar/events.yaml:5: start: must be YYYY-MM-DD or YYYY-MM-DDTHH:MM:SS, not '2026-13-01T10:00:00'",
        "tiny/calendar/events.yaml:7: status: must be one of confirmed, tentative, cancelled, not 'maybe'",
        "tiny/calendar/events.yaml:9: unknown column 'titel' (did you mean 'title'?)",
        "tiny/calender/events.yaml:1: no such table (did you mean 'calendar/events.yaml'?)",
        "tiny/email/labels.yaml:1: must be a list of rows",
        "tiny/slack/users.yaml:2: did not find expected ',' or '}'",
    ]  # fmt: skip


def test_the_head_is_checked(tiny: Path) -> None:
    (tiny / "universe.yaml").write_text("id: other\ntitle: T\nstory: S\nnow: today\ntimezone: Mars/Base\nuser: Dana\nclock: 1\n")
    assert [fault.partition(": ")[2] for fault in faults(tiny)] == [
        "id: must be 'tiny', the folder's name",
        "now: must be YYYY-MM-DDTHH:MM:SS, not 'today'",
        "timezone: no IANA time zone: 'Mars/Base'",
        "user: must be {name, email}",
        "unknown field 'clock'",
    ]


@pytest.mark.parametrize(("text", "value"), [
    ("no", "no"), ("on", "on"), ("off", "off"), ("y", "y"), ("1:30", "1:30"), ("2026-03-09", "2026-03-09"), ("0755", 755), ("0o17", 15), ("1_000", "1_000"),
    ("true", True), ("~", None), ("1e3", 1000.0), (".5", 0.5), ("0x1f", 31), ("=", "="), ("<<", "<<"),
])  # fmt: skip
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    document, problems = yamlrows.load(f"a: {text}\n", "f")
    assert document is not None
    assert (document.plain()["a"], type(document.plain()["a"]), problems) == (value, type(value), [])


def test_keys_are_texts_and_there_once() -> None:
    _, problems = yamlrows.load("on: 1\noff: 2\non: 3\n", "f")
    assert [str(p) for p in problems] == ["f:3: 'on' is here twice (first in line 1)"]


def test_tags_bombs_and_no_numbers_are_refused() -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(9))
    assert "do aliases multiply" in str(yamlrows.load(bomb, "f")[1][0])
    assert "not allowed" in str(yamlrows.load("a: !!python/object/apply:os.system [x]\nb: !!python/name:os x", "f")[1][0])
    assert len(yamlrows.load("[.nan, .inf]", "f")[1]) == 2


@given(st.text(max_size=60))
def test_no_text_breaks_the_reader(text: str) -> None:
    document, problems = yamlrows.load(text, "f")
    assert document is None or problems is not None


def test_a_faulty_universe_is_not_built(tiny: Path, tmp_path: Path) -> None:
    put(tiny, "email/labels.yaml", "- {id: lbl-a}\n")
    with pytest.raises(universe.BrokenUniverse, match=r"tiny/email/labels.yaml:1: 'name' is missing"):
        universe.template("tiny", tmp_path / "data", tiny.parent)
    assert not list((tmp_path / "data").rglob("*.sqlite*"))
    with pytest.raises(universe.UnknownUniverse, match="there are: tiny"):
        universe.template("tinny", tmp_path / "data", tiny.parent)


def test_a_template_is_built_once_and_anew_when_a_file_changes(tiny: Path, tmp_path: Path) -> None:
    put(tiny, "filesystem/entries.yaml", '- {id: ent-a, path: /a.txt, content: "héllo", modified_at: "2026-03-01T09:00:00"}\n')
    first = universe.template("tiny", tmp_path, tiny.parent)
    stamp = first.stat().st_mtime_ns
    assert universe.template("tiny", tmp_path, tiny.parent) == first
    assert first.stat().st_mtime_ns == stamp
    connection = sqlite3.connect(first)
    assert connection.execute("SELECT size, modified_at FROM filesystem_entries").fetchall() == [(6, "2026-03-01T14:00:00Z")]
    connection.close()
    put(tiny, "filesystem/entries.yaml", '- {id: ent-a, path: /a.txt, content: "hello", modified_at: "2026-03-01T09:00:00"}\n')
    assert universe.template("tiny", tmp_path, tiny.parent) != first


def test_the_same_universe_gives_the_same_rows(tmp_path: Path) -> None:
    dumps = []
    for name in ("one", "two"):
        connection = sqlite3.connect(universe.template("sales-team", tmp_path / name))
        dumps.append(list(connection.iterdump()))
        connection.close()
    assert dumps[0] == dumps[1]


def test_many_processes_build_it_once(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from server import universe; p = universe.template('software-team', Path(sys.argv[1])); print(p.stat().st_ino)"
    )
    children = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=IMAGE, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    inodes = {child.communicate(timeout=60)[0] for child in children}
    assert [child.returncode for child in children] == [0] * 6
    assert len(inodes) == 1
    assert {p.suffix for p in (tmp_path / "templates").iterdir()} == {".sqlite", ".lock"}


def test_the_command(tiny: Path) -> None:
    copy = tiny.parent.parent / "image"
    for name, target in ((IMAGE.name, copy), ("_server", copy.parent / "_server"), ("_verify", copy.parent / "_verify")):
        shutil.copytree(IMAGE.parent / name, target, ignore=shutil.ignore_patterns("__pycache__"))
    put(copy / "universes" / "sales-team", "crm/stages.yaml", "- {id: stg-a, name: 1}\n")
    done = subprocess.run([sys.executable, "-m", "server.universe", "check"], cwd=copy, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "sales-team/crm/stages.yaml:1: name: must be text, not 1 (quote it)" in done.stdout
    assert "software-team: " in done.stdout
    fine = subprocess.run(
        [sys.executable, "-m", "server.universe", "check", "clinic-front-desk"], cwd=copy, capture_output=True, text=True, check=False, timeout=60
    )
    assert fine.returncode == 0
    assert "rows" in fine.stdout


def test_ids_that_new_rows_get_are_free() -> None:
    for table in (t for server in tables.SERVERS.values() for t in server.values()):
        assert rowcheck._id_fault(f"{table.prefix}_12", table)
        assert not rowcheck._id_fault(f"{table.prefix}-12", table)
