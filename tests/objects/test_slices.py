"""Pools, as their slices tell of them, and which devices a DeviceTaintRule is about."""

import pytest
from tests.builders import device, pool

from dralab.objects.device_taints import rule_selects
from dralab.objects.slices import PoolName, by_pool, devices_of, generation_of, newest_of, pool_of


def test_only_slices_of_the_newest_generation_count():
    old, new = pool("a", device("d0")), pool("a", device("d1"), generation=3)
    assert newest_of([*old, *new]) == new
    assert generation_of([*old, *new]) == 3
    assert (newest_of([]), generation_of([])) == ([], 0)


def test_slices_are_told_apart_by_driver_and_pool():
    (a,), (b,), (c,) = pool("a"), pool("b"), pool("a", driver="other")
    assert by_pool([a, b, c]) == {pool_of(a): [a], pool_of(b): [b], PoolName("other", "a"): [c]}
    assert str(pool_of(c)) == "other/a"
    assert list(devices_of(a)) == list(devices_of({"spec": {}})) == []


@pytest.mark.parametrize(
    ("selector", "device_", "pool_"),
    [
        (None, False, False),
        ({}, True, True),
        ({"driver": "d"}, True, True),
        ({"driver": "other"}, False, False),
        ({"driver": "d", "pool": "p"}, True, True),
        ({"driver": "d", "pool": "other"}, False, False),
        ({"device": "x"}, True, True),
        ({"driver": "d", "pool": "p", "device": "other"}, False, True),
        ({"driver": None, "pool": None, "device": "x"}, True, True),
    ],
)
def test_a_rule_is_about_devices_that_match_all_it_names(selector, device_, pool_):
    rule = {"spec": {"deviceSelector": selector}}
    assert rule_selects(rule, "d", "p", "x") is device_
    assert rule_selects(rule, "d", "p") is pool_
