"""Levels: keys know everything that a checkpoint is made from; hooks run for real, have an end, and fail closed; runs begin at the highest level there is."""

from __future__ import annotations

import dataclasses
import os
import time
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gymctl import recipe
from gymctl.cli import ui
from gymctl.levels import Way
from gymctl.recipe import SetUp, Task
from gymctl.runner import Plan
from tests import machines
from tests.conftest import RECIPE, Cli
from tests.machines import guest, record, run

Change = Callable[[Way], Way]


@pytest.fixture
def way(tmp_path: Path) -> Way:
    """A way to post_task, with a file that the setup uploads."""
    (tmp_path / "note.txt").write_text("one")
    source = recipe.load(machines.recipe(tmp_path / "own", hooks={"pre_start": "true", "post_start": "echo 'a'"}))
    plan = Plan("x", "l/x", tmp_path, "oci", {}, 5000, env={"A": "1"}, options={"memory": "1g", "network": "true"}, cpus=1, mem_gb=2)
    files = [{"local_path": str(tmp_path / "note.txt"), "path": "/tmp/note"}]
    task = Task("t", "do", setup=[SetUp("upload_file", {"files": files}), SetUp("execute", {"command": "true"})])
    return Way(source, plan, "post_task", task, "sha256:00")


def recipe_with(way: Way, **fields: Any) -> Way:
    return dataclasses.replace(way, source=msgspec.structs.replace(way.source, recipe=msgspec.structs.replace(way.source.recipe, **fields)))


def plan_with(way: Way, **fields: Any) -> Way:
    return dataclasses.replace(way, plan=dataclasses.replace(way.plan, **fields))


def setup_with(way: Way, *steps: SetUp) -> Way:
    assert way.task
    return dataclasses.replace(way, task=msgspec.structs.replace(way.task, setup=list(steps)))


def hook_with(way: Way, **fields: Any) -> Way:
    return recipe_with(way, hooks=msgspec.structs.replace(way.source.recipe.hooks, **fields))


def rewritten(way: Way) -> Way:
    assert way.task
    Path(way.task.setup[0].parameters["files"][0]["local_path"]).write_text("two")
    return way


KNOWN: dict[str, Change] = {
    "the image's bytes": lambda way: dataclasses.replace(way, digest="sha256:01"),
    "the hook pre_start": lambda way: hook_with(way, pre_start="true "),
    "the hook post_start": lambda way: hook_with(way, post_start="echo 'b'"),
    "the hook pre_task": lambda way: hook_with(way, pre_task="true"),
    "the hooks' deadline": lambda way: hook_with(way, timeout=5),
    "a variable": lambda way: plan_with(way, env={"A": "2"}),
    "another variable": lambda way: plan_with(way, env={"A": "1", "B": ""}),
    "an option": lambda way: plan_with(way, options={**way.plan.options, "memory": "2g"}),
    "processors": lambda way: plan_with(way, cpus=2),
    "memory": lambda way: plan_with(way, mem_gb=3),
    "the port": lambda way: recipe_with(way, port=5001),
    "the setup": lambda way: setup_with(way, *way.task.setup, SetUp("sleep", {"seconds": 1})) if way.task else way,
    "a setup's parameter": lambda way: setup_with(way, way.task.setup[0], SetUp("execute", {"command": "false"})) if way.task else way,
    "an uploaded file's bytes": rewritten,
}
UNKNOWN: dict[str, Change] = {
    "an option of one episode": lambda way: plan_with(way, options={**way.plan.options, "network": "false"}),
    "the host's port": lambda way: plan_with(way, host_port=4711),
    "the name": lambda way: plan_with(way, name="y", label="l/y"),
    "the secrets": lambda way: plan_with(way, secrets={"GUEST_TOKEN": "another"}),
    "the summary": lambda way: recipe_with(way, summary="other words"),
    "the recipe's list of runners": lambda way: recipe_with(way, runners=["docker"]),
    "the task's prompt": lambda way: dataclasses.replace(way, task=msgspec.structs.replace(way.task, prompt="other words")) if way.task else way,
}


@pytest.mark.parametrize("what", KNOWN)
def test_whatever_a_checkpoint_is_made_from_is_in_its_key(what: str, way: Way) -> None:
    before = way.keys("docker")["post_task"]
    assert KNOWN[what](way).keys("docker")["post_task"] != before


