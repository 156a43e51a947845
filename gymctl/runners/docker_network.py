"""Runner `docker`, the closed network: ports are published, and nothing gets out.

An engine does not publish ports of its own `internal` networks. So ours is a plain bridge whose default gateway is an address
that nobody has: who is not on the bridge cannot be reached, whatever a program does, unless it may change routes or send raw
frames. Containers on it do not see each other.
"""

from __future__ import annotations

import contextlib
import ipaddress
import secrets
from typing import TYPE_CHECKING

from gymctl import cache, paths
from gymctl.errors import Unavailable
from gymctl.runners import docker_engine as engine

if TYPE_CHECKING:
    from docker.api.client import APIClient
    from docker.types import IPAMConfig

LABEL = "gymctl.label"
BRIDGE = "com.docker.network.bridge"
OPTIONS = {f"{BRIDGE}.enable_ip_masquerade": "false", f"{BRIDGE}.enable_icc": "false"}


def name() -> str:
    """One network for all instances of a state directory: an engine has addresses for about thirty."""
    return f"gymctl-{paths.state_id()}"


def make(api: APIClient, tries: int = 3) -> None:
    """Make it unless it is there; Unavailable when this engine cannot."""
    from docker.errors import APIError

    with cache.lock("docker-network", lambda text: None):
        try:
            if not api.networks(names=[f"^{name()}$"]):
                api.create_network(name(), driver="bridge", options=OPTIONS, labels=_labels(), ipam=_dead_end(_free_subnet(api)))
        except APIError as error:
            if "overlaps" not in engine.reason(error) or not tries:
                hint = "`--opt network=true` starts it with a network, and it can then reach whatever this machine reaches"
                raise Unavailable(f"cannot make a network without a way out: {engine.reason(error)}", hint=hint) from error
        else:
            return
    make(api, tries - 1)  # somebody took the addresses in between


def _free_subnet(api: APIClient) -> str:
    """Addresses that neither the engine nor this machine uses: those that the engine gives a network of no other purpose."""
    made = api.create_network(f"{name()}-{secrets.token_hex(3)}", driver="bridge", labels=_labels())["Id"]
    try:
        return str(api.inspect_network(made)["IPAM"]["Config"][0]["Subnet"])
    finally:
        api.remove_network(made)


def _dead_end(subnet: str) -> IPAMConfig:
    """The bridge has the first address; the default gateway is the last one, which no container gets either."""
    from docker.types import IPAMConfig, IPAMPool

    hosts = ipaddress.ip_network(subnet)
    pool = IPAMPool(subnet=subnet, gateway=str(hosts[1]), aux_addresses={"DefaultGatewayIPv4": str(hosts[-2])})
    return IPAMConfig(pool_configs=[pool])


def _labels() -> dict[str, str]:
    return {LABEL: f"{paths.state_id()}/"}


def tidy() -> list[str]:
    """Remove our networks that no container uses; what went, in words."""
    from docker.errors import APIError

    api, gone = engine.client(), []
    with engine.failures("removing our network"):
        for network in api.networks(filters={"label": f"{LABEL}={paths.state_id()}/"}):
            with contextlib.suppress(APIError):  # in use, or another was faster
                api.remove_network(network["Id"])
                gone.append(f"network {network['Name']}")
    return gone
