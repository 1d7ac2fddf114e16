"""What the kubelet of a node may do: read what its pods need, and write what is its own."""

import re

import pytest

from dralab.apiserver.access.users import AUTHENTICATED, NODES, User, node_user
from offices import Office, person

NODE = node_user("n1")
CORE = "/api/v1/namespaces/default"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
WHERE = r'(?:in the namespace "[^"]*"|at the cluster scope): '
MERGE = "application/merge-patch+json"
NO_RELATION = "no relationship found between node 'n1' and this object"


@pytest.fixture
def office():
    office = Office(("Node", "RBAC"))
    for name in ("n1", "n2"):
        office.made("/api/v1/nodes", {"metadata": {"name": name}})
    for namespace in ("default", "other"):
        office.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        office.made(path, {"metadata": {"name": "default"}})
        office.made(path, {"metadata": {"name": "robot"}})
    return office


def pod(office, name, node="n1", namespace="default", **spec):
    spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": node, **spec}
    path = f"/api/v1/namespaces/{namespace}/pods"
    return office.made(path, {"metadata": {"name": name}, "spec": spec})


def reason(office, method, path, body=None, user=NODE, **more):
    """Return the reason of a refused request, without the text common to all refusals."""
    return re.split(WHERE, office.refusal(method, path, body, user, **more))[-1]


def volume(name, **source):
    return {"name": name, **source}


SECRETS = {
    "env": {"containers": [{"name": "c", "image": "i", "env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}]},
    "envFrom": {"initContainers": [{"name": "i", "image": "i", "envFrom": [{"secretRef": {"name": "s"}}]}]},
    "volume": {"volumes": [volume("v", secret={"secretName": "s"})]},
    "projected": {"volumes": [volume("v", projected={"sources": [{"secret": {"name": "s"}}]})]},
    "pull": {"imagePullSecrets": [{"name": "s"}]},
    "csi": {"volumes": [volume("v", csi={"driver": "d", "nodePublishSecretRef": {"name": "s"}})]},
}  # fmt: skip


@pytest.mark.parametrize("way", SECRETS)
def test_a_node_reads_the_secrets_of_its_pods(office, way):
    office.made(f"{CORE}/secrets", {"metadata": {"name": "s"}})
    assert reason(office, "GET", f"{CORE}/secrets/s") == NO_RELATION
    pod(office, "elsewhere", node="n2", **SECRETS[way])
    assert reason(office, "GET", f"{CORE}/secrets/s") == NO_RELATION
    pod(office, "here", **SECRETS[way])
    assert office.ask("GET", f"{CORE}/secrets/s", user=NODE)[0] == 200
    one = f"{CORE}/secrets?fieldSelector=metadata.name%3Ds"
    assert office.ask("GET", one, user=NODE)[0] == 200
    assert reason(office, "GET", f"{CORE}/secrets") == "No Object name found"
    assert reason(office, "DELETE", f"{CORE}/secrets/s") == "can only read resources of this type"
    assert reason(office, "GET", "/api/v1/namespaces/other/secrets/s") == NO_RELATION
    office.ask("DELETE", f"{CORE}/pods/here?gracePeriodSeconds=0")
    assert reason(office, "GET", f"{CORE}/secrets/s") == NO_RELATION


def test_a_node_reads_the_config_maps_of_its_pods(office):
    maps = [
        volume("v", configMap={"name": "a"}),
        volume("w", projected={"sources": [{"configMap": {"name": "b"}}]}),
    ]
    pod(office, "p", volumes=maps)
    assert office.ask("GET", f"{CORE}/configmaps/a", user=NODE)[0] == 404
    assert office.ask("GET", f"{CORE}/configmaps/b", user=NODE)[0] == 404
    assert reason(office, "GET", f"{CORE}/configmaps/c") == NO_RELATION


def test_a_node_reads_the_volumes_of_its_pods_and_their_secrets(office):
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "volumeName": "pv",
    }
    office.made(f"{CORE}/persistentvolumeclaims", {"metadata": {"name": "c"}, "spec": claim})
    secret = {"name": "s", "namespace": "other"}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "d", "volumeHandle": "h", "nodeStageSecretRef": secret},
        "claimRef": {"namespace": "default", "name": "c"},
    }
    office.made("/api/v1/persistentvolumes", {"metadata": {"name": "pv"}, "spec": spec})
    paths = [
        f"{CORE}/persistentvolumeclaims/c",
        "/api/v1/persistentvolumes/pv",
        "/api/v1/namespaces/other/secrets/s",
    ]
    assert all(reason(office, "GET", path) == NO_RELATION for path in paths)
    pod(office, "p", volumes=[volume("v", persistentVolumeClaim={"claimName": "c"})])
    assert [office.ask("GET", path, user=NODE)[0] for path in paths] == [200, 200, 404]
    assert reason(office, "GET", f"{CORE}/persistentvolumeclaims") == (
        "can only get individual resources of this type"
    )
    status = {"status": {"capacity": {"storage": "2Gi"}}}
    path = f"{paths[0]}/status"
    assert office.ask("PATCH", path, status, user=NODE, type=MERGE)[0] == 200
    assert "other than status.capacity" in office.refusal(
        "PATCH", path, {"status": {"phase": "Lost"}}, user=NODE, type=MERGE
    )


