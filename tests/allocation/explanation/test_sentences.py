"""What a person reads: grouped as a person would, and short enough for an event."""

import pytest

from builders import (
    ask,
    claim,
    counter_set,
    device,
    device_class,
    first_of,
    node,
    pool,
    request,
    taint,
)
from dralab.allocation import v1
from dralab.allocation.explanation.explain import explain
from dralab.allocation.explanation.sentences import event, page
from problems import Case, of_kind


def explained(made, slices, *, nodes=None, others=(), classes=None):
    more = {"classes": classes} if classes else {}
    case = Case(claims=[made], slices=slices, others=list(others), **more)
    return explain(case.problem(), [v1.node(item) for item in nodes or [node()]])


def holding(name, *devices, pool="p"):
    results = [{"request": "r", "driver": "a", "pool": pool, "device": item} for item in devices]
    return claim(name, namespace="ml", status={"allocation": {"devices": {"results": results}}})


def gpus(*devices, **more):
    return pool("p", *devices, driver="a", **more)


TWO = gpus(device("d0", kind="x", label="l0"), device("d1", kind="x", label="l1"))
MIG = gpus(
    device("whole", consumes={"s": {"m": 4}}),
    *(device(f"part{i}", consumes={"s": {"m": 1}}) for i in range(5)),
    counters=[counter_set("s", m=4)],
)
SHARED = gpus(device("d0", shared=True, capacity={"mem": "40Gi"}))
SELECTOR = of_kind("y")

