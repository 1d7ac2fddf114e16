"""Access to a pod through its node: logs, exec, attach and port-forward.

Nodes of this process answer directly. Others are contacted at the address in their Node object,
under three conditions, so that a client that may write a Node cannot use the server as a proxy: the
operator allows the address (by default, this machine); a Secret beside the node's lease has the CA
and the token of its endpoint; and the endpoint's certificate is signed by that CA. The token is
sent only after that check.
"""

import base64
import binascii
import ipaddress
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote, urlencode

from dralab.api import fields
from dralab.api.fields import FieldError
from dralab.api.status import ApiError
from dralab.apiserver.access.users import User
from dralab.apiserver.http.connections.read_sockets import EachItem
from dralab.apiserver.http.messages import Answer, HttpRequest, HttpResponse, Proxied, Upgrade
from dralab.apiserver.http.resource_requests import Connector
from dralab.apiserver.http.routing import Route, query_of
from dralab.apiserver.verbs.server import Resources
from dralab.apiserver.verbs.state.options import Query, integer_of
from dralab.kernel.times import TimeError, from_rfc3339
from dralab.objects.metadata import status_of
from dralab.values.records import dataclass

if TYPE_CHECKING:
    from dralab.apiserver.http.proxying.relay import KubeletEndpoint, Relay

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
LOOPBACK: Final[Sequence[Network]] = (
    ipaddress.ip_network("127.0.0.0/8"),
    ipaddress.ip_network("::1/128"),
)
# The namespace of the Secrets with the CA and the token of each node's endpoint, by node name.
SECRETS_OF_NODES: Final = "kube-node-lease"
# The server's subresources and the kubelet's paths for them.
VERBS: Final[Mapping[str, str]] = {
    "log": "containerLogs",
    "exec": "exec",
    "attach": "attach",
    "portforward": "portForward",
}
# Parameters of a client of the server, and those of a client of a kubelet.
STREAMS: Final = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}
PORTS: Final = {"ports": "port"}
# What is in the name of a protocol of channels that is spelled in base64, and its channel 0.
BASE64: Final = "base64."
ZERO: Final = ord("0")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRequest:
    """A request to a pod's node: `verb` as in a kubelet's paths.

    `offered` are the protocols of a WebSocket that the client speaks, separated by commas.
    """

    verb: str
    namespace: str
    pod: str
    container: str
    query: Query
    offered: str = ""

    @property
    def target(self) -> str:
        """The path and the query of a kubelet's endpoint."""
        parts = [self.verb, self.namespace, self.pod, *filter(None, [self.container])]
        path = "/" + "/".join(quote(part, safe="") for part in parts)
        query = self.query
        if self.verb in {"exec", "attach"}:
            query = {
                STREAMS.get(name, name): ["1"] if name in STREAMS else values
                for name, values in query.items()
                if name not in STREAMS or values[0] in {"1", "true"}
            }
        named = {PORTS.get(k, k): v for k, v in query.items() if k != "container"}
        text = urlencode(named, doseq=True)
        return f"{path}?{text}" if text else path


class LocalNodes(Protocol):
    """Nodes of this process."""

    def answer(self, node: str, wanted: NodeRequest) -> Answer | None:
        """Answer for a node; None if it is not one of these. ApiError."""
        ...

    def page(self, node: str, request: HttpRequest) -> Answer | None:
        """Answer for a path of a node's kubelet; None if it is not one of these. ApiError."""
        ...


