"""Three-way verdicts, sessions, judges: what gymctl makes of an environment that answers wrongly."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymctl import session
from gymctl.episode import score
from gymctl.errors import EnvError, UsageError
from tests.conftest import RECIPE, ROOT, Cli

STUB = str(ROOT / "tests/fakes/stub")


def start(cli: Cli, wrong: str = "") -> None:
    cli("run", STUB, "--runner", "local", "--name", "stub", "--port", "0", "-e", f"STUB={wrong}")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("nan", "NaN or an infinity"),
        ("infinity", "NaN or an infinity"),
        ("overflow", "NaN or an infinity"),
        ("bool", "got bool True"),
        ("text", "got str '1'"),
        ("negative", "between 0 and 1, got -0.5"),
        ("large", "between 0 and 1, got 1.5"),
        ("no-object", "list instead of an object"),
        ("no-json", "not JSON"),
        ("one", "success must be true, false or PENDING, got 1"),
        ("mismatch", "its checks say False"),
        ("fewer", "was asked 1 checks and answered 0"),
        ("pending", "wait for a judge"),
        ("sleep", "did not answer"),
        ("close", "broke the connection"),
        ("500", "the database is gone"),
    ],
)
def test_no_verdict_is_never_a_zero(cli: Cli, wrong: str, said: str) -> None:
    start(cli, wrong)
    document = cli("verify", "stub", "--task", "checked", "--timeout", "0.5", "--json", code=11, timeout=30).json
    assert document["verdict"] == "none"
    assert document["score"] is None
    assert said in document["reason"]["message"]
    if wrong != "sleep":  # the same, at the length of a whole verifier's time
        done = cli("run", STUB, "--runner", "local", "-e", f"STUB={wrong}", "--task", "checked", "--agent", "oracle", "--rm", "--json", code=11)
        assert done.json["verdict"] == "none"


def test_passed_failed_and_a_share(cli: Cli) -> None:
    start(cli)
    assert cli("verify", "stub", "--task", "checked", "--json").json == {
        "verdict": "passed", "score": 1.0, "checks": [{"id": "done", "success": True}], "reason": None,
    }  # fmt: skip
    cli("stop", "stub")
    start(cli, "half")
    assert cli("verify", "stub", "--task", "checked", "--json", code=1).json["score"] == 0.5


def test_faulty_checks_are_the_callers_fault(cli: Cli) -> None:
    start(cli, "400")
    assert "bad pattern" in cli("verify", "stub", "--task", "checked", code=9).err
    done = cli("run", STUB, "--runner", "local", "-e", "STUB=400", "--task", "checked", "--agent", "noop", "--rm", "--json", code=11)
    assert done.json["reason"] == {"type": "ValidationError", "message": "checks[0]: bad pattern"}


def test_an_answer_of_another_session_is_named(cli: Cli) -> None:
    start(cli, "other-session")
    assert "somebody else's" in cli("step", "stub", "do_it", code=9).err


@pytest.mark.parametrize("odd", ["ü", " a ", "%41", "a\nb", "a/b?c#d", "名前", "a" * 300])
def test_a_session_of_any_name_is_served_as_itself(shared: Cli, odd: str) -> None:
    shared("step", "office", "--session", odd, "calendar_create_calendar", "name=Canary")
    assert "Canary" in shared("step", "office", "--session", odd, "calendar_list_calendars").out
    assert "Canary" not in shared("step", "office", "calendar_list_calendars").out


def test_an_empty_name_is_no_way_to_say_the_instances_own(cli: Cli) -> None:
    start(cli)
    for verb in (["step", "stub", "do"], ["reset", "stub"], ["verify", "stub", "--task", "checked"], ["step", "stub", "--stdin"]):
        done = cli(*verb, "--session", "", code=None, input='{"action": "do"}\n')
        assert "cannot be empty" in done.err + done.out
    assert "cannot be empty" in cli("reset", "stub", "--universe", "", code=2).err
    assert cli("verify", "stub", "--task", "", code=4).err
    for option in ("--image", "--runner", "--name", "--task"):
        assert f"{option} is empty" in cli("run", STUB, option, "", code=2).err


def test_times_are_numbers_with_an_end(cli: Cli) -> None:
    for said in ("nan", "inf", "1e300", "0", "-1"):
        assert "--timeout" in cli("verify", "stub", "--timeout", said, code=2).err
        assert "--timeout" in cli("run", STUB, "--task", "checked", "--agent", "noop", "--timeout", said, code=2).err


def test_lines_that_are_no_json_are_answered_and_the_stream_goes_on(cli: Cli) -> None:
    start(cli)
    deep = '{"action": "do", "args": {"a": %s%s}, "id": 1}'
    lines = ['{"action": "do", "args": {"a": NaN}}', '{"action": "do", "args": {"a": -1e999}}', deep % ("[" * 300, "]" * 300), deep % ("[" * 99999, "")]
    lines.append("[" * 99999)
    said = cli("step", "stub", "--stdin", input="\n".join([*lines, '{"action": "do", "id": 2}', ""])).out
    answers = [json.loads(line) for line in said.splitlines()]
    assert [answer.get("error", {}).get("exit_code") for answer in answers] == [2] * len(lines) + [None]
    assert answers[-1]["id"] == 2


def test_guest_text_reaches_no_terminal(cli: Cli) -> None:
    start(cli, "escapes")
    done = cli("step", "stub", "do_it", code=9)
    assert "red" in done.err
    assert "\x1b" not in done.err + done.out
    assert "\x07" not in done.err


def test_a_server_that_dies_is_told_apart_from_one_that_never_ran(cli: Cli) -> None:
    start(cli, "die")
    done = cli("step", "stub", "do_it", code=5)
    assert "no longer running" in done.err
    assert "--replace" in done.err
    assert cli("ps", "--json").json[0]["status"] == "exited"
    assert "no instance 'nobody'" in cli("step", "nobody", "do_it", code=4).err


def judge(folder: Path, body: str) -> str:
    path = folder / "judge.py"
    path.write_text(f"import json, sys, time\nasked = json.load(sys.stdin)\n{body}\n")
    return f"{sys.executable} {path}"


@pytest.mark.parametrize(
    ("body", "code", "share"),
    [
        ("print(json.dumps({'verdicts': ['fulfilled'] * 4}))", 0, 1.0),
        ("print(json.dumps({'verdicts': ['fulfilled', 'fulfilled', 'partially', 'partially']}))", 0, 0.75),
        ("print(json.dumps({'verdicts': ['fulfilled', 'fulfilled', 'partially', 'not']}))", 1, 0.625),
        ("print(json.dumps({'verdicts': [{'score': 1}, 1, 0.5, {'verdict': 'fulfilled'}]}))", 0, 0.875),
        ("print(json.dumps({'verdicts': ['fulfilled' if asked['answer'] == 'yes' else 'not'] * 4}))", 0, 1.0),
    ],
)
def test_claims_are_judged(cli: Cli, body: str, code: int, share: float) -> None:
    start(cli)
    done = cli("verify", "stub", "--task", "claimed", "--answer", "yes", "--judge", judge(cli.folder, body), "--json", code=code)
    assert done.json["score"] == share


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("print(json.dumps({'verdicts': ['fulfilled']}))", "4 verdicts"),
        ("print('{\"verdicts\": [1, 1, 1, NaN]}')", "finite"),
        ("print(json.dumps({'verdicts': [True, 1, 1, 1]}))", "got bool"),
        ("print(json.dumps({'verdicts': ['maybe', 1, 1, 1]}))", "'maybe'"),
        ("print('no')", "must print"),
        ("sys.exit('out of credit')", "out of credit"),
        ("time.sleep(60)", "did not answer within 1 s"),
    ],
)
def test_a_judge_that_fails_gives_no_verdict(cli: Cli, body: str, said: str) -> None:
    start(cli)
    done = cli("verify", "stub", "--task", "claimed", "--judge", judge(cli.folder, body), "--timeout", "1", "--json", code=11)
    assert said in done.json["reason"]["message"]
    assert done.json["score"] is None


def test_rubric_checks_are_the_judges(cli: Cli) -> None:
    start(cli)
    (cli.folder / "checks.yaml").write_text("- {id: done, type: state}\n- {id: polite, type: rubric, rubric: It was polite.}\n- {id: short, type: rubric}\n")
    pending = cli("verify", "stub", "--checks", "checks.yaml", "--json", code=11).json
    assert [(c["id"], c["success"]) for c in pending["checks"]] == [("done", True), ("polite", "PENDING"), ("short", "PENDING")]
    body = "assert asked['claims'] == ['It was polite.', 'short']\nprint(json.dumps({'verdicts': ['fulfilled', 'fulfilled']}))"
    done = cli("verify", "stub", "--checks", "checks.yaml", "--judge", judge(cli.folder, body), "--json").json
    assert [(c["id"], c["success"]) for c in done["checks"]] == [("done", True), ("polite", True), ("short", True)]
    (cli.folder / "checks.yaml").write_text("- {type: rubric}\n")
    cli("verify", "stub", "--checks", "checks.yaml", code=9)


def test_without_a_judge_claims_are_pending(cli: Cli) -> None:
    start(cli)
    done = cli("verify", "stub", "--task", "claimed", "--json", code=11).json
    assert done["reason"]["type"] == "pending"
    assert [check["success"] for check in done["checks"]] == ["PENDING"] * 4
    assert "no judge" not in cli("verify", "stub", "--task", "claimed", "--judge", "/no/such/judge", code=11).out


def test_a_checks_file_may_be_yaml_json_or_a_task(cli: Cli) -> None:
    start(cli)
    check = {"id": "done", "type": "state", "server": "x", "table": "y", "asserts": []}
    for name, text in {"a.json": json.dumps([check]), "b.yaml": "checks:\n- {id: done, type: state}\n", "c.yaml": "- {id: done, type: state}\n"}.items():
        (cli.folder / name).write_text(text)
        cli("verify", "stub", "--checks", name)
    cli("verify", "stub", "--checks", f"{STUB}/tasks/checked.yaml")
    (cli.folder / "empty.yaml").write_text("checks: []\n")
    cli("verify", "stub", "--checks", "empty.yaml", code=9)
    cli("verify", "stub", "--checks", "nowhere.yaml", code=4)
    (cli.folder / "binary.yaml").write_bytes(b"checks: \xff")
    assert "not UTF-8 at byte 8" in cli("verify", "stub", "--checks", "binary.yaml", code=9).err
    (cli.folder / "torn.yaml").write_text("checks: [\n")
    assert "torn.yaml:2:" in cli("verify", "stub", "--checks", "torn.yaml", code=9).err
    cli("verify", "stub", code=2)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200) | json_values.map(json.dumps) | st.dictionaries(st.sampled_from(["checks", "claims"]), json_values).map(json.dumps))
def test_any_checks_file_is_checks_or_an_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("checks") / "checks.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        checks, claims = session.load_checks(path)
    except EnvError as error:
        assert str(path) in error.message  # noqa: PT017  (either outcome is right)
    else:
        assert all(isinstance(check, dict) for check in checks)
        assert checks or claims


@settings(max_examples=300, deadline=None)
@given(json_values | st.fixed_dictionaries({"success": json_values, "verifiers": st.lists(json_values, max_size=2)}, optional={"score": json_values}))
def test_any_answer_of_a_verifier_is_a_verdict_or_refused(answer: object) -> None:
    try:
        verdict = session.read_reply(answer, 1)
    except ValueError:
        return
    assert (verdict.verdict == "none") == (verdict.score is None)
    assert verdict.score is None or 0 <= verdict.score <= 1


def test_a_task_file_is_what_verify_goes_by(cli: Cli) -> None:
    """Also one whose id is that of a task of the recipe."""
    start(cli)
    (cli.folder / "checked.yaml").write_text("id: checked\nprompt: Say it.\nclaims: [It was said.]\n")
    cli("reset", "stub", "--task", "checked.yaml")
    assert cli("verify", "stub", "--json", code=11).json["checks"][0]["claim"] == "It was said."
    cli("reset", "stub", "--task", "checked")
    cli("verify", "stub")


@pytest.mark.parametrize("value", [True, "1", None, float("nan"), float("inf"), -0.1, 1.1, [], {}])
def test_score_refuses(value: object) -> None:
    with pytest.raises(ValueError, match="score must"):
        score(value)


@pytest.mark.parametrize(
    ("words", "args"),
    [
        (["t"], {}),
        (["t", "a=1", "b:=1", "c:=[true]", "d=x=y"], {"a": "1", "b": 1, "c": [True], "d": "x=y"}),
        (["t", '{"a": 1}'], {"a": 1}),
        (['{"action": "t", "args": {"a": 1}}'], {"a": 1}),
        (['{"tool_name": "t", "tool_args": {"a": 1}}'], {"a": 1}),
    ],
)
def test_ways_to_write_an_action(words: list[str], args: dict[str, object]) -> None:
    action = session.parse_action(words)
    assert (action.name, action.args) == ("t", args)


@pytest.mark.parametrize(
    "words",
    [
        ["t", "a"], ["t", "=1"], ["t", "a:=x"], ["t", "a:=NaN"], ["t", "a:=1e999"], ["t", f"a:={'[' * 300}{']' * 300}"], ["t", f"a:={'[' * 99999}"],
        ["{"], ['{"args": {}}'], ['{"action": 1}'], ["t", "{]"], ['{"action": "t", "args": []}'],
    ],
)
def test_actions_that_are_none(words: list[str]) -> None:
    with pytest.raises(UsageError):
        session.parse_action(words)


@pytest.mark.parametrize("name", ["", ".", "..", "../instances", "../episodes", "stub/", "./stub", "/", "Stub", "stub\n", "*", "é", "a" * 64])
def test_what_is_no_name_means_no_directory(cli: Cli, name: str) -> None:
    kept = [cli.state / folder for folder in ("instances/stub", "episodes/old")]
    for folder in kept:
        folder.mkdir(parents=True)
        (folder / "instance.json").write_text("{")
    for verb in (["stop"], ["logs"], ["step", "--stdin"], ["reset"], ["verify", "--task", "checked"], ["view"]):
        assert f"no instance {name!r}" in cli(verb[0], name, *verb[1:], code=4, input="").err
    assert all((folder / "instance.json").exists() for folder in kept)


def test_a_run_whose_task_cannot_begin_leaves_nothing(cli: Cli, tmp_path: Path) -> None:
    task = tmp_path / "nowhere.yaml"
    task.write_text("prompt: Go.\nreset: {universe: nowhere}\nclaims: [It went.]\n")
    assert "no universe 'nowhere'" in cli("run", RECIPE, "--runner", "local", "--name", "gone", "--port", "0", "--task", str(task), code=4).err
    assert cli("ps", "--all", "--json").json == []
    assert not cli.leftovers()
