"""Calendr served for a module's tests, and a real Chromium."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from tests.conftest import lacking
from tests.images.web.website import Website, website

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
ARGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Website]:
    """A running Calendr with the test's pack; each test uses sessions of its own."""
    with website(tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium found on PATH, driven by Playwright; a module's own, since Playwright keeps an event loop running that other tests cannot have."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        lacking("browser", str(error))
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        lacking("browser", f"none of {', '.join(NAMES)} is on PATH")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=ARGS)
        yield chromium
        chromium.close()


Open = Callable[..., "Page"]


@pytest.fixture
def visit(site: Website, browser: Browser, request: pytest.FixtureRequest) -> Iterator[Open]:
    """visit(address, session=...): a page in a context of its own; any error of its scripts fails the test."""
    faults: list[str] = []
    contexts = []

    def open_page(address: str = "/", session: str = "", **options: Any) -> Page:
        name = session or request.node.name
        if not session:
            site.reset(name)
        context = browser.new_context(viewport=options.pop("viewport", {"width": 1280, "height": 720}), base_url=site.origin, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(8000)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" and "status of 4" not in message.text else None)
        page.goto(f"/?session_id={quote(name, safe='')}")
        if address != "/":
            page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not faults


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of axe-core, from npm."""
    folder = tmp_path_factory.mktemp("axe")
    if shutil.which("npm") is None:
        lacking("browser", "npm is not on PATH")
    done = subprocess.run(
        ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), "axe-core@4"], capture_output=True, text=True, timeout=120
    )
    if done.returncode:
        lacking("browser", f"axe-core cannot be installed: {done.stderr[-300:]}")
    return (Path(folder) / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
