"""Services and what they lead to.

Source: k8s.io/kubernetes `pkg/apis/core/validation`.
"""

from collections.abc import Sequence
from typing import Any, Final

from dralab.api import fields
from dralab.api.core.addresses import (
    address_problems,
    address_warnings,
    endpoint_problems,
    network_problems,
    port_name_problems,
    port_problems,
)
from dralab.api.core.statuses import service_status_errors
from dralab.api.fields import FieldError
from dralab.api.metadata import label_problems
from dralab.api.resource.features import DEFAULT_1_36, RELAXED_SERVICE_NAMES, Features
from dralab.api.rules import RuleTables
from dralab.api.strategy import Strategy
from dralab.values import names
from dralab.values.json_types import JsonDict, JsonObject

LONGEST_AFFINITY: Final = 86_400  # seconds
FAMILIES: Final = ("IPv4", "IPv6")
TRAFFIC: Final = ("Cluster", "Local")
GIVEN_OUT: Final = (
    "clusterIP", "clusterIPs", "externalTrafficPolicy", "healthCheckNodePort",
    "internalTrafficPolicy", "ipFamilies", "ipFamilyPolicy",
)  # fmt: skip
OF_TYPE: Final = (
    "healthCheckNodePort", "allocateLoadBalancerNodePorts", "loadBalancerClass",
    "externalTrafficPolicy",
)  # fmt: skip
HINTS_ANNOTATION: Final = "service.kubernetes.io/topology-aware-hints"


def external_address_problems(text: str) -> list[str]:
    """Return the problems of an address outside the cluster."""
    return address_problems(text) or endpoint_problems(text)


def target_port_problems(port: int | str) -> list[str]:
    """Return the errors of a port's number or name."""
    return port_problems(port) if isinstance(port, int) else port_name_problems(port)


def is_outside(spec: JsonObject) -> bool:
    """Return whether a service is reached from outside the cluster."""
    kind = spec.get("type")
    return kind in {"LoadBalancer", "NodePort"} or (
        kind == "ClusterIP" and bool(spec.get("externalIPs"))
    )


RULES: Final = RuleTables(globals(), label_problems)


