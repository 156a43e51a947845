"""The Docker engine of the tests: one that runs already, else a private one (as root, where dockerd is installed), else a skip that NO_SKIP=docker forbids."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gymctl.runners import docker as runner
from gymctl.runners import docker_engine
from tests import hostimg
from tests.conftest import ROOT, lacking

BRIDGE = ("gymtest0", "172.31.250.1/24")


def answers(host: str) -> bool:
    """Whether an engine answers there."""
    asked = subprocess.run(["docker", "version"], env={**os.environ, "DOCKER_HOST": host}, capture_output=True, timeout=20, check=False)
    return asked.returncode == 0


@contextlib.contextmanager
def private(bridge: tuple[str, str] = BRIDGE, *more: str) -> Iterator[str]:
    """A dockerd of our own on a bridge of its own: on docker0 it would disturb one that runs. `more` are its options."""
    name, address = bridge
    folder = Path(tempfile.mkdtemp(prefix="gymt-", dir="/tmp"))  # short: containerd's socket lies deep in it
    for words in (["link", "add", name, "type", "bridge"], ["addr", "add", address, "dev", name], ["link", "set", name, "up"]):
        subprocess.run(["ip", *words], capture_output=True, check=False)  # it may be there from a killed run
    host = f"unix://{folder}/docker.sock"
    argv = ["dockerd", "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec", "-p", f"{folder}/pid", "-H", host, "--bridge", name, *more]
    with (folder / "log").open("wb") as log:
        daemon = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while not answers(host):
            said = (folder / "log").read_text()[-2000:]
            assert daemon.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.1)
        yield host
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(30)
        for mount in folder.glob("exec/netns/*"):
            subprocess.run(["umount", str(mount)], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", name], capture_output=True, check=False)
        shutil.rmtree(folder, ignore_errors=True)


def _unusable() -> str:
    """Why no private engine can be started here; "" when one can."""
    if not shutil.which("dockerd"):
        return "no engine answers, and dockerd is not installed"
    return "" if os.geteuid() == 0 else "no engine answers, and only root can start one"


@pytest.fixture(scope="session")
def docker_host() -> Iterator[str]:
    """DOCKER_HOST of an engine. Every Docker test asks for it, directly or not."""
    if not shutil.which("docker"):
        lacking("docker", "there is no docker command")
    for host in (os.environ.get("DOCKER_HOST"), "unix:///var/run/docker.sock"):
        if host and answers(host):
            yield host
            return
    if why := _unusable():
        lacking("docker", why)
    with private() as host:
        yield host


@pytest.fixture
def docker(docker_host: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """The same for tests that call the runner in this process, with state of its own; what they leave is removed."""
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    monkeypatch.setenv("GYMCTL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GYMCTL_CACHE_DIR", str(tmp_path / "cache"))
    yield docker_host
    for handle in runner.find().values():
        runner.stop(handle)
    runner.tidy()
    docker_engine.close()


@pytest.fixture(scope="session")
def base_tar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root file system with Python."""
    out = tmp_path_factory.mktemp("base") / "base.tar"
    try:
        hostimg.write(out)
    except (SystemExit, OSError, subprocess.CalledProcessError) as error:
        lacking("docker", f"no base can be made of this machine's packages: {error}")
    return out


def docker_call(host: str, *words: str, input: bytes | None = None) -> str:
    """The docker command's stdout; it must succeed."""
    env = {**os.environ, "DOCKER_HOST": host, "DOCKER_BUILDKIT": "0"}
    done = subprocess.run(["docker", *words], env=env, input=input, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


@pytest.fixture(scope="session")
def python_image(docker_host: str, base_tar: Path) -> str:
    """An image with Python whose command serves files on port 8000."""
    docker_call(docker_host, "import", "-c", 'CMD ["python3", "-S", "-E", "-m", "http.server", "8000"]', str(base_tar), "gymctl-test-python:latest")
    return "gymctl-test-python:latest"


def build(host: str, image: str, base: Path, folder: Path) -> Path:
    """An image of ours, built into the engine by `build-image`; the directory with its archive, SHA256SUMS and image.json."""
    env = {**os.environ, "DOCKER_HOST": host, "GYMCTL_STATE_DIR": str(folder / "state"), "GYMCTL_CACHE_DIR": str(folder / "cache")}
    argv = [sys.executable, "-m", "gymctl", "build-image", image, "--base", str(base), "--output", str(folder / "out"), "--json"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=600, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["digest"]
    return folder / "out"


@pytest.fixture(scope="session")
def built(docker_host: str, base_tar: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that `build-image agent-environment` made."""
    return build(docker_host, "agent-environment", base_tar, tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="session")
def calendr_env(docker_host: str, base_tar: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a gymctl that is to use the engine, which has calendr."""
    build(docker_host, "calendr", base_tar, tmp_path_factory.mktemp("built"))
    return {"DOCKER_HOST": docker_host}


@pytest.fixture(scope="session")
def docker_env(docker_host: str, built: Path) -> dict[str, str]:
    """The environment of a gymctl that is to use the engine, which has agent-environment."""
    return {"DOCKER_HOST": docker_host}


DESKTOP = "linux-desktop:latest"
DESKTOP_MINUTES = 25


@pytest.fixture(scope="session")
def desktop_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a gymctl whose cache has linux-desktop's disk, from the build in GYMCTL_TEST_DESKTOP, which may still run; a skip without one."""
    folder = os.environ.get("GYMCTL_TEST_DESKTOP")
    if not folder:
        lacking("desktop-image", "GYMCTL_TEST_DESKTOP names no directory in which `gymctl build-image linux-desktop` has built")
    return _built_desktop(folder, "qcow2", tmp_path_factory.mktemp("desktop-files"), {})


@pytest.fixture(scope="session")
def desktop_image(docker_host: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """linux-desktop in the engine, from the build in GYMCTL_TEST_DESKTOP, which may still run, else what the engine has; its reference."""
    folder = os.environ.get("GYMCTL_TEST_DESKTOP")
    if folder:
        _built_desktop(folder, "oci", tmp_path_factory.mktemp("desktop-image"), {"DOCKER_HOST": docker_host})
    elif not docker_call(docker_host, "images", "-q", DESKTOP):
        lacking("desktop-image", f"the engine has no {DESKTOP}: `gymctl build-image linux-desktop` makes it")
    return DESKTOP


def _built_desktop(output: str, form: str, folder: Path, env: dict[str, str]) -> dict[str, str]:
    """Hand out what was built there, or build it, or wait for who does."""
    env = {**env, "GYMCTL_STATE_DIR": str(folder / "state"), "GYMCTL_CACHE_DIR": str(folder / "cache")}
    argv = [sys.executable, "-m", "gymctl", "build-image", "linux-desktop", "--format", form, "--output", output, "--json"]
    deadline = time.monotonic() + DESKTOP_MINUTES * 60
    while (done := subprocess.run(argv, env={**os.environ, **env}, capture_output=True, text=True, timeout=1800, check=False, cwd=ROOT)).returncode == 7:
        assert time.monotonic() < deadline, done.stderr
        time.sleep(2)
    assert done.returncode == 0, done.stderr
    return env
