"""Images that a program of their own makes: what gymctl does with what it wrote, and linux-desktop's own program."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gymctl import assets, cache, recipe
from gymctl.errors import IntegrityError, NotFound
from gymctl.runners import docker, local
from tests.conftest import ROOT, Cli, lacking
from tests.engine import docker_call
from tests.test_archives import quiet
from tests.test_disks import disk, qcow2

BUILD = ROOT / "images/linux-desktop/build.py"
SCRIPT = """
import argparse, hashlib, json, pathlib, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("--output", type=pathlib.Path); parser.add_argument("--format"); parser.add_argument("--set", action="append", default=[])
given = parser.parse_args()
sets = dict(word.split("=", 1) for word in given.set)
print("a first step", flush=True)
out = given.output
out.mkdir(exist_ok=True, parents=True)
if "fail" in sets:
    print("something of a program's own\\nerror: it lacks a thing\\nhint: get the thing", file=sys.stderr); sys.exit(int(sets["fail"]))
if "wait" in sets:
    part = out / ".part"; part.touch()
    import signal
    def gone(number, frame): part.unlink(); (out / "told").touch(); sys.exit(128 + number)
    signal.signal(signal.SIGTERM, gone); print("waiting", flush=True); time.sleep(100)
if (out / "image.json").exists() and "again" not in sets:
    print("up to date"); sys.exit()
header = bytes.fromhex("514649fb00000002") + bytes(12) + (16).to_bytes(4, "big") + (1 << 20).to_bytes(8, "big")
files = {"odd.qcow2": header.ljust(70000, sets.get("byte", "a").encode()), "vmlinuz": b"kernel", "initrd.img": b"initrd"}
for name, content in files.items():
    (out / name).write_bytes(content)
sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
if "lie" in sets:
    sums[sets["lie"]] = "0" * 64
