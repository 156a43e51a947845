"""The packs themselves: large enough, written by hand, and agreeing with themselves about who is where when."""

from __future__ import annotations

import difflib
import itertools
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from dateutil.rrule import rrulestr

from tests.images.web.website import IMAGES, Visitor, Website, website

Row = dict[str, Any]
Span = tuple[datetime, datetime, Row]
ADDRESS = re.compile(r"[\w.+-]+@[\w.-]+\.\w+")
LIKENESS = 0.8
PACKS = IMAGES / "calendr" / "packs"
BASES = ("2025-01-06", "2027-10-27")  # a January; a Wednesday before the clocks go back in Europe
SIZES = {"default": (55, 70), "professional-swe": (120, 400)}
NO_ROOM = {"", "Video", "home", "staging cluster", "incident channel"}
ANSWERED_FOR = {"per-ruth"}  # sets up interviews without sitting in them
# Two things at once on purpose: such a pair is what a task, or life, is about.
CLASHES: dict[str, set[frozenset[str]]] = {
    "professional-swe": {frozenset({"evt-standup", "evt-porttech-talk"})},  # Priya leads the round while Maya is in Rotterdam
    "default": set(),
}


@dataclass
class Pack:
    """A pack as a session shows it right after the reset; `base` is its base Monday."""

    name: str
    base: datetime
    zone: ZoneInfo
    user: str
    rows: dict[str, list[Row]]

    def time(self, text: str) -> datetime:
        """A time or day of a row, in the pack's zone."""
        moment = datetime.fromisoformat(text)
        return moment.astimezone(self.zone) if moment.tzinfo else moment.replace(tzinfo=self.zone)

    @property
    def emails(self) -> dict[str, str]:
        return {p["id"]: p["email"] for p in self.rows["people"]}

    def accepted(self) -> dict[str, set[str]]:
        """The addresses of those who come, by event; who organizes comes."""
        found: dict[str, set[str]] = defaultdict(set)
        for guest in self.rows["guests"]:
            if guest["response"] == "accepted":
                found[guest["event_id"]].add(guest["email"])
        for event in self.rows["events"]:
            if event["organizer_id"] not in ANSWERED_FOR:
                found[event["id"]].add(self.emails[event["organizer_id"]])
        return found

    def spans(self, event: Row) -> Iterator[tuple[datetime, datetime]]:
        """Start and end of an event's occurrences up to five weeks after the base Monday."""
        start, end = self.time(event["start"]), self.time(event["end"])
        if not event["recurrence"]:
            yield start, end
            return
        own = ZoneInfo(event["timezone"]) if event["timezone"] else self.zone
        last = self.base.replace(tzinfo=None) + timedelta(days=35)
        rule = rrulestr(re.sub(r"(UNTIL=\d{8})$", r"\1T235959", event["recurrence"]), dtstart=start.astimezone(own).replace(tzinfo=None))
        for first in itertools.takewhile(lambda moment: moment < last, rule):
            if first.date().isoformat() not in event["exdates"]:
                begins = first.replace(tzinfo=own).astimezone(self.zone)
                yield begins, begins + (end - start)

    def happens(self) -> list[Span]:
        """What has times from two weeks before the base Monday on, by start; a changed occurrence stands for the one it changes."""
        moved = {(e["recurring_event_id"], self.time(e["original_start"])) for e in self.rows["events"] if e["recurring_event_id"]}
        first = self.base - timedelta(days=14)
        found = [(start, end, event) for event in self.rows["events"] if not event["all_day"] for start, end in self.spans(event)]
        return sorted(((s, e, row) for s, e, row in found if s >= first and (row["id"], s) not in moved), key=lambda span: span[:2])


@pytest.fixture(scope="module")
def calendr(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Website]:
    with website(tmp_path_factory.mktemp("data"), PACKS=str(PACKS), DATA_PACK="default") as running:
        yield running


@pytest.fixture(scope="module", params=sorted(SIZES))
def pack(request: pytest.FixtureRequest, calendr: Website) -> Pack:
    name: str = request.param
    head = dict(re.findall(r"^(\w+): *(.+)$", (PACKS / name / "pack.yaml").read_text(encoding="utf-8"), re.MULTILINE))
    base = calendr.reset(name, dataPack=name)["baseWeek"]
    zone = ZoneInfo(head["timezone"])
    return Pack(name, datetime.fromisoformat(base).replace(tzinfo=zone), zone, head["user"], calendr.get(f"/state?session_id={name}").json)