@pytest.mark.parametrize("what", UNKNOWN)
def test_what_does_not_decide_is_in_no_key(what: str, way: Way) -> None:
    before = way.keys("docker")
    assert UNKNOWN[what](way).keys("docker") == before


def test_a_level_below_the_task_knows_nothing_of_it(way: Way) -> None:
    before = way.keys("docker")
    changed = rewritten(dataclasses.replace(way, level="post_task")).keys("docker")
    assert [level for level in before if before[level] != changed[level]] == ["post_task"]
    assert list(before) == ["post_task", "post_start", "pre_start"]
    assert len(set(before.values())) == 3


def test_the_command_line_knows_the_levels() -> None:
    assert ui.LEVELS == recipe.LEVELS


def test_hooks_are_for_machines(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "recipe.yaml").write_text(f"name: own\nkind: mcp\nimage: {RECIPE}\nport: 1984\nhooks:\n  pre_start: 'true'\n")
    said = cli("recipes", str(folder), "--json", code=3).json["error"]["message"]
    assert f"{folder}/recipe.yaml:5: hooks: only a desktop has them" in said


def test_a_server_has_no_checkpoints(cli: Cli, shared: Cli) -> None:
    for option in ("--checkpoint=post_start", "--fast-io"):
        error = cli("run", RECIPE, "--runner", "local", option, "--json", code=6).json["error"]
        assert "desktops" in error["message"]
    error = cli("run", RECIPE, "--runner", "local", "--task", "move-standup", "--agent", "noop", "--record", "--json", code=6).json["error"]
    assert "--record is for desktops" in error["message"]
    assert cli("ps", "--all", "--json").json == []
    for state in ((), ("--universe", "sales-team")):
        assert "desktops" in shared("reset", "office", "--checkpoint", "post_start", *state, "--json", code=6).json["error"]["message"]


def test_options_that_need_others(cli: Cli) -> None:
    assert "--task" in cli("run", "linux-desktop", "--checkpoint", "post_task", "--json", code=2).json["error"]["message"]
    assert "--agent" in cli("run", "linux-desktop", "--record", "--json", code=2).json["error"]["message"]
    assert "pre_start" in cli("run", "linux-desktop", "--checkpoint", "memory", "--json", code=2).json["error"]["message"]


def test_local_cannot_checkpoint_and_says_who_can(local_desktop: Cli, tmp_path: Path) -> None:
    on = local_desktop
    error = run(on, "linux-desktop", "--port", "0", "--checkpoint", "post_start", code=6)["error"]
    assert "local cannot checkpoint" in error["message"]
    assert "docker" in error["hint"]
    assert on("ps", "--all", "--json").json == []
    assert on.leftovers() == []
    document = run(on, "linux-desktop", "--port", "0", "--name", "d")
    assert (document["form"], document["checkpoint"]) == ("cold", None)
    on("reset", "d", "--checkpoint", "post_start", code=6)
    assert on("ps", "--json").json[0]["status"] == "running"
    assert guest(on, "d", "echo still") == "still\n"


ODD = """printf '%s' "it's \\"ü€\\" & \\\\ done" > "$HOME/a file" && (sleep 4711 >/dev/null 2>&1 &) && echo 'größer' && echo warned >&2"""


def test_hooks_run_as_a_shell_would_run_them(on_desktop: Cli, tmp_path: Path) -> None:
    on = on_desktop
    where = machines.recipe(tmp_path / "own", {"t": {}}, hooks={"pre_start": ODD, "post_start": "exit 0", "pre_task": "echo task > ~/task"})
    run(on, where, "--port", "0", "--name", "d")
    lines = machines.lines(on.state / "instances" / "d", "hook")
    assert [(line["stage"], line["exit"], line["timed_out"]) for line in lines] == [("pre_start", 0, False), ("post_start", 0, False)]
    assert (lines[0]["command"], lines[0]["stdout"], lines[0]["stderr"]) == (ODD, "größer\n", "warned\n")
    assert lines[0]["elapsed"] < 5
    assert guest(on, "d", 'cat "$HOME/a file"') == 'it\'s "ü€" & \\ done'
    assert guest(on, "d", "pgrep -f '^sleep 4711' | wc -l").strip() == "1"
    assert guest(on, "d", "ls ~/task 2>/dev/null") == ""
    document = on("reset", "d", "--task", "t", "--json").json
    assert (document["form"], document["checkpoint"]) == ("cold", None)
    assert guest(on, "d", "cat ~/task") == "task\n"
    stages = [line["stage"] for line in machines.lines(on.state / "instances" / "d", "hook")]
    assert stages == ["pre_start", "post_start", "pre_start", "post_start", "pre_task"]
    on("stop", "d")
    assert on.leftovers() == []


