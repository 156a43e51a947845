"""Recipes, images and tasks: their types, how they are found, read and checked, and the key of what a recipe stands for."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec

from gymctl import marked, paths
from gymctl.episode import MACHINES
from gymctl.errors import NotFound, RecipeError

Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9_.-]{0,62}$", description="lower-case letters, digits, - _ .")]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
UrlPath = Annotated[str, msgspec.Meta(pattern=r"^/[!-~]*$", description="a path on the instance, beginning with /")]
Variable = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="the name of an environment variable")]
VariableValue = Annotated[str, msgspec.Meta(pattern=r"^[^\x00]*$")]
Digest = Annotated[str, msgspec.Meta(pattern=r"^sha256:[0-9a-f]{64}$")]
FORMAT_VERSION = 1

WIRE_SPELLINGS = {
    "PROMPT": "prompt", "ENABLED_TOOLS": "enabled_tools", "TRAJECTORY": "solution", "GTFA_CLAIMS": "claims",
    "instruction": "prompt", "config": "setup", "init": "setup",
}  # fmt: skip
"""Field names of public task files, accepted for ours."""
UNREAD = ("snapshot", "source", "trajectory", "related_apps", "proxy", "fixed_ip", "possibility_of_env_change", "os_type")
"""Fields of desktop task files that say nothing of how a task begins or ends; left out only where there is an `evaluator`."""

Level = Literal["pre_start", "post_start", "post_task"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""How far an environment had come when a checkpoint was made, the least first."""


