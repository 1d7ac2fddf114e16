"""Why pods of a model wait, in the words of `dralab explain`: code, cause, numbers, the best help.

Pods that ask for the same and are refused for the same reasons are told the same.
"""

from collections.abc import Hashable
from dataclasses import replace
from functools import cached_property
from typing import Final

from dralab.allocation.problem import Problem
from dralab.explanation.names import shortened
from dralab.explanation.questions import FleetQuestions
from dralab.explanation.text import Names, Why
from dralab.explanation.why import WaitingPod, diagnosis_of
from dralab.objects.metadata import key_of
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pod_question import PodQuestion
from dralab.scheduling.state import Refusal
from dralab.values.records import dataclass

# Questions to the allocator for one explanation: enough for a cause and the cheapest helps.
QUESTIONS: Final = 2_000


@dataclass(frozen=True, slots=True)
class WaitingReason:
    """Why a pod waits: a stable code such as DRA014, and a few sentences."""

    code: str
    text: str


class PageWords:
    """Explains refusals of a model that does not change meanwhile."""

    def __init__(self, model: ClusterModel) -> None:
        self._model = model
        self._told: dict[Hashable, WaitingReason] = {}
        self._asked: dict[tuple[str, ...], FleetQuestions] = {}

    def __call__(self, refusal: Refusal) -> WaitingReason:
        """Return the reason that a pod fits nowhere."""
        kind = self._model.kind_of(refusal.pod)
        key = (kind, refusal.code, tuple(refusal.reasons.items()))
        found = self._told.get(key) if kind is not None else None
        if found is None:
            found = self._told[key] = self._found(refusal)
        return found

    def _found(self, refusal: Refusal) -> WaitingReason:
        asked = PodQuestion(self._model.state, refusal.pod)
        claims = asked.state.devices.claims_of(refusal.pod, asked.demand)
        diagnosis = diagnosis_of(
            WaitingPod(
                asked=asked,
                refusal=refusal,
                title=f"pod {refusal.pod.key}",
                problem=replace(self._empty, claims=tuple(claims)),
                model=self._model,
                questions=QUESTIONS,
                known=self._asked,
            )
        )
        return WaitingReason(diagnosis.code, Why(diagnosis=diagnosis, names=self._names).brief())

    @cached_property
    def _empty(self) -> Problem:
        """The problem without claims, computed once."""
        return self._model.devices.everywhere(())[1]

    @cached_property
    def _names(self) -> Names:
        holders = {
            str(key_of(plan.claim)): shortened(str(each.pod.key))
            for each in self._model.running.values()
            for plan in each.plans
            if not plan.is_new
        }
        return Names(holders=holders)
