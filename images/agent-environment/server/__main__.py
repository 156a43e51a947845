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
    """Serve until SIGTERM or SIGINT; 0, or 2 when the settings are wrong."""
    # For a signal before uvicorn listens for them, and for the one that it raises again once it has ended: a clean end.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    made = None if os.environ.get("DATA_DIR") else tempfile.mkdtemp(prefix="agent-environment-")
    try:
        return _serve(Path(os.environ.get("DATA_DIR") or str(made)))
    finally:
        if made:
            shutil.rmtree(made, ignore_errors=True)


def _serve(data_dir: Path) -> int:
    # What is made while starting lives as long as the process: collecting meanwhile would only cost time.
    gc.disable()
    import uvicorn

    from .app import make

    try:
        handed, port = (int(os.environ.get(name) or default) for name, default in (("LISTEN_FD", -1), ("PORT", 1984)))
        sockets = None if handed < 0 else [socket.socket(fileno=handed)]
        app = make(data_dir, os.environ.get("UNIVERSE_ID") or "software-team")
    except (ValueError, OSError) as error:
        print(f"error: cannot start with these PORT, LISTEN_FD and DATA_DIR: {error}", file=sys.stderr)  # noqa: T201
        return 2
    gc.freeze()
    gc.enable()
    config = uvicorn.Config(
        app, host=os.environ.get("HOST") or "127.0.0.1", port=port, http="h11", ws="none", log_level="warning",
        access_log=False, timeout_keep_alive=75, timeout_graceful_shutdown=1,
    )  # fmt: skip
    uvicorn.Server(config).run(sockets)
    return 0


if __name__ == "__main__":
    sys.exit(main())
