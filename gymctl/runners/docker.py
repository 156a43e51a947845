"""Runner `docker`: a container on a Docker engine, published on 127.0.0.1; without a network of its own choice it cannot get out."""

from __future__ import annotations

import contextlib
import errno
import io
import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gymctl import paths, proc
from gymctl.errors import Conflict, StartError, UsageError
from gymctl.proc import Result
from gymctl.runner import KILLED, Handle, Need, Option, Plan, Spec, Status
from gymctl.runners import docker_checkpoints, docker_exec, docker_files, docker_network
from gymctl.runners import docker_engine as engine
from gymctl.runners.docker_checkpoints import checkpoints, drop, save
from gymctl.runners.docker_images import build, export, has, labels, load, output, pull
from gymctl.runners.docker_probe import doctor

if TYPE_CHECKING:
    from docker.api.client import APIClient

__all__ = [
    "SPEC", "build", "checkpoints", "doctor", "drop", "exec", "export", "find", "get", "has", "labels", "load", "logs", "output", "pull", "put", "restore",
    "save", "start", "status", "stop", "tidy",
]  # fmt: skip

SPEC = Spec(
    name="docker",
    summary="A container on a Docker engine",
    guests=("linux",),
    formats=("oci",),
    hosts=("linux", "darwin"),
    needs=(Need("Docker Engine 20.10 or newer", engine.INSTALL),),
    options=(
        Option("memory", str, "memory limit, swap included: 512m, 2g"),
        Option("cpus", float, "how many CPUs at most: 0.5, 2"),
        Option("pids", int, "how many processes and threads at most"),
        Option("network", str, "true: may reach the network; false: may not; or the name of a network of the engine", keyed=False),
        Option("shm_size", str, "size of /dev/shm: 64m, 1g"),
    ),
    isolated=True,
    notes=(
        "Without `network` a container sits on a bridge of ours that leads nowhere: its port is published, its own connections fail within seconds. "
        "Ports that this machine opens on all its addresses stay in reach. The bridge stays until `gymctl cache gc`."
    ),
)
RUNTIME = "/run/gymctl"
"""Where a server that has secrets may write them: memory, which no checkpoint keeps."""
PORT_TAKEN = ("port is already allocated", "address already in use")
LAST_LINES = 5


def start(plan: Plan, /) -> Handle:
    """Create and start a container, read its port back: {container, url, ports, image, notes}. StartError, Conflict, UsageError, Unavailable."""
    api = engine.client()
    notes: list[str] = []
    for host_port in _choices(plan, notes):
        container = _create(api, plan, host_port)
        with contextlib.ExitStack() as undo:
            undo.callback(_remove, api, container)
            if _begin(api, plan, container):
                handle = _handle(api, plan, container, notes)
                undo.pop_all()
                return handle
        if plan.host_port:
            raise _port_conflict(api, plan.host_port)
    raise StartError("the engine found no free port on 127.0.0.1 in two tries", hint="is the range of local ports used up? `gymctl ps --all` shows what runs")


def restore(plan: Plan, key: str, /) -> Handle:
    """`start`, from a checkpoint; NotFound, IntegrityError, and what `start` raises."""
    return start(replace(plan, image=docker_checkpoints.image(key)))


def _choices(plan: Plan, notes: list[str]) -> Iterator[int]:
    """The host ports to try, one after the other; 0 is the engine's choice, and its own race deserves a second try."""
    if plan.host_port:
        yield plan.host_port
        return
    if plan.host_port is None:
        if _free(plan.port):
            yield plan.port
        notes.append(f"port {plan.port} is taken, so another was chosen")
    yield 0
    yield 0


