"""The unmodified kube-scheduler 1.37 and dralab's scheduler place the same groups of pods.

Gangs, racks, groups of groups, and devices, with the gates for them on, in random states; and which
pods of lower priority they preempt, where nodes are full.
"""

from collections import Counter

import pytest

import stockparts
from clocked import needs_clock
from clusters.groups import RACK, random_groups
from dralab.allocation.selectors import CelSelectorCompiler
from dralab.api.resource.features import OF_GROUPS, default_of, gates
from dralab.apiserver.storage import Key
from dralab.cluster import Options
from dralab.objects.metadata import is_deleting
from dralab.objects.pod_groups import is_loose as alone
from dralab.objects.pod_groups import least_of
from dralab.scheduler.scheduler import Scheduler
from dralab.scheduling.group_placement import place_tree
from dralab.scheduling.group_trees import is_loose, tree_of, unready
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.reasons import Reason
from dralab.scheduling.state import PodPlacement, Refusal
from labs import Lab
from stockverdicts import as_stored, stock_scheduler

pytestmark = [pytest.mark.conformance, needs_clock, stockparts.needs(stockparts.NEWEST)]

STATES = 300
CROWDED = 100
PATIENCE = 20 * 10**9
ON = OF_GROUPS & gates("1.37").keys() - {"WorkloadWithJob"}
GATES = ",".join(["OpportunisticBatching=false", *(f"{name}=true" for name in sorted(ON))])
OPTIONS = Options(timers=False, version="1.37", features=default_of("1.37") | ON)


def placed_by_us(objects, names):
    """Return the node of each pod that gets one."""
    model = ClusterModel([as_stored(item) for item in objects])
    pods = [pod for pod in model.waiting if pod.key.name in names]
    tree = tree_of(
        model.state, pods[0], lambda key: [p for p in model.waiting if p.group == key.name]
    )
    if isinstance(tree, Reason):
        return {}
    if is_loose(tree):
        found = []
        for pod in pods:
            each = model.try_pod(pod)
            if isinstance(each, PodPlacement):
                model.state.assume_placement(each)
                found.append(each)
    elif unready(tree) is not None:
        return {}
    else:
        found = place_tree(model.state, tree)
    return {} if isinstance(found, Refusal) else {each.pod.key.name: each.node for each in found}


def racks_of(objects, placed):
    """Return the racks in which each group with a topology constraint is."""
    of_node = {
        item["metadata"]["name"]: item["metadata"]["labels"].get(RACK)
        for item in objects
        if item["kind"] == "Node"
    }
    together = {
        item["metadata"]["name"]
        for item in objects
        if item["kind"] == "PodGroup" and "schedulingConstraints" in item["spec"]
    }
    groups = {name: name.partition("-")[0] for name in placed}
    return {
        group: {of_node[node] for name, node in placed.items() if groups[name] == group}
        for group in together & set(groups.values())
    }


def fullness(objects, rack):
    """Return what a rack offers and what is used of it: racks with the same of both are alike."""
    nodes = {
        item["metadata"]["name"]: int(item["status"]["allocatable"]["cpu"])
        for item in objects
        if item["kind"] == "Node" and item["metadata"]["labels"].get(RACK) == rack
    }
    used = [item for item in objects if (item.get("spec") or {}).get("nodeName") in nodes]
    return sum(nodes.values()), sum(item["kind"] == "Pod" for item in used)


def test_groups_are_placed_as_by_kube_scheduler():
    outcomes, differing = Counter(), []
    options = {"plugins": "", "gates": GATES, "options": OPTIONS}
    with stock_scheduler(stockparts.NEWEST, **options) as scheduler:
        for seed in range(STATES):
            objects, names = random_groups(seed)
            verdicts = scheduler.verdicts(objects, names, PATIENCE)
            stock = {name: each.node for name, each in verdicts.items() if each.node}
            ours = placed_by_us(objects, names)
            outcomes["placed" if stock else "refused"] += 1
            racks = racks_of(objects, ours)
            outcomes["in one rack"] += bool(racks)
            assert all(len(each) == 1 and None not in each for each in racks.values()), seed
            if len(ours) > len(stock):
                # We look back where a later pod does not fit: docs/concepts/scheduler.md.
                outcomes["revised"] += 1
                continue
            theirs = {
                group: {fullness(objects, rack) for rack in found}
                for group, found in racks_of(objects, stock).items()
            }
            mine = {
                group: {fullness(objects, rack) for rack in found} for group, found in racks.items()
            }
            if set(stock) != set(ours) or theirs != mine:
                differing.append(f"state {seed}: {stock}, not {ours}")
    assert not differing, "\n".join(differing)
    assert outcomes["placed"] > STATES // 3
    assert outcomes["refused"] > STATES // 5
    assert outcomes["in one rack"] > STATES // 10
    assert outcomes["revised"] < STATES // 10


