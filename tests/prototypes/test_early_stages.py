"""The cases of k8srm's first stages, with the numbers of the prototype's own documents."""

from pathlib import Path

import pytest
import yaml

from dralab.prototypes.k8srm.early import capacities, model, scheduling, tree
from dralab.prototypes.k8srm.early.capacities import (
    CapacityError,
    CapacityRequest,
    EarlyCapacity,
    Taken,
)
from prototypes import early_samples

OLD_MODEL = (
    Path(__file__).parents[2] / ".." / "shared" / "testdata" / "k8srm-prototype-historic"
    / "old-model"
)  # fmt: skip


def meets_model(expression, attributes):
    """The one constraint these cases use, without a CEL engine."""
    left, right = expression.split(" == ")
    name = left.removeprefix("device.")
    return attributes.get(name, {}).get("stringValue") == right.strip("'")


# --- capacities ---------------------------------------------------------------------------


def read(kind, **body):
    return capacities.read_capacity({"name": "c", kind: body})


@pytest.mark.parametrize(
    ("capacity", "amount", "gives", "missing"),
    [
        (read("counter", capacity=10), 4, 4, 0),
        (read("counter", capacity=0), 4, None, 4),
        (read("quantity", capacity="10M"), 1_000_000, 1_000_000, 0),
        (read("block", capacity="10", size="10m"), capacities.parse_any("7127m"), "7130m", 0),
        (read("block", capacity="10M", size="1M"), 1_500_000, "2M", 0),
        (read("block", capacity="1Gi", size="256Mi"), 1, "256Mi", 0),
        (read("block", capacity="7", size="3"), 6, "6", 0),
        (read("block", capacity="7", size="3"), 7, "6", 3),
        (read("block", capacity="3", size="3"), 4, "3", 3),
    ],
)
def test_a_capacity_gives_what_it_has_rounded_to_its_block(capacity, amount, gives, missing):
    taken, left = capacity.take_request(
        CapacityRequest(capacity="c", kind="quantity", amount=amount)
    )
    assert left == missing
    if gives is None:
        assert taken is None
    else:
        assert taken.amount == capacities.parse_any(gives)


ALL_MODES = read(
    "accessMode", allowReadOnlyShared=True, allowReadWriteShared=True, allowWriteExclusive=True
)


@pytest.mark.parametrize(
    ("mode", "allowed_beside"),
    [
        ("ReadOnlyShared", ["ReadOnlyShared", "ReadWriteShared", "WriteExclusive"]),
        ("ReadWriteShared", ["ReadOnlyShared", "ReadWriteShared"]),
        ("WriteExclusive", ["ReadOnlyShared"]),
        ("ReadWriteExclusive", []),
    ],
)
def test_an_access_mode_is_blocked_by_the_modes_of_its_row(mode, allowed_beside):
    assert ALL_MODES.grant(mode) == mode
    for held in capacities.ACCESS_MODES:
        beside = ALL_MODES.without(Taken(capacity="c", mode=held))
        assert (beside.grant(mode) == mode) is (held in allowed_beside), held


@pytest.mark.parametrize(
    ("flags", "asked", "gets"),
    [
        ([], "ReadOnlyShared", "ReadWriteExclusive"),
        (["ReadOnlyShared", "WriteExclusive"], "ReadWriteShared", "WriteExclusive"),
        (["ReadWriteShared"], "ReadOnlyShared", "ReadWriteShared"),
        (["ReadWriteShared"], "WriteExclusive", "ReadWriteExclusive"),
    ],
)
def test_an_access_mode_that_is_not_allowed_is_upgraded(flags, asked, gets):
    assert read("accessMode", **{f"allow{flag}": True for flag in flags}).grant(asked) == gets


@pytest.mark.parametrize(
    ("body", "taken", "left"),
    [
        ({"counter": {"capacity": 10}}, Taken(capacity="c", amount=4), 6),
        ({"quantity": {"capacity": "10M"}}, Taken(capacity="c", amount=10**6), 9 * 10**6),
        (
            {"block": {"capacity": "10M", "size": "1M"}},
            Taken(capacity="c", amount=10**6),
            9 * 10**6,
        ),
    ],
)
def test_capacity_reduce(body, taken, left):
    assert capacities.read_capacity({"name": "c"} | body).without(taken).amount == left


@pytest.mark.parametrize("mode", ["ReadOnlyShared", "ReadWriteShared"])
def test_capacity_reduce_counts_one_more_holder(mode):
    capacity = read("accessMode", **{f"allow{mode}": True, mode[0].lower() + mode[1:]: 3})
    held = dict(
        zip(
            capacities.ACCESS_MODES,
            capacity.without(Taken(capacity="c", mode=mode)).held,
            strict=True,
        )
    )
    assert held[mode] == 4


