"""Documents of dra-evolution checked against its types, limits and expressions.

Documents of k8srm that lie beside them (most of the prototype's own folder) are legacy: they are
read as k8srm, and `prototypes.conversion` turns them into this generation.
"""

from collections.abc import Mapping
from typing import Any, Final

from dralab.objects.metadata import spec_of
from dralab.prototypes.evolution.expressions import EvolutionExpressions
from dralab.prototypes.evolution.kinds import API_VERSION, KINDS, MAX_DOMAIN, MAX_ID
from dralab.prototypes.findings import (
    Finding,
    NormalizedDocument,
    copied,
    identity,
    invalid,
    legacy,
    warning,
)
from dralab.prototypes.k8srm import normalize as k8srm
from dralab.prototypes.k8srm.kinds import API_VERSION as K8SRM
from dralab.prototypes.shape import Shape, misshapen, standard
from dralab.values.json_types import JsonDict
from dralab.values.names import c_identifier_problems, label_problems, subdomain_problems
from dralab.values.quantity import is_quantity
from dralab.values.version import Version

SHAPES: Final = {kind["kind"]: Shape(kind["schema"], whole=True) for kind in KINDS}
VALUES: Final = ("quantity", "bool", "string", "version")
# Fields of drafts before the last one that its files still carry.
DROPPED: Final[Mapping[str, tuple[str, ...]]] = {"ResourcePool": ("distributedAllocation",)}
EXPRESSIONS: Final = EvolutionExpressions()


def normalize(item: Mapping[str, Any]) -> NormalizedDocument:
    """Return a document as this generation reads it."""
    normalized: JsonDict = copied(dict(item))
    api_version, kind, _, name = identity(item)
    found: list[Finding] = []
    if api_version == K8SRM or (api_version, kind) == ("v1", "Pod"):
        return _k8srm(normalized, kind)
    if api_version != API_VERSION and api_version.startswith("resource.k8s.io/"):
        found.append(
            invalid("apiVersion", f'"{api_version}" is not served; it must be {API_VERSION}')
        )
    if api_version == API_VERSION and kind == "DevicePool":
        kind = normalized["kind"] = "ResourcePool"
        found.append(legacy("kind", "DevicePool of an earlier draft, read as ResourcePool"))
    if api_version.startswith("resource.k8s.io/"):
        found += _checked(normalized, kind)
    elif api_version == "v1":
        found += standard(normalized)
    else:
        found.append(
            legacy("apiVersion", f"a {kind} has no place here: configs hold their parameters")
        )
    found += k8srm.named(name)
    return NormalizedDocument(document=normalized, findings=tuple(found))


def _k8srm(item: JsonDict, kind: str) -> NormalizedDocument:
    report = k8srm.normalize(item)
    note = legacy("apiVersion", f"a {kind} of k8srm, not updated to {API_VERSION}")
    return NormalizedDocument(document=report.document, findings=(note, *report.findings))


def _checked(item: JsonDict, kind: str) -> list[Finding]:
    shape = SHAPES.get(kind)
    if shape is None:
        return [invalid("kind", f'"{kind}" is not one of {", ".join(sorted(SHAPES))}')]
    found = []
    spec = item.get("spec")
    for field in DROPPED.get(kind, ()):
        if isinstance(spec, dict) and field in spec:
            del spec[field]
            found.append(legacy(f"spec.{field}", "of an earlier draft: it has no effect"))
    wrong = shape.findings(item)
    found += wrong
    if misshapen(wrong):
        return found
    match kind:
        case "DeviceClass":
            found += _requirements(item, "")
        case "ResourceClaim":
            found += _claim_spec(item.get("spec") or {}, "spec")
        case "ResourceClaimTemplate":
            found += _claim_spec(spec_of(item).get("spec") or {}, "spec.spec")
        case "ResourcePool":
            found += _pool(item.get("spec") or {})
        case "Pod":
            found += _pod(item.get("spec") or {})
        case _:
            pass
    return found


def _requirements(part: Mapping[str, Any], path: str) -> list[Finding]:
    found = []
    for index, requirement in enumerate(part.get("requirements") or ()):
        text = requirement.get("deviceSelector")
        if text:
            where = ".".join(p for p in (path, f"requirements[{index}].deviceSelector") if p)
            found += EXPRESSIONS.findings(text, where)
    return found