@pytest.mark.parametrize(("text", "says"), [("echo so far; echo 'no disk' >&2; exit 7", "exit code 7: no disk"), ("kill -9 $$", "exit code -9")])
def test_a_hook_that_fails_ends_the_run(on_desktop: Cli, tmp_path: Path, text: str, says: str) -> None:
    on = on_desktop
    where = machines.recipe(tmp_path / "own", hooks={"post_start": text})
    error = run(on, where, "--port", "0", code=8)["error"]
    assert says in error["message"]
    assert "post_start" in error["message"]
    assert text in error["hint"]
    assert on("ps", "--all", "--json").json == []
    assert on.leftovers() == []


def test_a_hook_without_end_is_ended_with_its_children(local_desktop: Cli, tmp_path: Path) -> None:
    on = local_desktop
    where = machines.recipe(tmp_path / "own", {"t": {}}, hooks={"pre_task": "sleep 4712 & sleep 4713; true", "timeout": 1})
    run(on, where, "--port", "0", "--name", "d")
    began = time.monotonic()
    done = on("reset", "d", "--task", "t", "--json", code=8)
    assert "pre_task did not end within 1 s" in done.json["error"]["message"]
    assert "note: d had been ended to be started anew, and runs no more" in done.err
    assert time.monotonic() - began < 15
    assert on("ps", "--all", "--json").json == []
    assert on.leftovers() == []


def test_a_hook_after_the_task_that_fails_is_no_verdict(on_desktop: Cli, tmp_path: Path) -> None:
    on = on_desktop
    where = machines.recipe(tmp_path / "own", {"t": {}}, hooks={"post_task": "test -e ~/ready"})
    run(on, where, "--port", "0", "--name", "d", "--task", "t")
    guest(on, "d", "printf yes > ~/done")
    document = on("verify", "d", "--json", code=11).json
    assert (document["verdict"], document["score"], document["reason"]["type"]) == ("none", None, "hook_failed")
    assert "exit code 1" in document["reason"]["message"]
    guest(on, "d", "touch ~/ready")
    assert on("verify", "d", "--json").json["verdict"] == "passed"
    assert [line["exit"] for line in machines.lines(on.state / "instances" / "d", "hook")] == [1, 0]


HOOKS = {name: f"echo {name} >> ~/levels" for name in ("pre_start", "post_start", "pre_task")}
STEPS = [{"type": "execute", "parameters": {"command": "echo setup >> ~/levels", "shell": True}}, {"type": "launch", "parameters": {"command": ["mousepad"]}}]


def came_by(on: Cli, name: str) -> list[str]:
    """What the hooks and the setup have written, each once for each time that it ran."""
    return guest(on, name, "cat ~/levels").split()


