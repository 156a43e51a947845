"""What runs, remembered between commands: one directory an instance, in which only `instance.json` is read back.

    instance.json  what it is (version 1; written to a temp file and renamed)    episode.jsonl  what was done
    recipe.yaml    as it was at the start      log  what a local process printed      data/  a local server's files     lock, record.lock

Whether it lives is asked of the host and never stored. Claiming a name is mkdir; working on an instance holds a shared
flock on `lock`, ending it an exclusive one.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from gymctl import paths, proc, runners
from gymctl.errors import Conflict, NotFound, Unavailable

VERSION = 1
LOCK_TIMEOUT = 30.0
NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")


@dataclass
class Instance:
    """One environment that was started: what it is, how to reach it, and the runner's handle (None until it is started)."""

    name: str
    kind: str
    runner: str
    recipe: str
    source: str
    started: float
    owner: dict[str, int]
    image: dict[str, Any] = field(default_factory=dict)
    key: str = ""
    session: str = ""
    secrets: dict[str, str] = field(default_factory=dict)
    plan: dict[str, Any] = field(default_factory=dict)
    form: str = ""
    checkpoint: str | None = None
    url: str = ""
    task: str | None = None
    task_file: str | None = None
    seed: int | None = None
    universe: str | None = None
    handle: dict[str, Any] | None = None
    helpers: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    version: int = VERSION

    @property
    def token(self) -> str:
        """What its server asks for on every path, where its kind has such a thing."""
        return self.secrets.get("GUEST_TOKEN", "")

    @property
    def directory(self) -> Path:
        """The instance's own directory."""
        return paths.instances_dir() / self.name

    @property
    def label(self) -> str:
        """What everything started for it carries."""
        return label(self.name)

    def save(self) -> None:
        """Write instance.json whole or not at all."""
        temporary = self.directory / f"instance.json.{os.getpid()}"
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                json.dump(asdict(self), file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.directory / "instance.json")
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise Unavailable(f"cannot write in {self.directory}: {error.strerror}", hint=f"free some space, or set {paths.STATE_VARIABLE}") from error

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Change fields of the record as it is now: read anew before the block, written after it, nobody else in between."""
        with (self.directory / "record.lock").open("a+") as file:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(file.fileno(), fcntl.LOCK_EX)  # held for a moment only
            self.__dict__.update(get(self.name).__dict__)
            yield
            self.save()

    def module(self) -> ModuleType:
        """Its runner."""
        return runners.load(self.runner)


def label(name: str) -> str:
    """`<state id>/<name>`"""
    return f"{paths.state_id()}/{name}"


def folder(name: str) -> Path:
    """The directory of an instance; NotFound for what cannot be a name: an empty one, `..` or a path would mean another directory."""
    if not NAME.fullmatch(name):
        raise _not_found(name)
    return paths.instances_dir() / name


def kind(name: str) -> ModuleType:
    """A kind's module."""
    return importlib.import_module(f"gymctl.kinds.{name}")


def claim(name: str) -> Path:
    """Take a name by making its directory; Conflict says what holds it, since when, and how to replace it."""
    directory = folder(name)
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        raise Conflict(f"{name} is taken: {_holder(name)}", hint=f"`gymctl stop {name}` ends it; `--replace` does both; `--name` takes another name") from None
    except OSError as error:
        raise Unavailable(f"cannot make {directory}: {error.strerror}", hint=f"free some space, or set {paths.STATE_VARIABLE}") from error
    return directory


def _holder(name: str) -> str:
    try:
        instance = get(name)
    except (NotFound, Unavailable):
        return "a directory without a readable record"
    age = describe_age(time.time() - instance.started)
    if instance.handle is None:
        owner = proc.Process(**instance.owner)
        what = f"being started by gymctl (pid {owner.pid})" if proc.alive(owner) else "left by a gymctl that was killed while it started it"
        return f"{what}, {age} ago"
    return f"an instance of {instance.recipe} on {instance.runner}, started {age} ago"


