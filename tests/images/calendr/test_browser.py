"""Calendr in a real Chromium: the main flows of every page, by mouse and by keyboard."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.images.calendr.conftest import Open
from tests.images.web.website import Website

if TYPE_CHECKING:
    from playwright.sync_api import Page

WEEK = "/week/2026-03-09"


def event(site: Website, session: str, title: str) -> dict[str, Any]:
    """The one event with this title."""
    (found,) = [row for row in site.table(session, "events") if row["title"] == title]
    return found


def settled(page: Page, text: str) -> None:
    """Wait for the message after an action."""
    page.wait_for_selector(f'#toast:has-text("{text}")')


def center(page: Page, selector: str, dy: float = 0.5) -> tuple[float, float]:
    """A point of an element, `dy` of its height from its top."""
    box = page.locator(selector).bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] * dy


def drag(page: Page, selector: str, dx: float, dy: float, at: float = 0.3) -> None:
    """Take an element with the mouse and let it go elsewhere."""
    x, y = center(page, selector, at)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + dx / 2, y + dy / 2)
    page.mouse.move(x + dx, y + dy)
    page.mouse.up()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def test_create_by_keyboard_alone(site: Website, visit: Open, name: str) -> None:
    page = visit(WEEK)
    page.keyboard.press("c")
    page.wait_for_selector("dialog[open] #title")
    page.keyboard.type("Lunch & learn")
    page.locator("#guests").focus()
    page.keyboard.type("jon")
    page.wait_for_selector('[role="option"]')
    page.keyboard.press("Enter")
    page.keyboard.type("sam@lattice.example,")
    page.locator("#save").focus()
    page.keyboard.press("Enter")
    settled(page, "Created")
    made = event(site, name, "Lunch & learn")
    assert made["start"] == "2026-03-11T09:30:00-04:00"
    guests = [g["email"] for g in site.table(name, "guests") if g["event_id"] == made["id"]]
    assert guests == ["jonas@harbor.example", "sam@lattice.example"]
    assert page.url.endswith(WEEK)


def test_an_empty_place_becomes_an_event(site: Website, visit: Open, name: str) -> None:
    page = visit(WEEK)
    box = page.locator('.column[data-day="2026-03-13"]').bounding_box()
    assert box is not None
    hour = box["height"] / 24
    page.mouse.move(box["x"] + 60, box["y"] + 10.02 * hour)
    page.mouse.down()
    page.mouse.move(box["x"] + 60, box["y"] + 10.9 * hour)
    page.mouse.move(box["x"] + 60, box["y"] + 11.5 * hour)
    page.mouse.up()
    page.wait_for_selector("dialog[open] #title")
    assert page.input_value("#start-time") == "10:00"
    assert page.input_value("#end-time") == "11:30"
    page.fill("#title", "Drawn")
    page.click("#save")
    settled(page, "Created")
    assert event(site, name, "Drawn")["end"] == "2026-03-13T11:30:00-04:00"


def test_drag_resize_and_undo(site: Website, visit: Open, name: str) -> None:
    page = visit(WEEK)
    column = page.locator(".column").first.bounding_box()
    assert column is not None
    drag(page, "#event-evt-retro", -column["width"], -column["height"] / 24)
    settled(page, "Moved")
    assert event(site, name, "Retrospective")["start"] == "2026-03-12T13:00:00-04:00"
    page.click("#undo")
    settled(page, "Undone")
    assert event(site, name, "Retrospective")["start"] == "2026-03-13T14:00:00-04:00"
    x, y = center(page, "#event-evt-retro", 1)
    page.mouse.move(x, y - 3)
    page.mouse.down()
    page.mouse.move(x, y + 10)
    page.mouse.move(x, y - 3 + column["height"] / 48)
    page.mouse.up()
    settled(page, "Moved")
    assert event(site, name, "Retrospective")["end"] == "2026-03-13T15:30:00-04:00"
    page.keyboard.press("z")
    settled(page, "Undone")
    kinds = [row["event_type"] for row in site.log(name) if row["element_id"] == "event-evt-retro"]
    assert "drag" in kinds
    assert "resize" in kinds


def test_the_lower_edge_is_a_handle(site: Website, visit: Open, name: str) -> None:
    page = visit(WEEK)
    hour = page.locator(".column").first.bounding_box()["height"] / 24  # type: ignore[index]  # it is shown
    drag(page, "#resize-evt-retro", 0, hour, at=0.5)
    settled(page, "Moved")
    moved = event(site, name, "Retrospective")
    assert (moved["start"], moved["end"]) == ("2026-03-13T14:00:00-04:00", "2026-03-13T16:00:00-04:00")
    assert ("resize", "event-evt-retro") in [(row["event_type"], row["element_id"]) for row in site.log(name)]
    assert page.locator("#resize-evt-roadmap").count() == 0, "not Maya's to change"


def test_the_title_of_a_narrow_block_is_seen(visit: Open, name: str, site: Website) -> None:
    page = visit(WEEK)
    for title in ("Tea", "Kickoff with the harbor", "Standing"):
        page.goto("/events/new?date=2026-03-13&start=08:00&end=08:15")
        page.fill("#title", title)
        page.click("#save")
        settled(page, "Created")
    page.goto(WEEK)
    for title in ("Tea", "Kickoff with the harbor", "Standing"):
        block = page.locator(f'.event:has(strong:text-is("{title}"))')
        [box, strong, time] = [found.bounding_box() for found in (block, block.locator("strong"), block.locator(".time"))]
        assert box is not None
        assert strong is not None
        assert time is not None
        assert strong["width"] > 15
        assert strong["x"] + strong["width"] <= box["x"] + box["width"]
        assert time["y"] >= box["y"] + box["height"] - 2, "no room for both"
    page.goto("/day/2026-03-10")
    wide = page.locator("#event-evt-standup_2026-03-10")
    assert wide.locator(".time").bounding_box()["y"] < wide.bounding_box()["y"] + 4  # type: ignore[index]  # both are shown


def test_escape_lets_go(site: Website, visit: Open, name: str) -> None:
    page = visit(WEEK)
    x, y = center(page, "#event-evt-retro")
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 150, y + 50)
    page.keyboard.press("Escape")
    page.mouse.up()
    assert event(site, name, "Retrospective")["start"] == "2026-03-13T14:00:00-04:00"
    page.click("#event-evt-retro")
    page.wait_for_selector("dialog[open]")


def test_a_series_asks_what_is_meant(site: Website, visit: Open, name: str) -> None:
    page = visit(WEEK)
    column = page.locator(".column").first.bounding_box()
    assert column is not None
    drag(page, "#event-evt-one-on-one_2026-03-10", 0, column["height"] / 24)
    page.wait_for_selector("dialog[open] #scope-following")
    page.check("#scope-all")
    page.click("#confirm-move")
    settled(page, "Moved")
    assert event(site, name, "1:1 Jonas")["start"] == "2026-03-10T15:00:00-04:00"


def test_move_and_delete_by_keyboard(site: Website, visit: Open, name: str) -> None:
    page = visit(WEEK)
    page.locator("#event-evt-retro").focus()
    page.keyboard.press("Alt+ArrowUp")
    settled(page, "Moved")
    assert event(site, name, "Retrospective")["start"] == "2026-03-13T13:45:00-04:00"
    page.locator("#event-evt-retro").focus()
    page.keyboard.press("Alt+Shift+ArrowDown")
    page.wait_for_selector('#event-evt-retro[data-end="2026-03-13T15:00"]')
    page.locator("#event-evt-retro").focus()
    page.keyboard.press("Alt+ArrowLeft")
    page.wait_for_selector('#event-evt-retro[data-start="2026-03-12T13:45"]')
    page.locator("#event-evt-retro").focus()
    page.keyboard.press("Delete")
    page.wait_for_selector("dialog[open] #confirm-delete")
    page.locator("#confirm-delete").focus()
    page.keyboard.press("Enter")
    settled(page, "trash")
    assert [row["event_id"] for row in site.table(name, "trash")] == ["evt-retro"]


def test_month_by_days(site: Website, visit: Open, name: str) -> None:
    page = visit("/month/2026-03")
    cell = page.locator(".cell").first.bounding_box()
    assert cell is not None
    drag(page, "#event-evt-offsite", cell["width"] + 8, 0)
    settled(page, "Moved")
    assert event(site, name, "Team offsite in Hudson")["start"] == "2026-03-19"
    page.click("#next")
    assert page.inner_text("#period") == "April 2026"
    page.click("#view-agenda")
    page.wait_for_selector(".agenda")


def test_an_event_its_form_and_the_answer(site: Website, visit: Open, name: str) -> None:
    page = visit(WEEK)
    page.click("#event-evt-roadmap")
    page.wait_for_selector("dialog[open] #respond-accepted")
    page.fill("#respond-note", "On my way")
    page.click("#respond-accepted")
    settled(page, "Accepted")
    page.click("#event-evt-release")
    page.click("#edit")
    page.wait_for_selector("#event-form")
    page.check("#all-day")
    assert not page.is_visible("#start-time")
    page.uncheck("#all-day")
    page.fill("#start-time", "15:00")
    page.locator("#start-time").blur()
    assert page.input_value("#end-time") == "16:00", "the end goes along"
    page.select_option("#repeat", "weekly")
    page.check("#repeat-on-FR", force=True)
    page.select_option("#repeat-end", "count")
    page.fill("#repeat-count", "4")
    page.click("#save")
    settled(page, "Saved")
    assert event(site, name, "Release 4.2")["recurrence"] == "FREQ=WEEKLY;BYDAY=WE,FR;COUNT=4"
    page.wait_for_selector("#event-evt-release_2026-03-13")


def test_what_is_wrong_is_shown_in_place(visit: Open) -> None:
    page = visit(WEEK)
    page.click("#new-event")
    page.fill("#end-time", "01:00")
    page.click("#save")
    page.wait_for_selector(".summary")
    assert "Give the event a title" in page.inner_text(".summary")
    assert page.get_attribute("#title", "aria-invalid") == "true"


def test_calendars_people_and_settings(site: Website, visit: Open, name: str) -> None:
    page = visit(WEEK)
    page.click("#toggle-cal-team")
    settled(page, "Hiding")
    assert page.locator("#event-evt-retro").count() == 0
    page.click("#new-calendar")
    page.fill("#name", "Side projects")
    page.check("#color-purple", force=True)
    page.click("#save")
    settled(page, "Created")
    page.select_option("#share-person", "per-tom")
    page.select_option("#share-role", "busy")
    page.click("#share-add")
    settled(page, "Shared")
    page.click("#menu-people")
    page.click("#person-per-jonas")
    page.click("#find-with")
    page.wait_for_selector('[id^="slot-"]')
    page.fill("#find-guests", "to")
    page.click('[role="option"]:has-text("Tom")')
    page.wait_for_url(re.compile("guests=tom"))
    page.locator('[id^="slot-2026-03-12"]').first.click()
    page.wait_for_selector("dialog[open] #title")
    page.fill("#title", "Three of us")
    page.click("#save")
    settled(page, "Created")
    assert len([g for g in site.table(name, "guests") if g["event_id"] == event(site, name, "Three of us")["id"]]) == 2
    page.click("#menu-settings")
    page.select_option("#theme", "dark")
    page.select_option("#week-start", "sunday")
    page.click("#save")
    settled(page, "Saved")
    assert page.evaluate("getComputedStyle(document.body).colorScheme") == "dark"
    page.goto(WEEK)
    assert page.locator(".column").first.get_attribute("data-day") == "2026-03-08"


def test_search_trash_and_notices(visit: Open) -> None:
    page = visit(WEEK)
    page.keyboard.press("/")
    page.keyboard.type("release")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/search"))
    page.click("#event-evt-release")
    page.click("#delete")
    page.click("#confirm-delete")
    settled(page, "trash")
    page.click("#menu-trash")
    page.click("#restore-trs-1")
    settled(page, "Restored")
    page.click("#menu-notices")
    page.click('[id^="notice-event-"]')
    page.wait_for_selector("dialog[open] h1")
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0


def test_reminders_and_invitations(visit: Open) -> None:
    page = visit(WEEK)
    page.click("#bell")
    page.click('#bell-panel a:has-text("Roadmap review")')
    page.wait_for_selector("dialog[open] #respond-form")


def test_narrow(visit: Open) -> None:
    page = visit(WEEK, viewport={"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert not page.is_visible("#menu-trash")
    page.click("#menu")
    page.click("#menu-trash")
    page.wait_for_url(re.compile("/trash"))
    for address in (
        "/day",
        "/month",
        "/agenda",
        "/events/evt-roadmap",
        "/events/new",
        "/settings",
        "/find-time",
        "/search?q=stand",
        "/calendars/cal-team",
        "/people",
    ):
        page.goto(address)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, address


def test_no_page_is_wider_than_its_window(visit: Open) -> None:
    page = visit(WEEK)
    for address in (
        "/day",
        "/month",
        "/agenda",
        "/events/evt-roadmap",
        "/events/new",
        "/settings",
        "/find-time",
        "/search?q=stand",
        "/calendars/cal-team",
        "/people",
    ):
        page.goto(address)
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280, address


def test_without_scripts(site: Website, visit: Open, name: str) -> None:
    page = visit(WEEK, java_script_enabled=False)
    page.click("#add-2026-03-13", force=True)
    page.fill("#title", "By form alone")
    page.fill("#guests", "Jonas Weber, tom@harbor.example")
    page.click("#save")
    page.wait_for_selector("#toast")
    assert event(site, name, "By form alone")["start"].startswith("2026-03-13")
    page.click("#undo")
    assert all(row["title"] != "By form alone" for row in site.table(name, "events"))


def test_a_page_opened_before_a_reset_says_so(site: Website, visit: Open, name: str) -> None:
    page = visit(WEEK)
    page.click("#event-evt-retro")
    page.click("#delete")
    page.wait_for_selector("#confirm-delete")
    site.reset(name)
    page.click("#confirm-delete")
    page.wait_for_selector("#again")
    assert site.table(name, "trash") == []
    page.click("#again")
    page.wait_for_selector(".grid")


def test_the_log_has_what_was_done_in_order(site: Website, visit: Open, name: str) -> None:
    page = visit(WEEK)
    page.click("#new-event")
    page.fill("#title", "Logged")
    page.click("#save")
    settled(page, "Created")
    seen = [(row["event_type"], row["element_id"]) for row in site.log(name) if row["event_type"] != "control"]
    wanted = [
        ("click", "new-event"),
        ("navigate", "panel"),
        ("input", "title"),
        ("click", "save"),
        ("submit", "event-form"),
        ("action", "create-event"),
        ("navigate", "week"),
    ]
    places = [seen.index(item) for item in wanted[:-1]]
    assert places == sorted(places)
    assert seen[-1] == wanted[-1]
    typed = next(row for row in site.log(name) if row["event_type"] == "input")
    assert (typed["value"], typed["url"]) == ("Logged", WEEK)
