"""Proxies: requests for the processes of pods, behind Services, and for kubelets.

The server is no way into networks. It reaches the ports that a pod's own processes listen on, in
the way of port-forward and nothing else, and a node's endpoint as for logs. Connections that change
their protocol are refused.

Sources: k8s.io/kubernetes `pkg/registry/core` (pod, node and service: ResourceLocation),
k8s.io/apimachinery `pkg/util/proxy`.
"""

import posixpath
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from dralab.api.status import ApiError
from dralab.apiserver.access.users import User
from dralab.apiserver.http.connections.sending import refused
from dralab.apiserver.http.messages import (
    Answer,
    ByteStream,
    HttpRequest,
    HttpResponse,
    Proxied,
    Upgrade,
)
from dralab.apiserver.http.proxying.nodes import NodeProxy
from dralab.apiserver.http.resource_requests import Connector
from dralab.apiserver.http.routing import Route
from dralab.apiserver.http.trying import NO_CACHE
from dralab.objects.metadata import spec_of, status_of
from dralab.values.json_types import JsonObject

MOST: Final = 1_000  # requests at a time
CHANNELS: Final = "v4.channel.k8s.io"
SCHEMES: Final = frozenset({"", "http", "https"})
USUAL: Final = {"": 80, "http": 80, "https": 443}
KUBELET: Final = "10250"
READS: Final = frozenset({"GET", "HEAD"})
# What is between the client and this server, and who the client is.
KEPT_BACK: Final = frozenset(
    {
        "accept-encoding", "authorization", "connection", "content-length", "cookie", "expect",
        "host", "keep-alive", "proxy-authorization", "proxy-connection", "te", "trailer",
        "transfer-encoding", "upgrade",
    }
)  # fmt: skip
IMPERSONATED: Final = ("impersonate-", "x-remote-", "x-forwarded-")
# A page of a pod must not act as one of this server's own, with its user's rights.
SAFE: Final = (
    ("X-Content-Type-Options", "nosniff"),
    ("Content-Security-Policy", "sandbox allow-scripts allow-forms allow-popups"),
)


