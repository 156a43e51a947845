"""build-image: an image's own files and the packages they need as one normalized tar, added to a base; or what an image's own program makes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Protocol, cast, runtime_checkable

from gymctl import __version__, archives, assets, cache, manifests, proc, recipe, wire
from gymctl.errors import Conflict, GymctlError, IntegrityError, NotFound, RecipeError, StartError, Unavailable, Unsupported, UsageError
from gymctl.marked import near
from gymctl.recipe import FORMAT_VERSION, Image, Oci
from gymctl.runner import Artifact, Images, Progress, Told

TIME = 315532800  # 1980-01-01, of every file we put in: the least that every tool takes
ROOT = "opt/images"
SITE = "opt/site-packages"
PIP_TIMEOUT = 900
SCRIPT_TIMEOUT = 3 * 3600
SCRIPT_GRACE = 60
"""Seconds that an image's program has to remove what it began."""
OLDEST_GLIBC = 17
ASK_PYTHON = "import json, platform, sys; print(json.dumps({'version': sys.version_info[:2], 'machine': platform.machine(), 'libc': platform.libc_ver()}))"


@runtime_checkable
class Builder(Images, Protocol):
    """An engine that can also pull, export and run a command in an image."""

    def pull(self, ref: str, progress: Progress, /) -> str: ...

    def export(self, ref: str, /) -> Iterator[bytes]: ...

    def output(self, ref: str, argv: list[str], /) -> proc.Result: ...


@dataclass(frozen=True, slots=True)
class Built:
    """What a build made: the image as the engine and the cache have it, the directory with its files, what image.json says, notes for people."""

    artifacts: list[Artifact]
    directory: Path
    document: dict[str, Any]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Base:
    """What is built on: its name in the engine, its digest, its Python."""

    ref: str
    digest: str
    version: str
    machine: str
    libc: tuple[str, str]


def build_image(name: str, base: str | None, sets: Mapping[str, str], output: Path, module: ModuleType, told: Told, *, form: str = "all") -> Built:
    """Build images/<name> (or a directory): with `module`'s engine, or by its own program. `output` gets the files, SHA256SUMS and image.json.

    `base` is a reference or a root file system's tar (None: what the Dockerfile says), `sets` are values of the Dockerfile's ARGs, or inputs of the
    program. NotFound, UsageError, Unsupported, Unavailable, Conflict, StartError, IntegrityError.
    """
    directory = recipe.find_image(name).parent if recipe.is_path(name) and name.endswith((".yaml", ".yml")) else recipe.find_image(name)
    image = recipe.load_image(directory)
    if image.script:
        if base:
            raise UsageError(f"{image.name} is made by a program of its own, which builds on nothing", hint="leave --base out")
        return _scripted(image, directory, form, sets, output, module, told)
    if form not in ("all", "oci"):
        raise Unsupported(f"{image.name} is built from a Dockerfile, so only as oci", hint="leave --format out")
    return _layered(image, directory, base, sets, output, module, told.progress)


def _layered(
    image: Image, directory: Path, base: str | None, sets: Mapping[str, str], output: Path, module: ModuleType, progress: Progress
) -> Built:
    """Our files and the packages they need, on a base."""
    oci, builder = _offered(image), _builder(module)
    dockerfile = _dockerfile(directory / cast(str, oci.dockerfile), sets)
    on = _base(base or _default_base(dockerfile, directory), builder, progress)
    source = assets.source_digest(directory, image)
    with tempfile.TemporaryDirectory(prefix="gymctl-build-") as folder:
        site = Path(folder) / "site-packages"
        packages = _install(image, directory, on, site, progress)
        context = Path(folder) / "context"
        context.mkdir()
        (context / "Dockerfile").write_text(dockerfile)
        write_tar(context / "context.tar", {**{f"{ROOT}/{tree.name}": tree for tree in assets.trees(directory, image)}, SITE: site})
        labels = {assets.VERSION_LABEL: __version__, assets.SOURCE_LABEL: source, "gymctl.recipe-format": str(FORMAT_VERSION)}
        artifact = builder.build(context, oci.ref, on.ref, labels, progress)
    document = {
        "name": image.name, "ref": oci.ref, "builder": f"gymctl {__version__}", "base": {"ref": on.ref, "digest": on.digest, "python": on.version},
        "source": source, "packages": packages, "arguments": dict(sets),
    }  # fmt: skip
    return _written(builder, oci, artifact, output, document, progress)


