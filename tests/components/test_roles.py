"""Components run as users of their own, and may do what they do and little else."""

import pytest

from dralab.api.status import ApiError
from dralab.apiserver.access.users import user_named
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.components import control_plane, nodes, roles
from dralab.runtime.local import LocalClient
from dralab.runtime.resources import (
    CLAIM_TEMPLATES,
    CLASSIC_TEMPLATES,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    FAKE_PARAMETERS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICES,
    SLICES,
    STATEFUL_SETS,
    TAINT_RULES,
    VOLUME_CLAIMS,
    VOLUMES,
)
from guardedlab import Guarded


def template(label):
    spec = {"containers": [{"name": "c", "image": "i"}]}
    return {"selector": {"matchLabels": {"app": label}}}, {
        "metadata": {"labels": {"app": label}},
        "spec": spec,
    }


def claiming(name, entry):
    container = {"name": "c", "image": "i", "resources": {"claims": [{"name": "g"}]}}
    spec = {"resourceClaims": [{"name": "g", **entry}], "containers": [container]}
    return {"metadata": {"name": name}, "spec": spec}


def test_a_volume_may_be_made_and_deleted(tmp_path):
    cluster = Guarded(folders=tmp_path)
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    cluster.client.create(VOLUME_CLAIMS, {"metadata": {"name": "c"}, "spec": spec}, "default")
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    pod = {"volumes": [volume], "containers": [{"name": "c", "image": "i"}]}
    cluster.client.create(PODS, {"metadata": {"name": "p"}, "spec": pod}, "default")
    cluster.wait(5)
    assert cluster.running() == ["p"]
    assert len(list(tmp_path.iterdir())) == 1
    cluster.client.delete(PODS, "p", "default")
    cluster.client.delete(VOLUME_CLAIMS, "c", "default")
    cluster.wait(60)
    assert cluster.client.list(VOLUMES).items == []
    assert list(tmp_path.iterdir()) == []
    assert cluster.refused == []


def test_nothing_that_a_cluster_does_is_refused():
    cluster = Guarded()
    client = cluster.client
    for name, resource, more in [
        ("deployment", DEPLOYMENTS, {"replicas": 2}),
        ("daemons", DAEMON_SETS, {}),
        ("set", STATEFUL_SETS, {"serviceName": "s"}),
    ]:
        selector, pods = template(name)
        spec = {**selector, **more, "template": pods}
        client.create(resource, {"metadata": {"name": name}, "spec": spec}, "default")
    job = {"template": {"spec": {**template("j")[1]["spec"], "restartPolicy": "Never"}}}
    client.create(JOBS, {"metadata": {"name": "job"}, "spec": job}, "default")
    brief = {**job, "ttlSecondsAfterFinished": 1}
    client.create(JOBS, {"metadata": {"name": "brief"}, "spec": brief}, "default")
    service = {"selector": {"app": "deployment"}, "ports": [{"port": 80}]}
    client.create(SERVICES, {"metadata": {"name": "s"}, "spec": service}, "default")
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "50"}}}
    client.create(RESOURCE_QUOTAS, quota, "default")
    request = {"name": "r", "exactly": {"deviceClassName": "gpu.example.com"}}
    devices = {"metadata": {"name": "t"}, "spec": {"spec": {"devices": {"requests": [request]}}}}
    client.create(CLAIM_TEMPLATES, devices, "default")
    client.create(PODS, claiming("gpu", {"resourceClaimTemplateName": "t"}), "default")
    cluster.wait(8)
    assert [each["metadata"]["name"] for each in client.list(JOBS).items] == ["job"]
    assert cluster.running() == [
        "daemons",
        "daemons",
        "deployment",
        "deployment",
        "gpu",
        "job",
        "set",
    ]
    assert len(client.list(SLICES).items) == 2
    assert client.get(CLUSTER_ROLES, "view")["rules"]
    # And the end of it all: evictions, a node that is gone, namespaces.
    taint = {"key": "k", "effect": "NoExecute"}
    rule = {"deviceSelector": {"driver": "gpu.example.com"}, "taint": taint}
    client.create(TAINT_RULES, {"metadata": {"name": "r"}, "spec": rule})
    client.create(NAMESPACES, {"metadata": {"name": "n"}})
    client.create(CONFIG_MAPS, {"metadata": {"name": "m"}}, "n")
    client.delete(NAMESPACES, "n")
    client.delete(DEPLOYMENTS, "deployment", "default")
    client.patch(NODES, "node-1", {"spec": {"taints": [taint]}})
    cluster.wait(25)
    assert "deployment" not in cluster.running()
    assert "gpu" not in cluster.running()
    assert "n" not in [each["metadata"]["name"] for each in client.list(NAMESPACES).items]
    assert cluster.refused == []


