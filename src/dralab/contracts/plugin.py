"""A kubelet's calls to a driver, as data: the same in this process and over a socket."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

LONGEST_TEXT: Final = 1024
Health = Literal["Healthy", "Unhealthy", "Unknown"]


@dataclass(frozen=True, slots=True, order=True)
class ClaimRef:
    """The claim that a call is about; the object itself may be gone by then."""

    namespace: str
    name: str
    uid: str
    # What the claim's allocation says to this driver, as resource.k8s.io/v1alpha2 has it: only
    # kubelets up to Kubernetes 1.30 tell.
    handle: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedDevice:
    """A device that is ready, with the CDI ids by which containers get it.

    `requests` are base names (no `/alternative`); none of them means every request of the claim.
    """

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_ids: tuple[str, ...]
    share_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareResult:
    """The answer for one claim: its devices, or an error."""

    devices: tuple[PreparedDevice, ...] = ()
    error: str = ""

    @property
    def cdi_ids(self) -> frozenset[str]:
        """The CDI ids of all devices."""
        return frozenset(name for device in self.devices for name in device.cdi_ids)


class PluginError(Exception):
    """The whole call failed: no answer, or not in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHealth:
    """A driver's last report about a device; `timeout` in seconds, 0 for the kubelet's default."""

    pool: str
    device: str
    health: Health
    message: str = ""
    timeout: int = field(default=0)


class Plugin(Protocol):
    """A driver's part on one node."""

    @property
    def driver(self) -> str:
        """The driver's name."""
        ...

    def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareResult]:
        """Prepare the devices of claims; idempotent. Results by claim UID.

        PluginError: the call as a whole failed.
        """
        ...

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        """Unprepare devices; an error text by claim UID, empty on success.

        A claim that was not prepared is not an error. PluginError: the call as a whole failed.
        """
        ...

    def health(self) -> Sequence[DeviceHealth]:
        """Return the known health of devices; empty if the driver does not report it."""
        ...


def readable(text: str, limit: int = LONGEST_TEXT) -> str:
    r"""Return what a driver wrote, printable and of at most `limit` characters.

    >>> readable("two\nlines, \x1b[31mred")
    'two lines, ?[31mred'
    """
    printable = "".join(
        each if each.isprintable() else " " if each.isspace() else "?" for each in text[: limit + 1]
    )
    return printable if len(text) <= limit else f"{printable[:limit]}..."
