"""The accessibility tree, read by a worker process that is killed when it takes too long."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any, cast

from .faults import Fault
from .processes import environment

DEADLINE = 60.0
EXTRA = 10.0
"""Seconds the worker is given beyond its own deadline: one slow program may hold it for a while."""


class Accessibility:
    """One worker, started at the first question and kept: what it has learned of the programs makes the next one cheaper."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._worker: subprocess.Popen[bytes] | None = None

    def tree(self, seconds: float = DEADLINE) -> dict[str, Any]:
        """{xml, nodes, cut: what was left out}; 501 without AT-SPI, 504 when a program does not answer."""
        with self._lock:
            worker = self._started()
            questions, answers = cast(IO[bytes], worker.stdin), cast(IO[bytes], worker.stdout)
            try:
                questions.write(f"{seconds}\n".encode())
                questions.flush()
            except OSError as error:
                self._stop()
                raise Fault(501, "NoAccessibility", "the accessibility worker does not start", "python3-gi, gir1.2-atspi-2.0, a session bus?") from error
            ready, _, _ = select.select([answers], [], [], seconds + EXTRA)
            line = answers.readline() if ready else b""
            if not line:
                self._stop()
                if ready:
                    hint = "the guest needs python3-gi, gir1.2-atspi-2.0, at-spi2-core and a session bus (DBUS_SESSION_BUS_ADDRESS)"
                    raise Fault(501, "NoAccessibility", "the accessibility tree cannot be read: the worker ended", hint)
                raise Fault(504, "NoAnswer", f"no accessibility tree after {seconds + EXTRA:.0f} s: a program hangs", "GET /windows, GET /screenshot")
            answer: dict[str, Any] = json.loads(line)
            return answer

    def _started(self) -> subprocess.Popen[bytes]:
        if self._worker is None or self._worker.poll() is not None:
            argv = [sys.executable, "-m", "_guest.a11y_worker"]
            env = environment({"PYTHONPATH": str(Path(__file__).parent.parent)})
            self._worker = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, start_new_session=True)
        return self._worker

    def _stop(self) -> None:
        if self._worker:
            self._worker.kill()
            self._worker.wait()
            for pipe in (self._worker.stdin, self._worker.stdout):
                if pipe:
                    pipe.close()
            self._worker = None

    def close(self) -> None:
        """End the worker."""
        with self._lock:
            self._stop()
