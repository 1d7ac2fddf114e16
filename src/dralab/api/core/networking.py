"""The kinds of networking.k8s.io and discovery.k8s.io: policies, ingresses, endpoints, addresses.

Sources: k8s.io/kubernetes `pkg/apis/networking/validation`, `pkg/apis/discovery/validation`.
"""

from collections.abc import Iterator, Sequence
from ipaddress import ip_network
from typing import Any, Final

from dralab.api import fields
from dralab.api.core.access import any_name
from dralab.api.core.addresses import (
    address_problems,
    address_warnings,
    domain_errors,
    domain_path_errors,
    endpoint_problems,
    host_problems,
    network_problems,
    parsed_address,
    port_name_problems,
    port_problems,
)
from dralab.api.core.statuses import balancer_errors
from dralab.api.fields import FieldError
from dralab.api.label_selectors import label_selector_problems
from dralab.api.metadata import label_problems
from dralab.api.resource.features import DEFAULT_1_36, RELAXED_SERVICE_NAMES, Features
from dralab.api.rules import RuleTables
from dralab.api.strategy import Strategy
from dralab.values import names
from dralab.values.json_types import JsonDict, JsonObject

CLASS_ANNOTATION: Final = "kubernetes.io/ingress.class"
FORBIDDEN_IN_PATHS: Final = ("//", "/./", "/../", "%2f", "%2F")
FORBIDDEN_ENDS: Final = ("/..", "/.")
IMMUTABLE: Final = "field is immutable"
MOST_ENDPOINTS: Final = 1_000
MOST_ADDRESSES: Final = 100
MOST_PORTS: Final = 20_000
MOST_HINTS: Final = 8


RULES: Final = RuleTables(
    globals(), any_name, domain_path_errors, host_problems, label_problems, label_selector_problems
)


class NetworkPolicyStrategy(Strategy):
    """Network policies."""

    rules = RULES["ValidateNetworkPolicy"]

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        spec = value.setdefault("spec", {})
        for direction in ("ingress", "egress"):
            for rule in spec.get(direction) or ():
                for port in rule.get("ports") or ():
                    port.setdefault("protocol", "TCP")
        if not spec.get("policyTypes"):
            egress = bool(spec.get("egress"))
            spec["policyTypes"] = ["Ingress", "Egress"] if egress else ["Ingress"]


