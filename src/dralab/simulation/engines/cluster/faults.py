"""Faults of a simulated cluster, and their repair."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from dralab.api.status import ignoring
from dralab.components.simulated import SimulatedCluster
from dralab.kernel.events import ENDING
from dralab.runtime.client import amend
from dralab.runtime.resources import NODES, TAINT_RULES
from dralab.simulation.engines.cluster.nodes import SimulatedNodes
from dralab.simulation.lifecycle.agenda import Agenda
from dralab.simulation.lifecycle.model import Fault, RandomFaults, Stream
from dralab.simulation.lifecycle.outages import NodeFaults
from dralab.values.json_types import JsonDict


class FaultInjector:
    """Plans faults on the engine of a cluster. `lost` is called for nodes that go down."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        nodes: SimulatedNodes,
        lost: Callable[[str], None],
        *,
        at_random: RandomFaults | None,
        stream: Stream,
    ) -> None:
        self.cluster = cluster
        self.nodes = nodes
        self.lost = lost
        self.of_nodes = NodeFaults(
            Agenda(cluster.engine.events),
            lose=self._lose,
            restore=nodes.restore,
            at_random=at_random,
            stream=stream,
        )
        self._to_come = 0
        self._rules = 0

    @property
    def to_come(self) -> int:
        """The number of faults that still have to begin or end."""
        return self._to_come + self.of_nodes.to_come

    def plan(self, faults: Iterable[Fault], nodes: Mapping[str, int], begin: int) -> None:
        """Schedule all faults; random ones, by GPUs of nodes, do not keep a run from ending."""
        for fault in faults:
            if fault.is_outage:
                self.of_nodes.plan([fault], begin)
            else:
                self._at(begin + fault.at, partial(self._happen, fault))
        self.of_nodes.plan_random(nodes)

    def _at(self, when: int, action: Callable[[], None]) -> None:
        self._to_come += 1

        def run() -> None:
            self._to_come -= 1
            action()

        self.cluster.engine.at(when, run, priority=ENDING)

    def _happen(self, fault: Fault) -> None:
        mend = self._begin(fault)
        if fault.duration is not None:
            self._at(self.cluster.now + fault.duration, mend)

    def _begin(self, fault: Fault) -> Callable[[], None]:
        """Begin a fault; return the function that ends it."""
        if fault.happens is not None:
            happens = fault.happens
            plugins = partial(self.nodes.plugins_of, fault.node, fault.driver)
            for plugin in plugins():
                plugin.begin_fault(happens)

            def mend() -> None:
                for plugin in plugins():
                    plugin.end_fault(happens)

            return mend
        if fault.taint is not None and (fault.device or not fault.node):
            return self._taint_devices(fault)
        return self._taint_node(fault)

    # --- nodes --------------------------------------------------------------------------------

    def _lose(self, name: str) -> None:
        self.nodes.lose(name)
        self.lost(name)

    def _taint_node(self, fault: Fault) -> Callable[[], None]:
        taint = taint_of(fault)

        def change(latest: JsonDict, *, add: bool) -> bool:
            spec = latest.setdefault("spec", {})
            others = [
                item
                for item in spec.get("taints") or ()
                if (item["key"], item["effect"]) != (taint["key"], taint["effect"])
            ]
            spec["taints"] = [*others, taint] if add else others
            return True

        def write(*, add: bool) -> None:
            node = self.cluster.client.get(NODES, fault.node)
            amend(self.cluster.client, NODES, node, partial(change, add=add))

        write(add=True)
        return partial(write, add=False)

    # --- devices ------------------------------------------------------------------------------

    def _taint_devices(self, fault: Fault) -> Callable[[], None]:
        self._rules += 1
        name = f"fault-{self._rules}"
        self.cluster.client.create(TAINT_RULES, rule_of(fault, name))

        def mend() -> None:
            with ignoring("NotFound"):
                self.cluster.client.delete(TAINT_RULES, name)

        return mend


def rule_of(fault: Fault, name: str) -> JsonDict:
    """Return the rule that taints the devices of a fault."""
    parts = {"driver": fault.driver, "pool": fault.node, "device": fault.device}
    selector = {key: value for key, value in parts.items() if value}
    return {
        "metadata": {"name": name},
        "spec": {"deviceSelector": selector, "taint": taint_of(fault)},
    }


def taint_of(fault: Fault) -> dict[str, str]:
    """Return the taint of a fault."""
    key, value, effect = fault.taint or ("", "", "")
    return {"key": key, "value": value, "effect": effect}