# --- devices and pools --------------------------------------------------------------------

NUMA_0 = (("numa", "numa-0"),)
NUMA_1 = (("numa", "numa-1"),)


def device(*parts):
    return model.EarlyDevice(name="primary", attributes={}, capacities=tuple(parts))


def counter(name, amount=10, topologies=()):
    return EarlyCapacity(name=name, kind="counter", amount=amount, topologies=topologies)


@pytest.mark.parametrize(
    ("parts", "taken", "left"),
    [
        ([counter("a")], [("a", (), 4)], [6]),
        ([EarlyCapacity(name="a", kind="quantity", amount=10**7)], [("a", (), 10**6)], [9 * 10**6]),
        (
            [EarlyCapacity(name="a", kind="block", amount=10**7, size=10**6)],
            [("a", (), 10**6)],
            [9 * 10**6],
        ),
        ([counter("a"), counter("b")], [("a", (), 4)], [6, 10]),
        ([counter("a"), counter("b")], [("a", (), 4), ("b", (), 1)], [6, 9]),
        ([counter("a", topologies=NUMA_0)], [("a", NUMA_0, 4)], [6]),
        (
            [counter("a", topologies=NUMA_0), counter("a", topologies=NUMA_1)],
            [("a", NUMA_1, 4)],
            [10, 6],
        ),
    ],
)
def test_device_reduce_capacity(parts, taken, left):
    reduced = device(*parts).without(
        [Taken(capacity=name, topologies=where, amount=n) for name, where, n in taken]
    )
    assert [capacity.amount for capacity in reduced.capacities] == left


@pytest.mark.parametrize(
    ("taken", "message"),
    [
        (
            Taken(capacity="invalid-counter-test", amount=4),
            'allocated capacity "invalid-counter-test" not found in device capacities',
        ),
        (
            Taken(capacity="counter-test", topologies=NUMA_0, amount=4),
            'allocated capacity "counter-test;numa=numa-0" not found in device capacities',
        ),
    ],
)
def test_device_reduce_capacity_names_what_is_missing(taken, message):
    with pytest.raises(CapacityError) as caught:
        device(counter("counter-test")).without([taken])
    assert str(caught.value) == message


def test_pool_reduce_capacity():
    primary = device(counter("pods", 100), counter("containers", 1000))
    pool = model.EarlyPool(name="primary", driver="kubelet", attributes={}, devices=(primary,))
    reduced = pool.without("primary", [Taken(capacity="pods", amount=4)])
    assert [c.amount for c in reduced.devices[0].capacities] == [96, 1000]


# --- scheduling on generated nodes (TestSchedulePodForFoozer, …BigFoozer, …Core) -----------


def pod(*containers, foozer=None):
    claims = [{"name": "pod", "capacities": [{"capacity": "pods", "counter": {"request": 1}}]}]
    if foozer:
        cores, memory, interfaces = foozer
        prefix = "example.com/foozer/"
        claims.append(
            {
                "metadata": {"name": "foozer"},
                "spec": {
                    "driver": "example.com/foozer",
                    "requests": [
                        {"capacity": f"{prefix}cores", "quantity": {"request": cores}},
                        {"capacity": f"{prefix}memory", "quantity": {"request": memory}},
                        {"capacity": f"{prefix}interfaces", "counter": {"request": interfaces}},
                    ],
                },
            }
        )
    groups = []
    for index, container in enumerate(containers):
        requests = [{"capacity": "containers", "counter": {"request": 1}}]
        if container:
            cpu, memory = container
            requests.append({"capacity": "cpu", "quantity": {"request": cpu}})
            requests.append({"capacity": "memory", "quantity": {"request": memory}})
        groups.append({"name": f"c{index}", "claims": [{"name": "c", "capacities": requests}]})
    return model.read_pod(
        {"podClaim": {"name": "pod", "claims": claims}, "containerClaims": groups}
    )


def winner(nodes, claims):
    last = scheduling.schedule(model.read_nodes(nodes), claims, meets_model)[-1]
    return last if last.score else None


def test_schedule_pod_for_foozer():
    nodes = early_samples.k1_nodes("1", 2)
    found = winner(nodes, pod(foozer=("1", "2Gi", 0)))
    assert found.node == "shape-one-000"
    assert any("dev-foo-0: example.com/foozer/cores" in line for line in tree.amounts(found))
    assert winner(nodes, pod(foozer=("16", "32Gi", 0))) is None


def test_schedule_pod_for_big_foozer():
    nodes = early_samples.k1_nodes("2", 2, nets=4)
    assert winner(nodes, pod(foozer=("1", "2Gi", 0)))
    assert winner(nodes, pod(foozer=("16", "32Gi", 0)))


