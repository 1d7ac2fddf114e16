"""The generations by name, and which of them a set of documents belongs to."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from dralab.objects.claims import has_device_claims
from dralab.objects.metadata import spec_of
from dralab.prototypes.evolution import normalize as evolution_normalize
from dralab.prototypes.evolution.cluster import EvolutionCluster as EvolutionWorld
from dralab.prototypes.evolution.kinds import API_VERSION as EVOLUTION
from dralab.prototypes.findings import NormalizedDocument, with_amounts
from dralab.prototypes.k8srm import normalize as k8srm_normalize
from dralab.prototypes.k8srm.cluster import K8srmCluster as K8srmWorld
from dralab.prototypes.k8srm.kinds import API_VERSION as K8SRM
from dralab.prototypes.placement import Generation, GenerationCluster
from dralab.prototypes.v1 import V1
from dralab.values.json_types import JsonDict


class K8srm:
    """devmgmtproto.k8s.io/v1alpha1."""

    name = "k8srm"
    api_version = K8SRM

    def read(self, item: Mapping[str, Any]) -> NormalizedDocument:
        """Return a document as k8srm reads it."""
        return with_amounts(k8srm_normalize.normalize(item))

    def read_all(self, items: Sequence[Mapping[str, Any]]) -> list[NormalizedDocument]:
        """Return documents as k8srm reads them together: drivers say which types there are."""
        return k8srm_normalize.with_types([self.read(item) for item in items])

    def cluster(self, objects: Sequence[JsonDict]) -> GenerationCluster:
        """Return the cluster that normalized objects describe."""
        return K8srmWorld(objects)


class Evolution:
    """resource.k8s.io/v1alpha2 as dra-evolution meant it."""

    name = "evolution"
    api_version = EVOLUTION

    def read(self, item: Mapping[str, Any]) -> NormalizedDocument:
        """Return a document as dra-evolution reads it."""
        return with_amounts(evolution_normalize.normalize(item))

    def read_all(self, items: Sequence[Mapping[str, Any]]) -> list[NormalizedDocument]:
        """Return documents as dra-evolution reads them, each by itself."""
        return [self.read(item) for item in items]

    def cluster(self, objects: Sequence[JsonDict]) -> GenerationCluster:
        """Return the cluster that normalized objects describe."""
        return EvolutionWorld(objects)


GENERATIONS: Final[Mapping[str, Generation]] = {
    generation.name: generation for generation in (K8srm(), Evolution(), V1())
}
TODAY: Final = ("resource.k8s.io/v1", "resource.k8s.io/v1beta1", "resource.k8s.io/v1beta2")


def detected(items: Iterable[Any]) -> set[str]:
    """Return the generations whose objects are among some documents.

    >>> sorted(detected([{"apiVersion": "devmgmtproto.k8s.io/v1alpha1"}]))
    ['k8srm']
    """
    found = set()
    for item in items:
        parts = item if isinstance(item, list) else [item]
        for part in parts:
            version = part.get("apiVersion") if isinstance(part, dict) else None
            if version == K8SRM or (version == "v1" and has_device_claims(part)):
                found.add("k8srm")
            elif version == EVOLUTION and _is_classic(part):
                found.add("classic")
            elif version == EVOLUTION or (
                version == "resource.k8s.io/v1alpha3" and part.get("kind") == "ResourcePool"
            ):
                found.add("evolution")
            elif version in TODAY:
                found.add("v1")
    return found


def _is_classic(item: Mapping[str, Any]) -> bool:
    """Return whether an object of the version that two APIs share is of Kubernetes' own."""
    if item.get("kind") in {"ResourceClass", "PodSchedulingContext", "ResourceClaimParameters"}:
        return True
    spec = spec_of(item)
    return "resourceClassName" in spec or "resourceClassName" in (spec.get("spec") or {})
