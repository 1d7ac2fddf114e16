"""A VolumeAttributesClass is kept while a claim or a volume names it."""

import pytest

from dralab.controllers.attributes_classes import AttributesClassProtection
from dralab.runtime.resources import ATTRIBUTES_CLASSES, VOLUME_CLAIMS
from labs import Lab

FINALIZER = "kubernetes.io/vac-protection"


@pytest.fixture
def lab():
    made = Lab()
    AttributesClassProtection(made.manager)
    made.start()
    made.add(
        ATTRIBUTES_CLASSES,
        {"metadata": {"name": "gold"}, "driverName": "d.example.com", "parameters": {"iops": "9"}},
    )
    made.wait(1)
    return made


def names(lab):
    return [each["metadata"]["name"] for each in lab.client.list(ATTRIBUTES_CLASSES).items]


def test_a_class_that_is_not_in_use_goes_when_it_is_deleted(lab):
    assert lab.client.get(ATTRIBUTES_CLASSES, "gold")["metadata"]["finalizers"] == [FINALIZER]
    lab.client.delete(ATTRIBUTES_CLASSES, "gold")
    lab.wait(1)
    assert names(lab) == []


def test_a_deleted_class_stays_until_the_last_claim_that_names_it_is_gone(lab):
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "volumeAttributesClassName": "gold",
    }
    lab.add(VOLUME_CLAIMS, {"metadata": {"name": "c", "namespace": "default"}, "spec": spec})
    lab.client.delete(ATTRIBUTES_CLASSES, "gold")
    lab.wait(1)
    assert names(lab) == ["gold"]
    options = {"gracePeriodSeconds": 0}
    claim = lab.client.get(VOLUME_CLAIMS, "c", "default")
    lab.client.update(VOLUME_CLAIMS, {**claim, "metadata": {**claim["metadata"], "finalizers": []}})
    lab.client.delete(VOLUME_CLAIMS, "c", "default", options=options)
    lab.wait(1)
    assert names(lab) == []


def test_a_class_without_the_finalizer_gets_it(lab):
    stored = lab.client.get(ATTRIBUTES_CLASSES, "gold")
    lab.client.update(
        ATTRIBUTES_CLASSES, {**stored, "metadata": {**stored["metadata"], "finalizers": []}}
    )
    lab.wait(1)
    assert lab.client.get(ATTRIBUTES_CLASSES, "gold")["metadata"]["finalizers"] == [FINALIZER]
