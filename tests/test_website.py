"""Kind `website` with a real Chromium: every gesture, what a failed one says, sessions side by side, and nothing left whatever is killed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gymctl.browser import client as browser
from gymctl.browser import gestures
from gymctl.errors import UsageError
from gymctl.kinds import website
from tests.conftest import ROOT, Cli, lacking
from tests.test_cli import wait_for

SITE = str(ROOT / "tests/fakes/site")


def start(cli: Cli) -> str:
    """A running site, whose own session `run` has reset; its URL."""
    missing = browser.lacking()
    if missing:
        lacking("browser", missing.message)
    url: str = cli("run", SITE, "--runner", "local", "--port", "0", "--json").json["url"]
    return url


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """One running site for tests that only act in sessions of their own."""
    made = Cli(tmp_path_factory.mktemp("site"))
    start(made)
    yield made
    made.close()


@pytest.fixture
def act(site: Cli, request: pytest.FixtureRequest) -> Any:
    """act(words..., code=0) in a session of the test's own: what was observed, or the error's document."""
    session = f"t-{abs(hash(request.node.nodeid)):x}"
    site("reset", "site", "--session", session)

    def do(*words: str, code: int = 0) -> Any:
        done = site("step", "site", "--session", session, "--json", *words, code=code).json
        return done["error"] if code else done["observation"]

    do.session = session  # type: ignore[attr-defined]
    return do


def seen(act: Any, selector: str) -> str:
    """The accessibility tree of an element."""
    return str(act("snapshot", selector)["snapshot"])


def test_fill_click_and_what_it_brought(act: Any) -> None:
    assert act("fill", "#title", "Lunch <b>")["title"] == "Notes"
    assert act("click", "#save")["url"].endswith("/")
    assert act("state")["state"] == {"notes": [{"title": "Milk"}, {"title": "Lunch <b>"}]}
    assert "listitem: Lunch <b>" in seen(act, "#list")


def test_type_and_press_go_where_the_focus_is(act: Any) -> None:
    act("click", "#title")
    act("type", "Two words")
    act("press", "Enter")
    assert act("state")["state"]["notes"][-1] == {"title": "Two words"}
    act("type", "#title", "In it")
    act("press", "#title", "Enter")
    assert act("state")["state"]["notes"][-1] == {"title": "In it"}
    act("press", "Control+S")
    assert "saved by key" in seen(act, "#keys")


def test_points_drags_and_scrolls(act: Any) -> None:
    act("click", "7", "650")
    assert "point" in seen(act, "#keys")
    act("drag", "#chip", "#drop")
    assert "dropped" in seen(act, "#drop")
    act("goto", "/")
    act("drag", "60", "420", "400", "420")
    assert "dropped" in seen(act, "#drop")
    act("goto", "/")
    act("drag", "#chip", "400", "420")
    assert "dropped" in seen(act, "#drop")
    act("scroll", "500")
    act("click", "7", "150")
    act("scroll", "#title")


def test_select_upload_and_answers_that_take_time(act: Any, site: Cli) -> None:
    act("select", "#color", "Green")
    assert "Green" in seen(act, "#color")
    act("select", "#color", "r")
    file = site.folder / "note.txt"
    file.write_text("12345")
    act("upload", "#file", "note.txt")
    assert "note.txt:5" in seen(act, "#result")
    act("click", "#slow")  # the answer takes 0.4 s: the observation waits for it
    assert "slow answer" in seen(act, "#result")
    act("click", "#later")
    act("wait-for", "#arrived")
    act("goto", "/")
    act("wait-for", "#arrived", "hidden")


def test_back_new_pages_and_downloads(act: Any) -> None:
    assert act("click", "text=Second page")["title"] == "Second"
    assert act("back")["title"] == "Notes"
    act("click", "#new-tab")
    wait_for(lambda: act("snapshot")["url"].endswith("/second"))  # a slow machine opens it a moment later
    assert act("goto", "/")["title"] == "Notes"
    act("click", "#export")


def test_what_an_observation_shows(act: Any, site: Cli) -> None:
    assert act("click", "#complain")["console_errors"] == ["a complaint", "ReferenceError: undefinedThing is not defined"]
    assert act("click", "#ask")["console_errors"] == []
    assert act("click", "#ask")["dialogs"] == [{"type": "confirm", "message": "Sure?"}]
    assert 'button "Save"' in act("scroll", "10", "snapshot:=true")["snapshot"]
    asked = act("screenshot", "page.png")
    assert asked["screenshot"] == str(site.folder / "page.png")
    assert (site.folder / "page.png").read_bytes().startswith(b"\x89PNG")
    act("screenshot", "page.jpg")
    assert (site.folder / "page.jpg").read_bytes().startswith(b"\xff\xd8")
    done = site("step", "site", "--session", act.session, "--json", "click", "#ask", "screenshot:=true").json
    assert done["files"] == [done["observation"]["screenshot"]]
    assert Path(done["files"][0]).is_relative_to(site.state / "instances" / "site" / "steps")


@pytest.mark.parametrize(
    ("words", "code", "said", "hint"),
    [
        (["click", "#sve"], 9, "(Notes) within 3 s", "near: "),
        (["click", "#sve", "timeout:=0.5"], 9, "nothing matches '#sve' on http://127.0.0.1", "#save"),
        (["click", "text=Sekond page", "timeout:=0.5"], 9, "nothing matches", "text=Second page"),
        (["click", "#zzzzzz", "timeout:=0.5"], 9, "nothing matches", "on the page: #title"),
        (["click", "#hidden", "timeout:=0.5"], 9, "hidden, still after 0.5 s", ""),
        (["click", "#off", "timeout:=0.5"], 9, "not enabled within 0.5 s", "the page is http"),
        (["click", "#covered", "timeout:=1"], 9, '<div id="cover"></div> intercepts pointer events within 1 s', ""),
        (["click", ".twin"], 9, "matches 2 elements: <button> Twin, <button> Twin", ">> nth=0"),
        (["click", "a[["], 9, "is no selector", "CSS"),
        (["fill", "h1", "x", "timeout:=0.5"], 9, "fill: ", "the page is"),
        (["select", "#color", "Blue"], 9, "has no option 'Blue'", "r (Red), g (Green)"),
        (["press", "NoSuchKey"], 9, "no key 'NoSuchKey'", "Control+S"),
        (["press", "ctrl+s"], 9, "no key 'ctrl'", "Control+S"),
        (["press", "#title", "Contrl+A"], 9, "no key 'Contrl'", "Control+S"),
        (["click", "1280", "20"], 9, "1280, 20 is outside the page, which shows 1280x720", "`scroll`"),
        (["drag", "10", "10", "20", "720"], 9, "20, 720 is outside", ""),
        (["upload", "#file", "nowhere.txt"], 9, "no file ", ""),
        (["screenshot", "/proc/page.png"], 9, "/proc/page.png", ""),
        (["wait-for", "#save", "hidden", "timeout:=0.3"], 9, "'#save' is still there after 0.3 s", ""),
        (["wait-for", "#arrived", "timeout:=0.3"], 9, "within 0.3 s", ""),
        (["goto", "http://127.0.0.1:1/"], 9, "not of this website", "reaches only http://127.0.0.1:"),
        (["goto", "file:///etc/passwd"], 9, "not of this website", ""),
        (["goto", "javascript:alert(1)"], 9, "not of this website", ""),
        (["goto", "/?session_id=theirs"], 9, "that is session 'theirs'", "--session"),
        (["clik", "#save"], 4, "did you mean click?", "goto, click"),
        (["click"], 2, "`click` cannot be read", "write: click X Y | click SELECTOR"),
        (["fill", "#title"], 2, "`fill '#title'` cannot be read", "write: fill SELECTOR VALUE"),
        (["click", "#save", "timeout:=soon"], 2, "not FIELD:=JSON", ""),
        (["click", "#save", "timeout:=-1"], 9, "$.timeout", "fields: timeout"),
        (['{"action": "click", "args": {"x": 1}}'], 9, "give selector or x and y", ""),
        (['{"action": "click", "args": {"selctor": "a"}}'], 9, "unknown field `selctor`", "selector"),
        (["state", "nothing", "more"], 2, "one table", ""),
    ],
)
def test_a_failed_action_says_what_was_there(act: Any, words: list[str], code: int, said: str, hint: str) -> None:
    began = time.monotonic()
    error = act(*words, code=code)
    assert said in error["message"]
    assert hint in error["hint"]
    assert time.monotonic() - began < 10
    assert act("goto", "/")["title"] == "Notes"  # and the page goes on


def test_a_page_that_hangs_is_lost_within_a_bound_and_others_go_on(act: Any, site: Cli) -> None:
    error = act("click", "#spin", "timeout:=1", code=9)
    assert "page" in error["message"] or "did not happen" in error["message"]
    site("reset", "site", "--session", act.session)
    assert act("goto", "/")["title"] == "Notes"


def test_reset_goes_back_to_the_start_page_without_cookies(act: Any, site: Cli) -> None:
    act("fill", "#title", "Gone")
    act("click", "#save")
    act("goto", "/second")
    document = site("reset", "site", "--session", act.session, "--pack", "other", "--json").json
    assert document["state"] == "other"
    assert document["contents"] == {"notes": 2}
    page = act("snapshot")
    assert page["url"].endswith(f"/?session_id={act.session}")
    assert "Salt" in page["snapshot"]
    assert "Gone" not in page["snapshot"]
    assert "packs: default, other" in site("reset", "site", "--session", act.session, "--pack", "none", code=4).err


def test_lines_answer_lines(act: Any, site: Cli) -> None:
    lines = [{"action": "fill", "args": {"selector": "#title", "value": "By line"}, "id": 1}, {"action": "click", "args": {"selector": "#nope"}, "id": 2},
             {"action": "click", "args": {"selector": "#save"}, "id": 3}, {"action": "state", "id": 4}]  # fmt: skip
    done = site("step", "site", "--session", act.session, "--stdin", input="".join(json.dumps(line) + "\n" for line in lines))
    answers = [json.loads(line) for line in done.out.splitlines()]
    assert [answer["id"] for answer in answers] == [1, 2, 3, 4]
    assert "nothing matches '#nope'" in answers[1]["error"]["message"]
    assert answers[3]["observation"]["state"]["notes"][-1] == {"title": "By line"}


def test_eight_sessions_at_once_see_only_their_own(site: Cli) -> None:
    sessions = [f"canary-{n}-{os.getpid()}" for n in range(8)]

    def live(session: str) -> str:
        def step(*words: str) -> Any:
            return site("step", "site", "--session", session, "--json", *words).json["observation"]

        site("reset", "site", "--session", session)
        for n in range(3):
            step("fill", "#title", f"{session} note {n}")
            step("click", "#save")
        step("click", "#slow")
        return str(step("snapshot")["snapshot"])

    with ThreadPoolExecutor(8) as pool:
        pages = list(pool.map(live, sessions))
    for session, page in zip(sessions, pages, strict=True):
        assert all(f"{session} note {n}" in page for n in range(3))
        assert not [other for other in sessions if other != session and other in page]
    assert len(drivers(site)) == 1


def test_steps_of_one_session_take_turns(act: Any) -> None:
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda n: act("scroll", str(n * 10)), range(6)))
        notes = list(pool.map(lambda n: act("type", "#title", f"<{n}{n}{n}{n}>"), range(4)))
    assert len(notes) == 4
    act("press", "#title", "Enter")
    text = act("state")["state"]["notes"][-1]["title"]
    assert sorted(text.replace("><", "> <").split()) == [f"<{n}{n}{n}{n}>" for n in range(4)]  # each text whole


def test_view_says_where_a_person_looks(site: Cli, cli: Cli) -> None:
    record = json.loads((site.state / "instances/site/instance.json").read_text())
    assert site("view", "site").out.strip() == f"{record['url']}/?session_id={record['session']}"
    shown = site("view", "site", "--session", "a b&c", "--json").json
    assert shown["url"] == f"{record['url']}/?session_id=a%20b%26c"
    port = record["url"].rpartition(":")[2]
    assert shown["ssh"].startswith(f"ssh -L {port}:127.0.0.1:{port} ")
    cli("run", str(ROOT / "tests/fakes/stub"), "--runner", "local", "--port", "0")
    assert "no page" in cli("view", "stub", code=6).err
    assert "no instance" in cli("view", "nobody", code=4).err


AGENT = """
import json, sys
task = json.loads(sys.stdin.readline())
assert {tool["name"] for tool in task["tools"]} >= {"goto", "click", "fill", "wait-for"}, task["tools"]
def do(action, **args):
    print(json.dumps({"action": action, "args": args}), flush=True)
    return json.loads(sys.stdin.readline())
