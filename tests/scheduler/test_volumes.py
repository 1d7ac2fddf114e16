"""Pods whose volumes decide where they go, or whether they go at all."""

import pytest

from builders import pod, worker
from dralab.kernel.clock import SECOND
from dralab.objects.volumes import BIND_COMPLETED, SELECTED_NODE
from dralab.runtime.resources import EVENTS, NODES, PODS, STORAGE_CLASSES, VOLUME_CLAIMS, VOLUMES
from dralab.scheduler.binding import BINDING_TIMEOUT
from dralab.scheduling.volumes import VolumeDemand

HOST = "kubernetes.io/hostname"


def on(*nodes):
    return {
        "required": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": HOST, "operator": "In", "values": list(nodes)}]}
            ]
        }
    }


def volume(name, *nodes, size="1Gi", storage="local", claim="", modes=("ReadWriteOnce",)):
    spec = {"capacity": {"storage": size}, "accessModes": list(modes), "storageClassName": storage}
    spec |= {"local": {"path": "/v"}} if nodes else {"hostPath": {"path": "/v"}}
    if nodes:
        spec["nodeAffinity"] = on(*nodes)
    if claim:
        spec["claimRef"] = {"namespace": "default", "name": claim}
    return {"metadata": {"name": name}, "spec": spec}


def volume_claim(name, *, size="1Gi", storage="local", bound="", phase="", **spec):
    made = {
        "metadata": {"name": name, "namespace": "default", "annotations": {}},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
            "storageClassName": storage,
            **spec,
        },
        "status": {"phase": phase or ("Bound" if bound else "Pending")},
    }
    if bound:
        made["spec"]["volumeName"] = bound
        made["metadata"]["annotations"][BIND_COMPLETED] = "yes"
    return made


def storage(name, mode="WaitForFirstConsumer", provisioner="kubernetes.io/no-provisioner", **more):
    return {
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
        **more,
    }


def using(name, *claims, **more):
    volumes = [
        {"name": f"v{i}", "persistentVolumeClaim": {"claimName": each}}
        for i, each in enumerate(claims)
    ]
    return pod(name, volumes=volumes, **more)


@pytest.fixture
def cluster(lab):
    lab.server.add(NODES, worker("n0"), worker("n1"))
    lab.server.add(STORAGE_CLASSES, storage("local"), storage("now", "Immediate", "x.example"))
    lab.start()
    return lab


def bind(lab, name, volume_name):
    """Be the binder: complete what the scheduler began."""
    found = lab.get(VOLUME_CLAIMS, name)
    marks = {**found["metadata"].get("annotations", {}), BIND_COMPLETED: "yes"}
    metadata = {**found["metadata"], "annotations": marks}
    lab.server.update(
        VOLUME_CLAIMS,
        {**found, "metadata": metadata, "spec": {**found["spec"], "volumeName": volume_name}},
    )
    lab.engine.settle()


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ([], 'persistentvolumeclaim "c" not found'),
        ([volume_claim("c", storage="now")], "pod has unbound immediate PersistentVolumeClaims"),
        ([volume_claim("c", storage="")], "pod has unbound immediate PersistentVolumeClaims"),
        (
            [volume_claim("c", bound="gone", phase="Lost")],
            'persistentvolumeclaim "c" bound to non-existent persistentvolume "gone"',
        ),
        (
            [volume_claim("c", storage="local")],
            "2 node(s) didn't find available persistent volumes to bind",
        ),
    ],
)
def test_a_pod_waits_for_its_volumes_and_says_so(cluster, claims, why):
    cluster.add(VOLUME_CLAIMS, *claims)
    cluster.add(PODS, using("p", "c"))
    assert cluster.why("p").startswith(f"0/2 nodes are available: {why}.")


def test_a_pod_goes_where_its_volume_is(cluster):
    cluster.add(VOLUMES, volume("v", "n1", claim="c"))
    cluster.add(VOLUME_CLAIMS, volume_claim("c", bound="v"))
    cluster.add(PODS, using("p", "c"), using("far", "c", nodeSelector={HOST: "n0"}))
    assert cluster.node_of("p") == "n1"
    assert cluster.why("far").startswith(
        "0/2 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, "
        "1 node(s) didn't match Pod's node affinity/selector."
    )


def test_a_claim_that_is_bound_at_last_lets_its_pod_go(cluster):
    cluster.add(VOLUME_CLAIMS, volume_claim("c", storage="now"))
    cluster.add(PODS, using("p", "c"))
    assert cluster.node_of("p") is None
    cluster.add(VOLUMES, volume("v", storage="now", claim="c"))
    bind(cluster, "c", "v")
    cluster.wait(3)
    assert cluster.node_of("p")


