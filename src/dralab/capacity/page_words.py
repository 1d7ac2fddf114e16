"""Why pods wait on a model, in the words of `dralab explain`: cause, numbers, the best help.

A page looks at files or at a cluster; here the cluster is the model after a change. Pods that ask
for the same and are refused for the same reasons are told the same.
"""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Final

from dralab.allocation.problem import InUse
from dralab.explanation.causes import Diagnosis, NodesUnfit
from dralab.explanation.diagnose import diagnose
from dralab.explanation.names import shortened
from dralab.explanation.questions import FleetQuestions
from dralab.explanation.refusals import ReasonWriter
from dralab.explanation.text import Names, brief
from dralab.objects.metadata import key_of
from dralab.scheduling.demands import BlockedPod, PodDemand
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.reasons import NO_DEVICES, Reason
from dralab.scheduling.state import Refusal

# Questions to the allocator for one explanation: enough for a cause and the cheapest helps.
QUESTIONS: Final = 2_000


class PageWords:
    """Tells refusals of a model that does not change meanwhile."""

    def __init__(self, model: ClusterModel) -> None:
        self._model = model
        self._writer = ReasonWriter(lambda: 0)
        self._told: dict[Hashable, str] = {}
        self._asked: dict[bytes, FleetQuestions] = {}

    def __call__(self, refusal: Refusal) -> str:
        """Return why a pod fits nowhere, in a few sentences."""
        demand = self._model.state.demands.demand_of(refusal.pod)
        if refusal.blocked or refusal.shortages or isinstance(demand, BlockedPod):
            return self._writer(replace(refusal, repeated=False), self._model.state)
        key = demand.signature, refusal.pod.placement, tuple(refusal.reasons.items())
        found = self._told.get(key)
        if found is None:
            diagnosis = self._diagnosis(refusal, demand)
            found = brief(diagnosis, names=self._names) if diagnosis else refusal.message
            self._told[key] = found
        return found

    def _diagnosis(self, refusal: Refusal, demand: PodDemand) -> Diagnosis | None:
        none = Reason(NO_DEVICES)
        others = tuple(item for item in refusal.reasons.items() if item[0] != none)
        subject = f"pod {refusal.pod.key}"
        if none not in refusal.reasons:
            ordered = tuple(sorted(others, key=lambda item: (-item[1], str(item[0]))))
            code = ordered[0][0].code if ordered else "DRA059"
            cause = NodesUnfit(code=code, total=refusal.nodes, reasons=ordered, able=())
            return Diagnosis(subject=subject, cause=cause)
        state = self._model.state
        rows = [
            row
            for row in state.table.row_of.values()
            if state.node_rules.reason(refusal.pod, row) is None
        ]
        catalog, problem = state.devices.everywhere(state.devices.claims_of(refusal.pod, demand))
        problem = replace(problem, in_use=self._in_use)
        nodes = [state.devices.node(row) for row in rows]
        placement = refusal.pod.placement
        if placement not in self._asked:
            self._asked[placement] = FleetQuestions(problem, nodes, catalog=catalog)
        found = diagnose(
            problem,
            nodes,
            subject=subject,
            questions=QUESTIONS,
            refused=bool(refusal.fatal),
            earlier=self._asked[placement],
        )
        return None if found is None else replace(found, unfit=others)

    @cached_property
    def _in_use(self) -> InUse:
        return self._model.state.devices.everywhere(())[1].in_use

    @cached_property
    def _names(self) -> Names:
        holders: Mapping[str, str] = {
            str(key_of(plan.claim)): shortened(str(each.pod.key))
            for each in self._model.running.values()
            for plan in each.plans
            if plan.claim["metadata"].get("name")
        }
        return Names(holders=holders)