def describe_age(seconds: float) -> str:
    """`12 s`, `3 min`, `5 h`, `2 d`"""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size * 2 or (unit != "min" and seconds >= size * 1.5):
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def names() -> list[str]:
    """Every claimed name."""
    try:
        return sorted(entry.name for entry in os.scandir(paths.instances_dir()) if entry.is_dir())
    except FileNotFoundError:
        return []


def get(name: str) -> Instance:
    """The record of an instance; NotFound names the near ones, Unavailable a record that cannot be read."""
    path = folder(name) / "instance.json"
    try:
        document = json.loads(path.read_text())
        return Instance(**document)
    except (FileNotFoundError, NotADirectoryError):
        if folder(name).is_dir():
            raise Unavailable(f"{name} was claimed and never started", hint=f"`gymctl stop {name}` removes it") from None
        raise _not_found(name) from None
    except (ValueError, TypeError) as error:
        raise Unavailable(f"{path} cannot be read: {error}", hint=f"`gymctl stop {name}` removes it") from error


def _not_found(name: str) -> NotFound:
    import difflib

    known = names()
    found = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {found[0]}?" if found else f"running: {', '.join(known)}" if known else "nothing runs; `gymctl run RECIPE` starts one"
    return NotFound(f"no instance {name!r}", hint=hint)


@contextlib.contextmanager
def locked(name: str, *, exclusive: bool = False, timeout: float = LOCK_TIMEOUT, told: Callable[[str], None] = lambda text: None) -> Iterator[None]:
    """Hold an instance's lock: shared to work on it, exclusive to end it; Conflict after `timeout` seconds, `told` what it waits for."""
    path = folder(name) / "lock"
    try:
        file = path.open("a+")
    except FileNotFoundError:
        get(name)
        raise
    with file:
        deadline = time.monotonic() + timeout
        while not _try(file.fileno(), fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH):
            if time.monotonic() > deadline:
                raise Conflict(f"{name} is in use by another gymctl command for {timeout:.0f} s", hint="wait for it, or end that command")
            told(f"waiting for another gymctl command that uses {name}, {timeout:.0f} s at most")
            time.sleep(0.02)  # flock has no timeout of its own
        yield


