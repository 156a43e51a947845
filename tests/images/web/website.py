"""A real website server as a child process, a client for its API, and one for its pages without a browser."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from tests.images.serving import Answer, Client

IMAGES = Path(__file__).resolve().parents[3] / "images"
PACKS = Path(__file__).resolve().parents[1] / "calendr" / "packs"


class Website(Client):
    """A running site and a client of its API."""

    def __init__(self, data_dir: Path, site: str = "calendr", **env: str) -> None:
        # The socket is bound here: a request made before the server accepts simply waits, so nothing is polled.
        bound = socket.create_server(("127.0.0.1", 0), backlog=256)
        bound.set_inheritable(True)
        environment = {**os.environ, "DATA_DIR": str(data_dir), "LISTEN_FD": str(bound.fileno()), "DATA_PACK": "studio", "PACKS": str(PACKS), **env}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "server"], cwd=IMAGES / site, env=environment, pass_fds=[bound.fileno()], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        port = bound.getsockname()[1]
        bound.close()
        super().__init__(port)

    @property
    def origin(self) -> str:
        """Where its pages are."""
        return f"http://127.0.0.1:{self.port}"

    def reset(self, session: str, **fields: str) -> Any:
        """Put a session to the start; the answer."""
        answer = self.post("/reset", {"sessionId": session, **fields})
        assert answer.status == 200, answer.content
        return answer.json

    def table(self, session: str, table: str) -> list[dict[str, Any]]:
        """The rows of a table."""
        rows: list[dict[str, Any]] = self.post("/state", {"sessionId": session, "table": table}).json[table]
        return rows

    def log(self, session: str) -> list[dict[str, Any]]:
        """The interactions, oldest first."""
        rows: list[dict[str, Any]] = self.get(f"/log?session_id={quote(session)}").json["log"]
        return rows

    def stop(self) -> str:
        """SIGTERM; its stderr."""
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=30)
        self.close()
        return errors.decode()

    def kill(self) -> None:
        """SIGKILL, as a crash would end it."""
        self.process.kill()
        self.process.communicate(timeout=30)
        self.close()


@contextmanager
def website(data_dir: Path, site: str = "calendr", **env: str) -> Iterator[Website]:
    """A site for the length of a block."""
    running = Website(data_dir, site, **env)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.kill()


class Visitor:
    """A person without JavaScript: gets pages, sends the forms that are on them."""

    def __init__(self, site: Website, session: str) -> None:
        self.site = site
        self.session = session
        self.client: Client = site
        self.html = ""

    def get(self, address: str) -> Answer:
        """A page."""
        answer = self.client.get(address, Cookie=f"session_id={quote(self.session, safe='')}")
        self.html = answer.content.decode()
        return answer

    def post(self, address: str, fields: dict[str, Any]) -> Answer:
        """Send fields as a form does, with the version of the page that was got last."""
        found = re.search(r'name="page-version" content="([^"]+)"', self.html)
        body = urlencode({"_page": found[1] if found else "", **fields}, doseq=True).encode()
        headers = {"Cookie": f"session_id={quote(self.session, safe='')}", "Content-Type": "application/x-www-form-urlencoded", "Origin": self.site.origin}
        return self.client.post(address, body, **headers)

    def submit(self, form: str, **changes: Any) -> Answer:
        """Send the form with this id from the page that was got last, with some fields changed (None: left out); follow to the page it leads to."""
        found = Forms(self.html).forms[form]
        fields = {k: v for k, v in {**found.fields, **changes}.items() if v is not None}
        answer = self.post(found.action, fields)
        if answer.status == 303:
            self.get(answer.headers["location"])
        else:
            self.html = answer.content.decode()
        return answer


class Form:
    """A form of a page: where it goes, and what it sends as it stands."""

    def __init__(self, action: str) -> None:
        self.action = action
        self.fields: dict[str, Any] = {}

    def add(self, name: str, value: str) -> None:
        there = self.fields.get(name)
        self.fields[name] = value if there is None else [*(there if isinstance(there, list) else [there]), value]


class Forms(HTMLParser):
    """The forms of a page by id."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.forms: dict[str, Form] = {}
        self._form: Form | None = None
        self._select = ""
        self._area: tuple[str, list[str]] | None = None
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {k: v or "" for k, v in attrs}
        if tag == "form":
            self._form = self.forms[found.get("id", "")] = Form(found["action"])
        if self._form is None:
            return
        if tag == "input" and found.get("name"):
            if found.get("type") not in ("checkbox", "radio") or "checked" in found:
                self._form.add(found["name"], found.get("value", "on" if found.get("type") == "checkbox" else ""))
        elif tag == "select":
            self._select = found.get("name", "")
        elif tag == "option" and self._select and ("selected" in found or self._select not in self._form.fields):
            self._form.fields[self._select] = found.get("value", "")
        elif tag == "textarea":
            self._area = (found["name"], [])

    def handle_data(self, data: str) -> None:
        if self._area:
            self._area[1].append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = None
        elif tag == "select":
            self._select = ""
        elif tag == "textarea" and self._area and self._form:
            self._form.add(self._area[0], "".join(self._area[1]))
            self._area = None
