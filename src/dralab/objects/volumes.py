"""Matching persistent volumes to claims.

Source: k8s.io/component-helpers `storage/volume` (FindMatchingVolume).
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from dralab.objects.metadata import annotations_of, is_deleting, labels_of
from dralab.values import labels
from dralab.values.json_types import JsonObject
from dralab.values.quantity import parse_any

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
# The index of caches of volumes, by `place_of`.
PLACE: Final = "place"
# Labels that tie a volume to zones or regions, and the names that they have on nodes today.
ZONES: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}
OLD_CLASS: Final = "volume.beta.kubernetes.io/storage-class"


def class_of(claim: JsonObject) -> str:
    """Return the name of a claim's (or volume's) storage class; empty if it has none."""
    old = annotations_of(claim).get(OLD_CLASS)
    return str(old if old is not None else (claim["spec"].get("storageClassName") or ""))


def is_bound(claim: JsonObject) -> bool:
    """Return whether a claim and its volume are bound on both sides."""
    done = BIND_COMPLETED in annotations_of(claim)
    return done and bool(claim["spec"].get("volumeName"))


def belongs_to(volume: JsonObject, claim: JsonObject) -> bool:
    """Return whether a volume is reserved for a claim, by its creator or by a binding."""
    held = volume["spec"].get("claimRef")
    metadata = claim["metadata"]
    return held is not None and (
        (held.get("namespace"), held.get("name")) == (metadata.get("namespace"), metadata["name"])
        and held.get("uid") in {None, "", metadata.get("uid")}
    )


def serves(volume: JsonObject, claim: JsonObject) -> bool:
    """Return whether an unclaimed volume could serve a claim."""
    spec, wanted = volume["spec"], claim["spec"]
    if spec.get("claimRef") is not None or is_deleting(volume):
        return False
    if class_of(volume) != class_of(claim):
        return False
    if (spec.get("volumeMode") or "Filesystem") != (wanted.get("volumeMode") or "Filesystem"):
        return False
    if not set(wanted.get("accessModes") or ()) <= set(spec.get("accessModes") or ()):
        return False
    selector = wanted.get("selector")
    own = labels_of(volume)
    if selector is not None and not labels.from_mapping(selector).accepts(own):
        return False
    return bool(size_of(volume) >= parse_any(asked(claim)))


def is_exclusive(claim: JsonObject) -> bool:
    """Return whether only one pod may use a claim."""
    return "ReadWriteOncePod" in (claim["spec"].get("accessModes") or ())


def reaches_zone(volume: JsonObject, node: Mapping[str, str]) -> bool:
    """Return whether a node with these labels is in the zone of a volume.

    A label may name several zones, with `__` between them. Source: VolumeZone.
    """
    if not any(key in node for key in ZONES):
        return True
    own = labels_of(volume)
    return all(
        node.get(key, node.get(today)) in own[key].split("__")
        for key, today in ZONES.items()
        if key in own
    )


def size_of(volume: JsonObject) -> Any:
    """Return how many bytes a volume has."""
    return parse_any((volume["spec"].get("capacity") or {}).get("storage", "0"))


def asked(claim: JsonObject) -> str:
    """Return how many bytes a claim asks for, as a quantity."""
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    return str(requests.get("storage", "0"))


def is_too_small(volume: JsonObject, claim: JsonObject) -> bool:
    """Return whether a claim asks for more than its volume has, because it was enlarged."""
    return bool(size_of(volume) < parse_any(asked(claim)))


def place_of(volume: JsonObject) -> str:
    """Return the index key of a volume: its claim, or its class without one."""
    held = volume["spec"].get("claimRef")
    if held is None:
        return f"class {class_of(volume)}"
    return f"claim {held.get('namespace')}/{held.get('name')}"


def places_for(claim: JsonObject) -> tuple[str, str]:
    """Return the index keys of volumes for a claim, as of `place_of`."""
    metadata = claim["metadata"]
    return f"claim {metadata['namespace']}/{metadata['name']}", f"class {class_of(claim)}"


def best_for(
    claim: JsonObject, volumes: Iterable[JsonObject], *, without: Collection[str] = ()
) -> JsonObject | None:
    """Return the volume for a claim: the one kept for it, else the smallest that serves."""
    found: list[tuple[Any, str, JsonObject]] = []
    for volume in volumes:
        name = volume["metadata"]["name"]
        if belongs_to(volume, claim):
            return volume
        if name not in without and serves(volume, claim):
            found.append((size_of(volume), name, volume))
    return min(found, key=lambda item: item[:2])[2] if found else None


def reference(claim: JsonObject) -> dict[str, str]:
    """Return the claimRef of a volume for a claim."""
    metadata = claim["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def claims_of(pod: JsonObject) -> list[tuple[str, bool]]:
    """Return the names of a pod's volume claims, and whether each is made for the pod."""
    found = []
    for volume in pod["spec"].get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            found.append((str(volume["persistentVolumeClaim"]["claimName"]), False))
        elif volume.get("ephemeral"):
            found.append((f"{pod['metadata']['name']}-{volume['name']}", True))
    return found
