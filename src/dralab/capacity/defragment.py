"""Moves for several waiting pods, one after the other, and how many could be served at best.

Pods that fit come first, as the scheduler places them. Then each of the others, in the scheduler's
order, gets the cheapest moves on the cluster as it then is. That is not the best for all of them
together; how far from it at most, `at_best` tells: a bound by CP-SAT on the devices alone, as if
all pods that may move were packed anew.
"""

from collections.abc import Hashable, Iterable, Sequence

from dralab.allocation.serving_bound import most_served
from dralab.capacity.departures import Departures
from dralab.capacity.move_costs import MoveCosts
from dralab.capacity.moves import SETS, TRIES, Clearing, clear_for
from dralab.capacity.need import PodToPlace
from dralab.kernel.extras import MissingExtraError
from dralab.objects.metadata import NamespacedName
from dralab.scheduling.demands import BlockedPod
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.state import PodPlacement, Refusal
from dralab.values.json_types import JsonDict, JsonObject
from dralab.values.records import dataclass

# For many pods at once, each gets less effort.
SETS_OF_MANY, TRIES_OF_MANY = 20_000, 300
IN_GROUP = "it belongs to a PodGroup, whose pods start together: dralab moves no pods for those"
LIKE = "no moves were found for {}, which asks for the same"
NOT_FOUND = "no moves were found that make room for it"
NONE_HELPS = "no node has room for it, even without all pods that may be moved"


@dataclass(frozen=True, slots=True)
class Unserved:
    """A pod that still waits, and why; `is_proved` if no moves at all would help it."""

    pod: PodInfo
    why: str
    is_proved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Defragmentation:
    """Clearings in the order in which they are carried out, and the pods that still wait.

    `fitting` are pods that need no moves, with their places. `at_best` bounds how many of all the
    pods can be served by any moves; None: not known, because OR-Tools is not installed or some
    nodes cannot take part in the bound.
    """

    fitting: Sequence[PodPlacement]
    clearings: Sequence[Clearing]
    unserved: Sequence[Unserved]
    at_best: int | None = None

    @property
    def served(self) -> int:
        """How many pods are served."""
        return len(self.fitting) + len(self.clearings)

    @property
    def moves(self) -> int:
        """How many moves there are in all."""
        return sum(len(each.moves) for each in self.clearings)


def defragment(
    model: ClusterModel, pods: Iterable[PodInfo], costs: MoveCosts, *, most: int | None = None
) -> Defragmentation:
    """Return moves that make room for waiting pods, at most so many in all.

    The model is left as it was.
    """
    wanted = model.ordered(pods)
    alone = len(wanted) == 1
    with model.tentatively():
        decided = model.run(wanted)
        fitting = [each for each in decided.values() if isinstance(each, PodPlacement)]
        clearings: list[Clearing] = []
        unserved: list[Unserved] = []
        departures = Departures(model, costs)
        failed: dict[Hashable, NamespacedName] = {}
        left = most
        for pod in wanted:
            refused = decided[pod.uid]
            if not isinstance(refused, Refusal):
                continue
            kind = model.kind_of(pod)
            if pod.group:
                unserved.append(Unserved(pod, IN_GROUP, is_proved=False))
            elif kind is not None and kind in failed:
                unserved.append(Unserved(pod, LIKE.format(failed[kind]), is_proved=False))
            else:
                sets, tries = (SETS, TRIES) if alone else (SETS_OF_MANY, TRIES_OF_MANY)
                found = clear_for(departures, pod, most=left, sets=sets, tries=tries)
                if found.placement is None:
                    failed[kind] = pod.key
                    unserved.append(_unserved(found))
                    continue
                clearings.append(found)
                left = None if left is None else left - len(found.moves)
                carry_out(model, found)
    served = len(fitting) + len(clearings)
    at_best = served if not unserved else _at_best(model, wanted, costs)
    return Defragmentation(fitting=fitting, clearings=clearings, unserved=unserved, at_best=at_best)


def carry_out(model: ClusterModel, clearing: Clearing) -> None:
    """Do the moves of a clearing on a model, and let its pod run."""
    for move in clearing.moves:
        model.take_away(move.pod.uid)
        model.place(move.placement)
    if clearing.placement is not None:
        model.place(clearing.placement)


def _unserved(found: Clearing) -> Unserved:
    if found.why:
        return Unserved(found.pod, found.why, is_proved=True)
    why = NONE_HELPS if found.impossible else NOT_FOUND
    return Unserved(found.pod, why, is_proved=found.impossible)


def _at_best(model: ClusterModel, pods: Sequence[PodInfo], costs: MoveCosts) -> int | None:
    """Return an upper bound on the pods that moves can serve, by their devices; None if unknown.

    All pods that run are kept running, on whichever node.
    """
    waiting = []
    for pod in pods:
        demand = model.state.demands.demand_of(pod)
        if isinstance(demand, BlockedPod):
            continue
        waiting.append(PodToPlace(model, pod, demand).claims)
    asking = [claims for claims in waiting if claims]
    running: list[list[JsonDict]] = []
    free: list[JsonObject] = []
    for each in model.running.values():
        released = model.released_by([each])
        if not each.plans or each.pod.uid in costs.refused:
            continue
        if len(released) != len(each.plans):
            return None  # claims of several pods move with all of them
        running.append([plan.claim for plan in each.plans])
        free += released
    fleet = model.devices.fleet_without(free)
    try:
        served = most_served(fleet, [*running, *asking], len(running))
    except MissingExtraError:
        return None
    if served is None:
        return None
    return len(waiting) - len(asking) + min(len(asking), served - len(running))
