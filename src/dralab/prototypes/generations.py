"""The generations by name, and which of them a set of documents belongs to.

The one seam: what commands, servers and pages need to know of a generation is a field here, and
they go over `GENERATIONS`. How each reads, searches and writes is left to its package.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from dralab.objects.claims import classic_pod_claims, has_device_claims
from dralab.prototypes import v1
from dralab.prototypes.classic import reading as classic
from dralab.prototypes.classic.cluster import ClassicCluster
from dralab.prototypes.classic.kinds import API_VERSION as CLASSIC
from dralab.prototypes.evolution import kinds as evolution
from dralab.prototypes.evolution import normalize as evolution_normalize
from dralab.prototypes.evolution.cluster import EvolutionCluster
from dralab.prototypes.findings import NormalizedDocument
from dralab.prototypes.k8srm import kinds as k8srm
from dralab.prototypes.k8srm import normalize as k8srm_normalize
from dralab.prototypes.k8srm.cluster import K8srmCluster
from dralab.prototypes.placement import GenerationCluster
from dralab.prototypes.shape import checked
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownGeneration:
    """A generation as data: all that a command or a server needs to know of it.

    `kinds` are its own, by group and version; `sign` is the plural of one that every server lists
    that serves it. `owns` says whether a document is of it, `asks` whether a pod asks for devices
    in its way. No file of today's API holds one of `marks`. `is_always_served`: whatever the
    profiles are; `by_driver`: only its driver knows the devices, so that commands can read it but
    place no pod.
    """

    name: str
    api_version: str
    kinds: Mapping[str, Sequence[Mapping[str, Any]]]
    sign: str
    owns: Callable[[Mapping[str, Any]], bool]
    asks: Callable[[JsonDict], object]
    normalize: Callable[[Mapping[str, Any]], NormalizedDocument]
    together: Callable[[list[NormalizedDocument]], list[NormalizedDocument]] = list
    world: Callable[[Sequence[JsonDict], Sequence[NormalizedDocument]], GenerationCluster]
    marks: tuple[bytes, ...] = ()
    is_always_served: bool = False
    by_driver: bool = False

    def read(self, item: Mapping[str, Any]) -> NormalizedDocument:
        """Return a document as this generation reads it."""
        return checked(item, self.normalize)

    def read_all(self, items: Sequence[Mapping[str, Any]]) -> list[NormalizedDocument]:
        """Return documents read together: one may define what another one refers to."""
        return self.together([self.read(item) for item in items])

    def cluster(
        self, objects: Sequence[JsonDict], refused: Sequence[NormalizedDocument] = ()
    ) -> GenerationCluster:
        """Return the cluster that normalized objects describe."""
        return self.world(objects, refused)


def _is_k8srm(item: Mapping[str, Any]) -> bool:
    version = str(item.get("apiVersion"))
    return version.partition("/")[0] == k8srm.GROUP or (
        version == "v1" and bool(_spec(item).get("deviceClaims"))
    )


def _is_classic(item: Mapping[str, Any]) -> bool:
    """Return whether an object is of Kubernetes' own, or of the fake driver.

    Two APIs share the version.
    """
    version, kind, spec = str(item.get("apiVersion")), str(item.get("kind")), _spec(item)
    if version in {classic.STATES, classic.PARAMETERS}:
        return True
    if kind not in evolution_normalize.SHAPES and (version, kind) in classic.SHAPES:
        return True
    inner = spec.get("spec")
    named = "resourceClassName" in spec or (
        isinstance(inner, dict) and "resourceClassName" in inner
    )
    return version == CLASSIC and named


def _is_evolution(item: Mapping[str, Any]) -> bool:
    version, kind = str(item.get("apiVersion")), item.get("kind")
    if version == "resource.k8s.io/v1alpha3":
        return kind == "ResourcePool"
    return version == evolution.API_VERSION and not _is_classic(item)


def _spec(item: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = item.get("spec")
    return spec if isinstance(spec, dict) else {}


GENERATIONS: Final[Mapping[str, KnownGeneration]] = {
    generation.name: generation
    for generation in (
        # devmgmtproto.k8s.io/v1alpha1.
        KnownGeneration(
            name="k8srm", api_version=k8srm.API_VERSION, kinds={k8srm.API_VERSION: k8srm.KINDS},
            sign="devicepools", owns=_is_k8srm, asks=has_device_claims,
            normalize=k8srm_normalize.normalize, together=k8srm_normalize.with_types,
            world=K8srmCluster, marks=(b"devmgmtproto.k8s.io/", b"deviceClaims"),
            is_always_served=True,
        ),
        # resource.k8s.io/v1alpha2 as dra-evolution meant it; its pods are a kind of their own.
        KnownGeneration(
            name="evolution", api_version=evolution.API_VERSION,
            kinds={evolution.API_VERSION: evolution.KINDS}, sign="resourcepools",
            owns=_is_evolution, asks=bool, normalize=evolution_normalize.normalize,
            together=evolution_normalize.with_requests, world=EvolutionCluster,
            marks=(b"resource.k8s.io/v1alpha2",),
        ),
        # resource.k8s.io/v1alpha2 of Kubernetes 1.26 to 1.30, with the fake driver's kinds.
        KnownGeneration(
            name="classic", api_version=CLASSIC, kinds=classic.KINDS, sign="resourceclasses",
            owns=_is_classic, asks=classic_pod_claims, normalize=classic.normalize,
            world=ClassicCluster, marks=(b"resource.k8s.io/v1alpha2",), by_driver=True,
        ),
        # Today's pods have a scheduler that runs: no command has to place them.
        KnownGeneration(
            name="v1", api_version=v1.API_VERSION, kinds={v1.API_VERSION: v1.KINDS},
            sign="resourceslices", owns=lambda item: item.get("apiVersion") in v1.VERSIONS,
            asks=lambda _: False, normalize=v1.read, world=v1.V1Cluster,
        ),
    )
}  # fmt: skip


def detected(items: Iterable[Any]) -> set[str]:
    """Return the generations whose objects are among some documents.

    >>> sorted(detected([{"apiVersion": "devmgmtproto.k8s.io/v1alpha1"}]))
    ['k8srm']
    """
    parts = (part for item in items for part in (item if isinstance(item, list) else [item]))
    return {
        generation.name
        for part in parts
        if isinstance(part, dict)
        for generation in GENERATIONS.values()
        if generation.owns(part)
    }
