"""One scheduling cycle: from a pod and the state to a placement or the reasons for a refusal.

A cycle writes nothing and changes nothing: `ClusterState.assume_placement` records its decision,
`forget_placement` removes it. The steps are kube-scheduler's: filter, score, devices. All nodes are
checked.
"""

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import replace
from enum import Enum, auto
from typing import Final, Literal, NamedTuple

import numpy as np

from dralab.allocation.outcome import Outcome, Unknown, Unsatisfiable
from dralab.allocation.policy.policies import Policy
from dralab.scheduling import scores
from dralab.scheduling.allocatable import InsufficientResource, NodeShortage
from dralab.scheduling.demands import BlockedPod, PodDemand
from dralab.scheduling.filters import judgements, lacking, passing, promised
from dralab.scheduling.kinds import KindScores
from dralab.scheduling.nodes import Mask, Scores
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.reasons import (
    AGAINST_POLICY,
    NO_DEVICES,
    NO_VOLUME,
    SELECTOR_FAILS,
    Reason,
    insufficient,
)
from dralab.scheduling.state import ClusterState, PodPlacement, Refusal

# With alternatives to rank, devices are found on at most this many nodes before one is chosen.
RANKED_NODES: Final = 100
# kube-scheduler looks for places on at least as many nodes (minFeasibleNodesToFind).
TRIED_NODES: Final = 100


class Kept(Enum):
    """The kept scores of a kind of pods are not enough for a decision."""

    NOT_KEPT = auto()


NOT_KEPT: Final = Kept.NOT_KEPT


class NodeAttempt(NamedTuple):
    """The result of trying a pod on one node: its placement, or the reason.

    `points` are those of the chosen alternatives, None if nothing had to be allocated.
    """

    placement: PodPlacement | None
    refused: Unsatisfiable | Unknown | None = None
    shortage: NodeShortage | None = None
    points: int | None = None


def schedule(
    state: ClusterState, pod: PodInfo, among: Mask | None = None, *, explains: bool = True
) -> PodPlacement | Refusal:
    """Return a pod's placement, or why it fits nowhere; `among` restricts the nodes.

    Unless it `explains`, a refusal has no reasons.
    """
    table = state.table
    demand = state.demands.demand_of(pod)
    if isinstance(demand, BlockedPod):
        return Refusal(pod=pod, nodes=table.count, blocked=demand.reason)
    kind = None if among is not None else _kept_kind(state, pod, demand)
    if kind is not None and (known := state.refused(kind)) is not None:
        return replace(known, pod=pod, repeated=True)
    outcomes: dict[str, Outcome] = {}
    shortages: dict[str, NodeShortage] = {}
    found = _by_kept_scores(state, kind, pod, demand, outcomes)
    if found is NOT_KEPT:
        found = _placed(state, pod, demand, outcomes, shortages, among)
    if isinstance(found, PodPlacement):
        # As kube-scheduler, which finds out in PreBind: no other node is tried.
        forbidden = state.forbids(found) if state.forbids else None
        return (
            found if forbidden is None else Refusal(pod=pod, nodes=table.count, blocked=forbidden)
        )
    if not explains:
        return Refusal(pod=pod, nodes=table.count, kind=kind)
    refused = refusal(state, pod, demand, outcomes, shortages, kind)
    if kind is not None:
        state.remember(refused)
    return refused


def _kept_kind(state: ClusterState, pod: PodInfo, demand: PodDemand) -> Hashable | None:
    """Return the kind of a pod if all of that kind are decided alike now; else None."""
    return None if state.nominees or state.choice.by_object else kind_of(pod, demand)


def _by_kept_scores(
    state: ClusterState,
    kind: Hashable | None,
    pod: PodInfo,
    demand: PodDemand,
    outcomes: dict[str, Outcome],
) -> PodPlacement | Literal[Kept.NOT_KEPT] | None:
    """Return the same as `_placed`, from the kept scores of the pod's kind, if they suffice."""
    if kind is None or demand.ranked or (demand.signature and state.choice.devices is not None):
        return NOT_KEPT
    if state.kinds is None:
        state.kinds = KindScores(state)
    last = -1
    while (kept := state.kinds.scores_of(kind, pod, demand)) is not None:
        row = state.choice.best(kept) if len(kept) else -1
        if row < 0 or kept[row] < 0:
            return None
        if not (demand.claims or demand.extended):
            return PodPlacement(state.settled(pod, row), state.table.names[row])
        if row == last or not state.is_sound(demand.signature):
            return NOT_KEPT
        last = row
        tried = on_node(state, pod, demand, row)
        if tried.placement is not None:
            return tried.placement
        if tried.shortage is not None or tried.refused is None:
            return NOT_KEPT
        # Without devices the node has left what fits.
        outcomes[state.table.names[row]] = tried.refused
    return NOT_KEPT


