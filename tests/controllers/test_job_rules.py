"""The rules of a job about its pods that failed and its indexes that are done."""

import pytest

from dralab.controllers.job_failures import (
    end_of_indexes,
    failed_indexes,
    failures,
    has_failed,
    index_of,
    indexes,
    judged,
    ranges,
    success,
)

INDEX = "batch.kubernetes.io/job-completion-index"
FAILURES = "batch.kubernetes.io/job-index-failure-count"


def made(phase="Failed", *, index=None, before=None, code=None, inits=(), deleting=False, **held):
    notes = {} if index is None else {INDEX: str(index)}
    notes |= {} if before is None else {FAILURES: str(before)}
    metadata = {"name": "p", "namespace": "d", "annotations": notes}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    status = {"phase": phase, "initContainerStatuses": [ended("i", each) for each in inits]}
    if code is not None:
        status["containerStatuses"] = [ended("m", code)]
    status["conditions"] = [{"type": name, "status": value} for name, value in held.items()]
    return {"metadata": metadata, "status": status}


def ended(name, code):
    return {"name": name, "state": {} if code == "runs" else {"terminated": {"exitCode": code}}}


def job(*rules, **spec):
    return {"spec": {"podFailurePolicy": {"rules": list(rules)}, **spec}}


def by_code(operator, *values, action="Ignore", **more):
    return {"action": action, "onExitCodes": {"operator": operator, "values": values, **more}}


def by_condition(*patterns, action="Ignore"):
    return {"action": action, "onPodConditions": list(patterns)}


@pytest.mark.parametrize(
    ("rules", "pod", "action"),
    [
        ([], made(code=1), "Count"),
        ([by_code("In", 1, 2)], made(code=2), "Ignore"),
        ([by_code("In", 1, 2)], made(code=3), "Count"),
        ([by_code("NotIn", 1, 2)], made(code=3), "Ignore"),
        ([by_code("NotIn", 1, 2)], made(code=2), "Count"),
        ([by_code("NotIn", 1, 2)], made(code=0), "Count"),
        ([by_code("In", 0)], made(code=0), "Count"),
        ([by_code("In", 1)], made(code="runs"), "Count"),
        ([by_code("In", 1)], made(code=0, inits=[1]), "Ignore"),
        ([by_code("In", 1, containerName="m")], made(code=0, inits=[1]), "Count"),
        ([by_code("In", 1, containerName="m")], made(code=1), "Ignore"),
        ([by_code("In", 1), by_code("NotIn", 9, action="FailJob")], made(code=2), "FailJob"),
        ([by_code("In", 1), by_code("In", 1, action="FailJob")], made(code=1), "Ignore"),
        ([by_condition({"type": "A"})], made(A="True"), "Ignore"),
        ([by_condition({"type": "A"})], made(A="False"), "Count"),
        ([by_condition({"type": "A", "status": "False"})], made(A="False"), "Ignore"),
        ([by_condition({"type": "A"}, {"type": "B"})], made(B="True"), "Ignore"),
        ([by_condition({"type": "A"})], made(B="True"), "Count"),
    ],
)
def test_the_first_rule_that_matches_decides(rules, pod, action):
    assert judged(job(*rules), pod).action == action


def test_a_rule_says_what_it_found():
    rules = [by_code("In", 9), by_condition({"type": "A"}, action="FailJob")]
    assert judged(job(*rules), made(code=9)).message == (
        "Container m for pod d/p failed with exit code 9 matching Ignore rule at index 0"
    )
    assert judged(job(*rules), made(A="True")).message == (
        "Pod d/p has condition A matching FailJob rule at index 1"
    )


@pytest.mark.parametrize(
    ("pod", "policy", "failed"),
    [
        (made("Failed"), None, True),
        (made("Failed"), "Failed", True),
        (made("Running"), None, False),
        (made("Running", deleting=True), None, True),
        (made("Running", deleting=True), "TerminatingOrFailed", True),
        (made("Running", deleting=True), "Failed", False),
        (made("Succeeded", deleting=True), None, False),
    ],
)
def test_a_pod_that_is_deleted_has_failed_unless_its_end_is_awaited(pod, policy, failed):
    assert has_failed(job(podReplacementPolicy=policy), pod) is failed


def test_failures_of_an_index_add_up_over_its_pods():
    pods = [
        made(index=0), made(index=1, before=2), made("Running", index=2, before=3),
        made("Running", index=3), made(index=4, before="x"), made(), made(index="x"),
        made(index=5, code=9), made(index=5, before=1, code=9), made(index=1),
    ]  # fmt: skip
    asked = job(by_code("In", 9), backoffLimitPerIndex=1)
    assert failures(asked, pods) == {0: 1, 1: 3, 2: 3, 4: 1, 5: 1}
    assert failed_indexes(asked, pods) == {1, 2}
    assert failed_indexes(job(), pods) == set()
    lost = job(by_code("In", 9, action="FailIndex"), backoffLimitPerIndex=9)
    assert failed_indexes(lost, pods) == {5}
    assert failed_indexes(lost, [made("Running", index=5, code=9), made(code=9)]) == set()
    assert [index_of(each) for each in pods[:2]] == [0, 1]
    assert index_of(pods[5]) is index_of(pods[6]) is None


@pytest.mark.parametrize(
    ("failed", "most", "succeeded", "reason"),
    [
        (0, 0, 4, None),
        (1, None, 2, None),
        (1, None, 3, "FailedIndexes"),
        (2, 1, 0, "MaxFailedIndexesExceeded"),
        (1, 1, 0, None),
        (1, 0, 3, "MaxFailedIndexesExceeded"),
        (4, None, None, "FailedIndexes"),
    ],
)
def test_a_job_fails_for_its_indexes_once_none_is_left_or_too_many_failed(
    failed, most, succeeded, reason
):
    asked = {"spec": {"completions": 4, "maxFailedIndexes": most}}
    asked["status"] = {} if succeeded is None else {"succeeded": succeeded}
    found = end_of_indexes(asked, failed)
    assert (found and found[0]) == reason


@pytest.mark.parametrize(
    ("rules", "done", "met"),
    [
        ([], {0, 1}, ""),
        ([{"succeededIndexes": "0-1"}], {0, 1, 5}, 0),
        ([{"succeededIndexes": "0-1"}], {1, 5}, ""),
        ([{"succeededIndexes": "0-3", "succeededCount": 2}], {1, 3}, 0),
        ([{"succeededIndexes": "0-3", "succeededCount": 2}], {1, 4}, ""),
        ([{"succeededCount": 2}], {8, 9}, 0),
        ([{"succeededCount": 3}, {"succeededCount": 2}], {8, 9}, 1),
        ([{"succeededCount": 3}], {8, 9}, ""),
        ([{}], {8}, ""),
    ],
)
def test_a_success_policy_is_met_by_the_first_rule_that_holds(rules, done, met):
    found = success({"spec": {"successPolicy": {"rules": rules}}}, done)
    assert found == (met if met == "" else f"Matched rules at index {met}")


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        (set(), ""),
        ({0}, "0"),
        ({0, 1}, "0,1"),
        ({0, 1, 2}, "0-2"),
        ({0, 2}, "0,2"),
        ({3, 4, 5, 7, 9, 10, 20, 21, 22, 23}, "3-5,7,9,10,20-23"),
    ],
)
def test_numbers_are_told_as_ranges(numbers, text):
    assert ranges(numbers) == text
    assert indexes(text) == numbers