class NodeProxy:
    """Finds a pod's node: `here` are those of this process, `networks` the allowed addresses."""

    def __init__(self, resources: Resources, networks: Sequence[Network] = LOOPBACK) -> None:
        self.resources = resources
        self.networks = list(networks)
        self.here: list[LocalNodes] = []
        self._relay: Relay | None = None

    def connectors(self) -> Mapping[tuple[str, str], Connector]:
        """Return what answers the subresources of pods that lead out of the server."""
        return {("pods", name): self._answer for name in VERBS}

    def port_of(self, pod: Mapping[str, Any], port: int, protocol: str) -> Answer | ApiError:
        """Return a connection to a port of a pod, in a protocol of port-forward; or an error."""
        metadata = pod["metadata"]
        wanted = NodeRequest(
            verb=VERBS["portforward"],
            namespace=metadata["namespace"],
            pod=metadata["name"],
            container="",
            query={"ports": [str(port)]},
            offered=protocol,
        )
        try:
            return self._asked(pod["spec"].get("nodeName") or "", wanted)
        except ApiError as error:
            return error

    def _asked(self, node: str, wanted: NodeRequest) -> Answer:
        """Ask a node, in this process or elsewhere. ApiError."""
        for each in self.here:
            if (answer := each.answer(node, wanted)) is not None:
                return answer
        # Upstream names the resource of the request where there is no such node.
        endpoint, relay = self.endpoint(node, called="pods"), self.relay()
        protocols = "" if wanted.verb == VERBS["log"] else wanted.offered
        return Proxied(ask=lambda: relay.ask(endpoint, wanted.target, protocols=protocols))

    def _answer(self, request: HttpRequest, route: Route, user: User) -> Answer:
        del user
        name = route.subresource
        query = query_of(request.query)
        if name == "log":
            check_log_options(query, route.name)
        pod = self.resources.context.own.live(route.kind, route.namespace, route.name).value
        container = "" if name == "portforward" else container_of(pod, query)
        node = pod["spec"].get("nodeName")
        if not node and name == "log":
            return HttpResponse(status=204)
        if not node:
            raise ApiError.bad_request(f"pod {route.name} does not have a host assigned")
        if name == "exec" and not query.get("command"):
            raise ApiError.bad_request("you must specify at least one command for the container")
        wanted = NodeRequest(
            verb=VERBS[name],
            namespace=route.namespace,
            pod=route.name,
            container=container,
            query=query,
            offered=_offered(request, name),
        )
        return self._asked(node, wanted)

    def relay(self) -> "Relay":
        """Return what connects to nodes elsewhere."""
        if self._relay is None:
            # Read only where a node is elsewhere: most servers never open a connection.
            from dralab.apiserver.http.proxying.relay import Relay

            self._relay = Relay()
        return self._relay

    def endpoint(self, node: str, *, called: str = "nodes") -> "KubeletEndpoint":
        """Return the address and the credentials of a node's endpoint. ApiError.

        A node that is not there is `called` not found.
        """
        from dralab.apiserver.http.proxying.relay import KubeletEndpoint

        found = self._object("nodes", node)
        if found is None:
            raise ApiError.not_found(called, node)
        status = status_of(found)
        if not status.get("addresses"):
            # As upstream: an error without a reason.
            raise ApiError("", "no preferred addresses found; known addresses: []", code=500)
        daemons = status.get("daemonEndpoints") or {}
        port = (daemons.get("kubeletEndpoint") or {}).get("Port") or 0
        if not 0 < port < 1 << 16:
            raise _none(f"node {node} has no endpoint for its pods")
        host = self._address(node, status.get("addresses") or ())
        secret = self._object("secrets", node, SECRETS_OF_NODES)
        data = (secret or {}).get("data") or {}
        try:
            token, ca = (base64.b64decode(data[key]).decode("ascii") for key in ("token", "ca.crt"))
        except (KeyError, binascii.Error, UnicodeDecodeError):
            raise _none(
                f"Secret {SECRETS_OF_NODES}/{node} has no connection data for node {node}"
            ) from None
        if not token.isprintable():
            raise _none(f"Secret {SECRETS_OF_NODES}/{node}: its token is not a single line")
        return KubeletEndpoint(node=node, host=host, port=port, token=token, ca=ca)

    def _address(self, node: str, addresses: Sequence[Mapping[str, str]]) -> str:
        """Return the first address that is allowed. Names are not looked up: they may change."""
        seen = []
        for each in addresses:
            try:
                address = ipaddress.ip_address(each["address"])
            except ValueError:
                continue
            if each["type"] not in {"InternalIP", "ExternalIP"}:
                continue
            if any(address in network for network in self.networks):
                return str(address)
            seen.append(str(address))
        if not seen:
            raise _none(f"node {node} has no address")
        raise _none(
            f"node {node} is at {', '.join(seen)}, which this server may not connect to: "
            f"--node-network {seen[0]} allows it"
        )

    def _object(self, plural: str, name: str, namespace: str = "") -> Mapping[str, Any] | None:
        kind = self.resources.kinds.get("", "v1", plural)
        if kind is None:
            return None
        try:
            return self.resources.context.own.live(kind, namespace, name).value
        except ApiError:
            return None


def chosen(wanted: NodeRequest, known: Sequence[str]) -> str:
    """Return the protocol of a WebSocket that both sides speak, the best first. ApiError."""
    offered = [each.strip() for each in wanted.offered.split(",")]
    found = next((each for each in known if each in offered), "")
    if not wanted.offered:
        raise ApiError.bad_request(
            f"{wanted.verb.lower()} needs WebSockets, not SPDY: use kubectl 1.31 or later"
        )
    if not found:
        raise ApiError.bad_request(
            f"{wanted.verb.lower()} speaks {' or '.join(known)}, not {wanted.offered}"
        )
    return found


