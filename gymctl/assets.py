"""Images: what a recipe's image is on a runner, and files that somebody sent given to an engine or the cache."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from gymctl import cache, recipe
from gymctl.errors import IntegrityError, NotFound, RecipeError, Unsupported, UsageError
from gymctl.recipe import Image, Oci, Source
from gymctl.runner import Artifact, Images, Progress

FILE_ENDINGS = (".tar", ".tgz", ".gz", ".bz2", ".xz", ".zst", ".qcow2", ".sif")
VERSION_LABEL = "gymctl.version"
SOURCE_LABEL = "gymctl.source"


@dataclass(frozen=True, slots=True)
class Fetched:
    """An image ready to be started: its format, what the runner needs to know of it, its digest, notes for people."""

    format: str
    image: dict[str, Any]
    digest: str
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A file that was taken: archive, qcow2 or sif; what it became; notes for people."""

    kind: str
    artifacts: list[Artifact]
    notes: list[str] = field(default_factory=list)


def fetch(source: Source, module: ModuleType, override: str | None, progress: Progress) -> Fetched:
    """The image of a recipe for a runner, or the one asked for instead (a reference, an archive, a directory); NotFound, IntegrityError, Unsupported."""
    if override is not None:
        return _override(source, module, override, progress)
    formats = source.image.formats
    for name in module.SPEC.formats:
        if name == "oci" and formats.oci:
            return _pinned(source.image.name, formats.oci, engine(module), "; or, without an image, `--runner local`" if formats.dir else "")
        if name == "dir" and formats.dir:
            return _directory(source, source.image_directory)
    raise Unsupported(f"{module.SPEC.name} boots {', '.join(module.SPEC.formats)}, and {source.image.name} is offered as {', '.join(source.image.offered())}")


def engine(module: ModuleType) -> Images:
    """A runner that keeps images; Unsupported for one that does not."""
    if not isinstance(module, Images):
        raise Unsupported(f"the runner {module.SPEC.name} keeps no images", hint="`--runner docker` does")
    return module


def _pinned(name: str, oci: Oci, images: Images, otherwise: str) -> Fetched:
    found = images.has(oci.ref)
    archive = oci.archive or "FILE.tar"
    if found is None:
        hint = f"`gymctl load {archive}` when you were sent the file, or `gymctl build-image {name}`{otherwise}"
        raise NotFound(f"the engine has no image {oci.ref}", hint=hint)
    if oci.digest and oci.digest != found and images.has(f"{_repository(oci.ref)}@{oci.digest}") != found:
        raise IntegrityError(
            f"{oci.ref} is {found}{_made_by(images, found)}, and the recipe pins {oci.digest}",
            hint=f"`gymctl load {archive}` brings the pinned one; `--image {oci.ref}` runs what is there",
        )
    return Fetched("oci", {"ref": oci.ref, "digest": found}, found)


def _repository(ref: str) -> str:
    """A reference without its tag."""
    head, slash, last = ref.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


def _made_by(images: Images, digest: str) -> str:
    labels: dict[str, str] = images.labels(digest) if hasattr(images, "labels") else {}
    return f" (made by gymctl {labels[VERSION_LABEL]} from {labels.get(SOURCE_LABEL, '?')})" if VERSION_LABEL in labels else ""


def _directory(source: Source, directory: Path) -> Fetched:
    image = source.image if directory == source.image_directory or not (directory / "image.yaml").exists() else recipe.load_image(directory)
    if image.formats.dir is None:
        raise Unsupported(f"{image.name} is not offered as a directory, so nothing says how to serve it")
    wanted = image.formats.dir
    needs = {"directory": str(directory), "run": list(wanted.run), "requirements": wanted.requirements}
    return Fetched("dir", needs, source_digest(directory, image))


def trees(directory: Path, image: Image) -> list[Path]:
    """An image's own directory and the siblings it shares; RecipeError for one that is not there."""
    found = [directory, *(directory.parent / name for name in image.shares)]
    for tree in found:
        if not tree.is_dir():
            raise RecipeError(f"{directory / 'image.yaml'}: shares: there is no directory {tree}")
    return found


def source_digest(directory: Path, image: Image) -> str:
    """The digest of an image's own files and of the siblings it shares."""
    digests = [recipe.tree_digest(tree, functools.partial(is_source, tree=tree)) for tree in trees(directory, image)]
    return f"sha256:{hashlib.sha256(' '.join(digests).encode()).hexdigest()}"


def is_source(path: Path, tree: Path) -> bool:
    """Whether a path of a tree belongs to an image: caches, compiled and hidden files do not."""
    return path.suffix != ".pyc" and not any(part.startswith(".") or part == "__pycache__" for part in path.relative_to(tree).parts)


def _override(source: Source, module: ModuleType, override: str, progress: Progress) -> Fetched:
    path = Path(override).expanduser()
    note = f"the image {override} was used, not the recipe's"
    if path.is_dir():
        if "dir" not in module.SPEC.formats:
            raise Unsupported(f"{module.SPEC.name} does not run a directory", hint="`--runner local` does; or `gymctl build-image`")
        made = _directory(source, path.absolute())
    elif path.is_file():
        made = _from_archive(path, module, progress)
    elif override.endswith(FILE_ENDINGS) or override.startswith((".", "/", "~")):
        raise NotFound(f"there is no file {override}")
    else:
        made = _from_reference(module, override)
    return Fetched(made.format, made.image, made.digest, [*made.notes, note])


