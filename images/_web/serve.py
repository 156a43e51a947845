"""Serving a site on HOST:PORT, or on the bound socket LISTEN_FD, with sessions in DATA_DIR, until SIGTERM or SIGINT."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import tempfile
from pathlib import Path

import uvicorn

from .app import make
from .site import Site


def main(site: Site, port: int = 3000) -> int:
    """Serve; 0."""
    made = None if os.environ.get("DATA_DIR") else tempfile.mkdtemp(prefix=f"{site.name}-")
    data_dir = Path(os.environ.get("DATA_DIR") or str(made))
    # For a signal before uvicorn listens for them, and for the one that it raises again once it has ended: a clean end.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    try:
        app = make(site, data_dir, os.environ.get("DATA_PACK") or "default", float(os.environ.get("WAIT_S") or 10))
        config = uvicorn.Config(
            app, host=os.environ.get("HOST") or "127.0.0.1", port=int(os.environ.get("PORT") or port), http="h11", ws="none", log_level="warning",
            access_log=False, timeout_keep_alive=75, timeout_graceful_shutdown=1,
        )  # fmt: skip
        handed = os.environ.get("LISTEN_FD")
        uvicorn.Server(config).run([socket.socket(fileno=int(handed))] if handed else None)
    finally:
        if made:
            shutil.rmtree(made, ignore_errors=True)
    return 0
