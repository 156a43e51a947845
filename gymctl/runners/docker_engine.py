"""Runner `docker`, the engine: one client, found as every Docker tool finds it, and its failures as ours."""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from gymctl.errors import GymctlError, IntegrityError, StartError, Unavailable

if TYPE_CHECKING:
    from docker.api.client import APIClient
    from docker.errors import APIError

LABEL = "gymctl.label"
"""Every container of ours carries it: `<state id>/<name>`."""
MINIMUM = (20, 10)
MINIMUM_API = (1, 41)
SOCKET = "/var/run/docker.sock"
CONNECT_TIMEOUT = 5.0
ANSWER_TIMEOUT = 120
LONG_TIMEOUT = 3600  # of calls that carry or make whole images
_clients: dict[tuple[str | int | None, ...], APIClient] = {}
INSTALL = "install Docker Engine 20.10 or newer: https://docs.docker.com/engine/install/"


def host() -> str:
    """Where the engine is: DOCKER_HOST, else the usual socket."""
    return os.environ.get("DOCKER_HOST") or f"unix://{SOCKET}"


def client(timeout: int = ANSWER_TIMEOUT) -> APIClient:
    """A client that speaks the engine's own version; Unavailable says which of the ways it cannot be had."""
    key = (host(), os.environ.get("DOCKER_TLS_VERIFY"), os.environ.get("DOCKER_CERT_PATH"), timeout)
    if key not in _clients:
        _clients[key] = _connected(host(), timeout)
    return _clients[key]


def close() -> None:
    """Close the connections kept for later calls."""
    while _clients:
        _clients.popitem()[1].close()


def _connected(where: str, timeout: int) -> APIClient:
    if where.startswith(("tcp://", "http://", "https://")):
        _knock(where)
    elif where.startswith("unix://") and _try(where.removeprefix("unix://")):
        raise unreachable(where)  # before the import of docker-py, which takes longer
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    try:
        api = _versioned("1.41", timeout)
        version = api.get(f"{api.base_url}/version").json()  # the one call without a version in its path
        _refuse_old(version)
        if version["ApiVersion"] != "1.41":
            api.close()
            api = _versioned(version["ApiVersion"], timeout)
    except (DockerException, RequestException, OSError) as error:
        raise unreachable(where) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unavailable(f"what answers at {where} is no Docker engine", hint="check DOCKER_HOST") from error
    return api


def _versioned(version: str, timeout: int) -> APIClient:
    from docker.api.client import APIClient
    from docker.utils import kwargs_from_env

    given: dict[str, Any] = {**kwargs_from_env(), "version": version, "timeout": timeout}
    api = APIClient(**given)
    api.trust_env = False  # an engine is never behind HTTP_PROXY
    return api


def _refuse_old(version: dict[str, str]) -> None:
    api = tuple(map(int, version["ApiVersion"].split(".")))
    if api < MINIMUM_API:
        needed = ".".join(map(str, MINIMUM))
        raise Unavailable(f"the Docker engine is version {version.get('Version', '?')}, and {needed} or newer is needed", hint=INSTALL)


def _knock(where: str) -> None:
    """Connect once with a short deadline: dropped packets would else take minutes, and read like a refusal."""
    parts = urlsplit(where)
    address = f"{parts.hostname}:{parts.port or 2375}"
    try:
        socket.create_connection((parts.hostname or "", parts.port or 2375), CONNECT_TIMEOUT).close()
    except TimeoutError as error:
        hint = "a firewall may drop the packets; unset DOCKER_HOST to use this machine's engine"
        raise Unavailable(f"no answer from {address} in {CONNECT_TIMEOUT:.0f} s (DOCKER_HOST={where})", hint=hint) from error
    except socket.gaierror as error:
        raise Unavailable(f"the name {parts.hostname} cannot be resolved (DOCKER_HOST={where})", hint="check DOCKER_HOST") from error
    except OSError as error:
        hint = "the machine is there and the engine does not listen: start it, or check DOCKER_HOST"
        raise Unavailable(f"{address} refuses the connection: {error.strerror} (DOCKER_HOST={where})", hint=hint) from error


