"""Validation of Addresses, ports and hosts in fields.

Sources: k8s.io/apimachinery `util/validation` (`ip.go`, `validation.go`), k8s.io/kubernetes
`pkg/apis/core/validation`.
"""

import re
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Final

from dralab.api import fields
from dralab.api.fields import FieldError
from dralab.values import names

Address = IPv4Address | IPv6Address

NO_ADDRESS: Final = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
NO_NETWORK: Final = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
PORT_RANGE: Final = "must be between 1 and 65535, inclusive"
HTTP_PATH: Final = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
LEADING_ZEROS: Final = re.compile(r"(?<![0-9])0+(?=[0-9])")
PERCENT: Final = re.compile(r"[0-9]+%", re.ASCII)
NUMBER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
LONGEST_PORT_NAME: Final = 15
LONGEST_DRIVER_NAME: Final = 63


def parsed_address(text: str) -> Address | None:
    """Return an address, read as Go's older parser does: leading zeros are ignored."""
    try:
        found = ip_address(LEADING_ZEROS.sub("", text) if "." in text else text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found


def address_problems(text: str, *, canonical: bool = False) -> list[str]:
    """Return the problems of an address; a `canonical` one has no other spelling."""
    found = parsed_address(text)
    if found is None:
        return [NO_ADDRESS]
    if "." in text and ":" not in text and LEADING_ZEROS.search(text):
        return ["must not have leading 0s"]
    if isinstance(found, IPv4Address) and ":" in text:
        return ["must not be an IPv4-mapped IPv6 address"]
    if canonical and text != str(found):
        return [f'must be in canonical form ("{found}")']
    return []


def address_warning(text: str, path: str) -> list[str]:
    """Return whether an accepted address is written in a form that may become invalid."""
    found = parsed_address(text)
    if found is None or text == str(found):
        return []
    if isinstance(found, IPv4Address):
        return [f'{path}: non-standard IP address "{text}" is invalid: use "{found}"']
    why = f'should be in RFC 5952 canonical format ("{found}")'
    return [f'{path}: IPv6 address "{text}" {why}']


def network_problems(text: str, *, canonical: bool = False) -> list[str]:
    """Return the problems of a CIDR value."""
    address, slash, length = text.partition("/")
    found = parsed_address(address)
    if found is None or not slash or not (length.isascii() and length.isdigit()):
        return [NO_NETWORK]
    mapped = isinstance(found, IPv4Address) and ":" in address
    if int(length) > (128 if ":" in address else 32):
        return [NO_NETWORK]
    if (LEADING_ZEROS.search(address) and "." in address) or (length[0] == "0" and length != "0"):
        return ["must not have leading 0s in IP or prefix length"]
    if mapped:
        return ["must not have an IPv4-mapped IPv6 address"]
    network = ip_network(f"{found}/{length}", strict=False)
    if network.network_address != found:
        return ["must not have bits set beyond the prefix length"]
    if canonical and text != str(network):
        return [f'must be in canonical form ("{network}")']
    return []


def address_warnings(path: str, text: str) -> list[str]:
    """Return how an address should be spelled, if it is spelled in another way."""
    found = parsed_address(text)
    if not isinstance(found, IPv6Address) or text == str(found):
        return []
    return [f'{path}: IPv6 address "{text}" should be in RFC 5952 canonical format ("{found}")']


def is_network(text: str) -> bool:
    """Return whether Go's older parser reads a text as a CIDR value."""
    return NO_NETWORK not in network_problems(text)


def endpoint_problems(text: str) -> list[str]:
    """Return the problems of an endpoint's address.

    Upstream refuses the loopback, too; here that is where the processes of pods listen.
    """
    found = parsed_address(text)
    if found is None:
        return ["must be a valid IP address"]
    problems = []
    if found.is_unspecified:
        problems.append(f"may not be unspecified ({text})")
    if found.is_link_local:
        problems.append("may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    if found in ip_network("224.0.0.0/24" if found.version == 4 else "ff02::/16"):
        problems.append("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
    return problems


def port_problems(number: int) -> list[str]:
    """Return the problems of a port."""
    return [] if 0 < number < 65536 else [PORT_RANGE]


def port_name_problems(name: str) -> list[str]:
    """Return the problems of a port's name."""
    problems = []
    if len(name) > LONGEST_PORT_NAME:
        problems.append(f"must be no more than {LONGEST_PORT_NAME} characters")
    if not re.fullmatch(r"[-a-z0-9]+", name, re.ASCII):
        why = "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
        problems.append(why)
    if not re.search(r"[a-z]", name):
        problems.append("must contain at least one letter (a-z)")
    if "--" in name:
        problems.append("must not contain consecutive hyphens")
    if name and (name[0] == "-" or name[-1] == "-"):
        problems.append("must not begin or end with a hyphen")
    return problems


def host_problems(host: str) -> list[str]:
    """Return the problems of a host; `*.` stands for any subdomain."""
    if "*" not in host:
        return names.subdomain_problems(host)
    problems = []
    if len(host) > 253:
        problems.append("must be no more than 253 characters")
    if not host.startswith("*.") or not names.SUBDOMAIN.fullmatch(host[2:]):
        problems.append(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS "
            "subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and "
            "end with an alphanumeric character (e.g. '*.example.com', regex used for validation "
            "is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        )
    return problems


def domain_errors(name: str, path: str, *, labels: int) -> list[FieldError]:
    """Return the errors of a domain of that many labels, or more."""
    if not name:
        return [fields.required(path)]
    plain = name.removesuffix(".") if labels == 2 else name
    if whys := names.subdomain_problems(plain):
        return [fields.invalid_value(path, plain, ",".join(whys))]
    if len(plain.split(".")) < labels:
        shown = {2: "two", 3: "three"}[labels]
        why = f"should be a domain with at least {shown} segments separated by dots"
        return [fields.invalid_value(path, plain, why)]
    return [
        fields.invalid_value(path, label, ",".join(names.label_problems(label)))
        for label in plain.split(".")
        if names.label_problems(label)
    ][:1]


def domain_path_errors(text: str, path: str) -> list[FieldError]:
    """Return the errors of a domain-prefixed path such as `acme.io/foo`."""
    if not text:
        return [fields.required(path)]
    domain, slash, rest = text.partition("/")
    if not slash or not domain or not rest:
        why = 'must be a domain-prefixed path (such as "acme.io/foo")'
        return [fields.invalid_value(path, text, why)]
    errors = [fields.invalid_value(path, domain, why) for why in names.subdomain_problems(domain)]
    if not re.fullmatch(HTTP_PATH, rest, re.ASCII):
        why = f"Invalid path (regex used for validation is '{HTTP_PATH}')"
        errors.append(fields.invalid_value(path, rest, why))
    return errors


def csi_driver_errors(name: str, path: str) -> list[FieldError]:
    """Return the errors of the name of a CSI driver."""
    if not name:
        return [fields.required(path)]
    errors = []
    if len(name) > LONGEST_DRIVER_NAME:
        errors.append(fields.too_long(path, LONGEST_DRIVER_NAME))
    whys = names.subdomain_problems(name.lower())
    return errors + [fields.invalid_value(path, name, why) for why in whys]


def amount_of(value: Any) -> int:
    """Return the number of an amount, a percentage or a text; 0 for anything else."""
    if isinstance(value, int):
        return value
    text = value[:-1] if PERCENT.fullmatch(value) else value
    return int(text) if NUMBER.fullmatch(text) else 0


def amount_or_percent_errors(value: Any, path: str, *, most: int | None = 100) -> list[FieldError]:
    """Return the errors of a number that is not negative, or a percentage up to `most`."""
    if isinstance(value, int):
        if value < 0:
            why = "must be greater than or equal to 0"
            return [fields.invalid_value(path, value, why)]
        return []
    if not PERCENT.fullmatch(value):
        why = (
            "a valid percent string must be a numeric string followed by an ending '%' (e.g. "
            "'1%',  or '93%', regex used for validation is '[0-9]+%')"
        )
        return [fields.invalid_value(path, value, why)]
    if most is not None and int(value[:-1]) > most:
        return [fields.invalid_value(path, value, f"must not be greater than {most}%")]
    return []
