"""What a pod must be, and which parts of one may change.

Source: pkg/apis/core/validation/validation.go; of its many rules those that clients meet.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from dralab.api import fields
from dralab.api.core.pod_placement import placement_problems
from dralab.api.fields import FieldError
from dralab.values import names, quantity
from dralab.values.json_types import JsonDict
from dralab.values.quantity import is_decimal_integer
from dralab.values.remembering import remembered

RESTART_POLICIES: Final = ("Always", "Never", "OnFailure")
DNS_POLICIES: Final = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
NATIVE: Final = "kubernetes.io/"
CONTAINER_RESOURCES: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
# Those of quotas, which no container can ask for.
STANDARD_RESOURCES: Final = frozenset(
    f"{prefix}{name}"
    for prefix in ("requests.", "limits.")
    for name in CONTAINER_RESOURCES
) | {
    "configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "requests.storage",
    "resourcequotas", "secrets", "services", "services.loadbalancers", "services.nodeports",
    "storage",
}  # fmt: skip
PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
EFFECTS: Final = ("NoExecute", "NoSchedule", "PreferNoSchedule")
HANDLERS: Final = ("exec", "grpc", "httpGet", "tcpSocket")
IMMUTABLE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)"
)


def pod_spec_problems(spec: JsonDict, path: str, *, comparing: bool) -> list[FieldError]:
    """Return what is wrong with a pod's spec."""
    errors: list[FieldError] = []
    volumes = _volume_problems(spec.get("volumes") or (), f"{path}.volumes", errors)
    claims = _claim_problems(spec.get("resourceClaims") or (), f"{path}.resourceClaims", errors)
    containers = spec.get("containers") or ()
    if not containers:
        errors.append(fields.required(f"{path}.containers"))
    seen: set[str] = set()
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(kind) or ()):
            at = f"{path}.{kind}[{index}]"
            _container_problems(container, at, volumes, claims, errors)
            name = container.get("name")
            if name in seen:
                errors.append(fields.duplicate(f"{at}.name", name))
            seen.add(name)
    _choice(spec, "restartPolicy", RESTART_POLICIES, path, errors)
    _choice(spec, "dnsPolicy", DNS_POLICIES, path, errors)
    grace = spec.get("terminationGracePeriodSeconds", 30)
    if grace < 0:
        at = f"{path}.terminationGracePeriodSeconds"
        errors.append(fields.invalid_value(at, grace, "must be greater than or equal to 0"))
    errors += placement_problems(spec, path)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and deadline < 1:
        at = f"{path}.activeDeadlineSeconds"
        why = "must be between 1 and 2147483647, inclusive"
        errors.append(fields.invalid_value(at, deadline, why))
    if account := spec.get("serviceAccountName"):
        errors += [
            fields.invalid_value(f"{path}.serviceAccountName", account, why)
            for why in names.subdomain_problems(account)
        ]
    if node := spec.get("nodeName"):
        errors += [
            fields.invalid_value(f"{path}.nodeName", node, why)
            for why in names.subdomain_problems(node)
        ]
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        at = f"{path}.tolerations[{index}]"
        toleration_problems(toleration, at, errors, comparing=comparing)
    _gate_problems(spec, path, errors)
    return errors


def _label_problems(name: str, path: str) -> list[FieldError]:
    if names.is_label(name):
        return []
    return [fields.invalid_value(path, name, why) for why in names.label_problems(name)]


def _choice(
    holder: JsonDict, name: str, known: Sequence[str], path: str, errors: list[FieldError]
) -> None:
    value = holder.get(name)
    if not value:
        errors.append(fields.required(f"{path}.{name}"))
    elif value not in known:
        errors.append(fields.not_supported(f"{path}.{name}", value, known))


def _volume_problems(
    volumes: Sequence[JsonDict], path: str, errors: list[FieldError]
) -> Mapping[str, JsonDict]:
    found: dict[str, JsonDict] = {}
    for index, volume in enumerate(volumes):
        at = f"{path}[{index}]"
        name = volume.get("name") or ""
        if not name:
            errors.append(fields.required(f"{at}.name"))
            continue
        errors += _label_problems(name, f"{at}.name")
        if name in found:
            errors.append(fields.duplicate(f"{at}.name", name))
        found[name] = volume
        if len(volume) > 2:
            kinds = [key for key in volume if key != "name"]
            errors.append(
                fields.forbidden(f"{at}.{kinds[1]}", "may not specify more than 1 volume type")
            )
    return found


