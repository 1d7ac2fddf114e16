"""From a plan to what is written: one `status.allocation` mapping per claim of a pod."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from dralab.allocation import v1
from dralab.allocation.inventory.plan_results import Plan
from dralab.allocation.inventory.pool_records import PoolRecord
from dralab.allocation.problem import DeviceId
from dralab.allocation.results import ShareIds
from dralab.values.json_types import JsonDict
from dralab.values.quantity import Number

# Devices of a pool by number, with the amounts taken of each capacity; None: the whole device.
Taking: TypeAlias = list[tuple[int, tuple[Number, ...] | None]]


class DevicePlacement(NamedTuple):
    """Where the claims of a pod got their devices: `allocations` go into `status.allocation`.

    What several results have in common (node selectors, parameters) may be one object: copy a part
    before changing it.
    """

    node: str
    allocations: list[dict[str, Any]]


class PlannedAllocation:
    """One claim's part of a plan on a node, which sees these pools: written when it is asked for.

    Of the pods of a simulation that run, hardly any is.
    """

    __slots__ = ("_claim", "_node", "_plan", "_shares", "pools")

    def __init__(
        self,
        plan: Plan,
        claim: int,
        pools: Sequence[PoolRecord],
        node: str,
        share_ids: ShareIds,
    ) -> None:
        self._plan = plan
        self._claim = claim
        self._node = node
        self.pools = pools
        # One id after the other, whether they are written or not.
        self._shares: tuple[str, ...] = ()
        if plan.shares:
            self._shares = tuple([share_ids() for _ in range(plan.shares[claim])])

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of its devices, in order."""
        pools = self.pools
        return tuple([pools[row.pool].names[row.number] for row in self._plan.rows[self._claim]])

    @property
    def written(self) -> JsonDict:
        """The allocation as it is written."""
        plan, shares = self._plan, iter(self._shares)
        results: list[dict[str, Any]] = []
        for row in plan.rows[self._claim]:
            pool = self.pools[row.pool]
            if row.chosen is None:
                results.append(
                    {
                        "request": row.request,
                        "driver": pool.driver,
                        "pool": pool.name,
                        "device": pool.names[row.number],
                    }
                )
            else:
                device = DeviceId(pool.driver, pool.name, pool.names[row.number])
                share = None if row.chosen.share is None else next(shares)
                results.append(v1.status_result(row.chosen, device, share))
        devices: dict[str, Any] = {"results": results} if results else {}
        if configs := plan.configs[self._claim]:
            devices["config"] = [dict(config) for config in configs]
        allocation: dict[str, Any] = {"devices": devices}
        selector = plan.selectors[self._claim]
        if selector is True:
            allocation["nodeSelector"] = _this_node(self._node)
        elif selector:
            allocation["nodeSelector"] = selector
        return allocation

    @property
    def taking(self) -> dict[int, Taking] | None:
        """The devices taken, by the position of their pool; None: it has not been noted yet."""
        return self._plan.takings.get(self._claim)

    def note_taking(self, taking: dict[int, Taking]) -> None:
        """Note what all allocations of this plan take."""
        self._plan.takings[self._claim] = taking


@lru_cache(maxsize=1 << 17)
def _this_node(name: str) -> JsonDict:
    """Return the selector of one node, for all allocations there."""
    field = {"key": "metadata.name", "operator": "In", "values": [name]}
    return {"nodeSelectorTerms": [{"matchFields": [field]}]}
