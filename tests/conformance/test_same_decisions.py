"""The unmodified kube-scheduler and dralab's scheduler decide alike in random states."""

from collections import Counter

import pytest

import stockparts
from clocked import needs_clock
from clusters import random_cluster
from ourverdicts import difference, is_tried, our_verdict, preempted_otherwise, wants_devices
from stockverdicts import as_stored, stock_scheduler

pytestmark = [pytest.mark.conformance, needs_clock, stockparts.needs(stockparts.REASONS)]

# Off in kube-scheduler 1.36 unless one asks: groups of pods, and rules that taint devices (with
# that gate 1.36.2 panics at the first v1beta2 rule). An incomplete pool with counters of one node
# makes it refuse requests for all devices on every node; we look at the pools of the node.
LEFT_OUT = frozenset({"group", "taint-rule", "incomplete-counters"})
CLUSTERS = 750  # of them come some 2,000 pods


def test_reasons_nodes_and_points_are_those_of_kube_scheduler():
    outcomes: Counter[str] = Counter()
    differing = []
    with stock_scheduler() as scheduler:
        for seed in range(CLUSTERS):
            cluster = random_cluster(seed, without=LEFT_OUT)
            for pod in cluster.waiting():
                name = pod["metadata"]["name"]
                objects = cluster.alone(name)
                stock = scheduler.verdict(objects, name)
                if not is_tried(pod):
                    outcomes["not tried"] += 1
                    assert (stock.node, stock.message) == ("", "")
                    continue
                ours = our_verdict([as_stored(item) for item in objects], name)
                outcomes["placed" if ours.node else "refused"] += 1
                outcomes["scored"] += bool(stock.points)
                outcomes["nodes"] += len(ours.by_node) and len(stock.by_node)
                outcomes["preempting"] += bool(stock.evicted)
                found = difference(stock, ours)
                # kube-scheduler preempts for no devices.
                if not found and not wants_devices(objects, pod):
                    found = preempted_otherwise(stock, ours, objects)
                if found:
                    differing.append(f"cluster {seed}, {name}: {found}")
    assert not differing, "\n".join(differing[:20])
    # Enough of each, or nothing was compared.
    assert outcomes["placed"] > CLUSTERS // 2
    assert outcomes["refused"] > CLUSTERS
    assert outcomes["scored"] > CLUSTERS // 5
    assert outcomes["nodes"] > 8 * CLUSTERS
    assert outcomes["preempting"] > CLUSTERS // 50
