"""CustomResourceDefinitions of apiextensions.k8s.io/v1beta1, in which a kube-apiserver stores them.

What is the same in all versions stands once in these, above the versions.
Source: k8s.io/apiextensions-apiserver `pkg/apis/apiextensions/v1/conversion.go`.
"""

from typing import Any, Final

from dralab.values.json_types import JsonDict

OLDER: Final = ("CustomResourceDefinition", "apiextensions.k8s.io/v1beta1")
# Field above the versions, field of a version.
SHARED: Final = {
    "validation": "schema",
    "subresources": "subresources",
    "additionalPrinterColumns": "additionalPrinterColumns",
    "selectableFields": "selectableFields",
}


def to_v1(value: JsonDict) -> JsonDict:
    """Return a definition in v1.

    >>> spec = {"group": "x.io", "version": "v1", "validation": {"openAPIV3Schema": {}}}
    >>> to_v1({"spec": spec})["spec"]["versions"]
    [{'name': 'v1', 'served': True, 'storage': True, 'schema': {'openAPIV3Schema': {}}}]
    """
    given: JsonDict = dict(value.get("spec") or {})
    name = given.pop("version", None)
    shared = {of: given.pop(above, None) for above, of in SHARED.items()}
    versions = given.pop("versions", None) or [{"name": name, "served": True, "storage": True}]
    spec = {
        **given,
        "versions": [_version(one, shared) for one in versions],
    }
    if not spec.get("preserveUnknownFields"):
        spec.pop("preserveUnknownFields", None)
    if isinstance(conversion := spec.get("conversion"), dict):
        spec["conversion"] = _conversion(conversion)
    return {**value, "apiVersion": "apiextensions.k8s.io/v1", "spec": spec}


def _version(given: JsonDict, shared: dict[str, Any]) -> JsonDict:
    found = dict(given)
    for part, item in shared.items():
        if item and part not in found:
            found[part] = item
    if columns := found.get("additionalPrinterColumns"):
        found["additionalPrinterColumns"] = [
            {("jsonPath" if part == "JSONPath" else part): item for part, item in column.items()}
            for column in columns
        ]
    return found


def _conversion(given: JsonDict) -> JsonDict:
    found = dict(given)
    client = found.pop("webhookClientConfig", None)
    reviews = found.pop("conversionReviewVersions", None)
    if found.get("strategy") == "Webhook":
        found["webhook"] = {
            **({"clientConfig": client} if client else {}),
            "conversionReviewVersions": reviews or ["v1beta1"],
        }
    return found
