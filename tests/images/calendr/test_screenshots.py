"""Screenshots of the main pages, light and dark, wide and narrow, for docs/: `UPDATE=1` writes them where they differ."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import ROOT
from tests.images.web.website import IMAGES, Website, website

if TYPE_CHECKING:
    from playwright.sync_api import Browser

MOST = 200_000
SHOTS: dict[str, tuple[str, str, int, list[str]]] = {
    "calendr-week-light": ("/week/2026-03-09", "light", 1280, []),
    "calendr-week-dark": ("/week/2026-03-09", "dark", 1280, []),
    "calendr-day-light": ("/day/2026-03-12", "light", 1280, []),
    "calendr-month-light": ("/month/2026-03", "light", 1280, []),
    "calendr-month-dark": ("/month/2026-03", "dark", 1280, []),
    "calendr-agenda-light": ("/agenda/2026-03-11", "light", 1280, []),
    "calendr-event-light": ("/week/2026-03-09", "light", 1280, [".column.now .event:not(.short) >> nth=1"]),
    "calendr-form-dark": ("/week/2026-03-09", "dark", 1280, ["#new-event"]),
    "calendr-find-time-light": ("/find-time?guests=jonas@harbor.example&minutes=30&from=2026-03-12", "light", 1280, []),
    "calendr-settings-dark": ("/settings", "dark", 1280, []),
    "calendr-week-narrow-light": ("/week/2026-03-09", "light", 390, []),
    "calendr-month-narrow-light": ("/month/2026-03", "light", 390, []),
    "calendr-form-narrow-dark": ("/events/new?date=2026-03-12", "dark", 390, []),
    "calendr-agenda-narrow-dark": ("/agenda/2026-03-11", "dark", 390, []),
}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Website]:
    """Calendr with the pack that the pictures show."""
    with website(tmp_path_factory.mktemp("data"), PACKS=str(IMAGES / "calendr" / "packs"), DATA_PACK="professional-swe") as running:
        running.reset("shots", baseWeek="2026-03-09")
        yield running


@pytest.mark.parametrize("name", SHOTS)
def test_screenshot(shown: Website, browser: Browser, tmp_path: Path, name: str) -> None:
    address, scheme, width, clicks = SHOTS[name]
    context = browser.new_context(
        viewport={"width": width, "height": 720 if width > 400 else 844}, color_scheme="dark" if scheme == "dark" else "light", base_url=shown.origin
    )
    page = context.new_page()
    page.goto(f"/?session_id={'shots'}")
    page.goto(address)
    for selector in clicks:
        page.click(selector)
        page.wait_for_selector("dialog[open] .card")
    page.wait_for_load_state("networkidle")
    folder = ROOT / "docs" / "screenshots"
    target = folder / f"{name}.png"
    path = target if os.environ.get("UPDATE") or not target.exists() else tmp_path / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=path, animations="disabled", caret="hide")
    context.close()
    assert 10_000 < path.stat().st_size < MOST
    assert target.stat().st_size < MOST
