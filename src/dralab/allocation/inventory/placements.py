"""From a plan to what is written: one `status.allocation` mapping per claim of a pod."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from dralab.allocation import v1
from dralab.allocation.inventory.occupancy import Taking
from dralab.allocation.inventory.plan_results import Plan
from dralab.allocation.inventory.pool_records import PoolRecord
from dralab.allocation.problem import DeviceId
from dralab.allocation.results import ShareIds
from dralab.values.json_types import JsonDict


class DevicePlacement(NamedTuple):
    """Where the claims of a pod got their devices: `allocations` go into `status.allocation`.

    What several results have in common (node selectors, parameters) may be one object: copy a part
    before changing it.
    """

    node: str
    allocations: list[dict[str, Any]]


class NodePools(NamedTuple):
    """A node, by name, and the pools that it sees, with their numbers."""

    node: str
    numbers: Sequence[int]
    records: Sequence[PoolRecord]


class PlannedAllocation:
    """One claim's part of a plan on a node: written when it is asked for.

    Of the pods of a simulation that run, hardly any is.
    """

    __slots__ = ("_claim", "_plan", "_shares", "pools")

    def __init__(self, plan: Plan, claim: int, pools: NodePools, share_ids: ShareIds) -> None:
        self._plan = plan
        self._claim = claim
        self.pools = pools
        # One id after the other, whether they are written or not.
        self._shares: tuple[str, ...] = ()
        if plan.shares:
            self._shares = tuple([share_ids() for _ in range(plan.shares[claim])])

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of its devices, in order."""
        pools = self.pools.records
        return tuple([pools[row.pool].names[row.number] for row in self._plan.rows[self._claim]])

    @property
    def written(self) -> JsonDict:
        """The allocation as it is written."""
        plan, shares = self._plan, iter(self._shares)
        results: list[dict[str, Any]] = []
        for row in plan.rows[self._claim]:
            pool = self.pools.records[row.pool]
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
            allocation["nodeSelector"] = _this_node(self.pools.node)
        elif selector:
            allocation["nodeSelector"] = selector
        return allocation

    @property
    def takings(self) -> tuple[tuple[int, Taking], ...]:
        """What is taken of each pool, by its position among those that the node sees."""
        return self._plan.takings[self._claim]


@lru_cache(maxsize=1 << 17)
def _this_node(name: str) -> JsonDict:
    """Return the selector of one node, for all allocations there."""
    field = {"key": "metadata.name", "operator": "In", "values": [name]}
    return {"nodeSelectorTerms": [{"matchFields": [field]}]}
