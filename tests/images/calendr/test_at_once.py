"""Eight sessions acted on at once by eight contexts of a real Chromium: what one writes is seen by no other."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gymctl.browser import client as browser
from tests.conftest import Cli, lacking

SESSIONS = [f"at-once-{n}" for n in range(8)]
PAGES = ("/week/2026-03-09", "/agenda/2026-03-09", "/search?q=canary", "/calendars", "/trash", "/notices")


def canary(session: str) -> str:
    """A word that only this session writes."""
    return f"canary{session.rpartition('-')[2]}x"


def script(session: str) -> list[dict[str, Any]]:
    """What is done in a session: three events by the form, one moved, one deleted, a calendar, and a look at every page."""
    word = canary(session)
    steps: list[tuple[str, dict[str, Any]]] = []
    for hour in (9, 10, 11):
        steps += [
            ("goto", {"url": f"/events/new?date=2026-03-15&start={hour:02}:00&end={hour:02}:30"}),
            ("fill", {"selector": "#title", "value": f"{word} {hour}"}),
            ("fill", {"selector": "#guests", "value": f"{word}@lattice.example"}),
            ("click", {"selector": "#save"}),
        ]
    steps += [
        ("goto", {"url": "/week/2026-03-09"}),
        ("press", {"selector": "#event-evt-1", "key": "Alt+ArrowUp"}),
        ("wait-for", {"selector": "#toast:has-text('Moved')"}),
        ("goto", {"url": "/events/evt-2/delete"}),
        ("click", {"selector": "#confirm-delete"}),
        ("goto", {"url": "/calendars/new"}),
        ("fill", {"selector": "#name", "value": f"{word} calendar"}),
        ("click", {"selector": "#save"}),
    ]
    for page in PAGES:
        steps += [("goto", {"url": page}), ("snapshot", {})]
    return [{"action": action, "args": args} for action, args in [*steps, ("state", {})]]


def test_no_canary_crosses(cli: Cli) -> None:
    if missing := browser.lacking():
        lacking("browser", missing.message)
    cli("run", "calendr", "--runner", "local", "--port", "0")
    for session in SESSIONS:
        cli("reset", "calendr", "--session", session)

    def act(session: str) -> str:
        lines = "".join(json.dumps(step) + "\n" for step in script(session))
        return cli("step", "calendr", "--session", session, "--stdin", input=lines, timeout=300).out

    with ThreadPoolExecutor(len(SESSIONS)) as pool:
        told = dict(zip(SESSIONS, pool.map(act, SESSIONS), strict=True))
    for session, text in told.items():
        answers = [json.loads(line) for line in text.splitlines()]
        assert not [answer for answer in answers if "error" in answer]
        told[session] += cli("step", "calendr", "--session", session, "state", "--json").out
        state = answers[-1]["observation"]["state"]
        titles = [row["title"] for row in state["events"] if row["title"].startswith("canary")]
        assert sorted(titles) == sorted(f"{canary(session)} {hour}" for hour in (9, 11)), "what it did itself is all there"
        assert [row["title"] for row in state["trash"]] == [f"{canary(session)} 10"]
        moved = next(row for row in state["events"] if row["id"] == "evt-1")
        assert moved["start"].startswith("2026-03-15T08:45:00"), moved
        others = [other for other in SESSIONS if other != session and canary(other) in told[session]]
        assert not others, f"{session} saw {others}"
        assert text.count(canary(session)) > 15
    seconds = [times(cli, session) for session in SESSIONS]
    assert max(first for first, _ in seconds) < min(last for _, last in seconds), "all were at it at the same time"


def times(cli: Cli, session: str) -> tuple[str, str]:
    """When a session's first and last page was asked for, as its log has it."""
    from gymctl import wire

    url = json.loads((Path(cli.state) / "instances" / "calendr" / "instance.json").read_text())["url"]
    client = wire.Client(url)
    rows = [row["at"] for row in client.call(f"/log?session_id={session}")["log"] if row["event_type"] == "navigate"]
    client.close()
    return rows[0], rows[-1]