def _has_classic_source(claim: JsonDict) -> bool:
    """Return whether an entry says where it comes from as before Kubernetes 1.31.

    The field reaches the rules only where a server was told to serve classic DRA.
    """
    source = claim.get("source") or {}
    return len([key for key in source if key.startswith("resourceClaim")]) == 1


def _claim_problems(
    claims: Sequence[JsonDict], path: str, errors: list[FieldError]
) -> frozenset[str]:
    found: set[str] = set()
    for index, claim in enumerate(claims):
        at = f"{path}[{index}]"
        name = claim.get("name") or ""
        if not name:
            errors.append(fields.required(f"{at}.name"))
        else:
            errors += _label_problems(name, f"{at}.name")
        if name in found:
            errors.append(fields.duplicate(f"{at}.name", name))
        found.add(name)
        sources = [
            key for key in ("resourceClaimName", "resourceClaimTemplateName") if key in claim
        ]
        why = "must specify exactly one of: `resourceClaimName`, `resourceClaimTemplateName`"
        if len(sources) > 1:
            shown = {key: claim[key] for key in sources}
            errors.append(
                fields.invalid_value(
                    at,
                    shown,
                    "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be "
                    "specified",
                )
            )
        elif not sources and not _has_classic_source(claim):
            errors.append(fields.invalid_value(at, {"name": name}, why))
        for key in sources:
            errors += [
                fields.invalid_value(f"{at}.{key}", claim[key], w)
                for w in names.subdomain_problems(claim[key] or "")
            ]
    return frozenset(found)


def _container_problems(
    container: JsonDict,
    path: str,
    volumes: Mapping[str, JsonDict],
    claims: frozenset[str],
    errors: list[FieldError],
) -> None:
    name = container.get("name") or ""
    if not name:
        errors.append(fields.required(f"{path}.name"))
    else:
        errors += _label_problems(name, f"{path}.name")
    image = container.get("image") or ""
    if not image:
        errors.append(fields.required(f"{path}.image"))
    elif image != image.strip():
        why = "must not have leading or trailing whitespace"
        errors.append(fields.invalid_value(f"{path}.image", image, why))
    _choice(container, "imagePullPolicy", PULL_POLICIES, path, errors)
    if ports := container.get("ports"):
        _port_problems(ports, f"{path}.ports", errors)
    for index, each in enumerate(container.get("env") or ()):
        if not each.get("name"):
            errors.append(fields.required(f"{path}.env[{index}].name"))
        if each.get("value") and each.get("valueFrom"):
            errors.append(
                fields.invalid_value(
                    f"{path}.env[{index}].valueFrom",
                    "",
                    "may not be specified when `value` is not empty",
                )
            )
    if mounts := container.get("volumeMounts"):
        _mount_problems(mounts, f"{path}.volumeMounts", volumes, errors)
    for key in ("livenessProbe", "readinessProbe", "startupProbe"):
        if key in container:
            _handler_problems(container[key], f"{path}.{key}", errors)
    if resources := container.get("resources"):
        _resource_problems(resources, f"{path}.resources", claims, errors)


def _handler_problems(probe: JsonDict, path: str, errors: list[FieldError]) -> None:
    given = [name for name in HANDLERS if name in probe]
    if not given:
        errors.append(fields.required(path, "must specify a handler type"))
    errors += [
        fields.forbidden(f"{path}.{name}", "may not specify more than 1 handler type")
        for name in given[1:]
    ]


