"""Binding conditions of devices that are prepared after their allocation (KEP-5007).

A driver names them in its slices, the allocation repeats them, and `status.devices` of the claim
says which are met. Source: kube-scheduler's DynamicResources (PreBind).
"""

from collections.abc import Iterator
from typing import NamedTuple

from dralab.objects.claims import allocation_of, results_of
from dralab.objects.metadata import status_of
from dralab.values.json_types import JsonObject


class AwaitedDevice(NamedTuple):
    """A device of a claim: its missing conditions, and its failure condition, if true."""

    driver: str
    pool: str
    device: str
    awaited: tuple[str, ...] = ()
    failed: str = ""

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


def allocated_devices(claim: JsonObject) -> Iterator[AwaitedDevice]:
    """Yield the devices of a claim, each with its missing conditions."""
    reported = status_of(claim).get("devices") or ()
    for item in results_of(allocation_of(claim)):
        states = {
            condition["type"]: condition["status"]
            for device in reported
            if all(device.get(name) == item.get(name) for name in ("driver", "pool", "device"))
            and device.get("shareID") == item.get("shareID")
            for condition in device.get("conditions") or ()
        }
        failures = item.get("bindingFailureConditions") or ()
        yield AwaitedDevice(
            item["driver"],
            item["pool"],
            item["device"],
            tuple(n for n in item.get("bindingConditions") or () if states.get(n) != "True"),
            next((name for name in failures if states.get(name) == "True"), ""),
        )
