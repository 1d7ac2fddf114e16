"""ClusterRoles that are put together from others."""

import pytest

from dralab.controllers import registry
from dralab.runtime.resources import CLUSTER_ROLES
from labs import Lab

TO_VIEW = {"example.com/to-view": "true"}
TO_EDIT = {"example.com/to-edit": "true"}


def role(name, *resources, labels=None, selects=None):
    rules = [{"verbs": ["get"], "apiGroups": [""], "resources": [each]} for each in resources]
    found = {"metadata": {"name": name, "labels": labels or {}}, "rules": rules}
    if selects:
        found["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": selects}]}
    return found


@pytest.fixture
def lab():
    lab = Lab()
    registry.CONTROLLERS["clusterrole-aggregation-controller"](lab.manager)
    lab.start()
    return lab


def resources(lab, name):
    lab.settle()
    rules = lab.get(CLUSTER_ROLES, name).get("rules") or []
    return [each for rule in rules for each in rule["resources"]]


def test_a_role_gets_the_rules_of_all_that_it_selects(lab):
    lab.add(CLUSTER_ROLES, role("view", "own", selects=TO_VIEW))
    lab.add(CLUSTER_ROLES, role("b", "pods", "secrets", labels=TO_VIEW))
    lab.add(CLUSTER_ROLES, role("a", "nodes", "pods", labels=TO_VIEW), role("c", "events"))
    assert resources(lab, "view") == ["nodes", "pods", "secrets"]


def test_a_role_may_be_put_together_from_one_that_is_itself(lab):
    lab.add(CLUSTER_ROLES, role("edit", labels=TO_EDIT, selects=TO_EDIT))
    lab.add(CLUSTER_ROLES, role("view", labels=TO_EDIT, selects=TO_VIEW))
    lab.add(CLUSTER_ROLES, role("a", "pods", labels=TO_VIEW))
    assert resources(lab, "edit") == ["pods"]


def test_what_is_no_longer_selected_is_taken_away(lab):
    lab.add(CLUSTER_ROLES, role("view", selects=TO_VIEW))
    lab.add(CLUSTER_ROLES, *(role(name, name, labels=TO_VIEW) for name in ("a", "b", "c")))
    assert resources(lab, "view") == ["a", "b", "c"]
    lab.delete(CLUSTER_ROLES, "a")
    lab.patch(CLUSTER_ROLES, "b", {"metadata": {"labels": {"example.com/to-view": None}}})
    assert resources(lab, "view") == ["c"]


def test_a_role_is_written_only_where_its_rules_change(lab):
    lab.add(CLUSTER_ROLES, role("view", selects=TO_VIEW), role("a", "pods", labels=TO_VIEW))
    lab.settle()
    before = lab.get(CLUSTER_ROLES, "view")["metadata"]["resourceVersion"]
    lab.patch(CLUSTER_ROLES, "a", {"metadata": {"annotations": {"x": "y"}}})
    lab.settle()
    assert lab.get(CLUSTER_ROLES, "view")["metadata"]["resourceVersion"] == before
