"""The only importer of subprocess: run a child to its end, start one that stays, ask whether it lives, end its whole group."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gymctl.errors import StartError, Unavailable, UsageError

KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME", "XDG_RUNTIME_DIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
LABEL_VARIABLE = "GYMCTL_LABEL"
MAX_LINE = 16 << 20


@dataclass(frozen=True, slots=True)
class Result:
    """What a finished command left: exit code (negative: ended by that signal), output, and whether its deadline ended it."""

    code: int
    stdout: str
    stderr: str
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class Process:
    """A process that cannot be confused with a later one of the same pid: pid and start time (ticks since boot)."""

    pid: int
    started: int


def environment(extra: Mapping[str, str] = {}, *, keep: Sequence[str] = KEPT) -> dict[str, str]:
    """A child's environment: the few variables any program needs, and `extra`."""
    return {**{k: os.environ[k] for k in keep if k in os.environ}, **extra}


def module_environment(label: str, **extra: str) -> dict[str, str]:
    """The environment of a child that runs a module of this very gymctl, not of a folder `gymctl` where it is started, and is found by its label."""
    own = {"PYTHONPATH": str(Path(__file__).resolve().parents[1]), "PYTHONSAFEPATH": "1", "PYTHONUTF8": "1"}
    return environment({LABEL_VARIABLE: label, **own, **extra})


def pip_environment() -> dict[str, str]:
    """The environment of a child that is pip: proxies and pip's own settings beside what any program needs."""
    proxies = [name for word in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY") for name in (word, word.lower())]
    return environment(keep=(*KEPT, *proxies, *(name for name in os.environ if name.startswith("PIP_"))))


def words(command: str, option: str) -> list[str]:
    """A command split as a shell splits words; UsageError for none, or for a quote without its end."""
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"{option} {command!r}: {error}") from error
    if not argv:
        raise UsageError(f"{option} is empty")
    return argv


def run(argv: Sequence[str], *, timeout: float, env: Mapping[str, str] | None = None, input: str | None = None) -> Result:
    """Run to the end; at the deadline the whole group is killed and `timed_out` set. Unavailable when `argv[0]` is not there."""
    try:
        child = subprocess.Popen(
            argv, env=environment() if env is None else dict(env), start_new_session=True, text=True, errors="replace",
            stdin=subprocess.DEVNULL if input is None else subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise Unavailable(f"{argv[0]} is not installed, or not on PATH") from error
    except OSError as error:
        raise StartError(f"cannot start {argv[0]}: {error.strerror}") from error
    with child:
        try:
            out, err = child.communicate(input, timeout=timeout)
            return Result(child.returncode, out, err)
        except subprocess.TimeoutExpired:
            kill_group(child.pid)
            out, err = child.communicate()
            return Result(child.returncode, out, err, timed_out=True)
        except BaseException:
            kill_group(child.pid)
            raise


def spawn(argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path, pass_fds: Sequence[int] = ()) -> Process:
    """Start a child that outlives us, in a session of its own, both outputs appended to `log`; StartError."""
    with log.open("ab") as sink:
        try:
            child = subprocess.Popen(
                argv, env=dict(env), cwd=cwd, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True, pass_fds=pass_fds
            )
        except OSError as error:
            raise StartError(f"cannot start {argv[0]}: {error.strerror}") from error
    child.returncode = 0  # it stays: no warning when this object goes
    return Process(child.pid, start_time(child.pid) or 0)


@contextlib.contextmanager
def shielded() -> Iterator[None]:
    """INT, TERM and HUP wait until the end of this block, which must be short."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Piped:
    """A child that talks in lines over its stdin and stdout until a deadline (monotonic seconds)."""

    def __init__(self, child: subprocess.Popen[bytes], deadline: float) -> None:
        assert child.stdin is not None  # noqa: S101  (both were opened as pipes)
        assert child.stdout is not None  # noqa: S101
        self._child, self._in, self._out = child, child.stdin, child.stdout.fileno()
        os.set_blocking(self._in.fileno(), False)
        self._deadline = deadline
        self._buffer = b""

    def say(self, data: bytes) -> None:
        """Send a line; one that no longer listens is found out by hearing from it."""
        while data and self._deadline > time.monotonic():
            try:
                data = data[os.write(self._in.fileno(), data) :]
            except BlockingIOError:
                select.select([], [self._in], [], max(0.0, self._deadline - time.monotonic()))
            except BrokenPipeError:
                return

    def hear(self) -> bytes | None:
        """The next line, None at the end; TimeoutError at the deadline. A line without end is cut at MAX_LINE bytes."""
        while b"\n" not in self._buffer and len(self._buffer) < MAX_LINE:
            left = self._deadline - time.monotonic()
            if left <= 0 or not select.select([self._out], [], [], left)[0]:
                raise TimeoutError
            chunk = os.read(self._out, 1 << 16)
            if not chunk:
                rest, self._buffer = self._buffer, b""
                return rest or None
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def finish(self, grace: float) -> int:
        """Close its stdin and give it `grace` seconds, at most until the deadline, to end; its exit code, then its group is killed."""
        with contextlib.suppress(BrokenPipeError):
            self._in.close()
        try:
            return self._child.wait(max(0.0, min(grace, self._deadline - time.monotonic())))
        except subprocess.TimeoutExpired:
            kill_group(self._child.pid)
            return self._child.wait()


@contextlib.contextmanager
def piped(argv: Sequence[str], *, env: Mapping[str, str], log: Path, deadline: float, grace: float = 0.0) -> Iterator[Piped]:
    """Talk with a child in a group of its own, its stderr appended to `log`; the whole group is gone after the block. StartError.

    When the block is left before its end, the child is told by TERM and has `grace` seconds to clean up.
    """
    with log.open("ab") as sink:
        try:
            child = subprocess.Popen(argv, env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink, start_new_session=True, bufsize=0)
        except OSError as error:
            hint = "the command is split as a shell splits words, and never given to a shell"
            raise StartError(f"cannot start {argv[0]}: {error.strerror}", hint=hint) from error
    with child:
        try:
            yield Piped(child, deadline)
        finally:
            if grace:
                end_group(Process(child.pid, start_time(child.pid) or 0), grace=grace)
            kill_group(child.pid)


def first_line(fd: int, timeout: float) -> bytes:
    """The first line a child writes to a pipe; what there was of it when the pipe ends or `timeout` seconds are over."""
    deadline, line = time.monotonic() + timeout, b""
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([fd], [], [], left)[0] or not (chunk := os.read(fd, 1 << 12)):
            break
        line += chunk
    return line


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when it is gone (or only waits to be reaped)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (OSError, UnicodeDecodeError):
        return _start_time_elsewhere(pid)
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def _start_time_elsewhere(pid: int) -> int | None:
    """The same where there is no /proc: ps's start time, in seconds."""
    if Path("/proc/self/stat").exists():
        return None
    shown = run(["ps", "-o", "lstart=", "-p", str(pid)], timeout=10).stdout.strip()
    return int(time.mktime(time.strptime(shown))) if shown else None


def alive(process: Process) -> bool:
    """Whether this very process still runs."""
    return start_time(process.pid) == process.started


def end_group(process: Process, *, grace: float = 5.0) -> None:
    """TERM to its group, KILL after `grace` seconds; returns when it is gone. Nothing happens to a later process of its pid."""
    if not alive(process):
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGTERM)
    if not wait_gone(process, grace):
        kill_group(process.pid)
        wait_gone(process, 5.0)


