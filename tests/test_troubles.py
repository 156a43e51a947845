"""What goes wrong for users, row by row of tests/troubles.py; what no other module tests stands here."""

from __future__ import annotations

import ast
import json
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gymctl import cache as objects
from gymctl import wire
from gymctl.errors import Conflict, Unavailable
from tests.conftest import RECIPE, ROOT, Cli
from tests.test_agents import agent
from tests.test_cli import wait_for
from tests.test_session import STUB
from tests.troubles import REPORTS, ROWS


@cache
def defined(path: Path) -> frozenset[str]:
    """The names of a module's tests: `test_x`, `TestY::test_x`."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return frozenset(name for name in found if name.rpartition("::")[2].startswith("test_"))


@pytest.mark.parametrize("row", ROWS)
def test_every_row_names_tests_that_exist(row: str) -> None:
    assert ROWS[row]
    for name in ROWS[row]:
        file, _, test = name.partition("::")
        assert test in defined(ROOT / "tests" / file), f"there is no {name}"


def test_no_report_is_left_out() -> None:
    assert tuple(int(number) for row in ROWS if (number := row.partition("report ")[2].partition(":")[0])) == REPORTS


@pytest.mark.parametrize(
    ("words", "code", "said", "hint"),
    [
        (["calendar_get_calender_events"], 4, "case-sensitive", "calendar_get_calendar_events"),
        (["Email_Search"], 4, "tool names are case-sensitive", "email_search"),
        (["email_get_calendar_events"], 4, "'calendar_get_calendar_events' belongs to server 'calendar'", "calendar_get_calendar_events"),
        (["calendar_get_event", "evnt_id=x", "limit:=1"], 9, "$.event_id: required argument 'event_id' is missing; $.evnt_id: unknown", "event_id (required)"),
        (["email_search", "limit=ten"], 9, "$.limit: 'ten'", "it takes query (required)"),
        (["contacts_list_groups", "x=1"], 9, "$.x: unknown argument 'x'", "it takes"),
        (["calendar_get_event", "event_id=nope"], 9, "'nope'", "calendar"),
    ],
)
def test_a_tool_s_troubles(shared: Cli, words: list[str], code: int, said: str, hint: str) -> None:
    error = shared("step", "office", *words, "--json", code=code).json["error"]
    assert said in error["message"]
    assert hint in error["hint"]


def test_a_disabled_tool(shared: Cli) -> None:
    shared("reset", "office", "--session", "few", "--task", "move-standup")
    error = shared("step", "office", "--session", "few", "crm_search", "query=x", "--json", code=9).json["error"]
    assert "'crm_search' of server 'crm' is not enabled" in error["message"]


def post(url: str, path: str, document: Any) -> tuple[Any, dict[str, str]]:
    client = wire.Client(url)
    try:
        reply = client.send("POST", path, document)
        return reply.json(), reply.headers
    finally:
        client.close()


def test_answers_carry_the_assignment_that_served_them(shared: Cli) -> None:
    url = shared("ps", "--json").json[0]["url"]
    for name in ("mine", "yours"):
        for path, more in (("/call-tools", {"toolName": "contacts_list_groups", "toolArguments": {}}), ("/reset", {}), ("/list-tools", {})):
            assert post(url, path, {"tags": {"assignmentId": name}, **more})[1]["x-session"] == name


def test_a_session_s_name_is_never_the_same_twice(cli: Cli) -> None:
    """Nobody who names no session shares one with another run."""
    sessions = {cli("run", STUB, "--runner", "local", "--port", "0", "--replace", "--json").json["session"] for _ in range(4)}
    assert len(sessions) == 4
    assert all(re.fullmatch(r"s-[0-9a-f]{16}", session) for session in sessions)


def test_nothing_listens(cli: Cli) -> None:
    """The process is there, and its port is not: what a forgotten `-p` looks like."""
    cli("run", STUB, "--runner", "local", "--name", "stub", "--port", "0")
    path = cli.state / "instances/stub/instance.json"
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        path.write_text(json.dumps({**json.loads(path.read_text()), "url": f"http://127.0.0.1:{port}"}))
        error = cli("step", "stub", "do_it", "--json", code=5).json["error"]
    assert f"nothing listens at 127.0.0.1:{port}: not running, or its port is not published" in error["message"]
    assert "`gymctl ps`" in error["hint"]
    assert "`gymctl run`" in error["hint"]


def test_refused_and_no_answer_are_two_troubles() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        with pytest.raises(Unavailable, match=f"nothing listens at 127.0.0.1:{port}"):
            wire.Client(f"http://127.0.0.1:{port}").call("/health")
        listener.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        with pytest.raises(Unavailable, match=f"127.0.0.1:{port} did not take the connection within 0.5 s") as caught:
            wire.Client(f"http://127.0.0.1:{port}").call("/health", timeout=0.5)
        for one in waiting:
            one.close()
    assert "firewall may drop the packets" in caught.value.hint
    assert "DOCKER_HOST" in caught.value.hint


def test_an_internal_error_leads_to_its_line_in_the_log(cli: Cli) -> None:
    cli("run", RECIPE, "--runner", "local", "--port", "0", "--name", "hurt")
    shutil.rmtree(cli.state / "instances/hurt/data")
    error = cli("step", "hurt", "email_search", "query=x", "--json", code=9).json["error"]
    request = re.search(r"\(request ([0-9a-f]{12})\)$", error["message"])
    assert request
    assert "`gymctl logs hurt`" in error["hint"]
    assert request[1] in cli("logs", "hurt").out


def test_a_local_server_that_ends_at_once(cli: Cli) -> None:
    error = cli("run", STUB, "--runner", "local", "-e", "STUB=crash", "--json", code=8).json["error"]
    assert "exit code 3" in error["message"]
    assert error["message"].count("cannot find my database") == 1
    assert cli("ps", "--all", "--json").json == []


@pytest.fixture
def proxy() -> Iterator[tuple[str, list[str]]]:
    """A proxy that refuses, and the first lines it was sent."""
    asked: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    asked.append(connection.recv(4096).decode(errors="replace").split("\r\n")[0])
                    connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", asked
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_an_install_uses_the_proxy(cli: Cli, proxy: tuple[str, list[str]]) -> None:
    """What comes from afar does go through it, and what it refuses is said."""
    folder = cli.folder / "far"
    shutil.copytree(STUB, folder)
    (folder / "requirements.txt").write_text("gymctl-no-such-package-anywhere==1\n")
    (folder / "image.yaml").write_text("name: stub\nformats:\n  dir: {run: [python, stub.py], requirements: requirements.txt}\n")
    address, asked = proxy
    env = dict.fromkeys(("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"), address)
    env |= {"PIP_INDEX_URL": "https://index.example/simple", "PIP_RETRIES": "0", "NO_PROXY": "", "no_proxy": "", "PIP_CONFIG_FILE": "/dev/null"}
    error = cli("run", str(folder), "--runner", "local", "--json", code=5, env=env).json["error"]
    assert "cannot install" in error["message"]
    assert "-m pip install -r" in error["hint"]
    assert any("index.example" in line for line in asked), error
    assert cli("ps", "--all", "--json").json == []
    assert cli("cache", "ls", "--json").json == []


def test_what_an_agent_plants_changes_no_verdict(cli: Cli) -> None:
    """The task as it was at the start counts; files that look like a reward or like tests are nothing to anybody."""
    shutil.copytree(ROOT / "recipes" / RECIPE, cli.folder / "copy")
    task = cli.folder / "copy/tasks/move-standup.yaml"
    body = f"""
