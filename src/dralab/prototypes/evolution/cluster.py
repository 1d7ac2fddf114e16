"""Classes, pools and claims of dra-evolution as one allocation problem, and back.

One request is one device; nothing is shared but the capacities of a pool. The same device in two
pools counts in the one that was created last. Management access is decided here, by Quota, and not
where a claim is created.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from dralab.allocation import problem as core
from dralab.allocation.outcome import ClaimAllocation
from dralab.allocation.problem import DeviceId, InUse
from dralab.objects.metadata import namespace_of, spec_of, status_of
from dralab.prototypes.claim_names import evolution_claim
from dralab.prototypes.evolution.expressions import EvolutionExpressions
from dralab.prototypes.evolution.kinds import API_VERSION, FINALIZER, MAX_RESERVED_FOR
from dralab.prototypes.evolution.normalize import unknown_requests
from dralab.prototypes.findings import NormalizedDocument
from dralab.prototypes.k8srm.claim_reader import ANY_CLASS
from dralab.prototypes.placement import PlacedDevice, UnallocatableError
from dralab.prototypes.searching import SHARED, ClaimInProblem, SearchedCluster, slices_of
from dralab.values.json_types import JsonDict
from dralab.values.patches import copied
from dralab.values.quantity import parse_any, render

EVERYBODY: Final = "evolution"


class EvolutionCluster(SearchedCluster[ClaimInProblem]):
    """The cluster of dra-evolution objects; claims of pods are added as they are placed."""

    api_version = API_VERSION
    pool_kind = "ResourcePool"
    cluster_kinds = frozenset({"DeviceClass", "ResourcePool", "Node"})

    def __init__(
        self, objects: Iterable[JsonDict], refused: Iterable[NormalizedDocument] = ()
    ) -> None:
        super().__init__(objects, refused)
        self.expressions = EvolutionExpressions()
        self.pools = _current(self._of("ResourcePool"))
        self.slices = tuple(
            part for number, pool in enumerate(self.pools) for part in _slices(number, pool)
        )
        self.classes = {
            item["metadata"]["name"]: core.DeviceClass(
                name=item["metadata"]["name"], selectors=self._selectors(item)
            )
            for item in self._of("DeviceClass")
        }
        self.classes[ANY_CLASS] = core.DeviceClass(name=ANY_CLASS)

    def pods(self) -> list[JsonDict]:
        """Return the pods, in the order in which they came."""
        return self._of("Pod")

    def failures(self) -> Mapping[str, str]:
        """Return expressions that failed for some device, with the first error of each."""
        return self.expressions.failures

    def _to_place(self, pod: JsonDict) -> list[ClaimInProblem]:
        self.expressions.failures.clear()
        return self._asked(pod)

    # --- what a pod asks

    def _asked(self, pod: JsonDict) -> list[ClaimInProblem]:
        metadata = pod["metadata"]
        namespace = metadata.get("namespace") or "default"
        found = []
        for entry in spec_of(pod).get("resourceClaims") or ():
            item = self._claim(entry, metadata, namespace)
            status = status_of(item)
            allocation = status.get("allocation")
            reserved = {(part["name"], part["uid"]) for part in status.get("reservedFor") or ()}
            mine = (metadata["name"], metadata.get("uid", ""))
            spec = item["spec"]
            if allocation and mine not in reserved and reserved:
                if not (spec.get("shareable") or allocation.get("shareable")):
                    raise UnallocatableError(
                        f"claim {namespace}/{item['metadata']['name']} is not shareable and "
                        "reserved for another pod: set spec.shareable to true to share it"
                    )
                if len(reserved) >= MAX_RESERVED_FOR:
                    raise UnallocatableError(
                        f"claim {namespace}/{item['metadata']['name']} is already reserved for "
                        f"{MAX_RESERVED_FOR} pods, the maximum"
                    )
            found.append(ClaimInProblem(entry=entry["name"], item=item, wanted=self._wanted(item)))
        unknown = unknown_requests(pod["spec"], {each.entry: each.item["spec"] for each in found})
        if unknown:
            raise UnallocatableError(str(unknown[0]))
        return found

    def _claim(self, entry: Mapping[str, Any], pod: Mapping[str, Any], namespace: str) -> JsonDict:
        if "resourceClaimName" in entry:
            return self.named("ResourceClaim", namespace, entry["resourceClaimName"])
        template = self.named(
            "ResourceClaimTemplate", namespace, entry["resourceClaimTemplateName"]
        )
        name = evolution_claim(entry, pod["name"], namespace)
        metadata = {
            key: value
            for key, value in (template["spec"].get("metadata") or {}).items()
            if key in {"labels", "annotations"}
        }
        owner = {"apiVersion": API_VERSION, "kind": "Pod", "name": pod["name"]}
        item: JsonDict = {
            "apiVersion": API_VERSION,
            "kind": "ResourceClaim",
            "metadata": {
                "name": name,
                "namespace": namespace,
                **copied(metadata),
                "ownerReferences": [{**owner, "uid": pod.get("uid", ""), "controller": True}],
            },
            "spec": copied(template["spec"]["spec"]),
        }
        return self.objects.get(self.key(item), item)

    def _wanted(self, item: JsonDict) -> core.Claim:
        metadata, spec = item["metadata"], item["spec"]
        namespace = metadata.get("namespace") or "default"
        requests = []
        for number, request in enumerate(spec.get("requests") or ()):
            name = request.get("deviceClassName") or ANY_CLASS
            if name not in self.classes:
                absent = self.absent((API_VERSION, "DeviceClass", "", name))
                raise UnallocatableError(f"claim {namespace}/{metadata['name']}: {absent}")
            admin = bool(request.get("adminAccess"))
            if admin and not self._management_allowed(namespace):
                raise UnallocatableError(
                    f"claim {namespace}/{metadata['name']}: adminAccess needs a Quota with "
                    f"allowManagementAccess: true in namespace {namespace}"
                )
            label = _label(number, request)
            subrequest = core.SubRequest(
                name=label,
                class_name=name,
                selectors=self._selectors(request),
                admin=True if admin else None,
                written=_written(number, request),
            )
            requests.append(core.Request(name=label, subrequests=(subrequest,)))
        return core.Claim(
            name=metadata["name"],
            namespace=namespace,
            requests=tuple(requests),
            constraints=tuple(
                core.Constraint(
                    "match",
                    constraint["matchAttribute"],
                    written=f"spec.constraints[{place}].matchAttribute",
                )
                for place, constraint in enumerate(spec.get("constraints") or ())
                if "matchAttribute" in constraint
            ),
        )

    def _management_allowed(self, namespace: str) -> bool:
        return any(
            spec_of(item).get("allowManagementAccess")
            for item in self._of("Quota")
            if namespace_of(item) == namespace
        )

    def _selectors(self, part: Mapping[str, Any]) -> tuple[core.DeviceSelector | None, ...]:
        return tuple(
            self.expressions.get(requirement["deviceSelector"])
            for requirement in part.get("requirements") or ()
            if requirement.get("deviceSelector")
        )

    # --- the problem and its result

    def _in_use(self) -> InUse:
        places = {
            (pool["spec"]["driverName"], pool["spec"].get("nodeName", ""), device["name"]): number
            for number, pool in enumerate(self.pools)
            for device in pool["spec"].get("devices") or ()
        }
        held: dict[DeviceId, tuple[str, ...]] = {}
        unreadable = self.refused_of_kind(API_VERSION, "ResourceClaim").values()
        claims = [(item, item["spec"].get("requests") or ()) for item in self._of("ResourceClaim")]
        claims += [(each.document, ()) for each in unreadable if each.has_readable("status")]
        for item, requests in claims:
            allocation = status_of(item).get("allocation") or {}
            admin = {each.get("name") or "" for each in requests if each.get("adminAccess")}
            for data in allocation.get("driverData") or ():
                for result in (data.get("data") or {}).get("results") or ():
                    key = (data["driverName"], allocation.get("nodeName", ""), result["deviceName"])
                    if key in places and (result.get("requestName") or "") not in admin:
                        pool = _pool(places[key], self.pools[places[key]])
                        device = DeviceId(EVERYBODY, pool, result["deviceName"])
                        held[device] = (self.key(item)[3],)
        return InUse(exclusive=frozenset(held), holders=held)

    def _write(
        self, claim: ClaimInProblem, item: JsonDict, allocation: ClaimAllocation, node: str
    ) -> Iterable[PlacedDevice]:
        item["status"]["allocation"] = self._allocation(item, allocation, node)
        finalizers = item["metadata"].setdefault("finalizers", [])
        if FINALIZER not in finalizers:
            finalizers.append(FINALIZER)
        return self._devices(claim.name, allocation)

    def _devices(self, claim: str, allocation: ClaimAllocation) -> Iterable[PlacedDevice]:
        for chosen in allocation.chosen:
            pool = self.pools[int(chosen.device.pool)]
            yield PlacedDevice(
                claim=claim,
                request="" if chosen.request.startswith("requests[") else chosen.request,
                pool=pool["metadata"]["name"],
                device=chosen.device.device,
                driver=pool["spec"]["driverName"],
            )

    def _allocation(self, item: JsonDict, allocation: ClaimAllocation, node: str) -> JsonDict:
        """Return `status.allocation`: for every driver its configs and its results."""
        spec = item["spec"]
        requests = {_label(n, each): each for n, each in enumerate(spec.get("requests") or ())}
        data: dict[str, JsonDict] = {}
        local = False
        for chosen in allocation.chosen:
            pool = self.pools[int(chosen.device.pool)]
            driver = pool["spec"]["driverName"]
            local = local or bool(pool["spec"].get("nodeName"))
            request = requests[chosen.request]
            class_item = self.objects.get(
                (API_VERSION, "DeviceClass", "", request.get("deviceClassName") or ""), {}
            )
            configs = [
                {"admin": True, "opaque": copied(part["opaque"])}
                for part in _for_driver(class_item.get("config"), driver)
            ] + [
                {"admin": False, "opaque": copied(part["opaque"])}
                for part in _for_driver(request.get("config"), driver)
            ]
            result: JsonDict = {"deviceName": chosen.device.device}
            if request.get("name"):
                result["requestName"] = request["name"]
            if configs:
                result["config"] = configs
            mine = data.setdefault(driver, {"driverName": driver, "data": {"results": []}})
            mine["data"]["results"].append(result)
        for driver, mine in data.items():
            configs = [copied(part) for part in _for_driver(spec.get("config"), driver)]
            if configs:
                mine["data"]["config"] = configs
        found: JsonDict = {"shareable": bool(spec.get("shareable"))}
        if data:
            found["driverData"] = list(data.values())
        return found | ({"nodeName": node} if local else {})

    def _containers(
        self,
        pod: JsonDict,
        asked: Sequence[ClaimInProblem],
        claims: Sequence[JsonDict],
        devices: Sequence[PlacedDevice],  # noqa: ARG002 - the claims say it
    ) -> dict[str, tuple[str, ...]]:
        by_entry: dict[str, list[tuple[str, str]]] = {}
        for claim, item in zip(asked, claims, strict=True):
            for data in item["status"]["allocation"].get("driverData") or ():
                for result in data["data"]["results"]:
                    shown = f"{data['driverName']}/{pod['spec']['nodeName']}/{result['deviceName']}"
                    by_entry.setdefault(claim.entry, []).append(
                        (result.get("requestName") or "", shown)
                    )
        return {
            container["name"]: tuple(
                shown
                for use in (container.get("resources") or {}).get("claims") or ()
                for request, shown in by_entry.get(use["name"], ())
                if use.get("requestName") in {None, "", request}
            )
            for container in pod["spec"].get("containers") or ()
        }


def _label(number: int, request: Mapping[str, Any]) -> str:
    """Return a request's name, or its index, which is not a valid name."""
    return str(request.get("name") or f"requests[{number}]")