(out / "SHA256SUMS").write_text("".join(f"{digest}  {name}\\n" for name, digest in sums.items()))
(out / "image.json").write_text(json.dumps({"name": "odd", "given": sets}))
"""


@pytest.fixture
def odd(tmp_path: Path) -> str:
    """An image whose program makes a disk at once."""
    folder = tmp_path / "images" / "odd"
    folder.mkdir(parents=True)
    disk_of = '{disk: odd.qcow2, kernel: vmlinuz, initrd: initrd.img, append: "root=/dev/vda"}'
    (folder / "image.yaml").write_text(f"name: odd\nscript: make.py\nformats:\n  qcow2: {disk_of}\n")
    (folder / "make.py").write_text(SCRIPT)
    return str(folder)


@pytest.fixture
def vm() -> ModuleType:
    """A runner that boots nothing but disks."""
    made = ModuleType("vm")
    made.SPEC = replace(local.SPEC, name="vm", formats=("qcow2",))  # type: ignore[attr-defined]
    return made


def source(directory: str) -> recipe.Source:
    """A recipe on an image by its directory."""
    image = recipe.load_image(Path(directory))
    made = recipe.Recipe(name="odd", kind="desktop", image=directory, port=5000)
    return recipe.Source(made, Path(directory), image, Path(directory))


class TestAnyProgram:
    def test_its_disk_is_found_by_a_runner_that_boots_one(self, cli: Cli, odd: str, vm: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GYMCTL_CACHE_DIR", cli.env["GYMCTL_CACHE_DIR"])
        with pytest.raises(NotFound) as caught:
            assets.fetch(source(odd), vm, None, quiet)
        assert "gymctl build-image odd" in caught.value.hint
        made = cli("build-image", odd, "--output", "out", "--json").json
        assert [(a["kind"], a["digest"]) for a in made["artifacts"]] == [
            (kind, f"sha256:{cache.digest(cli.folder / 'out' / name)}")
            for kind, name in (("qcow2", "odd.qcow2"), ("kernel", "vmlinuz"), ("initrd", "initrd.img"))
        ]
        first = assets.fetch(source(odd), vm, None, quiet)
        assert Path(first.image["disk"]).read_bytes() == (cli.folder / "out/odd.qcow2").read_bytes()
        assert [Path(first.image[part]).read_bytes() for part in ("kernel", "initrd")] == [b"kernel", b"initrd"]
        assert (first.format, first.image["append"], first.image["digest"]) == ("qcow2", "root=/dev/vda", first.digest)

        note = cli("build-image", odd, "--output", "out")
        assert "up to date: nothing was built" in note.err
        assert assets.fetch(source(odd), vm, None, quiet) == first

        cli("build-image", odd, "--output", "out", "--set", "again=1", "--set", "byte=b")
        second = assets.fetch(source(odd), vm, None, quiet)
        assert second.digest != first.digest
        cli("cache", "gc")
        assert not Path(first.image["disk"]).exists(), "nothing names the disk that another has replaced"
        assert assets.fetch(source(odd), vm, None, quiet) == second

    def test_a_disk_given_by_path(self, cli: Cli, odd: str, vm: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GYMCTL_CACHE_DIR", cli.env["GYMCTL_CACHE_DIR"])
        other = qcow2(cli.folder / "other.qcow2", 70_000)
        alone = assets.fetch(source(odd), vm, str(other), quiet)
        assert (alone.image["kernel"], alone.image["append"]) == (None, "")
        assert any("boots by itself" in note for note in alone.notes)
        (cli.folder / "vmlinuz").write_bytes(b"k")
        assert assets.fetch(source(odd), vm, str(other), quiet).image["append"] == "root=/dev/vda"

    def test_what_it_says_of_its_files_must_be_so(self, cli: Cli, odd: str) -> None:
        error = cli("build-image", odd, "--output", "out", "--set", "lie=vmlinuz", "--json", code=10).json["error"]
        assert "vmlinuz" in error["message"]
        assert cli("build-image", odd, "--output", "new", "--set", "lie=other", "--json", code=10).json["error"]["message"].endswith("no such file")

    @pytest.mark.parametrize(
        ("status", "code", "kind"), [(2, 2, "UsageError"), (5, 5, "Unavailable"), (7, 7, "Conflict"), (1, 8, "StartError"), (33, 8, "StartError")]
    )
    def test_its_errors_are_ours(self, cli: Cli, odd: str, status: int, code: int, kind: str) -> None:
        error = cli("build-image", odd, "--set", f"fail={status}", "--json", code=code).json["error"]
        assert (error["type"], error["hint"]) == (kind, "get the thing")
        assert error["message"].startswith("it lacks a thing")
        assert ("something of a program's own" in error["message"]) == (code == 8)

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_it_cleans_up_when_we_are_interrupted(self, cli: Cli, odd: str, number: signal.Signals) -> None:
        child = cli.spawn("build-image", odd, "--output", "out", "--set", "wait=1", "--json")
        until = time.monotonic() + 20
        while not (cli.folder / "out/.part").exists():
            assert time.monotonic() < until
            time.sleep(0.02)
        time.sleep(0.2)
        child.send_signal(number)
        out, _ = child.communicate(timeout=20)
        assert (child.returncode, json.loads(out)["error"]["type"]) == (128 + number, "Interrupted")
        assert [path.name for path in (cli.folder / "out").iterdir()] == ["told"]

    def test_no_base_no_such_input(self, cli: Cli, odd: str) -> None:
        assert "builds on nothing" in cli("build-image", odd, "--base", "x", "--json", code=2).json["error"]["message"]
        assert "only as oci" in cli("build-image", "agent-environment", "--format", "qcow2", "--json", code=6).json["error"]["message"]


def build(output: Path, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """linux-desktop's program, to its end."""
    return subprocess.run([sys.executable, str(BUILD), "--output", str(output), *words], capture_output=True, text=True, check=False, timeout=120, **more)


