"""`gymctl view` of a desktop: a real browser shows it, an address lets one in once, and what is lacking is said each in its own words."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import playwright.sync_api
import pytest
from PIL import Image, ImageChops, ImageStat
from playwright.sync_api import Browser, Page, sync_playwright

from gymctl import proc
from tests.conftest import ROOT, Cli, lacking
from tests.desktops import Machine, desk, local_desk, start

__all__ = ["desk", "local_desk"]


@pytest.fixture(scope="module")
def novnc() -> None:
    """noVNC, else a skip."""
    if not Path("/usr/share/novnc/core/rfb.js").is_file():
        lacking("desktop", "noVNC is not installed")


@pytest.fixture(scope="module")
def browser(novnc: None) -> Iterator[Browser]:
    """A real Chromium."""
    executable = shutil.which("chromium")
    if executable is None:
        lacking("browser", "there is no chromium")
    with sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=executable, args=["--disable-gpu"], chromium_sandbox=os.getuid() != 0)
        yield made
        made.close()


def viewed(machine: Machine) -> Any:
    """The document of `view`."""
    return machine.cli("view", machine.name, "--json").json


def wait_for(page: Page, text: str) -> None:
    """Wait until the page's line says something; "" when it shows the desktop."""
    said = "text => { const said = document.getElementById('status').textContent; return text ? said.includes(text) : said === '' }"
    try:
        page.wait_for_function(said, arg=text, timeout=60_000)
    except playwright.sync_api.TimeoutError:
        pytest.fail(f"the page says {page.text_content('#status')!r}, not {text!r}")


def visit(browser: Browser, url: str) -> tuple[int, str]:
    """The status and the words of a page, for somebody new."""
    context = browser.new_context()
    page = context.new_page()
    answer = page.goto(url)
    assert answer is not None
    found = answer.status, page.inner_text("body")
    context.close()
    return found


def test_a_browser_shows_the_desktop_and_acts_in_it(desk: Machine, browser: Browser, tmp_path: Path) -> None:
    desk.window("seen", "600x400+200+150", "#2040c0")
    desk.step("wait-change", "60")
    desk.step("wait-stable")
    page = browser.new_context(viewport={"width": 1280, "height": 720}).new_page()
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.goto(viewed(desk)["url"])
    page.wait_for_selector("canvas")
    wait_for(page, "")
    desk.step("move", "1000", "600")
    deadline = time.monotonic() + 30
    difference = 255.0
    while difference > 3:
        assert time.monotonic() < deadline, f"the canvas differs from the screen by {difference}"
        shown = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        screen = Image.open(desk.step("screenshot")["screen"]["path"]).convert("RGB")
        difference = max(ImageStat.Stat(ImageChops.difference(shown, screen)).mean)
    assert shown.getpixel((400, 300)) == (0x20, 0x40, 0xC0)
    page.mouse.move(333, 222)
    while desk.step("exec", "true") and _pointer(desk) != [333, 222]:
        assert time.monotonic() < deadline + 30, _pointer(desk)
    assert page.url.endswith("/"), "the token does not stay in the address"
    page.reload()
    wait_for(page, "")
    assert faults == []
    page.context.close()
    desk.close_windows()


