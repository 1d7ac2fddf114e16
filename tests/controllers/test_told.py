"""What controllers say and write beside their main work, as kube-controller-manager 1.36 does.

Each expectation was read from the same steps under the stock kube-controller-manager.
"""

import pytest

from builders import pod
from dralab.controllers import registry
from dralab.runtime.resources import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    EVENTS,
    JOBS,
    NAMESPACES,
    PODS,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    VOLUME_CLAIMS,
)
from labs import Lab

RETENTION = "persistentVolumeClaimRetentionPolicy"


@pytest.fixture
def lab():
    made = Lab()
    registry.assemble(made.manager)
    made.add_node("n0")
    made.start()
    made.wait(1)
    return made


def template(app="x"):
    containers = [{"name": "c", "image": "busybox"}]
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": containers}}


def workload(name, app="x", **spec):
    selector = {"matchLabels": {"app": app}}
    metadata = {"name": name, "namespace": "default"}
    return {"metadata": metadata, "spec": {"selector": selector, "template": template(app), **spec}}


def said(lab, kind):
    """Return the events of a kind of object: (name, type, reason, message, reporter)."""
    return {
        (
            event["involvedObject"]["name"],
            event["type"],
            event["reason"],
            event["message"],
            event["source"]["component"],
        )
        for event in lab.all(EVENTS)
        if event["involvedObject"]["kind"] == kind
    }