import pathlib
pathlib.Path({str(task)!r}).write_text("id: move-standup\\nprompt: x\\nchecks: [{{id: a, type: state, server: crm, table: deals, asserts: []}}]\\n")
for name in ("reward.txt", "result.json", "verifier/reward.txt", "conftest.py", "sitecustomize.py"):
    path = pathlib.Path(name)
    path.parent.mkdir(exist_ok=True)
    path.write_text("1.0" if name.endswith("txt") else '{{"verdict": "passed", "score": 1}}' if name.endswith("json") else "raise SystemExit(0)")
print(json.dumps({{"type": "done", "answer": '{{"verdict": "passed"}}'}}), flush=True)
"""
    words = ["run", "./copy", "--runner", "local", "--task", "move-standup", "--agent", agent(cli, body), "--rm", "--json"]
    document = cli(*words, code=1).json
    assert (document["verdict"], document["score"] < 1) == ("failed", True)
    assert "move-standup" in task.read_text()


def test_who_waits_for_a_lock_says_for_whom(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYMCTL_CACHE_DIR", cli.env["GYMCTL_CACHE_DIR"])
    hold = "import time\nfrom gymctl import cache\nwith cache.lock('thing', print):\n    print('held', flush=True)\n    time.sleep(60)"
    holder = subprocess.Popen([sys.executable, "-c", hold], env=cli.env, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert holder.stdout
    assert holder.stdout.readline() == "held\n"
    said: list[str] = []
    with pytest.raises(Conflict, match=f"by pid {holder.pid}"), objects.lock("thing", said.append, timeout=0.2):
        pass
    assert set(said) == {f"waiting for another gymctl (pid {holder.pid}) that makes the same thing"}
    holder.kill()
    holder.communicate()
    with objects.lock("thing", said.append, timeout=5):
        pass


@pytest.fixture
def held(cli: Cli) -> Iterator[Callable[[], None]]:
    """An instance, `stub`, that another command uses until the function is called."""
    cli("run", STUB, "--runner", "local", "--name", "stub", "--port", "0")
    user = cli.spawn("step", "stub", "--stdin", stdin=subprocess.PIPE)
    lock = (cli.state / "instances/stub/lock").stat().st_ino
    wait_for(lambda: any(f":{lock} " in line for line in Path("/proc/locks").read_text().splitlines()))
    yield lambda: user.communicate(timeout=20) and None
    user.kill()
    user.communicate()


def test_stop_says_what_it_waits_for(cli: Cli, held: Callable[[], None]) -> None:
    stop = cli.spawn("stop", "stub")
    assert stop.stderr
    assert stop.stderr.readline() == "waiting for another gymctl command that uses stub, 30 s at most ...\n"
    held()
    assert stop.communicate(timeout=20)[0] == "stopped stub\n"


def test_an_anchor_bomb_on_the_command_line(cli: Cli) -> None:
    """Neither read nor shown: the message is short however large it would be."""
    levels = "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(9))
    (cli.folder / "bomb.yaml").write_text(f"checks: &a [x,x,x,x,x,x,x,x,x]\n{levels}")
    cli("run", STUB, "--runner", "local", "--name", "stub", "--port", "0")
    for code, words in ((3, ["recipes", "./bomb.yaml"]), (3, ["run", "./bomb.yaml"]), (9, ["verify", "stub", "--checks", "bomb.yaml"])):
        done = cli(*words, "--json", code=code, timeout=20)
        assert len(done.out) < 1000
