"""A pod's way to its devices: claims, requests, how many devices each condition leaves, devices."""

from typing import Any

from dralab.allocation.backlog import Pending, key
from dralab.allocation.explanation.funnel import funnels
from dralab.allocation.snapshot import Snapshot
from dralab.objects.claims import allocation_of, claims_by_entry, consumers_of, results_of
from dralab.objects.metadata import metadata_of, owners_of, spec_of, status_of
from dralab.values.json_types import JsonDict, JsonObject


def story(cluster: Snapshot, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
    """Return what is known of a pod or claim and its devices; None if it is not there.

    `funnels` count devices as they are used now: for a pod that runs, its own are in use.
    """
    found = _found(cluster, kind, namespace, name)
    if found is None:
        return None
    claims = [*found.allocated, *found.claims]
    owner: JsonObject = found.pod if found.kind == "pod" else claims[0]
    waiting = bool(found.claims) and not found.missing
    nodes = cluster.candidates(found) if waiting else []
    told: list[dict[str, Any]] = []
    if nodes:
        told = funnels(cluster.problem(found), nodes, cluster.catalog)
    return {
        "kind": found.kind,
        "namespace": found.namespace,
        "name": found.name,
        "since": str(metadata_of(owner).get("creationTimestamp") or ""),
        "node": str(spec_of(owner).get("nodeName") or "") if found.kind == "pod" else "",
        "phase": str(status_of(owner).get("phase") or ""),
        "missing": found.missing,
        "owners": [f"{each.get('kind')} {each.get('name')}" for each in owners_of(owner)],
        "conditions": [_condition(each) for each in status_of(owner).get("conditions") or ()],
        "entries": claims_by_entry(owner) if found.kind == "pod" else {},
        "claims": [_claim(each) for each in claims],
        "candidates": len(nodes),
        "unfit": _unfit(cluster, found) if waiting else [],
        "funnels": told,
    }


def _found(cluster: Snapshot, kind: str, namespace: str, name: str) -> Pending | None:
    if kind == "claim":
        claim = cluster.claims.get((namespace, name))
        if claim is None:
            return None
        has_devices = allocation_of(claim) is not None
        return Pending(
            kind="claim",
            namespace=namespace,
            name=name,
            claims=() if has_devices else (claim,),
            allocated=(claim,) if has_devices else (),
        )
    for pod, user in cluster.users():
        if key(pod) == (namespace, name):
            return user
    return None


def _claim(claim: JsonDict) -> dict[str, Any]:
    allocation = allocation_of(claim)
    ids = {
        (device.get("driver"), device.get("pool"), device.get("device")): device
        for device in status_of(claim).get("devices") or ()
    }
    return {
        "name": claim["metadata"]["name"],
        "uid": str(metadata_of(claim).get("uid") or ""),
        "since": str(metadata_of(claim).get("creationTimestamp") or ""),
        "allocated": allocation is not None,
        "requests": spec_of(claim).get("devices") or {},
        "reservedFor": [
            f"{item['resource'].removesuffix('s')} {item['name']}" for item in consumers_of(claim)
        ],
        "devices": [
            {
                "request": item.get("request"),
                "driver": item.get("driver"),
                "pool": item.get("pool"),
                "device": item.get("device"),
                "consumed": item.get("consumedCapacity") or {},
                "admin": bool(item.get("adminAccess")),
                "status": ids.get((item.get("driver"), item.get("pool"), item.get("device"))),
            }
            for item in results_of(allocation)
        ],
    }


def _condition(each: JsonObject) -> dict[str, str]:
    names = ("type", "status", "reason", "message", "lastTransitionTime")
    return {name: str(each.get(name) or "") for name in names}


def _unfit(cluster: Snapshot, found: Pending) -> list[dict[str, Any]]:
    counted: dict[str, int] = {}
    for reason in cluster.unfit(found):
        counted[reason] = counted.get(reason, 0) + 1
    return [{"reason": reason, "nodes": count} for reason, count in counted.items()]
