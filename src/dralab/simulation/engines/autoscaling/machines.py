"""Machines of node pools: asked for, started, taken back, given up."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

from dralab.capacity.autoscaling.pools import NodePool
from dralab.drivers.driver import Driver
from dralab.kernel.clock import SECOND
from dralab.kernel.events import ENDING, SCALING, Event
from dralab.kernel.randomness import Randomness
from dralab.objects.metadata import labels_of, spec_of
from dralab.objects.taints import NO_SCHEDULE, OF_AUTOSCALER, taints_of
from dralab.scheduling.copies import renamed
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pods import PodInfo
from dralab.simulation.engines.fleet_nodes import capacity_of, driver_classes, node_spec, slices_of
from dralab.simulation.lifecycle.model import Delays, LifeCycle
from dralab.simulation.results.result import NodeSpan
from dralab.simulation.scenario.fleet import taint_text
from dralab.simulation.scenario.node_pools import CAPACITY_TYPE
from dralab.simulation.scenario.pools import POOL_LABEL, ScenarioPool
from dralab.simulation.workloads.openb import GpuNode
from dralab.values.json_types import JsonDict

# How often a node that is to go is looked at, until its pods have left.
DRAINS: Final = SECOND
# And one that has come, until it can run pods.
COMES: Final = SECOND // 4


class Timers(Protocol):
    """When things happen: in simulated time, or as the clock on the wall goes."""

    def now(self) -> int:
        """Return the time, in nanoseconds since the epoch."""
        ...

    def at(self, when: int, call: Callable[[], None], /, *, priority: int) -> Event:
        """Call `call` then."""
        ...

    def after(self, delay: int, call: Callable[[], None], /, *, priority: int) -> Event:
        """Call `call` when so much time has passed."""
        ...


class PoolHost(Protocol):
    """The nodes and pods of an engine, as far as they come and go with machines."""

    @property
    def events(self) -> Timers:
        """What calls at a time."""
        ...

    def drivers_of(self, node: GpuNode) -> Sequence[Driver]:
        """Return the drivers of a node that may come to be."""
        ...

    def labels_of(self, node: GpuNode) -> Mapping[str, str]:
        """Return the labels of a node that may come to be, beside its own."""
        ...

    def create_once(self, body: JsonDict) -> None:
        """Create an object that comes with a pool, unless it is there."""
        ...

    def join(self, node: GpuNode, objects: Sequence[JsonDict], late: int) -> None:
        """Let a node come, and its devices so long after it.

        `objects` are those of its pool's manifests: the node, and the slices that come late.
        """
        ...

    def is_ready(self, node: str) -> bool:
        """Return whether a node, whose devices are due by now, runs pods."""
        ...

    def taint(self, node: str, taint: JsonDict, *, add: bool) -> None:
        """Taint a node, or take the taint away."""
        ...

    def evict(self, node: str) -> bool:
        """Ask the pods of a node to leave; return whether there are any that have to."""
        ...

    def remove(self, node: str, slices: Sequence[str]) -> None:
        """Let a node go, with the pods and devices on it; the pool's manifests had the slices."""
        ...

    def model(self, late: Collection[str]) -> AbstractContextManager[ClusterModel]:
        """Give the cluster as it is, without nodes whose devices are late.

        What is done to the model changes nothing.
        """
        ...

    def is_unschedulable(self, pod: PodInfo) -> bool:
        """Return whether the scheduler has found no place, and awaits none by preemption."""
        ...

    def machines_changed(self) -> None:
        """Take note that a machine is ready, or gone."""
        ...


@dataclass(slots=True)
class Machine:
    """A machine of a pool. `up`: its node is there; `ready`: its devices are, too."""

    name: str
    pool: str
    asked: int
    up: int | None = None
    ready: int | None = None
    gone: int | None = None
    leaving: bool = False
    reason: str = ""


class ScalingObserver:
    """Is told what an autoscaler decides, and what becomes of machines; this one keeps nothing."""

    def looked(self) -> None:
        """Note that an autoscaler has looked at the cluster, and decided."""

    def asked(self, machines: Sequence[Machine], pods: Sequence[PodInfo]) -> None:
        """Note that machines of a pool were asked for, for these pods."""

    def not_helped(self, model: ClusterModel, pods: Sequence[PodInfo]) -> None:
        """Note that no pool has a node for some pods; the model is that of the decision."""

    def drained(self, machine: Machine) -> None:
        """Note that a machine's pods have to leave."""

    def gone(self, machine: Machine) -> None:
        """Note that a machine is gone, or never came."""


