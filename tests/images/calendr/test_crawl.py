"""A crawler activates every button, link and menu item of every page: each changes state, navigates or opens something."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.images.calendr.conftest import Open
from tests.images.calendr.pages import PAGES, prepare
from tests.images.web.website import Website

pytest.importorskip("playwright", reason="browser: playwright is not installed")
from playwright.sync_api import Error

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROW = re.compile(r"(evt|cal|per|trs|rem|ntc|shr)-[\w.-]+")
LIST = """() => [...document.querySelectorAll('a[href], button, summary, [role=button], [role=menuitem], [role=option]')]
    .filter(e => e.checkVisibility({visibilityProperty: true}) || e.closest('[popover]'))
    .map((e, n) => (e.dataset.crawl = n, {n, id: e.id, tag: e.tagName, own: !!e.closest('main'),
                     href: e.getAttribute('href') || '', popover: e.closest('[popover]')?.id || '',
                     text: (e.getAttribute('aria-label') || e.textContent).trim().replace(/\\s+/g, ' ').slice(0, 60)}))"""
SEEN = """() => ({open: [...document.querySelectorAll('dialog[open], [popover]')].map(e => e.matches('dialog') || e.matches(':popover-open')),
    focus: document.activeElement?.id || '', body: document.body?.innerText.length, toast: !!document.getElementById('toast')})"""


def kind(address: str, found: dict[str, Any]) -> str:
    """The same for what is the same thing of another day or row, and for what the frame of every page has: numbers and the row's name do not count."""
    text = "" if found["id"] else found["text"]
    href = re.sub(r"[?&](back|done)=[^&]*", "", found["href"])
    where = ROW.sub("*", address.partition("?")[0]) if found["own"] else ""
    return re.sub(r"\d+", "#", ROW.sub("*", f"{where}|{found['tag']}|{found['id']}|{'' if found['id'] else href}|{text if not href else ''}"))


def state(site: Website) -> bytes:
    return site.post("/state", {"sessionId": "crawl"}).content


def opened(page: Page, site: Website, address: str) -> None:
    """The page as it is at the start."""
    site.reset("crawl")
    prepare(site, "crawl")
    try:
        page.goto(address)
    except Error:  # what was activated before is still on its way to another page, and interrupts this
        page.wait_for_load_state()
        page.goto(address)


def works(page: Page, site: Website, address: str, found: dict[str, Any]) -> bool:
    """Whether activating an element, by the keyboard, does something; one that the page no longer has counts."""
    opened(page, site, address)
    same = next((f for f in page.evaluate(LIST) if f["id"] == found["id"] and (f["text"], f["href"]) == (found["text"], found["href"])), None)
    if same is None or same["href"].split("#")[0] == address:
        return True
    target = page.locator(f'[data-crawl="{same["n"]}"]')
    if same["popover"] and not target.evaluate("e => e.checkVisibility()"):
        page.locator(f'[popovertarget="{same["popover"]}"]').click()
    left: list[str] = []
    page.on("framenavigated", lambda frame: left.append(frame.url))
    target.focus()  # before the look: the browser's own word on a field left empty shows in where the focus goes
    before, rows = page.evaluate(SEEN), state(site)
    page.keyboard.press("Enter")
    for _ in range(40):
        page.wait_for_timeout(50)
        if left or changed(page, before):
            return True
    return state(site) != rows


def changed(page: Page, before: dict[str, Any]) -> bool:
    """Whether the page shows something else, or is being left."""
    try:
        return bool(page.evaluate(SEEN) != before)
    except Error as error:
        return "Execution context was destroyed" in error.message


@pytest.mark.parametrize("width", [1280, 390])
def test_everything_does_something(site: Website, visit: Open, width: int, long_count: Callable[[int, int], int]) -> None:
    """Every kind of thing on every page; LONG=1: every single one, some 2,500."""
    every = bool(long_count(0, 1))
    opened_once: set[str] = set()
    dead: list[str] = []
    site.reset("crawl")
    page = visit("/", session="crawl", viewport={"width": width, "height": 900})
    tried = 0
    for address in PAGES:
        opened(page, site, address)
        for found in page.evaluate(LIST):
            if not every and kind(address, found) in opened_once:
                continue
            opened_once.add(kind(address, found))
            tried += 1
            if not works(page, site, address, found):
                dead.append(f"{address}: {json.dumps(found)}")
    assert not dead, "\n".join(dead)
    assert tried >= (2000 if every else 80), tried
