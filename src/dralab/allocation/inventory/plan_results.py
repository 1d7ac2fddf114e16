"""The result of planning: a plan, "no" (None), or why neither is known."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from dralab.allocation.inventory.pool_states import PoolState
from dralab.allocation.outcome import Chosen
from dralab.values.records import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class PlannedDevice:
    """One device of a plan: where it is, and what its result says beside its identity."""

    request: str
    pool: int
    number: int
    chosen: Chosen | None


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What a pod gets on a node in one state.

    `rows` and `configs` are per claim; `selectors` is per claim too: True for "this node alone",
    else a NodeSelector mapping or None. `after` are the pools that change, their
    next states and the devices taken; `shared` are those of them that are shared, `shares` how many
    ids of shares each claim needs. `takings` is filled in by those who carry plans out.
    """

    rows: tuple[tuple[PlannedDevice, ...], ...]
    configs: tuple[tuple[Mapping[str, Any], ...], ...]
    selectors: tuple[Mapping[str, Any] | bool | None, ...]
    after: tuple[tuple[int, PoolState, int], ...]
    shared: tuple[tuple[int, int], ...] = ()
    shares: tuple[int, ...] = ()
    takings: dict[int, dict[int, Any]] = field(default_factory=dict)


class PlanFailure:
    """No plan, but not a "no": an error, or the budget of effort was too small."""

    __slots__ = ("unknown",)

    def __init__(self, *, unknown: bool) -> None:
        self.unknown = unknown


ERROR: Final = PlanFailure(unknown=False)
UNKNOWN: Final = PlanFailure(unknown=True)
Planned = Plan | PlanFailure | None
