"""A desktop as plain processes: a home of its own, and nothing of the user's is touched."""

from __future__ import annotations

import os
from pathlib import Path

from tests import machines
from tests.conftest import ROOT, Cli
from tests.machines import guest, record


def tree(folder: Path) -> dict[str, tuple[float, int, bytes]]:
    """{path: (time of change, mode, bytes)} of all that is in a folder, itself included."""
    paths = [folder, *folder.rglob("*")]
    return {str(p): (p.lstat().st_ctime, p.lstat().st_mode, p.read_bytes() if p.is_file() else b"") for p in paths}


def test_nothing_of_the_users_home_is_touched(local_desktop: Cli, tmp_path: Path) -> None:
    on, home = local_desktop, tmp_path / "user"
    settings = [f".config/{name}" for name in ("Mousepad", "pcmanfm/default", "lxterminal", "falkon")]
    for name in ("Desktop", "Documents", "Downloads", *settings, ".cache", ".local/share"):
        (home / name).mkdir(parents=True)
    (home / "Documents/diary.txt").write_text("mine")
    (home / ".config/lxterminal/lxterminal.conf").write_text("[general]\nfontname=Mine 31\n")
    before = tree(home)
    on.env |= {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), "XDG_CACHE_HOME": str(home / ".cache"), "XDG_DATA_HOME": str(home / ".local/share")}
    where = machines.recipe(tmp_path / "own", hooks={"post_start": "echo $HOME > ~/Documents/where"})
    machines.run(on, where, "--port", "0", "--name", "d")
    own = on.state / "instances/d/data/home"
    assert record(on, "d")["handle"]["home"] == str(own)
    assert (own / "Documents/where").read_text() == f"{own}\n"
    assert {"Desktop", "Documents", "Downloads"} <= {path.name for path in own.iterdir()}
    ours = ROOT / "images/linux-desktop/config"
    copied = [path.relative_to(ours) for path in ours.rglob("*") if path.is_file()]
    assert copied
    assert all((own / ".config" / path).is_file() for path in copied)
    for program in ("mousepad ~/Documents/where", "lxterminal", "falkon about:blank", "pcmanfm ~/Documents"):
        guest(on, "d", f"command -v {program.split()[0]} && (setsid {program} >/dev/null 2>&1 &)")
    guest(on, "d", "sleep 4; echo typed > ~/Desktop/note; ls -la ~ ~/.config")
    assert guest(on, "d", "env | grep -c ^XDG_CONFIG_HOME").strip() == "0"
    on("reset", "d")
    assert not (own / "Desktop/note").exists(), "a home is as new after a reset"
    on("stop", "d")
    assert tree(home) == before
    assert not own.exists()
    assert os.environ["HOME"] != str(home)
