"""What a NodePool of Karpenter allows: how many nodes there are, and which may be disrupted when.

Source: `karpenter.sh/v1` and `disruption/helpers.go` of August 2026.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from dralab.kernel.clock import SECOND
from dralab.values import cron

EMPTY: Final = "Empty"
UNDERUTILIZED: Final = "Underutilized"
DRIFTED: Final = "Drifted"
REASONS: Final = (UNDERUTILIZED, EMPTY, DRIFTED)
NEVER: Final = "Never"
CONSOLIDATIONS: Final = ("WhenEmptyOrUnderutilized", "WhenEmpty", NEVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionBudget:
    """How many nodes may be disrupted at a time: a number, or a part such as 10%.

    It holds for these `reasons`, or for all; with a `schedule`, so long after each of its times.
    """

    nodes: str = "10%"
    reasons: tuple[str, ...] = ()
    schedule: str = ""
    duration: int = 0

    def allowed(self, nodes: int, now: int, reason: str) -> int | None:
        """Return how many of so many nodes; parts are rounded up. None: it does not say."""
        if (self.reasons and reason not in self.reasons) or not self.is_active(now):
            return None
        part = self.nodes.removesuffix("%")
        return -(-nodes * int(part) // 100) if part != self.nodes else int(part)

    def is_active(self, now: int) -> bool:
        """Return whether it holds now."""
        return not self.schedule or self._began(now) is not None

    def changes_at(self, now: int) -> int | None:
        """Return when it begins or ends to hold; None: never."""
        if not self.schedule:
            return None
        if (began := self._began(now)) is not None:
            return _nanoseconds(began) + self.duration + 1
        following = next(cron.parse(self.schedule).after(_moment(now)), None)
        return None if following is None else _nanoseconds(following)

    def _began(self, now: int) -> datetime | None:
        # A time that is exactly the duration ago counts.
        return cron.parse(self.schedule).latest(_moment(now - self.duration - 1), _moment(now))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePoolRules:
    """A NodePool; durations are nanoseconds, `limits` base units, and None stands for never.

    Of several, the one with the highest `weight` comes first, then the last by name.
    """

    name: str = ""
    weight: int = 0
    limits: Mapping[str, int] = field(default_factory=dict)
    expire_after: int | None = None
    consolidation: str = CONSOLIDATIONS[0]
    consolidate_after: int = 0
    budgets: tuple[DisruptionBudget, ...] = (DisruptionBudget(),)

    @property
    def consolidates(self) -> bool:
        """Whether nodes are ever given up."""
        return self.consolidation != NEVER

    @property
    def only_empty(self) -> bool:
        """Whether only nodes without pods are given up."""
        return self.consolidation == "WhenEmpty"

    def allowed(self, nodes: int, now: int, reason: str) -> int:
        """Return how many of so many nodes may be disrupted at a time: what all budgets allow."""
        found = (each.allowed(nodes, now, reason) for each in self.budgets)
        return min((each for each in found if each is not None), default=nodes)

    def changes_at(self, now: int) -> int | None:
        """Return when a budget begins or ends to hold; None: never."""
        found = (each.changes_at(now) for each in self.budgets)
        return min((each for each in found if each is not None), default=None)


def _moment(now: int) -> datetime:
    return datetime.fromtimestamp(now // SECOND, UTC) + timedelta(microseconds=now % SECOND // 1000)


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp()) * SECOND
