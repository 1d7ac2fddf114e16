"""On servers without credentials, accepts requests from programs and refuses those from web pages.

A browser sends requests to this machine for every page that it shows, and with a name whose
address changes (DNS rebinding) it takes the server for the page's own. A request says enough of
where it comes from: Host, Origin, Sec-Fetch-Site and Content-Type, which pages cannot forge.
"""

import ipaddress
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from dralab.api.status import ApiError
from dralab.apiserver.http.messages import HttpRequest
from dralab.values.remembering import remembered

# Of https://www.w3.org/TR/fetch-metadata: a page of another port of this machine is same-site.
FOREIGN: Final = frozenset({"cross-site", "same-site"})
LONGEST_NAME: Final = 253
# How every browser's User-Agent begins; a page needs CORS permission to set another one.
BROWSER: Final = "Mozilla/"


class Guard:
    """Refuses what a web page may have sent; `hosts` are accepted beside the loopback's names.

    >>> guard = Guard(["lab.example"])
    >>> guard.check(HttpRequest(method="GET", path="/", headers={"host": "lab.example:8080"}))
    >>> guard.check(HttpRequest(method="GET", path="/", headers={"host": "rebound.example"}))
    Traceback (most recent call last):
    dralab.api.status.ApiError: the Host "rebound.example" is not a name of this server:
      a server without credentials accepts only loopback names; --accept-hosts
      rebound.example accepts the name
    """

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        # Without the empty one: it stands for a Host that is malformed.
        self.hosts = frozenset(_plain(host) for host in hosts if host)

    def check(self, request: HttpRequest) -> None:
        """Refuse a request by its head. ApiError: 403; 415 for a browser's untyped body."""
        host = request.headers.get("host", "")
        name = name_of(host)
        if name not in self.hosts and not is_loopback(name):
            shown = name[:LONGEST_NAME] or host[:LONGEST_NAME]
            raise _forbidden(
                f'the Host "{shown}" is not a name of this server: a server without credentials '
                f"accepts only loopback names; --accept-hosts {shown or 'NAME'} accepts the name"
            )
        # Only now: a rebound name is Host and Origin at once.
        self.check_page(request)

    def check_page(self, request: HttpRequest) -> None:
        """Refuse requests from pages of other origins, whatever their Host. ApiError."""
        headers = request.headers
        host, origin = headers.get("host", ""), headers.get("origin")
        if origin is not None and not _is_of(origin, host):
            raise _forbidden(f'web pages from "{origin}" may not use this server')
        site = headers.get("sec-fetch-site")
        if site in FOREIGN:
            raise _forbidden(
                f"web pages from other servers may not use this one (Sec-Fetch-Site: {site})"
            )
        # The official Python client sends JSON without one, and says that it is not a browser.
        untyped = has_body(request) and not headers.get("content-type")
        if untyped and (headers.get("user-agent") or BROWSER).startswith(BROWSER):
            raise ApiError(
                "UnsupportedMediaType",
                "a body needs a Content-Type, such as application/json",
                details={},
            )


def has_body(request: HttpRequest) -> bool:
    """Return whether a request's head announces a body."""
    headers = request.headers
    return "transfer-encoding" in headers or headers.get("content-length", "").strip("0") != ""


@remembered(256)
def name_of(host: str) -> str:
    """Return the name or address in a Host header, without its port; empty if it is malformed.

    >>> name_of("[::1]:6443"), name_of("LOCALHOST."), name_of("127.0.0.1:80")
    ('::1', 'localhost', '127.0.0.1')
    """
    if host.startswith("["):
        name, closed, rest = host[1:].partition("]")
        port = rest.removeprefix(":")
        if not closed or (rest and not rest.startswith(":")):
            return ""
    else:
        name, _, port = host.partition(":")
    return _plain(name) if not port or port.isdigit() else ""


@remembered(256)
def is_loopback(host: str) -> bool:
    """Return whether a name or an address can lead to this machine alone.

    >>> [is_loopback(host) for host in ("localhost", "127.8.0.1", "::1", "127.0.0.1.example.com")]
    [True, True, True, False]
    """
    if _plain(host) == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _plain(name: str) -> str:
    return name.lower().removesuffix(".")


def _is_of(origin: str, host: str) -> bool:
    """Return whether an Origin is the server at a Host that was found to be good."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and parts.netloc.lower() == host.lower()


def _forbidden(message: str) -> ApiError:
    return ApiError("Forbidden", message, details={})
