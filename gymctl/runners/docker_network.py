"""Runner `docker`, the closed network: ports are published, and nothing gets out.

An engine does not publish ports of its own `internal` networks. So ours is a plain bridge whose default gateway is an address
that nobody has: who is not on the bridge cannot be reached, whatever a program does, unless it may change routes or send raw
frames. Containers on it do not see each other.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import secrets
from typing import TYPE_CHECKING

from gymctl import cache
from gymctl.errors import Unavailable
from gymctl.runners import docker_engine as engine

if TYPE_CHECKING:
    from docker.api.client import APIClient
    from docker.types import IPAMConfig

NAME = "gymctl-closed"
LABEL = "gymctl.network"
BRIDGE = "com.docker.network.bridge"
OPTIONS = {f"{BRIDGE}.enable_ip_masquerade": "false", f"{BRIDGE}.enable_icc": "false"}


def make(api: APIClient, tries: int = 3) -> None:
    """Make it unless it is there; Unavailable when this engine cannot.

    One for everybody on an engine, which has addresses for about thirty networks; the bridge's name lets only one of two makers win.
    """
    from docker.errors import APIError

    with cache.lock("docker-network", lambda text: None):
        try:
            if not api.networks(names=[f"^{NAME}$"]):
                bridge = f"gym-{_digest(api)}"
                options = {**OPTIONS, f"{BRIDGE}.name": bridge}
                api.create_network(NAME, driver="bridge", options=options, labels={LABEL: "closed"}, ipam=_dead_end(_free_subnet(api)))
            return
        except APIError as error:
            if "same bridge name" in engine.reason(error):
                return
            if not tries or not any(word in engine.reason(error) for word in ("overlaps", "not found")):
                hint = "`gymctl cache gc` and `docker network prune` remove unused ones" if "available" in engine.reason(error) else ""
                hint = hint or "`--opt network=true` starts it with a network, and it can then reach whatever this machine reaches"
                raise Unavailable(f"cannot make a network without a way out: {engine.reason(error)}", hint=hint) from error
    make(api, tries - 1)  # in between somebody took the addresses, or a `cache gc` the network that asks for them


def _digest(api: APIClient) -> str:
    """Another one for each engine on this machine: engines of one /etc/docker/key.json have one ID, but never one data directory."""
    found = api.info()
    return hashlib.sha256(f"{found['ID']} {found['DockerRootDir']}".encode()).hexdigest()[:10]


def _free_subnet(api: APIClient) -> str:
    """Addresses that neither the engine nor this machine uses: those that the engine gives a network of no other purpose."""
    from docker.errors import NotFound

    made = api.create_network(f"{NAME}-{secrets.token_hex(3)}", driver="bridge", labels={LABEL: "probe"})["Id"]
    try:
        return str(api.inspect_network(made)["IPAM"]["Config"][0]["Subnet"])
    finally:
        with contextlib.suppress(NotFound):  # a `cache gc` was faster
            api.remove_network(made)


def _dead_end(subnet: str) -> IPAMConfig:
    """The bridge has the first address; the default gateway is the last one, which no container gets either."""
    from docker.types import IPAMConfig, IPAMPool

    hosts = ipaddress.ip_network(subnet)
    pool = IPAMPool(subnet=subnet, gateway=str(hosts[1]), aux_addresses={"DefaultGatewayIPv4": str(hosts[-2])})
    return IPAMConfig(pool_configs=[pool])


def tidy() -> list[str]:
    """Remove our networks that no container uses; what went, in words."""
    from docker.errors import APIError

    api, gone = engine.client(), []
    with engine.failures("removing our network"):
        for network in api.networks(filters={"label": LABEL}):
            with contextlib.suppress(APIError):  # in use, or another was faster
                api.remove_network(network["Id"])
                gone.append(f"network {network['Name']}")
    return gone
