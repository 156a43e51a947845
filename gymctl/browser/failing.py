"""Why a gesture failed, in words that lead on: what Playwright found in the way, and which ids and texts are near."""

from __future__ import annotations

import difflib
import re
from typing import Any

from playwright.async_api import Error, Locator, Page

from gymctl.errors import EnvError

SHOWN = 8
IN_THE_WAY = ("intercepts pointer events", "is not visible", "is not enabled", "is not stable", "outside of the viewport", "is not an <input>", "not editable")
REFUSED = ("ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_CONNECTION_CLOSED", "ERR_EMPTY_RESPONSE")
NAMED = """() => [...document.querySelectorAll('[id], a, button, input, select, textarea, [role], label, h1, h2')]
  .filter(e => e.checkVisibility()).slice(0, 2000)
  .map(e => [e.id, (e.getAttribute('aria-label') || e.innerText || e.placeholder || '').trim().split('\\n')[0].slice(0, 60),
    e.matches('a, button, input, select, textarea, [role]')])"""
DESCRIBED = """es => es.slice(0, 8).map(e => e.id ? '#' + e.id :
  `<${e.tagName.toLowerCase()}> ${(e.getAttribute('aria-label') || e.innerText || '').trim().split('\\n')[0].slice(0, 40)}`)"""


def reason(error: Error) -> str:
    """The one line of a Playwright error that says what was in the way."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip().lstrip("- ") for line in error.message.splitlines()]
    for words in IN_THE_WAY:
        found = next((line for line in reversed(lines) if words in line), None)
        if found:
            return found
    first = re.sub(r"^(Page|Locator|Mouse|Keyboard|Frame)\.\w+: ", "", lines[0] if lines else type(error).__name__)
    return "it did not happen" if first.startswith("Timeout ") else first


def unknown_key(error: Error) -> EnvError | None:
    """What a Playwright error means that is about a key's name."""
    unknown = re.search(r'Unknown key: "(.*)"', error.message)
    hint = "a character, or Enter, Tab, ArrowDown, F5, with what is held before it: Control+S, Alt+Enter, Shift+Tab"
    return EnvError(f"press: no key {unknown[1]!r}", hint=hint, type="key") if unknown else None


def is_refused(error: Error) -> bool:
    """Whether nothing answers at the address."""
    return any(word in error.message for word in REFUSED)


async def absent(page: Page, selector: str, seconds: float) -> EnvError:
    """Nothing matches: an error that says which ids and texts are near, or what there is."""
    hidden = await page.locator(selector).count()
    where = f"{page.url} ({await page.title()})"
    if hidden:
        return EnvError(f"{selector!r} is on {where} and hidden, still after {seconds:g} s", hint="something else may have to be opened first", type="selector")
    return EnvError(f"nothing matches {selector!r} on {where} within {seconds:g} s", hint=near(selector, await page.evaluate(NAMED)), type="selector")


def near(selector: str, named: list[list[Any]]) -> str:
    """The ids and texts most like a selector; else the first things one could act on."""
    ids = {f"#{own}": own for own, _, _ in named if own}
    texts = {f"text={text}": text for _, text, _ in named if text}
    wanted = re.sub(r"^(text=|#|id=)|[\"']", "", selector).lower()
    names = {shown: name.lower() for shown, name in {**ids, **texts}.items()}
    scored = sorted(((_likeness(wanted, name), shown) for shown, name in names.items()), reverse=True)
    close = [shown for likeness, shown in scored[:SHOWN] if likeness >= 0.6]
    if close:
        return f"near: {', '.join(close)}"
    here = [f"#{own}" if own else f"text={text}" for own, text, acts in named if acts and (own or text)]
    return f"on the page: {', '.join(dict.fromkeys(here[:SHOWN]))}" if here else "the page holds nothing to act on"


def _likeness(wanted: str, name: str) -> float:
    if wanted and (wanted in name or name in wanted) and min(len(wanted), len(name)) > 3:
        return 0.9
    return difflib.SequenceMatcher(None, wanted, name).ratio()


async def ambiguous(found: Locator, selector: str, count: int) -> EnvError:
    """Several match: an error that lists them."""
    shown = await found.evaluate_all(DESCRIBED)
    hint = f"name one, or take the first: {selector} >> nth=0"
    return EnvError(f"{selector!r} matches {count} elements: {', '.join(shown)}", hint=hint, type="selector")
