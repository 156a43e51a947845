"""What goes wrong for users of websites, on a real Calendr: each trouble ends in its message, its way out and its exit code."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gymctl.browser import client as browser
from tests.conftest import Cli, lacking
from tests.test_cli import wait_for
from tests.test_troubles import post
from tests.test_website import SITE

COUNT = {"comparator": "gte", "function": "count", "function_args": ["_result[*]"], "value": 1}


@pytest.fixture(scope="module")
def calendr(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """A running Calendr for tests that only act in sessions of their own."""
    made = Cli(tmp_path_factory.mktemp("calendr"))
    made("run", "calendr", "--runner", "local", "--port", "0", "-e", "WAIT_S=1")
    yield made
    made.close()


def url(cli: Cli) -> str:
    return str(cli("ps", "--json").json[0]["url"])


def failed(cli: Cli, *words: str, code: int) -> Any:
    """The error of a command."""
    return cli(*words, "--json", code=code).json["error"]


def checks(cli: Cli, *found: Any) -> str:
    """A file with checks."""
    (cli.folder / "checks.yaml").write_text(json.dumps({"checks": found}))
    return "checks.yaml"


def check(id: str, **changes: Any) -> dict[str, Any]:
    return {"id": id, "type": "state", "table": "events", "asserts": [COUNT], **changes}


FAULTY = (
    check("pattern", asserts=[{"comparator": "regex", "value": "(", "function": "pluck", "function_args": ["_result[*]", "title"]}]),
    check("field", asserts=[{"comparator": "eq"}]),
    check("shape", asserts={"comparator": "eq"}),
    check("function", asserts=[{**COUNT, "function": "cuont"}]),
)
SAID = ("checks[0].asserts[0].value", "checks[1].asserts[0]", "checks[2].asserts", "checks[3].asserts[0].function")


def test_faulty_checks_are_all_named(calendr: Cli) -> None:
    calendr("reset", "calendr", "--session", "faulty")
    error = failed(calendr, "verify", "calendr", "--session", "faulty", "--checks", checks(calendr, *FAULTY), code=9)
    assert "4 fault(s) in the checks" in error["message"]
    for path in SAID:
        assert path in error["message"], path
    assert "count" in error["message"].partition("cuont")[2], "the functions there are"


def test_faulty_checks_of_a_whole_episode_are_no_verdict(cli: Cli) -> None:
    (cli.folder / "faulty.yaml").write_text(json.dumps({"id": "faulty", "prompt": "Do it.", "reset": {"pack": "default"}, "checks": [FAULTY[3]]}))
    words = ["run", "calendr", "--runner", "local", "--port", "0", "--task", "./faulty.yaml", "--agent", "noop", "--rm", "--json"]
    document = cli(*words, code=11).json
    assert document["verdict"] == "none"
    assert document["score"] is None
    assert "cuont" in document["reason"]["message"]


def test_a_function_that_cannot_be_computed_is_no_verdict(calendr: Cli) -> None:
    calendr("reset", "calendr", "--session", "sum")
    titles = check("sum", asserts=[{"comparator": "eq", "function": "sum", "function_args": ["_result[*].title"], "value": 1}])
    document = calendr("verify", "calendr", "--session", "sum", "--checks", checks(calendr, titles), "--json", code=11).json
    assert (document["verdict"], document["score"], document["reason"]["type"]) == ("none", None, "ExecutionError")
    assert "sum" in document["reason"]["message"]


def test_rows_that_cannot_be_read_are_no_verdict(calendr: Cli) -> None:
    before = set(data(calendr).glob("sessions/*.sqlite"))
    calendr("reset", "calendr", "--session", "damaged")
    (path,) = set(data(calendr).glob("sessions/*.sqlite")) - before
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    document = calendr("verify", "calendr", "--session", "damaged", "--checks", checks(calendr, check("rows")), "--json", code=11).json
    assert document["reason"]["type"] == "ExecutionError"
    assert "the session's rows cannot be read: database disk image is malformed" in document["reason"]["message"]


def data(cli: Cli) -> Path:
    """The data folder of its server."""
    return cli.state / "instances" / "calendr" / "data"


def test_a_failed_check_shows_what_was_searched(calendr: Cli) -> None:
    calendr("reset", "calendr", "--session", "failing")
    wrong = check("none", asserts=[{**COUNT, "value": 10_000}])
    document = calendr("verify", "calendr", "--session", "failing", "--checks", checks(calendr, check("some"), wrong), "--json", code=1).json
    some, none = document["checks"]
    assert "all_results" not in some
    assert len(none["all_results"]) == none["asserts"][0]["actual_value"] >= 60


def test_a_session_that_was_never_reset(calendr: Cli) -> None:
    for words in (["step", "calendr", "--session", "never", "state"], ["verify", "calendr", "--session", "never", "--checks", checks(calendr, check("a"))]):
        error = failed(calendr, *words, code=4)
        assert "there is no session 'never'" in error["message"]
        assert f"call /reset with this sessionId first: curl -X POST {url(calendr)}/reset -H" in error["hint"]


def test_a_data_pack_that_is_not_there(calendr: Cli) -> None:
    error = failed(calendr, "reset", "calendr", "--session", "packs", "--pack", "profesional-swe", code=4)
    assert "no data pack 'profesional-swe'" in error["message"]
    assert "data packs: default, professional-swe" in error["hint"]


@pytest.mark.parametrize("name", ["a\nb", "x" * 300])
def test_a_session_id_that_cannot_be_one(calendr: Cli, name: str) -> None:
    for verb in (["reset", "calendr"], ["step", "calendr", "state"]):
        error = failed(calendr, verb[0], verb[1], "--session", name, *verb[2:], code=9)
        assert "'sessionId' must be 1 to 200 printable characters" in error["message"]


def test_no_session_id_is_named(calendr: Cli) -> None:
    from urllib.error import HTTPError
    from urllib.request import ProxyHandler, Request, build_opener

    for path in ("/reset", "/state", "/verifier", "/log"):
        with pytest.raises(HTTPError) as caught:
            build_opener(ProxyHandler({})).open(Request(url(calendr) + path, b'{"checks": []}', {"Content-Type": "application/json"}))
        document = json.load(caught.value)
        assert (caught.value.code, "'sessionId' is missing" in document["error"]["message"]) == (400, True), document


def test_a_session_that_is_busy_names_its_operation(calendr: Cli) -> None:
    calendr("reset", "calendr", "--session", "busy")
    with (data(calendr) / "templates" / "professional-swe.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the pack cannot be built meanwhile: a reset that does not end
        resetting = calendr.spawn("reset", "calendr", "--session", "busy", "--pack", "professional-swe")
        wait_for(lambda: lock_waited_for(Path(lock.name).stat().st_ino))
        began = time.monotonic()
        code = "import json, sys; from gymctl import wire; sys.exit(json.dumps(wire.Client(sys.argv[1]).send('GET', '/state?session_id=busy').json()))"
        done = subprocess.run([sys.executable, "-c", code, url(calendr)], capture_output=True, text=True, check=False, timeout=30)
        error = json.loads(done.stderr)["error"]
        assert 1 <= time.monotonic() - began < 10, "a bounded wait"
    assert "reset of session 'busy' has not ended in 1 s" in error["message"]
    assert (error["operation"], error["hint"]) == ("reset", "wait for it, then try again")
    assert resetting.communicate(timeout=30)[0]


def lock_waited_for(inode: int) -> bool:
    """Whether somebody waits for a lock on this file."""
    return any("->" in line and f":{inode} " in line for line in Path("/proc/locks").read_text().splitlines())


def test_answers_carry_the_session_and_its_version(calendr: Cli) -> None:
    address = url(calendr)
    versions = []
    for _ in range(2):
        calendr("reset", "calendr", "--session", "fresh")
        _, headers = post(address, "/state", {"sessionId": "fresh"})
        assert headers["x-session"] == "fresh"
        versions.append(headers["x-session-version"])
    assert versions[0] != versions[1]


def test_a_page_opened_before_a_reset_says_so(calendr: Cli) -> None:
    if missing := browser.lacking():
        lacking("browser", missing.message)

    def step(*words: str) -> Any:
        return calendr("step", "calendr", "--session", "stale", "--json", *words).json["observation"]

    calendr("reset", "calendr", "--session", "stale")
    step("goto", "/events/new?date=2026-03-11")
    step("fill", "#title", "Too late")
    post(url(calendr), "/reset", {"sessionId": "stale"})  # by somebody else: gymctl's own would put the page back
    seen = step("click", "#save", "snapshot:=true")["snapshot"]
    assert "opened before the session was reset, so nothing was done" in seen
    assert "Open the page again" in seen
    assert "Too late" not in [row["title"] for row in step("state", "events")["state"]["events"]]


def test_an_answer_of_another_session_is_named(cli: Cli) -> None:
    cli("run", SITE, "--runner", "local", "--port", "0")
    error = failed(cli, "run", SITE, "--runner", "local", "--port", "0", "--name", "mixed", "-e", "SITE_SESSION=somebody-else", code=9)
    assert "the answer came from session 'somebody-else' instead of 's-" in error["message"]
    assert "gymctl ps" in error["hint"]