def _pointer(machine: Machine) -> Any:
    import urllib.request

    request = urllib.request.Request(machine.record()["url"] + "/cursor_position", headers={"Authorization": f"Bearer {machine.document['token']}"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
        return json.load(answer)


def test_an_address_lets_one_in_once(local_desk: Machine, browser: Browser) -> None:
    shown = viewed(local_desk)
    assert shown["ssh"].startswith(f"ssh -L {shown['url'].split(':')[2].split('/')[0]}:127.0.0.1:")
    assert shown["vnc"] == f"vnc://127.0.0.1:{local_desk.record()['handle']['ports']['5900']}"
    assert shown["password"] == local_desk.record()["secrets"]["VNC_PASSWORD"]
    root = shown["url"].partition("?")[0]
    for url in (root, f"{root}state", f"{root}core/rfb.js", f"{root}vnc.html"):
        assert visit(browser, url)[0] == 403
    status, said = visit(browser, f"{root}?token=wrong")
    assert (status, "The token in this address is wrong" in said) == (403, True)
    assert visit(browser, shown["url"])[0] == 200
    status, said = visit(browser, shown["url"])
    assert (status, "was used already" in said) == (410, True)
    assert "gymctl view desk prints a new one" in said.replace("`", "")
    again = viewed(local_desk)
    assert again["url"].partition("?")[0] == root, "one viewer an instance"
    assert again["url"] != shown["url"]
    assert shown["password"] not in json.dumps([(p.read_bytes().decode(errors="replace")) for p in _cmdlines(local_desk)])


def _cmdlines(machine: Machine) -> list[Path]:
    return [Path(f"/proc/{pid}/cmdline") for pid in machine.cli.leftovers()]


def test_only_novnc_s_code_is_served_and_only_to_its_own_page(local_desk: Machine, browser: Browser) -> None:
    context = browser.new_context()
    page = context.new_page()
    url = viewed(local_desk)["url"]
    page.goto(url)
    root = url.partition("?")[0]
    for path in ("core/../../../../etc/passwd", "core/%2e%2e/vnc.html", "app/ui.js", "state/x", "core/", f"core/{'a' * 5000}", "core/a%00b", "[core"):
        assert context.request.get(root + path).status == 404, path
    # With the cookie, but from a page of another origin.
    cookie = "; ".join(f"{c['name']}={c['value']}" for c in context.cookies())
    port = int(root.split(":")[2].strip("/"))
    for origin, status in ((f"http://127.0.0.1:{port}", b"101"), ("http://evil.example", b"403")):
        with socket.create_connection(("127.0.0.1", port), 10) as link:
            link.sendall(
                f"GET /websockify HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nOrigin: {origin}\r\nCookie: {cookie}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n".encode()
            )
            assert link.recv(12)[9:12] == status
    context.close()


@contextlib.contextmanager
def elsewhere(machine: Machine, port: int) -> Iterator[None]:
    """The record says that VNC is at another port."""
    path = machine.folder / "instance.json"
    record = json.loads(path.read_text())
    changed = json.loads(json.dumps(record))
    changed["handle"]["ports"]["5900"] = port
    path.write_text(json.dumps(changed))
    try:
        yield
    finally:
        path.write_text(json.dumps({**json.loads(path.read_text()), "handle": record["handle"]}))


@pytest.fixture
def mute() -> Iterator[int]:
    """A port that takes connections and ends them, as an engine's proxy does with nothing behind it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    listener.accept()[0].close()

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def closed_port() -> int:
    """A port where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def test_refused_and_no_display_are_said_by_the_command_and_by_the_page(local_desk: Machine, browser: Browser, mute: int) -> None:
    page = browser.new_context().new_page()
    page.goto(viewed(local_desk)["url"])
    wait_for(page, "")
    for port, words in ((closed_port(), "VNC refused: nothing listens at 127.0.0.1:"), (mute, "no display: 127.0.0.1:")):
        with elsewhere(local_desk, port):
            assert words in local_desk.cli("view", local_desk.name, code=5).err
            page.reload()
            wait_for(page, words)
        wait_for(page, "")  # it looks again, and where VNC is now
    page.context.close()


def test_a_wrong_vnc_password_is_said(local_desk: Machine, browser: Browser) -> None:
    path = local_desk.folder / "instance.json"
    record = json.loads(path.read_text())
    page = browser.new_context().new_page()
    page.goto(viewed(local_desk)["url"])
    wait_for(page, "")
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "secrets": {**record["secrets"], "VNC_PASSWORD": "wrongone"}}))
    page.reload()
    wait_for(page, "VNC refused the password")
    path.write_text(json.dumps(record))
    page.context.close()


def test_what_is_not_installed_is_named_and_vnc_works_anyway(local_desk: Machine, tmp_path: Path) -> None:
    error = local_desk.cli("view", local_desk.name, env={"GYMCTL_NOVNC": str(tmp_path)}, code=5).err
    assert "is not noVNC" in error
    assert "apt-get install novnc" in error
    assert f"vnc://127.0.0.1:{local_desk.record()['handle']['ports']['5900']}, password {local_desk.record()['secrets']['VNC_PASSWORD']}" in error


def test_a_recipe_without_vnc(tmp_path: Path, request: pytest.FixtureRequest, cli: Cli) -> None:
    folder = tmp_path / "blind"
    folder.mkdir()
    text = (ROOT / "recipes/linux-desktop/recipe.yaml").read_text().replace("name: linux-desktop", "name: blind").replace("ports: {VNC_PORT: 5900}\n", "")
    (folder / "recipe.yaml").write_text(text.replace("image: linux-desktop", f"image: {ROOT}/images/linux-desktop"))
    start(cli, "local", request, str(folder), name="blind")
    assert "its recipe publishes no port VNC_PORT" in cli("view", "blind", code=6).err


def test_the_viewer_outlives_a_reset_and_ends_with_its_instance(request: pytest.FixtureRequest, cli: Cli, browser: Browser) -> None:
    machine = start(cli, "local", request)
    page = browser.new_context().new_page()
    page.goto(viewed(machine)["url"])
    wait_for(page, "")
    before, helper = machine.record()["handle"]["ports"]["5900"], _viewer(machine)
    cli("reset", "desk")
    assert machine.record()["handle"]["ports"]["5900"] != before
    wait_for(page, "")
    assert _viewer(machine) == helper
    assert proc.alive(helper)
    cli("stop", "desk")
    assert not proc.alive(helper)
    wait_for(page, "The viewer has ended")
    assert cli.leftovers() == []
    page.context.close()


def _viewer(machine: Machine) -> proc.Process:
    helper = next(h for h in machine.record()["helpers"] if h["what"] == "view")
    return proc.Process(helper["pid"], helper["started"])


def test_the_viewer_ends_when_all_else_was_killed(request: pytest.FixtureRequest, cli: Cli, novnc: None) -> None:
    machine = start(cli, "local", request)
    viewed(machine)
    helper = _viewer(machine)
    for pid in cli.leftovers():
        if pid != helper.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert proc.wait_gone(helper, 30), "the viewer stays although nothing is left to show"
    assert cli.leftovers() == []
