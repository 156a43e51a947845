"""What a person or a pipe gets: terminals of all kinds, streams that are closed, full or gone, and texts in other encodings."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import termios
from pathlib import Path

import pytest

from tests.conftest import RECIPE, Cli
from tests.test_session import STUB

ESCAPE = "\x1b"


@pytest.fixture
def stub(cli: Cli) -> Cli:
    """gymctl with one running instance, `stub`."""
    cli("run", STUB, "--runner", "local", "--name", "stub", "--port", "0")
    return cli


def on_terminal(cli: Cli, *words: str, env: dict[str, str] | None = None, columns: int = 100, stdout: bool = True) -> tuple[int, str, str]:
    """(exit code, what the terminal got, what a pipe at stdout got); stderr and, if asked, stdout are the terminal."""
    main, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    given = {k: v for k, v in cli.env.items() if k not in ("CI", "NO_COLOR", "COLUMNS")} | {"TERM": "xterm", **(env or {})}
    piped = subprocess.PIPE if not stdout else other
    child = subprocess.Popen(cli.argv(*words), stdin=other, stdout=piped, stderr=other, env=given, cwd=cli.folder)
    os.close(other)
    seen = b""
    while chunk := _read(main):
        seen += chunk
    os.close(main)
    out = child.communicate()[0] or b""
    return child.returncode, seen.decode(), out.decode()


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except OSError:  # the last holder of the terminal has gone
        return b""


def shell(cli: Cli, line: str, **env: str) -> tuple[list[str], str]:
    """(stdout's lines, stderr) of a line of bash in which `$G` is gymctl."""
    script = f'G() {{ {" ".join(cli.argv())} "$@"; }}; {line}'
    done = subprocess.run(["bash", "-c", script], env={**cli.env, **env}, capture_output=True, text=True, cwd=cli.folder, timeout=60, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.splitlines(), done.stderr


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_names_and_urls_are_whole_on_any_terminal(stub: Cli, columns: int) -> None:
    url = stub("ps", "--json").json[0]["url"]
    _, seen, _ = on_terminal(stub, "ps", columns=columns)
    assert url in seen
    assert ESCAPE in seen
    code, seen, _ = on_terminal(stub, "recipes", RECIPE, columns=columns)
    assert code == 0
    assert "win-northlight-deal" in seen


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
@pytest.mark.parametrize("words", [["ps"], ["doctor", "local"], ["recipes"], ["verify", "stub", "--task", "checked"]])
def test_no_colors_where_they_are_unwanted(stub: Cli, env: dict[str, str], words: list[str]) -> None:
    assert ESCAPE in on_terminal(stub, "doctor", "local")[1]
    code, seen, _ = on_terminal(stub, *words, env=env)
    assert (code, ESCAPE in seen) == (0, False)


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"CI": "true"}])
def test_progress_is_lines_where_nothing_can_be_redrawn(cli: Cli, env: dict[str, str]) -> None:
    code, seen, _ = on_terminal(cli, "run", STUB, "--runner", "local", "-e", "STUB=unhealthy", env=env)
    assert (code, ESCAPE in seen) == (8, False)
    assert seen.count("waiting: /health answers 503: warming up ...") == 1


def test_progress_is_one_line_however_narrow(cli: Cli) -> None:
    code, seen, _ = on_terminal(cli, "run", STUB, "--runner", "local", "-e", "STUB=unhealthy", columns=30)
    assert code == 8
    drawn = seen.partition("error:")[0]
    assert "waiting" in drawn
    assert f"{ESCAPE}[1A{ESCAPE}[2K{ESCAPE}[1A" not in drawn, "a drawing of several lines"
    assert drawn.count(f"{ESCAPE}[?25l") == drawn.count(f"{ESCAPE}[?25h") == 1, "the cursor comes back"


def test_a_document_in_a_pipe_while_progress_is_on_the_terminal(cli: Cli) -> None:
    words = ("run", STUB, "--runner", "local", "-e", "STUB=unhealthy", "--json")
    code, seen, out = on_terminal(cli, *words, stdout=False)
    assert (code, json.loads(out)["error"]["type"]) == (8, "StartError")
    assert "waiting" in seen


CLOSED = ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"]


