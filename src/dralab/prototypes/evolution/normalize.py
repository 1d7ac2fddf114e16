"""Documents of dra-evolution checked against its types, limits and expressions.

Documents of k8srm that lie beside them (most of the prototype's own folder) are legacy: they are
read as k8srm, and `prototypes.conversion` turns them into this generation.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dralab.objects.metadata import spec_of
from dralab.prototypes.evolution.expressions import EvolutionExpressions
from dralab.prototypes.evolution.kinds import API_VERSION, KINDS, MAX_DOMAIN, MAX_ID
from dralab.prototypes.findings import (
    Finding,
    NormalizedDocument,
    identity,
    invalid,
    legacy,
)
from dralab.prototypes.k8srm import normalize as k8srm
from dralab.prototypes.k8srm.kinds import API_VERSION as K8SRM
from dralab.prototypes.shape import Shape, misshapen, standard
from dralab.prototypes.written import Written, unique
from dralab.values.json_types import JsonDict
from dralab.values.names import c_identifier_problems, label_problems, subdomain_problems
from dralab.values.patches import copied
from dralab.values.quantity import parse_any
from dralab.values.version import is_version

SHAPES: Final = {kind["kind"]: Shape(kind["schema"], whole=True) for kind in KINDS}
SOURCES: Final = frozenset({"resourceClaimName", "resourceClaimTemplateName"})
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
    found: list[Finding] = []
    requests = Written(dict(spec), path, found).each("requests")
    unique(requests, "name")
    for request in requests:
        name = request.fields.get("name")
        if name:
            found += [invalid(request.at("name"), text) for text in label_problems(name)]
        else:
            request.warn("name", "absent: the result's requestName stays empty")
        found += _requirements(request.fields, request.path)
    for index, constraint in enumerate(spec.get("constraints") or ()):
        if "matchAttribute" not in constraint:
            found.append(invalid(f"{path}.constraints[{index}]", "matchAttribute is required"))
        else:
            where = f"{path}.constraints[{index}].matchAttribute"
            found += _attribute_name(constraint["matchAttribute"], where)
    return found


def _pool(spec: JsonDict) -> list[Finding]:
    found: list[Finding] = []
    pool = Written(spec, "spec", found)
    for problem in subdomain_problems(spec["driverName"]):
        pool.invalid("driverName", problem)
    shared = _capacities(pool, "sharedCapacity")
    unique(pool.each("devices"), "name")
    for device in pool.each("devices"):
        name = device.fields["name"]
        for text in label_problems(name):
            device.invalid("name", f'"{name}": {text}')
        _attributes(device)
        consumed = device.each("sharedCapacityConsumed")
        for name, part in zip(_capacities(device, "sharedCapacityConsumed"), consumed, strict=True):
            if name not in shared:
                known = ", ".join(shared) or "none"
                part.invalid(
                    "name", f'"{name}": the pool has no such shared capacity; it has {known}'
                )
    return found


def _capacities(part: Written, field: str) -> list[str]:
    """Check capacities; return their names."""
    capacities = part.each(field)
    unique(capacities, "name")
    for capacity in capacities:
        name = capacity.fields["name"]
        for text in c_identifier_problems(name):
            capacity.invalid("name", f'"{name}": {text}')
        if len(name) > MAX_ID:
            capacity.invalid("name", f'"{name}": at most {MAX_ID} characters')
        if parse_any(capacity.fields["capacity"]) < 0:
            amount = capacity.fields["capacity"]
            capacity.invalid("capacity", f'"{amount}" must not be negative')
    return [capacity.fields["name"] for capacity in capacities]


def _attributes(device: Written) -> None:
    attributes = device.each("attributes")
    unique(attributes, "name")
    for attribute in attributes:
        device.found += _attribute_name(attribute.fields["name"], attribute.at("name"))
        if sum(value in attribute.fields for value in VALUES) != 1:
            attribute.invalid("", f"exactly one of {', '.join(VALUES)} is required")
        version = attribute.fields.get("version")
        if version is not None and not is_version(version):
            attribute.invalid("version", f'"{version}" is not a semantic version such as 1.2.3')


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


def _pod(spec: JsonDict) -> list[Finding]:
    found: list[Finding] = []
    pod = Written(spec, "spec", found)
    entries = pod.each("resourceClaims")
    for field in ("name", "resourceClaimName"):
        unique(entries, field)
    for entry in entries:
        if len(SOURCES & entry.fields.keys()) != 1:
            entry.invalid("", f"one of {' and '.join(sorted(SOURCES))} is required")
    names = [entry.fields["name"] for entry in entries]
    for claim in _uses(pod):
        name = claim.fields["name"]
        if name not in names:
            known = ", ".join(names) or "none"
            claim.invalid("name", f'the pod has no claim "{name}"; it has {known}')
    return found


def unknown_requests(spec: JsonDict, claims: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """Return the requests that containers of a pod name and its claims do not have.

    `claims` maps entries of the pod to the specs of their claims, as far as known.
    """
    found: list[Finding] = []
    for claim in _uses(Written(spec, "spec", found)):
        wanted, known = claim.fields.get("requestName"), claims.get(claim.fields["name"])
        if not wanted or known is None:
            continue
        names = [each.get("name", "") for each in known.get("requests") or ()]
        if wanted not in names:
            has = ", ".join(filter(None, names)) or "none with a name"
            claim.invalid("requestName", f'the claim has no request "{wanted}"; it has {has}')
    return found


def _uses(pod: Written) -> Iterator[Written]:
    for container in pod.each("containers"):
        yield from container.below("resources").each("claims")


def with_requests(reports: Sequence[NormalizedDocument]) -> list[NormalizedDocument]:
    """Return documents that belong together, with the requests that pods name and no claim has."""
    specs: dict[tuple[str, str, str], Any] = {}
    for report in reports:
        if report.state != "invalid":
            _, kind, namespace, name = identity(report.document)
            specs[kind, namespace or "default", name] = spec_of(report.document)
    return [
        replace(report, findings=(*report.findings, *_unknown(report.document, specs)))
        if report.state != "invalid" and report.document.get("kind") == "Pod"
        else report
        for report in reports
    ]


def _unknown(pod: JsonDict, specs: Mapping[tuple[str, str, str], Any]) -> list[Finding]:
    namespace = identity(pod)[2] or "default"
    claims = {}
    for entry in spec_of(pod).get("resourceClaims") or ():
        spec = specs.get(("ResourceClaim", namespace, entry.get("resourceClaimName", "")))
        template = entry.get("resourceClaimTemplateName", "")
        made = specs.get(("ResourceClaimTemplate", namespace, template)) or {}
        spec = spec or made.get("spec")
        if spec:
            claims[entry["name"]] = spec
    return unknown_requests(pod["spec"], claims)
