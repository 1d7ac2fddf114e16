"""A recording as fleet and workload: pods arrive, and nodes come, change and go as they did.

A pod arrives when it was made, and loses its gates when it lost them. It takes as long from its
node to its start, and from there to its end, as it took. Claims that a controller made for a pod
are made anew. What was only `listed` has the times that its own conditions tell, to the second.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final

from dralab.api.snapshots.errors import SnapshotError
from dralab.api.snapshots.kept_fields import MIRROR
from dralab.api.snapshots.recordings import RecordedChange, RecordedName, Recording
from dralab.capacity.changes import bound_to
from dralab.controllers.node_lifecycle import CORDONED, OURS
from dralab.kernel.clock import SECOND, from_rfc3339
from dralab.objects.claims import allocation_of, claim_names, results_of
from dralab.objects.conditions import condition_of
from dralab.objects.metadata import annotations_of, metadata_of, owners_of, spec_of, status_of
from dralab.objects.pods import is_finished
from dralab.objects.taints import NO_SCHEDULE, taints_of
from dralab.scenarios.errors import InputError
from dralab.simulation.lifecycle.model import Pod
from dralab.simulation.scenario.fleet import ScenarioFleet, checked_node
from dralab.simulation.scenario.manifests import ARRIVES, RUNS, Arrival, of_object
from dralab.values.json_types import JsonDict, JsonObject

# Taints that a controller of nodes sets and takes away are replayed under this prefix.
REPLAYED: Final = "replayed.dralab.dev/"
OF_FLEET: Final = frozenset({"Node", "ResourceSlice", "DeviceClass", "DeviceTaintRule"})
SYSTEM: Final = "system-"
NEVER: Final = 1 << 62
PREEMPTED: Final = "PreemptionByScheduler"
# The lists that a recording begins with do not take longer.
FIRST_LIST: Final = 120 * SECOND


@dataclass(slots=True, kw_only=True)
class PodHistory:
    """What became of a pod; times are nanoseconds since the recording began, None: never.

    `order` is that of those that arrived at the same time: of those that were found, by their age.
    It had gates until it `opens`. `listed`: one of the times is from its conditions, which count
    seconds. `disrupted` is the reason of the condition DisruptionTarget.
    """

    name: str
    body: JsonDict
    listed: bool
    arrives: int
    opens: int | None = None
    order: tuple[str, int] = ("", 0)
    bound: int | None = None
    started: int | None = None
    ended: int | None = None
    node: str = ""
    devices: tuple[str, ...] = ()
    state: str = "Pending"
    disrupted: str = ""
    pinned: bool = False
    deleted: bool = False
    was_there: bool = False

    @property
    def pod(self) -> Pod:
        """The pod of a scenario that arrives, runs and goes as this one did."""
        named = replace(of_object(self.body, self.arrives), name=self.name, owner="", gang="")
        begun = self.started if self.started is not None else self.bound
        length = None if begun is None or self.ended is None else max(0, self.ended - begun)
        if length is not None and self.disrupted == PREEMPTED:
            length += SECOND  # it is still there when the pod comes that it has to make room for
        return replace(
            named,
            body=replayed_pod(self.body, self.node if self.pinned else ""),
            duration=length,
            starting=0 if begun is None or self.bound is None else begun - self.bound,
            opens=self.opens,
            leaves=self.ended if begun is None else None,
            returns=not self.disrupted,
        )


def is_recording(path: Path) -> bool:
    """Return whether a file is a recording; what cannot be read is none."""
    try:
        Recording.open(path)
    except SnapshotError:
        return False
    return True


def history_of(path: Path) -> "ClusterHistory":
    """Return the history of a recording; it is read once for fleet and workload. InputError."""
    try:
        found = path.stat()
    except OSError as error:
        raise InputError(path, f"cannot be read: {error.strerror or error}") from None
    return _history(path, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=1)
def _history(path: Path, _: int, __: int) -> "ClusterHistory":
    return ClusterHistory(path)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Tell what is wrong with a recording as an InputError."""
    try:
        yield
    except SnapshotError as error:
        raise InputError(path, str(error).removeprefix(f"{path}: ")) from error
    except InputError as error:
        raise InputError(path, error.problem, where=error.where) from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        problem = f"holds an object with a field of the wrong kind: {error!r}"
        raise InputError(path, problem) from error


