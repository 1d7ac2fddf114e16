"""What becomes of a service's fields when its type changes."""

import pytest

from dralab.api.status import ApiError
from dralab.runtime.resources import SERVICES
from labs import Lab


@pytest.mark.parametrize(
    ("before", "change", "left"),
    [
        ({"type": "LoadBalancer"}, {"type": "ClusterIP"}, set()),
        ({"type": "NodePort"}, {"type": "ClusterIP"}, set()),
        ({"type": "LoadBalancer"}, {"type": "NodePort"}, {"externalTrafficPolicy", "nodePort"}),
        (
            {"type": "NodePort", "externalIPs": ["192.0.2.1"]},
            {"type": "ClusterIP"},
            {"externalTrafficPolicy"},
        ),
        (
            {"type": "LoadBalancer", "loadBalancerClass": "a.example.com/b"},
            {"type": "ExternalName", "externalName": "a.example.com"},
            set(),
        ),
    ],
)
def test_fields_of_the_former_type_are_dropped(before, change, left):
    client = Lab().client
    spec = {"ports": [{"port": 80}], **before}
    client.create(SERVICES, {"metadata": {"name": "s"}, "spec": spec}, "default")
    spec = client.patch(SERVICES, "s", {"spec": change}, "default")["spec"]
    of_type = {"allocateLoadBalancerNodePorts", "externalTrafficPolicy", "loadBalancerClass"}
    found = {name for name in of_type if name in spec}
    found |= {"nodePort" for port in spec["ports"] if "nodePort" in port}
    assert found == left


def test_an_address_of_a_load_balancer_is_one_of_its_own_by_default():
    client = Lab().client
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
    client.create(SERVICES, {"metadata": {"name": "s"}, "spec": spec}, "default")
    given = [{"ip": "203.0.113.1"}, {"ip": "203.0.113.2", "ipMode": "Proxy"}, {"hostname": "a.b"}]
    change = {"status": {"loadBalancer": {"ingress": given}}}
    found = client.patch(SERVICES, "s", change, "default", subresource="status")["status"]
    assert [each.get("ipMode") for each in found["loadBalancer"]["ingress"]] == [
        "VIP",
        "Proxy",
        None,
    ]


def test_a_balancer_of_local_traffic_has_a_port_for_health_checks():
    client = Lab().client
    local = {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]}
    made = client.create(SERVICES, {"metadata": {"name": "s"}, "spec": local}, "default")
    number = made["spec"]["healthCheckNodePort"]
    assert 30000 <= number <= 32767
    assert number != made["spec"]["ports"][0]["nodePort"]
    # It stays, also where a client leaves it out, and another service cannot have it.
    put = {**made, "spec": {k: v for k, v in made["spec"].items() if k != "healthCheckNodePort"}}
    assert client.update(SERVICES, put)["spec"]["healthCheckNodePort"] == number
    with pytest.raises(ApiError, match=r"spec\.healthCheckNodePort: Forbidden: field is immutable"):
        client.patch(
            SERVICES, "s", {"spec": {"healthCheckNodePort": 30000 + (number == 30000)}}, "default"
        )
    for wanted, why in ((number, "already allocated"), (80, "not in the valid range")):
        other = {"metadata": {"name": "o"}, "spec": {**local, "healthCheckNodePort": wanted}}
        with pytest.raises(ApiError, match=f"requested HealthCheck NodePort {wanted}: .*{why}"):
            client.create(SERVICES, other, "default")
    left = client.patch(SERVICES, "s", {"spec": {"externalTrafficPolicy": "Cluster"}}, "default")
    assert "healthCheckNodePort" not in left["spec"]
    free = {"metadata": {"name": "o"}, "spec": {**local, "healthCheckNodePort": number}}
    assert client.create(SERVICES, free, "default")["spec"]["healthCheckNodePort"] == number
