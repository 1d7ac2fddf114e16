"""The kubelet's side of a driver's sockets, call by call, every call in the transcript.

It is more lenient than a kubelet: a driver that breaks one rule of registration can still be tried
for the others. Which rules a kubelet enforces is written in the checks.
"""

import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dralab.contracts import wire
from dralab.contracts.plugin import ClaimRef, DeviceHealth, PluginError, PrepareResult
from dralab.drivercheck.rules import CheckLimits
from dralab.drivercheck.transcript import Transcript, short
from dralab.node.socket_plugin import CHANNEL, text_of, written

UNIMPLEMENTED: Final = "UNIMPLEMENTED"


class DriverCallError(PluginError):
    """A call failed; `code` is gRPC's name of the status, such as UNAVAILABLE."""

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """A driver's answer at registration."""

    socket: Path
    type: str
    name: str
    endpoint: str
    versions: tuple[str, ...]
    place: str = ""  # of the endpoint on this machine, if the driver has a mount namespace

    @property
    def address(self) -> str:
        """The path of the service's socket; an empty endpoint stands for the registration's."""
        path = self.place or self.endpoint.removeprefix("unix://")
        return os.path.normpath(path) if path else str(self.socket)

    @property
    def plugin_versions(self) -> list[str]:
        """The versions of the plugin service that are offered and known, in the driver's order."""
        return [name for name in self.versions if name in wire.PLUGIN_SERVICES]


def sockets_in(directory: Path) -> list[Path]:
    """Return the Unix sockets below a directory, hidden ones too, sorted."""
    found = []
    for path in sorted(directory.rglob("*")):
        try:
            if stat.S_ISSOCK(path.lstat().st_mode):
                found.append(path)
        except OSError:
            continue  # gone by now
    return found


def is_served(path: str | Path) -> bool:
    """Return whether a process listens at a socket: a killed one leaves the file behind."""
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1.0)
            probe.connect(str(path))
    except OSError:
        return False
    return True