def _scripted(image: Image, directory: Path, form: str, sets: Mapping[str, str], output: Path, module: ModuleType, told: Told) -> Built:
    """Run an image's own program, check what it wrote, and give it to the engine (where one answers) and the cache."""
    output = output.absolute()
    before = _identity(output / "image.json")
    words = [word for name, value in sets.items() for word in ("--set", f"{name}={value}")]
    _run_script([sys.executable, str(directory / cast(str, image.script)), "--output", str(output), "--format", form, *words], told)
    try:
        document: dict[str, Any] = json.loads((output / "image.json").read_text())
    except (OSError, ValueError) as error:
        raise StartError(f"{image.script} ended well, and its image.json cannot be read: {error}") from error
    sums = assets.checksums(output)
    made = Built([], output, document)
    if before == _identity(output / "image.json"):
        made.notes.append(f"{output} is up to date: nothing was built")
    else:
        assets.check_sums(output, sums, told.progress)
    archive = image.formats.oci.archive if image.formats.oci else None
    if archive in sums and form in ("all", "oci"):
        _to_engine(made, cast(Oci, image.formats.oci), sums, module, told)
    if image.formats.qcow2 and image.formats.qcow2.disk in sums and form in ("all", "qcow2"):
        made.artifacts.extend(assets.keep_disk(image, output / image.formats.qcow2.disk, told.progress, known=sums))
    return made


def _identity(path: Path) -> tuple[int, int] | None:
    """What a file that is written anew has no longer."""
    return (path.stat().st_ino, path.stat().st_mtime_ns) if path.exists() else None


def _run_script(argv: list[str], told: Told) -> None:
    """An image's program to its end; each line of its stdout is a step. What it began goes with it when we are interrupted."""
    with tempfile.TemporaryDirectory(prefix="gymctl-build-") as folder:
        log = Path(folder) / "log"
        try:
            with proc.piped(argv, env=proc.pip_environment(), log=log, deadline=time.monotonic() + SCRIPT_TIMEOUT, grace=SCRIPT_GRACE) as child:
                while (line := child.hear()) is not None:
                    told.step(wire.printable(line.decode(errors="replace")).strip())
                code = child.finish(SCRIPT_GRACE)
        except TimeoutError as error:
            raise StartError(f"{Path(argv[1]).name} did not end within {SCRIPT_TIMEOUT} s", hint="the last step above says what it was doing") from error
        if code:
            raise _script_failure(Path(argv[1]).name, code, [wire.printable(line) for line in log.read_text(errors="replace").splitlines() if line.strip()])


def _script_failure(name: str, code: int, lines: list[str]) -> GymctlError:
    """Its own `error:` and `hint:` lines under our class of its exit code; without them the last lines it wrote."""
    said = {word: text for line in lines for word, text in re.findall(r"^(?:\S+: )?(error|hint): (.*)", line)}
    kind = next((k for k in (UsageError, Unavailable, Conflict) if k.exit_code == code), StartError)
    if kind is not StartError and "error" in said:
        return kind(said["error"], hint=said.get("hint", ""))
    how = said.get("error") or (f"{name} was ended by signal {-code}" if code < 0 else f"{name} ended with exit code {code}")
    last = [line for line in lines if not line.startswith(("error: ", "hint: "))][-6:]
    return StartError("\n  ".join([f"{how}; it printed last:" if last else how, *last]), hint=said.get("hint", ""))


def _to_engine(made: Built, oci: Oci, sums: Mapping[str, str], module: ModuleType, told: Told) -> None:
    """The archive to the engine, unless it has that very image; a note where no engine answers."""
    archive = made.directory / cast(str, oci.archive)
    try:
        there = assets.engine(module).has(oci.ref)
        if there is None or there != made.document.get("oci", {}).get("digest"):
            loaded = assets.load(archive, sums[archive.name], None, module, told.progress, made.notes.append)
            made.artifacts.extend(loaded.artifacts)
        else:
            made.artifacts.append(Artifact(oci.ref, there))
    except Unavailable as error:
        made.notes.append(f"the image was given to no engine: {error.message.splitlines()[0]}; `gymctl load {archive}` does it later")


def _offered(image: Image) -> Oci:
    oci = image.formats.oci
    if oci is None or oci.dockerfile is None:
        raise Unsupported(f"{image.name} has no Dockerfile, so there is nothing to build", hint=f"it is offered as {', '.join(image.offered())}")
    return oci


