"""The film of an episode: the machine records itself, and the steps stand beside the film as WebVTT captions of the same name."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

from gymctl import cache, instances, proc, trees, wire
from gymctl.episode import Json, entries
from gymctl.errors import GymctlError
from gymctl.instances import Instance

FILM = "recording.mp4"
CAPTIONS = "recording.vtt"
SHORTEST = 0.5
"""Seconds that a caption stays at least, unless the next one begins."""
LONGEST_CAPTION = 300


@contextlib.contextmanager
def filmed(instance: Instance, directory: Path) -> Iterator[None]:
    """Film what is done inside; the film is whole after it, however it ends. A film that was lost is a note of the instance.

    EnvError where the machine cannot film, before anything is done.
    """
    kind = instances.kind(instance.kind)
    with contextlib.closing(kind.connect(instance)) as client:  # its own: the episode's may be in the middle of a request
        kind.start_recording(client)
        began = time.time()
        try:
            yield
        finally:
            ended = time.time()
            with proc.shielded():  # a second Ctrl-C would have no film
                try:
                    _write(directory / FILM, kind.end_recording(client))
                    steps = [entry for entry in entries(instance.directory / "episode.jsonl") if entry["type"] == "step" and entry["at"] >= began]
                    _write(directory / CAPTIONS, captions(steps, began, ended).encode("utf-8", "replace"))
                except GymctlError as error:
                    instance.notes.append(f"the film was lost: {error.message}")


def _write(path: Path, content: bytes) -> None:
    with cache.disk_errors(path.parent), trees.arriving(path, tree=False) as made:
        made.write_bytes(content)


def captions(steps: list[Json], began: float, ended: float) -> str:
    """WebVTT of the steps (lines of episode.jsonl): from when an action was given to when the next one was; times are the film's."""
    starts = [max(0.0, step["at"] - step.get("elapsed", 0.0) - began) for step in steps]
    cues = ["WEBVTT"]
    for number, (step, start) in enumerate(zip(steps, starts, strict=True)):
        until = starts[number + 1] if number + 1 < len(starts) else max(start + SHORTEST, ended - began)
        failed = f" [{step['error']['type']}]" if "error" in step else ""
        said = wire.printable(f"{step['action']} {json.dumps(step['args'], ensure_ascii=False)}{failed}").replace("\n", " ")[:LONGEST_CAPTION]
        text = said.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        cues.append(f"{number + 1}\n{_clock(start)} --> {_clock(max(until, start + 0.001))}\n{text}")
    return "\n\n".join(cues) + "\n"


def _clock(seconds: float) -> str:
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}.{thousandths:03}"
