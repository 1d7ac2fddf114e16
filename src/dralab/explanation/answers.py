"""Answers about one pod or claim: for commands, and for the event of a waiting pod.

The reasons themselves come from `why` and `why_chosen`. Those of events cost far more than a
scheduling cycle, so pods that ask for the same are told the same for a moment.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from dralab.allocation import v1
from dralab.allocation.facts import Excluded
from dralab.allocation.outcome import Unknown
from dralab.allocation.policy.policies import Policy
from dralab.allocation.pools import SliceCatalog
from dralab.allocation.problem import Claim, DeviceId, Node, Problem
from dralab.allocation.search.alternatives import Alternative
from dralab.explanation.findings import NodeFindings, findings, reason_against
from dralab.explanation.names import counted, device_name, listed, shortened
from dralab.explanation.sentences import left_out
from dralab.explanation.text import EVENT_BYTES, Spots, Why, short_subject
from dralab.explanation.trial import LiveTrial
from dralab.explanation.why import WaitingPod, diagnosis_of, why
from dralab.kernel.clock import SECOND
from dralab.objects import event_texts
from dralab.objects.claims import allocation_of, results_of
from dralab.objects.conditions import condition_of
from dralab.objects.metadata import NamespacedName, key_of, metadata_of, spec_of, uid_of
from dralab.objects.pods import is_finished
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
from dralab.values.records import dataclass

AUTOSCALER: Final = "cluster-autoscaler.kubernetes.io/"


class NoResult(Exception):  # noqa: N818 - it says what happened
    """The search ended at its limits, with neither an allocation nor a reason."""


def already_allocated(cluster: Snapshot, name: str) -> dict[str, Any] | None:
    """Return the devices of a pod that runs, or of an allocated claim; None for all others."""
    namespace, slash, short = name.rpartition("/")
    users = {uid_of(pod): user for pod, user in cluster.users()}
    for pod in cluster.by_kind.get("Pod", ()):
        where, known = metadata_of(pod).get("namespace") or "default", metadata_of(pod)["name"]
        if known != short or (slash and where != namespace) or is_finished(pod):
            continue
        user, on = users.get(uid_of(pod)), spec_of(pod).get("nodeName")
        if on and uid_of(pod) and not (user and user.claims):
            held = [line for claim in user.allocated for line in _devices_of(claim)] if user else []
            title = f"pod {where}/{known}"
            text = "\n".join([f"{title} runs on {on}{':' if held else ', without devices'}", *held])
            return {"object": title, "fits": True, "node": on, "why": held, "text": text}
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
    """Yield the answers about pods and claims, as JSON values with the page as `text`.

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
        text = found.page(every_node=every_node) + told
        return found.structured() | more | {"reason": found.brief(), "text": text}
    problem = cluster.problem(pending)
    nodes = {each.name: each for each in cluster.candidates(pending, node)}
    placed = placed_on(cluster, pending, node)
    if placed is None:
        raise NoResult(f"{pending.title}: the search for devices gave no result")
    text = why_these(problem, nodes[placed.node], placed.allocations, cluster.catalog)
    lines = text.split("\n") if text else []
    start = {"object": pending.title, "fits": True, "node": placed.node, "why": lines}
    headline = f"{short_subject(pending.title)} fits on {placed.node}"
    return start | more | {"text": (f"{headline}:\n{text}" if text else headline) + told}


def _beside(cluster: Snapshot, pending: Pending) -> tuple[dict[str, Any], str]:
    """Return a pod's scheduler message, and what was not judged: as data and as lines."""
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
    """Return whether a node seems to be managed by cluster-autoscaler."""
    annotations = metadata_of(node).get("annotations") or ()
    keys = [*annotations, *(each["key"] for each in taints_of(node))]
    return any(key.startswith((AUTOSCALER, *OF_AUTOSCALER)) for key in keys)


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
        """Explain a pod that fits nowhere: kube-scheduler's sentence, then cause and remedy."""
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
        return event_texts.shortened(f"{message} {text}")

    def _text(self, asked: PodQuestion, claims: list[Claim], refusal: Refusal) -> str:
        """Return the explanation with tokens for the claims' names: it serves other pods too."""
        now, state, pod = self._now(), asked.state, refusal.pod
        known = refusal.blocked is not None and refusal.blocked.rule is not CLASS_NOT_FOUND
        if known or not refusal.nodes:
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
        own = {_token(at): NamespacedName(one.namespace, one.name) for at, one in enumerate(claims)}
        trial = LiveTrial(asked, own)
        tried = (trial.confirmed(each) for each in found.helps)
        enough = islice((each for each in tried if each is not None and each.now), 1)
        found = replace(found, helps=tuple(enough))
        text = Why(diagnosis=found).brief(EVENT_BYTES - ROOM, known=refusal.message)
        self._told[shape] = now, text
        if len(self._told) > REMEMBERED:
            self._told.popitem(last=False)
        return text


def _shortest(refusal: Refusal) -> str:
    """Return what the best node with the pod's devices still lacks; maybe nothing."""
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