@pytest.mark.parametrize(
    ("claims", "fits"),
    [
        (pod(None), True),
        (pod(("7127m", "8Gi")), True),
        (pod(("7127m", "8Gi"), ("200m", "8Gi"), ("200m", "8Gi")), True),
        (pod(("64", "8Gi")), False),
        (pod(("4", "256Gi")), False),
        (pod(("7127m", "8Gi"), ("8", "8Gi"), ("4", "8Gi")), False),
        (pod(("7127m", "8Gi"), foozer=("1m", "2Gi", 1)), False),
    ],
)
def test_schedule_pod_for_core(claims, fits):
    assert (winner(early_samples.k1_nodes("0", 2), claims) is not None) is fits


def test_an_unknown_shape_lists_the_known_ones():
    with pytest.raises(ValueError, match="valid shapes are: 0, 1, 2, 3"):
        early_samples.k1_nodes("9", 1)


def test_the_search_takes_back_a_choice_that_leaves_nothing_for_a_later_claim():
    def foozer(name, cores):
        return {"name": name, "capacities": [{"name": "cores", "counter": {"capacity": cores}}]}

    node = {
        "name": "n",
        "pools": [{"name": "p", "driver": "d", "devices": [foozer("big", 4), foozer("small", 2)]}],
    }

    def claim(name, cores):
        return {"name": name, "capacities": [{"capacity": "cores", "counter": {"request": cores}}]}

    claims = model.read_pod({"podClaim": {"name": "pod", "claims": [claim("a", 2), claim("b", 4)]}})
    found = winner([node], claims)
    assert [
        result.pools[0].devices[result.pools[0].best].device for result in found.claims[0].claims
    ] == ["small", "big"]


# --- the 10 x 7 matrix --------------------------------------------------------------------

PODS = [
    "1x100mx100Mi",
    "besteffort-1x0",
    "container-small-foozer-1-8",
    "container-small-foozer-16-32",
    "four-containers",
    "small-1x2-exclusive-foozer",
    "three-containers",
]
MATRIX = {
    "tiny-1x1-0": "YY-----",
    "tiny-1x2-0": "YY-----",
    "small-2x8-0": "YY-----",
    "small-4x32-0": "YY-----",
    "small-4x32-numa-0": "YY-----",
    "medium-8x64-numa-0": "YY----Y",
    "large-16x128-numa-0": "YY--Y-Y",
    "tiny-1x2x1-foozer1000-0": "YYY----",
    "medium-8x64x4-foozer1000-numa-0": "YYY--YY",
    "large-16x128x8-foozer4000-numa-0": "YYYYYYY",
}
old_model = pytest.mark.skipif(
    not OLD_MODEL.is_dir(), reason="the shared test data of k8srm's old model are not here"
)


def old_result(node, pod_name):
    nodes = model.read_nodes(yaml.safe_load((OLD_MODEL / f"node-{node}.yaml").read_text()))
    claims = model.read_pod(yaml.safe_load((OLD_MODEL / f"pod-{pod_name}.yaml").read_text()))
    return scheduling.node_result(nodes[0], claims, meets_model)


@old_model
@pytest.mark.parametrize("node", MATRIX)
def test_old_model_matrix(node):
    row = "".join("Y" if old_result(node, name).score else "-" for name in PODS)
    assert row == MATRIX[node]


@old_model
def test_old_model_details():
    four = list(tree.amounts(old_result("large-16x128-numa-0", "four-containers")))
    assert "my-container-1/container: primary: cpu;numa=numa-0 = 7130m" in four
    assert "my-container-4/container: primary: memory;numa=numa-0 = 40Gi" in four
    assert "my-container-4/container: primary: memory;numa=numa-1 = 8Gi" in four
    three = list(tree.amounts(old_result("medium-8x64-numa-0", "three-containers")))
    assert "my-container-1/container: primary: cpu;numa=numa-0 = 4" in three
    assert "my-container-1/container: primary: cpu;numa=numa-1 = 3130m" in three


@old_model
def test_old_model_reasons():
    text = "\n".join(tree.lines(old_result("medium-8x64-numa-0", "four-containers"), "resource"))
    assert 'insufficient capacity "memory" present in resource "primary"' in text.replace(
        "device", "resource"
    )
    foozers = list(
        tree.amounts(old_result("medium-8x64x4-foozer1000-numa-0", "small-1x2-exclusive-foozer"))
    )
    assert any(
        line.startswith("pod-small-1x2-exclusive-foozer/foozer-1: dev-foo-0") for line in foozers
    )
    assert any(
        line.startswith("pod-small-1x2-exclusive-foozer/foozer-2: dev-foo-1") for line in foozers
    )