def _free(port: int) -> bool:
    """Whether nobody here holds a port; a try at the engine, which costs a container, tells it for certain."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return error.errno == errno.EACCES  # below 1024 only the engine may
    return True


def _port_conflict(api: APIClient, port: int) -> Conflict:
    for row in _containers(api):
        if any(p.get("PublicPort") == port for p in row.get("Ports") or ()):
            state_id, _, name = row["Labels"].get(engine.LABEL, "").partition("/")
            shown = row["Names"][0].lstrip("/") if row["Names"] else row["Id"][:12]
            ours = f"the instance {name}" + ("" if state_id == paths.state_id() else f" of another state directory ({state_id})")
            holder = ours if name else f"the container {shown}"
            break
    else:
        holder = proc.listener(port) or "another process"
    return Conflict(f"port {port} is taken by {holder}", hint="`--port 0` takes any free one")


def _create(api: APIClient, plan: Plan, host_port: int) -> str:
    from docker.errors import APIError, ImageNotFound

    name, port = _container_name(plan.label), f"{plan.port}/tcp"
    bindings: dict[int | str, Any] = {port: ("127.0.0.1", host_port or None), **{f"{number}/tcp": ("127.0.0.1", None) for number in plan.ports.values()}}
    host_config = api.create_host_config(port_bindings=bindings, **_limits(plan))
    with contextlib.ExitStack() as undo, engine.failures(f"creating the container of {plan.name}"):
        undo.callback(_remove_named, api, name, plan.label)  # interrupted while the engine is at work, and nobody knows its id
        try:
            made = api.create_container(
                plan.image.get("digest") or plan.image["ref"], name=name, detach=True, environment=_variables(plan),
                labels={engine.LABEL: plan.label}, ports=[(number, "tcp") for number in (plan.port, *plan.ports.values())], host_config=host_config,
            )  # fmt: skip
        except ImageNotFound as error:
            raise StartError(f"the engine has no image {plan.image['ref']}", hint="`gymctl load FILE.tar`") from error
        except APIError as error:
            if error.status_code == 409 and "is already in use" in engine.reason(error):
                undo.pop_all()  # it is another's
                raise _name_conflict(api, name, plan) from error
            raise
        undo.pop_all()
    return str(made["Id"])


def _variables(plan: Plan) -> dict[str, str]:
    runtime = {"RUNTIME_DIRECTORY": RUNTIME} if plan.secrets else {}
    return {**runtime, **plan.env, **plan.secrets, **{variable: str(number) for variable, number in plan.ports.items()}}


def _container_name(label: str) -> str:
    return f"gymctl-{label.replace('/', '-')}"


def _limits(plan: Plan) -> dict[str, Any]:
    given = plan.options
    memory = _bytes("memory", given["memory"]) if "memory" in given else int((plan.mem_gb or 0) * 2**30)
    cpus = _over_zero("cpus", given["cpus"]) if "cpus" in given else plan.cpus or 0
    limits: dict[str, Any] = {"log_config": {"Type": "json-file", "Config": {"max-size": "20m", "max-file": "2"}}, **_network(plan)}
    if plan.secrets:
        limits["tmpfs"] = {RUNTIME: "mode=0755"}
    if memory:
        limits |= {"mem_limit": memory, "memswap_limit": memory}
    if cpus:
        limits["nano_cpus"] = int(cpus * 1e9)
    if "pids" in given:
        limits["pids_limit"] = int(_over_zero("pids", given["pids"]))
    if "shm_size" in given:
        limits["shm_size"] = _bytes("shm_size", given["shm_size"])
    return limits


def _bytes(name: str, text: str) -> int:
    from docker.errors import DockerException
    from docker.utils import parse_bytes

    try:
        size = int(parse_bytes(text))
    except (DockerException, ValueError, IndexError) as error:
        raise UsageError(f"--opt {name}={text}: expected a size", hint="for example 512m or 2g") from error
    return int(_over_zero(name, size))


def _over_zero(name: str, value: float) -> float:
    """The limit; to an engine 0 and less mean none, which is not what was asked for."""
    if not value > 0:
        raise UsageError(f"--opt {name}={value}: expected more than 0", hint="leave it out for no limit")
    return value


def _network(plan: Plan) -> dict[str, Any]:
    """The network asked for; without one our closed bridge, and no way around it: no raw frames, no name server."""
    chosen = str(plan.options.get("network", plan.network))
    if chosen.lower() in ("true", "yes", "on"):
        return {"network_mode": "bridge"}
    if chosen.lower() in ("false", "no", "off"):
        dead = {"dns": ["127.0.0.1"], "dns_opt": ["timeout:1", "attempts:1"]}
        return {"network_mode": docker_network.NAME, "cap_drop": ["NET_RAW"], **dead}
    return {"network_mode": chosen}


def _begin(api: APIClient, plan: Plan, container: str, tries: int = 20) -> bool:
    """Start it, and make our network if need be (others may remove it meanwhile); False when its port is taken, if only by the engine's own race."""
    from docker.errors import APIError, NotFound

    with engine.failures(f"starting the container of {plan.name}"):
        try:
            api.start(container)
        except NotFound as error:
            if not tries or f"network {docker_network.NAME} not found" not in engine.reason(error):
                raise
            docker_network.make(api)
            return _begin(api, plan, container, tries - 1)
        except APIError as error:
            if any(sign in engine.reason(error) for sign in PORT_TAKEN):
                return False
            raise
    return True


