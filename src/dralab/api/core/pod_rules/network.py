"""Names and addresses of a pod: DNS, host names, ports."""

from collections.abc import Sequence
from typing import Final

from dralab.api import fields
from dralab.api.core.addresses import each, port_name_problems, port_problems
from dralab.api.core.pod_rules.parts import address, label, subdomain
from dralab.api.fields import FieldError
from dralab.values import names
from dralab.values.json_types import JsonObject

PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
MOST_SERVERS: Final = 3
MOST_SEARCHED: Final = 32
LONGEST_SEARCH: Final = 2048
LONGEST_HOST: Final = 64


def ports(container: JsonObject, path: str) -> list[FieldError]:
    """Return what is wrong with the ports of a container."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, port in enumerate(container.get("ports") or ()):
        at = f"{path}.ports[{index}]"
        if name := port.get("name"):
            if problems := port_name_problems(name):
                errors += each(f"{at}.name", name, problems)
            elif name in seen:
                errors.append(fields.duplicate(f"{at}.name", name))
            seen.add(name)
        number = port.get("containerPort") or 0
        if not number:
            errors.append(fields.required(f"{at}.containerPort"))
        else:
            errors += each(f"{at}.containerPort", number, port_problems(number))
        if host := port.get("hostPort"):
            errors += each(f"{at}.hostPort", host, port_problems(host))
        protocol = port.get("protocol") or ""
        if not protocol:
            errors.append(fields.required(f"{at}.protocol"))
        elif protocol not in PROTOCOLS:
            errors.append(fields.not_supported(f"{at}.protocol", protocol, PROTOCOLS))
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


def on_host_network(spec: JsonObject, path: str, *, template: bool) -> list[FieldError]:
    """Return the ports that are not those of the host though the network is."""
    if not spec.get("hostNetwork"):
        return []
    why = "must match `containerPort` when `hostNetwork` is true"
    return [
        fields.invalid_value(f"{path}.containers[{number}].ports[{index}].hostPort", host, why)
        for number, container in enumerate(spec.get("containers") or ())
        for index, port in enumerate(container.get("ports") or ())
        for host in [port.get("hostPort") or 0]
        if host != (port.get("containerPort") or 0) and (host or not template)
    ]


def dns(spec: JsonObject, path: str) -> list[FieldError]:
    """Return what is wrong with how a pod finds names."""
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
    servers, searched = config.get("nameservers") or [], config.get("searches") or []
    errors: list[FieldError] = []
    if len(servers) > MOST_SERVERS:
        why = f"must not have more than {MOST_SERVERS} nameservers"
        errors.append(fields.invalid_value(f"{at}.nameservers", servers, why))
    for index, server in enumerate(servers):
        errors += address(server, f"{at}.nameservers[{index}]")
    errors += _searches(searched, f"{at}.searches")
    return errors + [
        fields.required(f"{at}.options[{index}]", "must not be empty")
        for index, option in enumerate(config.get("options") or ())
        if not option.get("name")
    ]


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
            errors += each(f"{path}[{index}]", plain, names.search_path_problems(plain))
    return errors


def host_aliases(spec: JsonObject, path: str) -> list[FieldError]:
    """Return what is wrong with additional names of hosts."""
    errors: list[FieldError] = []
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        at = f"{path}.hostAliases[{index}]"
        errors += address(alias.get("ip") or "", f"{at}.ip")
        for number, name in enumerate(alias.get("hostnames") or ()):
            errors += subdomain(name, f"{at}.hostnames[{number}]")
    return errors


def override(spec: JsonObject, path: str) -> list[FieldError]:
    """Return what is wrong with a host name in place of the usual one."""
    name, at = spec.get("hostnameOverride"), f"{path}.hostnameOverride"
    if name is None:
        return []
    errors = [
        fields.forbidden(at, f"may not be specified when {part} is true")
        for part in ("setHostnameAsFQDN", "hostNetwork")
        if spec.get(part)
    ]
    if len(name.encode()) > LONGEST_HOST:
        errors.append(fields.too_long(at, LONGEST_HOST))
    return errors + subdomain(name, at)


def host_names(spec: JsonObject, path: str) -> list[FieldError]:
    """Return what is wrong with the name of a pod and its domain."""
    errors: list[FieldError] = []
    for part in ("hostname", "subdomain"):
        if name := spec.get(part):
            errors += label(name, f"{path}.{part}")
    return errors
