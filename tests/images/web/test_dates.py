"""Date templates: absolute dates to `{+N Day}` of a base week and back."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.images.web.website import IMAGES  # noqa: F401  # puts images/ on the path

from _web import dates  # isort: skip

BASE = date(2025, 1, 6)

TO_TEMPLATES = [
    ("2025-01-06", "{+0 Mon}"),
    ("2025-01-15", "{+1 Wed}"),
    ("2025-01-24", "{+2 Fri}"),
    ("2025-01-02", "{-1 Thu}"),
    ("2025-01-05", "{-1 Sun}"),
    ("2025-01-12", "{+0 Sun}"),
    ("2024-12-30", "{-1 Mon}"),
    ("2024-02-29", "{-45 Thu}"),
    ("2025-01-15T10:00", "{+1 Wed}T10:00"),
    ("2025-01-15 10:00", "{+1 Wed} 10:00"),
    ("(2025-01-15)", "({+1 Wed})"),
    ("due 2025-01-15.", "due {+1 Wed}."),
    ("2025-01-06 to 2025-01-10", "{+0 Mon} to {+0 Fri}"),
    ("2025-01-06-2025-01-10", "{+0 Mon}-{+0 Fri}"),
    ("2025-01-06/2025-01-10", "{+0 Mon}/{+0 Fri}"),
    ("from 2025-01-06 through 2025-01-10", "from {+0 Mon} through {+0 Fri}"),
    ("January 15, 2025", "{+1 Wed}"),
    ("January 15 2025", "{+1 Wed}"),
    ("January 15th, 2025", "{+1 Wed}"),
    ("Jan 15, 2025", "{+1 Wed}"),
    ("Jan. 15", "{+1 Wed}"),
    ("January 15", "{+1 Wed}"),
    ("January the 15th", "{+1 Wed}"),
    ("15 January 2025", "{+1 Wed}"),
    ("15 Jan", "{+1 Wed}"),
    ("the 15th of January", "the {+1 Wed}"),
    ("the 15th of January 2025", "the {+1 Wed}"),
    ("Sept 3", "{-18 Tue}"),
    ("May 5", "{+17 Mon}"),
    ("December 30", "{-1 Mon}"),
    ("Dec 30, 2025", "{+51 Tue}"),
    ("Wednesday, January 15, 2025", "{+1 Wed}"),
    ("Wednesday January 15", "{+1 Wed}"),
    ("Wed, Jan 15", "{+1 Wed}"),
    ("Wed 15 January", "{+1 Wed}"),
    ("Wednesday the 15th of January", "{+1 Wed}"),
    ("Wednesday, 2025-01-15", "{+1 Wed}"),
    ("on Wednesday, January 15, 2025 at 10:00", "on {+1 Wed} at 10:00"),
    ("January 6-10", "{+0 Mon}-{+0 Fri}"),
    ("January 6-10, 2025", "{+0 Mon}-{+0 Fri}"),
    ("January 6 - 10", "{+0 Mon} - {+0 Fri}"),
    ("January 6\u201310", "{+0 Mon}\u2013{+0 Fri}"),
    ("January 6 to 10", "{+0 Mon} to {+0 Fri}"),
    ("between January 6 and 10", "between {+0 Mon} and {+0 Fri}"),
    ("January 6th through 10th", "{+0 Mon} through {+0 Fri}"),
    ("6-10 January", "{+0 Mon}-{+0 Fri}"),
    ("6 to 10 January 2025", "{+0 Mon} to {+0 Fri}"),
    ("January 6 to January 10", "{+0 Mon} to {+0 Fri}"),
    ("January 30 to February 2", "{+3 Thu} to {+3 Sun}"),
    ("Move it from Jan 8 to Jan 9 and again on 2025-01-10", "Move it from {+0 Wed} to {+0 Thu} and again on {+0 Fri}"),
    ("{+1 Wed} stays, 2025-01-15 goes", "{+1 Wed} stays, {+1 Wed} goes"),
]

STAY = [
    "no date at all",
    "Wednesday",
    "next Wednesday",
    "2025-02-30",
    "2025-13-01",
    "12025-01-15",
    "2025-01-155",
    "2025-1-5",
    "February 30",
    "Feb 29, 2025",
    "Thursday, January 15, 2025",
    "January 2025",
    "Mar 10:30",
    "Mar 10-11am",
    "March 10am",
    "June 5.5",
    "May 10%",
    "may 5",
    "May apples",
    "Room 15",
    "version 2025.01.15",
    "January 10-6",
    "Marchand 5",
    "5 Mayors",
    "",
    "{+1 Foo}",
    "1/15/2025",
]


@pytest.mark.parametrize(("text", "wanted"), TO_TEMPLATES)
def test_to_templates(text: str, wanted: str) -> None:
    assert dates.to_templates(text, BASE) == wanted


@pytest.mark.parametrize("text", STAY)
def test_what_is_no_date_stays(text: str) -> None:
    assert dates.to_templates(text, BASE) == text


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{+1 Wed}", "2025-01-15"),
        ("{+2 Fri}", "2025-01-24"),
        ("{-1 Thu}", "2025-01-02"),
        ("{+0 Mon}", "2025-01-06"),
        ("{-0 Mon}", "2025-01-06"),
        ("{-0 Sun}", "2025-01-12"),
        ("{+1 Wednesday}", "2025-01-15"),
        ("{+1 wed}", "2025-01-15"),
        ("{ +1  WED }", "2025-01-15"),
        ("{+1 Tues} and {+1 Thurs}", "2025-01-14 and 2025-01-16"),
        ("{+52 Mon}", "2026-01-05"),
        ("{+0 Mon} to {+0 Fri}", "2025-01-06 to 2025-01-10"),
        ("{+1 Foo}", "{+1 Foo}"),
        ("{1 Mon}", "{1 Mon}"),
        ("{+999999 Mon}", "{+999999 Mon}"),
        ("{-999999 Mon}", "{-999999 Mon}"),
    ],
)
def test_from_templates(text: str, wanted: str) -> None:
    assert dates.from_templates(text, BASE) == wanted


def test_a_base_that_is_no_monday_means_the_monday_of_its_week() -> None:
    for n in range(7):
        assert dates.from_templates("{+1 Wed}", BASE + timedelta(days=n)) == "2025-01-15"
        assert dates.to_templates("January 15, 2025", BASE + timedelta(days=n)) == "{+1 Wed}"
    assert dates.from_templates("{+0 Mon}", date(2025, 1, 12)) == "2025-01-06"
    assert dates.from_templates("{+0 Mon}", date(2025, 1, 13)) == "2025-01-13"


def test_what_looks_like_a_template_is_named() -> None:
    assert dates.unread("{+1 Wed} {+1 Foo} {+ 2 Mon}") == ["{+1 Foo}", "{+ 2 Mon}"]


DAYS = st.dates(date(1900, 1, 1), date(2500, 12, 31))
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="0123456789-"), max_size=12)


@given(DAYS, DAYS)
def test_iso_dates_come_back(day: date, base: date) -> None:
    text = day.isoformat()
    template = dates.to_templates(text, base)
    assert template == dates.template(day, base)
    assert dates.from_templates(template, base) == text


@given(st.integers(-2000, 2000), st.sampled_from(dates.DAYS), DAYS)
def test_templates_come_back(weeks: int, day: str, base: date) -> None:
    template = f"{{{weeks:+d} {day}}}"
    assert dates.to_templates(dates.from_templates(template, base), base) == template


@given(DAYS, DAYS, st.sampled_from(["{d:%B} {d.day}, {d.year}", "{d:%b} {d.day}, {d.year}", "{d.day} {d:%B} {d.year}", "{d:%A}, {d:%B} {d.day}, {d.year}"]))
def test_names_of_months_mean_the_same_day(day: date, base: date, form: str) -> None:
    assert dates.to_templates(form.format(d=day), base) == dates.template(day, base)


@given(st.lists(DAYS, min_size=1, max_size=4), DAYS, st.lists(WORDS, min_size=5, max_size=5))
def test_the_words_between_dates_stay(days: list[date], base: date, words: list[str]) -> None:
    text = "|".join(f"{word}|{day.isoformat()}" for word, day in zip(words, days, strict=False))
    assert dates.from_templates(dates.to_templates(text, base), base) == text


@given(st.text(max_size=200), DAYS)
def test_any_text_is_taken(text: str, base: date) -> None:
    once = dates.to_templates(text, base)
    assert dates.to_templates(once, base) == once
    dates.from_templates(text, base)
