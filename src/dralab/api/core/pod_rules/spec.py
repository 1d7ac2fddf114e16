"""The spec of a pod as a whole."""

from collections.abc import Sequence
from typing import Final

from dralab.api import fields
from dralab.api.core.pod_rules.affinity import AFFINITY, spread
from dralab.api.core.pod_rules.claims import resource_claims
from dralab.api.core.pod_rules.containers import containers, image_problems
from dralab.api.core.pod_rules.facts import PodFacts, Surroundings
from dralab.api.core.pod_rules.network import HOST_ALIAS, dns, on_host_network
from dralab.api.core.pod_rules.parts import NOTHING, containers_of
from dralab.api.core.pod_rules.resources import overhead, pod_resources
from dralab.api.core.pod_rules.security import MORE_OF_POD, OF_POD, sysctls
from dralab.api.core.pod_rules.tolerations import TOLERATION
from dralab.api.core.pod_rules.volumes import volumes
from dralab.api.core.pod_rules.windows import host_processes, system
from dralab.api.fields import FieldError
from dralab.api.metadata import label_problems
from dralab.api.rules import RuleTables, qualified
from dralab.values.json_types import JsonObject

HOST_PARTS: Final = {"hostPID": "HostPID", "hostIPC": "HostIPC"}


RULES: Final = RuleTables(
    globals(),
    AFFINITY,
    HOST_ALIAS,
    MORE_OF_POD,
    OF_POD,
    TOLERATION,
    containers,
    dns,
    host_processes,
    label_problems,
    on_host_network,
    overhead,
    pod_resources,
    spread,
    sysctls,
    system,
)
POD_SPEC: Final = RULES["ValidatePodSpec"]


def pod_spec_problems(
    spec: JsonObject, path: str, *, comparing: bool, pod: PodFacts | None = None
) -> list[FieldError]:
    """Return the errors of the spec of a `pod`; of a template if there is none.

    `comparing` allows Lt and Gt in tolerations.
    """
    pod_name = None if pod is None else pod.name
    annotations = NOTHING if pod is None else pod.annotations
    good, errors = volumes(spec, path, pod_name) if spec.get("volumes") else (NOTHING, [])
    claims, found = resource_claims(spec, path, annotations)
    around = Surroundings(
        good,
        claims,
        spec.get("restartPolicy") or "",
        spec.get("terminationGracePeriodSeconds"),
        spec.get("hostUsers") is not False,
        comparing,
        pod,
    )
    return errors + found + POD_SPEC(spec, path, around)


def _gates(gates: Sequence[JsonObject], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        at, name = f"{path}[{index}]", gate.get("name") or ""
        errors += qualified(name, at)
        if name in seen:
            errors.append(fields.duplicate(at, name))
        seen.add(name)
    return errors


def _own_users(spec: JsonObject, path: str) -> list[FieldError]:
    """Return what does not go with a namespace of users for the pod."""
    if spec.get("hostUsers") is not False:
        return []
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


def _images(spec: JsonObject, path: str, around: Surroundings) -> list[FieldError]:
    errors: list[FieldError] = []
    for kind in ("containers", "initContainers") if around.pod is not None else ():
        for index, container in enumerate(spec.get(kind) or ()):
            errors += image_problems(container, f"{path}.{kind}[{index}]")
    return errors


def _ungated_node(spec: JsonObject, path: str, around: Surroundings) -> list[FieldError]:
    if around.pod is None or not spec.get("nodeName") or not spec.get("schedulingGates"):
        return []
    why = "cannot be set until all schedulingGates have been cleared"
    return [fields.forbidden(f"{path}.nodeName", why)]


def _tokens(spec: JsonObject, path: str, around: Surroundings) -> list[FieldError]:
    """Return the tokens of a service account that a pod without one wants."""
    if around.pod is None or spec.get("serviceAccountName"):
        return []
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
