"""The kinds of Karpenter and of its provider kwok: their definitions and conditions.

Source: Karpenter of August 2026 (`pkg/apis/crds`, `kwok/charts/crds`) and the conditions of
`operatorpkg/status`, on which it builds.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from dralab.objects.conditions import condition_of, conditions_of, with_condition
from dralab.objects.metadata import metadata_of
from dralab.runtime.client import Resource
from dralab.values.json_types import JsonDict, JsonObject

GROUP: Final = "karpenter.sh"
NODE_POOLS: Final = Resource(GROUP, "v1", "nodepools", namespaced=False)
NODE_CLAIMS: Final = Resource(GROUP, "v1", "nodeclaims", namespaced=False)
NODE_CLASSES: Final = Resource("karpenter.kwok.sh", "v1alpha1", "kwoknodeclasses", namespaced=False)
CLASS_KIND: Final = "KWOKNodeClass"
READY: Final = "Ready"
_READY: Final = '.status.conditions[?(@.type=="Ready")].status'
_AGE: Final = (("Age", ".metadata.creationTimestamp", "date", 0),)
# Name, path, type and priority of what kubectl prints.
_POOL_COLUMNS: Final = (
    ("NodeClass", ".spec.template.spec.nodeClassRef.name", "string", 0),
    ("Nodes", ".status.nodes", "string", 0),
    ("Ready", _READY, "string", 0),
    *_AGE,
    ("Weight", ".spec.weight", "integer", 1),
    ("CPU", ".status.resources.cpu", "string", 1),
    ("Memory", ".status.resources.memory", "string", 1),
)
_CLAIM_COLUMNS: Final = (
    ("Type", r".metadata.labels.node\.kubernetes\.io/instance-type", "string", 0),
    ("Capacity", r".metadata.labels.karpenter\.sh/capacity-type", "string", 0),
    ("Zone", r".metadata.labels.topology\.kubernetes\.io/zone", "string", 0),
    ("Node", ".status.nodeName", "string", 0),
    ("Ready", _READY, "string", 0),
    *_AGE,
    ("ImageID", ".status.imageID", "string", 1),
    ("ID", ".status.providerID", "string", 1),
    ("NodePool", r".metadata.labels.karpenter\.sh/nodepool", "string", 1),
    ("NodeClass", ".spec.nodeClassRef.name", "string", 1),
    ("Drifted", '.status.conditions[?(@.type=="Drifted")].status', "string", 1),
)


def definitions() -> list[JsonDict]:
    """Return the definitions of all kinds."""
    return [
        _definition(NODE_POOLS, "NodePool", "nodepool", _POOL_COLUMNS),
        _definition(NODE_CLAIMS, "NodeClaim", "nodeclaim", _CLAIM_COLUMNS),
        _definition(NODE_CLASSES, CLASS_KIND, "kwoknodeclass", _AGE, ("kwoknc", "kwokncs")),
    ]


def _definition(
    resource: Resource,
    kind: str,
    singular: str,
    columns: Sequence[tuple[str, str, str, int]],
    short: Sequence[str] = (),
) -> JsonDict:
    """Return a definition that takes any field; problems are written to the status."""
    free: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": free},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {"name": name, "jsonPath": path, "type": sort, "priority": priority}
            for name, path, sort, priority in columns
        ],
    }
    names = {"kind": kind, "plural": resource.plural, "singular": singular}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "names": {**names, "categories": ["karpenter"], "shortNames": list(short)},
            "scope": "Cluster",
            "versions": [version],
        },
    }


# --- conditions -----------------------------------------------------------------------------------


def condition(type: str, status: str = "True", reason: str = "", message: str = "") -> JsonDict:
    """Return a condition; where nothing else is said, its type is the reason."""
    return {"type": type, "status": status, "reason": reason or type, "message": message}


def awaiting(type: str) -> JsonDict:
    """Return a condition of which nothing is known yet."""
    return condition(type, "Unknown", "AwaitingReconciliation", "object is awaiting reconciliation")


def updated(obj: JsonObject, wanted: Iterable[JsonDict], needed: int, now: str) -> list[JsonDict]:
    """Return the conditions of an object: those wanted, and `Ready`, last.

    It is ready when the first `needed` are true.
    """
    conditions = [*wanted]
    lacking = [each for each in conditions[:needed] if each["status"] != "True"]
    conditions.append(_ready(lacking))
    kinds = {each["type"] for each in conditions}
    held = [dict(each) for each in conditions_of(obj) if each["type"] in kinds]
    generation = metadata_of(obj)["generation"]
    for each in conditions:
        # What an object waits for has not been otherwise since it was created.
        first = condition_of(obj, each["type"]) is None and each["status"] == "Unknown"
        since = metadata_of(obj)["creationTimestamp"] if first else now
        held = with_condition(held, {**each, "observedGeneration": generation}, now=since)
    return sorted(held, key=_rank)


def _ready(lacking: Sequence[JsonDict]) -> JsonDict:
    if not lacking:
        return condition(READY)
    failed = any(each["status"] == "False" for each in lacking)
    return condition(
        READY,
        "False" if failed else "Unknown",
        "UnhealthyDependents" if failed else "ReconcilingDependents",
        ", ".join(f"{each['type']}={each['status']}" for each in lacking),
    )


def _rank(each: JsonDict) -> tuple[bool, str]:
    return each["type"] == READY, each["lastTransitionTime"]
