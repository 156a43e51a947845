"""A task's set-up steps, in the names and spellings of the OSWorld format, done through the guest's server."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gymctl import wire
from gymctl.desktop import transfer
from gymctl.episode import Json
from gymctl.errors import EnvError, IntegrityError, NotFound, Unavailable
from gymctl.marked import near

if TYPE_CHECKING:
    from gymctl.recipe import SetUp

EXECUTE_SECONDS = 120.0
OPEN_SECONDS = 120.0
BROWSER_SECONDS = 60.0
WINDOW_SECONDS = 20.0
"""How long a window that is to be activated may take to come: tasks launch a program, sleep a moment, and activate it."""
LONGEST_WAIT = 60.0
"""Seconds that the guest waits in one request."""
LOOK_AGAIN = 0.3
BROWSERS = {"falkon": "Falkon", "google-chrome": "Chrome", "firefox": "Firefox", "chromium": "Chromium"}
"""{program: what its windows' titles hold}, the first that is there is taken."""
OUTPUT_SHOWN = 500


class Step(NamedTuple):
    """One step, read: `number` from 0 as it stands in the task."""

    number: int
    type: str
    parameters: Json


@dataclass(frozen=True)
class Machine:
    """Where steps are done. `outputs` keeps what `stdout` and `stderr` of an execute name; None drops it. `patience`: how long windows may take to come."""

    client: wire.Client
    outputs: Path | None = None
    patience: float = 0.0

    def post(self, path: str, document: Json, timeout: float = 60) -> wire.Reply:
        """One request; EnvError with the guest's words when it refuses."""
        reply = self.client.send("POST", path, document, timeout=timeout)
        if reply.status >= 400:
            raise refused(reply)
        return reply

    def put(self, source: Path, path: str) -> None:
        """A file of this host into the guest, its mode kept."""
        reply = transfer.put(self.client, source, path)
        if reply.status >= 400:
            raise refused(reply)


def refused(reply: wire.Reply) -> EnvError:
    """What the guest's server answered, JSON or plain text, as an error."""
    error = wire.error_of(reply, "")
    if not reply.headers.get("content-type", "").startswith("application/json"):
        return EnvError(wire.printable(reply.body[:OUTPUT_SHOWN].decode(errors="replace").strip()) or error.message, status=reply.status)
    return error if isinstance(error, EnvError) else EnvError(error.message, hint=error.hint, status=reply.status)


def prepare(client: wire.Client, steps: Sequence[SetUp], told: Callable[[str], None], *, disk_is_ready: bool = False) -> None:
    """Do a task's setup; `disk_is_ready` leaves out the steps whose work is on the disk. EnvError names the faulty or failing step."""
    found = read([{"type": step.type, "parameters": step.parameters} for step in steps])
    machine = Machine(client, patience=WINDOW_SECONDS)
    for step in found:
        if disk_is_ready and step.type in ON_DISK:
            continue
        told(f"setup {step.number + 1} of {len(found)}: {step.type}")
        place = f"setup step {step.number + 1} of {len(found)} ({step.type})"
        try:
            do(machine, step)
        except EnvError as error:
            raise EnvError(f"{place}: {error.message}", hint=error.hint, type="SetupFailed", status=error.status) from error
        except Unavailable as error:
            raise Unavailable(f"{place}: {error.message}", hint=error.hint) from error


def read(steps: Sequence[Any], where: str = "setup") -> list[Step]:
    """Check every step before the first is done; EnvError lists all faults, each with its place."""
    faults = faults_of(steps, where)
    if faults:
        raise EnvError("\n".join(faults), hint=f"known steps: {', '.join(KINDS)}", type="ValidationError")
    return [Step(number, step["type"], step.get("parameters") or {}) for number, step in enumerate(steps)]


def faults_of(steps: Any, where: str) -> list[str]:
    """`where[i].field: what is wrong`, for each fault."""
    if not isinstance(steps, list):
        return [f"{where}: must be a list of steps"]
    found: list[str] = []
    for number, step in enumerate(steps):
        place = f"{where}[{number}]"
        if not isinstance(step, dict) or not isinstance(step.get("type"), str):
            found.append(f"{place}.type: missing")
        elif step["type"] not in KINDS:
            found.append(f"{place}.type: unknown type {step['type']!r}{near(step['type'], KINDS)}; known: {', '.join(KINDS)}")
        else:
            found += _parameter_faults(step.get("parameters") or {}, KINDS[step["type"]], f"{place}.parameters", step["type"])
    return found


def _parameter_faults(given: Any, kind: Kind, place: str, name: str) -> list[str]:
    if not isinstance(given, dict):
        return [f"{place}: must be a mapping"]
    known = (*kind.needs, *kind.takes)
    found = [f"{place}.{field}: missing; {name} needs it" for field in kind.needs if given.get(field) in (None, "", [])]
    found += [f"{place}.{field}: {name} has no such parameter{near(str(field), known)}" for field in given if field not in known]
    if kind.files:
        found += _file_faults(given.get("files"), kind.files, place)
    return found


def _file_faults(files: Any, fields: Sequence[str], place: str) -> list[str]:
    if not isinstance(files, list):
        return [f"{place}.files: must be a list of mappings with {', '.join(fields)}"] if files is not None else []
    return [
        f"{place}.files[{number}].{field}: missing"
        for number, file in enumerate(files)
        for field in fields
        if not (isinstance(file, dict) and isinstance(file.get(field), str) and file[field])
    ]


def do(machine: Machine, step: Step) -> None:
    """Do one step that `read` has checked; EnvError when it fails, Unavailable when the guest does not answer."""
    try:
        KINDS[step.type].do(machine, step.parameters)
    except (IntegrityError, NotFound) as error:
        raise EnvError(error.message, hint=error.hint) from error


def _download(machine: Machine, given: Json) -> None:
    with tempfile.TemporaryDirectory(prefix="gymctl-") as folder:
        for file in given["files"]:
            fetched = Path(folder) / "file"
            try:
                wire.download(file["url"], fetched, sha256=file.get("sha256"))
            except Unavailable as error:
                raise EnvError(error.message, hint="it is fetched by gymctl on this host, not by the guest") from error
            fetched.chmod(0o644)
            machine.put(fetched, file["path"])


def _upload(machine: Machine, given: Json) -> None:
    for file in given["files"]:
        source = Path(file["local_path"])
        if not source.is_file():
            raise EnvError(f"there is no file {source} on this host", hint="in a task file, local_path is looked up beside that file")
        machine.put(source, file["path"])


def _execute(machine: Machine, given: Json) -> None:
    """Run a command; with `until` again and again until its exit code or output is what is waited for. Else it must end with 0, unless `check` is false."""
    seconds = float(given.get("timeout", EXECUTE_SECONDS))
    until = given.get("until") or {}
    request = {"command": _filled(machine, given["command"]), "shell": given.get("shell", False), "timeout": seconds}
    deadline = time.monotonic() + seconds
    while True:
        answer = machine.post("/setup/execute", request, timeout=seconds + 10).json()
        _keep(machine, given, answer)
        if answer.get("timed_out"):
            raise EnvError(f"it did not end within {seconds:g} s; {_output(answer)}")
        if until and _has_come(until, answer):
            return
        if not until:
            break
        if time.monotonic() > deadline:
            raise EnvError(f"after {seconds:g} s still not {until}: exit code {answer['returncode']}; {_output(answer)}")
        _wait(machine, LOOK_AGAIN)
    if answer["returncode"] and given.get("check", True):
        hint = "`check: false` among its parameters lets it fail"
        raise EnvError(f"exit code {answer['returncode']}; {_output(answer)}", hint=hint)


def _has_come(until: Mapping[str, Any], answer: Json) -> bool:
    return (
        ("returncode" in until and answer["returncode"] == until["returncode"])
        or ("stdout" in until and until["stdout"] in answer["output"])
        or ("stderr" in until and until["stderr"] in answer["error"])
    )


def _keep(machine: Machine, given: Json, answer: Json) -> None:
    for field, what in (("stdout", "output"), ("stderr", "error")):
        if given.get(field) and machine.outputs:
            (machine.outputs / Path(given[field]).name).write_text(answer[what], encoding="utf-8", errors="surrogateescape")


def _output(answer: Json) -> str:
    shown = wire.printable("\n".join(part.strip() for part in (answer["output"], answer["error"]) if part.strip()))[-OUTPUT_SHOWN:]
    return f"it printed: {shown}" if shown else "it printed nothing"


def _filled(machine: Machine, command: Any) -> Any:
    """The format's placeholders of a screen's size, and of a password that this guest does not ask for."""
    words = command if isinstance(command, list) else [command]
    if not any(isinstance(word, str) and "{" in word for word in words):
        return command
    size = machine.post("/screen_size", {}).json()
    width, height = int(size["width"]), int(size["height"])
    values = {"CLIENT_PASSWORD": "", "SCREEN_WIDTH_HALF": width // 2, "SCREEN_HEIGHT_HALF": height // 2, "SCREEN_WIDTH": width, "SCREEN_HEIGHT": height}

    def fill(word: Any) -> Any:
        for name, value in values.items():
            word = word.replace(f"{{{name}}}", str(value)) if isinstance(word, str) else word
        return word

    return [fill(word) for word in command] if isinstance(command, list) else fill(command)


def _execute_with_verification(machine: Machine, given: Json) -> None:
    """Run a command, then wait until a window is there or another command succeeds."""
    seconds = float(given.get("max_wait_time", 10))
    request = {**given, "command": _filled(machine, given["command"])}
    reply = machine.client.send("POST", "/setup/execute_with_verification", request, timeout=EXECUTE_SECONDS + seconds + 10)
    if reply.status == 500 and "verification" in (answer := reply.json()):
        raise EnvError(f"after {seconds:g} s there is still not {given['verification']}; {_output(answer)}")
    if reply.status >= 400:
        raise refused(reply)


def _launch(machine: Machine, given: Json) -> None:
    machine.post("/setup/launch", {"command": _filled(machine, given["command"]), "shell": given.get("shell", False)})


def _open(machine: Machine, given: Json) -> None:
    seconds = float(given.get("timeout", OPEN_SECONDS))
    machine.post("/setup/open_file", {"path": given["path"], "timeout": seconds}, timeout=seconds + 30)


def _sleep(machine: Machine, given: Json) -> None:
    left = float(given["seconds"])
    while left > 0:
        _wait(machine, min(left, LONGEST_WAIT))
        left -= LONGEST_WAIT


def _wait(machine: Machine, seconds: float) -> None:
    machine.post("/input", {"action": "wait", "seconds": seconds}, timeout=seconds + 30)


def _activate(machine: Machine, given: Json) -> None:
    deadline = time.monotonic() + machine.patience
    while True:
        reply = machine.client.send("POST", "/setup/activate_window", given)
        if reply.status < 400:
            return
        if reply.status != 404 or time.monotonic() > deadline:
            raise refused(reply)
        _wait(machine, LOOK_AGAIN)


def _close(machine: Machine, given: Json) -> None:
    machine.post("/setup/close_window", given)


def _wallpaper(machine: Machine, given: Json) -> None:
    machine.post("/setup/change_wallpaper", given)


def _open_tabs(machine: Machine, given: Json) -> None:
    """Each address in a tab of the guest's browser; the first brings its window."""
    programs = " ".join(BROWSERS)
    look = f"for b in {programs}; do command -v $b >/dev/null && echo $b && exit 0; done; exit 1"
    found = machine.post("/setup/execute", {"command": look, "shell": True}).json()
    if found["returncode"]:
        raise EnvError("there is no browser in the guest", hint=f"looked for: {', '.join(BROWSERS)}")
    browser = found["output"].strip()
    for number, url in enumerate(given["urls_to_open"]):
        machine.post("/setup/launch", {"command": [browser, url]})
        if not number:
            wanted = {"command": ["true"], "verification": {"window_exists": BROWSERS[browser]}, "max_wait_time": BROWSER_SECONDS}
            _execute_with_verification(machine, wanted)


class Kind(NamedTuple):
    """A type of step: what does it, the parameters it needs and those it takes, and the fields of each of its `files`."""

    do: Callable[[Machine, Json], None]
    needs: tuple[str, ...]
    takes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


_RUN = Kind(_execute, ("command",), ("stdout", "stderr", "shell", "until", "timeout", "check"))
_WINDOW = ("strict", "by_class")
KINDS: dict[str, Kind] = {
    "download": Kind(_download, ("files",), files=("url", "path")),
    "upload": Kind(_upload, ("files",), files=("local_path", "path")),
    "upload_file": Kind(_upload, ("files",), files=("local_path", "path")),
    "open": Kind(_open, ("path",), ("timeout",)),
    "launch": Kind(_launch, ("command",), ("shell",)),
    "execute": _RUN,
    "command": _RUN,
    "execute_with_verification": Kind(_execute_with_verification, ("command",), ("verification", "max_wait_time", "check_interval", "shell")),
    "sleep": Kind(_sleep, ("seconds",)),
    "activate_window": Kind(_activate, ("window_name",), _WINDOW),
    "close_window": Kind(_close, ("window_name",), _WINDOW),
    "change_wallpaper": Kind(_wallpaper, ("path",)),
    "chrome_open_tabs": Kind(_open_tabs, ("urls_to_open",)),
}
ON_DISK = ("download", "upload", "upload_file", "execute", "command", "execute_with_verification", "change_wallpaper")
"""Steps whose work a checkpoint of the disk holds; the others start programs and move windows."""
