"""What users of Docker run into, from the command line on a real engine: each ends in its exit code, with what is needed to mend it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RECIPE, Cli
from tests.engine import docker_call
from tests.murder import labeled_containers
from tests.test_archives import docker_files, tar


@pytest.fixture
def on(cli: Cli, docker_host: str) -> Cli:
    """gymctl with the engine as its runner."""
    cli.env |= {"DOCKER_HOST": docker_host, "GYMCTL_RUNNER": "docker"}
    return cli


@pytest.fixture
def commanded(docker_host: str, python_image: str) -> Callable[..., str]:
    """An image that runs a shell command, with more lines in its Dockerfile."""

    def make(tag: str, command: str, *lines: str) -> str:
        text = "\n".join([f"FROM {python_image}", f"CMD {json.dumps(['sh', '-c', command])}", *lines, ""])
        docker_call(docker_host, "build", "-q", "-t", f"gymctl-test-{tag}:latest", "-", input=text.encode())
        return f"gymctl-test-{tag}:latest"

    return make


def recipe(folder: Path, ref: str, *, digest: str = "", timeout: int = 4) -> str:
    """A recipe of the image `ref`, which has `timeout` seconds to serve."""
    (folder / "image").mkdir()
    pin = f", digest: '{digest}'" if digest else ""
    (folder / "image" / "image.yaml").write_text(f"name: thing\nformats:\n  oci: {{ref: '{ref}', archive: thing.tar{pin}}}\n")
    (folder / "recipe.yaml").write_text(f"name: thing\nkind: mcp\nimage: ./image\nport: 8000\nready: {{path: /health, timeout: {timeout}}}\n")
    return "./recipe.yaml"


def failed(cli: Cli, *words: str, code: int) -> Any:
    """The error of a run that fails, after which nothing is there."""
    error = cli("run", *words, "--json", code=code).json["error"]
    assert cli("ps", "--all", "--json").json == []
    assert labeled_containers(cli) == []
    return error


def test_an_image_that_is_not_there(on: Cli) -> None:
    error = failed(on, recipe(on.folder, "gymctl-test-none:1"), code=4)
    assert "no image gymctl-test-none:1" in error["message"]
    assert "gymctl load thing.tar" in error["hint"]
    assert "gymctl build-image thing" in error["hint"]
    assert "gymctl load" in failed(on, RECIPE, "--image", "gymctl-test-none:2", code=4)["hint"]


def test_another_version_than_the_recipe_pins(on: Cli, python_image: str) -> None:
    wanted, found = f"sha256:{'0' * 64}", docker_call(on.env["DOCKER_HOST"], "inspect", "-f", "{{.Id}}", python_image)
    error = failed(on, recipe(on.folder, python_image, digest=wanted), code=10)
    assert wanted in error["message"]
    assert found in error["message"]
    assert "gymctl load thing.tar" in error["hint"]


@pytest.mark.parametrize("command", ["echo the last words; exit 3", "sleep 0.5; echo the last words; exit 3"])
def test_it_exits_immediately(on: Cli, commanded: Callable[..., str], command: str) -> None:
    began = time.monotonic()
    error = failed(on, recipe(on.folder, commanded("exits", command), timeout=60), code=8)
    assert "exit code 3" in error["message"]
    assert "the last words" in error["message"]
    assert time.monotonic() - began < 30


def test_out_of_memory(on: Cli, commanded: Callable[..., str]) -> None:
    eater = commanded("eater", "sleep 0.5; exec python3 -c \"x = b'x' * (200 << 20)\"")
    error = failed(on, recipe(on.folder, eater, timeout=60), "--opt", "memory=64m", code=8)
    assert "exit code 137" in error["message"]
    assert "memory limit of 64 MiB" in error["message"]
    assert "--opt memory=128m" in error["message"]


def test_it_ends_later_on(on: Cli, docker_env: dict[str, str]) -> None:
    """The next command says how it ended; not only that nothing listens."""
    on("run", RECIPE, "--port", "0", "--name", "ended")
    container = json.loads((on.state / "instances/ended/instance.json").read_text())["handle"]["container"]
    docker_call(on.env["DOCKER_HOST"], "kill", container)
    error = on("step", "ended", "email_search", "query=x", "--json", code=5).json["error"]
    assert "no longer running (exited with exit code 137" in error["message"]
    assert "gymctl logs ended" in error["hint"]
    assert "--replace" in error["hint"]
    assert on("ps", "--json").json[0]["exit_code"] == 137


def test_unhealthy_by_its_own_check(on: Cli, commanded: Callable[..., str]) -> None:
    check = "HEALTHCHECK --interval=1s --retries=1 CMD echo the check failed; exit 1"
    error = failed(on, recipe(on.folder, commanded("ill", "sleep 1000000000", check)), code=8)
    assert "not ready after 4 s" in error["message"]
    assert "unhealthy: the check failed" in error["message"]


def test_no_server_in_it(on: Cli, commanded: Callable[..., str]) -> None:
    error = failed(on, recipe(on.folder, commanded("idle", "echo I have no server; sleep 1000000000")), code=8)
    assert "not ready after 4 s" in error["message"]
    assert "I have no server" in error["message"]


def test_a_container_that_a_killed_gymctl_left(on: Cli, docker_env: dict[str, str]) -> None:
    """It is said whose it is and how old; only --replace removes it."""
    on("run", RECIPE, "--port", "0", "--name", "left")
    shutil.rmtree(on.state / "instances" / "left")
    (container,) = labeled_containers(on)
    error = on("run", RECIPE, "--port", "0", "--name", "left", "--json", code=7).json["error"]
    assert "running, made 0:00:" in error["message"]
    assert "by gymctl for" in error["message"]
    assert "--replace" in error["hint"]
    assert labeled_containers(on) == [container]
    assert [(row["name"], row["status"]) for row in on("ps", "--all", "--json").json] == [("left", "orphaned")]
    on("run", RECIPE, "--port", "0", "--name", "left", "--replace")
    assert len(labeled_containers(on)) == 1
    assert labeled_containers(on) != [container]


@pytest.mark.parametrize("replace", [[], ["--replace"]])
def test_a_container_of_somebody_else_with_our_name(on: Cli, python_image: str, replace: list[str]) -> None:
    foreign = docker_call(on.env["DOCKER_HOST"], "create", "--name", f"gymctl-{on.label()}-thing", python_image)
    try:
        error = failed(on, recipe(on.folder, python_image), *replace, code=7)
        assert "it is left alone" in error["message"]
        assert "--name" in error["hint"]
        assert docker_call(on.env["DOCKER_HOST"], "inspect", "-f", "{{.Id}}", foreign) == foreign
    finally:
        docker_call(on.env["DOCKER_HOST"], "rm", foreign)


def test_an_engine_that_goes_away_meanwhile(on: Cli, docker_env: dict[str, str]) -> None:
    """Nothing is forgotten: the state is unknown, the reason is said, and once the engine is back it can be stopped."""
    on("run", RECIPE, "--port", "0", "--name", "kept")
    gone = {"DOCKER_HOST": f"unix://{on.folder}/nope"}
    listed = on("ps", env=gone)
    assert "unknown" in listed.out
    assert f"note: the Docker engine is not running: there is no socket at {on.folder}/nope" in listed.err
    assert on("ps", "--all", "--json", env=gone).json[0]["status"] == "unknown"
    on("stop", "kept", env=gone, code=5)
    on("cache", "gc", env=gone)
    on("logs", "kept", env=gone, code=5)
    on("logs", "kept", "--bundle", "x.zip", env=gone)
    on("step", "kept", "email_search", "query=x", env=gone)
    assert on("ps", "--json").json[0]["status"] == "running"
    on("stop", "kept")
    assert labeled_containers(on) == []


ENGINES = {"unix:///nope": "no socket at /nope", "tcp://127.0.0.1:9": "127.0.0.1:9 refuses the connection", "wat://x": "wat://x"}


@pytest.mark.parametrize("host", ENGINES)
@pytest.mark.parametrize("words", [["run", RECIPE], ["load", "x.tar"], ["build-image", RECIPE], ["doctor", "docker"]])
def test_no_engine(cli: Cli, host: str, words: list[str]) -> None:
    """One line what, one line what to do, the code, no trace, nothing listed."""
    (cli.folder / "x.tar").write_bytes(tar(docker_files(tar({"x": b"x"}))))
    done = cli(*words, code=1 if words[0] == "doctor" else 5, env={"DOCKER_HOST": host, "GYMCTL_RUNNER": "docker"})
    assert ENGINES[host] in done.out + done.err
    assert "DOCKER_HOST" in done.out + done.err
    assert "please report" not in done.err
    if words[0] != "doctor":
        assert len(done.err.splitlines()) == 2
    assert cli("ps", "--json").json == []


def test_a_damaged_archive_is_said_without_any_engine(cli: Cli) -> None:
    """The file is looked at before the engine is."""
    whole = tar(docker_files(tar({"blob": bytes(300_000)})))
    (cli.folder / "cut.tar").write_bytes(whole[:-100_000])
    for words in (["load", "cut.tar"], ["run", RECIPE, "--runner", "docker", "--image", "cut.tar"]):
        error = cli(*words, "--json", code=10, env={"DOCKER_HOST": "unix:///nope"}).json["error"]
        assert "byte" in error["message"]
    assert cli("ps", "--json").json == []


def test_names_and_proxies_play_no_part(on: Cli, docker_env: dict[str, str]) -> None:
    """No name is looked up, `localhost` least of all (it may be ::1), and no proxy is asked."""
    dead = "http://127.0.0.1:9"
    env = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"), dead) | {"NO_PROXY": "", "no_proxy": ""}
    on.env |= env
    code = (
        "import ipaddress, socket, sys\nreal = socket.getaddrinfo\n"
        "def numbers(host, *args, **kwargs):\n    ipaddress.ip_address(host)\n    return real(host, *args, **kwargs)\n"
        "socket.getaddrinfo = numbers\nfrom gymctl.cli import main\nmain()"
    )
    (on.folder / "x.tar").write_bytes(tar(docker_files(tar({"x": b"x"}), tags=["gymctl-test-names:1"])))
    episodes = [["run", RECIPE, "--runner", runner, "--port", "0", "--task", "move-standup", "--agent", "oracle", "--rm"] for runner in ("docker", "local")]
    for words in (["load", "x.tar"], *episodes):
        done = subprocess.run([sys.executable, "-c", code, *words, "--json"], env=on.env, capture_output=True, text=True, check=False, cwd=on.folder)
        assert done.returncode == 0, done.stderr
        assert words[0] == "load" or json.loads(done.stdout)["url"].startswith("http://127.0.0.1:")
    docker_call(on.env["DOCKER_HOST"], "rmi", "gymctl-test-names:1")


def test_several_images_and_none_with_a_name(on: Cli, python_image: str) -> None:
    """Every reference and digest is said; of several none is chosen for the user; one without a name can be given one."""
    host = on.env["DOCKER_HOST"]
    small = [docker_call(host, "import", "-", input=tar({"x": str(n).encode()})) for n in range(2)]
    for n, digest in enumerate(small):
        docker_call(host, "tag", digest, f"gymctl-test-two:{n}")
    docker_call(host, "save", "-o", str(on.folder / "two.tar"), "gymctl-test-two:0", "gymctl-test-two:1")
    docker_call(host, "save", "-o", str(on.folder / "id.tar"), small[0])
    rows = on("load", "two.tar", "--json").json["loaded"]
    assert {(row["ref"], row["digest"]) for row in rows} == {(f"gymctl-test-two:{n}", digest) for n, digest in enumerate(small)}
    error = failed(on, RECIPE, "--image", "two.tar", code=2)
    assert "holds 2 images" in error["message"]
    assert "--image gymctl-test-two:0 or gymctl-test-two:1" in error["hint"]
    unnamed = on("load", "id.tar")
    assert small[0] in unnamed.out
    assert "--tag NAME:TAG" in unnamed.err
    assert on("load", "id.tar", "--tag", "gymctl-test-two:named", "--json").json["loaded"][0]["digest"] == small[0]
    docker_call(host, "rmi", "-f", *small)
