"""axe-core finds no serious violation on any page, light and dark, wide and narrow."""

from __future__ import annotations

from typing import Any

import pytest

from tests.images.calendr.conftest import Open
from tests.images.calendr.pages import PAGES, prepare
from tests.images.web.website import Website

RUN = "async () => (await axe.run(document, {resultTypes: ['violations']})).violations.filter(v => ['serious', 'critical'].includes(v.impact))"


def said(violations: list[dict[str, Any]]) -> list[str]:
    """What is wrong, and where first."""
    return [f"{v['id']}: {v['help']}: {v['nodes'][0]['html'][:200]} {v['nodes'][0].get('failureSummary', '')[:300]}" for v in violations]


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390)])
def test_every_page(site: Website, visit: Open, axe: str, scheme: str, width: int) -> None:
    site.reset("axe")
    prepare(site, "axe")
    page = visit("/", session="axe", color_scheme=scheme, viewport={"width": width, "height": 760}, bypass_csp=True)
    found = {}
    for address in PAGES:
        page.goto(address)
        page.evaluate(axe)
        if violations := page.evaluate(RUN):
            found[address] = said(violations)
    assert not found


@pytest.mark.parametrize("opener", ["#new-event", "#event-evt-roadmap", "#event-evt-planning_2026-03-09", "#bell"])
def test_panels(visit: Open, axe: str, opener: str) -> None:
    page = visit("/week/2026-03-09", bypass_csp=True)
    page.click(opener)
    page.wait_for_selector("dialog[open] .card, [popover]:popover-open")
    page.evaluate(axe)
    assert not said(page.evaluate(RUN))
