"""Whole episodes: how agents are spoken to, what counts when they fail, and what they may not touch."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from gymctl import proc
from tests.conftest import RECIPE, Cli
from tests.test_session import STUB

HEAD = """
import json, os, sys, time, urllib.request
task = json.loads(sys.stdin.readline())
def say(**document):
    print(json.dumps(document), flush=True)
    return json.loads(sys.stdin.readline())
def post(path, document):
    request = urllib.request.Request(os.environ["GYMCTL_URL"] + path, json.dumps(document).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request))
tags = {"assignmentId": os.environ["GYMCTL_SESSION"]}
CHECK = {"function": "count", "comparator": "gte", "value": 0}
"""


def agent(cli: Cli, body: str) -> str:
    """The command line of an agent with this body."""
    path = cli.folder / "agent.py"
    path.write_text(HEAD + body)
    return f"{sys.executable} {path}"


def episode(cli: Cli, body: str, *words: str, code: int, recipe: str = STUB, task: str = "checked") -> Any:
    """The document of an episode on the local runner."""
    return cli("run", recipe, "--runner", "local", "--task", task, "--agent", agent(cli, body), "--rm", "--json", *words, code=code).json


def lines(document: Any) -> list[Any]:
    return [json.loads(line) for line in (Path(document["dir"]) / "episode.jsonl").read_text().splitlines()]


def test_the_conversation(cli: Cli) -> None:
    body = """
assert task["type"] == "task" and task["prompt"] == "Do the thing." and task["tools"][0]["name"] == "do_it"
assert task["session"] == os.environ["GYMCTL_SESSION"] and 0 < task["deadline"] - time.time() <= 30
answer = say(action="do_it", args={}, id="first")
assert answer["id"] == "first" and answer["observation"][0]["text"] == "done" and answer["elapsed"] >= 0
wrong = say(action=5)
assert wrong["error"]["type"] == "UsageError", wrong
print("not json", flush=True)
assert "not a line of JSON" in json.loads(sys.stdin.readline())["error"]["message"]
print(json.dumps({"type": "done", "answer": "all done"}), flush=True)
"""
    document = episode(cli, body, "--timeout", "30", code=0)
    assert document["agent"] == {"exit": 0, "timed_out": False, "log": "agent.log"}
    assert document["steps"] == 1
    assert next(line for line in lines(document) if line["type"] == "verify")["answer"] == "all done"


@pytest.mark.parametrize(
    ("body", "ended"),
    [
        ("sys.exit(7)", {"exit": 7, "timed_out": False}),
        ("raise ValueError", {"exit": 1, "timed_out": False}),
        ("os.kill(os.getpid(), 9)", {"exit": -9, "timed_out": False}),
        ("time.sleep(60)", {"exit": -9, "timed_out": True}),
        ("os.close(1); time.sleep(60)", {"exit": -9, "timed_out": False}),
        ("sys.stdout.write('x' * 1000); sys.stdout.flush(); time.sleep(60)", {"exit": -9, "timed_out": True}),
    ],
)
def test_the_verdict_counts_whatever_the_agent_did(cli: Cli, body: str, ended: dict[str, object]) -> None:
    document = episode(cli, body, "--timeout", "1.5", code=0)
    assert {k: document["agent"][k] for k in ended} == ended
    assert document["verdict"] == "passed"


def test_children_of_an_agent_end_with_it(cli: Cli) -> None:
    body = "import subprocess\nchild = subprocess.Popen(['sleep', '4242'])\nopen('child', 'w').write(str(child.pid))\ntime.sleep(60)"
    episode(cli, body, "--timeout", "1", code=0)
    pid = (cli.folder / "child").read_text()
    stat = Path(f"/proc/{pid}/stat")
    assert not stat.exists() or stat.read_text().split()[2] == "Z"


def test_an_agent_that_cannot_start(cli: Cli) -> None:
    done = cli("run", STUB, "--runner", "local", "--task", "checked", "--agent", "/no/such/agent", "--rm", "--json", code=8)
    assert "/no/such/agent" in done.json["error"]["message"]
    assert "oracle, noop, random" in done.json["error"]["hint"]
    assert not (cli.state / "episodes").exists(), "nothing was started for it"
    assert cli("ps", "--json").json == []
    assert cli.leftovers() == []


def test_a_failed_action_of_the_oracle_says_what_leads_on(cli: Cli) -> None:
    wanted = "{function: length, function_args: ['_result[*]'], comparator: gt, value: 0}"
    checks = f"checks: [{{id: a, type: state, server: contacts, table: people, asserts: [{wanted}]}}]"
    (cli.folder / "wrong.yaml").write_text(f"id: wrong\nprompt: x\nsolution: [{{tool: contacts_search_peopel}}]\n{checks}\n")
    done = cli("run", RECIPE, "--runner", "local", "--task", "./wrong.yaml", "--agent", "oracle", "--rm", code=None)
    failed, hint = done.out.splitlines()[1:3]
    assert failed.startswith("  contacts_search_peopel")
    assert "FAILED" in failed
    assert hint.startswith("      hint: ")


def test_an_agent_is_never_given_to_a_shell(cli: Cli) -> None:
    cli("run", STUB, "--runner", "local", "--task", "checked", "--agent", "true; touch pwned", "--rm", code=None)
    assert not (cli.folder / "pwned").exists()


def test_acting_over_http_counts_and_is_logged(cli: Cli) -> None:
    body = """