@pytest.mark.parametrize("closed", CLOSED)
def test_streams_that_are_closed(stub: Cli, closed: str) -> None:
    """Without a terminal, as cron, nohup and daemons start commands."""
    lines, _ = shell(
        stub,
        f"G ps {closed}; echo $?; G ps --json {closed}; echo $?; G step stub --stdin {closed}; echo $?; G stop nobody {closed}; echo $?; "
        f"G run {STUB} --runner local --name two --port 0 {closed}; echo $?",
    )
    assert [line for line in lines if line.isdigit()] == ["0", "0", "0", "4", "0"]
    assert {row["name"] for row in stub("ps", "--json").json} == {"stub", "two"}


@pytest.mark.parametrize("words", ["ps", "ps --json", f"recipes {RECIPE} --json", "stop nobody --json", "-h", f"run {STUB} --runner local --name two --port 0"])
def test_a_full_disk_under_stdout(stub: Cli, words: str) -> None:
    lines, err = shell(stub, f"G {words} >/dev/full; echo $?")
    assert lines in (["5"], ["4"])
    assert "error: " in err
    assert "please report" not in err
    if words.startswith("run"):
        assert {row["name"] for row in stub("ps", "--json").json} == {"stub", "two"}, "what runs is not lost"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_loses_no_running_instance(cli: Cli, unbuffered: str) -> None:
    start = f"G run {STUB} --runner local --port 0"
    lines, err = shell(cli, f"{start} --name a | true; echo ${{PIPESTATUS[0]}}; {start} --name b --json | head -c 1 >/dev/null", PYTHONUNBUFFERED=unbuffered)
    assert lines[-1] in ("0", "141")
    assert "error" not in err
    assert [(row["name"], row["status"]) for row in cli("ps", "--json").json] == [("a", "running"), ("b", "running")]
    _, err = shell(cli, f"{start} --task checked --agent oracle --rm | true", PYTHONUNBUFFERED=unbuffered)
    assert "error" not in err
    assert len(cli("ps", "--all", "--json").json) == 2, "an episode that is to go away has gone"
    shell(cli, "G stop --all | true", PYTHONUNBUFFERED=unbuffered)
    assert cli("ps", "--all", "--json").json == [], "all are stopped, whoever listens"


C = {"LC_ALL": "C", "LANG": "C"}
STRICT_C = {**C, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii:strict"}


@pytest.mark.parametrize("env", [C, STRICT_C, {"LC_ALL": "POSIX"}, {"LC_ALL": "xx_YY.nonsense"}])
def test_any_locale(stub: Cli, env: dict[str, str]) -> None:
    done = stub("run", RECIPE, "--runner", "local", "--task", "move-standup", "--agent", "oracle", "--rm", env=env)
    assert "PASSED" in done.out
    assert stub("recipes", RECIPE, "--json", env=env).json["tasks"]
    assert "ümlaut" not in stub("stop", "ümlaut", env=env, code=4).out
    assert on_terminal(stub, "recipes", RECIPE, env=env)[0] == 0


def test_text_that_is_no_utf8(stub: Cli) -> None:
    argv = [*map(os.fsencode, stub.argv("step", "stub", "do_it")), b"query=\xe4"]
    done = subprocess.run(argv, env=stub.env, capture_output=True, text=True, check=False, cwd=stub.folder)
    assert done.returncode == 2
    assert "not UTF-8" in done.stderr
    lines = stub("step", "stub", "--stdin", input='{"action": "do_it", "args": {"q": "\\ud800"}}\n{"action": "do_it"}\n').out.splitlines()
    assert json.loads(lines[0])["error"]["type"] == "UsageError"
    assert "observation" in json.loads(lines[1])


@pytest.mark.parametrize("home", ["/proc/nowhere", ""])
def test_a_home_that_cannot_be_used(cli: Cli, home: str) -> None:
    env = {k: v for k, v in cli.env.items() if not k.startswith(("GYMCTL_", "XDG_"))} | {"HOME": home}
    done = subprocess.run(cli.argv("ps", "--json"), env=env, capture_output=True, text=True, check=False, cwd=cli.folder)
    assert done.returncode == (5 if home else 0), done.stderr
    if home:
        error = json.loads(done.stdout)["error"]
        assert home in error["message"]
        assert "GYMCTL_STATE_DIR" in error["hint"]
    assert not any(Path(cli.folder).glob(".local*"))