def test_a_run_begins_at_the_highest_level_there_is(docker_desktop: Cli, tmp_path: Path) -> None:
    on = docker_desktop
    where = machines.recipe(tmp_path / "own", {"t": {"setup": STEPS}, "other": {}}, hooks=HOOKS)
    first = run(on, where, "--port", "0", "--name", "one", "--checkpoint", "post_start")
    assert (first["form"], first["checkpoint"]) == ("cold", None)
    assert "made the checkpoint post_start (disk)" in first["notes"]
    assert came_by(on, "one") == ["pre_start", "post_start"]
    second = run(on, where, "--port", "0", "--name", "two", "--checkpoint", "post_task", "--task", "t")
    assert (second["form"], second["checkpoint"]) == ("disk", "post_start")
    assert "made the checkpoint post_task (disk)" in second["notes"]
    assert came_by(on, "two") == ["pre_start", "post_start", "pre_task", "setup"]
    third = run(on, where, "--port", "0", "--name", "three", "--checkpoint", "post_task", "--task", "t")
    assert (third["form"], third["checkpoint"], [note for note in third["notes"] if "made" in note]) == ("disk", "post_task", [])
    assert came_by(on, "three") == ["pre_start", "post_start", "pre_task", "setup"]
    assert "mousepad" in guest(on, "three", "ps ax -o comm").split(), "processes are started again"
    assert [row["runner"] for row in on("cache", "ls", "--json").json] == ["docker", "docker"]

    guest(on, "three", "touch ~/trace")
    assert on("reset", "three", "--task", "t", "--json").json["checkpoint"] == "post_task"
    assert came_by(on, "three") == ["pre_start", "post_start", "pre_task", "setup"]
    assert guest(on, "three", "ls ~/trace 2>/dev/null") == "", "it is another machine"
    assert on("reset", "three", "--task", "t", "--checkpoint", "post_start", "--json").json["checkpoint"] == "post_start"
    assert came_by(on, "three") == ["pre_start", "post_start", "pre_task", "setup"]
    assert on("reset", "three", "--json").json["checkpoint"] == "post_start", "without a task it is the level below"
    assert came_by(on, "three") == ["pre_start", "post_start"]
    error = on("reset", "three", "--checkpoint", "pre_start", "--json", code=4).json["error"]
    assert "--checkpoint pre_start" in error["hint"]
    assert came_by(on, "three") == ["pre_start", "post_start"], "what cannot be done has changed nothing"
    shown = on("reset", "three", "--checkpoint", "post_start").out
    assert "started anew from the checkpoint post_start (disk)" in shown


def test_what_comes_from_a_checkpoint_has_secrets_and_ports_of_its_own(docker_desktop: Cli, tmp_path: Path) -> None:
    on = docker_desktop
    where = machines.recipe(tmp_path / "own")
    for name in ("one", "two", "three"):
        run(on, where, "--port", "0", "--name", name, "--checkpoint", "pre_start")
    records = [record(on, name) for name in ("one", "two", "three")]
    assert [kept["form"] for kept in records] == ["cold", "disk", "disk"]
    for field in ("GUEST_TOKEN", "VNC_PASSWORD"):
        assert len({kept["secrets"][field] for kept in records}) == 3
    assert len({kept["url"] for kept in records}) == 3
    with pytest.raises(urllib.error.HTTPError, match="401"):
        guest(on, "two", "true", token=records[0]["secrets"]["GUEST_TOKEN"])
    assert guest(on, "two", "ls -d /run/gymctl/desktop-* | wc -l").strip() == "1", "private files of the machine that was saved are not in it"
    assert on("cache", "gc", "--all").err.count("in use by") == 1
    assert len(on("cache", "ls", "--json").json) == 1
    on("stop", "two", "three")
    assert on("cache", "gc", "--all", "--json").json["removed"]
    assert on("cache", "ls", "--json").json == []
    assert guest(on, "one", "echo lives") == "lives\n"


def test_a_hook_that_fails_keeps_no_checkpoint(docker_desktop: Cli, tmp_path: Path) -> None:
    on = docker_desktop
    where = machines.recipe(tmp_path / "own", hooks={"post_start": f"test -e /nowhere-{os.getpid()}"})
    run(on, where, "--port", "0", "--checkpoint", "post_start", code=8)
    assert on("cache", "ls", "--json").json == []
    assert on("ps", "--all", "--json").json == []


def test_desktops_at_once_share_nothing(on_desktop: Cli, tmp_path: Path) -> None:
    on = on_desktop
    where = machines.recipe(tmp_path / "own")
    names = [f"d{number}" for number in range(4 if on.env["GYMCTL_RUNNER"] == "local" else 3)]
    runs = [on.spawn(*machines.words(on, where, "--port", "0", "--name", name)) for name in names]
    for started in runs:
        _, said = started.communicate(timeout=300)
        assert started.returncode == 0, said
    records = [record(on, name) for name in names]
    assert len({port for kept in records for port in kept["handle"]["ports"].values()}) == 2 * len(names)
    assert len({secret for kept in records for secret in kept["secrets"].values()}) == 2 * len(names)
    if on.env["GYMCTL_RUNNER"] == "local":
        assert len({guest(on, name, "echo $DISPLAY") for name in names}) == len(names)
    for name in names:
        guest(on, name, f"echo {name} > ~/mine")
    assert [guest(on, name, "cat ~/mine; ls ~/Desktop | wc -l").split() for name in names] == [[name, "0"] for name in names]
    on("stop", "--all")
    assert on.leftovers() == []
