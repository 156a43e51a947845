"""What every runner must do, on real ones: the same suite for each."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from gymctl.builds import Builder
from gymctl.runner import Runner
from gymctl.runners import docker, local, qemu
from tests.conftest import RECIPE, Cli

RUNNERS = ("local", "docker")
# For mypy: each module is what the contract says, signature by signature.
MODULES: tuple[Runner, ...] = (local, docker, qemu)
BUILDER: Builder = docker


@pytest.fixture(params=RUNNERS)
def on(request: pytest.FixtureRequest, cli: Cli) -> Cli:
    """gymctl with GYMCTL_RUNNER set to each runner."""
    if request.param == "docker":
        cli.env |= request.getfixturevalue("docker_env")
    cli.env["GYMCTL_RUNNER"] = request.param
    return cli


@pytest.fixture(scope="module", params=RUNNERS)
def office(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cli, Any]]:
    """One running instance a runner, and the document of its run, for tests that only talk to it."""
    made = Cli(tmp_path_factory.mktemp("office"))
    if request.param == "docker":
        made.env |= request.getfixturevalue("docker_env")
    made.env["GYMCTL_RUNNER"] = request.param
    document = made("run", RECIPE, "--name", "office", "--port", "0", "--json").json
    yield made, document
    made.close()


def post(url: str, document: Any = None) -> Any:
    body = b"" if document is None else json.dumps(document).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    return json.load(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60))


def test_a_whole_episode(on: Cli) -> None:
    document = on("run", RECIPE, "--task", "move-standup", "--agent", "oracle", "--rm", "--json").json
    assert (document["verdict"], document["score"], document["runner"]) == ("passed", 1.0, on.env["GYMCTL_RUNNER"])
    assert on("ps", "--all", "--json").json == []
    assert on.leftovers() == []
    assert on("run", RECIPE, "--task", "move-standup", "--agent", "noop", "--rm", "--json", code=1).json["verdict"] == "failed"


def test_step_by_step(office: tuple[Cli, Any]) -> None:
    on, _ = office
    on("reset", "office", "--task", "move-standup")
    assert on("verify", "office", "--json", code=1).json["score"] < 1
    task = next(t for t in on("recipes", RECIPE, "--json").json["tasks"] if t["id"] == "move-standup")
    lines = "".join(json.dumps({"action": call["tool"], "args": call["args"], "id": n}) + "\n" for n, call in enumerate(task["solution"]))
    answers = [json.loads(line) for line in on("step", "office", "--stdin", input=lines).out.splitlines()]
    assert [a["id"] for a in answers] == list(range(len(task["solution"])))
    assert all("observation" in a for a in answers)
    assert on("verify", "office", "--json").json["verdict"] == "passed"
    on("reset", "office", "--task", "move-standup")
    assert on("verify", "office", "--json", code=1).json["verdict"] == "failed"


def test_sessions_do_not_see_each_other(office: tuple[Cli, Any]) -> None:
    on, _ = office
    for session in ("one", "two"):
        on("reset", "office", "--session", session, "--universe", "sales-team")
    on("step", "office", "--session", "one", "contacts_create_group", "name=canary-4711")
    seen = {s: on("step", "office", "--session", s, "contacts_list_groups").out for s in ("one", "two")}
    assert "canary-4711" in seen["one"]
    assert "canary-4711" not in seen["two"]


def test_the_quick_starts_three_lines(office: tuple[Cli, Any]) -> None:
    _, document = office
    url = document["url"]
    reset = post(f"{url}/reset", {"options": {"universe_id": "sales-team"}})
    assert reset["universe_id"] == "sales-team"
    assert reset["servers"]["calendar"]["events"] > 0
    tools = post(f"{url}/list-tools")
    assert len(tools) >= 90
    assert tools[0].keys() >= {"name", "description", "inputSchema"}
    (block,) = post(f"{url}/call-tool", {"tool_name": "calendar_get_calendar_events", "tool_args": {}})
    assert json.loads(block["text"])["events"]


def test_official_mcp_clients(office: tuple[Cli, Any]) -> None:
    """The session kind, and the session-less one that the SDK's `Client` is by default."""
    from mcp import Client, ClientSession
    from mcp.client.streamable_http import streamable_http_client

    async def talk() -> None:
        async with streamable_http_client(f"{office[1]['url']}/mcp") as (read, write, *_), ClientSession(read, write) as session:
            await session.initialize()
            names = [tool.name for tool in (await session.list_tools()).tools]
            assert "calendar_get_calendar_events" in names
            result = await session.call_tool("calendar_get_calendar_events", {})
            assert json.loads(result.content[0].text)["events"]  # type: ignore[union-attr]
        async with Client(f"{office[1]['url']}/mcp?assignmentId=client") as client:
            assert "email_send" in [tool.name for tool in (await client.list_tools()).tools]
            again = await client.call_tool("contacts_search_people", {"query": "a", "limit": 1})
            assert json.loads(again.content[0].text)["people"]  # type: ignore[union-attr]

    anyio.run(talk)


def test_ps_and_logs(office: tuple[Cli, Any]) -> None:
    on, document = office
    (row,) = on("ps", "--json").json
    assert (row["status"], row["url"], row["restarts"]) == ("running", document["url"], 0)
    assert row["ports"] == {"1984": int(document["url"].rpartition(":")[2])}
    text = on("ps").out
    assert re.search(r"office +agent-environment +\w+ +running +http://127.0.0.1:\d+ +\d+->1984", text), text
    on("logs", "office")
    assert isinstance(on("logs", "office", "--json").json["lines"], list)


