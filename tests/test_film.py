"""Films of episodes: whole, in step with the captions beside them, and said to be lost when they are."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

from gymctl import film
from gymctl.episode import entries
from tests import machines
from tests.conftest import Cli


def test_captions_say_what_was_done_and_when() -> None:
    steps = [
        {"type": "step", "at": 101.5, "elapsed": 0.5, "action": "click", "args": {"x": 1}},
        {"type": "step", "at": 103.0, "elapsed": 0.25, "action": "type", "args": {"text": "a --> b\n<b>&\x1b[0m"}, "error": {"type": "EnvError"}},
        {"type": "step", "at": 103.0, "action": "key", "args": {}},
    ]
    cues = film.captions(steps, 100.0, 3700.125).split("\n\n")
    assert cues[0] == "WEBVTT"
    assert cues[1] == '1\n00:00:01.000 --> 00:00:02.750\nclick {"x": 1}'
    assert cues[2].splitlines()[1] == "00:00:02.750 --> 00:00:03.000"
    assert cues[2].splitlines()[2] == 'type {"text": "a --&gt; b\\n&lt;b&gt;&amp;\\u001b[0m"} [EnvError]'
    assert cues[3] == "3\n00:00:03.000 --> 01:00:00.125\nkey {}\n"
    assert film.captions([], 0, 1) == "WEBVTT\n"


def test_an_episode_is_read_whatever_its_texts_hold(tmp_path: Path) -> None:
    log, odd = tmp_path / "episode.jsonl", {"type": "step", "args": {"text": "a\u2028b\x85c"}}
    assert list(entries(log)) == []
    log.write_text(f"{json.dumps(odd, ensure_ascii=False)}\n[1]\n" + '{"type": "step", "ar', encoding="utf-8")
    assert list(entries(log)) == [odd]


X, Y, SIZE = 400, 300, 32
SOLUTION = [{"action": "move", "args": {"x": 10, "y": 10}}, {"action": "wait", "args": {"seconds": 1}}, {"action": "move", "args": {"x": X, "y": Y}},
            {"action": "wait", "args": {"seconds": 1}}, {"action": "exec", "args": {"command": "printf yes > done"}}]  # fmt: skip


def seen(path: Path, seconds: float) -> bytes:
    """What a film shows at a time around the place where the mouse goes: gray bytes."""
    crop = f"crop={SIZE}:{SIZE}:{X - 8}:{Y - 8},format=gray"
    argv = ["ffmpeg", "-v", "error", "-ss", f"{seconds:.3f}", "-i", str(path), "-frames:v", "1", "-vf", crop, "-f", "rawvideo", "-"]
    shown = subprocess.run(argv, capture_output=True, check=True).stdout
    assert len(shown) == SIZE * SIZE
    return shown


def differs(one: bytes, other: bytes) -> bool:
    return sum(abs(a - b) > 60 for a, b in zip(one, other, strict=True)) > 20


def test_an_episode_is_filmed_with_its_steps_beside_it(on_desktop: Cli, tmp_path: Path) -> None:
    on = on_desktop
    where = machines.recipe(tmp_path / "own", {"t": {"solution": SOLUTION}})
    document = machines.run(on, where, "--port", "0", "--task", "t", "--agent", "oracle", "--record", "--rm")
    assert document["verdict"] == "passed"
    for path in Path(document["dir"]).iterdir():
        assert document["token"].encode() not in path.read_bytes(), path.name
    recording = Path(document["recording"])
    assert recording.parent == Path(document["dir"])
    argv = ["ffprobe", "-v", "error", "-show_entries", "stream=codec_name,width,height,duration", "-of", "json", str(recording)]
    stream = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)["streams"][0]
    assert (stream["codec_name"], stream["width"], stream["height"]) == ("h264", 800, 600)
    captions = recording.with_suffix(".vtt").read_text()
    assert captions.count(" --> ") == len(SOLUTION)
    starts = [60 * int(m) + float(s) for m, s in re.findall(r"00:(\d\d):([\d.]+) -->", captions)]
    assert float(stream["duration"]) >= starts[-1]
    moved = starts[2]
    before, just_before, after = (seen(recording, at) for at in (moved - 0.7, moved - 0.25, moved + 0.6))
    assert not differs(before, just_before)
    assert differs(just_before, after), "the caption says when the mouse went there"


ENDS_IT = """
import json, os, sys, urllib.request
sys.stdin.readline()
request = urllib.request.Request(os.environ["GYMCTL_URL"] + "/end_recording", b"{}", {"Authorization": "Bearer " + os.environ["GYMCTL_TOKEN"]})
urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request).read()
"""


def test_a_film_that_was_ended_by_another_is_said_to_be_lost(local_desktop: Cli, tmp_path: Path) -> None:
    on = local_desktop
    where = machines.recipe(tmp_path / "own", {"t": {}})
    agent = f"{sys.executable} -c {shlex.quote(ENDS_IT)}"
    document = machines.run(on, where, "--port", "0", "--task", "t", "--agent", agent, "--record", "--rm", code=11)
    assert document["recording"] is None
    assert any("the film was lost" in note for note in document["notes"])
    assert document["reason"]["type"] == "tampering"
    assert not list(Path(document["dir"]).glob("recording*"))
