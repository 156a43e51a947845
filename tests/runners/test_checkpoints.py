"""Docker's checkpoints and files, and local's files, on real ones: whole or not at all, without secrets, never out of what was asked for."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from docker.errors import ImageNotFound

from gymctl import paths, trees
from gymctl.errors import Conflict, IntegrityError, NotFound, StartError, UsageError
from gymctl.runner import Files, Handle, Plan
from gymctl.runners import docker as runner
from gymctl.runners import docker_checkpoints, docker_engine, local
from tests.engine import docker_call

SECRET = "s3cret-GUEST-token-4711-0815"
PASSWORD = "vnc-p455"


@pytest.fixture
def plan(docker: str, python_image: str, tmp_path: Path) -> Iterator[Plan]:
    """A plan for a container that serves files on port 8000, and has secrets; no checkpoint stays in the engine."""
    yield Plan(
        name="x", label=f"{paths.state_id()}/x", directory=tmp_path, format="oci", image={"ref": python_image}, port=8000, env={"A": "1"},
        secrets={"GUEST_TOKEN": SECRET, "VNC_PASSWORD": PASSWORD}, mem_gb=0.25, cpus=1,
    )  # fmt: skip
    for handle in runner.find().values():
        runner.stop(handle)
    for key in runner.checkpoints():
        runner.drop(key)
    assert images() == []


@pytest.fixture
def container(plan: Plan) -> Iterator[Handle]:
    """It, started, with a file that its image has not."""
    handle = runner.start(plan)
    assert runner.exec(handle, ["sh", "-c", "mkdir /kept && echo one > /kept/file && chmod 640 /kept/file"]).code == 0
    yield handle
    runner.stop(handle)


def images() -> list[str]:
    """References of this cache's checkpoints in the engine, the half-made too."""
    api = docker_engine.client()
    listed = [ref for name in ("gymctl-checkpoint", "gymctl-checkpoint-making") for row in api.images(name=name) for ref in row["RepoTags"] or ()]
    return sorted(ref for ref in listed if f":{paths.cache_id()}-" in ref)


def made_of(handle: Handle) -> list[str]:
    """The ids of all images in the engine, nameless ones too, that were made of a container or are this cache's."""
    api, found = docker_engine.client(), []
    for row in api.images(all=True):
        with contextlib.suppress(ImageNotFound):  # others use the engine too
            about = json.dumps(docker_engine.image(api, row["Id"]))
            found += [row["Id"]] if handle["container"] in about or f"{paths.cache_id()}/" in about else []
    return found


KEY = "0123456789abcdef" * 4
OTHER = "fedcba9876543210" * 4


def test_a_disk_comes_back_in_another_container_of_the_same_limits(docker: str, plan: Plan, container: Handle) -> None:
    runner.save(container, KEY)
    assert runner.status(container).state == "running", "it goes on"
    assert runner.exec(container, ["sh", "-c", "echo two > /kept/file"]).code == 0
    assert list(runner.checkpoints()) == [KEY]
    assert "disk of x: " in runner.checkpoints()[KEY]
    again = runner.restore(replace(plan, name="y", label=plan.label.replace("/x", "/y"), secrets={"GUEST_TOKEN": "another-one"}), KEY)
    assert runner.exec(again, ["cat", "/kept/file"]).stdout == "one\n"
    assert runner.exec(again, ["stat", "-c", "%a", "/kept/file"]).stdout == "640\n"
    before, after = (json.loads(docker_call(docker, "inspect", handle["container"]))[0] for handle in (container, again))
    for limit in ("Memory", "MemorySwap", "NanoCpus", "NetworkMode", "CapDrop", "Tmpfs"):
        assert before["HostConfig"][limit] == after["HostConfig"][limit]
    assert "GUEST_TOKEN=another-one" in after["Config"]["Env"]
    assert SECRET not in json.dumps(after)
    assert after["Config"]["Cmd"] == before["Config"]["Cmd"]
    assert again["url"] != container["url"]
    with pytest.raises(NotFound, match="no longer there"):
        runner.restore(plan, OTHER)


