"""How a cluster's range is divided into nodes and pods."""

import pytest

from dralab.node.network.addresses import ClusterRange, PodAddresses, RangeError
from dralab.node.network.topology import machine_interface, pod_in_node_lines


def test_each_node_gets_a_block_of_its_own():
    cluster = ClusterRange.parse("10.244.0.0/22")
    taken = []
    for _ in range(cluster.nodes):
        taken.append(cluster.pod_cidr(taken))
    assert taken == ["10.244.1.0/24", "10.244.2.0/24", "10.244.3.0/24"]
    assert cluster.pod_cidr(["10.244.1.0/24", "192.168.0.0/24"]) == "10.244.2.0/24"
    # A stock controller may have given it a block of another size.
    assert cluster.pod_cidr(["10.244.0.0/23"]) == "10.244.2.0/24"
    with pytest.raises(RangeError, match="no range left"):
        cluster.pod_cidr(taken)


def test_the_first_block_is_for_the_machine_and_nodes():
    cluster = ClusterRange.parse("10.244.0.0/16")
    own = [cluster.machine, cluster.router, cluster.node(0), cluster.node(250)]
    assert [str(each) for each in own] == ["10.244.0.1", "10.244.0.2", "10.244.0.3", "10.244.0.253"]
    with pytest.raises(RangeError, match="addresses for 252 nodes"):
        cluster.node(252)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("10.244.0.0/24", "10.244.0.0/24 is too small: each node takes a /24"),
        ("10.244.0.1/16", "has host bits set; give a network such as 10.244.0.0/16"),
        ("fd00::/48", "give a network such as 10.244.0.0/16"),
        ("pods", "give a network such as 10.244.0.0/16"),
        ("127.0.0.0/8", "127.0.0.0/8 cannot be routed"),
        ("224.0.0.0/16", "224.0.0.0/16 cannot be routed"),
    ],
)
def test_a_range_that_cannot_be_had_is_refused(text, why):
    with pytest.raises(RangeError) as error:
        ClusterRange.parse(text)
    assert why in str(error.value)


@pytest.mark.parametrize("cidr", ["10.245.1.0/24", "10.244.0.0/24", "10.244.0.0/23", "fd00::/64"])
def test_a_node_keeps_no_range_of_another_cluster(cidr):
    cluster = ClusterRange.parse("10.244.0.0/16")
    cluster.check("10.244.1.0/24")
    with pytest.raises(RangeError, match="is not a range for pods within"):
        cluster.check(cidr)


def test_an_address_is_given_again_only_after_all_others():
    addresses = PodAddresses("10.244.1.0/29")
    assert str(addresses.gateway) == "10.244.1.1"
    assert [addresses.take() for _ in range(2)] == ["10.244.1.2", "10.244.1.3"]
    addresses.give_back("10.244.1.2")
    assert [addresses.take() for _ in range(4)] == [
        "10.244.1.4", "10.244.1.5", "10.244.1.6", "10.244.1.2",
    ]  # fmt: skip
    with pytest.raises(RangeError, match="all 5 addresses"):
        addresses.take()


def test_names_of_interfaces_fit_into_the_kernel():
    cluster = ClusterRange.parse("240.0.0.0/8")
    longest = 15  # IFNAMSIZ, without its end
    assert len(machine_interface(cluster)) <= longest
    line = pod_in_node_lines(f"veth{1 << 40:x}", "10.244.1.2", cluster.machine, "/proc/1/fd/3")[0]
    assert len(line.split()[2]) <= longest
