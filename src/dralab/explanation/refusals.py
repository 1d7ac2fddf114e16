"""Why a pod waits, in words: kube-scheduler's sentence, and what its devices lack.

The words about devices are `explanation`'s. They cost far more than a scheduling cycle,
so pods that ask for the same are told the same for a moment.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from dralab.allocation.outcome import Unknown
from dralab.allocation.problem import Claim
from dralab.explanation.diagnose import diagnose
from dralab.explanation.text import EVENT_BYTES, brief
from dralab.kernel.clock import SECOND
from dralab.objects.event_texts import shortened
from dralab.objects.requests import amount_of
from dralab.scheduling.demands import BlockedPod
from dralab.scheduling.nodes import REMEMBERED
from dralab.scheduling.reasons import NO_DEVICES, Reason
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
        self._told: OrderedDict[bytes, tuple[int, str]] = OrderedDict()

    def __call__(self, refusal: Refusal, state: ClusterState) -> str:
        """Return why a pod fits nowhere."""
        message = refusal.message
        undecided = sum(isinstance(found, Unknown) for found in refusal.outcomes.values())
        if undecided:
            message += f" On {undecided} of them the search for devices was given up."
        if refusal.shortages:
            message += _shortest(refusal)
        if refusal.blocked or Reason(NO_DEVICES) not in refusal.reasons:
            return message
        why = self._devices(refusal, state)
        return shortened(f"{message} {why}") if why else message

    def _devices(self, refusal: Refusal, state: ClusterState) -> str:
        pod = refusal.pod
        demand = state.demands.demand_of(pod)
        if isinstance(demand, BlockedPod) or not demand.signature:
            return ""
        claims = state.devices.claims_of(pod, demand)
        text = self._text(demand.signature, claims, refusal, state)
        for number, claim in enumerate(claims):
            text = text.replace(_token(number), str(claim))
        return text

    def _text(
        self, shape: bytes, claims: list[Claim], refusal: Refusal, state: ClusterState
    ) -> str:
        """Return the explanation with tokens for the claims' names: it serves other pods too."""
        now = self._now()
        told = self._told.get(shape)
        moments = max(1, state.table.count // NODES_A_MOMENT)
        if told is not None and now - told[0] < MOMENT * moments:
            return told[1]
        pod = refusal.pod
        anonymous = [
            replace(claim, name=_token(number), namespace="") for number, claim in enumerate(claims)
        ]
        rows = [
            row for row in state.table.row_of.values() if state.node_rules.reason(pod, row) is None
        ]
        nodes = [state.devices.node(row) for row in rows]
        catalog, problem = state.devices.everywhere(anonymous)
        found = diagnose(
            problem, nodes, budget=STEPS, questions=QUESTIONS, catalog=catalog,
            refused=bool(refusal.fatal),
        )  # fmt: skip
        text = "" if found is None else brief(found, EVENT_BYTES - ROOM)
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
