"""The parts of a node that the life cycle of a pod needs."""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from dralab.contracts.cdi_cache import CdiCache
from dralab.kernel.clock import Clock
from dralab.node.admission import PodAdmission
from dralab.node.claims import ClaimsOfNode
from dralab.node.container_runs import RunningContainer
from dralab.node.containers import ContainerRuntime, ContainerStart
from dralab.node.network.sandbox import PodNetwork, Sandbox
from dralab.node.resolv_conf import ClusterDns
from dralab.runtime.client import Client
from dralab.runtime.events import EventRecorder
from dralab.values.json_types import JsonDict, JsonObject

T = TypeVar("T")


class ContainerHooks(Protocol):
    """What a runtime tells NRI plugins about containers: `nri.hooks`."""

    def create(
        self, pod: JsonDict, each: RunningContainer, start: ContainerStart
    ) -> ContainerStart:
        """Return how a container is to start. ImageNotReady, ContainerStartError, CdiError."""
        ...

    def started(self, pod: JsonDict, each: RunningContainer) -> None:
        """Note that a container runs."""
        ...

    def ended(self, pod: JsonDict, each: RunningContainer) -> None:
        """Note that a container has ended."""
        ...

    def pod_stopped(self, pod: JsonDict) -> bool:
        """Note that nothing of a pod runs any more; False: ask again."""
        ...

    def removed(self, pod_uid: str) -> None:
        """Note that a pod is gone."""
        ...


class NodeContext(Protocol):
    """What a pod needs of its node."""

    name: str
    ip: str
    client: Client
    claims: ClaimsOfNode
    cdi: CdiCache
    runtime: ContainerRuntime
    recorder: EventRecorder
    admission: PodAdmission
    # Plugins that are asked about containers; None if the node has no socket for them.
    hooks: "ContainerHooks | None"
    # Where pods have networks of their own; None: they share the machine's.
    network: "PodNetwork | None"
    # Whom pods ask for names; None: the machine's servers.
    dns: "ClusterDns | None"

    @property
    def clock(self) -> Clock:
        """The node's time."""
        ...

    def amounts(self) -> JsonObject:
        """Return what the node has for pods."""
        ...

    def beside(self, pod: JsonDict) -> Iterable[JsonObject]:
        """Return the specifications of the other pods here, with what they are allocated."""
        ...

    def links(self, pod: JsonDict) -> dict[str, str]:
        """Return the Service variables of a pod's containers."""
        ...

    def wake(self, pod: JsonDict) -> None:
        """Queue a pod."""
        ...

    def wake_after(self, pod: JsonDict, delay: int) -> None:
        """Queue a pod in `delay` nanoseconds."""
        ...

    def sandbox_of(self, pod: JsonDict, ip: str) -> Sandbox:
        """Return a pod's sandbox; `ip` is the address it had. SandboxError."""
        ...

    def forget_sandbox(self, uid: str) -> None:
        """Note that a pod has ended: its address may be given to another."""
        ...

    def offload(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """Run work that takes real time beside the events, then `done` as one of them."""
        ...

    def later(self, delay: int, action: Callable[[], None]) -> None:
        """Do something in `delay` nanoseconds."""
        ...
