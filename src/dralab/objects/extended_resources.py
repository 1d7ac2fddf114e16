"""Extended resources that devices provide, and the claim that stands for those of a pod.

Source: KEP-5004, kube-scheduler's DynamicResources plugin (`createRequestMappings`).
"""

from collections.abc import Iterable, Mapping
from typing import Final

from dralab.objects.metadata import key_of, owner_reference, spec_of
from dralab.objects.pods import containers_of
from dralab.objects.requests import base_units, requested
from dralab.values.json_types import JsonDict, JsonObject

IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
"""What the implicit extended resource of a class begins with."""
SYNTHETIC: Final = "resource.kubernetes.io/extended-resource-claim"
"""The annotation of claims that were made for extended resources."""


def classes_by_resource(classes: Iterable[JsonObject]) -> dict[str, str]:
    """Return which class provides which extended resource.

    Of several classes with one resource the newest wins, then the first by name.
    """
    found: dict[str, str] = {}
    chosen: dict[str, tuple[str, str]] = {}
    for item in sorted(classes, key=lambda item: str(item["metadata"]["name"])):
        metadata = item["metadata"]
        name, made = metadata["name"], metadata.get("creationTimestamp") or ""
        found[f"{IMPLICIT}{name}"] = name
        resource = spec_of(item).get("extendedResourceName")
        if resource and (resource not in chosen or made > chosen[resource][0]):
            chosen[resource] = (made, name)
    return {resource: name for resource, (_, name) in chosen.items()} | found


def synthetic_claim(
    pod: JsonObject, provided: Mapping[str, str]
) -> tuple[JsonDict, list[JsonObject]]:
    """Return the claim for a pod's extended resources, and which request is for which container.

    `provided` maps the resources that devices are to provide to their classes. A pod that asks for
    none of them has no requests. The pod controls the claim, which has a `generateName`.
    """
    requests, mappings = _requests(pod, provided)
    key = key_of(pod)
    claim: JsonDict = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "generateName": f"{key.name[:230]}-extended-resources-",
            "namespace": key.namespace,
            "annotations": {SYNTHETIC: "true"},
            "ownerReferences": [owner_reference(pod, api_version="v1", kind="Pod")],
        },
        "spec": {"devices": {"requests": requests}},
    }
    return claim, mappings


def _requests(
    pod: JsonObject, provided: Mapping[str, str]
) -> tuple[list[JsonObject], list[JsonObject]]:
    requests: list[JsonObject] = []
    mappings: list[JsonObject] = []
    for number, container in enumerate(containers_of(pod)):
        asked = requested(container.get("resources"))
        for index, resource in enumerate(sorted(asked)):
            if resource not in provided:
                continue
            count = base_units(resource, asked[resource])
            if not count:
                continue
            name = f"container-{number}-request-{index}"
            exactly = {
                "deviceClassName": provided[resource],
                "allocationMode": "ExactCount",
                "count": count,
            }
            requests.append({"name": name, "exactly": exactly})
            mappings.append(
                {
                    "containerName": container["name"],
                    "resourceName": resource,
                    "requestName": name,
                }
            )
    return requests, mappings