def test_nothing_that_a_cluster_of_classic_dra_does_is_refused():
    cluster = Guarded(("v1", "classic"))
    spec = {"spec": {"resourceClassName": "fake.3-shake.com"}}
    cluster.client.create(CLASSIC_TEMPLATES, {"metadata": {"name": "t"}, "spec": spec}, "default")
    source = {"source": {"resourceClaimTemplateName": "t"}}
    cluster.client.create(PODS, claiming("classic", source), "default")
    cluster.wait(30)
    assert cluster.running() == ["classic"]
    wrong = {"spec": {"count": 0}, "metadata": {"name": "wrong"}}
    cluster.client.create(FAKE_PARAMETERS, wrong, "default")
    reference = {"apiGroup": "fake.resource.3-shake.com", "kind": "FakeClaimParameters"}
    spec = {"spec": {**spec["spec"], "parametersRef": {**reference, "name": "wrong"}}}
    cluster.client.create(CLASSIC_TEMPLATES, {"metadata": {"name": "w"}, "spec": spec}, "default")
    source = {"source": {"resourceClaimTemplateName": "w"}}
    cluster.client.create(PODS, claiming("wrong", source), "default")
    cluster.wait(30)
    events = cluster.client.list(EVENTS, "default").items
    assert any("spec.count must be 1 or more" in each["message"] for each in events)
    cluster.client.delete(PODS, "wrong", "default")
    cluster.client.delete(PODS, "classic", "default")
    cluster.wait(60)
    assert cluster.running() == []
    assert cluster.refused == []


@pytest.mark.parametrize("classic", [False, True])
def test_nothing_that_a_scheduler_without_controllers_does_is_refused(classic):
    cluster = Guarded(["v1", "classic" if classic else "k8srm"], without=["controllers"])
    for node in ("node-0", "node-1"):
        cluster.client.patch(NODES, node, {"spec": {"taints": None}})
    pod = {"metadata": {"name": "plain"}, "spec": template("x")[1]["spec"]}
    cluster.client.create(PODS, pod, "default")
    cluster.wait(10)
    assert cluster.running() == ["plain"]
    assert cluster.refused == []


@pytest.mark.parametrize(
    ("user", "ask"),
    [
        ("system:kube-scheduler", lambda client: client.list(SECRETS)),
        ("system:kube-scheduler", lambda client: client.delete(NODES, "node-0")),
        ("system:node:node-0", lambda client: client.list(PODS)),
        ("system:node:node-0", lambda client: client.delete(SLICES, "absent")),
        ("system:node:node-0", lambda client: client.patch(NODES, "node-1", {"spec": {}})),
        (control_plane.READER, lambda client: client.delete(PODS, "p", "default")),
        (nodes.NODES_USER, lambda client: client.list(SECRETS)),
        (nodes.NODES_USER, lambda client: client.delete_collection(PODS, "default")),
        (nodes.NODES_USER, lambda client: client.post(PODS, "p", "binding", {}, "default")),
        (
            "system:serviceaccount:kube-system:job-controller",
            lambda client: client.create(SECRETS, {"metadata": {"name": "s"}}, "default"),
        ),
    ],
)
def test_a_component_may_do_no_more_than_its_work(user, ask):
    server = ApiServer(MemoryStore(), authorization=("Node", "RBAC"))
    admin = LocalClient(server.resources, server.hub)
    roles.install(admin)
    for name in ("node-0", "node-1"):
        admin.create(NODES, {"metadata": {"name": name}})
    with pytest.raises(ApiError) as caught:
        ask(LocalClient(server.resources, server.hub, user=user_named(user)))
    assert caught.value.reason == "Forbidden"
