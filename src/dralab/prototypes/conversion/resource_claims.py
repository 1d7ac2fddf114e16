"""Pods and ResourceClaims, which two generations write alike: v1 and dra-evolution."""

from abc import abstractmethod
from collections.abc import Iterable

from dralab.objects.metadata import namespace_of
from dralab.prototypes.conversion.neutral import NeutralClaim, NeutralPod
from dralab.prototypes.conversion.writing import SceneWriter, label, metadata
from dralab.values.json_types import JsonDict
from dralab.values.patches import copied


class ResourceClaimWriter(SceneWriter):
    """Writes generations whose pods have `spec.resourceClaims`."""

    api_version = ""
    pod_version = ""

    @abstractmethod
    def one_device(self, entry: str, class_name: str) -> JsonDict:
        """Return the spec of a claim for one device of a class."""

    @abstractmethod
    def uses(self, part: NeutralPod, entry: str, request: str) -> Iterable[JsonDict]:
        """Return what a container lists to use a request of an entry, or all of them."""

    def claim_object(self, part: NeutralClaim, spec: JsonDict) -> list[JsonDict]:
        """Return a ResourceClaim with a spec, or the template of such claims."""
        kind = "ResourceClaim"
        if part.template:
            kind = "ResourceClaimTemplate"
            labels = {"metadata": {"labels": dict(part.labels)}} if part.labels else {}
            spec = {**labels, "spec": spec}
        return [self._object(kind, part.name.lower(), part.namespace, spec)]

    def pod(self, part: NeutralPod) -> list[JsonDict]:
        """Return a pod, and templates for devices that it asked for by class alone."""
        item = copied(part.item)
        item["apiVersion"] = self.pod_version
        spec = item["spec"]
        spec.pop("deviceClaims", None)
        templates: list[JsonDict] = []
        entries = []
        for entry in part.entries:
            source = entry.source.lower()
            if entry.how == "class":
                of_claim = {"spec": self.one_device(label(entry.name), source)}
                source = f"{item['metadata']['name']}-{entry.name}"
                templates.append(
                    self._object("ResourceClaimTemplate", source, namespace_of(item), of_claim)
                )
            field = "resourceClaimName" if entry.how == "claim" else "resourceClaimTemplateName"
            entries.append({"name": label(entry.name), field: source})
        spec["resourceClaims"] = entries
        for container in spec.get("containers") or ():
            container.pop("devices", None)
            uses = part.uses.get(container["name"]) or ()
            if claims := [used for entry, name in uses for used in self.uses(part, entry, name)]:
                container.setdefault("resources", {})["claims"] = claims
        return [*templates, item]

    def _object(self, kind: str, name: str, namespace: str, spec: JsonDict) -> JsonDict:
        head = metadata(name, namespace)
        return {"apiVersion": self.api_version, "kind": kind, "metadata": head, "spec": spec}