MOST_PASSED: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenDevice:
    """One device of an allocation, and why no earlier one was taken.

    `could` devices of its node could serve the request; `rank` alternatives of the request come
    before the one that is served; `passed` are the reasons against devices that come before it.
    `able` are those of them that could serve the request by themselves.
    """

    claim: str
    request: str
    device: DeviceId
    could: int
    rank: int
    passed: tuple[str, ...]
    able: tuple[str, ...]

    @property
    def among(self) -> str:
        """The number of devices to choose from, in words."""
        if self.could == 1:
            return "the only device that could serve it"
        which = "one" if self.passed or self.able else "the first"
        return f"{which} of {counted(self.could, 'device')} that could serve it"

    @property
    def earlier(self) -> str:
        """Why earlier alternatives were not chosen; empty if there are none."""
        if not self.rank:
            return ""
        before = "alternative" if self.rank == 1 else f"{self.rank} alternatives"
        return f"the {before} before it could not be had"


def why_these(
    problem: Problem, node: Node, allocations: Sequence[Mapping[str, Any]], catalog: SliceCatalog
) -> str:
    """Return, for people, why the devices of an allocation were chosen and no earlier ones.

    `problem` is the one that was solved, with what was in use before; `allocations` are its
    claims' `status.allocation`.
    """
    return "\n".join(
        line
        for each in chosen_devices(problem, node, allocations, catalog)
        for line in _lines(each, node.name)
    )


def _lines(each: ChosenDevice, node: str) -> Iterator[str]:
    name = device_name(each.device, node)
    yield f"  {each.request} of claim {shortened(each.claim)}: {name}, {each.among}"
    if each.earlier:
        yield f"    {each.earlier}"
    yield from (f"    passed over: {text}" for text in each.passed)
    if each.able:
        them = "it" if len(each.able) == 1 else "any of them"
        yield f"    passed over: {listed(each.able)}: with {them} the rest could not be met"


def chosen_devices(
    problem: Problem, node: Node, allocations: Sequence[Mapping[str, Any]], catalog: SliceCatalog
) -> Iterator[ChosenDevice]:
    """Yield the devices of an allocation, as `why_these` takes it, with the reasons.

    Those that the node does not offer, or not for such a request, are left out.
    """
    found = findings(problem, catalog.view(node, problem.features))
    chosen = {
        str(claim): [
            (item["request"], DeviceId(item["driver"], item["pool"], item["device"]))
            for item in results_of(allocation)
        ]
        for claim, allocation in zip(problem.claims, allocations, strict=True)
    }
    taken = {device for results in chosen.values() for _, device in results}
    masks = {
        (str(problem.claims[alternative.claim]), alternative.name): (alternative, mask)
        for alternative, mask in found.eligible
    }
    for claim, results in chosen.items():
        for request, device in results:
            known = masks.get((claim, request))
            if known is None or device not in found.node_devices.index:
                continue
            alternative, mask = known
            passed, able = _passed(problem, found, alternative, device, taken)
            yield ChosenDevice(
                claim=claim,
                request=request,
                device=device,
                could=mask.bit_count(),
                rank=alternative.rank,
                passed=tuple(passed),
                able=tuple(able),
            )


def _passed(
    problem: Problem,
    found: NodeFindings,
    alternative: Alternative,
    device: DeviceId,
    taken: AbstractSet[DeviceId],
) -> tuple[list[str], list[str]]:
    """Return the reasons for skipping the devices before a chosen one; equal ones are counted.

    Then the names of those that nothing kept out by themselves.
    """
    reasons: dict[str, Excluded] = {}
    blocked: list[str] = []
    chosen = found.node_devices.index[device]
    for number in range(chosen):
        offer = found.node_devices.offers[number]
        if offer.id in taken:
            continue
        why = reason_against(found, problem, alternative, number)
        if why is None:
            blocked.append(offer.id.device)
            continue
        text = left_out(why)
        before = reasons.get(text)
        reasons[text] = why if before is None else replace(why, count=before.count + 1)
    return [left_out(why) for why in reasons.values()][:MOST_PASSED], blocked


def asked_again(cluster: Snapshot, found: Pending) -> tuple[Problem, list[Node]]:
    """Return the problem of all claims of a pod, and the nodes that may run it.

    A pod that has a node may run there, whatever the node has left.
    """
    claims = (*found.allocated, *found.claims)
    problem = cluster.problem(replace(found, claims=claims))
    if not found.allocated:
        return problem, cluster.candidates(found)
    own = {key_of(claim) for claim in found.allocated}
    others = (each for each in cluster.claims.values() if key_of(each) not in own)
    spec = {name: value for name, value in spec_of(found.pod).items() if name != "nodeName"}
    unplaced = {**found.pod, "spec": spec} if found.pod else found.pod
    nodes = cluster.candidates(replace(found, claims=claims, allocated=(), pod=unplaced))
    home = _home(cluster, found)
    if home is not None and all(node.name != home.name for node in nodes):
        nodes.append(home)
    return replace(problem, in_use=v1.in_use(others)), nodes


def why_held(cluster: Snapshot, found: Pending) -> Sequence[ChosenDevice]:
    """Return the reasons that a pod's devices come first among those that could serve it now.

    Empty for claims without devices, and where their node is gone; a device whose class or slice
    is gone is left out.
    """
    home = _home(cluster, found)
    if not found.allocated or home is None:
        return ()
    problem, _ = asked_again(cluster, replace(found, claims=()))
    allocations = [allocation_of(claim) or {} for claim in found.allocated]
    return list(chosen_devices(problem, home, allocations, cluster.catalog))


def _home(cluster: Snapshot, found: Pending) -> Node | None:
    """Return the node of a pod; for a claim alone the first one that can use its devices."""
    if found.kind == "pod":
        name = str(spec_of(found.pod).get("nodeName") or "")
        return cluster.node(name) if name in cluster.nodes else None
    return next(iter(cluster.candidates(replace(found, claims=()))), None)
