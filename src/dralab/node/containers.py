"""The seam between a pod's life and what runs its containers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dralab.contracts.cdi_cache import ContainerConfig
from dralab.node.logs import Log


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerStart:
    """All that a runtime is told of a container; `argv` is empty where the image decides."""

    namespace: str
    pod: str
    pod_uid: str
    node: str
    name: str
    image: str
    argv: Sequence[str]
    working_dir: str
    config: ContainerConfig
    annotations: Mapping[str, str]
    of_job: bool
    log: Log
    limits: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Exit:
    """How a container ended; `error` where it could not even begin."""

    code: int
    reason: str = ""
    message: str = ""


class StartError(Exception):
    """A container cannot be started; the text goes into the pod's events."""


class Container(Protocol):
    """One run of a container."""

    def stop(self, grace: float) -> None:
        """Ask it to end, and end it after `grace` seconds; `ended` is told as ever."""
        ...

    def run(self, argv: Sequence[str], output: Callable[[int, bytes], None]) -> int:
        """Run a command in it (exec, probes), output by channel 1 or 2; return its exit code.

        StartError: this runtime cannot.
        """
        ...


class ContainerRuntime(Protocol):
    """What runs containers."""

    name: str
    version: str

    def start(self, start: ContainerStart, ended: Callable[[Exit], None]) -> Container:
        """Start a container; `ended` is called once, as an event of the engine. StartError."""
        ...
