"""The plugin services over gRPC on unix sockets, for both sides. Needs the extra `[grpc]`.

Names and field numbers: kubelet 1.36 (`pluginregistration`, `dra/v1`, `dra/v1beta1`,
`dra-health/v1alpha1`). What the calls mean is in `plugin`.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from dralab.contracts._generated import (
    dra_v1_pb2,
    dra_v1beta1_pb2,
    health_v1alpha1_pb2,
    registration_pb2,
)
from dralab.contracts.plugin import (
    ClaimRef,
    DeviceHealth,
    Health,
    Plugin,
    PluginError,
    Prepared,
    PreparedDevice,
)

TYPE: Final = "DRAPlugin"
HEALTH: Final = "v1alpha1.DRAResourceHealth"
# What a plugin advertises → the service behind it and its messages, in the order of preference.
SERVICES: Final[Mapping[str, tuple[str, Any]]] = {
    "v1.DRAPlugin": ("k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin", dra_v1_pb2),
    "v1beta1.DRAPlugin": ("k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin", dra_v1beta1_pb2),
}
REGISTRATION: Final = "pluginregistration.Registration"
PREPARE_DEADLINE: Final = 45.0  # seconds, as of the kubelet
INFO_DEADLINE: Final = 1.0
NOTIFY_DEADLINE: Final = 5.0
DIAL_DEADLINE: Final = 10.0
LONGEST_PATH: Final = 107  # bytes of a unix socket's path
HEALTHS: Final[Sequence[Health]] = ("Unknown", "Healthy", "Unhealthy")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginInfo:
    """What a plugin says of itself when its socket is found."""

    type: str
    name: str
    endpoint: str
    versions: tuple[str, ...]


def _unary(  # noqa: PLR0917 - the coordinates of a call
    channel: Any, service: str, method: str, request: Any, answer: Any, deadline: float
) -> Any:
    call = channel.unary_unary(
        f"/{service}/{method}",
        request_serializer=type(request).SerializeToString,
        response_deserializer=answer.FromString,
    )
    try:
        return call(request, timeout=deadline)
    except grpc.RpcError as error:
        code, details = error.code(), error.details()
        name = "".join(word.capitalize() for word in code.name.split("_"))
        raise PluginError(f"rpc error: code = {name} desc = {details}") from error


# --- the kubelet's side ---------------------------------------------------------------------------


class RemotePlugin:
    """A driver behind a socket, as the kubelet calls it."""

    def __init__(self, driver: str, endpoint: str, version: str) -> None:
        self._driver = driver
        self.endpoint = endpoint
        self.version = version
        self._service, self._messages = SERVICES[version]
        self._channel = grpc.insecure_channel(f"unix:{endpoint}")
        self._healths: dict[tuple[str, str], DeviceHealth] = {}

    @property
    def driver(self) -> str:
        """The driver's name."""
        return self._driver

    def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, Prepared]:
        """Send NodePrepareResources."""
        messages = self._messages
        request = messages.NodePrepareResourcesRequest(claims=[self._claim(ref) for ref in claims])
        answer = _unary(
            self._channel,
            self._service,
            "NodePrepareResources",
            request,
            messages.NodePrepareResourcesResponse,
            PREPARE_DEADLINE,
        )
        return {
            uid: Prepared(
                devices=tuple(
                    PreparedDevice(
                        requests=tuple(device.request_names),
                        pool=device.pool_name,
                        device=device.device_name,
                        cdi_ids=tuple(device.cdi_device_ids),
                        share_id=getattr(device, "share_id", ""),
                    )
                    for device in one.devices
                ),
                error=one.error,
            )
            for uid, one in sorted(answer.claims.items())
        }

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        """Send NodeUnprepareResources."""
        messages = self._messages
        request = messages.NodeUnprepareResourcesRequest(
            claims=[self._claim(ref) for ref in claims]
        )
        answer = _unary(
            self._channel,
            self._service,
            "NodeUnprepareResources",
            request,
            messages.NodeUnprepareResourcesResponse,
            PREPARE_DEADLINE,
        )
        return {uid: one.error for uid, one in sorted(answer.claims.items())}

    def health(self) -> Sequence[DeviceHealth]:
        """Return what the stream of `watch_health` last said."""
        return [health for _, health in sorted(self._healths.items())]

    def watch_health(self, told: Callable[[], None]) -> None:
        """Follow the plugin's health stream until it ends; `told` after each message."""
        call = self._channel.unary_stream(
            f"/{HEALTH}/NodeWatchResources",
            request_serializer=health_v1alpha1_pb2.NodeWatchResourcesRequest.SerializeToString,
            response_deserializer=health_v1alpha1_pb2.NodeWatchResourcesResponse.FromString,
        )
        try:
            for message in call(health_v1alpha1_pb2.NodeWatchResourcesRequest()):
                for one in message.devices:
                    found = DeviceHealth(
                        pool=one.device.pool_name,
                        device=one.device.device_name,
                        health=HEALTHS[one.health] if one.health < len(HEALTHS) else "Unknown",
                        message=one.message[:1024],
                        timeout=one.health_check_timeout_seconds,
                    )
                    self._healths[found.pool, found.device] = found
                told()
        except grpc.RpcError:
            pass  # Most plugins have no such stream.
        self._healths.clear()

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def _claim(self, ref: ClaimRef) -> Any:
        return self._messages.Claim(namespace=ref.namespace, uid=ref.uid, name=ref.name)


