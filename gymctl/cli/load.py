"""gymctl load: give an image file to an engine or the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gymctl.cli import ui
from gymctl.errors import UsageError

EPILOG = ui.examples(
    "gymctl load agent-environment.tar",
    "gymctl load agent-environment.tar --sha256 $(cut -d' ' -f1 SHA256SUMS | head -1)",
    "gymctl load unnamed.tar --tag agent-environment:theirs",
    "gymctl load desktop.qcow2",
)


@click.command("load", epilog=EPILOG)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--sha256", metavar="H", help="What the file's sha256 must be.")
@click.option("--tag", metavar="T", help="Name the image so, and not as the archive does.")
@ui.json_option
def command(files: tuple[Path, ...], sha256: str | None, tag: str | None, as_json: bool) -> int:
    """Check image files, then give them to Docker (docker and OCI archives) or the cache (qcow2, SIF)."""
    from gymctl import assets, runners

    if len(files) > 1 and (sha256 or tag):
        raise UsageError(f"--{'sha256' if sha256 else 'tag'} is for one file")
    engine, rows = runners.load("docker"), []
    for file in files:
        with ui.telling() as told:
            loaded = assets.load(file, sha256, tag, engine, told.progress, ui.warn)
        rows += [_row(file, loaded.kind, artifact) for artifact in loaded.artifacts]
        for note in loaded.notes:
            ui.note(note)
    if as_json:
        ui.print_json({"loaded": rows})
    else:
        for row in rows:
            click.echo(f"{row['ref']}  {row['digest']}")
    return 0


def _row(file: Path, kind: str, artifact: Any) -> dict[str, str]:
    return {"file": str(file), "kind": kind, "ref": artifact.ref, "digest": artifact.digest}