def test_a_node_reads_the_claims_of_its_pods(office):
    pod(office, "p", resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}])
    claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    assert office.ask("GET", f"{claims}/mine", user=NODE)[0] == 404
    assert reason(office, "GET", f"{claims}/other") == NO_RELATION
    assert office.ask("GET", claims, user=NODE)[0] == 403
    assert office.ask("PUT", f"{claims}/mine/status", {}, user=NODE)[0] == 403


def test_a_node_sees_its_own_pods_alone(office):
    pod(office, "mine")
    pod(office, "other", node="n2")
    selector = "fieldSelector=spec.nodeName%3D"
    assert office.ask("GET", f"/api/v1/pods?{selector}n1", user=NODE)[0] == 200
    why = "can only list/watch pods with spec.nodeName field selector"
    assert reason(office, "GET", f"/api/v1/pods?{selector}n2") == why
    assert reason(office, "GET", f"/api/v1/pods?{selector.replace('%3D', '!%3D')}n1") == why
    assert reason(office, "GET", "/api/v1/pods") == why
    assert office.ask("GET", f"{CORE}/pods/mine", user=NODE)[0] == 200
    assert reason(office, "GET", f"{CORE}/pods/other") == NO_RELATION


def test_a_node_reads_and_writes_itself_alone(office):
    nodes = "/api/v1/nodes"
    assert office.ask("GET", f"{nodes}/n1", user=NODE)[0] == 200
    assert reason(office, "GET", f"{nodes}/n2") == (
        "node 'n1' cannot read 'n2', only its own Node object"
    )
    assert reason(office, "GET", nodes) == (
        "node 'n1' cannot read all nodes, only its own Node object"
    )
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert office.ask("PATCH", f"{nodes}/n1/status", ready, user=NODE, type=MERGE)[0] == 200
    assert office.refusal("PATCH", f"{nodes}/n2/status", ready, user=NODE, type=MERGE) == (
        'nodes "n2" is forbidden: node "n1" is not allowed to modify node "n2"'
    )
    assert office.ask("DELETE", f"{nodes}/n1", user=NODE)[0] == 403


def test_a_node_registers_itself(office):
    nodes, user = "/api/v1/nodes", node_user("n3")
    labels = {"kubernetes.io/hostname": "n3", "node-role.kubernetes.io/master": ""}
    assert office.refusal("POST", nodes, {"metadata": {"name": "n3", "labels": labels}}, user) == (
        'nodes "n3" is forbidden: node "n3" is not allowed to set the following labels: '
        "node-role.kubernetes.io/master"
    )
    taints = [{"key": "example.com/a", "effect": "NoSchedule"}]
    office.made(nodes, {"metadata": {"name": "n3"}, "spec": {"taints": taints}}, user)
    assert office.ask("POST", nodes, {"metadata": {"name": "n4"}}, user)[0] == 403


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"spec": {"unschedulable": True}}, ""),
        ({"metadata": {"labels": {"example.com/x": "y"}}}, ""),
        ({"metadata": {"labels": {"kubernetes.io/arch": "arm64"}}}, ""),
        ({"metadata": {"labels": {"a.kubelet.kubernetes.io/x": "y"}}}, ""),
        (
            {"metadata": {"labels": {"node-restriction.kubernetes.io/x": "y"}}},
            "is not allowed to modify labels: node-restriction.kubernetes.io/x",
        ),
        (
            {"metadata": {"labels": {"node-role.kubernetes.io/master": "", "k8s.io/a": "b"}}},
            "is not allowed to modify labels: k8s.io/a, node-role.kubernetes.io/master",
        ),
        ({"spec": {"taints": None}}, 'node "n1" is not allowed to modify taints'),
        (
            {
                "metadata": {
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "u"}
                    ]
                }
            },
            'node "n1" is not allowed to modify ownerReferences',
        ),
    ],
)
def test_a_node_calls_no_workloads_to_itself(office, change, why):
    office.ask(
        "PATCH",
        "/api/v1/nodes/n1",
        {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}},
        type=MERGE,
    )
    status, found = office.ask("PATCH", "/api/v1/nodes/n1", change, user=NODE, type=MERGE)
    assert (status, found.get("message", "")) == (
        (403, f'nodes "n1" is forbidden: {why}') if why else (200, "")
    )


