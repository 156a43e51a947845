"""What an image archive says it holds, docker's way (manifest.json) or OCI's (index.json), checked against what it does hold."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from gymctl.archives import AGAIN, REFERENCE, Contents, Member
from gymctl.errors import IntegrityError, Unsupported

T = TypeVar("T")
MAX_DEPTH = 3
ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


class _Docker(msgspec.Struct, rename="pascal"):
    config: str
    layers: list[str] | None = None
    repo_tags: list[str] | None = None


class _Rootfs(msgspec.Struct):
    diff_ids: list[str] = []


class _Settings(msgspec.Struct):
    labels: dict[str, str] | None = msgspec.field(default=None, name="Labels")


class _Config(msgspec.Struct):
    rootfs: _Rootfs
    architecture: str = ""
    os: str = ""
    config: _Settings | None = None


class _Platform(msgspec.Struct):
    architecture: str = ""
    os: str = ""


class _Descriptor(msgspec.Struct, rename="camel"):
    digest: str
    size: int
    media_type: str = ""
    annotations: dict[str, str] | None = None
    platform: _Platform | None = None


class _Index(msgspec.Struct):
    manifests: list[_Descriptor]


class _Manifest(msgspec.Struct):
    config: _Descriptor
    layers: list[_Descriptor]


@dataclass(frozen=True, slots=True)
class Image:
    """One image of an archive: its references (none: untagged), the digest of its config (the engine's image id), its layers' diff ids, labels, platform."""

    refs: tuple[str, ...]
    digest: str
    layers: tuple[str, ...]
    labels: dict[str, str]
    platform: str
    config_file: str
    layer_files: tuple[str, ...]

    def manifest(self) -> dict[str, Any]:
        """Its entry in a manifest.json."""
        return {"Config": self.config_file, "RepoTags": list(self.refs) or None, "Layers": list(self.layer_files)}


def images(contents: Contents) -> tuple[list[Image], bool]:
    """(images, whether an engine needs a manifest.json made for it); IntegrityError names what is missing or differs."""
    found, index = contents.file("manifest.json"), contents.file("index.json")
    if contents.problem and (found or index):
        raise IntegrityError(contents.problem, hint="do not load it: ask the sender for a new one")
    if found:
        entries = _parsed("manifest.json", found[1], list[_Docker])
        for entry in _pairs("manifest.json", found[1]):
            _refuse_ambiguous("manifest.json", entry, _Docker)
        made = [_image(contents, e.config, e.layers or [], tuple(e.repo_tags or ())) for e in entries]
    elif index:
        made = list(_oci(contents, _parsed("index.json", index[1], _Index)))
    else:
        raise _no_image(contents)
    if not made:
        raise IntegrityError("the archive lists no image", hint=AGAIN)
    return made, found is None


def _no_image(contents: Contents) -> IntegrityError:
    if any(name.split("/")[0] in ("etc", "usr", "bin") for name in (*contents.files, *contents.links)):
        hint = "it looks like a root file system: `gymctl build-image IMAGE --base FILE` builds on it"
    else:
        hint = "an image archive is what `docker save` or `gymctl build-image` writes"
    return IntegrityError("the archive holds no image: neither manifest.json nor index.json is in it", hint=hint)


def _image(contents: Contents, config_file: str, layer_files: list[str], refs: tuple[str, ...]) -> Image:
    name, member = _wanted(contents, config_file, "the image's config")
    said = name.rpartition("/")[2].removesuffix(".json")
    if len(said) == 64 and said != member.sha256:
        raise IntegrityError(f"the config {name} has sha256 {member.sha256}", hint=AGAIN)
    config = _parsed(name, member, _Config)
    pairs = _pairs(name, member)
    _refuse_ambiguous(name, pairs, _Config)
    _refuse_ambiguous(name, dict(pairs)["rootfs"], _Rootfs)
    layers = config.rootfs.diff_ids
    if len(layers) != len(layer_files):
        raise IntegrityError(f"the image has {len(layers)} layers by its config and {len(layer_files)} by its manifest", hint=AGAIN)
    for layer, file in zip(layers, layer_files, strict=True):
        _check_layer(contents, layer, file)
    for ref in refs:
        if not REFERENCE.fullmatch(ref) or ":" not in ref.rpartition("/")[2]:
            raise IntegrityError(f"the archive names an image {ref[:80]!r}, which is no reference", hint="`--tag NAME:TAG` gives it another name")
    labels = (config.config.labels if config.config else None) or {}
    return Image(refs, f"sha256:{member.sha256}", tuple(layers), labels, f"{config.os}/{config.architecture}", name, tuple(layer_files))


def _check_layer(contents: Contents, layer: str, file: str) -> None:
    name, member = _wanted(contents, file, "the layer")
    if member.unpacked is None:
        raise Unsupported(f"the layer {name} is compressed with zstd, which engines before 23.0 cannot read", hint="ask for one with gzip layers")
    if f"sha256:{member.unpacked}" != layer:
        raise IntegrityError(f"the layer {name} should be {layer} and is sha256:{member.unpacked}", hint=AGAIN)


def _wanted(contents: Contents, name: str, what: str) -> tuple[str, Member]:
    found = contents.file(name)
    if found is None:
        raise IntegrityError(f"{what} {name} is not in the archive", hint=AGAIN)
    return found


def _parsed(name: str, member: Member, kind: type[T]) -> T:
    if member.document is None:
        raise IntegrityError(f"{name} is no JSON document", hint=AGAIN)
    try:
        return msgspec.json.decode(member.document, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise IntegrityError(f"{name} is not what it should be: {error}", hint=AGAIN) from error


def _pairs(name: str, member: Member) -> Any:
    """A document that was read, with each object as its (name, value) pairs: all of those that it says twice."""
    try:
        return json.loads(member.document or b"", object_pairs_hook=lambda pairs: pairs)
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{name} is not what it should be: {error}", hint=AGAIN) from error


def _refuse_ambiguous(name: str, pairs: list[tuple[str, Any]], kind: type[msgspec.Struct]) -> None:
    """Engines read `config` for `Config`, and of two the last: what was checked here must be what they load."""
    known = {field.encode_name.lower(): field.encode_name for field in msgspec.structs.fields(kind)}
    seen: set[str] = set()
    for said, _ in pairs:
        meant = known.get(said.lower())
        if meant and (said != meant or said in seen):
            raise IntegrityError(f"{name} says {said!r} {'twice' if said in seen else f'for {meant!r}'}: engines would load another image", hint=AGAIN)
        seen.add(said)


def _oci(contents: Contents, index: _Index) -> Iterator[Image]:
    for top in index.manifests:
        chosen = _for_this_machine(list(_flat(contents, top, 0)))
        if chosen is None:
            continue
        name, member = _blob(contents, chosen, "the manifest")
        manifest = _parsed(name, member, _Manifest)
        config, _ = _blob(contents, manifest.config, "the config")
        layers = [_blob(contents, layer, "the layer")[0] for layer in manifest.layers]
        yield _image(contents, config, layers, _reference({**(chosen.annotations or {}), **(top.annotations or {})}))


def _flat(contents: Contents, descriptor: _Descriptor, depth: int) -> Iterator[_Descriptor]:
    """The manifests under a descriptor, through nested indexes; attestations left out."""
    if depth > MAX_DEPTH:
        raise IntegrityError("the archive's indexes are nested without end", hint=AGAIN)
    if "image.index" in descriptor.media_type or "manifest.list" in descriptor.media_type:
        name, member = _blob(contents, descriptor, "the index")
        for inner in _parsed(name, member, _Index).manifests:
            yield from _flat(contents, inner, depth + 1)
    elif not (descriptor.platform and descriptor.platform.os == "unknown"):
        yield descriptor


def _for_this_machine(found: list[_Descriptor]) -> _Descriptor | None:
    if len(found) < 2:
        return found[0] if found else None
    fitting = [d for d in found if d.platform and (d.platform.os, d.platform.architecture) == ("linux", ours())]
    if not fitting:
        offered = ", ".join(f"{d.platform.os}/{d.platform.architecture}" for d in found if d.platform)
        raise Unsupported(f"the archive has images for {offered or 'no named platform'}, and this machine is linux/{ours()}")
    return fitting[0]


def ours() -> str:
    """This machine's architecture, in the words of images."""
    return ARCHITECTURES.get(platform.machine(), platform.machine())


def _blob(contents: Contents, descriptor: _Descriptor, what: str) -> tuple[str, Member]:
    algorithm, _, digest = descriptor.digest.partition(":")
    if algorithm != "sha256":
        raise Unsupported(f"{what} is named by {algorithm or 'no digest'}, and only sha256 is read")
    name, member = _wanted(contents, f"blobs/sha256/{digest}", what)
    if member.size != descriptor.size:
        raise IntegrityError(f"{what} {name} should have {descriptor.size} bytes and has {member.size}", hint=AGAIN)
    if member.sha256 != digest:  # its name promises nothing when it is a link
        raise IntegrityError(f"{what} {name} should have sha256 {digest} and has {member.sha256}", hint=AGAIN)
    return name, member


def _reference(annotations: dict[str, str]) -> tuple[str, ...]:
    """The name an OCI archive gives an image, when it is a whole one: `latest` alone names nothing."""
    for key in ("io.containerd.image.name", "org.opencontainers.image.ref.name"):
        name = annotations.get(key, "")
        if REFERENCE.fullmatch(name) and ":" in name.rpartition("/")[2]:
            return (name,)
    return ()
