"""How gymctl talks: to an instance by http.client over one kept connection, no proxy, and the only polling loop; downloads by httpx."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import math
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from gymctl import __version__
from gymctl.errors import EnvError, GymctlError, IntegrityError, NotFound, StartError, Unavailable, UsageError

MAX_ANSWER = 256 << 20
MAX_DEPTH = 200
CHUNK = 1 << 18
DEAD_SECONDS = 0.3
TRIES = 3
LOOPBACK = ("127.0.0.1", "::1", "localhost")
CALLER = f"gymctl/{__version__}"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: status, headers (lower-case names), body."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON (NaN and infinities included, for the reader to refuse); EnvError when it is none."""
        try:
            return parsed(self.body)
        except ValueError as error:
            shown = self.body[:80].decode("utf-8", "replace")
            raise EnvError(f"the environment answered {self.status} with something that is not JSON: {printable(shown)!r}") from error


class Client:
    """One connection to an instance. A request is sent once: a connection the other side has closed is noticed before sending."""

    def __init__(self, url: str, *, name: str = "", headers: dict[str, str] | None = None) -> None:
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or 80
        self.name = name
        self.headers = {"Accept": "application/json", "Accept-Encoding": "identity", "X-Caller": CALLER, **(headers or {})}
        self._connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        """Close the connection: it is no longer needed."""
        self._drop()

    def _drop(self) -> None:
        if self._connection:
            self._connection.close()
            self._connection = None

    def interrupt(self) -> None:
        """From another thread: what is being waited for breaks off."""
        connection = self._connection
        with contextlib.suppress(OSError, AttributeError):  # it has just ended
            if connection:
                connection.sock.shutdown(socket.SHUT_RDWR)

    def call(self, path: str, document: Any = None, *, timeout: float = 60, method: str | None = None) -> Any:
        """POST a JSON document (GET without one) and return the JSON answered; the environment's errors as ours."""
        reply = self.send(method or ("GET" if document is None else "POST"), path, document, timeout=timeout)
        if reply.status >= 400:
            raise error_of(reply, self.name)
        return reply.json()

    def send(self, method: str, path: str, document: Any = None, *, timeout: float = 60, data: bytes | BinaryIO | None = None) -> Reply:
        """One request with a JSON document, or with `data` as it is, whatever it answers; Unavailable when nothing does."""
        body = data if document is None else _encoded(document)
        headers = self.headers if body is None else {**self.headers, "Content-Type": "application/json" if data is None else "application/octet-stream"}
        size = os.fstat(body.fileno()).st_size if body is not None and not isinstance(body, bytes) else 0
        sent = body if body is None or isinstance(body, bytes) else _exactly(body, size)
        headers |= {"Content-Length": str(size)} if sent is not body else {}
        connection = self._ready(timeout)
        try:
            connection.request(method, path, sent, headers)
            answer = connection.getresponse()
            reply = Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read(MAX_ANSWER))
            if not answer.isclosed():
                self._drop()
                raise EnvError(f"the answer to {path} is larger than {MAX_ANSWER >> 20} MiB")
            return reply
        except TimeoutError as error:
            self._drop()
            raise Unavailable(f"{self._address()} did not answer {path} within {timeout:g} s", hint=self._hint("logs")) from error
        except (http.client.HTTPException, OSError) as error:
            self._drop()
            raise Unavailable(f"{self._address()} broke the connection during {path}: {error or type(error).__name__}", hint=self._hint("logs")) from error

    def _ready(self, timeout: float) -> http.client.HTTPConnection:
        """The kept connection, or a new one when it is gone; Unavailable apart for refused and no answer."""
        kept = self._connection
        if kept and kept.sock and not select.select([kept.sock], [], [], 0)[0]:
            kept.sock.settimeout(timeout)
            return kept
        self._drop()
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            connection.connect()
        except TimeoutError as error:
            hint = "a firewall may drop the packets; DOCKER_HOST may name another machine"
            raise Unavailable(f"{self._address()} did not take the connection within {timeout:g} s", hint=hint) from error
        except OSError as error:
            raise Unavailable(f"nothing listens at {self._address()}: not running, or its port is not published", hint=self._hint("ps")) from error
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        return connection

    def _address(self) -> str:
        return f"{self.host}:{self.port}"

    def _hint(self, verb: str) -> str:
        name = self.name or "NAME"
        return f"`gymctl logs {name}` shows what it printed" if verb == "logs" else "`gymctl ps` shows what runs, `gymctl run` starts it"


