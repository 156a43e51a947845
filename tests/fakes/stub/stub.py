"""An environment that misbehaves on demand: what gymctl makes of a bad environment is what the tests ask.

STUB is a list of words: what /health, /verifier and the tools do wrong.
"""

import json
import os
import socket
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WRONG = os.environ.get("STUB", "").split(",")
GOOD = {"success": True, "verifiers": [{"id": "done", "success": True}]}
VERDICTS: dict[str, Any] = {
    "nan": b'{"success": true, "score": NaN, "verifiers": [{"id": "done", "success": true}]}',
    "infinity": b'{"success": true, "score": Infinity, "verifiers": [{"id": "done", "success": true}]}',
    "overflow": b'{"success": true, "score": 1e400, "verifiers": [{"id": "done", "success": true}]}',
    "bool": {**GOOD, "score": True},
    "text": {**GOOD, "score": "1"},
    "negative": {**GOOD, "score": -0.5},
    "large": {**GOOD, "score": 1.5},
    "no-object": [1],
    "no-json": b"<html>busy</html>",
    "one": {**GOOD, "success": 1},
    "mismatch": {"success": True, "verifiers": [{"id": "done", "success": False}]},
    "fewer": {"success": True, "verifiers": []},
    "pending": {"success": "PENDING", "verifiers": [{"id": "done", "success": "PENDING"}]},
    "half": {"success": False, "score": 0.5, "verifiers": [{"id": "done", "success": False}]},
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        if "deaf" in WRONG:
            time.sleep(60)
        if self.path == "/health":
            self.answer(503 if "unhealthy" in WRONG else 200, {"status": "ok", "error": {"message": "warming up"}})
        elif "no-log" in WRONG:
            self.answer(404, {"error": {"type": "NotFound", "message": "no log"}})
        else:
            self.answer(200, {"log": []})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        getattr(self, {"/reset": "reset", "/list-tools": "tools", "/call-tools": "call", "/verifier": "verifier"}[self.path])(body)

    def reset(self, body: Any) -> None:
        self.answer(200, {"message": "fresh", "universe_id": "none", "servers": {}})

    def tools(self, body: Any) -> None:
        self.answer(200, {"tools": [{"name": "do_it", "inputSchema": {"type": "object"}}]})

    def call(self, body: Any) -> None:
        if "other-session" in WRONG:
            self.answer(200, {"content": [], "isError": False}, session="somebody else's")
        elif "die" in WRONG:
            os._exit(3)
        else:
            text = "\x1b[31mred\x1b]0;title\x07" if "escapes" in WRONG else "done"
            self.answer(200, {"content": [{"type": "text", "text": text}], "isError": "escapes" in WRONG}, session=body["tags"]["assignmentId"])

    def verifier(self, body: Any) -> None:
        if "sleep" in WRONG:
            time.sleep(60)
        elif "close" in WRONG:
            self.connection.shutdown(socket.SHUT_RDWR)
        elif "500" in WRONG:
            self.answer(500, {"error": {"type": "ExecutionError", "message": "the database is gone"}})
        elif "400" in WRONG:
            self.answer(400, {"error": {"type": "ValidationError", "message": "checks[0]: bad pattern"}})
        else:
            self.answer(200, next((VERDICTS[word] for word in WRONG if word in VERDICTS), GOOD))

    def answer(self, status: int, document: Any, session: str = "") -> None:
        data = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        if session:
            self.send_header("X-Session", session)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        print(format % args, flush=True)


if "crash" in WRONG:
    print("cannot find my database", flush=True)
    sys.exit(3)
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
server.socket = socket.socket(fileno=int(os.environ["LISTEN_FD"]))
server.serve_forever()
