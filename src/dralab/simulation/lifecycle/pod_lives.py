"""The life of pods, from arrival to end, including outages of their nodes.

One implementation for the engines that act pods out themselves (`fast`, `external`); an engine says
in a `LifecycleHost` what becomes of its own nodes and objects. A life is a list of stages, and what
a pod waits for is data (its `stage`, and an entry of the agenda): so a run can be written down
between any two of them and resumed, which generators could not be.
"""

from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar, assert_never

from dralab.kernel.events import BEGINNING, ENDING, RETURNING
from dralab.simulation.lifecycle.agenda import Agenda
from dralab.simulation.lifecycle.model import Delays, RunConditions, Stage, Stream
from dralab.simulation.lifecycle.outages import NodeFaults
from dralab.simulation.lifecycle.tasks import TaskRecord

Task = TypeVar("Task", bound=TaskRecord)
Task_contra = TypeVar("Task_contra", bound=TaskRecord, contravariant=True)


class LifecycleHost(Protocol[Task_contra]):
    """The nodes and objects of an engine."""

    def submit(self, task: Task_contra) -> None:
        """Queue a pod that arrives, or that is retried."""
        ...

    def start(self, task: Task_contra) -> None:
        """A pod runs from now on."""
        ...

    def release(self, task: Task_contra) -> None:
        """Free what a pod holds on its node."""
        ...

    def comes_again(self, task: Task_contra) -> bool:
        """Whether an evicted or failed pod is submitted again by the engine."""
        ...

    def withdraw(self, task: Task_contra) -> None:
        """Remove a pod that will be retried."""
        ...

    def cancel(self, task: Task_contra) -> None:
        """Remove a pod that waits for a node, and is wanted no longer."""
        ...

    def finish(self, task: Task_contra) -> None:
        """Handle a pod that has ended for good."""
        ...

    def lose(self, node: str) -> None:
        """A node goes down."""
        ...

    def restore(self, node: str) -> None:
        """A node is up again."""
        ...

    def changed(self) -> None:
        """Notify the scheduler: something has arrived or was released."""
        ...


