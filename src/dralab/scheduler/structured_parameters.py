"""Structured parameters of classic DRA: the scheduler gives named resources by itself.

Source: kube-scheduler's DynamicResources plugin of Kubernetes 1.30, with its first fit (no going
back on a choice) and its texts. Fixed here: several claims of one pod never share a device, which
upstream checks each by itself.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from dralab.objects.metadata import NamespacedName, key_of
from dralab.prototypes.classic.kinds import GROUP
from dralab.prototypes.classic.selectors import ClassicSelectorError, accepts
from dralab.prototypes.classic.structured import MODEL, held_by
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


class ClassicClaimsWait(Exception):  # noqa: N818 - a fact about a pod
    """A pod with classic claims cannot go on now; the text says why."""


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
        """Return the allocation of each claim (given with its class) on a node, all together.

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
            parameters = self._of_claim(claim, class_)
            handles = self._handles(parameters, self._of_class(class_), node, taken)
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

    # --- parameters

    def _of_claim(self, claim: JsonDict, class_: JsonDict) -> JsonObject:
        reference = claim["spec"].get("parametersRef")
        namespace = key_of(claim).namespace
        if reference is None:
            # One device of the class, whichever it is.
            request = {MODEL: {"selector": "true"}}
            asked = {"driverName": class_["driverName"], "requests": [request]}
            return {"shareable": True, "driverRequests": [asked]}
        if _is_in_tree(reference, "ResourceClaimParameters"):
            key = NamespacedName(namespace, reference["name"])
            found = self.claim_parameters.get(key)
            if found is None:
                raise ClassicClaimsWait(f"claim parameters {key} not found")
            return found
        source = {name: reference.get(name, "") for name in ("apiGroup", "kind", "name")}
        return _only(
            "claim", source, namespace,
            [
                obj
                for obj in self.claim_parameters.namespace(namespace)
                if _source(obj, source) == source
            ],
        )  # fmt: skip

    def _of_class(self, class_: JsonDict) -> JsonObject:
        reference = class_.get("parametersRef")
        if reference is None:
            return {}
        namespace = reference.get("namespace", "")
        if _is_in_tree(reference, "ResourceClassParameters"):
            key = NamespacedName(namespace, reference["name"])
            found = self.class_parameters.get(key)
            if found is None:
                raise ClassicClaimsWait(f"class parameters {key} not found")
            return found
        names = ("apiGroup", "kind", "name", "namespace")
        source = {name: reference.get(name, "") for name in names}
        return _only(
            "class", source, namespace,
            [obj for obj in self.class_parameters if _source(obj, source) == source],
        )  # fmt: skip


def _is_in_tree(reference: JsonObject, kind: str) -> bool:
    return (reference.get("apiGroup"), reference["kind"]) == (GROUP, kind)


def _source(obj: JsonDict, like: JsonObject) -> JsonObject:
    return {name: (obj.get("generatedFrom") or {}).get(name, "") for name in like}


def _only(what: str, source: JsonObject, namespace: str, found: Sequence[JsonDict]) -> JsonDict:
    """Return the one translation of a driver's parameters; ClassicClaimsWait without one."""
    where = f"{source['kind']}.{source['apiGroup']} {NamespacedName(namespace, source['name'])}"
    if not found:
        raise ClassicClaimsWait(f"generated {what} parameters for {where} not found")
    if len(found) > 1:
        names = ", ".join(sorted(str(key_of(obj)) for obj in found))
        raise ClassicClaimsWait(f"multiple generated {what} parameters for {where} found: {names}")
    return found[0]


def _allocation(parameters: JsonObject, handles: list[JsonDict], node: str) -> JsonDict:
    there = {"key": HOSTNAME, "operator": "In", "values": [node]}
    found: JsonDict = {
        "availableOnNodes": {"nodeSelectorTerms": [{"matchExpressions": [there]}]},
        "resourceHandles": handles,
    }
    if parameters.get("shareable"):
        found["shareable"] = True
    return found
