"""A module imports lower layers only; images and gymctl never import each other; one importer of subprocess, of rich and of tqdm."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

LAYERS = [
    {"cli", "", "env", "__main__"},
    {"agents"},
    {"launch", "doctor"},
    {"session", "builds", "film"},
    {"levels"},
    {"assets"},
    {"instances"},
    {"runners", "kinds", "evaluators"},
    {"vm", "browser", "desktop"},
    {"recipe", "runner", "cache"},
    {"marked", "manifests", "archives", "trees", "episode", "proc", "wire", "paths"},
    {"errors"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
# Data of the package itself, no code: the version.
FREE = {"__version__"}


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[str, set[str]]]:
    """(module, names) of each import; imports only for type checking do not count."""
    tree = ast.parse(path.read_text())
    typing_only = {id(n) for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test) for n in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, set()
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module, {alias.name for alias in node.names}


def layer(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def targets(module: str, names: set[str]) -> set[str]:
    """The layers an import reaches: `from gymctl import wire` is wire."""
    if module == "gymctl":
        return {name for name in names - FREE if name in LEVEL} | ({""} if names - FREE - LEVEL.keys() else set())
    return {layer(module)}


@pytest.mark.parametrize("path", modules("gymctl"), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_down(path: Path) -> None:
    relative = path.relative_to(ROOT / "gymctl").with_suffix("")
    own = relative.parts[0] if relative.parts != ("__init__",) else ""
    assert own in LEVEL, f"{path} stands in no layer"
    for module, names in imports(path):
        if module.split(".")[0] != "gymctl":
            continue
        for target in targets(module, names):
            inside = target == own
            assert inside or LEVEL[target] >= LEVEL[own], f"{path.name} imports {module} of a higher layer"
            same_row = {"runners", "kinds", "evaluators"}
            assert inside or not ({own, target} <= same_row), f"{path.name} imports {module} of a neighbor"


def test_runners_import_no_other_runner() -> None:
    for path in modules("gymctl/runners"):
        own = path.stem.split("_")[0]
        for module, _ in imports(path):
            if module.startswith("gymctl.runners."):
                assert module.split(".")[2].split("_")[0] == own, f"{path.name} imports {module}"


def test_images_and_gymctl_are_strangers() -> None:
    for path in modules("images"):
        assert all(module.split(".")[0] != "gymctl" for module, _ in imports(path)), path
    for path in modules("gymctl"):
        assert all(module.split(".")[0] not in ("images", "server", "_server", "_verify", "_web") for module, _ in imports(path)), path


@pytest.mark.parametrize(("library", "only"), [("subprocess", "gymctl/proc.py"), ("rich", "gymctl/cli/ui.py"), ("tqdm", "gymctl/cli/ui.py")])
def test_one_importer(library: str, only: str) -> None:
    users = {str(p.relative_to(ROOT)) for p in modules("gymctl") for module, _ in imports(p) if module.split(".")[0] == library}
    assert users <= {only}


def test_exception_is_caught_broadly_once() -> None:
    broad = [
        (path.name, node.lineno)
        for path in modules("gymctl")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ExceptHandler) and (node.type is None or getattr(node.type, "id", "") in ("Exception", "BaseException"))
    ]
    names = [name for name, _ in broad]
    assert names.count("__init__.py") == 1
    # proc ends a child's group before whatever happened goes on
    assert set(names) <= {"__init__.py", "proc.py"}


@pytest.mark.parametrize("path", [*modules("gymctl"), *modules("images")], ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_functions_are_short(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 40, f"{node.name} is longer than 40 lines"
