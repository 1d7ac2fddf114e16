"""Which of the nodes that fit is best: kube-scheduler's score plugins with their default weights.

Each gives a node 0 to 100 points, in whole numbers and rounded as there; a node's score is the sum
of points times weight. Of several nodes with the highest score the first in the order of the nodes
is taken (kube-scheduler takes any of them).

Points for alternatives of a request (DynamicResources) are known only once devices were found:
`cycle` adds them.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dralab.allocation.policy.policies import Policy
from dralab.objects.nodes import HOSTNAME
from dralab.scheduling.node_columns import Numbers
from dralab.scheduling.node_rules import NodeRules
from dralab.scheduling.nodes import Mask, NodeTable, Scores
from dralab.scheduling.pods import PodInfo, SpreadRule, changed
from dralab.scheduling.shares import Shares, having
from dralab.scheduling.topology import counted_nodes, per_domain, spread_out
from dralab.values.records import dataclass

# framework.MaxNodeScore.
MOST: Final = 100
DEVICES_WEIGHT: Final = 2
MIB: Final = 1024 * 1024
SMALL_IMAGES: Final = 23 * MIB
BIG_IMAGES: Final = 1000 * MIB


class ScoredNodes(Protocol):
    """The part of a cluster's state that scores depend on."""

    @property
    def table(self) -> NodeTable:
        """The nodes and the pods on them."""
        ...

    @property
    def node_rules(self) -> NodeRules:
        """The rules that depend only on the node and the kind of pod."""
        ...

    @property
    def choice(self) -> "NodeChoice":
        """How a node is chosen."""
        ...


Points = Callable[[ScoredNodes, PodInfo, Mask], Numbers | None]
# Scores that are kept for a kind of pods; negative where a node does not fit.
KeptScores = NDArray[np.int32] | NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ScorePlugin:
    """One of kube-scheduler's score plugins.

    `points` returns what each node gets, or None where all get the same. `relative` points depend
    on the nodes that a node is compared with.
    """

    name: str
    weight: int
    points: Points
    relative: bool = False


def total(state: ScoredNodes, pod: PodInfo, fitting: Mask) -> tuple[Scores, bool]:
    """Return the score of each node (-inf: it does not fit), and whether points are relative."""
    found, relative = points_of(state, pod, fitting)
    scores: Scores = found.astype(np.float64)
    scores[~fitting] = -np.inf
    if state.choice.refuses_nodes:
        scores[found < 0] = -np.inf
    return scores, relative


def points_of(state: ScoredNodes, pod: PodInfo, fitting: Mask) -> tuple[Numbers, bool]:
    """Return the sum of points of each node, whether it fits or not; and as `total`."""
    found: Numbers | None = None
    relative = False
    for plugin in state.choice.plugins:
        points = plugin.points(state, pod, fitting)
        if points is not None:
            points = points if plugin.weight == 1 else plugin.weight * points
            found = points if found is None else found + points
            relative = relative or plugin.relative
    return np.zeros(state.table.size, dtype=np.int64) if found is None else found, relative


