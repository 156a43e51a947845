"""Images: what a recipe's image is on a runner, and files that somebody sent given to an engine or the cache."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from gymctl import cache, paths, recipe
from gymctl.errors import IntegrityError, NotFound, RecipeError, Unsupported, UsageError
from gymctl.recipe import Image, Oci, Qcow2, Source
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
            return _pinned(source.image.name, formats.oci, engine(module), _otherwise(source.image))
        if name == "qcow2" and formats.qcow2:
            return _kept_disk(source.image, formats.qcow2)
        if name == "dir" and formats.dir:
            return _directory(source, source.image_directory)
    raise Unsupported(f"{module.SPEC.name} boots {', '.join(module.SPEC.formats)}, and {source.image.name} is offered as {', '.join(source.image.offered())}")


def _otherwise(image: Image) -> str:
    return "; or, without an image, `--runner local`" if image.formats.dir else ""


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
        made = _from_disk(path, source, progress) if "qcow2" in module.SPEC.formats else _from_archive(path, module, progress)
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


def _from_disk(path: Path, source: Source, progress: Progress) -> Fetched:
    """A disk that somebody sent, with the recipe's kernel and initrd where they lie beside it; without them its own boot loader is what boots it."""
    from gymctl import archives

    if archives.sniff(path) != "qcow2":
        raise Unsupported(f"{path} is no qcow2 disk, and this runner boots nothing else", hint="`--runner docker` runs container images")
    archives.check_qcow2(path)
    named = source.image.formats.qcow2 or Qcow2(path.name)
    beside = {part: path.parent / name for part, name in (("kernel", named.kernel), ("initrd", named.initrd)) if name and (path.parent / name).is_file()}
    kept = {part: Path(_into_cache(file, part, progress).ref) for part, file in {"disk": path, **beside}.items()}
    made = _disk_fetched(named, kept)
    return Fetched(made.format, made.image, made.digest, [] if beside else [f"there is no kernel beside {path}: the disk boots by itself"])


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
    image = _image_of(file) if kind == "qcow2" else None
    if image and image.formats.qcow2:
        return Loaded(kind, keep_disk(image, file, progress), [f"runners that boot qcow2 take it for the image {image.name}"])
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


def _kept(file: Path, progress: Progress) -> Path:
    return cache.add(file, _digest(file, progress), waiting=lambda text: progress(text, 0, 0))


def _into_cache(file: Path, kind: str, progress: Progress) -> Artifact:
    kept = _kept(file, progress)
    cache.point(cache.key(what="image file", sha256=kept.name), kept, {"what": kind, "file": file.name, "from": os.path.abspath(file)})
    return Artifact(str(kept), f"sha256:{kept.name}", kind)


def _image_of(file: Path) -> Image | None:
    """The image whose disk has the name of a file, up to its first dot: releases may be called NAME.zstd.qcow2."""
    for manifest in sorted(paths.bundled("images").glob("*/image.yaml")):
        image = recipe.load_image(manifest.parent)
        if image.formats.qcow2 and image.formats.qcow2.disk.partition(".")[0] == file.name.partition(".")[0]:
            return image
    return None


def keep_disk(image: Image, disk: Path, progress: Progress, *, known: Mapping[str, str] | None = None) -> list[Artifact]:
    """Put an image's disk, and the kernel and initrd beside it, into the cache, where `fetch` finds them; NotFound, IntegrityError, Unavailable.

    `known` are digests of the files that were checked already: where the cache has those, nothing is read.
    """
    named = cast(Qcow2, image.formats.qcow2)
    files = {"disk": disk, **{part: disk.parent / name for part, name in (("kernel", named.kernel), ("initrd", named.initrd)) if name}}
    kept = kept_disk(image)
    if not known or {part: path.name for part, path in kept.items()} != {part: known.get(file.name) for part, file in files.items()}:
        kept = _copied(files, checksums(disk.parent), progress)
        for part in [*kept][1:]:
            cache.point(_part_key(part, kept["disk"].name), kept[part], {"what": part, "file": files[part].name})
        cache.point(_disk_key(image), kept["disk"], {"what": "disk", "file": disk.name, "image": image.name})  # last: from here on it is found, and whole
    return [Artifact(str(path), f"sha256:{path.name}", "qcow2" if part == "disk" else part) for part, path in kept.items()]


