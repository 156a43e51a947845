"""HTTP: one thread a connection, a token on every path, each answer in one write."""

from __future__ import annotations

import base64
import binascii
import contextlib
import errno
import hmac
import json
import re
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import IO, Any
from urllib.parse import parse_qsl

from . import VERSION
from .faults import Fault, bad, did_you_mean

LARGEST_JSON = 64 << 20
COOKIE = "token"
CHUNK = 1 << 18
LOGGED = 1000
WHOLE_ADDRESS = re.compile(r"^https?://[^/?]*")
"""What a proxy's client writes before a path."""
CONTROL = ("/reset", "/setup/", "/start_recording", "/end_recording")
"""What puts the desktop into another state, or ends what watches it: kept in the log however many requests follow."""


class Request:
    """A request: its query, its headers, and its body, read once."""

    def __init__(self, method: str, path: str, query: str, headers: Any, stream: Any) -> None:
        self.method = method
        self.path = path
        self.query = dict(parse_qsl(query, keep_blank_values=True, errors="surrogateescape"))  # the names of files are bytes
        self.headers = headers
        length = headers.get("Content-Length", "0")
        if headers.get("Transfer-Encoding") or not (length.isascii() and length.isdigit() and len(length) < 19):
            raise Fault(411, "LengthRequired", "a body needs a Content-Length", "send it whole, not chunked")
        self.length = self.left = int(length)
        self._stream = stream

    def read(self, most: int) -> bytes:
        """At most so many bytes of the body; none at its end."""
        chunk = self._stream.read(min(most, self.left)) if self.left else b""
        if self.left and not chunk:
            raise bad("the connection ended before the body did")
        self.left -= len(chunk)
        return chunk

    def json(self) -> dict[str, Any]:
        """The body as a JSON object (an empty body is an empty object); 400, 413."""
        value = self.any_json()
        if not isinstance(value, dict):
            raise bad("the body is no JSON object")
        return value

    def any_json(self) -> Any:
        """The body as JSON."""
        if self.length > LARGEST_JSON:
            raise Fault(413, "TooLarge", f"a body of {self.length} bytes", f"at most {LARGEST_JSON}")
        content = b"".join(iter(lambda: self.read(CHUNK), b""))
        try:
            return json.loads(content) if content.strip() else {}
        except (ValueError, RecursionError) as error:
            raise bad(f"the body is no JSON: {error}") from error


@dataclass
class Answer:
    """What is answered: bytes, or an open file to stream (closed afterwards)."""

    content: bytes = b""
    type: str = "application/json"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    file: IO[bytes] | None = None


def document(value: Any, status: int = 200) -> Answer:
    """A JSON answer."""
    return Answer(json.dumps(value).encode() + b"\n", status=status)


def text(words: str, status: int = 200) -> Answer:
    """A plain text, where OSWorld answers one."""
    return Answer(words.encode(), "text/html; charset=utf-8", status)


def refused(error: OSError | UnicodeEncodeError) -> Fault:
    """What the system would not do, or no encoding can hold: no bug of ours, and said in its words."""
    if isinstance(error, UnicodeEncodeError):
        return bad(f"{error.object[error.start : error.end]!a} cannot be written in {error.encoding}", "half of a surrogate pair is no character")
    where = f": {error.filename}" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Fault(507, "NoSpace", f"{error.strerror}{where}", "df -h in the guest shows which disk is full")
    return Fault(500, "Refused", f"{error.strerror or error}{where}"[:1000], "ls -ld, df -h and ulimit -a in the guest tell more")


Route = Callable[[Request], Answer]
Routes = Mapping[tuple[str, str], Route]


