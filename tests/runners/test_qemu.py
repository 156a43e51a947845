"""Virtual machines from the command line: clones that are machines of their own, checkpoints, what is told of dead ones. Nothing here boots but once."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gymctl import cache, proc, wire
from gymctl.errors import Conflict, IntegrityError, NotFound
from gymctl.runners import qemu, qemu_saved
from gymctl.vm import channel
from tests.conftest import Cli
from tests.runners.qemu_clones import WORDS, clone, handle, plan, record


def told(cli: Cli, name: str, command: str) -> str:
    """What a command of root's in the guest prints."""
    done = qemu.exec(handle(cli, name), ["sh", "-c", command], timeout=60)
    assert done.code == 0, done.stderr
    return done.stdout.strip()


def asked(cli: Cli, name: str, path: str, body: Any = None, token: str | None = None) -> wire.Reply:
    """An answer of the server in the guest."""
    kept = record(cli, name)
    client = wire.Client(kept["handle"]["url"], headers={"Authorization": f"Bearer {token or kept['secrets']['GUEST_TOKEN']}"})
    with contextlib.closing(client):
        return client.send("GET" if body is None else "POST", path, body)


@pytest.fixture
def here(on: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The same, with this process in its folders: for what the command line does not do by itself."""
    for name in ("GYMCTL_STATE_DIR", "GYMCTL_CACHE_DIR", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, on.env[name])
    return on


WHO = (
    "hostname; cat /etc/machine-id /sys/class/net/eth0/address /proc/sys/kernel/random/uuid; "
    "ssh-keyscan -T 60 -t ed25519 127.0.0.1 2>/dev/null | cut -d' ' -f3"  # the key is made at the first connection
)


def test_two_clones_of_one_state_are_two_machines(on: Cli) -> None:
    """Each line of WHO is told by the guest itself."""
    facts = {}
    for name in ("one", "two"):
        before = time.time()
        clone(on, name)
        shown = asked(on, name, "/frame")
        assert float(shown.headers["x-frame-time"]) > before
        assert abs(float(told(on, name, "date +%s.%N")) - time.time()) < 5
        facts[name] = told(on, name, WHO).splitlines()
        assert asked(on, name, "/health").status == 200
    assert len(facts["one"]) == len(facts["two"]) == 5
    for one, two in zip(facts["one"], facts["two"], strict=True):
        assert one
        assert one != two
    assert told(on, "one", "cat /etc/hostname; getent hosts $(hostname) | cut -c1-4").splitlines() == [facts["one"][0], "127."]
    assert asked(on, "one", "/health", token=record(on, "two")["secrets"]["GUEST_TOKEN"]).status == 401
    told(on, "one", "touch /root/canary")
    assert told(on, "two", "ls /root") == ""


def test_reset_is_a_clone_and_nothing_stays(on: Cli) -> None:
    document = clone(on, "box")
    told(on, "box", "touch /home/ga/mark")
    asked(on, "box", "/input", {"keyboard": {"keys_down": ["shift"]}})
    again = on("reset", "box", "--json", timeout=120).json
    assert (again["form"], again["checkpoint"]) == ("clone", "post_start")
    assert on("reset", "box", "--checkpoint", "post_start", "--json", timeout=120).json["form"] == "clone"
    assert told(on, "box", "ls /home/ga/mark || true") == ""
    assert asked(on, "box", "/input", {"mouse": {"move": [10, 10]}}).json()["held"] == []
    (row,) = on("ps", "--json").json
    assert row["url"] == document["url"]
    assert "screen" in on("step", "box", "screenshot", "--json").json["observation"]


def test_four_clones_at_once(on: Cli) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: clone(on, f"n{n}"), range(4)))
    assert {row["status"] for row in on("ps", "--json").json} == {"running"}
    assert len({told(on, f"n{n}", "cat /etc/machine-id") for n in range(4)}) == 4


def test_a_frozen_clock_stays_and_is_told(on: Cli) -> None:
    document = clone(on, "old", "--opt", "clock=frozen")
    assert any("clock stands" in note for note in document["notes"])
    assert time.time() - float(told(on, "old", "date +%s")) > 1


def test_no_secret_leaves_its_place(on: Cli) -> None:
    clone(on, "quiet")
    kept = record(on, "quiet")
    folder = on.state / "instances" / "quiet"
    texts = [Path(f"/proc/{kept['handle']['pid']}/cmdline").read_bytes(), Path(f"/proc/{kept['handle']['pid']}/environ").read_bytes()]
    texts += [path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "instance.json" and path.suffix != ".qcow2"]
    texts.append("\n".join(on("logs", "quiet", "--json").json["lines"]).encode())
    for secret in kept["secrets"].values():
        assert not [text for text in texts if secret.encode() in text]
    assert (folder / "vm" / "argv.json").exists()
    assert kept["handle"]["url"].startswith("http://127.0.0.1:")


def test_without_a_network_it_reaches_nobody_and_is_reached(on: Cli) -> None:
    clone(on, "shut")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        reach = f"python3 -c \"import socket; socket.create_connection(('10.0.2.2', {port}), 20)\" 2>&1 || echo no"
        assert told(on, "shut", reach).endswith("no")
        clone(on, "open", "--opt", "network=true")
        assert told(on, "open", reach) == ""
    assert asked(on, "shut", "/health").status == 200


def test_vnc_asks_for_the_password(on: Cli) -> None:
    clone(on, "seen")
    with socket.create_connection(("127.0.0.1", handle(on, "seen")["ports"]["5900"]), 5) as link:
        assert link.recv(12).startswith(b"RFB 003")
        link.sendall(b"RFB 003.008\n")
        assert link.recv(2) == b"\x01\x02"  # one kind of security: VNC's password
        link.sendall(b"\x02")
        assert len(link.recv(16)) == 16


def test_commands_and_logs(on: Cli) -> None:
    clone(on, "talk")
    its = handle(on, "talk")
    done = qemu.exec(its, ["sh", "-c", "cat; id -u; exit 3"], input="hello ", timeout=30)
    assert (done.code, done.stdout) == (3, "hello 0\n")
    began = time.monotonic()
    slow = qemu.exec(its, ["sleep", "60"], timeout=1)
    assert slow.timed_out
    assert time.monotonic() - began < 10
    assert qemu.exec(its, ["no-such-program"], timeout=30).code == 127
    assert isinstance(on("logs", "talk", "--json").json["lines"], list)


def test_a_panic_is_seen_in_a_second_with_its_last_lines(on: Cli) -> None:
    clone(on, "sick")
    its = handle(on, "sick")
    os.kill(its["pid"], 0)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: channel.ask(Path(its["runtime"]) / "channel", "run", timeout=5, argv=["sh", "-c", "echo c > /proc/sysrq-trigger"], seconds=5))
        deadline = time.monotonic() + 30
        while "Kernel panic" not in "".join(qemu.logs(its)):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        began = time.monotonic()
        (row,) = on("ps", "--json").json
        assert time.monotonic() - began < 1.5  # a command's start included
    assert row["status"] == "panicked"
    assert "Kernel panic" in row["detail"]


def test_a_killed_machine_is_told_of_and_leaves_nothing(on: Cli) -> None:
    clone(on, "dead")
    its = handle(on, "dead")
    os.kill(its["pid"], signal.SIGKILL)
    proc.wait_gone(proc.Process(its["pid"], its["started"]), 5)
    (row,) = on("ps", "--json").json
    assert row["status"] == "exited"
    error = on("step", "dead", "screenshot", "--json", code=5).json["error"]
    assert "no longer running" in error["message"]
    on("stop", "dead")
    assert not Path(its["runtime"]).exists()
    assert not Path(its["directory"]).exists()


def test_an_unrecorded_machine_is_found_and_ended(on: Cli) -> None:
    clone(on, "lost")
    its = handle(on, "lost")
    (on.state / "instances" / "lost" / "instance.json").unlink()
    (row,) = on("ps", "--all", "--json").json
    assert (row["status"], row["url"]) == ("orphaned", its["url"])
    on("stop", "lost")
    assert not proc.alive(proc.Process(its["pid"], its["started"]))


def test_a_taken_port_is_told_at_once(on: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = str(holder.getsockname()[1])
        words = ["run", "linux-desktop", "--checkpoint", "post_start", "--port", port, "--json"]
        error = on(*words, code=7).json["error"]
    assert port in error["message"]
    assert "pid" in error["message"]
    assert on("ps", "--all", "--json").json == []


def test_another_machine_is_refused_with_the_field_that_differs(here: Cli) -> None:
    clone(here, "like")
    key = next(iter(qemu.memory_checkpoints()))
    for options, said in (({"cpus": 4}, "cpus was 2, and is 4"), ({"memory": "1g"}, "mem_mb was 2048"), ({"resolution": "800x600"}, "width was 1280")):
        with pytest.raises(IntegrityError, match=said):
            qemu.restore_memory(plan(here, "like", **options), key)
    other = plan(here, "like")
    object.__setattr__(other, "image", {**other.image, "digest": "sha256:another"})
    with pytest.raises(IntegrityError, match="its base was sha256"):
        qemu.restore_memory(other, key)
    object.__setattr__(other, "image", {**record(here, "like")["plan"]["image"], "disk": "/nonexistent/moved.qcow2"})
    with pytest.raises(NotFound, match=r"moved\.qcow2"):
        qemu.restore_memory(other, key)
    with pytest.raises(NotFound, match="no memory checkpoint"):
        qemu.restore_memory(plan(here, "like"), "unheard-of")


def test_a_clone_is_saved_again_by_ten_at_once_and_kept_while_in_use(here: Cli) -> None:
    """Its memory is its own, so a twin is made of it; disk and memory are of one moment."""
    clone(here, "source")
    its = handle(here, "source")
    told(here, "source", "echo kept > /root/kept; mkdir -p /run/mark; echo 4711 > /run/mark/memory")
    key = f"again-{time.time()}"
    with ThreadPoolExecutor(10) as pool:
        list(pool.map(lambda _: qemu.save_memory(its, key), range(10)))
    assert len([1 for row in cache.entries() for use in row["used_by"] if use.get("checkpoint") == key]) == 1
    told(here, "source", "echo more > /root/kept")  # it goes on, on a new overlay
    second = qemu.restore_memory(plan(here, "source"), key)
    try:
        done = qemu.exec(second, ["cat", "/root/kept", "/run/mark/memory"], timeout=30)
        assert done.stdout == "kept\n4711\n"
        with pytest.raises(Conflict, match="in use by pid"):
            qemu.drop_memory(key)
    finally:
        qemu.stop(second)
    qemu.drop_memory(key)
    qemu.drop_memory(key)
    assert key not in qemu.memory_checkpoints()
    assert told(here, "source", "cat /root/kept") == "more"


def test_a_saved_disk_is_booted_from(here: Cli) -> None:
    """The second boot of these tests."""
    clone(here, "written")
    told(here, "written", "echo on disk > /root/written")
    key = f"disk-{time.time()}"
    qemu.save(handle(here, "written"), key)
    here("stop", "written")
    here("run", "linux-desktop", "--checkpoint", "post_start", "--port", "0", "--name", "written", timeout=120)
    booted = qemu.restore(plan(here, "written"), key)
    try:
        deadline = time.monotonic() + 300
        while True:
            assert qemu.status(booted).state == "running"
            try:
                done = qemu.exec(booted, ["cat", "/root/written"], timeout=5)
                break
            except Exception:
                assert time.monotonic() < deadline
        assert done.stdout == "on disk\n"
    finally:
        qemu.stop(booted)
        qemu.drop(key)


def test_a_machine_is_put_back_in_place(here: Cli) -> None:
    clone(here, "back")
    its = handle(here, "back")
    told(here, "back", "echo before > /root/mark")
    qemu_saved.rewind(its, "here", make=True)
    told(here, "back", "echo after > /root/mark; rm -rf /home/ga/Documents")
    qemu_saved.rewind(its, "here", make=False)
    assert told(here, "back", "cat /root/mark; ls -d /home/ga/Documents").splitlines() == ["before", "/home/ga/Documents"]
    assert asked(here, "back", "/health").status == 200


def test_gymctl_or_qemu_killed_at_any_moment_leaves_nothing(on: Cli, long_count: Callable[[int, int], int]) -> None:
    """Long: `make test LONG=1` does 50 rounds, CI 10. Every third round kills QEMU alone, as soon as there is one."""
    choices = random.Random(4)
    for number in range(long_count(10, 50)):
        child = on.spawn(*WORDS, "--name", "victim", start_new_session=True)
        if number % 3 == 2:
            deadline = time.monotonic() + 60
            while not (pids := on.leftovers()) and child.poll() is None:
                assert time.monotonic() < deadline
            time.sleep(choices.uniform(0, 1))
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        else:
            time.sleep(choices.uniform(0.1, 3))
            child.kill()
        child.communicate(timeout=120)
        rows = on("ps", "--all", "--json").json
        assert bool([row for row in rows if row["status"] in ("running", "orphaned")]) == bool(on.leftovers())
        on("cache", "gc")
        for row in on("ps", "--all", "--json").json:
            on("stop", row["name"])
        assert on.leftovers() == []
        assert list((on.state / "instances").iterdir()) == []
        assert list(Path(on.env["XDG_RUNTIME_DIR"]).glob("gymctl-*")) == []
        assert [path for folder in ("tmp", "locks") for path in (Path(on.env["GYMCTL_CACHE_DIR"]) / folder).glob("*")] == []


def test_who_is_killed_while_it_saves_leaves_no_half_of_it(here: Cli) -> None:
    clone(here, "saver")
    told(here, "saver", "echo kept > /root/kept")
    for delay in (0.3, 1.0, 2.0):
        key = f"half-{delay}-{time.time()}"
        source = f"from gymctl.runners import qemu; qemu.save_memory({handle(here, 'saver')!r}, {key!r})"
        child = subprocess.Popen([sys.executable, "-c", source], env=here.env)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(delay)
        child.kill()
        child.wait()
        here("cache", "gc")
        assert [path for folder in ("tmp", "locks") for path in (Path(here.env["GYMCTL_CACHE_DIR"]) / folder).glob("*")] == []
        qemu.drop_memory(key)  # where it was quick enough
    again = f"whole-{time.time()}"
    qemu.save_memory(handle(here, "saver"), again)
    second = qemu.restore_memory(plan(here, "saver"), again)
    try:
        assert qemu.exec(second, ["cat", "/root/kept"], timeout=30).stdout == "kept\n"
    finally:
        qemu.stop(second)
        qemu.drop_memory(again)
