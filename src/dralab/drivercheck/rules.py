"""How checks end, and what they need of a driver's target."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NoReturn, TypeVar, cast


class CheckNeed(StrEnum):
    """What a check needs of a driver's target."""

    RESTART = "restart"  # the bench starts, stops and kills it
    INSTANCES = "instances"  # two of them at once, told apart by a pod UID
    API = "api"  # the bench's own API server, which logs requests and injects faults
    USAGE = "usage"  # the memory and descriptors of its process
    BOOT_ID = "boot-id"  # it sees another boot id than the machine's
    CLOCK = "clock"  # it sees another time than the machine's
    CDI_PLACE = "cdi-place"  # the bench can take its CDI directory away: it is not mounted
    PREVIOUS = "previous"  # an older version of the driver
    HEALTH_HOOK = "health-hook"  # a command that makes a device unhealthy


class CheckFailed(Exception):  # noqa: N818 - an answer about the driver, not an error of ours
    """The driver breaks the rule; the text says what it did and what would be right."""


class NotApplicable(Exception):  # noqa: N818 - an answer about the driver, not an error of ours
    """The rule says nothing about this driver; the text says why."""


def require(condition: object, text: str) -> None:
    """Require that a condition holds. CheckFailed: it does not."""
    if not condition:
        raise CheckFailed(text)


def fail(text: str) -> NoReturn:
    """End a check: the driver breaks its rule. CheckFailed."""
    raise CheckFailed(text)


T = TypeVar("T")


class Shared:
    """Findings that several checks share, each computed once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, object] = {}

    def once(self, key: str, find: Callable[[], T]) -> T:
        """Return the finding of a key; the first caller computes it, others wait."""
        with self._lock:
            if key not in self._found:
                self._found[key] = find()
            return cast("T", self._found[key])


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckLimits:
    """The kubelet's timeouts if it has one, else what a cluster tolerates."""

    ready: float = 30.0  # a started driver serves its sockets and publishes its devices
    stop: float = 30.0  # terminationGracePeriodSeconds of a pod
    info: float = 1.0  # kubelet: GetInfo
    notify: float = 5.0  # kubelet: NotifyRegistrationStatus
    call: float = 45.0  # kubelet: NodePrepareResources, NodeUnprepareResources
    first_report: float = 5.0  # health is Unknown until the first report
    stale: float = 30.0  # kubelet: a report is too old
    # The Go library repairs 30 s after an event, or 60 s after it has created a slice.
    repair: float = 90.0
    remembered: float = 60.0  # the Go library does not look again at what it wrote
    settle: float = 5.0  # slices are written one after the other: how long a pool is incomplete
    quiet: float = 2.0  # without a reason to write, nothing is written for so long
    reports: int = 10  # health reports a second without a change: more is a flood
    crash_points: int = 10
    claims: int = 1_000
    load: float = 60.0  # the load ends then, however many claims are done
    memory: int = 48  # MiB by which a process may grow over all claims
    descriptors: int = 8  # by which a process may grow over all claims
    threads: int = 16  # by which a process may grow over all claims
    slow: float = 1.0  # how long a slow API server takes for each answer
    down: float = 1.0  # how long the API server is gone
