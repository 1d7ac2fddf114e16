"""cluster-autoscaler in a simulated cluster: it looks every ten seconds, and asks for machines.

What it decides is in `capacity.autoscaling.cluster_autoscaler`. Where nothing has changed since it
looked and no time has run out, it need not look.
"""

from collections.abc import Sequence
from typing import Final

from dralab.capacity.autoscaling.cluster_autoscaler import best, expansions, unneeded
from dralab.capacity.autoscaling.pools import Expansion, add_node, homeless
from dralab.components.simulated import SimulatedCluster
from dralab.kernel.clock import SECOND
from dralab.kernel.events import ENDING, Event
from dralab.objects.conditions import condition_of
from dralab.objects.metadata import metadata_of, status_of
from dralab.runtime.reading import read_cluster
from dralab.runtime.resources import NODES, PODS, SLICES
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pods import PodInfo
from dralab.simulation.engines.cluster.machines import Machine, Machines
from dralab.simulation.lifecycle.model import Stream
from dralab.simulation.scenario.pools import ClusterAutoscalerRules

# Pods that came later than this ago are left until the next look: more may come.
NEW: Final = 2 * SECOND
# Pods with a lower priority are not worth a node (--expendable-pods-priority-cutoff).
LEAST_PRIORITY: Final = -10
# After a failure a pool is left alone: at first so long, then twice as long, at most so long.
BACKOFF: Final = (300 * SECOND, 1800 * SECOND)
# A node whose pods found no other place is not looked at again so long.
RECHECK: Final = 300 * SECOND
# Of the nodes that go at once, so many may be empty, and so many have pods that must move.
AT_ONCE: Final = 10
DRAINED_AT_ONCE: Final = 1


class ClusterAutoscaler:
    """The loop of cluster-autoscaler; `machines` are what it acts on."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        machines: Machines,
        rules: ClusterAutoscalerRules,
        stream: Stream,
        begin: int,
    ) -> None:
        self.cluster = cluster
        self.machines = machines
        self.rules = rules
        self.chance = stream("expander")
        self.begin = begin
        self._next: Event | None = None
        self._added = begin - rules.delay_after_add
        # Since when each node is unneeded, and until when it is taken to be needed.
        self._since: dict[str, int] = {}
        self._needed: dict[str, int] = {}
        # Until when a pool is left alone, and how long that was.
        self._backoff: dict[str, tuple[int, int]] = {}
        # Whether pods wait for a pool that is left alone.
        self.waits = False
        for resource in (PODS, NODES, SLICES):
            cluster.manager.cache(resource).subscribe(lambda _old, _new: self.look())
        self.look()

    def look(self, when: int = 0) -> None:
        """Look at the cluster at the first turn from then on, at the latest."""
        now, scan = self.cluster.now, max(1, self.rules.scan)
        later = max(when, now + 1) - self.begin
        turn = self.begin + -(-later // scan) * scan
        if self._next is not None:
            if self._next.when <= turn and not self._next.cancelled:
                return
            self._next.cancel()
        self._next = self.cluster.engine.at(turn, self._turn, priority=ENDING)

    def _turn(self) -> None:
        self._next = None
        self._give_up_late()
        late = {each.name for each in self.machines.to_come}
        model = ClusterModel(
            item
            for item in read_cluster(self.cluster.client)
            # A node whose devices are not all there counts as one that is still to come.
            if item["kind"] != "Node" or metadata_of(item)["name"] not in late
        )
        if not self._scale_up(model):
            self._scale_down(model)

    # --- more nodes ---------------------------------------------------------------------------

    def _give_up_late(self) -> None:
        now = self.cluster.now
        for machine in self.machines.to_come:
            due = machine.asked + self.rules.provision_timeout
            if due > now:
                self.look(due)
                continue
            self.machines.give_up(machine, "never came")
            until, length = self._backoff.get(machine.pool, (0, 0))
            if until <= now:
                length = min(2 * length, BACKOFF[1]) if length else BACKOFF[0]
                self._backoff[machine.pool] = now + length, length

    def _scale_up(self, model: ClusterModel) -> bool:
        """Ask for the nodes that pods wait for; return whether no node should go now."""
        now, self.waits = self.cluster.now, False
        for pool in self.machines.pools.values():
            missing = pool.least - len(self.machines.of(pool.name))
            if missing > 0:
                self._ask(pool.name, missing)
        pods = [pod for pod in model.waiting if _is_unschedulable(pod)]
        if not pods:
            return False
        with model.tentatively():
            for machine in self.machines.to_come:
                add_node(model, self.machines.pools[machine.pool], machine.name)
            left = homeless(model, pods)
            if not left:
                return False
            if min(pod.created for pod in left) + NEW > now:
                self.look(now + 1)
                return True
            option = self._best(model, left)
        if option is None:
            return False
        self._ask(option.pool.name, option.count)
        return True

    def _best(self, model: ClusterModel, pods: Sequence[PodInfo]) -> Expansion | None:
        now = self.cluster.now
        rooms = {}
        for pool in self.machines.pools.values():
            until, _ = self._backoff.get(pool.name, (0, 0))
            room = pool.most - len(self.machines.of(pool.name))
            if until > now and room > 0:
                self.waits = True
                self.look(until)
            elif room > 0:
                rooms[pool] = room
        options = expansions(model, rooms, pods)
        return best(options, self.rules.expander, self.chance.choice)

    def _ask(self, pool: str, count: int) -> None:
        self.machines.ask(pool, count)
        self._added = self.cluster.now
        self.look()

    # --- fewer nodes --------------------------------------------------------------------------

    def _scale_down(self, model: ClusterModel) -> None:
        """Let the nodes go that have been unneeded for long enough."""
        now = self.cluster.now
        there = {each.name: each for each in self.machines.here.values() if _is_there(each)}
        passed = {name for name, until in self._needed.items() if until > now}
        found, needed = unneeded(model, there, threshold=self.rules.threshold, passed=passed)
        self._needed |= dict.fromkeys(needed, now + RECHECK)
        if needed or passed:
            self.look(min(until for name, until in self._needed.items() if until > now))
        self._since = {each.name: self._since.get(each.name, now) for each in found}
        allowed = self._added + self.rules.delay_after_add
        sizes = {name: len(self.machines.of(name)) for name in self.machines.pools}
        going = self.machines.drained
        drains = sum(each.leaving for each in going)
        for each in sorted(found, key=lambda each: bool(each.pods)):
            machine = there[each.name]
            due = max(self._since[each.name] + self.rules.unneeded, allowed)
            if sizes[machine.pool] <= self.machines.pools[machine.pool].least:
                continue
            if due > now:
                self.look(due)
                continue
            if len(going) >= AT_ONCE or (each.pods and drains >= DRAINED_AT_ONCE):
                self.look(now + 1)
                continue
            sizes[machine.pool] -= 1
            drains += bool(each.pods)
            self.machines.drain(machine, "unneeded")
            going = self.machines.drained


def _is_there(machine: Machine) -> bool:
    return machine.ready is not None and not machine.leaving


def _is_unschedulable(pod: PodInfo) -> bool:
    """Return whether the scheduler has found no place for a pod, and awaits none by preemption."""
    told = condition_of(pod.obj, "PodScheduled") or {}
    awaits = status_of(pod.obj).get("nominatedNodeName")
    return (
        told.get("status") == "False"
        and told.get("reason") == "Unschedulable"
        and not awaits
        and pod.priority >= LEAST_PRIORITY
    )