SENTENCES = {
    "no such device": (
        claim("c", request("gpu", "gpu", SELECTOR)), TWO, (),
        f"has no device for request gpu with `{SELECTOR}`. "
        f"It would fit if request gpu did not want `{SELECTOR}`.",
    ),
    "in use": (
        claim("c", request("gpu")), TWO, [holding("train", "d0", "d1")],
        "has no device left for request gpu: 2 in use by ml/train. "
        "It would fit if claim ml/train released a/p/d0, or if claim ml/train released a/p/d1.",
    ),
    "too few free": (
        claim("c", request("gpu", count=2)), TWO, [holding("train", "d0")],
        "has only 1 of 2 devices left for request gpu: 1 in use by ml/train. "
        "It would fit if claim ml/train released a/p/d0, "
        "or if request gpu wanted at most 1 device.",
    ),
    "too few at all": (
        claim("c", request("gpu", count=5)), TWO, (),
        "has only 2 of 5 devices for request gpu. "
        "It would fit if request gpu wanted at most 2 devices.",
    ),
    "a taint": (
        claim("c", request("gpu")), gpus(device("d0", taints=[taint("sick", value="yes")])), (),
        "has no device left for request gpu: 1 with taint sick=yes:NoSchedule. "
        "It would fit if request gpu tolerated taint sick=yes:NoSchedule.",
    ),
    "capacity": (
        claim("c", request("gpu", capacity={"requests": {"mem": "80Gi"}})), SHARED, (),
        "has no device left for request gpu: 1 with at most 40Gi of the 80Gi mem asked. "
        "It would fit if request gpu asked for less mem.",
    ),
    "a counter": (
        claim("c", request("gpu", count=5)), MIG, (),
        "has 4 of counter s/m left in pool a/p, and 5 are needed at least. "
        "It would fit if request gpu wanted at most 4 devices.",
    ),
    "a counter that others use": (
        claim("c", request("gpu", "gpu")), MIG, [holding("train", "whole")],
        "has no device left for request gpu: 5 for which counter s/m is short by 1 (0 left) (held by ml/train), "
        "1 in use by ml/train. It would fit if claim ml/train released a/p/whole.",
    ),
    "too few for both": (
        claim("c", request("a", count=2), request("b")), TWO, (),
        "has only 2 devices for requests a, b, which want 3. "
        "It would fit if request a wanted at most 1 device.",
    ),
    "no common value": (
        claim("c", request("gpu", count=2), match="a/label"), TWO, (),
        "has no 2 devices with the same a/label (on offer: l0 x1, l1 x1). "
        "It would fit if request gpu wanted at most 1 device, "
        "or if claim c did not want the same a/label.",
    ),
    "a missing attribute": (
        claim("c", request("gpu"), match="a/none"), TWO, (),
        "has no device for request gpu: 2 without attribute a/none. "
        "It would fit if claim c did not want the same a/none.",
    ),
    "no alternative": (
        claim("c", first_of("gpu", big=ask(count=4), small=ask(count=3))), TWO, (),
        "has only 2 of 3 devices for request gpu/small. "
        "It would fit if request gpu/big wanted at most 2 devices, "
        "or if request gpu/small wanted at most 2 devices.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SENTENCES)
def test_a_no_is_one_sentence(name):
    made, slices, others, expected = SENTENCES[name]
    found = explained(made, slices, others=others)
    assert event(found) == f"cannot allocate claim c: node node-1 {expected}"


def test_a_class_that_is_not_there_is_told_in_the_words_of_kubernetes():
    found = explained(claim("c", request("gpu", "nope")), TWO)
    assert event(found) == (
        "cannot allocate claim c: claim c, request gpu: could not retrieve device class nope: "
        'deviceclass.resource.k8s.io "nope" not found'
    )


def test_a_pool_that_is_being_replaced_is_told():
    (part,) = gpus(device("d0"))
    part["spec"]["pool"]["resourceSliceCount"] = 2
    assert event(explained(claim("c", request("gpu")), [part])).startswith(
        "cannot allocate claim c: node node-1 has pool a/p, which is incomplete "
        "(1 of 2 slices of generation 1 are there)."
    )


def fleet():
    """Twelve nodes of eight devices: eight of another kind, four nearly full."""
    nodes = [node(f"n{i}") for i in range(12)]
    slices = [
        item
        for i in range(12)
        for item in pool(
            f"p{i}",
            *(device(f"d{j}", kind="x" if i < 4 else "y") for j in range(8)),
            driver="a",
            node=f"n{i}",
        )
    ]
    others = [holding(f"t{i}", *(f"d{j}" for j in range(6)), pool=f"p{i}") for i in range(4)]
    return nodes, slices, others


def test_nodes_are_grouped_by_what_they_lack():
    nodes, slices, others = fleet()
    classes = [device_class("gpu", of_kind("x"))]
    made = claim("c", request("gpu", count=4), namespace="ml")
    found = explained(made, slices, nodes=nodes, others=others, classes=classes)
    assert event(found).startswith(
        "cannot allocate claim ml/c: 12 nodes: 8 have no device for request gpu with "
        f"`{of_kind('x')}`; 4 have only 2 of 4 devices left for request gpu: "
        "6 in use by ml/t0, ml/t1, ml/t2 and 1 more. "
        "It would fit if request gpu wanted at most 2 devices"
    )
    text = page(found)
    assert "8 nodes (n4, n5, n6 and 5 more):" in text
    assert "request gpu of ml/c wants 4 devices: 2 of 8 could serve it" in text
    assert "These together make it impossible, and none of them can be left out:" in text


def test_a_long_story_still_fits_into_an_event():
    names = [f"request-{i:02d}-with-a-rather-long-name" for i in range(32)]
    slices = [
        item
        for i in range(40)
        for item in pool(
            f"a-pool-with-a-long-name-{i}",
            *(device(f"d{j}", kind="x") for j in range(i)),
            driver="a",
            node=f"a-node-with-a-long-name-{i}",
        )
    ]
    nodes = [node(f"a-node-with-a-long-name-{i}") for i in range(40)]
    made = claim("c", *(request(name, "gpu", of_kind("x"), count=1) for name in names[:31]),
                 request(names[31], "gpu", of_kind("y")), namespace="ü" * 60)  # fmt: skip
    text = event(explained(made, slices, nodes=nodes))
    assert 300 < len(text.encode()) <= 1024
    assert "40 nodes" in text


def test_what_fits_has_no_explanation():
    assert explained(claim("c", request("gpu", count=2)), TWO) is None


def test_without_nodes_there_is_nowhere_to_look():
    case = Case(claims=[claim("c", request("gpu"))], slices=TWO)
    found = explain(case.problem(), [])
    assert page(found).startswith("Cannot allocate claim c on any node: there are none.")
    assert event(found) == "cannot allocate claim c: there are no nodes."


def test_nodes_that_all_differ_are_grouped_by_kind():
    """Every node has other devices in use: amounts become ranges, and the conflict still holds."""
    nodes = [node(f"n{i}") for i in range(40)]
    slices = [
        item
        for i in range(40)
        for item in pool(
            f"p{i}",
            *(device(f"d{j}", kind="x" if (i * 7 + j * j) % 3 else "y") for j in range(8)),
            driver="a",
            node=f"n{i}",
        )
    ]
    others = [
        holding(f"t{i}-{j}", f"d{j}", pool=f"p{i}")
        for i in range(40)
        for j in range(8)
        if (i * 31 + j * 17) % 5 < 2
    ]
    made = claim("c", request("gpu", "gpu", of_kind("x"), count=6))
    found = explained(made, slices, nodes=nodes, others=others)
    text = event(found)
    assert text.startswith("cannot allocate claim c: 40 nodes: ")
    assert " of 6 devices left for request gpu (" in text
    assert "and others for" not in text
    assert len(text) < 500
    assert found.settled


@pytest.mark.parametrize("questions", [1, 2, 3, 5])
def test_with_too_few_questions_nothing_is_guessed(questions):
    nodes, slices, others = fleet()
    made = claim("c", request("gpu", "gpu", of_kind("x"), count=4), namespace="ml")
    case = Case(claims=[made], slices=slices, others=others)
    found = explain(case.problem(), [v1.node(item) for item in nodes], questions=questions)
    assert not found.settled
    assert event(found).startswith("cannot allocate claim ml/c: 12 nodes: 8 have no device")
    assert "More steps would be needed" in page(found)
