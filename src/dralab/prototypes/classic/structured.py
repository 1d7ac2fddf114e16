"""Structured parameters of classic DRA, by which the scheduler itself allocates devices.

Fields and limits: k8s.io/api v0.30 `resource/v1alpha2`. A driver's plugin tells the kubelet its
named resources, which become ResourceSlices; claims and classes are translated into
ResourceClaimParameters and ResourceClassParameters, whose selectors are `selectors`' business.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from dralab.objects.metadata import NamespacedName, key_of, status_of
from dralab.prototypes.classic import selectors
from dralab.prototypes.findings import Finding, NormalizedDocument, invalid
from dralab.prototypes.schema_words import (
    Schema,
    anything,
    array,
    boolean,
    integer,
    kind,
    quantity,
    struct,
    text,
)
from dralab.values.json_types import JsonDict, JsonObject

# What the scheduler puts on claims whose devices it gave (1.30; later another name).
FINALIZER: Final = "dra.k8s.io/delete-protection"
MODEL: Final = "namedResources"
GROUP: Final = "resource.k8s.io"

SELECTOR: Final = struct(
    {"selector": text("A CEL expression over `attributes`.")}, ("selector",), "By their names."
)
VENDOR: Final = anything("The driver's own.")
ATTRIBUTE: Final = struct(
    {
        "name": text(),
        "quantity": quantity(),
        "bool": boolean(),
        "int": integer(),
        "intSlice": struct({"ints": array(integer())}, ("ints",)),
        "string": text(),
        "stringSlice": struct({"strings": array(text())}, ("strings",)),
        "version": text("A semantic version."),
    },
    ("name",),
)
INSTANCE: Final = struct({"name": text(), "attributes": array(ATTRIBUTE)}, ("name",))
BY_NAME: Final[Mapping[str, Any]] = {
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
}
# Of a claim's allocation: `resourceHandles[*].structuredData`.
HANDLE: Final = struct(
    {
        "vendorClassParameters": VENDOR,
        "vendorClaimParameters": VENDOR,
        "nodeName": text(),
        "results": array(
            struct({"vendorRequestParameters": VENDOR, MODEL: struct({"name": text()}, ("name",))})
        ),
    },
    ("results",),
    "The scheduler's choice.",
)

KINDS: Final[tuple[Schema, ...]] = (
    kind(
        "ResourceSlice resourceslices",
        {
            "nodeName": text(),
            "driverName": text(),
            MODEL: struct({"instances": array(INSTANCE, **BY_NAME)}, ("instances",)),
        },
        namespaced=False,
        required=("driverName",),
        columns="Node .nodeName, Driver .driverName",
    )
    | {"fields": ["nodeName", "driverName"]},
    kind(
        "ResourceClaimParameters resourceclaimparameters",
        {
            "generatedFrom": struct(
                {"apiGroup": text(), "kind": text(), "name": text()}, ("kind", "name")
            ),
            "shareable": boolean("May be used by several consumers at the same time."),
            "driverRequests": array(
                struct(
                    {
                        "driverName": text(),
                        "vendorParameters": VENDOR,
                        "requests": array(struct({"vendorParameters": VENDOR, MODEL: SELECTOR})),
                    },
                    ("driverName",),
                )
            ),
        },
        columns="Generated-From .generatedFrom.name",
    ),
    kind(
        "ResourceClassParameters resourceclassparameters",
        {
            "generatedFrom": struct(
                {"apiGroup": text(), "kind": text(), "name": text(), "namespace": text()},
                ("kind", "name"),
            ),
            "vendorParameters": array(
                struct({"driverName": text(), "parameters": VENDOR}, ("driverName",))
            ),
            "filters": array(struct({"driverName": text(), MODEL: SELECTOR}, ("driverName",))),
        },
        columns="Generated-From .generatedFrom.name",
    ),
)


def normalize(value: JsonDict) -> NormalizedDocument:
    """Return an object as it is, with the errors of its selectors."""
    findings = (_finding(field, entry) for field, entry in _selecting(value))
    return NormalizedDocument(document=value, findings=tuple(filter(None, findings)))


def _selecting(value: JsonDict) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, driver in enumerate(value.get("driverRequests") or ()):
        for index, request in enumerate(driver.get("requests") or ()):
            yield f"driverRequests[{number}].requests[{index}]", request
    for number, entry in enumerate(value.get("filters") or ()):
        yield f"filters[{number}]", entry


def _finding(field: str, entry: Mapping[str, Any]) -> Finding | None:
    if MODEL not in entry:
        return invalid(field, f"exactly one structured model field must be set: {MODEL}")
    problem = selectors.problem(entry[MODEL]["selector"])
    return invalid(f"{field}.{MODEL}.selector", problem) if problem else None


class ClassicClaimsWait(Exception):  # noqa: N818 - a fact about a pod
    """A pod with classic claims cannot go on now; the text says why."""


def claim_parameters(
    claim: JsonObject, class_: JsonObject, known: Iterable[JsonDict]
) -> JsonObject:
    """Return what a claim of a class asks for, in the scheduler's own words. ClassicClaimsWait."""
    reference = claim["spec"].get("parametersRef")
    if reference is None:
        # One device of the class, whichever it is.
        request = {MODEL: {"selector": "true"}}
        asked = {"driverName": class_["driverName"], "requests": [request]}
        return {"shareable": True, "driverRequests": [asked]}
    namespace = key_of(claim).namespace
    here = [each for each in known if key_of(each).namespace == namespace]
    return _translated("claim", reference, NamespacedName(namespace, reference["name"]), here)


def class_parameters(class_: JsonObject, known: Iterable[JsonDict]) -> JsonObject:
    """Return what a class says of its devices; empty if it says nothing. ClassicClaimsWait."""
    reference = class_.get("parametersRef")
    if reference is None:
        return {}
    key = NamespacedName(reference.get("namespace", ""), reference["name"])
    return _translated("class", reference, key, known)


def _translated(
    what: str, reference: JsonObject, key: NamespacedName, known: Iterable[JsonDict]
) -> JsonDict:
    """Return the object that a reference names, or the one translation of a driver's own."""
    in_tree = (GROUP, f"Resource{what.capitalize()}Parameters")
    names = ("apiGroup", "kind", "name", *(("namespace",) if what == "class" else ()))
    if (reference.get("apiGroup"), reference["kind"]) == in_tree:
        named = next((each for each in known if key_of(each) == key), None)
        if named is None:
            raise ClassicClaimsWait(f"{what} parameters {key} not found")
        return named
    source = {name: reference.get(name, "") for name in names}
    found = [
        each
        for each in known
        if {name: (each.get("generatedFrom") or {}).get(name, "") for name in names} == source
    ]
    where = f"{source['kind']}.{source['apiGroup']} {key}"
    if not found:
        raise ClassicClaimsWait(f"generated {what} parameters for {where} not found")
    if len(found) > 1:
        several = ", ".join(sorted(str(key_of(each)) for each in found))
        raise ClassicClaimsWait(
            f"multiple generated {what} parameters for {where} found: {several}"
        )
    return found[0]


def held_by(claim: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the devices that the scheduler gave to a claim, as (node, driver, name)."""
    allocation = status_of(claim).get("allocation") or {}
    for handle in allocation.get("resourceHandles") or ():
        chosen = handle.get("structuredData") or {}
        for result in chosen.get("results") or ():
            if MODEL in result:
                yield chosen.get("nodeName", ""), handle["driverName"], result[MODEL]["name"]
