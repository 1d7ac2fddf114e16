"""ResourceClaim.status: allocation, reservations, and what drivers report of devices."""

import ipaddress
from collections.abc import Mapping
from typing import Final

from dralab.api.conditions import condition_errors
from dralab.api.fields import (
    FieldError,
    forbidden,
    invalid_value,
    too_many,
)
from dralab.api.node_selectors import node_selector_errors
from dralab.api.resource.structure import go_form
from dralab.api.resource.validation.binding import binding_errors
from dralab.api.resource.validation.lists import list_errors, set_errors
from dralab.api.resource.validation.names import (
    driver_errors,
    label_errors,
    pool_errors,
    share_id_errors,
)
from dralab.api.resource.validation.requests import (
    MAX_CONFIGS,
    config_errors,
    json_object_errors,
    reference_errors,
    references_errors,
    request_names,
)
from dralab.api.resource.validation.slices import skip_errors
from dralab.api.resource.validation.taints import toleration_errors
from dralab.api.rules import RuleTables
from dralab.values.json_types import JsonObject
from dralab.values.records import dataclass

MAX_RESERVATIONS: Final = 256
MAX_RESULTS: Final = 32
MAX_CONDITIONS: Final = 8
MAX_DATA: Final = 10 * 1024
MAX_IPS: Final = 16
RULES: Final = RuleTables(
    globals(),
    binding_errors,
    driver_errors,
    label_errors,
    pool_errors,
    share_id_errors,
    skip_errors,
    toleration_errors,
)


@dataclass(frozen=True, slots=True)
class SharedDevice:
    """A device of an allocation, with its share: what `status.devices` refers to."""

    driver: str
    pool: str
    device: str
    share: str = ""

    @classmethod
    def from_entry(cls, entry: JsonObject) -> "SharedDevice":
        """Return the identity of a result or of a device status."""
        driver, pool, device = (entry.get(name) or "" for name in ("driver", "pool", "device"))
        return cls(driver, pool, device, entry.get("shareID") or "")

    def __str__(self) -> str:
        text = f"{self.driver}/{self.pool}/{self.device}"
        return f"{text}/{self.share}" if self.share else text


def claim_status_errors(
    status: JsonObject, old: JsonObject, spec: JsonObject, path: str, *, deleting: bool
) -> list[FieldError]:
    """Return the errors of the status of a claim that replaces `old`.

    `deleting` says whether `metadata.deletionTimestamp` is set.
    """
    allocation, before = status.get("allocation"), old.get("allocation")
    reserved = status.get("reservedFor") or ()
    found = set_errors(
        reserved,
        MAX_RESERVATIONS,
        f"{path}.reservedFor",
        RULES["validateResourceClaimUserReference"],
        lambda item: item.get("uid") or "",
    )
    allocated = {
        SharedDevice.from_entry(result)
        for result in ((allocation or {}).get("devices") or {}).get("results") or ()
    }
    found += set_errors(
        status.get("devices"),
        None,
        f"{path}.devices",
        lambda item, here: _device_errors(item, here, allocated),
        SharedDevice.from_entry,
    )
    if reserved and allocation is None:
        text = "may not be specified when `allocated` is not set"
        found.append(forbidden(f"{path}.reservedFor", text))
    elif reserved and deleting:
        kept = old.get("reservedFor") or ()
        if any(item not in kept for item in reserved):
            text = (
                "new entries may not be added while `deallocationRequested` or "
                "`deletionTimestamp` are set"
            )
            found.append(forbidden(f"{path}.reservedFor", text))
    if allocation is not None and before is not None:
        # What was allocated stays as it was, and is not judged again: rules became stricter.
        if allocation != before:
            shown = go_form("AllocationResult", allocation)
            found.append(invalid_value(f"{path}.allocation", shown, "field is immutable"))
    elif allocation is not None:
        found += _allocation_errors(allocation, f"{path}.allocation", request_names(spec))
    return found


def _allocation_errors(
    allocation: JsonObject, path: str, names: Mapping[str, frozenset[str]]
) -> list[FieldError]:
    devices: JsonObject = allocation.get("devices") or {}
    found = list_errors(
        devices.get("results"),
        MAX_RESULTS,
        f"{path}.devices.results",
        lambda item, here: _result_errors(item, here, names),
    )
    found += list_errors(
        devices.get("config"),
        2 * MAX_CONFIGS,
        f"{path}.devices.config",
        lambda item, here: (
            RULES["validateDeviceConfiguration"](item, here)
            + references_errors(item.get("requests"), f"{here}.requests", names)
            + config_errors(item, here)
        ),
    )
    selector = allocation.get("nodeSelector")
    if selector is not None:
        found += node_selector_errors(selector, f"{path}.nodeSelector")
    return found


def _result_errors(
    result: JsonObject, path: str, names: Mapping[str, frozenset[str]]
) -> list[FieldError]:
    found = reference_errors(result.get("request") or "", f"{path}.request", names)
    return found + RULES["validateDeviceRequestAllocationResult"](result, path)


def _device_errors(device: JsonObject, path: str, allocated: set[SharedDevice]) -> list[FieldError]:
    found = RULES["validateDeviceStatus"](device, path)
    identity = SharedDevice.from_entry(device)
    if identity not in allocated:
        found.append(invalid_value(path, identity, "must be an allocated device in the claim"))
    conditions = device.get("conditions") or ()
    if len(conditions) > MAX_CONDITIONS:
        found.append(too_many(f"{path}.conditions", len(conditions), MAX_CONDITIONS))
    found += condition_errors(conditions, f"{path}.conditions")
    if device.get("data") is not None:
        found += json_object_errors(device["data"], f"{path}.data", MAX_DATA)
    network = device.get("networkData")
    if network is not None:
        found += RULES["validateNetworkDeviceData"](network, f"{path}.networkData")
    return found


def _addresses(data: JsonObject, path: str) -> list[FieldError]:
    return set_errors(data.get("ips"), MAX_IPS, f"{path}.ips", _address_errors)


def _address_errors(address: str, path: str) -> list[FieldError]:
    """Return the problems of an address of an interface with its network: `10.9.8.1/24`."""
    text = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
    try:
        interface = ipaddress.ip_interface(address)
    except ValueError:
        return [invalid_value(path, address, text)]
    if "/" not in address:
        return [invalid_value(path, address, text)]
    if str(interface) != address:
        return [invalid_value(path, address, f'must be in canonical form ("{interface}")')]
    return []