def test_no_secret_is_in_a_checkpoint(docker: str, container: Handle, tmp_path: Path) -> None:
    """Neither in what the engine says of it nor in its bytes; nor in what it was made of, which is gone."""
    runner.save(container, KEY)
    assert len(made_of(container)) == 1
    (reference,) = images()
    shown = docker_call(docker, "inspect", reference) + docker_call(docker, "history", "--no-trunc", reference)
    archive = tmp_path / "saved.tar"
    docker_call(docker, "save", "-o", str(archive), reference)
    for secret in (SECRET, PASSWORD):
        assert secret not in shown
        assert secret.encode() not in archive.read_bytes()
    assert "A=1" in shown, "what is no secret stays"


def test_a_checkpoint_that_would_keep_a_secret_is_refused(container: Handle, monkeypatch: pytest.MonkeyPatch) -> None:
    def leaking(made: dict[str, Any], config: dict[str, Any], reference: str) -> bytes:
        return real(made, {**config, "Env": [f"GUEST_TOKEN={SECRET}"]}, reference)

    real = docker_checkpoints._archive
    monkeypatch.setattr(docker_checkpoints, "_archive", leaking)
    with pytest.raises(StartError, match="secrets"):
        runner.save(container, KEY)
    assert images() == []
    assert runner.checkpoints() == {}


SAVE = "import json, sys\nfrom gymctl.runners import docker\ndocker.save(json.loads(sys.argv[1]), sys.argv[2])"


def saving(handle: Handle, key: str, source: str = SAVE) -> subprocess.Popen[bytes]:
    """A process that keeps a checkpoint."""
    return subprocess.Popen([sys.executable, "-c", source, json.dumps(handle), key])


def test_ten_makers_at_once_make_one(docker: str, container: Handle) -> None:
    # Listened to while it happens: the engine remembers its last 256 events only, those of others too.
    argv = ["docker", "events", "--filter", "event=commit", "--filter", f"container={container['container']}"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env={**os.environ, "DOCKER_HOST": docker}) as events:
        makers = [saving(container, KEY) for _ in range(10)]
        assert [maker.wait(120) for maker in makers] == [0] * 10
        events.terminate()
        commits = events.communicate()[0]
    assert len(images()) == 1
    assert len(made_of(container)) == 1, "nothing nameless is left of the others"
    assert len(commits.splitlines()) == 1


KILLED = """
import json, os, signal, sys
from gymctl.runners import docker, docker_checkpoints
real = docker_checkpoints.{name}
def dies(*given, **more):
    if {after}: real(*given, **more)
    os.kill(os.getpid(), signal.SIGKILL)
docker_checkpoints.{name} = dies
docker.save(json.loads(sys.argv[1]), sys.argv[2])
"""


MIDDLE = [("_publish", False, False), ("_publish", True, True), ("_archive", False, False), ("_discard", False, True)]


@pytest.mark.parametrize(("name", "after", "there"), MIDDLE)
def test_a_killed_maker_leaves_nothing_half_made(container: Handle, name: str, after: bool, there: bool) -> None:
    maker = saving(container, KEY, KILLED.format(name=name, after=after))
    assert maker.wait(60) == -signal.SIGKILL
    assert any("-making:" in ref for ref in images()), "or the test kills at the wrong moment"
    assert (KEY in runner.checkpoints()) == there
    assert [gone for gone in runner.tidy() if "half-made" in gone]
    assert len(images()) == there
    runner.save(container, KEY)
    assert list(runner.checkpoints()) == [KEY]


