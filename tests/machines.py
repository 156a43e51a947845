"""Machines of the tests that start their own: recipes of a test's own, runs of them, commands in the guest."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import desktops
from tests.conftest import Cli

JUDGED_BY = {"type": "vm_command_line", "command": "cat done", "shell": True}
TASK = {"prompt": "Do it.", "evaluator": {"func": "exact_match", "result": JUDGED_BY, "expected": {"type": "rule", "rules": {"expected": "yes"}}}}
IMAGE_VARIABLE = "TEST_DESKTOP_IMAGE"


def prepared(runner: str, cli: Cli, request: pytest.FixtureRequest) -> Cli:
    """gymctl that starts desktops on a runner; a skip, which NO_SKIP forbids, where a part is missing."""
    if runner == "docker":
        host = request.getfixturevalue("docker_host")
        request.getfixturevalue("desktop_image")
        cli.env |= {"DOCKER_HOST": host, IMAGE_VARIABLE: desktops.image(host)}
    else:
        desktops.check_host()
    cli.env["GYMCTL_RUNNER"] = runner
    return cli


@pytest.fixture(params=desktops.RUNNERS)
def on_desktop(request: pytest.FixtureRequest, cli: Cli) -> Cli:
    """gymctl with GYMCTL_RUNNER set to each runner of desktops."""
    return prepared(request.param, cli, request)


@pytest.fixture
def local_desktop(request: pytest.FixtureRequest, cli: Cli) -> Cli:
    """The same for local."""
    return prepared("local", cli, request)


@pytest.fixture
def docker_desktop(request: pytest.FixtureRequest, cli: Cli) -> Iterator[Cli]:
    """The same for docker; its checkpoints are removed."""
    made = prepared("docker", cli, request)
    yield made
    made("stop", "--all", code=None)
    made("cache", "gc", "--all")


def recipe(folder: Path, tasks: dict[str, Any] | None = None, **fields: Any) -> str:
    """A recipe of the test's own on the desktop's image; its path."""
    folder.mkdir(exist_ok=True)
    (folder / "tasks").mkdir(exist_ok=True)
    base = {
        "name": "own-desktop", "kind": "desktop", "image": "linux-desktop", "port": 5000, "ports": {"VNC_PORT": 5900}, "env": {"RESOLUTION": "800x600"},
        "ready": {"path": "/health", "timeout": 120}, "resources": {"cpus": 2, "mem_gb": 2, "network": False}, "runners": ["docker", "local"],
    }  # fmt: skip
    (folder / "recipe.yaml").write_text(yaml.safe_dump({**base, **fields}, allow_unicode=True))
    for name, task in (tasks or {}).items():
        (folder / "tasks" / f"{name}.yaml").write_text(yaml.safe_dump({**TASK, **task, "id": name}, allow_unicode=True))
    return str(folder)


def words(cli: Cli, where: str, *more: str) -> list[str]:
    """The words of `run`, on the tests' image."""
    image = ["--image", cli.env[IMAGE_VARIABLE]] if IMAGE_VARIABLE in cli.env else []
    return ["run", where, *image, *more]


def run(cli: Cli, where: str, *more: str, code: int = 0) -> Any:
    """`run --json`; the document."""
    return cli(*words(cli, where, *more), "--json", code=code, timeout=300).json


def record(cli: Cli, name: str) -> Any:
    """The record of an instance."""
    return json.loads((cli.state / "instances" / name / "instance.json").read_text())


def guest(cli: Cli, name: str, command: str, token: str | None = None) -> str:
    """What a shell command line in the guest prints."""
    kept = record(cli, name)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token or kept['secrets']['GUEST_TOKEN']}"}
    request = urllib.request.Request(f"{kept['url']}/execute", json.dumps({"command": command, "shell": True}).encode(), headers)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
        return str(json.load(answer)["output"])


def lines(folder: Path, kind: str) -> list[dict[str, Any]]:
    """The lines of one type in the episode.jsonl of a folder."""
    path = folder / "episode.jsonl"
    written = path.read_text().splitlines() if path.exists() else []
    return [line for line in map(json.loads, written) if line["type"] == kind]
