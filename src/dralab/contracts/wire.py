"""The contract of kubelet and driver in gRPC: services, messages, versions.

grpcio is not needed until a socket is opened; the error of `grpc()` says how to install it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dralab.contracts.plugin import ClaimRef, DeviceHealth, Health, PreparedDevice, PrepareResult
from dralab.kernel.extras import MissingExtraError
from dralab.values.records import dataclass

# The short names by which drivers say what they speak, and the gRPC services behind them.
PLUGIN_SERVICES: Final[Mapping[str, str]] = {
    "v1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
    "v1beta1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin",
}
# How drivers for Kubernetes up to 1.30 announce themselves (`old_wire`).
OLD: Final = "1.0.0"
# Both names of each are the same, and so are the messages; v1 is there as of 1.37.
HEALTH_SERVICES: Final = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
REGISTRATION_SERVICE: Final = "pluginregistration.Registration"
PLUGIN_TYPE: Final = "DRAPlugin"
# A path longer than this cannot be the address of a Unix socket (Linux: 108 with the final zero).
LONGEST_PATH: Final = 107
LONGEST_MESSAGE: Final = 1024
_HEALTH: Final[Mapping[int, Health]] = {0: "Unknown", 1: "Healthy", 2: "Unhealthy"}


class SocketError(Exception):
    """A socket that cannot be served or dialled; the message says why, and what would help."""


def grpc() -> Any:
    """Return the module grpcio brings. MissingExtraError."""
    try:
        import grpc
        from google.protobuf import message  # noqa: F401 - the extra brings both
    except ImportError as error:
        raise MissingExtraError("a socket of drivers", "grpc") from error
    return grpc


def address(path: str) -> str:
    """Return the address of a Unix socket. SocketError: the path is too long to be one."""
    if len(path.encode()) > LONGEST_PATH:
        raise SocketError(
            f"{path}: a Unix socket path may have at most {LONGEST_PATH} bytes, but this one has "
            f"{len(path.encode())}: choose a shorter directory"
        )
    return f"unix:{path}"


@dataclass(frozen=True, slots=True)
class PluginVersion:
    """One version of the plugin service: its messages, read and written."""

    name: str
    messages: Any

    @property
    def service(self) -> str:
        """The gRPC service."""
        return PLUGIN_SERVICES[self.name]

    def request(self, verb: str, claims: Sequence[ClaimRef]) -> Any:
        """Return a request about claims; `verb` is Prepare or Unprepare."""
        claim = self.messages.Claim
        kind = getattr(self.messages, f"Node{verb}ResourcesRequest")
        return kind(claims=[claim(namespace=r.namespace, uid=r.uid, name=r.name) for r in claims])

    def prepare_response(self, answers: Mapping[str, PrepareResult]) -> Any:
        """Return what a driver answers; versions before v1 do not know shares."""
        m = self.messages
        shares = "share_id" in m.Device.DESCRIPTOR.fields_by_name
        found = m.NodePrepareResourcesResponse()
        for uid, answer in answers.items():
            # Named so that a claim without devices is answered too.
            entry = found.claims[uid]
            entry.error = answer.error
            for one in answer.devices:
                device = entry.devices.add(
                    request_names=one.requests,
                    pool_name=one.pool,
                    device_name=one.device,
                    cdi_device_ids=one.cdi_ids,
                )
                if one.share_id and shares:
                    device.share_id = one.share_id
        return found

    def unprepare_response(self, answers: Mapping[str, str]) -> Any:
        """Return what a driver answers."""
        found = self.messages.NodeUnprepareResourcesResponse()
        for uid, error in answers.items():
            found.claims[uid].error = error
        return found

    def claims_of(self, request: Any) -> list[ClaimRef]:
        """Return the claims that a request is about."""
        return [ClaimRef(claim.namespace, claim.name, claim.uid) for claim in request.claims]

    def prepared_of(self, response: Any) -> dict[str, PrepareResult]:
        """Return a driver's answer, by claim UID."""
        return {
            uid: PrepareResult(
                error=answer.error,
                devices=tuple(
                    PreparedDevice(
                        requests=tuple(device.request_names),
                        pool=device.pool_name,
                        device=device.device_name,
                        cdi_ids=tuple(device.cdi_device_ids),
                        share_id=getattr(device, "share_id", ""),
                    )
                    for device in answer.devices
                ),
            )
            for uid, answer in sorted(response.claims.items())
        }


def version(name: str) -> PluginVersion:
    """Return a version by its short name. KeyError: it does not exist."""
    if name not in PLUGIN_SERVICES:
        raise KeyError(name)
    if name == "v1.DRAPlugin":
        from dralab.contracts._generated import dra_v1_pb2

        return PluginVersion(name, dra_v1_pb2)
    from dralab.contracts._generated import dra_v1beta1_pb2

    return PluginVersion(name, dra_v1beta1_pb2)


def registration() -> Any:
    """Return the messages of registration."""
    from dralab.contracts._generated import registration_pb2

    return registration_pb2


def health() -> Any:
    """Return the messages of health."""
    from dralab.contracts._generated import health_v1alpha1_pb2

    return health_v1alpha1_pb2


def pod_resources() -> Any:
    """Return the messages of the pod-resources socket."""
    from dralab.contracts._generated import podresources_v1_pb2

    return podresources_v1_pb2


def ttrpc() -> Any:
    """Return the messages of ttrpc."""
    from dralab.contracts._generated import ttrpc_pb2

    return ttrpc_pb2


def nri() -> Any:
    """Return the messages of the Node Resource Interface."""
    from dralab.contracts._generated import nri_v1alpha1_pb2

    return nri_v1alpha1_pb2


def unprepared_of(response: Any) -> dict[str, str]:
    """Return the error texts of a driver's answer, by claim UID."""
    return {uid: answer.error for uid, answer in sorted(response.claims.items())}


def health_of(response: Any) -> list[DeviceHealth]:
    """Return what a driver reports of its devices' health."""
    return [
        DeviceHealth(
            pool=one.device.pool_name,
            device=one.device.device_name,
            health=_HEALTH.get(one.health, "Unknown"),
            message=_shortened(one.message),
            timeout=one.health_check_timeout_seconds,
        )
        for one in response.devices
    ]


def _shortened(message: str) -> str:
    """Return a message as the kubelet keeps it: 1024 characters at most."""
    return message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - 3] + "..."


def health_response(devices: Sequence[DeviceHealth], seconds: int) -> Any:
    """Return a report of health, made `seconds` after the epoch."""
    numbers = {text: number for number, text in _HEALTH.items()}
    found = health().NodeWatchResourcesResponse()
    for one in devices:
        entry = found.devices.add(
            health=numbers[one.health],
            last_updated_time=seconds,
            health_check_timeout_seconds=one.timeout,
            message=one.message[:LONGEST_MESSAGE],
        )
        entry.device.pool_name = one.pool
        entry.device.device_name = one.device
    return found
