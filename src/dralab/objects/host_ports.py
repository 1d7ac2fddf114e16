"""Host ports of pods, and which of them conflict.

Source: kube-scheduler `util.GetHostPorts` and `framework.HostPortInfo`; the kubelet asks the same.
"""

from typing import Final, NamedTuple

from dralab.values.json_types import JsonObject

EVERY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - the API's word for every address


class TakenPort(NamedTuple):
    """A host port of a container."""

    address: str
    protocol: str
    number: int


def host_ports(spec: JsonObject) -> frozenset[TakenPort]:
    """Return the host ports of a pod; init containers count if they are sidecars.

    >>> host_ports({"containers": [{"ports": [{"containerPort": 80, "hostPort": 8080}]}]})
    frozenset({TakenPort(address='0.0.0.0', protocol='TCP', number=8080)})
    """
    sidecars = [
        each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"
    ]
    return frozenset(
        TakenPort(port.get("hostIP") or EVERY_ADDRESS, port.get("protocol") or "TCP", number)
        for container in (*sidecars, *(spec.get("containers") or ()))
        for port in container.get("ports") or ()
        if (number := port.get("hostPort"))
    )


def collide(mine: TakenPort, other: TakenPort) -> bool:
    """Return whether two host ports conflict."""
    return mine[1:] == other[1:] and (
        mine.address == other.address or EVERY_ADDRESS in {mine.address, other.address}
    )
