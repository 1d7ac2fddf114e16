"""Karpenter: batches of pods, and every ten seconds nodes to consolidate.

What it decides is in `capacity.autoscaling.karpenter`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from dralab.capacity.autoscaling.karpenter import (
    Allowed,
    Disruption,
    disruptions,
    leave,
    provision,
)
from dralab.capacity.autoscaling.node_pools import DRIFTED, REASONS, NodePoolRules
from dralab.capacity.autoscaling.pools import NodePool, add_node, homeless
from dralab.capacity.changes import Cordon
from dralab.kernel.clock import SECOND
from dralab.kernel.events import LOOKING, SCALING, Event
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pods import PodInfo
from dralab.simulation.engines.autoscaling.loop import Autoscaler
from dralab.simulation.engines.autoscaling.machines import Machine, Machines
from dralab.simulation.scenario.pools import KarpenterRules

PERIOD: Final = 10 * SECOND
# Between a decision to disrupt nodes and a second look at it, which must agree.
VALIDATION: Final = 15 * SECOND
TAINT: Final = "karpenter.sh/disrupted"
EXPIRED: Final = "Expired"


@dataclass(frozen=True, slots=True)
class _Replacement:
    """Nodes that go for a reason when these machines are ready."""

    nodes: tuple[str, ...]
    reason: str
    machines: frozenset[str]


class Karpenter(Autoscaler):
    """The loops of Karpenter; `machines` are what it acts on."""

    def __init__(self, machines: Machines, rules: KarpenterRules, begin: int) -> None:
        self.rules = rules
        self.node_pools = {each.name: each for each in rules.node_pools}
        machines.taint = TAINT
        self._batch: Event | None = None
        self._batch_since = 0
        # When a pod last came to each node, or left it.
        self._touched: dict[str, int] = {}
        # What was decided and is looked at once more, and when.
        self._decided: tuple[Disruption, int] | None = None
        self._replacements: list[_Replacement] = []
        # The machines that are not as their NodePool wants them, the first ones first.
        self._drifted: list[str] = []
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
            left = homeless(model, (*self._leave(model), *pods))
            limits = self._remaining()
            found = provision(model, self._rooms(), left, limits) if left else []
            helped = {pod.uid for each in found for pod in each.pods}
            if others := [pod for pod in left if pod.uid not in helped]:
                self.machines.observer.not_helped(model, others)
        for each in found:
            self._ask(each.pool.name, each.count, each.pods)
        if found:
            self.look()

    def _ask(self, pool: str, count: int, pods: Sequence[PodInfo] = ()) -> list[Machine]:
        """Ask for machines, which go when their NodePool lets them expire."""
        asked = self.machines.ask(pool, count, pods)
        for machine in asked:
            self.adopted(machine)
        return asked

    def adopted(self, machine: Machine) -> None:
        """Let a machine go when its NodePool lets it expire."""
        after = self.node_pools[self.machines.pools[machine.pool].group].expire_after
        if after is not None:
            due = max(machine.asked + after, self.events.now())
            self.events.at(due, partial(self._expire, machine), priority=SCALING)

    def set_node_pools(self, node_pools: Sequence[NodePoolRules]) -> None:
        """Obey these NodePools; of one that is not among them, only nodes stay."""
        groups = {pool.group for pool in self.machines.pools.values()}
        left = {name: rules for name, rules in self.node_pools.items() if name in groups}
        self.node_pools = left | {each.name: each for each in node_pools}
        self._decided = None

    def set_drifted(self, names: Iterable[str]) -> None:
        """Let these machines have drifted, and no others: they are replaced as budgets allow."""
        drifted = set(names)
        known = [name for name in self._drifted if name in drifted]
        self._drifted = known + sorted(drifted.difference(known))
        self.look()

    # --- what is known of a machine -----------------------------------------------------------

    def touched(self, machine: Machine) -> int:
        """Return when a pod last came to a machine or left it; 0: never."""
        return self._touched.get(machine.name, 0)

    def quiet_from(self, machine: Machine) -> int | None:
        """Return from when on a machine that is ready may be given up; None: never."""
        rules = self.node_pools[self.machines.pools[machine.pool].group]
        if not rules.consolidates:
            return None
        return max(self.touched(machine), machine.ready or 0) + rules.consolidate_after

    def is_going(self, machine: Machine) -> bool:
        """Return whether a machine goes, now or when others are ready."""
        return machine.leaving or machine.name in self._busy

    def disrupted_for(self, machine: Machine) -> str:
        """Return the reason for which a machine is being disrupted; empty: it is not."""
        waiting = (each.reason for each in self._replacements if machine.name in each.nodes)
        reason = machine.reason if machine.leaving else next(waiting, "")
        return reason if reason in REASONS else ""

    def _expire(self, machine: Machine) -> None:
        if machine.name in self.machines.here and not machine.leaving:
            self.machines.drain(machine, EXPIRED)

    def _remaining(self) -> dict[str, dict[str, int]]:
        """Return what is left of the limits of NodePools."""
        found = {
            name: dict(rules.limits) for name, rules in self.node_pools.items() if rules.limits
        }
        busy = self._busy
        for each in self.machines.here.values():
            pool = self.machines.pools[each.pool]
            for resource in found.get(pool.group, ()):
                if not each.leaving and each.name not in busy:
                    found[pool.group][resource] -= pool.amounts.get(resource, 0)
        return found

    def _rooms(self) -> dict[NodePool, int]:
        return {pool: self.room(name) for name, pool in self.machines.pools.items()}

    # --- fewer nodes --------------------------------------------------------------------------

    def failed(self, machine: Machine) -> None:
        """Provision for the pods that wait for it."""
        del machine
        self._collect()

    def changed(self) -> None:
        """Let the nodes go whose replacements are ready; those stay that lose one."""
        there, here = self.there(), self.machines.here
        for each in list(self._replacements):
            if each.machines <= there.keys():
                self._replacements.remove(each)
                for name in each.nodes:
                    if name in there:
                        self.machines.drain(there[name], each.reason)
            elif any(name not in here or here[name].leaving for name in each.machines):
                self._replacements.remove(each)
                for name in each.nodes:
                    if name in there:
                        self.machines.cordon(there[name], on=False)
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
        while found is not None and found.reason == DRIFTED:
            self._disrupt(found)
            found = self._next_disruption(model)
        if found is not None:
            self._decided = found, now + VALIDATION
            self.look(now + VALIDATION)

    def _next_disruption(self, model: ClusterModel) -> Disruption | None:
        """Return what could go now, as the budgets allow."""
        now, there = self.events.now(), self.there()
        nodes = {}
        sizes = {name: len(self.machines.of(name)) for name in self.machines.pools}
        for name, machine in there.items():
            pool = self.machines.pools[machine.pool]
            quiet = self.quiet_from(machine)
            if name in self._busy or sizes[pool.name] <= pool.least or quiet is None:
                continue
            if quiet > now:
                self.look(quiet)
                continue
            sizes[pool.name] -= 1
            nodes[name] = pool
        drifted = {
            name: self.machines.pools[there[name].pool]
            for name in self._drifted
            if name in there and name not in self._busy
        }
        if not nodes and not drifted:
            return None
        pools, limits = self._rooms(), self._remaining()
        only_empty = {name for name, rules in self.node_pools.items() if rules.only_empty}
        changes = [rules.changes_at(now) for rules in self.node_pools.values()]
        scheduled = min((each for each in changes if each is not None), default=None)
        with model.tentatively():
            unready = [each.name for each in self.machines.to_come]
            for machine in self.machines.to_come:
                add_node(model, self.machines.pools[machine.pool], machine.name)
            # Nodes for pods that wait are for the provisioner.
            homeless(model, (*self._leave(model), *model.waiting))
            for name in unready:
                Cordon(name).apply(model)

            def next_of(allowed: Allowed) -> Disruption | None:
                return disruptions(
                    model,
                    nodes,
                    pools,
                    allowed,
                    drifted=drifted,
                    unready=unready,
                    only_empty=only_empty,
                    remaining=limits,
                )

            found = next_of(self._allowed)
            if found is None and scheduled is not None and next_of(lambda *_: len(there)):
                self.look(scheduled)
        return found

    @property
    def _busy(self) -> set[str]:
        """The nodes that go when others are ready."""
        return {name for each in self._replacements for name in each.nodes}

    def _leave(self, model: ClusterModel) -> list[PodInfo]:
        """Take the nodes that go out of a model; return their pods, which need other places."""
        going = {each.name for each in self.machines.drained} | self._busy
        return leave(model, sorted(going & model.state.table.row_of.keys()))

    def _allowed(self, reason: str, group: str) -> int:
        """Return how many more nodes of a NodePool may go now, by the number of ready ones."""
        ready = [
            each
            for each in self.machines.here.values()
            if each.ready is not None and self.machines.pools[each.pool].group == group
        ]
        busy = self._busy
        disrupted = sum(each.leaving or each.name in busy for each in ready)
        rules = self.node_pools[group]
        return max(0, rules.allowed(len(ready), self.events.now(), reason) - disrupted)

    def _disrupt(self, decided: Disruption) -> None:
        """Let nodes go, or keep new pods from them until others have come."""
        there = self.there()
        going = [there[name] for name in decided.nodes]
        if not decided.replacements:
            for machine in going:
                self.machines.drain(machine, decided.reason)
            return
        for machine in going:
            self.machines.cordon(machine, on=True)
        asked = [self._ask(pool.name, 1)[0].name for pool in decided.replacements]
        self._replacements.append(_Replacement(decided.nodes, decided.reason, frozenset(asked)))
