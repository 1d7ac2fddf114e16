"""A selector that fails on some nodes keeps its pod pending, wherever the other nodes are."""

import pytest

from builders import claim, device, device_class, pod, pool, request, worker
from dralab.runtime.resources import CLAIMS, CLASSES, NODES, PODS, SLICES

SELECTOR = 'device.attributes["example.com"].exists == "yes"'


@pytest.fixture
def half(lab):
    """Two nodes with devices: one device has the attribute, the other does not."""
    lab.server.add(NODES, worker("n0"), worker("n1"))
    lab.server.add(CLASSES, device_class("gpu"))
    lab.server.add(SLICES, *pool("n0", device("d0", **{"example.com/exists": "yes"}), node="n0"))
    lab.start()
    return lab


def wanting(lab, name):
    lab.add(CLAIMS, {**claim(f"c-{name}", request("r", "gpu", SELECTOR), namespace="default")})
    lab.add(PODS, pod(name, claims={"g": f"c-{name}"}))


def test_every_pod_that_asks_the_same_stays_pending(half):
    half.add(SLICES, *pool("n1", device("d1"), node="n1"))
    for name in ("first", "second"):
        wanting(half, name)
        assert half.node_of(name) is None
        # The second answer is one that is remembered.
        assert "no such key: exists. consider using CEL optional chaining" in half.why(name)


def test_a_device_that_appears_later_stops_the_next_pod(half):
    wanting(half, "early")
    assert half.node_of("early") == "n0"
    half.add(SLICES, *pool("n0-more", device("d2", **{"example.com/exists": "yes"}), node="n0"))
    half.add(SLICES, *pool("n1", device("d1"), node="n1"))
    wanting(half, "late")
    assert half.node_of("late") is None
    half.client.delete(SLICES, "n1")
    half.settle()
    assert half.node_of("late") == "n0"