def devices_points(ranks: list[int]) -> list[int]:
    """Return the weighted points for the alternatives chosen on nodes (KEP-4816).

    Each has 8 points less the index for each request with alternatives.
    """
    most = max(ranks, default=0) or 1
    return [DEVICES_WEIGHT * (MOST * rank // most) for rank in ranks]


# --- the plugins -------------------------------------------------------------------------------


def _least_allocated(state: ScoredNodes, pod: PodInfo, fitting: Mask) -> Numbers:
    """Return points for free cpu and memory: the mean of both."""
    del fitting
    offer = state.table.scored_offer()
    asked = np.array(pod.asked_in_scores, dtype=np.int64)
    left = state.table.scored_free() - asked[:, None]
    share = np.maximum(left, 0) * MOST // np.maximum(offer, 1)
    counted = (offer > 0).sum(axis=0)
    found: Numbers = (share * (offer > 0)).sum(axis=0) // np.maximum(counted, 1)
    return found


def _balanced(state: ScoredNodes, pod: PodInfo, fitting: Mask) -> Numbers | None:
    """Return points for balanced use of cpu and memory with the pod."""
    del fitting
    asked = np.array([pod.requests.get("cpu", 0), pod.requests.get("memory", 0)], dtype=np.int64)
    if not asked.any():
        return None
    table = state.table
    offer = table.scored_offer()
    used = offer - np.stack([table.free("cpu"), table.free("memory")])
    with_pod = _evenness(used + asked[:, None], offer)
    found: Numbers = MOST // 2 + (MOST // 2 + with_pod - _evenness(used, offer)) // 2
    return found


def _evenness(used: Numbers, offer: Numbers) -> Numbers:
    share = np.minimum(used / np.maximum(offer, 1), 1.0)
    # Where only one of the two is offered there is nothing to compare.
    apart = np.where((offer > 0).all(axis=0), np.abs((share[0] - share[1]) / 2), 0.0)
    found: Numbers = ((1 - apart) * float(MOST)).astype(np.int64)
    return found


def _taints(state: ScoredNodes, pod: PodInfo, fitting: Mask) -> Numbers | None:
    """Return points for few taints that the pod would rather avoid."""
    avoided = state.node_rules.avoided_taints(pod, fitting)
    most = int(avoided[fitting].max(initial=0))
    return None if not most else MOST - MOST * avoided // most


def _node_affinity(state: ScoredNodes, pod: PodInfo, fitting: Mask) -> Numbers | None:
    """Return points for the weights of the preferred terms that a node meets."""
    if not pod.preferred_nodes:
        return None
    weights = state.node_rules.preferred_weights(pod, fitting)
    most = int(weights[fitting].max(initial=0))
    return None if not most else MOST * weights // most


def _spread(state: ScoredNodes, pod: PodInfo, fitting: Mask) -> Numbers | None:
    """Return points for even spread, of the rules that are wishes."""
    rules = [rule for rule in pod.spread if not rule.hard]
    if not rules:
        return None
    table = state.table
    labelled = table.live.copy()
    for rule in rules:
        labelled &= table.domains(rule.key)[1] >= 0
    among = fitting & labelled
    if not among.any():
        return None
    raw = np.zeros(table.size)
    for rule in rules:
        counts, domains = _crowd(state, pod, rule, labelled, among)
        raw += counts * np.log(domains + 2) + (rule.max_skew - 1)
    crowd: Numbers = np.floor(raw + 0.5).astype(np.int64)
    low, high = int(crowd[among].min()), int(crowd[among].max())
    points = MOST * (high + low - crowd) // high if high else np.full_like(crowd, MOST)
    return np.where(among, points, 0)


def _crowd(
    state: ScoredNodes, pod: PodInfo, rule: SpreadRule, labelled: Mask, among: Mask
) -> tuple[Numbers, int]:
    """Return the pods that a rule counts in each node's domain, and the number of domains."""
    table = state.table
    matching = table.matching(rule.matcher)
    if rule.key == HOSTNAME:
        return matching, int(among.sum())
    count, ids = table.domains(rule.key)
    counted = labelled & counted_nodes(table, state.node_rules, pod, rule)
    sums = per_domain(count, ids, np.where(counted, matching, 0))
    return spread_out(sums, ids), len(np.unique(ids[among]))


def _pods(state: ScoredNodes, pod: PodInfo, fitting: Mask) -> Numbers | None:
    """Return points for preferred pod affinity, of the pod and of pods on the nodes."""
    table = state.table
    wishes = [item for item in table.wishes.items() if item[0][0].accepts(pod)]
    if not (pod.preferred_pods or wishes):
        return None
    near = np.zeros(table.size, dtype=np.int64)
    for term in pod.preferred_pods:
        count, ids = table.domains(term.key)
        near += term.weight * spread_out(per_domain(count, ids, table.matching(term.matcher)), ids)
    for (_, key), weights in wishes:
        count, ids = table.domains(key)
        near += spread_out(per_domain(count, ids, weights[: table.size]), ids)
    if not fitting.any():
        return None
    low, high = int(near[fitting].min()), int(near[fitting].max())
    if low == high:
        return None
    found: Numbers = (float(MOST) * ((near - low) / float(high - low))).astype(np.int64)
    return found


def _images(state: ScoredNodes, pod: PodInfo, fitting: Mask) -> Numbers | None:
    """Return points for images that a node has already.

    An image counts by its size and by the share of nodes that have it, so that not all pods of one
    image go to one node; 23 MiB are too few to count, 1,000 MiB for each container are all that
    counts.
    """
    del fitting
    table: NodeTable = state.table
    known = [table.images[name] for name in pod.images if table.images.get(name)]
    if not known:
        return None
    size = np.zeros(table.size, dtype=np.int64)
    for rows in known:
        share = len(rows) / max(table.count, 1)
        for row, amount in rows.items():
            size[row] += int(float(amount) * share)
    most = BIG_IMAGES * pod.containers
    return MOST * (np.clip(size, SMALL_IMAGES, most) - SMALL_IMAGES) // (most - SMALL_IMAGES)


PLUGINS: Final = (
    ScorePlugin("TaintToleration", 3, _taints, relative=True),
    ScorePlugin("NodeAffinity", 2, _node_affinity, relative=True),
    ScorePlugin("NodeResourcesFit", 1, _least_allocated),
    ScorePlugin("PodTopologySpread", 2, _spread, relative=True),
    ScorePlugin("InterPodAffinity", 2, _pods, relative=True),
    ScorePlugin("NodeResourcesBalancedAllocation", 1, _balanced),
    ScorePlugin("ImageLocality", 1, _images),
)


class NodeChoice:
    """How one of the fitting nodes is chosen: kube-scheduler's way, and the base class of others.

    `kept` is the type of scores that are kept. Where it `refuses_nodes`, nodes of negative score
    are out; pods take the place of others if it `preempts`. `devices` chooses the node of pods with
    claims. Pods that ask alike may be treated differently `by_object`, and nodes of equal amounts
    `by_node`.
    """

    name: str = "kubernetes"
    plugins: Sequence[ScorePlugin] = PLUGINS
    kept: DTypeLike = np.int32
    refuses_nodes: bool = False
    preempts: bool = True
    devices: Policy | None = None
    by_object: bool = False
    by_node: bool = False

    def best(self, scores: Scores | KeptScores) -> int:
        """Return the chosen row; any if no score is above zero."""
        return int(scores.argmax())

    def victims(self, pod: PodInfo) -> Sequence[str] | None:  # noqa: ARG002 - for others to say
        """Return the pods that end for another, by uid; None: those of lower priority."""
        return None

    def in_vain(self, pod: PodInfo, victims: Sequence[str]) -> None:
        """Take note that victims would make no room."""

    def settled(self, table: NodeTable, pod: PodInfo, row: int) -> PodInfo:
        """Return a pod with the GPUs that it shares on a node where it fits."""
        shares = pod.shares
        if shares is None:
            return pod
        return with_gpus(pod, shares, table.chosen_gpus(row, shares))


def with_gpus(pod: PodInfo, shares: Shares, taken: tuple[int, ...]) -> PodInfo:
    """Return a pod that has shares of these GPUs of its node."""
    return changed(pod, shares=having(shares, taken))


KUBERNETES: Final = NodeChoice()
