"""Runner `docker`, its images: what the engine has, and load, pull, build, export and one-off runs of them."""

from __future__ import annotations

import contextlib
import io
import json
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from gymctl import paths
from gymctl.errors import NotFound, StartError, Unavailable
from gymctl.proc import Result
from gymctl.runner import Artifact, Progress
from gymctl.runners import docker_engine as engine

CHUNK = 1 << 20
PIECE = 1 << 24  # of a file that is sent without being read


def has(ref: str, /) -> str | None:
    """The id (`sha256:...`) of the image a name, a digest or name@digest stands for, or None."""
    from docker.errors import ImageNotFound

    api = engine.client()
    with engine.failures(f"looking for the image {ref}"):
        try:
            return str(engine.image(api, ref)["Id"])
        except ImageNotFound:
            return None


def load(stream: BinaryIO, total: int, progress: Progress, /) -> list[Artifact]:
    """Feed a docker archive to the engine while telling bytes; what it made: a reference (the id of an untagged one) and a digest each."""
    api = engine.client(engine.LONG_TIMEOUT)
    references: list[str] = []
    with engine.failures("loading the archive"):
        _need_space(api.info()["DockerRootDir"], total)
        if engine.host().startswith("unix://"):
            events = _upload(api.api_version, stream, total, progress)
        else:
            events = api.load_image(_counted(stream, total, progress), quiet=True)  # type: ignore[no-untyped-call]  # the stubs leave it out
        for event in events:
            if "error" in event:
                raise engine.refused(str(event["error"]), "loading the archive")
            for line in str(event.get("stream", "")).splitlines():
                found, _, reference = line.partition(": ")
                if found in ("Loaded image", "Loaded image ID"):
                    references.append(reference.strip())
    return [Artifact(reference, has(reference) or "") for reference in references]


def _upload(version: str, stream: BinaryIO, total: int, progress: Progress) -> Iterator[dict[str, Any]]:
    """POST /images/load by sendfile and with a length: docker-py sends chunks, which takes two seconds more for 500 MB."""
    import http.client  # comes with docker-py anyway, and later

    connection = http.client.HTTPConnection("localhost", timeout=engine.LONG_TIMEOUT)
    connection.sock = socket.socket(socket.AF_UNIX)
    with contextlib.closing(connection):
        connection.sock.settimeout(engine.LONG_TIMEOUT)
        connection.sock.connect(engine.host().removeprefix("unix://"))
        connection.putrequest("POST", f"/v{version}/images/load?quiet=1")
        connection.putheader("Content-Type", "application/x-tar")
        connection.putheader("Content-Length", str(total))
        connection.endheaders()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has an answer already: the reason
            _send(connection.sock, stream, total, progress)
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
    for line in text.splitlines():
        event = json.loads(line)
        yield event if answer.status == 200 else {"error": event.get("message", line)}


def _send(sock: socket.socket, stream: BinaryIO, total: int, progress: Progress) -> None:
    plain = isinstance(stream, io.BufferedReader) and isinstance(stream.raw, io.FileIO)
    done = 0
    while done < total:
        if plain:
            count = sock.sendfile(stream, done, PIECE)
        else:
            chunk = stream.read(CHUNK)
            sock.sendall(chunk)
            count = len(chunk)
        if not count:
            raise Unavailable("the file became shorter while it was read")
        done += count
        progress("loading", done, total)


def _need_space(root: str, total: int) -> None:
    free = engine.free_space(root)
    if free is not None and free < total * 2:  # the engine unpacks the archive first, then its layers
        hint = "`docker system df` shows what takes space, `docker image prune` frees some"
        raise Unavailable(f"{free / 2**30:.1f} GiB are free in {root}, and loading takes {total * 2 / 2**30:.1f} GiB for a while", hint=hint)


def labels(ref: str, /) -> dict[str, str]:
    """An image's labels; none when there is no such image."""
    from docker.errors import ImageNotFound

    api = engine.client()
    with engine.failures(f"looking for the image {ref}"):
        try:
            config = engine.image(api, ref)["Config"] or {}
        except ImageNotFound:
            return {}
    return dict(config.get("Labels") or {})


