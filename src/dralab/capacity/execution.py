"""Carries out a plan in a real cluster step by step, and stops when a step fails.

Pods leave through the Eviction API, so disruption budgets count. Each step waits until the pod is
gone, and until the one that its controller makes in its place is ready on the node of the plan.
Whatever happens, the nodes that were cordoned on the way are uncordoned.

Source of the two objections: `kubectl drain`, with the names of its options.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import field
from typing import Final

from dralab.api.status import ApiError
from dralab.capacity.need import PodToPlace
from dralab.capacity.relocation import devices_of
from dralab.capacity.steps import MoveStep, StartStep, Step
from dralab.kernel.clock import SECOND, Clock
from dralab.objects.claims import allocation_of, claim_names, consumers_of, results_of
from dralab.objects.conditions import condition_of
from dralab.objects.metadata import controller_of, is_deleting, key_of, spec_of, uid_of
from dralab.objects.pods import is_finished, is_ready
from dralab.runtime.client import Client, find
from dralab.runtime.resources import CLAIMS, NODES, PODS
from dralab.scheduling.demands import BlockedPod
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pods import PodInfo
from dralab.values.json_types import JsonDict, JsonObject
from dralab.values.records import dataclass

POLL: Final = 1.0
# The controller of budgets follows its pods within seconds: that long a refusal may pass.
BUDGET_SECONDS: Final = 20
# Answers that say nothing about the question: asked again until the time of the step is over.
PASSING: Final = frozenset({"ServiceUnavailable", "ServerTimeout", "Timeout", "InternalError"})
OF_SERVER: Final = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink")
"""Fields of metadata that a server sets, and that a new object must not bring along."""
EMPTY_DIR: Final = (
    "pod {} has emptyDir volumes, whose content is lost when it moves "
    "(--delete-emptydir-data allows it)"
)
BARE: Final = (
    "pod {} has no controller that makes it again: dralab would delete it and create it from its "
    "own spec (--force allows it)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """What the user allows beyond moving pods; the names are those of `kubectl drain`."""

    force: bool = False
    delete_emptydir_data: bool = False


class StepFailedError(Exception):
    """A step that failed; its text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Where the execution of a plan ended early: at which step, and why."""

    step: Step
    why: str
    moved: int


@dataclass(kw_only=True)
class Execution:
    """Carries out a plan: in a cluster, with a clock, reporting progress.

    `pause` lets some seconds pass. `keep` stores a pod that is about to be deleted and returns
    where, `dropped` forgets it again. `reread` returns the cluster as it is by then. A step may
    take `timeout` seconds.
    """

    client: Client
    clock: Clock
    pause: Callable[[float], None]
    tell: Callable[[str], None]
    keep: Callable[[JsonDict], str]
    dropped: Callable[[str], None]
    reread: Callable[[], ClusterModel]
    timeout: float
    _closed: list[str] = field(default_factory=list)
    # The uids of pods that took the place of moved ones, by the uid in the plan.
    _now: dict[str, JsonDict] = field(default_factory=dict)

    def objections(self, steps: Iterable[Step], consent: Consent) -> list[str]:
        """Return the consent that is still needed before anything may be changed. ApiError."""
        found: dict[str, None] = {}
        for step in steps:
            if not isinstance(step, MoveStep):
                continue
            key = step.move.pod.key
            pod = self.client.get(PODS, key.name, key.namespace)
            if controller_of(pod) is None and not consent.force:
                found[BARE.format(key)] = None
            local = any("emptyDir" in volume for volume in spec_of(pod).get("volumes") or ())
            if local and not consent.delete_emptydir_data:
                found[EMPTY_DIR.format(key)] = None
        return list(found)

    def run(self, steps: Sequence[Step]) -> Stop | None:
        """Carry out all steps; return None if each succeeded."""
        moved = 0
        try:
            for number, step in enumerate(steps):
                try:
                    self._open(step.uncordon)
                    as_planned = (
                        self._move(step) if isinstance(step, MoveStep) else self._start(step)
                    )
                    moved += isinstance(step, MoveStep)
                    rest = steps[number + 1 :]
                    if not as_planned and any(isinstance(each, MoveStep) for each in rest):
                        self._check(rest)
                except StepFailedError as failed:
                    return Stop(step=step, why=str(failed), moved=moved)
                except ApiError as error:
                    return Stop(step=step, why=error.message, moved=moved)
        finally:
            self._open_all()
        return None

    # --- steps

    def _move(self, step: MoveStep) -> bool:
        """Move a pod; return whether it has just the devices of the plan."""
        move = step.move
        target = move.placement.node
        if spec_of(self.client.get(NODES, target)).get("unschedulable"):
            raise StepFailedError(f"node {target} is cordoned")
        pod = self._still_there(move.pod, move.origin.node)
        for name in step.cordon:
            self._cordon(name)
        owner = controller_of(pod)
        others = set() if owner is None else {uid_of(each) for each in self._siblings(pod)}
        kept = self.keep(_as_new(pod)) if owner is None else ""
        self._evict(pod)
        self._wait(lambda: self._is_gone(pod), lambda: f"pod {key_of(pod)} does not end")
        if owner is None:
            new = self._create_again(pod, kept, target)
        else:
            new = self._replacement(pod, others, target)
        self._wait(lambda: self._has_released(pod), lambda: f"pod {key_of(pod)} keeps its devices")
        self._now[move.pod.uid] = new
        return self._devices(new) == devices_of(move.placement)

    def _start(self, step: StartStep) -> bool:
        """Wait until the scheduler has put a waiting pod on its node."""
        info, node = step.placement.pod, step.placement.node
        name, namespace = info.key.name, info.key.namespace
        last: JsonDict = {}

        def bound() -> bool:
            nonlocal last
            last = self.client.get(PODS, name, namespace)
            return bool(spec_of(last).get("nodeName"))

        self._wait(bound, lambda: f"pod {info.key} is not scheduled{_why_pending(last)}")
        there = spec_of(last)["nodeName"]
        self.tell(f"pod/{name} scheduled to {there}")
        return bool(there == node) and self._devices(last) == devices_of(step.placement)

    def _still_there(self, info: PodInfo, node: str) -> JsonDict:
        known = self._now.get(info.uid)
        key = info.key if known is None else key_of(known)
        pod = self.client.get(PODS, key.name, key.namespace)
        if uid_of(pod) != (info.uid if known is None else uid_of(known)):
            raise StepFailedError(f"pod {key} was replaced by another one of that name")
        if is_deleting(pod):
            raise StepFailedError(f"pod {key} is being deleted by someone else")
        owner, planned = controller_of(pod), controller_of(info.obj)
        if (owner or {}).get("uid") != (planned or {}).get("uid"):
            raise StepFailedError(f"pod {key} has another controller than in the plan, or none")
        there = spec_of(pod).get("nodeName")
        if there != node:
            raise StepFailedError(
                f"pod {key} runs on {there or 'no node'}, the plan has it on {node}"
            )
        return pod

    def _evict(self, pod: JsonDict) -> None:
        name, namespace = key_of(pod).name, key_of(pod).namespace
        body: JsonDict = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid_of(pod)}},
        }
        until = self.clock.now() + BUDGET_SECONDS * SECOND
        while True:
            try:
                self.client.post(PODS, name, "eviction", body, namespace)
            except ApiError as error:
                if error.reason != "TooManyRequests":
                    raise
                if self.clock.now() < until:
                    self.pause(POLL)
                    continue
                causes = "".join(f" {cause.message}" for cause in error.causes)
                raise StepFailedError(f"{error.message}{causes}") from error
            self.tell(f"pod/{name} evicted")
            return

    def _is_gone(self, pod: JsonDict) -> bool:
        now = find(self.client, PODS, key_of(pod).name, key_of(pod).namespace)
        return now is None or uid_of(now) != uid_of(pod)

    def _has_released(self, pod: JsonDict) -> bool:
        """Return whether the claims of a deleted pod are deleted, free, or used by others."""
        for name in claim_names(pod):
            claim = find(self.client, CLAIMS, name, key_of(pod).namespace)
            if claim is None:
                continue
            users = [consumer.get("uid") for consumer in consumers_of(claim)]
            if allocation_of(claim) and (not users or uid_of(pod) in users):
                return False
        return True

    def _siblings(self, pod: JsonObject) -> list[JsonDict]:
        """Return the pods that have the same controller."""
        owner = controller_of(pod) or {}
        return [
            each
            for each in self.client.list(PODS, key_of(pod).namespace).items
            if (controller_of(each) or {}).get("uid") == owner.get("uid")
        ]

    def _replacement(self, pod: JsonDict, others: Collection[str], target: str) -> JsonDict:
        """Wait until the pod that a controller makes anew is ready on the node of the plan."""
        owner = controller_of(pod) or {}
        made: list[JsonDict] = []

        def ready() -> bool:
            made[:] = [each for each in self._siblings(pod) if uid_of(each) not in others]
            for each in made:
                self._on_target(each, target)
            return any(_runs(each) for each in made)

        def why() -> str:
            if not made:
                maker = f"{owner.get('kind')} {owner.get('name')}"
                return f"{maker} makes no pod in place of {key_of(pod)}"
            return f"pod {key_of(made[0])} is not ready on {target}{_why_pending(made[0])}"

        self._wait(ready, why)
        new = next(each for each in made if _runs(each))
        self.tell(f"pod/{key_of(new).name} runs on {target}")
        return new

    def _create_again(self, pod: JsonDict, kept: str, target: str) -> JsonDict:
        key = key_of(pod)
        try:
            self.client.create(PODS, _as_new(pod), key.namespace)
        except ApiError as error:
            raise StepFailedError(
                f"pod {key} is gone and cannot be created again: {error.message}; "
                f"its spec is in {kept}"
            ) from error
        self.tell(f"pod/{key.name} created")
        last: JsonDict = {}

        def ready() -> bool:
            nonlocal last
            last = self.client.get(PODS, key.name, key.namespace)
            self._on_target(last, target)
            return _runs(last)

        self._wait(ready, lambda: f"pod {key} is not ready on {target}{_why_pending(last)}")
        self.tell(f"pod/{key.name} runs on {target}")
        self.dropped(kept)
        return last

    def _on_target(self, pod: JsonDict, target: str) -> None:
        there = spec_of(pod).get("nodeName")
        if there and there != target:
            raise StepFailedError(
                f"pod {key_of(pod)} came back on {there}, the plan needs it on {target}"
            )

    # --- nodes

    def _cordon(self, name: str) -> None:
        self.client.patch(NODES, name, {"spec": {"unschedulable": True}})
        self._closed.append(name)
        self.tell(f"node/{name} cordoned")

    def _open(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self._closed:
                self.client.patch(NODES, name, {"spec": {"unschedulable": None}})
                self._closed.remove(name)
                self.tell(f"node/{name} uncordoned")

    def _open_all(self) -> None:
        for name in list(self._closed):
            try:
                self._open([name])
            except ApiError as error:
                self.tell(
                    f"node/{name} is still cordoned: {error.message}; kubectl uncordon {name}"
                )

    # --- what became of the plan

    def _devices(self, pod: JsonDict) -> list[str]:
        found = []
        for name in claim_names(pod):
            claim = self.client.get(CLAIMS, name, key_of(pod).namespace)
            allocation = allocation_of(claim) or {}
            found += [f"{each['pool']}/{each['device']}" for each in results_of(allocation)]
        return sorted(found)

    def _check(self, rest: Iterable[Step]) -> None:
        """StepFailedError: the rest of the plan does not work in the present cluster."""
        model = self.reread()
        for name in self._closed:
            model.uncordon(name)
        waiting = {pod.uid: pod for pod in model.waiting}
        for step in rest:
            placement = step.move.placement if isinstance(step, MoveStep) else step.placement
            uid = placement.pod.uid
            uid = uid_of(self._now[uid]) if uid in self._now else uid
            if isinstance(step, StartStep) and uid in model.running:
                continue
            if isinstance(step, MoveStep):
                pod = model.take_away(uid) if uid in model.running else None
            else:
                pod = waiting.get(uid)
            row = model.state.table.row_of.get(placement.node)
            demand = model.state.demands.demand_of(pod) if pod is not None else None
            if pod is None or row is None or demand is None or isinstance(demand, BlockedPod):
                raise StepFailedError(f"afterwards {placement.pod.key} cannot be placed any more")
            found = PodToPlace(model, pod, demand).placement_on(row)
            if found is None:
                raise StepFailedError(
                    "the scheduler chose other devices than the plan, and afterwards "
                    f"{placement.pod.key} would not fit on {placement.node}"
                )
            model.place(found)

    def _wait(self, done: Callable[[], bool], why: Callable[[], str]) -> None:
        """Poll until something is done; StepFailedError at the timeout."""
        until = self.clock.now() + int(self.timeout * SECOND)
        while True:
            try:
                if done():
                    return
            except ApiError as error:
                if error.reason not in PASSING or self.clock.now() >= until:
                    raise
            if self.clock.now() >= until:
                raise StepFailedError(f"{why()} within {self.timeout:g} s")
            self.pause(POLL)


def _runs(pod: JsonObject) -> bool:
    return is_ready(pod) or is_finished(pod)


def _why_pending(pod: JsonObject) -> str:
    scheduled = condition_of(pod, "PodScheduled")
    message = (scheduled or {}).get("message")
    return f" ({message})" if message else ""


def _as_new(pod: JsonObject) -> JsonDict:
    """Return a pod as it can be created again: on no node, without what a server sets."""
    metadata = {k: v for k, v in pod["metadata"].items() if k not in OF_SERVER}
    spec = {k: v for k, v in spec_of(pod).items() if k != "nodeName"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
