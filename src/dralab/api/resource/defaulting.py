"""What an absent field means: the defaults of resource.k8s.io, on the hub form.

Source: `SetDefaults_…` of k8s.io/kubernetes `pkg/apis/resource/v1`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dralab.api.resource.structure import normalised
from dralab.api.resource.types import KINDS
from dralab.api.resource.validation.claim_status import SharedDevice
from dralab.values.json_types import JsonDict

POOL_STATUS_LIMIT: Final = 100


def default(obj: Mapping[str, Any], *, now: str) -> JsonDict:
    """Return an object in the form in which a server stores it: defaults set, nulls dropped.

    `obj` is in the hub version of its kind; `now` is the RFC 3339 time at which taints without
    a time were added.

    >>> request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    >>> claim = {"kind": "ResourceClaim", "spec": {"devices": {"requests": [request]}}}
    >>> default(claim, now="")["spec"]["devices"]["requests"][0]["exactly"]
    {'deviceClassName': 'gpu', 'allocationMode': 'ExactCount', 'count': 1}
    """
    return _complete(obj, {}, now=now)


def default_update(new: Mapping[str, Any], old: Mapping[str, Any], *, now: str) -> JsonDict:
    """Return the object with defaults, where it replaces `old`, which is as a server stores it.

    A rule whose effect changed gets a new `timeAdded` unless the writer gave one. What drivers
    say of a claim's devices goes with the devices. Parts that did not change are taken from `old`.
    """
    known = {
        part: old[part] for part in ("spec", "status") if part in old and _same(part, new, old)
    }
    result = _complete(new, known, now=now)
    if result.get("kind") == "ResourceClaim" and "status" not in known:
        _forget_deallocated(result, old)
    if result.get("kind") == "DeviceTaintRule":
        taint, before = result["spec"]["taint"], old["spec"]["taint"]
        if taint.get("effect") != before.get("effect") and (
            taint.get("timeAdded") == before.get("timeAdded")
        ):
            taint["timeAdded"] = now
    return result


def _same(part: str, new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    return new.get(part) is old[part] or new.get(part) == old[part]


def _complete(obj: Mapping[str, Any], known: Mapping[str, Any], *, now: str) -> JsonDict:
    """Return an object with its defaults; `known` are parts of it that have theirs."""
    kind = str(obj.get("kind", ""))
    result = normalised(KINDS[kind][0], kind, obj, known)
    if kind == "ResourceClaim" and "status" not in known:
        _tolerations_of_results(result["status"])
    if "spec" in known:
        return result
    match kind:
        case "ResourceClaim":
            _claim_spec(result["spec"])
        case "ResourceClaimTemplate":
            _claim_spec(result["spec"]["spec"])
        case "ResourceSlice":
            for device in result["spec"].get("devices", ()):
                for taint in device.get("taints", ()):
                    taint.setdefault("timeAdded", now)
        case "DeviceTaintRule":
            result["spec"]["taint"].setdefault("timeAdded", now)
        case "ResourcePoolStatusRequest":
            result["spec"].setdefault("limit", POOL_STATUS_LIMIT)
        case _:
            pass
    return result


def requests_of(spec: Mapping[str, Any]) -> Iterator[JsonDict]:
    """Yield every `exactly` and every alternative of a claim's spec, in order."""
    for request in (spec.get("devices") or {}).get("requests") or ():
        if request.get("exactly") is not None:
            yield request["exactly"]
        yield from request.get("firstAvailable") or ()


def _claim_spec(spec: Mapping[str, Any]) -> None:
    for request in requests_of(spec):
        mode = request.get("allocationMode") or "ExactCount"
        if not request.get("allocationMode"):
            _insert_before(request, "allocationMode", mode, _AFTER_MODE)
        if mode == "ExactCount" and not request.get("count"):
            _insert_before(request, "count", 1, _AFTER_COUNT)
        for toleration in request.get("tolerations", ()):
            _operator(toleration)


def _tolerations_of_results(status: Mapping[str, Any]) -> None:
    allocation = status.get("allocation") or {}
    for result in (allocation.get("devices") or {}).get("results") or ():
        for toleration in result.get("tolerations", ()):
            _operator(toleration)


def _forget_deallocated(new: JsonDict, old: Mapping[str, Any]) -> None:
    """Drop the status of devices that the claim had before and has no more.

    Writers of another age know nothing of it: they take away the allocation alone.
    Source: `dropDeallocatedStatusDevices` of k8s.io/kubernetes `pkg/registry/resource`.
    """
    entries = new["status"].get("devices")
    if not entries:
        return
    gone = _allocated(old) - _allocated(new)
    if kept := [entry for entry in entries if SharedDevice.from_entry(entry) not in gone]:
        new["status"]["devices"] = kept
    else:
        del new["status"]["devices"]


def _allocated(claim: Mapping[str, Any]) -> set[SharedDevice]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return {SharedDevice.from_entry(result) for result in results}


def _operator(toleration: JsonDict) -> None:
    if not toleration.get("operator"):
        _insert_before(toleration, "operator", "Equal", frozenset({"value", "effect"}))


_AFTER_COUNT: Final = frozenset({"adminAccess", "tolerations", "capacity", "derivedAttributes"})
_AFTER_MODE: Final = _AFTER_COUNT | {"count"}


def _insert_before(mapping: JsonDict, name: str, value: Any, later: frozenset[str]) -> None:
    """Set a field where the API's order has it: before the fields that come later."""
    moved = {key: mapping.pop(key) for key in list(mapping) if key in later}
    mapping[name] = value
    mapping.update(moved)
