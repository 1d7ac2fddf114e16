"""A user's policy in rounds: before each it orders all trainings, and chooses GPUs for them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from dralab.kernel.clock import SECOND
from dralab.simulation.engines.fast.round_jobs import TaskGroup, speeds_of
from dralab.simulation.engines.fast.rounds import Grant, JobProgress, RoundPolicy, RoundSimulation
from dralab.simulation.policies.protocol import (
    WHOLE_GPU,
    PolicyNode,
    PolicyTask,
    StateReaders,
    TaskFacts,
)
from dralab.simulation.policies.user_policy import UserPolicy
from dralab.simulation.workloads.openb import GpuNode

Record = JobProgress[Any]


class OwnRounds(RoundPolicy[Any]):
    """Gives GPUs to who comes first by `order`, or without it, to who has some and then came first.

    `nodes` are those of each model; who does not fit holds up nobody.
    """

    def __init__(
        self,
        policy: UserPolicy,
        groups: Sequence[TaskGroup],
        nodes: Mapping[str, Sequence[GpuNode]],
    ) -> None:
        self.policy = policy
        self.groups = groups
        self.nodes = nodes
        self.free: dict[str, list[int]] = {}
        self._since: dict[int, int] = {}
        self._active: Sequence[Record] = ()
        self._now = 0
        policy.see(
            StateReaders(
                now=lambda: self._now / SECOND,
                waiting=lambda: self._tasks(running=False),
                running=lambda: self._tasks(running=True),
                nodes=lambda: (self._node(*at) for at in self._places()),
            )
        )

    def grants(self, run: RoundSimulation[Any]) -> list[Grant[Any]]:
        """Return who runs in the round that begins."""
        self._active, self._now = run.active, run.now
        self.free = {
            model: [0 if at in run.down(model) else node.gpus for at, node in enumerate(nodes)]
            for model, nodes in self.nodes.items()
        }
        found = []
        for job in self._queue():
            grant = self._grant(job)
            if grant is not None:
                found.append(grant)
        granted = {grant.jobs[0].number for grant in found}
        self._since = {number: self._since.get(number, run.now) for number in granted}
        return found

    def _queue(self) -> list[Record]:
        if "order" in self.policy.asked:
            return sorted(self._active, key=lambda job: self.policy.rank(self._task(job)))
        return sorted(self._active, key=lambda job: job.gpus is None)

    def _grant(self, job: Record) -> Grant[Any] | None:
        gpus, asked = self._width(job), self.policy.asked
        models = [
            model
            for model, free in self.free.items()
            if job.job.runs_on(model) and sum(free) >= gpus
        ]
        if not models:
            return None
        if asked.isdisjoint({"place", "prefer"}):
            free = {model: sum(self.free[model]) for model in models}
            model = job.model_among(free, gpus) or models[0]
            grant = self._taken(job, model, gpus, range(len(self.free[model])))
            return replace(grant, nodes=())
        if "place" in asked:
            chosen = self._placed(job, models, gpus)
        else:
            chosen = self._preferred(job, models, gpus)
        return None if chosen is None else self._taken(job, *chosen)

    def _width(self, job: Record) -> int:
        """Return how many GPUs the policy wants a training to have."""
        gpus: int = job.job.gpus if job.gpus is None else job.gpus.number
        if "resize" not in self.policy.asked:
            return gpus
        least, most = job.job.least, job.most
        wanted = f"from {least} to {most} GPUs for {job.job.name}, or None"
        found = self.policy.number("resize", wanted, (least, most), self._task(job))
        return gpus if found is None else found

    def _taken(self, job: Record, model: str, gpus: int, nodes: Sequence[int]) -> Grant[Any]:
        taken: list[int] = []
        for node in nodes:
            number = min(self.free[model][node], gpus - len(taken))
            self.free[model][node] -= number
            taken += [node] * number
        return Grant((job,), model, gpus, tuple(taken))

    def _placed(
        self, job: Record, models: Sequence[str], gpus: int
    ) -> tuple[str, int, Sequence[int]] | None:
        """Return the model, GPUs and nodes that `place` chooses; None: it waits."""
        given = {self.nodes[model][at].name: (model, at) for model, at in self._places(models)}
        nodes = {name: self._node(*at) for name, at in given.items()}
        wanted = f"nodes of one model with {gpus} idle GPUs, of those it was given, or None"
        names = self.policy.names("place", wanted, self._task(job), tuple(nodes.values()))
        if names is None:
            return None
        known = [given[name] for name in names if name in given]
        idle = sum(self.free[model][at] for model, at in known)
        if len({model for model, _ in known}) != 1 or len(known) < len(names) or idle < gpus:
            raise self.policy.wrong("place", wanted, names)
        return known[0][0], gpus, [at for _, at in known]

    def _preferred(
        self, job: Record, models: Sequence[str], gpus: int
    ) -> tuple[str, int, Sequence[int]] | None:
        """Return the same for the nodes that it likes best; those it has come first of equals."""
        task = self._task(job)
        liked = []
        for model, at in self._places(models):
            liking = self.policy.liking(task, self._node(model, at))
            if liking is not None:
                has = job.gpus is not None and model == job.gpus.model and at in job.gpus.nodes
                liked.append((-liking, not has, model, at))
        for _, _, model, _ in sorted(liked, key=lambda each: each[:2]):
            nodes = [at for *_, own, at in sorted(liked) if own == model]
            if sum(self.free[model][at] for at in nodes) >= gpus:
                return model, gpus, nodes
        return None

    # --- what a policy sees

    def _places(self, models: Sequence[str] | None = None) -> Iterator[tuple[str, int]]:
        """Yield the nodes with an idle GPU; without `models`, all."""
        for model in self.nodes if models is None else models:
            for at in range(len(self.nodes[model])):
                if models is None or self.free[model][at]:
                    yield model, at

    def _node(self, model: str, at: int) -> PolicyNode:
        node = self.nodes[model][at]
        idle = self.free[model][at] if self.free else node.gpus
        return PolicyNode(
            name=node.name,
            labels=MappingProxyType(dict(each.split("=", 1) for each in sorted(node.labels))),
            cpu=node.cpu,
            memory=node.memory,
            gpus=(WHOLE_GPU,) * idle + (0,) * (node.gpus - idle),
            model=model,
            cpu_in_all=node.cpu,
            memory_in_all=node.memory,
        )

    def _tasks(self, *, running: bool) -> Iterator[PolicyTask]:
        return (self._task(job) for job in self._active if (job.gpus is not None) is running)

    def _task(self, job: Record) -> PolicyTask:
        pod = self.groups[job.number].pods[0]
        return PolicyTask(
            key=job.job.name,
            namespace=pod.namespace,
            priority=pod.priority,
            gpus=job.job.gpus,
            gpu_milli=WHOLE_GPU,
            models=pod.request.models,
            facts=lambda: self._facts(job),
        )

    def _facts(self, job: Record) -> TaskFacts:
        pod = self.groups[job.number].pods[0]
        speeds = speeds_of(job.job, self.nodes)
        needed = job.job.work / max(speeds.values())
        since = self._since.get(job.number)
        nodes: tuple[str, ...] = ()
        if job.gpus is not None:
            model = job.gpus.model
            nodes = tuple(self.nodes[model][at].name for at in dict.fromkeys(job.gpus.nodes))
        return TaskFacts(
            name=pod.name,
            user=pod.user,
            queue=pod.queue,
            gang=pod.gang,
            arrives=job.job.arrives / SECOND,
            duration=needed,
            estimate=needed,
            started=None if since is None else since / SECOND,
            served=job.ran / SECOND,
            nodes=nodes,
            done=1 - job.left / job.job.work,
            speeds=MappingProxyType(speeds),
        )
