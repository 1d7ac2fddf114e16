"""A user's policy where pods are placed on the nodes of one `ClusterState`: `fast`, `cluster`."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

import numpy as np

from dralab.kernel.clock import SECOND
from dralab.objects.metadata import labels_of
from dralab.scenarios.errors import InputError
from dralab.scheduling.node_columns import Numbers
from dralab.scheduling.nodes import Mask, NodeTable
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.scores import NodeChoice, ScoredNodes, ScorePlugin
from dralab.simulation.lifecycle.tasks import TaskRecord
from dralab.simulation.policies.protocol import (
    PolicyNode,
    PolicyTask,
    StateReaders,
    TaskFacts,
    read_only,
)
from dralab.simulation.policies.user_policy import MOST, SCALE, UserPolicy

# Scores are whole numbers that are not negative; a user's may be neither.
MIDDLE: Final = MOST * SCALE
# Of one instant, for each task: two that preempt each other would go on without end.
EVICTIONS: Final = 4
Gpus = tuple[tuple[int, ...], str]


class OwnChoice(NodeChoice):
    """Asks a user's policy for the place of pods, their order, and whom they preempt.

    `record_of` finds the task of a pod, `tasks` are those that are not over by uid of their pods;
    `begin` is when the run began by the clock `now`. `gpus_of` a node are what is left of its GPUs
    and their model, where the table does not have them.
    """

    kept = np.float64
    refuses_nodes = True
    preempts = False
    by_node = True

    def __init__(
        self,
        policy: UserPolicy,
        table: NodeTable,
        tasks: Mapping[str, TaskRecord],
        *,
        record_of: Callable[[PodInfo], TaskRecord],
        now: Callable[[], int],
        begin: int,
        gpus_of: Callable[[str], Gpus] | None = None,
    ) -> None:
        self.name = policy.name
        self.policy = policy
        self.table = table
        self.tasks = tasks
        self._record_of = record_of
        self._now, self._begin = now, begin
        self._gpus_of = gpus_of
        self._evicted: Counter[int] = Counter()
        asked = policy.asked
        # What looks at more than a pod and a node has to be asked each time.
        self.by_object = not asked.isdisjoint({"place", "preempt"})
        points = self._chosen if "place" in asked else self._liked
        self.plugins = (
            () if asked.isdisjoint({"place", "prefer"}) else (ScorePlugin(self.name, 1, points),)
        )
        policy.see(
            StateReaders(
                now=lambda: (now() - begin) / SECOND,
                waiting=lambda: self._tasks(running=False),
                running=lambda: self._tasks(running=True),
                nodes=lambda: map(self._node, np.flatnonzero(table.live).tolist()),
                noted=self._tell_apart,
            )
        )

    @property
    def rank(self) -> Callable[[PodInfo], tuple[float, ...]] | None:
        """What the order of the queue goes by; None: priority."""
        if "order" not in self.policy.asked:
            return None
        return lambda pod: self.policy.rank(self._task(self._record_of(pod)))

    def _tell_apart(self) -> None:
        self.by_object = True

    # --- where

    def _liked(self, state: ScoredNodes, pod: PodInfo, fitting: Mask) -> Numbers:
        """Return what `prefer` says of each node."""
        found = np.full(state.table.size, -1, dtype=np.int64)
        task = self._asking(pod)
        for node, row in self._rows(state, fitting):
            liking = self.policy.liking(task, self._node(row))
            if liking is not None:
                found[node] = MIDDLE + liking
        return found

    def _chosen(self, state: ScoredNodes, pod: PodInfo, fitting: Mask) -> Numbers:
        """Return the same for the one node that `place` chooses."""
        found = np.full(state.table.size, -1, dtype=np.int64)
        nodes = {number: self._node(row) for number, row in self._rows(state, fitting)}
        if not nodes:
            return found
        wanted = "one of the nodes it was given, or None"
        given = tuple(nodes.values())
        names = self.policy.names("place", wanted, self._asking(pod), given)
        if names is None:
            return found
        chosen = [number for number, node in nodes.items() if [node.name] == names]
        if not chosen:
            raise self.policy.wrong("place", wanted, names[0] if len(names) == 1 else names)
        found[chosen] = MIDDLE
        return found

    @staticmethod
    def _rows(state: ScoredNodes, fitting: Mask) -> Iterator[tuple[int, int]]:
        nodes, rows = np.flatnonzero(fitting), state.table.rows
        numbers = nodes if isinstance(rows, slice) else rows[nodes]
        return zip(nodes.tolist(), numbers.tolist(), strict=True)

    # --- whom

    def victims(self, pod: PodInfo) -> Sequence[str] | None:
        """Return the pods that end for another, by uid; None: the policy does not say."""
        if "preempt" not in self.policy.asked:
            return None
        wanted = "tasks of self.state.running"
        names = self.policy.names("preempt", wanted, self._asking(pod)) or ()
        running = {task.key: uid for uid, task in self.tasks.items() if _has_node(task)}
        for name in names:
            if name not in running:
                raise self.policy.wrong("preempt", wanted, name)
        found = [running[name] for name in names]
        now = self._now()
        self._evicted = Counter({now: self._evicted[now] + len(found)})
        if self._evicted[now] > EVICTIONS * (len(self.tasks) + 10):
            when = f"at {(now - self._begin) / SECOND:g}s tasks preempt each other without end"
            raise InputError(f"{self.name}.preempt", f"{when}, the last one {pod.key}")
        return found

    def in_vain(self, pod: PodInfo, victims: Sequence[str]) -> None:
        """Refuse victims that make no room. InputError."""
        names = ", ".join(self.tasks[uid].key for uid in victims)
        wanted = f"tasks of one node that make room for {pod.key}"
        raise self.policy.wrong("preempt", wanted, names)

    # --- what a policy sees

    def _asking(self, pod: PodInfo) -> PolicyTask:
        """Return the task of a pod that stands for all that ask for the same."""
        shares, record = pod.shares, partial(self._record_of, pod)
        request = record().pod.request if shares is None else None

        def facts() -> TaskFacts:
            self._tell_apart()
            return self._facts(record())

        return PolicyTask(
            key=str(pod.key),
            namespace=pod.key.namespace,
            priority=pod.priority,
            labels=MappingProxyType(pod.labels),
            requests=MappingProxyType(pod.requests),
            cpu=pod.requests.get("cpu", 0),
            memory=pod.requests.get("memory", 0),
            gpus=shares.gpus if shares is not None else request.gpus if request else 0,
            gpu_milli=shares.milli if shares is not None else request.milli if request else 0,
            models=shares.models if shares is not None else request.models if request else "",
            facts=facts,
        )

    def _task(self, record: TaskRecord) -> PolicyTask:
        pod, request = record.pod, record.pod.request
        return PolicyTask(
            key=record.key,
            namespace=pod.namespace,
            priority=pod.priority,
            labels=MappingProxyType(labels_of(pod.body or {})),
            requests=MappingProxyType({"cpu": request.cpu, "memory": pod.memory}),
            cpu=request.cpu,
            memory=pod.memory,
            gpus=request.gpus,
            gpu_milli=request.milli,
            models=request.models,
            facts=lambda: self._facts(record),
        )

    def _facts(self, record: TaskRecord) -> TaskFacts:
        pod = record.pod
        duration = None if pod.duration is None else pod.duration / SECOND
        ran = 0 if record.started is None else self._now() - record.started
        return TaskFacts(
            name=pod.name,
            user=pod.user,
            queue=pod.queue,
            gang=pod.gang,
            arrives=pod.arrives / SECOND,
            duration=duration,
            estimate=float("inf") if duration is None else duration,
            started=None if record.started is None else (record.started - self._begin) / SECOND,
            served=(record.saved + ran) / SECOND,
            nodes=(record.node,) if record.node else (),
            body=read_only(pod.body),
        )

    def _tasks(self, *, running: bool) -> Iterator[PolicyTask]:
        found = [
            task for task in self.tasks.values() if task.state in {"Pending", "Bound", "Running"}
        ]
        return (self._task(task) for task in found if _has_node(task) is running)

    def _node(self, row: int) -> PolicyNode:
        table, columns = self.table, self.table.shared_gpus()
        name = table.names[row]
        if self._gpus_of is None:
            gpus = tuple(columns.left[row, : columns.number[row]].tolist())
            model = columns.models[columns.model[row]]
        else:
            gpus, model = self._gpus_of(name)
        return PolicyNode(
            name=name,
            labels=MappingProxyType(table.labels[row]),
            cpu=int(table.free("cpu")[row]),
            memory=int(table.free("memory")[row]),
            gpus=gpus,
            model=model,
            cpu_in_all=int(table.allocatable("cpu")[row]),
            memory_in_all=int(table.allocatable("memory")[row]),
        )


def _has_node(task: TaskRecord) -> bool:
    return task.state in {"Bound", "Running"}
