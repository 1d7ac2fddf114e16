"""Which ResourceClaims a pod uses."""

from collections.abc import Mapping
from typing import Final

from dralab.api import fields
from dralab.api.core.pod_rules.facts import MIRROR
from dralab.api.fields import FieldError
from dralab.api.rules import label, subdomain
from dralab.values.json_types import JsonObject

NAMES: Final = ("resourceClaimName", "resourceClaimTemplateName")
BOTH: Final = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
NEITHER: Final = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"


def _is_classic(claim: JsonObject) -> bool:
    """Return whether an entry says where it comes from as before Kubernetes 1.31.

    The field reaches the rules only where a server was told to serve classic DRA.
    """
    source = claim.get("source") or {}
    return len([key for key in source if key.startswith("resourceClaim")]) == 1


def resource_claims(
    spec: JsonObject, path: str, annotations: Mapping[str, str]
) -> tuple[frozenset[str], list[FieldError]]:
    """Return the names by which containers know the claims, and the errors."""
    given = spec.get("resourceClaims")
    if not given:
        return frozenset(), []
    errors: list[FieldError] = []
    found: set[str] = set()
    for index, claim in enumerate(given):
        at, name = f"{path}.resourceClaims[{index}]", claim.get("name") or ""
        if MIRROR in annotations:
            errors.append(fields.forbidden("", "static pods do not support resource claims"))
            continue
        if not name:
            errors.append(fields.required(f"{at}.name"))
        elif name in found:
            errors.append(fields.duplicate(f"{at}.name", name))
        else:
            errors += label(name, f"{at}.name")
            found.add(name)
        sources = [part for part in NAMES if claim.get(part) is not None]
        if len(sources) > 1:
            errors.append(fields.invalid_value(at, _in_go(claim), BOTH))
        elif not sources and not _is_classic(claim):
            errors.append(fields.invalid_value(at, _in_go(claim), NEITHER))
        for part in sources:
            errors += subdomain(claim[part], f"{at}.{part}")
    return frozenset(found), errors


def _in_go(claim: JsonObject) -> dict[str, str | None]:
    """Return a claim as upstream shows it: a structure of Go with all its fields."""
    parts = ("name", *NAMES)
    return {part[0].upper() + part[1:]: claim.get(part) for part in parts}
