"""No session is read or changed from another: every address, walked with the other session's ids."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys

from tests.images.web.website import IMAGES, Visitor, Website

CANARY = "ZEBRAFINCH"
LIST = "import json; from server.calendr import ROUTES; from _web.app import UNDO; print(json.dumps([(r.method, r.path) for r in [*ROUTES, UNDO]]))"


def routes() -> list[tuple[str, str]]:
    """Method and path of every page."""
    done = subprocess.run([sys.executable, "-c", LIST], cwd=IMAGES / "calendr", capture_output=True, text=True, check=True)
    return [(method, path) for method, path in json.loads(done.stdout)]


def fill(owner: Visitor) -> None:
    """Rows of every kind that carry the canary."""
    owner.get("/events/new?date=2026-03-11")
    owner.submit(
        "event-form",
        title=f"{CANARY} plan",
        location=CANARY,
        description=CANARY,
        start_time="09:20",
        end_time="09:45",
        guests=f"{CANARY}@lattice.example",
        reminder="30",
    )
    owner.get("/events/new?date=2026-03-12")
    owner.submit("event-form", title=f"{CANARY} series", repeat="daily", guests="jonas@harbor.example")
    owner.get("/events/new?date=2026-03-12")
    owner.submit("event-form", title=f"{CANARY} gone")
    owner.get("/events/evt-3/delete")
    owner.submit("delete-form")
    owner.get("/calendars/new")
    owner.submit("calendar-form", name=f"{CANARY} calendar", color="pink")
    owner.submit("share-form", person="per-tom", role="viewer")


def test_every_address_with_the_ids_of_another_session(site: Website) -> None:
    for name in ("owner", "stranger"):
        site.reset(name)
    owner, stranger = Visitor(site, "owner"), Visitor(site, "stranger")
    fill(owner)
    mine = site.get("/state?session_id=owner").content
    theirs = site.get("/state?session_id=stranger").content
    assert mine.decode().count(CANARY) >= 8
    state = json.loads(mine)
    values = {
        "ref": ["evt-1", "evt-2", "evt-2_2026-03-12", "evt-3"],
        "id": [state["trash"][0]["id"], "cal-1", state["shares"][-1]["id"]],
        "day": ["2026-03-11", "2026-03"],
    }
    seen = 0
    for method, path in routes():
        names = re.findall(r"\{(\w+)\}", path)
        for chosen in itertools.product(*(values[n] for n in names)):
            address = path.format(**dict(zip(names, chosen, strict=True)))
            if method == "GET":
                for query in ("", f"?q={CANARY[:5]}&guests=jonas@harbor.example&done=1&copy=evt-1"):
                    answer = stranger.get(address + query)
                    assert answer.headers["x-session"] == "stranger"
                    assert CANARY not in answer.content.decode().replace(f'value="{CANARY[:5]}"', ""), address
                    seen += 1
            elif names:
                stranger.get("/shortcuts")
                fields = {
                    "title": "x",
                    "start": "2026-03-11T10:00",
                    "end": "2026-03-11T11:00",
                    "scope": "all",
                    "response": "declined",
                    "share": "shr-1",
                    "action": "1",
                }
                answer = stranger.post(address, fields)
                assert answer.status in (403, 404, 422), (address, answer.status)
                seen += 1
    assert seen > 80
    assert site.get("/state?session_id=owner").content == mine
    assert site.get("/state?session_id=stranger").content == theirs
    for path in ("/state", "/log"):
        answer = site.get(f"{path}?session_id=stranger", Cookie="session_id=owner")
        assert CANARY not in answer.content.decode()
        assert answer.headers["x-session"] == "stranger"


def test_a_form_of_another_sessions_page(site: Website) -> None:
    for name in ("first", "second"):
        site.reset(name)
    first, second = Visitor(site, "first"), Visitor(site, "second")
    first.get("/events/evt-retro/delete")
    second.html = first.html
    assert second.submit("delete-form").status == 409
    assert site.table("second", "trash") == []


def test_sessions_with_the_same_rows_see_the_same_page_until_one_changes_it(site: Website) -> None:
    for name in ("first", "second"):
        site.reset(name)
    first, second = Visitor(site, "first"), Visitor(site, "second")
    pages = [visitor.get("/week/2026-03-09").content.decode() for visitor in (first, second)]
    versions = [re.findall(r'name="page-version" content="([^"]+)"', page)[0] for page in pages]
    assert versions[0] != versions[1]
    assert pages[0].replace(versions[0], versions[1]) == pages[1]
    first.get("/events/evt-retro/edit")
    assert first.submit("event-form", title=CANARY).status == 303
    assert CANARY in first.get("/week/2026-03-09").content.decode()
    assert second.get("/week/2026-03-09").content.decode() == pages[1]
    second.get("/events/evt-retro/edit")
    assert second.submit("event-form", title="Mine").status == 303
    assert "<strong>Mine</strong>" in second.get("/week/2026-03-09").content.decode()
    assert first.post("/undo", {}).status == 303
    assert "<strong>Retrospective</strong>" in first.get("/week/2026-03-09").content.decode()
    site.reset("second", baseWeek="2027-11-01")
    assert 'id="event-evt-retro"' not in second.get("/week/2026-03-09").content.decode()
    seen = [row["element_id"] for row in site.log("second") if row["event_type"] == "navigate"]
    assert seen == ["week"], "a page that was kept is in the log as well"
    second.get("/week/2026-03-09")
    assert [row["element_id"] for row in site.log("second") if row["event_type"] == "navigate"] == ["week", "week"]
