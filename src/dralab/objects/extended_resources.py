"""Extended resources that devices provide, and the claim that stands for those of a pod.

Source: KEP-5004, kube-scheduler's DynamicResources plugin (`createRequestMappings`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from dralab.objects.metadata import key_of, owner_reference, spec_of
from dralab.objects.pods import containers_of
from dralab.objects.requests import base_units, requested
from dralab.values.json_types import JsonDict, JsonObject
from dralab.values.records import dataclass

IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
"""What the implicit extended resource of a class begins with."""
SYNTHETIC: Final = "resource.kubernetes.io/extended-resource-claim"
"""The annotation of claims that were made for extended resources."""


def classes_by_resource(classes: Iterable[JsonObject]) -> dict[str, str]:
    """Return the classes by the extended resources that they provide.

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


@dataclass(frozen=True, slots=True)
class _AskingContainer:
    """A container that asks for a resource; `brief`: an init container that ends."""

    number: int
    name: str
    request: str
    amount: int
    brief: bool


def _requests(
    pod: JsonObject, provided: Mapping[str, str]
) -> tuple[list[JsonObject], list[JsonObject]]:
    requests: dict[str, JsonObject] = {}
    mappings: list[JsonObject] = []
    for resource in sorted(provided):
        counts, uses = _shared(_askers(pod, resource))
        for name, count in counts.items():
            exactly = {
                "deviceClassName": provided[resource],
                "allocationMode": "ExactCount",
                "count": count,
            }
            requests[name] = {"name": name, "exactly": exactly}
        mappings += [
            {"containerName": container, "resourceName": resource, "requestName": name}
            for container, name in uses
        ]
    return [requests[name] for name in sorted(requests)], mappings


def _askers(pod: JsonObject, resource: str) -> list[_AskingContainer]:
    found = []
    first = len(spec_of(pod).get("initContainers") or ())
    for number, container in enumerate(containers_of(pod)):
        asked = requested(container.get("resources"))
        if amount := base_units(resource, asked[resource]) if resource in asked else 0:
            request = f"container-{number}-request-{sorted(asked).index(resource)}"
            brief = number < first and container.get("restartPolicy") != "Always"
            found.append(_AskingContainer(number, container["name"], request, amount, brief))
    return found


def _shared(
    askers: Sequence[_AskingContainer],
) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return how many devices each request is for, and which container uses which request.

    Init containers that end use the devices of those that start after them and stay. What they
    lack beyond that they take one after the other: it is asked for once, as the most of them need.
    """
    counts = {each.request: each.amount for each in askers if not each.brief}
    uses = [(each.name, each.request) for each in askers if not each.brief]
    lacking: dict[str, int] = {}
    brief: list[tuple[str, str]] = []
    for each in askers:
        left = each.amount
        for later in askers if each.brief else ():
            if left > 0 and not later.brief and later.number > each.number:
                brief.append((each.name, later.request))
                left -= later.amount
        if each.brief and left > 0:
            brief.append((each.name, each.request))
            lacking[each.request] = left
    if lacking:
        largest = max(lacking, key=lacking.__getitem__)
        counts[largest] = lacking[largest]
        brief = [(name, largest if of in lacking else of) for name, of in brief]
    return counts, uses + brief
