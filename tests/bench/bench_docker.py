"""Docker: `gymctl run` to healthy against raw docker-py, `gymctl load` of 500 MB against `docker load`; whole commands, interleaved pairs.

python -m tests.bench.bench_docker [run] [load]        needs an engine that has agent-environment (`gymctl build-image`)
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.bench import pairs, report

LOADS = 5  # pairs: each moves 500 MB twice and removes them again
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


def call(argv: list[str], env: dict[str, str]) -> str:
    """A command's stdout; it must succeed."""
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(argv[:4])}: {done.stderr}")
    return done.stdout.strip()


def bench_run(folder: Path, env: dict[str, str]) -> bool:
    def ours() -> Callable[[], str]:
        call([sys.executable, "-m", "gymctl", "run", "agent-environment", "--runner", "docker", "--port", "0", "--json"], env)
        return lambda: call([sys.executable, "-m", "gymctl", "stop", "agent-environment"], env)

    def floor() -> Callable[[], str]:
        box = call([sys.executable, "-c", RAW], env)
        return lambda: call(["docker", "rm", "-f", box], env)

    return report("run to healthy / raw docker-py", *pairs(ours, floor), GOAL)


def bench_load(folder: Path, env: dict[str, str]) -> bool:
    archive = large_archive(folder / "large.tar")

    def loaded(argv: list[str]) -> Callable[[], str]:
        call(argv, env)
        return lambda: call(["docker", "rmi", "-f", "gymctl-bench:large"], env)

    ours, floor = [sys.executable, "-m", "gymctl", "load", str(archive)], ["docker", "load", "-i", str(archive)]
    taken = pairs(lambda: loaded(ours), lambda: loaded(floor), LOADS)
    return report(f"load of {archive.stat().st_size / 1e6:.0f} MB / docker load, {LOADS} pairs", *taken, GOAL)


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
        call([sys.executable, "-c", "from gymctl.runners import docker; docker.tidy()"], env)
    sys.exit(0 if all(met) else 1)


if __name__ == "__main__":
    main()
