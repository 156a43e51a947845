"""One cold boot for all tests of runner qemu: whoever needs a machine clones the state that it left."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gymctl.runner import Handle, Plan
from gymctl.vm import machine
from tests.conftest import Cli, lacking

RECIPE = "linux-desktop"
WORDS = ("run", RECIPE, "--checkpoint", "post_start", "--port", "0", "--json")
CACHE_VARIABLE = "GYMCTL_TEST_CACHE"
"""A cache that has the disk, and perhaps the state, from tests before these."""
BOOT_SECONDS = 600


@pytest.fixture(scope="session")
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a gymctl whose cache has the desktop's disk and the state `post_start` of it, made by the one cold boot."""
    if not shutil.which(machine.EMULATOR):
        lacking("qemu", f"no {machine.EMULATOR}")
    cache = os.environ.get(CACHE_VARIABLE) or request.getfixturevalue("desktop_files")["GYMCTL_CACHE_DIR"]
    first = Cli(tmp_path_factory.mktemp("first"))
    first.env |= {"GYMCTL_CACHE_DIR": cache, "GYMCTL_RUNNER": "qemu"}
    document = first(*WORDS, timeout=BOOT_SECONDS).json
    assert document["runner"] == "qemu"
    first.close()
    return {"GYMCTL_CACHE_DIR": cache, "GYMCTL_RUNNER": "qemu"}


@pytest.fixture
def on(cli: Cli, saved: dict[str, str]) -> Iterator[Cli]:
    """gymctl that clones; nothing of it is left on the host after the test."""
    cli.env |= saved
    yield cli
    cli("stop", "--all", timeout=60)
    assert cli.leftovers() == []
    assert sorted(path.name for path in Path(cli.env["XDG_RUNTIME_DIR"]).glob("gymctl-*")) == []


def clone(cli: Cli, name: str, *more: str) -> Any:
    """A running clone: the document of its run."""
    document = cli(*WORDS, "--name", name, *more, timeout=120).json
    assert (document["form"], document["checkpoint"]) == ("clone", "post_start"), document
    return document


def record(cli: Cli, name: str) -> Any:
    """The record of an instance."""
    return json.loads((cli.state / "instances" / name / "instance.json").read_text())


def handle(cli: Cli, name: str) -> Handle:
    """Its runner's handle."""
    found: Handle = record(cli, name)["handle"]
    return found


def plan(cli: Cli, name: str, **options: Any) -> Plan:
    """The plan of another machine like a recorded one, in a directory of its own."""
    kept = record(cli, name)
    directory = cli.folder / f"of-{name}"
    directory.mkdir(exist_ok=True)
    return Plan(
        name=f"of-{name}", label=f"{cli.label()}/of-{name}", directory=directory, format="qcow2", image=kept["plan"]["image"], port=5000, host_port=0,
        env=kept["plan"]["env"], options={**kept["plan"]["options"], **options}, cpus=2, mem_gb=2, secrets=kept["secrets"],
    )  # fmt: skip
