"""Statuses of k8srm's objects: free devices, drivers of classes, ready devices.

The scheduler writes what it chose into claims; everything here follows from that and from the
objects themselves. Writing it down is left to a controller.
"""

import ipaddress
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from dralab.objects.conditions import with_condition
from dralab.objects.metadata import status_of, uid_of
from dralab.prototypes.k8srm.cluster import K8srmCluster
from dralab.prototypes.k8srm.model import K8srmDevice, K8srmPool
from dralab.values.json_types import JsonDict, JsonObject

# Reserved for benchmarks of networks (RFC 2544): never real addresses.
ADDRESSES: Final = ipaddress.IPv4Network("198.18.0.0/15")
OURS: Final = "ReportedByServer"
"""Why a device is ready that no driver has reported."""
NETWORK_TYPES: Final = ("nic", "vf", "pf")


def pool_status(cluster: K8srmCluster, pool: K8srmPool, now: str, status: JsonObject) -> JsonDict:
    """Return the status of a pool: the number of free devices, and the holders of the others."""
    holders: dict[str, list[JsonObject]] = {}
    for claim in cluster.holding_claims():
        for part in status_of(claim).get("allocations") or ():
            if part["devicePoolName"] == pool.name and part.get("deviceName"):
                holders.setdefault(part["deviceName"], []).append(claim)
    known = {entry["name"]: entry for entry in status.get("deviceStatuses") or ()}
    return {
        "availableDevices": sum(device.name not in holders for device in pool.devices),
        "deviceStatuses": [
            {
                "name": device.name,
                "conditions": _ready(known.get(device.name) or {}, "Allocated", now),
                "claimUIDs": sorted(map(uid_of, holders[device.name])),
            }
            for device in pool.devices
            if device.name in holders
        ],
    }


def class_status(cluster: K8srmCluster, name: str, now: str, status: JsonObject) -> JsonDict:
    """Return the status of a class: its drivers, and whether it has any."""
    catalog = cluster.catalog
    leaves = catalog.leaves(catalog.by_name[name])
    drivers = sorted({driver for leaf in leaves for driver in catalog.drivers_of(leaf) or ()})
    condition = {
        "type": "Ready",
        "status": "True" if drivers else "False",
        "reason": "DriversFound" if drivers else "NoDriver",
        "message": (
            f"served by {', '.join(drivers)}"
            if drivers
            else "no driver handles the class: it matches no device"
        ),
    }
    return {
        "drivers": drivers,
        "conditions": with_condition(status.get("conditions") or (), condition, now=now),
    }


def claim_status(
    cluster: K8srmCluster, taken: Collection[str], now: str, status: JsonObject
) -> JsonDict:
    """Return what drivers report of a claim's devices once its pods have a node.

    What a driver wrote stays as it is. Devices that none has reported are reported here in its
    place: as ready, with what the pool says of them now, and network devices with the first
    address that is not `taken`.
    """
    pools = {pool.name: pool for pool in cluster.pools}
    reported = list(status.get("deviceStatuses") or ())
    known = {(entry["devicePoolName"], entry["deviceName"]): entry for entry in reported}
    used = set(taken)
    for part in status.get("allocations") or ():
        pool = pools.get(part["devicePoolName"])
        device = pool and next((d for d in pool.devices if d.name == part.get("deviceName")), None)
        if not pool or not device:
            continue
        if (before := known.get((pool.name, device.name))) is not None:
            if any(each.get("reason") == OURS for each in before.get("conditions") or ()):
                place = reported.index(before)
                reported[place] = {**before, "deviceInfo": [_info(pool, device)]}
            continue
        entry: JsonDict = {
            "devicePoolName": pool.name,
            "deviceName": device.name,
            "conditions": _ready({}, OURS, now),
            "deviceInfo": [_info(pool, device)],
        }
        if _is_network(cluster, pool, device):
            address = _free(used)
            used.add(address)
            entry |= {"deviceIP": address, "deviceIPs": [{"ip": address}]}
        if part.get("allocations"):
            entry["allocations"] = part["allocations"]
        reported.append(entry)
    return {"deviceStatuses": reported}


def addresses(claims: Iterable[JsonObject]) -> set[str]:
    """Return the addresses that devices of claims have."""
    entries = [entry for claim in claims for entry in status_of(claim).get("deviceStatuses") or ()]
    found = {each["ip"] for entry in entries for each in entry.get("deviceIPs") or ()}
    return found | {entry["deviceIP"] for entry in entries if entry.get("deviceIP")}


def _ready(before: Mapping[str, Any], reason: str, now: str) -> Sequence[JsonObject]:
    condition = {"type": "Ready", "status": "True", "reason": reason, "message": ""}
    return with_condition(before.get("conditions") or (), condition, now=now)


def _info(pool: K8srmPool, device: K8srmDevice) -> JsonDict:
    return {
        "driver": pool.driver,
        "attributes": {name: value.values[0] for name, value in device.attributes.items()},
    }


def _is_network(cluster: K8srmCluster, pool: K8srmPool, device: K8srmDevice) -> bool:
    """Return whether a device is a network interface, by its driver's types or by what it says."""
    types = cluster.catalog.drivers.get(pool.driver) or ()
    return "sriovType" in device.attributes or any(
        part in NETWORK_TYPES for name in types for part in name.split("-")
    )


def _free(taken: Collection[str]) -> str:
    return next(str(each) for each in ADDRESSES.hosts() if str(each) not in taken)
