"""The result of planning: a plan, "no" (None), or why neither is known."""

from collections.abc import Mapping
from typing import Any, Final

from dralab.allocation.inventory.occupancy import Taking
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
    else a NodeSelector mapping or None. `takings` are what each claim takes of each pool, by its
    position; `shares` are how many ids of shares each claim needs.
    """

    rows: tuple[tuple[PlannedDevice, ...], ...]
    configs: tuple[tuple[Mapping[str, Any], ...], ...]
    selectors: tuple[Mapping[str, Any] | bool | None, ...]
    takings: tuple[tuple[tuple[int, Taking], ...], ...]
    shares: tuple[int, ...] = ()


class PlanFailure:
    """No plan, but not a "no": an error, or the budget of effort was too small."""

    __slots__ = ("unknown",)

    def __init__(self, *, unknown: bool) -> None:
        self.unknown = unknown


ERROR: Final = PlanFailure(unknown=False)
UNKNOWN: Final = PlanFailure(unknown=True)
Planned = Plan | PlanFailure | None