class ClusterHistory:
    """A recording, read: what there was at its beginning, and what happened then.

    InputError: it cannot be read, or holds no node.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with _readable(path):
            recording = Recording.open(path)
            self.metadata = recording.metadata
            self._read(recording)
        self.end = max(recording.until - self.begin, 1)

    def _read(self, recording: Recording) -> None:
        self.begin = 0
        self.pods: list[PodHistory] = []
        self.at_first: dict[RecordedName, JsonDict] = {}
        self.changes: list[Arrival] = []
        self.priorities: set[str] = set()
        self._current: dict[RecordedName, tuple[str, PodHistory]] = {}
        self._names: dict[str, int] = {}
        self._known: dict[RecordedName, JsonDict] = {}
        self._state = recording.state
        moved: set[str] = set()
        for change in recording:
            self.begin = self.begin or change.when
            if not change.listed:
                moved.add(change.of.kind)
            early = change.when - self.begin < FIRST_LIST
            is_first = change.listed and early and change.of.kind not in moved
            if change.of.kind == "Pod":
                self._pod(change, is_first)
            elif is_first:
                if change.object is not None:
                    self.at_first[change.of] = change.object
                    self._known[change.of] = _replayed(change.object)
            else:
                self._other(change)
            if change.of.kind == "PriorityClass":
                self.priorities.add(change.of.name)
        del self._current, self._names, self._known, self._state

    # --- objects but pods ---------------------------------------------------------------------

    def _other(self, change: RecordedChange) -> None:
        obj = change.object
        before = self._known.get(change.of)
        if obj is None:
            if before is not None:
                del self._known[change.of]
                self.changes.append(Arrival(self._when(change), before, gone=True))
            return
        if any(owner.get("kind") == "Pod" for owner in owners_of(obj)):
            return  # a controller made it for a pod, and does so again
        body = _replayed(obj)
        if body != before:
            self._known[change.of] = body
            self.changes.append(Arrival(self._when(change, obj if before is None else None), body))

    def _when(self, change: RecordedChange, made: JsonObject | None = None) -> int:
        """Return the time of a change; of an object that was found, when it was made."""
        now = change.when - self.begin
        if not change.listed or made is None:
            return now
        return self._stamp(metadata_of(made).get("creationTimestamp"), now)

    def _stamp(self, text: Any, now: int) -> int:
        """Return the time that an object tells, at most `now` and not before the recording."""
        if not isinstance(text, str):
            return now
        return min(max(from_rfc3339(text) - self.begin, 0), now)

    # --- pods ---------------------------------------------------------------------------------

    def _pod(self, change: RecordedChange, is_first: bool) -> None:  # noqa: FBT001
        uid, known = self._current.get(change.of, ("", None))
        obj, now = change.object, change.when - self.begin
        if obj is None or (known is not None and uid != metadata_of(obj).get("uid")):
            if known is not None:
                self._end(known, now, "")
                known.listed = known.listed or change.listed
                del self._current[change.of]
            known = None
        if obj is None or (known is None and is_first and is_finished(obj)):
            return
        if known is None:
            made = metadata_of(obj).get("creationTimestamp")
            known = PodHistory(
                name=self._name(change.of),
                body=obj,
                listed=change.listed,
                arrives=self._stamp(made, now) if change.listed else now,
                order=(str(made) if change.listed else "", len(self.pods)),
                was_there=is_first,
            )
            placed = spec_of(obj).get("nodeName") and not change.listed
            known.pinned = MIRROR in annotations_of(obj) or bool(
                placed and condition_of(obj, "PodScheduled") is None
            )
            self._current[change.of] = str(metadata_of(obj).get("uid")), known
            self.pods.append(known)
        self._follow(known, obj, change, now)

    def _follow(self, pod: PodHistory, obj: JsonDict, change: RecordedChange, now: int) -> None:
        def when(*conditions: str) -> int:
            """Return the time of what has just been seen, or that a condition tells."""
            if not change.listed:
                return now
            pod.listed = True
            told = next(filter(None, (condition_of(obj, each) for each in conditions)), {})
            return self._stamp(told.get("lastTransitionTime"), now)

        spec, status = spec_of(obj), status_of(obj)
        if spec.get("schedulingGates"):
            pod.opens = NEVER
        elif pod.opens == NEVER:
            pod.opens = now
        disrupted = condition_of(obj, "DisruptionTarget") or {}
        if disrupted.get("status") == "True":
            pod.disrupted = str(disrupted.get("reason"))
        if spec.get("nodeName") and pod.bound is None:
            pod.bound, pod.node, pod.state = when("PodScheduled"), spec["nodeName"], "Bound"
            pod.devices = tuple(self._devices(change.of, obj))
            pod.body = obj  # its claims have names by now
        if status.get("phase") == "Running" and pod.started is None:
            pod.started, pod.state = (
                max(when("Ready", "ContainersReady"), pod.bound or 0),
                "Running",
            )
        if is_finished(obj):
            self._end(pod, when("Ready", "ContainersReady"), str(status["phase"]))

    def _end(self, pod: PodHistory, now: int, state: str) -> None:
        if pod.ended is None:
            pod.ended = max(now, pod.started or pod.bound or pod.arrives)
            pod.deleted = not state
            pod.state = state or ("Failed" if pod.bound is None else "Succeeded")

    def _name(self, of: RecordedName) -> str:
        """Return a name that no pod before has: one that was made anew is another one."""
        key = f"{of.namespace}/{of.name}"
        number = self._names[key] = self._names.get(key, 0) + 1
        return of.name if number == 1 else f"{of.name}-{number}"

    def _devices(self, of: RecordedName, obj: JsonDict) -> Iterator[str]:
        for name in claim_names(obj):
            claim = self._state.objects.get(RecordedName("ResourceClaim", of.namespace, name))
            if claim is not None:
                yield from (str(each["device"]) for each in results_of(allocation_of(claim)))

    # --- as a scenario ------------------------------------------------------------------------

    @cached_property
    def tasks(self) -> Sequence[PodHistory]:
        """The pods by their arrival."""
        return sorted(self.pods, key=lambda each: (each.arrives, each.order))

    def fleet(self) -> ScenarioFleet:
        """Return the nodes that there were at the beginning, and what becomes of them.

        InputError.
        """
        with _readable(self.path):
            return self._fleet()

    def _fleet(self) -> ScenarioFleet:
        first = list(self.at_first.values())
        waiting = {metadata_of(each.body).get("uid") for each in self.pods if not self._ran(each)}
        objects = [_replayed(each) for each in first if each["kind"] in OF_FLEET]
        objects += [
            _replayed(each)
            for each in first
            if each["kind"] == "PriorityClass" and not metadata_of(each)["name"].startswith(SYSTEM)
        ]
        running = [
            each
            for each in first
            if each["kind"] not in {*OF_FLEET, "PriorityClass"}
            and not any(owner.get("uid") in waiting for owner in owners_of(each))
        ]
        running += [_running(each) for each in self.pods if self._ran(each)]
        nodes = [checked_node(each, self.path.name) for each in objects if each["kind"] == "Node"]
        return ScenarioFleet(
            nodes=tuple(nodes),
            objects=tuple(objects),
            running=tuple(running),
            changes=tuple(each for each in self.changes if each.body["kind"] in OF_FLEET),
            counted=True,
        )

    def work(self, *, alone: bool) -> tuple[tuple[Pod, ...], tuple[Arrival, ...]]:
        """Return the pods that arrive, and other objects; `alone`: also those that ran at first.

        InputError.
        """
        with _readable(self.path):
            return self._work(alone=alone)

    def _work(self, *, alone: bool) -> tuple[tuple[Pod, ...], tuple[Arrival, ...]]:
        pods = [
            self._with_its_class(each.pod) for each in self.tasks if alone or not self._ran(each)
        ]
        others = [each for each in self.changes if each.body["kind"] not in OF_FLEET]
        if alone:
            first = [_replayed(each) for of, each in self.at_first.items()
                     if of.kind in {"PriorityClass", "ResourceClaimTemplate", "ResourceClaim"}
                     and not of.name.startswith(SYSTEM)
                     and not owners_of(each)]  # fmt: skip
            others = [*(Arrival(0, each) for each in first), *others]
        return tuple(pods), tuple(others)

    def _ran(self, pod: PodHistory) -> bool:
        """Return whether a pod had its node, and its claims, when the recording began."""
        return (
            pod.was_there
            and pod.bound == 0
            and RecordedName("Node", "", pod.node) in self.at_first
            and all(
                allocation_of(self.at_first.get(RecordedName("ResourceClaim", namespace, name), {}))
                for namespace in [metadata_of(pod.body).get("namespace") or ""]
                for name in claim_names(pod.body)
            )
        )

    def _with_its_class(self, pod: Pod) -> Pod:
        """Return a pod that names no class of priority which is not recorded."""
        body: JsonDict = dict(pod.body or {})
        named = spec_of(body).get("priorityClassName")
        if not named or named in self.priorities or named.startswith(SYSTEM):
            return pod
        spec = {key: each for key, each in spec_of(body).items() if key != "priorityClassName"}
        return replace(pod, body={**body, "spec": spec})


def _running(pod: PodHistory) -> JsonDict:
    """Return a pod that runs already, with how long it will."""
    annotations, spec = {ARRIVES: "0"}, pod.body["spec"]
    if pod.ended is not None:
        spec = {**spec, "restartPolicy": "Never"}  # it is over when it was
        annotations[RUNS] = f"{pod.ended // SECOND}.{pod.ended % SECOND:09d}s"
    metadata = {**pod.body["metadata"], "annotations": annotations}
    return {**pod.body, "metadata": metadata, "spec": spec}


def pod_running(body: JsonDict) -> Pod:
    """Return a pod that ran when the recording began."""
    return replace(of_object(body, 0), gang="", owner="", body=replayed_pod(body))


def replayed_pod(obj: JsonObject, node: str = "") -> JsonDict:
    """Return a pod as it was made; one that was made for a node may go there alone."""
    left_out = {"nodeName", "schedulingGates", "activeDeadlineSeconds"}
    spec = {key: each for key, each in spec_of(obj).items() if key not in left_out}
    spec["tolerations"] = [*(spec.get("tolerations") or ()), *_as_replayed(obj)]
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": _plain(obj), "spec": spec}
    if node:
        spec["tolerations"] = [{"operator": "Exists"}]
        return bound_to(body, node)
    return body


def _as_replayed(obj: JsonObject) -> Iterator[JsonDict]:
    for each in spec_of(obj).get("tolerations") or ():
        if each.get("key") in OURS:
            yield {**each, "key": _replayed_key(each["key"])}


def _replayed_key(key: str) -> str:
    return REPLAYED + key.rpartition("/")[2]


def _plain(obj: JsonObject) -> JsonDict:
    metadata = metadata_of(obj)
    names = ("name", "namespace", "labels")
    return {name: metadata[name] for name in names if metadata.get(name)}


def _replayed(obj: JsonDict) -> JsonDict:
    """Return an object as it is made anew."""
    kept = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": _plain(obj)}
    if obj["kind"] == "Node":
        status, spec = status_of(obj), spec_of(obj)
        taints = [
            {**each, "key": _replayed_key(each["key"])} if each["key"] in OURS else dict(each)
            for each in taints_of(obj)
            if each["key"] != CORDONED
            # Their pods were evicted when they were: the recording has it.
            and (each["key"] not in OURS or each["effect"] == NO_SCHEDULE)
        ]
        for each in taints:
            each.pop("timeAdded", None)
        amounts = {name: status.get(name) or {} for name in ("capacity", "allocatable")}
        cordoned = {"unschedulable": True} if spec.get("unschedulable") else {}
        return {**kept, "spec": {"taints": taints, **cordoned}, "status": amounts}
    left_out = {"apiVersion", "kind", "metadata", "status"}
    return {**kept, **{key: each for key, each in obj.items() if key not in left_out}}