class Server(ThreadingHTTPServer):
    """Serves routes to whoever knows the token, over a socket that somebody else may have bound."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, listener: socket.socket, token: str, routes: Routes) -> None:
        super().__init__(listener.getsockname()[:2], Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.token = token
        self.routes = routes
        self._requests: deque[dict[str, Any]] = deque(maxlen=LOGGED)
        self._controls: deque[dict[str, Any]] = deque(maxlen=LOGGED)
        self._logged = 0
        self._logging = threading.Lock()

    @property
    def log(self) -> list[dict[str, Any]]:
        """The last requests, and the last ones that control the desktop, the oldest first."""
        with self._logging:
            return sorted((*self._requests, *self._controls), key=lambda entry: int(entry["n"]))

    def write_down(self, entry: dict[str, Any]) -> None:
        """A request, under the next number."""
        control = entry["method"] == "POST" and entry["path"].removeprefix("/api").startswith(CONTROL)
        with self._logging:
            self._logged += 1
            (self._controls if control else self._requests).append({"n": self._logged, **entry})

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error of ours; anything else is written down."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def allowed(self, headers: Any) -> bool:
        """Whether the token is there: as Bearer, as Basic password of any user, or as a cookie."""
        scheme, _, value = headers.get("Authorization", "").partition(" ")
        given = []
        if scheme.lower() == "bearer":
            given.append(value.strip())
        elif scheme.lower() == "basic":
            with contextlib.suppress(ValueError, binascii.Error):
                given.append(base64.b64decode(value, validate=True).decode().partition(":")[2])
        with contextlib.suppress(CookieError):
            cookie = SimpleCookie(headers.get("Cookie", "")).get(COOKIE)
            given.append(cookie.value if cookie else "")
        return any(hmac.compare_digest(word.encode(), self.token.encode()) for word in given)

    def route(self, method: str, path: str) -> Route:
        """The route of a path, which also answers under /api; 404 names the near ones, 405 the methods."""
        path = path.rstrip("/") or "/"
        path = path[4:] if path.startswith("/api/") else path
        found = self.routes.get((method, path))
        if found:
            return found
        methods = sorted(m for m, p in self.routes if p == path)
        if methods:
            raise Fault(405, "MethodNotAllowed", f"{path} takes {', '.join(methods)}, not {method}")
        paths = [p for _, p in self.routes]
        raise Fault(404, "NotFound", f"no path {path}{did_you_mean(path, paths)}", "GET /openapi.json lists them")


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    """Headers and body leave in one write: two would wait 40 ms for each other."""
    timeout = 600
    server: Server

    def version_string(self) -> str:
        return f"gymctl-guest/{VERSION}"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: /log tells what was asked."""

    def _handle(self) -> None:
        started = time.monotonic()
        request: Request | None = None
        path, _, query = WHOLE_ADDRESS.sub("", self.path).partition("?")
        try:
            request = Request(self.command, path, query, self.headers, self.rfile)
            self._check()
            answer = self.server.route(self.command, path)(request)
        except (Fault, OSError, UnicodeEncodeError) as error:
            fault = error if isinstance(error, Fault) else refused(error)
            answer = document(fault.body(), fault.status)
            if fault.status == 401:
                answer.headers["WWW-Authenticate"] = 'Basic realm="desktop"'
        except Exception:  # noqa: BLE001  # the server's edge: a bug of ours is an answer, not the end of the connection
            traceback.print_exc()
            answer = document(Fault(500, "InternalError", "a bug of the guest's server", "its log has the traceback: gymctl logs NAME").body(), 500)
        self._send(answer, request)
        entry = {"at": time.time(), "from": self.client_address[0], "caller": self.headers.get("X-Caller", ""), "method": self.command, "path": path}
        self.server.write_down({**entry, "status": answer.status, "ms": round((time.monotonic() - started) * 1000, 2)})

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _handle

    def _check(self) -> None:
        if not self.server.allowed(self.headers):
            raise Fault(401, "Unauthorized", "the token is missing or wrong", "Authorization: Bearer TOKEN, or gym:TOKEN@ before the host")
        origin = self.headers.get("Origin")
        if origin and origin.partition("://")[2] != self.headers.get("Host"):
            raise Fault(403, "ForeignOrigin", f"a page of {origin} may not speak to this desktop")

    def _send(self, answer: Answer, request: Request | None) -> None:
        left = request.left if request else 1
        length = len(answer.content)
        if answer.file:
            length = answer.file.seek(0, 2)
            answer.file.seek(0)
        reason = HTTPStatus(answer.status).phrase
        head = {"Server": self.version_string(), "Content-Length": str(length), "Cache-Control": "no-store", **answer.headers}
        if answer.status != 304:
            head["Content-Type"] = answer.type
        if left:  # a body that nobody read would be taken for the next request
            self.close_connection = True
            head["Connection"] = "close"
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        self.wfile.write(f"HTTP/1.1 {answer.status} {reason}\r\n{lines}\r\n".encode("latin-1", "replace"))
        if self.command != "HEAD":
            self.wfile.write(answer.content)
        if answer.file:
            self._send_file(answer.file, length)
        self.wfile.flush()

    def _send_file(self, file: IO[bytes], left: int) -> None:
        """As many bytes as were announced, though somebody writes to the file meanwhile; less of them end the connection."""
        with file:
            while left and (chunk := file.read(min(CHUNK, left))):
                self.wfile.write(chunk)
                left -= len(chunk)
        if left:
            self.close_connection = True
