"""Networks for pods, by the names of kube-controller-manager's and kubelet's flags."""

import contextlib
import ipaddress
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import click

from dralab.cli._serving import range_of
from dralab.cli.errors import refusing

if TYPE_CHECKING:
    from dralab.components.nodes import NodeOptions
    from dralab.node.network.cluster_network import ClusterNetwork
    from dralab.node.resolv_conf import ClusterDns

HINT: Final = "--cluster-cidr"
DNS_NUMBER: Final = 10  # kubeadm: the address of the Service kube-dns in its network


def cluster_network(
    cidr: str, dns: str, services: str | None, *, namespaces: bool
) -> "tuple[ClusterNetwork | None, ClusterDns | None]":
    """Return the network of the options, not started yet, and its name server. BadParameter.

    `services` is the network of Services; `namespaces`: containers have mount namespaces.
    """
    if not cidr:
        if dns:
            raise click.BadParameter("needs --cluster-cidr", param_hint="--cluster-dns")
        return None, None
    from dralab.node.network.addresses import ClusterRange, RangeError
    from dralab.node.network.cluster_network import ClusterNetwork
    from dralab.node.resolv_conf import ClusterDns

    if not namespaces:
        raise click.BadParameter("needs --runtime process and --mount-namespaces", param_hint=HINT)
    with refusing(RangeError, option=HINT):
        found = ClusterRange.parse(cidr)
    of_services = ipaddress.IPv4Network(range_of(services))
    if found.network.overlaps(of_services):
        raise click.BadParameter(
            f"{found.network} overlaps with the network of Services, {of_services} "
            "(--service-cluster-ip-range)",
            param_hint=HINT,
        )
    number = min(DNS_NUMBER, of_services.num_addresses - 2)
    return ClusterNetwork(found), ClusterDns(_address(dns) or str(of_services[number]))


def check_room(network: "ClusterNetwork | None", wanted: "NodeOptions") -> None:
    """Refuse a network that is too small for the nodes. BadParameter."""
    if network is None:
        return
    from dralab.components.nodes import count

    if (nodes := count(wanted)) > (most := network.cluster.nodes):
        raise click.BadParameter(
            f"{network.cluster.network} has room for {most} node{'' if most == 1 else 's'}, not "
            f"for {nodes}",
            param_hint=HINT,
        )


@contextlib.contextmanager
def pod_network(network: "ClusterNetwork | None") -> Iterator[tuple[str, str]]:
    """Run a network together with a server; return its address and interface. UnusableInput."""
    if network is None:
        yield "", ""
        return
    from dralab.cli.errors import UnusableInput
    from dralab.node.network.cluster_network import NetworkUnavailable
    from dralab.node.network.sandbox import SandboxError

    with refusing(NetworkUnavailable):
        network.start()
    try:
        yield network.machine, network.interface
    except SandboxError as error:
        raise UnusableInput(f"cannot set up the network of a node: {error}") from error
    finally:
        network.close()


def _address(text: str) -> str:
    with refusing(ValueError, option="--cluster-dns"):
        return str(ipaddress.IPv4Address(text)) if text else ""