def _exactly(file: BinaryIO, left: int) -> Iterator[bytes]:
    """As many bytes as were announced, though somebody writes to the file meanwhile; OSError when there are less."""
    while left:
        chunk = file.read(min(CHUNK, left))
        if not chunk:
            raise OSError("the file became shorter while it was sent")
        left -= len(chunk)
        yield chunk


def _encoded(document: Any) -> bytes:
    try:
        return json.dumps(document, allow_nan=False, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:  # an argument in another encoding, or half a character
        shown = error.object[max(0, error.start - 20) : error.end].encode("ascii", "backslashreplace").decode()
        raise UsageError(f"text that is not UTF-8 cannot be sent: {shown}", hint="is the terminal's encoding UTF-8? try LC_ALL=C.UTF-8") from error
    except ValueError as error:
        raise UsageError("NaN and infinities cannot be sent: JSON has none") from error


def error_of(reply: Reply, name: str) -> GymctlError:
    """An error answer as one of ours: 404 is NotFound, the rest EnvError with the environment's own words."""
    try:
        document = parsed(reply.body)
    except ValueError:
        document = {}
    document = document if isinstance(document, dict) else {}
    error = document.get("error")
    told = error if isinstance(error, dict) else {}
    message = printable(str(told.get("message") or document.get("detail") or error or f"HTTP {reply.status}"))
    hint = printable(str(told.get("hint") or ""))
    if reply.status == 404 and told:
        return NotFound(message, hint=hint)
    if reply.status >= 500:
        request = printable(str(document.get("request_id") or ""))
        message = f"{message} (request {request})" if request else message
        logs = f"`gymctl logs {name or 'NAME'}` shows what the server printed of it"
        hint = f"{hint}; {logs}" if hint else logs
    return EnvError(message, hint=hint, type=str(told.get("type") or ""), status=reply.status)


def own(reply: Reply, session: str) -> Reply:
    """The reply, when `session` gave it; EnvError names the session that did. A header holds no other letters than ASCII, so they come percent-encoded."""
    served = reply.headers.get("x-session", session)
    if session not in (served, unquote(served)):
        hint = "whoever serves this URL mixes sessions up, or it is another instance: `gymctl ps`"
        raise EnvError(f"the answer came from session {printable(served)!r} instead of {session!r}", hint=hint, type="wrong_session")
    return reply


def wait(client: Client, path: str, timeout: float, alive: Callable[[], str], told: Callable[[str], None] = lambda text: None) -> None:
    """Poll `path` until it answers 200. `alive()` gives "" or why it can no more: StartError at once; at the deadline too."""
    with _given_up_when_dead(client, alive):
        _poll(client, path, timeout, alive, told)


@contextlib.contextmanager
def _given_up_when_dead(client: Client, alive: Callable[[], str]) -> Iterator[None]:
    """Whoever forwards a port takes the connection also for a machine that is not there any more, and then nobody answers: what is waited for is cut off."""
    over = threading.Event()

    def watch() -> None:
        with contextlib.suppress(GymctlError):  # an engine that is not there: the waiting one is told so itself
            while not over.wait(DEAD_SECONDS):
                if alive():
                    client.interrupt()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _poll(client: Client, path: str, timeout: float, alive: Callable[[], str], told: Callable[[str], None]) -> None:
    deadline = time.monotonic() + timeout
    pause, next_look, last = 0.002, time.monotonic() + 0.1, "nothing listens yet"
    while True:
        try:
            reply = client.send("GET", path, timeout=max(0.1, min(5.0, deadline - time.monotonic())))
            if reply.status == 200:
                return
            last = f"{path} answers {reply.status}: {error_of(reply, client.name).message[:300]}"
        except Unavailable as error:
            last = error.message
        now = time.monotonic()
        if now >= next_look and (why := alive()):
            raise StartError(why)
        if now > deadline:
            raise StartError(f"not ready after {timeout:g} s: {last}", hint="a slow machine needs a larger ready.timeout in the recipe")
        if now >= next_look:
            told(last)
            next_look = now + 0.1
        time.sleep(pause)
        pause = min(pause * 1.2, 0.05)


def download(url: str, target: Path, *, sha256: str | None = None, timeout: float = 300) -> None:
    """Fetch an http, https or file URL (or copy a path of this host) to `target`, whole or not at all; a transfer that breaks off is taken up again.

    Unavailable says why it cannot be had, IntegrityError names both digests.
    """
    part = target.with_name(f"{target.name}.part")
    try:
        if urlsplit(url).scheme in ("http", "https"):
            _fetch(url, part, timeout)
        else:
            _copy(url, part)
        if sha256 and (found := _digest(part)) != sha256.removeprefix("sha256:").lower():
            raise IntegrityError(f"{url} is not what it should be: sha256 {found}, expected {sha256}")
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _digest(path: Path) -> str:
    import hashlib  # loads OpenSSL: most commands need no digest

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _copy(url: str, target: Path) -> None:
    import shutil

    parts = urlsplit(url)
    if parts.scheme not in ("file", "") or parts.netloc not in ("", "localhost"):
        raise Unavailable(f"cannot fetch {url}: it is no http, https or file URL")
    try:
        shutil.copyfile(unquote(parts.path) if parts.scheme else url, target)
    except OSError as error:
        raise Unavailable(f"cannot read {url}: {error.strerror}") from error


def _fetch(url: str, target: Path, timeout: float) -> None:
    """By httpx, in as many tries as TRIES says; after a break only the rest is asked for, as long as it is still the same file (If-Range)."""
    import httpx

    why, mark = "", ""
    with httpx.Client(timeout=timeout, follow_redirects=True, trust_env=urlsplit(url).hostname not in LOOPBACK) as client:
        for _ in range(TRIES):
            had = target.stat().st_size if target.exists() else 0
            asked = {"Accept-Encoding": "identity", "User-Agent": CALLER, **({"Range": f"bytes={had}-", "If-Range": mark} if had and mark else {})}
            try:
                with client.stream("GET", url, headers=asked) as answer:
                    if answer.status_code not in (200, 206):
                        why = f"it answers {answer.status_code} {answer.reason_phrase}".strip()
                        if answer.status_code < 500:
                            break
                        continue
                    mark = _mark(answer.headers.get("ETag", ""))
                    with target.open("ab" if answer.status_code == 206 else "wb") as file:
                        for chunk in answer.iter_bytes():
                            file.write(chunk)
                return
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                why = str(error) or type(error).__name__
    raise Unavailable(f"cannot fetch {url}: {why}")


def _mark(etag: str) -> str:
    """An ETag that stands for the very bytes; a weak one does not."""
    return "" if etag.startswith("W/") else etag


def printable(text: str) -> str:
    """Text from an environment without anything a terminal would obey."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def parsed(text: str | bytes) -> Any:
    """JSON from outside (NaN and infinities included); ValueError for what is none, or is nested deeper than it could be written again."""
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if next(itertools.islice(_levels(value), MAX_DEPTH, None), None) is not None:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
    return value


def strict(text: str | bytes) -> Any:
    """The same, with NaN and infinities refused."""
    value = parsed(text)
    if not finite(value):
        raise ValueError("NaN and infinities are not JSON")
    return value


def finite(value: Any) -> bool:
    """Whether a JSON value holds no NaN and no infinity."""
    return all(math.isfinite(v) for level in _levels(value) for v in level if isinstance(v, float))


def _levels(value: Any) -> Iterator[list[Any]]:
    """The values of each depth, the whole first."""
    level = [value]
    while level:
        yield level
        level = [item for v in level if isinstance(v, list | dict) for item in (v if isinstance(v, list) else v.values())]
