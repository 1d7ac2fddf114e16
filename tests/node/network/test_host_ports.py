"""The rules of `hostPort`."""

from dralab.node.network.host_ports import HostPort, host_ports_of, needs_loopback, rules


def pod(*ports, **spec):
    containers = [{"name": "c", "ports": list(ports)}]
    return {"metadata": {"name": "p"}, "spec": {"containers": containers, **spec}}


def test_ports_are_told_apart_by_address_and_protocol():
    found = host_ports_of(
        pod(
            {"containerPort": 80, "hostPort": 8080, "hostIP": "127.0.0.1"},
            {"containerPort": 81, "hostPort": 8080, "protocol": "UDP"},
            {"containerPort": 82},
        ),
        "10.244.1.2",
    )
    assert found == [
        HostPort(host="127.0.0.1", port=8080, protocol="tcp", pod="10.244.1.2", pod_port=80),
        HostPort(host="", port=8080, protocol="udp", pod="10.244.1.2", pod_port=81),
    ]
    text = rules(found[::-1])
    particular = text.index("ip daddr 127.0.0.1 tcp dport 8080 dnat to 10.244.1.2:80")
    assert particular < text.index("\n    udp dport 8080 dnat to 10.244.1.2:81")


def test_every_address_of_the_node_has_a_port_without_one():
    for host in ("0.0.0.0", "::", ""):  # noqa: S104 - not listened at
        (found,) = host_ports_of(pod({"containerPort": 80, "hostPort": 80, "hostIP": host}), "i")
        assert found.host == ""
        assert needs_loopback([found])
    (found,) = host_ports_of(pod({"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.3"}), "i")
    assert not needs_loopback([found])


def test_a_pod_on_the_nodes_network_needs_no_rule():
    port = {"containerPort": 80, "hostPort": 80}
    assert host_ports_of(pod(port, hostNetwork=True), "i") == []
    assert host_ports_of(pod({**port, "hostIP": "fd00::1"}), "i") == []


def test_no_ports_remove_the_table():
    first, second = rules([]).splitlines()
    assert first.startswith("table ip ")
    assert second == f"delete {first}"
