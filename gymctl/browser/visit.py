"""One session's page in the browser: does gestures, says what the page is afterwards, and what was there when a gesture failed."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urljoin, urlsplit

from playwright.async_api import Browser, BrowserContext, Dialog, Download, Error, Locator, Page, Request, Response
from playwright.async_api import TimeoutError as Late

from gymctl.browser import failing
from gymctl.browser.gestures import Back, Click, Drag, Fill, Gesture, Goto, Press, Screenshot, Scroll, Select, Snapshot, Type, Upload, WaitFor
from gymctl.episode import Json
from gymctl.errors import EnvError, Unavailable

VIEWPORT = {"width": 1280, "height": 720}
SETTLE_TIMEOUT = 3.0
LOAD_MS = 30_000
AWAITED = ("document", "fetch", "xhr")
MOST_TOLD = 50
# One turn of the page's own clock: what a gesture set off (a request, a navigation) has begun when it is over.
TURN = "() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))"


class Visit:
    """A browser context of one session, at the page it is on."""

    def __init__(self, context: BrowserContext, origin: str, session: str, folder: Path) -> None:
        self.context, self.origin, self.session, self.folder = context, origin, session, folder
        self.lock = asyncio.Lock()
        self.lost = ""
        self._page: Page | None = None
        self._told: list[str] = []
        self._dialogs: list[Json] = []
        self._files: list[str] = []
        self._open: set[Request] = set()
        self._served_by = session
        self._saving: set[asyncio.Task[None]] = set()
        context.on("page", self._adopt)

    @classmethod
    async def begin(cls, browser: Browser, origin: str, session: str, folder: Path) -> Visit:
        """A context of its own, at the session's start page."""
        context = await browser.new_context(
            viewport=VIEWPORT,  # type: ignore[arg-type]  # playwright's own TypedDict
            locale="en-US", timezone_id="UTC", color_scheme="light", reduced_motion="reduce", service_workers="block", accept_downloads=True,
        )  # fmt: skip
        visit = cls(context, origin, session, folder)
        await context.new_page()
        await visit._goto(Goto(url=f"/?session_id={quote(session, safe='')}"))
        return visit

    @property
    def page(self) -> Page:
        """The page that is acted on: the one opened last."""
        if self._page is None:
            raise EnvError("the website closed its last page", hint="`reset` opens the start page again", type="page_closed")
        return self._page

    async def do(self, name: str, gesture: Gesture) -> tuple[Json, list[str]]:
        """Do a gesture: (observation, files written); EnvError says what failed and what was there instead."""
        self._told, self._dialogs, self._files = self._told[-MOST_TOLD:], [], []
        try:
            await DO[type(gesture)](self, gesture)
            await self._settle()
            return await self._observation(gesture)
        except Late as error:
            raise EnvError(f"{name}: {failing.reason(error)} within {gesture.seconds:g} s", hint=await self._here(), type="timeout") from error
        except Error as error:
            if failing.is_refused(error):
                raise Unavailable(f"the browser reaches {self.origin} no more: {failing.reason(error)}") from error
            raise EnvError(f"{name}: {failing.reason(error)}", hint=await self._here(), type="browser_error") from error

    async def _observation(self, gesture: Gesture) -> tuple[Json, list[str]]:
        if self.page.url.startswith("chrome-error:"):
            raise Unavailable(f"the browser reaches {self.origin} no more")
        if self.session not in (self._served_by, unquote(self._served_by)):  # a header holds no other letters, so they come percent-encoded
            raise EnvError(f"the page came from session {self._served_by!r} instead of {self.session!r}", hint="`reset` goes back", type="wrong_session")
        seen: Json = {"url": self.page.url, "title": await self.page.title(), "console_errors": self._told}
        if self._dialogs:
            seen["dialogs"] = self._dialogs
        if gesture.snapshot or isinstance(gesture, Snapshot):
            whole = await self._find(gesture.selector or "body", gesture.seconds) if isinstance(gesture, Snapshot) else self.page.locator("body")
            seen["snapshot"] = await whole.aria_snapshot(timeout=gesture.seconds * 1000)
        if gesture.screenshot or isinstance(gesture, Screenshot):
            seen["screenshot"] = await self._picture(gesture)
        if self._saving:
            await asyncio.wait(self._saving, timeout=SETTLE_TIMEOUT)
        self._told = []
        return seen, self._files

    async def _here(self) -> str:
        """Where the page is, for the hint of a failure."""
        return f"the page is {self.page.url} ({await self.page.title()})" if self._page and not self._page.is_closed() else ""

    async def _picture(self, gesture: Gesture) -> str:
        asked = gesture if isinstance(gesture, Screenshot) else Screenshot()
        path = Path(asked.path) if asked.path else self._next_file()
        kind: Any = "jpeg" if path.suffix.lower() in (".jpg", ".jpeg") else "png"
        wait = gesture.seconds * 1000
        try:
            if asked.selector:
                await (await self._find(asked.selector, gesture.seconds)).screenshot(path=path, type=kind, timeout=wait)
            else:
                await self.page.screenshot(path=path, type=kind, full_page=asked.full_page, timeout=wait)
        except OSError as error:
            raise EnvError(f"cannot write {path}: {error.strerror}", type="file") from error
        self._files.append(str(path))
        return str(path)

    def _next_file(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        number = sum(1 for _ in self.folder.iterdir()) + 1
        path = self.folder / f"{number:04}.png"
        path.touch()  # another session's next picture takes another number
        return path

    async def _find(self, selector: str, seconds: float, *, unseen: bool = False) -> Locator:
        """The one element a selector means; EnvError when there is none, or there are several."""
        every = self.page.locator(selector)
        found = every if unseen else every.filter(visible=True)
        try:
            with contextlib.suppress(Late):  # the look below decides: on a busy machine the wait may end before it looked once
                await found.first.wait_for(state="attached", timeout=seconds * 1000)
            count = await found.count()
        except Error as error:
            hint = "CSS (#save), text=Save, role=button[name=...]"
            raise EnvError(f"{selector!r} is no selector: {failing.reason(error)}", hint=hint, type="selector") from error
        if not count:
            raise await failing.absent(self.page, selector, seconds)
        if count > 1:
            raise await failing.ambiguous(found, selector, count)
        return found

    async def _point(self, selector: str | None, x: float | None, y: float | None, seconds: float) -> tuple[float, float]:
        """A point of the visible page: given, or an element's middle."""
        if selector is None:
            return _inside(x or 0.0, y or 0.0)
        found = await self._find(selector, seconds)
        await found.scroll_into_view_if_needed(timeout=seconds * 1000)
        box = await found.bounding_box(timeout=seconds * 1000)
        if box is None:
            raise EnvError(f"{selector!r} has no place on the page", type="selector")
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    async def _settle(self) -> None:
        """Wait until what the gesture set off is there: the next page, or the answers to its requests."""
        with contextlib.suppress(Error, TimeoutError):  # the page the gesture was done on has gone: the next one is waited for
            await asyncio.wait_for(self.page.evaluate(TURN), 1.0)
        with contextlib.suppress(Late):
            await self.page.wait_for_load_state("domcontentloaded", timeout=LOAD_MS)
        deadline = asyncio.get_running_loop().time() + SETTLE_TIMEOUT
        while self._open and asyncio.get_running_loop().time() < deadline:
            self._answered = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._answered.wait(), deadline - asyncio.get_running_loop().time())

    # What the page tells by itself.

    def _adopt(self, page: Page) -> None:
        self._page, self._open, self._answered = page, set(), asyncio.Event()
        page.on("console", lambda message: self._told.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self._told.append(f"{error.name}: {error.message}"))
        page.on("dialog", self._accept)
        page.on("download", self._save)
        page.on("crash", lambda page: setattr(self, "lost", "the page crashed"))
        page.on("close", self._closed)
        page.on("request", lambda request: self._open.add(request) if request.resource_type in AWAITED else None)
        page.on("requestfinished", self._done)
        page.on("requestfailed", self._done)
        page.on("response", self._who)

    def _closed(self, page: Page) -> None:
        self._page = self.context.pages[-1] if self.context.pages else None

    def _done(self, request: Request) -> None:
        self._open.discard(request)
        self._answered.set()

    def _who(self, response: Response) -> None:
        if response.request.resource_type == "document":
            self._served_by = response.headers.get("x-session", self.session)

    async def _accept(self, dialog: Dialog) -> None:
        self._dialogs.append({"type": dialog.type, "message": dialog.message})
        with contextlib.suppress(Error):
            await dialog.accept()

    def _save(self, download: Download) -> None:
        task = asyncio.ensure_future(self._write(download))
        self._saving.add(task)
        task.add_done_callback(self._saving.discard)

    async def _write(self, download: Download) -> None:
        path = self.folder / "downloads" / Path(download.suggested_filename).name
        with contextlib.suppress(Error):  # canceled: there is no file
            await download.save_as(path)
            self._files.append(str(path))

    # The gestures.

    async def _goto(self, g: Goto) -> None:
        address = urljoin(self.page.url if self.page.url.startswith("http") else self.origin, g.url)
        if urlsplit(address)[:2] != urlsplit(self.origin)[:2]:
            raise EnvError(f"goto: {g.url} is not of this website", hint=f"the browser reaches only {self.origin}", type="address")
        asked = parse_qs(urlsplit(address).query).get("session_id", [self.session])
        if asked != [self.session]:
            raise EnvError(f"goto: that is session {asked[0]!r}, and this one is {self.session!r}", hint="--session acts in another", type="wrong_session")
        await self.page.goto(address, wait_until="domcontentloaded", timeout=g.seconds * 1000)

    async def _click(self, g: Click) -> None:
        if g.selector is None:
            await self.page.mouse.click(*await self._point(None, g.x, g.y, g.seconds), button=g.button, click_count=g.count)
        else:
            await (await self._find(g.selector, g.seconds)).click(button=g.button, click_count=g.count, timeout=g.seconds * 1000)

    async def _fill(self, g: Fill) -> None:
        await (await self._find(g.selector, g.seconds)).fill(g.value, timeout=g.seconds * 1000)

    async def _type(self, g: Type) -> None:
        if g.selector is None:
            await self.page.keyboard.type(g.text)
        else:
            await (await self._find(g.selector, g.seconds)).press_sequentially(g.text, timeout=g.seconds * 1000)

    async def _press(self, g: Press) -> None:
        found = await self._find(g.selector, g.seconds) if g.selector else None
        try:
            await (found.press(_chord(g.key), timeout=g.seconds * 1000) if found else self.page.keyboard.press(_chord(g.key)))
        except Error as error:
            if unknown := failing.unknown_key(error):
                raise unknown from error
            raise

    async def _select(self, g: Select) -> None:
        found = await self._find(g.selector, g.seconds)
        options = await found.evaluate("e => [...(e.options || [])].map(o => [o.value, o.label])")
        if g.value not in (word for option in options for word in option):
            shown = ", ".join(f"{value} ({label})" if value != label else value for value, label in options[:20])
            raise EnvError(f"select: {g.selector!r} has no option {g.value!r}", hint=f"options: {shown or 'none'}", type="selector")
        by_value = any(g.value == value for value, _ in options)
        await found.select_option(value=g.value if by_value else None, label=None if by_value else g.value, timeout=g.seconds * 1000)

    async def _drag(self, g: Drag) -> None:
        mouse = self.page.mouse
        await mouse.move(*await self._point(g.selector, g.x, g.y, g.seconds))
        await mouse.down()
        try:
            x, y = await self._point(g.target, g.to_x, g.to_y, g.seconds)
            await mouse.move(x, y, steps=12)
            await mouse.move(x, y)  # a second event over the target: some listen for dragover only then
        finally:
            await mouse.up()

    async def _scroll(self, g: Scroll) -> None:
        found = await self._find(g.selector, g.seconds) if g.selector else None
        if found and not g.dx and not g.dy:
            await found.scroll_into_view_if_needed(timeout=g.seconds * 1000)
        elif found:
            await found.evaluate("(e, [x, y]) => e.scrollBy({left: x, top: y, behavior: 'instant'})", [g.dx, g.dy])
        else:
            await self.page.mouse.wheel(g.dx, g.dy)

    async def _back(self, g: Back) -> None:
        await self.page.go_back(wait_until="domcontentloaded", timeout=g.seconds * 1000)

    async def _wait_for(self, g: WaitFor) -> None:
        seen = self.page.locator(g.selector).filter(visible=True)
        try:
            await seen.first.wait_for(state="attached" if g.state == "visible" else "detached", timeout=g.seconds * 1000)
        except Late as error:
            if g.state == "visible":
                raise await failing.absent(self.page, g.selector, g.seconds) from error
            raise EnvError(f"wait-for: {g.selector!r} is still there after {g.seconds:g} s", hint=await self._here(), type="timeout") from error

    async def _upload(self, g: Upload) -> None:
        missing = [file for file in g.files if not Path(file).is_file()]
        if missing:
            raise EnvError(f"upload: no file {missing[0]}", type="file")
        await (await self._find(g.selector, g.seconds, unseen=True)).set_input_files(list(g.files), timeout=g.seconds * 1000)

    async def _look(self, g: Gesture) -> None:
        """Nothing is done: the observation is what was asked for."""


def _inside(x: float, y: float) -> tuple[float, float]:
    """A point of the page as it is seen; EnvError for one beside it, where a mouse would do nothing."""
    width, height = VIEWPORT["width"], VIEWPORT["height"]
    if x < width and y < height:
        return x, y
    raise EnvError(f"the point {x:g}, {y:g} is outside the page, which shows {width}x{height}", hint="`scroll` brings more into view", type="place")


def _chord(key: str) -> str:
    """Control+S as people write it: without Shift the key is `s`."""
    *held, last = key.split("+") if len(key) > 1 else [key]
    return "+".join([*held, last.lower()]) if held and len(last) == 1 and "Shift" not in held else key


DO: dict[type[Gesture], Any] = {
    Goto: Visit._goto, Click: Visit._click, Fill: Visit._fill, Type: Visit._type, Press: Visit._press, Select: Visit._select, Drag: Visit._drag,
    Scroll: Visit._scroll, Back: Visit._back, WaitFor: Visit._wait_for, Upload: Visit._upload, Snapshot: Visit._look, Screenshot: Visit._look,
}  # fmt: skip
