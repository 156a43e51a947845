"""Docker: `gymctl run` to healthy against raw docker-py, `gymctl load` of 500 MB against `docker load`; whole commands, interleaved pairs.

python tests/bench/bench_docker.py [run] [load]        needs an engine that has agent-environment (`gymctl build-image`)
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PAIRS = {"run": 15, "load": 5}  # a load moves 500 MB twice and removes them again: five pairs, said so
GOAL = 1.15
SIZE = 500_000_000
RAW = """
import http.client, sys, time, docker
client = docker.from_env()
box = client.containers.run("agent-environment:latest", detach=True, ports={"1984/tcp": ("127.0.0.1", None)}, environment={"UNIVERSE_ID": "software-team"})
port = int(client.api.port(box.id, 1984)[0]["HostPort"])
while True:
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
        connection.request("GET", "/health")
        if connection.getresponse().status == 200:
            break
    except (OSError, http.client.HTTPException):
        time.sleep(0.002)
print(box.id)
"""


def timed(argv: list[str], env: dict[str, str]) -> tuple[float, str]:
    began = time.perf_counter()
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    took = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"{' '.join(argv[:4])}: {done.stderr}")
    return took, done.stdout.strip()


def show(what: str, ours: list[float], floor: list[float]) -> bool:
    """Median and p95 of both, and the median of the pairs' ratios."""

    def line(name: str, values: list[float]) -> str:
        return f"  {name:8} median {statistics.median(values) * 1000:7.0f} ms   p95 {sorted(values)[int(len(values) * 0.95)] * 1000:7.0f} ms"

    ratio = statistics.median(ours) / statistics.median(floor)
    pairs = statistics.median(a / b for a, b in zip(ours, floor, strict=True))
    print(f"{what}, {len(ours)} pairs\n{line('gymctl', ours)}\n{line('floor', floor)}")
    print(f"  ratio of medians {ratio:.3f}, median of ratios {pairs:.3f}, goal {GOAL}: {'met' if ratio <= GOAL else 'MISSED'}", flush=True)
    return ratio <= GOAL


def pairs(count: int, ours: Callable[[], float], floor: Callable[[], float]) -> tuple[list[float], list[float]]:
    """Interleaved, each first in turn, one pair before that does not count."""
    made: tuple[list[float], list[float]] = ([], [])
    for n in range(count + 1):
        order = ((0, ours), (1, floor)) if n % 2 else ((1, floor), (0, ours))
        for which, run in order:
            took = run()
            if n:
                made[which].append(took)
    return made


def bench_run(folder: Path, env: dict[str, str]) -> bool:
    def ours() -> float:
        took, _ = timed([sys.executable, "-m", "gymctl", "run", "agent-environment", "--runner", "docker", "--port", "0", "--json"], env)
        timed([sys.executable, "-m", "gymctl", "stop", "agent-environment"], env)
        return took

    def floor() -> float:
        took, box = timed([sys.executable, "-c", RAW], env)
        timed(["docker", "rm", "-f", box], env)
        return took

    return show("run to healthy, against raw docker-py", *pairs(PAIRS["run"], ours, floor))


def bench_load(folder: Path, env: dict[str, str]) -> bool:
    archive = large_archive(folder / "large.tar")

    def measured(argv: list[str]) -> float:
        took, _ = timed(argv, env)
        timed(["docker", "rmi", "-f", "gymctl-bench:large"], env)
        return took

    ours, floor = [sys.executable, "-m", "gymctl", "load", str(archive)], ["docker", "load", "-i", str(archive)]
    return show(f"load of {archive.stat().st_size / 1e6:.0f} MB, against docker load", *pairs(PAIRS["load"], lambda: measured(ours), lambda: measured(floor)))


def large_archive(out: Path) -> Path:
    """A docker archive with one layer of files that do not compress."""
    inner = out.with_suffix(".layer")
    with tarfile.open(inner, "w") as tar:
        for n in range(SIZE // 5_000_000 + 1):
            member = tarfile.TarInfo(f"file-{n}")
            member.size = 5_000_000
            tar.addfile(member, io.BytesIO(os.urandom(member.size)))
    with inner.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    config = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]}}).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": name, "RepoTags": ["gymctl-bench:large"], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(out, "w") as tar:
        for member_name, data in ((name, config), ("manifest.json", manifest)):
            member = tarfile.TarInfo(member_name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        tar.add(inner, "layer.tar")
    inner.unlink()
    return out


def main() -> None:
    chosen = sys.argv[1:] or ["run", "load"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = {**os.environ, "GYMCTL_STATE_DIR": str(folder / "state"), "GYMCTL_CACHE_DIR": str(folder / "cache")}
        benches = {"run": bench_run, "load": bench_load}
        met = [benches[what](folder, env) for what in chosen]
        timed([sys.executable, "-c", "from gymctl.runners import docker; docker.tidy()"], env)
    sys.exit(0 if all(met) else 1)


if __name__ == "__main__":
    main()
