"""Where the pools of an autoscaler come from: objects of the cluster."""

from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

from dralab.simulation.engines.autoscaling.loop import Autoscaler
from dralab.simulation.engines.autoscaling.machines import Machines, ScalingObserver
from dralab.simulation.scenario.pools import ScenarioPool
from dralab.values.json_types import JsonDict
from dralab.values.names import subdomain_problems
from dralab.values.records import dataclass

# Nodes have a label with the name of their pool.
LONGEST_NAME: Final = 63


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

    # The component that events are from, and the collections that nobody else acts on.
    component: str
    acts_on: Collection[str]
    # What nodes have until they are gone; empty: nothing.
    finalizer: str

    def definitions(self) -> Sequence[JsonDict]:
        """Return the definitions of the custom resources that describe pools."""
        ...

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

    def report(self, machines: Machines) -> None:
        """Write into the objects what has become of their pools."""
        ...

    def dressed(self, node: JsonDict, pool: str) -> JsonDict:
        """Return a new node of a pool as the autoscaler's provider makes it."""
        ...

    def observer(self) -> ScalingObserver:
        """Return who writes the events of the autoscaler."""
        ...


def name_problem(pool: str) -> str:
    """Return the problem of a pool's name as a prefix of node names; empty if it has none."""
    if len(pool) > LONGEST_NAME:
        return f"it has {len(pool)} characters and may have {LONGEST_NAME}"
    return next(iter(subdomain_problems(f"{pool}-0")), "")
