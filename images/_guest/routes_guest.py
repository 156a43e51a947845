"""The machine behind the screen: commands, files, set-up steps, and what the server says of itself."""

from __future__ import annotations

import getpass
import os
import platform
import re
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import VERSION, files
from .desk import Desk
from .edge import Answer, Request, Routes, document, text
from .faults import Fault, bad, seconds
from .multipart import form
from .processes import LONGEST, Command, Result, command, words
from .windows import Window

OPEN_SECONDS = 120.0
LOOK_SECONDS = 0.1
PYTHON_SECONDS = 90.0
WALLPAPER = "~/.config/pcmanfm/default/desktop-items-0.conf"


def routes(desk: Desk) -> Routes:
    """Method and path to handler."""
    execute: Callable[[Request], Answer] = lambda r: document(desk.processes.run(command(r.json())).document())  # noqa: E731
    verified: Callable[[Request], Answer] = lambda r: _verified(desk, r)  # noqa: E731
    return {
        ("GET", "/platform"): lambda r: text(platform.system()),
        ("GET", "/"): lambda r: document({"name": "gymctl desktop guest", "version": VERSION, "user": getpass.getuser()}),
        ("POST", "/execute"): execute, ("POST", "/setup/execute"): execute,
        ("POST", "/execute_with_verification"): verified, ("POST", "/setup/execute_with_verification"): verified,
        ("POST", "/run_python"): lambda r: _run_python(desk, r),
        ("POST", "/run_bash_script"): lambda r: _run_bash(desk, r),
        ("POST", "/setup/launch"): lambda r: _launch(desk, r),
        ("POST", "/setup/open_file"): lambda r: _open_file(desk, r),
        ("POST", "/setup/upload"): _upload,
        ("POST", "/setup/download_file"): _download,
        ("POST", "/setup/change_wallpaper"): lambda r: _change_wallpaper(desk, r),
        ("POST", "/wallpaper"): lambda r: _wallpaper(),
        ("POST", "/file"): _file,
        ("GET", "/files"): _get_file,
        ("PUT", "/files"): _put_file,
        ("POST", "/list_directory"): _list_directory,
        ("POST", "/desktop_path"): lambda r: _desktop_path(),
    }  # fmt: skip


def _verified(desk: Desk, request: Request) -> Answer:
    """Run a command, then wait until a window exists or another command succeeds."""
    body = request.json()
    wanted = body.get("verification") or {}
    if not isinstance(wanted, dict):
        raise bad("verification is no object", '{"window_exists": "Title"} or {"command_success": "test -e FILE"}')
    patience = seconds(body.get("max_wait_time", 10), "max_wait_time", LONGEST)
    pause = seconds(body.get("check_interval", LOOK_SECONDS), "check_interval", LONGEST, 0.01)
    ran = desk.processes.run(command(body)).document()
    started = time.monotonic()
    until = started + patience
    while wanted:
        if _holds(desk, wanted):
            return document({**ran, "verification": "passed", "wait_time": time.monotonic() - started})
        if time.monotonic() >= until:
            return document({**ran, "status": "verification_failed", "verification": "failed", "wait_time": time.monotonic() - started}, 500)
        threading.Event().wait(pause)
    return document(ran)


def _holds(desk: Desk, wanted: dict[str, Any]) -> bool:
    window, line = wanted.get("window_exists"), wanted.get("command_success")
    if window and desk.windows.find(str(window)) is None:
        return False
    return not line or desk.processes.run(Command(["/bin/sh", "-c", str(line)], timeout=5)).code == 0


def _run_python(desk: Desk, request: Request) -> Answer:
    body = request.json()
    code = body.get("code")
    if not isinstance(code, str) or not code:
        raise bad("Code not supplied!")
    ran = _script(desk, code, ".py", ["python3"], body, PYTHON_SECONDS)
    said = ran.document()
    good = ran.code == 0 and not ran.timed_out
    error = said["error"] or ("" if good else f"Process exited with code {ran.code}")
    message = "\n".join(part for part in (said["output"], error) if part)
    answer = {**said, "status": "success" if good else "error", "message": message, "error": error, "need_more": False, "return_code": ran.code}
    return document(answer, 500 if ran.timed_out else 200)


def _run_bash(desk: Desk, request: Request) -> Answer:
    body = request.json()
    script = body.get("script")
    if not isinstance(script, str) or not script:
        raise bad("Script not supplied!")
    ran = _script(desk, f"exec 2>&1\n{script}", ".sh", ["bash"], body, 30.0)
    good = ran.code == 0 and not ran.timed_out
    said = ran.document()
    answer = {**said, "status": "success" if good else "error", "output": said["output"] + (said["error"] if ran.timed_out else ""), "error": ""}
    return document(answer, 500 if ran.timed_out else 200)


def _script(desk: Desk, source: str, suffix: str, argv: list[str], body: dict[str, Any], timeout: float) -> Result:
    with tempfile.NamedTemporaryFile("w", suffix=suffix, encoding="utf-8") as file:
        file.write(source)
        file.flush()
        return desk.processes.run(command({**body, "command": [*argv, file.name], "shell": False}, timeout))