def test_a_bundle_holds_what_a_maintainer_needs_and_no_secret(office: tuple[Cli, Any]) -> None:
    on, _ = office
    on("step", "office", "no_such_tool", code=4)
    record = on.state / "instances" / "office" / "instance.json"
    document = json.loads(record.read_text())
    document["secrets"] = {"GUEST_TOKEN": "hush-hush-4711"}
    record.write_text(json.dumps(document))
    members = on("logs", "office", "--bundle", "report.zip", "--json").json["members"]
    with zipfile.ZipFile(on.folder / "report.zip") as file:
        texts = {name: file.read(name).decode() for name in members}
    assert texts.keys() >= {"instance.json", "versions.json", "doctor.json", "status.json", "episode.jsonl", "recipe.yaml", "log.txt"}
    assert "no_such_tool" in texts["episode.jsonl"]
    assert "hush-hush-4711" not in "".join(texts.values())


def test_a_taken_port_is_a_conflict_that_names_the_holder(on: Cli) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = str(holder.getsockname()[1])
        error = on("run", RECIPE, "--port", port, "--json", code=7).json["error"]
        assert port in error["message"]
        assert "--port 0" in error["hint"]
        assert "python" in error["message"] or "pid" in error["message"]
    assert on("ps", "--all", "--json").json == []
    assert on("run", RECIPE, "--port", port, "--json").json["url"].endswith(f":{port}")


def test_the_documented_port_when_free_else_a_note(on: Cli) -> None:
    with socket.socket() as holder:
        try:
            holder.bind(("127.0.0.1", 1984))
        except OSError:
            pytest.skip("port 1984 is in use on this machine")
        holder.listen()
        document = on("run", RECIPE, "--name", "a", "--json").json
        assert not document["url"].endswith(":1984")
        assert any("1984" in note for note in document["notes"])
    assert on("run", RECIPE, "--name", "b", "--json").json["url"].endswith(":1984")


def test_a_name_is_taken_until_it_is_replaced(on: Cli) -> None:
    first = on("run", RECIPE, "--port", "0", "--json").json
    error = on("run", RECIPE, "--port", "0", "--json", code=7).json["error"]
    assert "started" in error["message"]
    assert "--replace" in error["hint"]
    second = on("run", RECIPE, "--port", "0", "--replace", "--json").json
    assert second["session"] != first["session"]
    assert len(on("ps", "--all", "--json").json) == 1


def test_many_at_once(on: Cli) -> None:
    """20 starts at the same moment. Long: two cores start twenty servers."""
    children = [on.spawn("run", RECIPE, "--name", f"n{n}", "--port", "0", "--json") for n in range(20)]
    documents = []
    for child in children:
        out, err = child.communicate(timeout=240)
        assert child.returncode == 0, err
        documents.append(json.loads(out))
    assert len({d["url"] for d in documents}) == 20
    assert {row["status"] for row in on("ps", "--json").json} == {"running"}
    on("stop", "--all", timeout=240)
    assert on("ps", "--all", "--json").json == []


def test_stop_is_quick_and_twice_is_not_found(on: Cli) -> None:
    on("run", RECIPE, "--port", "0")
    began = time.monotonic()
    on("stop", RECIPE)
    assert time.monotonic() - began < 5
    on("stop", RECIPE, code=4)


def test_a_server_that_ends_is_seen_and_explained(on: Cli) -> None:
    began = time.monotonic()
    error = on("run", RECIPE, "-e", "UNIVERSE_ID=nowhere", "--port", "0", "--json", code=8, timeout=150).json["error"]
    assert time.monotonic() - began < 50, "before the time-out of its readiness"
    assert "exit code 2" in error["message"]
    assert "UNIVERSE_ID: no universe 'nowhere'; there are: accountants-office," in error["message"]
    assert on("ps", "--all", "--json").json == []


def test_what_was_done_survives_the_server(on: Cli) -> None:
    """A server killed and started again by its runner's means has lost nothing of a session."""
    if on.env["GYMCTL_RUNNER"] != "docker":
        pytest.skip("a local process is not started again; the server's own test kills and restarts it on the same files")
    on("run", RECIPE, "--port", "0", "--name", "x")
    on("step", "x", "contacts_create_group", "name=kept")
    handle = json.loads((on.state / "instances" / "x" / "instance.json").read_text())["handle"]
    for verb in (["kill"], ["start"]):
        subprocess.run(["docker", *verb, handle["container"]], env=on.env, check=True, capture_output=True)
    port = subprocess.run(["docker", "port", handle["container"]], env=on.env, check=True, capture_output=True, text=True).stdout.rpartition(":")[2].strip()
    deadline = time.monotonic() + 30
    while True:
        try:
            groups = post(
                f"http://127.0.0.1:{port}/call-tools",
                {"image": "", "tags": {"assignmentId": session_of(on, "x")}, "toolName": "contacts_list_groups", "toolArguments": {}},
            )
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert "kept" in json.dumps(groups)


def session_of(cli: Cli, name: str) -> str:
    """The session of an instance."""
    return str(json.loads((cli.state / "instances" / name / "instance.json").read_text())["session"])


def test_doctor_proves_it(on: Cli) -> None:
    runner = on.env["GYMCTL_RUNNER"]
    report = on("doctor", runner, "--json").json
    assert report["runners"][runner]["usable"] is True
    assert all(f["ok"] is True or f["fix"] or f["ok"] == "not proven" for f in report["runners"][runner]["findings"])
    assert Path(on.state).exists()
