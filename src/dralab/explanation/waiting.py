"""Whose end would be enough, who could be moved, deleted or preempted so that a pod fits."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from dralab.allocation.problem import DeviceId
from dralab.explanation.causes import Help
from dralab.explanation.holders import UNKNOWN
from dralab.explanation.inquiry import Inquiry
from dralab.explanation.names import listed
from dralab.explanation.trial import claim_names_of
from dralab.objects.budgets import covers, disruptions_allowed
from dralab.objects.metadata import metadata_of
from dralab.objects.pods import is_finished
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pod_question import PodQuestion
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.preemption import eviction_for
from dralab.scheduling.state import PodPlacement

MOST_TRIED: Final = 48
MOST_NODES: Final = 6
MOST_NAMED: Final = 3


def waits_for(inquiry: Inquiry, holders: Sequence[str]) -> Iterator[Help]:
    """Yield which holders of devices it would be enough to wait for.

    Several that are each enough are one proposal, those that end first before others; where one is
    not enough, the fewest of one node.
    """
    held = _held(inquiry)
    where = inquiry.asking.node_of_held
    enough: list[str] = []
    ends = inquiry.ends
    ordered = sorted(holders, key=lambda name: ends.get(name, UNKNOWN))
    for name in ordered[:MOST_TRIED]:
        devices = held.get(name, frozenset())
        nodes = {where[device] for device in devices if device in where}
        if nodes and inquiry.asking.serves(freed=devices, nodes=nodes):
            enough.append(name)
            if len(enough) > MOST_NAMED:
                break
    if enough:
        more = len(holders) - len(enough) if len(enough) > MOST_NAMED else 0
        named = enough[:MOST_NAMED]
        yield Help(
            kind="wait", now=True, who=tuple(named), number=len(enough) + more, note="any",
            ends=ends.get(named[0], UNKNOWN).text,
        )  # fmt: skip
        return
    yield from _several(inquiry, held, where)


def _several(
    inquiry: Inquiry,
    held: dict[str, frozenset[DeviceId]],
    where: dict[DeviceId, str],
) -> Iterator[Help]:
    by_node: dict[str, list[str]] = {}
    for name, devices in held.items():
        for node in {where[device] for device in devices if device in where}:
            by_node.setdefault(node, []).append(name)
    best: list[str] = []
    for node, names in sorted(by_node.items(), key=lambda item: len(item[1]))[: 4 * MOST_NODES]:
        if best and len(best) <= 2:
            break
        if not _enough(inquiry, held, names, node):
            continue
        kept = list(names)
        for name in names:
            fewer = [other for other in kept if other != name]
            if fewer and _enough(inquiry, held, fewer, node):
                kept = fewer
        if not best or len(kept) < len(best):
            best = kept
    if best:
        yield Help(kind="wait", now=True, who=tuple(best), number=len(best), note="all")


def _enough(
    inquiry: Inquiry,
    held: dict[str, frozenset[DeviceId]],
    names: Sequence[str],
    node: str,
) -> bool:
    freed: AbstractSet[DeviceId] = frozenset().union(*(held[name] for name in names))
    return inquiry.asking.serves(freed=freed, nodes={node}) is True


def _held(inquiry: Inquiry) -> dict[str, frozenset[DeviceId]]:
    found: dict[str, set[DeviceId]] = {}
    for device, names in inquiry.in_use.holders.items():
        for name in names:
            found.setdefault(name, set()).add(device)
    return {name: frozenset(devices) for name, devices in found.items()}


MOST_MOVED: Final = 3
SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
"""Where a pod says "false", nobody evicts it to tidy up."""


def moves_for(model: ClusterModel, asked: PodQuestion, helps: Sequence[Help]) -> Iterator[Help]:
    """Yield single pods to move so that another fits: of those whose end is enough."""
    names = [
        name for each in helps if each.kind == "wait" and each.note == "any" for name in each.who
    ]
    for placed in model.in_order(model.running.values()):
        mine = [name for name in claim_names_of(placed) if name in names[:MOST_MOVED]]
        # A claim of several pods moves with all of them, or not at all; what a finished pod has is
        # given back without a move.
        shared = any(len(model.users_of(plan.claim)) > 1 for plan in placed.plans)
        kept = (metadata_of(placed.pod.obj).get("annotations") or {}).get(SAFE_TO_EVICT) == "false"
        if not mine or shared or kept or is_finished(placed.pod.obj):
            continue
        with model.tentatively():
            moved = model.take_away(placed.pod.uid)
            decided = model.decide(asked.pod, asked.only)
            if not isinstance(decided, PodPlacement):
                continue
            model.place(decided)
            model.cordon(placed.node)
            other = model.decide(moved)
        if isinstance(other, PodPlacement):
            yield Help(kind="move", now=True, who=(mine[0],), to=other.node, note=placed.node)


def preemption_for(
    model: ClusterModel, asked: PodQuestion, helps: Sequence[Help]
) -> Iterator[Help]:
    """Yield pods of a lower priority whose end is enough.

    kube-scheduler does not preempt pods for devices, so that a person has to delete them.
    """
    mine = asked.pod.priority
    if not asked.pod.may_preempt:
        return
    running = model.in_order(model.running.values())
    for each in helps:
        if each.kind != "wait" or not each.now:
            continue
        users = [
            (placed.pod.priority, name, placed.pod.key)
            for placed in running
            for name in dict.fromkeys(claim_names_of(placed))
            if name in each.who
        ]
        lower = [found for found in users if found[0] < mine]
        needed = lower if each.note == "any" else lower * (len(lower) == len(users))
        if not needed:
            continue
        chosen = [min(needed, key=lambda item: item[0])] if each.note == "any" else needed
        pods = " ".join(dict.fromkeys(key.name for _, _, key in chosen))
        if len({key.namespace for _, _, key in chosen}) > 1:
            continue
        namespace = chosen[0][2].namespace
        where = f" -n {namespace}" if namespace != "default" else ""
        yield Help(
            kind="preempt",
            now=True,
            who=tuple(name for _, name, _ in chosen),
            to=f"{max(found for found, _, _ in chosen)} < {mine}",
            command=f"kubectl delete pod {pods}{where}",
        )
        return


def eviction_of(model: ClusterModel, pod: PodInfo) -> Help | None:
    """Return which pods the scheduler preempts for another; None where it preempts none.

    Pods that would have to give up devices are left to `preemption_for`.
    """
    budgets = model.objects.of("PodDisruptionBudget")
    found = eviction_for(model.state, pod, budgets)
    if found is None or found.claims:
        return None
    names = [str(each.key) for each in found.victims]
    broken = [
        f"{item['metadata']['name']} allows {disruptions_allowed(item)}"
        for item in budgets
        if found.violations and any(covers(item, each.obj) for each in found.victims)
    ]
    return Help(
        kind="preempt",
        now=True,
        who=tuple(f"pod {name}" for name in names),
        to=f"{max(each.priority for each in found.victims)} < {pod.priority}",
        note=f"on {found.node}" + (f", although budget {listed(broken)}" if broken else ""),
    )