def test_a_node_has_a_lease_and_a_csi_node_of_its_own_name(office):
    office.made(LEASES, {"metadata": {"name": "n1"}}, user=NODE)
    assert office.ask("GET", f"{LEASES}/n1", user=NODE)[0] == 200
    own = "can only access node lease with the same name as the requesting node"
    assert office.refusal("POST", LEASES, {"metadata": {"name": "n2"}}, user=NODE).endswith(own)
    assert reason(office, "GET", f"{LEASES}/n2") == own
    elsewhere = LEASES.replace("kube-node-lease", "default")
    message = office.refusal("POST", elsewhere, {"metadata": {"name": "n1"}}, user=NODE)
    assert message.endswith('can only access leases in the "kube-node-lease" system namespace')
    csi = "/apis/storage.k8s.io/v1/csinodes"
    office.made(csi, {"metadata": {"name": "n1"}, "spec": {"drivers": []}}, user=NODE)
    body = {"metadata": {"name": "n2"}, "spec": {"drivers": []}}
    assert "same name as the requesting node" in office.refusal("POST", csi, body, user=NODE)


def slice_of(name, node):
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {"metadata": {"name": name}, "spec": {"driver": "d.x", "nodeName": node, "pool": pool}}


def test_a_node_has_slices_of_its_own(office):
    office.made(SLICES, slice_of("s1", "n1"), user=NODE)
    office.made(SLICES, slice_of("s2", "n2"))
    assert office.refusal("POST", SLICES, slice_of("s3", "n2"), user=NODE) == (
        'resourceslices.resource.k8s.io "s3" is forbidden: can only create ResourceSlice with the '
        "same NodeName as the requesting node"
    )
    assert office.ask("GET", f"{SLICES}/s1", user=NODE)[0] == 200
    assert reason(office, "GET", f"{SLICES}/s2") == NO_RELATION
    assert reason(office, "DELETE", f"{SLICES}/s2") == NO_RELATION
    own = f"{SLICES}?fieldSelector=spec.nodeName%3Dn1"
    assert office.ask("GET", own, user=NODE)[0] == 200
    assert office.ask("GET", SLICES, user=NODE)[0] == 403
    assert office.ask("DELETE", own, user=NODE)[0] == 200
    assert office.ask("GET", f"{SLICES}/s1")[0] == 404
    assert office.ask("GET", f"{SLICES}/s2")[0] == 200


def token(found, **more):
    reference = {"apiVersion": "v1", "kind": "Pod", "name": found["metadata"]["name"]}
    reference["uid"] = found["metadata"]["uid"]
    return {"spec": {"boundObjectRef": {**reference, **more}}}


def test_a_node_gets_tokens_for_its_pods(office):
    mine, other = pod(office, "p", serviceAccountName="robot"), pod(office, "q", node="n2")
    path = f"{CORE}/serviceaccounts/robot/token"
    assert office.ask("POST", path, token(mine), user=NODE)[0] == 201
    assert office.refusal("POST", path, {"spec": {}}, user=NODE).endswith(
        "node requested token not bound to a pod"
    )
    assert "does not match the UID in record" in office.refusal(
        "POST", path, token(mine, uid="u"), user=NODE
    )
    assert office.refusal("POST", path, token(other), user=NODE).endswith(
        "node requested token bound to a pod scheduled on a different node"
    )
    default = f"{CORE}/serviceaccounts/default/token"
    assert reason(office, "POST", default, token(other)) == NO_RELATION


