"""Sessions: one SQLite file each, a copy of its pack's template, and a bounded number of them open at once.

All writes are committed before they are answered. With a write-ahead log nothing committed is lost when the process is
killed, whatever `synchronous` says; only a machine that loses power could lose it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import AsyncIterator
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from _server.faults import Fault
from _server.sessions import MAX_OPEN, OpenSessions
from _server.store import Row, connect
from _server.times import now_text

from . import packs
from .store import Db

if TYPE_CHECKING:
    from .site import Site

COOKIE = "session_id"
MAX_NAME = 200
LOG_COLUMNS = ("n", "at", "event_type", "element_id", "value", "url", "source", "caller", "detail")
MAX_VALUE = 2000


class Session:
    """One session's file. Its lock is held by who uses it."""

    def __init__(self, name: str, path: Path, site: Site) -> None:
        self.name = name
        self.path = path
        self.site = site
        self.lock = asyncio.Lock()
        self.doing = ""
        self._db: Db | None = None
        self.meta: dict[str, str] = {}

    @property
    def is_open(self) -> bool:
        return self._db is not None

    @property
    def db(self) -> Db:
        """The session's rows; the file must exist."""
        if self._db is None:
            connection = connect(self.path)
            self.meta = dict(connection.execute("SELECT key, value FROM _meta").fetchall())
            self._db = Db(connection, ZoneInfo(self.meta["timezone"]), self.site.tables)
        return self._db

    @property
    def now(self) -> datetime:
        """The pack's frozen clock."""
        return datetime.fromisoformat(self.meta["now"])

    @property
    def base(self) -> date:
        """The base Monday."""
        return date.fromisoformat(self.meta["base_week"])

    @property
    def version(self) -> str:
        """Which reset of which session a page was made after: the same name and number of resets, the same text."""
        return f"{self.meta.get('resets', '0')}.{hashlib.sha256(self.name.encode()).hexdigest()[:10]}"

    def close(self) -> None:
        """Close the file; SQLite folds its write-ahead log into it."""
        if self._db is not None:
            self._db.connection.close()
            self._db = None

    def counts(self) -> dict[str, int]:
        """{table: rows} as they are."""
        counted = " UNION ALL ".join(f"SELECT '{name}', COUNT(*) FROM {name}" for name in self.site.tables.by_name)
        return dict(self.db.connection.execute(counted).fetchall())

    def replace(self, template: Path, caller: str, args: Row) -> tuple[dict[str, int], dict[str, int]]:
        """Make the session a fresh copy of `template`, in one step that is seen whole or not at all; rows by table before and after.

        The log starts anew with this reset; earlier resets stay in it, and its numbers go on.
        """
        cleared = dict.fromkeys(self.site.tables.by_name, 0)
        earlier: list[Any] = []
        last = resets = 0
        if self.path.exists():
            cleared = self.counts()
            log = self.db.connection
            resets = int(self.meta.get("resets", "0"))
            columns = ", ".join(LOG_COLUMNS)
            earlier = [tuple(r) for r in log.execute(f"SELECT {columns} FROM _log WHERE event_type = 'control' AND value = 'reset' ORDER BY n DESC LIMIT 100")]
            last = log.execute("SELECT COALESCE(MAX(n), 0) FROM _log").fetchone()[0]
        unfinished = self.path.with_suffix(".tmp")
        shutil.copyfile(template, unfinished)
        connection = connect(unfinished)
        try:
            connection.execute("BEGIN")
            insert = f"INSERT INTO _log ({', '.join(LOG_COLUMNS)}) VALUES ({', '.join('?' * len(LOG_COLUMNS))})"
            connection.executemany(insert, reversed(earlier))
            connection.execute(insert, (last + 1, now_text(), "control", None, "reset", None, "api", caller, json.dumps(args, sort_keys=True)))
            connection.execute("INSERT INTO _meta VALUES ('resets', ?)", (str(resets + 1),))
            connection.execute("COMMIT")
        finally:
            connection.close()
        self.close()
        os.replace(unfinished, self.path)
        self.db.version = template.name
        return cleared, json.loads(self.db.connection.execute("SELECT value FROM _meta WHERE key = 'counts'").fetchone()[0])

    def record(self, event_type: str, element_id: str | None, value: str | None, url: str | None, source: str, caller: str, detail: Row | None = None) -> None:
        """Add a row to the log."""
        text = None if detail is None else json.dumps(detail, ensure_ascii=False, sort_keys=True)
        row = (now_text(), event_type, element_id, value if value is None else value[:MAX_VALUE], url, source, caller, text)
        self.db.connection.execute("INSERT INTO _log (at, event_type, element_id, value, url, source, caller, detail) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    def log(self, since: int = 0) -> list[Row]:
        """The log's rows with a number over `since`, oldest first."""
        rows = [dict(r) for r in self.db.connection.execute("SELECT * FROM _log WHERE n > ? ORDER BY n", (since,))]
        for row in rows:
            row["detail"] = None if row["detail"] is None else json.loads(row["detail"])
        return rows


class Sessions:
    """All sessions of this process. `data_dir` holds templates/ and sessions/; `pack` is that of a reset which names none; `wait` in seconds."""

    def __init__(self, site: Site, data_dir: Path, pack: str, wait: float = 10.0, max_open: int = MAX_OPEN) -> None:
        self.site = site
        self.data_dir = data_dir
        self.pack = pack
        self.wait = wait
        self.folder = data_dir / "sessions"
        self.folder.mkdir(parents=True, exist_ok=True)
        for leftover in self.folder.glob("*.tmp*"):
            leftover.unlink(missing_ok=True)
        self._known: dict[str, Session] = {}
        self._open: OpenSessions[str, Session] = OpenSessions(max_open)

    def version_of(self, name: str) -> str | None:
        """The version of a session that is open."""
        found = self._open.get(name)
        return found.version if found is not None else None

    def _session(self, name: str) -> Session:
        if name not in self._known:
            path = self.folder / f"{hashlib.sha256(name.encode()).hexdigest()[:40]}.sqlite"
            found = Session(name, path, self.site)
            if not path.exists():
                return found
            self._known[name] = found
        return self._known[name]

    def known(self, name: str) -> Session:
        """The session; Fault 404 when it was never reset."""
        session = self._session(name)
        if name not in self._known:
            raise Fault(404, "SessionNotFound", f"there is no session {name!r}", "call /reset with this sessionId first", sessionId=name)
        return session

    @contextlib.asynccontextmanager
    async def use(self, name: str, doing: str) -> AsyncIterator[Session]:
        """The session, open and locked; Fault 404 when it was never reset, 409 when another request holds it for too long."""
        session = self.known(name)
        async with self._locked(session, doing):
            yield session

    async def reset(self, name: str, caller: str, pack: str | None, base: date | None, args: Row) -> tuple[Session, str, dict[str, int], dict[str, int]]:
        """Put the session to the first state of a pack; the session, its pack, rows cleared and loaded. Fault 404 for an unknown pack."""
        pack = pack or self.pack
        session = self._session(name)
        self._known.setdefault(name, session)
        try:
            async with self._locked(session, "reset"):
                template = await self.template(pack, base)
                cleared, loaded = session.replace(template, caller, {**args, "dataPack": pack})
        finally:
            if not session.path.exists():
                self._known.pop(name, None)
        return session, pack, cleared, loaded

    async def template(self, pack: str, base: date | None = None) -> Path:
        """The template of a pack, built if need be; Fault 404 with those there are, Fault 500 for a broken one."""
        try:
            path = packs.template_path(self.site, pack, base, self.data_dir)
            return path if path.exists() else await asyncio.to_thread(packs.template, self.site, pack, base, self.data_dir)
        except packs.UnknownPack as error:
            raise Fault(404, "UnknownPack", f"there is no data pack {pack!r}", f"data packs: {', '.join(error.known)}", dataPacks=error.known) from None
        except packs.BrokenPack as error:
            raise Fault(500, "BrokenPack", str(error), "python -m server.packs check", problems=error.problems) from None

    @contextlib.asynccontextmanager
    async def _locked(self, session: Session, doing: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self.wait):
                await session.lock.acquire()
        except TimeoutError:
            message = f"{session.doing} of session {session.name!r} has not ended in {self.wait:g} s"
            raise Fault(409, "Busy", message, "wait for it, then try again", operation=session.doing) from None
        try:
            session.doing = doing
            if session.path.exists():
                _ = session.db
            yield
        finally:
            self._open.note(session.name, session)
            session.lock.release()

    def close(self) -> None:
        """Close every open session."""
        self._open.close()


def checked_name(name: Any) -> str:
    """A sessionId that can be one; Fault 400."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise Fault(400, "InvalidRequest", f"'sessionId' must be 1 to {MAX_NAME} printable characters of text")
    return name


def reset_call(name: str, origin: str) -> str:
    """The command that makes a session."""
    body = json.dumps({"sessionId": name}).replace("'", "'\\''")
    return f"curl -X POST {origin}/reset -H 'Content-Type: application/json' -d '{body}'"
