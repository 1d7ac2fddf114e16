"""Names and addresses of a pod: DNS, host names, ports."""

from collections.abc import Sequence
from typing import Final

from dralab.api import fields
from dralab.api.core.addresses import address_problems, port_name_problems, port_problems
from dralab.api.core.pod_rules.facts import Surroundings
from dralab.api.fields import FieldError
from dralab.api.rules import RuleTables
from dralab.values import names
from dralab.values.json_types import JsonObject

MOST_SERVERS: Final = 3
MOST_SEARCHED: Final = 32
LONGEST_SEARCH: Final = 2048


RULES: Final = RuleTables(globals(), address_problems, port_problems)
PORT: Final = RULES["validateContainerPorts"]
HOST_ALIAS: Final = RULES["ValidateHostAliases"]


def ports(given: Sequence[JsonObject], path: str) -> list[FieldError]:
    """Return the errors of the ports of a container."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, port in enumerate(given):
        at = f"{path}[{index}]"
        if name := port.get("name"):
            if problems := port_name_problems(name):
                errors += fields.each(f"{at}.name", name, problems)
            elif name in seen:
                errors.append(fields.duplicate(f"{at}.name", name))
            seen.add(name)
        errors += PORT(port, at)
    return errors


def host_port_conflicts(containers: Sequence[JsonObject], path: str) -> list[FieldError]:
    """Return the ports of the host that two ports of containers want."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for number, container in enumerate(containers):
        for index, port in enumerate(container.get("ports") or ()):
            if not port.get("hostPort"):
                continue
            key = f"{port.get('protocol') or ''}/{port.get('hostIP') or ''}/{port['hostPort']}"
            if key in seen:
                errors.append(fields.duplicate(f"{path}[{number}].ports[{index}].hostPort", key))
            seen.add(key)
    return errors


def on_host_network(spec: JsonObject, path: str, around: Surroundings) -> list[FieldError]:
    """Return the ports that are not those of the host though the network is."""
    if not spec.get("hostNetwork"):
        return []
    why = "must match `containerPort` when `hostNetwork` is true"
    return [
        fields.invalid_value(f"{path}.containers[{number}].ports[{index}].hostPort", host, why)
        for number, container in enumerate(spec.get("containers") or ())
        for index, port in enumerate(container.get("ports") or ())
        for host in [port.get("hostPort") or 0]
        if host != (port.get("containerPort") or 0) and (host or around.pod is not None)
    ]


def dns(spec: JsonObject, path: str) -> list[FieldError]:
    """Return the errors of how a pod finds names."""
    config, at = spec.get("dnsConfig"), f"{path}.dnsConfig"
    if spec.get("dnsPolicy") == "None":
        if config is None:
            why = "must provide `dnsConfig` when `dnsPolicy` is None"
            return [fields.required(at, why)]
        if not config.get("nameservers"):
            why = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            return [fields.required(f"{at}.nameservers", why)]
    if config is None:
        return []
    return RULES["validatePodDNSConfig"](config, at)


def _not_too_many(servers: Sequence[str], path: str) -> list[FieldError]:
    if len(servers) <= MOST_SERVERS:
        return []
    why = f"must not have more than {MOST_SERVERS} nameservers"
    return [fields.invalid_value(path, servers, why)]


def _named_option(option: JsonObject, path: str) -> list[FieldError]:
    # Upstream tells of the option itself.
    return [] if option.get("name") else [fields.required(path, "must not be empty")]


def _searches(searched: Sequence[str], path: str) -> list[FieldError]:
    errors = []
    if len(searched) > MOST_SEARCHED:
        why = f"must not have more than {MOST_SEARCHED} search paths"
        errors.append(fields.invalid_value(path, searched, why))
    if len(" ".join(searched)) > LONGEST_SEARCH:
        why = (
            f"must not have more than {LONGEST_SEARCH} characters (including spaces) in the "
            "search list"
        )
        errors.append(fields.invalid_value(path, searched, why))
    for index, name in enumerate(searched):
        if name != ".":
            plain = name.removesuffix(".")
            errors += fields.each(f"{path}[{index}]", plain, names.search_path_problems(plain))
    return errors
