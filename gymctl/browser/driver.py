"""The resident process of an instance's browser: one Chromium over a pipe, a context a session, requests as JSON lines on a unix socket.

It ends with its browser, when its server listens no more, when its instance's directory or its socket is gone, and by TERM;
whatever ends it, nothing of it stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Browser, Error, Playwright, async_playwright

from gymctl.browser import failing, gestures
from gymctl.browser.visit import SETTLE_TIMEOUT, Visit
from gymctl.episode import Json
from gymctl.errors import EnvError, GymctlError, Unavailable

WATCH_INTERVAL = 1.0
CLOSE_TIMEOUT = 3.0
LONGEST_LINE = 64 << 20
SWITCHES = [
    "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
]  # fmt: skip
NOWHERE = "http://127.0.0.1:9"


@dataclass
class Place:
    """What a driver belongs to: the website's URL, the instance's directory, the folder of its socket, the browser's executable."""

    url: str
    directory: Path
    sockets: Path
    executable: str
    visits: dict[str, asyncio.Task[Visit]] = field(default_factory=dict)

    @property
    def socket(self) -> Path:
        """Where it listens."""
        return self.sockets / "browser"


async def serve(place: Place, ready: int) -> None:
    """Drive until the end; one JSON line to the descriptor `ready` says that it listens, or why it cannot."""
    ended = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(signum, ended.set)
    try:
        async with async_playwright() as playwright:
            try:
                browser = await _launch(playwright, place)
            except Unavailable as error:
                _tell(ready, {"error": error.message, "hint": error.hint})
                return
            browser.on("disconnected", lambda _: ended.set())
            asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, ended.set)  # Playwright's own process, our only child
            server = await asyncio.start_unix_server(lambda r, w: _converse(place, browser, r, w), place.socket, limit=LONGEST_LINE)
            _tell(ready, {})
            watch = asyncio.create_task(_watch(place, ended))
            await ended.wait()
            watch.cancel()
            server.close()
            with contextlib.suppress(Error, TimeoutError):
                await asyncio.wait_for(browser.close(), CLOSE_TIMEOUT)
    finally:
        shutil.rmtree(place.sockets, ignore_errors=True)


def _tell(ready: int, answer: Json) -> None:
    with contextlib.suppress(BrokenPipeError):  # who started us was killed; the next command finds us by the record
        os.write(ready, json.dumps(answer).encode() + b"\n")
    os.close(ready)


async def _launch(playwright: Playwright, place: Place) -> Browser:
    """Chromium, which reaches the website and nothing else: all other addresses go to a proxy that is not there."""
    as_root = os.getuid() == 0
    try:
        return await playwright.chromium.launch(
            executable_path=place.executable, args=SWITCHES, chromium_sandbox=not as_root, handle_sigint=False, handle_sighup=False,
            proxy={"server": NOWHERE, "bypass": f"<-loopback>,{urlsplit(place.url).netloc}"},
        )  # fmt: skip
    except Error as error:
        sandbox = "sandbox" in error.message.lower() and not as_root
        hint = "its sandbox needs user namespaces, or the package chromium-sandbox" if sandbox else f"try it: {place.executable} --version"
        raise Unavailable(f"{place.executable} does not start: {failing.reason(error)}", hint=hint) from error


async def _watch(place: Place, ended: asyncio.Event) -> None:
    """Set `ended` when there is nothing left to drive for."""
    mine, home = place.socket.stat().st_ino, place.directory.stat().st_ino
    address = urlsplit(place.url)
    refused = 0
    while refused < 2:
        await asyncio.sleep(WATCH_INTERVAL)
        try:
            if place.socket.stat().st_ino != mine or place.directory.stat().st_ino != home:
                break
        except FileNotFoundError:
            break
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(address.hostname, address.port), 5)
            writer.close()
            refused = 0
        except TimeoutError:
            refused = 0  # busy is not gone
        except OSError:
            refused += 1
    ended.set()


async def _converse(place: Place, browser: Browser, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one client's lines until it goes."""
    with contextlib.suppress(ConnectionError, ValueError), contextlib.closing(writer):
        while line := await reader.readline():
            writer.write(json.dumps(await _answer(place, browser, json.loads(line))).encode() + b"\n")
            await writer.drain()


async def _answer(place: Place, browser: Browser, request: Json) -> Json:
    """{value, files, elapsed} or {error: {kind, type, message, hint}} of one request."""
    try:
        if request.get("forget"):
            await _forget(place, request["session"])
            return {}
        return await _step(place, browser, request)
    except GymctlError as error:
        kind = "Unavailable" if isinstance(error, Unavailable) else "EnvError"
        return {"error": {"kind": kind, "type": getattr(error, "type", ""), "message": error.message, "hint": error.hint}}


async def _step(place: Place, browser: Browser, request: Json) -> Json:
    session, name = request["session"], request["action"]
    gesture = gestures.read(name, request["args"])
    visit = await _visit(place, browser, session)
    async with visit.lock:
        began = asyncio.get_running_loop().time()
        try:
            value, files = await asyncio.wait_for(visit.do(name, gesture), gesture.seconds * 2 + SETTLE_TIMEOUT)
        except TimeoutError:
            visit.lost = f"the page did not answer within {gesture.seconds * 2 + SETTLE_TIMEOUT:g} s"
        if visit.lost:
            await _forget(place, session)
            raise EnvError(f"{name}: {visit.lost}", hint="the next step begins at the start page", type="page_lost")
        return {"value": value, "files": files, "elapsed": asyncio.get_running_loop().time() - began}


async def _visit(place: Place, browser: Browser, session: str) -> Visit:
    """The session's visit, begun once however many ask at the same time."""
    task = place.visits.get(session)
    if task is None or (task.done() and (task.cancelled() or task.exception())):
        task = asyncio.create_task(Visit.begin(browser, place.url, session, place.directory / "steps"))
        place.visits[session] = task
    try:
        return await task
    except Error as error:
        if failing.is_refused(error):
            raise Unavailable(f"the browser reaches {place.url} no more: {failing.reason(error)}") from error
        raise EnvError(f"the start page does not open: {failing.reason(error)}", type="browser_error") from error


async def _forget(place: Place, session: str) -> None:
    """Close a session's context: its next step begins at the start page, without cookies."""
    task: Any = place.visits.pop(session, None)
    if task is not None:
        with contextlib.suppress(Error, TimeoutError, GymctlError):
            await asyncio.wait_for((await task).context.close(), CLOSE_TIMEOUT)
