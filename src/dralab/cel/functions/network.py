"""URLs, IP addresses and CIDRs: Kubernetes' libraries of these names.

They read as Go's net/url and net/netip do: no zones, no IPv4 in IPv6, no leading zeros.
"""

import ipaddress
import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote, unquote, unquote_to_bytes

from dralab.cel.errors import CelError, no_such_overload
from dralab.cel.values import Address, Cidr, Map, Url

SCHEME: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.\-]*):", re.ASCII)
CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
BAD_ESCAPE: Final = re.compile(r"%(?![0-9a-fA-F]{2})")
USER: Final = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*", re.ASCII)
HOST: Final = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:\[\]<>\"%\x80-\U0010ffff]*")
PORT: Final = re.compile(r"(?::[0-9]*)?", re.ASCII)
PATH: Final = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:@/\[\]%]*", re.ASCII)
PREFIX_LENGTH: Final = re.compile(r"0|[1-9][0-9]{0,2}", re.ASCII)


def parse_url(text: Any) -> Url:
    """Return an absolute URL or an absolute path; CelError if the text is neither."""
    if type(text) is not str:
        raise no_such_overload()
    problem = url_problem(text)
    if problem:
        raise CelError(f"URL parse error during conversion from string: {problem}")
    return _split(text)


def url_problem(text: str) -> str:
    """Return the problem of a request's URL, or nothing."""
    reason = _problem(text)
    return f'parse "{text}": {reason}' if reason else ""


def _problem(text: str) -> str:
    if CONTROL.search(text):
        return "net/url: invalid control character in URL"
    if not text:
        return "empty url"
    if text == "*":
        return ""
    if text.startswith(":"):
        return "missing protocol scheme"
    found = SCHEME.match(text)
    rest = text[found.end() :] if found else text
    rest = rest.partition("?")[0]
    if not rest.startswith("/"):
        return "" if found else "invalid URI for request"
    path = rest
    if found and rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        path = slash + path
        problem = _authority_problem(authority)
        if problem:
            return problem
    escape = BAD_ESCAPE.search(path)
    return f'invalid URL escape "{path[escape.start() : escape.start() + 3]}"' if escape else ""


def _authority_problem(authority: str) -> str:
    user, at, host = authority.rpartition("@")
    if at and (not USER.fullmatch(user) or BAD_ESCAPE.search(user)):
        return "net/url: invalid userinfo"
    if host.startswith("["):
        bracket = host.rfind("]")
        if bracket < 0:
            return "missing ']' in host"
        if not PORT.fullmatch(host[bracket + 1 :]):
            return f'invalid port "{host[bracket + 1 :]}" after host'
        try:
            ipaddress.IPv6Address(unquote(host[1:bracket]))
        except ValueError:
            return f'invalid host "{host}"'
        return ""
    colon = host.find(":")
    if colon >= 0 and not PORT.fullmatch(host[colon:]):
        return f'invalid port "{host[colon:]}" after host'
    if not HOST.fullmatch(host):
        return "invalid character in host name"
    return ""


def _split(text: str) -> Url:
    found = SCHEME.match(text)
    scheme = found[1].lower() if found else ""
    rest, _, _ = (text[found.end() :] if found else text).partition("#")
    rest, _, query = rest.partition("?")
    host, path = "", rest
    if found and not rest.startswith("/"):
        path = ""
    elif rest.startswith("//") and (found or not rest.startswith("///")):
        authority, slash, path = rest[2:].partition("/")
        path = slash + path
        host = unquote(authority.rpartition("@")[2])
    return Url(text, scheme, host, path, query)


def _url(value: Any) -> Url:
    if type(value) is not Url:
        raise no_such_overload()
    return value


def is_url(text: Any) -> bool:
    """Return whether a text is an absolute URL or an absolute path."""
    if type(text) is not str:
        raise no_such_overload()
    return not url_problem(text)


def get_scheme(value: Any) -> str:
    """Return the scheme."""
    return _url(value).scheme


def get_host(value: Any) -> str:
    """Return host and port; an IPv6 address in brackets."""
    return _url(value).host


def get_hostname(value: Any) -> str:
    """Return the host without port and brackets."""
    host = _url(value).host
    if host.startswith("["):
        return host[1 : host.rfind("]")]
    return host.partition(":")[0]


def get_port(value: Any) -> str:
    """Return the port, or nothing."""
    host = _url(value).host
    return host.rpartition("]")[2].partition(":")[2]


def get_escaped_path(value: Any) -> str:
    """Return the path with its escapes."""
    path = _url(value).path
    if PATH.fullmatch(path):
        return path
    return quote(unquote_to_bytes(path), safe="$&+,/:;=@~")


def get_query(value: Any) -> Map:
    """Return the query: the list of values of each key."""
    found: dict[str, list[str]] = {}
    for pair in _url(value).query.split("&"):
        if not pair or ";" in pair or BAD_ESCAPE.search(pair):
            continue
        key, _, text = (unquote(part) for part in pair.replace("+", " ").partition("="))
        found.setdefault(key, []).append(text)
    return Map(found)


def parse_address(text: Any) -> Address:
    """Return the IP address of a text."""
    if type(text) is not str:
        raise no_such_overload()
    try:
        address = ipaddress.ip_address(text)
    except ValueError as error:
        raise CelError(
            f'IP Address "{text}" parse error during conversion from string: {error}'
        ) from None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            raise CelError(f'IP address "{text}" with zone value is not allowed')
        if address.ipv4_mapped is not None:
            raise CelError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return Address(address)


def ip(value: Any) -> Address:
    """Return the address of a text or of a CIDR."""
    if type(value) is Cidr:
        return Address(value.value.ip)
    return parse_address(value)


