"""Warnings about a valid pod: fields without effect, or with a surprising one.

Source: k8s.io/kubernetes `pkg/api/pod/warnings.go`.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from dralab.api.core.addresses import address_warning
from dralab.api.core.pod_rules.affinity import PREFERRED, REQUIRED
from dralab.api.core.pod_rules.facts import (
    OLD_ANNOTATIONS,
    SECCOMP_CONTAINER,
    SECCOMP_POD,
    PodFacts,
)
from dralab.api.core.pod_rules.parts import NOTHING, containers_of
from dralab.values import names, quantity
from dralab.values.json_types import JsonObject

OLD_LABELS: Final = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": (
        'deprecated since v1.17; use "topology.kubernetes.io/region" instead'
    ),
    "failure-domain.beta.kubernetes.io/zone": (
        'deprecated since v1.17; use "topology.kubernetes.io/zone" instead'
    ),
    "beta.kubernetes.io/instance-type": (
        'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead'
    ),
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": (
        "deprecated since v1.22; use Taints and Tolerations instead"
    ),
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}
OLD_VOLUMES: Final = {
    "photonPersistentDisk": (
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    "gitRepo": ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    "scaleIO": ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    "flocker": ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    "storageos": ("storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    "quobyte": ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    "glusterfs": ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    "cephfs": ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    "rbd": ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
}
SECCOMP: Final = 'non-functional in v1.27+; use the "seccompProfile" field instead'
MATCHES_NOTHING: Final = "a null labelSelector results in matching no pod"
MOST: Final = 100  # warnings: each is a header
MOST_COMPARED: Final = 200  # each is compared with all before it
WHOLE_BYTES: Final = ("memory", "ephemeral-storage")


def pod_warnings(pod: PodFacts, path: str = "") -> list[str]:
    """Return the warnings about a pod, or in the template at a path that ends with a dot."""
    found = [f"{path}{warning}" for warning in islice(_in_object(pod), MOST)]
    return (found + _overlaps(pod.spec))[:MOST]


def _in_object(pod: PodFacts) -> Iterator[str]:
    spec, annotations = pod.spec, pod.annotations
    yield from _placement(spec)
    for key, why in OLD_ANNOTATIONS.items() if annotations else ():
        if key in annotations:
            yield f"metadata.annotations[{key}]: {why}"
    for index, volume in enumerate(spec.get("volumes") or ()):
        for part, (shown, why) in OLD_VOLUMES.items():
            if volume.get(part) is not None:
                yield f"spec.volumes[{index}].{shown}: {why}"
    yield from _lists(spec)
    if overhead := spec.get("overhead"):
        for name in WHOLE_BYTES:
            yield from _fraction(overhead, name, "spec.overhead")
    yield from _containers(spec, annotations)
    yield from _ports(spec)
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        why = "must be >= 0; negative values are invalid and will be treated as 1"
        yield f"spec.terminationGracePeriodSeconds: {why}"
    if wanted := spec.get("affinity"):
        yield from _pod_affinity(wanted)
    yield from _addresses(spec)


def _placement(spec: JsonObject) -> Iterator[str]:
    for key in spec.get("nodeSelector") or ():
        if key in OLD_LABELS:
            yield f"spec.nodeSelector[{key}]: {OLD_LABELS[key]}"
    if wanted := (spec.get("affinity") or NOTHING).get("nodeAffinity"):
        yield from _node_affinity(wanted)
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        at, key = f"spec.topologySpreadConstraints[{index}]", constraint.get("topologyKey") or ""
        if key in OLD_LABELS:
            yield f"{at}.topologyKey: {key} is {OLD_LABELS[key]}"
        if constraint.get("labelSelector") is None:
            yield f"{at}.labelSelector: {MATCHES_NOTHING}"


def _containers(spec: JsonObject, annotations: Mapping[str, str]) -> Iterator[str]:
    if SECCOMP_POD in annotations and not _has_profile(spec):
        yield f"metadata.annotations[{SECCOMP_POD}]: {SECCOMP}"
    for container, at in containers_of(spec, "spec"):
        key = SECCOMP_CONTAINER + (container.get("name") or "")
        if key in annotations and not _has_profile(container):
            yield f"metadata.annotations[{key}]: {SECCOMP}"
        yield from _container(container, at)


def _addresses(spec: JsonObject) -> Iterator[str]:
    for index, server in enumerate((spec.get("dnsConfig") or NOTHING).get("nameservers") or ()):
        yield from address_warning(server, f"spec.dnsConfig.nameservers[{index}]")
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        yield from address_warning(alias.get("ip") or "", f"spec.hostAliases[{index}].ip")


def _has_profile(holder: JsonObject) -> bool:
    return (holder.get("securityContext") or NOTHING).get("seccompProfile") is not None


def _node_affinity(wanted: JsonObject) -> Iterator[str]:
    at = "spec.affinity.nodeAffinity"
    for index, term in enumerate((wanted.get(REQUIRED) or NOTHING).get("nodeSelectorTerms") or ()):
        yield from _node_term(term, f"{at}.{REQUIRED}.nodeSelectorTerms[{index}]")
    for index, weighted in enumerate(wanted.get(PREFERRED) or ()):
        term = weighted.get("preference") or NOTHING
        yield from _node_term(term, f"{at}.{PREFERRED}[{index}].preference", values=True)


def _node_term(term: JsonObject, path: str, *, values: bool = False) -> Iterator[str]:
    for index, item in enumerate(term.get("matchExpressions") or ()):
        at, key = f"{path}.matchExpressions[{index}]", item.get("key") or ""
        if key in OLD_LABELS:
            yield f"{at}.key: {key} is {OLD_LABELS[key]}"
        for number, value in enumerate((item.get("values") or ()) if values else ()):
            for why in names.label_value_problems(value):
                yield f"{at}.values[{number}]: {value} is invalid, {why}"


def _lists(spec: JsonObject) -> Iterator[str]:
    """Yield duplicates and items without a name."""
    for part, name in (("hostAliases", "ip"), ("imagePullSecrets", "name")):
        seen: set[str] = set()
        for index, item in enumerate(spec.get(part) or ()):
            value = item.get(name) or ""
            if value in seen:
                yield f'spec.{part}[{index}].{name}: duplicate {name} "{value}"'
            seen.add(value)
    for index, item in enumerate(spec.get("imagePullSecrets") or ()):
        if not item.get("name"):
            yield f'spec.imagePullSecrets[{index}].name: invalid empty name ""'


def _fraction(amounts: Mapping[str, str], name: str, path: str) -> Iterator[str]:
    amount = amounts.get(name)
    if amount is not None and quantity.parse(amount) * 1000 % 1000:
        why = f'fractional byte value "{amount}" is invalid, must be an integer'
        yield f"{path}[{name}]: {why}"


def _container(container: JsonObject, path: str) -> Iterator[str]:
    resources = container.get("resources") or NOTHING
    for name in WHOLE_BYTES if resources else ():
        for part in ("limits", "requests"):
            yield from _fraction(resources.get(part) or NOTHING, name, f"{path}.resources.{part}")
    seen: set[str] = set()
    for index, variable in enumerate(container.get("env") or ()):
        name, value = variable.get("name") or "", variable.get("value") or ""
        used = f"$({name})"
        if name in seen and (variable.get("valueFrom") or value == used or used not in value):
            why = f'hides previous definition of "{name}", which may be dropped when using apply'
            yield f"{path}.env[{index}]: {why}"
        seen.add(name)


def _ports(spec: JsonObject) -> Iterator[str]:
    """Yield the ports of containers that are duplicates or ambiguous."""
    known: dict[str, list[tuple[JsonObject, str]]] = {}
    called: dict[str, str] = {}
    named: list[str] = []
    for container, path in containers_of(spec, "spec"):
        for index, port in enumerate(container.get("ports") or ()):
            at = f"{path}.ports[{index}]"
            if port.get("hostIP") and not port.get("hostPort"):
                yield f"{at}: hostIP set without hostPort: {_port_in_go(port)}"
            key = f"{port.get('containerPort')}/{port.get('protocol')}"
            for other, where in known.get(key, [])[:MOST_COMPARED]:
                if why := _clash(port, other):
                    yield f"{at}: {why} with {where}"
            known.setdefault(key, []).append((port, at))
            if name := port.get("name"):
                first = called.setdefault(name, at)
                if first != at:
                    named.append(
                        f'{at}: duplicate port name "{name}" with {first}, services and probes '
                        f"that select ports by name will use {first}"
                    )
    yield from named


def _clash(port: JsonObject, other: JsonObject) -> str:
    ips, hosts = (
        [each.get(part) or absent for each in (port, other)]
        for part, absent in (("hostIP", ""), ("hostPort", 0))
    )
    if ips[0] == ips[1] and hosts[0] == hosts[1]:
        return "duplicate port definition"
    if not all(hosts):
        return "overlapping port definition"
    if hosts[0] == hosts[1] and bool(ips[0]) != bool(ips[1]):
        return "dangerously ambiguous port definition"
    return ""


def _port_in_go(port: JsonObject) -> str:
    """Return a port as Go prints a structure."""
    return (
        f"{{Name:{port.get('name') or ''} HostPort:{port.get('hostPort') or 0} "
        f"ContainerPort:{port.get('containerPort') or 0} Protocol:{port.get('protocol') or ''} "
        f"HostIP:{port.get('hostIP') or ''}}}"
    )


def _pod_affinity(wanted: JsonObject) -> Iterator[str]:
    for part in ("podAffinity", "podAntiAffinity"):
        terms = wanted.get(part) or NOTHING
        at = f"spec.affinity.{part}"
        for index, term in enumerate(terms.get(REQUIRED) or ()):
            if term.get("labelSelector") is None:
                yield f"{at}.{REQUIRED}[{index}].labelSelector: {MATCHES_NOTHING}"
        for index, weighted in enumerate(terms.get(PREFERRED) or ()):
            if (weighted.get("podAffinityTerm") or NOTHING).get("labelSelector") is None:
                inner = "podAffinityTerm.labelSelector"
                yield f"{at}.{PREFERRED}[{index}].{inner}: {MATCHES_NOTHING}"


def _overlaps(spec: JsonObject) -> list[str]:
    """Return the files of a volume of which one would be written over another."""
    found: list[str] = []
    for volume in spec.get("volumes") or ():
        name = volume.get("name") or ""
        for kind, shown, called in (
            ("configMap", "ConfigMap", "name"),
            ("secret", "Secret", "secretName"),
            ("downwardAPI", "DownwardAPI", ""),
        ):
            if source := volume.get(kind):
                what = f'{shown} "{source.get(called) or ""}"' if called else shown
                paths = [(item.get("path") or "", "") for item in source.get("items") or ()]
                found += [
                    f'volume "{name}" ({what}): overlapping paths: {each}' for each in _same(paths)
                ]
        if (projected := volume.get("projected")) is not None:
            found += _projected(name, projected.get("sources") or ())
    return found


def _projected(name: str, sources: Sequence[JsonObject]) -> list[str]:
    found = [f'volume "{name}" (Projected) has no sources provided' for each in sources if not each]
    paths: list[tuple[str, str]] = []
    for source in sources:
        for kind, shown in (("configMap", "ConfigMap"), ("secret", "Secret")):
            if part := source.get(kind):
                what = f'{shown} "{part.get("name") or ""}"'
                paths += [(item.get("path") or "", what) for item in part.get("items") or ()]
        items = (source.get("downwardAPI") or NOTHING).get("items") or ()
        paths += [(item.get("path") or "", "DownwardAPI") for item in items]
        if token := source.get("serviceAccountToken"):
            paths.append((token.get("path") or "", "ServiceAccountToken"))
        if certificate := source.get("podCertificate"):
            for part, what in (
                ("certificateChainPath", "chain"),
                ("keyPath", "key"),
                ("credentialBundlePath", "credential bundle"),
            ):
                if path := certificate.get(part):
                    paths.append((path, f"PodCertificate {what}"))
    shown = f'volume "{name}" (Projected): overlapping paths: '
    return found + [shown + each for each in _same(paths)]


def _same(paths: Sequence[tuple[str, str]]) -> Iterator[str]:
    before: list[tuple[str, str]] = []
    for given, source in paths[:MOST_COMPARED]:
        path = given.rstrip("/")
        for other, where in before if path else ():
            if other and (f"{other}/".startswith(f"{path}/") or f"{path}/".startswith(f"{other}/")):
                yield f"{_shown(path, source)} with {_shown(other, where)}"
        before.append((path, source))


def _shown(path: str, source: str) -> str:
    return f'"{path}" ({source})' if source else f'"{path}"'
