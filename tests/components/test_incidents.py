"""Each broken cluster is broken, its solution mends it, and what looks like one does not."""

import pytest

from dralab import cel
from dralab.api.kinds import Kinds
from dralab.components import incidents
from dralab.components.example import create
from dralab.components.incidents import Incident
from dralab.lab.lab_cluster import LabCluster
from dralab.runtime.client import find
from dralab.runtime.resources import resource_of


def broken(incident: Incident) -> LabCluster:
    cluster = LabCluster(nodes=incidents.NODES, drivers=list(incident.drivers))
    incidents.perform(incident.setup, cluster.client, cluster.wait)
    return cluster


def test_there_are_forty_and_more_of_three_levels() -> None:
    found = [incidents.read(name) for name in incidents.names()]

    assert len(found) >= 40
    assert {each.level for each in found} == {1, 2, 3}
    assert all(each.hints and each.report for each in found)
    for each in found:
        for check in each.mended:
            cel.compile_expression(check.holds, cel.of_objects())


@pytest.mark.thorough
@pytest.mark.parametrize("name", incidents.names())
def test_only_the_repair_mends_it(name: str) -> None:
    incident = incidents.read(name)
    mended, hidden = broken(incident), broken(incident)

    assert incidents.faults(incident, mended.client)
    incidents.perform(incident.solution, mended.client, mended.wait)
    incidents.perform(incident.wrong, hidden.client, hidden.wait)

    assert incidents.faults(incident, mended.client) == []
    assert incidents.faults(incident, hidden.client)
    if without_devices(incident, mended):
        assert incidents.faults(incident, mended.client)


def without_devices(incident: Incident, cluster: LabCluster) -> bool:
    """Take the devices from the first workload that is judged; False: none asks for any."""
    for check in incident.mended:
        resource = resource_of(Kinds.standard(), check.of)
        metadata = check.of["metadata"]
        name, namespace = metadata["name"], metadata.get("namespace", "")
        found = find(cluster.client, resource, name, namespace) or {}
        template = found.get("spec", {}).get("template", found)
        if not template.get("spec", {}).get("resourceClaims"):
            continue
        bare = {"containers": [{"name": "main", "image": "main"}], "resourceClaims": None}
        if template is not found:
            cluster.client.patch(resource, name, {"spec": {"template": {"spec": bare}}}, namespace)
        else:
            cluster.client.delete(resource, name, namespace)
            cluster.wait(60)
            pod = {**check.of, "spec": {"containers": bare["containers"]}}
            create(cluster.client, resource, pod)
        cluster.wait(600)
        return True
    return False


def test_a_pod_without_its_devices_is_not_mended() -> None:
    incident = incidents.read("gated-pod")
    cluster = broken(incident)

    assert without_devices(incident, cluster)
    assert incidents.faults(incident, cluster.client) == [
        "ml/train does not use one-gpu",
        "no container of ml/train gets a device",
    ]


def test_a_repair_is_told_from_what_hides_the_trouble() -> None:
    incident = incidents.read("quota-of-devices")
    cluster = broken(incident)

    assert incidents.faults(incident, cluster.client) == [
        "not 4 of 4 replicas of ml/serve are ready"
    ]
    incidents.perform(incident.wrong, cluster.client, cluster.wait)
    assert incidents.faults(incident, cluster.client) == [
        "the namespace has no quota of GPUs any more"
    ]


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(KeyError):
        incidents.read("../example")
