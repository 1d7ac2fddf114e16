"""How a check ends, and what it needs of the way in which a driver is run."""

from enum import StrEnum
from typing import NoReturn


class CheckNeed(StrEnum):
    """What a check needs of the way in which a driver is run."""

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
