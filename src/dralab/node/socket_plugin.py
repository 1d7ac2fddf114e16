"""The connection to a driver behind a Unix socket: its calls, and the health that it reports.

Source of texts and deadlines: kubelet 1.36, `pkg/kubelet/cm/dra/plugin`. Needs the extra
`dralab[grpc]`.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dralab.contracts import wire
from dralab.contracts.plugin import (
    ClaimRef,
    DeviceHealth,
    PluginError,
    PrepareResult,
    readable,
)
from dralab.kernel.clock import SECOND, Clock
from dralab.node.plugins import RemotePlugin

# In seconds, as gRPC has them.
DIAL: Final = 10.0
CALL: Final = 45.0
HEALTH_AGAIN: Final = 5.0
CLOSES_AFTER: Final = 0.5
HEALTH_TIMEOUT: Final = 30
HEALTH_PAUSE: Final = 0.05
CHANNEL: Final = (
    # Go's servers refuse the escaped path that would stand here otherwise.
    ("grpc.default_authority", "localhost"),
    ("grpc.enable_http_proxy", 0),
    # A driver without calls for half an hour is still connected.
    ("grpc.client_idle_timeout_ms", 2**31 - 1),
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class SocketPlugin(RemotePlugin):
    """A driver at the other end of a socket. Calls wait: make them beside the events."""

    def __init__(
        self, driver: str, endpoint: str, version: wire.PluginVersion, clock: Clock
    ) -> None:
        self.name = driver
        self.endpoint = endpoint
        self.version = version
        self.connected = False
        # Told, from any thread, when the connection or the health of a device has changed.
        self.on_connection: Callable[[bool], None] = lambda _connected: None
        self.on_health: Callable[[], None] = lambda: None
        # Told of each call: its method, its status as Go names it, its duration in nanoseconds.
        self.on_call: Callable[[str, str, int], None] = lambda _method, _status, _duration: None
        self._clock = clock
        self._health: dict[tuple[str, str], tuple[int, DeviceHealth]] = {}
        self._closed = threading.Event()
        self._asked = threading.Event()  # gRPC's thread has asked for the state once
        self._stream: Any = None
        self._opened = False
        self._idle = False
        self._channel = wire.grpc().insecure_channel(wire.address(endpoint), options=CHANNEL)

    @property
    def driver(self) -> str:
        """The driver's name."""
        return self.name

    def open(self) -> None:
        """Connect, and begin to listen for health."""
        self._opened = True
        self._channel.subscribe(self._connection, try_to_connect=True)
        threading.Thread(target=self._listen, name=f"health-{self.name}", daemon=True).start()

    def knock(self) -> None:
        """Reconnect, if the driver was gone and gRPC does not retry by itself."""
        if self._idle and not self._closed.is_set():
            self._idle = False
            self._asked.clear()
            self._channel.unsubscribe(self._connection)
            self._channel.subscribe(self._connection, try_to_connect=True)

    def close(self) -> None:
        """End the connection."""
        self._closed.set()
        if self._opened:
            # gRPC's thread fails where the channel is closed before its first question.
            self._asked.wait(DIAL)
        self._channel.unsubscribe(self._connection)
        if self._stream is not None:
            self._stream.cancel()
        # gRPC's thread looks at the channel once more before it sees, every 0.2 s, that it is not
        # needed any longer; it would fail where the channel is closed by then.
        closing = threading.Timer(CLOSES_AFTER, self._channel.close)
        closing.daemon = True
        closing.start()

    def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareResult]:
        """Prepare claims. PluginError: no answer within 45 s."""
        found = self.version.prepared_of(self._call("Prepare", claims))
        return {
            uid: replace(one, error=readable(one.error)) if one.error else one
            for uid, one in found.items()
        }

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        """Unprepare claims. PluginError: no answer within 45 s."""
        found = wire.unprepared_of(self._call("Unprepare", claims))
        return {uid: readable(error) for uid, error in found.items()}

    def health(self) -> Sequence[DeviceHealth]:
        """Return the reported health; unknown if the report is too old."""
        return [self._believed(when, one) for when, one in list(self._health.values())]

    def health_of(self, pool: str, device: str) -> DeviceHealth:
        """Return the reported health of a device; unknown without a recent report."""
        found = self._health.get((pool, device))
        if found is None:
            return DeviceHealth(pool=pool, device=device, health="Unknown")
        return self._believed(*found)

    def _believed(self, when: int, one: DeviceHealth) -> DeviceHealth:
        timeout = one.timeout if one.timeout > 0 else HEALTH_TIMEOUT
        late = self._clock.now() - when > timeout * SECOND
        return replace(one, health="Unknown", message="") if late else one

    def _call(self, verb: str, claims: Sequence[ClaimRef]) -> Any:
        kind, name = f"Node{verb}ResourcesResponse", f"/{self.version.service}/Node{verb}Resources"
        method = self._channel.unary_unary(
            name,
            request_serializer=written,
            response_deserializer=getattr(self.version.messages, kind).FromString,
        )
        begun, status = self._clock.now(), "OK"
        try:
            return method(self.version.request(verb, claims), timeout=CALL)
        except (wire.grpc().RpcError, ValueError) as error:
            status = status_of(error)
            raise PluginError(text_of(error)) from error
        finally:
            self.on_call(name, status, self._clock.now() - begun)

    def _connection(self, state: Any) -> None:
        states = wire.grpc().ChannelConnectivity
        self._idle = state is states.IDLE
        self._asked.set()
        connected = state is states.READY
        if connected != self.connected and not self._closed.is_set():
            self.connected = connected
            self.on_connection(connected)

    def _listen(self) -> None:
        # The kubelet (1.36) ignores the versions that the driver names and tries the newest first.
        grpc = wire.grpc()
        messages = wire.health()
        services = list(wire.HEALTH_SERVICES)
        while not self._closed.is_set():
            method = self._channel.unary_stream(
                f"/{services[0]}/NodeWatchResources",
                request_serializer=written,
                response_deserializer=messages.NodeWatchResourcesResponse.FromString,
            )
            try:
                self._stream = method(messages.NodeWatchResourcesRequest())
                for report in self._stream:
                    begun = self._clock.now()
                    self._reported(wire.health_of(report))
                    # A flood is read slowly: gRPC holds back what is not read yet.
                    took = (self._clock.now() - begun) / SECOND
                    self._closed.wait(max(HEALTH_PAUSE, 4 * took))
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED and len(services) > 1:
                    del services[0]
                    continue
            except ValueError:
                pass  # the channel is closed
            if self._health:
                self._health = {}
                if not self._closed.is_set():
                    self.on_health()
            self._closed.wait(HEALTH_AGAIN)

    def _reported(self, devices: Sequence[DeviceHealth]) -> None:
        now, before = self._clock.now(), self._health
        self._health = {(one.pool, one.device): (now, one) for one in devices}
        if {key: one for key, (_, one) in before.items()} != {
            key: one for key, (_, one) in self._health.items()
        }:
            self.on_health()


def written(message: Any) -> bytes:
    """Return a message as bytes."""
    data: bytes = message.SerializeToString()
    return data


def text_of(error: Any) -> str:
    """Return an error of gRPC as Go prints it."""
    if not hasattr(error, "code"):
        return str(error)
    return f"rpc error: code = {status_of(error)} desc = {readable(str(error.details()))}"


def status_of(error: Any) -> str:
    """Return the status of an error of gRPC as Go names it."""
    if not hasattr(error, "code"):
        return "Unknown"
    name: str = error.code().name
    # Go spells this one with one l.
    return "Canceled" if name == "CANCELLED" else "".join(map(str.title, name.split("_")))
