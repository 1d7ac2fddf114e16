"""Causes as data, and their short form: right for fleets of any size, never guessed."""

import pytest

from builders import claim, device, device_class, node, pool, request
from dralab.allocation import v1
from dralab.allocation.selectors import CelSelectorCompiler
from dralab.explanation.diagnose import diagnose
from dralab.explanation.text import Why
from problems import Case


def of_kind(kind):
    return f'device.attributes["a"].kind == "{kind}"'


def diagnosed(made, slices, *, nodes=None, others=(), classes=None, **more):
    named = {"classes": classes} if classes else {}
    case = Case(claims=[made], slices=slices, others=list(others), **named)
    problem = case.problem(CelSelectorCompiler())
    return diagnose(problem, [v1.node(item) for item in nodes or [node()]], **more)


def holding(name, *devices, pool="p"):
    results = [{"request": "r", "driver": "a", "pool": pool, "device": item} for item in devices]
    return claim(name, namespace="ml", status={"allocation": {"devices": {"results": results}}})


def gpus(*devices, **more):
    return pool("p", *devices, driver="a", **more)


def fleet(count=12):
    """Nodes of eight devices, each with a serial number: most of kind y, four nearly full of x."""
    nodes = [node(f"n{i}") for i in range(count)]
    slices = [
        item
        for i in range(count)
        for item in pool(
            f"p{i}",
            *(device(f"d{j}", kind="x" if i < 4 else "y", serial=f"{i}-{j}") for j in range(8)),
            driver="a",
            node=f"n{i}",
        )
    ]
    others = [holding(f"t{i}", *(f"d{j}" for j in range(6)), pool=f"p{i}") for i in range(4)]
    return nodes, slices, others


def test_nodes_that_differ_in_what_nobody_reads_are_one_group():
    nodes, slices, others = fleet()
    classes = [device_class("gpu", of_kind("x"))]
    made = claim("c", request("gpu", count=4), namespace="ml")
    found = diagnosed(made, slices, nodes=nodes, others=others, classes=classes)
    assert sorted(len(group.nodes) for group in found.groups) == [4, 8]
    assert found.code == "DRA032"
    assert (found.cause.total, found.cause.free, found.cause.most_free) == (32, 8, 2)
    assert set(found.cause.holders) == {"ml/t0", "ml/t1", "ml/t2", "ml/t3"}


def test_a_page_is_as_long_for_many_nodes_as_for_few():
    made = claim("c", request("gpu", "gpu", of_kind("z")))
    few, many = (
        Why(diagnosis=diagnosed(made, slices, nodes=nodes)).page().count("\n")
        for nodes, slices, _ in (fleet(5), fleet(60))
    )
    assert few == many


def test_a_long_story_still_fits_into_an_event():
    names = [f"request-{i:02d}-with-a-rather-long-name" for i in range(31)]
    selector = " || ".join(of_kind(f"kind-{number}") for number in range(40))
    made = claim("c", request("first", "gpu", selector), *map(request, names), namespace="ü" * 60)
    slices = gpus(*(device(f"d{i}", kind="x") for i in range(40)))
    found = diagnosed(made, slices)
    text = Why(diagnosis=found).brief()
    assert len(text.encode()) <= 1024
    assert found.code in text
    # What does not fit is left out as a whole.
    assert text.count("`") % 2 == 0
    assert len(Why(diagnosis=found).brief(60).encode()) <= 60


def test_what_fits_has_no_diagnosis():
    assert diagnosed(claim("c", request("gpu")), gpus(device("d0"))) is None


def test_without_nodes_or_devices_there_is_nowhere_to_look():
    case = Case(claims=[claim("c", request("gpu"))], slices=gpus(device("d0")))
    assert diagnose(case.problem(), []).code == "DRA007"
    assert diagnosed(claim("c", request("gpu")), []).code == "DRA007"


def test_a_pool_that_is_being_replaced_is_told():
    (part,) = gpus(device("d0"))
    part["spec"]["pool"]["resourceSliceCount"] = 2
    found = diagnosed(claim("c", request("gpu")), [part])
    assert found.code == "DRA008"
    assert "1 of 2 slices of generation 1 are there" in found.cause.detail


@pytest.mark.parametrize("questions", [1, 2, 3])
def test_with_too_few_questions_nothing_is_guessed(questions):
    nodes, slices, others = fleet()
    made = claim("c", request("gpu", "gpu", of_kind("x"), count=4), namespace="ml")
    found = diagnosed(made, slices, nodes=nodes, others=others, questions=questions)
    assert not found.settled
    assert not found.helps
    assert "More steps would be needed" in Why(diagnosis=found).page()


def test_a_search_that_is_given_up_says_neither_yes_nor_no():
    found = diagnosed(claim("c", request("gpu", count=4)), gpus(*map(device, "abcd")), budget=1)
    assert found.code == "DRA060"
    assert not found.settled
    assert not found.helps
    assert "the search for devices was given up" in Why(diagnosis=found).page()
