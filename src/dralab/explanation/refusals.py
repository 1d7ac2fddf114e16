"""Why a pod waits, in words: kube-scheduler's sentence, and what its devices lack.

The words about devices are `explanation`'s. They cost far more than a scheduling cycle,
so pods that ask for the same are told the same for a moment.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Final

from dralab.allocation.outcome import Unknown
from dralab.allocation.problem import Claim
from dralab.explanation.text import EVENT_BYTES, brief
from dralab.explanation.why import WaitingPod, diagnosis_of
from dralab.kernel.clock import SECOND
from dralab.objects.event_texts import shortened
from dralab.objects.requests import amount_of
from dralab.scheduling.nodes import REMEMBERED
from dralab.scheduling.pod_question import PodQuestion
from dralab.scheduling.reasons import CLASS_NOT_FOUND, GANG_INCOMPLETE
from dralab.scheduling.state import ClusterState, Refusal

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
    found = [
        (sum(lack.own + lack.devices - lack.free for lack in shortage.lacks), name, shortage.lacks)
        for name, shortage in refusal.shortages.items()
        if shortage.lacks
    ]
    if not found:
        return ""
    _, name, lacks = min(found)
    parts = [
        f"{amount_of(lack.resource, lack.own + lack.devices)} {lack.resource}, "
        f"{amount_of(lack.resource, lack.devices)} of it for its claims' devices, where "
        f"{amount_of(lack.resource, max(lack.free, 0))} is free"
        for lack in lacks
    ]
    return f" On {name} the pod needs {' and '.join(parts)}."


def _token(number: int) -> str:
    return f"\x01{number}\x01"
