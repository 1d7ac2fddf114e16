"""Why a pod waits, in words: kube-scheduler's sentence, and what its devices lack.

The words about devices are `allocation.explanation`'s. They cost far more than a scheduling cycle,
so pods that ask for the same are told the same for a moment.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from dralab.allocation.explanation.explain import explain
from dralab.allocation.explanation.sentences import EVENT_BYTES, event
from dralab.allocation.outcome import Unknown
from dralab.kernel.clock import SECOND
from dralab.scheduler.cycle import CANNOT_ALLOCATE, Refusal, State
from dralab.scheduler.demands import Blocked
from dralab.scheduler.nodes import REMEMBERED

MOMENT: Final = 1 * SECOND
# Questions to the allocator for one explanation, and nodes that are asked about.
QUESTIONS: Final = 300
MOST_NODES: Final = 500
STEPS: Final = 20_000
# What kube-scheduler's own sentence may take of the event.
ROOM: Final = 200


class Reasons:
    """Makes the text for a pod's condition and event; at most 1,024 bytes."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._told: OrderedDict[bytes, tuple[int, str]] = OrderedDict()

    def __call__(self, refusal: Refusal, state: State) -> str:
        """Return why a pod fits nowhere."""
        message = refusal.message
        undecided = sum(isinstance(found, Unknown) for found in refusal.outcomes.values())
        if undecided:
            message += f" On {undecided} of them the search for devices was given up."
        if refusal.blocked or CANNOT_ALLOCATE not in refusal.reasons:
            return message
        why = self._devices(refusal, state)
        room = EVENT_BYTES - len(message.encode()) - 1
        return f"{message} {why}" if why and len(why.encode()) <= room else message

    def _devices(self, refusal: Refusal, state: State) -> str:
        demand = state.demands.of(refusal.pod)
        if isinstance(demand, Blocked) or not demand.shape:
            return ""
        now = self._now()
        told = self._told.get(demand.shape)
        if told is not None and now - told[0] < MOMENT:
            return told[1]
        claims = state.devices.claims_of(refusal.pod, demand)
        rows = [
            row for row in state.table.row_of.values() if not state.filters.reason(refusal.pod, row)
        ]
        nodes = [state.devices.node(row) for row in rows[:MOST_NODES]]
        catalog, problem = state.devices.everywhere(claims)
        found = explain(problem, nodes, budget=STEPS, questions=QUESTIONS, catalog=catalog)
        text = "" if found is None else event(found, EVENT_BYTES - ROOM)
        self._told[demand.shape] = now, text
        if len(self._told) > REMEMBERED:
            self._told.popitem(last=False)
        return text
