"""The record of a pod so far, in the same form for every engine."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from dralab.kernel.events import Event
from dralab.simulation.lifecycle.model import LifeCycle, Pod, PodState
from dralab.simulation.results.result import Task


def pod_task(
    pod: Pod,
    *,
    state: str,
    bound: int | None,
    started: int | None,
    ended: int | None,
    lanes: Sequence[int] = (),
    reason: str = "",
    evictions: int = 0,
    wasted: int = 0,
    idle: int = 0,
    served: int = 0,
) -> Task:
    """Return the pod's result; times are nanoseconds since the run began."""
    name = pod.name if pod.namespace == "default" else pod.key
    width = max(1, -(-pod.request.cpu // 1000))
    wanted = 0 if pod.until is None else pod.until - pod.arrives
    # By position, which takes a fifth of the time: there may be a million.
    return Task(
        name, pod.user, state, pod.arrives, bound, started, ended, width, tuple(lanes),
        pod.request.demand, reason, evictions, wasted, idle, served, wanted,
    )  # fmt: skip


@dataclass(slots=True)
class TaskRecord:
    """A pod's record; times are those of the engine's clock.

    `number` is its place among all pods. `attempts` counts how often it was bound. `reason` says
    why it waits, or why it failed; `failures` counts how often it did. While it is on a node,
    `stage` is the stage of its life that lasts, `next` the event that ends it, and `fails` whether
    its run will fail; `lost` is whether its run was lost with its node and has not begun anew.
    `saved` is what a checkpoint keeps of its run time, `wasted` the run time that nothing kept.

    `idle` is the time on nodes in which it did not run, `since` when that last began. `ready`: it
    waits for the rest of its gang. `served` is the work of a replica whose run is over.
    """

    pod: Pod
    number: int = 0
    state: PodState = "Pending"
    created: int | None = None
    bound: int | None = None
    started: int | None = None
    ended: int | None = None
    node: str = ""
    reason: str = ""
    attempts: int = 0
    failures: int = 0
    evictions: int = 0
    stage: int = 0
    fails: bool = False
    lost: bool = False
    saved: int = 0
    wasted: int = 0
    idle: int = 0
    since: int | None = None
    ready: bool = False
    served: int = 0
    next: Event | None = field(default=None, compare=False)
    # The pod's key, made once: millions of pods have one each.
    key: str = field(init=False)

    def __post_init__(self) -> None:
        self.key = self.pod.key

    def bind(self, node: str, now: int) -> None:
        """Record its binding."""
        self.state, self.node, self.bound, self.reason = "Bound", node, now, ""
        self.attempts += 1
        self.lost, self.since = False, now

    def start(self, now: int) -> None:
        """Record its start, again after a lost run."""
        self.run_again(now)
        self.state, self.started, self.reason, self.lost = "Running", now, "", False

    def run_again(self, now: int) -> None:
        """Record that it is idle no longer, or has no node any more."""
        if self.since is not None:
            self.idle += now - self.since
            self.since = None

    def left(self, duration: int, life: LifeCycle) -> int:
        """Return how long the next run takes of a pod that runs for so long in all."""
        return duration - self.saved + life.overhead(self.pod, self.saved)

    def lose_run(self, now: int, life: LifeCycle) -> None:
        """Record that a run comes to nothing but what its checkpoints keep."""
        if self.started is None:
            return
        ran, work = self._ran(now, life)
        if self.pod.until is not None:
            self.served += work
            self.idle += ran - work
            return
        kept = life.kept(self.pod, work)
        self.wasted += ran - kept
        self.saved += kept

    def _ran(self, now: int, life: LifeCycle) -> tuple[int, int]:
        """Return how long the run took so far, and how long it did new work."""
        end = now if self.ended is None else self.ended
        ran = 0 if self.started is None else end - self.started
        return ran, max(0, ran - life.overhead(self.pod, self.saved))

    def pause(self, now: int, reason: str) -> None:
        """Record that a run was lost, but not its node."""
        self.since = now if self.since is None else self.since
        self.state, self.next, self.started, self.ended = "Bound", None, None, None
        self.lost, self.reason = True, reason

    def end(self, now: int, *, failed: bool) -> None:
        """Record its end; its resources are released later."""
        self.state, self.ended = "Failed" if failed else "Succeeded", now
        self.since = now
        if failed:
            self.reason = "failed while running"

    def task(
        self,
        lanes: Sequence[int],
        now: int,
        life: LifeCycle,
        *,
        begin: int = 0,
        reason: str = "",
    ) -> Task:
        """Return the pod's result as of now; the run began at `begin` of the engine's clock."""
        idle = self.idle + (0 if self.since is None else now - self.since)
        served = self.served
        if self.state in {"Running", "Succeeded"}:
            ran, work = self._ran(now, life)
            idle += ran - work
            served += work if self.pod.until is not None else 0
        bound, started, ended = self.bound, self.started, self.ended
        return pod_task(
            self.pod,
            state=self.state,
            bound=None if bound is None else bound - begin,
            started=None if started is None else started - begin,
            ended=None if ended is None else ended - begin,
            lanes=lanes,
            reason=self.reason or reason,
            evictions=self.evictions,
            wasted=self.wasted,
            idle=idle,
            served=served,
        )

    def wait_again(self, reason: str) -> None:
        """Record the loss of its node; it waits for another."""
        self.state, self.node, self.reason = "Pending", "", reason
        self.bound = self.started = self.ended = None