def _handle(api: APIClient, plan: Plan, container: str, notes: list[str]) -> Handle:
    with engine.failures(f"reading the port of {plan.name}"):
        info = api.inspect_container(container)
    published = {inside.partition("/")[0]: int(bound[0]["HostPort"]) for inside, bound in (info["NetworkSettings"]["Ports"] or {}).items() if bound}
    if str(plan.port) not in published:
        status_now = _status(api, info)
        if status_now.state == "running":
            raise StartError(f"the engine did not publish port {plan.port}", hint="is it a network that cannot publish? try `--opt network=true`")
        raise StartError(f"{plan.name} ended at once with exit code {status_now.exit_code}: {status_now.detail or 'it printed nothing'}")
    port = published[str(plan.port)]
    if plan.host_port is not None or port == plan.port:
        notes = [note for note in notes if not note.endswith("another was chosen")]
    if engine.host().startswith(("tcp://", "ssh://")):
        notes = [*notes, f"the engine is at {engine.host()}: 127.0.0.1:{port} is an address of that machine"]
    return {
        "container": container, "url": f"http://127.0.0.1:{port}", "ports": published, "image": info["Image"], "secrets": sorted(plan.secrets), "notes": notes,
    }  # fmt: skip


def _name_conflict(api: APIClient, name: str, plan: Plan) -> Conflict:
    info = api.inspect_container(name)
    owner = (info["Config"]["Labels"] or {}).get(engine.LABEL)
    age = datetime.now().astimezone() - datetime.fromisoformat(info["Created"][:19] + "+00:00")
    what = f"the container {name} is there already ({info['State']['Status']}, made {str(age).partition('.')[0]} ago"
    if owner == plan.label:
        return Conflict(f"{what}, by gymctl for {owner})", hint=f"`--replace` removes it first; `gymctl stop {plan.name}` removes it now")
    return Conflict(f"{what}, not by this gymctl), and it is left alone", hint="`--name` takes another name")


def status(handle: Handle, /) -> Status:
    """What the engine says of it: gone, running or exited with its code, the limit it hit or its last lines. Unavailable without an engine."""
    from docker.errors import NotFound

    api = engine.client()
    with engine.failures("asking for the container's state"):
        try:
            return _status(api, api.inspect_container(handle["container"]))
        except NotFound:
            return Status("gone")


def _status(api: APIClient, info: dict[str, Any]) -> Status:
    state, restarts = info["State"], info.get("RestartCount", 0)
    if state["Status"] in ("running", "paused", "restarting"):
        return Status("running", None, state["OOMKilled"], restarts, _unhealthy(state))
    if state["Status"] == "created":
        return Status("exited", None, detail=state["Error"] or "made and never started")
    return Status("exited", state["ExitCode"], state["OOMKilled"], restarts, _why(api, info))


def _unhealthy(state: dict[str, Any]) -> str:
    health = state.get("Health") or {}
    if health.get("Status") != "unhealthy":
        return ""
    last = (health.get("Log") or [{}])[-1]
    return f"unhealthy: {str(last.get('Output', '')).strip()[:200]}"


