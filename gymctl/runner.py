"""The contract of a runner: how an environment gets started. A runner is a module without state.

Mandatory: `SPEC`, `start`, `status`, `stop`, `find`, `exec`, `logs`, `doctor` (`Runner`). Optional abilities are the small protocols
below; a runner can do what it defines, and `features` reads that off the module: the README table, `doctor`, `--runner auto`
and the errors all say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, Protocol, runtime_checkable

from gymctl.proc import Result

KILLED = 128 + 9
"""The exit code of what somebody killed inside a container or a guest, the kernel for want of memory above all."""
Handle = dict[str, Any]
Progress = Callable[[str, int, int], None]
"""progress(what, done, total): bytes or steps; total 0 when unknown."""


@dataclass(frozen=True, slots=True)
class Told:
    """Where news goes while something takes time: `step` for words, `progress` for counts."""

    step: Callable[[str], None] = lambda text: None
    progress: Progress = lambda what, done, total: None


@dataclass(frozen=True, slots=True)
class Need:
    """Something a host must have: `what` in a word, `fix` in one line."""

    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class Option:
    """A runner's option: `kind` is str, int, float or bool; `keyed` says whether it is part of checkpoint keys."""

    name: str
    kind: type
    help: str
    default: Any = None
    keyed: bool = True


@dataclass(frozen=True, slots=True)
class Spec:
    """A runner's description: which guests and image formats, on which hosts, with which options; `isolated` from the host or not."""

    name: str
    summary: str
    guests: tuple[str, ...]
    formats: tuple[str, ...]
    hosts: tuple[str, ...]
    needs: tuple[Need, ...] = ()
    options: tuple[Option, ...] = ()
    isolated: bool = True
    notes: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """All a runner is told.

    `label` is `<state id>/<name>`; everything started carries it. `image` is what `format` says: a reference and digest for
    oci, a directory for dir, paths of disk, kernel and initrd for qcow2. `port` is the port inside; `host_port` the one asked for
    on 127.0.0.1 (None: the documented one when free, else any; 0: any). `ports` are further ones, {variable that tells the server
    its number: number inside}, each published on any free port of 127.0.0.1. `secrets` are variables too, and never stand in an
    argv. `directory` is the instance's own. `told` is for what takes long.
    """

    name: str
    label: str
    directory: Path
    format: str
    image: Mapping[str, Any]
    port: int
    host_port: int | None = 0
    env: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    cpus: float | None = None
    mem_gb: float | None = None
    network: bool = False
    ports: Mapping[str, int] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    told: Callable[[str], None] = field(default=lambda text: None, compare=False)


@dataclass(frozen=True, slots=True)
class Status:
    """What `ps` shows of a handle: state (running, exited, gone), exit code, whether memory ran out, restarts, why it ended."""

    state: str
    exit_code: int | None = None
    oom: bool = False
    restarts: int = 0
    detail: str = ""

    @property
    def killed(self) -> str:
        """What ended it from outside, as far as the runner can tell: the limit that it hit, above all; "" for one that ended by itself."""
        return self.detail if self.oom or self.exit_code == KILLED else ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of doctor: ok is True, False or None (not proven); `fix` is one line when it is not ok."""

    what: str
    ok: bool | None
    detail: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Artifact:
    """Something loaded or built: its reference (or path) and its digest."""

    ref: str
    digest: str
    kind: str = "oci"


class Runner(Protocol):
    """What every runner module defines."""

    SPEC: Spec

    def start(self, plan: Plan, /) -> Handle:
        """Return when the process, container or VM exists, not when it is ready. The handle is plain JSON and has `url`; StartError, Conflict."""

    def status(self, handle: Handle, /) -> Status:
        """Its state, asked of the host; never raises for a dead one."""

    def stop(self, handle: Handle, /) -> None:
        """End it and remove what it left on the host; idempotent. Processes of this host that the handle lists as `spared`, helpers of ours, go on."""

    def find(self) -> dict[str, Handle]:
        """{label: handle} of everything of ours that is still there, read from the host and not from our files."""

    def exec(self, handle: Handle, argv: list[str], /, *, input: str | None, timeout: float) -> Result:
        """Run a command inside."""

    def logs(self, handle: Handle, /) -> Iterator[str]:
        """The lines it printed so far, oldest first."""

    def doctor(self, workdir: Path, /) -> Iterator[Finding]:
        """Prove by doing that this host can; never raises."""


@runtime_checkable
class Images(Protocol):
    """Keeps images of its own: an engine."""

    def has(self, ref: str, /) -> str | None:
        """The digest of an image the engine has, or None."""

    def load(self, stream: BinaryIO, total: int, progress: Progress, /) -> list[Artifact]:
        """Feed a docker archive to the engine; what it made of it."""

    def build(self, context: Path, ref: str, base: str, labels: Mapping[str, str], progress: Progress, /) -> Artifact:
        """Build `context/Dockerfile` on `base` as `ref`."""


@runtime_checkable
class Checkpoints(Protocol):
    """Can save an instance's disk and start others from it: files are kept, processes are not."""

    def checkpoints(self) -> dict[str, str]:
        """{key: what it is and how large, for people} of those that are kept here; Unavailable."""

    def save(self, handle: Handle, key: str, /) -> None:
        """Keep the disk as it is now under `key`, whole or not at all; the instance goes on."""

    def restore(self, plan: Plan, key: str, /) -> Handle:
        """`start`, with that disk; NotFound, IntegrityError."""

    def drop(self, key: str, /) -> None:
        """Remove a checkpoint; one that is in use stays, and Conflict says by whom. Idempotent."""


@runtime_checkable
class Memory(Protocol):
    """Can save memory, devices and disk together: what runs goes on running in each instance that is started from it."""

    def memory_checkpoints(self) -> dict[str, str]:
        """As `checkpoints`."""

    def save_memory(self, handle: Handle, key: str, /) -> None:
        """Keep all of it under `key`, whole or not at all; the instance goes on."""

    def restore_memory(self, plan: Plan, key: str, /) -> Handle:
        """Start a clone; NotFound, IntegrityError naming the field that differs from what it was saved with."""

    def drop_memory(self, key: str, /) -> None:
        """As `drop`."""


@runtime_checkable
class Files(Protocol):
    """Can copy a file or a tree in and out: modes are kept, and no symbolic link leads out of what was copied. The second path is the copy's own."""

    def put(self, handle: Handle, src: Path, dst: str, /) -> None:
        """Copy to `dst`, folders above it made; a file that is there is replaced. NotFound, UsageError, Conflict."""

    def get(self, handle: Handle, src: str, dst: Path, /) -> None:
        """Copy to `dst`, whole or not at all. NotFound, IntegrityError, Conflict."""


@runtime_checkable
class Displays(Protocol):
    """Shows its screen and takes input itself, without the server inside: fast I/O."""

    def display(self, handle: Handle, token: str, /) -> AbstractContextManager[Any]:
        """A console for the length of a block: `frame()`, `wait()`, `act()` of gymctl.vm.console. Unavailable, EnvError."""


ABILITIES: dict[str, type] = {"images": Images, "checkpoints": Checkpoints, "memory": Memory, "files": Files, "displays": Displays}


def features(module: ModuleType) -> dict[str, bool]:
    """Which abilities a runner module has: read off what it defines."""
    return {name: isinstance(module, protocol) for name, protocol in ABILITIES.items()}
