"""Reading ResourceSlices: pools and generations.

Source: k8s.io/dynamic-resource-allocation `structured` (GatherPools). The validator of files and
the verifier of allocations count generations themselves: they judge what others make of it.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from dralab.values.json_types import JsonObject

Slice = TypeVar("Slice", bound=JsonObject)


class PoolName(NamedTuple):
    """A pool, as its driver and its name in it."""

    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


def pool_of(item: JsonObject) -> PoolName:
    """Return the pool that a slice is part of."""
    spec = item["spec"]
    return PoolName(spec["driver"], spec["pool"]["name"])


def devices_of(item: JsonObject) -> Sequence[JsonObject]:
    """Return the devices of a slice."""
    found: Sequence[JsonObject] = item["spec"].get("devices") or ()
    return found


def generation_of(slices: Iterable[JsonObject]) -> int:
    """Return the newest generation among slices of one pool; 0 if there is no slice."""
    return max((item["spec"]["pool"]["generation"] for item in slices), default=0)


def newest_of(slices: Iterable[Slice]) -> list[Slice]:
    """Return the slices of one pool that count: those of its newest generation."""
    slices = list(slices)
    newest = generation_of(slices)
    return [item for item in slices if item["spec"]["pool"]["generation"] == newest]


def by_pool(slices: Iterable[Slice]) -> dict[PoolName, list[Slice]]:
    """Return all slices by their pools, whatever their generation."""
    found: dict[PoolName, list[Slice]] = {}
    for item in slices:
        found.setdefault(pool_of(item), []).append(item)
    return found
