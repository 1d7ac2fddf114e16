"""Karpenter: batches of pods, and every ten seconds nodes to consolidate.

What it decides is in `capacity.autoscaling.karpenter`.
"""

from typing import Final

from dralab.capacity.autoscaling.karpenter import Disruption, disruptions, provision
from dralab.capacity.autoscaling.pools import NodePool, add_node, homeless
from dralab.kernel.clock import SECOND
from dralab.kernel.events import LOOKING, Event
from dralab.scheduling.model import ClusterModel
from dralab.simulation.engines.autoscaling.loop import Autoscaler
from dralab.simulation.engines.autoscaling.machines import Machine, Machines
from dralab.simulation.scenario.pools import KarpenterRules

PERIOD: Final = 10 * SECOND
# Between a decision to disrupt nodes and a second look at it, which must agree.
VALIDATION: Final = 15 * SECOND
TAINT: Final = "karpenter.sh/disrupted"


class Karpenter(Autoscaler):
    """The loops of Karpenter; `machines` are what it acts on."""

    def __init__(self, machines: Machines, rules: KarpenterRules, begin: int) -> None:
        self.rules = rules
        machines.taint = TAINT
        self._batch: Event | None = None
        self._batch_since = 0
        # When a pod last came to each node, or left it.
        self._touched: dict[str, int] = {}
        # What was decided and is looked at once more, and when.
        self._decided: tuple[Disruption, int] | None = None
        # The nodes that go when a machine is ready.
        self._replaced_by: dict[str, tuple[str, ...]] = {}
        # The pods that wait for a node, as far as they are known.
        self._refused: set[str] = set()
        super().__init__(
            machines, begin=begin, period=PERIOD, provision_timeout=rules.provision_timeout
        )

    # --- more nodes ---------------------------------------------------------------------------

    def pod_moved(self, node: str) -> None:
        """Note when; a node is left alone for a while after that."""
        self._touched[node] = self.events.now()
        self.look()

    def pod_refused(self, uid: str) -> None:
        """Provision for a pod, and for others that come with it."""
        if uid not in self._refused:
            self._refused.add(uid)
            self._collect()
        self.look()

    def _collect(self) -> None:
        """Provision once no pod has come for a moment, or after the longest time for a batch."""
        now = self.events.now()
        if self._batch is None or self._batch.cancelled:
            self._batch_since = now
        else:
            self._batch.cancel()
        due = min(now + self.rules.batch_idle, self._batch_since + self.rules.batch_max)
        self._batch = self.events.at(due, self._end_batch, priority=LOOKING)

    def _end_batch(self) -> None:
        with self.looking() as model:
            self._provision(model)

    def _provision(self, model: ClusterModel) -> None:
        pods = [pod for pod in model.waiting if self.host.is_unschedulable(pod)]
        with model.tentatively():
            for machine in self.machines.to_come:
                add_node(model, self.machines.pools[machine.pool], machine.name)
            left = homeless(model, pods)
            found = provision(model, self._rooms(), left) if left else []
        for each in found:
            self.machines.ask(each.pool.name, each.count)
        if found:
            self.look()

    def _rooms(self) -> dict[NodePool, int]:
        return {pool: self.room(name) for name, pool in self.machines.pools.items()}

    # --- fewer nodes --------------------------------------------------------------------------

    def failed(self, machine: Machine) -> None:
        """Give up what it was to replace, and provision for the pods that wait for it."""
        self._replaced_by.pop(machine.name, None)
        self._collect()

    def changed(self) -> None:
        """Let the nodes go whose replacement is ready."""
        there = self.there()
        for name in [name for name in self._replaced_by if name in there]:
            for gone in self._replaced_by.pop(name):
                if gone in there:
                    self.machines.drain(there.pop(gone), "replaced")
        self.look()

    def act(self, model: ClusterModel) -> None:
        """Ask for what is still missing; decide on the next disruption, or look at it again."""
        now = self.events.now()
        if self._batch is None or self._batch.cancelled:
            self._provision(model)
        if self._decided is not None:
            decided, due = self._decided
            if due > now:
                self.look(due)
                return
            self._decided = None
            if self._next_disruption(model) == decided:
                self._disrupt(decided)
                self.look(now + 1)
                return
        found = self._next_disruption(model)
        if found is not None:
            self._decided = found, now + VALIDATION
            self.look(now + VALIDATION)

    def _next_disruption(self, model: ClusterModel) -> Disruption | None:
        """Return what could go now, as the budget allows."""
        if not self.rules.consolidates:
            return None
        now, there = self.events.now(), self.there()
        busy = {name for names in self._replaced_by.values() for name in names}
        nodes = {}
        sizes = {name: len(self.machines.of(name)) for name in self.machines.pools}
        for name, machine in there.items():
            quiet = (
                max(self._touched.get(name, 0), machine.ready or 0) + self.rules.consolidate_after
            )
            pool = self.machines.pools[machine.pool]
            if name in busy or sizes[pool.name] <= pool.least:
                continue
            if quiet > now:
                self.look(quiet)
                continue
            sizes[pool.name] -= 1
            nodes[name] = pool
        disrupted = len(busy) + len(self.machines.drained)
        allowed = self.rules.allowed(len(self.machines.here)) - disrupted
        pools = self._rooms()
        with model.tentatively():
            for machine in self.machines.to_come:
                add_node(model, self.machines.pools[machine.pool], machine.name)
            # Nodes for pods that wait are for the provisioner.
            homeless(model, model.waiting)
            return disruptions(
                model, nodes, pools, allowed=max(0, allowed), only_empty=self.rules.only_empty
            )

    def _disrupt(self, decided: Disruption) -> None:
        there = self.there()
        if decided.replacement is None:
            for name in decided.nodes:
                self.machines.drain(there[name], "unneeded")
            return
        (machine,) = self.machines.ask(decided.replacement.name, 1)
        self._replaced_by[machine.name] = decided.nodes
