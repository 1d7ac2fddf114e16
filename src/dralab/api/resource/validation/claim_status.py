"""ResourceClaim.status: allocation, reservations, and what drivers report of devices."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dralab.api.conditions import condition_errors
from dralab.api.fields import (
    FieldError,
    forbidden,
    invalid_value,
    not_supported,
    required,
    too_long,
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
from dralab.values.json_types import JsonObject

MAX_RESERVATIONS: Final = 256
MAX_RESULTS: Final = 32
MAX_CONDITIONS: Final = 8
MAX_DATA: Final = 10 * 1024
MAX_INTERFACE_NAME: Final = 256
MAX_HARDWARE_ADDRESS: Final = 128
MAX_IPS: Final = 16
SOURCES: Final = ("FromClaim", "FromClass")


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
    """Return what is wrong with the status of a claim that replaces `old`.

    `deleting` says whether `metadata.deletionTimestamp` is set.
    """
    allocation, before = status.get("allocation"), old.get("allocation")
    reserved = status.get("reservedFor") or ()
    found = set_errors(
        reserved,
        MAX_RESERVATIONS,
        f"{path}.reservedFor",
        _consumer_errors,
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


def _consumer_errors(consumer: JsonObject, path: str) -> list[FieldError]:
    return [
        required(f"{path}.{name}") for name in ("resource", "name", "uid") if not consumer.get(name)
    ]


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
            _source_errors(item.get("source") or "", f"{here}.source")
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
    found += driver_errors(result.get("driver") or "", f"{path}.driver")
    found += pool_errors(result.get("pool") or "", f"{path}.pool")
    found += label_errors(result.get("device") or "", f"{path}.device")
    found += binding_errors(result, path)
    for index, toleration in enumerate(result.get("tolerations") or ()):
        found += toleration_errors(toleration, f"{path}.tolerations[{index}]")
    if result.get("shareID") is not None:
        found += share_id_errors(result["shareID"], f"{path}.shareID")
    return found + skip_errors(result.get("skipNodeOperations"), f"{path}.skipNodeOperations")


def _source_errors(source: str, path: str) -> list[FieldError]:
    if not source:
        return [required(path)]
    return [] if source in SOURCES else [not_supported(path, source, SOURCES)]


def _device_errors(device: JsonObject, path: str, allocated: set[SharedDevice]) -> list[FieldError]:
    found = driver_errors(device.get("driver") or "", f"{path}.driver")
    found += pool_errors(device.get("pool") or "", f"{path}.pool")
    found += label_errors(device.get("device") or "", f"{path}.device")
    if device.get("shareID") is not None:
        found += share_id_errors(device["shareID"], f"{path}.shareID")
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
        found += _network_errors(network, f"{path}.networkData")
    return found


def _network_errors(data: JsonObject, path: str) -> list[FieldError]:
    found: list[FieldError] = []
    for name, limit in (
        ("interfaceName", MAX_INTERFACE_NAME),
        ("hardwareAddress", MAX_HARDWARE_ADDRESS),
    ):
        if len((data.get(name) or "").encode()) > limit:
            found.append(too_long(f"{path}.{name}", limit))
    return found + set_errors(data.get("ips"), MAX_IPS, f"{path}.ips", _address_errors)


def _address_errors(address: str, path: str) -> list[FieldError]:
    """Return why a text is not an address of an interface with its network: `10.9.8.1/24`."""
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
