"""Structured parameters of classic DRA: the scheduler allocates named resources.

Source: kube-scheduler's DynamicResources plugin of Kubernetes 1.30, with its first fit (no going
back on a choice) and its texts. Fixed here: several claims of one pod never share a device, which
upstream checks each by itself.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from dralab.objects.metadata import key_of
from dralab.prototypes.classic.selectors import ClassicSelectorError, accepts
from dralab.prototypes.classic.structured import (
    MODEL,
    ClassicClaimsWait,
    claim_parameters,
    class_parameters,
    held_by,
)
from dralab.runtime.manager import Manager
from dralab.runtime.resources import (
    CLAIM_PARAMETERS,
    CLASS_PARAMETERS,
    CLASSIC_CLAIMS,
    NAMED_SLICES,
)
from dralab.values.json_types import JsonDict, JsonObject

UNSUITABLE: Final = "resourceclaim cannot be allocated for the node (unsuitable)"
HOSTNAME: Final = "kubernetes.io/hostname"


class NamedResources:
    """The named resources, their holders, and the demands of claims."""

    def __init__(self, manager: Manager) -> None:
        self.slices = manager.cache(NAMED_SLICES)
        self.claims = manager.cache(CLASSIC_CLAIMS)
        self.claim_parameters = manager.cache(CLAIM_PARAMETERS)
        self.class_parameters = manager.cache(CLASS_PARAMETERS)
        self.slices.index("node", lambda obj: filter(None, [obj.get("nodeName")]))
        self.claims.index("node", lambda claim: {node for node, _, _ in held_by(claim)})

    def allocations(self, wanted: Sequence[tuple[JsonDict, JsonDict]], node: str) -> list[JsonDict]:
        """Return the allocations of all claims (given with their classes) on a node.

        ClassicClaimsWait: not all of them fit there, or their parameters are not there yet.
        """
        taken = {
            (driver, name)
            for claim in self.claims.find("node", node)
            for at, driver, name in held_by(claim)
            if at == node
        }
        found = []
        for claim, class_ in wanted:
            here = self.claim_parameters.namespace(key_of(claim).namespace)
            parameters = claim_parameters(claim, class_, here)
            filters = class_parameters(class_, self.class_parameters)
            handles = self._handles(parameters, filters, node, taken)
            found.append(_allocation(parameters, handles, node))
        return found

    def _handles(
        self, parameters: JsonObject, filters: JsonObject, node: str, taken: set[tuple[str, str]]
    ) -> list[JsonDict]:
        handles = []
        for asked in parameters.get("driverRequests") or ():
            driver = asked["driverName"]
            fine = [
                each[MODEL]["selector"]
                for each in filters.get("filters") or ()
                if each["driverName"] == driver
            ][:1]
            results = []
            for request in asked.get("requests") or ():
                name = self._first(driver, [*fine, request[MODEL]["selector"]], node, taken)
                taken.add((driver, name))
                vendor = request.get("vendorParameters")
                results.append(
                    {
                        **({"vendorRequestParameters": vendor} if vendor else {}),
                        MODEL: {"name": name},
                    }
                )
            data: JsonDict = {"nodeName": node, "results": results}
            if asked.get("vendorParameters"):
                data["vendorClaimParameters"] = asked["vendorParameters"]
            for each in filters.get("vendorParameters") or ():
                if each["driverName"] == driver and each.get("parameters"):
                    data["vendorClassParameters"] = each["parameters"]
                    break
            handles.append({"driverName": driver, "structuredData": data})
        return handles

    def _first(
        self, driver: str, selectors: Sequence[str], node: str, taken: Collection[tuple[str, str]]
    ) -> str:
        for instance in self._instances(driver, node):
            if (driver, instance["name"]) in taken:
                continue
            attributes = instance.get("attributes") or ()
            try:
                if all(accepts(selector, attributes) for selector in selectors):
                    name: str = instance["name"]
                    return name
            except ClassicSelectorError as error:
                raise ClassicClaimsWait(
                    f"checking structured parameters failed: {error}"
                ) from error
        raise ClassicClaimsWait(UNSUITABLE)

    def _instances(self, driver: str, node: str) -> Iterator[JsonObject]:
        for obj in self.slices.find("node", node):
            if obj["driverName"] == driver:
                yield from (obj.get(MODEL) or {}).get("instances") or ()


def _allocation(parameters: JsonObject, handles: list[JsonDict], node: str) -> JsonDict:
    there = {"key": HOSTNAME, "operator": "In", "values": [node]}
    found: JsonDict = {
        "availableOnNodes": {"nodeSelectorTerms": [{"matchExpressions": [there]}]},
        "resourceHandles": handles,
    }
    if parameters.get("shareable"):
        found["shareable"] = True
    return found
