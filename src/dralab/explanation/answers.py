"""What is told of one pod or claim: on the page of a command, and in the event of a pod that waits.

The reasons themselves come from `why` and `why_chosen`. Those of events cost far more than a
scheduling cycle, so pods that ask for the same are told the same for a moment.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from dralab.allocation.outcome import Unknown
from dralab.allocation.policy.policies import Policy
from dralab.allocation.problem import Claim, Node
from dralab.explanation.text import EVENT_BYTES, Spots, brief, short_subject
from dralab.explanation.why import WaitingPod, diagnosis_of, why
from dralab.explanation.why_chosen import why_these
from dralab.kernel.clock import SECOND
from dralab.objects.claims import allocation_of, results_of
from dralab.objects.conditions import condition_of
from dralab.objects.event_texts import shortened
from dralab.objects.metadata import metadata_of, spec_of, uid_of
from dralab.objects.requests import amount_of
from dralab.objects.taints import OF_AUTOSCALER, taints_of
from dralab.objects.volumes import claims_of as volume_claims_of
from dralab.scheduling.backlog import Pending
from dralab.scheduling.nodes import REMEMBERED
from dralab.scheduling.pod_question import PodQuestion
from dralab.scheduling.reasons import CLASS_NOT_FOUND, GANG_INCOMPLETE
from dralab.scheduling.snapshot import Placed, Snapshot
from dralab.scheduling.state import ClusterState, Refusal
from dralab.values.json_types import JsonDict

AUTOSCALER: Final = "cluster-autoscaler.kubernetes.io/"


class NoResult(Exception):  # noqa: N818 - it says what happened
    """The search ended at its limits, with neither an allocation nor a reason."""


def already_allocated(cluster: Snapshot, name: str) -> dict[str, Any] | None:
    """Return the devices of a pod that runs, or of an allocated claim; None for all others."""
    namespace, slash, short = name.rpartition("/")
    for pod, user in cluster.users():
        runs = spec_of(pod).get("nodeName") and uid_of(pod) and not user.claims
        if runs and user.name == short and (not slash or user.namespace == namespace):
            held = [line for claim in user.allocated for line in _devices_of(claim)]
            text = "\n".join([f"{user.title} runs on {spec_of(pod)['nodeName']}:", *held])
            return {"object": user.title, "fits": True, "why": held, "text": text}
    for (where, known), claim in cluster.claims.items():
        if allocation_of(claim) and known == short and (not slash or where == namespace):
            why = _devices_of(claim)
            text = "\n".join([f"claim {where}/{known} has its devices already:", *why])
            return {"object": f"claim {where}/{known}", "fits": True, "why": why, "text": text}
    return None


def _devices_of(claim: JsonDict) -> list[str]:
    return [
        f"  request {item['request']}: {item['driver']}/{item['pool']}/{item['device']}"
        for item in results_of(allocation_of(claim))
    ]


def answers(
    cluster: Snapshot,
    pending: Iterable[Pending],
    asked: Sequence[Pending],
    *,
    node: str = "",
    spots: Spots | None = None,
    every_node: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield what is told of those asked about, as JSON values with the page as `text`.

    `pending` are all that wait, in their order: what comes before one asked about gets its devices
    first, and keeps them in `cluster`. With `node` only that node counts. NoResult.
    """
    left = list(asked)
    for each in pending:
        if not left:
            return
        now = cluster.refreshed(each)
        if any(each is other for other in left):
            left = [other for other in left if other is not each]
            yield _explained(cluster, now, node, spots, every_node=every_node)
        else:
            placed_on(cluster, now)


def _explained(
    cluster: Snapshot, pending: Pending, node: str, spots: Spots | None, *, every_node: bool
) -> dict[str, Any]:
    found = why(cluster, pending, node=node, spots=spots)
    more, told = _beside(cluster, pending)
    if found is not None:
        return (
            found.structured()
            | more
            | {
                "reason": found.brief(),
                "text": found.page(every_node=every_node) + told,
            }
        )
    problem, nodes = cluster.problem(pending), cluster.candidates(pending, node)
    placed = placed_on(cluster, pending, node)
    if placed is None:
        raise NoResult(f"{pending.title}: the search for devices gave no result")
    text = why_these(problem, _named(nodes, placed.node), placed.allocations, cluster.catalog)
    lines = text.split("\n") if text else []
    start = {"object": pending.title, "fits": True, "node": placed.node, "why": lines}
    headline = f"{short_subject(pending.title)} fits on {placed.node}"
    return start | more | {"text": (f"{headline}:\n{text}" if text else headline) + told}


