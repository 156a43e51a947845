"""Virtual machines: `python -m tests.bench.bench_qemu`, after GYMCTL_TEST_CACHE or GYMCTL_TEST_DESKTOP was set. Clones, frames, clicks, typing, memory.

A cold boot of the same machine is timed once, and saved; everything else is a clone of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gymctl import proc, wire
from gymctl.runner import Handle, Plan
from gymctl.runners import qemu, qemu_saved
from gymctl.vm.console import Console
from gymctl.vm.display import Pushed, Screendump
from gymctl.vm.qmp import Qmp
from tests.bench import bound, pairs, report

CLONES = 15
AT_ONCE = 12
TEXTS = 10
CHARACTERS = 2000
TOKEN = "bench" * 6
KEY = f"bench-{os.getpid()}"


def plan(folder: Path, name: str, image: dict[str, Any], **options: Any) -> Plan:
    """A machine of 1 GiB, its screen as large as the recipe's."""
    directory = folder / name
    directory.mkdir(exist_ok=True)
    chosen = {"accel": "tcg", "memory": "1g", "resolution": "1280x720", **options}
    label = f"{os.environ['BENCH_LABEL']}/{name}"
    return Plan(name, label, directory, "qcow2", image, 5000, options=chosen, cpus=2, secrets={"GUEST_TOKEN": TOKEN})


def client(handle: Handle) -> wire.Client:
    """To the server in the guest."""
    return wire.Client(handle["url"], headers={"Authorization": f"Bearer {TOKEN}"})


@contextlib.contextmanager
def running(handle: Handle) -> Iterator[wire.Client]:
    """A machine for the length of a block."""
    with contextlib.closing(client(handle)) as made:
        try:
            yield made
        finally:
            qemu.stop(handle)


def cold(folder: Path, image: dict[str, Any]) -> tuple[float, list[bool]]:
    """Boot once, save: seconds of the boot until the desktop is painted, and whether saving was quick."""
    began = time.perf_counter()
    handle = qemu.start(plan(folder, "cold", image))
    with running(handle) as guest:
        wire.wait(guest, "/health", 600, lambda: "" if qemu.status(handle).state == "running" else "it ended")
        boot = time.perf_counter() - began
        guest.send("GET", "/frame?stable=2&timeout=60")
        began = time.perf_counter()
        qemu.save_memory(handle, KEY)
        taken = time.perf_counter() - began
    print(f"cold boot until painted: {boot:.1f} s")
    return boot, [bound("saving a machine", [taken], 1000)]


def clones(folder: Path, image: dict[str, Any], boot: float) -> list[bool]:
    """To the first frame, and to the first answer of the guest's server, one after the other."""
    frames, answers = [], []
    for number in range(CLONES):
        began = time.perf_counter()
        wanted = plan(folder, f"clone{number}", image)
        handle, qmp = qemu_saved.resume(wanted, KEY)
        with running(handle) as guest, qmp:
            dump = Screendump(qmp)
            dump.frame()
            frames.append(time.perf_counter() - began)
            qemu_saved.settle(handle, qmp, wanted)
            assert guest.send("GET", "/").status == 200
            answers.append(time.perf_counter() - began)
            dump.close()
    times = boot / statistics.median(answers)
    print(f"a clone that answers is {times:.0f}x faster than its cold boot, goal >= 40: {'met' if times >= 40 else 'MISSED'}")
    return [bound("clone to its first frame", frames, 200), bound("clone to its server's answer", answers, 500), times >= 40]


def many(folder: Path, image: dict[str, Any]) -> list[bool]:
    """Twelve at once: how long until all answer, and what memory is each one's own share."""
    began = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        handles = list(pool.map(lambda n: qemu.restore_memory(plan(folder, f"many{n}", image), KEY), range(AT_ONCE)))
    try:
        for handle in handles:
            with contextlib.closing(client(handle)) as guest:
                assert guest.send("GET", "/", timeout=60).status == 200
        taken = time.perf_counter() - began
        shares = [_pss(handle["pid"]) for handle in handles]
    finally:
        for handle in handles:
            qemu.stop(handle)
    met = max(shares) <= 110
    print(f"{AT_ONCE} clones: {min(shares):.0f} to {max(shares):.0f} MiB each (PSS), goal <= 110: {'met' if met else 'MISSED'}")
    return [bound(f"{AT_ONCE} clones at once, all answering", [taken], 10_000), met]


def _pss(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("Pss:"))) / 1024


