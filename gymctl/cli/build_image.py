"""gymctl build-image: build an image from its source."""

from __future__ import annotations

from pathlib import Path

import click

from gymctl.cli import complete, fields, ui

EPILOG = ui.examples(
    "gymctl build-image agent-environment",
    "gymctl build-image agent-environment --base rootfs.tar --output dist",
    "gymctl build-image ./my-image --base my-python:3.12",
    "gymctl build-image linux-desktop --output desktop",
    "gymctl build-image linux-desktop --format oci --set mirror=http://MIRROR/debian",
)


@click.command("build-image", epilog=EPILOG)
@click.argument("image", shell_complete=complete.images)
@click.option("--format", "form", type=click.Choice(["all", "oci", "qcow2"]), default="all", show_default=True, help="What to build.")
@click.option("--base", metavar="REF|TAR", help="What to build on: a reference, an archive, or a root file system's tar with Python.")
@click.option("--set", "sets", multiple=True, metavar="K=V", help="A value for an ARG of the Dockerfile, or an input of the image's program; may be repeated.")
@click.option("--output", metavar="DIR", type=click.Path(path_type=Path, file_okay=False), default=Path("dist"), show_default=True, help="Where the files go.")
@ui.json_option
def command(image: str, form: str, base: str | None, sets: tuple[str, ...], output: Path, as_json: bool) -> int:
    """Build an image with Docker, or by its own program; writes its archive (and disk), SHA256SUMS and image.json."""
    from gymctl import builds, runners

    with ui.telling() as told:
        built = builds.build_image(image, base, fields(sets, "--set"), output, runners.load("docker"), told, form=form)
    for note in built.notes:
        ui.note(note)
    if as_json:
        made = [{"ref": artifact.ref, "digest": artifact.digest, "kind": artifact.kind} for artifact in built.artifacts]
        ui.print_json({**built.document, "artifacts": made, "output": str(built.directory)})
        return 0
    for artifact in built.artifacts:
        click.echo(f"{artifact.ref}  {artifact.digest}")
    for path in sorted(path for path in built.directory.iterdir() if not path.name.startswith(".")):
        click.echo(f"{path}  {ui.size(path.stat().st_size)}", err=True)
    return 0
