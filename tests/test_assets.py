"""Images on a real engine: load, the recipe's pin, another image, build-image; and what needs no engine."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import json
import os
import shutil
import struct
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gymctl import archives, assets, builds, manifests, recipe
from gymctl.errors import GymctlError, IntegrityError, NotFound, Unsupported, UsageError
from gymctl.runner import Told
from gymctl.runners import docker as runner
from gymctl.runners import docker_engine, local
from tests.conftest import ROOT, Cli, lacking
from tests.engine import docker_call, private
from tests.test_archives import docker_files, oci_files, quiet, sha, tar


@pytest.fixture
def names(docker: str) -> Iterator[Callable[[str], str]]:
    """Names for images that go away after the test."""
    made: list[str] = []

    def name(tag: str) -> str:
        made.append(f"gymctl-test-{tag}-{os.getpid()}:latest")
        return made[-1]

    yield name
    for ref in made:
        if runner.has(ref):
            docker_call(docker, "rmi", "-f", ref)


def layer(text: bytes) -> bytes:
    return tar({"hello": text})


def load(path: Path, tag: str | None = None, sha256: str | None = None) -> tuple[assets.Loaded, list[str]]:
    warnings: list[str] = []
    return assets.load(path, sha256, tag, runner, quiet, warnings.append), warnings


class TestLoad:
    def test_says_every_reference_and_digest(self, names: Any, tmp_path: Path) -> None:
        one, two = names("one"), names("two")
        files = docker_files(layer(b"1"), tags=[one, two])
        (tmp_path / "a.tar").write_bytes(tar(files))
        loaded, warnings = load(tmp_path / "a.tar")
        digest = f"sha256:{next(iter(files)).removesuffix('.json')}"
        assert [(a.ref, a.digest) for a in loaded.artifacts] == [(one, digest), (two, digest)]
        assert warnings == []
        assert runner.has(one) == runner.has(digest) == digest

    def test_an_oci_archive_on_an_engine_that_cannot_read_it(self, names: Any, docker: str, tmp_path: Path) -> None:
        ref = names("oci")
        (tmp_path / "o.tar").write_bytes(tar(oci_files(ref, layer(b"2"))))
        loaded, _ = load(tmp_path / "o.tar")
        assert [a.ref for a in loaded.artifacts] == [ref]
        (tmp_path / "o.tar.gz").write_bytes(gzip.compress(tar(oci_files(ref, layer(b"2")))))
        assert load(tmp_path / "o.tar.gz")[0] == loaded

    def test_what_docker_saves_is_loaded_again(self, names: Any, docker: str, python_image: str, tmp_path: Path) -> None:
        one, two = names("s1"), names("s2")
        docker_call(docker, "build", "-q", "-t", one, "-", input=f"FROM {python_image}\nLABEL a=1\n".encode())
        docker_call(docker, "build", "-q", "-t", two, "-", input=f"FROM {python_image}\nLABEL a=2\n".encode())
        ids = {ref: runner.has(ref) for ref in (one, two)}
        docker_call(docker, "save", one, two, "-o", str(tmp_path / "two.tar"))
        docker_call(docker, "save", str(ids[one]), "-o", str(tmp_path / "id.tar"))
        docker_call(docker, "rmi", one, two)
        loaded, _ = load(tmp_path / "two.tar")
        assert {a.ref: a.digest for a in loaded.artifacts} == ids
        untagged, _ = load(tmp_path / "id.tar")
        assert [a.digest for a in untagged.artifacts] == [ids[one]]
        assert "--tag" in untagged.notes[0]
        named, _ = load(tmp_path / "id.tar", tag=names("s3"))
        assert [(a.ref, a.digest) for a in named.artifacts] == [(names("s3"), ids[one])]
        with pytest.raises(UsageError, match="holds 2 images"):
            load(tmp_path / "two.tar", tag="x")

    def test_warns_before_a_name_goes_to_another_image(self, names: Any, tmp_path: Path) -> None:
        ref = names("taken")
        (tmp_path / "1.tar").write_bytes(tar(docker_files(layer(b"old"), tags=[ref])))
        (tmp_path / "2.tar").write_bytes(tar(docker_files(layer(b"new"), tags=[ref])))
        before = load(tmp_path / "1.tar")[0].artifacts[0].digest
        seen: list[str | None] = []
        assets.load(tmp_path / "2.tar", None, None, runner, quiet, lambda text: seen.extend([text, runner.has(ref)]))
        assert seen[1] == before, "told while the name still stands for the old one"
        assert before in str(seen[0])
        assert runner.has(ref) != before
        assert load(tmp_path / "2.tar")[1] == []

    def test_a_damaged_one_leaves_no_name(self, names: Any, tmp_path: Path) -> None:
        ref = names("cut")
        whole = tar(docker_files(layer(b"x" * 200_000), tags=[ref]))
        (tmp_path / "cut.tar").write_bytes(whole[:-100_000])
        with pytest.raises(IntegrityError, match="byte"):
            load(tmp_path / "cut.tar")
        assert runner.has(ref) is None

    def test_sha256(self, names: Any, tmp_path: Path) -> None:
        data = tar(docker_files(layer(b"3"), tags=[names("sha")]))
        (tmp_path / "a.tar").write_bytes(data)
        assert load(tmp_path / "a.tar", sha256=f"sha256:{sha(data).upper()}"[:7] + sha(data))[0].artifacts
        with pytest.raises(IntegrityError, match=f"has sha256 {sha(data)}, and {'0' * 64} was expected"):
            load(tmp_path / "a.tar", sha256="0" * 64)
        with pytest.raises(UsageError):
            load(tmp_path / "a.tar", sha256="123")
        with pytest.raises(UsageError, match="no reference"):
            load(tmp_path / "a.tar", tag="No Such")

    def test_progress_counts_bytes(self, names: Any, tmp_path: Path) -> None:
        (tmp_path / "a.tar").write_bytes(tar(docker_files(layer(bytes(5 << 20)), tags=[names("bytes")])))
        seen: list[tuple[str, int, int]] = []
        assets.load(tmp_path / "a.tar", None, None, runner, lambda *args: seen.append(args), lambda text: None)
        size = (tmp_path / "a.tar").stat().st_size
        assert [done for what, done, _ in seen if what == "loading"][-1] == size
        assert {total for what, _, total in seen if what == "loading"} == {size}

    def test_the_command(self, cli: Cli, names: Any, docker: str, tmp_path: Path) -> None:
        ref = names("cmd")
        (tmp_path / "a.tar").write_bytes(tar(docker_files(layer(b"4"), tags=[ref])))
        (tmp_path / "page.tar").write_text("<html>Log in")
        env = {"DOCKER_HOST": docker}
        shown = cli("load", "a.tar", "--json", env=env).json
        assert shown == {"loaded": [{"file": "a.tar", "kind": "archive", "ref": ref, "digest": runner.has(ref)}]}
        assert ref in cli("load", "a.tar", env=env).out
        assert cli("load", "page.tar", "--json", env=env, code=10).json["error"]["type"] == "IntegrityError"
        assert cli("load", "none.tar", "--json", env=env, code=4).json["error"]["type"] == "NotFound"
        assert cli("load", "a.tar", "a.tar", "--tag", "x", "--json", env=env, code=2).json["error"]["type"] == "UsageError"
        nowhere = cli("load", "a.tar", "--json", env={"DOCKER_HOST": f"unix://{tmp_path}/nope"}, code=5).json
        assert "not running" in nowhere["error"]["message"]


def test_disks_go_into_the_cache_by_digest(cli: Cli) -> None:
    """No engine is needed, nor asked."""
    head = b"QFI\xfb" + struct.pack(">IQIIQIIQQIIQ", 3, 0, 0, 16, 1 << 30, 0, 2, 65536, 65536, 1, 0, 0)
    (cli.folder / "d.qcow2").write_bytes(head.ljust(70_000, b"\0"))
    env = {"DOCKER_HOST": f"unix://{cli.folder}/nope"}
    [row] = cli("load", "d.qcow2", "--json", env=env).json["loaded"]
    digest = hashlib.sha256((cli.folder / "d.qcow2").read_bytes()).hexdigest()
    assert (row["kind"], row["digest"]) == ("qcow2", f"sha256:{digest}")
    assert Path(row["ref"]).read_bytes() == (cli.folder / "d.qcow2").read_bytes()
    cli("cache", "gc", "--json")
    assert Path(row["ref"]).exists(), "its name keeps it"
    assert cli("load", "d.qcow2", "--tag", "x", "--json", env=env, code=2)
    (cli.folder / "d.qcow2").write_bytes(head[:8] + struct.pack(">Q", 512) + head[16:])
    assert "overlay" in cli("load", "d.qcow2", "--json", env=env, code=6).json["error"]["message"]


class _Engine:
    """What `fetch` asks of an engine, as it would answer: names and digests."""

    SPEC = runner.SPEC

    def __init__(self, **images: str) -> None:
        self.images = images

    def has(self, ref: str) -> str | None:
        return self.images.get(ref)

    def load(self, *args: Any) -> list[Any]:
        raise AssertionError("nothing is to be loaded")

    def build(self, *args: Any) -> Any:
        raise AssertionError("nothing is to be built")


A, B = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"


class TestFetch:
    def source(self, tmp_path: Path, pin: str = "", shares: str = "") -> recipe.Source:
        """A recipe whose image is offered for engines and as a directory."""
        (tmp_path / "image").mkdir(exist_ok=True)
        digest = f", digest: '{pin}'" if pin else ""
        text = f"name: thing\nformats:\n  oci: {{ref: 'thing:latest', archive: thing.tar{digest}}}\n  dir: {{run: [python, -m, server]}}\nshares: [{shares}]\n"
        (tmp_path / "image" / "image.yaml").write_text(text)
        (tmp_path / "recipe.yaml").write_text("name: thing\nkind: mcp\nimage: ./image\nport: 1984\n")
        return recipe.load(str(tmp_path / "recipe.yaml"))

    def fetch(self, source: recipe.Source, engine: Any, override: str | None = None) -> assets.Fetched:
        return assets.fetch(source, engine, override, quiet)

    def test_by_reference(self, tmp_path: Path) -> None:
        fetched = self.fetch(self.source(tmp_path), _Engine(**{"thing:latest": A}))
        assert (fetched.format, fetched.digest, fetched.image) == ("oci", A, {"ref": "thing:latest", "digest": A})

    def test_one_that_is_not_there_names_the_commands(self, tmp_path: Path) -> None:
        with pytest.raises(NotFound, match="no image thing:latest") as caught:
            self.fetch(self.source(tmp_path), _Engine())
        assert "gymctl load thing.tar" in caught.value.hint
        assert "gymctl build-image thing" in caught.value.hint

    def test_a_pin_that_differs_names_both(self, tmp_path: Path) -> None:
        with pytest.raises(IntegrityError) as caught:
            self.fetch(self.source(tmp_path, A), _Engine(**{"thing:latest": B}))
        assert A in caught.value.message
        assert B in caught.value.message
        assert "gymctl load thing.tar" in caught.value.hint

    def test_a_pin_by_id_or_by_repository_digest(self, tmp_path: Path) -> None:
        source = self.source(tmp_path, A)
        assert self.fetch(source, _Engine(**{"thing:latest": A})).digest == A
        assert self.fetch(source, _Engine(**{"thing:latest": B, f"thing@{A}": B})).digest == B

    def test_a_directory(self, tmp_path: Path) -> None:
        source = self.source(tmp_path)
        fetched = self.fetch(source, local)
        assert fetched.image == {"directory": str(tmp_path / "image"), "run": ["python", "-m", "server"], "requirements": None}
        (tmp_path / "image" / "server.py").write_text("changed")
        changed = self.fetch(source, local)
        assert changed.digest != fetched.digest
        (tmp_path / "image" / "__pycache__").mkdir()
        (tmp_path / "image" / "__pycache__" / "x.pyc").write_text("x")
        (tmp_path / "image" / ".cache").mkdir()
        (tmp_path / "image" / ".cache" / "x").write_text("x")
        assert self.fetch(source, local).digest == changed.digest

    def test_what_it_shares_is_part_of_it(self, tmp_path: Path) -> None:
        (tmp_path / "_verify").mkdir()
        (tmp_path / "_verify" / "x.py").write_text("x")
        source = self.source(tmp_path, shares="_verify")
        before = self.fetch(source, local).digest
        (tmp_path / "_verify" / "x.py").write_text("y")
        assert self.fetch(source, local).digest != before

    def test_another_image(self, tmp_path: Path) -> None:
        source = self.source(tmp_path, A)
        fetched = self.fetch(source, _Engine(**{"theirs:1": B}), "theirs:1")
        assert (fetched.digest, fetched.image["ref"]) == (B, "theirs:1")
        assert "theirs:1" in fetched.notes[0]
        with pytest.raises(NotFound, match="no image theirs:2"):
            self.fetch(source, _Engine(), "theirs:2")
        with pytest.raises(NotFound, match="no file"):
            self.fetch(source, _Engine(), "theirs.tar")
        with pytest.raises(Unsupported):
            self.fetch(source, local, "theirs:1")
        with pytest.raises(Unsupported):
            self.fetch(source, _Engine(), str(tmp_path / "image"))
        assert self.fetch(source, local, str(tmp_path / "image")).format == "dir"

    def test_an_archive_given_to_run(self, tmp_path: Path, names: Any) -> None:
        ref = names("given")
        (tmp_path / "given.tar").write_bytes(tar(docker_files(layer(b"5"), tags=[ref])))
        fetched = self.fetch(self.source(tmp_path), runner, str(tmp_path / "given.tar"))
        assert fetched.digest == runner.has(ref)
        assert fetched.image["ref"] == ref


class TestTar:
    def test_the_same_whatever_the_times_owners_and_caches(self, tmp_path: Path) -> None:
        tree = tmp_path / "tree"
        (tree / "sub").mkdir(parents=True)
        (tree / "a.py").write_text("a")
        (tree / "sub" / "run.sh").write_text("b")
        (tree / "sub" / "run.sh").chmod(0o700)
        builds.write_tar(tmp_path / "1.tar", {"opt/images/x": tree})
        (tree / "__pycache__").mkdir()
        (tree / "__pycache__" / "a.pyc").write_bytes(b"x")
        (tree / ".git").mkdir()
        (tree / ".git" / "config").write_text("x")
        (tree / "a.py").chmod(0o600)
        os.utime(tree / "a.py", (1, 1))
        os.utime(tree, (2, 2))
        builds.write_tar(tmp_path / "2.tar", {"opt/images/x": tree})
        assert (tmp_path / "1.tar").read_bytes() == (tmp_path / "2.tar").read_bytes()
        with tarfile.open(tmp_path / "1.tar") as made:
            rows = [(m.name, m.mode, m.uid, m.gid, m.mtime, m.uname) for m in made]
        times = {
            "opt": 0o755,
            "opt/images": 0o755,
            "opt/images/x": 0o755,
            "opt/images/x/a.py": 0o644,
            "opt/images/x/sub": 0o755,
            "opt/images/x/sub/run.sh": 0o755,
        }
        assert rows == [(name, mode, 0, 0, builds.TIME, "") for name, mode in times.items()]


class TestDockerfile:
    def test_sets_are_its_args(self, tmp_path: Path) -> None:
        (tmp_path / "Dockerfile").write_text("ARG BASE=python:3\nARG COLOR=red\nFROM ${BASE}\nARG SIZE\n")
        text = builds._dockerfile(tmp_path / "Dockerfile", {"COLOR": "blue", "SIZE": "4"})
        assert text == "ARG BASE=python:3\nARG COLOR=blue\nFROM ${BASE}\nARG SIZE=4\n"
        for faulty in ({"COLOUR": "x"}, {"BASE": "x"}, {"COLOR": "a\nRUN evil"}):
            with pytest.raises(UsageError):
                builds._dockerfile(tmp_path / "Dockerfile", faulty)


def ask(port: int, method: str, path: str, body: Any = None) -> Any:
    """One answer as JSON, from 127.0.0.1."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == 200, text
        return json.loads(text)
    finally:
        connection.close()