def _from_reference(module: ModuleType, ref: str) -> Fetched:
    _needs_oci(module, ref)
    digest = engine(module).has(ref)
    if digest is None:
        raise NotFound(f"the engine has no image {ref}", hint="`gymctl load FILE.tar` brings one; or give the file itself: --image FILE.tar")
    return Fetched("oci", {"ref": ref, "digest": digest}, digest)


def _from_archive(path: Path, module: ModuleType, progress: Progress) -> Fetched:
    _needs_oci(module, str(path))
    warnings: list[str] = []
    loaded = load(path, None, None, module, progress, warnings.append)
    if loaded.kind != "archive":
        raise Unsupported(f"{module.SPEC.name} does not boot a {loaded.kind}")
    digests = {a.digest for a in loaded.artifacts}
    if len(digests) != 1:
        raise UsageError(f"{path} holds {len(digests)} images", hint=f"they are loaded now; choose one: --image {' or '.join(a.ref for a in loaded.artifacts)}")
    chosen = loaded.artifacts[0]
    return Fetched("oci", {"ref": chosen.ref, "digest": chosen.digest}, chosen.digest, warnings)


def _needs_oci(module: ModuleType, what: str) -> None:
    if "oci" not in module.SPEC.formats:
        raise Unsupported(f"{module.SPEC.name} does not run container images, and {what} is one", hint="`--runner docker` does")


def load(file: Path, sha256: str | None, tag: str | None, module: ModuleType, progress: Progress, warn: Callable[[str], None]) -> Loaded:
    """Check a file and give it to the engine of `module`, or to the cache (qcow2, SIF).

    `warn` is told, before it happens, that a name goes from one image to another. IntegrityError, Unsupported, UsageError,
    NotFound, Unavailable.
    """
    from gymctl import archives  # not paid by `run`

    kind = archives.sniff(file)
    if sha256:
        _check_sha256(file, sha256, progress)
    if kind not in ("qcow2", "sif"):
        return _load_archive(file, kind, _tagged(tag), engine(module), progress, warn)
    if tag:
        raise UsageError(f"--tag is for container images, and {file} is a {kind}")
    (archives.check_qcow2 if kind == "qcow2" else archives.check_sif)(file)
    return Loaded(kind, [_into_cache(file, kind, progress)])


def _check_sha256(file: Path, expected: str, progress: Progress) -> None:
    wanted = expected.lower().removeprefix("sha256:")
    if len(wanted) != 64 or not set(wanted) <= set("0123456789abcdef"):
        raise UsageError(f"--sha256 {expected!r} is no sha256", hint="64 hexadecimal digits")
    found = _digest(file, progress)
    if found != wanted:
        raise IntegrityError(f"{file} has sha256 {found}, and {wanted} was expected", hint="get the file again")


def _digest(file: Path, progress: Progress) -> str:
    size, done = file.stat().st_size, 0

    def seen(count: int) -> None:
        nonlocal done
        done += count
        progress("hashing", done, size)

    return cache.digest(file, seen)


def _tagged(tag: str | None) -> str | None:
    from gymctl.archives import REFERENCE

    if tag is None:
        return None
    if not REFERENCE.fullmatch(tag):
        raise UsageError(f"--tag {tag!r} is no reference", hint="lower-case letters, digits, and - _ . / between them, then :TAG")
    return tag if ":" in tag.rpartition("/")[2] else f"{tag}:latest"


def _load_archive(file: Path, kind: str, tag: str | None, images: Images, progress: Progress, warn: Callable[[str], None]) -> Loaded:
    import json
    from dataclasses import replace

    from gymctl import archives, manifests

    contents = archives.read(file, kind, progress)
    found, converted = manifests.images(contents)
    if tag and len(found) > 1:
        raise UsageError(f"{file} holds {len(found)} images, and --tag can name only one", hint=", ".join(ref for i in found for ref in i.refs))
    if tag:
        found = [replace(found[0], refs=(tag,))]
    for image in found:
        _warn_of_taken_tags(image.refs, image.digest, images, warn)
    manifest = json.dumps([image.manifest() for image in found]).encode() if tag or converted else None
    with archives.spliced(file, kind, contents.end, manifest) as (stream, total):
        images.load(stream, total, progress)
    artifacts = [Artifact(ref, _arrived(images, ref)) for image in found for ref in image.refs or (image.digest,)]
    return Loaded("archive", artifacts, ["an image without a name: `--tag NAME:TAG` gives it one" for image in found if not image.refs])


def _warn_of_taken_tags(refs: tuple[str, ...], digest: str, images: Images, warn: Callable[[str], None]) -> None:
    for ref in refs:
        now = images.has(ref)
        if now not in (None, digest):
            warn(f"{ref} names {now} now, and will name {digest}")


def _arrived(images: Images, ref: str) -> str:
    digest = images.has(ref)
    if digest is None:
        raise IntegrityError(f"the engine took the archive, and has no {ref}", hint="`docker images` shows what it made of it")
    return digest


def _into_cache(file: Path, kind: str, progress: Progress) -> Artifact:
    import shutil

    digest = _digest(file, progress)
    key = cache.key(what="image file", sha256=digest)

    def copy(path: Path) -> None:
        cache.need(file.stat().st_size)
        with cache.disk_errors(path):
            shutil.copyfile(file, path)

    kept = cache.get_or_make(key, copy, note={"what": kind, "file": file.name, "from": os.path.abspath(file)}, waiting=lambda text: progress(text, 0, 0))
    cache.check(kept)
    return Artifact(str(kept), f"sha256:{digest}", kind)
