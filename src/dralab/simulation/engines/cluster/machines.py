"""Machines of node pools in a simulated cluster: asked for, started, taken back, given up."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from dralab.api.status import ApiError
from dralab.capacity.autoscaling.pools import NodePool
from dralab.capacity.changes import of_daemon_set
from dralab.components.simulated import SimulatedCluster
from dralab.kernel.clock import SECOND
from dralab.kernel.events import ENDING
from dralab.kernel.randomness import Randomness
from dralab.objects.metadata import labels_of, metadata_of, spec_of
from dralab.objects.pods import is_finished
from dralab.objects.taints import NO_SCHEDULE, OF_AUTOSCALER, taints_of
from dralab.runtime.client import amend
from dralab.runtime.resources import NODES, PODS, SLICES
from dralab.scheduling.copies import renamed
from dralab.simulation.engines.cluster.created_objects import CreatedObjects
from dralab.simulation.engines.cluster.nodes import SimulatedNodes, node_spec, slices_of
from dralab.simulation.engines.cluster.tasks import capacity_of
from dralab.simulation.lifecycle.model import Delays, LifeCycle
from dralab.simulation.results.result import NodeSpan
from dralab.simulation.scenario.pools import POOL_LABEL, ScenarioPool
from dralab.values.json_types import JsonDict

# How often a node that is to go is looked at, until its pods have left.
DRAINS: Final = SECOND


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


class Machines:
    """The machines of all pools. `changed` is called when one comes, or is gone.

    `lost` is called for a node that goes with its pods.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        nodes: SimulatedNodes,
        created: CreatedObjects,
        *,
        pools: tuple[ScenarioPool, ...],
        chance: Randomness,
        lost: Callable[[str], None],
        changed: Callable[[], None],
    ) -> None:
        self.cluster = cluster
        self.nodes = nodes
        self.created = created
        self.settings = {pool.name: pool for pool in pools}
        self.chance = chance
        self.delays = Delays(LifeCycle(), chance.stream)
        self.changed = changed
        self.taint = OF_AUTOSCALER[0]
        self._lost = lost
        self.all: list[Machine] = []
        self.here: dict[str, Machine] = {}
        self.pools = {pool.name: self._pool(pool) for pool in pools}
        for pool in pools:
            for _ in range(pool.least):
                machine = self._new(pool)
                machine.up = machine.ready = cluster.now
                self._join(machine)

    def _pool(self, pool: ScenarioPool) -> NodePool:
        """Return what an autoscaler knows of a pool."""
        (node,) = pool.fleet.nodes
        drivers = self.nodes.drivers_of(node)
        self.nodes.create_classes(drivers)
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
                self._create_once(item)
        offer = {**spec.amounts(), **((template.get("status") or {}).get("allocatable") or {})}
        labels = {**labels_of(template), POOL_LABEL: pool.name}
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
        )

    def _create_once(self, item: JsonDict) -> None:
        try:
            self.created.create(item)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

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

    def ask(self, pool: str, count: int) -> list[Machine]:
        """Ask for machines; each comes after its start-up, or never."""
        setting = self.settings[pool]
        asked = []
        for _ in range(count):
            machine = self._new(setting)
            asked.append(machine)
            length = self.delays.length_of(setting.startup)
            fails = setting.failure and self.chance.stream("pools").random() < setting.failure
            if not fails:
                self.cluster.engine.after(length, partial(self._come, machine), priority=ENDING)
        return asked

    def give_up(self, machine: Machine, reason: str) -> None:
        """Give up a machine that has not come."""
        self._forget(machine, reason)

    def drain(self, machine: Machine, reason: str) -> None:
        """Let a machine's pods leave, then the machine: nothing new comes to it meanwhile."""
        machine.leaving, machine.reason = True, reason
        if machine.up is None:
            self._forget(machine, reason)
            return
        taint = {"key": self.taint, "effect": NO_SCHEDULE}

        def change(latest: JsonDict) -> bool:
            latest.setdefault("spec", {})["taints"] = [*taints_of(latest), taint]
            return True

        client = self.cluster.client
        amend(client, NODES, client.get(NODES, machine.name), change)
        self._evict(machine)

    def _evict(self, machine: Machine) -> None:
        """Ask each pod to leave: a budget may refuse, and is asked again."""
        if machine.name not in self.here:
            return
        left = False
        for pod in self._pods_on(machine.name):
            left = True
            metadata = metadata_of(pod)
            body = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
            }
            try:
                self.cluster.client.post(
                    PODS, metadata["name"], "eviction", body, metadata["namespace"]
                )
            except ApiError as error:
                if error.reason not in {"NotFound", "TooManyRequests"}:
                    raise
        if left:
            self.cluster.engine.after(DRAINS, partial(self._evict, machine))
        else:
            self._forget(machine, machine.reason)

    def _pods_on(self, name: str) -> Iterator[JsonDict]:
        """Yield the pods that have to leave a node before it goes."""
        for pod in self.nodes.kubelets.pods.find("node", name):
            if not is_finished(pod) and not of_daemon_set(pod):
                yield pod

    # --- a machine's life ---------------------------------------------------------------------

    def _new(self, pool: ScenarioPool) -> Machine:
        number = sum(each.pool == pool.name for each in self.all)
        machine = Machine(f"{pool.name}-{number}", pool.name, self.cluster.now)
        self.all.append(machine)
        self.here[machine.name] = machine
        return machine

    def _come(self, machine: Machine) -> None:
        if machine.name not in self.here:
            return  # it was given up
        setting = self.settings[machine.pool]
        machine.up = self.cluster.now
        late = self.delays.length_of(setting.devices)
        self._join(machine, late)
        self.cluster.engine.after(late, partial(self._be_ready, machine), priority=ENDING)
        if setting.spot is not None:
            stays = int(self.chance.stream("spot").expovariate(1 / max(1, setting.spot.every)))
            notice = partial(self._notice, machine, setting.spot.notice)
            self.cluster.engine.after(stays, notice, priority=ENDING)

    def _join(self, machine: Machine, late: int = 0) -> None:
        """Let the node of a machine come, and its devices so long after it."""
        setting, pool = self.settings[machine.pool], self.pools[machine.pool]
        labels = {f"{POOL_LABEL}={pool.name}", f"kubernetes.io/hostname={machine.name}"}
        kept = {each for each in setting.fleet.nodes[0].labels if "/hostname=" not in each}
        node = replace(setting.fleet.nodes[0], name=machine.name, labels=frozenset(kept | labels))
        publish = None
        if setting.fleet.objects:
            first, *slices = renamed(pool.node, pool.slices, machine.name)
            self.created.create(first)

            def publish() -> None:
                for item in slices:
                    self.created.create(item)

        self.nodes.add(node, late, publish)

    def _be_ready(self, machine: Machine) -> None:
        if machine.name in self.here:
            machine.ready = self.cluster.now
            self.changed()

    def _notice(self, machine: Machine, notice: int) -> None:
        """A machine will be taken back: its pods are evicted, then it goes with the rest."""
        if machine.name not in self.here:
            return
        if notice:
            self.drain(machine, "taken back")
        self.cluster.engine.after(
            notice, partial(self._forget, machine, "taken back"), priority=ENDING
        )

    def _forget(self, machine: Machine, reason: str) -> None:
        if self.here.pop(machine.name, None) is None:
            return
        machine.gone, machine.reason = self.cluster.now, reason
        if machine.up is not None:
            self._lost(machine.name)
            self.nodes.remove(machine.name)
            if self.settings[machine.pool].fleet.objects:
                pool = self.pools[machine.pool]
                for item in list(renamed(pool.node, pool.slices, machine.name))[1:]:
                    self._delete_slice(item["metadata"]["name"])
        self.changed()

    def _delete_slice(self, name: str) -> None:
        try:
            self.cluster.client.delete(SLICES, name)
        except ApiError as error:
            if error.reason != "NotFound":
                raise

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

    def most(self, end: int) -> dict[str, int]:
        """Return the most that the nodes had of each resource at a time."""
        now: Counter[str] = Counter()
        most: dict[str, int] = {}
        steps = [(each.up, 1, each.pool) for each in self.all if each.up is not None]
        steps += [(each.gone or end, -1, each.pool) for each in self.all if each.up is not None]
        for _, sign, pool in sorted(steps):
            for name, amount in capacity_of(self.settings[pool].fleet.nodes)[0].items():
                now[name] += sign * amount
                most[name] = max(most.get(name, 0), now[name])
        return most