def healthy(port: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            ask(port, "GET", "/health")
            return
        except (OSError, http.client.HTTPException, AssertionError):
            assert time.monotonic() < deadline
            time.sleep(0.1)


class TestBuild:
    def test_its_files(self, built: Path, docker: str) -> None:
        document = json.loads((built / "image.json").read_text())
        assert document["digest"] == runner.has(document["digest"]), "by digest: another build may have the name by now"
        folder = ROOT / "images" / "agent-environment"
        assert document["source"] == assets.source_digest(folder, recipe.load_image(folder))
        assert document["builder"].startswith("gymctl ")
        assert any(p.startswith("starlette==") for p in document["packages"])
        assert document["base"]["digest"].startswith("sha256:")
        labels = runner.labels(document["digest"])
        assert labels[assets.SOURCE_LABEL] == document["source"]
        for line in (built / "SHA256SUMS").read_text().splitlines():
            digest, name = line.split()
            assert hashlib.sha256((built / name).read_bytes()).hexdigest() == digest
        [image], _ = manifests.images(archives.read(built / "agent-environment.tar", "tar", quiet))
        assert list(image.layers) == document["layers"]

    def test_nothing_in_it_differs_by_chance(self, built: Path, docker: str) -> None:
        listed = runner.output("agent-environment:latest", ["python3", "-c", LISTING]).stdout
        rows = [json.loads(line) for line in listed.splitlines()]
        assert len(rows) > 500
        assert {(row["uid"], row["mtime"]) for row in rows} == {(0, builds.TIME)}
        assert not [row["path"] for row in rows if row["path"].endswith((".pyc", "RECORD", "INSTALLER", "direct_url.json"))]

    def test_the_quick_start_on_a_plain_docker_run(self, built: Path, docker: str) -> None:
        made = docker_call(docker, "run", "-d", "-p", "127.0.0.1::1984", "-e", "UNIVERSE_ID=sales-team", "agent-environment:latest")
        try:
            port = int(docker_call(docker, "port", made, "1984").rpartition(":")[2])
            healthy(port)
            assert ask(port, "POST", "/reset", {"options": {"universe_id": "software-team"}})["universe_id"] == "software-team"
            assert len(ask(port, "POST", "/list-tools")) >= 90
            answer = ask(port, "POST", "/call-tool", {"tool_name": "calendar_get_calendar_events", "tool_args": {}})
            assert answer[0]["type"] == "text"
        finally:
            docker_call(docker, "rm", "-f", made)

    def test_an_episode_on_docker(self, cli: Cli, docker_env: dict[str, str]) -> None:
        cli.env |= docker_env
        shown = cli("run", "agent-environment", "--runner", "docker", "--task", "move-standup", "--agent", "oracle", "--rm", "--port", "0", "--json").json
        assert shown["verdict"] == "passed"
        assert shown["image"]["digest"].startswith("sha256:")
        assert cli("ps", "--all", "--json").json == []

    def test_touched_sources_and_a_fresh_engine_give_the_same_layers(self, built: Path, base_tar: Path, docker: str, tmp_path: Path) -> None:
        if os.geteuid() != 0 or not shutil.which("dockerd"):
            lacking("docker", "only root with dockerd can start a fresh engine")
        for name in ("agent-environment", "_server", "_verify"):
            shutil.copytree(ROOT / "images" / name, tmp_path / "images" / name)  # other times, another place
        for path in (tmp_path / "images").rglob("*"):
            os.utime(path, (10**9, 10**9))
        with private(("gymtest1", "172.31.248.1/24"), "--iptables=false") as host, pytest.MonkeyPatch.context() as patch:
            patch.setenv("DOCKER_HOST", host)
            again = builds.build_image(str(tmp_path / "images" / "agent-environment"), str(base_tar), {}, tmp_path / "out", runner, Told())
            docker_engine.close()
        first = json.loads((built / "image.json").read_text())
        for key in ("layers", "source", "packages", "base"):
            assert again.document[key] == first[key], key

    def test_a_base_that_cannot_be_had(self, docker: str, tmp_path: Path) -> None:
        for base, said in (("gymctl-test-none:1", "the base gymctl-test-none:1 is not here"), (str(tmp_path / "none.tar"), "no file")):
            with pytest.raises(GymctlError, match=said) as caught:
                builds.build_image("agent-environment", base, {}, tmp_path / "out", runner, Told())
            assert caught.value.exit_code in (4, 5)
        assert not (tmp_path / "out").exists()

    def test_a_base_without_python(self, docker: str, names: Any, tmp_path: Path) -> None:
        rootfs = io.BytesIO()
        with tarfile.open(fileobj=rootfs, mode="w") as made:
            made.addfile(tarfile.TarInfo("etc"))
        (tmp_path / "rootfs.tar").write_bytes(rootfs.getvalue())
        with pytest.raises(GymctlError, match="python3"):
            builds.build_image("agent-environment", str(tmp_path / "rootfs.tar"), {}, tmp_path / "out", runner, Told())
        docker_call(docker, "rmi", f"gymctl-base:{sha(rootfs.getvalue())[:12]}")


LISTING = """
import json, os
for folder, _, names in os.walk("/opt"):
    for path in (folder, *(os.path.join(folder, name) for name in names)):
        stat = os.lstat(path)
        print(json.dumps({"path": path, "uid": stat.st_uid, "mtime": int(stat.st_mtime)}))
"""
