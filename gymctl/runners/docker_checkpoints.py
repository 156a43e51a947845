"""Runner `docker`, checkpoints: a container's disk as an image of ours, without the secrets the container was given.

An engine copies a container's variables into the image it commits, twice. So the commit has a temporary name, an image of the same
layers is made with a configuration of its own, and that one gets the checkpoint's name: from then on it is there, and whole.
"""

from __future__ import annotations

import contextlib
import io
import json
import tarfile
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from gymctl import cache, paths
from gymctl.errors import Conflict, IntegrityError, NotFound, StartError
from gymctl.runner import Handle
from gymctl.runners import docker_engine as engine

if TYPE_CHECKING:
    from docker.api.client import APIClient

REPOSITORY = "gymctl-checkpoint"
MAKING = "gymctl-checkpoint-making"
KEY = "gymctl.checkpoint"
"""A label: `<cache id>/<key>`."""
MAKER = "gymctl.checkpoint-of"
ADDED = "gymctl.checkpoint-bytes"
COMMIT_SECONDS = 600


def checkpoints() -> dict[str, str]:
    """{key: what it is and how large} of this cache's checkpoints; Unavailable."""
    api = engine.client()
    with engine.failures("listing checkpoints"):
        return {key: _words(row["Labels"]) for key, row in _kept(api).items()}


def _kept(api: APIClient) -> dict[str, dict[str, Any]]:
    prefix = f"{paths.cache_id()}/"
    rows: list[dict[str, Any]] = api.images(name=REPOSITORY, filters={"label": KEY})
    return {row["Labels"][KEY].removeprefix(prefix): row for row in rows if row["Labels"][KEY].startswith(prefix)}


def _words(labels: dict[str, str]) -> str:
    return f"disk of {labels.get(MAKER, 'an instance')}: {int(labels.get(ADDED, 0)) / 2**20:,.1f} MiB more than what it was started from"


def _tag(key: str) -> str:
    return f"{paths.cache_id()}-{key[:32]}"


def save(handle: Handle, key: str, /) -> None:
    """Keep the container's disk; ten makers make it once. It stands still meanwhile, for the length of a commit. StartError, Unavailable."""
    api = engine.client(engine.LONG_TIMEOUT)
    container, making = handle["container"], f"{MAKING}:{_tag(key)}"
    with _making(key), engine.failures("keeping a checkpoint"):
        if key in _kept(api):
            return
        about = api.inspect_container(container)
        with contextlib.ExitStack() as undo:
            undo.callback(_discard, api, container, making)
            api.commit(container, repository=MAKING, tag=_tag(key))
            _publish(api, making, key, about, set(handle.get("secrets", ())))


def _making(key: str) -> contextlib.AbstractContextManager[None]:
    return cache.lock(f"checkpoint-docker-{key[:32]}", lambda text: None)


def _publish(api: APIClient, making: str, key: str, about: dict[str, Any], secrets: set[str]) -> None:
    """An image of the commit's layers under the checkpoint's name; StartError when a secret is in it all the same."""
    made, base = (engine.image(api, image) for image in (making, about["Image"]))
    config, kept = about["Config"], dict(made["Config"])
    kept["Env"] = [variable for variable in kept.get("Env") or () if variable.partition("=")[0] not in secrets]
    name = str((config.get("Labels") or {}).get(engine.LABEL, "")).partition("/")[2]
    ours = {KEY: f"{paths.cache_id()}/{key}", MAKER: name, ADDED: str(made["Size"] - base["Size"])}
    kept["Labels"] = {k: v for k, v in (kept.get("Labels") or {}).items() if k != engine.LABEL} | ours
    reference = f"{REPOSITORY}:{_tag(key)}"
    for event in api.load_image(_archive(made, kept, reference), quiet=True):  # type: ignore[no-untyped-call]
        if "error" in event:
            raise engine.refused(str(event["error"]), "keeping a checkpoint")
    values = {value for name, _, value in (variable.partition("=") for variable in config.get("Env") or ()) if name in secrets and value}
    shown = json.dumps(engine.image(api, reference))
    if any(value in shown for value in values):
        api.remove_image(reference)
        raise StartError("the engine put secrets of the container into the checkpoint, so it was removed", hint="is it an older engine? see `gymctl doctor`")


