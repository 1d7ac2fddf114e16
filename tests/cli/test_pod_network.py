"""The options of networks for pods."""

import click
import pytest

from dralab.cli._pod_network import check_room, cluster_network, pod_network
from dralab.cli.errors import UnusableInput
from dralab.components.nodes import NodeOptions
from dralab.node.network.cluster_network import ClusterNetwork, NetworkUnavailable
from dralab.node.network.sandbox import SandboxError


def test_without_the_option_there_is_no_network():
    assert cluster_network("", "", None, namespaces=True) == (None, None)
    with pod_network(None) as found:
        assert found == ("", "")


def test_the_name_server_is_the_tenth_service():
    network, dns = cluster_network("10.244.0.0/16", "", None, namespaces=True)
    assert (network.machine, network.interface) == ("10.244.0.1", "dra0af40000")
    assert dns.server == "10.0.0.10"
    for services, given, server in (
        ("10.96.0.0/12", "", "10.96.0.10"),
        ("10.96.0.0/29", "", "10.96.0.6"),
        (None, "10.0.0.53", "10.0.0.53"),
    ):
        _, dns = cluster_network("10.244.0.0/16", given, services, namespaces=True)
        assert dns.server == server


@pytest.mark.parametrize(
    ("cidr", "dns", "namespaces", "why"),
    [
        ("", "10.0.0.10", True, "needs --cluster-cidr"),
        ("10.244.0.0/16", "", False, "needs --runtime process and --mount-namespaces"),
        ("10.244.0.0/30", "", True, "is too small"),
        ("10.0.0.0/16", "", True, "overlaps with the network of Services, 10.0.0.0/24"),
        ("10.244.0.0/16", "dns", True, "'dns'"),
    ],
)
def test_options_that_cannot_be_had_are_refused(cidr, dns, namespaces, why):
    with pytest.raises(click.BadParameter) as error:
        cluster_network(cidr, dns, None, namespaces=namespaces)
    assert why in error.value.format_message()


def test_a_machine_without_network_namespaces_says_so(monkeypatch):
    network, _ = cluster_network("10.244.0.0/16", "", None, namespaces=True)

    def start(_self):
        raise NetworkUnavailable("run as root")

    monkeypatch.setattr(ClusterNetwork, "start", start)
    with pytest.raises(UnusableInput, match="run as root"), pod_network(network):
        raise AssertionError("it began")


def test_a_network_has_room_for_so_many_nodes():
    for cidr, most in (("10.244.0.0/23", 1), ("10.244.0.0/20", 15), ("10.244.0.0/15", 252)):
        network, _ = cluster_network(cidr, "", None, namespaces=True)
        check_room(network, NodeOptions(nodes=most))
        with pytest.raises(click.BadParameter) as error:
            check_room(network, NodeOptions(nodes=most + 1))
        assert f"has room for {most} node" in error.value.format_message()


def test_a_node_without_a_network_ends_the_command(monkeypatch):
    network, _ = cluster_network("10.244.0.0/16", "", None, namespaces=True)
    ended = []
    monkeypatch.setattr(ClusterNetwork, "start", lambda _self: None)
    monkeypatch.setattr(ClusterNetwork, "close", lambda _self: ended.append(True))
    with pytest.raises(UnusableInput, match="network of a node: ip: no"), pod_network(network):
        raise SandboxError("ip: no")
    assert ended