def _for_driver(configs: Any, driver: str) -> list[Mapping[str, Any]]:
    return [
        part for part in configs or () if (part.get("opaque") or {}).get("driverName") == driver
    ]


def _current(pools: Sequence[JsonDict]) -> list[JsonDict]:
    """Return pools without devices that a newer pool of the same driver and node publishes."""
    newest: dict[tuple[str, str, str], tuple[str, int]] = {}
    for number, pool in enumerate(pools):
        spec = pool["spec"]
        stamp = str(pool["metadata"].get("creationTimestamp") or "")
        for device in spec.get("devices") or ():
            key = (spec["driverName"], spec.get("nodeName", ""), device["name"])
            newest[key] = max(newest.get(key, ("", -1)), (stamp, number))
    found = []
    for number, pool in enumerate(pools):
        spec = pool["spec"]
        kept = [
            device
            for device in spec.get("devices") or ()
            if newest[spec["driverName"], spec.get("nodeName", ""), device["name"]][1] == number
        ]
        found.append({**pool, "spec": {**spec, "devices": kept}})
    return found


def _written(number: int, request: Mapping[str, Any]) -> dict[str, str]:
    """Return where a claim holds the expressions of a request."""
    places = [
        f"spec.requests[{number}].requirements[{place}].deviceSelector"
        for place, requirement in enumerate(request.get("requirements") or ())
        if requirement.get("deviceSelector")
    ]
    return {"": f"spec.requests[{number}]"} | {
        f"selectors[{position}].cel.expression": place for position, place in enumerate(places)
    }


