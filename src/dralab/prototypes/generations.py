"""The generations by name, and which of them a set of documents belongs to."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from dralab.prototypes.classic import reading as classic_reading
from dralab.prototypes.classic.cluster import ClassicCluster
from dralab.prototypes.classic.kinds import API_VERSION as CLASSIC
from dralab.prototypes.evolution import normalize as evolution_normalize
from dralab.prototypes.evolution.cluster import EvolutionCluster as EvolutionWorld
from dralab.prototypes.evolution.kinds import API_VERSION as EVOLUTION
from dralab.prototypes.findings import NormalizedDocument
from dralab.prototypes.k8srm import normalize as k8srm_normalize
from dralab.prototypes.k8srm.cluster import K8srmCluster as K8srmWorld
from dralab.prototypes.k8srm.kinds import API_VERSION as K8SRM
from dralab.prototypes.k8srm.kinds import GROUP as K8SRM_GROUP
from dralab.prototypes.placement import Generation, GenerationCluster
from dralab.prototypes.shape import checked
from dralab.prototypes.v1 import V1
from dralab.values.json_types import JsonDict


class K8srm:
    """devmgmtproto.k8s.io/v1alpha1."""

    name = "k8srm"
    api_version = K8SRM

    def read(self, item: Mapping[str, Any]) -> NormalizedDocument:
        """Return a document as k8srm reads it."""
        return checked(item, k8srm_normalize.normalize)

    def read_all(self, items: Sequence[Mapping[str, Any]]) -> list[NormalizedDocument]:
        """Return documents as k8srm reads them together: drivers say which types there are."""
        return k8srm_normalize.with_types([self.read(item) for item in items])

    def cluster(
        self, objects: Sequence[JsonDict], refused: Sequence[NormalizedDocument] = ()
    ) -> GenerationCluster:
        """Return the cluster that normalized objects describe."""
        return K8srmWorld(objects, refused)


class Evolution:
    """resource.k8s.io/v1alpha2 as dra-evolution meant it."""

    name = "evolution"
    api_version = EVOLUTION

    def read(self, item: Mapping[str, Any]) -> NormalizedDocument:
        """Return a document as dra-evolution reads it."""
        return checked(item, evolution_normalize.normalize)

    def read_all(self, items: Sequence[Mapping[str, Any]]) -> list[NormalizedDocument]:
        """Return documents as dra-evolution reads them together: pods name requests of claims."""
        return evolution_normalize.with_requests([self.read(item) for item in items])

    def cluster(
        self, objects: Sequence[JsonDict], refused: Sequence[NormalizedDocument] = ()
    ) -> GenerationCluster:
        """Return the cluster that normalized objects describe."""
        return EvolutionWorld(objects, refused)


class Classic:
    """resource.k8s.io/v1alpha2 of Kubernetes 1.26 to 1.30, with the fake driver's kinds."""

    name = "classic"
    api_version = CLASSIC

    def read(self, item: Mapping[str, Any]) -> NormalizedDocument:
        """Return a document as classic DRA reads it."""
        return checked(item, classic_reading.normalize)

    def read_all(self, items: Sequence[Mapping[str, Any]]) -> list[NormalizedDocument]:
        """Return documents as classic DRA reads them, each by itself."""
        return [self.read(item) for item in items]

    def cluster(
        self, objects: Sequence[JsonDict], refused: Sequence[NormalizedDocument] = ()
    ) -> GenerationCluster:
        """Return the cluster that objects describe."""
        return ClassicCluster(objects, refused)


GENERATIONS: Final[Mapping[str, Generation]] = {
    generation.name: generation for generation in (K8srm(), Evolution(), Classic(), V1())
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
            if not isinstance(part, dict):
                continue
            version, spec = str(part.get("apiVersion")), part.get("spec")
            spec = spec if isinstance(spec, dict) else {}
            group = version.partition("/")[0]
            if group == K8SRM_GROUP or (version == "v1" and spec.get("deviceClaims")):
                found.add("k8srm")
            elif version in {classic_reading.STATES, classic_reading.PARAMETERS} or (
                version == CLASSIC and _is_classic(str(part.get("kind")), spec)
            ):
                found.add("classic")
            elif version == EVOLUTION or (
                version == "resource.k8s.io/v1alpha3" and part.get("kind") == "ResourcePool"
            ):
                found.add("evolution")
            elif version in TODAY:
                found.add("v1")
    return found


def _is_classic(kind: str, spec: Mapping[str, Any]) -> bool:
    """Return whether an object of the version that two APIs share is of Kubernetes' own."""
    if kind not in evolution_normalize.SHAPES and (CLASSIC, kind) in classic_reading.SHAPES:
        return True
    inner = spec.get("spec")
    return "resourceClassName" in spec or (isinstance(inner, dict) and "resourceClassName" in inner)
