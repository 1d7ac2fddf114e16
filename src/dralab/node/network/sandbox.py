"""The sandbox of a pod, which its containers share: an address, and namespaces."""

import socket
from collections.abc import Sequence
from typing import Final, Protocol

from dralab.node.network.namespaces import PodNamespaces
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

LOOPBACK: Final = "127.0.0.1"


class SandboxError(Exception):
    """A pod cannot have its network; the text goes into the pod's events."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A pod's sandbox on its node; without namespaces it shares the machine's network.

    `node` are the namespaces of its node, from which the kubelet asks it.
    """

    ip: str = ""
    namespaces: PodNamespaces | None = None
    node: PodNamespaces | None = None

    @property
    def address(self) -> str:
        """The address of its ports for its node."""
        return LOOPBACK if self.node is None else self.ip

    @property
    def has_own_network(self) -> bool:
        """Whether it has its own network, and does not share its node's."""
        own, node = self.namespaces, self.node
        return own is not None and node is not None and own.net is not node.net

    def address_of(self, host: str) -> str:
        """Return the address that is asked for a `host` of a probe, which may be empty."""
        return self.address if self.node is None else host or self.ip

    def connect(self, port: int, timeout: float, host: str = "") -> socket.socket:
        """Connect to a port of the pod, or of another `host`, as its node. OSError.

        Without a network of its own another host is not asked: this machine could reach anything.
        """
        if self.node is None:
            return socket.create_connection((LOOPBACK, port), timeout)
        found = self.node.socket()
        try:
            found.settimeout(timeout)
            found.connect((host or self.ip, port))
        except BaseException:
            found.close()
            raise
        return found


ON_MACHINE: Final = Sandbox()


class PodNetwork(Protocol):
    """The network of one node's pods: `cluster_network.NodeNetwork`."""

    @property
    def ip(self) -> str:
        """The node's address."""
        ...

    def add_pod(self, pod: JsonDict) -> Sandbox:
        """Return a pod's sandbox, created if missing. SandboxError."""
        ...

    def forget_pod(self, uid: str) -> None:
        """Remove the sandbox of a finished pod."""
        ...

    def pod_cidr(self, node: JsonDict, others: Sequence[JsonDict]) -> str:
        """Return the range of the node's pods: the one that it has, or a new one. RangeError."""
        ...

    def route(self, pod_cidr: str) -> None:
        """Route to the node's pods. SandboxError."""
        ...