class TestRefusals:
    @pytest.mark.parametrize(
        ("words", "code", "said"),
        [
            (["--set", "colour=red"], 2, "suite, mirror, packages, cache"), (["--set", "suite=Not A Suite"], 2, "suite=Not A Suite"),
            (["--set", "mirror=ftp:"], 2, "neither a URL"), (["--set", "packages=/nowhere"], 2, "/nowhere"), (["--format", "sif"], 2, "invalid choice"),
            (["--set", "suite=potato"], 5, "no package sources for potato"),
        ],
    )  # fmt: skip
    def test_inputs_that_are_none(self, tmp_path: Path, words: list[str], code: int, said: str) -> None:
        done = build(tmp_path / "out", *words)
        assert done.returncode == code, done.stderr
        assert said in done.stderr
        assert "Traceback" not in done.stderr
        assert not list(tmp_path.rglob("*.json"))

    def test_a_package_list_that_is_none(self, tmp_path: Path) -> None:
        for text, said in (("", "names no package"), ("a b c\n", "'a b c'"), ("--x\n", "'--x'"), ("a sparc\n", "'a sparc'")):
            (tmp_path / "list").write_text(text)
            done = build(tmp_path / "out", "--set", f"packages={tmp_path / 'list'}")
            assert (done.returncode, said in done.stderr) == (2, True), done.stderr

    def test_tools_that_are_not_installed(self, tmp_path: Path, need_root: None) -> None:
        done = build(tmp_path / "out", env={"PATH": "/nowhere"})
        assert done.returncode == 5
        assert "mmdebstrap" in done.stderr
        assert "hint: apt-get install mmdebstrap" in done.stderr

    def test_somebody_who_is_not_root(self, tmp_path: Path, need_root: None) -> None:
        for name in ("linux-desktop", "_guest"):
            shutil.copytree(BUILD.parent.parent / name, tmp_path / "images" / name)
        (tmp_path / "out").mkdir()
        for path in (tmp_path, tmp_path / "out"):
            path.chmod(0o777)
        become = "setpriv --reuid=65534 --clear-groups /usr/bin/python3 images/linux-desktop/build.py --output out"
        argv = ["unshare", "--mount", "sh", "-c", f"mount --bind {tmp_path} /mnt && cd /mnt && exec {become}"]  # the folders above are closed to others
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 5, done.stderr
        assert "needs root" in done.stderr

    def test_a_disk_without_room(self, tmp_path: Path, need_build: None) -> None:
        with disk(tmp_path / "small", "1m") as small:
            done = build(small / "out")
            assert done.returncode == 5
            assert "GiB are free" in done.stderr
            assert not list((small / "out").iterdir())

    def test_two_at_once(self, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        handle = os.open(tmp_path / "out", os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)
        done = build(tmp_path / "out")
        os.close(handle)
        assert (done.returncode, "another build" in done.stderr) == (7, True)

    def test_a_mirror_that_does_not_answer(self, tmp_path: Path, need_build: None) -> None:
        done = build(tmp_path / "out", "--set", "mirror=http://127.0.0.1:9/debian")
        assert done.returncode == 5, done.stderr
        assert "127.0.0.1:9" in done.stderr.splitlines()[-2]
        assert not list((tmp_path / "out").iterdir())

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
    def test_a_killed_build_leaves_nothing_mounted_and_no_process(self, tmp_path: Path, need_build: None, number: signal.Signals) -> None:
        out = tmp_path / "out"
        child = subprocess.Popen([sys.executable, str(BUILD), "--output", str(out)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in child.stdout or ():
            if line.startswith(("downloading", "extracting")):
                break
        child.send_signal(number)
        child.communicate(timeout=60)
        assert child.returncode == (128 + number if number == signal.SIGTERM else -number)
        until = time.monotonic() + 20
        while any(str(out).encode() in words for words in command_lines()):
            assert time.monotonic() < until, "mmdebstrap goes on"
            time.sleep(0.1)
        assert str(out) not in Path("/proc/mounts").read_text()
        if number == signal.SIGKILL:
            assert list(out.glob(".build-*"))
            assert build(out, "--set", "mirror=http://127.0.0.1:9/debian").returncode == 5  # the next one removes what is left
        assert not list(out.iterdir())


def command_lines() -> Iterator[bytes]:
    """The words of every process but this one."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        if entry.parent.name != str(os.getpid()):
            try:
                yield entry.read_bytes()
            except OSError:
                continue


@pytest.fixture
def need_root() -> None:
    if os.geteuid() != 0:
        lacking("user", "only root can become another user; who runs these tests is one already")


@pytest.fixture
def need_build(need_root: None) -> None:
    """What a build needs here; else a skip."""
    missing = [name for name in ("mmdebstrap", "mke2fs", "qemu-img") if not shutil.which(name)]
    if missing:
        lacking("desktop-image", f"not installed: {', '.join(missing)}")


class TestBuilt:
    def test_the_root_file_system_holds_nothing_of_the_build(self, desktop_files: dict[str, str]) -> None:
        with tarfile.open(folder() / "rootfs.tar") as tar:
            members = {member.name.removeprefix("./"): member for member in tar}
            emptied = ("etc/ssh/ssh_host_", "etc/ssl/private/", "var/log/", "var/tmp/", "var/lib/apt/lists/", "tmp/", "root/", "run/")
            assert [name for name, member in members.items() if name.startswith(emptied) and not member.isdir()] == []
            assert (members["etc/machine-id"].size, "var/lib/dbus/machine-id" in members) == (0, False)
            assert max(member.mtime for member in members.values()) <= 1767225600
            home = {name: member for name, member in members.items() if name.startswith("home/ga/")}
            assert {(member.uid, member.gid) for member in home.values()} == {(1000, 1000)}
            assert members["home/user"].linkname == "ga"
            assert {"home/ga/Desktop", "home/ga/Documents", "home/ga/Downloads", "home/ga/.config"} <= home.keys()
            assert not [name for name in members if name.startswith("etc/apt/sources.list")][1:]
            shadow = tar.extractfile(members["etc/shadow"])
            assert shadow is not None
            assert all(line.split(b":")[1] in (b"!", b"*", b"!*") for line in shadow.read().splitlines())

    def test_image_json_says_what_is_in_it(self, desktop_files: dict[str, str]) -> None:
        document = json.loads((folder() / "image.json").read_text())
        sums = assets.checksums(folder())
        assert document["rootfs"] == f"sha256:{sums['rootfs.tar']}"
        assert document["files"] == {name: digest for name, digest in sums.items() if name != "image.json"}
        names = {name.partition(":")[0] for name in document["packages"]}
        assert {"openbox", "mousepad", "falkon", "libreoffice-calc", "pcmanfm", "lxterminal", "shared-mime-info"} <= names

    def test_a_second_run_does_nothing_and_its_files_can_be_sent(
        self, desktop_files: dict[str, str], cli: Cli, vm: ModuleType, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder().iterdir()}
        cli.env |= desktop_files
        done = cli("build-image", "linux-desktop", "--format", "qcow2", "--output", str(folder()), timeout=300)
        assert "up to date: nothing was built" in done.err
        assert {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder().iterdir()} == before
        monkeypatch.setenv("GYMCTL_CACHE_DIR", desktop_files["GYMCTL_CACHE_DIR"])
        fetched = assets.fetch(recipe.load("linux-desktop"), vm, None, quiet)
        assert Path(fetched.image["disk"]).name == assets.checksums(folder())["linux-desktop.qcow2"]
        rows = cli("load", str(folder() / "linux-desktop.qcow2"), "--json", timeout=300).json["loaded"]
        assert {row["ref"] for row in rows} == {fetched.image[part] for part in ("disk", "kernel", "initrd")}

    def test_a_kernel_that_was_not_sent_along_or_is_another(self, desktop_files: dict[str, str], cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GYMCTL_CACHE_DIR", desktop_files["GYMCTL_CACHE_DIR"])
        for name in ("linux-desktop.qcow2", "initrd.img", "SHA256SUMS"):
            (cli.folder / name).symlink_to(folder() / name)
        with pytest.raises(NotFound, match="vmlinuz"):
            assets.load(cli.folder / "linux-desktop.qcow2", None, None, docker, quiet, print)
        (cli.folder / "vmlinuz").write_bytes(b"another kernel")
        with pytest.raises(IntegrityError, match="vmlinuz"):
            assets.load(cli.folder / "linux-desktop.qcow2", None, None, docker, quiet, print)

    def test_the_image_in_an_engine(self, docker_host: str, desktop_image: str) -> None:
        def inside(*argv: str) -> str:
            return docker_call(docker_host, "run", "--rm", "--network", "none", "--entrypoint", argv[0], desktop_image, *argv[1:])

        code = "import importlib.util as u, tkinter, gi, PIL, Xlib; gi.require_version('Atspi', '2.0'); from gi.repository import Atspi, Gio; "
        assert inside("python", "-c", code + "print(u.find_spec('pyautogui') is not None, Gio.content_type_guess('a.csv', None)[0])") == "True text/csv"
        programs = "python3 falkon soffice mousepad pcmanfm lxterminal openbox tint2"
        shell = f"id -un 1000; cat /etc/machine-id /boot/* /lib/modules/* 2>/dev/null; for p in {programs}; do command -v $p >/dev/null || echo $p; done"
        assert inside("sh", "-c", shell).split() == ["ga"]


def folder() -> Path:
    """Where linux-desktop was built."""
    return Path(os.environ["GYMCTL_TEST_DESKTOP"])
