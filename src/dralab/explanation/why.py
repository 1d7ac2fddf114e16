"""`why`: everything that keeps one pod or claim of a snapshot waiting, as facts and as text.

This is what commands call. It joins the cause in the devices (`diagnose`) with what the nodes
themselves say (cordon, taints, labels, room), and knows the names that people use: pods for the
claims that hold devices, templates for claims made from them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import islice
from typing import Final

from dralab.allocation.allocator import DEFAULT_BUDGET
from dralab.allocation.problem import Problem
from dralab.explanation.beside_devices import (
    of_claims_elsewhere,
    of_gang,
    of_missing_resource,
    of_preemption,
    of_refusal,
    of_room,
)
from dralab.explanation.causes import Diagnosis, Help, NothingThere, Refused
from dralab.explanation.diagnose import diagnose
from dralab.explanation.helps import MOST_HELPS, ordered
from dralab.explanation.names import (
    HolderEnd,
    ends_of,
    extended_of,
    holders_of,
    shortened,
    templates_of,
)
from dralab.explanation.questions import MOST_QUESTIONS, FleetQuestions
from dralab.explanation.text import Names, ObjectFields, Spots, Why
from dralab.explanation.trial import Trial, eviction_of, moves_for, preemption_for
from dralab.explanation.unfit import (
    OF_NODES,
    Unfit,
    against_all,
    by_reason,
    nearest,
    node_helps,
    nodes_unfit,
)
from dralab.objects.claims import consumers_of
from dralab.objects.metadata import uid_of
from dralab.scheduling.backlog import Pending
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pod_question import PodQuestion
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.reasons import CLAIM_ELSEWHERE, CLASS_NOT_FOUND, NO_DEVICES, Reason
from dralab.scheduling.snapshot import Snapshot
from dralab.scheduling.state import PodPlacement, Refusal
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

PASSING: Final = frozenset(
    {"DRA008", "DRA030", "DRA032", "DRA033", "DRA038", "DRA039", "DRA040", "DRA041", "DRA044"}
)
"""Causes that end without a change of the pod: the nodes it is meant for can serve it."""
MOST_UNFIT: Final = 2000
MOST_NEAR: Final = 4
"""Nodes on which several changes at once are tried."""
OF_DEVICES: Final = frozenset({"value", "count", "constraint", "tolerate", "drop", "wait", "guard"})
"""Helps for want of devices that may go together with changes of a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPod:
    """A waiting pod, and the questions about it.

    With `model` changes are tried on it: what helps is told only then of nodes. `ends` says when
    the users of claims end; `questions` and `budget` limit what is asked of the allocator, and what
    was `known` of nodes from earlier pods is not asked again.
    """

    asked: PodQuestion
    refusal: Refusal
    title: str
    problem: Problem
    model: ClusterModel | None = None
    ends: Mapping[str, HolderEnd] = field(default_factory=dict)
    questions: int = MOST_QUESTIONS
    budget: int = DEFAULT_BUDGET
    known: dict[tuple[str, ...], FleetQuestions] | None = None


def why(
    cluster: Snapshot, pending: Pending, *, node: str = "", spots: Spots | None = None
) -> Why | None:
    """Explain a pod or claim that gets no node and devices; None if it can be placed now.

    Nothing is allocated. `pending` is one of `cluster.pending()`, brought up to date with
    `cluster.refreshed`; with `node` only that node counts. Without `spots` places are told as
    object and field; commands that read files pass one that knows lines.

        for each in cluster.pending():
            found = why(cluster, cluster.refreshed(each))
            print(found.page() if found else f"{each.title} fits")
    """
    decided = cluster.decide(pending, node)
    if isinstance(decided, PodPlacement):
        return None
    asked = cluster.question(pending, node)
    diagnosis = diagnosis_of(
        WaitingPod(
            asked=asked,
            refusal=decided,
            title=pending.title,
            problem=cluster.problem(pending),
            model=cluster.model,
            ends=ends_of(cluster),
        )
    )
    templates = templates_of(cluster)
    names = Names(
        spots=spots or ObjectFields(templates),
        holders=holders_of(cluster),
        templates=templates,
        extended=extended_of(cluster),
        commands=spots is None or isinstance(spots, ObjectFields),
    )
    return Why(diagnosis=diagnosis, names=names)


def diagnosis_of(waiting: WaitingPod) -> Diagnosis:
    """Explain a waiting pod: not tried, no suitable node, or a shortage.

    Pages, events and questions about changes all tell this cause.
    """
    trial = None if waiting.model is None else Trial(waiting.model, waiting.asked)
    found = replace(_diagnosis(waiting, trial), subject=waiting.title)
    return found if trial is None else _helped(trial, found)