assert "error" in do("click", selector="#nothing", timeout=0.2)
do("fill", selector="#title", value="Lunch")
page = do("click", selector="#save", snapshot=True, screenshot=True)["observation"]
assert "Lunch" in page["snapshot"] and open(page["screenshot"], "rb").read(4) == b"\\x89PNG"
print(json.dumps({"type": "done", "answer": "saved"}), flush=True)
"""


def test_episodes(cli: Cli) -> None:
    start(cli)
    cli("stop", "site")
    (cli.folder / "agent.py").write_text(AGENT)
    for agent, code in (("oracle", 0), ("noop", 1), (f"{sys.executable} agent.py", 0)):
        done = cli("run", SITE, "--runner", "local", "--port", "0", "--task", "note", "--agent", agent, "--rm", "--json", code=code).json
        assert done["agent"]["exit"] == 0, (Path(done["dir"]) / "agent.log").read_text()
    assert len(list((Path(done["dir"]) / "steps").glob("*.png"))) == 1
    assert cli.leftovers() == []


CHEAT = """
import json, os, urllib.request
body = json.dumps({"sessionId": os.environ["GYMCTL_SESSION"], "dataPack": "other"}).encode()
urllib.request.urlopen(urllib.request.Request(os.environ["GYMCTL_URL"] + "/reset", body)).read()
"""


def test_an_agent_that_resets_its_session_gets_no_verdict(cli: Cli) -> None:
    start(cli)
    cli("stop", "site")
    (cli.folder / "cheat.py").write_text(CHEAT)
    done = cli("run", SITE, "--runner", "local", "--port", "0", "--task", "note", "--agent", f"{sys.executable} cheat.py", "--rm", "--json", code=11).json
    assert done["reason"]["type"] == "tampering"
    assert "/reset" in done["reason"]["message"]


def test_a_random_agent_really_acts(cli: Cli) -> None:
    start(cli)
    cli("stop", "site")
    runs = []
    for _ in range(2):
        done = cli("run", SITE, "--runner", "local", "--port", "0", "--task", "note", "--agent", "random", "--seed", "3", "--rm", "--json", code=1).json
        lines = [json.loads(line) for line in (Path(done["dir"]) / "episode.jsonl").read_text().splitlines()]
        runs.append([(line["action"], line["args"]) for line in lines if line["type"] == "step"])
        assert sum("observation" in line for line in lines) >= 3
    assert runs[0] == runs[1]


# Without a browser.


def test_a_host_without_the_package_or_a_chromium_is_told_how_to_get_it(cli: Cli) -> None:
    start(cli)
    hidden = cli.folder / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("import sys\nsys.modules['playwright'] = None\n")
    no_package, no_chromium = {"PYTHONPATH": f"{hidden}:{ROOT}"}, {"PATH": "/nowhere"}
    for env, said in ((no_package, "pip install 'gymctl[browser]'"), (no_chromium, "apt-get install chromium")):
        assert said in cli("step", "site", "click", "#save", code=5, env=env).err
        done = cli("step", "site", "state", "--json", env=env).json["observation"]
        assert done["state"] == {"notes": [{"title": "Milk"}]}
        assert said in done["browser"]
        episode = ["run", SITE, "--runner", "local", "--name", "other", "--port", "0", "--task", "note", "--agent", "oracle", "--rm"]
        assert said in cli(*episode, code=5, env=env).err
    assert drivers(cli) == []
    assert cli("step", "site", "state", "--json").json["observation"].keys() == {"state"}


def test_a_chromium_that_does_not_start_is_said(cli: Cli) -> None:
    start(cli)
    folder = cli.folder / "bin"
    folder.mkdir()
    (folder / "chromium").write_text("#!/bin/sh\necho cannot open display >&2\nexit 1\n")
    (folder / "chromium").chmod(0o755)
    assert "does not start" in cli("step", "site", "goto", "/", code=5, env={"PATH": f"{folder}:{os.environ['PATH']}"}).err
    assert cli("step", "site", "goto", "/", "--json").json["observation"]["title"] == "Notes"


def test_one_shot_steps_load_no_playwright() -> None:
    code = "import sys, gymctl.session, gymctl.kinds.website; assert not {'playwright', 'asyncio', 'jsonschema'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


# Whatever is killed.


def drivers(cli: Cli) -> list[int]:
    """The pids of our drivers."""
    return [pid for pid in cli.leftovers() if b"gymctl.browser" in command(pid)]


def chromiums(cli: Cli) -> list[int]:
    """The pids of our Chromium's processes, the first one first."""
    return [pid for pid in cli.leftovers() if b"chrom" in command(pid).split(b"\0")[0]]


