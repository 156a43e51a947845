"""The command line is a contract: every verb's options, exit codes and JSON documents, on every path."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gymctl import errors
from gymctl.cli import VERBS
from tests import generated
from tests.conftest import RECIPE, Cli
from tests.test_session import STUB

TEXT = {"type": "string"}
NUMBER = {"type": "number"}
OPTIONAL_TEXT = {"type": ["string", "null"]}


def shape(extra: bool = False, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": extra}


ENVIRONMENT = shape(GYMCTL_URL=TEXT, GYMCTL_SESSION=TEXT, GYMCTL_TOKEN=TEXT)
RUN: dict[str, Any] = {
    "name": TEXT, "url": {"type": "string", "pattern": "^http://127\\.0\\.0\\.1:\\d+$"}, "kind": {"enum": ["mcp", "website", "desktop"]},
    "runner": TEXT, "recipe": TEXT, "session": {"type": "string", "minLength": 8}, "image": {"type": "object"},
    "key": {"type": "string", "pattern": "^[0-9a-f]{64}$"}, "token": TEXT,
    "form": {"enum": ["cold", "disk", "clone", "savevm"]}, "checkpoint": OPTIONAL_TEXT,
    "env": ENVIRONMENT, "started": NUMBER, "notes": {"type": "array", "items": TEXT}, "versions": {"type": "object"},
}  # fmt: skip
VERDICT: dict[str, Any] = {
    "verdict": {"enum": ["passed", "failed", "none"]}, "score": {"type": ["number", "null"], "minimum": 0, "maximum": 1}, "checks": {"type": "array"},
    "reason": {"anyOf": [{"type": "null"}, shape(type=TEXT, message=TEXT)]},
}  # fmt: skip
SHAPES = {
    "run": shape(**RUN),
    "episode": shape(
        **RUN, **VERDICT, task=TEXT, seed={"type": ["integer", "null"]}, steps={"type": "integer"}, dir=TEXT, recording=OPTIONAL_TEXT,
        agent=shape(extra=True, exit={"type": "integer"}, timed_out={"type": "boolean"}),
    ),
    "verify": shape(**VERDICT),
    "reset": shape(
        session=TEXT, state=OPTIONAL_TEXT, form={"enum": ["fresh", "clone", "savevm", "disk", "cold"]}, checkpoint=OPTIONAL_TEXT, contents={"type": "object"}
    ),
    "step": shape(observation={"type": "array"}, files={"type": "array"}, elapsed=NUMBER),
    "ps": {
        "type": "array",
        "items": shape(
            extra=True, name=TEXT, kind=TEXT, runner=TEXT, recipe=TEXT, session=TEXT, url=TEXT, started=NUMBER, age=NUMBER, image={"type": "object"},
            status={"enum": ["starting", "running", "exited", "gone", "broken", "unknown", "orphaned"]}, exit_code={"type": ["integer", "null"]},
            ports={"type": "object"}, restarts={"type": "integer"},
        ),
    },
    "stop": shape(stopped={"type": "array", "items": TEXT}),
    "logs": shape(name=TEXT, lines={"type": "array", "items": TEXT}),
    "recipes": {"type": "array", "items": shape(name=TEXT, kind=TEXT, summary=TEXT, tasks={"type": "integer"})},
    "recipe": shape(
        name=TEXT, kind=TEXT, image=TEXT, runners={"type": "array"}, universes={"type": "array"}, packs={"type": "array"},
        tasks={"type": "array", "items": shape(extra=True, id=TEXT, prompt=TEXT)},
    ),
    "doctor": shape(
        host={"type": "array"},
        runners={
            "type": "object",
            "additionalProperties": shape(
                usable={"type": "boolean"},
                findings={"type": "array", "items": shape(what=TEXT, ok={"enum": [True, False, "not proven"]}, detail=TEXT, fix=TEXT)},
            ),
        },
    ),
    "error": shape(error=shape(type=TEXT, message=TEXT, hint=TEXT, exit_code={"type": "integer"})),
}  # fmt: skip


def document(cli: Cli, what: str, *words: str, code: int = 0) -> Any:
    """stdout of a call with --json, held against the shape `what`."""
    made = cli(*words, "--json", code=code).json
    jsonschema.validate(made, SHAPES[what])
    return made


def test_every_verb_prints_its_document(cli: Cli) -> None:
    document(cli, "ps", "ps")
    run = document(cli, "run", "run", RECIPE, "--runner", "local", "--port", "0")
    assert run["env"]["GYMCTL_SESSION"] == run["session"]
    assert document(cli, "ps", "ps", "--all")[0]["status"] == "running"
    reset = document(cli, "reset", "reset", RECIPE, "--task", "move-standup")
    assert reset["session"] == run["session"]
    document(cli, "step", "step", RECIPE, "calendar_get_calendar_events")
    assert document(cli, "verify", "verify", RECIPE, code=1)["verdict"] == "failed"
    document(cli, "logs", "logs", RECIPE)
    assert document(cli, "stop", "stop", RECIPE) == {"stopped": [RECIPE]}
    document(cli, "recipes", "recipes")
    tasks = document(cli, "recipe", "recipes", RECIPE)["tasks"]
    assert len(tasks) >= 30
    assert document(cli, "doctor", "doctor", "local")["runners"]["local"]["usable"] is True


def test_an_episode_prints_run_and_verdict(cli: Cli) -> None:
    made = document(cli, "episode", "run", STUB, "--runner", "local", "--task", "checked", "--agent", "oracle", "--rm", "--seed", "7")
    assert made["seed"] == 7
    assert re.fullmatch(r"stub-[0-9a-f]{6}", made["name"])
    assert json.loads((Path(made["dir"]) / "result.json").read_text()) == made
    lines = [json.loads(line) for line in (Path(made["dir"]) / "episode.jsonl").read_text().splitlines()]
    assert [line["type"] for line in lines] == ["reset", "step", "log", "verify", "end"]
    assert cli("ps", "--json").json == []


WRONG = [
    (2, "UsageError", ["nonsense"]),
    (2, "UsageError", ["run"]),
    (2, "UsageError", ["run", RECIPE, "--port", "x"]),
    (2, "UsageError", ["run", RECIPE, "--agent", "noop"]),
    (2, "UsageError", ["run", RECIPE, "--rm"]),
    (2, "UsageError", ["run", RECIPE, "--task", "move-standup", "--agent", "python 'x"]),
    (2, "UsageError", ["run", RECIPE, "--task", "move-standup", "--agent", ""]),
    (2, "UsageError", ["verify", "x", "--judge", "'"]),
    (2, "UsageError", ["run", RECIPE, "-e", "novalue"]),
    (2, "UsageError", ["run", RECIPE, "--runner", "local", "--opt", "memory=1g"]),
    (2, "UsageError", ["run", RECIPE, "--runner", "docker", "--opt", "cpus=nan"]),
    (2, "UsageError", ["run", RECIPE, "--name", "../up"]),
    (2, "UsageError", ["step", "x"]),
    (2, "UsageError", ["stop"]),
    (2, "UsageError", ["reset", "x", "--task", "t", "--universe", "u"]),
    (2, "UsageError", ["ps", "--wat"]),
    (3, "RecipeError", ["run", "./broken.yaml"]),
    (4, "NotFound", ["run", "agent-enviroment"]),
    (4, "NotFound", ["run", RECIPE, "--task", "move-standupp", "--agent", "noop"]),
    (4, "NotFound", ["run", RECIPE, "--runner", "dokcer"]),
    (4, "NotFound", ["reset", "x"]),
    (4, "NotFound", ["step", "x", "a_b"]),
    (4, "NotFound", ["verify", "x"]),
    (4, "NotFound", ["stop", "x"]),
    (4, "NotFound", ["logs", "x"]),
    (4, "NotFound", ["load", "nowhere.tar"]),
    (4, "NotFound", ["build-image", "nothing"]),
    (4, "NotFound", ["doctor", "wat"]),
    (4, "NotFound", ["recipes", "wat"]),
]


@pytest.mark.parametrize(("code", "kind", "words"), WRONG, ids=lambda v: " ".join(v) if isinstance(v, list) else None)
def test_every_error_is_one_document(cli: Cli, code: int, kind: str, words: list[str]) -> None:
    (cli.folder / "broken.yaml").write_text("name: 1\n")
    made = document(cli, "error", *words, code=code)
    assert made["error"]["type"] == kind
    assert made["error"]["exit_code"] == code
    plain = cli(*words, code=code)
    assert plain.out == ""
    assert plain.err.startswith("error: ")


def test_exit_codes_are_those_of_the_table() -> None:
    assert [(code, name) for code, name, _ in errors.table()] == [
        (0, "done"), (1, "no"), (2, "UsageError"), (3, "RecipeError"), (4, "NotFound"), (5, "Unavailable"), (6, "Unsupported"), (7, "Conflict"),
        (8, "StartError"), (9, "EnvError"), (10, "IntegrityError"), (11, "NoVerdict"), (70, "bug"),
    ]  # fmt: skip


@pytest.mark.parametrize("path", generated.files(), ids=lambda p: p.name)
def test_what_is_generated_is_current(path: Path) -> None:
    assert path.read_text() == generated.files()[path], "write it anew: python -m tests.generated"


@pytest.mark.parametrize("verb", [*VERBS, ""])
def test_help_has_examples(cli: Cli, verb: str) -> None:
    text = cli(*([verb] if verb else []), "-h").out
    assert "Examples:" in text
    assert f"gymctl {verb}".strip() in text
    assert max(map(len, text.splitlines())) <= 120


def test_version(cli: Cli) -> None:
    assert re.fullmatch(r"gymctl \d+\.\d+\.\d+\n", cli("--version").out)


def test_no_arguments_show_help(cli: Cli) -> None:
    assert "Commands:" in cli(code=2).err


@pytest.mark.parametrize("more", [{}, {"PYTHONUNBUFFERED": "1"}])
def test_a_reader_that_goes_is_no_error(cli: Cli, more: dict[str, str]) -> None:
    line = f'{" ".join(cli.argv("recipes", RECIPE))} | head -1; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", line], env={**cli.env, **more}, capture_output=True, text=True, check=True)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
    assert done.stdout.splitlines()[-1] in ("0", "141")


def test_lang_c_and_no_home(cli: Cli) -> None:
    done = cli("recipes", RECIPE, env={"LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})
    assert "move-standup" in done.out
    env = {k: v for k, v in cli.env.items() if k not in ("HOME", "GYMCTL_STATE_DIR", "GYMCTL_CACHE_DIR")}
    code = "import pwd\ndef no(*a): raise KeyError\npwd.getpwuid = no\nimport sys\nsys.argv[1:] = ['ps', '--json']\nfrom gymctl.cli import main\nmain()"
    lost = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False, cwd=cli.folder)
    assert lost.returncode == 5, lost.stderr
    assert "GYMCTL_STATE_DIR" in json.loads(lost.stdout)["error"]["hint"]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_unwinds_and_says_so(cli: Cli, signum: signal.Signals) -> None:
    child = cli.spawn("run", STUB, "--runner", "local", "--name", "slow", "-e", "STUB=unhealthy", "--json")
    wait_for(lambda: bool(cli.leftovers()))
    child.send_signal(signum)
    out, err = child.communicate(timeout=20)
    assert child.returncode == 128 + signum
    assert json.loads(out)["error"] == {"type": "Interrupted", "message": f"ended by {signum.name}", "hint": "", "exit_code": 128 + signum}
    assert "Traceback" not in err
    wait_for(lambda: not cli.leftovers())
    assert not (cli.state / "instances" / "slow").exists()


def test_ctrl_c_while_the_command_line_is_loaded(cli: Cli) -> None:
    slow = cli.folder / "slow"  # not where it is called: the fixture's own gymctl would load it, too
    slow.mkdir()
    (slow / "click.py").write_text("import sys, time\nprint('loading', file=sys.stderr, flush=True)\ntime.sleep(60)\n")
    child = cli.spawn("ps", "--json", env={"PYTHONPATH": str(slow)})
    assert child.stderr is not None
    assert child.stderr.readline() == "loading\n"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=20)
    assert child.returncode == 130
    assert json.loads(out)["error"] == {"type": "Interrupted", "message": "ended by SIGINT", "hint": "", "exit_code": 130}
    assert err == "error: ended by SIGINT\n"


def wait_for(true: Any, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)


def test_progress_is_for_terminals_only(cli: Cli) -> None:
    done = cli("run", STUB, "--runner", "local", "--name", "a", "--port", "0", "--json")
    assert json.loads(done.out)["name"] == "a"
    assert done.err == ""
    main, other = pty.openpty()
    env = {k: v for k, v in cli.env.items() if k != "CI"} | {"TERM": "xterm", "COLUMNS": "100"}
    argv = cli.argv("run", STUB, "--runner", "local", "--name", "b", "--port", "0", "-e", "STUB=unhealthy")
    child = subprocess.Popen(argv, stderr=other, stdout=subprocess.PIPE, env=env, text=True, cwd=cli.folder)
    os.close(other)
    seen = b""
    while b"waiting" not in seen:
        seen += os.read(main, 4096)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=20)
    os.close(main)
    assert out == ""


def test_a_broken_runner_of_another_package_is_a_row(cli: Cli) -> None:
    site = cli.folder / "site"
    for name, text in {"torn.py": "x = (", "bare.py": "", "theirs-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: theirs\nVersion: 1\n"}.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    (site / "theirs-1.dist-info/entry_points.txt").write_text("[gymctl.runners]\ntorn = torn\nbare = bare\nlost = lost\n")
    cli.env["PYTHONPATH"] = str(site)
    report = cli("doctor", "torn", "bare", "lost", "--json", code=1).json["runners"]
    for name in ("torn", "bare", "lost"):
        assert report[name]["usable"] is False
        assert "cannot be loaded" in report[name]["findings"][0]["detail"]
    assert cli("run", RECIPE, "--runner", "torn", code=5).err.startswith("error: the runner torn")
    cli("ps", "--all", "--json")
    cli("cache", "gc")