def _types_and_rules(spec: JsonObject, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(spec.get(direction) or ()):
            at = f"{path}.{direction}[{index}]"
            for number, port in enumerate(rule.get("ports") or ()):
                errors += RULES["ValidateNetworkPolicyPort"](port, f"{at}.ports[{number}]")
            for number, peer in enumerate(rule.get(peers) or ()):
                errors += RULES["ValidateNetworkPolicyPeer"](peer, f"{at}.{peers}[{number}]")
    types = spec.get("policyTypes") or ()
    if len(types) > 2:
        why = "may not specify more than two policyTypes"
        return [*errors, fields.invalid_value(f"{path}.policyTypes", list(types), why)]
    known = ("Ingress", "Egress")
    return errors + [
        fields.not_supported(f"{path}.policyTypes[{index}]", kind, known, ordered=True)
        for index, kind in enumerate(types)
        if kind not in known
    ]


def _port_or_range(port: JsonObject, path: str) -> list[FieldError]:
    errors = []
    number, end = port.get("port"), port.get("endPort")
    if number is None:
        if end is not None:
            why = "may not be specified when `port` is not specified"
            errors.append(fields.invalid_value(f"{path}.endPort", end, why))
    elif isinstance(number, int):
        errors += fields.each(f"{path}.port", number, port_problems(number))
        if end is not None:
            if end < number:
                why = "must be greater than or equal to `port`"
                errors.append(fields.invalid_value(f"{path}.endPort", number, why))
            errors += fields.each(f"{path}.endPort", end, port_problems(end))
    else:
        if end is not None:
            why = "may not be specified when `port` is non-numeric"
            errors.append(fields.invalid_value(f"{path}.endPort", end, why))
        errors += fields.each(f"{path}.port", number, port_name_problems(number))
    return errors


def _block(block: JsonObject, path: str) -> list[FieldError]:
    text = block.get("cidr") or ""
    if not text:
        return [fields.required(f"{path}.cidr")]
    errors = fields.each(f"{path}.cidr", text, network_problems(text))
    network = _network(text)
    if network is None:
        return errors
    for index, inner in enumerate(block.get("except") or ()):
        at = f"{path}.except[{index}]"
        errors += fields.each(at, inner, network_problems(inner))
        part = _network(inner)
        if part is not None and (
            part.version != network.version
            or part.network_address not in network
            or network.prefixlen >= part.prefixlen
        ):
            errors.append(fields.invalid_value(at, inner, "must be a strict subset of `cidr`"))
    return errors


def _network(text: str) -> Any:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None


class IngressStrategy(Strategy):
    """Ingresses."""

    rules = RULES["ValidateIngressCreate"]
    change_rules = RULES["ValidateIngress"]

    def __init__(self, features: Features = DEFAULT_1_36) -> None:
        self._relaxed = RELAXED_SERVICE_NAMES in features

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return the errors of a new ingress."""
        errors = super().validate(value)
        if self._relaxed:
            return errors
        wrong = {path: name for path, name in _services(value) if name}
        return [error for error in errors if error.field not in wrong] + [
            error
            for path, name in wrong.items()
            for error in fields.each(path, name, names.label_1035_problems(name))
        ]

    def prepare_create(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Begin without a load balancer."""
        value["status"] = {"loadBalancer": {}}

    def validate_status(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of the addresses of the load balancer."""
        return balancer_errors(new, old, modes=False)


def _services(ingress: JsonObject) -> Iterator[tuple[str, str]]:
    """Yield the names of the services that an ingress leads to, each with its path."""
    spec = ingress.get("spec") or {}
    backends = [("spec.defaultBackend", spec.get("defaultBackend"))]
    backends += [
        (f"spec.rules[{index}].http.paths[{number}].backend", item.get("backend"))
        for index, rule in enumerate(spec.get("rules") or ())
        for number, item in enumerate((rule.get("http") or {}).get("paths") or ())
    ]
    for path, backend in backends:
        yield f"{path}.service.name", ((backend or {}).get("service") or {}).get("name") or ""


def _one_class(ingress: JsonObject, path: str) -> list[FieldError]:  # noqa: ARG001
    name = (ingress.get("spec") or {}).get("ingressClassName")
    noted = (ingress["metadata"].get("annotations") or {}).get(CLASS_ANNOTATION)
    if noted is None or name is None or noted == name:
        return []
    why = "must match `ingressClassName` when both are specified"
    return [fields.invalid_value(f"annotations.{CLASS_ANNOTATION}", noted, why)]


def _no_address(host: str, path: str) -> list[FieldError]:
    if parsed_address(host) is None:
        return []
    return [fields.invalid_value(path, host, "must be a DNS name, not an IP address")]


def _path(item: JsonObject, path: str) -> list[FieldError]:
    kind, text = item.get("pathType"), item.get("path") or ""
    if kind is None:
        return [fields.required(f"{path}.pathType", "pathType must be specified")]
    at, errors = f"{path}.path", []
    if kind in {"Exact", "Prefix"}:
        if not text.startswith("/"):
            errors.append(fields.invalid_value(at, text, "must be an absolute path"))
        whys = [f"must not contain '{part}'" for part in FORBIDDEN_IN_PATHS if part in text]
        whys += [f"cannot end with '{part}'" for part in FORBIDDEN_ENDS if text.endswith(part)]
        errors += fields.each(at, text, whys)
    elif kind == "ImplementationSpecific":
        if text and not text.startswith("/"):
            errors.append(fields.invalid_value(at, text, "must be an absolute path"))
    else:
        known = ["Exact", "ImplementationSpecific", "Prefix"]
        errors.append(fields.not_supported(f"{path}.pathType", kind, known))
    return errors + _backend(item.get("backend") or {}, f"{path}.backend")


def _backend(backend: JsonObject, path: str) -> list[FieldError]:
    resource, service = backend.get("resource"), backend.get("service")
    if resource is not None and service is not None:
        return [fields.invalid_value(path, "", "cannot set both resource and service backends")]
    if resource is not None:
        table = RULES["validateIngressTypedLocalObjectReference"]
        return table(resource, f"{path}.resource")
    if service is None:
        return [fields.invalid_value(path, "", "resource or service backend is required")]
    errors = RULES["validateIngressServiceBackend"](service, f"{path}.service")
    port = service.get("port") or {}
    port_name, number = port.get("name") or "", port.get("number") or 0
    if port_name and number:
        errors.append(fields.invalid_value(path, "", "cannot set both port name & port number"))
    elif port_name:
        errors += fields.each(f"{path}.service.port.name", port_name, port_name_problems(port_name))
    elif number:
        errors += fields.each(f"{path}.service.port.number", number, port_problems(number))
    else:
        errors.append(fields.required(path, "port name or number is required"))
    return errors


def _namespace_of_parameters(parameters: JsonObject, path: str) -> list[FieldError]:
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    if scope != "Namespace" or namespace is None:
        return []
    return fields.each(f"{path}.namespace", namespace, names.label_problems(namespace))


class IngressClassStrategy(Strategy):
    """Ingress classes."""

    rules = RULES["ValidateIngressClass"]
    change_rules = RULES["ValidateIngressClassUpdate"]

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        parameters = (value.get("spec") or {}).get("parameters")
        if parameters is not None and parameters.get("scope") is None:
            parameters["scope"] = "Cluster"


class EndpointSliceStrategy(Strategy):
    """Endpoint slices."""

    counted = ("labels",)
    rules = RULES["ValidateEndpointSlice"]

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        for port in value.get("ports") or ():
            port.setdefault("name", "")
            port.setdefault("protocol", "TCP")

    def prepare_create(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Drop the older form of an endpoint's topology, which v1 does not write."""
        for endpoint in value.get("endpoints") or ():
            endpoint.pop("deprecatedTopology", None)

    def prepare_update(self, new: JsonDict, old: JsonDict, now: str) -> None:
        """Drop the same, unless the endpoints stay as they are."""
        if new.get("endpoints") != old.get("endpoints"):
            self.prepare_create(new, now)

    def warnings(self, value: JsonDict, old: JsonDict | None = None) -> list[str]:
        """Return what is deprecated in the slice."""
        if value.get("addressType") == "FQDN" and old is not None:
            return []
        if value.get("addressType") == "FQDN":
            return ["spec.addressType: FQDN endpoints are deprecated"]
        return [
            warning
            for index, endpoint in enumerate(value.get("endpoints") or ())
            for number, address in enumerate(endpoint.get("addresses") or ())
            for warning in address_warnings(f"endpoints[{index}].addresses[{number}]", address)
        ]

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of the change: the type of its addresses stays."""
        errors = self.validate(new)
        if new.get("endpoints") == old.get("endpoints"):
            # Stored as they are: upstream lets them be.
            known = {(error.field, error.body) for error in _endpoints(new, "")}
            errors = [error for error in errors if (error.field, error.body) not in known]
        if new.get("addressType") != old.get("addressType"):
            errors.append(fields.invalid_value("addressType", new.get("addressType"), IMMUTABLE))
        return errors


def _endpoints(value: JsonObject, path: str) -> list[FieldError]:  # noqa: ARG001
    endpoints, kind = value.get("endpoints") or (), str(value.get("addressType"))
    if len(endpoints) > MOST_ENDPOINTS:
        return [fields.too_many("endpoints", len(endpoints), MOST_ENDPOINTS)]
    return [
        error
        for index, endpoint in enumerate(endpoints)
        for error in _endpoint_errors(endpoint, kind, f"endpoints[{index}]")
    ]


def _slice_ports(ports: Sequence[JsonDict], path: str) -> list[FieldError]:
    if len(ports) > MOST_PORTS:
        return [fields.too_many(path, len(ports), MOST_PORTS)]
    errors: list[FieldError] = []
    seen = set()
    for index, port in enumerate(ports):
        at, name = f"{path}[{index}]", port.get("name") or ""
        errors += RULES["validatePorts"](port, at)
        if name in seen:
            errors.append(fields.duplicate(f"{at}.name", name))
        seen.add(name)
        errors += RULES["validatePorts/more"](port, at)
    return errors


def _endpoint_errors(endpoint: JsonObject, kind: str, path: str) -> list[FieldError]:
    addresses = endpoint.get("addresses") or ()
    at, errors = f"{path}.addresses", []
    if not addresses:
        errors.append(fields.required(at, "must contain at least 1 address"))
    elif len(addresses) > MOST_ADDRESSES:
        errors.append(fields.too_many(at, len(addresses), MOST_ADDRESSES))
    for index, address in enumerate(addresses):
        where = f"{at}[{index}]"
        if kind == "FQDN":
            errors += domain_errors(address, where, labels=2)
        elif kind in {"IPv4", "IPv6"}:
            problems = address_problems(address, canonical=kind == "IPv6")
            if not problems and (":" in address) != (kind == "IPv6"):
                article = "an"
                why = f"must be {article} {kind} address"
                errors.append(fields.invalid_value(at, address, why))
            errors += fields.each(where, address, problems or endpoint_problems(address))
    return errors + RULES["validateEndpoints"](endpoint, path)


def _hints(hints: JsonObject, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for part, problems_of in (
        ("forZones", names.label_value_problems),
        ("forNodes", names.subdomain_problems),
    ):
        given = hints.get(part) or ()
        if len(given) > MOST_HINTS:
            errors.append(fields.too_many(f"{path}.{part}", len(given), MOST_HINTS))
            break
        seen = set()
        for index, hint in enumerate(given):
            where, name = f"{path}.{part}[{index}].name", hint.get("name") or ""
            if name in seen:
                errors.append(fields.duplicate(where, name))
            seen.add(name)
            errors += fields.each(where, name, problems_of(name))
    return errors


def _ranges(ranges: Sequence[str], path: str) -> list[FieldError]:
    if len(ranges) > 2:
        shown = {"CIDRs": list(ranges)}  # by the name that the field has in Go
        return [fields.invalid_value(path, shown, "may only hold up to 2 values")]
    errors: list[FieldError] = []
    for index, text in enumerate(ranges):
        errors += fields.each(f"{path}[{index}]", text, network_problems(text, canonical=True))
    found = [_network(text) for text in ranges]
    if len(found) == 2 and all(found) and found[0].version == found[1].version:
        why = (
            "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and "
            "2001:db8::/64"
        )
        errors.append(fields.invalid_value(path, list(ranges), why))
    return errors


class ServiceCidrStrategy(Strategy):
    """Ranges of the addresses of services."""

    status_keeps = frozenset()
    rules = RULES["ValidateServiceCIDR"]

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of the change: a second family may be added, no more."""
        before, after = (list((each.get("spec") or {}).get("cidrs") or ()) for each in (old, new))
        path = "spec.cidrs"
        grows = len(before) == 1 and len(after) == 2
        if len(before) != len(after) and not grows:
            return [fields.invalid_value(path, after, IMMUTABLE)]
        errors = [
            fields.invalid_value(f"{path}[{index}]", after[index], IMMUTABLE)
            for index, text in enumerate(before)
            if after[index] != text
        ]
        return errors + (self.validate(new) if grows else [])


class IpAddressStrategy(Strategy):
    """Addresses that something has taken; their names are the addresses."""

    rules = RULES["ValidateIPAddress"]
    change_rules = RULES["ValidateIPAddressUpdate"]

    def name_problems(self, name: str) -> list[str]:
        """Return the problems of an address."""
        return address_problems(name, canonical=True)
