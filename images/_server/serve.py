"""Serving on HOST:PORT, or on the bound socket LISTEN_FD, with sessions in DATA_DIR, until SIGTERM or SIGINT."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp


def main(name: str, port: int, make: Callable[[Path], ASGIApp]) -> int:
    """Serve what `make` gives for a data folder; 0, or 2 with one line on stderr when the settings are wrong: a ValueError or OSError of `make`."""
    # For a signal before uvicorn listens for them, and for the one that it raises again once it has ended: a clean end.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    temporary = None if os.environ.get("DATA_DIR") else tempfile.mkdtemp(prefix=f"{name}-")
    try:
        return _serve(Path(os.environ.get("DATA_DIR") or str(temporary)), port, make)
    finally:
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)


def _serve(data_dir: Path, port: int, make: Callable[[Path], ASGIApp]) -> int:
    # What is made while starting lives as long as the process: collecting meanwhile would only cost time.
    gc.disable()
    import uvicorn

    try:
        handed, port = (int(os.environ.get(name) or default) for name, default in (("LISTEN_FD", -1), ("PORT", port)))
        sockets = None if handed < 0 else [socket.socket(fileno=handed)]
        app = make(data_dir)
    except (ValueError, OSError) as error:
        print(f"error: cannot serve with these settings: {error}", file=sys.stderr)  # noqa: T201
        return 2
    gc.freeze()
    gc.enable()
    config = uvicorn.Config(
        app, host=os.environ.get("HOST") or "127.0.0.1", port=port, http="h11", ws="none", log_level="warning",
        access_log=False, timeout_keep_alive=75, timeout_graceful_shutdown=1,
    )  # fmt: skip
    uvicorn.Server(config).run(sockets)
    return 0
