"""Getters: what the guest (or an address) has, under the names and fields of the OSWorld format."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from gymctl import wire
from gymctl.episode import Json
from gymctl.errors import EnvError, IntegrityError, NoVerdict, Unavailable

LATE = 1.0
"""Seconds that the guest has to say that a command's time is over."""


class Missing(Exception):
    """What was asked for is not there; the reason names the path or URL."""


class Guest:
    """The machine that is looked at, a folder for what is fetched, and how long there is."""

    def __init__(self, client: wire.Client, folder: Path, timeout: float, failed: bool, say: Callable[[str], None]) -> None:
        self.client, self.folder, self.failed, self.say = client, folder, failed, say
        self._deadline = time.monotonic() + timeout
        self._count = 0

    def left(self) -> float:
        """Seconds until the deadline, at least one."""
        return max(1.0, self._deadline - time.monotonic())

    def sent(self, method: str, path: str, document: Json | None = None) -> wire.Reply:
        """One request; Missing where the thing is not there, or not to be read (the agent's doing), NoVerdict for any other refusal and for no answer."""
        try:
            reply = self.client.send(method, path, document, timeout=self.left() + LATE)
        except (EnvError, Unavailable) as error:
            raise NoVerdict(error.message) from error
        if reply.status in (400, 403, 404):
            raise Missing(wire.error_of(reply, "").message)
        if reply.status >= 400:
            raise NoVerdict(wire.error_of(reply, "").message)
        return reply

    def asked(self, path: str, document: Json | None = None) -> Any:
        """What an endpoint answers that must answer; else NoVerdict."""
        try:
            return self.sent("GET" if document is None else "POST", path, document).json()
        except (EnvError, Missing) as error:
            raise NoVerdict(str(error)) from error

    def fresh(self) -> None:
        """A new folder for what is fetched next: the files of one getter stand beside each other, and apart from all others."""
        self._count += 1
        self.place = self.folder / f"fetched-{self._count}"
        self.place.mkdir()


class Got(NamedTuple):
    """A value to compare: a path of this host, a text or JSON; None where there is nothing, and `why`."""

    value: Any
    why: str = ""


def get(guest: Guest, config: Json, role: str) -> Got:
    """What a getter brings. A `result` that is not there is None; an `expected` that cannot be had is no verdict: NoVerdict."""
    kind = GETTERS[config["type"]]
    named = next((str(config[field]) for field in ("path", "command") if field in config), "")
    guest.say(f"{role}: {config['type']} {named}".rstrip())
    guest.fresh()
    try:
        return Got(kind.do(guest, config))
    except Missing as error:
        if role == "expected":
            raise NoVerdict(f"expected {named}: {error}") from error
        return Got(None, f"result {named}: {error}")
    except NoVerdict as error:
        raise NoVerdict(f"{role} {named or config['type']}: {error.message}") from error


def vm_file(guest: Guest, config: Json) -> Any:
    """One file of the guest, or with `multi` several, of which `gives` says which are compared."""
    return _several(config, lambda path, name: _guest_file(guest, path, name))


def cloud_file(guest: Guest, config: Json) -> Any:
    """The same from an address: http, https, file, or a path of this host."""
    return _several(config, lambda url, name: _fetched(guest, url, name, config.get("sha256")))


def _several(config: Json, fetch: Callable[[str, str], Path]) -> Any:
    multi = config.get("multi", False)
    paths = config["path"] if multi else [config["path"]]
    names = config.get("dest") if multi else [config.get("dest")]
    names = names or [None] * len(paths)
    wanted = set(config.get("gives", [0]))
    found = [fetch(path, Path(name or path).name or "file") for path, name in zip(paths, names, strict=True)]
    given = [path for number, path in enumerate(found) if number in wanted]
    return given[0] if len(given) == 1 else given


def _guest_file(guest: Guest, path: str, name: str) -> Path:
    target = guest.place / name
    target.write_bytes(guest.sent("GET", f"/files?path={quote(path, safe='')}").body)
    return target


def _fetched(guest: Guest, url: str, name: str, sha256: str | None) -> Path:
    target = guest.place / name
    try:
        wire.download(url, target, sha256=sha256, timeout=guest.left())
    except (Unavailable, IntegrityError) as error:
        raise NoVerdict(error.message) from error
    return target


def cache_file(guest: Guest, config: Json) -> Path:
    """What a step of `postconfig` kept by its `stdout` or `stderr`."""
    path = guest.folder / "outputs" / Path(config["path"]).name
    if not path.is_file():
        raise Missing("no step of postconfig kept it")
    return path


def command_line(guest: Guest, config: Json) -> str:
    """A command's stdout, whatever its exit code."""
    return _ran(guest, config, "output")


def command_error(guest: Guest, config: Json) -> str:
    """A command's stderr."""
    return _ran(guest, config, "error")


def _ran(guest: Guest, config: Json, what: str) -> str:
    seconds = min(float(config.get("timeout", guest.left())), guest.left())
    answer = guest.asked("/execute", {"command": config["command"], "shell": config.get("shell", False), "timeout": seconds})
    if answer.get("timed_out"):
        raise NoVerdict(f"the command did not end within {seconds:.0f} s")
    return str(answer[what])


def windows(guest: Guest, config: Json) -> str:
    """The titles of the windows, one a line, the lowest first; `by_class` gives `instance.Class`."""
    found = guest.asked("/windows")
    listed = found.get("windows", []) if isinstance(found, dict) else found
    return "\n".join(f"{w['instance']}.{w['class']}" if config.get("by_class") else w["title"] for w in listed)


def directory(guest: Guest, config: Json) -> Any:
    """A directory's tree: {type, name, children}."""
    return guest.sent("POST", "/list_directory", {"path": config["path"]}).json()["directory_tree"]


class Getter(NamedTuple):
    """A getter: what does it, what it gives (file, text, json), the fields it needs and those it takes."""

    do: Callable[[Guest, Json], Any]
    gives: str
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()


_FILES = ("dest", "multi", "gives")
GETTERS: dict[str, Getter] = {
    "vm_file": Getter(vm_file, "file", ("path",), (*_FILES, "time_suffix", "time_format")),  # the format keeps copies apart by them, we by folders
    "cloud_file": Getter(cloud_file, "file", ("path",), (*_FILES, "sha256")),
    "cache_file": Getter(cache_file, "file", ("path",)),
    "vm_command_line": Getter(command_line, "text", ("command",), ("shell", "timeout")),
    "vm_command_error": Getter(command_error, "text", ("command",), ("shell", "timeout")),
    "vm_terminal_output": Getter(lambda guest, config: guest.asked("/terminal")["output"], "text"),
    "vm_window_list": Getter(windows, "text", takes=("by_class",)),
    "vm_screen_size": Getter(lambda guest, config: guest.asked("/screen_size"), "json"),
    "list_directory": Getter(directory, "json", ("path",)),
    "accessibility_tree": Getter(lambda guest, config: guest.asked("/accessibility")["AT"], "text"),
    "rule": Getter(lambda guest, config: config["rules"], "rule", ("rules",)),
}
