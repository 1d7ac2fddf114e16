"""How the range of a cluster's pods is divided among the machine, nodes, and pods.

The first block of the range is for the machine, a router and the nodes; each node gets one of the
others as its `podCIDR`. Source of the size of a block: `--node-cidr-mask-size` of
kube-controller-manager, 24 by default.
"""

import ipaddress
from collections.abc import Collection
from typing import Final

from dralab.values.records import dataclass

NODE_MASK: Final = 24
SMALLEST: Final = 23  # of a cluster: a block of its own addresses, and one for a node
FIRST_NODE: Final = 3


class RangeError(Exception):
    """No suitable address or range is left; `str` says which."""


@dataclass(frozen=True, slots=True)
class ClusterRange:
    """The range of a cluster's nodes and pods.

    >>> found = ClusterRange.parse("10.244.0.0/16")
    >>> str(found.machine), str(found.node(0)), found.pod_cidr(["10.244.1.0/24"])
    ('10.244.0.1', '10.244.0.3', '10.244.2.0/24')
    """

    network: ipaddress.IPv4Network

    @classmethod
    def parse(cls, text: str) -> "ClusterRange":
        """Return the range that a text states. RangeError."""
        try:
            network = ipaddress.IPv4Network(text)
        except ValueError as error:
            raise RangeError(f"{error}; give a network such as 10.244.0.0/16") from error
        if network.prefixlen > SMALLEST:
            raise RangeError(
                f"{text} is too small: each node takes a /{NODE_MASK}, so it needs at least a "
                f"/{SMALLEST}"
            )
        if network.is_loopback or network.is_multicast or network.is_link_local:
            raise RangeError(f"{text} cannot be routed; give a network such as 10.244.0.0/16")
        return cls(network)

    @property
    def machine(self) -> ipaddress.IPv4Address:
        """The address at which nodes and pods reach this machine."""
        return self.network[1]

    @property
    def router(self) -> ipaddress.IPv4Address:
        """The address of the router between the nodes and the machine."""
        return self.network[2]

    def node(self, number: int) -> ipaddress.IPv4Address:
        """Return the address of a node, counted from 0. RangeError: there are too many."""
        if FIRST_NODE + number >= (1 << (32 - NODE_MASK)) - 1:
            raise RangeError(f"{self.network} has addresses for {self.nodes} nodes")
        return self.network[FIRST_NODE + number]

    @property
    def nodes(self) -> int:
        """How many nodes there can be."""
        blocks = (1 << (NODE_MASK - self.network.prefixlen)) - 1
        return min(blocks, (1 << (32 - NODE_MASK)) - 1 - FIRST_NODE)

    def pod_cidr(self, taken: Collection[str]) -> str:
        """Return the first range for the pods of a node that no other node has. RangeError."""
        blocks = self.network.subnets(new_prefix=NODE_MASK)
        next(blocks)
        used = {ipaddress.IPv4Network(each) for each in taken}
        for block in blocks:
            if not any(block.overlaps(each) for each in used):
                return str(block)
        raise RangeError(f"{self.network} has no range left for the pods of another node")

    def check(self, pod_cidr: str) -> None:
        """Refuse a node's range that is not one of this cluster's. RangeError."""
        block = ipaddress.ip_network(pod_cidr)
        blocks = block.version == 4 and block.subnet_of(self.network)
        if not blocks or self.machine in block:
            raise RangeError(
                f"spec.podCIDR {pod_cidr} is not a range for pods within {self.network}: delete "
                f"the Node, or use the --cluster-cidr that it was created with"
            )


class PodAddresses:
    """The addresses of a node's pods: assigned in turn, so that none is reused at once."""

    def __init__(self, cidr: str) -> None:
        self.network = ipaddress.IPv4Network(cidr)
        self.gateway = self.network[1]
        self._last = 1
        self._taken: set[str] = set()

    def take(self) -> str:
        """Return a free address. RangeError: there is none."""
        usable = self.network.num_addresses - 3  # not the network's, the gateway's, the last one
        for step in range(usable):
            number = (self._last - 1 + step) % usable + 2
            address = str(self.network[number])
            if address not in self._taken:
                self._last = number
                self._taken.add(address)
                return address
        raise RangeError(f"all {usable} addresses of {self.network} are in use")

    def give_back(self, address: str) -> None:
        """Release an address."""
        self._taken.discard(address)
