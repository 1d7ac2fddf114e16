"""The nodes of pools in the fast engine: they come, go and lose their pods in its state."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from dralab.controllers import pod_gc
from dralab.objects.metadata import NamespacedName, key_of, spec_of
from dralab.runtime.resources import CLASSES
from dralab.scheduling.claims import ClaimPlan
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.reasons import ClusterChange
from dralab.scheduling.state import ClusterState, NominatedPod, PodPlacement
from dralab.simulation.engines.autoscaling.loop import Autoscaler
from dralab.simulation.engines.fast.engine import STARTED, FastSimulation
from dralab.simulation.engines.fast.inventory import Inventory, ready_node
from dralab.simulation.engines.fleet_nodes import node_spec, slices_of
from dralab.simulation.workloads.openb import GpuNode
from dralab.values.json_types import JsonDict

REASON: Final = "evicted or preempted"


class LiveModel(ClusterModel):
    """The state of a scheduler that runs: every change is undone before it goes on.

    `asked` are pods as they waited, where they take more on their nodes.
    """

    def __init__(self, state: ClusterState, asked: Mapping[str, PodInfo]) -> None:
        super().__init__((), state=state)
        self.slices = state.devices.wires
        self._asked = asked
        # In which order nodes had their pods, where some were taken away.
        self._orders: dict[str, list[str]] = {}

    @contextmanager
    def looking(
        self,
        running: Iterable[PodPlacement],
        waiting: Iterable[PodInfo],
        promised: Mapping[str, str],
    ) -> Iterator[None]:
        """Know the pods that there are now, inside; room on nodes is `promised`, as pods say."""
        table, nominees = self.state.table, self.state.nominees
        self.running.clear()
        self._users_of.clear()
        for each in running:
            self._count_running(each)
        self.waiting = self.ordered(waiting)
        self._nominated = {
            pod.uid: NominatedPod(pod, promised[pod.uid])
            for pod in self.waiting
            if promised.get(pod.uid) in table.row_of
        }
        kept = dict(nominees)
        nominees.clear()
        nominees.update(self._nominated)
        try:
            yield
        finally:
            self.rollback(0)
            nominees.clear()
            nominees.update(kept)
            for node, uids in self._orders.items():
                row = table.row_of[node]
                pods = table.pods[row]
                table.pods[row] = {uid: pods[uid] for uid in uids if uid in pods}
            self._orders.clear()

    def take_away(self, uid: str) -> PodInfo:
        """Remove a pod from its node."""
        node, table = self.running[uid].node, self.state.table
        if node not in self._orders:
            self._orders[node] = list(table.pods[table.row_of[node]])
        return super().take_away(uid)

    def unbound(self, pod: PodInfo) -> PodInfo:
        """Return a pod as it waited."""
        return self._asked.get(pod.uid, pod)

    def _place_of(self, pod: PodInfo) -> NamespacedName:
        """Return where a server lists it."""
        return pod.key


class FastPools:
    """The nodes of a run, for the machines of pools (`autoscaling.machines.PoolHost`)."""

    def __init__(self, simulation: FastSimulation, inventory: Inventory) -> None:
        self.simulation = simulation
        self.inventory = inventory
        self.events = simulation.events
        self.drivers_of = inventory.drivers_of
        self.autoscaler: Autoscaler | None = None
        # The pods for which no place was found, and where some of them await one by preemption.
        self._refused: set[str] = set()
        self._promised: dict[str, str] = {}
        self._asked: dict[str, PodInfo] = {}
        # When the pods on nodes that are gone will be removed.
        self._missing: dict[str, int] = {}
        self._whole: dict[str, PodPlacement] = {}
        self._model = LiveModel(simulation.state, self._asked)

    # --- nodes ----------------------------------------------------------------------------------

    def labels_of(self, node: GpuNode) -> Mapping[str, str]:
        """Return what the state knows a node by, beside its own labels."""
        return self.inventory.labels_of(node)

    def create_once(self, body: JsonDict) -> None:
        """Create an object unless it is there."""
        is_class = body["kind"] == "DeviceClass"
        if not is_class or self.simulation.admitted.stored(CLASSES, key_of(body)) is None:
            self.simulation.objects.bring(body, "fleet")

    def join(self, node: GpuNode, objects: Sequence[JsonDict], late: int) -> None:
        """Add a node, and its devices so long after it."""
        simulation = self.simulation
        given = simulation.admitted.create(objects[0], "fleet") if objects else None
        drivers = self.drivers_of(node)
        self.inventory.note_devices(node, drivers)

        def publish() -> None:
            if node.name not in simulation.state.table.row_of:
                return  # it has gone meanwhile
            for driver in drivers:
                for name, wire in slices_of(driver):
                    simulation.state.devices.put_slice(name, wire)
            for item in objects[1:]:
                simulation.objects.bring(item, "fleet")
            simulation.changed(ClusterChange.DEVICES)

        if simulation.state.table.put_node(
            ready_node(node_spec(node), given, self.inventory.labels_of(node))
        ):
            simulation.changed(ClusterChange.NODE)
        if late:
            self.events.after(late, publish)
        else:
            publish()

    def is_ready(self, node: str) -> bool:
        """Return that it is: its devices have just been published."""
        del node
        return True

    def taint(self, node: str, taint: JsonDict, *, add: bool) -> None:
        """Taint a node, or take the taint away."""
        known = self.simulation.nodes.taints_on(node)
        others = [each for each in known if each["key"] != taint["key"]]
        self.simulation.nodes.retaint(node, [*others, taint] if add else others)

    def evict(self, node: str) -> bool:
        """Let the pods of a node leave."""
        pods = self.simulation.nodes.tasks_by_name(node)
        for task in pods:
            self.simulation.end_run(task.uid, REASON)
        return bool(pods)

    def remove(self, node: str, slices: Sequence[str]) -> None:
        """Remove a node; what runs on it stops, and is noticed as a controller does it."""
        del slices
        simulation, now = self.simulation, self.events.now()
        tasks = simulation.nodes.tasks_on(node)
        for task in tasks:
            simulation.lives.interrupt(task, "its node went down")
        if tasks:
            seen = now + 1 + (STARTED - now - 1) % pod_gc.PERIOD
            self._missing[node] = seen + pod_gc.QUARANTINE
            self.events.at(self._missing[node], self._collect_garbage)
        simulation.state.table.remove_node(node)
        devices = simulation.state.devices
        own = [
            name for name, wire in devices.wires.items() if spec_of(wire).get("nodeName") == node
        ]
        for name in own:
            devices.put_slice(name, None)
        if own:
            simulation.changed(ClusterChange.DEVICES)

    def _collect_garbage(self) -> None:
        """Remove the pods of nodes that have been missing for long enough, the oldest first."""
        now = self.events.now()
        gone = {node for node, due in self._missing.items() if due <= now}
        for uid, task in list(self.simulation.tasks.by_uid.items()):
            if task.node in gone:
                self.simulation.end_run(uid, task.reason)
        for node in gone:
            del self._missing[node]

    # --- pods -----------------------------------------------------------------------------------

    def look(self) -> None:
        """Let the autoscaler look at what has changed."""
        if self.autoscaler is not None:
            self.autoscaler.look()

    def machines_changed(self) -> None:
        """Let the autoscaler know that a machine is ready, or gone."""
        if self.autoscaler is not None:
            self.autoscaler.changed()

    def pod_placed(self, asked: PodInfo, placement: PodPlacement) -> None:
        """Take note of a pod's place, and of how it asked for one."""
        if asked is not placement.pod:
            self._asked[asked.uid] = asked
        self._refused.discard(asked.uid)
        self._promised.pop(asked.uid, None)
        if self.autoscaler is not None:
            self.autoscaler.pod_moved(placement.node)

    def pod_left(self, uid: str, node: str) -> None:
        """Forget a pod that has left its node."""
        self._asked.pop(uid, None)
        self._whole.pop(uid, None)
        if self.autoscaler is not None:
            self.autoscaler.pod_moved(node)

    def pod_refused(self, uid: str, nominated: str | None) -> None:
        """Take note that there is no place for a pod, or will be one by preemption."""
        self._refused.add(uid)
        if nominated:
            self._promised[uid] = nominated
        elif nominated is not None:
            self._promised.pop(uid, None)
        if self.autoscaler is not None:
            self.autoscaler.pod_refused(uid)

    def is_unschedulable(self, pod: PodInfo) -> bool:
        """Return whether the scheduler has found no place, and awaits none by preemption."""
        return pod.uid in self._refused and pod.uid not in self._promised

    @contextmanager
    def model(self, late: Collection[str]) -> Iterator[ClusterModel]:
        """Give the state of the run."""
        model, simulation = self._model, self.simulation
        running = map(self._placement, simulation.placed.values())
        waiting = [item.pod for item in simulation.queue]
        with model.looking(running, waiting, self._promised):
            for name in late:
                if name in simulation.state.table.row_of:
                    model.remove_node(name)
            yield model

    def _placement(self, kept: PodPlacement) -> PodPlacement:
        """Return a placement with the claims that were made for the pod."""
        pod = kept.pod
        found = self._whole.get(pod.uid)
        if found is None:
            claims, devices = self.simulation.claims, self.simulation.state.devices
            plans = list(kept.plans)
            for each in pod.claims:
                claim = claims.get(NamespacedName(pod.key.namespace, each.made or ""))
                held = None if claim is None else devices.in_flight(claim["metadata"]["uid"])
                if claim is not None and held is not None:
                    consumer = {"resource": "pods", "name": pod.key.name, "uid": pod.uid}
                    plans.append(ClaimPlan(claim, consumer, held))
            found = self._whole[pod.uid] = PodPlacement(pod, kept.node, tuple(plans))
        return found