def _helped(trial: Trial, found: Diagnosis) -> Diagnosis:
    """Return a diagnosis with the helps that the scheduler confirms in the whole state."""
    model, asked = trial.model, trial.asked
    helps = [each for one in found.helps if (each := trial.confirmed(one)) is not None]
    more = islice(moves_for(model, asked, helps) if not asked.only else (), 1)
    helps += [*more, *preemption_for(model, asked, helps)]
    if asked.pod.obj.get("kind") == "Pod" and model.held_back(asked.pod) is None:
        helps += filter(None, [eviction_of(model, asked.pod)])
    return replace(found, helps=ordered(helps))


def _diagnosis(waiting: WaitingPod, trial: Trial | None) -> Diagnosis:
    asked, model, refusal = waiting.asked, waiting.model, waiting.refusal
    blocked = refusal.blocked
    if model is not None and not asked.only and model.held_back(asked.pod) is None:
        gang = of_gang(model, asked.pod, blocked)
        if gang is not None:
            return gang
    if blocked is not None and blocked.rule is not CLASS_NOT_FOUND:
        return of_refusal(asked, model, refusal, blocked)
    if first := of_missing_resource(asked) or of_preemption(asked):
        return first
    unfit, every = asked.unfit(), asked.unfit(every=True)
    if elsewhere := of_claims_elsewhere(asked, unfit, every):
        return elsewhere
    nodes = _Nodes(waiting, unfit, every, trial)
    if (fatal := refusal.fatal or blocked) is not None:
        return nodes.diagnosed(refused=refusal.fatal is not None) or of_refusal(
            asked, model, refusal, fatal
        )
    if refusal.shortages and not nodes.able_here:
        return of_room(model, refusal)
    found = nodes.diagnosis() or of_refusal(asked, model, refusal, None)
    if trial is None or any(trial.is_enough(each) for each in found.helps):
        return found
    together = trial.combined(nodes.choices(trial, found.helps))
    if together is None:
        return found
    others = (each for each in found.helps if each not in together.parts)
    return replace(found, helps=(together, *others))