def placement(state: ClusterState, pod: PodInfo) -> PodPlacement | None:
    """Return a pod's placement, or None: like `schedule`, without reasons."""
    found = schedule(state, pod, explains=False)
    return found if isinstance(found, PodPlacement) else None


def _placed(  # noqa: PLR0917 - what is found out on the way goes into both mappings
    state: ClusterState,
    pod: PodInfo,
    demand: PodDemand,
    outcomes: dict[str, Outcome],
    shortages: dict[str, NodeShortage],
    among: Mask | None = None,
) -> PodPlacement | None:
    """Find the best place for a pod; records attempts in both mappings."""
    fitting = passing(state, pod, demand)
    if among is not None:
        fitting &= among
    if not fitting.any():
        return None
    if demand.signature and (policy := state.choice.devices) is not None:
        found = _cheapest(state, pod, demand, fitting, shortages, policy)
        if found is not None:
            return found
    if demand.claims or demand.extended:
        return _with_devices(state, pod, demand, fitting, outcomes, shortages)
    points = scores.total(state, pod, fitting)[0]
    row = state.choice.best(points)
    if points[row] == -np.inf:
        return None
    volumes = state.volume_plans(demand, row)
    return PodPlacement(state.settled(pod, row), state.table.names[row], volumes=volumes or ())


def ranked(state: ClusterState, pod: PodInfo) -> list[str]:
    """Return the nodes for a pod without claims, the best first."""
    fitting = passing(state, pod, PodDemand())
    if not fitting.any():
        return []
    rows = np.argsort(-scores.total(state, pod, fitting)[0], kind="stable")
    return [state.table.names[row] for row in rows if fitting[row]]


def kind_of(pod: PodInfo, demand: PodDemand) -> Hashable | None:
    """Return the key of pods that fit or fail alike; None if the pod is unique."""
    return None if pod.group else form_of(pod, demand)


def form_of(pod: PodInfo, demand: PodDemand) -> Hashable | None:
    """Return the key of pods that fit or fail alike among those of one group, or of none."""
    by_pods = pod.affinity or pod.anti_affinity or pod.spread
    if by_pods or pod.volume_claims or pod.ports:
        return None
    if any(item.allocation is not None for item in demand.claims):
        return None
    return pod.asking, demand.signature, pod.shares


def on_node(
    state: ClusterState,
    pod: PodInfo,
    demand: PodDemand,
    row: int,
    policy: Policy | None = None,
) -> NodeAttempt:
    """Try a pod on a node that passes the filters: its devices, and what they consume."""
    found = state.devices.plans(pod, demand, row, policy)
    if found.refused is not None:
        return NodeAttempt(None, found.refused)
    charged = state.devices.charged(pod, found.plans)
    if isinstance(charged, NodeShortage):
        return NodeAttempt(None, shortage=charged)
    shortage = None if charged is pod else _shortage(state, pod, charged, demand, row)
    if shortage is not None:
        return NodeAttempt(None, shortage=shortage)
    volumes = state.volume_plans(demand, row)
    if volumes is None:
        return NodeAttempt(None, shortage=NodeShortage((Reason(NO_VOLUME),)))
    charged = state.settled(charged, row)
    placement = PodPlacement(charged, state.table.names[row], found.plans, volumes)
    return NodeAttempt(placement, points=found.points if found.allocated else None)


def _shortage(
    state: ClusterState, pod: PodInfo, charged: PodInfo, demand: PodDemand, row: int
) -> NodeShortage | None:
    """Return what a node lacks for a pod with its devices, or None."""
    table, name = state.table, state.table.names[row]
    others = promised(state, charged, name)
    for other in others:
        table.add_pod(name, other)
    short = lacking(table, charged, row, demand.extended)
    lacks = []
    for resource, needed in sorted(charged.requests.items()):
        own, free = pod.requests.get(resource, 0), int(table.free(resource)[row])
        if needed > max(own, free):
            lacks.append(InsufficientResource(resource, own, needed - own, free))
    for other in others:
        table.remove_pod(name, other.uid)
    return NodeShortage(tuple(map(insufficient, short)), tuple(lacks)) if short else None


def _cheapest(  # noqa: PLR0917 - as of `_with_devices`
    state: ClusterState,
    pod: PodInfo,
    demand: PodDemand,
    fitting: Mask,
    shortages: dict[str, NodeShortage],
    policy: Policy,
) -> PodPlacement | None:
    """Find the cheapest node and its devices; None if a policy cannot rank."""
    while (row := state.devices.cheapest(policy, demand, fitting)) is not None:
        tried = on_node(state, pod, demand, row, policy)
        if tried.placement is not None:
            return tried.placement
        if tried.shortage is not None:
            shortages[state.table.names[row]] = tried.shortage
        fitting[row] = False
    return None


