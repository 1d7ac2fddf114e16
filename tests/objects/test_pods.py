"""What pods and their owners say."""

import pytest

from dralab.objects.conditions import condition_status, is_true, with_condition
from dralab.objects.metadata import controller_of, key_of, owner_reference, owner_uids
from dralab.objects.pods import containers_of, group_of, is_finished, is_ready
from dralab.objects.workloads import job_end


@pytest.mark.parametrize(
    ("status", "finished"),
    [
        ({"phase": "Succeeded"}, True),
        ({"phase": "Failed"}, True),
        ({"phase": "Running"}, False),
        ({"phase": "Pending"}, False),
        ({"phase": "Unknown"}, False),
        ({}, False),
        (None, False),
    ],
)
def test_succeeded_and_failed_pods_are_finished(status, finished):
    assert is_finished({"status": status}) is finished


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        ([{"type": "Ready", "status": "True"}], True),
        ([{"type": "Ready", "status": "False"}], False),
        ([{"type": "Ready", "status": "Unknown"}], False),
        ([{"type": "ContainersReady", "status": "True"}], False),
        ([], False),
    ],
)
def test_a_pod_is_ready_by_its_condition(conditions, ready):
    assert is_ready({"status": {"conditions": conditions}}) is ready


@pytest.mark.parametrize(
    ("conditions", "status"),
    [
        ([{"type": "Ready", "status": "True"}], "True"),
        ([{"type": "Other", "status": "True"}, {"type": "Ready", "status": "Unknown"}], "Unknown"),
        ([{"type": "Ready"}], ""),
        ([], ""),
        (None, ""),
    ],
)
def test_a_condition_has_a_status_or_is_missing(conditions, status):
    assert condition_status({"status": {"conditions": conditions}}, "Ready") == status


@pytest.mark.parametrize(
    ("conditions", "ending"),
    [
        ([("Complete", "True")], "Complete"),
        ([("Suspended", "True"), ("Failed", "True")], "Failed"),
        ([("FailureTarget", "True"), ("Failed", "False")], None),
        ([], None),
    ],
)
def test_a_job_is_over_by_a_condition_that_is_true(conditions, ending):
    told = [{"type": kind, "status": status} for kind, status in conditions]
    found = job_end({"status": {"conditions": told}})
    assert (found and found["type"]) == ending


def test_a_condition_keeps_its_time_while_its_status_stays():
    old = [{"type": "A", "status": "True", "lastTransitionTime": "then"}]
    same = with_condition(old, {"type": "A", "status": "True", "reason": "R"}, now="now")
    assert [item["lastTransitionTime"] for item in same] == ["then"]
    other = with_condition(old, {"type": "A", "status": "False"}, now="now")
    assert [item["lastTransitionTime"] for item in other] == ["now"]
    assert not is_true({"status": {"conditions": other}}, "A")


def test_the_controller_is_one_of_the_owners():
    owner = {"metadata": {"name": "o", "namespace": "n", "uid": "1"}}
    reference = owner_reference(owner, api_version="v1", kind="Pod")
    owned = {"metadata": {"name": "x", "ownerReferences": [{"uid": "2"}, reference]}}
    assert owner_uids(owned) == ["2", "1"]
    assert controller_of(owned) is reference
    assert controller_of({"metadata": {"name": "x"}}) is None
    assert (str(key_of(owner)), str(key_of(owned))) == ("n/o", "x")


def test_groups_and_containers_may_be_left_out():
    assert group_of({"spec": {"schedulingGroup": {"podGroupName": "g"}}}) == "g"
    assert group_of({"spec": {}}) == ""
    spec = {"containers": [{"name": "b"}], "initContainers": [{"name": "a"}]}
    assert [each["name"] for each in containers_of({"spec": spec})] == ["a", "b"]
    assert list(containers_of({})) == []
