"""ResourceQuotas: what a namespace uses, in the status of each quota."""

import pytest

from dralab.controllers.quotas import ResourceQuotas
from dralab.runtime.resources import RESOURCE_QUOTAS
from labs import Lab


@pytest.fixture
def lab():
    made = Lab()
    ResourceQuotas(made.manager)
    made.start()
    return made


def quota(name, **hard):
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"hard": hard}}


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
