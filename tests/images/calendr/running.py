"""Calendr as a child process, and a client that keeps its connection."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.images.serving import Client

CALENDR = Path(__file__).resolve().parents[3] / "images" / "calendr"


def python(*words: str) -> subprocess.CompletedProcess[str]:
    """`python -m WORDS` in Calendr's folder."""
    env = {**os.environ, "PYTHONPATH": str(CALENDR.parent)}
    return subprocess.run([sys.executable, "-m", *words], cwd=CALENDR, env=env, capture_output=True, text=True, timeout=60, check=False)


@contextmanager
def running(data_dir: Path) -> Iterator[Client]:
    """A served Calendr for the length of a block; it may take its time to accept: the socket is bound here."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as bound:
        bound.set_inheritable(True)
        env = {**os.environ, "DATA_DIR": str(data_dir), "LISTEN_FD": str(bound.fileno()), "PYTHONPATH": str(CALENDR.parent)}
        process = subprocess.Popen([sys.executable, "-m", "server"], cwd=CALENDR, env=env, pass_fds=[bound.fileno()], stdin=subprocess.DEVNULL)
        client = Client(bound.getsockname()[1])
    try:
        yield client
    finally:
        client.close()
        process.kill()
        process.wait(timeout=30)


def rows(client: Client, session: str) -> dict[str, list[dict[str, Any]]]:
    """Every table of a session."""
    answer = client.get(f"/state?session_id={session}")
    assert answer.status == 200, answer.content
    return {table: found for table, found in answer.json.items() if isinstance(found, list) and table != "warnings"}