class ServiceStrategy(Strategy):
    """Services; admission assigns addresses and node ports."""

    rules = RULES["ValidateService"]

    def __init__(self, features: Features = DEFAULT_1_36) -> None:
        relaxed = RELAXED_SERVICE_NAMES in features
        self._name_problems = names.label_problems if relaxed else names.label_1035_problems

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        spec = value.setdefault("spec", {})
        kind = spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        if spec["sessionAffinity"] == "ClientIP":
            config = spec.setdefault("sessionAffinityConfig", {})
            config.setdefault("clientIP", {}).setdefault("timeoutSeconds", 10800)
        elif spec["sessionAffinity"] == "None":
            spec.pop("sessionAffinityConfig", None)
        for port in spec.get("ports") or ():
            port.setdefault("protocol", "TCP")
            if port.get("targetPort") in {None, 0, ""}:
                port["targetPort"] = port.get("port", 0)
        if kind in {"NodePort", "LoadBalancer"}:
            spec.setdefault("externalTrafficPolicy", "Cluster")
        if kind in {"NodePort", "LoadBalancer", "ClusterIP"}:
            spec.setdefault("internalTrafficPolicy", "Cluster")
        if kind == "LoadBalancer":
            spec.setdefault("allocateLoadBalancerNodePorts", True)
            for ingress in ((value.get("status") or {}).get("loadBalancer") or {}).get(
                "ingress"
            ) or ():
                if ingress.get("ip"):
                    ingress.setdefault("ipMode", "VIP")

    def prepare_create(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Begin without a load balancer."""
        value["status"] = {"loadBalancer": {}}

    def prepare_update(self, new: JsonDict, old: JsonDict, now: str) -> None:  # noqa: ARG002
        """Keep the assigned addresses that a client left out."""
        before, after = old.get("spec") or {}, new["spec"]
        if after.get("type") == "ExternalName" or before.get("type") == "ExternalName":
            if before.get("type") != "ExternalName":
                _forget(before, after)
                _drop_of_type(before, after)
            return
        keep_addresses(after, before)
        _drop_of_type(before, after)

    def validate_status(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of the load balancer."""
        return service_status_errors(new, old)

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of the change: an address stays, and the port of health checks."""
        errors = self.validate(new)
        before, after = old["spec"].get("clusterIP"), new["spec"].get("clusterIP")
        if before and after != before and new["spec"].get("type") != "ExternalName":
            errors.append(
                fields.invalid_value(
                    "spec.clusterIPs[0]", [after] if after else None, "may not change once set"
                )
            )
        held, wanted = (each["spec"].get("healthCheckNodePort") for each in (old, new))
        if held and wanted and held != wanted:
            errors.append(fields.forbidden("spec.healthCheckNodePort", "field is immutable"))
        return errors

    def warnings(self, value: JsonDict, old: JsonDict | None = None) -> list[str]:  # noqa: ARG002
        """Return what is ignored or deprecated in the service."""
        spec, kind = value["spec"], value["spec"].get("type")
        headless = kind == "ClusterIP" and spec.get("clusterIP") == "None"
        external, found = spec.get("externalIPs") or (), []
        if HINTS_ANNOTATION in (value["metadata"].get("annotations") or {}):
            found.append(
                f"annotation {HINTS_ANNOTATION} is deprecated, please use "
                "service.kubernetes.io/topology-mode instead"
            )
        if not headless:
            for index, address in enumerate(spec.get("clusterIPs") or ()):
                found += address_warnings(f"spec.clusterIPs[{index}]", address)
        else:
            ignored = (
                ("loadBalancerIP", spec.get("loadBalancerIP")),
                ("externalIPs", external),
                ("SessionAffinity", spec.get("sessionAffinity") != "None"),
            )
            found += [f"spec.{part} is ignored for headless services" for part, on in ignored if on]
        for index, address in enumerate(external):
            found += address_warnings(f"spec.externalIPs[{index}]", address)
        if external and not headless and kind != "ExternalName":
            found.append(
                "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
            )
        if address := spec.get("loadBalancerIP"):
            found += address_warnings("spec.loadBalancerIP", address)
        if kind == "ExternalName" and external:
            found.append('spec.externalIPs is ignored when spec.type is "ExternalName"')
        if kind != "ExternalName" and spec.get("externalName"):
            found.append('spec.externalName is ignored when spec.type is not "ExternalName"')
        if spec.get("trafficDistribution") == "PreferClose":
            found.append(
                'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'
            )
        return found

    def name_problems(self, name: str) -> list[str]:
        """Return the problems of a name; some gates let it begin with a digit."""
        return self._name_problems(name)


def keep_addresses(after: JsonDict, before: JsonObject) -> None:
    """Give a changed spec the addresses and numbers that it had, where the client left them out.

    Of `clusterIP` and `clusterIPs` a client may have changed one: the other one follows.

    Source: patchAllocatedValues and normalizeClusterIPs of k8s.io/kubernetes
    `pkg/registry/core/service/storage`.
    """
    had, several = before.get("clusterIP"), before.get("clusterIPs")
    for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if not after.get(name) and before.get(name):
            after[name] = before[name]
    if after.get("clusterIP") != had and after.get("clusterIPs") == several:
        after["clusterIPs"] = [after["clusterIP"]]
    of_nodes = {"LoadBalancer", "NodePort"}
    if after.get("type") not in of_nodes or before.get("type") not in of_nodes:
        return
    numbers = [
        {port.get("nodePort") for port in spec.get("ports") or ()} for spec in (before, after)
    ]
    known = {port.get("name"): port.get("nodePort") for port in before.get("ports") or ()}
    for port in after.get("ports") or ():
        found = known.get(port.get("name"))
        if not port.get("nodePort") and found and found not in numbers[0] & numbers[1]:
            port["nodePort"] = found


def _drop_of_type(before: JsonDict, after: JsonDict) -> None:
    """Drop what only the type before had, where the client left it as it was.

    Source: dropTypeDependentFields of k8s.io/kubernetes `pkg/registry/core/service`.
    """

    def fits(spec: JsonObject, name: str) -> bool:
        kind, policy = spec.get("type"), spec.get("externalTrafficPolicy")
        outside = kind in {"LoadBalancer", "NodePort"}
        if name == "externalTrafficPolicy":
            return outside or (kind == "ClusterIP" and bool(spec.get("externalIPs")))
        if name == "healthCheckNodePort":
            return kind == "LoadBalancer" and policy == "Local"
        return kind == "LoadBalancer"

    for name in OF_TYPE:
        if fits(before, name) and not fits(after, name) and before.get(name) == after.get(name):
            after.pop(name, None)
    numbers = [
        [port.get("nodePort") for port in spec.get("ports") or ()] for spec in (before, after)
    ]
    of_nodes = {"LoadBalancer", "NodePort"}
    leaves_nodes = before.get("type") in of_nodes and after.get("type") not in of_nodes
    if leaves_nodes and numbers[0] == numbers[1]:
        for port in after.get("ports") or ():
            port.pop("nodePort", None)


def _forget(before: JsonObject, after: JsonDict) -> None:
    """Drop the addresses and numbers of a service that becomes an ExternalName, if none are new."""
    for part in GIVEN_OUT:
        if after.get(part) == before.get(part):
            after.pop(part, None)
    for port in after.get("ports") or ():
        port.pop("nodePort", None)


def _external_name(spec: JsonObject, path: str) -> list[FieldError]:
    if spec.get("type") != "ExternalName":
        return []
    why = "may not be set for ExternalName services"
    errors = [
        fields.forbidden(f"{path}.{part}", why)
        for part in ("clusterIPs", "ipFamilies", "ipFamilyPolicy")
        if spec.get(part)
    ]
    name, at = (spec.get("externalName") or "").removesuffix("."), f"{path}.externalName"
    if not name:
        return [*errors, fields.required(at)]
    return errors + fields.each(at, name, names.subdomain_problems(name))


def _ports(ports: Sequence[JsonObject], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, port in enumerate(ports):
        at, name = f"{path}[{index}]", port.get("name") or ""
        if not name and len(ports) > 1:
            errors.append(fields.required(f"{at}.name"))
        elif name:
            errors += fields.each(f"{at}.name", name, names.label_problems(name))
            if name in seen:
                errors.append(fields.duplicate(f"{at}.name", name))
            seen.add(name)
        errors += RULES["validateServicePort"](port, at)
    return errors


def _seconds_of_affinity(spec: JsonObject, path: str) -> list[FieldError]:
    config = spec.get("sessionAffinityConfig") or {}
    seconds = (config.get("clientIP") or {}).get("timeoutSeconds")
    if spec.get("sessionAffinity") != "ClientIP" or seconds is None:
        return []
    if 0 < seconds <= LONGEST_AFFINITY:
        return []
    why = f"must be greater than 0 and less than {LONGEST_AFFINITY}"
    at = f"{path}.sessionAffinityConfig.clientIP.timeoutSeconds"
    return [fields.invalid_value(at, seconds, why)]


def _known_traffic(spec: JsonObject, path: str) -> list[FieldError]:
    policy = spec.get("externalTrafficPolicy")
    if not policy or policy in TRAFFIC or not is_outside(spec):
        return []
    return [fields.not_supported(f"{path}.externalTrafficPolicy", policy, TRAFFIC)]


def _addresses_of_service(spec: JsonObject, path: str) -> list[FieldError]:  # noqa: ARG001
    return service_address_errors(spec) if spec.get("type") != "ExternalName" else []


def service_address_errors(spec: JsonObject) -> list[FieldError]:
    """Return the errors of the addresses that a service asks for, and their families."""
    first, path = spec.get("clusterIP") or "", "spec.clusterIPs"
    addresses = spec.get("clusterIPs") or ([first] if first else [])
    errors = []
    if first and addresses[0] != first:
        why = "first value must match `clusterIP`"
        errors.append(fields.invalid_value(path, addresses, why))
    elif addresses and not first:
        why = "must be empty when `clusterIP` is not specified"
        errors.append(fields.invalid_value(path, addresses, why))
    families = spec.get("ipFamilies") or ()
    again = fields.repeated(families)
    for index, family in enumerate(families):
        at = f"spec.ipFamilies[{index}]"
        if family not in FAMILIES:
            errors.append(fields.not_supported(at, family, FAMILIES))
        if index in again:
            errors.append(fields.duplicate(at, family))
    errors += RULES["validateServiceClusterIPs"](spec, "spec")
    wrong = False
    for index, address in enumerate(addresses):
        if index == 0 and address == "None":
            if len(addresses) > 1:
                why = "'None' must be the first and only value"
                errors.append(fields.invalid_value(path, addresses, why))
                wrong = True
            continue
        problems = address_problems(address)
        wrong = wrong or bool(problems)
        errors += fields.each(f"{path}[{index}]", address, problems)
    if len(addresses) > 2:
        errors.append(fields.invalid_value(path, addresses, "may only hold up to 2 values"))
    if wrong:
        return errors
    if len(addresses) > 1 and len({":" in address for address in addresses}) < len(addresses):
        why = "may specify no more than one IP for each IP family"
        errors.append(fields.invalid_value(path, addresses, why))
    return errors + _family_errors(addresses, families)


def _family_errors(addresses: Sequence[str], families: Sequence[str]) -> list[FieldError]:
    """Return which addresses are not of the families beside them."""
    errors = []
    for index, (address, family) in enumerate(zip(addresses, families, strict=False)):
        if address != "None" and family in FAMILIES and (family == "IPv6") != (":" in address):
            why = f"expected an {family} value as indicated by `ipFamilies[{index}]`"
            errors.append(fields.invalid_value(f"spec.clusterIPs[{index}]", address, why))
    return errors


def _numbers(spec: JsonObject, path: str) -> list[FieldError]:
    ports, kind = spec.get("ports") or (), spec.get("type") or ""
    errors = []
    if kind == "ClusterIP":
        why = "may not be used when `type` is 'ClusterIP'"
        errors += [
            fields.forbidden(f"{path}.ports[{index}].nodePort", why)
            for index, port in enumerate(ports)
            if port.get("nodePort")
        ]
    seen: set[tuple[str, Any, Any]] = set()
    for part in ("nodePort", "port"):
        for index, port in enumerate(ports):
            if part == "nodePort" and not port.get(part):
                continue
            key = (part, port.get("protocol"), port.get(part))
            if key in seen and part == "nodePort":
                errors.append(fields.duplicate(f"{path}.ports[{index}].nodePort", port[part]))
            elif key in seen:
                # By the names that the fields have in Go.
                shown = {
                    "Name": "", "Protocol": port.get("protocol"), "AppProtocol": None,
                    "Port": port.get("port"), "TargetPort": 0, "NodePort": 0,
                }  # fmt: skip
                errors.append(fields.duplicate(f"{path}.ports[{index}]", shown))
            seen.add(key)
    return errors


def _load_balancer(spec: JsonObject, path: str) -> list[FieldError]:
    errors = []
    why = "may only be used when `type` is 'LoadBalancer'"
    at, balances = f"{path}.LoadBalancerSourceRanges", spec.get("type") == "LoadBalancer"
    ranges = spec.get("loadBalancerSourceRanges") or ()
    if ranges and not balances:
        errors.append(fields.forbidden(at, why))
    for index, text in enumerate(ranges):
        errors += fields.each(f"{at}[{index}]", text.strip(), network_problems(text.strip()))
    if spec.get("allocateLoadBalancerNodePorts") is not None and not balances:
        errors.append(fields.forbidden(f"{path}.allocateLoadBalancerNodePorts", why))
    if (name := spec.get("loadBalancerClass")) is not None:
        if balances:
            errors += fields.each(f"{path}.loadBalancerClass", name, names.qualified_problems(name))
        else:
            errors.append(fields.forbidden(f"{path}.loadBalancerClass", why))
    return errors


class EndpointsStrategy(Strategy):
    """Endpoints, the old form."""

    creates_on_update = True
    rules = RULES["ValidateEndpoints"]

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        for subset in value.get("subsets") or ():
            for port in subset.get("ports") or ():
                port.setdefault("protocol", "TCP")

    def warnings(self, value: JsonDict, old: JsonDict | None = None) -> list[str]:  # noqa: ARG002
        """Return which addresses are spelled in another way than they should be."""
        return [
            warning
            for index, subset in enumerate(value.get("subsets") or ())
            for part in ("addresses", "notReadyAddresses")
            for number, address in enumerate(subset.get(part) or ())
            for warning in address_warnings(
                f"subsets[{index}].{part}[{number}].ip", address.get("ip") or ""
            )
        ]


def _ports_of_subset(subset: JsonObject, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    ports = subset.get("ports") or ()
    for index, port in enumerate(ports):
        at = f"{path}.ports[{index}]"
        if not port.get("name") and len(ports) > 1:
            errors.append(fields.required(f"{at}.name"))
        errors += RULES["validateEndpointPort"](port, at)
    return errors