class DriverConnection:
    """One connection to a socket of the driver."""

    def __init__(
        self,
        path: str,
        transcript: Transcript,
        limits: CheckLimits,
        here: Callable[[str], str] = str,
    ) -> None:
        self.here = here  # where a path that the driver names is on this machine
        self.path = path
        self.transcript = transcript
        self.limits = limits
        # A channel of its own: gRPC shares connections between channels of equal options.
        options = (*CHANNEL, ("grpc.use_local_subchannel_pool", 1))
        self._channel = wire.grpc().insecure_channel(wire.address(path), options=options)

    def close(self) -> None:
        """End the connection and what is under way on it."""
        self._channel.close()

    # --- registration -------------------------------------------------------------------------

    def info(self, patience: float | None = None) -> PluginInfo:
        """Call GetInfo. DriverCallError."""
        messages = wire.registration()
        answer = self.call(
            f"/{wire.REGISTRATION_SERVICE}/GetInfo",
            messages.InfoRequest(),
            messages.PluginInfo,
            self.limits.info if patience is None else patience,
        )
        versions = tuple(answer.supported_versions)
        there = answer.endpoint.removeprefix("unix://")
        here = self.here(there)
        return PluginInfo(
            Path(self.path),
            answer.type,
            answer.name,
            answer.endpoint,
            versions,
            here if here != there else "",
        )

    def notify(self, *, registered: bool, error: str = "") -> None:
        """Tell the driver whether it is registered. DriverCallError."""
        messages = wire.registration()
        self.call(
            f"/{wire.REGISTRATION_SERVICE}/NotifyRegistrationStatus",
            messages.RegistrationStatus(plugin_registered=registered, error=error),
            messages.RegistrationStatusResponse,
            self.limits.notify,
        )

    # --- claims -------------------------------------------------------------------------------

    def prepare(
        self, version: str, refs: Sequence[ClaimRef], patience: float | None = None
    ) -> dict[str, PrepareResult]:
        """Prepare claims. DriverCallError: the call as a whole failed."""
        found = wire.version(version)
        response = self._claims_call(found, "Prepare", refs, patience)
        return found.prepared_of(response)

    def unprepare(
        self, version: str, refs: Sequence[ClaimRef], patience: float | None = None
    ) -> dict[str, str]:
        """Unprepare claims. DriverCallError: the call as a whole failed."""
        found = wire.version(version)
        return wire.unprepared_of(self._claims_call(found, "Unprepare", refs, patience))

    def start_call(self, version: str, verb: str, refs: Sequence[ClaimRef]) -> Any:
        """Send a call and return gRPC's future, so that the call can be broken off.

        `verb` is Prepare or Unprepare.
        """
        found = wire.version(version)
        method = self._method(
            f"/{found.service}/Node{verb}Resources",
            getattr(found.messages, f"Node{verb}ResourcesResponse"),
        )
        names = ", ".join(ref.name for ref in refs)
        self.transcript.add("gRPC", f"Node{verb}Resources {names} sent")
        return method.future(found.request(verb, refs), timeout=self.limits.call)

    def _claims_call(
        self, version: wire.PluginVersion, verb: str, refs: Sequence[ClaimRef], patience: Any
    ) -> Any:
        return self.call(
            f"/{version.service}/Node{verb}Resources",
            version.request(verb, refs),
            getattr(version.messages, f"Node{verb}ResourcesResponse"),
            self.limits.call if patience is None else patience,
        )

    # --- health -------------------------------------------------------------------------------

    @contextmanager
    def watch_health(self, service: str) -> Iterator["HealthStream"]:
        """Open the stream of a health service; it ends with the block."""
        messages = wire.health()
        method = self._channel.unary_stream(
            f"/{service}/NodeWatchResources",
            request_serializer=written,
            response_deserializer=messages.NodeWatchResourcesResponse.FromString,
        )
        self.transcript.add("gRPC", f"/{service}/NodeWatchResources opened")
        stream = HealthStream(method(messages.NodeWatchResourcesRequest()), self.transcript)
        try:
            yield stream
        finally:
            stream.close()

    # --- any call -----------------------------------------------------------------------------

    def call(self, path: str, request: Any, answer: Any, patience: float) -> Any:
        """Call a method and return its answer, a message of the type `answer`. DriverCallError."""
        name = path.rpartition("/")[2]
        try:
            found = self._method(path, answer)(request, timeout=patience, wait_for_ready=False)
        except wire.grpc().RpcError as error:
            text = text_of(error)
            self.transcript.add("gRPC", f"{name} {short(_shown(request))} → {text}")
            raise DriverCallError(text, error.code().name) from error
        self.transcript.add("gRPC", f"{name} {short(_shown(request))} → {short(_shown(found))}")
        return found

    def raw(self, path: str, body: bytes, patience: float) -> str:
        """Send bytes as a request; return the name of the status that came back."""
        method = self._channel.unary_unary(path)
        try:
            method(body, timeout=patience)
        except wire.grpc().RpcError as error:
            self.transcript.add("gRPC", f"{path} {body!r} → {text_of(error)}")
            return str(error.code().name)
        self.transcript.add("gRPC", f"{path} {body!r} → OK")
        return "OK"

    def _method(self, path: str, answer: Any) -> Any:
        return self._channel.unary_unary(
            path, request_serializer=written, response_deserializer=answer.FromString
        )


class HealthStream:
    """The reports of one health stream, each with the moment at which it came."""

    def __init__(self, stream: Any, transcript: Transcript) -> None:
        self.reports: list[tuple[int, Any]] = []
        self.error: DriverCallError | None = None
        self.ended = threading.Event()
        self._stream, self._transcript = stream, transcript
        self._thread = threading.Thread(target=self._read, name="health-reports", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Cancel the stream."""
        self._stream.cancel()
        self._thread.join(5.0)

    def devices(self, at: int = -1) -> list[DeviceHealth]:
        """Return what a report says."""
        return wire.health_of(self.reports[at][1])

    def _read(self) -> None:
        try:
            for report in self._stream:
                self._transcript.add("gRPC", f"NodeWatchResources ← {short(_shown(report))}")
                self.reports.append((self._transcript.clock.now(), report))
        except wire.grpc().RpcError as error:
            if error.code() is not wire.grpc().StatusCode.CANCELLED:
                self.error = DriverCallError(text_of(error), error.code().name)
                self._transcript.add("gRPC", f"NodeWatchResources ended: {self.error}")
        finally:
            self.ended.set()


def _shown(message: Any) -> Mapping[str, Any]:
    from google.protobuf.json_format import MessageToDict

    found: Mapping[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
    return found