def _builder(module: ModuleType) -> Builder:
    if not isinstance(module, Builder):
        raise Unsupported(f"the runner {module.SPEC.name} builds no images", hint="`--runner docker` does")
    return module


def _dockerfile(path: Path, sets: Mapping[str, str]) -> str:
    """The Dockerfile with the ARGs' values of `sets`."""
    try:
        text = path.read_text()
    except OSError as error:
        raise RecipeError(f"{path}: {error.strerror}") from error
    known = re.findall(r"(?m)^ARG\s+(\w+)", text)
    for name, value in sets.items():
        if name not in known or name == "BASE":
            hint = "`--base` sets it" if name == "BASE" else f"its ARGs: {', '.join(k for k in known if k != 'BASE') or 'none'}"
            raise UsageError(f"{path.name} has no ARG {name}{near(name, known)}" if name != "BASE" else "BASE is not for --set", hint=hint)
        if not re.fullmatch(r"[\w.:/@+,=-]*", value):
            raise UsageError(f"--set {name}: {value!r} has characters that a Dockerfile reads as its own")
        text = re.sub(rf"(?m)^ARG\s+{name}\b.*$", f"ARG {name}={value}", text)
    return text


def _default_base(dockerfile: str, directory: Path) -> str:
    found = re.search(r"(?m)^ARG\s+BASE=(\S+)", dockerfile)
    if found is None:
        raise UsageError(f"{directory.name} has no base of its own", hint="`--base REF` or `--base ROOTFS.tar`")
    return found[1]


def _base(base: str, builder: Builder, progress: Progress) -> _Base:
    path = Path(base).expanduser()
    if path.is_file():
        ref = _base_of_file(path, builder, progress)
    elif base.endswith(assets.FILE_ENDINGS) or base.startswith((".", "/", "~")):
        raise NotFound(f"there is no file {base}")
    else:
        ref = base
    digest = builder.has(ref) or _pulled(ref, builder, progress)
    asked = builder.output(ref, ["python3", "-c", ASK_PYTHON])
    try:
        told = json.loads(asked.stdout)
        version, machine, libc = ".".join(map(str, told["version"])), str(told["machine"]), tuple(told["libc"])
    except (ValueError, KeyError, TypeError) as error:
        raise StartError(f"there is no python3 in {base}: {asked.stderr.strip()[:200] or 'no answer'}", hint="the base needs Python 3.11 or newer") from error
    return _Base(ref, digest, version, machine, cast(tuple[str, str], libc))


def _pulled(ref: str, builder: Builder, progress: Progress) -> str:
    try:
        return builder.pull(ref, progress)
    except (Unavailable, NotFound) as error:
        raise type(error)(f"the base {ref} is not here, and: {error.message}", hint="`--base REF` takes another image, `--base ROOTFS.tar` a file") from error