def test_the_first_consumer_decides_which_volume_a_claim_gets(cluster):
    cluster.add(VOLUMES, volume("big", "n1", size="9Gi"), volume("small", "n1", size="2Gi"))
    cluster.add(VOLUME_CLAIMS, volume_claim("c"))
    cluster.add(PODS, using("p", "c"))
    held = cluster.get(VOLUMES, "small")["spec"]["claimRef"]
    assert (held["namespace"], held["name"]) == ("default", "c")
    assert held["uid"] == cluster.get(VOLUME_CLAIMS, "c")["metadata"]["uid"]
    assert "claimRef" not in cluster.get(VOLUMES, "big")["spec"]
    assert cluster.node_of("p") is None
    bind(cluster, "c", "small")
    assert cluster.node_of("p") == "n1"


def test_no_volume_is_given_to_two_claims(cluster):
    cluster.add(VOLUMES, volume("v0", "n0"), volume("v1", "n1"))
    cluster.add(VOLUME_CLAIMS, *(volume_claim(f"c{i}") for i in range(3)))
    cluster.add(PODS, *(using(f"p{i}", f"c{i}") for i in range(3)))
    held = [cluster.get(VOLUMES, name)["spec"]["claimRef"]["name"] for name in ("v0", "v1")]
    assert len(set(held)) == 2
    (waiting,) = {"c0", "c1", "c2"} - set(held)
    assert "didn't find available persistent volumes" in cluster.why(waiting.replace("c", "p"))


def test_a_volume_that_is_promised_is_not_free(cluster):
    cluster.add(VOLUMES, volume("v", "n0"))
    cluster.add(VOLUME_CLAIMS, volume_claim("c"))
    volumes, table = cluster.scheduler.state.volumes, cluster.scheduler.state.table
    demand = VolumeDemand(unbound=(cluster.get(VOLUME_CLAIMS, "c"),))
    plans = volumes.plans(demand, table.row_of["n0"])
    volumes.assume(plans)
    assert volumes.plans(demand, table.row_of["n0"]) is None
    volumes.forget_plans(plans)
    assert volumes.plans(demand, table.row_of["n0"]) == plans
    assert volumes.plans(demand, table.row_of["n1"]) is None


def test_two_claims_of_a_pod_get_volumes_of_one_node(cluster):
    cluster.add(VOLUMES, volume("a", "n0", size="5Gi"), volume("b", "n1"), volume("c", "n1"))
    cluster.add(VOLUMES, volume("d", "n1", size="5Gi"))
    cluster.add(VOLUME_CLAIMS, volume_claim("large", size="4Gi"), volume_claim("small"))
    cluster.add(PODS, using("p", "small", "large"))
    held = {v["metadata"]["name"]: v["spec"].get("claimRef") for v in cluster.server.all(VOLUMES)}
    assert [name for name, each in held.items() if each] == ["b", "d"]


@pytest.mark.parametrize("zone", ["n0", "n1"])
def test_a_provisioner_is_told_the_node(cluster, zone):
    allowed = [{"matchLabelExpressions": [{"key": HOST, "values": [zone]}]}]
    made = storage("made", provisioner="x.example", allowedTopologies=allowed)
    cluster.add(STORAGE_CLASSES, made)
    cluster.add(VOLUME_CLAIMS, volume_claim("c", storage="made"))
    cluster.add(PODS, using("p", "c"))
    stored = cluster.get(VOLUME_CLAIMS, "c")
    assert stored["metadata"]["annotations"][SELECTED_NODE] == zone
    cluster.add(VOLUMES, volume("v", zone, storage="made", claim="c"))
    bind(cluster, "c", "v")
    assert cluster.node_of("p") == zone


def test_a_volume_that_never_comes_is_waited_for_ten_minutes(cluster):
    cluster.add(STORAGE_CLASSES, storage("made", provisioner="x.example"))
    cluster.add(VOLUME_CLAIMS, volume_claim("c", storage="made"))
    cluster.add(PODS, using("p", "c"))
    cluster.wait(BINDING_TIMEOUT / SECOND - 1)
    assert cluster.scheduler.state.table.free("pods").sum() == 219
    assert not cluster.server.all(EVENTS)
    cluster.wait(2)
    (event,) = cluster.server.all(EVENTS)
    assert event["message"] == "device or volume binding timeout"


def test_a_claim_made_for_a_pod_must_be_there_and_be_its_own(cluster):
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    made = pod("p", volumes=[{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}])
    cluster.add(PODS, made)
    assert "waiting for ephemeral volume controller to create" in cluster.why("p")
    cluster.add(VOLUMES, volume("v", claim="p-v"))
    cluster.add(VOLUME_CLAIMS, volume_claim("p-v", bound="v"))
    cluster.wait(3)
    assert "PVC default/p-v was not created for pod default/p" in cluster.why("p")
