"""Disks that are full, fill up or cannot be written: said with what can be freed, before the work where it can be known, and nothing half-written stays."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gymctl.errors import GymctlError, Unavailable
from gymctl.runners import docker as runner
from gymctl.runners import docker_engine
from tests.conftest import RECIPE, Cli, lacking
from tests.engine import docker_call, private
from tests.test_archives import docker_files, tar
from tests.test_session import STUB


@contextlib.contextmanager
def disk(path: Path, size: str, how: str = "rw") -> Iterator[Path]:
    """A file system of its own at `path`."""
    path.mkdir(exist_ok=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},{how}", "tmpfs", str(path)], check=False, capture_output=True)
    if mounted.returncode:
        lacking("disk", "only root can mount a small file system")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(folder: Path) -> Path:
    """Take all space that is left."""
    with contextlib.suppress(OSError), (folder / "fill").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return folder / "fill"


def fill_file(path: Path) -> None:
    """Take what is left of a file's last page: a write of any length then needs space."""
    with path.open("ab") as file:
        file.write(b"\n" * (-path.stat().st_size % os.sysconf("SC_PAGE_SIZE")))


def qcow2(path: Path, size: int) -> Path:
    """A disk image of `size` bytes as far as its header goes."""
    header = struct.pack(">4sIQIIQIIQQ", b"QFI\xfb", 2, 0, 0, 16, 1 << 20, 0, 0, 0, 0)
    path.write_bytes(header.ljust(size, b"\0"))
    return path


def test_no_room_in_the_cache_is_said_before_a_byte_is_copied(cli: Cli) -> None:
    with disk(cli.folder / "small", "300k") as small:
        cli.env["GYMCTL_CACHE_DIR"] = str(small)
        cli("load", str(qcow2(cli.folder / "fits.qcow2", 150_000)))
        error = cli("load", str(qcow2(cli.folder / "large.qcow2", 200_000)), "--json", code=5).json["error"]
        assert "0.2 MiB are needed" in error["message"]
        assert "`gymctl cache gc --all` frees 0.1 MiB" in error["hint"]
        assert [p.name for p in (small / "tmp").iterdir()] == []
        cli("cache", "gc", "--all")
        cli("load", str(cli.folder / "large.qcow2"))
        assert len(cli("cache", "ls", "--json").json) == 1


def test_a_cache_that_fills_up_meanwhile(cli: Cli) -> None:
    """The look said there is room, and then there is none."""
    with disk(cli.folder / "small", "300k") as small:
        cli.env["GYMCTL_CACHE_DIR"] = str(small)
        cli("cache", "ls")
        code = "from gymctl import cache\ncache.need = lambda count: None\nfrom gymctl.cli import main\nmain()"
        argv = ["-c", code, "load", str(qcow2(cli.folder / "large.qcow2", 1_000_000)), "--json"]
        done = subprocess.run([cli.argv()[0], *argv], env=cli.env, capture_output=True, text=True, check=False, cwd=cli.folder)
        assert done.returncode == 5, done.stderr
        assert "No space left" in json.loads(done.stdout)["error"]["message"]
        assert [p.name for p in (small / "tmp").iterdir()] == [p.name for p in (small / "objects").iterdir()] == []


def test_a_full_state_directory(cli: Cli) -> None:
    """A run is refused and leaves nothing; what ran before is listed, cannot act, and is stopped."""
    with disk(cli.folder / "small", "400k") as small:
        cli.env["GYMCTL_STATE_DIR"] = str(small / "state")
        cli("run", STUB, "--runner", "local", "--name", "before", "--port", "0")
        cli("step", "before", "do_it")
        filler = fill(small)
        fill_file(small / "state/instances/before/episode.jsonl")
        error = cli("run", STUB, "--runner", "local", "--name", "after", "--port", "0", "--json", code=5).json["error"]
        assert "No space left" in error["message"]
        assert "GYMCTL_STATE_DIR" in error["hint"] or "free some space" in error["hint"]
        assert [row["name"] for row in cli("ps", "--all", "--json").json] == ["before"]
        error = cli("step", "before", "do_it", "--json", code=5).json["error"]
        assert "episode.jsonl of before: No space left" in error["message"]
        findings = {f["what"]: f for f in cli("doctor", "--json").json["host"]}
        assert findings["state"]["ok"] is False
        assert findings["state"]["fix"]
        cli("stop", "before")
        filler.unlink()
        cli("run", STUB, "--runner", "local", "--name", "after", "--port", "0")
        cli("stop", "after")


