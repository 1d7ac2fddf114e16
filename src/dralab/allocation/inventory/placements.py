"""From a plan to what is written: one `status.allocation` mapping per claim of a pod."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from dralab.allocation import v1
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


@lru_cache(maxsize=1 << 17)
def _this_node(name: str) -> JsonDict:
    """Return the selector of one node, for all allocations there."""
    field = {"key": "metadata.name", "operator": "In", "values": [name]}
    return {"nodeSelectorTerms": [{"matchFields": [field]}]}


def placement(
    plan: Plan, pool_at: Callable[[int], PoolRecord], node: str, share_ids: ShareIds
) -> DevicePlacement:
    """Return the placement of a plan on one node, which sees these pools by position."""
    allocations = []
    for rows, configs, selector in zip(plan.rows, plan.configs, plan.selectors, strict=True):
        results: list[dict[str, Any]] = []
        for row in rows:
            pool = pool_at(row.pool)
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
                share = None if row.chosen.share is None else share_ids()
                results.append(v1.status_result(row.chosen, device, share))
        devices: dict[str, Any] = {"results": results} if results else {}
        if configs:
            devices["config"] = [dict(config) for config in configs]
        allocation: dict[str, Any] = {"devices": devices}
        if selector is True:
            allocation["nodeSelector"] = _this_node(node)
        elif selector:
            allocation["nodeSelector"] = selector
        allocations.append(allocation)
    return DevicePlacement(node, allocations)