def seeing(handle: Handle) -> list[bool]:
    """Frames of a large screen against one copy of their bytes, and against QEMU's own screendump."""
    script = "DISPLAY=:0 XAUTHORITY=$(find / -name Xauthority -path '*desktop-*' 2>/dev/null | head -1) xrandr -s 1920x1080"
    larger = qemu.exec(handle, ["sh", "-c", f"export PATH=$PATH:/usr/bin; {script}"], timeout=60)
    assert larger.code == 0, larger.stderr
    with Qmp(Path(handle["runtime"]) / "io") as qmp:
        pushed, dump = Pushed(qmp), Screendump(qmp)
        assert pushed.size() == (1920, 1080)
        pixels = pushed.frame().pixels
        ours, copy = pairs(pushed.frame, lambda: bytearray(pixels), 100)
        with tempfile.NamedTemporaryFile(dir="/dev/shm", suffix=".ppm") as file:
            shown, raw = pairs(dump.frame, lambda: qmp.execute("screendump", filename=file.name, device="video0"), 30)
        pushed.close()
        dump.close()
    return [report("D-Bus frame at 1920x1080 / one memcpy", ours, copy, 2), report("screendump, read / raw screendump", shown, raw, 1.2)]


def acting(handle: Handle, guest: wire.Client) -> list[bool]:
    """From a click to X, a whole step, and texts read back."""
    with qemu.display(handle, TOKEN) as console:
        return [*_clicks(console), *_typing(console, guest)]


def _clicks(console: Console) -> list[bool]:
    display = console.display
    assert isinstance(display, Pushed)
    moves, acknowledged, steps = [], [], []
    console.act([{"mouse": {"move": [900, 500]}}])
    for number in range(60):
        point, before = [300 + number * 7, 200 + number * 5], display.moves
        began = time.perf_counter()
        console.act([{"mouse": {"move": point}}])
        acknowledged.append(time.perf_counter() - began)
        display.wait_moved(before, 5)
        moves.append(time.perf_counter() - began)
        began = time.perf_counter()
        console.act([{"mouse": {"left_click": point}}])
        console.frame()
        steps.append(time.perf_counter() - began)
    print(f"runner_inject_action (move): {statistics.median(acknowledged) * 1000:.2f} ms; env_step (click, frame): {statistics.median(steps) * 1000:.2f} ms")
    return [bound("move until X has moved its cursor", moves, 5)]


def _typing(console: Console, guest: wire.Client) -> list[bool]:
    generator, intact, taken = random.Random(5), 0, []
    for number in range(TEXTS):
        text = "\n".join("".join(chr(generator.randrange(32, 127)) for _ in range(49)) for _ in range(CHARACTERS // 50)) + "\n"
        guest.send("POST", "/setup/launch", {"command": ["lxterminal", "-e", f"sh -c 'cat > /tmp/typed{number}'"]})
        while "lxterminal" not in str(guest.call("/windows")).lower():
            pass
        guest.send("GET", "/frame?stable=1&timeout=20")
        began = time.perf_counter()
        console.act([{"keyboard": {"text": text}}])
        taken.append((time.perf_counter() - began) / CHARACTERS)
        console.act([{"keyboard": {"keys": "ctrl+d"}}])
        while "lxterminal" in str(guest.call("/windows")).lower():
            pass
        intact += guest.send("GET", f"/files?path=/tmp/typed{number}").body.decode() == text
    print(f"{CHARACTERS} characters intact: {intact} of {TEXTS} times: {'met' if intact == TEXTS else 'MISSED'}")
    return [intact == TEXTS, bound("a character, until X has taken it", taken, 2)]


def main() -> int:
    """Run all; 1 when a goal is missed. The argument is a directory that build.py wrote."""
    built = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ["GYMCTL_TEST_DESKTOP"])
    image = {
        "disk": str(built / "linux-desktop.qcow2"),
        "kernel": str(built / "vmlinuz"),
        "initrd": str(built / "initrd.img"),
        "append": "root=/dev/vda rw quiet",
    }
    image["digest"] = f"sha256:{json.loads((built / 'image.json').read_text())['files']['linux-desktop.qcow2']}"
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    os.environ |= {"GYMCTL_STATE_DIR": str(folder / "state"), "GYMCTL_CACHE_DIR": str(folder / "cache"), "BENCH_LABEL": folder.name}
    try:
        boot, met = cold(folder, image)
        met += clones(folder, image, boot)
        met += many(folder, image)
        handle = qemu.restore_memory(plan(folder, "fast", image, display="dbus"), KEY)
        with running(handle) as guest:
            met += [*seeing(handle), *acting(handle, guest)]
        return 0 if all(met) else 1
    finally:
        for label, process in proc.labeled(f"{folder.name}/"):
            print(f"ended {label}", file=sys.stderr)
            proc.end_group(process)


if __name__ == "__main__":
    sys.exit(main())
