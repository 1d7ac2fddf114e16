"""The devices that a driver has published, and claims that are allocated to them.

The bench is its own scheduler: a check says which devices a claim gets, so that every run asks the
same of a driver.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from dralab.contracts.plugin import ClaimRef
from dralab.objects.slices import newest_of
from dralab.values import quantity
from dralab.values.json_types import JsonDict, JsonObject


@dataclass(frozen=True, slots=True)
class Published:
    """One device of the newest generation of a pool."""

    pool: str
    name: str
    body: JsonObject = field(hash=False)

    @property
    def shared(self) -> bool:
        """Whether several claims may have a share of it."""
        return bool(self.body.get("allowMultipleAllocations"))

    @property
    def consumed(self) -> dict[str, str]:
        """What a claim without requested amounts takes of it."""
        if not self.shared:
            return {}
        capacity = self.body.get("capacity") or {}
        return {
            name: (each.get("requestPolicy") or {}).get("default") or each["value"]
            for name, each in capacity.items()
        }


@dataclass(frozen=True, slots=True)
class ClaimUnderTest:
    """An allocated claim: its reference in calls, and the results of its allocation."""

    ref: ClaimRef
    results: tuple[JsonObject, ...] = ()

    @property
    def uid(self) -> str:
        """The claim's UID."""
        return self.ref.uid


def pools_of(slices: Sequence[JsonDict]) -> dict[str, list[JsonDict]]:
    """Return slices by the name of their pool."""
    found: dict[str, list[JsonDict]] = {}
    for one in sorted(slices, key=lambda obj: str(obj["metadata"]["name"])):
        found.setdefault(one["spec"]["pool"]["name"], []).append(one)
    return found


def published(slices: Sequence[JsonDict]) -> list[Published]:
    """Return the devices of the newest generation of each pool, in the order of the slices."""
    return [
        Published(pool, device["name"], device)
        for pool, members in sorted(pools_of(slices).items())
        for one in newest_of(members)
        for device in one["spec"].get("devices") or ()
    ]


def counters_of(slices: Sequence[JsonDict]) -> dict[tuple[str, str, str], Fraction]:
    """Return the values of shared counters by pool, counter set and counter."""
    return {
        (pool, entry["name"], name): Fraction(quantity.parse(counter["value"]))
        for pool, members in pools_of(slices).items()
        for one in newest_of(members)
        for entry in one["spec"].get("sharedCounters") or ()
        for name, counter in entry["counters"].items()
    }


def together(devices: Sequence[Published], counters: Mapping[Any, Fraction]) -> list[Published]:
    """Return devices that can be allocated at the same time: their counters suffice."""
    left = dict(counters)
    found = []
    for device in devices:
        wanted = {
            (device.pool, entry["counterSet"], name): Fraction(quantity.parse(counter["value"]))
            for entry in device.body.get("consumesCounters") or ()
            for name, counter in entry["counters"].items()
        }
        if all(left.get(key, Fraction(0)) >= value for key, value in wanted.items()):
            for key, value in wanted.items():
                left[key] -= value
            found.append(device)
    return found


def request_of(name: str, class_: str, alternative: str = "", *, admin: bool = False) -> JsonDict:
    """Return a request for one device; with `alternative`, by a subrequest of that name."""
    if alternative:
        entry = {"name": alternative, "deviceClassName": class_}
        return {"name": name, "firstAvailable": [entry]}
    exactly: JsonDict = {"deviceClassName": class_}
    if admin:
        exactly["adminAccess"] = True
    return {"name": name, "exactly": exactly}


def result_of(request: str, driver: str, device: Published, *, share: str, admin: bool) -> JsonDict:
    """Return the result of an allocation; with `share`, the claim has a share of the device."""
    found: JsonDict = {
        "request": request,
        "driver": driver,
        "pool": device.pool,
        "device": device.name,
    }
    if admin:
        found["adminAccess"] = True
    if share:
        found |= {"shareID": share, "consumedCapacity": device.consumed}
    return found
