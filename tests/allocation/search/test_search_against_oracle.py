"""Every answer of the search is held against the oracle that tries everything."""

import pytest
from hypothesis import HealthCheck, assume, given, settings

from dralab.allocation import v1
from dralab.allocation.allocator import allocate
from dralab.allocation.outcome import Allocated, Unknown
from problems import TooBigError, cases, tried


@pytest.mark.thorough
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases())
def test_the_search_finds_what_the_oracle_finds_and_nothing_else(case):
    try:
        expected = tried(case, limit=4000).solution
    except TooBigError:
        assume(False)
    outcome = allocate(case.problem(), v1.node(case.node))
    assert not isinstance(outcome, Unknown)
    if not isinstance(outcome, Allocated):
        assert expected is None
        return
    allocations = [v1.status_allocation(item) for item in outcome.claims]
    assert case.verifier().violations(allocations) == []
    assert expected is not None
    # Kubernetes' choice: the very same devices in the same order.
    assert [
        (claim, result["request"], result["driver"], result["device"])
        for claim, allocation in enumerate(allocations)
        for result in allocation["devices"].get("results", ())
    ] == [(item.claim, item.request, item.key.driver, item.key.device) for item in expected]
