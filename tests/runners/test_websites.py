"""Calendr on every runner that a website has, and its image as a plain container with the lines of its README."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from gymctl.browser import client as browser
from tests.conftest import ROOT, Cli, lacking
from tests.engine import docker_call

RUNNERS = ("local", "docker")
TASK = "drag-dentist"


@pytest.fixture(params=RUNNERS)
def on(request: pytest.FixtureRequest, cli: Cli) -> Cli:
    """gymctl with GYMCTL_RUNNER set to each runner."""
    if request.param == "docker":
        cli.env |= request.getfixturevalue("calendr_env")
    cli.env["GYMCTL_RUNNER"] = request.param
    return cli


def test_a_whole_episode(on: Cli) -> None:
    if missing := browser.lacking():
        lacking("browser", missing.message)
    words = ["run", "calendr", "--task", TASK, "--port", "0", "--rm", "--json"]
    document = on(*words, "--agent", "oracle").json
    assert (document["verdict"], document["score"], document["runner"]) == ("passed", 1.0, on.env["GYMCTL_RUNNER"])
    assert on("ps", "--all", "--json").json == []
    assert on.leftovers() == []
    assert on(*words, "--agent", "noop", code=1).json["verdict"] == "failed"


def test_sessions_do_not_see_each_other(on: Cli) -> None:
    on("run", "calendr", "--port", "0")
    for session, pack in (("one", "default"), ("two", "professional-swe")):
        on("reset", "calendr", "--session", session, "--pack", pack)
    seen = {s: on("step", "calendr", "--session", s, "state", "people", "--json").json["observation"]["state"]["people"] for s in ("one", "two")}
    assert "jonas@harbor.example" in {row["email"] for row in seen["two"]}
    assert not {row["email"] for row in seen["one"]} & {row["email"] for row in seen["two"]}


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("DATA_PACK=nowhere", "DATA_PACK: no pack 'nowhere'; there are: default, professional-swe"),
        ("WAIT_S=soon", "could not convert string to float: 'soon'"),
    ],
)
def test_a_server_that_ends_is_seen_and_explained(on: Cli, setting: str, said: str) -> None:
    began = time.monotonic()
    error = on("run", "calendr", "-e", setting, "--port", "0", "--json", code=8).json["error"]
    assert time.monotonic() - began < 20, "far from the time-out of its readiness"
    assert "exit code 2" in error["message"]
    assert said in error["message"]
    assert on("ps", "--all", "--json").json == []


def quick_start() -> list[str]:
    """The lines under "As a plain container" of the image's README."""
    text = (ROOT / "images" / "calendr" / "README.md").read_text(encoding="utf-8")
    block = text.partition("## As a plain container\n")[2].partition("\n## ")[0]
    return [line.strip().partition("   #")[0] for line in block.splitlines() if line.startswith("    ")]


def answer(line: str) -> Any:
    """What a line's curl prints."""
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if done.stdout.startswith("{") else done.stdout


def test_a_plain_container_with_the_lines_of_the_readme(calendr_env: dict[str, str], tmp_path: Path) -> None:
    host = calendr_env["DOCKER_HOST"]
    start, *lines = quick_start()
    assert start == "docker run -d -p 3000:3000 calendr"
    made = docker_call(host, *start.replace("3000:3000", "127.0.0.1::3000").split()[1:])
    try:
        address = docker_call(host, "port", made, "3000").splitlines()[0]
        health, reset, task, prompt, state, log, verifier, page = (
            answer(line.replace("127.0.0.1:3000", address).replace("curl ", "curl -sS --retry 50 --retry-all-errors --retry-delay 0 ")) for line in lines
        )
    finally:
        docker_call(host, "rm", "-f", made)
    assert health["status"] == "ok"
    assert (reset["dataPack"], reset["resetSummary"]["events"]) == ("professional-swe", 0)
    assert reset["loadSummary"]["events"] >= 120
    assert task["transformedPrompt"] == "Book {+1 Wed} for the review"
    assert prompt["convertedPrompt"] == "Book 2025-01-15 for the review"
    assert len(state["events"]) == reset["loadSummary"]["events"]
    assert log["log"][0]["value"] == "reset"
    assert (verifier["success"], verifier["session_id"]) == (True, "s1")
    assert re.search(r"<html", page)
