"""python3 -m _guest: the in-guest server. Its settings are environment variables; see README.md."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

from . import VERSION, routes_guest, routes_screen
from .desk import Desk
from .edge import Request, Route, Routes, Server, document
from .processes import SECRETS
from .renewal import Renewal
from .x11 import LIBC
from .xauthority import add_name

PR_SET_DUMPABLE = 4
SHORTEST_TOKEN = 16
ACTING = ("/input", "/execute", "/run_", "/setup/")


def token() -> str:
    """The token: from an open file that only we have, or from the environment, which children do not get."""
    number = os.environ.get("GUEST_TOKEN_FD")
    if number:
        with open(int(number), "rb") as file:
            found = file.read().decode().strip()
    else:
        found = os.environ.get("GUEST_TOKEN", "")
    if len(found) < SHORTEST_TOKEN:
        sys.exit(f"no token: GUEST_TOKEN (or GUEST_TOKEN_FD) needs at least {SHORTEST_TOKEN} characters, for who has it may run commands here")
    for name in SECRETS:
        if name != "LISTEN_FD":
            os.environ.pop(name, None)
    # What runs in the desktop is the same user: it may not read the token out of this process.
    LIBC.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    return found


def listener() -> socket.socket:
    """The socket to serve: handed over (LISTEN_FD), or bound to HOST and PORT."""
    number = os.environ.pop("LISTEN_FD", None)
    if number:
        made = socket.socket(fileno=int(number))
        made.set_inheritable(False)
        made.listen(256)
        return made
    return socket.create_server((os.environ.get("HOST", "127.0.0.1"), int(os.environ.get("PORT", "5000"))), backlog=256)


def about(routes: Routes, log: Any) -> Routes:
    """What the server says of itself."""
    paths: dict[str, dict[str, Any]] = {}
    for method, path in sorted(routes):
        paths.setdefault(path, {})[method.lower()] = {"responses": {"200": {"description": "done"}}}
    described = {"openapi": "3.1.0", "info": {"title": "gymctl desktop guest", "version": VERSION}, "paths": paths}

    def openapi(request: Request) -> Any:
        return document(described)

    return {("GET", "/openapi.json"): openapi, ("GET", "/log"): lambda r: document({"log": list(log())})}


def marking(desk: Desk, routes: Routes) -> dict[tuple[str, str], Route]:
    """The same routes; those that act first mark where the screen is, so that what comes of it can be waited for."""

    def after_mark(route: Route) -> Route:
        def do(request: Request) -> Any:
            desk.mark()
            return route(request)

        return do

    return {key: after_mark(route) if key[0] == "POST" and key[1].startswith(ACTING) else route for key, route in routes.items()}


def main() -> None:
    """Serve until TERM or INT; then everything is released."""
    secret = token()
    desk = Desk(os.environ.get("DISPLAY", ":0"))
    routes = marking(desk, {**routes_screen.routes(desk), **routes_guest.routes(desk)})
    server = Server(listener(), secret, routes)
    routes.update(about(routes, lambda: server.log))

    def heed(news: dict[str, Any]) -> Callable[[], None]:
        if news.get("release"):
            desk.release()
            desk.screen.renew()  # the eyes are open when the machine is saved
        if news.get("token"):
            desk.screen.renew()
            server.token = news["token"]
        return lambda: add_name(news["hostname"]) if news.get("hostname") else None

    if os.environ.get("RENEWAL"):
        Renewal(heed).start()

    def end(number: int, frame: Any) -> None:
        threading.Thread(target=server.shutdown).start()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    host, port = server.socket.getsockname()[:2]
    print(f"serving {desk.display} on {host}:{port}", file=sys.stderr, flush=True)  # noqa: T201  # the log's first line
    server.serve_forever()
    desk.close()


if __name__ == "__main__":
    main()
