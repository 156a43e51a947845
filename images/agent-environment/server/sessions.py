"""Sessions: one SQLite file for each assignment, a copy of its universe's template, and a bounded number of them open at once.

All writes are committed before they are answered. With a write-ahead log nothing committed is lost when the process is
killed, whatever `synchronous` says: what SQLite wrote is in the operating system's hands. Only a machine that loses power could lose it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from _server.faults import Fault
from _server.sessions import MAX_OPEN, OpenSessions
from _server.store import Row, connect
from _server.times import now_text

from . import universe
from .registry import Context, User
from .store import Db

T = TypeVar("T")
OWN = "@instance"
MAX_NAME = 512
WAIT_S = 30.0
MAX_LOGGED = 4096
_LOG = "INSERT INTO _log (at, caller, call, tool, args, ok, result) VALUES (?, ?, ?, ?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class Key:
    """Which session: `kind` is own (the instance's), assignment or mcp; `name` is what answers show."""

    kind: str
    name: str

    @property
    def filename(self) -> str:
        if self.kind == "own":
            return "instance.sqlite"
        return f"{self.kind}-{hashlib.sha256(self.name.encode()).hexdigest()[:40]}.sqlite"


OWN_KEY = Key("own", OWN)


def assignment(name: str) -> Key:
    """The key of an assignmentId; Fault 400 for one that cannot be."""
    if not name or len(name) > MAX_NAME:
        raise Fault(400, "InvalidRequest", f"an assignmentId has 1 to {MAX_NAME} characters, this one {len(name)}")
    if name == OWN:
        raise Fault(400, "InvalidRequest", f"the assignmentId {OWN!r} is the instance's own session", "leave tags out to use it")
    return Key("assignment", name)


class Session:
    """One session's file. Every method needs the session's lock, or to run on the event loop while nobody holds it."""

    def __init__(self, key: Key, path: Path) -> None:
        self.key = key
        self.path = path
        self.lock = asyncio.Lock()
        self.doing = ""
        self.context: Context | None = None
        self.universe_id = ""
        self.counts: dict[str, dict[str, int]] = {}
        self.tools: frozenset[str] | None = None
        self.work: asyncio.Future[Any] | None = None

    @property
    def is_open(self) -> bool:
        return self.context is not None

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Run what may take long in a thread. The session stays locked until it has ended, even when who asked for it is cancelled."""
        self.work = work = asyncio.ensure_future(asyncio.to_thread(function, *args))
        return await asyncio.shield(work)

    def open(self) -> Context:
        """The session's rows, clock and user; the file must exist."""
        if self.context is None:
            connection = connect(self.path)
            meta = dict(connection.execute("SELECT key, value FROM _meta").fetchall())
            zone = ZoneInfo(meta["timezone"])
            user = User(meta["user_name"], meta["user_email"])
            self.universe_id = meta["universe_id"]
            self.counts = json.loads(meta["counts"])
            self.tools = frozenset(json.loads(meta["tools"])) if "tools" in meta else None
            self.context = Context(Db(connection, zone), datetime.fromisoformat(meta["now"]), zone, user)
        return self.context

    def close(self) -> None:
        """Close the file; SQLite folds its write-ahead log into it."""
        if self.context is not None:
            self.context.db.connection.close()
            self.context = None

    def replace(self, template: Path, call: str, caller: str, tools: list[str] | None, args: Row) -> None:
        """Make the session a fresh copy of `template`, in one step that is either seen whole or not at all.

        The log starts anew with this call; earlier resets stay in it, and its numbers go on.
        """
        earlier, last = self.resets()
        unfinished = self.path.with_suffix(".tmp")
        shutil.copyfile(template, unfinished)
        connection = connect(unfinished)
        try:
            connection.execute("BEGIN")
            connection.executemany("INSERT INTO _log VALUES (?, ?, ?, ?, ?, ?, ?, ?)", earlier[-100:])
            connection.execute("INSERT INTO _log VALUES (?, ?, ?, ?, NULL, ?, 1, NULL)", (last + 1, now_text(), caller, call, json.dumps(args)))
            meta = {"seed": args.get("seed"), "tools": tools}
            connection.executemany("INSERT INTO _meta VALUES (?, ?)", [(k, json.dumps(v)) for k, v in meta.items() if v is not None])
            connection.execute("COMMIT")
        finally:
            connection.close()
        self.close()
        # Only a damaged file leaves its write-ahead log behind, which must not be applied to the new one.
        Path(f"{self.path}-wal").unlink(missing_ok=True)
        os.replace(unfinished, self.path)
        self.open()

    def resets(self) -> tuple[list[Any], int]:
        """The log's rows of earlier resets, and the number of its last row; nothing of a file that does not exist or is damaged."""
        if not self.path.exists():
            return [], 0
        try:
            log = self.open().db.connection
            found = log.execute("SELECT n, at, caller, call, tool, args, ok, result FROM _log WHERE call IN ('create', 'reset') ORDER BY n")
            return [tuple(row) for row in found], log.execute("SELECT COALESCE(MAX(n), 0) FROM _log").fetchone()[0]
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            return [], 0

    def record(self, caller: str, call: str, tool: str | None, args: str, ok: bool, result: bytes) -> None:
        """Add a row to the log; a long result is replaced by its size."""
        shown = result.decode() if len(result) <= MAX_LOGGED else f'{{"omitted_bytes": {len(result)}}}'
        db = self.open().db
        db.connection.execute(_LOG, (now_text(), caller, call, tool, args, ok, shown))
        db.logged += 1

    def log(self, since: int = 0) -> list[Row]:
        """The calls with a number over `since`, oldest first: {n, at, caller, call, tool, args, ok, result}."""
        found = self.open().db.connection.execute("SELECT * FROM _log WHERE n > ? ORDER BY n", (since,))
        rows = [dict(r) for r in found]
        for row in rows:
            row["ok"] = bool(row["ok"])
            for name in ("args", "result"):
                row[name] = None if row[name] is None else json.loads(row[name])
        return rows


class Sessions:
    """All sessions of this process. `data_dir` holds templates/ and sessions/; `default` is the universe of a new session."""

    def __init__(self, data_dir: Path, default: str, universes: Path = universe.FOLDER, max_open: int = MAX_OPEN) -> None:
        self.data_dir = data_dir
        self.default = default
        self.universes = universes
        self.folder = data_dir / "sessions"
        self.folder.mkdir(parents=True, exist_ok=True)
        for leftover in (*self.folder.glob("*.tmp*"), *self.folder.glob("mcp-*")):
            leftover.unlink(missing_ok=True)
        self._templates: dict[str, Path] = {}
        self._known: dict[Key, Session] = {}
        self._open: OpenSessions[Key, Session] = OpenSessions(max_open)

    def idle(self, key: Key) -> Session | None:
        """The session when it is open and nobody holds its lock: then it may be used on the event loop without waiting."""
        session = self._open.get(key)
        if session is None or session.context is None or session.lock.locked():
            return None
        self._open.used(key)
        return session

    @contextlib.asynccontextmanager
    async def use(self, key: Key, caller: str, doing: str) -> AsyncIterator[Session]:
        """The session, made if it does not exist, open and locked; Fault 409 when another call holds it for too long."""
        session = self._known.setdefault(key, Session(key, self.folder / key.filename))
        async with self._locked(session, doing):
            if session.context is None:
                await session.in_thread(self._ready, session, caller)
            yield session

    async def reset(self, key: Key, caller: str, universe_id: str | None, tools: list[str] | None, args: Row) -> Session:
        """Put the session back to the state of a universe (left out: its own); Fault 404 for an unknown one."""
        session = self._known.setdefault(key, Session(key, self.folder / key.filename))
        async with self._locked(session, "reset"):
            await session.in_thread(self._reset, session, caller, universe_id, tools, args)
        return session

    @contextlib.asynccontextmanager
    async def _locked(self, session: Session, doing: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(WAIT_S):
                await session.lock.acquire()
        except TimeoutError:
            raise Fault(409, "Busy", f"{session.doing} of session {session.key.name!r} has not ended in {WAIT_S:.0f} s", "try again later") from None
        try:
            session.doing = doing
            yield
        finally:
            if session.work is None or session.work.done():
                self._unlock(session)
            else:
                session.work.add_done_callback(lambda _: self._unlock(session))

    def _unlock(self, session: Session) -> None:
        self._open.note(session.key, session)
        session.lock.release()

    def _ready(self, session: Session, caller: str) -> None:
        if session.path.exists():
            session.open()
        else:
            session.replace(self.template(self.default), "create", caller, None, {"universe_id": self.default})

    def _reset(self, session: Session, caller: str, universe_id: str | None, tools: list[str] | None, args: Row) -> None:
        if universe_id is None:
            session.resets()  # opens the file, if there is a sound one, and so learns its universe
            universe_id = session.universe_id or self.default
        session.replace(self.template(universe_id), "reset", caller, tools, {**args, "universe_id": universe_id})

    def template(self, universe_id: str) -> Path:
        """The template of a universe, built if need be; Fault 404 with those there are, Fault 500 for a broken one.

        Once found it is not looked up again: files changed meanwhile are seen by the next server.
        """
        try:
            if universe_id not in self._templates:
                self._templates[universe_id] = universe.template(universe_id, self.data_dir, self.universes)
            return self._templates[universe_id]
        except universe.UnknownUniverse as error:
            hint = f"universes: {', '.join(error.known)}"
            raise Fault(404, "UnknownUniverse", f"no universe {universe_id!r}", hint, universes=error.known) from None
        except universe.BrokenUniverse as error:
            raise Fault(500, "BrokenUniverse", str(error), "python -m server.universe check", problems=error.problems) from None

    def close(self) -> None:
        """Close every open session."""
        self._open.close()