def command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def runtime_dirs(cli: Cli) -> list[Path]:
    """Where our drivers keep sockets and temp files, as the driver's command line says."""
    return [Path(command(pid).split(b"\0")[5].decode()) for pid in drivers(cli)]


def wait(what: str, done: Any, seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def nothing_is_left(cli: Cli, folders: list[Path]) -> None:
    assert cli.leftovers() == []
    assert [folder for folder in folders if folder.exists()] == []
    assert not list((cli.state / "instances").iterdir())


def test_first_steps_at_once_start_one_browser(cli: Cli) -> None:
    start(cli)
    for session in "abcd":
        cli("reset", "site", "--session", session)
    with ThreadPoolExecutor(4) as pool:
        titles = list(pool.map(lambda s: cli("step", "site", "--session", s, "goto", "/", "--json").json["observation"]["title"], "abcd"))
    assert titles == ["Notes"] * 4
    assert len(drivers(cli)) == 1
    helpers = json.loads((cli.state / "instances/site/instance.json").read_text())["helpers"]
    assert [helper["pid"] for helper in helpers] == drivers(cli)
    folders = runtime_dirs(cli)
    assert oct(folders[0].stat().st_mode & 0o777) == "0o700"
    listening = subprocess.run(["cat", "/proc/net/tcp"], capture_output=True, text=True, check=True).stdout
    inodes = {os.readlink(fd) for pid in chromiums(cli) for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink() and os.path.lexists(fd)}
    assert not [line for line in listening.splitlines()[1:] if line.split()[3] == "0A" and f"socket:[{line.split()[9]}]" in inodes]  # no debug port
    cli("stop", "site")
    nothing_is_left(cli, folders)


@pytest.mark.parametrize("who", ["driver", "chromium", "node", "everything"])
def test_a_killed_browser_is_said_once_and_started_again(cli: Cli, who: str) -> None:
    start(cli)
    cli("step", "site", "goto", "/second")
    folders = runtime_dirs(cli)
    node = [pid for pid in cli.leftovers() if command(pid).split(b"\0")[0].endswith(b"node")]
    victims = {"driver": drivers(cli), "chromium": chromiums(cli)[:1], "node": node, "everything": [*drivers(cli), *node, *chromiums(cli)]}[who]
    assert victims
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait("its other processes are still there", lambda: not chromiums(cli) and not drivers(cli))
    assert "do the action again" in cli("step", "site", "click", "#home", code=9).err
    assert cli("step", "site", "click", "#second", "--json").json["observation"]["title"] == "Second"
    folders += runtime_dirs(cli)
    cli("stop", "site")
    nothing_is_left(cli, folders)


def test_a_browser_killed_during_a_step(cli: Cli) -> None:
    start(cli)
    cli("step", "site", "goto", "/")
    waiting = cli.spawn("step", "site", "wait-for", "#never", "timeout:=30", "--json")
    time.sleep(1)
    os.kill(drivers(cli)[0], signal.SIGKILL)
    out, _ = waiting.communicate(timeout=20)
    assert waiting.returncode == 9
    assert "ended during the step" in json.loads(out)["error"]["message"]
    assert cli("step", "site", "goto", "/", "--json").json["observation"]["title"] == "Notes"


def test_a_dead_server_takes_its_browser_along(cli: Cli) -> None:
    start(cli)
    cli("step", "site", "goto", "/")
    folders = runtime_dirs(cli)
    record = json.loads((cli.state / "instances/site/instance.json").read_text())
    os.killpg(record["handle"]["pid"], signal.SIGKILL)
    wait("the driver goes on", lambda: not cli.leftovers())
    assert [folder for folder in folders if folder.exists()] == []
    assert "no longer running" in cli("step", "site", "click", "#save", code=5).err
    cli("stop", "site")


def test_a_driver_whose_instance_is_gone_ends(cli: Cli) -> None:
    start(cli)
    cli("step", "site", "goto", "/")
    folders = runtime_dirs(cli)
    shutil.rmtree(cli.state / "instances" / "site")
    wait("the driver goes on", lambda: not drivers(cli) and not chromiums(cli))
    assert [folder for folder in folders if folder.exists()] == []
    cli("cache", "gc")
    assert cli.leftovers() == []


# Runs gymctl and kills it when a function of the client is entered or left.
MURDER = """
import os, signal, sys
where, name, *words = sys.argv[1:]
from gymctl import proc
from gymctl.browser import client
owner = {"spawn": proc, "first_line": proc}.get(name, client.Link)
real = getattr(owner, name)
def wrapped(*args, **kwargs):
    if where == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    made = real(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)
    return made
setattr(owner, name, wrapped)
sys.argv = ["gymctl", *words]
from gymctl.cli import main
main()
"""


@pytest.mark.parametrize(
    ("where", "name"), [("before", "spawn"), ("after", "spawn"), ("before", "first_line"), ("after", "first_line"), ("after", "_start"), ("after", "_ask")]
)
def test_gymctl_killed_while_it_starts_or_asks_a_browser(cli: Cli, where: str, name: str) -> None:
    start(cli)
    words = [sys.executable, "-c", MURDER, where, name, "step", "site", "goto", "/second"]
    assert subprocess.run(words, env=cli.env, capture_output=True, cwd=cli.folder, check=False, timeout=60).returncode == -signal.SIGKILL
    done = cli("step", "site", "goto", "/second", "--json", code=None)
    if done.code:  # the driver that was started had not listened yet
        assert done.json["error"]["message"].startswith("the browser had ended")
    assert cli("step", "site", "click", "#home", "--json", code=None).code in (0, 9)
    assert cli("step", "site", "goto", "/second", "--json").json["observation"]["title"] == "Second"
    wait("an abandoned driver goes on", lambda: len(drivers(cli)) == 1)
    folders = runtime_dirs(cli)
    cli("stop", "site")
    nothing_is_left(cli, folders)


def test_an_episode_killed_at_random_moments_leaves_nothing_behind_stop(cli: Cli, long_count: Any) -> None:
    start(cli)
    cli("stop", "site")
    choices = random.Random(5)
    for _ in range(long_count(4, 40)):
        child = cli.spawn("run", SITE, "--runner", "local", "--port", "0", "--task", "note", "--agent", "oracle", "--rm")
        timer = threading.Timer(choices.uniform(0.3, 2.5), child.kill)
        timer.start()
        child.communicate(timeout=60)
        timer.cancel()
        folders = runtime_dirs(cli)
        cli("cache", "gc")
        cli("stop", "--all")
        nothing_is_left(cli, folders)


def test_stopping_one_leaves_another_whose_name_begins_alike(cli: Cli) -> None:
    start(cli)
    cli("run", SITE, "--runner", "local", "--port", "0", "--name", "site2")
    cli("stop", "site")
    assert [(row["name"], row["status"]) for row in cli("ps", "--json").json] == [("site2", "running")]


# Words.


@pytest.mark.parametrize(
    ("words", "args"),
    [
        (["click", "#a"], {"selector": "#a"}),
        (["click", "10", "20"], {"x": 10, "y": 20}),
        (["click", "10,20"], {"x": 10, "y": 20}),
        (["click", "text=Save: now"], {"selector": "text=Save: now"}),
        (["click", "a,b"], {"selector": "a,b"}),
        (["fill", "#a", "count:=3"], {"selector": "#a", "value": "count:=3"}),
        (["fill", "#a", "timeout:=3", "timeout:=4"], {"selector": "#a", "value": "timeout:=3", "timeout": 4}),
        (["type", "{x}"], {"text": "{x}"}),
        (["press", "Control+S"], {"key": "Control+S"}),
        (["drag", "#a", "#b"], {"selector": "#a", "target": "#b"}),
        (["drag", "#a", "1", "2"], {"selector": "#a", "to_x": 1, "to_y": 2}),
        (["drag", "1", "2", "3", "4"], {"x": 1, "y": 2, "to_x": 3, "to_y": 4}),
        (["scroll", "300"], {"dy": 300}),
        (["scroll", "-1", "300"], {"dx": -1, "dy": 300}),
        (["scroll", "#a", "300"], {"selector": "#a", "dy": 300}),
        (["scroll", "#a"], {"selector": "#a"}),
        (["upload", "#a", "x", "y"], {"selector": "#a", "files": ["x", "y"]}),
        (["back"], {}),
        (["snapshot", "snapshot:=true"], {"snapshot": True}),
        (["state", "notes"], {"table": "notes"}),
    ],
)
def test_words_of_an_action(words: list[str], args: dict[str, Any]) -> None:
    action = website.parse(words)
    assert (action.name, action.args) == (words[0], args)
    if action.name != "state":
        gestures.read(action.name, action.args)


@pytest.mark.parametrize("words", [["back", "twice"], ["drag", "#a"], ["upload", "#a"], ["goto"], ["goto", "/", "timeout:={"], ["press"]])
def test_words_that_are_no_action(words: list[str]) -> None:
    with pytest.raises(UsageError):
        website.parse(words)


def test_tools_have_schemas_that_hold() -> None:
    import jsonschema

    for tool in gestures.tools():
        schema = tool["inputSchema"]
        jsonschema.Draft202012Validator.check_schema(schema)
        assert "$ref" not in json.dumps(schema)
        assert tool["description"].endswith(".")
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"unknown": 1}, schema)