def unreachable(where: str) -> Unavailable:
    """Why the engine cannot be talked to: not installed, not running or not permitted."""
    if not where.startswith("unix://"):
        return Unavailable(f"the Docker engine at {where} does not answer", hint="check DOCKER_HOST, DOCKER_TLS_VERIFY and DOCKER_CERT_PATH")
    path = where.removeprefix("unix://")
    found = _try(path)
    if found in (errno.EACCES, errno.EPERM):
        return _not_permitted(path)
    if found == errno.ENOENT and not os.environ.get("DOCKER_HOST") and not (shutil.which("docker") or shutil.which("dockerd")):
        return Unavailable("Docker is not installed: there is no docker command and no engine's socket", hint=INSTALL)
    set_by = " (DOCKER_HOST)" if os.environ.get("DOCKER_HOST") else ""
    hint = f"is {where} right? DOCKER_HOST says so" if set_by else "start it: sudo systemctl start docker"
    if found == errno.ENOENT:
        return Unavailable(f"the Docker engine is not running: there is no socket at {path}{set_by}", hint=hint)
    if found == errno.ECONNREFUSED:
        return Unavailable(f"the Docker engine is not running: nobody listens at {path}{set_by}", hint=hint)
    why = f"it takes the connection at {path} and gives no answer" if found == 0 else f"{path}: {os.strerror(found)}"
    return Unavailable(f"the Docker engine does not answer: {why}{set_by}", hint="sudo systemctl restart docker" if not set_by else hint)


def _try(path: str) -> int:
    """The errno of a connection to a unix socket; 0 when it is taken."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(CONNECT_TIMEOUT)
        try:
            return probe.connect_ex(path)
        except TimeoutError:
            return errno.ETIMEDOUT
        except OSError as error:  # a path too long for a socket
            return error.errno or errno.EINVAL


def _not_permitted(path: str) -> Unavailable:
    try:
        group = grp.getgrgid(Path(path).stat().st_gid).gr_name
    except (OSError, KeyError):
        return Unavailable(f"this user may not reach the Docker engine's socket {path}", hint=f"who may: ls -ld {path} {Path(path).parent}")
    hint = f"join its group, then log in again: sudo usermod -aG {group} $USER"
    return Unavailable(f"this user may not open the Docker engine's socket {path} (group {group})", hint=hint)


@contextlib.contextmanager
def failures(doing: str) -> Iterator[None]:
    """Whatever the engine or the way to it does wrong inside, as one of our errors; `doing` names the work."""
    from docker.errors import APIError, DockerException
    from requests.exceptions import RequestException, Timeout

    try:
        yield
    except APIError as error:
        raise refusal(error, doing) from error
    except Timeout as error:
        raise Unavailable(f"{doing}: the Docker engine at {host()} gave no answer in time", hint="is it overloaded? sudo systemctl restart docker") from error
    except (RequestException, DockerException) as error:
        raise unreachable(host()) from error


def image(api: APIClient, reference: str) -> dict[str, Any]:
    """What the engine says of an image; docker-py's ImageNotFound."""
    return dict(api.inspect_image(reference))  # type: ignore[no-untyped-call]  # the stubs leave it out


def reason(error: APIError) -> str:
    """The engine's own words."""
    return str(error.explanation or error).strip()


def refusal(error: APIError, doing: str) -> GymctlError:
    """An error answer of the engine as one of ours."""
    return refused(reason(error), doing)


def refused(words: str, doing: str) -> GymctlError:
    """The engine's words as one of our errors."""
    if "no space left" in words:
        return Unavailable(f"{doing}: the engine's disk is full: {words}", hint="`docker system df` shows what takes space, `docker image prune` frees some")
    if any(sign in words for sign in ("invalid diffID", "unexpected EOF", "archive/tar", "invalid checksum")):
        return IntegrityError(f"{doing}: {words}", hint="get the file again")
    return StartError(f"{doing}: {words}")


def free_space(root: str) -> int | None:
    """Bytes free where the engine keeps its things; None when that is not on this machine, or not to be seen."""
    if not host().startswith("unix://"):
        return None
    try:
        stat = os.statvfs(root)
    except OSError:
        return None
    return stat.f_bavail * stat.f_frsize
