"""Which Secrets and ConfigMaps pods and volumes name.

Source: k8s.io/kubernetes `pkg/api/v1/pod` (VisitPodSecretNames, VisitPodConfigmapNames),
`pkg/api/v1/persistentvolume` (VisitPVSecretNames).
"""

from collections.abc import Iterator
from typing import Final

from dralab.objects.metadata import spec_of
from dralab.values.json_types import JsonObject

CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")
# Those of the parts of a CSI volume that a kubelet mounts.
OF_CSI: Final = ("nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef")


def secret_names(pod: JsonObject) -> set[str]:
    """Return the names of all Secrets of a pod's namespace that it refers to.

    >>> pod = {
    ...     "spec": {
    ...         "imagePullSecrets": [{"name": "a"}],
    ...         "containers": [{"envFrom": [{"secretRef": {"name": "b"}}]}],
    ...     }
    ... }
    >>> sorted(secret_names(pod))
    ['a', 'b']
    """
    spec = spec_of(pod)
    found = {each.get("name") for each in spec.get("imagePullSecrets") or ()}
    found |= set(_of_containers(spec, "secretRef", "secretKeyRef"))
    for volume in spec.get("volumes") or ():
        for kind, source in volume.items():
            if not isinstance(source, dict):
                continue
            if kind in {"secret", "azureFile"}:
                found.add(source.get("secretName"))
            elif kind == "projected":
                found |= set(_projected(source, "secret"))
            elif kind == "csi":
                found.add((source.get("nodePublishSecretRef") or {}).get("name"))
            else:
                found.add((source.get("secretRef") or {}).get("name"))
    return {name for name in found if name}


def config_map_names(pod: JsonObject) -> set[str]:
    """Return the names of all ConfigMaps that a pod refers to."""
    spec = spec_of(pod)
    found = set(_of_containers(spec, "configMapRef", "configMapKeyRef"))
    for volume in spec.get("volumes") or ():
        found.add((volume.get("configMap") or {}).get("name"))
        found |= set(_projected(volume.get("projected") or {}, "configMap"))
    return {name for name in found if name}


def secrets_of_volume(volume: JsonObject) -> set[tuple[str, str]]:
    """Return namespace and name of the Secrets with which a PersistentVolume is mounted."""
    spec = spec_of(volume)
    home = (spec.get("claimRef") or {}).get("namespace", "")
    found = set()
    for kind, source in spec.items():
        if not isinstance(source, dict):
            continue
        if kind == "azureFile":
            found.add((source.get("secretNamespace") or home, source.get("secretName", "")))
        for part in OF_CSI if kind == "csi" else ("secretRef",):
            if reference := source.get(part):
                found.add((reference.get("namespace") or home, reference.get("name", "")))
    return found


def _of_containers(spec: JsonObject, whole: str, key: str) -> Iterator[str | None]:
    for part in CONTAINERS:
        for container in spec.get(part) or ():
            for source in container.get("envFrom") or ():
                yield (source.get(whole) or {}).get("name")
            for variable in container.get("env") or ():
                yield ((variable.get("valueFrom") or {}).get(key) or {}).get("name")


def _projected(volume: JsonObject, kind: str) -> Iterator[str | None]:
    for source in volume.get("sources") or ():
        yield (source.get(kind) or {}).get("name")
