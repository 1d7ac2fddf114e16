"""Runs pods of dra-evolution: each as a core pod of the same name that it owns.

A kubelet runs the core pod with the claims of the other one; `controllers.evolution_pods` makes it
and writes back what becomes of it. So logs, `exec` and events work as for any pod.
"""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from dralab.objects.metadata import controller_of, key_of, owner_reference, spec_of
from dralab.prototypes.claim_names import evolution_claim
from dralab.prototypes.evolution.kinds import API_VERSION
from dralab.values.json_types import JsonDict, JsonObject

# The pod stays until the one that runs it has ended: until then its devices are in use.
FINALIZER: Final = "dralab.dev/runs-on-a-node"
CONTAINER: Final = ("name", "image", "command")
AMOUNTS: Final = ("limits", "requests")


def core_pod(pod: JsonObject) -> JsonDict:
    """Return the pod that runs a bound pod of dra-evolution on its node."""
    key, spec = key_of(pod), spec_of(pod)
    metadata: JsonDict = {
        "name": key.name,
        "namespace": key.namespace,
        "ownerReferences": [owner_reference(pod, api_version=API_VERSION, kind="Pod")],
    }
    for field in ("labels", "annotations"):
        if found := pod["metadata"].get(field):
            metadata[field] = dict(found)
    claims = [
        {
            "name": entry["name"],
            "resourceClaimName": evolution_claim(entry, key.name, key.namespace),
        }
        for entry in spec.get("resourceClaims") or ()
    ]
    wanted: JsonDict = {
        "nodeName": spec["nodeName"],
        "containers": [_container(each) for each in spec.get("containers") or ()],
    }
    if claims:
        wanted["resourceClaims"] = claims
    return {"metadata": metadata, "spec": wanted}


def _container(container: JsonObject) -> JsonDict:
    found = {field: container[field] for field in CONTAINER if container.get(field)}
    resources = container.get("resources") or {}
    amounts = {field: resources[field] for field in AMOUNTS if resources.get(field)}
    uses = [
        {"name": use["name"]} | ({"request": use["requestName"]} if use.get("requestName") else {})
        for use in resources.get("claims") or ()
    ]
    if amounts or uses:
        found["resources"] = amounts | ({"claims": uses} if uses else {})
    return found


def user_of_claims(pod: JsonObject) -> str:
    """Return the UID of the dra-evolution pod that a core pod runs; empty if it runs none."""
    owner = controller_of(pod)
    if owner is None or (owner["apiVersion"], owner["kind"]) != (API_VERSION, "Pod"):
        return ""
    if owner["name"] != key_of(pod).name:
        return ""  # nobody's: the two have one name
    uid: str = owner["uid"]
    return uid


def handles(allocation: Mapping[str, Any]) -> dict[str, JsonObject | None]:
    """Return the drivers of an allocation, each with its handle."""
    return {
        each["driverName"]: {"data": orjson.dumps(each.get("data") or {}).decode()}
        for each in allocation.get("driverData") or ()
    }