def _pool(number: int, item: JsonDict) -> core.NumberedPool:
    return core.NumberedPool.of(number, item["metadata"]["name"])


def _slices(number: int, pool: JsonDict) -> Iterable[core.Slice]:
    spec = pool["spec"]
    return slices_of(
        EVERYBODY,
        _pool(number, pool),
        spec.get("nodeName") or "",
        [_device(device, spec["driverName"]) for device in spec.get("devices") or ()],
        {c["name"]: parse_any(c["capacity"]) for c in spec.get("sharedCapacity") or ()},
    )


def _device(device: Mapping[str, Any], driver: str) -> core.Device:
    consumed = {
        c["name"]: parse_any(c["capacity"]) for c in device.get("sharedCapacityConsumed") or ()
    }
    return core.Device(
        name=device["name"],
        driver=driver,
        attributes={
            qualified(item["name"], driver): attribute(item)
            for item in device.get("attributes") or ()
        },
        consumes=(core.CounterConsumption(SHARED, consumed),) if consumed else (),
    )


def qualified(name: str, driver: str) -> str:
    """Return an attribute's full name: a bare id belongs to its driver's domain.

    >>> qualified("model", "foozer.example.com")
    'foozer.example.com/model'
    """
    return name if "/" in name or not driver else f"{driver}/{name}"


def attribute(item: Mapping[str, Any]) -> core.Attribute:
    """Return the typed value of an attribute."""
    if "quantity" in item:
        return core.Attribute("quantity", (render(parse_any(item["quantity"])),))
    if "bool" in item:
        return core.Attribute("bool", (bool(item["bool"]),))
    if "version" in item:
        return core.Attribute("version", (str(item["version"]),))
    return core.Attribute("string", (str(item.get("string", "")),))
