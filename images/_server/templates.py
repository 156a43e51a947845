"""The SQLite file that sessions start as copies of: made once, by one process at a time, seen whole or not at all."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path


def made(path: Path, name: str, fill: Callable[[sqlite3.Connection], None]) -> Path:
    """`path`, filled by `fill` in one transaction when it does not exist; whoever wants a file of the same `name` meanwhile waits."""
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _make(path, fill)
    return path


def _make(path: Path, fill: Callable[[sqlite3.Connection], None]) -> None:
    unfinished = path.with_suffix(".tmp")
    for ending in ("", "-wal", "-shm", "-journal"):
        Path(f"{unfinished}{ending}").unlink(missing_ok=True)
    connection = sqlite3.connect(unfinished, isolation_level=None)
    try:
        # Write-ahead logging is kept in the file's header, so every copy opens in it.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        fill(connection)
        connection.execute("COMMIT")
    finally:
        connection.close()
    os.replace(unfinished, path)
