"""Commands in the guest under a supervisor: an end at the deadline for the whole group, output that background children cannot hold up."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from .faults import Fault, bad
from .files import path

DEADLINE = 120.0
LONGEST = 24 * 3600.0
LARGEST_OUTPUT = 32 << 20
GRACE = 0.5
"""Seconds between TERM and KILL."""
SECRETS = ("GUEST_TOKEN", "GUEST_TOKEN_FD", "VNC_PASSWORD", "LISTEN_FD")


@dataclass(frozen=True)
class Command:
    """What to run: argv, or a shell's command line; None takes the home directory."""

    argv: list[str]
    shell: bool = False
    timeout: float = DEADLINE
    cwd: str | None = None
    env: Mapping[str, str] | None = None
    input: bytes = b""


@dataclass(frozen=True)
class Result:
    """How a command ended. `code` is negative for a signal; `timed_out`: its group was killed; `cut`: bytes of output left out."""

    code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool
    seconds: float
    cut: int = 0

    def document(self) -> dict[str, Any]:
        """OSWorld's words, and the other documentation's beside them."""
        out, error = self.stdout.decode("utf-8", "replace"), self.stderr.decode("utf-8", "replace")
        if self.timed_out:
            error += f"{'' if not error or error.endswith(chr(10)) else chr(10)}killed with its whole group after {self.seconds:.1f} s: the deadline\n"
        if self.cut:
            error += f"{self.cut} bytes of output were left out\n"
        return {
            "status": "error" if self.timed_out else "success", "output": out, "error": error, "returncode": self.code,
            "stdout": out, "stderr": error, "exit_code": self.code, "timed_out": self.timed_out, "seconds": round(self.seconds, 4),
        }  # fmt: skip


def command(body: Mapping[str, Any], default_timeout: float = DEADLINE) -> Command:
    """A command as requests have it: {command: [..] | "..", shell?, timeout?, cwd?, env?, input?}; 400 says what is wrong."""
    words, shell = body.get("command"), body.get("shell", False)
    if not isinstance(shell, bool):
        raise bad(f"shell {shell!r} is neither true nor false")
    argv = _argv(words, shell)
    timeout = body.get("timeout", default_timeout)
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout <= LONGEST:
        raise bad(f"timeout {timeout!r} is no time", f"seconds, more than 0, at most {LONGEST:.0f}")
    env = body.get("env") or {}
    if not isinstance(env, dict) or not all(isinstance(v, str) for v in env.values()):
        raise bad("env is no object of texts")
    cwd = body.get("cwd", body.get("working_dir"))
    at = None if cwd is None else path(cwd, "cwd")
    if at and not at.is_dir():
        raise bad(f"cwd {cwd!r} is no directory")
    text = body.get("input") or ""
    if not isinstance(text, str):
        raise bad("input is no text")
    return Command(argv, shell, float(timeout), str(at) if at else None, env, text.encode())


def _argv(words: Any, shell: bool) -> list[str]:
    if isinstance(words, str) and words.strip():
        try:
            argv = [words] if shell else shlex.split(words)
        except ValueError as error:
            raise bad(f"command {words!r}: {error}") from error
    elif isinstance(words, list) and words and all(isinstance(w, str) for w in words):
        # A list with shell: the public server ran its first word only; a line of them is what is meant.
        argv = [shlex.join(words)] if shell and len(words) > 1 else list(words)
    else:
        raise bad("command is missing", 'a list of words, or a text; with "shell": true a shell\'s command line')
    if any("\0" in word for word in argv):
        raise bad("a command holds no NUL")
    return argv if shell else [os.path.expanduser(word) if word.startswith("~/") else word for word in argv]


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """What children inherit: the session's environment without the server's secrets."""
    return {k: v for k, v in os.environ.items() if k not in SECRETS} | dict(more or {})


class Processes:
    """The commands that run now, and the programs that were launched."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[int] = set()

    def run(self, command: Command) -> Result:
        """Run to its end or its deadline. It ends when its first process does: children left in the background live on, and keep no answer waiting."""
        started = time.monotonic()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error, tempfile.TemporaryFile() as given:
            given.write(command.input)
            given.seek(0)
            child = _start(command, given, out, error)
            with self._lock:
                self._running.add(child.pid)
            try:
                timed_out = not _ended(child, command.timeout)
                if timed_out:
                    kill_group(child)
                code = child.wait()
            finally:
                with self._lock:
                    self._running.discard(child.pid)
            (stdout, cut_out), (stderr, cut_error) = _read(out), _read(error)
        return Result(code, stdout, stderr, timed_out, time.monotonic() - started, cut_out + cut_error)

    def launch(self, command: Command) -> int:
        """Start a program that stays; its pid. It is reaped when it ends."""
        with open(os.devnull, "r+b") as null:
            child = _start(command, null, null, null)
        threading.Thread(target=child.wait, daemon=True).start()
        return child.pid

    def stop_all(self) -> int:
        """Kill the groups of all commands that are being waited for; how many there were."""
        with self._lock:
            groups = list(self._running)
        for group in groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        return len(groups)


def _start(command: Command, given: IO[bytes], out: IO[bytes], error: IO[bytes]) -> subprocess.Popen[bytes]:
    argv = ["/bin/sh", "-c", command.argv[0]] if command.shell else command.argv
    try:
        return subprocess.Popen(
            argv, stdin=given, stdout=out, stderr=error, cwd=command.cwd or os.path.expanduser("~"), env=environment(command.env), start_new_session=True
        )
    except FileNotFoundError as fault:
        raise Fault(500, "NotFound", f"there is no program {argv[0]!r} in the guest", "its name is looked up on the guest's PATH") from fault
    except ValueError as fault:  # NUL, half a character, a variable's name with "="
        raise bad(f"cannot run {argv[0]!r}: {fault}") from fault
    except OSError as fault:
        raise Fault(500, "NotRunnable", f"cannot run {argv[0]!r}: {fault.strerror}") from fault


def _ended(child: subprocess.Popen[bytes], timeout: float) -> bool:
    """Wait on the process itself: Popen.wait would look at it every 50 ms."""
    with _pidfd(child.pid) as fd:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(timeout * 1000))


@contextlib.contextmanager
def _pidfd(pid: int) -> Iterator[int]:
    fd = os.pidfd_open(pid)
    try:
        yield fd
    finally:
        os.close(fd)


def kill_group(child: subprocess.Popen[bytes]) -> None:
    """TERM, and after a moment KILL, for the whole group: what its first process started is in it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        if number == signal.SIGTERM:
            _ended(child, GRACE)


def _read(file: IO[bytes]) -> tuple[bytes, int]:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    return file.read(LARGEST_OUTPUT), max(0, size - LARGEST_OUTPUT)


def words(argv: Sequence[str]) -> str:
    """A command for people to read."""
    return shlex.join(argv)
