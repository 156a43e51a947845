"""The tool server's own cost, against a bare Starlette application on uvicorn: `python -m tests.bench.bench_server [start|calls|reset|sessions]...`."""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from tests.bench import bound, pairs, report
from tests.images.serving import Served, served

BARE = """
import socket, sys
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

content = open(sys.argv[2], "rb").read()

async def answer(request):
    return Response(content, media_type="application/json")

app = Starlette(routes=[Route("/call-tools", answer, methods=["POST"]), Route("/health", answer)])
uvicorn.Server(uvicorn.Config(app, http="h11", ws="none", log_level="warning", access_log=False)).run([socket.socket(fileno=int(sys.argv[1]))])
"""
CONNECTIONS = 16
CALLS = 1600
SESSIONS = 500
CALL = {"image": "", "tags": {"assignmentId": "bench"}, "toolName": "calendar_get_calendar_events", "toolArguments": {}}


class Bare:
    """A bare application that answers the bytes of a file."""

    def __init__(self, folder: Path, content: bytes) -> None:
        (folder / "content").write_bytes(content)
        (folder / "bare.py").write_text(BARE)
        bound_socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = bound_socket.getsockname()[1]
        argv = [sys.executable, str(folder / "bare.py"), str(bound_socket.fileno()), str(folder / "content")]
        self.process = subprocess.Popen(argv, pass_fds=[bound_socket.fileno()])
        bound_socket.close()

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def healthy(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/health")
    assert connection.getresponse().status == 200
    connection.close()


def start() -> bool:
    """From the process's start to its first healthy answer."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        numbers = iter(range(10_000))

        def ours() -> Callable[[], None]:
            server = Served(folder / str(next(numbers)))
            healthy(server.port)
            return server.kill

        def bare() -> Callable[[], None]:
            server = Bare(folder, b"{}")
            healthy(server.port)
            return server.stop

        return report("start to healthy", *pairs(ours, bare), goal=2.0)


def request(body: bytes) -> bytes:
    return b"POST /call-tools HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body


async def load(port: int, contents: list[bytes], calls: int) -> None:
    """`calls` requests over 16 kept connections, `contents` in turn; every answer is read whole and must be 200."""

    turn = itertools.cycle(contents)

    async def one(count: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
        for _ in range(count):
            writer.write(next(turn))
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length))
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(one(calls // CONNECTIONS) for _ in range(CONNECTIONS)))


def calls() -> bool:
    """calendar_get_calendar_events, validated, logged and committed, against a route that answers the same bytes."""
    with tempfile.TemporaryDirectory() as name, served(Path(name)) as server:
        answer = server.post("/call-tools", CALL)
        assert not answer.json["isError"]
        content = request(json.dumps(CALL).encode())
        bare = Bare(Path(name), answer.content)
        healthy(bare.port)
        for port in (server.port, bare.port):
            asyncio.run(load(port, [content], CALLS))
        ours, other = _rates(server, bare, lambda: [content])
        met = report(f"calls a second of {len(answer.content)} bytes", ours, other, goal=0.4, at_least=True, unit="1/s")
        # Rows that a query gave are remembered until one changes; here every call asks for a week that begins at another second.
        seconds = iter(range(10**9))
        start = int(datetime.fromisoformat(json.loads(answer.json["content"][0]["text"])["events"][0]["start"]).timestamp())
        ours, other = _rates(
            server, bare, lambda: [request(json.dumps({**CALL, "toolArguments": {"start": start + next(seconds) % 86400}}).encode()) for _ in range(CALLS)]
        )
        ratio = statistics.median(ours) / statistics.median(other)
        print(f"a week never asked for before, every time: {statistics.median(ours):.0f} calls a second, ratio {ratio:.2f}, no goal")
        bare.stop()
        return met


def _rates(server: Served, bare: Bare, contents: Callable[[], list[bytes]]) -> tuple[list[float], list[float]]:
    """Calls a second of ours and the other, in turn."""

    def rate(port: int, content: list[bytes]) -> Callable[[], None]:
        return lambda: asyncio.run(load(port, content, CALLS))

    first, second = _timed_calls(lambda: rate(server.port, contents()), lambda: rate(bare.port, contents()))
    return [CALLS / taken for taken in first], [CALLS / taken for taken in second]


def _timed_calls(ours: Callable[[], Callable[[], None]], other: Callable[[], Callable[[], None]]) -> tuple[list[float], list[float]]:
    """Like pairs(), but what is called is made outside the measured time."""
    taken: tuple[list[float], list[float]] = ([], [])
    for n in range(15):
        for which in ((0, 1), (1, 0))[n % 2]:
            call = (ours, other)[which]()
            began = time.perf_counter()
            call()
            taken[which].append(time.perf_counter() - began)
    return taken


def reset() -> bool:
    """A session's reset, over HTTP, against the plain copy of its file."""
    with tempfile.TemporaryDirectory() as name, served(Path(name)) as server:
        folder = Path(name)
        body = {"tags": {"assignmentId": "bench"}}
        server.post("/reset", body)
        (template,) = (folder / "templates").glob("*.sqlite")

        def once() -> None:
            assert server.post("/reset", body).status == 200

        ours, copies = pairs(once, lambda: shutil.copyfile(template, folder / "copy"), 200)
        met = bound("reset of a session", ours, 10)
        return report("reset less 6 ms, against the copy of its file", ours, copies, goal=1.0, plus=0.006) and met


def sessions() -> bool:
    """500 sessions in one process, each made and then used again in turn."""
    with tempfile.TemporaryDirectory() as name, served(Path(name)) as server:
        event = {"title": "x", "start": "2026-03-20T10:00:00", "end": "2026-03-20T11:00:00"}
        taken: list[list[float]] = [[], []]
        for again in (0, 1):
            for n in range(SESSIONS):
                began = time.perf_counter()
                answer = server.call(f"s{n}", "calendar_add_event", **event)
                taken[again].append(time.perf_counter() - began)
                assert answer["result"]["event"]["id"] == f"evt_{again + 1}"
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        print(f"{SESSIONS} sessions: {int(status.partition('VmRSS:')[2].split()[0]) / 1024:.0f} MB resident")
        return bound("first call of a new session", taken[0], 30) and bound(f"a call of one of {SESSIONS} sessions, in turn", taken[1], 10)


def main(names: list[str]) -> int:
    """Print every line; 1 when a goal is missed."""
    parts = {"start": start, "calls": calls, "reset": reset, "sessions": sessions}
    met = [parts[name]() for name in names or parts]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
