"""What a recording says has happened, as the result of a run; and how near a replay comes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dralab.capacity.changes import AddNodes
from dralab.explanation.names import counted
from dralab.kernel.clock import SECOND
from dralab.objects.metadata import metadata_of, spec_of
from dralab.scheduling.copies import put
from dralab.scheduling.model import ClusterModel
from dralab.simulation.engines.fleet_nodes import capacity_of
from dralab.simulation.lifecycle.tasks import pod_task
from dralab.simulation.results.outputs import in_seconds
from dralab.simulation.results.result import Result, SampleColumns, StateSample, Task
from dralab.simulation.scenario.fleet import ScenarioFleet, checked_node
from dralab.simulation.scenario.recorded import ClusterHistory, PodHistory
from dralab.values.json_types import JsonDict

RECORDED: Final = "recorded"
DEFAULT_SCHEDULER: Final = "default-scheduler"
NEAR: Final = SECOND
"""Times that differ by no more are taken as the same: a recorder sees a change a moment later."""


def result_of(history: ClusterHistory) -> Result:
    """Return what happened, as the result of a run."""
    lanes = _lanes(history)
    place = {lane: index for index, lane in enumerate(lanes)}
    first = [each for of, each in history.at_first.items() if of.kind == "Node"]
    nodes = [checked_node(each, history.path.name) for each in first]
    return Result(
        name=history.path.name,
        scheduler=RECORDED,
        seed=0,
        tasks=[_task(each, place) for each in history.tasks],
        samples=_samples(history),
        lanes=lanes,
        capacity=capacity_of(nodes)[0],
        end=history.end,
    )


def _lanes(history: ClusterHistory) -> list[str]:
    devices: dict[str, list[str]] = {}
    bodies = [*history.at_first.values(), *(each.body for each in history.changes)]
    for body in bodies:
        spec = spec_of(body)
        if body["kind"] == "Node":
            devices.setdefault(metadata_of(body)["name"], [])
        elif body["kind"] == "ResourceSlice" and spec.get("nodeName"):
            known = devices.setdefault(spec["nodeName"], [])
            names = (str(each["name"]) for each in spec.get("devices") or ())
            known.extend(name for name in names if name not in known)
    return [lane for node, names in devices.items()
            for lane in (node, *(f"{node}/{name}" for name in names))]  # fmt: skip


def _task(pod: PodHistory, place: Mapping[str, int]) -> Task:
    names = [f"{pod.node}/{device}" for device in pod.devices]
    used = [place[name] for name in names if name in place]
    own = [place[pod.node]] if pod.node in place else []
    reason = pod.disrupted or ("deleted while it waited" if pod.deleted and not pod.node else "")
    return pod_task(
        pod.pod,
        state=pod.state,
        bound=pod.bound,
        started=pod.started,
        ended=pod.ended,
        lanes=sorted(used) or own,
        reason=reason,
        evictions=int(bool(pod.disrupted)),
    )


def _samples(history: ClusterHistory) -> SampleColumns:
    steps: list[tuple[int, dict[str, int]]] = []
    for each in history.tasks:
        pod = each.pod
        held = {
            "running": 1, "cpu": pod.request.cpu, "memory": pod.memory, "gpu": pod.request.demand,
        }  # fmt: skip
        waits = {"waiting": 1, "asked": pod.request.cpu}
        steps.append((pod.arrives, waits))
        begun = each.bound if each.bound is not None else each.started
        if begun is not None:
            steps.append((begun, held | {name: -by for name, by in waits.items()}))
        if each.ended is not None:
            left = waits if begun is None else held
            steps.append((each.ended, {name: -by for name, by in left.items()} | {"ended": 1}))
    now: Counter[str] = Counter()
    samples = SampleColumns(0)
    for when, change in sorted(steps, key=lambda step: step[0]):
        for name, by in change.items():
            now[name] += by
        samples.add(
            StateSample(
                when=when, waiting=now["waiting"], running=now["running"], cpu=now["cpu"],
                gpu=now["gpu"], fragmented=0.0, memory=now["memory"], asked=now["asked"],
                ended=now["ended"],
            )
        )  # fmt: skip
    return samples


def with_nodes(fleet: ScenarioFleet, added: Sequence[tuple[str, int]]) -> ScenarioFleet:
    """Return a recorded fleet with more nodes: of a shape, or copies of one of it. UnknownName."""
    model = ClusterModel(fleet.objects)
    more: list[JsonDict] = []
    for like, count in added:
        more += AddNodes(like, count).objects(model)
        for item in more:
            put(model, item)
    nodes = [checked_node(each, "added") for each in more if each["kind"] == "Node"]
    return replace(
        fleet,
        nodes=(*fleet.nodes, *nodes),
        objects=(*fleet.objects, *more),
    )


# --- how near a replay comes --------------------------------------------------------------------

CAUSES: Final[Mapping[str, str]] = {
    "another scheduler": "it named another scheduler",
    "disrupted": "it was preempted, evicted, or lost its node",
    "replay preempted": "the replay preempted it",
    "deleted": "it was deleted while it waited",
    "its node was tainted": "one of its nodes was tainted or cordoned around that time",
    "times of a list": "nobody watched: its times are of its conditions, to the second",
    "follows": "another pod that differs held a node of it before",
    "unknown": "no reason is known: another version, other settings or scores of its scheduler",
}
"""Why a pod may differ, the first that holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDifference:
    """A pod whose replay differs: nodes, and when it was bound; times in nanoseconds."""

    name: str
    recorded_node: str
    replayed_node: str
    recorded_bound: int | None
    replayed_bound: int | None
    cause: str
    detail: str = ""

    @property
    def later(self) -> int | None:
        """By how much it was bound later in the replay."""
        if self.recorded_bound is None or self.replayed_bound is None:
            return None
        return self.replayed_bound - self.recorded_bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Fidelity:
    """How near a replay comes to what happened.

    `placed` are the pods that got a node in both; `same_node` of them got the same one, and `near`
    of these at the same time, but for `NEAR`. `waited` are those that got none in either, `unknown`
    those that ran on a node that the recording does not tell.
    """

    pods: int
    placed: int
    same_node: int
    near: int
    waited: int
    unknown: int
    delays: Sequence[int]
    differences: Sequence[PodDifference]

    def structured(self) -> dict[str, Any]:
        """Return it as data; times in seconds."""
        return {
            "pods": self.pods,
            "placed_in_both": self.placed,
            "same_node": self.same_node,
            "same_node_and_time": self.near,
            "waiting_in_both": self.waited,
            "node_not_recorded": self.unknown,
            "bound_later_median": in_seconds(_quantile(self.delays, 0.5)),
            "bound_later_most": in_seconds(max(self.delays, key=abs, default=None)),
            "causes": dict(Counter(each.cause for each in self.differences).most_common()),
            "differences": [
                {
                    "pod": each.name,
                    "recorded_node": each.recorded_node,
                    "replayed_node": each.replayed_node,
                    "bound_later": in_seconds(each.later),
                    "cause": each.cause,
                    "detail": each.detail,
                }
                for each in self.differences
            ],
        }


