"""Totals over several devices, which only older generations ask for, against trying everything."""

from collections.abc import Iterator
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocation import builders as b
from dralab.allocation.allocator import allocate
from dralab.allocation.outcome import Allocated
from dralab.allocation.problem import Capacity, Constraint, Device, Problem, Request


def gpu(number: int, memory: int, card: str) -> Device:
    return Device(
        name=f"gpu-{number}",
        driver=b.DRIVER,
        attributes={f"{b.DRIVER}/card": b.attribute(card)},
        capacity={"memory": Capacity(memory)},
    )


def total(amount: int, *requests: str) -> Constraint:
    return Constraint("total", "memory", requests, amount)


def test_an_amount_binds_only_the_alternative_that_is_chosen():
    gpus = b.pool(gpu(0, 40, "a"), gpu(1, 40, "a"))
    wanted = b.either("gpu", b.exactly("one", count=1), b.exactly("two", count=2))
    claim = b.claim("train", wanted, total(60, "gpu/one"), total(60, "gpu/two"))
    outcome = allocate(b.problem(gpus, claim), b.NODE)
    assert isinstance(outcome, Allocated)
    assert [chosen.request for chosen in outcome.claims[0].chosen] == ["gpu/two", "gpu/two"]


def test_an_amount_that_all_devices_together_lack_is_known_at_once():
    gpus = b.pool(*(gpu(number, number, "a") for number in range(40)))
    # The 20 largest have 590 together.
    claim = b.claim("train", b.request("gpu", count=20), total(591, "gpu"))
    assert not isinstance(allocate(b.problem(gpus, claim), b.NODE, budget=500), Allocated)


@st.composite
def problems(draw) -> Problem:
    gpus = [
        gpu(number, draw(st.sampled_from((0, 10, 20, 40))), draw(st.sampled_from("ab")))
        for number in range(draw(st.integers(1, 5)))
    ]
    parts: list[Request | Constraint] = []
    for name in ("r", "s")[: draw(st.integers(1, 2))]:
        counts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
        ways = [b.exactly(str(place), count=count) for place, count in enumerate(counts)]
        parts.append(b.either(name, *ways))
        for way in ways:
            covers = f"{name}/{way.name}"
            if draw(st.booleans()):
                parts.append(total(draw(st.sampled_from((10, 30, 60, 100))), covers))
            if draw(st.booleans()):
                parts.append(b.match("card", covers))
        if draw(st.booleans()):
            parts.append(total(draw(st.sampled_from((20, 50))), name))
    return b.problem(b.pool(*gpus), b.claim("c", *parts))


def choices(problem: Problem) -> Iterator[list[tuple[str, tuple[Device, ...]]]]:
    """Yield everything that could be tried, in order: alternatives first, then devices."""
    [claim], devices = problem.claims, problem.slices[0].devices

    def from_(at: int, taken: frozenset[str]) -> Iterator[list[tuple[str, tuple[Device, ...]]]]:
        if at == len(claim.requests):
            yield []
            return
        for way in claim.requests[at].subrequests:
            free = [device for device in devices if device.name not in taken]
            for some in combinations(free, way.count):
                names = taken | {device.name for device in some}
                for rest in from_(at + 1, names):
                    yield [(way.name, some), *rest]

    yield from from_(0, frozenset())


def valid(problem: Problem, choice: list[tuple[str, tuple[Device, ...]]]) -> bool:
    for rule in problem.claims[0].constraints:
        bound = [device for way, some in choice if rule.covers(way) for device in some]
        if rule.kind == "match":
            if len({device.attributes[rule.name].values for device in bound}) > 1:
                return False
        elif bound and sum(device.capacity["memory"].value for device in bound) < rule.amount:
            return False
    return True


@pytest.mark.thorough
@settings(max_examples=150, deadline=None)
@given(problems())
def test_totals_are_met_as_trying_everything_meets_them(problem: Problem):
    expected = next((choice for choice in choices(problem) if valid(problem, choice)), None)
    outcome = allocate(problem, b.NODE)
    if expected is None:
        assert not isinstance(outcome, Allocated)
        return
    assert isinstance(outcome, Allocated)
    assert [(chosen.request, chosen.device.device) for chosen in outcome.claims[0].chosen] == [
        (way, device.name) for way, some in expected for device in some
    ]