def test_one_at_work_is_not_tidied_away(container: Handle) -> None:
    """A maker that stands still in the middle keeps its commit."""
    stands = "print('there', flush=True); sys.stdin.read(); real(*given)"
    waits = KILLED.format(name="_publish", after=False).replace("os.kill(os.getpid(), signal.SIGKILL)", stands)
    maker = subprocess.Popen([sys.executable, "-c", waits, json.dumps(container), KEY], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert maker.stdout is not None
    assert maker.stdout.readline() == b"there\n"
    runner.tidy()
    assert len(images()) == 1
    maker.communicate()
    assert maker.returncode == 0
    assert list(runner.checkpoints()) == [KEY]


def test_interrupted_in_the_middle_of_a_commit(container: Handle) -> None:
    """INT, once while the engine works: it is waited for, and its work removed."""
    assert runner.exec(container, ["sh", "-c", "head -c 300000000 /dev/urandom > /kept/large"], timeout=120).code == 0
    source = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n" + SAVE
    maker = saving(container, KEY, source)
    api = docker_engine.client()
    deadline = time.monotonic() + 60
    while not api.inspect_container(container["container"])["State"]["Paused"]:
        assert maker.poll() is None
        assert time.monotonic() < deadline
    maker.send_signal(signal.SIGINT)
    assert maker.wait(120) != 0
    assert images() == []
    assert runner.status(container).state == "running"
    assert api.inspect_container(container["container"])["State"]["Paused"] is False


def test_one_in_use_stays(plan: Plan, container: Handle) -> None:
    runner.save(container, KEY)
    user = runner.restore(replace(plan, name="y", label=plan.label.replace("/x", "/y")), KEY)
    with pytest.raises(Conflict, match="in use by y"):
        runner.drop(KEY)
    runner.stop(user)
    runner.drop(KEY)
    runner.drop(KEY)
    assert images() == []


def test_two_caches_do_not_see_each_others(container: Handle, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runner.save(container, KEY)
    with monkeypatch.context() as other:
        other.setenv("GYMCTL_CACHE_DIR", str(tmp_path / "other"))
        assert runner.checkpoints() == {}
        runner.drop(KEY)
        assert not [gone for gone in runner.tidy() if "checkpoint" in gone]
    assert list(runner.checkpoints()) == [KEY]


def test_an_image_that_only_has_the_name_is_refused(docker: str, plan: Plan, python_image: str) -> None:
    reference = f"gymctl-checkpoint:{paths.cache_id()}-{KEY[:32]}"
    docker_call(docker, "tag", python_image, reference)
    with pytest.raises(IntegrityError, match="is not the checkpoint"):
        runner.restore(plan, KEY)
    docker_call(docker, "rmi", reference)


# Files


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with modes, links, an empty folder, odd names, and a file larger than a chunk."""
    made = tmp_path / "tree"
    (made / "deep/er").mkdir(parents=True)
    (made / "empty").mkdir(mode=0o750)
    (made / "run.sh").write_text("#!/bin/sh\n")
    (made / "run.sh").chmod(0o755)
    (made / "deep/private").write_bytes(bytes(range(256)))
    (made / "deep/private").chmod(0o600)
    (made / "deep/er/large").write_bytes(os.urandom((3 << 20) + 17))
    (made / "ü ' \" \\ $x").write_text("odd")
    (made / ("n" * 200)).write_text("long")
    (made / "link").symlink_to("deep/private")
    (made / "deep/up").symlink_to("../run.sh")
    (made / "dangling").symlink_to("nowhere")
    (made / "deep").chmod(0o555)
    return made


def seen(root: Path) -> dict[str, tuple[int, bytes | str]]:
    """{path: (mode, content or target)} of a tree."""
    found: dict[str, tuple[int, bytes | str]] = {}
    for relative, path, entry in trees.entries(root):
        content = os.readlink(path) if stat.S_ISLNK(entry.st_mode) else path.read_bytes() if path.is_file() else b""
        found[relative] = (0 if stat.S_ISLNK(entry.st_mode) else entry.st_mode, content)
    return found


@pytest.fixture(params=["docker", "local"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, Handle, str]:
    """(runner, handle, a folder that is there) on each."""
    if request.param == "docker":
        return runner, request.getfixturevalue("container"), "/kept"
    home = tmp_path / "instance/data/home"
    (home / "kept").mkdir(parents=True)
    return local, {"home": str(home)}, "kept"


def test_trees_go_in_and_out_as_they_are(place: tuple[Files, Handle, str], tree: Path, tmp_path: Path) -> None:
    files, handle, folder = place
    files.put(handle, tree, f"{folder}/new/er/tree")
    files.get(handle, f"{folder}/new/er/tree", tmp_path / "back/tree")
    assert seen(tmp_path / "back/tree") == seen(tree)
    assert len(seen(tree)) == 12
    assert int((tmp_path / "back/tree/run.sh").stat().st_mtime) == int((tree / "run.sh").stat().st_mtime)


def test_a_file_goes_in_and_out(place: tuple[Files, Handle, str], tree: Path, tmp_path: Path) -> None:
    files, handle, folder = place
    files.put(handle, tree / "run.sh", f"{folder}/run.sh")
    files.put(handle, tree / "link", f"{folder}/run.sh")
    files.get(handle, f"{folder}/run.sh", tmp_path / "back")
    files.get(handle, f"{folder}/run.sh", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == bytes(range(256)), "a link is followed where it was named itself"
    assert stat.S_IMODE((tmp_path / "back").stat().st_mode) == 0o600
    with pytest.raises(Conflict, match="there already"):
        files.put(handle, tree / "run.sh", folder)
    with pytest.raises(Conflict, match="there already"):
        files.put(handle, tree, f"{folder}/run.sh")
    with pytest.raises(NotFound, match="there is no"):
        files.put(handle, tmp_path / "missing", f"{folder}/missing")
    with pytest.raises(NotFound, match="there is no"):
        files.get(handle, f"{folder}/missing", tmp_path / "missing")
    with pytest.raises(Conflict, match="there already"):
        files.get(handle, f"{folder}/run.sh", tree)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".gymctl")]


def test_no_link_of_a_tree_leads_out_on_the_way_in(place: tuple[Files, Handle, str], tmp_path: Path) -> None:
    files, handle, folder = place
    for number, target in enumerate(("/etc/passwd", "../outside", "deep/../../outside")):
        source = tmp_path / f"source{number}"
        (source / "deep").mkdir(parents=True)
        (source / "link").symlink_to(target)
        with pytest.raises(UsageError, match="is a link to"):
            files.put(handle, source, f"{folder}/taken{number}")
        with pytest.raises(NotFound):
            files.get(handle, f"{folder}/taken{number}", tmp_path / "back")


def test_what_is_no_file_is_refused(place: tuple[Files, Handle, str], tmp_path: Path) -> None:
    files, handle, folder = place
    (tmp_path / "source").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(tmp_path / "source")
        server.bind("socket")
        with pytest.raises(UsageError, match="no file, folder or link"):
            files.put(handle, tmp_path / "source", f"{folder}/taken")
    (tmp_path / "source/socket").unlink()
    os.mkfifo(tmp_path / "source/pipe")
    with pytest.raises(UsageError, match="no file, folder or link"):
        files.put(handle, tmp_path / "source", f"{folder}/taken")


def test_what_is_put_belongs_to_whom_the_folder_does(container: Handle, tree: Path) -> None:
    assert runner.exec(container, ["sh", "-c", "mkdir -p /home/ga && chown 1000:1001 /home/ga"]).code == 0
    runner.put(container, tree, "/home/ga/gone/tree")  # none of what the engine says of a missing path is read out of its name
    walk = "import os, pathlib\nfor p in [pathlib.Path('/home/ga'), *pathlib.Path('/home/ga').rglob('*')]:\n    print(f'{p.lstat().st_uid}:{p.lstat().st_gid}')"
    listed = runner.exec(container, ["python3", "-c", walk]).stdout.split()
    assert set(listed) == {"1000:1001"}
    assert len(listed) == 2 + 12
    with pytest.raises(UsageError, match="absolute path"):
        runner.put(container, tree, "tree")


def test_links_in_a_container_lead_nowhere_else(container: Handle, tmp_path: Path, tree: Path) -> None:
    script = "mkdir /out && ln -s /etc/passwd /out/absolute && mkdir /far && mkdir /up && ln -s ../../x /up/link && ln -s /kept /named && mkfifo /far/pipe"
    assert runner.exec(container, ["sh", "-c", script]).code == 0
    for folder, says in (("/out", "leads outside"), ("/up", "leads outside"), ("/far", "no file, folder or link")):
        with pytest.raises(IntegrityError, match=says):
            runner.get(container, folder, tmp_path / "back")
        assert not os.path.lexists(tmp_path / "back"), "whole or not at all"
    runner.get(container, "/named", tmp_path / "kept")
    assert (tmp_path / "kept/file").read_text() == "one\n"
    runner.put(container, tree / "run.sh", "/named/through")
    assert runner.exec(container, ["ls", "/kept/through"]).code == 0, "a link inside the container is the container's"
    runner.stop(container)
    with pytest.raises(NotFound, match="container is gone"):
        runner.get(container, "/kept", tmp_path / "back")
    with pytest.raises(NotFound, match="container is gone"):
        runner.put(container, tree, "/kept/tree")


def member(name: str, kind: bytes = tarfile.REGTYPE, **more: Any) -> tuple[tarfile.TarInfo, bytes]:
    made = tarfile.TarInfo(name)
    made.type = kind
    content = more.pop("content", b"")
    made.size = len(content)
    for field, value in more.items():
        setattr(made, field, value)
    return made, content


DIRECTORY = member("root", tarfile.DIRTYPE, mode=0o755)
HOSTILE: dict[str, list[tuple[tarfile.TarInfo, bytes]]] = {
    "a name above": [DIRECTORY, member("root/../../evil", content=b"x")],
    "an absolute name": [DIRECTORY, member("/evil", content=b"x")],
    "another root": [DIRECTORY, member("other", content=b"x")],
    "a link up": [DIRECTORY, member("root/link", tarfile.SYMTYPE, linkname="../evil")],
    "an absolute link": [DIRECTORY, member("root/link", tarfile.SYMTYPE, linkname="/etc")],
    "the root a link": [member("root", tarfile.SYMTYPE, linkname="/etc")],
    "a hard link out": [DIRECTORY, member("root/link", tarfile.LNKTYPE, linkname="/etc/passwd")],
    "a hard link to nothing": [DIRECTORY, member("root/link", tarfile.LNKTYPE, linkname="root/later")],
    "a device": [DIRECTORY, member("root/dev", tarfile.CHRTYPE)],
    "nothing": [],
}


def packed(members: list[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for entry, content in members:
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_archive_writes_nothing(what: str, tmp_path: Path) -> None:
    with pytest.raises(IntegrityError):
        trees.unpacked([packed(HOSTILE[what])], tmp_path / "in/copy")
    assert [path for path in tmp_path.rglob("*") if path != tmp_path / "in"] == []


def test_nothing_is_written_through_a_link_of_the_archive(tmp_path: Path) -> None:
    """A link that stays inside, and then a member below it: it is refused, or lies where the link stands."""
    inside = member("root/link", tarfile.SYMTYPE, linkname="a")
    members = [DIRECTORY, member("root/a", tarfile.DIRTYPE, mode=0o755), inside, member("root/link/file", content=b"x")]
    with pytest.raises(IntegrityError, match="has no place"):
        trees.unpacked([packed(members)], tmp_path / "in/copy")
    assert not (tmp_path / "in/copy").exists()


@pytest.mark.parametrize("cut", [100, 512, 700, 1500, 3072, 3100, 4000])
def test_a_stream_that_breaks_off_is_no_copy(cut: int, tmp_path: Path) -> None:
    whole = packed([DIRECTORY, member("root/file", content=os.urandom(2000))])
    with pytest.raises(IntegrityError):
        trees.unpacked([whole[:cut]], tmp_path / "in/copy")
    assert not (tmp_path / "in/copy").exists()


def test_local_knows_only_the_instances_home(tmp_path: Path, tree: Path) -> None:
    home = tmp_path / "instance/data/home"
    handle: Handle = {"home": str(home)}
    outside = tmp_path / "outside"
    outside.write_text("mine")
    local.put(handle, tree / "run.sh", "~/Documents/run.sh")
    assert (home / "Documents/run.sh").exists()
    local.put(handle, tree / "run.sh", str(home / "absolute.sh"))
    (home / "door").symlink_to(tmp_path)
    actions: list[Callable[[], None]] = [
        lambda: local.put(handle, tree / "run.sh", str(outside)),
        lambda: local.put(handle, tree / "run.sh", "../outside"),
        lambda: local.put(handle, tree / "run.sh", "door/outside"),
        lambda: local.get(handle, "door/outside", tmp_path / "back"),
        lambda: local.get(handle, "/etc/passwd", tmp_path / "back"),
        lambda: local.get(handle, ".", tmp_path / "back"),
    ]
    for act in actions:
        with pytest.raises(UsageError, match="not in the instance's home"):
            act()
    assert outside.read_text() == "mine"
    assert not (tmp_path / "back").exists()