def fidelity(history: ClusterHistory, replayed: Result) -> Fidelity:
    """Return how near the replay of a recording comes to it, and why it differs."""
    there = {task.id: task for task in result_of(history).tasks}
    pods = dict(zip(there, history.tasks, strict=True))
    here = {task.id: task for task in replayed.tasks}
    pairs = [(name, there[name], here.get(name)) for name in there]
    differences: list[PodDifference] = []
    placed = same = near = waited = unknown = 0
    delays: list[int] = []
    held: dict[str, str] = {}
    tainted = _tainted(history)
    # By the time of what differs first: what follows from it comes after.
    for name, one, two in sorted(pairs, key=_first_bound):
        node, other = pods[name].node, _node(two, replayed)
        bound = None if two is None else two.bound
        if not node and one.started is not None:
            unknown += 1
            continue
        if not node and not other:
            waited += 1
            continue
        if node and other:
            placed += 1
            if one.bound is not None and bound is not None:
                delays.append(bound - one.bound)
            if node == other:
                same += 1
                if delays and abs(delays[-1]) <= NEAR:
                    near += 1
                    continue
        cause, detail = _cause(pods[name], (one, two), other, held, tainted)
        differences.append(
            PodDifference(
                name=name, recorded_node=node, replayed_node=other, recorded_bound=one.bound,
                replayed_bound=bound, cause=cause, detail=detail,
            )
        )  # fmt: skip
        for each in filter(None, (node, other)):
            held.setdefault(each, name)
    return Fidelity(
        pods=len(pairs), placed=placed, same_node=same, near=near, waited=waited, unknown=unknown,
        delays=sorted(delays), differences=differences,
    )  # fmt: skip