@pytest.mark.parametrize("words", [["cache", "ls"], ["cache", "gc"], ["load", "x.qcow2"]])
def test_a_cache_that_cannot_be_written(cli: Cli, words: list[str]) -> None:
    qcow2(cli.folder / "x.qcow2", 1000)
    with disk(cli.folder / "ro", "1m", "ro") as mount:
        for folder in (mount, mount / "cache"):
            error = cli(*words, "--json", code=5, env={"GYMCTL_CACHE_DIR": str(folder)}).json["error"]
            assert "Read-only file system" in error["message"]
            assert "GYMCTL_CACHE_DIR" in error["hint"]
        done = cli("run", STUB, "--runner", "local", "--port", "0", env={"GYMCTL_CACHE_DIR": str(mount / "cache")})
        assert done.out, "what needs no cache does not ask for one"
        assert cli("doctor", "local", "--json", env={"GYMCTL_CACHE_DIR": str(mount / "cache")}).json["host"][2]["ok"] is False


def test_a_state_directory_that_cannot_be_written(cli: Cli) -> None:
    with disk(cli.folder / "ro", "1m", "ro") as mount:
        for folder in (mount, mount / "state"):
            error = cli("run", STUB, "--runner", "local", "--json", code=5, env={"GYMCTL_STATE_DIR": str(folder)}).json["error"]
            assert "Read-only file system" in error["message"]
            assert "GYMCTL_STATE_DIR" in error["hint"]


def test_ten_loads_of_one_file_at_once(cli: Cli) -> None:
    qcow2(cli.folder / "x.qcow2", 3_000_000)
    loads = [cli.spawn("load", "x.qcow2", "--json") for _ in range(8)]
    printed = {load.communicate(timeout=60)[0] for load in loads}
    assert len(printed) == 1
    assert {load.returncode for load in loads} == {0}
    (row,) = cli("cache", "ls", "--json").json
    assert row["bytes"] == 3_000_000
    assert cli("cache", "verify", "--json").json == {"damaged": []}


@pytest.fixture
def small_engine(docker_host: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An engine whose root is a disk of 48 MiB."""
    if os.geteuid() != 0:
        lacking("docker", "only root can start an engine")
    with disk(cli.folder / "engine", "48m") as folder, private(("gymtest1", "172.31.248.1/24"), "--data-root", str(folder)) as host:
        monkeypatch.setenv("DOCKER_HOST", host)
        monkeypatch.setenv("GYMCTL_STATE_DIR", str(cli.state))
        cli.env["DOCKER_HOST"] = host
        yield host
        docker_engine.close()


def test_the_engine_s_disk(small_engine: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too small is seen by doctor and before a load; full in the middle of one leaves no name behind."""
    report = {f["what"]: f for f in cli("doctor", "docker", "--json", code=1).json["runners"]["docker"]["findings"]}
    assert report["engine's disk"]["ok"] is False
    assert "docker image prune" in report["engine's disk"]["fix"]
    (cli.folder / "large.tar").write_bytes(tar(docker_files(tar({"blob": os.urandom(60 << 20)}), tags=["large:1"])))
    error = cli("load", "large.tar", "--json", code=5).json["error"]
    assert "GiB are free in" in error["message"]
    assert "docker image prune" in error["hint"]
    monkeypatch.setattr(docker_engine, "free_space", lambda root: None)
    with (cli.folder / "large.tar").open("rb") as stream, pytest.raises(GymctlError, match="no space left on device") as caught:
        runner.load(stream, (cli.folder / "large.tar").stat().st_size, lambda what, done, total: None)
    assert isinstance(caught.value, Unavailable)
    assert "docker system df" in caught.value.hint
    assert docker_call(small_engine, "images", "-q") == ""
    error = cli("run", RECIPE, "--runner", "docker", "--json", code=4).json["error"]
    assert "no image agent-environment" in error["message"]
    assert cli("ps", "--all", "--json").json == []
