"""The spec of a pod as a whole."""

from typing import Final

from dralab.api import fields
from dralab.api.core.pod_rules import network, security, windows
from dralab.api.core.pod_rules.affinity import affinity, spread
from dralab.api.core.pod_rules.claims import resource_claims
from dralab.api.core.pod_rules.containers import (
    Surroundings,
    containers,
    image_problems,
)
from dralab.api.core.pod_rules.facts import PodFacts
from dralab.api.core.pod_rules.parts import (
    MOST_SECONDS,
    NOTHING,
    choice,
    containers_of,
    qualified,
    subdomain,
)
from dralab.api.core.pod_rules.resources import pod_resources, requirements
from dralab.api.core.pod_rules.tolerations import toleration_problems
from dralab.api.core.pod_rules.volumes import volumes
from dralab.api.fields import FieldError
from dralab.api.metadata import label_problems
from dralab.values.json_types import JsonObject

DNS_POLICIES: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
PREEMPTIONS: Final = ("PreemptLowerPriority", "Never")
RESTARTS: Final = ("Always", "OnFailure", "Never")
HOST_PARTS: Final = {"hostPID": "HostPID", "hostIPC": "HostIPC"}


def pod_spec_problems(
    spec: JsonObject, path: str, *, comparing: bool, pod: PodFacts | None = None
) -> list[FieldError]:
    """Return what is wrong with the spec of a `pod`; of a template if there is none.

    `comparing` allows Lt and Gt in tolerations.
    """
    errors: list[FieldError] = []
    pod_name = None if pod is None else pod.name
    annotations = NOTHING if pod is None else pod.annotations
    host_users = spec.get("hostUsers") is not False
    good, found = volumes(spec, path, pod_name) if spec.get("volumes") else (NOTHING, [])
    errors += found
    claims, found = resource_claims(spec, path, annotations)
    errors += found
    around = Surroundings(
        good,
        claims,
        spec.get("restartPolicy") or "",
        spec.get("terminationGracePeriodSeconds"),
        host_users,
    )
    errors += containers(spec, around, path)
    errors += pod_resources(spec, path)
    errors += network.on_host_network(spec, path, template=pod is None)
    errors += choice(spec, "restartPolicy", RESTARTS, path)
    errors += choice(spec, "dnsPolicy", DNS_POLICIES, path)
    errors += label_problems(spec.get("nodeSelector") or NOTHING, f"{path}.nodeSelector")
    errors += security.of_pod(spec, path)
    errors += _where_and_how(spec, path)
    errors += windows.host_processes(spec, path)
    if not host_users:
        errors += _own_users(spec, path)
    errors += _named(spec, path, comparing=comparing)
    if pod is not None:
        errors += _only_of_pods(spec, path)
    return errors


def _where_and_how(spec: JsonObject, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if (wanted := spec.get("affinity")) is not None:
        errors += affinity(wanted, f"{path}.affinity")
    errors += network.dns(spec, path)
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        at = f"{path}.readinessGates[{index}].conditionType"
        errors += qualified(gate.get("conditionType") or "", at)
    seen: set[str] = set()
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        at, name = f"{path}.schedulingGates[{index}]", gate.get("name") or ""
        errors += qualified(name, at)
        if name in seen:
            errors.append(fields.duplicate(at, name))
        seen.add(name)
    if constraints := spec.get("topologySpreadConstraints"):
        errors += spread(constraints, f"{path}.topologySpreadConstraints")
    return errors


def _own_users(spec: JsonObject, path: str) -> list[FieldError]:
    """Return what does not go with a namespace of users for the pod."""
    why = "when `hostUsers` is false"
    parts = [f"{path}.{shown}" for part, shown in HOST_PARTS.items() if spec.get(part)]
    if spec.get("hostNetwork"):
        parts.insert(0, f"{path}.hostNetwork")
    parts += [
        f"{at}.volumeDevices"
        for container, at in containers_of(spec, path)
        if container.get("volumeDevices")
    ]
    return [fields.forbidden(part, why) for part in parts]


def _named(spec: JsonObject, path: str, *, comparing: bool) -> list[FieldError]:
    errors = network.override(spec, path)
    for part in ("serviceAccountName", "nodeName"):
        if name := spec.get(part):
            errors += subdomain(name, f"{path}.{part}")
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= MOST_SECONDS:
        why = f"must be between 1 and {MOST_SECONDS}, inclusive"
        errors.append(fields.invalid_value(f"{path}.activeDeadlineSeconds", deadline, why))
    errors += network.host_names(spec, path)
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        at = f"{path}.tolerations[{index}]"
        toleration_problems(toleration, at, errors, comparing=comparing)
    errors += network.host_aliases(spec, path)
    for part in ("priorityClassName", "runtimeClassName"):
        name = spec.get(part)
        if name or (name is not None and part == "runtimeClassName"):
            errors += subdomain(name, f"{path}.{part}")
    if spec.get("preemptionPolicy") is not None:
        errors += choice(spec, "preemptionPolicy", PREEMPTIONS, path)
    if overhead := spec.get("overhead"):
        errors += requirements({"limits": overhead}, f"{path}.overhead")
    errors += windows.system(spec, path)
    if (group := spec.get("schedulingGroup")) is not None:
        errors += _scheduling_group(group, f"{path}.schedulingGroup")
    return errors + _variables_of_files(spec, path)


def _scheduling_group(group: JsonObject, path: str) -> list[FieldError]:
    name, at = group.get("podGroupName"), f"{path}.podGroupName"
    if name is None:
        return [fields.invalid_value(at, None, "must specify one of: `podGroupName`")]
    return subdomain(name, at)


def _variables_of_files(spec: JsonObject, path: str) -> list[FieldError]:
    """Return the variables from files of volumes that no container can write to."""
    sources = {each.get("name") or "": each for each in spec.get("volumes") or ()}
    errors = []
    for container, at in containers_of(spec, path):
        for index, variable in enumerate(container.get("env") or ()):
            file = (variable.get("valueFrom") or NOTHING).get("fileKeyRef")
            if file is None:
                continue
            name = file.get("volumeName") or ""
            where = f"{at}.env[{index}].valueFrom.fileKeyRef.volumeName"
            if name not in sources:
                errors.append(fields.not_found(where, name))
            elif sources[name].get("emptyDir") is None:
                why = "referenced volume must be of type emptyDir"
                errors.append(fields.invalid_value(where, name, why))
    return errors


def _only_of_pods(spec: JsonObject, path: str) -> list[FieldError]:
    errors = [] if spec.get("serviceAccountName") else _tokens(spec, path)
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(kind) or ()):
            errors += image_problems(container, f"{path}.{kind}[{index}]")
    if spec.get("nodeName") and spec.get("schedulingGates"):
        why = "cannot be set until all schedulingGates have been cleared"
        errors.append(fields.forbidden(f"{path}.nodeName", why))
    return errors


def _tokens(spec: JsonObject, path: str) -> list[FieldError]:
    """Return the tokens of a service account that a pod without one wants."""
    why = "must not be specified when serviceAccountName is not set"
    errors = []
    for index, volume in enumerate(spec.get("volumes") or ()):
        sources = (volume.get("projected") or NOTHING).get("sources") or ()
        errors += [
            fields.forbidden(
                f"{path}.volumes[{index}].projected.sources[{number}].serviceAccountToken", why
            )
            for number, source in enumerate(sources)
            if source.get("serviceAccountToken") is not None
        ]
    return errors