def info_of(socket: Path) -> PluginInfo:
    """Ask a registration socket who is there. PluginError."""
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        answer = _unary(
            channel,
            REGISTRATION,
            "GetInfo",
            registration_pb2.InfoRequest(),
            registration_pb2.PluginInfo,
            INFO_DEADLINE,
        )
    return PluginInfo(
        type=answer.type,
        name=answer.name,
        endpoint=answer.endpoint or str(socket),
        versions=tuple(answer.supported_versions),
    )


def notify(socket: Path, *, registered: bool, error: str = "") -> None:
    """Tell a plugin whether it is registered. PluginError."""
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        _unary(
            channel,
            REGISTRATION,
            "NotifyRegistrationStatus",
            registration_pb2.RegistrationStatus(plugin_registered=registered, error=error),
            registration_pb2.RegistrationStatusResponse,
            NOTIFY_DEADLINE,
        )


def chosen_version(info: PluginInfo) -> str:
    """Return the first advertised version that is known here. ValueError: why there is none."""
    about = (
        f"invalid supported gRPC versions of DRA driver plugin {info.name} "
        f"at endpoint {info.endpoint}: "
    )
    if not info.versions:
        raise ValueError(about + "empty list of supported gRPC services (aka supported versions)")
    for version in info.versions:
        if version in SERVICES:
            return version
    raise ValueError(
        f"{about}none of services supported by the plugin ({', '.join(info.versions)}) are "
        f"supported by the kubelet ({', '.join(SERVICES)})"
    )


# --- the driver's side ----------------------------------------------------------------------------