class Machines:
    """The machines of all pools; those that are always there are there at the beginning."""

    def __init__(
        self,
        host: PoolHost,
        *,
        pools: tuple[ScenarioPool, ...],
        chance: Randomness,
        begin: int,
        observer: ScalingObserver | None = None,
    ) -> None:
        self.host = host
        self.events = host.events
        self.observer = observer or ScalingObserver()
        self.settings = {pool.name: pool for pool in pools}
        self.chance = chance
        self.delays = Delays(LifeCycle(), chance.stream)
        self.taint = OF_AUTOSCALER[0]
        self.all: list[Machine] = []
        self.here: dict[str, Machine] = {}
        self.pools = {pool.name: self._pool(pool) for pool in pools}
        for pool in pools:
            for _ in range(pool.least):
                machine = self._new(pool, begin)
                machine.up = machine.ready = begin
                self._join(machine)

    def _pool(self, pool: ScenarioPool) -> NodePool:
        """Return what an autoscaler knows of a pool."""
        (node,) = pool.fleet.nodes
        drivers = self.host.drivers_of(node)
        for body in driver_classes(drivers):
            self.host.create_once(body)
        slices = [
            {"kind": "ResourceSlice", **item} for driver in drivers for _, item in slices_of(driver)
        ]
        spec = node_spec(node)
        template = spec.node()
        for item in pool.fleet.objects:
            if item["kind"] == "Node":
                template = item
            elif item["kind"] == "ResourceSlice" and spec_of(item).get("nodeName") == node.name:
                slices.append(item)
            else:
                self.host.create_once(item)
        offer = {**spec.amounts(), **((template.get("status") or {}).get("allocatable") or {})}
        labels = {**labels_of(template), POOL_LABEL: pool.name, **self.host.labels_of(node)}
        return NodePool(
            name=pool.name,
            node={
                **template,
                "metadata": {"name": node.name, "labels": labels},
                "status": {"allocatable": offer, "capacity": offer},
            },
            slices=tuple(slices),
            least=pool.least,
            most=pool.most,
            price=pool.price,
            priority=pool.priority,
            group=pool.group,
            spot=pool.spot is not None or labels.get(CAPACITY_TYPE) == "spot",
        )

    # --- pools that come and change -----------------------------------------------------------

    def set_pools(self, pools: Sequence[ScenarioPool]) -> None:
        """Let there be these pools; of one that is not among them, only machines stay."""
        wanted = {pool.name: pool for pool in pools}
        for name, setting in self.settings.items():
            if name not in wanted and any(each.pool == name for each in self.here.values()):
                wanted[name] = replace(setting, least=0, most=0)
        known = self.settings
        self.pools = {
            name: self.pools[name] if known.get(name) == pool else self._pool(pool)
            for name, pool in wanted.items()
        }
        self.settings = wanted

    def adopt(self, name: str, pool: str, asked: int) -> Machine:
        """Take over a machine whose node is there already."""
        machine = Machine(name, pool, asked, up=self.events.now())
        self.all.append(machine)
        self.here[name] = machine
        self._join(machine)
        self.events.after(0, partial(self._be_ready, machine), priority=SCALING)
        return machine

    # --- what an autoscaler sees --------------------------------------------------------------

    def of(self, pool: str) -> list[Machine]:
        """Return the machines of a pool that are there or are to come, but those that leave."""
        return [each for each in self.here.values() if each.pool == pool and not each.leaving]

    @property
    def to_come(self) -> list[Machine]:
        """The machines that were asked for and cannot run all their pods yet."""
        return [each for each in self.here.values() if each.ready is None and not each.leaving]

    @property
    def drained(self) -> list[Machine]:
        """The machines whose pods are leaving."""
        return [each for each in self.here.values() if each.leaving]

    # --- what it does -------------------------------------------------------------------------

    def ask(self, pool: str, count: int, pods: Sequence[PodInfo] = ()) -> list[Machine]:
        """Ask for machines, for these pods; each comes after its start-up, or never."""
        setting = self.settings[pool]
        asked = []
        for _ in range(count):
            machine = self._new(setting, self.events.now())
            asked.append(machine)
            length = self.delays.length_of(setting.startup)
            fails = setting.failure and self.chance.stream("pools").random() < setting.failure
            if not fails:
                self.events.after(length, partial(self._come, machine), priority=ENDING)
        self.observer.asked(asked, pods)
        return asked

    def give_up(self, machine: Machine, reason: str) -> None:
        """Give up a machine that has not come."""
        self._forget(machine, reason)

    def drain(self, machine: Machine, reason: str) -> None:
        """Let a machine's pods leave, then the machine: nothing new comes to it meanwhile."""
        machine.leaving, machine.reason = True, reason
        self.observer.drained(machine)
        if machine.up is None:
            self._forget(machine, reason)
        else:
            self.cordon(machine, on=True)
            self.events.after(0, partial(self._evict, machine), priority=SCALING)

    def cordon(self, machine: Machine, *, on: bool) -> None:
        """Keep new pods from a machine, or no longer."""

        def taint() -> None:
            if machine.name in self.here:
                mark = {"key": self.taint, "effect": NO_SCHEDULE}
                self.host.taint(machine.name, mark, add=on)

        # Who decided on it may still be looking at other nodes.
        self.events.after(0, taint, priority=SCALING)

    def _evict(self, machine: Machine) -> None:
        """Ask each pod to leave: a budget may refuse, and is asked again."""
        if machine.name not in self.here:
            return
        if self.host.evict(machine.name):
            self.events.after(DRAINS, partial(self._evict, machine), priority=SCALING)
        else:
            self._forget(machine, machine.reason)

    # --- a machine's life ---------------------------------------------------------------------

    def _new(self, pool: ScenarioPool, asked: int) -> Machine:
        number = sum(each.pool == pool.name for each in self.all)
        while f"{pool.name}-{number}" in self.here:
            number += 1  # one that was adopted
        machine = Machine(f"{pool.name}-{number}", pool.name, asked)
        self.all.append(machine)
        self.here[machine.name] = machine
        return machine

    def _come(self, machine: Machine) -> None:
        if machine.name not in self.here:
            return  # it was given up
        setting = self.settings[machine.pool]
        machine.up = self.events.now()
        late = self.delays.length_of(setting.devices)
        self._join(machine, late)
        self.events.after(late, partial(self._be_ready, machine), priority=SCALING)
        if setting.spot is not None:
            stays = int(self.chance.stream("spot").expovariate(1 / max(1, setting.spot.every)))
            notice = partial(self._notice, machine, setting.spot.notice)
            self.events.after(stays, notice, priority=SCALING)

    def _join(self, machine: Machine, late: int = 0) -> None:
        """Let the node of a machine come, and its devices so long after it."""
        setting = self.settings[machine.pool]
        labels = {f"{POOL_LABEL}={machine.pool}", f"kubernetes.io/hostname={machine.name}"}
        kept = {each for each in setting.fleet.nodes[0].labels if "/hostname=" not in each}
        first, *others = self._objects(machine) or [{}]
        node = replace(setting.fleet.nodes[0], name=machine.name, labels=frozenset(kept | labels))
        if setting.startup_taints:
            texts = map(taint_text, setting.startup_taints)
            node = replace(node, taints=(*node.taints, *texts))
            taints = [*taints_of(first), *setting.startup_taints]
            first = {**first, "spec": {**spec_of(first), "taints": taints}}
        objects = [first, *others] if setting.fleet.objects else []
        self.host.join(node, objects, late)

    def _objects(self, machine: Machine) -> list[JsonDict]:
        """Return what the pool's manifests have, as that of the machine."""
        pool = self.pools[machine.pool]
        has_some = self.settings[machine.pool].fleet.objects
        return list(renamed(pool.node, pool.slices, machine.name)) if has_some else []

    def _be_ready(self, machine: Machine) -> None:
        if machine.name not in self.here:
            return
        if not self.host.is_ready(machine.name):
            self.events.after(COMES, partial(self._be_ready, machine), priority=SCALING)
            return
        machine.ready = self.events.now()
        for taint in self.settings[machine.pool].startup_taints:
            self.host.taint(machine.name, taint, add=False)
        self.host.machines_changed()

    def _notice(self, machine: Machine, notice: int) -> None:
        """A machine will be taken back: its pods are evicted, then it goes with the rest."""
        if machine.name not in self.here:
            return
        if notice:
            self.drain(machine, "taken back")
        gone = partial(self._forget, machine, "taken back")
        self.events.after(notice, gone, priority=SCALING)

    def _forget(self, machine: Machine, reason: str) -> None:
        if self.here.pop(machine.name, None) is None:
            return
        machine.gone, machine.reason = self.events.now(), reason
        if machine.up is not None:
            slices = [item["metadata"]["name"] for item in self._objects(machine)[1:]]
            self.host.remove(machine.name, slices)
        self.observer.gone(machine)
        self.host.machines_changed()

    # --- the end ------------------------------------------------------------------------------

    def spans(self, begin: int, end: int) -> list[NodeSpan]:
        """Return when each machine was there."""

        def since(when: int | None) -> int | None:
            return None if when is None else max(0, when - begin)

        return [
            NodeSpan(
                name=each.name,
                pool=each.pool,
                price=self.settings[each.pool].price,
                gpus=self.settings[each.pool].fleet.nodes[0].gpus,
                asked=max(0, each.asked - begin),
                ready=since(each.ready),
                gone=min(end if each.gone is None else each.gone, end) - begin,
                reason=each.reason,
            )
            for each in self.all
        ]

    def most(self, end: int, beside: Mapping[str, int]) -> dict[str, int]:
        """Return the most that there was of each resource at a time, with what others have."""
        now: Counter[str] = Counter()
        most: dict[str, int] = {}
        steps = [(each.up, 1, each.pool) for each in self.all if each.up is not None]
        steps += [(each.gone or end, -1, each.pool) for each in self.all if each.up is not None]
        for _, sign, pool in sorted(steps):
            for name, amount in capacity_of(self.settings[pool].fleet.nodes)[0].items():
                now[name] += sign * amount
                most[name] = max(most.get(name, 0), now[name])
        names = {**beside, **most}
        return {name: most.get(name, 0) + beside.get(name, 0) for name in names}