def wait_gone(process: Process, timeout: float) -> bool:
    """Wait until the process has ended; False when it still runs after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    pause = 0.002
    while alive(process):
        reap(process)
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)  # no event reaches one who is not the parent
        pause = min(pause * 1.5, 0.05)
    return True


def kill_group(pid: int) -> None:
    """KILL to a whole group, if there is one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def labeled(prefix: str) -> Iterator[tuple[str, Process]]:
    """(label, process) of every running process of this user whose environment says `GYMCTL_LABEL=<prefix>...`."""
    wanted = f"{LABEL_VARIABLE}={prefix}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            block = (entry / "environ").read_bytes()
        except OSError:
            continue
        for item in block.split(b"\0"):
            if item.startswith(wanted) and (started := start_time(int(entry.name))) is not None:
                yield item.partition(b"=")[2].decode(errors="replace"), Process(int(entry.name), started)


def end_labeled(label: str, *, grace: float = 1.0, spared: Sequence[int] = ()) -> None:
    """TERM, and KILL after `grace` seconds, to each process of this user that carries exactly this label, not the pids `spared`; returns when they are gone."""
    ours = {os.getpid(), *spared}  # an agent's own `gymctl` carries the label of the agent
    found = [process for its_label, process in labeled(label) if its_label == label and process.pid not in ours]
    for signum, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 5.0)):
        found = [process for process in found if alive(process)]
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signum)
        deadline = time.monotonic() + patience
        for process in found:
            wait_gone(process, max(0.0, deadline - time.monotonic()))


def reap(process: Process) -> int | None:
    """The exit code of a child of ours that has ended (negative: by that signal); None for anybody else's."""
    try:
        pid, status = os.waitpid(process.pid, os.WNOHANG)
    except ChildProcessError:
        return _codes.get(process.pid)
    if pid:
        _codes[pid] = os.waitstatus_to_exitcode(status)
    return _codes.get(process.pid)


_codes: dict[int, int] = {}


def listener(port: int) -> str:
    """Who listens on a TCP port of this machine, as `pid 12 (nginx)`; "" when that cannot be told."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
    for fd in Path("/proc").glob("[0-9]*/fd/*") if inodes else ():
        with contextlib.suppress(OSError):
            if os.readlink(fd) in inodes:
                pid = fd.parts[2]
                return f"pid {pid} ({Path(f'/proc/{pid}/comm').read_text().strip()})"
    return ""