def _archive(made: dict[str, Any], config: dict[str, Any], reference: str) -> bytes:
    """A docker archive without layers: the engine has them, and takes them by their digests."""
    layers = made["RootFS"]["Layers"]
    document = {
        "architecture": made["Architecture"], "os": made["Os"], "created": made["Created"], "config": config,
        "rootfs": {"type": "layers", "diff_ids": layers}, "history": [{"created": made["Created"]} for _ in layers],
    }  # fmt: skip
    manifest = [{"Config": "config.json", "RepoTags": [reference], "Layers": [f"{number}/layer.tar" for number in range(len(layers))]}]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in (("config.json", document), ("manifest.json", manifest)):
            data = json.dumps(content).encode()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def _discard(api: APIClient, container: str, making: str) -> None:
    """Remove the commit. An engine goes on with one whose client has gone, and holds the container still until its end: that is waited for."""
    from docker.errors import APIError
    from docker.errors import NotFound as Gone

    since = int(time.time()) - 1
    with contextlib.suppress(Gone):
        if api.inspect_container(container)["State"]["Paused"]:
            filters = {"container": container, "event": ["unpause", "destroy"]}
            next(iter(api.events(since=since, until=since + COMMIT_SECONDS, filters=filters, decode=True)), None)
    with contextlib.suppress(APIError):
        api.remove_image(making)


def image(key: str) -> dict[str, str]:
    """What a plan calls the image of a checkpoint; NotFound, IntegrityError."""
    api = engine.client()
    with engine.failures("looking for a checkpoint"):
        from docker.errors import ImageNotFound

        try:
            found = engine.image(api, f"{REPOSITORY}:{_tag(key)}")
        except ImageNotFound as error:
            raise NotFound("the checkpoint is no longer there", hint="the same `gymctl run` makes it again") from error
    if (found["Config"].get("Labels") or {}).get(KEY) != f"{paths.cache_id()}/{key}":
        raise IntegrityError(f"the image {REPOSITORY}:{_tag(key)} is not the checkpoint of that name", hint=f"docker rmi {REPOSITORY}:{_tag(key)}")
    return {"ref": f"{REPOSITORY}:{_tag(key)}", "digest": str(found["Id"])}


def drop(key: str, /) -> None:
    """Remove a checkpoint; Conflict names the instances that were started from it and are still there."""
    from docker.errors import APIError, ImageNotFound

    api = engine.client()
    with engine.failures("removing a checkpoint"):
        users = api.containers(all=True, filters={"label": f"{KEY}={paths.cache_id()}/{key}"})
        if users:
            names = sorted({row["Labels"].get(engine.LABEL, "/?").partition("/")[2] for row in users})
            raise Conflict(f"the checkpoint {key[:12]} is in use by {', '.join(names)}", hint=f"`gymctl stop {names[0]}` first")
        try:
            api.remove_image(f"{REPOSITORY}:{_tag(key)}")
        except ImageNotFound:
            return
        except APIError as error:
            if error.status_code != 409:
                raise
            raise Conflict(f"the checkpoint {key[:12]} is in use: {engine.reason(error)}") from error


def tidy() -> list[str]:
    """Remove what killed makers left half made; what went, in words."""
    from docker.errors import APIError

    api = engine.client()
    gone = []
    with engine.failures("removing half-made checkpoints"):
        for reference, unheld in _half_made(api):
            with contextlib.suppress(Conflict, APIError), unheld():
                api.remove_image(reference)
                gone.append(f"half-made checkpoint {reference}")
    return gone


def _half_made(api: APIClient) -> Iterator[tuple[str, Callable[[], contextlib.AbstractContextManager[None]]]]:
    """(reference, the lock its maker would hold) of this cache's commits."""
    for row in api.images(name=MAKING):
        for reference in row["RepoTags"] or ():
            owner, _, key = reference.partition(":")[2].partition("-")
            if owner == paths.cache_id():
                yield reference, lambda key=key: cache.lock(f"checkpoint-docker-{key}", lambda text: None, timeout=0)  # type: ignore[misc]
