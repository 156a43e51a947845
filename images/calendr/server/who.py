"""Who is signed in, which calendars they see and in what role, and their settings."""

from __future__ import annotations

from dataclasses import dataclass
from zoneinfo import ZoneInfo

from _server.store import Row
from _web.pages import Page
from _web.store import Db

OWNER, EDITOR, VIEWER, BUSY = "owner", "editor", "viewer", "busy"


@dataclass(frozen=True)
class Who:
    """The signed-in person; `calendars` are those they see, by id, their own first; `roles` by calendar."""

    me: Row
    people: dict[str, Row]
    by_email: dict[str, Row]
    calendars: dict[str, Row]
    roles: dict[str, str]
    all_calendars: dict[str, Row]
    settings: Row
    zone: ZoneInfo

    @property
    def primary(self) -> Row:
        """The calendar that new events go to, and invitations are seen in."""
        own = [c for c in self.calendars.values() if self.roles[c["id"]] == OWNER]
        return next((c for c in own if c["is_primary"]), own[0])

    def can_edit(self, calendar_id: str) -> bool:
        """Whether events of a calendar may be changed."""
        return self.roles.get(calendar_id) in (OWNER, EDITOR)

    @property
    def editable(self) -> list[Row]:
        """The calendars whose events may be changed."""
        return [c for c in self.calendars.values() if self.can_edit(c["id"])]

    def name_of(self, email: str) -> str:
        """A person's name, else the address."""
        person = self.by_email.get(email.lower())
        return str(person["name"]) if person else email


def who(page: Page) -> Who:
    """Who looks at a page."""
    user = page.session.meta["user"]
    return page.db.remembered("who", lambda: _read(page.db, user))


def _read(db: Db, user: str) -> Who:
    people = {p["id"]: p for p in db.rows("people", order="name, id")}
    every = {c["id"]: c for c in db.rows("calendars", order="is_primary DESC, name, id")}
    shared = {s["calendar_id"]: s["role"] for s in db.rows("shares", "person_id = ?", (user,))}
    roles = {key: OWNER if c["owner_id"] == user else shared[key] for key, c in every.items() if c["owner_id"] == user or key in shared}
    own_first = sorted(roles, key=lambda key: roles[key] != OWNER)
    settings = db.rows("settings")[0]
    zone = ZoneInfo(settings["timezone"]) if settings["timezone"] else db.zone
    by_email = {p["email"].lower(): p for p in people.values()}
    return Who(people[user], people, by_email, {key: every[key] for key in own_first}, roles, every, settings, zone)
