"""Which interfaces, addresses and routes the machine, the router, nodes and pods have.

The machine and each node are joined to one router by a pair of interfaces each; so is each pod to
its node. Everything is routed, nothing is bridged: all packets of a pod pass its node's rules, as
kube-proxy needs. Lines are those of `ip -batch`; nothing here touches a network.
"""

from ipaddress import IPv4Address
from typing import Final

from dralab.node.network.addresses import ClusterRange

INSIDE: Final = "eth0"  # what a pod, a node and the router call their only way out


def machine_interface(cluster: ClusterRange) -> str:
    """Return the name of the machine's interface: one for each range.

    >>> machine_interface(ClusterRange.parse("10.244.0.0/16"))
    'dra0af40000'
    """
    return f"dra{int(cluster.network.network_address):08x}"


def machine_lines(cluster: ClusterRange, router: str) -> list[str]:
    """Join the machine to the router, whose network namespace is at the path `router`."""
    name = machine_interface(cluster)
    return [
        f"link add {name} type veth peer name {INSIDE} netns {router}",
        f"addr add {cluster.machine}/32 dev {name}",
        f"link set {name} up",
        f"route add {cluster.network} via {cluster.router} dev {name} onlink src {cluster.machine}",
    ]


def router_lines(cluster: ClusterRange) -> list[str]:
    """Give the router its route to the machine, which is also the default route."""
    return [
        "link set lo up",
        f"addr add {cluster.router}/32 dev {INSIDE}",
        f"link set {INSIDE} up",
        f"route add {cluster.machine}/32 dev {INSIDE}",
        f"route add default via {cluster.machine} dev {INSIDE} onlink",
        # What no node has is refused, and not sent back and forth.
        f"route add unreachable {cluster.network}",
    ]


def node_in_router_lines(number: int, address: IPv4Address, node: str) -> list[str]:
    """Join a node to the router; to run in the router's namespace."""
    return [
        f"link add node{number} type veth peer name {INSIDE} netns {node}",
        f"link set node{number} up",
        f"route add {address}/32 dev node{number}",
    ]


def node_lines(cluster: ClusterRange, address: IPv4Address) -> list[str]:
    """Give a node its address and its way out; to run in its namespace."""
    return pod_lines(str(address), cluster.router)


def pods_in_router_lines(number: int, address: IPv4Address, pod_cidr: str) -> list[str]:
    """Route to the pods of a node; to run in the router's namespace."""
    return [f"route add {pod_cidr} via {address} dev node{number} onlink"]


def pods_lines(gateway: IPv4Address, pod_cidr: str) -> list[str]:
    """Let a node be the gateway of its pods; to run in its namespace."""
    return [f"addr add {gateway}/32 dev lo", f"route add unreachable {pod_cidr}"]


def pod_in_node_lines(interface: str, ip: str, node: IPv4Address, pod: str) -> list[str]:
    """Join a pod, whose network namespace is at the path `pod`, to its node."""
    return [
        f"link add {interface} type veth peer name {INSIDE} netns {pod}",
        f"link set {interface} up",
        f"route add {ip}/32 dev {interface} src {node}",
    ]


def pod_lines(ip: str, gateway: IPv4Address) -> list[str]:
    """Give a pod its address and its way out; to run in its namespace."""
    return [
        "link set lo up",
        f"addr add {ip}/32 dev {INSIDE}",
        f"link set {INSIDE} up",
        f"route add default via {gateway} dev {INSIDE} onlink",
    ]