found = post("/call-tools", {"image": "", "tags": tags, "toolName": "crm_search", "toolArguments": {"query": "Northlight"}})
print(json.dumps({"type": "done"}), flush=True)
"""
    document = episode(cli, body, code=1, recipe=RECIPE, task="win-northlight-deal")
    assert document["steps"] == 0
    calls = next(line for line in lines(document) if line["type"] == "log")["calls"]
    assert [c["tool"] for c in calls if c["tool"]] == ["crm_search"]


@pytest.mark.parametrize(
    "body",
    [
        'post("/reset", {"tags": tags})',
        'post("/verifier", {"tags": tags, "checks": [{"id": "x", "type": "state", "server": "crm", "table": "deals", "asserts": [CHECK]}]})',
        'post("/show-data", {"image": "", "tags": tags, "serverName": "crm"})',
        'urllib.request.build_opener(urllib.request.ProxyHandler({})).open(os.environ["GYMCTL_URL"] + "/state?session_id=" + task["session"]).read()',
    ],
)
def test_tampering_is_no_verdict_and_named(cli: Cli, body: str) -> None:
    document = episode(cli, body, code=11, recipe=RECIPE, task="win-northlight-deal")
    assert document["reason"]["type"] == "tampering"
    assert "Python-urllib" in document["reason"]["message"]
    assert document["score"] is None


def test_reading_the_log_is_no_tampering(cli: Cli) -> None:
    body = 'urllib.request.build_opener(urllib.request.ProxyHandler({})).open(os.environ["GYMCTL_URL"] + "/log?session_id=" + task["session"]).read()'
    assert episode(cli, body, code=1, recipe=RECIPE, task="win-northlight-deal")["verdict"] == "failed"


def test_random_is_the_same_for_the_same_seed(cli: Cli) -> None:
    runs = [
        lines(cli("run", RECIPE, "--runner", "local", "--task", "move-standup", "--agent", "random", "--seed", seed, "--rm", "--json", code=1).json)
        for seed in ("3", "3", "4")
    ]
    acts = [[(line["action"], line["args"]) for line in run if line["type"] == "step"] for run in runs]
    assert acts[0] == acts[1] != acts[2]


def test_results_record_what_was_run(cli: Cli) -> None:
    document = cli("run", RECIPE, "--runner", "local", "--task", "move-standup", "--agent", "oracle", "--seed", "5", "--rm", "--json").json
    assert document["image"]["digest"].startswith("sha256:")
    assert len(document["key"]) == 64
    assert document["versions"].keys() >= {"gymctl", "python"}
    assert (document["seed"], document["task"], document["verdict"], document["score"]) == (5, "move-standup", "passed", 1.0)
    assert {p.name for p in Path(document["dir"]).iterdir()} >= {"result.json", "episode.jsonl", "recipe.yaml", "log"}


def test_without_rm_the_instance_stays(cli: Cli) -> None:
    document = cli("run", STUB, "--runner", "local", "--task", "checked", "--agent", "noop", "--json").json
    assert document["name"] == "stub"
    assert cli("ps", "--json").json[0]["status"] == "running"
    assert Path(document["dir"]).is_dir()


def test_proxies_do_not_catch_loopback(cli: Cli) -> None:
    proxies = dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"), "http://127.0.0.1:9")
    cli("run", RECIPE, "--runner", "local", "--task", "move-standup", "--agent", "oracle", "--rm", env=proxies)


@pytest.mark.parametrize("what", ["agent", "judge"])
def test_what_a_killed_gymctl_had_act_or_judge_is_ended_by_stop(cli: Cli, tmp_path: Path, what: str) -> None:
    told = tmp_path / "told"
    os.mkfifo(told)
    endless = tmp_path / "endless.py"
    endless.write_text("import os, sys, time\nopen(sys.argv[1], 'w').write(str(os.getpid()))\ntime.sleep(300)\n")
    command = f"{sys.executable} {endless} {told}"
    claims = tmp_path / "claims.json"
    claims.write_text('{"claims": ["it was done"]}')
    if what == "agent":
        doing = cli.spawn("run", STUB, "--runner", "local", "--name", "stub", "--port", "0", "--task", "checked", "--agent", command)
    else:
        cli("run", STUB, "--runner", "local", "--name", "stub", "--port", "0")
        doing = cli.spawn("verify", "stub", "--checks", str(claims), "--judge", command)
    pid = int(told.read_text())
    with doing:
        doing.kill()
    assert pid in cli.leftovers()
    cli("stop", "stub")
    assert not cli.leftovers()
    assert proc.start_time(pid) is None
