"""The story of a pod and its devices: claims, requests, devices left by each condition.

Then what its node made of them: the ids and the health that the kubelet reports in the pod's status
(KEP-4680). Events are left to the source: they are read when someone asks.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dralab.allocation.pools import SliceCatalog
from dralab.allocation.problem import DeviceId, Node, Problem
from dralab.allocation.search.alternatives import Alternative
from dralab.explanation.answers import ChosenDevice, asked_again, why_held
from dralab.explanation.findings import against_each
from dralab.explanation.inquiry import BLOCKS, Inquiry, total_of
from dralab.explanation.misses import selects
from dralab.explanation.questions import FleetQuestions
from dralab.explanation.text import unfit_group
from dralab.explanation.unfit import by_reason
from dralab.objects.claims import allocation_of, claims_by_entry, consumers_of, results_of
from dralab.objects.metadata import full_key, metadata_of, owners_of, spec_of, status_of
from dralab.scheduling.backlog import Pending
from dralab.scheduling.snapshot import Snapshot
from dralab.values.json_types import JsonDict, JsonObject


def story(cluster: Snapshot, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
    """Return what is known of a pod or claim and its devices; None if it is not there.

    `funnels` count devices as they are used now, with its own as if they were free; `why` of a
    device says what comes before it and was passed over.
    """
    found = _found(cluster, kind, namespace, name)
    if found is None:
        return None
    claims = [*found.allocated, *found.claims]
    owner: JsonObject = found.pod if found.kind == "pod" else claims[0]
    waiting = bool(found.claims) and not found.missing
    problem, nodes = asked_again(cluster, found) if claims and not found.missing else (None, [])
    told: list[dict[str, Any]] = []
    if problem is not None and nodes:
        inquiry = _inquiry(problem, nodes, cluster.catalog)
        told = [_funnel(inquiry, each) for each in inquiry.each_alternative()] if inquiry else []
    why = {(each.claim, each.request, each.device): each for each in why_held(cluster, found)}
    unfit = cluster.question(found).unfit() if waiting else {}
    return {
        "kind": found.kind,
        "namespace": found.namespace,
        "name": found.name,
        "since": str(metadata_of(owner).get("creationTimestamp") or ""),
        "node": str(spec_of(owner).get("nodeName") or "") if found.kind == "pod" else "",
        "phase": str(status_of(owner).get("phase") or ""),
        "missing": str(found.missing or ""),
        "owners": [f"{each.get('kind')} {each.get('name')}" for each in owners_of(owner)],
        "conditions": [_condition(each) for each in status_of(owner).get("conditions") or ()],
        "entries": claims_by_entry(owner) if found.kind == "pod" else {},
        "claims": [_claim(each, why) for each in claims],
        "containers": container_devices(owner) if found.kind == "pod" else [],
        "candidates": len(nodes),
        "unfit": [unfit_group(*each) for each in by_reason(unfit)],
        "funnels": told,
    }


def usable(cluster: Snapshot, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
    """Return the devices that a pod or claim could use, by pool; None if it is not there.

    `now` as things are, `later` once they are released, untainted or not blocked any more.
    """
    found = _found(cluster, kind, namespace, name)
    if found is None:
        return None
    now: set[DeviceId] = set()
    later: set[DeviceId] = set()
    if not found.missing and (found.claims or found.allocated):
        problem, nodes = asked_again(cluster, found)
        inquiry = _inquiry(problem, nodes[:1], cluster.catalog)
        alternatives = [] if inquiry is None else list(inquiry.each_alternative())
        for node in nodes if alternatives else ():
            view = cluster.catalog.view(node, problem.features)
            for device, reasons in against_each(problem, view, alternatives):
                if any(each is None for each in reasons):
                    now.add(device)
                elif any(each is not None and each.why in BLOCKS for each in reasons):
                    later.add(device)
    return {"now": _by_pool(now), "later": _by_pool(later - now)}


def _by_pool(devices: Iterable[DeviceId]) -> list[dict[str, Any]]:
    pools: dict[tuple[str, str], list[str]] = {}
    for driver, pool, device in sorted(devices):
        pools.setdefault((driver, pool), []).append(device)
    return [
        {"driver": driver, "pool": pool, "devices": names}
        for (driver, pool), names in pools.items()
    ]


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
        if full_key(pod) == (namespace, name):
            return user
    return None


def container_devices(pod: JsonObject) -> list[dict[str, Any]]:
    """Return what the containers of a pod got, by the kubelet: ids of CDI where a driver has them.

    An id with `=` is one of CDI (`vendor/class=name`); others name driver, pool and device.
    """
    status = status_of(pod)
    found = []
    for field in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        for container in status.get(field) or ():
            for item in container.get("allocatedResourcesStatus") or ():
                entry, _, request = str(item.get("name")).removeprefix("claim:").partition("/")
                devices = [
                    {
                        "id": str(each.get("resourceID") or ""),
                        "health": str(each.get("health") or ""),
                        "message": str(each.get("message") or ""),
                    }
                    for each in item.get("resources") or ()
                ]
                name = str(container.get("name"))
                found.append(
                    {"container": name, "entry": entry, "request": request, "devices": devices}
                )
    return found


def _claim(claim: JsonDict, why: Mapping[tuple[str, str, DeviceId], ChosenDevice]) -> JsonDict:
    allocation = allocation_of(claim)
    name = "/".join(full_key(claim))
    ids = {_device_id(device): device for device in status_of(claim).get("devices") or ()}
    return {
        "name": claim["metadata"]["name"],
        "key": name,
        "uid": str(metadata_of(claim).get("uid") or ""),
        "since": str(metadata_of(claim).get("creationTimestamp") or ""),
        "allocated": allocation is not None,
        "requests": spec_of(claim).get("devices") or {},
        "reservedFor": [
            f"{item['resource'].removesuffix('s')} {item['name']}" for item in consumers_of(claim)
        ],
        "devices": [
            _device(item, ids, why.get((name, item["request"], _device_id(item))))
            for item in results_of(allocation)
        ],
    }


def _device_id(item: JsonObject) -> DeviceId:
    return DeviceId(item["driver"], item["pool"], item["device"])


def _device(
    item: JsonObject, statuses: Mapping[DeviceId, JsonObject], why: ChosenDevice | None
) -> JsonDict:
    device = _device_id(item)
    return {
        "request": item.get("request"),
        "driver": device.driver,
        "pool": device.pool,
        "device": device.device,
        "consumed": item.get("consumedCapacity") or {},
        "admin": bool(item.get("adminAccess")),
        "status": statuses.get(device),
        "why": None
        if why is None
        else {
            "among": why.among,
            "earlier": why.earlier,
            "passed": list(why.passed),
            "able": list(why.able),
        },
    }


def _condition(each: JsonObject) -> dict[str, str]:
    names = ("type", "status", "reason", "message", "lastTransitionTime")
    return {name: str(each.get(name) or "") for name in names}


def _inquiry(problem: Problem, nodes: Sequence[Node], catalog: SliceCatalog) -> Inquiry | None:
    """Return the questions about what is asked for; None for claims that cannot be read."""
    inquiry = Inquiry(FleetQuestions(problem, nodes, catalog=catalog))
    return inquiry if inquiry.read_claims() is None else None


def _funnel(inquiry: Inquiry, alternative: Alternative) -> dict[str, Any]:
    """Return the steps of an alternative, each with the devices that are left.

    The first step counts all devices that the nodes can use, the last one those that could serve
    the request alone now; `blocked` counts by what the others are blocked.
    """
    kinds = inquiry.kinds
    steps: list[dict[str, Any]] = [{"what": "devices", "text": "", "devices": total_of(kinds)}]
    for located in alternative.conditions:
        kinds = [kind for kind in kinds if selects([located], kind.device)]
        what = "class" if located.where.startswith("class ") else "selector"
        steps.append({"what": what, "text": located.selector.text, "devices": total_of(kinds)})
    supply = inquiry.supply(alternative)
    steps.append({"what": "free", "text": "", "devices": supply.free})
    return {
        "claim": inquiry.claim_of(alternative),
        "request": alternative.name,
        "class": alternative.device_class.name,
        "count": "All" if alternative.all else alternative.count,
        "steps": steps,
        "blocked": dict(supply.blocked),
        "where": supply.where,
        "onOneNode": supply.most_free,
    }
