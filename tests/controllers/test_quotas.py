"""ResourceQuotas: what a namespace uses, in the status of each quota."""

import pytest

from dralab.controllers.quotas import ResourceQuotas
from dralab.runtime.client import Resource
from dralab.runtime.resources import CRDS, RESOURCE_QUOTAS
from labs import Lab


@pytest.fixture
def lab():
    made = Lab()
    ResourceQuotas(made.manager)
    made.start()
    return made


def quota(name, **hard):
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"hard": hard}}


def definition():
    schema = {"openAPIV3Schema": {"type": "object"}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {
        "group": "x.io", "scope": "Namespaced", "versions": [version],
        "names": {"plural": "figs", "singular": "fig", "kind": "Fig", "listKind": "FigList"},
    }  # fmt: skip
    return {"metadata": {"name": "figs.x.io"}, "spec": spec}


def used(lab, name):
    return lab.client.get(RESOURCE_QUOTAS, name, "default")["status"]["used"]


def test_a_quota_counts_the_quotas_of_its_namespace_and_itself(lab):
    lab.add(RESOURCE_QUOTAS, quota("one", resourcequotas="5"))
    lab.wait(1)
    assert used(lab, "one") == {"resourcequotas": "1"}
    lab.add(RESOURCE_QUOTAS, quota("two", secrets="5"))
    lab.wait(1)
    assert used(lab, "one") == {"resourcequotas": "2"}
    lab.client.delete(RESOURCE_QUOTAS, "two", "default")
    lab.wait(1)
    assert used(lab, "one") == {"resourcequotas": "1"}


@pytest.mark.parametrize("quota_first", [False, True])
def test_custom_resources_count_as_soon_as_they_are_defined(lab, quota_first):
    steps = [
        lambda: lab.add(CRDS, definition()),
        lambda: lab.add(RESOURCE_QUOTAS, quota("q", **{"count/figs.x.io": "5"})),
    ]
    for step in reversed(steps) if quota_first else steps:
        step()
        lab.wait(1)
    assert used(lab, "q") == {"count/figs.x.io": "0"}
    figs = Resource("x.io", "v1", "figs")
    fig = {
        "apiVersion": "x.io/v1",
        "kind": "Fig",
        "metadata": {"name": "f", "namespace": "default"},
    }
    lab.add(figs, fig)
    lab.wait(1)
    assert used(lab, "q") == {"count/figs.x.io": "1"}
    lab.client.delete(figs, "f", "default")
    lab.wait(1)
    assert used(lab, "q") == {"count/figs.x.io": "0"}