def _base_of_file(path: Path, builder: Builder, progress: Progress) -> str:
    """An archive's image, or a root file system made an image of one layer: the same file gives the same digest."""
    kind = archives.sniff(path)
    if kind in ("qcow2", "sif"):
        raise Unsupported(f"{path} is a {kind}, and a base is a container image or a tar of a root file system")
    contents = archives.read(path, kind, progress)
    if contents.file("manifest.json") or contents.file("index.json"):
        return assets.load(path, None, None, cast(ModuleType, builder), progress, lambda text: None).artifacts[0].ref
    size, digest = archives.unpacked(path, kind)
    ref = f"gymctl-base:{digest[:12]}"
    config = {
        "architecture": manifests.ours(), "os": "linux", "config": {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }  # fmt: skip
    text = json.dumps(config, sort_keys=True).encode()
    name = f"{hashlib.sha256(text).hexdigest()}.json"
    if builder.has(ref) != f"sha256:{name.removesuffix('.json')}":
        manifest = json.dumps([{"Config": name, "RepoTags": [ref], "Layers": ["layer.tar"]}]).encode()
        with archives.wrapped(path, kind, size, {name: text, "manifest.json": manifest}) as (stream, total):
            builder.load(stream, total, progress)
    return ref


def _install(image: Image, directory: Path, on: _Base, site: Path, progress: Progress) -> list[str]:
    """The packages that the image's server needs, for the base's Python, into `site`; their names and versions."""
    site.mkdir()
    wanted = image.formats.dir.requirements if image.formats.dir else None
    if wanted is None:
        return []
    progress("installing packages", 0, 0)
    argv = [
        sys.executable, "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "--target", str(site), "--only-binary=:all:",
        "--implementation", "cp", "--python-version", on.version, *(word for tag in _platforms(on) for word in ("--platform", tag)),
        "--requirement", str(directory / wanted),
    ]  # fmt: skip
    done = proc.run(argv, timeout=PIP_TIMEOUT, env=proc.pip_environment())
    if done.code:
        last = (done.stderr.strip() or done.stdout.strip() or "no answer").splitlines()[-1]
        raise Unavailable(f"cannot install {wanted} for Python {on.version} on {on.machine}: {last}", hint="does this Python have pip? is there a network?")
    return _normalized(site)


def _platforms(on: _Base) -> list[str]:
    """The wheel tags that fit the base, the newest first."""
    library, version = on.libc
    if library != "glibc":
        return [f"musllinux_1_{minor}_{on.machine}" for minor in (2, 1)]
    newest = int(version.split(".")[1])
    return [f"manylinux_2_{minor}_{on.machine}" for minor in range(newest, OLDEST_GLIBC - 1, -1)] + [f"manylinux2014_{on.machine}"]


def _normalized(site: Path) -> list[str]:
    """Remove what differs from one installation to the next (scripts for this machine, pip's own notes); `name==version` of each package."""
    from importlib.metadata import distributions

    packages = sorted(f"{d.name.lower()}=={d.version}" for d in distributions(path=[str(site)]))
    shutil.rmtree(site / "bin", ignore_errors=True)
    for info in site.glob("*.dist-info"):
        for name in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json"):
            (info / name).unlink(missing_ok=True)
    return packages


def write_tar(out: Path, trees: Mapping[str, Path]) -> None:
    """Trees by their place in the image as one tar: sorted, root's, one time, modes 644 and 755, no caches, no hidden files, no links."""
    entries: dict[str, Path | None] = {}
    for place, tree in trees.items():
        parts = place.split("/")
        entries |= {"/".join(parts[:n]): None for n in range(1, len(parts) + 1)}  # each parent too: its time would be the build's
        entries |= {f"{place}/{path.relative_to(tree).as_posix()}": path for path in tree.rglob("*") if assets.is_source(path, tree)}
    with tarfile.open(out, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, path in sorted(entries.items()):
            member = tarfile.TarInfo(name)
            member.mtime, member.mode = TIME, 0o755
            if path is None or path.is_dir():
                member.type = tarfile.DIRTYPE
                tar.addfile(member)
                continue
            member.size = path.stat().st_size
            member.mode = 0o755 if path.stat().st_mode & 0o111 else 0o644
            with path.open("rb") as file:
                tar.addfile(member, file)


def _written(builder: Builder, oci: Oci, artifact: Artifact, output: Path, document: dict[str, Any], progress: Progress) -> Built:
    """Save the archive, look into it as `load` would, and write what it is beside it; each file whole or not at all."""
    archive = output / (oci.archive or f"{document['name']}.tar")
    with cache.disk_errors(output):
        output.mkdir(parents=True, exist_ok=True)
        _whole(archive, lambda file: _copy(builder.export(oci.ref), file, progress))
    made, _ = manifests.images(archives.read(archive, "tar", progress))
    if len(made) != 1 or made[0].digest != artifact.digest:
        raise IntegrityError(
            f"{archive} holds {', '.join(i.digest for i in made)}, and {artifact.digest} was built", hint="was the engine used by another build?"
        )
    document |= {"digest": artifact.digest, "platform": made[0].platform, "layers": list(made[0].layers)}
    with cache.disk_errors(output):
        _whole(output / "image.json", lambda file: file.write((json.dumps(document, indent=1) + "\n").encode()))
        sums = "".join(f"{cache.digest(path)}  {path.name}\n" for path in (archive, output / "image.json"))
        _whole(output / "SHA256SUMS", lambda file: file.write(sums.encode()))
    return Built([artifact], output, document)


def _copy(chunks: Iterator[bytes], file: IO[bytes], progress: Progress) -> None:
    done = 0
    for chunk in chunks:
        file.write(chunk)
        done += len(chunk)
        progress("saving", done, 0)


def _whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with contextlib.ExitStack() as undo:
        undo.callback(Path(temporary).unlink, missing_ok=True)
        with os.fdopen(fd, "wb") as file:
            write(file)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
