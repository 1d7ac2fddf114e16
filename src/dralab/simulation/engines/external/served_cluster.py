"""The simulated side of a run: pods arrive, start, end, fail and are retried; nodes go down.

What kubelets, a job controller and a claim controller would write, straight into the store. Called
with the store's lock held.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from dralab.apiserver.storage import Key
from dralab.cluster import Cluster
from dralab.kernel.clock import SECOND, ManualClock
from dralab.kernel.events import BEGINNING, ENDING, Events
from dralab.kernel.randomness import Randomness
from dralab.objects.metadata import status_of
from dralab.runtime.resources import CLASSES, NODES, SLICES
from dralab.simulation.engines import objects
from dralab.simulation.engines.external.capacity import ClusterCapacity, PodNeeds, ServedNodes
from dralab.simulation.engines.external.submission import (
    PodOptions,
    Submission,
    group_of,
    makes_pods,
)
from dralab.simulation.lifecycle.agenda import Agenda
from dralab.simulation.lifecycle.model import Pod, RunConditions
from dralab.simulation.lifecycle.pod_lives import PodLives
from dralab.simulation.lifecycle.tasks import TaskRecord
from dralab.simulation.results.result import StateSample
from dralab.simulation.scenario.manifests import Arrival, of_object
from dralab.simulation.workloads.openb import WHOLE_GPU, GpuNode
from dralab.values.json_types import JsonDict, JsonObject


@dataclass(slots=True)
class ServedTask(TaskRecord):
    """A pod on the API; `leaving`: it is being deleted, `claims` are its own claims.

    `adopted`: a program has created it, and does so again if it has to come again.
    """

    needs: PodNeeds = field(kw_only=True)
    leaving: bool = False
    adopted: bool = False
    uid: str = ""
    claims: list[str] = field(default_factory=list)


class ServedCluster:
    """The simulated cluster. `fresh` are the pods created in the present step.

    The run begins at `begin`, or where the clock is.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: ManualClock,
        *,
        begin: int | None = None,
        nodes: Sequence[GpuNode],
        pods: Sequence[Pod],
        conditions: RunConditions,
        pod_options: PodOptions,
        fleet_objects: Sequence[JsonDict] = (),
        arrivals: Sequence[Arrival] = (),
        heartbeats: int = 0,
    ) -> None:
        self.cluster = cluster
        self.store = cluster.server.store
        self.begin = clock.now() if begin is None else begin
        self.how = conditions
        self.pod_options = pod_options
        self.chance = Randomness(conditions.seed)
        self.capacity = ClusterCapacity(nodes, claims=pod_options.claims)
        self.pods = {
            pod.key: ServedTask(pod, number, needs=self.capacity.needs_of(pod))
            for number, pod in enumerate(pods)
            if not (pod_options.jobs and pod.owner.startswith("Job "))
        }
        self.fleet_objects, self.objects = fleet_objects, arrivals
        # Whether some pod wants a part of a GPU: then devices may be shared.
        self.shares = any(pod.request.milli % WHOLE_GPU for pod in pods)
        self.submission = Submission(cluster, pod_options, shares=self.shares)
        self.agenda = Agenda(Events(clock))
        self.agenda.methods |= {"bring": self._bring, "gone": self._gone}
        self.lives = PodLives(self, self.agenda, self.pods, conditions, self._stream)
        self.fresh: set[str] = set()
        self.samples: list[StateSample] = []
        self.deleted = 0
        self.over_capacity: list[str] = []
        self.resumed = 0
        self.nodes = ServedNodes(cluster, heartbeats)
        # Adopted pods on nodes that went down, as long as nodes report by themselves.
        self.stranded: dict[str, ServedTask] = {}
        self._removed: set[str] = set()  # uids of pods that are gone by our own hand

    # --- the beginning ------------------------------------------------------------------------

    def prepare(self) -> None:
        """Create nodes and classes, and schedule the scenario's events."""
        client, pod_options = self.cluster.client, self.pod_options
        nodes = self.capacity.nodes.values()
        self.submission.bring(self.fleet_objects)
        if pod_options.claims and any(node.gpus for node in nodes):
            client.create(CLASSES, objects.gpu_class())
        first = [one.body for one in self.objects if not one.when and not makes_pods(one.body)]
        self.submission.bring(first)
        self.submission.priorities([item.pod for item in self.pods.values()])
        given = {
            str(body["metadata"]["name"]): body
            for body in self.fleet_objects
            if (group_of(body), body.get("kind")) == ("", "Node")
        }
        for node in nodes:
            body = objects.node(node, self.agenda.now(), given.get(node.name))
            if pod_options.claims:
                for amounts in (body["status"]["capacity"], body["status"]["allocatable"]):
                    amounts.pop(objects.GPU, None)
            taints = body.pop("spec")["taints"]
            client.create(NODES, body)
            # The server taints new nodes as not ready; the node controller takes that back.
            client.patch(NODES, node.name, {"spec": {"taints": taints or None}})
            self.nodes.begin(node.name, self.agenda.now())
            if pod_options.claims and node.gpus:
                client.create(SLICES, objects.gpu_slice_of(node, shared=self.shares))
        for number, one in enumerate(self.objects):
            if one.when or makes_pods(one.body):
                self.agenda.schedule(self.begin + one.when, BEGINNING, "bring", str(number))
        gpus = {name: node.gpus for name, node in self.capacity.nodes.items()}
        self.lives.plan(gpus, self.begin)

    def count_again(self) -> None:
        """Recount waiting pods and used resources."""
        for key, item in self.pods.items():
            if item.created is None:
                continue
            if item.state == "Pending":
                self.capacity.add_waiting(key, item.needs)
            elif item.next is not None or item.state in {"Bound", "Running"}:
                self.lives.running[key] = item
                self.capacity.take_for_pod(item.node, item.needs)
            else:
                self.lives.over += 1

    def together(self) -> ExitStack:
        """Hold the store's lock: the clock and the events of an instant change together."""
        stack = ExitStack()
        stack.enter_context(self.store.lock)
        stack.enter_context(self.store.batch())
        return stack

    def evictable(self) -> list[tuple[str, PodNeeds]]:
        """Return the nodes of pods that could be deleted to make room."""
        found = self.lives.running.values()
        return [(item.node, item.needs) for item in found if not item.leaving]

    # --- what the schedulers decide -----------------------------------------------------------

    def bind(self, key: str, target: str) -> bool:
        """Let a bound pod start; return whether it could have been bound in an earlier step."""
        item = self.pods.get(key)
        if item is None or item.created is None or item.state != "Pending":
            return False
        self.capacity.remove_waiting(key, item.needs)
        if target not in self.capacity.nodes:
            self._refuse(item, "InvalidNode", f"bound to {target!r}, which is not a node")
            return False
        if target in self.capacity.down:
            self.lives.try_again(item, "bound to a node that is down")
            return False
        # Whether there was room in every respect cannot be known of every pod.
        could = self.capacity.had_room(target, item.needs) and not item.needs.unsure
        late = could and key not in self.fresh
        if not self.pod_options.overcommit and not self.capacity.fits(target, item.needs):
            self.over_capacity.append(key)
            item.node = target
            # The kubelet's own words.
            self._refuse(item, "OutOfcpu", "Node didn't have enough resource: cpu, requested")
            item.reason = "bound where there was no room"
            return False
        self.capacity.take_for_pod(target, item.needs)
        self.lives.bind(item, target)
        return late

    def _refuse(self, item: ServedTask, reason: str, message: str) -> None:
        item.state, item.reason, item.ended = "Failed", message, self.agenda.now()
        self.lives.over += 1
        self._status(item, "Failed", reason, message)

    def adopted_again(self, key: str) -> ServedTask | None:
        """Return the record of a pod of a checkpoint that a program had created."""
        stored = self.store.get(Key("pods", *key.split("/"))) if key.count("/") == 1 else None
        return None if stored is None else self._adopted(key, stored.value, self.begin)

    def _adopted(self, key: str, body: JsonObject, now: int) -> ServedTask:
        pod = of_object(body, max(now - self.begin, 0))
        needs = self.capacity.needs_of(replace(pod, body=body))
        item = ServedTask(pod, len(self.pods), needs=needs, adopted=True, created=now)
        self.pods[key] = item
        return item

    def adopt(self, key: str, uid: str, node: str) -> None:
        """Simulate a pod that a program or a controller has created."""
        before, stored = self.pods.get(key), self.store.get(Key("pods", *key.split("/")))
        if stored is None or stored.value["metadata"]["uid"] != uid:
            return  # it is gone again
        if before is not None:
            if before.uid == uid or before.created is None:
                return  # it is ours; or it will be refused when it arrives
            self.pods[f"{key} ({before.uid})"] = self.pods.pop(key)
        item = self._adopted(key, stored.value, self.agenda.now())
        item.uid = uid
        self.fresh.add(key)
        self.capacity.add_waiting(key, item.needs)
        if node:
            self.bind(key, node)

    def delete(self, key: str, uid: str, grace: int | None) -> None:
        """Handle the deletion of a pod: it ends after its grace; None: it is gone."""
        item = self.pods.get(key)
        if uid in self._removed:
            self._removed.discard(uid)
            return
        if item is None or item.created is None or item.uid != uid:
            return
        if key in self.stranded:
            item.leaving = True
            if grace is None:
                self._lost(key)
        elif item.state == "Pending":
            self.capacity.remove_waiting(key, item.needs)
            item.state, item.reason, item.ended = "Failed", "deleted while it waited", None
            self.lives.over += 1
            self._remove(item)
        elif key in self.lives.running:
            self.deleted += not (item.leaving or item.adopted)
            item.leaving = True
            if grace is None:
                self._gone(key)
                return
            when, own = self.agenda.now() + grace * SECOND, item.next
            if item.state == "Bound" or own is None or own.when > when:
                self.agenda.cancel(own)
                item.next = self.agenda.schedule(when, ENDING, "gone", key)

    def _gone(self, key: str) -> None:
        item = self.pods[key]
        if item.adopted and item.state not in {"Succeeded", "Failed"}:
            self.agenda.cancel(item.next)
            item.state, item.ended = "Failed", self.agenda.now()
            item.reason = "deleted while it ran"
            self.lives.leave(item)
        elif item.state in {"Succeeded", "Failed"}:
            self.agenda.cancel(item.next)
            self.lives.leave(item)
        else:
            self.lives.evict(item, "evicted: it was deleted while it ran")

    # --- what a life does to nodes and objects ------------------------------------------------

    def submit(self, task: ServedTask) -> None:
        """Create a pod and its own claims."""
        key = task.pod.key
        self.fresh.add(key)
        self.capacity.add_waiting(key, task.needs)
        task.uid, task.claims = self.submission.pod(task.pod)

    def start(self, task: ServedTask) -> None:
        """Report that a pod runs."""
        self._status(task, "Running")

    def release(self, task: ServedTask) -> None:
        """Release a pod's resources on its node; only then programs see that it has ended."""
        self.capacity.give_back(task.node, task.needs)

    def comes_again(self, task: ServedTask) -> bool:
        """Whether the engine has to submit a pod again."""
        return not task.adopted

    def withdraw(self, task: ServedTask) -> None:
        """Remove a pod; when submitted again it is a new object."""
        self._remove(task)
        task.leaving = False

    def cancel(self, task: ServedTask) -> None:
        """Remove a pod that waits."""
        self.withdraw(task)

    def finish(self, task: ServedTask) -> None:
        """Report that a pod has ended, and release its claims."""
        if task.leaving:
            self._remove(task)
        else:
            self._status(task, task.state)
            self.submission.release(task.pod, task.claims)

    def changed(self) -> None:
        """Do nothing: schedulers see changes themselves."""

    def lose(self, node: str) -> None:
        """A node goes down."""
        self.capacity.down.add(node)
        if self.nodes.report:
            for key, item in list(self.lives.running.items()):
                if item.adopted and item.node == node:
                    self.agenda.cancel(item.next)
                    item.next = None
                    self.stranded[key] = self.lives.running.pop(key)
        self.nodes.lose(node, self.agenda.now())

    def restore(self, node: str) -> None:
        """Handle a node that is up again; its pods have failed."""
        self.capacity.down.discard(node)
        self.nodes.restore(node, self.agenda.now())
        for key, item in list(self.stranded.items()):
            if item.node == node:
                self._lost(key)

    def _lost(self, key: str) -> None:
        item = self.stranded.pop(key)
        self.capacity.give_back(item.node, item.needs)
        item.state, item.ended, item.reason = "Failed", self.agenda.now(), "its node went down"
        self.lives.over += 1
        self.finish(item)

    def beat(self, now: int) -> None:
        """Send due heartbeats of the nodes that are up."""
        self.nodes.beat(now, self.capacity.down)

    def _bring(self, number: str) -> None:
        self.submission.bring([self.objects[int(number)].body])

    # --- objects ------------------------------------------------------------------------------

    def _status(self, item: ServedTask, phase: str, reason: str = "", message: str = "") -> None:
        """Write a pod's status as its kubelet would, directly into the store.

        Half of all writes of a run are these; only we own what they set.
        """
        where = _key(item.pod)
        stored = self.store.get(where)
        if stored is None:
            return  # someone deleted it: there is nothing to report on
        old: Mapping[str, Any] = status_of(stored.value)
        new = objects.status(phase, self.agenda.now(), reason, message)
        if item.adopted and phase == "Running":
            new = {**new, "conditions": objects.ready_conditions(old, self.agenda.now())}
        metadata = {k: v for k, v in stored.value["metadata"].items() if k != "resourceVersion"}
        self.store.update(where, {**stored.value, "metadata": metadata, "status": {**old, **new}})

    def _remove(self, item: ServedTask) -> None:
        where = _key(item.pod)
        if (stored := self.store.get(where)) is not None:
            self._removed.add(str(stored.value["metadata"]["uid"]))
            self.store.delete(where)
        self.submission.release(item.pod, item.claims)

    def is_nominated(self, key: str) -> bool:
        """Whether a scheduler has promised a node to a pod that waits."""
        stored = self.store.get(_key(self.pods[key].pod))
        return stored is not None and bool(stored.value.get("status", {}).get("nominatedNodeName"))

    def waits(self, key: str) -> bool:
        """Whether a pod exists and is not bound."""
        item = self.pods[key]
        return item.created is not None and item.state == "Pending"

    def refusal(self, item: ServedTask) -> str:
        """Return a scheduler's last message about a waiting pod."""
        stored = self.store.get(_key(item.pod))
        conditions = [] if stored is None else stored.value.get("status", {}).get("conditions", [])
        for condition in conditions:
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                return str(condition.get("message", ""))
        return ""

    def sample(self) -> None:
        """Record the numbers of waiting and running pods, and their resources."""
        found = StateSample(
            when=self.agenda.now() - self.begin,
            waiting=sum(map(len, self.capacity.waiting.values())),
            running=len(self.lives.running),
            cpu=self.capacity.cpu,
            gpu=self.capacity.gpu,
            fragmented=0.0,
        )
        if self.samples and self.samples[-1].when == found.when:
            self.samples.pop()
        self.samples.append(found)

    def _stream(self, name: str) -> Any:
        return self.chance.stream(f"{name}/{self.resumed}" if self.resumed else name)


def _key(pod: Pod) -> Key:
    return Key("pods", pod.namespace, pod.name)
