"""A crawler activates every button, link and menu item of every page: each changes state, navigates or opens something."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.images.calendr.conftest import Open
from tests.images.calendr.pages import PAGES, prepare
from tests.images.web.website import Website

if TYPE_CHECKING:
    from playwright.sync_api import Page

LIST = """() => [...document.querySelectorAll('a[href], button, summary, [role=button], [role=menuitem], [role=option]')]
    .filter(e => e.checkVisibility({visibilityProperty: true}) || e.closest('[popover]'))
    .map((e, n) => ({n, id: e.id, tag: e.tagName, href: e.getAttribute('href') || '', text: (e.getAttribute('aria-label') || e.textContent).trim().replace(/\\s+/g, ' ').slice(0, 60),
                     popover: e.closest('[popover]')?.id || '', inSide: !!e.closest('#side')}))"""
SEEN = """() => ({url: location.href, open: [...document.querySelectorAll('dialog[open], [popover]')].map(e => e.matches('dialog') || e.matches(':popover-open')),
    focus: document.activeElement?.id || '', body: document.body.innerText.length, toast: !!document.getElementById('toast')})"""


def kind(found: dict[str, Any]) -> str:
    """The same for what is the same thing on another day or page: days, numbers and the row's name do not count."""
    text = "" if found["id"] else found["text"]
    href = re.sub(r"[?&](back|done)=[^&]*", "", found["href"])
    return re.sub(r"\d+", "#", f"{found['tag']}|{found['id']}|{'' if found['id'] else href}|{text if not href else ''}")


def state(site: Website) -> bytes:
    return site.post("/state", {"sessionId": "crawl"}).content


def opened(page: Page, site: Website, address: str) -> None:
    """The page as it is at the start."""
    site.reset("crawl")
    prepare(site, "crawl")
    page.goto(address)


def works(page: Page, site: Website, address: str, found: dict[str, Any]) -> bool:
    """Whether activating an element does something."""
    opened(page, site, address)
    if found["popover"] and page.locator(f"#{found['popover']}").evaluate("e => !e.checkVisibility()"):
        page.locator(f'[popovertarget="{found["popover"]}"]').click()
    element = page.locator("a[href], button, summary, [role=button], [role=menuitem], [role=option]").filter(visible=None)
    handles = page.query_selector_all("a[href], button, summary, [role=button], [role=menuitem], [role=option]")
    listed = page.evaluate(LIST)
    del element
    same = next((f for f in listed if kind(f) == kind(found) and f["text"] == found["text"]), None)
    if same is None:
        return True
    visible = [h for h in handles if h.evaluate("e => e.checkVisibility({visibilityProperty: true}) || !!e.closest('[popover]')")]
    target = visible[same["n"]]
    before, rows = page.evaluate(SEEN), state(site)
    target.focus()
    page.keyboard.press("Enter")
    for _ in range(30):
        page.wait_for_timeout(60)
        try:
            if page.evaluate(SEEN) != before or state(site) != rows:
                return True
        except Exception as error:  # the page is being left
            if "context was destroyed" in str(error) or "navigat" in str(error):
                return True
            raise
        if urls_same(found, address):
            return True
    return False


def urls_same(found: dict[str, Any], address: str) -> bool:
    """A link to the page that it stands on."""
    return bool(found["href"]) and found["href"].split("#")[0] == address


@pytest.mark.parametrize("width", [1280, 390])
def test_everything_does_something(site: Website, visit: Open, width: int) -> None:
    opened_once: set[str] = set()
    dead: list[str] = []
    site.reset("crawl")
    page = visit("/", session="crawl", viewport={"width": width, "height": 900})
    tried = 0
    for address in PAGES:
        opened(page, site, address)
        for found in page.evaluate(LIST):
            if kind(found) in opened_once or (width == 390 and found["id"] != "menu"):
                continue
            opened_once.add(kind(found))
            tried += 1
            if not works(page, site, address, found):
                dead.append(f"{address}: {json.dumps(found)}")
    assert not dead, "\n".join(dead)
    assert tried > (100 if width == 1280 else 0)
