"""Claims and volumes, with the real server, the scheduler and the controllers."""

import pytest

from builders import pod
from dralab.controllers import registry
from dralab.runtime.resources import (
    PODS,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    VOLUME_CLAIMS,
    VOLUMES,
)
from dralab.scheduler.scheduler import Scheduler
from labs import Lab
from smallselectors import SmallEnvironment

PRETEND = "dralab.dev/pretend"


@pytest.fixture
def lab():
    made = Lab()
    registry.assemble(made.manager)
    Scheduler(made.manager, SmallEnvironment())
    made.add_node("n0")
    made.add_node("n1")
    made.start()
    made.wait(1)
    return made


def storage(name, mode="Immediate", provisioner=PRETEND, **more):
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, **more},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
    }


def volume_claim(name, storage_class="fast", size="1Gi"):
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def volume(name, size="1Gi", **spec):
    return {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/x"},
            **spec,
        },
    }


def using(name, claim_name):
    entry = {"name": "v", "persistentVolumeClaim": {"claimName": claim_name}}
    return pod(name, volumes=[entry])


def phase(lab, resource, name):
    return lab.get(resource, name)["status"].get("phase")


def test_a_claim_gets_the_smallest_volume_that_serves_it(lab):
    lab.add(VOLUMES, volume("tiny", "1Gi"), volume("big", "9Gi"), volume("fit", "3Gi"))
    lab.wait(1)
    assert phase(lab, VOLUMES, "fit") == "Available"
    lab.add(VOLUME_CLAIMS, volume_claim("c", "", "2Gi"))
    lab.wait(1)
    stored = lab.get(VOLUME_CLAIMS, "c")
    assert stored["spec"]["volumeName"] == "fit"
    assert stored["status"]["phase"] == "Bound"
    assert stored["status"]["capacity"] == {"storage": "3Gi"}
    assert phase(lab, VOLUMES, "fit") == "Bound"
    assert phase(lab, VOLUMES, "big") == "Available"


def test_who_chose_a_volume_is_noted(lab):
    named = volume_claim("named", "")
    named["spec"]["volumeName"] = "v"
    lab.add(VOLUMES, volume("v"), volume("w", "9Gi"))
    lab.add(VOLUME_CLAIMS, named)
    lab.wait(1)
    lab.add(VOLUME_CLAIMS, volume_claim("free", ""))
    lab.wait(1)

    def marks(resource, name):
        held = lab.get(resource, name)["metadata"].get("annotations", {})
        return {mark.rpartition("/")[2] for mark in held}

    assert marks(VOLUME_CLAIMS, "named") == {"bind-completed"}
    assert marks(VOLUME_CLAIMS, "free") == {"bind-completed", "bound-by-controller"}
    assert marks(VOLUMES, "v") == marks(VOLUMES, "w") == {"bound-by-controller"}


def test_a_pod_starts_once_a_volume_for_its_claim_appears(lab):
    lab.add(VOLUME_CLAIMS, volume_claim("c", ""))
    lab.add(PODS, using("p", "c"))
    lab.wait(1)
    assert "nodeName" not in lab.get(PODS, "p")["spec"]
    lab.add(VOLUMES, volume("v"))
    lab.wait(3)
    assert lab.get(PODS, "p")["spec"]["nodeName"]


def test_a_claim_says_which_attributes_class_its_volume_had_when_it_was_bound(lab):
    made = volume("v", storageClassName="fast", volumeAttributesClassName="gold")
    made["spec"]["csi"] = {"driver": "d.example.com", "volumeHandle": "h"}
    del made["spec"]["hostPath"]
    lab.add(VOLUMES, made)
    claim = volume_claim("c")
    claim["spec"]["volumeAttributesClassName"] = "gold"
    lab.add(VOLUME_CLAIMS, claim)
    lab.wait(1)
    found = lab.get(VOLUME_CLAIMS, "c")
    assert found["status"]["currentVolumeAttributesClassName"] == "gold"
    status = {**found["status"], "currentVolumeAttributesClassName": "silver"}
    lab.client.update(VOLUME_CLAIMS, {**found, "status": status}, subresource="status")
    lab.wait(1)
    assert lab.get(VOLUME_CLAIMS, "c")["status"]["currentVolumeAttributesClassName"] == "silver"


@pytest.mark.parametrize("mode", ["Immediate", "WaitForFirstConsumer"])
def test_pretended_volumes_are_made_when_they_are_wanted(lab, mode):
    lab.add(STORAGE_CLASSES, storage("fast", mode))
    lab.add(VOLUME_CLAIMS, volume_claim("c"))
    lab.wait(1)
    early = phase(lab, VOLUME_CLAIMS, "c")
    assert early == ("Bound" if mode == "Immediate" else "Pending")
    lab.add(PODS, using("p", "c"))
    lab.wait(2)
    assert phase(lab, VOLUME_CLAIMS, "c") == "Bound"
    assert lab.get(PODS, "p")["spec"]["nodeName"]
    (made,) = lab.all(VOLUMES)
    assert ("nodeAffinity" in made["spec"]) == (mode != "Immediate")


