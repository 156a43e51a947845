"""The wheel: what it carries, and an episode from it in an empty venv outside the checkout. Long: it installs from the package index."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conftest import RECIPE, ROOT

ENV = {k: v for k, v in os.environ.items() if not k.startswith(("GYMCTL_", "PYTHON", "VIRTUAL_ENV"))}


def run(*argv: str, env: dict[str, str] = ENV, cwd: Path = ROOT) -> str:
    done = subprocess.run(argv, env=env, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{' '.join(argv)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheel and the sdist, built from the sdist's own files."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT))
    return folder


def test_the_wheel_carries_everything_under_gymctl(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"gymctl"}
    for wanted in (
        "recipes/agent-environment/recipe.yaml", "recipes/agent-environment/tasks/move-standup.yaml", "images/agent-environment/server/__main__.py",
        "images/agent-environment/universes/software-team/universe.yaml", "images/_verify/README.md", "completions/gymctl.bash", "py.typed",
    ):  # fmt: skip
        assert f"gymctl/{wanted}" in names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def test_an_episode_from_the_wheel(built: Path, tmp_path: Path) -> None:
    """In an empty venv: the server's own requirements are installed for it, once."""
    (wheel,) = built.glob("*.whl")
    python = str(tmp_path / "venv" / "bin" / "python")
    run(sys.executable, "-m", "venv", str(tmp_path / "venv"))
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))
    env = ENV | {"GYMCTL_STATE_DIR": str(tmp_path / "state"), "GYMCTL_CACHE_DIR": str(tmp_path / "cache")}
    gymctl = str(tmp_path / "venv" / "bin" / "gymctl")
    words = ("run", RECIPE, "--runner", "local", "--task", "move-standup", "--agent", "oracle", "--rm", "--json")
    first = json.loads(run(gymctl, *words, env=env, cwd=tmp_path))
    assert first["verdict"] == "passed"
    assert "venv for agent-environment" in run(gymctl, "cache", "ls", env=env, cwd=tmp_path)
    assert json.loads(run(gymctl, *words, env=env, cwd=tmp_path))["key"] == first["key"]


def test_an_editable_install_finds_the_checkout() -> None:
    from gymctl import paths

    assert paths.bundled("recipes") == ROOT / "recipes"
    assert paths.bundled("images") == ROOT / "images"