def connected(protocol: str, connect: Callable[[str], Upgrade]) -> Upgrade:
    """Return a WebSocket of channels in a protocol; `connect` makes it in a binary one.

    In base64, a message is text: the digit of its channel, and its content.
    Source: k8s.io/streaming `pkg/wsstream/conn.go` (base64Codec).
    """
    if BASE64 not in protocol:
        return connect(protocol)
    upgrade = connect(protocol.replace(BASE64, ""))

    def shown(message: bytes) -> list[bytes]:
        return [b"%c" % (message[0] + ZERO) + base64.b64encode(message[1:])]

    def receive(message: bytes) -> Awaitable[None] | None:
        if not message:
            return None
        try:
            content = base64.b64decode(message[1:], validate=True)
        except binascii.Error:
            return None  # as a real server, which tells its log alone
        return upgrade.receive(bytes([(message[0] - ZERO) % 256]) + content)

    source = EachItem(upgrade.source, shown)
    return replace(upgrade, source=source, receive=receive, protocol=protocol, text=True)


def container_of(pod: Mapping[str, Any], query: Query) -> str:
    """Return the container that a request is about. ApiError.

    Source: `validateContainer` of kube-apiserver 1.36.
    """
    names = [
        each["name"]
        for key in ("initContainers", "containers", "ephemeralContainers")
        for each in pod["spec"].get(key) or ()
    ]
    given, pod_name = query.get("container"), pod["metadata"]["name"]
    mains = pod["spec"]["containers"]
    name = given[0] if given else ""
    if not name and len(mains) == 1:
        return str(mains[0]["name"])
    if not name:
        choices = f"choose one of: [{' '.join(names)}]"
        raise ApiError.bad_request(
            f"a container name must be specified for pod {pod_name}, {choices}"
        )
    if name not in names:
        raise ApiError.bad_request(f"container {name} is not valid for pod {pod_name}")
    return name


def _offered(request: HttpRequest, name: str) -> str:
    """Return the protocols of a WebSocket; without any, kubelets assume the oldest one."""
    offered = request.headers.get("sec-websocket-protocol", "")
    if not offered and "websocket" in request.headers.get("upgrade", ""):
        return "portforward.k8s.io" if name == "portforward" else "channel.k8s.io"
    return offered


def _none(why: str) -> ApiError:
    return ApiError("InternalError", f"Internal error occurred: {why}", code=500)


TIME: Final = "2006-01-02T15:04:05Z07:00"
POSITIVE: Final = "must be greater than 0"
YEAR: Final = re.compile(r"[0-9]{4}")


def check_log_options(query: Query, pod: str) -> None:
    """Refuse options of a log that cannot be read, or make no sense. ApiError.

    Source: k8s.io/kubernetes `pkg/apis/core/validation` (ValidatePodLogOptions).
    """
    numbers = {
        name: integer_of(query[name][0])
        for name in ("tailLines", "limitBytes", "sinceSeconds")
        if query.get(name) and query[name][0]
    }
    since = query.get("sinceTime", [""])[0]
    if since:
        _check_time(since)
    errors: list[FieldError] = []
    if (lines := numbers.get("tailLines", 0)) < 0:
        why = "must be greater than or equal to 0"
        errors.append(fields.invalid_value("tailLines", lines, why))
    if (most := numbers.get("limitBytes", 1)) < 1:
        errors.append(fields.invalid_value("limitBytes", most, POSITIVE))
    if since and "sinceSeconds" in numbers:
        why = "at most one of `sinceTime` or `sinceSeconds` may be specified"
        errors.append(fields.forbidden("[]", why))
    elif (seconds := numbers.get("sinceSeconds", 1)) < 1:
        errors.append(fields.invalid_value("sinceSeconds", seconds, POSITIVE))
    if query.get("stream"):
        errors.append(fields.forbidden("stream", "may not be specified"))
    if errors:
        raise fields.invalid("PodLogOptions", pod, errors)


def _check_time(text: str) -> None:
    try:
        from_rfc3339(text)
    except TimeError:
        part = "2006" if not YEAR.match(text) else "-"
        shown = text if part == "2006" else text[4:]
        raise ApiError.bad_request(
            f'parsing time "{text}" as "{TIME}": cannot parse "{shown}" as "{part}"'
        ) from None
