"""What the root service beside it tells the server: to let go of every key before the machine is saved, and in a clone its own token."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

NAME = "\0gymctl-guest"
"""A name of the kernel's, not a file: only root is listened to."""
SECONDS = 20.0
DONE = b"done"


class Link:
    """The root service's end: kept open, so that a clone has one thing less to do."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    def ask(self, news: dict[str, Any]) -> bool:
        """Tell the running server; False where none runs (it will read its token when it starts)."""
        for _ in range(2):  # the server that it was connected to may have been started anew
            with contextlib.suppress(OSError):
                if self._socket is None:
                    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                    made.settimeout(SECONDS)
                    made.connect(NAME)
                    self._socket = made
                self._socket.sendall(json.dumps(news).encode())
                if self._socket.recv(16) == DONE:
                    return True
            self.close()
        return False

    def close(self) -> None:
        """Let go."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Renewal(threading.Thread):
    """The server's end: listens to root alone; `heed(news)` is called for what it says, and gives what can wait until it is answered."""

    def __init__(self, heed: Callable[[dict[str, Any]], Callable[[], None]]) -> None:
        super().__init__(daemon=True)
        self._heed = heed
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(NAME)
        self._listener.listen(4)

    def run(self) -> None:
        """Until the process ends."""
        while True:
            link, _ = self._listener.accept()
            uid = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
            with link, contextlib.suppress(OSError, ValueError):
                while uid == 0 and (news := link.recv(1 << 16)):
                    afterwards = self._heed(json.loads(news))
                    link.sendall(DONE)
                    afterwards()