class PluginServer:
    """Serves a plugin on its two sockets: first the endpoint, then the registration.

    `registered` is called with what the kubelet says. Sockets that an earlier process left are
    removed. ValueError: a path is too long for a socket.
    """

    def __init__(
        self,
        plugin: Plugin,
        *,
        endpoint: Path,
        registration: Path,
        versions: Sequence[str] = tuple(SERVICES),
        registered: Callable[[bool, str], None] = lambda _registered, _error: None,
        health_every: float = 5.0,
    ) -> None:
        for path in (endpoint, registration):
            if len(str(path).encode()) > LONGEST_PATH:
                raise ValueError(
                    f"{path} is too long for a socket: at most {LONGEST_PATH} bytes are possible"
                )
        self.plugin = plugin
        self.endpoint = endpoint
        self.registration = registration
        self.versions = tuple(versions)
        self.registered = registered
        self._health_every = health_every
        self._stopping = False
        self._servers: list[Any] = []

    def start(self) -> None:
        """Begin to serve."""
        self._listen(self.endpoint, self._services())
        self._listen(self.registration, [self._registration()])

    def stop(self) -> None:
        """End, and remove both sockets."""
        self._stopping = True
        for server in reversed(self._servers):
            server.stop(grace=1.0).wait(2.0)
        self._servers.clear()
        self.registration.unlink(missing_ok=True)
        self.endpoint.unlink(missing_ok=True)

    def _listen(self, path: Path, handlers: Sequence[Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        server = grpc.server(ThreadPoolExecutor(4, thread_name_prefix="plugin"))
        server.add_generic_rpc_handlers(tuple(handlers))
        server.add_insecure_port(f"unix:{path}")
        server.start()
        self._servers.append(server)

    def _services(self) -> list[Any]:
        found = [
            grpc.method_handlers_generic_handler(
                SERVICES[version][0],
                {
                    "NodePrepareResources": grpc.unary_unary_rpc_method_handler(
                        self._prepare(SERVICES[version][1]),
                        SERVICES[version][1].NodePrepareResourcesRequest.FromString,
                        SERVICES[version][1].NodePrepareResourcesResponse.SerializeToString,
                    ),
                    "NodeUnprepareResources": grpc.unary_unary_rpc_method_handler(
                        self._unprepare(SERVICES[version][1]),
                        SERVICES[version][1].NodeUnprepareResourcesRequest.FromString,
                        SERVICES[version][1].NodeUnprepareResourcesResponse.SerializeToString,
                    ),
                },
            )
            for version in self.versions
            if version in SERVICES
        ]
        stream = grpc.unary_stream_rpc_method_handler(
            self._health,
            health_v1alpha1_pb2.NodeWatchResourcesRequest.FromString,
            health_v1alpha1_pb2.NodeWatchResourcesResponse.SerializeToString,
        )
        if self.plugin.health():
            found.append(
                grpc.method_handlers_generic_handler(HEALTH, {"NodeWatchResources": stream})
            )
        return found

    def _registration(self) -> Any:
        def info(_request: Any, _context: Any) -> Any:
            return registration_pb2.PluginInfo(
                type=TYPE,
                name=self.plugin.driver,
                endpoint=str(self.endpoint),
                supported_versions=list(self.versions),
            )

        def told(request: Any, context: Any) -> Any:
            self.registered(request.plugin_registered, request.error)
            if not request.plugin_registered:
                context.abort(
                    grpc.StatusCode.UNKNOWN, f"failed registration process: {request.error}"
                )
            return registration_pb2.RegistrationStatusResponse()

        return grpc.method_handlers_generic_handler(
            REGISTRATION,
            {
                "GetInfo": grpc.unary_unary_rpc_method_handler(
                    info,
                    registration_pb2.InfoRequest.FromString,
                    registration_pb2.PluginInfo.SerializeToString,
                ),
                "NotifyRegistrationStatus": grpc.unary_unary_rpc_method_handler(
                    told,
                    registration_pb2.RegistrationStatus.FromString,
                    registration_pb2.RegistrationStatusResponse.SerializeToString,
                ),
            },
        )

    def _prepare(self, messages: Any) -> Callable[[Any, Any], Any]:
        def call(request: Any, context: Any) -> Any:
            refs = [ClaimRef(one.namespace, one.name, one.uid) for one in request.claims]
            try:
                answers = self.plugin.prepare(refs)
            except PluginError as error:
                context.abort(grpc.StatusCode.UNKNOWN, str(error))
                raise
            found = messages.NodePrepareResourcesResponse()
            for uid, one in answers.items():
                entry = found.claims[uid]
                entry.error = one.error
                for device in one.devices:
                    added = entry.devices.add(
                        request_names=device.requests,
                        pool_name=device.pool,
                        device_name=device.device,
                        cdi_device_ids=device.cdi_ids,
                    )
                    if device.share_id and messages is dra_v1_pb2:
                        added.share_id = device.share_id
            return found

        return call

    def _unprepare(self, messages: Any) -> Callable[[Any, Any], Any]:
        def call(request: Any, context: Any) -> Any:
            refs = [ClaimRef(one.namespace, one.name, one.uid) for one in request.claims]
            try:
                answers = self.plugin.unprepare(refs)
            except PluginError as error:
                context.abort(grpc.StatusCode.UNKNOWN, str(error))
                raise
            found = messages.NodeUnprepareResourcesResponse()
            for uid, text in answers.items():
                found.claims[uid].error = text
            return found

        return call

    def _health(self, _request: Any, context: Any) -> Iterator[Any]:
        over = threading.Event()
        context.add_callback(over.set)
        while not over.is_set() and not self._stopping:
            message = health_v1alpha1_pb2.NodeWatchResourcesResponse()
            for one in self.plugin.health():
                entry = message.devices.add(
                    health=HEALTHS.index(one.health),
                    health_check_timeout_seconds=one.timeout,
                    message=one.message,
                )
                entry.device.pool_name, entry.device.device_name = one.pool, one.device
            yield message
            over.wait(self._health_every)
