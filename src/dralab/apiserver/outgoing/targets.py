"""Resolves URLs and Services to addresses that the server may call.

The writer of a webhook configuration chooses a URL. The server connects to an address only
where the operator allows it: the loopback, the networks of `--webhook-network`, what `--service`
names, and the pods behind a Service where they have a network. Names other than `localhost` are
looked up only if there are networks for webhooks, and the address that was checked is the one that
is connected to.

Source of the rules for Services: k8s.io/kube-aggregator `pkg/apiserver/resolvers.go`,
k8s.io/apiserver `pkg/util/proxy`.
"""

import base64
import binascii
import ipaddress
import posixpath
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from dralab.apiserver.storage import Key, Stored
from dralab.objects.metadata import labels_of, spec_of
from dralab.values.records import dataclass

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = tuple[str, int]
LOOPBACK: Final[Sequence[Network]] = (
    ipaddress.ip_network("127.0.0.0/8"),
    ipaddress.ip_network("::1/128"),
)
HTTPS: Final = 443
# What Go adds where the client has a timeout of its own, beside the request's.
AWAITED: Final = " (Client.Timeout exceeded while awaiting headers)"
SLICES: Final = "discovery.k8s.io/endpointslices"
SERVICE_LABEL: Final = "kubernetes.io/service-name"


class Unreachable(Exception):  # noqa: N818 - a fact, which messages tell
    """A call cannot be made or has failed; `str` is Go's message where Go has one."""


class Overdue(Unreachable):
    """A call takes too long."""

    def __init__(self) -> None:
        super().__init__("context deadline exceeded")


class NoService(Unreachable):
    """The Service that a call is for does not exist."""


class NoEndpoints(Unreachable):
    """The Service that a call is for has no endpoints."""


class UnsupportedService(Unreachable):
    """Services of that type have no endpoints."""