def _with_devices(  # noqa: PLR0917 - what is found out on the way goes into the last two
    state: ClusterState,
    pod: PodInfo,
    demand: PodDemand,
    fitting: Mask,
    outcomes: dict[str, Outcome],
    shortages: dict[str, NodeShortage],
) -> PodPlacement | None:
    """Find devices on the best node that has them.

    Where points depend on the other nodes, all nodes are tried, up to RANKED_NODES: those without
    devices do not count.
    """
    names = state.table.names
    points, relative = scores.total(state, pod, fitting)
    most = RANKED_NODES if relative or demand.ranked else 1
    left = fitting.copy()
    placed: dict[int, NodeAttempt] = {}
    while len(placed) < most:
        row = state.choice.best(points)
        if points[row] == -np.inf:
            break
        points[row] = -np.inf
        tried = on_node(state, pod, demand, row)
        if tried.shortage is not None:
            shortages[names[row]] = tried.shortage
        elif tried.refused is not None:
            outcomes[names[row]] = tried.refused
            if isinstance(tried.refused, Unsatisfiable) and tried.refused.fatal:
                return None
        if tried.placement is None:
            left[row] = False
        else:
            placed[row] = tried
    if not placed or _fails_elsewhere(state, pod, demand, points, outcomes):
        return None
    if len(placed) == 1:
        return next(iter(placed.values())).placement
    rows = list(placed)
    ranks = scores.devices_points([tried.points or 0 for tried in placed.values()])
    final = np.full(len(points), -np.inf)
    final[rows] = scores.total(state, pod, left)[0][rows] + ranks
    return placed[state.choice.best(final)].placement


def _fails_elsewhere(
    state: ClusterState,
    pod: PodInfo,
    demand: PodDemand,
    points: Scores,
    outcomes: dict[str, Outcome],
) -> bool:
    """Return whether a selector fails on an untried node, whose outcome is then recorded.

    Such a pod goes nowhere, although there are devices for it: there is something wrong with it.
    kube-scheduler tries that many nodes for each pod. Here one pod does, for all that ask the same.
    """
    if not demand.signature or state.is_sound(demand.signature):
        return False
    for row in np.argsort(-points, kind="stable")[:TRIED_NODES]:
        if points[row] == -np.inf:
            break
        refused = state.devices.plans(pod, demand, int(row)).refused
        if isinstance(refused, Unsatisfiable) and refused.fatal:
            outcomes[state.table.names[row]] = refused
            return True
    state.note_sound(demand.signature)
    return False


def refusal(  # noqa: PLR0917 - what the cycle has found out
    state: ClusterState,
    pod: PodInfo,
    demand: PodDemand,
    outcomes: Mapping[str, Outcome],
    shortages: Mapping[str, NodeShortage],
    kind: Hashable = None,
) -> Refusal:
    """Return the refusal of a pod that fits nowhere: the first failing filter of each node."""
    table = state.table
    # A node without devices is no longer feasible: `DynamicResources` says so of it.
    plain = not shortages and not any(
        isinstance(outcome, Unsatisfiable) and outcome.error for outcome in outcomes.values()
    )
    if kind is not None and plain and state.kinds is not None:
        kept = state.kinds.reasons_of(kind, pod, demand)
        if kept is not None:
            return Refusal(
                pod=pod, nodes=table.count, reasons=kept, outcomes=dict(outcomes), kind=kind
            )
    counted: Counter[Reason] = Counter()
    fatal: Reason | None = None
    left = table.live.copy()
    for name in {**outcomes, **shortages}:
        left[table.row_of[name]] = False
        outcome, shortage = outcomes.get(name), shortages.get(name)
        if shortage is not None:
            counted.update(shortage.reasons)
        elif isinstance(outcome, Unsatisfiable) and outcome.error:
            reason = Reason(SELECTOR_FAILS, (outcome.error,))
            fatal = reason if outcome.fatal else fatal
            counted[reason] += 1
        else:
            counted[Reason(NO_DEVICES)] += 1
    for _, judgement in judgements(state, pod, demand):
        counted.update(judgement.counted(np.flatnonzero(left & ~judgement.mask)))
        left &= judgement.mask
    if left.any():
        vetoed = state.choice.refuses_nodes and not (demand.claims or demand.extended)
        counted[Reason(AGAINST_POLICY if vetoed else NO_DEVICES)] += int(left.sum())
    return Refusal(
        pod=pod,
        nodes=table.count,
        reasons=dict(counted),
        outcomes=dict(outcomes),
        shortages=dict(shortages),
        fatal=fatal,
        kind=kind,
    )
