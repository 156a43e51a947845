"""Universes: `python -m server.universe check [ID...]`, and the SQLite file of one that every session starts as a copy of."""

from __future__ import annotations

import gc
import hashlib
import json
import sqlite3
import sys
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from _server import store as shared
from _server import templates
from _server.times import utc_text

from . import store
from .tables import SERVERS

FOLDER = Path(__file__).resolve().parent.parent / "universes"


class UnknownUniverse(Exception):
    """There is no universe with this id; `known` are those there are."""

    def __init__(self, id: str, known: list[str]) -> None:
        super().__init__(f"no universe {id!r}; there are: {', '.join(known)}")
        self.id = id
        self.known = known


class BrokenUniverse(Exception):
    """A universe's files are wrong; `problems` says each fault as `file:line: message`."""

    def __init__(self, id: str, problems: list[str]) -> None:
        super().__init__(f"universe {id!r} has {len(problems)} problem(s): {'; '.join(problems[:5])}")
        self.problems = problems


def names(folder: Path = FOLDER) -> list[str]:
    """The ids of all universes."""
    return sorted(path.parent.name for path in folder.glob("*/universe.yaml"))


def template(id: str, data_dir: Path, folder: Path = FOLDER) -> Path:
    """The SQLite file that a new session of universe `id` starts as a copy of, built if need be; UnknownUniverse, BrokenUniverse."""
    if id not in names(folder):
        raise UnknownUniverse(id, names(folder))
    path = data_dir / "templates" / f"{id}-{_digest(folder / id)}.sqlite"
    return templates.made(path, id, lambda connection: _build(folder / id, connection))


def _digest(folder: Path) -> str:
    """Of all that a template is made from: the universe's files and the modules that read and lay them out."""
    digest = hashlib.sha256()
    code = [Path(__file__).with_name(name) for name in ("universe.py", "rowcheck.py", "store.py", "tables.py")]
    code += sorted(Path(shared.__file__).parent.glob("*.py"))
    for path in [*code, *sorted(p for p in folder.rglob("*") if p.is_file())]:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder) if path.is_relative_to(folder) else path.name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def _build(folder: Path, connection: sqlite3.Connection) -> None:
    from .rowcheck import check

    collecting = gc.isenabled()
    gc.disable()  # many small values and no cycles
    checked = check(folder)
    if collecting:
        gc.enable()
    if checked.problems:
        raise BrokenUniverse(folder.name, [str(problem) for problem in checked.problems])
    store.create(connection)
    _fill(connection, checked.head, checked.rows)


def _fill(connection: sqlite3.Connection, head: dict[str, str | dict[str, str]], rows: dict[str, list[shared.Row]]) -> None:
    zone = ZoneInfo(str(head["timezone"]))
    user = head["user"]
    assert isinstance(user, dict)  # noqa: S101 - checked by rowcheck
    now = datetime.fromisoformat(str(head["now"]))
    counts = {server: {name: len(rows.get(f"{server}.{name}", [])) for name in tables} for server, tables in SERVERS.items()}
    meta = {
        "universe_id": head["id"], "title": head["title"], "timezone": head["timezone"], "user_name": user["name"], "user_email": user["email"],
        "now": utc_text(now if now.tzinfo else now.replace(tzinfo=zone)), "counts": json.dumps(counts),
    }  # fmt: skip
    connection.executemany("INSERT INTO _meta VALUES (?, ?)", meta.items())
    for row in rows.get("filesystem.entries", []):
        row["size"] = len(row["content"].encode()) if row["kind"] == "file" else 0
    db = store.Db(connection, zone)
    for server, tables in SERVERS.items():
        for name, table in tables.items():
            for row in rows.get(f"{server}.{name}", []):
                db.put(table, {"id": row["id"]} | {c.name: shared.encode(c, row[c.name], zone) for c in table.columns.values()})


def main(argv: list[str]) -> int:
    """`check [ID...]`: every problem, or the rows of each table; 1 when there is a problem."""
    if argv[:1] != ["check"]:
        print("usage: python -m server.universe check [ID...]", file=sys.stderr)  # noqa: T201
        return 2
    failed = [name for name in argv[1:] or names() if not _report(name)]
    return 1 if failed else 0


def _report(id: str) -> bool:
    from .rowcheck import check

    checked = check(FOLDER / id)
    lines: Iterable[str] = map(str, checked.problems)
    if not checked.problems:
        total = sum(map(len, checked.rows.values()))
        servers = {s: {t: len(checked.rows.get(f"{s}.{t}", [])) for t in tables} for s, tables in SERVERS.items()}
        lines = [f"{id}: {total} rows", *(f"  {s} {sum(c.values())}: {', '.join(f'{t} {n}' for t, n in c.items())}" for s, c in servers.items())]
    print("\n".join(lines))  # noqa: T201
    return not checked.problems


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
