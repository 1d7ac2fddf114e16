"""Devices that take of their node's own cpu and memory (KEP-5517)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import ask as asking
from builders import claim, device, device_class, first_of, pod, pool, request, worker
from dralab.api.resource.features import ALL
from dralab.objects.requests import pod_requests
from dralab.runtime.resources import CLAIMS, CLASSES, NODES, POD_GROUPS, PODS, SLICES
from dralab.scheduler.scheduler import Scheduler
from labs import Lab
from smallselectors import SmallEnvironment

DRIVER = "gpu.example.com"
MAPPED = {"nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "2"}}}}
COSTLY = {
    "nodeAllocatableResources": {
        "memory": {"overhead": {"perPod": "1Gi", "perContainer": "512Mi"}},
        "cpu": {"overhead": {"perPod": "250m"}},
    }
}


def named(name, *requests, **more):
    return claim(name, *(requests or (request("r"),)), namespace="default", **more)


def cluster(lab, *devices, cpu="4", nodes=("n0",)):
    lab.server.add(NODES, *(worker(name, cpu=cpu) for name in nodes))
    lab.server.add(CLASSES, device_class("gpu", f'device.driver == "{DRIVER}"'))
    for name in nodes:
        lab.server.add(SLICES, *pool(name, *devices, node=name))
    lab.start()
    return lab


def told(lab, name):
    return lab.get(PODS, name)["status"].get("nodeAllocatableResourceClaimStatuses")


def using(name, entries, *, containers=("main",), inits=(), **more):
    """A pod whose containers name which entries they use."""
    made = pod(name, claims=entries, **more)
    requests = made["spec"]["containers"][0].get("resources", {})
    uses = {"claims": [{"name": entry} for entry in entries], **requests}
    made["spec"]["containers"] = [
        {"name": each, "image": "busybox", "resources": uses} for each in containers
    ]
    if inits:
        made["spec"]["initContainers"] = [
            {"name": each, "image": "busybox", "resources": uses} for each in inits
        ]
    return made


def test_what_a_device_stands_for_is_counted_and_written(lab):
    cluster(lab, device("d0", more=MAPPED), device("d1", more=MAPPED), cpu="5")
    lab.add(CLAIMS, named("c", request("r", count=2)))
    lab.add(PODS, using("p", {"cpus": "c"}, containers=("a", "b"), requests={"cpu": "500m"}))
    assert lab.node_of("p") == "n0"
    assert told(lab, "p") == [
        {
            "resourceClaimName": "c",
            "containers": ["a", "b"],
            "resources": {"cpu": "4"},
            "mapping": [{"name": "cpu", "quantity": "4"}],
        }
    ]
    lab.add(PODS, pod("next", requests={"cpu": "1"}))
    assert lab.why("next").startswith("0/1 nodes are available: 1 Insufficient cpu.")


def test_a_pod_whose_devices_take_too_much_is_told_how_much(lab):
    cluster(lab, device("d0", more=MAPPED), cpu="2")
    lab.add(CLAIMS, named("c"))
    lab.add(PODS, using("p", {"cpus": "c"}, requests={"cpu": "500m"}))
    assert lab.why("p").startswith(
        "0/1 nodes are available: 1 Insufficient cpu. On n0 the pod needs 2500m cpu, 2 of it for "
        "its claims' devices, where 2 is free."
    )
    assert not lab.get(CLAIMS, "c").get("status")


def test_the_node_with_room_for_the_devices_is_taken(lab):
    cluster(lab, device("d0", more=MAPPED), cpu="2", nodes=("n0", "n1"))
    lab.add(PODS, pod("there", requests={"cpu": "1"}))
    other = {"n0": "n1", "n1": "n0"}[lab.node_of("there")]
    lab.add(CLAIMS, named("c"))
    lab.add(PODS, using("p", {"cpus": "c"}))
    assert lab.node_of("p") == other


def test_it_goes_when_room_is_made_and_comes_back_with_the_pod(lab):
    cluster(lab, device("d0", more=MAPPED), cpu="2")
    lab.add(PODS, pod("first", requests={"cpu": "1"}))
    lab.add(CLAIMS, named("c"))
    lab.add(PODS, using("p", {"cpus": "c"}))
    assert lab.node_of("p") is None
    lab.server.delete(PODS, "first", "default", options={"gracePeriodSeconds": 0})
    lab.wait(3)
    assert lab.node_of("p") == "n0"
    lab.add(PODS, pod("late", requests={"cpu": "1"}))
    assert lab.node_of("late") is None
    lab.server.delete(PODS, "p", "default", options={"gracePeriodSeconds": 0})
    lab.wait(3)
    assert lab.node_of("late") == "n0"


def test_a_scheduler_that_starts_again_counts_what_is_written(lab):
    cluster(lab, device("d0", more=MAPPED), cpu="2")
    lab.add(CLAIMS, named("c"))
    lab.add(PODS, using("p", {"cpus": "c"}))
    again = Lab(lab.server)
    Scheduler(again.manager, SmallEnvironment())
    again.start()
    again.add(PODS, pod("next", requests={"cpu": "1"}))
    assert again.get(PODS, "next")["spec"].get("nodeName") is None


def test_overhead_is_counted_per_pod_and_per_container_for_each_pod(lab):
    cluster(lab, device("d0", more=COSTLY))
    lab.add(CLAIMS, named("c"))
    lab.add(PODS, using("p0", {"g": "c"}, containers=("a", "b")), using("p1", {"g": "c"}))
    assert lab.node_of("p0") == lab.node_of("p1") == "n0"
    (status,) = told(lab, "p0")
    assert status["overhead"] == [
        {"name": "cpu", "perPod": "250m"},
        {"name": "memory", "perPod": "1Gi", "perContainer": "512Mi"},
    ]
    assert status["resources"] == {"cpu": "250m", "memory": "2Gi"}
    assert told(lab, "p1")[0]["resources"] == {"cpu": "250m", "memory": "1536Mi"}
    table = lab.scheduler.state.table
    assert table.free("cpu")[0] == 4000 - 500
    assert table.free("memory")[0] == (8192 - 2048 - 1536) << 20


def test_what_is_consumed_of_a_capacity_counts(lab):
    mapping = {"capacityKey": "cores", "capacityMultiplier": "2"}
    more = {"nodeAllocatableResources": {"cpu": {"mapping": mapping}}}
    cluster(lab, device("d0", capacity={"cores": "8"}, shared=True, more=more), cpu="8")
    lab.add(CLAIMS, named("c", request("r", capacity={"requests": {"cores": "3"}})))
    lab.add(PODS, using("p", {"g": "c"}))
    assert told(lab, "p")[0]["mapping"] == [{"name": "cpu", "quantity": "6"}]


def test_the_form_of_the_release_before_means_the_same(lab):
    more = {"nodeAllocatableResourceMappings": {"cpu": {"capacityKey": "cores"}}}
    cluster(lab, device("d0", capacity={"cores": "3"}, more=more))
    lab.add(CLAIMS, named("c"))
    lab.add(PODS, using("p", {"g": "c"}))
    assert told(lab, "p")[0]["resources"] == {"cpu": "3"}


def test_a_claim_with_a_mapping_is_for_one_pod(lab):
    cluster(lab, device("d0", more=MAPPED), cpu="16")
    lab.add(CLAIMS, named("c"))
    lab.add(PODS, using("p0", {"g": "c"}), using("p1", {"g": "c"}))
    lab.wait(2)
    waiting = next(name for name in ("p0", "p1") if lab.node_of(name) is None)
    assert lab.why(waiting).startswith(
        "0/1 nodes are available: 1 node allocatable resource claim c has a mapped device and "
        "cannot be shared across pods."
    )


@pytest.mark.parametrize(("budget", "left"), [("3", 13000), ("2500m", 13500), ("2", None)])
def test_the_pods_own_budget_covers_its_devices(lab, budget, left):
    cluster(lab, device("d0", more=MAPPED), cpu="16")
    lab.add(CLAIMS, named("c"))
    resources = {"requests": {"cpu": budget}}
    lab.add(PODS, using("p", {"g": "c"}, requests={"cpu": "500m"}, resources=resources))
    if left is not None:
        assert lab.node_of("p") == "n0"
        assert lab.scheduler.state.table.free("cpu")[0] == left
    else:
        assert lab.why("p").startswith(
            "0/1 nodes are available: 1 pod level request for cpu is insufficient to cover the "
            "aggregated container and node-allocatable DRA requests."
        )


@pytest.mark.parametrize(("model", "taken"), [("plain", None), ("costly", {"cpu": "2"})])
def test_an_alternative_counts_as_the_devices_that_it_gets(lab, model, taken):
    devices = device("d0", model="plain"), device("d1", model="costly", more=MAPPED)
    cluster(lab, *devices, cpu="2")
    chosen = asking("gpu", f'device.attributes["{DRIVER}"].model == "{model}"')
    lab.add(CLAIMS, named("c", first_of("r", many=asking("gpu", count=3), one=chosen)))
    lab.add(PODS, using("p", {"g": "c"}))
    assert lab.node_of("p")
    found = told(lab, "p")
    assert (found[0]["resources"] if found else None) == taken


def test_room_is_made_for_a_pod_and_its_devices(lab):
    cluster(lab, device("d0", more=MAPPED), cpu="3")
    lab.add(PODS, *(pod(f"low{i}", requests={"cpu": "1"}, priority=1) for i in range(3)))
    lab.add(CLAIMS, named("c"))
    lab.add(PODS, using("high", {"g": "c"}, requests={"cpu": "500m"}, priority=9))
    leaving = [p for p in lab.server.all(PODS) if "deletionTimestamp" in p["metadata"]]
    assert len(leaving) == 3


def test_room_that_is_made_for_a_pod_and_its_devices_is_not_taken_by_other_devices(lab):
    one = {"nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "1"}}}}
    cluster(lab, device("d0", model="a", more=MAPPED), device("d1", model="b", more=one), cpu="4")
    lab.add(PODS, pod("low", requests={"cpu": "2"}, priority=1))
    lab.add(
        CLAIMS,
        *(
            named(
                f"c{model}",
                request("r", "gpu", f'device.attributes["{DRIVER}"].model == "{model}"'),
            )
            for model in "ab"
        ),
    )
    lab.add(PODS, using("high", {"g": "ca"}, requests={"cpu": "1"}, priority=9))
    assert lab.get(PODS, "low")["metadata"]["deletionTimestamp"]
    # Two are free while `low` is ending; three of four are promised to `high` and its device.
    lab.add(PODS, using("sly", {"g": "cb"}, priority=5))
    assert lab.node_of("sly") is None
    assert lab.why("sly").startswith("0/1 nodes are available: 1 Insufficient cpu.")
    lab.server.delete(PODS, "low", "default", options={"gracePeriodSeconds": 0})
    lab.wait(3)
    assert (lab.node_of("high"), lab.node_of("sly")) == ("n0", "n0")


def test_a_gang_counts_what_its_devices_take(lab):
    cluster(lab, *(device(f"d{i}", more=MAPPED) for i in range(3)), cpu="5", nodes=("n0", "n1"))
    group = {
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}},
    }
    lab.add(POD_GROUPS, group)
    lab.add(CLAIMS, *(named(f"c{i}") for i in range(5)))
    member = {"schedulingGroup": {"podGroupName": "g"}}
    lab.add(PODS, *(using(f"p{i}", {"g": f"c{i}"}, **member) for i in range(5)))
    lab.wait(2)
    placed = [lab.node_of(f"p{i}") for i in range(5)]
    assert sorted(filter(None, placed)) == ["n0", "n0", "n1", "n1"]


def test_members_of_a_gang_do_not_share_what_is_for_one_pod(lab):
    cluster(lab, device("d0", more=MAPPED), cpu="16")
    group = {
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
    }
    lab.add(POD_GROUPS, group)
    lab.add(CLAIMS, named("c"))
    member = {"schedulingGroup": {"podGroupName": "g"}}
    lab.add(PODS, *(using(f"p{i}", {"g": "c"}, **member) for i in range(2)))
    lab.wait(2)
    assert [lab.node_of(f"p{i}") for i in range(2)] == [None, None]
    assert "claim c has a mapped device" in lab.why("p1")


def test_what_an_attempt_that_failed_left_behind_does_not_count_and_goes(lab):
    cluster(lab, device("plain"), cpu="2")
    left = [{"resourceClaimName": "c", "resources": {"cpu": "9"}}]
    status = {"nodeAllocatableResourceClaimStatuses": left}
    lab.add(PODS, using("p", {"g": "c"}, status=status))
    lab.add(CLAIMS, named("c"))
    lab.wait(2)
    assert lab.node_of("p") == "n0"
    assert not told(lab, "p")


KINDS = [
    {},
    MAPPED,
    COSTLY,
    {"nodeAllocatableResourceMappings": {"memory": {"allocationMultiplier": "1Gi"}}},
]


@pytest.mark.thorough
@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=1, max_size=3),
    st.lists(
        st.tuples(st.integers(1, 2), st.integers(0, 3), st.booleans(), st.booleans()), max_size=6
    ),
    st.data(),
)
def test_nodes_are_never_overcommitted_and_a_new_scheduler_counts_the_same(nodes, pods, data):
    lab = Lab(features=ALL)
    scheduler = Scheduler(lab.manager, SmallEnvironment())
    lab.server.add(CLASSES, device_class("gpu", f'device.driver == "{DRIVER}"'))
    for number, kinds in enumerate(nodes):
        name = f"n{number}"
        lab.server.add(NODES, worker(name, cpu="5", memory="6Gi"))
        devices = [device(f"d{i}", more=KINDS[kind]) for i, kind in enumerate(kinds)]
        lab.server.add(SLICES, *pool(name, *devices, node=name))
    lab.start()
    for number, (count, cpus, shares, two) in enumerate(pods):
        own = named(f"c{number}", request("r", count=count))
        lab.add(CLAIMS, own)
        claim_of = f"c{data.draw(st.integers(0, number))}" if shares else f"c{number}"
        containers = ("a", "b") if two else ("a",)
        asked = {"cpu": str(cpus)}
        lab.add(PODS, using(f"p{number}", {"g": claim_of}, containers=containers, requests=asked))
        lab.wait(1)
    if pods and data.draw(st.booleans()):
        gone = f"p{data.draw(st.integers(0, len(pods) - 1))}"
        lab.server.delete(PODS, gone, "default", options={"gracePeriodSeconds": 0})
        lab.wait(15)
    again = Lab(lab.server)
    later = Scheduler(again.manager, SmallEnvironment())
    later.rest()
    again.start()
    one, other = scheduler.state.table, later.state.table
    for name, row in one.row_of.items():
        for resource in ("cpu", "memory", "pods"):
            free = int(one.free(resource)[row])
            assert free >= 0, (name, resource)
            assert free == int(other.free(resource)[other.row_of[name]]), (name, resource)
    mapped = [
        entry["resourceClaimName"]
        for obj in lab.server.all(PODS)
        for entry in obj["status"].get("nodeAllocatableResourceClaimStatuses", ())
        if "mapping" in entry and obj["spec"].get("nodeName")
    ]
    assert len(mapped) == len(set(mapped))


CLAIMED = [
    {
        "resourceClaimName": "c",
        "containers": ["init", "a"],
        "mapping": [{"name": "cpu", "quantity": "1"}],
        "overhead": [{"name": "cpu", "perPod": "100m", "perContainer": "1"}],
    }
]
ASKS = {"resources": {"requests": {"cpu": "500m"}}}


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [{"name": "a", **ASKS}]}, 2600),
        # The init container alone is larger than what runs after it.
        (
            {
                "initContainers": [{"name": "init", "resources": {"requests": {"cpu": "3"}}}],
                "containers": [{"name": "a", **ASKS}],
            },
            5100,
        ),
        # A sidecar stays, so its overhead is added.
        (
            {
                "initContainers": [{"name": "init", "restartPolicy": "Always", **ASKS}],
                "containers": [{"name": "a", **ASKS}],
            },
            4100,
        ),
        ({"containers": [{"name": "other"}]}, 1100),
        ({"containers": [{"name": "a", **ASKS}], "overhead": {"cpu": "1"}}, 3600),
        ({"containers": [{"name": "a"}], "resources": {"requests": {"cpu": "7"}}}, 7000),
    ],
)
def test_footprints(spec, cpu):
    assert pod_requests(spec, CLAIMED) == {"cpu": cpu}


def test_a_status_of_the_release_before_counts_its_sums():
    claimed = [{"resourceClaimName": "c", "resources": {"cpu": "2"}}]
    assert pod_requests({"containers": [{"name": "a", **ASKS}]}, claimed) == {"cpu": 2500}