# --- groups that preempt


def preempted_by_us(objects, names):
    """Return the nodes of the pods that came to one, and which others were evicted for them."""
    lab = Lab(features=OPTIONS.features, release="1.37")
    Scheduler(lab.manager, CelSelectorCompiler())
    store, kinds = lab.api.store, lab.api.resources.kinds
    keys = {}
    for late in (False, True):
        with store.lock, store.batch():
            for item in map(as_stored, objects):
                metadata = item["metadata"]
                if (item["kind"] == "Pod" and metadata["name"] in names) is not late:
                    continue
                of = (item["apiVersion"], item["kind"])
                kind = next(each for each in kinds if (each.api_version, each.kind) == of)
                key = Key(kind.hub, metadata.get("namespace") or "", metadata["name"])
                store.create(key, item)
                if item["kind"] == "Pod":
                    keys[metadata["name"]] = key
        if not late:
            lab.start()
    lab.wait(PATIENCE // 10**9)
    left = {name: store.get(key) for name, key in keys.items()}
    placed = {name: left[name].value["spec"].get("nodeName") for name in names}
    gone = {
        name for name, stored in left.items()
        if name not in names and (stored is None or is_deleting(stored.value))
    }  # fmt: skip
    return {name for name, node in placed.items() if node}, gone


def allowed(objects, ours, stock):
    """Return why the two may differ, as docs/concepts/scheduling.md has it; None if they may not.

    `ours` and `stock` are which pods of the group are placed, and which others are evicted.
    """
    (placed, evicted), (placed_there, evicted_there) = ours, stock
    groups = [item for item in objects if item["kind"] == "PodGroup"]
    whole = not any(item["kind"] == "CompositePodGroup" for item in objects)
    if whole and alone(groups[0]):
        return "each pod of a group without any rule preempts for itself"
    waiting = Counter(
        item["spec"]["schedulingGroup"]["podGroupName"]
        for item in objects
        if item["kind"] == "Pod" and "schedulingGroup" in item["spec"]
    )
    if any(waiting[each["metadata"]["name"]] > (least_of(each) or 1) for each in groups):
        return "kube-scheduler preempts for the pods that have come when there are enough"
    better = len(placed) > len(placed_there) or (evicted and not evicted_there)
    if better or (placed == placed_there and len(evicted) < len(evicted_there)):
        return "we look back where a later pod does not fit"
    if placed == placed_there and len(evicted) == len(evicted_there):
        return "of nodes as good as each other either may be taken"
    return None


def test_groups_preempt_as_by_kube_scheduler():
    reasons, differing, evictions = Counter(), [], 0
    options = {"plugins": "", "gates": GATES, "options": OPTIONS}
    with stock_scheduler(stockparts.NEWEST, **options) as scheduler:
        for seed in range(CROWDED):
            objects, names = random_groups(seed, crowded=True)
            verdicts = scheduler.verdicts(objects, names, PATIENCE)
            stock = (
                {name for name, each in verdicts.items() if each.node},
                {name for each in verdicts.values() for name in each.evicted},
            )
            ours = preempted_by_us(objects, names)
            evictions += bool(stock[1])
            if ours == stock:
                continue
            reason = allowed(objects, ours, stock)
            reasons[reason] += 1
            differing.append(f"state {seed}, {reason}: {stock}, not {ours}")
    assert None not in reasons, "\n".join(differing)
    assert evictions > CROWDED // 3
    assert len(differing) <= CROWDED // 10, "\n".join(differing)
