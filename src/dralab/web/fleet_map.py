"""The fleet as the page draws it: every node with its devices, in columns of small numbers.

Ten thousand nodes of eight devices are a megabyte and a half: names are listed once, and everything
else refers to them by their place in the list.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dralab.allocation.partitions import cards
from dralab.allocation.problem import Device, Slice
from dralab.objects.metadata import labels_of
from dralab.objects.nodes import is_lost, is_unschedulable
from dralab.objects.taints import taints_of
from dralab.scheduling.device_states import STATES, device_rows
from dralab.scheduling.snapshot import Snapshot
from dralab.values.json_types import JsonObject
from dralab.values.quantity import Number

ZONE: Final = "topology.kubernetes.io/zone"
# No label for racks is standard: the last part of a label's name tells.
RACKS: Final = ("rack", "rack-id", "block", "nvlink-domain")
KEEPS_AWAY: Final = frozenset({"NoSchedule", "NoExecute"})
NONE: Final = -1
WHOLE: Final = 100
TAINTED: Final = 1
UNHEALTHY: Final = 2
DeviceColumns = tuple[int, int, int, int, list[int], int, int]


class NameList:
    """A list of texts with their indexes."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int:
        """Return the index of a text, which is added if missing."""
        found = self._places.get(text)
        if found is None:
            found = self._places[text] = len(self.texts)
            self.texts.append(text)
        return found


def fleet_map(cluster: Snapshot) -> dict[str, Any]:
    """Return nodes and devices in columns.

    `nodes.devices` counts the devices of each node, which follow one another in `devices`; those
    that several nodes can use come last, with a node called `(several)`. `devices.card` is the
    place of the device that a partition is cut from, -1 for all others, `devices.share` the percent
    of it; `devices.holders` are places in `holders`; `devices.fill` is how much of a device is
    held, in percent; `devices.flags` is the sum of TAINTED and UNHEALTHY.
    """
    names, drivers, pools, holders = NameList(), NameList(), NameList(), NameList()
    zones, racks = NameList(), NameList()
    by_node: dict[str, list[DeviceColumns]] = {name: [] for name in cluster.nodes}
    for row in device_rows(cluster):
        by_node.setdefault(row.node, []).append(
            (
                names.place(row.device),
                drivers.place(row.driver),
                pools.place(row.pool),
                STATES.index(row.state),
                [holders.place(name) for name in row.holders],
                row.fill,
                row.tainted * TAINTED | row.unhealthy * UNHEALTHY,
            )
        )
    whole: dict[tuple[int, int, int], int] = {}
    shares: dict[tuple[int, int, int], int] = {}
    for part in _parts_of_cards(cluster.slices):
        key = drivers.place(part.driver), pools.place(part.pool), names.place(part.device)
        whole[key], shares[key] = names.place(part.card), part.share
    numbers: dict[tuple[int, int, int], int] = {}
    nodes: dict[str, list[Any]] = {"name": [], "zone": [], "rack": [], "status": [], "devices": []}
    devices: dict[str, list[Any]] = {
        "name": [], "driver": [], "pool": [], "state": [], "holders": [], "card": [],
        "share": [], "fill": [], "flags": [],
    }  # fmt: skip
    for name, found in by_node.items():
        node = cluster.nodes.get(name, {})
        labels = labels_of(node)
        nodes["name"].append(name)
        nodes["zone"].append(zones.place(str(labels.get(ZONE) or "")))
        nodes["rack"].append(racks.place(rack_of(labels)))
        nodes["status"].append(node_status(node))
        nodes["devices"].append(len(found))
        first = len(devices["name"])
        for number, (device, driver, pool, state, held, fill, flags) in enumerate(found, first):
            numbers[driver, pool, device] = number
            devices["name"].append(device)
            devices["driver"].append(driver)
            devices["pool"].append(pool)
            devices["state"].append(state)
            devices["holders"].append(held)
            devices["fill"].append(fill)
            devices["flags"].append(flags)
        for number, (device, driver, pool, *_) in enumerate(found, first):
            card = whole.get((driver, pool, device))
            at = NONE if card is None else numbers.get((driver, pool, card), NONE)
            devices["card"].append(NONE if at == number else at)
            devices["share"].append(shares.get((driver, pool, device), WHOLE))
    return {
        "states": list(STATES),
        "names": names.texts,
        "drivers": drivers.texts,
        "pools": pools.texts,
        "holders": holders.texts,
        "zones": zones.texts,
        "racks": racks.texts,
        "nodes": nodes,
        "devices": devices,
    }


def rack_of(labels: Mapping[str, Any]) -> str:
    """Return the rack of a node by its labels; empty where none tells it.

    >>> rack_of({"kubernetes.io/hostname": "n", "topology.dralab.dev/rack": "rack-7"})
    'rack-7'
    """
    for key in sorted(labels):
        if key.rpartition("/")[2] in RACKS:
            return str(labels[key])
    return ""


def node_status(node: JsonObject) -> str:
    """Return what keeps new pods from a node: `lost`, `cordoned`, `tainted`, or nothing."""
    if is_lost(node):
        return "lost"
    if is_unschedulable(node):
        return "cordoned"
    if any(taint.get("effect") in KEEPS_AWAY for taint in taints_of(node)):
        return "tainted"
    return ""


@dataclass(frozen=True, slots=True)
class CardPart:
    """A device, its card, and its approximate share of the card in percent."""

    driver: str
    pool: str
    device: str
    card: str
    share: int


def _parts_of_cards(slices: Sequence[Slice]) -> Iterator[CardPart]:
    """Yield the devices that share counters with others, and the one that draws most of them.

    That is the whole card, from which the others are cut.
    """
    for card in cards([each for each in slices if each.counter_sets or _draws(each)]):
        if len(card.devices) > 1:
            whole = max(card.devices, key=_drawn)
            most = _counters(whole)
            for device in card.devices:
                drawn = _counters(device).items()
                parts = [float(amount / most[name]) for name, amount in drawn if most.get(name)]
                share = min(WHOLE, round(WHOLE * max(parts, default=1.0)))
                yield CardPart(device.driver, card.pool, device.name, whole.name, share)


def _counters(device: Device) -> dict[tuple[str, str], Number]:
    return {
        (drawn.counter_set, name): amount
        for drawn in device.consumes
        for name, amount in drawn.counters.items()
    }


def _drawn(device: Device) -> Number:
    return sum(amount for each in device.consumes for amount in each.counters.values())


def _draws(part: Slice) -> bool:
    return any(device.consumes for device in part.devices)
