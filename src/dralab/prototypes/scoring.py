"""Scores of a device API design with a fleet and a load of pods.

Any generation is measured in the same way, through its allocation problems. Sets of devices are
counted up to a limit: beyond it a number is a lower bound.
"""

from collections.abc import Sequence
from fractions import Fraction
from statistics import median_low
from typing import Any, Final

from dralab.allocation.check.enumeration import assignments
from dralab.allocation.problem import DeviceId, InUse
from dralab.allocation.room import Room
from dralab.allocation.search.alternatives import RefusedError
from dralab.allocation.search.backtracking import BudgetError
from dralab.allocation.search.eligibility import SearchError
from dralab.objects.metadata import spec_of
from dralab.prototypes.placement import GenerationCluster, PlacedPod
from dralab.values.json_types import JsonDict
from dralab.values.patches import copied
from dralab.values.records import dataclass

MOST_WAYS: Final = 10_000
STEPS: Final = 1_000_000  # of one search
Devices = frozenset[DeviceId]


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignScore:
    """The result of a load on a fleet.

    `units` are devices, and cards that are cut into partitions; `left` of them can still be given.
    `ways` are the sets of devices that each pod could get from the fleet as it was in the
    beginning, on all nodes together, least first; `most_ways` of them are counted.
    `given` are the units that the load took, `needed` those that the smallest possible choice at
    each step would have taken. `stranded` is the part of `left` that no pod of the load could use.
    """

    pods: int
    placed: int
    units: int
    left: Fraction
    ways: tuple[int, ...]
    given: Fraction
    needed: Fraction
    stranded: Fraction
    most_ways: int = MOST_WAYS

    @property
    def oversized(self) -> Fraction:
        """The share of allocated capacity that a smaller choice would have left."""
        return 1 - self.needed / self.given if self.given else Fraction()

    @property
    def useless(self) -> Fraction:
        """The share of the remaining capacity that no pod of the load could use."""
        return self.stranded / self.left if self.left else Fraction()

    @property
    def least_ways(self) -> int:
        """The ways of the pod that has the fewest; 0 without pods."""
        return self.ways[0] if self.ways else 0

    @property
    def median_ways(self) -> int:
        """The ways of the pod in the middle; 0 without pods."""
        return median_low(self.ways) if self.ways else 0

    def document(self) -> dict[str, Any]:
        """Return the numbers as `-o json` has them."""
        return {
            "pods": self.pods,
            "podsPlaced": self.placed,
            "units": self.units,
            "unitsLeft": _rounded(self.left),
            "waysLeast": self.least_ways,
            "waysMedian": self.median_ways,
            "waysCountedTo": self.most_ways,
            "oversized": _rounded(self.oversized),
            "useless": _rounded(self.useless),
        }


def _rounded(number: Fraction) -> float:
    return round(float(number), 4)


def repeated(objects: Sequence[JsonDict], times: int) -> list[JsonDict]:
    """Return objects with every pod without a node `times` over, in rounds.

    Copies use the same templates and classes, and share the claims that exist.
    """
    found = list(objects)
    for number in range(1, times):
        found += [
            _renamed(item, f"-{number + 1}")
            for item in objects
            if item.get("kind") == "Pod" and not spec_of(item).get("nodeName")
        ]
    return found


def _renamed(pod: JsonDict, ending: str) -> JsonDict:
    made: JsonDict = copied(pod)
    made["metadata"]["name"] += ending
    made["metadata"].pop("uid", None)
    return made


def score(cluster: GenerationCluster, *, most_ways: int = MOST_WAYS) -> DesignScore:
    """Place the pods of a cluster that have no node, one after the other, and measure.

    The cluster holds the placements afterwards.
    """
    room = Room(cluster.fleet().slices)
    load = [pod for pod in cluster.pods() if not spec_of(pod).get("nodeName")]
    ways = {id(pod): _sets(cluster, pod, most_ways) for pod in load}
    load = [pod for pod in load if ways[id(pod)] is not None]
    given = needed = Fraction()
    placed = 0
    for pod in load:
        before = cluster.fleet().in_use
        possible = _sets(cluster, pod, most_ways) or ()
        placement = cluster.place(pod)
        if not isinstance(placement, PlacedPod):
            continue
        cluster.apply(placement)
        placed += 1
        mine = cluster.fleet().in_use.devices() - before.devices()
        took = room.taken(mine, before)
        given += took
        needed += min([took, *(room.taken(each, before) for each in possible if each)])
    in_use = cluster.fleet().in_use
    return DesignScore(
        pods=len(load),
        placed=placed,
        units=len(room.units),
        left=room.left(in_use),
        ways=tuple(sorted(len(found) for pod in load if (found := ways[id(pod)]) is not None)),
        given=given,
        needed=needed,
        stranded=_stranded(cluster, room, in_use, load, most_ways),
        most_ways=most_ways,
    )


def _stranded(
    cluster: GenerationCluster,
    room: Room,
    in_use: InUse,
    load: Sequence[JsonDict],
    most_ways: int,
) -> Fraction:
    """Return how much is free but in no set that another pod like those of the load could get."""
    useless = room.open(in_use.devices())
    for pod in load:
        if not useless:
            break
        for devices in _sets(cluster, _renamed(pod, "-more"), most_ways) or ():
            useless -= devices
    return room.share_of(useless)


def _sets(cluster: GenerationCluster, pod: JsonDict, most: int) -> set[Devices] | None:
    """Return the sets of devices that a pod could get now; None if it asks for no devices."""
    try:
        problems = cluster.problems(pod)
    except ValueError:
        return set()  # its claims cannot be met at all
    if problems and not problems[0][1].claims:
        return None
    found: set[Devices] = set()
    for node, problem in problems:
        try:
            for assignment in assignments(problem, node, budget=STEPS):
                found.add(frozenset(each for _, several in assignment for each in several))
                if len(found) >= most:
                    return found
        except (BudgetError, RefusedError, SearchError):
            continue
    return found
