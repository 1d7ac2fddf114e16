"""Documents of classic DRA checked against its kinds, and those of the fake driver."""

from collections.abc import Mapping
from typing import Any, Final

from dralab.objects.metadata import spec_of
from dralab.prototypes.classic import structured
from dralab.prototypes.classic.kinds import (
    API_VERSION,
    DRIVER,
    DRIVER_KINDS,
    DRIVER_VERSION,
    POD_SOURCE,
    RESOURCE_KINDS,
    STATE,
    STATE_GROUP,
)
from dralab.prototypes.findings import Finding, NormalizedDocument, identity, invalid
from dralab.prototypes.shape import Shape, misshapen, standard
from dralab.values.json_types import JsonDict
from dralab.values.patches import copied

STATES: Final = f"{STATE_GROUP}/{DRIVER_VERSION}"
PARAMETERS: Final = f"{DRIVER}/{DRIVER_VERSION}"
KINDS: Final = {
    API_VERSION: (*RESOURCE_KINDS, *structured.KINDS),
    PARAMETERS: DRIVER_KINDS,
    STATES: (STATE,),
}
SHAPES: Final = {
    (version, kind["kind"]): Shape(kind["schema"], whole=True)
    for version, kinds in KINDS.items()
    for kind in kinds
}
POD_FIELDS: Final = {"spec.resourceClaims[].source": POD_SOURCE}
GIVEN: Final = ("resourceClaimName", "resourceClaimTemplateName")


def normalize(item: Mapping[str, Any]) -> NormalizedDocument:
    """Return a document as it is, with its errors; other drivers' kinds are accepted."""
    document: JsonDict = copied(dict(item))
    version, kind, _, _ = identity(item)
    found: list[Finding]
    if (shape := SHAPES.get((version, kind))) is not None:
        found = shape.findings(document)
        if not misshapen(found):
            found += structured.normalize(document).findings
    elif version in KINDS:
        known = ", ".join(sorted(name for at, name in SHAPES if at == version))
        found = [invalid("kind", f'"{kind}" is not one of {known}')]
    else:
        found = standard(document, POD_FIELDS)
        if (version, kind) == ("v1", "Pod") and not misshapen(found):
            found += _sources(document)
    return NormalizedDocument(document=document, findings=tuple(found))


def _sources(pod: JsonDict) -> list[Finding]:
    return [
        invalid(f"spec.resourceClaims[{number}]", f"exactly one of {' and '.join(GIVEN)} is needed")
        for number, entry in enumerate(spec_of(pod).get("resourceClaims") or ())
        if sum(bool((entry.get("source") or entry).get(name)) for name in GIVEN) != 1
    ]
