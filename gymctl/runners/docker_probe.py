"""Runner `docker`, doctor's part: an image made of one tiny program is loaded, run, published, asked and removed."""

from __future__ import annotations

import contextlib
import io
import json
import os
import secrets
import socket
import struct
import tarfile
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymctl import paths
from gymctl.errors import GymctlError
from gymctl.runner import Finding, Plan
from gymctl.runners import docker_engine as engine

if TYPE_CHECKING:
    from docker.api.client import APIClient

PORT = 1936
ANSWER = b"gymctl\n"
NEEDED_BYTES = 2 * 2**30
CAP_SYS_RESOURCE = 24

# A server for x86_64 without a library: socket(AF_INET, SOCK_STREAM, 0); bind(0.0.0.0:1936); listen(8);
# for ever: accept, write ANSWER, close.
X86_64 = bytes.fromhex(
    "6a025f 6a015e 31d2 6a2958 0f05 89c7"  # socket -> edi
    "6a00 48b80200079000000000 50 4889e6 6a105a 6a3158 0f05"  # bind: {2, htons(1936), 0.0.0.0}
    "6a085e 6a3258 0f05"  # listen
    "31f6 31d2 6a2b58 0f05 57 89c7"  # again: accept -> edi
    "488d3513000000 68070000005a 6a0158 0f05"  # write(answer, 7)
    "6a0358 0f05 5f ebda"  # close; jump to again
)


def doctor(workdir: Path, /) -> Iterator[Finding]:
    """The engine, its disk, a container, a published port, and what this user lacks; never raises."""
    try:
        api = engine.client()
        with engine.failures("asking the engine"):
            version, info = api.version(), api.info()
    except GymctlError as error:
        yield Finding("engine", False, error.message, error.hint)
        yield from (Finding(what, None, "no engine to try it on") for what in ("container", "published port"))
        return
    yield Finding("engine", True, f"Docker {version.get('Version')} (API {version['ApiVersion']}) at {engine.host()}")
    yield _space(info["DockerRootDir"])
    yield from _container(workdir, info)
    yield from _capability()


def _space(root: str) -> Finding:
    free = engine.free_space(root)
    if free is None:
        return Finding("engine's disk", None, f"{root} is not on this machine, or not to be seen by this user")
    shown = f"{free / 2**30:.1f} GiB free in {root}"
    return Finding("engine's disk", free >= NEEDED_BYTES, shown, "" if free >= NEEDED_BYTES else "`docker image prune` and `docker container prune` free some")


def _container(workdir: Path, info: dict[str, Any]) -> Iterator[Finding]:
    if info.get("Architecture") != "x86_64" or info.get("OSType") != "linux":
        yield Finding("container", None, f"there is no program to try with for {info.get('OSType')} on {info.get('Architecture')}")
        yield Finding("published port", None, "no container to try it on")
        return
    from gymctl.runners import docker  # its own start and stop are what is tried

    tag = secrets.token_hex(3)
    name, reference, handle = f"doctor-{tag}", f"gymctl-doctor:{tag}", None
    try:
        data = archive(reference)
        image = docker.load(io.BytesIO(data), len(data), lambda what, done, total: None)[0]
        plan = Plan(name, f"{paths.state_id()}/{name}", workdir, "oci", {"ref": image.ref, "digest": image.digest}, PORT, host_port=0)
        handle = docker.start(plan)
        yield Finding("container", True, "an image was loaded, and a container of it runs without a way out")
        yield _answer(handle["ports"][str(PORT)])
    except GymctlError as error:
        yield Finding("container" if handle is None else "published port", False, error.message, error.hint)
        if handle is None:
            yield Finding("published port", None, "no container to try it on")
    finally:
        _clear_up(engine.client(), handle, reference)


def _clear_up(api: APIClient, handle: dict[str, Any] | None, reference: str) -> None:
    from docker.errors import APIError

    from gymctl.runners import docker

    with contextlib.suppress(GymctlError):
        if handle:
            docker.stop(handle)
        with engine.failures("removing the probe"), contextlib.suppress(APIError):
            api.remove_image(reference, force=True)


def _answer(port: int) -> Finding:
    """Ask the program through the published port; the forwarder takes connections a moment before the program listens."""
    deadline, got = time.monotonic() + 3, b""
    where = f"127.0.0.1:{port}"
    while time.monotonic() < deadline and got != ANSWER:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            got = connection.recv(64)
    if got == ANSWER:
        return Finding("published port", True, f"the container answered at {where}")
    fix = "is a proxy or a firewall between this machine and the engine's bridge? or is DOCKER_HOST another machine?"
    return Finding("published port", False, f"the container's program did not answer at {where}", fix)


def _capability() -> Iterator[Finding]:
    """Root without CAP_SYS_RESOURCE (a container or a hardened host) cannot run privileged containers, nor raise limits."""
    with contextlib.suppress(OSError):
        status = Path("/proc/self/status").read_text()
        effective = int(next(line for line in status.splitlines() if line.startswith("CapEff:")).split()[1], 16)
        if os.geteuid() == 0 and not effective >> CAP_SYS_RESOURCE & 1:
            detail = "root here lacks CAP_SYS_RESOURCE: an engine it starts cannot run --privileged containers nor raise their limits"
            yield Finding("capabilities", None, detail, "not needed by gymctl; for such containers use an engine with all capabilities")


def archive(reference: str) -> bytes:
    """A docker archive with one image of one layer: the program alone. The same bytes each time."""
    layer = _tar({"probe": _elf(X86_64 + ANSWER)})
    config = {
        "architecture": "amd64", "os": "linux", "config": {"Entrypoint": ["/probe"], "ExposedPorts": {f"{PORT}/tcp": {}}},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(layer).hexdigest()}"]},
    }  # fmt: skip
    text = json.dumps(config).encode()
    name = f"{sha256(text).hexdigest()}.json"
    manifest = json.dumps([{"Config": name, "RepoTags": [reference], "Layers": ["layer.tar"]}]).encode()
    return _tar({name: text, "layer.tar": layer, "manifest.json": manifest})


def _tar(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o755
            tar.addfile(member, io.BytesIO(data))
    return made.getvalue()


def _elf(code: bytes) -> bytes:
    """A static executable: a header, one segment to read and execute, the code."""
    base, headers = 0x400000, 64 + 56
    size = headers + len(code)
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, 62, 1, base + headers, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    return header + struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, size, size, 0x1000) + code