class Ready(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """How to know that it serves: a path that answers 200, within `timeout` seconds."""

    path: UrlPath = "/health"
    timeout: Positive = 60


class Resources(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What it may use: CPUs, memory in GiB, and whether it may reach a network."""

    cpus: Positive | None = None
    mem_gb: Positive | None = None
    network: bool = False


class Oci(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A container image: the reference it runs under, the archive it is handed out as, and the digest it is pinned to."""

    ref: str
    dockerfile: str | None = None
    archive: str | None = None
    digest: Digest | None = None


class Directory(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Plain files: the command that serves (`python` is the interpreter chosen for it) and the packages it needs."""

    run: Annotated[list[str], msgspec.Meta(min_length=1)]
    requirements: str | None = None


class Qcow2(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A virtual disk and, for a direct boot, its kernel, initrd and the kernel's command line: names of files beside each other."""

    disk: str
    kernel: str | None = None
    initrd: str | None = None
    append: str = ""
    digest: Digest | None = None


class Formats(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The forms an image is offered in; a runner takes the first it boots."""

    oci: Oci | None = None
    qcow2: Qcow2 | None = None
    dir: Directory | None = None


class Image(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """images/<name>/image.yaml"""

    name: Name
    formats: Formats
    summary: str = ""
    script: Annotated[str | None, msgspec.Meta(description="the program that makes its formats: python SCRIPT --output DIR --format F [--set K=V]")] = None
    shares: list[Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]*$", description="a folder beside the image's own")]] = []

    def offered(self) -> list[str]:
        """The names of the formats it has."""
        return [f for f in self.formats.__struct_fields__ if getattr(self.formats, f) is not None]


class Call(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One step of a solution: a tool (or, in a browser, an `action`: the same field) and its arguments."""

    tool: str
    args: dict[str, Any] = {}


class Reset(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The state a task begins in."""

    universe: str | None = None
    pack: str | None = None
    seed: int | None = None


class SetUp(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One step of putting a desktop into a task's first state (or, after it, into the state that is judged)."""

    type: str
    parameters: dict[str, Any] = {}


Getters = dict[str, Any] | list[dict[str, Any] | None] | None


class Evaluator(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """How a desktop task is judged: `func` compares what `result` gets with what `expected` gets; lists of them are joined by `conj`."""

    func: str | list[str]
    result: Getters = {}
    expected: Getters = {}
    options: Getters = {}
    conj: Literal["and", "or"] = "and"
    postconfig: list[SetUp] = []


class Task(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """recipes/<name>/tasks/<id>.yaml: what to do, with which tools, and how to tell that it was done."""

    id: Name
    prompt: Annotated[str, msgspec.Meta(min_length=1)]
    reset: Reset = Reset()
    enabled_tools: list[str] | None = None
    solution: list[Call] = []
    checks: list[dict[str, Any]] = []
    claims: list[str] = []
    setup: list[SetUp] = []
    evaluator: Evaluator | None = None
    timeout: Positive = 300
    summary: str = ""

    def asked(self) -> list[dict[str, Any]]:
        """All that the environment is asked to check: the checks and, as one of type `evaluator`, the evaluator."""
        return [*self.checks, *([{"id": "evaluator", "type": "evaluator", **msgspec.to_builtins(self.evaluator)}] if self.evaluator else [])]


class Hooks(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Shell command lines run inside: after the start, when that has come about, before a task begins, before it is judged; `timeout` seconds each."""

    pre_start: str | None = None
    post_start: str | None = None
    pre_task: str | None = None
    post_task: str | None = None
    timeout: Positive = 600


class Recipe(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """recipes/<name>/recipe.yaml: which image, how to speak to it, what it needs."""

    name: Name
    kind: Literal["mcp", "website", "desktop"]
    image: str
    port: Port
    summary: str = ""
    ports: Annotated[dict[Variable, Port], msgspec.Meta(description="further ports: the variable that tells the server of one, and its number inside")] = {}
    hooks: Hooks = Hooks()
    settle: Annotated[float, msgspec.Meta(ge=0, description="seconds that a desktop must stay unchanged before an action counts as done")] = 0
    env: dict[Variable, VariableValue] = {}
    ready: Ready = Ready()
    resources: Resources = Resources()
    runners: list[str] = []
    options: dict[str, dict[str, Any]] = {}
    universes: list[str] = []
    packs: list[str] = []


class Source(msgspec.Struct, frozen=True):
    """A recipe, the directory it was read from, its image and the image's directory."""

    recipe: Recipe
    directory: Path
    image: Image
    image_directory: Path

    def key(self, image_digest: str) -> str:
        """The hash of everything that decides what an instance is: the recipe, the image's bytes, the format version."""
        parts = (str(FORMAT_VERSION).encode(), msgspec.json.encode(self.recipe, order="deterministic"), image_digest.encode())
        return hashlib.sha256(b"\0".join(parts)).hexdigest()


def load(name: str) -> Source:
    """A bundled recipe's name, or the path of a recipe directory or file; NotFound, RecipeError."""
    path = _recipe_file(name)
    document = marked.load(path)
    recipe = document.convert(Recipe)
    image_directory = _image_directory(document, path, recipe)
    if recipe.kind not in MACHINES:
        for field in ("hooks", "settle"):
            if field in document.data:
                document.problem((field,), f"only a {' or a '.join(MACHINES)} has them, and this is a {recipe.kind}")
    document.check()
    return Source(recipe, path.parent, load_image(image_directory), image_directory)


def load_image(directory: Path) -> Image:
    """The image.yaml of an image's directory."""
    document = marked.load(directory / "image.yaml")
    image = document.convert(Image)
    if not image.offered():
        document.problem(("formats",), "at least one format is needed")
    document.check()
    return image


def find_image(name: str) -> Path:
    """The directory of a bundled image, or of one given by path; NotFound names the near ones."""
    return _found("image", name, paths.bundled("images"), "image.yaml").parent


def names() -> list[str]:
    """The bundled recipes."""
    return sorted(p.parent.name for p in paths.bundled("recipes").glob("*/recipe.yaml"))


def task_ids(directory: Path) -> list[str]:
    """The ids of a recipe's tasks: their files' names."""
    return sorted(p.stem for p in (directory / "tasks").glob("*.yaml"))


def tasks(directory: Path) -> Iterator[Task]:
    """Every task of a recipe; RecipeError at the first faulty file."""
    return (load_task(directory, task) for task in task_ids(directory))


def load_task(directory: Path, id: str) -> Task:
    """A recipe's task by id, or a task file by path; NotFound names the near ones."""
    path = _task_file(directory, id)
    document = marked.load(path)
    for theirs, ours in WIRE_SPELLINGS.items():
        if theirs in document.data and ours not in document.data:
            document.data[ours] = document.data.pop(theirs)
    if "evaluator" in document.data:
        for name in UNREAD:
            document.data.pop(name, None)
    document.data.setdefault("id", path.stem)
    _name_tools(document.data.get("solution"))
    _find_beside(document.data, path.parent)
    task = document.convert(Task)
    if task.id != path.stem and path.parent == directory / "tasks":
        document.problem(("id",), f"must be the file's name, {path.stem}")
    if not task.asked() and not task.claims:
        document.problem((), "a task needs checks, claims or an evaluator: without any of them nobody can tell whether it was done")
    document.check()
    return task


def _name_tools(solution: Any) -> None:
    """`action` is what people call a step in a browser: the field is `tool`."""
    for call in solution if isinstance(solution, list) else ():
        if isinstance(call, dict) and "action" in call and "tool" not in call:
            call["tool"] = call.pop("action")


def _find_beside(value: Any, folder: Path) -> None:
    """Files of this host that a desktop task names by a relative path stand beside the task's own: `local_path`, and the `path` of a `cloud_file`."""
    if isinstance(value, list):
        for each in value:
            _find_beside(each, folder)
    elif isinstance(value, dict):
        for name in ("local_path", "path") if value.get("type") == "cloud_file" else ("local_path",):
            given = value.get(name)
            listed = [os.path.normpath(folder / p) if isinstance(p, str) and "://" not in p else p for p in (given if isinstance(given, list) else [given])]
            if given is not None:
                value[name] = listed if isinstance(given, list) else listed[0]
        for each in value.values():
            _find_beside(each, folder)


def problems(name: str) -> list[str]:
    """Every fault of a recipe, its image and its tasks, as `file:line: what`."""
    found: list[str] = []
    try:
        source = load(name)
    except RecipeError as error:
        return error.message.splitlines()
    for task in task_ids(source.directory):
        try:
            load_task(source.directory, task)
        except RecipeError as error:
            found += error.message.splitlines()
    return found


def schemas() -> dict[str, dict[str, Any]]:
    """{recipe, image, task: JSON Schema}, for editors."""
    kinds: dict[str, type] = {"recipe": Recipe, "image": Image, "task": Task}
    made = {name: {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(kind)} for name, kind in kinds.items()}
    call = made["task"]["$defs"]["Call"]
    call["properties"]["action"] = call["properties"]["tool"]
    call["required"] = [name for name in call["required"] if name != "tool"]
    call["oneOf"] = [{"required": ["tool"]}, {"required": ["action"]}]
    return made


def is_path(name: str) -> bool:
    """Whether a word on the command line is a path rather than a name."""
    return os.sep in name or name.startswith(".") or name.endswith((".yaml", ".yml"))


def is_task(name: str) -> bool:
    """Whether a word on the command line is the path of a task file: one that says no `kind`, and what to do."""
    path = Path(name)
    if not is_path(name) or not path.is_file():
        return False
    data = marked.load(path).data
    return "kind" not in data and any(field in data for field in ("prompt", "PROMPT", "instruction", "solution", "checks"))


def _recipe_file(name: str) -> Path:
    return _found("recipe", name, paths.bundled("recipes"), "recipe.yaml")


def _found(what: str, name: str, bundled: Path, file: str) -> Path:
    if is_path(name):
        path = Path(name)
        path = path / file if path.is_dir() else path
        if path.is_file():
            return path.absolute()
        raise NotFound(f"no {what} at {name}", hint=f"a {what} is a directory that holds {file}")
    path = bundled / name / file
    if re.fullmatch(r"[\w.-]+", name) and path.is_file():
        return path
    known = sorted(p.parent.name for p in bundled.glob(f"*/{file}"))
    here = f"; did you mean ./{name}?" if name and (Path(name) / file).is_file() else marked.near(name, known)
    raise NotFound(f"no {what} {name!r}{here}", hint=f"known: {', '.join(known)}; or the path of a directory that holds {file}, with a / in it")


def _image_directory(document: marked.Document, path: Path, recipe: Recipe) -> Path:
    near_recipe = path.parent / recipe.image
    if is_path(recipe.image):
        if not (near_recipe / "image.yaml").is_file():
            document.problem(("image",), f"there is no image.yaml in {near_recipe}")
        return near_recipe
    try:
        return find_image(recipe.image)
    except NotFound as error:
        document.problem(("image",), f"{error.message}; {error.hint}")
        return near_recipe


def _task_file(directory: Path, id: str) -> Path:
    if is_path(id):
        if Path(id).is_file():
            return Path(id).absolute()
        raise NotFound(f"no task file {id}")
    known = task_ids(directory)
    if id not in known:
        raise NotFound(f"no task {id!r}{marked.near(id, known)}", hint=f"`gymctl recipes {directory.name}` lists its {len(known)} tasks")
    return directory / "tasks" / f"{id}.yaml"


def tree_digest(directory: Path, wanted: Callable[[Path], bool]) -> str:
    """`sha256:...` over the names, executable bits and bytes of the `wanted` files of a directory."""
    total = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        if path.is_file() and wanted(path):
            data = path.read_bytes()
            total.update(f"{path.relative_to(directory)}\0{path.stat().st_mode & 0o111:o}\0{len(data)}\0".encode() + data)
    return f"sha256:{total.hexdigest()}"
