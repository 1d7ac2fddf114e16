"""Converts objects of an older generation to today's API, with their allocations.

For views that know only today's objects. A claim that may use one of several alternatives is shown
with the first one.
"""

from collections.abc import Iterator, Mapping, Sequence

from dralab.objects.claims import has_device_claims, requests_of
from dralab.objects.metadata import full_key, namespace_of, spec_of, status_of, uid_of
from dralab.prototypes.claim_names import evolution_claim
from dralab.prototypes.conversion.neutral import NeutralPool
from dralab.prototypes.conversion.reading import read
from dralab.prototypes.conversion.to_v1 import ToV1
from dralab.prototypes.conversion.writing import V1, label
from dralab.prototypes.k8srm import reading as k8srm
from dralab.prototypes.k8srm.pod_claims import claim_name
from dralab.values.json_types import JsonDict, JsonObject

KEPT = ("uid", "resourceVersion", "creationTimestamp", "ownerReferences")


def as_today(objects: Sequence[JsonDict], api: str) -> list[JsonDict]:
    """Return normalized objects of `api` as resource.k8s.io/v1 and v1 objects."""
    scene = read(objects, api)
    originals = {(item["kind"], str(full_key(item)).lower()): item for item in objects}
    pools = {part.name: part for part in scene.parts if isinstance(part, NeutralPool)}
    found = []
    for item in ToV1(scene).objects():
        original = _original(item, originals)
        if item["kind"] == "Pod":
            found.append(_with_claims(item, original or item))
        elif item["kind"] == "Node":
            found.append(item)
        elif item["apiVersion"] == V1:
            if original is not None:
                item["metadata"] |= {k: v for k in KEPT if (v := original["metadata"].get(k))}
            if original is not None and item["kind"] == "ResourceClaim":
                _allocate(item, original, pools, originals)
            found.append(item)
    return found


def _original(item: JsonObject, originals: Mapping[tuple[str, str], JsonDict]) -> JsonDict | None:
    """Return the original of a converted object; None if it has none."""
    if item["kind"] == "ResourceSlice":
        name = f"default/{item['spec']['pool']['name']}".lower()
        return originals.get(("DevicePool", name)) or originals.get(("ResourcePool", name))
    name = str(full_key(item)).lower()
    return originals.get((item["kind"], name)) or originals.get(("DeviceClaim", name))


def _allocate(
    claim: JsonDict,
    original: JsonObject,
    pools: Mapping[str, NeutralPool],
    originals: Mapping[tuple[str, str], JsonObject],
) -> None:
    """Write a claim's allocation and its users."""
    status = status_of(original)
    results = list(_of_k8srm(claim, status, pools)) or list(_of_evolution(status, pools))
    if not results:
        return
    namespace = namespace_of(original)
    consumers = list(status.get("reservedFor") or ()) + [
        {"resource": "pods", "name": name, "uid": uid_of(pod)}
        for name in status.get("podNames") or ()
        if (pod := originals.get(("Pod", f"{namespace}/{name}".lower())))
    ]
    allocation: JsonDict = {"devices": {"results": results}}
    claim["status"] = {"allocation": allocation, "reservedFor": consumers}


def _of_k8srm(
    claim: JsonObject, status: JsonObject, pools: Mapping[str, NeutralPool]
) -> Iterator[JsonDict]:
    names = list(_request_names(claim))
    for number, part in enumerate(status.get("allocations") or ()):
        pool = pools.get(part["devicePoolName"])
        if pool is not None:
            yield {
                "request": names[min(number, len(names) - 1)] if names else "",
                "driver": pool.driver,
                "pool": pool.name,
                "device": label(part.get("deviceName") or ""),
            }


def _request_names(claim: JsonObject) -> Iterator[str]:
    """Yield the request of each device, in order."""
    for request in requests_of(spec_of(claim)):
        for option in (request.get("firstAvailable") or ())[:1]:
            yield from [f"{request['name']}/{option['name']}"] * option.get("count", 1)
        if "exactly" in request:
            yield from [request["name"]] * request["exactly"].get("count", 1)


def _of_evolution(status: JsonObject, pools: Mapping[str, NeutralPool]) -> Iterator[JsonDict]:
    allocation = status.get("allocation") or {}
    places = {
        (pool.driver, pool.node, device.name): pool.name
        for pool in pools.values()
        for device in pool.devices
    }
    for data in allocation.get("driverData") or ():
        for result in (data.get("data") or {}).get("results") or ():
            key = (data["driverName"], allocation.get("nodeName") or "", result["deviceName"])
            if key in places:
                yield {
                    "request": label(result.get("requestName") or "request-0"),
                    "driver": data["driverName"].split("/")[0],
                    "pool": places[key],
                    "device": label(result["deviceName"]),
                }


def _with_claims(pod: JsonDict, original: JsonObject) -> JsonDict:
    """Return a bound pod whose status names the claims of its entries."""
    made = [
        {"name": label(name), "resourceClaimName": claim.lower()}
        for name, claim in _claims_of(original)
    ]
    pod["apiVersion"] = "v1"
    if made and spec_of(pod).get("nodeName"):
        pod["status"] = {**status_of(pod), "resourceClaimStatuses": made}
    return pod


def _claims_of(pod: JsonObject) -> Iterator[tuple[str, str]]:
    """Yield the entries of a pod of an older generation with the names of their claims."""
    if has_device_claims(pod):
        read_pod = k8srm.read_pod(pod)
        for entry in read_pod.entries:
            yield entry.name or "devices", claim_name(entry, read_pod.name, read_pod.namespace)
        return
    namespace, name = full_key(pod)
    for entry in spec_of(pod).get("resourceClaims") or ():
        yield entry["name"], evolution_claim(entry, name, namespace)
