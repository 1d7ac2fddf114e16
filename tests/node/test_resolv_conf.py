"""Which name servers a pod asks; rules and texts of kubelet 1.36."""

import pytest

from dralab.node.resolv_conf import ClusterDns, resolv_conf

MACHINE = (
    "# ours\nnameserver 9.9.9.9\nsearch old\nsearch corp.example. .\noptions timeout:1 rotate\n"
)
DNS = ClusterDns("10.0.0.10")
OF_MACHINE = "search corp.example\nnameserver 9.9.9.9\noptions timeout:1 rotate\n"
OF_CLUSTER = (
    "search ns.svc.cluster.local svc.cluster.local cluster.local corp.example\n"
    "nameserver 10.0.0.10\noptions ndots:5\n"
)


def pod(**spec):
    return {"metadata": {"name": "p", "namespace": "ns"}, "spec": spec}


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({}, OF_CLUSTER),
        ({"dnsPolicy": "ClusterFirst"}, OF_CLUSTER),
        ({"dnsPolicy": "ClusterFirst", "hostNetwork": True}, OF_MACHINE),
        ({"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": True}, OF_CLUSTER),
        ({"dnsPolicy": "Default"}, OF_MACHINE),
        ({"dnsPolicy": "None"}, ""),
    ],
)
def test_the_policy_says_whom_a_pod_asks(spec, text):
    assert resolv_conf(pod(**spec), MACHINE, DNS).text == text


def test_without_a_server_of_the_cluster_the_machines_are_asked():
    assert resolv_conf(pod(dnsPolicy="ClusterFirst"), MACHINE).text == OF_MACHINE


def test_a_pods_own_settings_are_added():
    config = {
        "nameservers": ["1.1.1.1", "10.0.0.10"],
        "searches": ["own.example", "cluster.local"],
        "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
    }
    assert resolv_conf(pod(dnsConfig=config), "", DNS).text == (
        "search ns.svc.cluster.local svc.cluster.local cluster.local own.example\n"
        "nameserver 10.0.0.10\nnameserver 1.1.1.1\noptions ndots:2 edns0\n"
    )


def test_what_is_too_much_is_left_out_and_told():
    config = {
        "nameservers": ["1.1.1.1", "2.2.2.2", "3.3.3.3"],
        "searches": [f"{number}.{'x' * 240}" for number in range(10)] + ["y" * 254],
    }
    found = resolv_conf(pod(dnsConfig=config), "", DNS)
    assert found.text.count("nameserver ") == 3
    assert len(found.text.splitlines()[0].removeprefix("search ")) <= 2048
    servers, paths = found.warnings
    assert servers == (
        "Nameserver limits were exceeded, some nameservers have been omitted, the applied "
        "nameserver line is: 10.0.0.10 1.1.1.1 2.2.2.2"
    )
    assert paths.startswith("Search Line limits were exceeded, some search paths have been omitted")
    assert "y" * 254 not in found.text
    many = {"searches": [f"d{number}" for number in range(32)]}
    assert "d28" in resolv_conf(pod(dnsConfig=many), "", DNS).text
    assert "d29" not in resolv_conf(pod(dnsConfig=many), "", DNS).text
