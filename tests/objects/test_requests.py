"""What pods request: the cases of scheduler, quotas, extended resources and simulation."""

from fractions import Fraction

import pytest

from dralab.objects.extended_resources import (
    IMPLICIT,
    SYNTHETIC,
    classes_by_resource,
    synthetic_claim,
)
from dralab.objects.metadata import controller_of
from dralab.objects.requests import (
    exact_limits,
    exact_requests,
    pod_requests,
    requested,
)


@pytest.mark.parametrize(
    ("resources", "wanted"),
    [
        (None, {}),
        ({}, {}),
        ({"requests": {"cpu": "1"}}, {"cpu": "1"}),
        ({"limits": {"cpu": "2"}}, {"cpu": "2"}),
        ({"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}, {"cpu": "1"}),
        ({"limits": {"a.example/gpu": "1"}, "requests": None}, {"a.example/gpu": "1"}),
    ],
)
def test_what_only_has_a_limit_requests_that_much(resources, wanted):
    assert requested(resources) == wanted


def requests(cpu):
    return {"requests": {"cpu": cpu}}


@pytest.mark.parametrize(
    ("spec", "millicores"),
    [
        ({"containers": [{"resources": requests("250m")}, {"resources": requests("1")}]}, 1250),
        ({"containers": [{"resources": {"limits": {"cpu": "2"}}}]}, 2000),
        (
            {
                "initContainers": [{"resources": requests("3")}],
                "containers": [{"resources": requests("1")}],
            },
            3000,
        ),
        (
            {
                "initContainers": [
                    {"resources": requests("1"), "restartPolicy": "Always"},
                    {"resources": requests("3")},
                ],
                "containers": [{"resources": requests("1")}],
            },
            4000,
        ),
        (
            {
                "initContainers": [{"resources": requests("1"), "restartPolicy": "Always"}],
                "containers": [{"resources": requests("1")}],
                "overhead": {"cpu": "100m"},
            },
            2100,
        ),
        ({"containers": [{"resources": requests("1")}], "resources": requests("5")}, 5000),
        ({"containers": [{"resources": requests("1500u")}]}, 2),
    ],
)
def test_a_pod_requests_what_its_containers_need_at_their_peak(spec, millicores):
    assert pod_requests(spec)["cpu"] == millicores


@pytest.mark.parametrize(
    ("spec", "millicores"),
    [
        # An init container that begins after a sidecar needs room beside it.
        (
            {
                "initContainers": [
                    {"resources": requests("1"), "restartPolicy": "Always"},
                    {"resources": requests("3")},
                    {"resources": requests("1"), "restartPolicy": "Always"},
                ],
                "containers": [{"resources": requests("1")}],
            },
            4000,
        ),
        # One that begins before does not.
        (
            {
                "initContainers": [
                    {"resources": requests("3")},
                    {"resources": requests("1"), "restartPolicy": "Always"},
                ],
                "containers": [{"resources": requests("1")}],
            },
            3000,
        ),
        ({"containers": [], "overhead": {"cpu": "1"}}, 1000),
        (
            {"containers": [{"resources": requests("1")}], "resources": {"limits": {"cpu": "5"}}},
            5000,
        ),
    ],
)
def test_scheduler_and_quotas_count_the_same_peak(spec, millicores):
    assert pod_requests(spec)["cpu"] == millicores
    assert exact_requests(spec)["cpu"] * 1000 == millicores


def test_quotas_count_exactly():
    spec = {"containers": [{"resources": {"requests": {"cpu": "1500u"}, "limits": {"cpu": "1"}}}]}
    assert exact_requests(spec) == {"cpu": Fraction(3, 2000)}
    assert exact_limits(spec) == {"cpu": 1}


def test_overhead_is_added_to_limits_that_there_are():
    limited = {"containers": [{"resources": {"limits": {"cpu": "1"}}}]}
    overhead = {"overhead": {"cpu": "1", "memory": "1Mi"}}
    assert exact_limits(limited | overhead) == {"cpu": 2}
    assert exact_limits({"containers": [{}], **overhead}) == {}
    assert exact_limits(limited | {"resources": {"limits": {"cpu": "4"}}}) == {"cpu": 4}


def device_class(name, resource="", made="2026-01-01T00:00:00Z"):
    spec = {"extendedResourceName": resource} if resource else {}
    return {"metadata": {"name": name, "creationTimestamp": made}, "spec": spec}


@pytest.mark.parametrize(
    ("classes", "provider"),
    [
        ([device_class("a", "x.example/gpu")], "a"),
        ([device_class("b", "x.example/gpu"), device_class("a", "x.example/gpu")], "a"),
        (
            [
                device_class("a", "x.example/gpu"),
                device_class("b", "x.example/gpu", "2026-02-01T00:00:00Z"),
            ],
            "b",
        ),
        ([device_class("a")], None),
    ],
)
def test_the_newest_class_provides_an_extended_resource(classes, provider):
    found = classes_by_resource(classes)
    assert found.get("x.example/gpu") == provider
    assert all(found[f"{IMPLICIT}{item['metadata']['name']}"] for item in classes)


def test_the_claim_of_extended_resources_asks_container_by_container():
    pod = {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {
            "initContainers": [{"name": "init", "resources": {"limits": {"x.example/gpu": "1"}}}],
            "containers": [
                {
                    "name": "main",
                    "resources": {"requests": {"cpu": "1", "x.example/gpu": "2"}},
                },
                {"name": "none", "resources": {"requests": {"x.example/gpu": "0"}}},
                {"name": "other", "resources": {"requests": {"y.example/gpu": "1"}}},
            ],
        },
    }
    claim, mappings = synthetic_claim(pod, {"x.example/gpu": "gpu"})
    assert claim["metadata"]["generateName"] == "p-extended-resources-"
    assert claim["metadata"]["annotations"] == {SYNTHETIC: "true"}
    assert controller_of(claim)["uid"] == "u"
    assert [
        (item["name"], item["exactly"]["count"], item["exactly"]["deviceClassName"])
        for item in claim["spec"]["devices"]["requests"]
    ] == [("container-1-request-1", 2, "gpu")]
    assert mappings == [
        {
            "containerName": name,
            "resourceName": "x.example/gpu",
            "requestName": "container-1-request-1",
        }
        for name in ("main", "init")
    ]


def container(name, amount, **more):
    return {"name": name, "resources": {"requests": {"x/gpu": str(amount)}}, **more}


ALWAYS = {"restartPolicy": "Always"}
# The init containers, the containers; the devices by container, and what each container uses.
INIT_CONTAINERS = {
    "one after the other use the same": (
        [container("a", 1), container("b", 3), container("c", 2)],
        [],
        {1: 3},
        {"a": [1], "b": [1], "c": [1]},
    ),
    "take what later containers will have, and what they lack beyond": (
        [container("a", 2), container("b", 5)],
        [container("c", 1), container("d", 2)],
        {1: 2, 2: 1, 3: 2},
        {"a": [2, 3], "b": [2, 3, 1], "c": [2], "d": [3]},
    ),
    "take nothing of sidecars that have begun": (
        [container("a", 1, **ALWAYS), container("b", 2), container("c", 1, **ALWAYS)],
        [],
        {0: 1, 1: 1, 2: 1},
        {"a": [0], "b": [2, 1], "c": [2]},
    ),
}


@pytest.mark.parametrize(
    ("first", "then", "counts", "uses"), INIT_CONTAINERS.values(), ids=INIT_CONTAINERS
)
def test_init_containers_share_devices(first, then, counts, uses):
    pod = {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {"initContainers": first, "containers": then},
    }
    claim, mappings = synthetic_claim(pod, {"x/gpu": "gpu"})
    requests = claim["spec"]["devices"]["requests"]
    assert {item["name"]: item["exactly"]["count"] for item in requests} == {
        f"container-{number}-request-0": count for number, count in counts.items()
    }
    found = {}
    for item in mappings:
        found.setdefault(item["containerName"], []).append(int(item["requestName"].split("-")[1]))
    assert found == uses


@pytest.mark.parametrize(
    ("given", "promised", "conditions", "millicores"),
    [
        ("2", "2", (), 2000),  # it is being made smaller
        ("500m", "500m", (), 1000),  # it is being made larger
        ("500m", "1500m", (), 1500),
        ("2", None, ({"type": "PodResizePending", "reason": "Deferred"},), 2000),
        ("500m", "500m", ({"type": "PodResizePending", "reason": "Infeasible"},), 500),
    ],
)
def test_a_pod_that_is_resized_counts_for_what_it_has_or_may_get(
    given, promised, conditions, millicores
):
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    found = {"name": "c", "resources": {"requests": {"cpu": given}}}
    if promised:
        found["allocatedResources"] = {"cpu": promised}
    status = {"containerStatuses": [found], "conditions": list(conditions)}
    assert pod_requests(spec, status=status) == {"cpu": millicores}
    # An init container that ends has its say no more.
    early = {**spec, "initContainers": [{"name": "early"}]}
    status["initContainerStatuses"] = [{**found, "name": "early"}]
    assert pod_requests(early, status=status) == {"cpu": millicores}