def _claim_spec(spec: Mapping[str, Any], path: str) -> list[Finding]:
    found = []
    seen: set[str] = set()
    for index, request in enumerate(spec.get("requests") or ()):
        where = f"{path}.requests[{index}]"
        name = request.get("name")
        if not name:
            found.append(warning(f"{where}.name", "absent: the result's requestName stays empty"))
        elif name in seen:
            found.append(invalid(f"{where}.name", f'"{name}" appears twice'))
        else:
            found += [invalid(f"{where}.name", text) for text in label_problems(name)]
            seen.add(name)
        found += _requirements(request, where)
    for index, constraint in enumerate(spec.get("constraints") or ()):
        if "matchAttribute" not in constraint:
            found.append(invalid(f"{path}.constraints[{index}]", "matchAttribute is required"))
        else:
            where = f"{path}.constraints[{index}].matchAttribute"
            found += _attribute_name(constraint["matchAttribute"], where)
    return found


def _pool(spec: Mapping[str, Any]) -> list[Finding]:
    found = [
        invalid("spec.driverName", problem)
        for problem in subdomain_problems(spec.get("driverName") or "")
    ]
    shared: set[str] = set()
    for index, capacity in enumerate(spec.get("sharedCapacity") or ()):
        found += _capacity(capacity, f"spec.sharedCapacity[{index}]")
        shared.add(capacity.get("name", ""))
    names: set[str] = set()
    for index, device in enumerate(spec.get("devices") or ()):
        path = f"spec.devices[{index}]"
        name = device.get("name") or ""
        found += [invalid(f"{path}.name", f'"{name}": {text}') for text in label_problems(name)]
        if name in names:
            found.append(invalid(f"{path}.name", f'"{name}" appears twice'))
        names.add(name)
        found += _attributes(device, path)
        for number, capacity in enumerate(device.get("sharedCapacityConsumed") or ()):
            where = f"{path}.sharedCapacityConsumed[{number}]"
            found += _capacity(capacity, where)
            if capacity.get("name") not in shared:
                found.append(invalid(f"{where}.name", "the pool has no such shared capacity"))
    return found


def _capacity(capacity: Mapping[str, Any], path: str) -> list[Finding]:
    name = capacity.get("name") or ""
    found = [invalid(f"{path}.name", f'"{name}": {text}') for text in c_identifier_problems(name)]
    if len(name) > MAX_ID:
        found.append(invalid(f"{path}.name", f'"{name}": at most {MAX_ID} characters'))
    if not is_quantity(str(capacity.get("capacity"))):
        found.append(invalid(f"{path}.capacity", f'"{capacity.get("capacity")}" is not a quantity'))
    return found


def _attributes(device: Mapping[str, Any], path: str) -> list[Finding]:
    found = []
    seen: set[str] = set()
    for number, attribute in enumerate(device.get("attributes") or ()):
        where = f"{path}.attributes[{number}]"
        name = attribute.get("name") or ""
        found += _attribute_name(name, f"{where}.name")
        if name in seen:
            found.append(invalid(f"{where}.name", f'"{name}" appears twice'))
        seen.add(name)
        given = [value for value in VALUES if value in attribute]
        if len(given) != 1:
            found.append(invalid(where, f"exactly one of {', '.join(VALUES)} is required"))
        if "quantity" in attribute and not is_quantity(str(attribute["quantity"])):
            found.append(
                invalid(f"{where}.quantity", f'"{attribute["quantity"]}" is not a quantity')
            )
        if "version" in attribute:
            try:
                Version.parse(str(attribute["version"]))
            except ValueError as error:
                found.append(invalid(f"{where}.version", str(error)))
    return found


def _attribute_name(name: str, path: str) -> list[Finding]:
    domain, slash, identifier = name.rpartition("/")
    found = [invalid(path, f'"{name}": {problem}') for problem in c_identifier_problems(identifier)]
    if len(identifier) > MAX_ID:
        found.append(invalid(path, f'"{name}": the id has more than {MAX_ID} characters'))
    if slash:
        found += [invalid(path, f'"{name}": {text}') for text in subdomain_problems(domain.lower())]
        if len(domain) > MAX_DOMAIN:
            found.append(invalid(path, f'"{name}": the domain is longer than {MAX_DOMAIN}'))
    return found


def _pod(spec: Mapping[str, Any]) -> list[Finding]:
    found = []
    names: set[str] = set()
    for index, entry in enumerate(spec.get("resourceClaims") or ()):
        path = f"spec.resourceClaims[{index}]"
        names.add(entry.get("name", ""))
        if ("resourceClaimName" in entry) == ("resourceClaimTemplateName" in entry):
            found.append(
                invalid(path, "one of resourceClaimName and resourceClaimTemplateName is required")
            )
    for index, container in enumerate(spec.get("containers") or ()):
        for number, claim in enumerate((container.get("resources") or {}).get("claims") or ()):
            if claim.get("name") not in names:
                where = f"spec.containers[{index}].resources.claims[{number}].name"
                found.append(invalid(where, f'the pod has no claim "{claim.get("name")}"'))
    return found