def _launch(desk: Desk, request: Request) -> Answer:
    wanted = command(request.json())
    pid = desk.processes.launch(wanted)
    answer = text(f"{wanted.argv[0] if wanted.shell else words(wanted.argv)} launched successfully")
    answer.headers["X-Pid"] = str(pid)
    return answer


def _open_file(desk: Desk, request: Request) -> Answer:
    """Open a file (or start a program), and wait for its window."""
    body = request.json()
    name, patience = body.get("path"), seconds(body.get("timeout", OPEN_SECONDS), "timeout", LONGEST)
    at = files.path(name)
    if not at.exists() and not shutil.which(str(name)):
        return text(f"Application/file not found: {name}", 404)
    argv = ["xdg-open", str(at)] if at.exists() else [str(name)]
    before = {(window.id, window.title) for window in desk.windows.all()}
    desk.processes.launch(Command(argv))
    window = _window_of(desk, at, before, time.monotonic() + patience)
    if window is None:
        return text(f"Failed to find window for {at.name} within {patience:g} seconds.", 500)
    desk.windows.activate(window)
    return text("File opened and window activated successfully")


def _window_of(desk: Desk, at: Path, before: set[tuple[int, str]], until: float) -> Window | None:
    """The window that has come, or got another title, or was there and is active now, and whose title names the file; for a program, a new one."""
    looked, word = threading.Event(), re.compile(rf"(?<!\w){re.escape(at.stem)}(?!\w)")
    while True:
        for window in reversed(desk.windows.all()):
            new = (window.id, window.title) not in before
            if new and not at.exists() and window.id not in {number for number, _ in before}:
                return window
            if (new and word.search(window.title)) or (window.active and at.name in window.title):
                return window
        if time.monotonic() > until:
            return None
        looked.wait(LOOK_SECONDS)  # titles change without any event that is worth a connection of its own


def _upload(request: Request) -> Answer:
    parts = form(request.headers.get("Content-Type", ""), request.read)
    try:
        if "file_path" not in parts.fields or "file_data" not in parts.files:
            raise bad("file_path and file_data are required", "a multipart form with both")
        size = files.write(files.path(parts.fields["file_path"], "file_path"), parts.files["file_data"].read)
    finally:
        parts.close()
    return text(f"File Uploaded: {size} bytes")


def _download(request: Request) -> Answer:
    body = request.json()
    if not body.get("url") or not body.get("path"):
        return text("Path or URL not supplied!", 400)
    return text(f"File downloaded successfully: {files.download(body['url'], files.path(body['path']))} bytes")


def _file(request: Request) -> Answer:
    named = form(request.headers.get("Content-Type", ""), request.read).fields.get("file_path")
    if not named:
        raise bad("file_path is required")
    return _given(files.path(named, "file_path"))


def _get_file(request: Request) -> Answer:
    return _given(files.path(request.query.get("path")))


def _given(at: Path) -> Answer:
    file = files.opened(at)
    mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    name = re.sub(r"[^\w.-]", "_", at.name, flags=re.ASCII)
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "X-File-Mode": f"{mode:04o}"}
    return Answer(type="application/octet-stream", file=files.whole(file, at), headers=headers)


def _put_file(request: Request) -> Answer:
    """PUT /files?path=&mode=: the body becomes the file."""
    mode = request.query.get("mode")
    if mode is not None and not re.fullmatch(r"0?[0-7]{3,4}", mode):
        raise bad(f"mode={mode!r} is no mode", "octal digits, such as 0644")
    size = files.write(files.path(request.query.get("path")), request.read, int(mode, 8) if mode else None)
    return document({"status": "success", "size": size})


def _list_directory(request: Request) -> Answer:
    at = files.path(request.json().get("path"))
    if not at.is_dir():
        raise bad("The provided path is not a directory")
    return document({"directory_tree": files.tree(at)})


def _desktop_path() -> Answer:
    at = Path.home() / "Desktop"
    if not at.is_dir():
        raise Fault(404, "NotFound", "desktop path not found", f"mkdir {at}")
    return document({"desktop_path": str(at)})


def _change_wallpaper(desk: Desk, request: Request) -> Answer:
    at = files.path(request.json().get("path"))
    if not at.exists():
        return text(f"File not found: {at}", 404)
    ran = desk.processes.run(Command(["pcmanfm", "--set-wallpaper", str(at)], timeout=10))
    if ran.code:
        raise Fault(500, "NotChanged", f"the wallpaper was not changed: {ran.stderr.decode(errors='replace').strip()[-300:] or ran.code}")
    return text("Wallpaper changed successfully")


def _wallpaper() -> Answer:
    settings = Path(WALLPAPER).expanduser()
    found = re.search(r"(?m)^wallpaper=(.+)$", settings.read_text() if settings.exists() else "")
    if not found or not Path(found[1]).exists():
        raise Fault(404, "NotFound", "Wallpaper file not found", "the desktop has a plain color")
    return Answer(type="image/png", file=Path(found[1]).open("rb"))
