"""The cache: made once, never half, told when the disk cannot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gymctl import cache
from gymctl.errors import IntegrityError, Unavailable
from tests.conftest import Cli

MAKER = """
import sys, time, pathlib
from gymctl import cache
def make(path):
    with open(sys.argv[2], "a") as file:
        file.write("made\\n")
    time.sleep(0.3)
    path.write_bytes(b"x" * 100_000)
print(cache.get_or_make(sys.argv[1], make))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GYMCTL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def files(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def test_an_object_is_named_by_its_bytes_and_cannot_be_written(folder: Path) -> None:
    path = cache.get_or_make("k", lambda p: p.write_bytes(b"hello"))  # type: ignore[arg-type]
    assert path.name == "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    assert path.stat().st_mode & 0o777 == 0o444
    assert cache.get_or_make("k", lambda p: pytest.fail("made again")) == path
    assert (folder / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")


def test_ten_processes_make_it_once(tmp_path: Path) -> None:
    count = tmp_path / "count"
    makers = [subprocess.Popen([sys.executable, "-c", MAKER, "key", str(count)], stdout=subprocess.PIPE, text=True) for _ in range(10)]
    printed = {m.communicate(timeout=60)[0] for m in makers}
    assert len(printed) == 1
    assert count.read_text() == "made\n"


def test_without_locks_makers_agree(tmp_path: Path, folder: Path) -> None:
    broken = "import fcntl, errno\ndef flock(*a): raise OSError(errno.ENOSYS, 'no locks here')\nfcntl.flock = flock\n"
    makers = [subprocess.Popen([sys.executable, "-c", broken + MAKER, "key", str(tmp_path / "c")], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    printed = {m.communicate(timeout=60)[0] for m in makers}
    assert len(printed) == 1
    assert cache.verify() == []


def test_a_killed_maker_leaves_what_gc_removes(tmp_path: Path, folder: Path) -> None:
    slow = MAKER.replace("time.sleep(0.3)", "path.write_bytes(b'half'); print('ready', flush=True); time.sleep(60)")
    maker = subprocess.Popen([sys.executable, "-c", slow, "key", str(tmp_path / "c")], stdout=subprocess.PIPE, text=True)
    assert maker.stdout
    assert maker.stdout.readline() == "ready\n"
    cache.gc()
    assert any(name.startswith("tmp/") for name in files(folder)), "gc took a living maker's file"
    maker.kill()
    maker.wait()
    maker.stdout.close()
    assert cache.lookup("key") is None
    made = cache.get_or_make("key", lambda p: p.write_bytes(b"whole"))  # type: ignore[arg-type]
    assert made.read_bytes() == b"whole"
    cache.gc()
    assert files(folder) == {"CACHEDIR.TAG", f"objects/{made.name}", "keys/key.json"}


def test_a_failing_maker_leaves_nothing(folder: Path) -> None:
    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cache.get_or_make("key", fail)
    assert not [name for name in files(folder) if name.startswith(("tmp/", "objects/", "keys/"))]


def test_a_changed_object_is_found(cli: Cli, folder: Path) -> None:
    path = cache.get_or_make("k", lambda p: p.write_bytes(b"hello"))  # type: ignore[arg-type]
    cache.check(path)
    path.chmod(0o644)
    path.write_bytes(b"hellO")
    with pytest.raises(IntegrityError, match=path.name):
        cache.check(path)
    done = cli("cache", "verify", "--json", code=10, env={"GYMCTL_CACHE_DIR": str(folder)})
    assert path.name in done.json["error"]["message"]


def test_keys_depend_on_every_input_and_not_on_order() -> None:
    assert cache.key(a=1, b="x") == cache.key(b="x", a=1)
    assert len({cache.key(a=1), cache.key(a="1"), cache.key(a=1.5), cache.key(b=1)}) == 4


def test_a_tree_is_kept_under_its_key(folder: Path) -> None:
    def make(path: Path) -> None:
        path.mkdir()
        (path / "file").write_text("x")

    tree = cache.get_or_make("t", make)
    assert (tree / "file").read_text() == "x"
    assert cache.entries()[0]["used_by"] == [{"key": "t"}]
    assert cache.gc(everything=True)[0]["path"] == str(tree)
    assert not tree.exists()


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Path:
    """A file system of 256 KiB; only root can mount one."""
    mount = tmp_path / "tiny"
    mount.mkdir()
    if os.getuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(mount)], check=False, capture_output=True).returncode:
        pytest.skip("tmpfs cannot be mounted here")
    return mount


def test_a_full_disk_is_said_and_leaves_nothing(tiny_disk: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    try:
        monkeypatch.setenv("GYMCTL_CACHE_DIR", str(tiny_disk))
        big = tiny_disk.parent / "big"
        big.write_bytes(b"x" * 1_000_000)
        with pytest.raises(Unavailable, match="MiB are needed") as caught:
            cache.add(big, cache.digest(big))
        assert "cache gc" in caught.value.hint
        assert not list(tiny_disk.glob("tmp/*"))
        (tiny_disk / "fill").write_bytes(b"x" * (os.statvfs(tiny_disk).f_bavail * os.statvfs(tiny_disk).f_frsize))
        done = cli("run", "agent-environment", "--runner", "local", "--json", code=5, env={"GYMCTL_STATE_DIR": str(tiny_disk / "state")})
        assert "No space left" in done.json["error"]["message"]
    finally:
        subprocess.run(["umount", str(tiny_disk)], check=True)


def test_a_read_only_cache_is_said(tmp_path: Path, cli: Cli) -> None:
    mount = tmp_path / "ro"
    mount.mkdir()
    if os.getuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(mount)], check=False, capture_output=True).returncode:
        pytest.skip("tmpfs cannot be mounted here")
    try:
        done = cli("cache", "ls", "--json", code=5, env={"GYMCTL_CACHE_DIR": str(mount / "cache")})
        assert "Read-only file system" in done.json["error"]["message"]
        assert "GYMCTL_CACHE_DIR" in done.json["error"]["hint"]
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_the_commands(cli: Cli, folder: Path) -> None:
    env = {"GYMCTL_CACHE_DIR": str(folder)}
    assert cli("cache", "ls", env=env).err.endswith("the cache is empty\n")
    cache.get_or_make("k", lambda p: p.write_bytes(b"hello"), note={"what": "a greeting"})  # type: ignore[arg-type]
    assert "a greeting" in cli("cache", "ls", env=env).out
    assert cli("cache", "ls", "--json", env=env).json[0]["bytes"] == 5
    assert cli("cache", "verify", "--json", env=env).json == {"damaged": []}
    assert cli("cache", "gc", "--json", env=env).json["removed"] == []
    assert json.loads(cli("cache", "gc", "--all", "--json", env=env).out)["bytes"] == 5