def _copied(files: dict[str, Path], sums: dict[str, str], progress: Progress) -> dict[str, Path]:
    for file in files.values():
        if not file.is_file():
            disk = files["disk"]
            raise NotFound(f"{disk.name} boots with {' and '.join(p.name for p in files.values() if p != disk)}, and there is no {file}", hint="put it there")
    kept: dict[str, Path] = {}
    for part, file in files.items():
        kept[part] = _kept(file, progress)
        expected = sums.get(file.name, kept[part].name)
        if kept[part].name != expected:
            hint = "get the file again; when it was changed on purpose, take its line out of SHA256SUMS"
            raise IntegrityError(f"{file} has sha256 {kept[part].name}, and SHA256SUMS beside it says {expected}", hint=hint)
    return kept


def checksums(directory: Path) -> dict[str, str]:
    """{file: sha256} of a SHA256SUMS; none where there is no such file."""
    file = directory / "SHA256SUMS"
    lines = [line.split(maxsplit=1) for line in file.read_text(errors="replace").splitlines()] if file.is_file() else []
    return {words[1].lstrip("*"): words[0].lower() for words in lines if len(words) == 2}


def check_sums(directory: Path, sums: dict[str, str], progress: Progress) -> None:
    """IntegrityError unless every file of a SHA256SUMS is there and is what it says."""
    total, done = sum((directory / name).stat().st_size for name in sums if (directory / name).is_file()), 0

    def seen(count: int) -> None:
        nonlocal done
        done += count
        progress("checking what was made", done, total)

    for name, expected in sums.items():
        found = cache.digest(directory / name, seen) if (directory / name).is_file() else "no such file"
        if found != expected:
            raise IntegrityError(f"{directory / name}: SHA256SUMS says {expected}, and there is {found}", hint="is the disk sound? build it again")


def _disk_key(image: Image) -> str:
    return cache.key(what="disk", image=image.name)


def _part_key(part: str, disk: str) -> str:
    return cache.key(what=part, disk=disk)


def kept_disk(image: Image) -> dict[str, Path]:
    """{disk, kernel, initrd: their place in the cache} of an image, the kernel and initrd that belong to that very disk; empty when a part is missing."""
    named, disk = image.formats.qcow2, cache.lookup(_disk_key(image))
    if named is None or disk is None:
        return {}
    parts = {part: cache.lookup(_part_key(part, disk.name)) for part, name in (("kernel", named.kernel), ("initrd", named.initrd)) if name}
    found = {"disk": disk, **{part: path for part, path in parts.items() if path}}
    return found if len(found) == len(parts) + 1 else {}


def _kept_disk(image: Image, named: Qcow2) -> Fetched:
    kept = kept_disk(image)
    if not kept:
        hint = f"`gymctl load {named.disk}` when you were sent the file, or `gymctl build-image {image.name}`{_otherwise(image)}"
        raise NotFound(f"the cache has no disk {named.disk} of {image.name}", hint=hint)
    if named.digest and named.digest != f"sha256:{kept['disk'].name}":
        hint = f"`gymctl load {named.disk}` brings the pinned one; `--image FILE.qcow2` runs another"
        raise IntegrityError(f"the disk of {image.name} is sha256:{kept['disk'].name}, and the recipe pins {named.digest}", hint=hint)
    return _disk_fetched(named, kept)


def _disk_fetched(named: Qcow2, kept: dict[str, Path]) -> Fetched:
    """What a runner is told; the digest is that of all that decides what boots."""
    append = named.append if "kernel" in kept else ""
    digest = f"sha256:{cache.key(**{part: path.name for part, path in kept.items()}, append=append)}"
    image = {part: str(kept[part]) if part in kept else None for part in ("disk", "kernel", "initrd")}
    return Fetched("qcow2", {**image, "append": append, "digest": digest}, digest)