class PodLives(Generic[Task]):
    """All pods of a run, by their keys.

    `fenced`: the pods of a node that goes down are evicted at once; otherwise the engine says what
    becomes of them.
    """

    def __init__(
        self,
        site: LifecycleHost[Task],
        agenda: Agenda,
        tasks: dict[str, Task],
        how: RunConditions,
        stream: Stream,
        *,
        fenced: bool = True,
    ) -> None:
        self.site = site
        self.agenda = agenda
        self.tasks = tasks
        self.retries = how.life.retries
        self.delays = Delays(how.life, stream)
        self.stages = how.life.stages
        self._start = next(n for n, stage in enumerate(self.stages) if stage.then == "start")
        # Pods on nodes: bound, running, or ended and not yet released.
        self.running: dict[str, Task] = {}
        self.over = self.evictions = 0
        self._begin = 0
        # The pods that run only together, as far as they are not over.
        self._gangs: dict[tuple[str, str], list[Task]] = {}
        if how.life.gangs != "alone":
            for task in tasks.values():
                if task.pod.gang:
                    self._gangs.setdefault((task.pod.namespace, task.pod.gang), []).append(task)
        self.faults = NodeFaults(
            agenda,
            lose=site.lose,
            restore=self._restore,
            strike=self._strike if fenced else _nothing,
            at_random=how.random_faults,
            stream=stream,
        )
        self.how = how
        agenda.methods |= {
            "arrive": self._arrive, "stage": self._stage_over, "unwanted": self._no_longer_wanted,
        }  # fmt: skip

    def plan(self, nodes: Mapping[str, int], begin: int = 0) -> None:
        """Schedule all arrivals and outages; `begin` is the start of the run.

        The nodes have so many GPUs.
        """
        for key, task in sorted(self.tasks.items(), key=lambda item: item[1].pod.arrives):
            self.agenda.schedule(begin + task.pod.arrives, BEGINNING, "arrive", key)
        self.plan_outages(nodes, begin)

    def plan_outages(self, nodes: Mapping[str, int], begin: int = 0) -> None:
        """Schedule the outages."""
        self._begin = begin
        self.faults.plan((fault for fault in self.how.faults if fault.is_outage), begin)
        self.faults.plan_random(nodes)

    @property
    def finished(self) -> bool:
        """Whether every pod has ended: later outages do not matter."""
        return self.over == len(self.tasks) and not self.running

    # --- a life, from top to bottom -----------------------------------------------------------

    def _arrive(self, key: str) -> None:
        self.queue(self.tasks[key])

    def queue(self, task: Task) -> None:
        """Queue a pod that arrives or is submitted again."""
        if task.pod.until is not None and task.created is None:
            end = max(self._begin + task.pod.until, self.agenda.now())
            self.agenda.schedule(end, ENDING, "unwanted", task.key)
        task.created, task.next = self.agenda.now(), None
        self.site.submit(task)
        self.site.changed()

    def bind(self, task: Task, node: str, *, silent: bool = False) -> None:
        """Begin a pod's life on a node; on a `silent` node `resume` begins it."""
        task.bind(node, self.agenda.now())
        self.running[task.key] = task
        if not silent:
            self._live(task, 0)

    def _live(self, task: Task, first: int) -> None:
        """Advance through the stages of a life, up to the next one that takes time."""
        for number in range(first, len(self.stages)):
            stage = self.stages[number]
            if stage.then == "start" and (gang := self._gang_with(task)):
                task.stage, task.ready = number, True
                self._start_together(gang, number)
                return
            lasts = self._lasts(task, stage)
            # A run that takes no time ends at the same instant, but not within the decision.
            if lasts is None or lasts or stage.runs:
                self._let_last(task, number, lasts)
                return
            self._reach_end_of(stage, task)

    def _lasts(self, task: Task, stage: Stage) -> int | None:
        """Return how long a stage lasts; None: for ever."""
        if not stage.runs:
            own = task.pod.starting if stage.then == "start" else 0
            return self.delays.length_of(stage) + own
        if task.pod.until is not None:
            left = max(0, self._begin + task.pod.until - self.agenda.now())
        elif task.pod.duration is None:
            return None
        else:
            left = task.left(task.pod.duration, self.how.life)
        length, task.fails = self.delays.run(left)
        return length

    def _let_last(self, task: Task, number: int, length: int | None) -> None:
        task.stage, task.next = number, None
        if length is not None:
            when = self.agenda.now() + length
            priority = BEGINNING if task.state == "Bound" else ENDING
            task.next = self.agenda.schedule(when, priority, "stage", task.key)

    def _stage_over(self, key: str) -> None:
        task = self.tasks[key]
        task.next = None
        self._reach_end_of(self.stages[task.stage], task)
        self._live(task, task.stage + 1)

    def _reach_end_of(self, stage: Stage, task: Task) -> None:
        match stage.then:
            case "go on":
                pass
            case "start":
                task.start(self.agenda.now())
                self.site.start(task)
            case "end":
                task.end(self.agenda.now(), failed=task.fails)
                task.failures += task.fails
                if task.fails:
                    task.lose_run(self.agenda.now(), self.how.life)
                    self._break_gang(task, f"{task.pod.name} of its gang failed", failed=True)
            case "leave":
                self.leave(task)
            case _:
                assert_never(stage.then)

    def leave(self, task: Task) -> None:
        """Release a finished pod's resources; a failed one may be retried."""
        self._release(task)
        if task.state == "Failed" and self._has_retries(task) and self.site.comes_again(task):
            self.try_again(task, task.reason)
        else:
            self.finish(task)
        self.site.changed()

    def _has_retries(self, task: Task) -> bool:
        """Whether a pod that failed is tried again: a replica always is."""
        return task.pod.until is not None or task.failures <= self.retries

    def finish(self, task: Task) -> None:
        """Count a finished pod."""
        self._count_over(task)
        self.site.finish(task)

    def _count_over(self, task: Task) -> None:
        self.over += 1
        if gang := self._gang_with(task):
            gang.remove(task)

    def _no_longer_wanted(self, key: str) -> None:
        """End a replica that does not run by the time until which it is wanted."""
        task = self.tasks[key]
        if task.state == "Pending":
            self.site.cancel(task)
            task.state, task.reason = "Failed", "there was no room as long as it was wanted"
            self._count_over(task)
        elif task.state == "Bound":
            self._end_failed(task, "it did not run as long as it was wanted")

    def _end_failed(self, task: Task, reason: str) -> None:
        """End a pod on a node for good."""
        self.agenda.cancel(task.next)
        self._release(task)
        task.state, task.ended, task.reason = "Failed", self.agenda.now(), reason
        self.finish(task)
        self.site.changed()

    # --- a life that is interrupted -----------------------------------------------------------

    def try_again(self, task: Task, reason: str) -> None:
        """Queue a pod again, after the decisions of this instant."""
        self.site.withdraw(task)
        task.wait_again(reason)
        self.agenda.schedule(self.agenda.now(), RETURNING, "arrive", task.key)

    def evict(self, task: Task, reason: str) -> None:
        """Evict a pod; the pod of a job is submitted again."""
        self._evict(task, reason)
        self._break_gang(task, f"{task.pod.name} of its gang was evicted")

    def _evict(self, task: Task, reason: str) -> None:
        self.agenda.cancel(task.next)
        self._release(task)
        if not task.lost:
            self._count_loss(task)
        if self.site.comes_again(task):
            self.try_again(task, reason)
        else:
            self.give_up(task, reason)

    def give_up(self, task: Task, reason: str) -> None:
        """End a pod that no other one follows."""
        task.state, task.ended, task.reason = "Failed", self.agenda.now(), reason
        self.site.withdraw(task)
        self._count_over(task)

    def interrupt(self, task: Task, reason: str) -> None:
        """Interrupt a pod: it stays on its node, and does nothing there."""
        self._pause(task, reason)
        task.ready = False
        self._hold_gang(task, f"{task.pod.name} of its gang lost its node")

    def _pause(self, task: Task, reason: str) -> None:
        self.agenda.cancel(task.next)
        self._count_loss(task)
        task.pause(self.agenda.now(), reason)

    def resume(self, task: Task) -> None:
        """Restart an interrupted pod's life on its node."""
        self._live(task, 0)

    def _count_loss(self, task: Task) -> None:
        task.evictions += 1
        self.evictions += 1
        task.lose_run(self.agenda.now(), self.how.life)

    def _release(self, task: Task) -> None:
        task.next, task.ready = None, False
        task.run_again(self.agenda.now())
        del self.running[task.key]
        self.site.release(task)

    # --- gangs that run only together ---------------------------------------------------------

    def _start_together(self, gang: Sequence[Task], number: int) -> None:
        """Start the pods of a gang once the last of them is ready."""
        if not all(task.ready for task in gang):
            return
        for task in gang:
            task.ready = False
            self._reach_end_of(self.stages[number], task)
            self._live(task, number + 1)

    def _gang_with(self, task: Task) -> list[Task]:
        """Return the gang of a pod that runs only together with others, as far as not over."""
        return self._gangs.get((task.pod.namespace, task.pod.gang), []) if self._gangs else []

    def _others(self, task: Task) -> list[Task]:
        """Return the other pods of a gang that have nodes and are not over."""
        return [
            other
            for other in self._gang_with(task)
            if other is not task and other.state in {"Bound", "Running"}
        ]

    def _hold_gang(self, task: Task, reason: str) -> None:
        """Stop the others of a gang on their nodes: they wait for the one that was lost."""
        for other in self._others(task):
            if other.state == "Running":
                self._pause(other, reason)
                other.stage, other.ready = self._start, True

    def _break_gang(self, task: Task, reason: str, *, failed: bool = False) -> None:
        """Do to a gang what its life cycle says when it has lost a pod."""
        others = self._others(task)
        for other in others:
            other.failures += failed
        if failed and not self._has_retries(task):
            for other in others:
                self._count_loss(other)
                self._end_failed(other, reason)
        elif self.how.life.gangs == "wait":
            self._hold_gang(task, reason)
        else:
            for other in others:
                self._evict(other, reason)

    # --- nodes --------------------------------------------------------------------------------

    def _strike(self, name: str) -> None:
        """Evict the pods of a node that went down, as if it was fenced."""
        for task in [task for task in self.running.values() if task.node == name]:
            # A finished run stays finished, whatever happens to its node.
            if task.state in {"Bound", "Running"}:
                self.evict(task, "evicted: its node went down")
        self.site.changed()

    def _restore(self, name: str) -> None:
        self.site.restore(name)
        self.site.changed()


def _nothing(name: str) -> None:
    """Do nothing when an outage begins."""