def test_they_are_these() -> None:
    assert sorted(path.parent.name for path in PACKS.glob("*/pack.yaml")) == sorted(SIZES)


def test_the_checker_finds_no_fault() -> None:
    env = {**os.environ, "PYTHONPATH": str(IMAGES)}
    done = subprocess.run(
        [sys.executable, "-m", "server.packs", "check"], cwd=IMAGES / "calendr", env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == sorted(SIZES)


@pytest.mark.parametrize("base", BASES)
def test_sound_in_any_base_week(pack: Pack, calendr: Website, base: str) -> None:
    answer = calendr.reset(f"{pack.name}-{base}", dataPack=pack.name, baseWeek=base)
    assert answer["loadSummary"] == {table: len(found) for table, found in pack.rows.items()}


def test_who_organizes_is_taken_in_any_calendar(calendr: Website) -> None:
    calendr.reset("taken", dataPack="professional-swe")
    visitor = Visitor(calendr, "taken")
    visitor.get("/find-time?guests=wen@harbor.example&from=2026-03-11&days=7&minutes=30")
    assert 'id="slot-2026-03-11-' in visitor.html
    assert 'id="slot-2026-03-12-' not in visitor.html, "Wen is in Joshua Tree; it says so in the team's calendar"


def test_the_trash_moves_with_the_base_week(calendr: Website) -> None:
    session = "trash"
    calendr.reset(session, dataPack="professional-swe", baseWeek="2027-11-01")
    (trashed,) = (row for row in calendr.table(session, "trash") if row["id"] == "trs-pilots")
    assert trashed["start"][:16] == "2027-11-11T11:00"
    visitor = Visitor(calendr, session)
    visitor.get("/trash")
    assert visitor.submit("restore-form-trs-pilots").status == 303
    (event,) = (row for row in calendr.table(session, "events") if row["id"] == "evt-pilots-call")
    assert (event["start"], event["end"]) == ("2027-11-11T11:00:00-05:00", "2027-11-11T11:45:00-05:00")


def test_size_and_variety(pack: Pack) -> None:
    least, most = SIZES[pack.name]
    events = pack.rows["events"]
    assert least <= len(events) <= most
    assert sum(1 for e in events if e["recurrence"]) >= 12
    assert sum(1 for e in events if e["recurring_event_id"]) >= 1
    assert sum(1 for e in events if e["exdates"]) >= 3
    assert sum(1 for e in events if e["timezone"]) >= 1
    assert {g["response"] for g in pack.rows["guests"]} == {"needs_action", "accepted", "tentative", "declined"}


def test_no_text_is_another_with_a_name_or_number_changed(pack: Pack) -> None:
    like = [pair for where, texts in _columns(pack.rows) for pair in _like(where, texts)]
    assert not like, "\n".join(like)


def _columns(rows: dict[str, list[Row]]) -> Iterator[tuple[str, dict[str, str]]]:
    for table, found in rows.items():
        for column in sorted({column for row in found for column, value in row.items() if isinstance(value, str)} - {"id", "recurrence"}):
            # A changed occurrence has the name of its series; words only: no address, no time.
            named = [row for row in found if column != "title" or not row.get("recurring_event_id")]
            texts = {row["id"]: row[column] for row in named if isinstance(row[column], str)}
            yield f"{table}.{column}", {key: text for key, text in texts.items() if len(text) >= 25 and " " in text}


def _like(where: str, texts: dict[str, str]) -> Iterator[str]:
    for (one, a), (other, b) in itertools.combinations(texts.items(), 2):
        matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
        if where == "events.location" and a == b:
            continue  # the same place
        if matcher.real_quick_ratio() > LIKENESS and matcher.quick_ratio() > LIKENESS and (ratio := matcher.ratio()) > LIKENESS:
            yield f"{where}: {one} and {other} are alike by {ratio:.2f}: {a[:60]!r}, {b[:60]!r}"


def test_only_example_domains(pack: Pack) -> None:
    found = {address for table in pack.rows.values() for row in table for value in row.values() for address in ADDRESS.findall(str(value))}
    assert {address for address in found if not address.endswith(".example")} == set()


def test_guests_are_known(pack: Pack) -> None:
    """An address of the house that nobody has is a slip of the pen; who is from outside has a name."""
    house = pack.emails[pack.user].partition("@")[2]
    for guest in pack.rows["guests"]:
        assert guest["name"], f"{guest['id']}: {guest['email']} has no name"
        assert guest["email"] in pack.emails.values() or not guest["email"].endswith(f"@{house}"), guest["id"]


def test_organizers_do_not_invite_themselves(pack: Pack) -> None:
    organizers = {e["id"]: pack.emails[e["organizer_id"]] for e in pack.rows["events"]}
    assert [g["id"] for g in pack.rows["guests"] if g["email"] == organizers[g["event_id"]]] == []


def test_everybody_occurs(pack: Pack) -> None:
    """A person or calendar that nothing happens to is scenery."""
    there = {e["organizer_id"] for e in pack.rows["events"]}
    invited = {g["email"] for g in pack.rows["guests"]}
    assert [p["id"] for p in pack.rows["people"] if p["id"] not in there and p["email"] not in invited] == []
    assert {c["id"] for c in pack.rows["calendars"]} == {e["calendar_id"] for e in pack.rows["events"]}


def test_changed_occurrences_are_occurrences(pack: Pack) -> None:
    events = {e["id"]: e for e in pack.rows["events"]}
    for event in events.values():
        if event["recurring_event_id"]:
            starts = [start for start, _ in pack.spans(events[event["recurring_event_id"]])]
            assert pack.time(event["original_start"]) in starts, f"{event['id']}: {event['original_start']} is none of its series"


def test_no_day_is_left_out_in_vain(pack: Pack) -> None:
    for event in pack.rows["events"]:
        whole = {start.date().isoformat() for start, _ in pack.spans({**event, "exdates": []})}
        last = (pack.base + timedelta(days=34)).date().isoformat()
        assert {day for day in event["exdates"] if day <= last} <= whole, event["id"]


def _clashes(happens: list[Span]) -> Iterator[tuple[str, Row, Row]]:
    for n, (_, end, row) in enumerate(happens):
        for start, _, other in happens[n + 1 :]:
            if start >= end:
                break
            yield f"{row['id']} and {other['id']} on {start:%a %d %b %H:%M}", row, other


def test_no_room_is_taken_twice(pack: Pack) -> None:
    rooms: dict[str, list[Span]] = defaultdict(list)
    for span in pack.happens():
        rooms[span[2]["location"]].append(span)
    twice = [f"{room}: {when}" for room, spans in rooms.items() if room not in NO_ROOM for when, _, _ in _clashes(spans)]
    assert not twice, "\n".join(twice)


def test_nobody_accepts_two_things_at_once(pack: Pack) -> None:
    accepted = pack.accepted()
    busy = [span for span in pack.happens() if span[2]["show_as"] == "busy"]
    wrong = [
        f"{who}: {when}"
        for when, one, other in _clashes(busy)
        for who in sorted(accepted[one["id"]] & accepted[other["id"]])
        if frozenset({one["id"], other["id"]}) not in CLASHES[pack.name]
    ]
    assert not wrong, "\n".join(wrong)


def test_nobody_accepts_while_away(pack: Pack) -> None:
    """Who has whole days off comes to nothing that somebody else calls in those days."""
    accepted = pack.accepted()
    off = [e for e in pack.rows["events"] if e["calendar_id"] == "cal-away" and e["all_day"] and e["show_as"] == "busy"]
    away = [(e["title"], e["organizer_id"], *span) for e in off for span in pack.spans(e)]
    wrong = [
        f"{row['id']} on {start:%a %d %b %H:%M}: {title}"
        for start, _, row in pack.happens()
        for title, who, first, after in away
        if first <= start < after and not row["recurrence"] and row["organizer_id"] != who and pack.emails[who] in accepted[row["id"]]
    ]
    assert not wrong, "\n".join(wrong)