def test_a_node_tells_of_its_pods_and_evicts_them(office):
    pod(office, "mine")
    pod(office, "other", node="n2")
    running = {"status": {"phase": "Running"}}
    path = f"{CORE}/pods"
    assert office.ask("PATCH", f"{path}/mine/status", running, user=NODE, type=MERGE)[0] == 200
    message = office.refusal("PATCH", f"{path}/other/status", running, user=NODE, type=MERGE)
    assert message.endswith(
        'node "n1" can only update pod status for pods with spec.nodeName set to itself'
    )
    claims = {"status": {"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "b"}]}}
    message = office.refusal("PATCH", f"{path}/mine/status", claims, user=NODE, type=MERGE)
    assert message.endswith('node "n1" cannot update resource claim statues')
    labels = {"metadata": {"labels": {"a": "b"}}}
    assert office.ask("PATCH", f"{path}/mine", labels, user=NODE, type=MERGE)[0] == 403
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "other"}}
    message = office.refusal("POST", f"{path}/other/eviction", eviction, user=NODE)
    assert message.endswith("node n1 can only evict pods with spec.nodeName set to itself")
    eviction["metadata"]["name"] = "mine"
    assert office.ask("POST", f"{path}/mine/eviction", eviction, user=NODE)[0] == 201
    assert "can only delete pods" in office.refusal("DELETE", f"{path}/other", user=NODE)
    assert office.ask("DELETE", f"{path}/mine?gracePeriodSeconds=0", user=NODE)[0] in {200, 404}


def test_a_node_makes_mirror_pods_that_give_it_nothing(office):
    uid = office.ask("GET", "/api/v1/nodes/n1")[1]["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": True}
    metadata = {
        "name": "static",
        "annotations": {"kubernetes.io/config.mirror": "x"},
        "ownerReferences": [owner],
    }
    spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": "n1"}
    path = f"{CORE}/pods"

    def refused(change=(), **more):
        body = {"metadata": {**metadata, **dict(change)}, "spec": {**spec, **more}}
        return office.refusal("POST", path, body, user=NODE).partition("forbidden: ")[2]

    assert "can only create mirror pods" in refused({"annotations": {}})
    assert "owner reference set to itself" in refused({"ownerReferences": []})
    assert "UID mismatch" in refused({"ownerReferences": [{**owner, "uid": "u"}]})
    assert "spec.nodeName set to itself" in refused(nodeName="n2")
    assert "reference secrets" in refused(imagePullSecrets=[{"name": "s"}])
    assert "reference service accounts" in refused(serviceAccountName="robot")
    assert "reference persistentvolumeclaims" in refused(
        volumes=[volume("v", persistentVolumeClaim={"claimName": "c"})]
    )
    office.made(path, {"metadata": metadata, "spec": spec}, user=NODE)
    # Nothing is added to one later what would give its node more.
    ephemeral = [{"name": "e", "image": "i", "envFrom": [{"secretRef": {"name": "s"}}]}]
    more = {"spec": {"ephemeralContainers": ephemeral}}
    where = f"{path}/static/ephemeralcontainers"
    assert office.ask("PATCH", where, more, type=MERGE)[0] == 422
    assert reason(office, "GET", f"{CORE}/secrets/s") == NO_RELATION


def test_other_things_are_the_same_for_all_nodes(office):
    assert office.ask("GET", "/api/v1/services", user=NODE)[0] == 200
    assert office.ask("GET", "/version", user=NODE)[0] == 200
    assert office.ask("GET", "/apis/apps/v1/deployments", user=NODE)[0] == 403


def test_a_name_alone_makes_no_node(office):
    nodes = "/api/v1/nodes/n1"
    assert office.ask("GET", nodes, user=person("system:node:n1"))[0] == 403
    nameless = User(name="kubelet", groups=(NODES, AUTHENTICATED))
    assert office.ask("GET", nodes, user=nameless)[0] == 403


def test_what_a_node_may_do_cannot_be_listed(office):
    body = {"spec": {"namespace": "default"}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    status = office.made(path, body, user=NODE)["status"]
    assert status["incomplete"] is True
    assert status["evaluationError"] == "node authorizer does not support user rule resolution"
