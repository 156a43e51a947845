"""A film of the screen by ffmpeg, as OSWorld's recording endpoints make it."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import IO, cast

from .faults import Fault
from .processes import environment

RATE = 15
STOP_SECONDS = 30


class Recorder:
    """One recording at a time."""

    def __init__(self, display: str) -> None:
        self._display = display
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def start(self, size: tuple[int, int]) -> None:
        """Record from now on; 400 when one runs, 501 without ffmpeg, 500 with its words when it fails."""
        with self._lock:
            if self._process and self._process.poll() is None:
                raise Fault(400, "Recording", "Recording is already in progress.")
            if not shutil.which("ffmpeg"):
                raise Fault(501, "NoFfmpeg", "there is no ffmpeg in the guest", "install the package ffmpeg")
            self._folder = tempfile.TemporaryDirectory(prefix="recording-")
            argv = [
                "ffmpeg", "-y", "-nostdin", "-loglevel", "info", "-f", "x11grab", "-draw_mouse", "1", "-framerate", str(RATE),
                "-video_size", f"{size[0] // 2 * 2}x{size[1] // 2 * 2}", "-i", self._display, "-c:v", "libx264", "-preset", "ultrafast",
                "-pix_fmt", "yuv420p", "-movflags", "+faststart", f"{self._folder.name}/recording.mp4",
            ]  # fmt: skip
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment(), start_new_session=True)
            words = cast(IO[bytes], self._process.stderr)
            said = b""
            for line in words:
                said += line
                if line.startswith(b"Output #0"):
                    threading.Thread(target=words.read, daemon=True).start()
                    return
            raise Fault(500, "NotRecording", f"ffmpeg ended: {said.decode(errors='replace').strip()[-500:]}")

    def stop(self) -> IO[bytes] | None:
        """End the recording; the film, open; None when none runs."""
        with self._lock:
            process, folder = self._process, self._folder
            self._process = self._folder = None
            if not process or not folder:
                return None
            with folder:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                film = Path(folder.name, "recording.mp4")
                return film.open("rb") if film.exists() and film.stat().st_size else None
