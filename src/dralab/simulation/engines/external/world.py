"""The simulated side of a run: pods arrive, start, end, fail and come again; nodes go down.

What kubelets, a job controller and a claim controller would write, straight into the store. Called
with the store's lock held.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from dralab.apiserver.storage import Key
from dralab.cluster import Cluster
from dralab.kernel.clock import SECOND, ManualClock
from dralab.kernel.events import BEGINNING, ENDING, Event
from dralab.kernel.randomness import Randomness
from dralab.runtime.client import Object
from dralab.runtime.resources import CLASSES, NODES, SLICES
from dralab.simulation.engines import gpu_claims, objects
from dralab.simulation.engines.external.agenda import Agenda
from dralab.simulation.engines.external.room import Needs, Room
from dralab.simulation.engines.external.submission import Submission, Ways
from dralab.simulation.lifecycle.model import Circumstances, Pod, PodState, RandomFaults, Stage
from dralab.simulation.results.result import Sample
from dralab.simulation.scenario.manifests import Arrival
from dralab.simulation.workloads.openb import WHOLE_GPU, GpuNode

FOR_EVER: Final = -1


@dataclass(slots=True)
class Followed:
    """What became of a pod. Times are of the clock; `leaving`: it is being deleted."""

    pod: Pod
    needs: Needs
    state: PodState = "Pending"
    created: int | None = None
    bound: int | None = None
    started: int | None = None
    ended: int | None = None
    node: str = ""
    reason: str = ""
    attempts: int = 0
    evictions: int = 0
    leaving: bool = False
    claims: list[str] = field(default_factory=list)
    next: Event | None = field(default=None, compare=False)


class World:
    """Everything that is simulated. `fresh` are the pods that came in the present step."""

    def __init__(
        self,
        cluster: Cluster,
        clock: ManualClock,
        *,
        nodes: Sequence[GpuNode],
        pods: Sequence[Pod],
        circumstances: Circumstances,
        ways: Ways,
        fleet_objects: Sequence[Object] = (),
        arrivals: Sequence[Arrival] = (),
    ) -> None:
        self.cluster = cluster
        self.store = cluster.server.store
        self.begin = clock.now()
        self.how = circumstances
        self.ways = ways
        self.chance = Randomness(circumstances.seed)
        self.room = Room(nodes, claims=ways.claims)
        self.pods = {pod.key: Followed(pod, self.room.needs_of(pod)) for pod in pods}
        self.fleet_objects, self.objects = fleet_objects, arrivals
        # Whether some pod wants a part of a GPU: then devices may be shared.
        self.shares = any(pod.shape.milli % WHOLE_GPU for pod in pods)
        self.submission = Submission(cluster, ways, shares=self.shares)
        self.agenda = Agenda(
            clock,
            {
                "bring": self._bring,
                "arrive": self._arrive,
                "start": self._start,
                "end": self._end,
                "free": self._free,
                "gone": self._gone,
                "break": self._break,
                "repair": self._repair,
            },
        )
        self.fresh: set[str] = set()
        self.running: dict[str, None] = {}
        self.samples: list[Sample] = []
        self.over = self.deleted = 0
        self.over_capacity: list[str] = []
        self.resumed = 0

    # --- the beginning ------------------------------------------------------------------------

    def prepare(self) -> None:
        """Create nodes and classes, and put down what the scenario says will happen."""
        client, ways = self.cluster.client, self.ways
        nodes = self.room.nodes.values()
        self.submission.bring(self.fleet_objects)
        if ways.claims and any(node.gpus for node in nodes):
            client.create(CLASSES, gpu_claims.device_class())
        first = [one.body for one in self.objects if not one.when]
        self.submission.bring(first)
        self.submission.priorities([item.pod for item in self.pods.values()])
        given = {
            str(body["metadata"]["name"]): body
            for body in self.fleet_objects
            if body.get("kind") == "Node"
        }
        for node in nodes:
            body = objects.node(node, self.begin, given.get(node.name))
            if ways.claims:
                for amounts in (body["status"]["capacity"], body["status"]["allocatable"]):
                    amounts.pop(objects.GPU, None)
            taints = body.pop("spec")["taints"]
            client.create(NODES, body)
            # The server taints new nodes as not ready; the node controller takes that back.
            client.patch(NODES, node.name, {"spec": {"taints": taints or None}})
            if ways.claims and node.gpus:
                client.create(SLICES, gpu_claims.slice_of(node, shared=self.shares))
        for number, one in enumerate(self.objects):
            if one.when:
                self.agenda.add(self.begin + one.when, BEGINNING, "bring", str(number))
        for key, item in sorted(self.pods.items(), key=lambda pair: pair[1].pod.arrives):
            self.agenda.add(self.begin + item.pod.arrives, BEGINNING, "arrive", key)
        for fault in self.how.faults:
            length = FOR_EVER if fault.duration is None else fault.duration
            self.agenda.add(self.begin + fault.at, ENDING, "break", fault.node, length=length)
        if self.how.random_faults is not None:
            for name in self.room.nodes:
                self._plan_fault(name, self.how.random_faults)

    def count_again(self) -> None:
        """Reckon who waits and who holds what, from what is known of each pod."""
        for key, item in self.pods.items():
            if item.created is None:
                continue
            if item.state == "Pending":
                self.room.wait(key, item.needs)
            elif item.next is not None or item.state in {"Bound", "Running"}:
                self.running[key] = None
                self.room.take(item.node, item.needs)
            else:
                self.over += 1

    def together(self) -> ExitStack:
        """Hold the store's lock: the clock and all that happens at an instant move as one."""
        stack = ExitStack()
        stack.enter_context(self.store.lock)
        stack.enter_context(self.store.batch())
        return stack

    def finished(self) -> bool:
        """Whether every pod is over: nodes may still break, but nothing of interest follows."""
        return self.over == len(self.pods) and not self.running

    def evictable(self) -> list[tuple[str, Needs]]:
        """Return where the pods are that someone could delete to make room."""
        found = (self.pods[key] for key in self.running)
        return [(item.node, item.needs) for item in found if not item.leaving]

    # --- a pod's life -------------------------------------------------------------------------

    def _arrive(self, key: str) -> None:
        item = self.pods[key]
        item.state, item.created, item.next = "Pending", self.agenda.now(), None
        self.fresh.add(key)
        self.room.wait(key, item.needs)
        item.claims = self.submission.pod(item.pod)

    def _bring(self, number: str) -> None:
        self.submission.bring([self.objects[int(number)].body])

    def bind(self, key: str, target: str) -> bool:
        """Let a bound pod start; return whether it could have been bound in an earlier step."""
        item = self.pods.get(key)
        if item is None or item.created is None or item.state != "Pending":
            return False
        self.room.leave(key, item.needs)
        item.node, item.reason = target, ""
        if target not in self.room.nodes:
            item.node = ""
            self._refuse(key, item, "InvalidNode", f"bound to {target!r}, which is no node")
            return False
        if target in self.room.down:
            self._again(key, item, "bound to a node that is down")
            return False
        # Whether there was room in every respect cannot be known of every pod.
        could = self.room.had_room(target, item.needs) and not item.needs.unsure
        late = could and key not in self.fresh
        if not self.ways.overcommit and not self.room.fits(target, item.needs):
            self.over_capacity.append(key)
            # The kubelet's own words.
            self._refuse(key, item, "OutOfcpu", "Node didn't have enough resource: cpu, requested")
            item.reason = "bound where there was no room"
            return False
        item.state, item.bound = "Bound", self.agenda.now()
        item.attempts += 1
        self.room.take(target, item.needs)
        self.running[key] = None
        delay = self._drawn(self.how.life.start, "start")
        if delay:
            when = self.agenda.now() + delay
            item.next = self.agenda.add(when, BEGINNING, "start", key)
        else:
            self._start(key)
        return late

    def _refuse(self, key: str, item: Followed, reason: str, message: str) -> None:
        item.state, item.reason, item.ended = "Failed", message, self.agenda.now()
        self.over += 1
        self._status(key, "Failed", reason, message)

    def _start(self, key: str) -> None:
        item = self.pods[key]
        item.state, item.started, item.next = "Running", self.agenda.now(), None
        self._status(key, "Running")
        if item.pod.duration is None:
            return
        length, failure, fails = item.pod.duration, self.how.life.failure, False
        if failure:
            chance = self._stream("failure")
            fails = chance.random() < failure
            length = int(length * chance.random()) if fails else length
        when = self.agenda.now() + length
        item.next = self.agenda.add(when, ENDING, "end", key, fails=int(fails))

    def _end(self, key: str, fails: int) -> None:
        item = self.pods[key]
        item.state, item.ended = "Failed" if fails else "Succeeded", self.agenda.now()
        if fails:
            item.reason = "failed while running"
        # Until then the kubelet has not looked: nobody knows that the pod has ended.
        delay = self._drawn(self.how.life.release, "release")
        if delay:
            item.next = self.agenda.add(self.agenda.now() + delay, ENDING, "free", key)
        else:
            self._free(key)

    def _free(self, key: str) -> None:
        item = self.pods[key]
        self._release(key, item)
        if item.state == "Failed" and item.attempts <= self.how.life.retries:
            self._again(key, item, item.reason)
            return
        self.over += 1
        if item.leaving:
            self._remove(item)
        else:
            self._status(key, item.state)
            self.submission.release(item.pod, item.claims)

    def delete(self, key: str, grace: int | None) -> None:
        """Take note that someone deletes a pod: it ends after its grace; None: it is gone."""
        item = self.pods.get(key)
        if item is None or item.created is None:
            return
        if item.state == "Pending":
            self.room.leave(key, item.needs)
            item.state, item.reason, item.ended = "Failed", "deleted while it waited", None
            self.over += 1
            self._remove(item)
        elif key in self.running:
            self.deleted += not item.leaving
            item.leaving = True
            if grace is None:
                self._gone(key)
                return
            when, own = self.agenda.now() + grace * SECOND, item.next
            if item.state == "Bound" or own is None or own.when > when:
                self.agenda.cancel(own)
                item.next = self.agenda.add(when, ENDING, "gone", key)

    def _gone(self, key: str) -> None:
        self._evict(key, "evicted: it was deleted while it ran")

    def _evict(self, key: str, reason: str) -> None:
        """End a pod before its time; as the pod of a job it comes again, and waits."""
        item = self.pods[key]
        self.agenda.cancel(item.next)
        if item.state in {"Succeeded", "Failed"}:
            self._free(key)
            return
        self._release(key, item)
        item.evictions += 1
        self._again(key, item, reason)

    def _again(self, key: str, item: Followed, reason: str) -> None:
        self._remove(item)
        item.bound = item.started = item.ended = item.next = None
        item.node, item.leaving, item.reason = "", False, reason
        self._arrive(key)

    def _release(self, key: str, item: Followed) -> None:
        item.next = None
        self.running.pop(key, None)
        self.room.give(item.node, item.needs)

    # --- nodes --------------------------------------------------------------------------------

    def _plan_fault(self, name: str, faults: RandomFaults) -> None:
        chance = self._stream("faults")
        after = int(chance.expovariate(1 / faults.between)) if faults.between else 0
        length = int(chance.expovariate(1 / faults.repair)) if faults.repair else 1
        when = self.agenda.now() + after
        self.agenda.add(when, ENDING, "break", name, length=length, again=1)

    def _break(self, name: str, length: int, again: int = 0) -> None:
        """Lose a node; its pods come again elsewhere at once, as if it had been fenced."""
        now = self.agenda.now()
        self.room.down.add(name)
        self._node(name, up=False)
        for key in [key for key in self.running if self.pods[key].node == name]:
            self._evict(key, "evicted: its node went down")
        if length != FOR_EVER:
            self.agenda.add(now + length, ENDING, "repair", name, again=again)

    def _repair(self, name: str, again: int) -> None:
        self.room.down.discard(name)
        self._node(name, up=True)
        if again and self.how.random_faults is not None:
            self._plan_fault(name, self.how.random_faults)

    def _node(self, name: str, *, up: bool) -> None:
        client = self.cluster.client
        condition = objects.condition_of(self.agenda.now(), up=up)
        node = client.get(NODES, name)
        lost = objects.taints_of_a_lost_node(self.agenda.now())
        kept = [
            taint
            for taint in (node.get("spec") or {}).get("taints") or ()
            if taint["key"] != objects.UNREACHABLE
        ]
        client.patch(NODES, name, {"spec": {"taints": [*kept, *([] if up else lost)] or None}})
        client.patch(NODES, name, {"status": {"conditions": [condition]}}, subresource="status")

    # --- objects ------------------------------------------------------------------------------

    def _status(self, key: str, phase: str, reason: str = "", message: str = "") -> None:
        """Report a pod's state as its kubelet would, straight into the store.

        Half of all writes of a run are these; nobody but us owns what they set.
        """
        where = _key(self.pods[key].pod)
        stored = self.store.get(where)
        if stored is None:
            return  # someone deleted it: there is nothing to report on
        old: Mapping[str, Any] = stored.value.get("status") or {}
        new = objects.status(phase, self.agenda.now(), reason, message)
        metadata = {k: v for k, v in stored.value["metadata"].items() if k != "resourceVersion"}
        self.store.update(where, {**stored.value, "metadata": metadata, "status": {**old, **new}})

    def _remove(self, item: Followed) -> None:
        where = _key(item.pod)
        if self.store.get(where) is not None:
            self.store.delete(where)
        self.submission.release(item.pod, item.claims)

    def is_nominated(self, key: str) -> bool:
        """Whether a scheduler has promised a node to a pod that waits."""
        stored = self.store.get(_key(self.pods[key].pod))
        return stored is not None and bool(stored.value.get("status", {}).get("nominatedNodeName"))

    def waits(self, key: str) -> bool:
        """Whether a pod is here and not bound."""
        item = self.pods[key]
        return item.created is not None and item.state == "Pending"

    def refusal(self, item: Followed) -> str:
        """Return what a scheduler said last of a pod that waits."""
        stored = self.store.get(_key(item.pod))
        conditions = [] if stored is None else stored.value.get("status", {}).get("conditions", [])
        for condition in conditions:
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                return str(condition.get("message", ""))
        return ""

    def sample(self) -> None:
        """Take down how many pods wait and run, and what they hold."""
        found = Sample(
            when=self.agenda.now() - self.begin,
            waiting=sum(map(len, self.room.waiting.values())),
            running=len(self.running),
            cpu=self.room.cpu,
            gpu=self.room.gpu,
            fragmented=0.0,
        )
        if self.samples and self.samples[-1].when == found.when:
            self.samples.pop()
        self.samples.append(found)

    def _drawn(self, stage: Stage, name: str) -> int:
        if not stage.jitter:
            return stage.delay
        return stage.delay + int(self._stream(name).random() * stage.jitter)

    def _stream(self, name: str) -> Any:
        return self.chance.stream(f"{name}/{self.resumed}" if self.resumed else name)


def _key(pod: Pod) -> Key:
    return Key("pods", pod.namespace, pod.name)
