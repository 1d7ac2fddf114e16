"""cluster-autoscaler: it looks every ten seconds, and asks for machines.

What it decides is in `capacity.autoscaling.cluster_autoscaler`.
"""

from collections.abc import Collection, Sequence
from typing import Final

from dralab.capacity.autoscaling.cluster_autoscaler import best, expansions, unneeded
from dralab.capacity.autoscaling.pools import Expansion, add_node, homeless
from dralab.kernel.clock import SECOND
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pods import PodInfo
from dralab.simulation.engines.autoscaling.loop import Autoscaler
from dralab.simulation.engines.autoscaling.machines import Machine, Machines
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


class ClusterAutoscaler(Autoscaler):
    """The loop of cluster-autoscaler; `machines` are what it acts on."""

    def __init__(
        self, machines: Machines, rules: ClusterAutoscalerRules, stream: Stream, begin: int
    ) -> None:
        self.rules = rules
        self.chance = stream("expander")
        self._added = begin - rules.delay_after_add
        # Since when each node is unneeded, and until when it is taken to be needed.
        self._since: dict[str, int] = {}
        self._needed: dict[str, int] = {}
        # Until when a pool is left alone, and how long that was.
        self._backoff: dict[str, tuple[int, int]] = {}
        super().__init__(
            machines, begin=begin, period=rules.scan, provision_timeout=rules.provision_timeout
        )

    def act(self, model: ClusterModel) -> None:
        """Ask for nodes; where none are missing, let others go."""
        if not self._scale_up(model):
            self._scale_down(model)

    def failed(self, machine: Machine) -> None:
        """Leave the pool alone for a while."""
        now = self.events.now()
        until, length = self._backoff.get(machine.pool, (0, 0))
        if until <= now:
            length = min(2 * length, BACKOFF[1]) if length else BACKOFF[0]
            self._backoff[machine.pool] = now + length, length

    def left_alone(self, pool: str) -> int:
        """Return until when a pool is left alone after a failure."""
        return self._backoff.get(pool, (0, 0))[0]

    @property
    def candidates(self) -> Collection[str]:
        """The nodes that are unneeded, by name."""
        return self._since.keys()

    # --- more nodes ---------------------------------------------------------------------------

    def _scale_up(self, model: ClusterModel) -> bool:
        """Ask for the nodes that pods wait for; return whether no node should go now."""
        now, self.waits = self.events.now(), False
        for pool in self.machines.pools.values():
            missing = pool.least - len(self.machines.of(pool.name))
            if missing > 0:
                self._ask(pool.name, missing)
        pods = [
            pod
            for pod in model.waiting
            if self.host.is_unschedulable(pod) and pod.priority >= LEAST_PRIORITY
        ]
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
                self.machines.observer.not_helped(model, left)
                return False
        self._ask(option.pool.name, option.count, option.pods)
        return True

    def _best(self, model: ClusterModel, pods: Sequence[PodInfo]) -> Expansion | None:
        now = self.events.now()
        rooms = {}
        for pool in self.machines.pools.values():
            until, room = self.left_alone(pool.name), self.room(pool.name)
            if until > now and room > 0:
                self.waits = True
                self.look(until)
            elif room > 0:
                rooms[pool] = room
        options = expansions(model, rooms, pods)
        return best(options, self.rules.expander, self.chance.choice)

    def _ask(self, pool: str, count: int, pods: Sequence[PodInfo] = ()) -> None:
        self.machines.ask(pool, count, pods)
        self._added = self.events.now()
        self.look()

    # --- fewer nodes --------------------------------------------------------------------------

    def _scale_down(self, model: ClusterModel) -> None:
        """Let the nodes go that have been unneeded for long enough."""
        now = self.events.now()
        there = self.there()
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
