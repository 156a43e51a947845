"""Recipes, images and tasks are read strictly: YAML 1.2, every problem at once with its line, errors and never tracebacks."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymctl import assets, marked, paths, recipe
from gymctl.errors import GymctlError, NotFound, RecipeError
from tests.conftest import Cli

GOOD = """\
name: mine
kind: mcp
image: agent-environment
port: 1984
"""


def write(folder: Path, text: str, name: str = "recipe.yaml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def faults(folder: Path, text: str) -> list[str]:
    """Line number and message of every fault, without the path."""
    path = write(folder, text)
    with pytest.raises(RecipeError) as caught:
        recipe.load(str(path))
    return [line.removeprefix(f"{path}:") for line in caught.value.message.splitlines()]


def test_bundled_recipes_have_no_problem() -> None:
    assert "agent-environment" in recipe.names()
    for name in recipe.names():
        assert recipe.problems(name) == []
        source = recipe.load(name)
        assert all((source.image_directory / ".." / source.image.name / "universes" / u / "universe.yaml").exists() for u in source.recipe.universes)


def test_images_share_what_their_servers_import() -> None:
    for file in paths.bundled("images").glob("*/Dockerfile"):
        image = recipe.load_image(file.parent)
        sources = [path.read_text() for tree in assets.trees(file.parent, image) for path in tree.rglob("*.py")]
        imported = {name for text in sources for name in re.findall(r"(?m)^\s*(?:from|import) (_[a-z]+)[ .]", text)} - {"__future__"}
        assert imported == set(image.shares), file.parent.name


def test_a_recipe_is_loaded_by_path(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    source = recipe.load(str(tmp_path))
    assert source.recipe.name == "mine"
    assert source.recipe.ready.timeout == 60
    assert recipe.load(str(tmp_path / "recipe.yaml")) == source


def test_every_problem_at_once_with_its_line(tmp_path: Path) -> None:
    text = "name: Mine!\nkind: mpc\nimage: agent-environmet\nport: '1984'\ncolour: red\nready:\n  timeout: 0\n  pth: /x\n"
    found = faults(tmp_path, text)
    assert [f.split(":")[0] for f in found] == ["1", "2", "4", "5", "7", "8"]
    assert "did you mean mcp?" in found[1]
    assert "expected integer, got string '1984'" in found[2]
    assert "did you mean path?" in found[5]


def test_an_unknown_image_names_the_near_one(tmp_path: Path) -> None:
    (only,) = faults(tmp_path, GOOD.replace("agent-environment", "agent-environmet"))
    assert only.startswith("3: image:")
    assert "did you mean agent-environment?" in only


@pytest.mark.parametrize("word", ["no", "on", "off", "yes", "y", "1:30", "0755", "2026-01-01", "1_000", "0b1", "012"])
def test_yaml_1_2_scalars_stay_text(tmp_path: Path, word: str) -> None:
    source = recipe.load(str(write(tmp_path, GOOD + f"env: {{LAYOUT: {word}}}\n")))
    assert source.recipe.env == {"LAYOUT": word}


@pytest.mark.parametrize(("word", "got"), [("true", "boolean True"), ("7", "integer 7"), ("1.5", "number 1.5")])
def test_values_that_are_no_text_ask_for_quotes(tmp_path: Path, word: str, got: str) -> None:
    (only,) = faults(tmp_path, GOOD + f"env:\n  LAYOUT: {word}\n")
    assert only == f"6: env.LAYOUT: expected string, got {got}; quote it"


@pytest.mark.parametrize("port", ["01984", "1984.0", "'1984'", "0", "65536", "true"])
def test_ports_are_strict(tmp_path: Path, port: str) -> None:
    (only,) = faults(tmp_path, GOOD.replace("1984", port))
    assert only.startswith("4: port:")


@pytest.mark.parametrize(
    ("added", "said"),
    [
        ("ready: {timeout: .inf}", "ready.timeout: expected a finite number, got .inf"),
        ("ready: {timeout: 1e999}", "ready.timeout: expected a finite number, got 1e999"),
        ("resources: {cpus: .NaN}", "resources.cpus: expected a finite number, got .NaN"),
        ("resources: {mem_gb: -1}", "resources.mem_gb: -1 is less than or equal to the minimum of 0"),
        ("options: {docker: {shm_size: -.inf}}", "options.docker.shm_size: expected a finite number, got -.inf"),
        ("ready: {path: 'http://elsewhere/'}", "ready.path:"),
        ('ready: {path: "/a\\r\\nHost: b"}', "ready.path:"),
        ("env: {A=B: c}", "env: 'A=B'"),
        ("env: {'': c}", "env: ''"),
        ('env: {A: "b\\0c"}', "env.A:"),
    ],
)
def test_values_that_no_runner_could_use(tmp_path: Path, added: str, said: str) -> None:
    first = faults(tmp_path, GOOD + added + "\n")[0]
    assert first.startswith(f"5: {said}")


def test_octal_and_hex_are_those_of_yaml_1_2() -> None:
    data = marked.Document(Path("x"), "a: 0o755\nb: 0x1f\nc: -0\nd: 1e3\ne: .5\n").data
    assert data == {"a": 0o755, "b": 31, "c": 0, "d": 1000.0, "e": 0.5}


def test_a_boolean_key_is_refused(tmp_path: Path) -> None:
    (only,) = faults(tmp_path, GOOD + "env:\n  true: x\n")
    assert only == "6: a key must be a string, got boolean; quote it"


def test_duplicate_keys_name_both_lines(tmp_path: Path) -> None:
    (only,) = faults(tmp_path, GOOD + "image: other\n")
    assert only == "5: image: given twice, first at line 3"


def test_an_anchor_bomb_ends_at_once(tmp_path: Path) -> None:
    levels = "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(9))
    path = write(tmp_path, f"a: &a [x,x,x,x,x,x,x,x,x]\n{levels}")
    began = time.monotonic()
    with pytest.raises(RecipeError, match="too large once its aliases are expanded"):
        recipe.load(str(path))
    assert time.monotonic() - began < 5


HOSTILE = ["a: &a [*a]\n", "a: &a {b: *a}\n", "[" * 100_000, "a: " + "{b: " * 5000, "x" * 2_000_001, "\x00", "a: !!python/object:os.system x", "- 1", ""]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_yaml_is_an_error(tmp_path: Path, text: str) -> None:
    assert faults(tmp_path, text)


def test_bytes_that_are_no_utf8(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_bytes(b"name: \xff\n")
    with pytest.raises(RecipeError, match="not UTF-8 at byte 6"):
        recipe.load(str(tmp_path))


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=300))
def test_any_text_is_a_recipe_or_an_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("r") / "recipe.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(GymctlError):
        recipe.load(str(path))


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
values = st.recursive(scalars, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=5), v, max_size=3), max_leaves=6)


@settings(max_examples=150, deadline=None)
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(("name", "kind", "image", "port", "ready", "env", "resources", "runners", "options"), values)))
def test_any_data_is_a_recipe_or_an_error_with_lines(tmp_path_factory: pytest.TempPathFactory, data: dict[str, object]) -> None:
    import yaml

    path = tmp_path_factory.mktemp("r") / "recipe.yaml"
    path.write_text(yaml.safe_dump(data), encoding="utf-8", errors="surrogateescape")
    try:
        recipe.load(str(path))
    except RecipeError as error:
        assert all(line.startswith(f"{path}:") for line in error.message.splitlines())  # noqa: PT017  (either outcome is right)


def test_tasks_take_the_spellings_of_public_files(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    write(tmp_path, 'PROMPT: "Do it"\nENABLED_TOOLS: [a_b]\nTRAJECTORY: [{tool: a_b, args: {x: 1}}]\nGTFA_CLAIMS: ["It was done"]\n', "tasks/public.yaml")
    task = recipe.load_task(tmp_path, "public")
    assert (task.id, task.prompt, task.enabled_tools, task.claims) == ("public", "Do it", ["a_b"], ["It was done"])
    assert task.solution == [recipe.Call("a_b", {"x": 1})]


def test_a_task_nobody_can_judge_is_refused(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    write(tmp_path, "id: other\nprompt: x\n", "tasks/mine.yaml")
    with pytest.raises(RecipeError) as caught:
        recipe.load_task(tmp_path, "mine")
    assert "must be the file's name, mine" in caught.value.message
    assert "needs checks, claims or an evaluator" in caught.value.message


def test_unknown_names_are_not_found() -> None:
    with pytest.raises(NotFound, match="did you mean agent-environment"):
        recipe.load("agent-enviroment")
    with pytest.raises(NotFound, match="no recipe at"):
        recipe.load("./nowhere")


def test_schemas_accept_what_is_bundled(cli: Cli) -> None:
    for kind in ("recipe", "image", "task"):
        schema = cli("recipes", "--schema", kind).json
        jsonschema.Draft202012Validator.check_schema(schema)
    source = recipe.load("agent-environment")
    schema = cli("recipes", "--schema", "task").json
    for name in recipe.task_ids(source.directory):
        jsonschema.validate(marked.load(source.directory / "tasks" / f"{name}.yaml").data, schema)


def test_the_command_prints_every_problem(cli: Cli) -> None:
    write(cli.folder, "name: x\nkind: y\nport: z\n")
    done = cli("recipes", "./recipe.yaml", "--json", code=3)
    assert done.json["error"]["type"] == "RecipeError"
    assert len(done.json["error"]["message"].splitlines()) == 3
    assert json.loads(done.out)["error"]["exit_code"] == 3


def test_the_command_checks_a_task_file_too(cli: Cli) -> None:
    text = (recipe.load("agent-environment").directory / "tasks" / "move-standup.yaml").read_text()
    (cli.folder / "mine.yaml").write_text(text.replace("id: move-standup", "id: mine"))
    assert cli("recipes", "./mine.yaml", "--json").json["id"] == "mine"
    assert "3 steps" in cli("recipes", "./mine.yaml").out
    (cli.folder / "mine.yaml").write_text(text.replace("checks:", "chekcs:"))
    assert "mine.yaml:35: chekcs: unknown field; did you mean checks?" in cli("recipes", "./mine.yaml", code=3).err


def test_runners_and_their_options_are_checked_too(cli: Cli) -> None:
    write(cli.folder, GOOD + "runners: [dokcer]\noptions: {docker: {nope: 1}, local: {memory: 1g}}\n")
    message = cli("recipes", "./recipe.yaml", "--json", code=3).json["error"]["message"]
    assert "no runner 'dokcer'; did you mean docker?" in message
    assert "docker has no option 'nope'" in message
    assert "local has no option 'memory'" in message


def test_the_key_depends_on_every_input(tmp_path: Path) -> None:
    first = recipe.load(str(write(tmp_path, GOOD)))
    second = recipe.load(str(write(tmp_path, GOOD + "env: {A: b}\n")))
    assert len({first.key("sha256:1"), first.key("sha256:2"), second.key("sha256:1")}) == 3
    assert first.key("sha256:1") == recipe.load(str(write(tmp_path, GOOD))).key("sha256:1")
