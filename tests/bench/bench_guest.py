"""The desktop's eyes and hands: `python -m tests.bench.bench_guest`. Frames against the bare XShm call, typing read back from a file."""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.bench import bound, pairs, report
from tests.images.guest.desk import PYTHON, Desk, missing_modules

CHARACTERS = 2000
TEXTS = 10


def main() -> int:
    """Run all; 1 when a goal is missed."""
    if missing := missing_modules():
        print(f"not proven: {missing[0]}", file=sys.stderr)
        return 1
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    began = time.perf_counter()
    desk = Desk(folder, RESOLUTION="1920x1080")
    try:
        desk.await_painted()
        print(f"desktop painted after {time.perf_counter() - began:.2f} s")
        return 0 if all([*seeing(desk), *typing(desk, folder)]) else 1
    finally:
        desk.close_programs()
        desk.stop()


def seeing(desk: Desk) -> list[bool]:
    """Frames inside the guest and over HTTP, and a click's way."""
    probe = Path(__file__).with_name("guest_probe.py")
    done = desk.run(PYTHON, str(probe), input=json.dumps({"port": desk.port, "token": desk.token}))
    assert done["returncode"] == 0, done["error"]
    times = json.loads(done["output"])
    tag = desk.get("/frame?stable=1&timeout=10").headers["etag"]  # once the desktop has come to rest
    same, png = pairs(lambda: desk.get("/frame", If_None_Match=tag), lambda: desk.get("/frame?format=png"), 15)
    raw, jpeg = pairs(lambda: desk.get("/frame"), lambda: desk.get("/frame?format=jpeg"), 15)
    print(f"over HTTP: raw {min(raw) * 1000:.1f} ms, PNG {min(png) * 1000:.1f} ms, JPEG {min(jpeg) * 1000:.1f} ms (least of 15)")
    return [
        report("XShm frame at 1920x1080 with cursor / bare call", times["frame"], times["bare"], 1.5),
        bound("unchanged frame in the guest", times["same"], 1.0),
        bound("unchanged frame by ETag over HTTP", same, 1.0),
        bound("click over HTTP to its X event", times["click"], 2.0),
    ]


def typing(desk: Desk, folder: Path) -> list[bool]:
    """Mixed texts into a terminal, each read back from the file."""
    generator = random.Random(3)
    alphabet = "".join(map(chr, range(32, 127))) + "äöüßéñ€"
    intact, taken = 0, []
    for number in range(TEXTS):
        text = "\n".join("".join(generator.choice(alphabet) for _ in range(49)) for _ in range(CHARACTERS // 50)) + "\n"
        file, closed = folder / f"typed{number}", folder / f"closed{number}"
        desk.terminal(f"typing {number}", f"cat > {file}; touch {closed}")
        began = time.perf_counter()
        desk.act({"keyboard": {"text": text}}, {"keyboard": {"keys": "ctrl+d"}})
        desk.until(closed.exists, 60)
        taken.append((time.perf_counter() - began) / CHARACTERS)
        intact += file.read_text() == text
        desk.close_programs()
    print(f"{CHARACTERS} characters intact: {intact} of {TEXTS} times: {'met' if intact == TEXTS else 'MISSED'}")
    return [intact == TEXTS, bound("a character, until the file holds it", taken, 5.0)]


if __name__ == "__main__":
    sys.exit(main())