def _port_problems(ports: Sequence[JsonDict], path: str, errors: list[FieldError]) -> None:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        at = f"{path}[{index}]"
        number = port.get("containerPort", 0)
        if number == 0:
            errors.append(fields.required(f"{at}.containerPort"))
        else:
            _port_number(number, f"{at}.containerPort", errors)
        if port.get("hostPort"):
            _port_number(port["hostPort"], f"{at}.hostPort", errors)
        protocol = port.get("protocol") or ""
        if not protocol:
            errors.append(fields.required(f"{at}.protocol"))
        elif protocol not in PROTOCOLS:
            errors.append(fields.not_supported(f"{at}.protocol", protocol, PROTOCOLS))
        name = port.get("name")
        if name:
            if len(name) > 15:
                errors.append(
                    fields.invalid_value(f"{at}.name", name, "must be no more than 15 characters")
                )
            if name in seen:
                errors.append(fields.duplicate(f"{at}.name", name))
            seen.add(name)


def _port_number(number: int, path: str, errors: list[FieldError]) -> None:
    if not 0 < number < 65536:
        errors.append(fields.invalid_value(path, number, "must be between 1 and 65535, inclusive"))


def _mount_problems(
    mounts: Sequence[JsonDict],
    path: str,
    volumes: Mapping[str, JsonDict],
    errors: list[FieldError],
) -> None:
    seen: set[str] = set()
    for index, mount in enumerate(mounts):
        at = f"{path}[{index}]"
        name, target = mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            errors.append(fields.required(f"{at}.name"))
        if name not in volumes:
            errors.append(fields.not_found(f"{at}.name", name))
        if not target:
            errors.append(fields.required(f"{at}.mountPath"))
        if target in seen:
            errors.append(fields.invalid_value(f"{at}.mountPath", target, "must be unique"))
        seen.add(target)


def _resource_problems(
    resources: JsonDict, path: str, claims: frozenset[str], errors: list[FieldError]
) -> None:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            errors += [
                fields.invalid_value(f"{path}.{kind}[{name}]", name, why)
                for why in _resource_name_problems(name)
            ]
            if quantity.parse(amount) < 0:
                errors.append(
                    fields.invalid_value(
                        f"{path}.{kind}[{name}]", amount, "must be greater than or equal to 0"
                    )
                )
    for name, amount in requests.items():
        limit = limits.get(name)
        if limit is not None and "/" in name and NATIVE not in name:
            if quantity.parse(amount) != quantity.parse(limit):
                why = f"must be equal to {name} limit of {limit}"
                errors.append(fields.invalid_value(f"{path}.requests", amount, why))
        elif limit is not None and quantity.parse(amount) > quantity.parse(limit):
            errors.append(
                fields.invalid_value(
                    f"{path}.requests",
                    amount,
                    f"must be less than or equal to {name} limit of {limit}",
                )
            )
        if limit is None and "/" in name and not name.startswith("hugepages-"):
            errors.append(
                fields.required(
                    f"{path}.limits", "Limit must be set for non overcommitable resources"
                )
            )
    for index, claim in enumerate(resources.get("claims") or ()):
        name = claim.get("name") or ""
        at = f"{path}.claims[{index}]"
        if not name:
            errors.append(fields.required(f"{at}.name"))
        elif name not in claims:
            errors.append(fields.not_found(at, name))


@remembered(4096)
def _resource_name_problems(name: str) -> list[str]:
    """Return why no container can ask for a resource of that name.

    Source: k8s.io/kubernetes `pkg/apis/core/validation`, validateContainerResourceName.
    """
    if problems := names.qualified_problems(name):
        return problems
    if "/" in name:
        extended = NATIVE in name or not name.startswith("requests.")
        return [] if extended else ["doesn't follow extended resource name standard"]
    if name in CONTAINER_RESOURCES or name.startswith("hugepages-"):
        return []
    why = "must be a standard resource for containers"
    if name in STANDARD_RESOURCES or name.startswith("requests.hugepages-"):
        return [why]
    return ["must be a standard resource type or fully qualified", why]


