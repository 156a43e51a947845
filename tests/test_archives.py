"""Image files that somebody sent: whole ones are read, and whatever else comes ends in one of our errors that says what it is."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gymctl import archives, manifests
from gymctl.errors import GymctlError, IntegrityError, NotFound, Unsupported
from gymctl.runners.docker_probe import archive

Files = dict[str, bytes | tarfile.TarInfo]


def quiet(what: str, done: int, total: int) -> None:
    """No progress."""


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def tar(files: Files) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        for name, data in files.items():
            if isinstance(data, tarfile.TarInfo):
                made.addfile(data)
                continue
            member = tarfile.TarInfo(name)
            member.size = len(data)
            made.addfile(member, io.BytesIO(data))
    return out.getvalue()


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def docker_files(layer: bytes = b"a layer" * 300, tags: list[str] | None = None, **changes: Any) -> Files:
    """A docker archive with one image of one layer."""
    inner = gzip.decompress(layer) if layer[:2] == b"\x1f\x8b" else layer
    config = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha(inner)}"]}, **changes}).encode()
    manifest = json.dumps([{"Config": f"{sha(config)}.json", "RepoTags": ["some:thing"] if tags is None else tags, "Layers": ["one/layer.tar"]}]).encode()
    return {f"{sha(config)}.json": config, "one/layer.tar": layer, "manifest.json": manifest}


def oci_files(name: str = "some:thing", layer: bytes = b"a layer" * 300, annotations: dict[str, str] | None = None) -> Files:
    """An OCI archive with one image of one gzip layer."""
    packed = gzip.compress(layer, mtime=0)
    config = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha(layer)}"]}}).encode()

    def descriptor(data: bytes, kind: str, **more: Any) -> dict[str, Any]:
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{sha(data)}", "size": len(data), **more}

    manifest = json.dumps({"schemaVersion": 2, "config": descriptor(config, "config.v1+json"), "layers": [descriptor(packed, "layer.v1.tar+gzip")]}).encode()
    marks = {"io.containerd.image.name": name} if annotations is None else annotations
    index = json.dumps({"schemaVersion": 2, "manifests": [descriptor(manifest, "manifest.v1+json", annotations=marks)]}).encode()
    blobs: Files = {f"blobs/sha256/{sha(data)}": data for data in (config, manifest, packed)}
    return {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": index, **blobs}


@pytest.fixture
def file(tmp_path: Path) -> Callable[[bytes | Files], Path]:
    """A file with these bytes, or a tar of these files."""

    def write(content: bytes | Files) -> Path:
        path = tmp_path / "sent.tar"
        path.write_bytes(content if isinstance(content, bytes) else tar(content))
        return path

    return write


def looked(path: Path) -> tuple[list[manifests.Image], bool]:
    """What `load` does before the engine gets a byte."""
    return manifests.images(archives.read(path, archives.sniff(path), quiet))


class TestForged:
    """Archives that were made to be checked as one image and loaded as another."""

    @pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
    def test_a_link_in_the_place_of_a_blob(self, file: Any, kind: bytes) -> None:
        files, other = oci_files(layer=b"a layer" * 300), oci_files(layer=b"A LAYER" * 300)
        ours, theirs = ([name for name in each if name.startswith("blobs/")] for each in (files, other))
        for name, false in ((ours[0], theirs[0]), (ours[2], theirs[2])):
            content = other[false]
            files = {"else/" + false[-8:]: content, **files, name: link(name, f"{'../../' if kind == tarfile.SYMTYPE else ''}else/{false[-8:]}", kind)}
        with pytest.raises(IntegrityError, match="should have"):
            looked(file(files))

    @pytest.mark.parametrize(
        ("name", "forged"),
        [
            ("manifest.json", b', "config": "other.json"}'),
            ("manifest.json", b', "Config": "%s"}'),
            ("manifest.json", b', "LAYERS": ["one/layer.tar"]}'),
            ("manifest.json", b', "repotags": ["taken:tag"]}'),
            ("config", b', "RootFS": {"diff_ids": []}}'),
            ("config", b', "rootfs": {"diff_ids": []}, "rootfs": {"diff_ids": ["%s"]}}'),
        ],
    )
    def test_a_field_said_twice_or_in_other_letters(self, file: Any, name: str, forged: bytes) -> None:
        files = docker_files()
        config_name = next(iter(files))
        said = files["manifest.json" if name == "manifest.json" else config_name]
        assert isinstance(said, bytes)
        right = config_name if name == "manifest.json" else f"sha256:{sha(b'a layer' * 300)}"
        changed = said.rstrip(b"]}") + (b"]" if name == "manifest.json" else b"]}") + (forged.replace(b"%s", right.encode()))
        if name == "manifest.json":
            files["manifest.json"] = changed + b"]"
        else:
            manifest = [{"Config": "config.json", "RepoTags": ["some:thing"], "Layers": ["one/layer.tar"]}]
            files = {"config.json": changed, "one/layer.tar": files["one/layer.tar"], "manifest.json": json.dumps(manifest).encode()}
        with pytest.raises(IntegrityError, match=r"twice|says '\w+' for"):
            looked(file(files))


class TestWhole:
    @pytest.mark.parametrize("pack", [lambda d: d, gzip.compress, bz2.compress, lzma.compress], ids=["plain", "gzip", "bzip2", "xz"])
    def test_docker_archive_in_any_packing(self, file: Any, pack: Callable[[bytes], bytes]) -> None:
        path = file(pack(tar(docker_files())))
        [image], converted = looked(path)
        assert image.refs == ("some:thing",)
        assert image.platform == "linux/amd64"
        assert not converted
        contents = archives.read(path, archives.sniff(path), quiet)
        with archives.spliced(path, archives.sniff(path), contents.end, None) as (stream, total):
            data = stream.read()
        assert len(data) == total
        with tarfile.open(fileobj=io.BytesIO(data)) as made:
            assert "manifest.json" in made.getnames()

    def test_the_digest_is_the_config_s(self, file: Any) -> None:
        files = docker_files()
        [image], _ = looked(file(files))
        assert image.digest == f"sha256:{next(iter(files)).removesuffix('.json')}"

    def test_layers_that_are_compressed_or_linked(self, file: Any) -> None:
        assert looked(file(docker_files(gzip.compress(b"a layer"))))[0]
        files = docker_files()
        layer = files.pop("one/layer.tar")
        files |= {"two/layer.tar": layer, "one/layer.tar": link("one/layer.tar", "../two/layer.tar")}
        assert looked(file(files))[0]
        assert looked(file(gzip.compress(tar(files))))[0]

    def test_oci_archive_becomes_one_that_every_engine_reads(self, file: Any) -> None:
        path = file(oci_files())
        [image], converted = looked(path)
        assert converted
        contents = archives.read(path, "tar", quiet)
        with archives.spliced(path, "tar", contents.end, json.dumps([image.manifest()]).encode()) as (stream, total):
            data = stream.read()
        assert len(data) == total
        again = path.with_name("again.tar")
        again.write_bytes(data)
        [same], converted = looked(again)
        assert (same, converted) == (image, False)

    def test_a_tag_alone_names_nothing(self, file: Any) -> None:
        [image], _ = looked(file(oci_files(annotations={"org.opencontainers.image.ref.name": "latest"})))
        assert image.refs == ()

    def test_untagged_is_accepted(self, file: Any) -> None:
        assert looked(file(docker_files(tags=[])))[0][0].refs == ()

    def test_one_of_several_platforms(self, file: Any) -> None:
        files = oci_files()
        index = json.loads(files["index.json"])  # type: ignore[arg-type]
        [ours] = index["manifests"]
        other = {**ours, "digest": f"sha256:{'0' * 64}", "platform": {"os": "linux", "architecture": "s390x"}}
        ours["platform"] = {"os": "linux", "architecture": manifests.ours()}
        unknown = {**other, "platform": {"os": "unknown", "architecture": "unknown"}}
        inner = json.dumps({"manifests": [other, unknown, ours]}).encode()
        top = {"mediaType": "application/vnd.oci.image.index.v1+json", "digest": f"sha256:{sha(inner)}", "size": len(inner)}
        files |= {f"blobs/sha256/{sha(inner)}": inner, "index.json": json.dumps({"manifests": [top]}).encode()}
        assert len(looked(file(files))[0]) == 1
        ours["platform"]["architecture"] = "ppc64le"
        inner = json.dumps({"manifests": [other, ours]}).encode()
        top |= {"digest": f"sha256:{sha(inner)}", "size": len(inner)}
        files |= {f"blobs/sha256/{sha(inner)}": inner, "index.json": json.dumps({"manifests": [top]}).encode()}
        with pytest.raises(Unsupported, match="linux/s390x, linux/ppc64le"):
            looked(file(files))

    def test_memory_is_bounded(self, tmp_path: Path) -> None:
        """200 MB of layer are read with a few MB."""
        import tracemalloc

        layer = bytes(200 << 20)
        path = tmp_path / "large.tar"
        path.write_bytes(tar(docker_files(layer)))
        del layer
        tracemalloc.start()
        assert looked(path)[0]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 20 << 20


class TestNotAnImage:
    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"", "is empty"),
            (b"<!DOCTYPE html><html><head><title>Log in</title>", "web page, not an image: Log in"),
            (b"\xef\xbb\xbf\n <HTML><title>404</title>", "web page"),
            (b'<?xml version="1.0"?><Error><Code>AccessDenied</Code>', "XML error message, not an image: AccessDenied"),
            (b'{"message": "Not Found"}', "JSON document"),
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:1", "Git LFS pointer"),
            (b"just some text that is no tar at all" * 50, "damaged in the member that begins at byte 0"),
        ],
    )
    def test_says_what_it_is(self, file: Any, content: bytes, said: str) -> None:
        with pytest.raises(IntegrityError, match=said) as caught:
            looked(file(content))
        assert caught.value.hint

    def test_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(NotFound):
            archives.sniff(tmp_path / "none.tar")

    def test_zstd(self, file: Any) -> None:
        with pytest.raises(Unsupported, match="zstd") as caught:
            looked(file(b"\x28\xb5\x2f\xfd" + bytes(100)))
        assert "zstd -d" in caught.value.hint

    def test_a_root_file_system(self, file: Any) -> None:
        with pytest.raises(IntegrityError, match="holds no image") as caught:
            looked(file({"etc/passwd": b"root", "lib": link("lib", "/usr/lib"), "dev/null": link("dev/null", "", tarfile.CHRTYPE)}))
        assert "--base" in caught.value.hint


class TestDamaged:
    def test_cut_off_anywhere(self, file: Any) -> None:
        """Half-copied: wherever it was cut, it is said, and where."""
        whole = tar(docker_files())
        end = archives.read(file(whole), "tar", quiet).end
        for length in range(1, end, 97):
            with pytest.raises(IntegrityError) as caught:
                looked(file(whole[:length]))
            assert "byte" in caught.value.message or "is not in the archive" in caught.value.message or "holds no image" in caught.value.message

    def test_a_hundred_kilobytes_missing(self, file: Any) -> None:
        whole = tar(docker_files(b"layer" * 100_000))
        with pytest.raises(IntegrityError, match=r"is cut off in the member that begins at byte \d+ \(it has 400\d\d\d bytes\)"):
            looked(file(whole[: 400_000 + 512]))

    def test_cut_off_when_compressed(self, file: Any) -> None:
        packed = gzip.compress(tar(docker_files()))
        with pytest.raises(IntegrityError, match=r"cut off near byte \d+ of its \d+"):
            looked(file(packed[: len(packed) // 2]))

    def test_a_header_in_the_middle(self, file: Any) -> None:
        whole = bytearray(tar(docker_files()))
        at = whole.index(b"manifest.json")
        whole[at + 150] ^= 0xFF  # in the checksum
        with pytest.raises(IntegrityError, match=f"damaged in the member that begins at byte {at}"):
            looked(file(bytes(whole)))

    @pytest.mark.parametrize("make", [docker_files, oci_files])
    def test_any_byte_of_a_layer_or_config(self, file: Any, make: Callable[[], Files]) -> None:
        for name, data in make().items():
            if name in ("manifest.json", "index.json", "oci-layout") or not isinstance(data, bytes):
                continue
            changed = bytearray(data)
            changed[len(data) // 2] ^= 1
            with pytest.raises(IntegrityError):
                looked(file({**make(), name: bytes(changed)}))

    @pytest.mark.parametrize("make", [docker_files, oci_files])
    def test_any_part_missing(self, file: Any, make: Callable[[], Files]) -> None:
        for name in make():
            if name == "oci-layout":
                continue
            files = make()
            del files[name]
            with pytest.raises(IntegrityError, match=r"not in the archive|holds no image"):
                looked(file(files))

    def test_a_size_that_differs(self, file: Any) -> None:
        files = oci_files()
        index = json.loads(files["index.json"])  # type: ignore[arg-type]
        index["manifests"][0]["size"] += 1
        with pytest.raises(IntegrityError, match="should have"):
            looked(file({**files, "index.json": json.dumps(index).encode()}))

    @pytest.mark.parametrize(
        "member",
        [
            link("../../etc/passwd", "x", tarfile.DIRTYPE), link("/etc/passwd", "x", tarfile.DIRTYPE), link("a", "../../etc/shadow"), link("a", "/etc/shadow"),
            link("a", "../x", tarfile.LNKTYPE), link("a/../../b", "x"), link("device", "", tarfile.CHRTYPE), link("pipe", "", tarfile.FIFOTYPE),
        ],
        ids=lambda m: f"{m.name}->{m.linkname}",
    )  # fmt: skip
    def test_members_that_lead_out_or_are_no_files(self, file: Any, member: tarfile.TarInfo) -> None:
        with pytest.raises(IntegrityError, match=r"points outside|is no file"):
            looked(file({**docker_files(), "bad": member}))

    def test_the_same_name_twice(self, file: Any) -> None:
        one = tar(docker_files())
        end = archives.read(file(one), "tar", quiet).end
        with pytest.raises(IntegrityError, match="twice"):
            looked(file(one[:end] + tar({"manifest.json": b"[]"})))

    def test_links_in_a_circle(self, file: Any) -> None:
        files = docker_files()
        with pytest.raises(IntegrityError, match="not in the archive"):
            looked(file({**files, "one/layer.tar": link("one/layer.tar", "two"), "two": link("two", "one/layer.tar")}))

    def test_an_extended_header_of_a_gigabyte(self, file: Any) -> None:
        header = tarfile.TarInfo("x")
        header.type, header.size = tarfile.XHDTYPE, 1 << 30
        with pytest.raises(IntegrityError, match="a header says 1073741824 bytes"):
            looked(file(header.tobuf() + bytes(2048)))

    @pytest.mark.parametrize("ref", ["Upper:case", "no-tag", "a b:c", "x:" + "y" * 200, "-e:1"])
    def test_names_that_are_no_references(self, file: Any, ref: str) -> None:
        with pytest.raises(IntegrityError, match="no reference"):
            looked(file(docker_files(tags=[ref])))

    def test_a_manifest_of_another_shape(self, file: Any) -> None:
        for document in (b"{}", b"[1]", b'[{"Config": 1}]', b"[]", b"[" * 100_000, b'{"manifests": null}', b"\xff\xfe["):
            for name in ("manifest.json", "index.json"):
                with pytest.raises(IntegrityError):
                    looked(file({"x": b"y", name: document}))


class TestDisks:
    def qcow2(self, version: int = 3, backing: int = 0, crypt: int = 0, features: int = 0, l1: int = 65536) -> bytes:
        head = b"QFI\xfb" + struct.pack(">IQIIQIIQQIIQ", version, backing, 0, 16, 1 << 30, crypt, 2, l1, 65536, 1, 0, 0) + struct.pack(">Q", features)
        return head.ljust(l1 + 16, b"\0")

    @pytest.mark.parametrize(
        ("changes", "error", "said"),
        [
            ({"version": 1}, IntegrityError, "version 1"), ({"backing": 512}, Unsupported, "overlay"), ({"crypt": 1}, Unsupported, "encrypted"),
            ({"features": 4}, Unsupported, "second file"),
        ],
    )  # fmt: skip
    def test_qcow2_that_cannot_be_used(self, file: Any, changes: dict[str, int], error: type[GymctlError], said: str) -> None:
        with pytest.raises(error, match=said):
            archives.check_qcow2(file(self.qcow2(**changes)))

    def test_qcow2(self, file: Any) -> None:
        path = file(self.qcow2())
        assert archives.sniff(path) == "qcow2"
        archives.check_qcow2(path)
        for length in (4, 50, 104, 65536):
            with pytest.raises(IntegrityError):
                archives.check_qcow2(file(self.qcow2()[:length]))

    def test_sif(self, file: Any) -> None:
        head = struct.pack(
            "<32s10s3s3s16sqqqqqqqq", b"#!/usr/bin/env run-singularity\n", b"SIF_MAGIC\0", b"01\0", b"02\0", b"", 0, 0, 47, 48, 128, 585, 4096, 100
        )
        path = file(head.ljust(4196, b"\0"))
        assert archives.sniff(path) == "sif"
        archives.check_sif(path)
        for length in (60, 128, 4195):
            with pytest.raises(IntegrityError, match="cut off"):
                archives.check_sif(file(head.ljust(4196, b"\0")[:length]))


WHOLE = {"docker": tar(docker_files()), "oci": tar(oci_files()), "gzip": gzip.compress(tar(docker_files())), "probe": archive("some:thing")}


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=st.sampled_from(sorted(WHOLE)), edits=st.lists(st.tuples(st.integers(0, 12_000), st.integers(0, 255)), max_size=6), cut=st.integers(0, 14_000))
@example(kind="docker", edits=[], cut=14_000)
def test_any_damage_ends_in_an_error_of_ours_or_in_the_same_image(tmp_path_factory: Any, kind: str, edits: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(WHOLE[kind])
    for at, value in edits:
        data[at % len(data)] = value
    path = tmp_path_factory.mktemp("fuzz") / "sent.tar"
    path.write_bytes(data[:cut])
    try:
        found, _ = looked(path)
    except GymctlError:
        return
    layers = {layer for image in found for layer in image.layers}
    expected = {f"sha256:{sha(b'a layer' * 300)}"} | {layer for image in looked_at(WHOLE["probe"], path) for layer in image.layers}
    assert layers <= expected, "what is read is what was sent"


def looked_at(data: bytes, near: Path) -> list[manifests.Image]:
    path = near.with_name("probe.tar")
    path.write_bytes(data)
    return looked(path)[0]


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=3000))
def test_any_bytes_end_in_an_error_of_ours(tmp_path_factory: Any, data: bytes) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "sent"
    path.write_bytes(data)
    with pytest.raises(GymctlError):
        checked(path)


def checked(path: Path) -> None:
    kind = archives.sniff(path)
    {"qcow2": archives.check_qcow2, "sif": archives.check_sif}.get(kind, looked)(path)


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Lists and mappings with the words of manifests."""
    words = st.sampled_from(["Config", "RepoTags", "Layers", "manifests", "digest", "size"])
    return st.lists(inner, max_size=4) | st.dictionaries(words, inner)


DOCUMENTS = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20), nested)


@settings(max_examples=200, deadline=None)
@given(document=DOCUMENTS, name=st.sampled_from(["manifest.json", "index.json"]))
def test_any_document_ends_in_an_error_of_ours(tmp_path_factory: Any, document: Any, name: str) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "sent"
    path.write_bytes(tar({name: json.dumps(document).encode()}))
    with pytest.raises(GymctlError):
        looked(path)