def budget(name, app, **spec):
    spec["selector"] = {"matchLabels": {"app": app}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def claim(name, **spec):
    spec |= {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def with_claims(name, deleted, scaled):
    made = claim("data", storageClassName="none")
    return workload(
        name,
        name,
        replicas=2,
        podManagementPolicy="Parallel",
        volumeClaimTemplates=[{"metadata": {"name": "data"}, "spec": made["spec"]}],
        **{RETENTION: {"whenDeleted": deleted, "whenScaled": scaled}},
    )


def test_sets_count_the_pods_that_are_ending(lab):
    lab.add(DEPLOYMENTS, workload("d", replicas=2))
    lab.wait(1)
    for each in lab.all(PODS):
        lab.bind(each["metadata"]["name"], "n0")
    lab.client.patch(DEPLOYMENTS, "d", {"spec": {"replicas": 1}}, "default")
    lab.wait(1)
    (replica_set,) = lab.all(REPLICA_SETS)
    assert replica_set["status"]["terminatingReplicas"] == 1
    assert lab.get(DEPLOYMENTS, "d")["status"]["terminatingReplicas"] == 1


def test_noting_its_revision_is_no_new_generation_of_a_deployment(lab):
    lab.add(DEPLOYMENTS, workload("d"))
    lab.wait(1)
    metadata = lab.get(DEPLOYMENTS, "d")["metadata"]
    assert metadata["annotations"] == {"deployment.kubernetes.io/revision": "1"}
    assert metadata["generation"] == 1


def test_a_paused_deployment_without_pods_lacks_none(lab):
    lab.add(DEPLOYMENTS, workload("d", paused=True))
    lab.wait(1)
    assert "unavailableReplicas" not in lab.get(DEPLOYMENTS, "d")["status"]


def test_a_rollback_is_noted_on_the_set_that_came_back(lab):
    lab.add(DEPLOYMENTS, workload("d"))
    lab.wait(1)
    for app_version in ("2", None, "3", None):
        patch = {"metadata": {"annotations": {"version": app_version}}}
        lab.client.patch(DEPLOYMENTS, "d", {"spec": {"template": patch}}, "default")
        lab.wait(1)
    marks = {
        item["metadata"]["annotations"]["deployment.kubernetes.io/revision"]: item["metadata"][
            "annotations"
        ].get("deployment.kubernetes.io/revision-history")
        for item in lab.all(REPLICA_SETS)
    }
    assert marks == {"2": None, "4": None, "5": "1,3"}


def test_a_rollout_without_progress_tells_of_its_new_set_and_a_job_of_its_start(lab):
    quota = {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": {"pods": "0"}}}
    lab.add(RESOURCE_QUOTAS, quota)
    lab.wait(1)
    lab.add(DEPLOYMENTS, workload("d"))
    work = {**template("j"), "spec": {**template()["spec"], "restartPolicy": "Never"}}
    lab.add(JOBS, {"metadata": {"name": "j", "namespace": "default"}, "spec": {"template": work}})
    lab.wait(1)
    (replica_set,) = lab.all(REPLICA_SETS)
    told = lab.get(DEPLOYMENTS, "d")["status"]["conditions"]
    (progress,) = [each for each in told if each["type"] == "Progressing"]
    name = replica_set["metadata"]["name"]
    assert progress["reason"] == "NewReplicaSetCreated"
    assert progress["message"] == f'Created new replica set "{name}"'
    status = lab.get(JOBS, "j")["status"]
    assert status["startTime"]
    assert (status["ready"], status["terminating"]) == (0, 0)


def test_the_pods_of_a_namespace_go_before_everything_else(lab):
    lab.add(PODS, {**pod("p"), "metadata": {"name": "p", "namespace": "n", "finalizers": ["a/b"]}})
    lab.add(CONFIG_MAPS, {"metadata": {"name": "c", "namespace": "n"}})
    lab.delete(NAMESPACES, "n", namespace="")
    lab.wait(30)
    assert lab.find(CONFIG_MAPS, "c", "n") is not None
    lab.client.patch(PODS, "p", {"metadata": {"finalizers": None}}, "n")
    lab.wait(30)
    assert lab.find(NAMESPACES, "n", namespace="") is None


def test_a_stateful_set_names_pods_and_claims_in_its_words(lab):
    lab.add(STATEFUL_SETS, with_claims("s", "Retain", "Retain"))
    lab.wait(1)
    lab.client.patch(STATEFUL_SETS, "s", {"spec": {"replicas": 1}}, "default")
    lab.wait(1)
    assert {found[2:4] for found in said(lab, "StatefulSet")} == {
        ("SuccessfulCreate", "Create Pod s-0 in StatefulSet s successful"),
        ("SuccessfulCreate", "Create Pod s-1 in StatefulSet s successful"),
        ("SuccessfulCreate", "Create Claim data-s-0 Pod s-0 in StatefulSet s success"),
        ("SuccessfulCreate", "Create Claim data-s-1 Pod s-1 in StatefulSet s success"),
        ("SuccessfulDelete", "Delete Pod s-1 in StatefulSet s successful"),
    }


def test_a_stateful_set_says_why_it_cannot_make_a_pod(lab):
    quota = {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": {"pods": "0"}}}
    lab.add(RESOURCE_QUOTAS, quota)
    lab.wait(1)
    lab.add(STATEFUL_SETS, workload("s"))
    lab.wait(1)
    ((_, type_, reason, message, _),) = said(lab, "StatefulSet")
    assert (type_, reason) == ("Warning", "FailedCreate")
    assert message.startswith('Create Pod s-0 in StatefulSet s failed error: pods "s-0" is forb')


@pytest.mark.parametrize(
    ("deleted", "scaled", "after_scaling", "after_deletion"),
    [
        ("Retain", "Retain", ["data-s-0", "data-s-1"], ["data-s-0", "data-s-1"]),
        ("Delete", "Retain", ["data-s-0", "data-s-1"], []),
        ("Retain", "Delete", ["data-s-0"], ["data-s-0"]),
        ("Delete", "Delete", ["data-s-0"], []),
    ],
)
def test_claims_of_a_stateful_set_go_as_its_policy_says(
    lab, deleted, scaled, after_scaling, after_deletion
):
    lab.add(STATEFUL_SETS, with_claims("s", deleted, scaled))
    lab.wait(2)
    assert lab.names(VOLUME_CLAIMS) == ["data-s-0", "data-s-1"]
    lab.client.patch(STATEFUL_SETS, "s", {"spec": {"replicas": 1}}, "default")
    lab.wait(5)
    assert lab.names(VOLUME_CLAIMS) == after_scaling
    lab.delete(STATEFUL_SETS, "s")
    lab.wait(5)
    assert lab.names(VOLUME_CLAIMS) == after_deletion


def test_a_policy_that_changes_gives_claims_another_owner(lab):
    lab.add(STATEFUL_SETS, with_claims("s", "Retain", "Retain"))
    lab.wait(2)
    for policy, owners in (("Delete", ["StatefulSet"]), ("Retain", [])):
        patch = {"spec": {RETENTION: {"whenDeleted": policy}}}
        lab.client.patch(STATEFUL_SETS, "s", patch, "default")
        lab.wait(1)
        (held, _) = lab.all(VOLUME_CLAIMS)
        assert [each["kind"] for each in held["metadata"].get("ownerReferences", [])] == owners


def test_a_set_becomes_the_controller_of_its_claims_again(lab):
    lab.add(STATEFUL_SETS, with_claims("s", "Delete", "Retain"))
    lab.wait(2)
    (owner,) = lab.get(VOLUME_CLAIMS, "data-s-0")["metadata"]["ownerReferences"]
    patch = {"metadata": {"ownerReferences": [{**owner, "controller": False}]}}
    lab.client.patch(VOLUME_CLAIMS, "data-s-0", patch, "default")
    lab.client.patch(STATEFUL_SETS, "s", {"metadata": {"labels": {"a": "b"}}}, "default")
    lab.wait(1)
    assert lab.get(VOLUME_CLAIMS, "data-s-0")["metadata"]["ownerReferences"] == [owner]


def test_a_claim_that_another_controller_owns_stays_when_its_set_shrinks(lab):
    lab.add(STATEFUL_SETS, with_claims("s", "Delete", "Retain"))
    lab.wait(2)
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u", "controller": True}
    lab.add(CONFIG_MAPS, {"metadata": {"name": "o", "namespace": "default"}})
    other["uid"] = lab.get(CONFIG_MAPS, "o")["metadata"]["uid"]
    patch = {"metadata": {"ownerReferences": [other]}}
    lab.client.patch(VOLUME_CLAIMS, "data-s-1", patch, "default")
    policy = {RETENTION: {"whenDeleted": "Delete", "whenScaled": "Delete"}}
    lab.client.patch(STATEFUL_SETS, "s", {"spec": {"replicas": 0, **policy}}, "default")
    lab.wait(5)
    assert lab.names(PODS) == []
    assert lab.names(VOLUME_CLAIMS) == ["data-s-1"]
    owners = lab.get(VOLUME_CLAIMS, "data-s-1")["metadata"]["ownerReferences"]
    assert [each["kind"] for each in owners] == ["ConfigMap"]


def test_the_template_of_a_daemon_set_has_a_number(lab):
    lab.add(DAEMON_SETS, workload("d"))
    lab.wait(1)
    mark = "deprecated.daemonset.template.generation"

    def number():
        return lab.get(DAEMON_SETS, "d")["metadata"]["annotations"][mark]

    assert number() == "1"
    lab.client.patch(DAEMON_SETS, "d", {"spec": {"minReadySeconds": 1}}, "default")
    assert number() == "1"
    spec = {"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}}
    lab.client.patch(
        DAEMON_SETS, "d", {**spec, "metadata": {"annotations": {mark: "9"}}}, "default"
    )
    assert number() == "2"
    lab.wait(1)
    (made,) = [each for each in lab.all(PODS) if "deletionTimestamp" not in each["metadata"]]
    assert made["metadata"]["labels"]["pod-template-generation"] == "2"


def test_the_number_of_a_template_stays_when_a_status_is_written_without_it(lab):
    lab.add(DAEMON_SETS, workload("d"))
    mark = "deprecated.daemonset.template.generation"
    found = lab.get(DAEMON_SETS, "d")
    metadata = {**found["metadata"], "annotations": {}}
    lab.client.update(DAEMON_SETS, {**found, "metadata": metadata}, subresource="status")
    assert lab.get(DAEMON_SETS, "d")["metadata"]["annotations"] == {mark: "1"}


def test_budgets_of_pods_that_nothing_scales_allow_no_disruption(lab):
    lab.add(DAEMON_SETS, workload("d", "d"))
    lab.add(JOBS, {"metadata": {"name": "j", "namespace": "default"}, "spec": {"template": {
        **template("j"), "spec": {**template()["spec"], "restartPolicy": "Never"}}}})  # fmt: skip
    lab.add(PODS, pod("alone", labels={"app": "alone", "tier": "x"}))
    for name in ("d", "j", "alone", "nobody"):
        lab.add(DISRUPTION_BUDGETS, budget(name, name, maxUnavailable=1))
    lab.wait(1)
    for name, owner in (("d", "daemonsets.apps"), ("j", "jobs.batch")):
        (condition,) = lab.get(DISRUPTION_BUDGETS, name)["status"]["conditions"]
        told = f"{owner} does not implement the scale subresource"
        assert (condition["reason"], condition["message"]) == ("SyncFailed", told)
    status = lab.get(DISRUPTION_BUDGETS, "alone")["status"]
    assert (status["expectedPods"], status["disruptionsAllowed"]) == (0, 0)
    events = {
        (name, reason): message for name, _, reason, message, _ in said(lab, "PodDisruptionBudget")
    }
    assert events["nobody", "NoPods"] == "No matching pods found"
    assert ("d", "CalculateExpectedPodCountFailed") in events
    assert (
        "(selector: &LabelSelector{MatchLabels:map[string]string{app: alone,},"
        "MatchExpressions:[]LabelSelectorRequirement{},}) were found to be unmanaged"
    ) in events["alone", "UnmanagedPods"]


def test_a_claim_that_waits_says_what_for(lab):
    for name, provisioner, mode in (
        ("later", "x.example.com", "WaitForFirstConsumer"),
        ("outside", "x.example.com", "Immediate"),
        ("none", "kubernetes.io/no-provisioner", "Immediate"),
    ):
        body = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode}
        lab.add(STORAGE_CLASSES, body)
    names = ("later", "outside", "none", "missing", "")
    lab.add(VOLUME_CLAIMS, *(claim(name or "empty", storageClassName=name) for name in names))
    lab.wait(1)
    events = {name: (type_, reason, message) for name, type_, reason, message, _ in
              said(lab, "PersistentVolumeClaim")}  # fmt: skip
    assert events["later"][1:] == (
        "WaitForFirstConsumer",
        "waiting for first consumer to be created before binding",
    )
    assert events["outside"][1] == "ExternalProvisioning"
    assert "external provisioner 'x.example.com'" in events["outside"][2]
    assert events["none"] == (
        "Warning",
        "ProvisioningFailed",
        "no volume plugin matched name: kubernetes.io/no-provisioner",
    )
    assert events["missing"][2] == 'storageclass.storage.k8s.io "missing" not found'
    assert events["empty"][1] == "FailedBinding"
    marks = lab.get(VOLUME_CLAIMS, "outside")["metadata"]["annotations"]
    assert marks["volume.kubernetes.io/storage-provisioner"] == "x.example.com"


def service(name, selector=None, **spec):
    spec |= {"ports": [{"port": 80}]} if "ports" not in spec else {}
    body = {"selector": selector, **spec} if selector else spec
    return {"metadata": {"name": name, "namespace": "default", "labels": {"l": "v"}}, "spec": body}


def run(lab, name, ip, *, ready=True):
    lab.add(PODS, pod(name, labels={"app": "x"}, nodeName="n0"))
    condition = {
        "type": "Ready",
        "status": "True" if ready else "False",
        "lastTransitionTime": lab.manager.now(),
    }
    ips = {"podIP": ip, "podIPs": [{"ip": ip}]}
    lab.set_status(PODS, name, phase="Running", conditions=[condition], **ips)
    lab.wait(0.2)


def test_a_service_has_endpoints_too(lab):
    lab.add(SERVICES, service("s", {"app": "x"}))
    lab.wait(1)
    found = lab.get(ENDPOINTS, "s")
    assert found["metadata"]["labels"] == {
        "l": "v",
        "endpoints.kubernetes.io/managed-by": "endpoint-controller",
    }
    assert not found.get("subsets")
    run(lab, "b", "10.0.0.2")
    run(lab, "a", "10.0.0.1")
    run(lab, "c", "10.0.0.3", ready=False)
    found = lab.get(ENDPOINTS, "s")
    (subset,) = found["subsets"]
    assert subset["ports"] == [{"port": 80, "protocol": "TCP"}]
    assert [item["ip"] for item in subset["addresses"]] == ["10.0.0.1", "10.0.0.2"]
    assert subset["addresses"][0]["targetRef"]["name"] == "a"
    assert [item["ip"] for item in subset["notReadyAddresses"]] == ["10.0.0.3"]
    changed = "endpoints.kubernetes.io/last-change-trigger-time"
    assert changed in found["metadata"]["annotations"]
    (slice_,) = lab.all(ENDPOINT_SLICES, "default", label_selector="kubernetes.io/service-name=s")
    assert changed in slice_["metadata"]["annotations"]
    lab.delete(PODS, "b")
    lab.wait(1)
    (subset,) = lab.get(ENDPOINTS, "s")["subsets"]
    assert [item["ip"] for item in subset["addresses"]] == ["10.0.0.1"]
    lab.delete(SERVICES, "s")
    lab.wait(1)
    assert lab.find(ENDPOINTS, "s") is None


def test_a_headless_service_without_ports_lists_addresses_alone(lab):
    lab.add(SERVICES, service("s", {"app": "x"}, clusterIP="None", ports=[]))
    run(lab, "a", "10.0.0.1")
    found = lab.get(ENDPOINTS, "s")
    assert found["metadata"]["labels"]["service.kubernetes.io/headless"] == ""
    (subset,) = found["subsets"]
    assert "ports" not in subset
    assert [item["ip"] for item in subset["addresses"]] == ["10.0.0.1"]


def test_endpoints_written_by_hand_are_mirrored(lab):
    lab.add(SERVICES, service("s"))
    own = {
        "metadata": {"name": "s", "namespace": "default", "labels": {"x": "y"}},
        "subsets": [
            {
                "addresses": [{"ip": "10.9.8.7"}, {"ip": "fd00::1"}],
                "notReadyAddresses": [{"ip": "10.9.8.8"}],
                "ports": [{"port": 8000}],
            }
        ],
    }
    lab.add(ENDPOINTS, own)
    lab.wait(1)
    where = {"label_selector": "kubernetes.io/service-name=s"}
    found = sorted(
        lab.all(ENDPOINT_SLICES, "default", **where), key=lambda item: item["addressType"]
    )
    assert [item["addressType"] for item in found] == ["IPv4", "IPv6"]
    assert found[0]["metadata"]["labels"]["x"] == "y"
    assert found[0]["endpoints"] == [
        {"addresses": ["10.9.8.7"], "conditions": {"ready": True}},
        {"addresses": ["10.9.8.8"], "conditions": {"ready": False}},
    ]
    assert found[0]["ports"] == [{"name": "", "port": 8000, "protocol": "TCP"}]
    patch = {"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}}
    lab.client.patch(ENDPOINTS, "s", patch, "default")
    lab.wait(1)
    assert lab.all(ENDPOINT_SLICES, "default", **where) == []
