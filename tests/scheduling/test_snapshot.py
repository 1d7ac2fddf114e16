"""Whatever policy places a whole set of objects, every allocation passes the verifier."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders import claim, device, device_class, node, pool, request
from dralab.allocation.check.verification import Verifier
from dralab.allocation.policy.policies import POLICIES
from dralab.scheduling.snapshot import Snapshot
from problems import by_cel, cases, held_by


def verified(snapshot, objects, placed, held):
    """Return what is wrong with one placement, given what was in use before it."""
    (where,) = [item for item in objects if item["metadata"]["name"] == placed.node]
    verifier = Verifier(
        claims=placed.pending.claims,
        classes=[item for item in objects if item["kind"] == "DeviceClass"],
        slices=[item for item in objects if item["kind"] == "ResourceSlice"],
        node=where,
        matches=by_cel,
        held=held,
    )
    return verifier.violations(placed.allocations)


@pytest.mark.thorough
@pytest.mark.parametrize("policy", POLICIES)
def test_every_placement_of_every_policy_passes_the_verifier(policy):
    placements = 0

    @settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
    @given(cases(), st.integers(1, 3))
    def look(case, copies):
        nonlocal placements
        asked = [
            item | {"metadata": {"name": f"{item['metadata']['name']}-{number}"}}
            for number in range(copies)
            for item in case.claims
        ]
        objects = [*case.slices, *case.classes, *case.others, case.node, node("node-2"), *asked]
        snapshot = Snapshot(objects)
        for pending in snapshot.pending():
            held = held_by(list(snapshot.claims.values()))
            placed = snapshot.place(pending, POLICIES[policy])
            again = snapshot.place(pending, POLICIES[policy])
            # Looking for a place takes nothing: the answer is the same again.
            assert (placed is None) == (again is None)
            if placed is None:
                continue
            assert placed.node == again.node
            assert verified(snapshot, objects, placed, held) == []
            snapshot.accept(placed)
            placements += 1

    look()
    assert placements > 10


def test_a_batch_is_served_and_taken():
    pytest.importorskip("ortools")
    slices = pool("p", *(device(f"d{i}") for i in range(4)))
    claims = [claim(f"c{i}", request("r", count=2)) for i in range(3)]
    objects = [*slices, device_class("gpu"), node(), *claims]
    snapshot = Snapshot(objects)
    places, optimum = snapshot.place_batch(snapshot.alone())
    assert optimum.served == 2
    assert sum(place is not None for place in places) == 2
    held = []
    for place in places:
        if place is not None:
            assert verified(snapshot, objects, place, held) == []
            held += held_by(place.objects())
    (left,) = snapshot.pending()
    assert snapshot.place(left) is None
