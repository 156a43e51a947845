"""Everything as an ordinary user: no root, no group of Docker's, a home directory of its own."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import RECIPE, ROOT, Cli, Done, lacking

NOBODY = 65534
NEEDED = (ROOT, Path(sys.prefix), Path(sys.base_prefix))


def first_closed(path: Path) -> Path | None:
    """The first directory on the way to a path that other users may not enter."""
    return next((p for p in [*reversed(path.parents), path] if not p.stat().st_mode & 0o001), None)


def opening() -> str:
    """Shell lines for a mount namespace of one's own in which the checkout and this Python can be reached: root's home is closed to others."""
    closed = {path: way for path in NEEDED if (way := first_closed(path))}
    lines = ["mount --rbind / $KEEP"]
    lines += [f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(str(way))}" for way in dict.fromkeys(closed.values())]
    for path in map(shlex.quote, map(str, closed)):
        lines.append(f"test -e {path}/bin || {{ mkdir -p {path} && mount --bind -o ro $KEEP{path} {path}; }}")
    return "\n".join(lines) if closed else ":"


class User(Cli):
    """gymctl as a user without any right; state and cache are where it finds them by itself, under HOME."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.env = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(folder), "KEEP": f"{folder}.keep", "PYTHONPATH": str(ROOT)}
        self.env |= {k: os.environ[k] for k in ("DOCKER_HOST",) if k in os.environ}

    def argv(self, *words: str) -> list[str]:
        become = shlex.join(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", sys.executable, "-m", "gymctl", *words])
        return ["unshare", "--mount", "sh", "-ec", f"{opening()}\nunset KEEP\nexec {become}"]

    @property
    def state(self) -> Path:
        return self.folder / ".local/state/gymctl"


@pytest.fixture
def user() -> Iterator[User]:
    """An ordinary user with an empty home."""
    if os.geteuid() != 0:
        lacking("user", "only root can become another user; who runs these tests is one already")
    if not shutil.which("setpriv") or not shutil.which("unshare"):
        lacking("user", "there is no setpriv or unshare (util-linux)")
    home = Path(tempfile.mkdtemp(prefix="gymctl-user-"))
    Path(f"{home}.keep").mkdir()
    os.chown(home, NOBODY, NOBODY)
    made = User(home)
    tried = subprocess.run(made.argv("--version"), env=made.env, cwd=home, capture_output=True, text=True, check=False)
    if tried.returncode:
        lacking("user", tried.stderr)
    yield made
    made.close()
    shutil.rmtree(home)
    Path(f"{home}.keep").rmdir()


def owners(folder: Path) -> set[int]:
    return {p.lstat().st_uid for p in [folder, *folder.rglob("*")]}


def test_a_life_on_local_processes(user: User) -> None:
    passed = user("run", RECIPE, "--runner", "local", "--task", "move-standup", "--agent", "oracle", "--rm", "--json").json
    assert passed["verdict"] == "passed"
    assert Path(passed["dir"]).is_relative_to(user.folder)
    user("run", RECIPE, "--runner", "local", "--port", "0")
    (row,) = user("ps", "--json").json
    assert row["status"] == "running"
    (pid,) = user.leftovers()
    assert Path(f"/proc/{pid}").stat().st_uid == NOBODY
    user("step", RECIPE, "email_search", "query=stand-up")
    user("logs", RECIPE, "--bundle", "report.zip")
    user("stop", RECIPE)
    assert user("ps", "--all", "--json").json == []
    assert user.leftovers() == []
    user("cache", "gc")
    assert owners(user.folder) == {NOBODY}


def test_what_it_makes_is_its_own(user: User) -> None:
    user("run", RECIPE, "--runner", "local", "--port", "0")
    folder = user.state / "instances" / RECIPE
    assert (folder.stat().st_mode & 0o777, (folder / "instance.json").stat().st_mode & 0o777) == (0o700, 0o600)


def test_doctor(user: User) -> None:
    report = user("doctor", "local", "--json").json
    assert report["runners"]["local"]["usable"]
    assert all(finding["ok"] is True for finding in report["host"] if not finding["what"].endswith("space"))
    assert "CAP_" not in json.dumps(report)


def test_a_port_of_root_s(user: User) -> None:
    done: Done = user("run", RECIPE, "--runner", "local", "--port", "80", code=None)
    start = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
    if start > 80:
        assert (done.code, "only be opened by root" in done.err, "--port 0" in done.err) == (5, True, True)


@pytest.mark.parametrize("verb", [["run", RECIPE, "--runner", "docker"], ["doctor", "docker"]])
def test_docker_is_not_permitted(user: User, verb: list[str]) -> None:
    """The socket of an engine that this user may not open: which one, whose, and how to join."""
    path = Path(f"{user.folder}.sock")
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(path))
        engine.listen()
        path.chmod(0o660)
        os.chown(path, 0, 4)
        user.env["DOCKER_HOST"] = f"unix://{path}"
        try:
            done = user(*verb, code=5 if verb[0] == "run" else 1)
        finally:
            path.unlink()
    assert f"may not open the Docker engine's socket {path} (group adm)" in done.err + done.out
    assert "sudo usermod -aG adm $USER" in done.err + done.out
    assert user("ps", "--json").json == []


def test_docker_is_passed_over(user: User) -> None:
    user.env["DOCKER_HOST"] = "unix:///proc/1/docker.sock"
    document = user("run", RECIPE, "--port", "0", "--json").json
    assert document["runner"] == "local"
    assert any(note.startswith("docker passed over") for note in document["notes"])


def test_a_real_engine(user: User, docker_host: str) -> None:
    """The engine of the tests, which root runs: this user is not let in, whatever stands in the way."""
    user.env["DOCKER_HOST"] = docker_host
    done = user("run", RECIPE, "--runner", "docker", code=5)
    assert "may not" in done.err
    assert docker_host.removeprefix("unix://") in done.err


def test_a_website_is_acted_on_in_a_sandboxed_browser(user: User) -> None:
    from gymctl.browser import client

    missing = client.lacking()
    if missing:
        lacking("browser", missing.message)
    user("run", str(ROOT / "tests/fakes/site"), "--runner", "local", "--port", "0")
    done = user("step", "site", "goto", "/second", "--json", code=None)
    assert done.code == 0, done.err
    assert done.json["observation"]["title"] == "Second"
    commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in user.leftovers()]
    assert [command for command in commands if b"--remote-debugging-pipe" in command]
    assert not [command for command in commands if b"--no-sandbox" in command]
    user("stop", "site")
    assert user.leftovers() == []