class Proxies:
    """Answers the subresource `proxy` of pods, services and nodes."""

    def __init__(self, nodes: NodeProxy) -> None:
        self.nodes = nodes
        self.resources = nodes.resources
        self._open: set[object] = set()

    def connectors(self) -> Mapping[tuple[str, str], Connector]:
        """Return what answers, by kind."""
        found = {"pods": self._pod, "services": self._service, "nodes": self._node}
        return {(kind, "proxy"): partial(self._begun, locate) for kind, locate in found.items()}

    def _begun(self, locate: Connector, request: HttpRequest, route: Route, user: User) -> Answer:
        if "upgrade" in request.headers:
            raise ApiError(
                "MethodNotAllowed",
                f"connections through {route.kind.plural}/proxy that change their protocol are "
                f"not passed on: use port-forward",
                code=HTTPStatus.NOT_IMPLEMENTED,
                details={},
            )
        return locate(request, route, user)

    # --- where it goes ----------------------------------------------------------------------

    def _pod(self, request: HttpRequest, route: Route, user: User) -> Answer:
        del user
        scheme, name, port = _named(route, "pod")
        pod = self.resources.context.own.live(route.kind, route.namespace, name).value
        if not port:
            port = next(
                (
                    str(each["containerPort"])
                    for container in spec_of(pod).get("containers") or ()
                    for each in (container.get("ports") or ())[:1]
                ),
                "",
            )
        if not status_of(pod).get("podIP"):
            raise ApiError.bad_request("address not allowed")
        if port and not port.isdecimal():
            raise _invalid(route, "pod")
        return self._ask(request, route, pod, scheme, int(port or USUAL[scheme]))

    def _service(self, request: HttpRequest, route: Route, user: User) -> Answer:
        del user
        scheme, name, port = _named(route, "service")
        service = self.resources.context.own.live(route.kind, route.namespace, name).value
        if port.isdecimal():
            ports = spec_of(service).get("ports") or ()
            given = [each for each in ports if each.get("port") == int(port)]
            if not given:
                raise ApiError(
                    "ServiceUnavailable", f'no service port {port} found for service "{name}"'
                )
            port = given[0].get("name") or ""
        endpoints = self._object("endpoints", name, route.namespace)
        if endpoints is None:
            # As upstream, where endpoints are read for the Service.
            raise ApiError.not_found("services", name)
        if not endpoints.get("subsets"):
            raise _no_endpoints(name)
        for subset in endpoints["subsets"]:
            numbers = [
                each["port"]
                for each in subset.get("ports") or ()
                if (each.get("name") or "") == port
            ]
            for address in (subset.get("addresses") or ()) if numbers else ():
                pod = self._behind(address, route.namespace)
                if pod is not None:
                    return self._ask(request, route, pod, scheme, numbers[0])
        raise _no_endpoints(route.name)

    def _behind(self, address: JsonObject, namespace: str) -> JsonObject | None:
        """Return the pod behind an address; as upstream, only pods are proxied to."""
        target = address.get("targetRef") or {}
        if target.get("namespace") != namespace:
            return None
        pod = self._object("pods", target.get("name") or "", namespace)
        known = [each["ip"] for each in status_of(pod).get("podIPs") or ()] if pod else []
        return pod if address.get("ip") in known else None

    def _node(self, request: HttpRequest, route: Route, user: User) -> Answer:
        del user
        _, name, port = _named(route, "node")
        node = self.resources.context.own.live(route.kind, "", name).value
        path, query = _path(request, route), request.query
        daemons = status_of(node).get("daemonEndpoints") or {}
        listens = str((daemons.get("kubeletEndpoint") or {}).get("Port") or KUBELET)
        if port not in {"", KUBELET, listens}:
            raise _unreached(f"dial tcp {name}:{port}: connect: connection refused")
        for each in self.nodes.here:
            answer = each.page(name, replace(request, path=path))
            if answer is not None:
                return _moved(request, route) or answer
        endpoint = self.nodes.endpoint(name)
        if moved := _moved(request, route):
            return moved
        if request.method not in READS:
            raise ApiError("MethodNotAllowed", "the endpoint of a node supports only GET")
        target = f"{path}?{query}" if query else path
        relay = self.nodes.relay()
        return Proxied(ask=lambda: relay.ask(endpoint, target))

    def _object(self, plural: str, name: str, namespace: str) -> JsonObject | None:
        kind = self.resources.kinds.get("", "v1", plural)
        try:
            return (
                None
                if kind is None
                else self.resources.context.own.live(kind, namespace, name).value
            )
        except ApiError:
            return None

    # --- asking -----------------------------------------------------------------------------

    def _ask(
        self, request: HttpRequest, route: Route, pod: JsonObject, scheme: str, port: int
    ) -> Answer:
        if moved := _moved(request, route):
            return moved
        address = f"{status_of(pod).get('podIP')}:{port}"
        if not 0 < port < 1 << 16:
            raise _unreached(f"dial tcp: address {port}: invalid port")
        prefix = _prefix(request, route)
        sent = _request(request, _path(request, route), prefix)

        async def ask() -> HttpResponse | ByteStream:
            # On the server's loop, where connections to ports live.
            opened = self.nodes.port_of(pod, port, CHANNELS)
            return await self._asked(request, opened, (scheme, address, prefix), sent)

        return Proxied(ask=ask)

    async def _asked(
        self,
        request: HttpRequest,
        opened: Answer | ApiError,
        where: tuple[str, str, str],
        sent: bytes,
    ) -> HttpResponse | ByteStream:
        from dralab.apiserver.http.connections.port_wire import NotReached, PortWire, exchange

        scheme, address, prefix = where
        if len(self._open) >= MOST:
            raise ApiError(
                "TooManyRequests",
                f"{MOST} requests through proxies are open",
                details={"retryAfterSeconds": 1},
            )
        try:
            upgrade = await opened.ask() if isinstance(opened, Proxied) else opened
        except ApiError as error:
            upgrade = error
        if not isinstance(upgrade, Upgrade):
            return _refused(upgrade, address)
        place = object()
        self._open.add(place)
        wire = PortWire(upgrade, address)
        try:
            if scheme == "https":
                await wire.secure()
            answer = await exchange(
                wire,
                sent,
                bodiless=request.method == "HEAD",
                prefix=prefix,
                ended=lambda: self._open.discard(place),
            )
        except NotReached as error:
            wire.close()
            self._open.discard(place)
            return refused(_unreached(str(error)))
        return replace(answer, headers=[*answer.headers, *SAFE])