def _try(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks


def append(name: str, document: dict[str, Any]) -> None:
    """Add one line to the instance's episode.jsonl, in one write."""
    line = json.dumps({"at": round(time.time(), 3), **document}, ensure_ascii=False) + "\n"
    try:
        fd = os.open(folder(name) / "episode.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(fd, line.encode("utf-8", "surrogatepass"))
        finally:
            os.close(fd)
    except OSError as error:
        raise Unavailable(f"cannot write episode.jsonl of {name}: {error.strerror}", hint=f"free some space, or set {paths.STATE_VARIABLE}") from error


def stop(name: str, told: Callable[[str], None] = lambda text: None) -> None:
    """End an instance, helpers first, and remove its directory; also what a killed gymctl started and never wrote down."""
    directory = folder(name)
    if not directory.is_dir():
        get(name)
    with locked(name, exclusive=True, told=told):
        end(name, told)


def end(name: str, told: Callable[[str], None] = lambda text: None) -> None:
    """The same for one who holds the lock, or has just claimed the name."""
    try:
        instance = get(name)
    except (NotFound, Unavailable):
        instance = None
    if instance:
        _refuse_while_starting(instance)
        told(f"stopping {name}")
        for helper in instance.helpers:
            proc.end_group(proc.Process(helper["pid"], helper["started"]))
        if instance.handle is not None:
            instance.module().stop(instance.handle)
        sweep(instance.runner, name)
        proc.end_labeled(label(name))  # a helper no record names any more, a browser's own children: whatever the runner
    else:
        for module_name in runners.available():
            with contextlib.suppress(Unavailable):  # an engine that is not there has nothing of ours
                sweep(module_name, name)
    for directory in paths.runtime_dirs(name):
        shutil.rmtree(directory, ignore_errors=True)
    shutil.rmtree(folder(name), ignore_errors=True)  # last: a name that is still there is ended again


def _refuse_while_starting(instance: Instance) -> None:
    owner = proc.Process(**instance.owner)
    if instance.handle is None and owner.pid != os.getpid() and proc.alive(owner):
        raise Conflict(f"{instance.name} is being started by another gymctl (pid {owner.pid})", hint=f"wait for it, or end it: kill {owner.pid}")


def sweep(runner_name: str, name: str) -> None:
    """Stop what still carries the instance's label on the host."""
    module = runners.load(runner_name)
    handle = module.find().get(label(name))
    if handle is not None:
        module.stop(handle)


def labeled(told: Callable[[str], None] = lambda text: None) -> dict[str, tuple[str, dict[str, Any]]]:
    """{name: (runner, handle)} of everything on this host that carries our label."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for runner_name in runners.available():
        try:
            handles = runners.load(runner_name).find()
        except Unavailable as error:
            told(f"{runner_name}: not asked: {error.message}")
            continue
        ours = {its_label.partition("/")[2]: (runner_name, handle) for its_label, handle in handles.items()}
        found = ours | found  # a container's browser driver is a local process of its label: the container stands for both
    return found


def orphans(told: Callable[[str], None] = lambda text: None) -> dict[str, tuple[str, dict[str, Any]]]:
    """The same, only of what has no directory any more."""
    known = set(names())
    return {name: where for name, where in labeled(told).items() if name not in known}


def dead_claims() -> list[str]:
    """Names that a killed gymctl claimed and never finished starting, or whose environment is gone."""
    return [name for name in names() if _is_dead_claim(name)]


def _is_dead_claim(name: str) -> bool:
    try:
        instance = get(name)
    except Unavailable:
        return time.time() - folder(name).stat().st_mtime > 5  # its record comes within milliseconds
    except NotFound:
        return False
    return instance.handle is None and not proc.alive(proc.Process(**instance.owner))


def rows(*, everything: bool = False, told: Callable[[str], None] = lambda text: None) -> list[dict[str, Any]]:
    """What `ps` shows, a mapping an instance: the recorded ones, with `everything` also what still runs without a (whole) record."""
    listed = {name: _row(name) for name in names()}
    for name, (runner_name, handle) in sorted(labeled(told).items()) if everything else ():
        row = listed.setdefault(name, {"name": name, "status": "orphaned"})
        if row["status"] in ("orphaned", "broken"):
            row |= {"status": "orphaned", "runner": runner_name, "url": handle.get("url", ""), "ports": handle.get("ports", {})}
            row["detail"] = f"runs, and has no record: `gymctl stop {name}` ends it"
    return list(listed.values())


def _row(name: str) -> dict[str, Any]:
    try:
        instance = get(name)
    except (Unavailable, NotFound) as error:
        return {"name": name, "status": "broken", "detail": error.message}
    base = {k: getattr(instance, k) for k in ("name", "kind", "runner", "recipe", "session", "url", "started", "image", "task")}
    base["age"] = round(time.time() - instance.started, 1)
    if instance.handle is None:
        starting = proc.alive(proc.Process(**instance.owner))
        detail = "" if starting else f"{name}: the gymctl that started it was killed: `gymctl stop {name}` removes what there is"
        return {**base, "status": "starting" if starting else "broken", "detail": detail, "exit_code": None, "ports": {}, "restarts": 0}
    try:
        status = instance.module().status(instance.handle)
    except Unavailable as error:
        return {**base, "status": "unknown", "detail": error.message, "exit_code": None, "ports": instance.handle.get("ports", {}), "restarts": 0}
    return {
        **base, "status": status.state, "exit_code": status.exit_code, "oom": status.oom, "restarts": status.restarts, "detail": status.detail,
        "ports": instance.handle.get("ports", {}),
    }  # fmt: skip