def toleration_problems(
    toleration: JsonDict, path: str, errors: list[FieldError], *, comparing: bool
) -> None:
    """Add what is wrong with a toleration; `comparing` allows Lt and Gt."""
    operator, key = toleration.get("operator") or "Equal", toleration.get("key") or ""
    if key:
        if not names.is_qualified(key):
            problems = names.qualified_problems(key)
            errors += [fields.invalid_value(f"{path}.key", key, why) for why in problems]
    elif operator != "Exists":
        why = (
            "operator must be Exists when `key` is empty, which means "
            '"match all values and all keys"'
        )
        given = toleration.get("operator") or ""
        errors.append(fields.invalid_value(f"{path}.operator", given, why))
    known = ["Equal", "Exists", "Lt", "Gt"] if comparing else ["Equal", "Exists"]
    if operator not in known:
        errors.append(fields.not_supported(f"{path}.operator", operator, known))
    elif operator in {"Lt", "Gt"}:
        value = toleration.get("value") or ""
        errors += [
            fields.invalid_value(f"{path}.value", value, why) for why in _integer_problems(value)
        ]
    elif operator == "Exists" and toleration.get("value"):
        why = "value must be empty when `operator` is 'Exists'"
        errors.append(fields.invalid_value(f"{path}.operator", toleration["value"], why))
    effect = toleration.get("effect")
    if effect and effect not in EFFECTS:
        errors.append(fields.not_supported(f"{path}.effect", effect, EFFECTS))
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        errors.append(fields.invalid_value(f"{path}.effect", effect or "", why))


def _integer_problems(text: str) -> list[str]:
    if is_decimal_integer(text):
        return []
    return ["must be a valid decimal integer in canonical form" if text else "must be non-empty"]


def _gate_problems(spec: JsonDict, path: str, errors: list[FieldError]) -> None:
    gates = spec.get("schedulingGates")
    if not gates:
        return
    if spec.get("nodeName"):
        errors.append(
            fields.forbidden(
                f"{path}.nodeName",
                "cannot be set until all schedulingGates have been cleared",
            )
        )
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name") or ""
        at = f"{path}.schedulingGates[{index}]"
        errors += [fields.invalid_value(at, name, why) for why in names.qualified_problems(name)]
        if name in seen:
            errors.append(fields.duplicate(f"{at}.name", name))
        seen.add(name)


def pod_update_problems(new: JsonDict, old: JsonDict) -> list[FieldError]:
    """Return what a change of a pod's spec may not do."""
    if new == old:
        return []
    errors: list[FieldError] = []
    before, after = dict(old), dict(new)
    for kind in ("containers", "initContainers"):
        had, has = before.pop(kind, None) or (), after.pop(kind, None) or ()
        if len(had) != len(has):
            why = "pod updates may not add or remove containers"
            return [fields.forbidden(f"spec.{kind}", why)]
        if [_without_image(each) for each in had] != [_without_image(each) for each in has]:
            return [fields.forbidden("spec", IMMUTABLE)]
    had, has = before.pop("tolerations", None) or [], after.pop("tolerations", None) or []
    if any(each not in has for each in had):
        why = "existing toleration can not be modified except its tolerationSeconds"
        errors.append(fields.forbidden("spec.tolerations", why))
    _deadline(before, after, errors)
    if (
        before.get("terminationGracePeriodSeconds", 0) < 0
        and after.get("terminationGracePeriodSeconds") == 1
    ):
        before.pop("terminationGracePeriodSeconds")
        after.pop("terminationGracePeriodSeconds")
    _gates(before, after, errors)
    if before != after:
        return [fields.forbidden("spec", IMMUTABLE)]
    return errors


def _without_image(container: JsonDict) -> JsonDict:
    return {key: value for key, value in container.items() if key != "image"}


def _deadline(before: JsonDict, after: JsonDict, errors: list[FieldError]) -> None:
    had, has = before.pop("activeDeadlineSeconds", None), after.pop("activeDeadlineSeconds", None)
    if had is not None and (has is None or has > had):
        why = "must be less than or equal to previous value"
        errors.append(fields.invalid_value("spec.activeDeadlineSeconds", has, why))


def _gates(before: JsonDict, after: JsonDict, errors: list[FieldError]) -> None:
    """Gates may only go; while there are some, more of the scheduling may be narrowed."""
    had, has = before.pop("schedulingGates", None) or [], after.pop("schedulingGates", None) or []
    if had:
        for name in ("nodeSelector", "affinity"):
            before.pop(name, None)
            after.pop(name, None)
    added = [each for each in has if each not in had]
    if added:
        why = "only deletion is allowed, but found new scheduling gates"
        shown = ", ".join(f"'{each.get('name', '')}'" for each in added)
        errors.append(fields.forbidden("spec.schedulingGates", f"{why} {shown}"))