def _counted(stream: BinaryIO, total: int, progress: Progress) -> Iterator[bytes]:
    done = 0
    while chunk := stream.read(CHUNK):
        yield chunk
        done += len(chunk)
        progress("loading", done, total)


def pull(ref: str, progress: Progress, /) -> str:
    """Get an image from where its name says, and its id; NotFound, Unavailable."""
    from docker.errors import APIError
    from docker.errors import NotFound as Missing

    api = engine.client(engine.LONG_TIMEOUT)
    name, _, tag = ref.rpartition(":") if ":" in ref.rpartition("/")[2] else (ref, "", "latest")
    with engine.failures(f"pulling {ref}"):
        try:
            for event in api.pull(name, tag=tag, stream=True, decode=True):
                if "error" in event:
                    raise Unavailable(f"cannot pull {ref}: {event['error']}", hint="`gymctl load FILE.tar` brings an image without a network")
                progress(f"pulling {ref}", *_step(event))
        except Missing as error:
            raise NotFound(f"there is no image {ref}: {engine.reason(error)}") from error
        except APIError as error:
            raise Unavailable(f"cannot pull {ref}: {engine.reason(error)}", hint="`gymctl load FILE.tar` brings an image without a network") from error
    digest = has(ref)
    if digest is None:
        raise NotFound(f"there is no image {ref}")
    return digest


def _step(event: Mapping[str, Any]) -> tuple[int, int]:
    detail = event.get("progressDetail") or {}
    return int(detail.get("current", 0)), int(detail.get("total", 0))


def build(context: Path, ref: str, base: str, labels: Mapping[str, str], progress: Progress, /) -> Artifact:
    """Build `context/Dockerfile` on `base` as `ref`, nothing taken from a cache; StartError with the builder's last words."""
    api = engine.client(engine.LONG_TIMEOUT)
    said: list[str] = []
    with engine.failures(f"building {ref}"):
        events = api.build(
            path=str(context), tag=ref, buildargs={"BASE": base}, labels=dict(labels), nocache=True, rm=True, forcerm=True, decode=True, use_config_proxy=False
        )
        for event in events:
            if "error" in event:
                raise _build_error(ref, str(event["error"]), said)
            line = str(event.get("stream", "")).strip()
            if line:
                said.append(line)
                if line.startswith("Step "):
                    progress(line[:70], *_dockerfile_step(line))
    return Artifact(ref, has(ref) or "")


def _dockerfile_step(line: str) -> tuple[int, int]:
    words = line.split()
    if words[0] == "Step" and len(words) > 1:
        step, _, steps = words[1].partition("/")
        if step.isdigit() and steps.isdigit():
            return int(step), int(steps)
    return 0, 0


def _build_error(ref: str, words: str, said: list[str]) -> Exception:
    error = engine.refused(words, f"building {ref}")
    if isinstance(error, StartError):
        error.hint = f"the builder's last words: {' | '.join(said[-3:])}" if said else ""
    return error


def export(ref: str, /) -> Iterator[bytes]:
    """An image as a docker archive, in chunks."""
    api = engine.client(engine.LONG_TIMEOUT)
    with engine.failures(f"saving {ref}"):
        yield from api.get_image(ref, chunk_size=CHUNK)


def output(ref: str, argv: list[str], /, timeout: int = 60) -> Result:
    """Run a command in a container of its own, without a network, that goes away with it."""
    from docker.errors import APIError

    api = engine.client()
    with engine.failures(f"running {argv[0]} in {ref}"):
        config = api.create_host_config(network_mode="none")
        made = api.create_container(ref, argv[1:], entrypoint=argv[:1], labels={engine.LABEL: f"{paths.state_id()}/once"}, host_config=config)["Id"]
        try:
            api.start(made)
            code = int(api.wait(made, timeout=timeout)["StatusCode"])
            out, err = (api.logs(made, stdout=stdout, stderr=not stdout).decode("utf-8", "replace") for stdout in (True, False))
            return Result(code, out, err)
        finally:
            with contextlib.suppress(APIError):
                api.remove_container(made, v=True, force=True)