def _why(api: APIClient, info: dict[str, Any]) -> str:
    limit, oom = info["HostConfig"]["Memory"], info["State"]["OOMKilled"]
    if limit and (oom or info["State"]["ExitCode"] == KILLED):
        how = "it" if oom else "somebody killed it, or it"  # the engine may see the end before its reason
        return f"{how} hit its memory limit of {limit // 2**20} MiB; `--opt memory={max(1, -(-limit * 2 // 2**20))}m` gives it twice that"
    if oom:
        return "this machine ran out of memory"
    lines = list(_log_lines(api, info["Id"], LAST_LINES))
    return info["State"]["Error"] or "; ".join(line.strip() for line in lines if line.strip())


def exec(handle: Handle, argv: list[str], /, *, input: str | None = None, timeout: float = 60) -> Result:
    """Run a command in the container (which needs a `sh`); at the deadline it is killed in there. NotFound, EnvError."""
    return docker_exec.run(handle["container"], argv, input, timeout)


def stop(handle: Handle, /) -> None:
    """Remove the container, running or not; idempotent."""
    if handle.get("container"):
        _remove(engine.client(), handle["container"])


def put(handle: Handle, src: Path, dst: str, /) -> None:
    """Copy a file or tree into the container, where it belongs to whom its folder there belongs to. NotFound, UsageError, Conflict."""
    docker_files.put(handle["container"], src, dst)


def get(handle: Handle, src: str, dst: Path, /) -> None:
    """Copy a file or tree out of the container; whole or not at all. NotFound, IntegrityError, Conflict."""
    docker_files.get(handle["container"], src, dst)


def tidy() -> list[str]:
    """Remove what no instance uses: our networks, checkpoints half made; what went, in words."""
    return [*docker_network.tidy(), *docker_checkpoints.tidy()]


def _remove(api: APIClient, container: str) -> None:
    from docker.errors import APIError, NotFound

    with engine.failures("removing a container"), contextlib.suppress(NotFound):
        try:
            api.remove_container(container, v=True, force=True)
        except APIError as error:
            if error.status_code != 409 or "already in progress" not in engine.reason(error):
                raise
            api.wait(container, timeout=60, condition="removed")


def _remove_named(api: APIClient, name: str, label: str) -> None:
    """Remove a container by name, if it carries this very label."""
    for row in _containers(api):
        if f"/{name}" in row["Names"] and row["Labels"].get(engine.LABEL) == label:
            _remove(api, row["Id"])


def _containers(api: APIClient, **filters: str) -> list[dict[str, Any]]:
    with engine.failures("listing containers"):
        rows: list[dict[str, Any]] = api.containers(all=True, filters=filters)
    return rows


def find() -> dict[str, Handle]:
    """Our containers by label, running or not; Unavailable when the engine cannot be asked."""
    prefix = f"{paths.state_id()}/"
    found: dict[str, Handle] = {}
    for row in _containers(engine.client(), label=engine.LABEL):
        label = row["Labels"].get(engine.LABEL, "")
        if label.startswith(prefix):
            ports = {str(p["PrivatePort"]): p["PublicPort"] for p in row.get("Ports") or () if p.get("PublicPort")}
            url = next((f"http://127.0.0.1:{port}" for port in ports.values()), "")
            found[label] = {"container": row["Id"], "url": url, "ports": ports, "image": row["ImageID"], "notes": []}
    return found


def logs(handle: Handle, /) -> Iterator[str]:
    """The lines it printed so far, both outputs, oldest first; none for one that is gone."""
    from docker.errors import NotFound

    api = engine.client()
    with engine.failures("reading the container's output"), contextlib.suppress(NotFound):
        yield from _log_lines(api, handle["container"], "all")


def _log_lines(api: APIClient, container: str, tail: int | Literal["all"]) -> Iterator[str]:
    text = api.logs(container, stdout=True, stderr=True, tail=tail)  # whole: the log is bounded (20 MB, twice)
    yield from io.StringIO(text.decode("utf-8", "replace"), newline="\n")
