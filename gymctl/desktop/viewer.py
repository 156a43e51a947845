"""The resident process behind `gymctl view`: a page with noVNC for who came with a one-time token, and VNC through a WebSocket.

It listens on a socket it was handed, on 127.0.0.1. It ends by TERM, when its instance's directory is gone, and when nothing of the
instance listens any more and no command works on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import http
import json
import mimetypes
import os
import secrets
import signal
import socket
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from gymctl.desktop import vnc
from gymctl.episode import Json
from gymctl.errors import GymctlError

WATCH_INTERVAL = 1.0
CHUNK = 1 << 16
SERVED = ("core", "vendor")
PAGE = Path(__file__).with_name("viewer.html")


@dataclass
class View:
    """What is shown: an instance's directory, the port of VNC inside, noVNC's folder; and the cookie of who was let in."""

    directory: Path
    inside: int
    novnc: Path
    port: int
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    @property
    def cookie_name(self) -> str:
        """Cookies know no ports: each view has a name of its own."""
        return f"gymctl-view-{self.port}"


def spend(folder: Path, token: str) -> str:
    """Use a token up: "" when it was there, else why it lets nobody in."""
    at = folder / hashlib.sha256(token.encode()).hexdigest()
    try:
        at.rename(at.with_suffix(".used"))
        return ""
    except FileNotFoundError:
        return "used" if at.with_suffix(".used").exists() else "wrong"


async def run(view: View, listener: socket.socket) -> None:
    """Serve until the end."""
    ended = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(signum, ended.set)

    async def carry(connection: ServerConnection) -> None:
        await _carry(view, connection)

    async def answer(connection: ServerConnection, request: Request) -> Response | None:
        return await asyncio.to_thread(_answer, view, request)  # VNC that does not greet keeps no other viewer waiting

    async with serve(carry, sock=listener, process_request=answer, max_size=None, compression=None, subprotocols=None, server_header=None):
        watch = asyncio.create_task(_watch(view, ended))
        await ended.wait()
        watch.cancel()


async def _watch(view: View, ended: asyncio.Event) -> None:
    """Set `ended` when there is nothing left to show."""
    home = view.directory.stat().st_ino
    refused = 0
    while refused < 3:
        await asyncio.sleep(WATCH_INTERVAL)
        try:
            if view.directory.stat().st_ino != home:
                break
            url = urlsplit(json.loads((view.directory / "instance.json").read_text())["url"])
        except (OSError, ValueError, KeyError):
            break
        refused = refused + 1 if await _is_dead(url.hostname or "", url.port or 0) and _is_idle(view.directory) else 0
    ended.set()


async def _is_dead(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), 5)
    except TimeoutError:
        return False  # busy is not gone
    except OSError:
        return True
    writer.close()
    return False


def _is_idle(directory: Path) -> bool:
    """Whether no gymctl works on it: one that resets a machine lets nothing listen for a while."""
    try:
        with (directory / "lock").open("a") as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except OSError:
        return False


def _response(status: http.HTTPStatus, text: str | bytes, kind: str = "text/plain; charset=utf-8", **more: str) -> Response:
    body = text.encode() if isinstance(text, str) else text
    headers = Headers({
        "Content-Type": kind, "Content-Length": str(len(body)), "Cache-Control": "no-store", "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff", "Content-Security-Policy": "frame-ancestors 'none'", "Connection": "close",
        **{name.replace("_", "-"): value for name, value in more.items()},
    })  # fmt: skip
    return Response(status.value, status.phrase, headers, body)


def _answer(view: View, request: Request) -> Response | None:
    """A page, a file, or None to go on with a WebSocket."""
    path, _, query = request.path.partition("?")
    name = view.directory.name
    token = parse_qs(query).get("token", [""])[0]
    if not _is_known(view, request):
        if path != "/" or not token:
            return _response(http.HTTPStatus.FORBIDDEN, f"Open the address that `gymctl view {name}` prints.\n")
        reason = spend(view.directory / "view", token)
        if reason == "used":
            return _response(http.HTTPStatus.GONE, f"This address was used already, and works once: `gymctl view {name}` prints a new one.\n")
        if reason:
            return _response(http.HTTPStatus.FORBIDDEN, f"The token in this address is wrong: `gymctl view {name}` prints a new address.\n")
    if path == "/websockify":
        origin = request.headers.get("Origin")
        foreign = origin is not None and origin.partition("://")[2] != request.headers.get("Host")
        return _response(http.HTTPStatus.FORBIDDEN, "A page of another origin may not show this desktop.\n") if foreign else None
    if path == "/":
        cookie = f"{view.cookie_name}={view.cookie}; Path=/; HttpOnly; SameSite=Lax"
        return _response(http.HTTPStatus.OK, PAGE.read_bytes(), "text/html; charset=utf-8", Set_Cookie=cookie)
    if path == "/state":
        return _response(http.HTTPStatus.OK, json.dumps(_state(view)), "application/json")
    return _file(view, path)


def _is_known(view: View, request: Request) -> bool:
    try:
        found = SimpleCookie("; ".join(request.headers.get_all("Cookie"))).get(view.cookie_name)
    except CookieError:
        return False
    return found is not None and secrets.compare_digest(found.value.encode(), view.cookie.encode())


def _state(view: View) -> Json:
    """{name, message, password}: the message says why there is nothing to see; "" when there is."""
    document = {"name": view.directory.name, "message": "", "password": ""}
    try:
        where = vnc.address(view.directory, view.inside)
        vnc.check(where, view.directory.name)
        return {**document, "password": where.password}
    except GymctlError as error:
        return {**document, "message": f"{error.message} ({error.hint})"}


def _file(view: View, path: str) -> Response:
    """A file of noVNC's own code."""
    at = Path(os.path.realpath(view.novnc / path.lstrip("/").partition("\0")[0]))
    allowed = any(at.is_relative_to((view.novnc / folder).resolve()) for folder in SERVED)
    if not allowed or not os.path.isfile(at):  # a name may be too long for Path to ask
        return _response(http.HTTPStatus.NOT_FOUND, "There is no such file.\n")
    kind = "text/javascript" if at.suffix == ".js" else mimetypes.guess_type(at.name)[0] or "application/octet-stream"
    return _response(http.HTTPStatus.OK, at.read_bytes(), kind)


async def _carry(view: View, connection: ServerConnection) -> None:
    """Bytes both ways between a browser and VNC as it is now, until either ends."""
    try:
        where = vnc.address(view.directory, view.inside)
        reader, writer = await asyncio.open_connection("127.0.0.1", where.port)
    except (GymctlError, OSError):
        await connection.close(1011, "VNC refused")  # the page asks /state why
        return
    with contextlib.closing(writer):
        there = asyncio.create_task(_to_vnc(connection, writer))
        back = asyncio.create_task(_from_vnc(reader, connection))
        await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
        for task in (there, back):
            task.cancel()
        await asyncio.gather(there, back, return_exceptions=True)


async def _to_vnc(connection: ServerConnection, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, ConnectionClosed):
        async for message in connection:
            writer.write(message if isinstance(message, bytes) else message.encode())
            await writer.drain()


async def _from_vnc(reader: asyncio.StreamReader, connection: ServerConnection) -> None:
    with contextlib.suppress(ConnectionError, ConnectionClosed):
        while chunk := await reader.read(CHUNK):
            await connection.send(chunk)
    with contextlib.suppress(ConnectionClosed):
        await connection.close()