def _named(route: Route, what: str) -> tuple[str, str, str]:
    """Return scheme, name and port of NAME, NAME:PORT or SCHEME:NAME:PORT. ApiError."""
    parts = route.name.split(":")
    if len(parts) < 3:
        parts = ["", *parts, ""][:3]
    if len(parts) > 3 or parts[0] not in SCHEMES or not parts[1]:
        raise _invalid(route, what)
    scheme, name, port = parts
    return scheme, name, port


def _invalid(route: Route, what: str) -> ApiError:
    return ApiError.bad_request(f'invalid {what} request "{route.name}"')


def _no_endpoints(name: str) -> ApiError:
    return ApiError("ServiceUnavailable", f'no endpoints available for service "{name}"')


def _unreached(why: str) -> ApiError:
    return ApiError("ServiceUnavailable", f"error trying to reach service: {why}")


def _refused(why: object, address: str) -> HttpResponse:
    """Return the answer where no process listens, with the node's reason as a warning."""
    error = _unreached(f"dial tcp {address}: connect: connection refused")
    if not isinstance(why, ApiError):
        return refused(error)
    text = why.message.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return refused(error, ("warning", f'299 - "{text}"'))


def _moved(request: HttpRequest, route: Route) -> HttpResponse | None:
    """Return the redirect to the root's own path: links of its page are relative to that."""
    if route.rest or request.path.endswith("/") or request.method not in READS:
        return None
    query = f"?{request.query}" if request.query else ""
    location = quote(f"{request.path}/", safe="/:%") + query
    return HttpResponse(
        status=HTTPStatus.MOVED_PERMANENTLY, headers=(NO_CACHE, ("Location", location))
    )


def _path(request: HttpRequest, route: Route) -> str:
    """Return the path behind the proxy, as a request line has it."""
    if not route.rest:
        return "/"
    found = quote("/" + posixpath.normpath(route.rest), safe="/:@!$&'()*+,;=-._~")
    return f"{found}/" if request.path.endswith("/") else found


def _prefix(request: HttpRequest, route: Route) -> str:
    """Return the path of the proxy itself, which ends with its name."""
    depth = 8 if route.namespace else 6  # /api/v1/namespaces/NS/pods/POD/proxy
    return quote("/".join(request.path.split("/")[:depth]), safe="/:")


def _request(request: HttpRequest, path: str, prefix: str) -> bytes:
    """Return the bytes of a request for a pod. ApiError: a header has a line break."""
    headers = request.headers
    query = f"?{request.query}" if request.query else ""
    forwarded = ", ".join(filter(None, [headers.get("x-forwarded-for", ""), request.peer]))
    lines = [
        f"{request.method} {path}{query} HTTP/1.1",
        f"Host: {headers.get('host', '')}",
        "Connection: close",
        f"X-Forwarded-For: {forwarded}",
        f"X-Forwarded-Uri: {prefix}{path}",
        *(
            f"{name}: {value}"
            for name, value in headers.items()
            if name not in KEPT_BACK and not name.startswith(IMPERSONATED)
        ),
    ]
    if request.body or request.method not in READS:
        lines.append(f"Content-Length: {len(request.body)}")
    if any("\r" in line or "\n" in line for line in lines):
        raise ApiError.bad_request("a header or the path has a line break")
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + request.body