class _Nodes:
    """The nodes of a cluster, by what keeps a pod from them.

    A pod is meant for nodes that it selects and whose taints it tolerates; those that lack
    something for it are told of before nodes that it is not meant for.
    """

    def __init__(
        self, waiting: WaitingPod, unfit: Unfit, every: Unfit, trial: Trial | None
    ) -> None:
        self.waiting = waiting
        self.trial = trial
        self.asked = waiting.asked
        self.catalog = self.asked.state.devices.catalog
        self.unfit = unfit
        self.every = every
        self.problem = _without_own(waiting.problem, self.asked)
        # What a pod has already is not available on other nodes.
        near = {n: why for n, why in unfit.items() if Reason(CLAIM_ELSEWHERE) not in every[n]}
        self.short = {n: why for n, why in near.items() if why[0].rule.plugin not in OF_NODES}
        self.closed = {name: why for name, why in near.items() if name not in self.short}
        self.candidates = [each.name for each in self.asked.candidates()]

    @cached_property
    def able_here(self) -> list[str]:
        """The nodes that have the devices and lack something else, the nearest first."""
        return nearest(self.asked, self._able(self.short), self.every)

    @cached_property
    def able_elsewhere(self) -> list[str]:
        """The nodes that have the devices and that the pod is not meant for, the nearest first."""
        return nearest(self.asked, self._able(self.closed), self.every)

    def _able(self, unfit: Unfit) -> list[str]:
        outside = [self.asked.node(name) for name in list(unfit)[:MOST_UNFIT]]
        if not outside:
            return []
        asking = FleetQuestions(
            self.problem,
            outside,
            catalog=self.catalog,
            budget=self.waiting.budget,
            questions=self.waiting.questions,
        )
        return [name for place in asking.servers() for name in place.names]

    def diagnosis(self) -> Diagnosis | None:
        """Return the cause among the nodes, with the changes that are enough."""
        others = by_reason(self.unfit)
        beside = list(self._helps(self.closed, self.able_elsewhere))
        if self.able_here:
            return self._ruled_out(self.short, self.able_here, beside)
        if self.candidates or self.short:
            found = self.diagnosed()
            if found is None:
                return self._ruled_out(self.unfit, (), beside) if self.unfit else None
            if isinstance(found.cause, Refused):
                return found
            if found.code in PASSING or not self.able_elsewhere:
                return replace(found, unfit=others, helps=ordered([*found.helps, *beside[:1]]))
        if self.able_elsewhere:
            return self._ruled_out(self.closed, self.able_elsewhere, beside)
        inside = self.diagnosed()
        if inside is not None and isinstance(inside.cause, Refused):
            return inside
        if inside is not None and not isinstance(inside.cause, NothingThere):
            return replace(inside, unfit=others)
        return self._ruled_out(self.unfit, (), [])

    def diagnosed(self, *, refused: bool = False) -> Diagnosis | None:
        """Return the diagnosis of the devices on the nodes that count for the pod."""
        names = self.candidates or list(self.short) or list(self.closed)
        names = names[: max(MOST_UNFIT, len(self.candidates))]
        nodes, known = [self.asked.node(name) for name in names], self.waiting.known
        earlier = None
        if known is not None:
            earlier = known.setdefault(
                tuple(names),
                FleetQuestions(
                    self.problem, nodes, catalog=self.catalog, budget=self.waiting.budget
                ),
            )
        found = diagnose(
            self.problem,
            nodes,
            catalog=self.catalog,
            ends=self.waiting.ends,
            refused=refused,
            earlier=earlier,
            budget=self.waiting.budget,
            questions=self.waiting.questions,
            most=MOST_HELPS * (3 if self.trial else 1),
        )
        if found is None or self.candidates or self.trial is not None:
            return found
        # No node would do with other devices alone: that was confirmed for the devices only.
        helps = (replace(each, now=False) if each.now else each for each in found.helps)
        return replace(found, helps=tuple(helps))

    def _ruled_out(
        self, unfit: Unfit, able: Sequence[str], beside: Sequence[Help]
    ) -> Diagnosis | None:
        if not unfit:
            return None
        cause = nodes_unfit(self.asked, unfit, able, self.every)
        rest = {name: why for name, why in self.unfit.items() if name not in unfit}
        reasons = Counter(each for several in rest.values() for each in several)
        if self.candidates:
            reasons[Reason(NO_DEVICES)] += len(self.candidates)
        cause = replace(
            cause,
            total=cause.total + len(rest) + len(self.candidates),
            reasons=(*cause.reasons, *reasons.most_common()),
        )
        own = list(self._helps(unfit, able)) if unfit is not self.closed else []
        return Diagnosis(
            subject="",
            cause=cause,
            helps=(*own, *beside),
            nodes=len(self.unfit) + len(self.candidates),
        )

    def _helps(self, unfit: Unfit, able: Sequence[str]) -> Iterator[Help]:
        if self.trial is not None:
            yield from node_helps(self.trial, unfit, able)

    def choices(self, trial: Trial, helps: Sequence[Help]) -> Iterator[list[list[Help]]]:
        """Yield combined changes so that a node takes the pod, the fewest first.

        For each of the nearest nodes: a list of helps for each thing that it lacks.
        """
        able = [*self.able_here, *self.able_elsewhere]
        others = nearest(self.asked, self.unfit.keys() - set(able), self.every)
        devices = [each for each in helps if each.kind in OF_DEVICES]
        found = []
        for name in (*able[:MOST_NEAR], *others[:MOST_NEAR]):
            lists = against_all(trial, name, self.every[name])
            lists += [] if name in able else [devices]
            if len(lists) > 1 and all(lists):
                found.append(lists)
        yield from sorted(found, key=len)


def _without_own(problem: Problem, asked: PodQuestion) -> Problem:
    """Return a problem in which a pod keeps the devices that it alone holds."""
    users = asked.state.devices.claims_held_by(asked.pod, [item.claim for item in asked.allocated])
    own = {
        name
        for item in asked.allocated
        if users.get(uid_of(item.claim), set()) <= _uids(asked.pod, item.claim)
        for name in (str(item.key), shortened(str(item.key)))
    }
    if not own:
        return problem
    holders = {
        device: others
        for device, names in problem.in_use.holders.items()
        if (others := tuple(name for name in names if name not in own))
    }
    return replace(problem, in_use=replace(problem.in_use, holders=holders))


def _uids(pod: PodInfo, claim: JsonDict) -> set[str]:
    """Return the uids by which a claim may know a pod: files may leave the pod's own out."""
    named = (each for each in consumers_of(claim) if each.get("name") == pod.key.name)
    return {pod.uid, *(str(each.get("uid")) for each in named)}
