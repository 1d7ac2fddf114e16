from contextlib import suppress
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import ask as asking
from builders import claim, first_of, pod, request
from dralab.api.status import ApiError
from dralab.apiserver.access.admission.quotas import QuotaLimits
from dralab.objects import quota
from dralab.runtime.resources import CLAIMS, CONFIG_MAPS, PODS, RESOURCE_QUOTAS
from labs import Lab

GPUS = "gpu.deviceclass.resource.k8s.io/devices"


@pytest.fixture
def lab():
    return Lab()


def limit(lab, hard, **spec):
    lab.add(
        RESOURCE_QUOTAS,
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "q", "namespace": "default"},
            "spec": {"hard": hard, **spec},
        },
    )


def refused(lab, resource, obj):
    with pytest.raises(ApiError) as caught:
        lab.add(resource, obj)
    assert caught.value.code == 403
    return caught.value.message


def named(name, *requests):
    return claim(name, *requests, namespace="default")


def test_what_goes_beyond_a_quota_is_refused_in_the_words_of_a_server(lab):
    limit(lab, {"pods": "1"})
    lab.add(PODS, pod("a"))
    assert refused(lab, PODS, pod("b")) == (
        'pods "b" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1'
    )
    lab.delete(PODS, "a")
    lab.add(PODS, pod("b"))


def test_a_finished_pod_counts_no_more(lab):
    limit(lab, {"pods": "1"})
    lab.add(PODS, pod("a"))
    lab.set_status(PODS, "a", phase="Succeeded")
    lab.add(PODS, pod("b"))


def test_a_limited_resource_must_be_asked_for(lab):
    limit(lab, {"requests.cpu": "2", "limits.memory": "1Gi"})
    assert (
        "failed quota: q: must specify limits.memory for: main; requests.cpu for: main"
        in refused(lab, PODS, pod("p"))
    )


def test_devices_of_claims_and_of_extended_resources_count_together(lab):
    limit(lab, {GPUS: "4"})
    lab.add(CLAIMS, named("a", request("r", count=3)))
    implicit = {"deviceclass.resource.kubernetes.io/gpu": "1"}
    made = pod("p")
    made["spec"]["containers"][0]["resources"] = {"requests": implicit, "limits": implicit}
    lab.add(PODS, made)
    assert f"requested: {GPUS}=1, used: {GPUS}=4, limited: {GPUS}=4" in refused(
        lab, CLAIMS, named("b", request("r"))
    )
    lab.add(CLAIMS, named("c", request("r", "nic", count=9)))


def test_other_namespaces_and_kinds_are_free(lab):
    limit(lab, {"count/configmaps": "1"})
    lab.add(CONFIG_MAPS, {"metadata": {"name": "a", "namespace": "default"}})
    assert "count/configmaps=1" in refused(
        lab, CONFIG_MAPS, {"metadata": {"name": "b", "namespace": "default"}}
    )
    lab.add(CONFIG_MAPS, {"metadata": {"name": "b", "namespace": "kube-public"}})
    lab.add(PODS, pod("p"))


def test_a_scope_limits_whom_a_quota_is_about(lab):
    limit(lab, {"pods": "0"}, scopes=["BestEffort"])
    assert "exceeded quota" in refused(lab, PODS, pod("p"))
    lab.add(PODS, pod("asks", requests={"cpu": "1"}))


def test_a_quota_that_is_gone_limits_nothing(lab):
    limit(lab, {"pods": "0"})
    lab.delete(RESOURCE_QUOTAS, "q")
    lab.add(PODS, pod("p"))


@pytest.mark.parametrize(
    ("requests", "devices"),
    [
        ([request("r")], 1),
        ([request("r", count=4), request("s", count=2)], 6),
        ([request("r", count="All")], 32),
        ([first_of("r", big=asking("gpu", count=4), small=asking("gpu"))], 4),
        ([first_of("r", other=asking("nic", count=4), small=asking("gpu"))], 1),
    ],
)
def test_a_claim_counts_for_the_most_that_it_may_get(requests, devices):
    assert quota.usage("resourceclaims", "resource.k8s.io", named("c", *requests))[GPUS] == devices


def account(lab, name="q"):
    (limits,) = (
        each for each in lab.api.resources.context.validating if isinstance(each, QuotaLimits)
    )
    return limits.accounts["default"][name]


@pytest.mark.thorough
@given(st.lists(st.tuples(st.sampled_from(["add", "end", "delete", "relabel"]), st.integers(0, 4))))
def test_what_was_counted_once_is_what_counting_all_would_give(steps):
    lab = Lab()
    hard = {"pods": "9", "requests.cpu": "9", "count/configmaps": "9"}
    limit(lab, hard, scopes=["NotTerminating"])
    lab.add(PODS, pod("first", requests={"cpu": "100m"}))
    for what, number in steps:
        name = f"p{number}"
        with suppress(ApiError):
            match what:
                case "add":
                    lab.add(PODS, pod(name, requests={"cpu": "250m"}))
                case "end":
                    lab.set_status(PODS, name, phase="Succeeded")
                case "delete":
                    lab.delete(PODS, name)
                case _:
                    lab.patch(PODS, name, {"spec": {"activeDeadlineSeconds": 5}})
    pods = [("pods", "", obj) for obj in lab.all(PODS)]
    kept = account(lab)
    assert kept.sums == {
        "count/configmaps": 0,
        **quota.total(kept.spec, pods, ["pods", "requests.cpu"]),
    }


def test_what_is_written_while_pods_are_counted_counts_once(lab):
    for name in ("a", "b", "c"):
        lab.add(PODS, pod(name))
    limit(lab, {"pods": "9"})
    context = lab.api.resources.context
    kind = context.kinds.find("", "v1", "pods")

    def meanwhile(hub, namespace):
        found = context.own.all_of(hub, namespace)
        lab.delete(PODS, "a")
        lab.set_status(PODS, "b", phase="Succeeded")
        lab.client.create(PODS, pod("d"), "default")
        return found

    scope = SimpleNamespace(all_of=meanwhile, store=context.store)
    review = SimpleNamespace(kind=kind, namespace="default", scope=scope)
    assert account(lab).used(review) == {"pods": 2}


def test_a_quota_that_changes_counts_anew_and_one_that_was_not_written_is_forgotten(lab):
    limit(lab, {"pods": "1"})
    lab.add(PODS, pod("a"))
    lab.patch(RESOURCE_QUOTAS, "q", {"spec": {"hard": {"count/pods": "1"}}})
    assert "count/pods=1" in refused(lab, PODS, pod("b"))
    lab.delete(RESOURCE_QUOTAS, "q")
    lab.add(PODS, pod("b"))
