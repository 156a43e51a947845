"""Every page of Calendr by its address, and a session in which each of them has something to show."""

from __future__ import annotations

from tests.images.web.website import Visitor, Website

PAGES = [
    "/",
    "/day/2026-03-11",
    "/week/2026-03-09",
    "/month/2026-03",
    "/agenda/2026-03-09",
    "/agenda/2031-03-09",
    "/events/new",
    "/events/evt-roadmap",
    "/events/evt-planning_2026-03-09",
    "/events/evt-planning_2026-03-09/edit",
    "/events/evt-planning_2026-03-09/delete",
    "/events/evt-release/edit",
    "/events/evt-jonas-dentist",
    "/events/evt-standup_2026-03-11/move?start=2026-03-11T10:00&end=2026-03-11T10:15",
    "/calendars",
    "/calendars/new",
    "/calendars/cal-team",
    "/calendars/cal-product",
    "/calendars/cal-home/delete",
    "/people",
    "/people/per-jonas",
    "/find-time",
    "/find-time?guests=jonas@harbor.example&guests=tom@harbor.example",
    "/search",
    "/search?q=review",
    "/search?q=nothing+at+all",
    "/trash",
    "/notices",
    "/settings",
    "/shortcuts",
    "/events/evt-nobody",
    "/week/not-a-day",
]


def prepare(site: Website, session: str) -> None:
    """Something in the trash, something sent to guests."""
    visitor = Visitor(site, session)
    visitor.get("/events/evt-vendor/delete")
    assert visitor.submit("delete-form").status == 303