class NotAllowed(Unreachable):
    """The operator does not allow a call to that address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTarget:
    """Where a call goes: `addresses` to try in order, `server_name` for its certificate.

    `url` is what messages show. Without `ca` (PEM) the authorities of this machine are trusted;
    with `insecure` any certificate is. `certificate` are the files of a client certificate and its
    key.
    """

    url: str
    path: str
    host: str
    server_name: str
    addresses: tuple[Address, ...]
    ca: str = ""
    insecure: bool = False
    certificate: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class ServiceAt:
    """A Service as `--service` maps it: to any of its ports where `port` is 0."""

    namespace: str
    name: str
    port: int
    address: Address


def read_service(text: str) -> ServiceAt:
    """Return what `ns/name[:port]=HOST:PORT` maps. ValueError.

    >>> read_service("default/hook=127.0.0.1:9443").address
    ('127.0.0.1', 9443)
    """
    service, equals, address = text.partition("=")
    namespace, slash, name = service.partition("/")
    name, _, port = name.partition(":")
    host, colon, number = address.rpartition(":")
    if not (equals and slash and namespace and name and colon and host):
        raise ValueError(f"{text!r} must be NAMESPACE/NAME=HOST:PORT")
    if not (port or "0").isdecimal() or not number.isdecimal() or not 0 < int(number) < 1 << 16:
        raise ValueError(f"{text!r}: a port must be a number between 1 and 65535")
    return ServiceAt(namespace, name, int(port or 0), (host.strip("[]"), int(number)))


def _clean(path: str) -> str:
    """Return a path as clients in Go join it: without doubled slashes or one at the end.

    >>> _clean("//validate/"), _clean("")
    ('/validate', '/')
    """
    # k8s.io/client-go `rest/url_utils.go`, DefaultVersionedAPIPath.
    return "/" + posixpath.normpath(f"/{path}").lstrip("/")


class Targets:
    """Finds targets: Services that are stored, and addresses that the operator allows."""

    def __init__(
        self,
        find: Callable[[Key], Stored | None],
        all_of: Callable[[str, str], Sequence[Stored]],
        *,
        networks: Sequence[Network] = (),
        services: Iterable[ServiceAt] = (),
        pods: Sequence[Network] = (),
    ) -> None:
        self.find = find
        self.all_of = all_of
        self._others = bool(networks)
        self.networks = [*LOOPBACK, *networks]
        self.pods = list(pods)
        self.services = {(each.namespace, each.name, each.port): each for each in services}

    def of_config(self, config: Mapping[str, Any]) -> CallTarget:
        """Return the target of a WebhookClientConfig. Unreachable."""
        ca = authority(config.get("caBundle"))
        if (service := config.get("service")) is not None:
            return self.of_service(
                service.get("namespace") or "",
                service.get("name") or "",
                service.get("port") or HTTPS,
                path=_clean(service.get("path") or "/"),
                ca=ca,
            )
        url = config.get("url") or ""
        parts = urlsplit(url)
        try:
            port = parts.port or HTTPS
        except ValueError as error:
            raise Unreachable(str(error)) from error
        if parts.scheme != "https" or not parts.hostname or parts.username is not None:
            raise Unreachable(f'url must start with "https://" and name a host: {url!r}')
        path = _clean(parts.path)
        return CallTarget(
            url=f"https://{parts.netloc}{path}",
            path=path,
            host=parts.netloc,
            server_name=parts.hostname,
            addresses=self.addresses(parts.hostname, port),
            ca=ca,
        )

    def of_service(
        self,
        namespace: str,
        name: str,
        port: int,
        *,
        path: str = "/",
        ca: str = "",
        insecure: bool = False,
        by_name: bool = True,
    ) -> CallTarget:
        """Return the target of a Service's port. Unreachable.

        Without `by_name`, a Service of type ExternalName has no target.
        """
        server_name = f"{name}.{namespace}.svc"
        path = path if path.startswith("/") else f"/{path}"
        host = f"{server_name}:{port}"
        mapped = self.services.get((namespace, name, port)) or self.services.get(
            (namespace, name, 0)
        )
        if mapped is not None:
            addresses: tuple[Address, ...] = (mapped.address,)
        else:
            addresses = self._endpoints(namespace, name, port, by_name=by_name)
        return CallTarget(
            url=f"https://{host}{path}",
            path=path,
            host=host,
            server_name=server_name,
            addresses=addresses,
            ca=ca,
            insecure=insecure,
        )

    def addresses(self, host: str, port: int) -> tuple[Address, ...]:
        """Return the addresses of a host that may be connected to. Unreachable."""
        if host == "localhost":
            return (("127.0.0.1", port), ("::1", port))
        try:
            found = [ipaddress.ip_address(host)]
        except ValueError:
            found = self._looked_up(host)
        allowed = [each for each in found if self.allows(each)]
        if not allowed:
            raise _not_allowed(str(found[0]))
        return tuple((str(each), port) for each in allowed)

    def allows(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
        """Whether the server may connect to an address."""
        # ::ffff:10.0.0.1 is 10.0.0.1.
        plain = getattr(address, "ipv4_mapped", None) or address
        return any(plain in network for network in self.networks)

    def _looked_up(self, host: str) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
        if not self._others:
            raise NotAllowed(
                f"this server may not connect to {host}: --webhook-network allows its address"
            )
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            raise Unreachable(f"dial tcp: lookup {host}: no such host") from error
        return [ipaddress.ip_address(str(each[4][0]).partition("%")[0]) for each in found]

    def _endpoints(
        self, namespace: str, name: str, port: int, *, by_name: bool
    ) -> tuple[Address, ...]:
        """Return the addresses behind a Service. Unreachable."""
        service = self.find(Key("services", namespace, name))
        if service is None:
            raise NoService(f'service "{name}" not found')
        spec = spec_of(service.value)
        if spec.get("type") == "ExternalName":
            if not by_name:
                raise UnsupportedService('unsupported service type "ExternalName"')
            return self.addresses(str(spec.get("externalName")), port)
        ports = [each for each in spec.get("ports") or () if each.get("port") == port]
        if not ports:
            raise Unreachable(f'no service port {port} found for service "{name}"')
        found = []
        for slice_ in self.all_of(SLICES, namespace):
            if labels_of(slice_.value).get(SERVICE_LABEL) == name:
                found += _ready(slice_.value, ports[0].get("name") or "")
        if not found:
            raise NoEndpoints(f'no endpoints available for service "{name}"')
        allowed = [each for each in found if self._is_allowed(each[0])]
        if not allowed:
            raise _not_allowed(found[0][0], f"--service {namespace}/{name}=HOST:PORT maps it, and ")
        return tuple(allowed)

    def _is_allowed(self, text: str) -> bool:
        """Return whether the server may connect to the endpoint of a Service."""
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return False
        return self.allows(address) or any(address in network for network in self.pods)


def _ready(slice_: Mapping[str, Any], port_name: str) -> list[Address]:
    numbers = [
        each["port"]
        for each in slice_.get("ports") or ()
        if (each.get("name") or "") == port_name and each.get("port")
    ]
    return [
        (address, number)
        for endpoint in slice_.get("endpoints") or ()
        if (endpoint.get("conditions") or {}).get("ready") is not False
        for address in endpoint.get("addresses") or ()
        for number in numbers[:1]
    ]


def _not_allowed(address: str, also: str = "") -> NotAllowed:
    return NotAllowed(
        f"this server may not connect to {address}: {also}--webhook-network {address} allows it"
    )


def authority(bundle: Any) -> str:
    """Return the PEM text of a caBundle, which is base64. Unreachable."""
    if not bundle:
        return ""
    try:
        return base64.b64decode(bundle, validate=True).decode("ascii")
    except (binascii.Error, ValueError, TypeError) as error:
        raise Unreachable("unable to load root certificates: unable to parse bytes") from error