def _beside(cluster: Snapshot, pending: Pending) -> tuple[dict[str, Any], str]:
    """Return what its scheduler said of a pod, and what is not judged: as data and as lines."""
    pod, found, lines = pending.pod, dict[str, Any](), list[str]()
    told = condition_of(pod, "PodScheduled") or {}
    if told.get("status") == "False" and told.get("message"):
        kept = ("reason", "message", "lastTransitionTime")
        found["scheduler"] = {name: told[name] for name in kept if told.get(name)}
        lines.append(f"  it was told  {told['message']}")
    unjudged = {}
    if pod and not cluster.by_kind.get("PersistentVolumeClaim") and volume_claims_of(pod):
        unjudged["volumes"] = "its volumes: the input has no PersistentVolumeClaim"
    if pod and any(_is_scaled(each) for each in cluster.by_kind.get("Node", ())):
        unjudged["autoscaler"] = "whether cluster-autoscaler adds or removes nodes"
    if unjudged:
        found["notJudged"] = list(unjudged)
        lines += [f"  not judged  {text}" for text in unjudged.values()]
    return found, "".join(f"\n{line}" for line in lines)


def _is_scaled(node: JsonDict) -> bool:
    """Return whether cluster-autoscaler looks after a node, as far as the node shows it."""
    annotations = metadata_of(node).get("annotations") or ()
    keys = [*annotations, *(each["key"] for each in taints_of(node))]
    return any(key.startswith((AUTOSCALER, *OF_AUTOSCALER)) for key in keys)


def _named(nodes: Sequence[Node], name: str) -> Node:
    return next(each for each in nodes if each.name == name)


def placed_on(
    cluster: Snapshot, pending: Pending, node: str = "", policy: Policy | None = None
) -> Placed | None:
    """Place one pod or claim and take its devices; None if it cannot be placed."""
    if pending.missing is not None:
        return None
    found = cluster.place(pending, policy, node)
    if found is not None:
        cluster.accept(found)
    return found


MOMENT: Final = 1 * SECOND
# What is said of many nodes costs more, and is kept for as many moments as they have so many.
NODES_A_MOMENT: Final = 250
# Questions to the allocator for one explanation.
QUESTIONS: Final = 2_000
STEPS: Final = 20_000
# What kube-scheduler's own sentence may take of the event.
ROOM: Final = 200


class ReasonWriter:
    """Makes the text for a pod's condition and event; at most 1,024 bytes."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._told: OrderedDict[Hashable, tuple[int, str]] = OrderedDict()

    def __call__(self, refusal: Refusal, state: ClusterState) -> str:
        """Return why a pod fits nowhere: kube-scheduler's sentence, then cause and help."""
        message = refusal.message
        undecided = sum(isinstance(found, Unknown) for found in refusal.outcomes.values())
        if undecided:
            message += f" On {undecided} of them the search for devices was given up."
        if refusal.shortages:
            message += _shortest(refusal)
        asked = PodQuestion(state, refusal.pod)
        claims = state.devices.claims_of(refusal.pod, asked.demand)
        text = self._text(asked, claims, refusal)
        for number, claim in enumerate(claims):
            text = text.replace(_token(number), str(claim))
        return shortened(f"{message} {text}")

    def _text(self, asked: PodQuestion, claims: list[Claim], refusal: Refusal) -> str:
        """Return the explanation with tokens for the claims' names: it serves other pods too."""
        now, state, pod = self._now(), asked.state, refusal.pod
        if refusal.blocked is not None and refusal.blocked.rule is not CLASS_NOT_FOUND:
            return f"({refusal.code})"
        if pod.group:
            return f"({GANG_INCOMPLETE.code})"
        shape = (
            asked.demand.signature,
            pod.placement,
            tuple(sorted(pod.requests.items())),
            frozenset(refusal.reasons),
            tuple(item.key for item in asked.allocated),
        )
        told = self._told.get(shape)
        moments = max(1, state.table.count // NODES_A_MOMENT)
        if told is not None and now - told[0] < MOMENT * moments:
            return told[1]
        anonymous = [
            replace(claim, name=_token(number), namespace="") for number, claim in enumerate(claims)
        ]
        found = diagnosis_of(
            WaitingPod(
                asked=asked,
                refusal=refusal,
                title=f"pod {pod.key}",
                problem=state.devices.everywhere(anonymous)[1],
                budget=STEPS,
                questions=QUESTIONS,
            )
        )
        text = brief(found, EVENT_BYTES - ROOM, known=refusal.message)
        self._told[shape] = now, text
        if len(self._told) > REMEMBERED:
            self._told.popitem(last=False)
        return text


def _shortest(refusal: Refusal) -> str:
    """Return what is missing on the node that lacks least with the pod's devices; maybe nothing."""
    name, lacks = refusal.least_short
    if not lacks:
        return ""
    parts = [
        f"{amount_of(lack.resource, lack.own + lack.devices)} {lack.resource}, "
        f"{amount_of(lack.resource, lack.devices)} of it for its claims' devices, where "
        f"{amount_of(lack.resource, max(lack.free, 0))} is free"
        for lack in lacks
    ]
    return f" On {name} the pod needs {' and '.join(parts)}."


def _token(number: int) -> str:
    return f"\x01{number}\x01"
