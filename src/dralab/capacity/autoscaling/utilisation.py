"""How much of a node is in use, as cluster-autoscaler counts it where nodes have devices.

Source: cluster-autoscaler `simulator/utilization` and `simulator/dynamicresources/utils`, 1.36. If
a node has devices of its own, its CPU and memory do not count.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from dralab.objects.claims import results_of
from dralab.objects.metadata import spec_of
from dralab.objects.nodes import offered
from dralab.objects.requests import base_units
from dralab.objects.slices import PoolName, by_pool, devices_of, newest_of
from dralab.scheduling.model import ClusterModel
from dralab.values.json_types import JsonObject
from dralab.values.quantity import parse_any


def utilisation(model: ClusterModel, node: str) -> float | None:
    """Return the part of a node that is in use: the most of its pools of devices, or of its own.

    None: a pool lacks slices, so that nobody can tell; such a node is not given back.
    """
    slices = [each for each in model.slices.values() if spec_of(each).get("nodeName") == node]
    if not slices:
        # GPUs that pods share are no devices, and count alone as well (`CalculateGpuUtilization`).
        table = model.state.table
        of_gpus = table.gpus.used_part(table.row_of[node])
        return _of_amounts(model, node) if of_gpus is None else of_gpus
    used: dict[PoolName, set[str]] = {}
    for each in model.on(node):
        for plan in each.plans:
            for result in results_of(plan.allocation):
                if not result.get("adminAccess"):
                    pool = PoolName(result["driver"], result["pool"])
                    used.setdefault(pool, set()).add(result["device"])
    most = 0.0
    for pool, found in by_pool(slices).items():
        current = newest_of(found)
        if len(current) != current[0]["spec"]["pool"]["resourceSliceCount"]:
            return None
        most = max(most, _of_pool(current, used.get(pool, set())))
    return most


def _of_amounts(model: ClusterModel, node: str) -> float:
    """Return the larger part of CPU and memory that pods request."""
    held: Counter[str] = Counter()
    for each in model.on(node):
        held.update({name: each.pod.requests.get(name, 0) for name in ("cpu", "memory")})
    offer = offered(model.node(node) or {})
    parts = [
        held[name] / amount
        for name in ("cpu", "memory")
        if name in offer and (amount := base_units(name, offer[name]))
    ]
    return max(parts, default=0.0)


def _of_pool(slices: Sequence[JsonObject], used: set[str]) -> float:
    """Return the part of a pool that is allocated.

    Devices that share counters are parts of a card, and a set of counters is a card: what counts is
    its counter of which most is taken. Any share of another device counts as the whole.
    """
    devices = [device for item in slices for device in devices_of(item)]
    cards = {name for device in devices for name, _ in _consumed(device)}
    whole = [device for device in devices if not device.get("consumesCounters")]
    taken = [device for device in devices if device["name"] in used]
    parts = [device for device in taken if device.get("consumesCounters")]
    of_whole = (len(taken) - len(parts)) / len(whole) if whole else 0.0
    if not parts:
        return of_whole
    of_cards = _of_cards(slices, parts) / len(cards)
    if len(parts) == len(taken):
        return of_cards
    return (of_cards * len(cards) + of_whole * len(whole)) / (len(cards) + len(whole))


def _of_cards(slices: Iterable[JsonObject], parts: Iterable[JsonObject]) -> float:
    """Return how many cards' worth of their counters some parts take."""
    taken: Counter[tuple[str, str]] = Counter()
    for device in parts:
        for name, counters in _consumed(device):
            taken.update({(name, key): int(parse_any(c["value"])) for key, c in counters.items()})
    return sum(
        max(
            (
                taken[counters["name"], key] / most
                for key, counter in counters["counters"].items()
                if (most := int(parse_any(counter["value"])))
            ),
            default=0.0,
        )
        for item in slices
        for counters in spec_of(item).get("sharedCounters") or ()
    )


def _consumed(device: JsonObject) -> Iterable[tuple[str, Mapping[str, JsonObject]]]:
    for each in device.get("consumesCounters") or ():
        yield each["counterSet"], each["counters"]
