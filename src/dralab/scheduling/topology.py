"""The nodes that inter-pod (anti-)affinity and topology spread allow.

Sources: kube-scheduler's InterPodAffinity and PodTopologySpread. Everything is counted per value
of a node label ("domain"); nodes without the label have no domain.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dralab.objects.nodes import selects
from dralab.objects.taints import REPELLING, taints_of, untolerated
from dralab.scheduling.node_columns import Numbers
from dralab.scheduling.node_rules import NodeRules
from dralab.scheduling.nodes import Mask, NodeTable
from dralab.scheduling.pods import PodInfo, SpreadRule
from dralab.scheduling.reasons import (
    NO_SPREAD_LABEL,
    NOT_NEAR,
    REPELLED,
    TOO_NEAR,
    TOO_UNEVEN,
    Reason,
)


def affinity_rules(table: NodeTable, pod: PodInfo) -> list[tuple[Reason, Mask]]:
    """Return the nodes that each (anti-)affinity rule of a pod allows."""
    found: list[tuple[Reason, Mask]] = []
    if pod.affinity:
        found.append((Reason(NOT_NEAR), _near(table, pod)))
    for term in pod.anti_affinity:
        count, ids = table.domains(term.key)
        taken = per_domain(count, ids, table.matching(term.matcher)) > 0
        found.append((Reason(TOO_NEAR), ~spread_out(taken, ids)))
    for (matcher, key), carried in list(table.repelling.items()):
        if matcher.accepts(pod):
            count, ids = table.domains(key)
            taken = per_domain(count, ids, carried[: table.size]) > 0
            found.append((Reason(REPELLED), ~spread_out(taken, ids)))
    return found


def spread_rules(table: NodeTable, rules: NodeRules, pod: PodInfo) -> list[tuple[Reason, Mask]]:
    """Return the nodes that each spread constraint of a pod allows."""
    hard = [rule for rule in pod.spread if rule.hard]
    if not hard:
        return []
    labelled = np.ones(table.size, dtype=bool)
    for rule in hard:
        labelled &= table.domains(rule.key)[1] >= 0
    found = [(Reason(NO_SPREAD_LABEL), labelled)]
    found += [
        (Reason(TOO_UNEVEN), _within_skew(table, rules, pod, rule, labelled)) for rule in hard
    ]
    return found


def is_awaited(pod: PodInfo, newcomer: PodInfo) -> bool:
    """Return whether a newly placed pod matters to a waiting pod's affinity or spread."""
    near = any(term.matcher.accepts(newcomer) for term in pod.affinity)
    return near or any(rule.hard and rule.matcher.accepts(newcomer) for rule in pod.spread)


def _near(table: NodeTable, pod: PodInfo) -> Mask:
    found = np.ones(table.size, dtype=bool)
    labelled = np.ones(table.size, dtype=bool)
    matched = False
    for term in pod.affinity:
        count, ids = table.domains(term.key)
        counts = per_domain(count, ids, table.matching(term.matcher))
        matched = matched or bool(counts.any())
        labelled &= ids >= 0
        found &= spread_out(counts > 0, ids)
    if not matched and all(term.matcher.accepts(pod) for term in pod.affinity):
        # The first of several pods that want to be together may go anywhere with the labels.
        return labelled
    return found


def _within_skew(
    table: NodeTable, rules: NodeRules, pod: PodInfo, rule: SpreadRule, labelled: Mask
) -> Mask:
    count, ids = table.domains(rule.key)
    eligible = table.live & labelled & counted_nodes(table, rules, pod, rule)
    counts = per_domain(count, ids, np.where(eligible, table.matching(rule.matcher), 0))
    present = np.bincount(ids[eligible], minlength=count)[:count] > 0
    domains = int(present.sum())
    least = int(counts[present].min()) if domains else 0
    if domains < rule.min_domains:
        least = 0
    own = int(rule.matcher.selector.accepts(pod.labels))
    return spread_out(counts + own - least <= rule.max_skew, ids)


def counted_nodes(table: NodeTable, rules: NodeRules, pod: PodInfo, rule: SpreadRule) -> Mask:
    """Return the nodes whose pods count for a rule: by default those the affinity accepts."""
    if rule.honor_affinity and rule.honor_taints:
        return rules.mask(pod)
    chooses = rule.honor_affinity and (pod.node_selector or pod.node_affinity is not None)
    if not rule.honor_taints and not chooses:
        return np.ones(table.size, dtype=bool)
    found = np.zeros(table.size, dtype=bool)
    for row in table.row_of.values():
        node = table.objects[row] or {}
        if rule.honor_affinity:
            found[row] = selects(node, pod.node_selector, pod.node_affinity)
        else:
            found[row] = untolerated(pod.tolerations, taints_of(node), REPELLING) is None
    return found


def per_domain(count: int, ids: Numbers, values: Numbers) -> Numbers:
    """Return the sum of a value per domain."""
    present = ids >= 0
    sums = np.bincount(ids[present], weights=values[present], minlength=count)
    return sums[:count].astype(np.int64)


def spread_out(per_domain: NDArray[Any], ids: Numbers) -> NDArray[Any]:
    """Return each node's value, by its domain; 0 or False if it has none."""
    found = np.zeros(ids.shape[0], dtype=per_domain.dtype)
    present = ids >= 0
    found[present] = per_domain[ids[present]]
    return found
