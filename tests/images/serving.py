"""The real tool server as a child process, and a client that keeps its connection."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

IMAGE = Path(__file__).resolve().parents[2] / "images" / "agent-environment"
for _folder in (IMAGE, IMAGE.parent):
    if str(_folder) not in sys.path:
        sys.path.insert(0, str(_folder))


@dataclass
class Answer:
    """An HTTP answer: `json` is its decoded body."""

    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)


class Client:
    """Speaks to a server on 127.0.0.1 over one kept connection."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """One request; `body` is JSON, or bytes as they are."""
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        self._connection.request(method, path, content, {k.replace("_", "-"): v for k, v in headers.items()})
        got = self._connection.getresponse()
        return Answer(got.status, {k.lower(): v for k, v in got.getheaders()}, got.read())

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return self.send("POST", path, body, **headers)

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, None, **headers)

    def call(self, session: str | None, tool: str, **args: Any) -> Any:
        """The answer of /call-tools; its result decoded under `result` when it is no error."""
        tags = {} if session is None else {"tags": {"assignmentId": session}}
        answer = self.post("/call-tools", {"image": "", "toolName": tool, "toolArguments": args, **tags}).json
        return answer if answer["isError"] else {**answer, "result": json.loads(answer["content"][0]["text"])}

    def close(self) -> None:
        self._connection.close()


class Served(Client):
    """A running server and a client of it."""

    def __init__(self, data_dir: Path, **env: str) -> None:
        # The socket is bound here: a request made before the server accepts simply waits, so nothing is polled.
        bound = socket.create_server(("127.0.0.1", 0), backlog=128)
        bound.set_inheritable(True)
        environment = {**os.environ, "DATA_DIR": str(data_dir), "LISTEN_FD": str(bound.fileno()), "UNIVERSE_ID": "software-team", **env}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "server"], cwd=IMAGE, env=environment, pass_fds=[bound.fileno()], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        port = bound.getsockname()[1]
        bound.close()
        super().__init__(port)

    def kill(self) -> None:
        """SIGKILL, as a crash would end it."""
        self.process.kill()
        self.errors()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        self.errors()
        return self.process.returncode

    def errors(self) -> str:
        """All of stderr once the process has ended."""
        _, errors = self.process.communicate(timeout=30)
        self.close()
        return errors.decode()


@contextmanager
def served(data_dir: Path, **env: str) -> Iterator[Served]:
    """A server for the length of a block."""
    server = Served(data_dir, **env)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.kill()