def test_a_pretended_volume_grows_with_its_claim(lab):
    lab.add(STORAGE_CLASSES, {**storage("fast"), "allowVolumeExpansion": True})
    lab.add(VOLUME_CLAIMS, volume_claim("data"))
    lab.wait(1)
    more = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    lab.client.patch(VOLUME_CLAIMS, "data", more, "default")
    lab.wait(1)
    claim = lab.client.get(VOLUME_CLAIMS, "data", "default")
    made = lab.client.get(VOLUMES, claim["spec"]["volumeName"])
    assert made["spec"]["capacity"] == claim["status"]["capacity"] == {"storage": "2Gi"}


def test_a_claim_that_names_no_class_has_the_default_one(lab):
    lab.add(VOLUME_CLAIMS, volume_claim("c", None))
    lab.wait(1)
    assert phase(lab, VOLUME_CLAIMS, "c") == "Pending"
    marks = {"storageclass.kubernetes.io/is-default-class": "true"}
    lab.add(STORAGE_CLASSES, storage("fast", annotations=marks))
    lab.wait(1)
    assert lab.get(VOLUME_CLAIMS, "c")["spec"]["storageClassName"] == "fast"
    assert phase(lab, VOLUME_CLAIMS, "c") == "Bound"


def test_a_claim_in_use_stays_until_its_pod_has_gone_and_its_volume_goes_with_it(lab):
    lab.add(STORAGE_CLASSES, storage("fast"))
    lab.add(VOLUME_CLAIMS, volume_claim("c"))
    lab.add(PODS, using("p", "c"))
    lab.rounds(3)
    lab.delete(VOLUME_CLAIMS, "c")
    lab.wait(2)
    assert lab.find(VOLUME_CLAIMS, "c") is not None
    lab.delete(PODS, "p")
    lab.rounds(3)
    assert lab.find(VOLUME_CLAIMS, "c") is None
    assert lab.all(VOLUMES) == []


def test_a_pod_without_a_node_keeps_no_claim(lab):
    lab.add(VOLUME_CLAIMS, volume_claim("c", "no-such-class"))
    lab.add(PODS, using("p", "c"))
    lab.wait(1)
    lab.delete(VOLUME_CLAIMS, "c")
    lab.wait(1)
    assert lab.find(VOLUME_CLAIMS, "c") is None


def test_a_volume_that_is_to_be_kept_is_released(lab):
    lab.add(VOLUMES, volume("v"))
    lab.add(VOLUME_CLAIMS, volume_claim("c", ""))
    lab.wait(1)
    lab.delete(VOLUME_CLAIMS, "c")
    lab.wait(1)
    assert phase(lab, VOLUMES, "v") == "Released"
    lab.add(VOLUME_CLAIMS, volume_claim("c", ""))
    lab.wait(1)
    assert phase(lab, VOLUME_CLAIMS, "c") == "Pending"
    lab.delete(VOLUMES, "v")
    lab.wait(1)
    assert lab.all(VOLUMES) == []


def test_a_pods_own_volume_comes_and_goes_with_it(lab):
    lab.add(STORAGE_CLASSES, storage("fast", "WaitForFirstConsumer"))
    template = {"spec": volume_claim("x")["spec"]}
    made = pod("p", volumes=[{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}])
    lab.add(PODS, made)
    lab.rounds(3)
    assert lab.get(PODS, "p")["spec"]["nodeName"]
    assert phase(lab, VOLUME_CLAIMS, "p-v") == "Bound"
    lab.delete(PODS, "p")
    lab.rounds(5)
    assert lab.all(VOLUME_CLAIMS) == []
    assert lab.all(VOLUMES) == []


def test_each_pod_of_a_stateful_set_has_a_volume(lab):
    lab.add(STORAGE_CLASSES, storage("fast", "WaitForFirstConsumer"))
    template = pod("x", labels={"app": "db"})
    mount = {"name": "data", "mountPath": "/data"}
    template["spec"]["containers"][0]["volumeMounts"] = [mount]
    lab.add(
        STATEFUL_SETS,
        {
            "metadata": {"name": "db", "namespace": "default"},
            "spec": {
                "serviceName": "db",
                "replicas": 2,
                "selector": {"matchLabels": {"app": "db"}},
                "template": {"metadata": {"labels": {"app": "db"}}, "spec": template["spec"]},
                "volumeClaimTemplates": [volume_claim("data")],
            },
        },
    )
    lab.rounds(8)
    assert [p["status"]["phase"] for p in lab.all(PODS)] == ["Running", "Running"]
    assert len(lab.all(VOLUMES)) == 2
