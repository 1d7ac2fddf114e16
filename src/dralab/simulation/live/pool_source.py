"""Where the pools of an autoscaler come from: objects of the cluster."""

from collections.abc import Callable, Sequence
from typing import Protocol

from dralab.simulation.engines.autoscaling.loop import Autoscaler
from dralab.simulation.engines.autoscaling.machines import Machines, ScalingObserver
from dralab.simulation.scenario.pools import ScenarioPool
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFinding:
    """Something about an object that describes pools: a mistake, or what is not acted on."""

    about: JsonDict
    kind: str
    api_version: str
    message: str
    is_error: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPools:
    """The pools that objects describe; None: those from before stay."""

    pools: Sequence[ScenarioPool] | None
    findings: Sequence[PoolFinding] = ()


class PoolSource(Protocol):
    """Objects that describe pools, and the autoscaler that acts on them."""

    # The component that events are from.
    component: str

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` when an object that describes pools has changed."""
        ...

    def read(self) -> FoundPools:
        """Return the pools that there are now."""
        ...

    def autoscaler(self, machines: Machines, begin: int) -> Autoscaler:
        """Return the autoscaler, before there are pools."""
        ...

    def obey(self, autoscaler: Autoscaler) -> None:
        """Let the autoscaler know of the rules of the pools that were just read."""
        ...

    def dressed(self, node: JsonDict, pool: str) -> JsonDict:
        """Return a new node of a pool as the autoscaler's provider makes it."""
        ...

    def observer(self) -> ScalingObserver:
        """Return who writes the events of the autoscaler."""
        ...
