"""`python -m server`: serve on HOST:PORT, or on the bound socket LISTEN_FD, with sessions in DATA_DIR and new ones in UNIVERSE_ID."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import socket
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))  # _verify, shared by all servers, is beside this image's folder


def main() -> int:
    """Serve until SIGTERM or SIGINT; 0."""
    # What is made while starting lives as long as the process: collecting meanwhile would only cost time.
    gc.disable()
    import uvicorn

    from .app import make

    made = None if os.environ.get("DATA_DIR") else tempfile.mkdtemp(prefix="agent-environment-")
    data_dir = Path(os.environ.get("DATA_DIR") or str(made))
    # For a signal before uvicorn listens for them, and for the one that it raises again once it has ended: a clean end.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    try:
        app = make(data_dir, os.environ.get("UNIVERSE_ID") or "software-team")
        gc.freeze()
        gc.enable()
        config = uvicorn.Config(
            app, host=os.environ.get("HOST") or "127.0.0.1", port=int(os.environ.get("PORT") or 1984), http="h11", ws="none", log_level="warning",
            access_log=False, timeout_keep_alive=75, timeout_graceful_shutdown=1,
        )  # fmt: skip
        handed = os.environ.get("LISTEN_FD")
        uvicorn.Server(config).run([socket.socket(fileno=int(handed))] if handed else None)
    finally:
        if made:
            shutil.rmtree(made, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