def is_ip(text: Any) -> bool:
    """Return whether a text is an IP address."""
    return _reads(parse_address, text)


def _reads(read: Callable[[Any], object], text: Any) -> bool:
    if type(text) is not str:
        raise no_such_overload()
    try:
        read(text)
    except CelError:
        return False
    return True


def is_canonical(text: Any) -> bool:
    """Return whether an IP address is written in its canonical form."""
    return bool(str(parse_address(text).value) == text)


def _address(value: Any) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    if type(value) is not Address:
        raise no_such_overload()
    return value.value


def family(value: Any) -> int:
    """Return 4 or 6."""
    return _address(value).version


def is_unspecified(value: Any) -> bool:
    """Return whether the address is 0.0.0.0 or ::."""
    return _address(value).is_unspecified


def is_loopback(value: Any) -> bool:
    """Return whether the address is in 127.0.0.0/8 or ::1."""
    return _address(value).is_loopback


def is_link_local_multicast(value: Any) -> bool:
    """Return whether the address is in 224.0.0.0/24 or in ff02::/16 and its flags."""
    address = _address(value)
    if address.version == 4:
        return address.packed[:3] == b"\xe0\x00\x00"
    return address.packed[0] == 0xFF and address.packed[1] & 0x0F == 2


def is_link_local_unicast(value: Any) -> bool:
    """Return whether the address is in 169.254.0.0/16 or fe80::/10."""
    return _address(value).is_link_local


def is_global_unicast(value: Any) -> bool:
    """Return whether the address is a unicast address beyond its link; private ones are."""
    address = _address(value)
    return not (
        address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
        or address.packed == b"\xff\xff\xff\xff"
    )


def parse_network(text: Any) -> Cidr:
    """Return the CIDR of a text."""
    if type(text) is not str:
        raise no_such_overload()
    address, slash, length = text.rpartition("/")
    problem = "network address parse error during conversion from string: "
    if not slash or not PREFIX_LENGTH.fullmatch(length) or "%" in address:
        raise CelError(f"{problem}{text!r} is no CIDR")
    try:
        interface = ipaddress.ip_interface(text)
    except ValueError as error:
        raise CelError(problem + str(error)) from None
    if isinstance(interface, ipaddress.IPv6Interface) and interface.ip.ipv4_mapped is not None:
        raise CelError(f'{problem}IPv4-mapped IPv6 address "{text}" is not allowed')
    return Cidr(interface)


def is_cidr(text: Any) -> bool:
    """Return whether a text is a CIDR."""
    return _reads(parse_network, text)


def _network(value: Any) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    if type(value) is not Cidr:
        raise no_such_overload()
    return value.value


def contains_ip(value: Any, other: Any) -> bool:
    """Return whether an address lies in a network."""
    network = _network(value).network
    address = _address(parse_address(other) if type(other) is str else other)
    return address.version == network.version and address in network


def contains_cidr(value: Any, other: Any) -> bool:
    """Return whether a network lies in a network."""
    network = _network(value).network
    inner = _network(parse_network(other) if type(other) is str else other).network
    if network.version != inner.version:
        return False
    return network.overlaps(inner) and network.prefixlen <= inner.prefixlen


def prefix_length(value: Any) -> int:
    """Return the length of the prefix."""
    return _network(value).network.prefixlen


def masked(value: Any) -> Cidr:
    """Return the network without host bits."""
    network = _network(value).network
    return Cidr(ipaddress.ip_interface(str(network)))


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "url": parse_url, "isURL": is_url, "getScheme": get_scheme, "getHost": get_host,
    "getHostname": get_hostname, "getPort": get_port, "getEscapedPath": get_escaped_path,
    "getQuery": get_query, "ip": ip, "isIP": is_ip, "ip.isCanonical": is_canonical,
    "family": family, "isUnspecified": is_unspecified, "isLoopback": is_loopback,
    "isLinkLocalMulticast": is_link_local_multicast,
    "isLinkLocalUnicast": is_link_local_unicast, "isGlobalUnicast": is_global_unicast,
    "cidr": parse_network, "isCIDR": is_cidr, "containsIP": contains_ip,
    "containsCIDR": contains_cidr, "prefixLength": prefix_length, "masked": masked,
}  # fmt: skip

SIGNATURES: Final = """
string_to_url url(string) -> URL
url_get_scheme URL.getScheme() -> string
url_get_host URL.getHost() -> string
url_get_hostname URL.getHostname() -> string
url_get_port URL.getPort() -> string
url_get_escaped_path URL.getEscapedPath() -> string
url_get_query URL.getQuery() -> map(string, list(string))
is_url_string isURL(string) -> bool
string_to_ip ip(string) -> IP
ip_family IP.family() -> int
ip_is_canonical ip.isCanonical(string) -> bool
ip_is_unspecified IP.isUnspecified() -> bool
ip_is_loopback IP.isLoopback() -> bool
ip_is_link_local_multicast IP.isLinkLocalMulticast() -> bool
ip_is_link_local_unicast IP.isLinkLocalUnicast() -> bool
ip_is_global_unicast IP.isGlobalUnicast() -> bool
is_ip isIP(string) -> bool
ip_to_string string(IP) -> string
string_to_cidr cidr(string) -> CIDR
cidr_contains_ip_string CIDR.containsIP(string) -> bool
cidr_contains_ip_ip CIDR.containsIP(IP) -> bool
cidr_contains_cidr_string CIDR.containsCIDR(string) -> bool
cidr_contains_cidr CIDR.containsCIDR(CIDR) -> bool
cidr_ip CIDR.ip() -> IP
cidr_prefix_length CIDR.prefixLength() -> int
cidr_masked CIDR.masked() -> CIDR
is_cidr isCIDR(string) -> bool
cidr_to_string string(CIDR) -> string
"""