def _cause(
    pod: PodHistory,
    tasks: tuple[Task, Task | None],
    other: str,
    held: Mapping[str, str],
    tainted: Mapping[str, Sequence[tuple[int, int]]],
) -> tuple[str, str]:
    """Return the cause of a difference, and its detail."""
    one, two = tasks
    scheduler = spec_of(pod.body).get("schedulerName") or DEFAULT_SCHEDULER
    if scheduler != DEFAULT_SCHEDULER:
        return "another scheduler", str(scheduler)
    if pod.disrupted:
        return "disrupted", pod.disrupted
    if two is not None and two.evictions:
        return "replay preempted", ""
    if pod.deleted and not pod.node:
        return "deleted", ""
    when = one.bound or 0
    for node in (other, pod.node):
        if any(since - NEAR <= when <= until + NEAR for since, until in tainted.get(node, ())):
            return "its node was tainted", node
    if pod.listed and not pod.was_there:
        return "times of a list", ""
    for node in (pod.node, other):
        if node in held:
            return "follows", held[node]
    # A pod that got no room elsewhere: any pod that differs may have been in its way.
    if held and not (pod.node and other):
        return "follows", next(iter(held.values()))
    return "unknown", ""


def _tainted(history: ClusterHistory) -> dict[str, list[tuple[int, int]]]:
    """Return when each node was cordoned, or had taints that it did not begin with."""
    usual: dict[str, Any] = {}
    since: dict[str, int] = {}
    found: dict[str, list[tuple[int, int]]] = {}
    for of, each in history.at_first.items():
        if of.kind == "Node":
            usual[of.name] = len(spec_of(each).get("taints") or ())
    for change in history.changes:
        if change.body["kind"] != "Node":
            continue
        name, spec = metadata_of(change.body)["name"], spec_of(change.body)
        more = len(spec.get("taints") or ()) > usual.setdefault(name, 0)
        if more or spec.get("unschedulable"):
            since.setdefault(name, change.when)
        elif name in since:
            found.setdefault(name, []).append((since.pop(name), change.when))
    for name, begin in since.items():
        found.setdefault(name, []).append((begin, history.end))
    return found


def _first_bound(pair: tuple[str, Task, Task | None]) -> tuple[int, int, str]:
    name, one, two = pair
    times = [each.bound for each in (one, two) if each is not None and each.bound is not None]
    return (min(times) if times else one.submitted), one.submitted, name


def _node(task: Task | None, result: Result) -> str:
    if task is None or task.bound is None or not task.lanes:
        return ""
    return result.lanes[task.lanes[0]].partition("/")[0]


def _quantile(ordered: Sequence[int], share: float) -> int | None:
    return ordered[int(share * (len(ordered) - 1))] if ordered else None


def lines_of(found: Fidelity) -> Iterator[str]:
    """Yield the lines that tell of a fidelity."""
    data = found.structured()
    if found.placed:
        share = 100 * found.same_node / found.placed
        yield f"{found.same_node} of {found.placed} pods on the same node ({share:.1f} %)"
        yield f"{found.near} of them bound at the same time, within {NEAR // SECOND} s"
    if found.unknown:
        yield f"{counted(found.unknown, 'pod')} ran on nodes that the recording does not tell"
    if found.waited:
        yield f"{counted(found.waited, 'pod')} waited in both"
    if found.delays:
        median, most = data["bound_later_median"], data["bound_later_most"]
        yield f"bound {median:+.1f} s in the replay by the median, {most:+.1f} s at most"
    for cause, count in data["causes"].items():
        yield f"{counted(count, 'pod')} differ{'s' if count == 1 else ''}: {CAUSES[cause]}"
