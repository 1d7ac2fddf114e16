"""A scenario in rounds of time slices: before each a policy says who runs, and on which GPUs."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from dralab.kernel.clock import SECOND
from dralab.kernel.randomness import Randomness
from dralab.scenarios.errors import InputError
from dralab.simulation import checkpoints
from dralab.simulation.engines import unsupported
from dralab.simulation.engines.cluster.tasks import lanes_of
from dralab.simulation.engines.fast.gpu_places import GpuPlaces
from dralab.simulation.engines.fast.own_rounds import OwnRounds
from dralab.simulation.engines.fast.round_jobs import RoundJobs, TaskGroup, speeds_of
from dralab.simulation.engines.fast.round_outages import RoundOutages
from dralab.simulation.engines.fast.round_policies import RoundSetting, policy_named
from dralab.simulation.engines.fast.rounds import (
    JobProgress,
    NoProgressError,
    RoundPolicy,
    RoundRules,
    RoundSimulation,
)
from dralab.simulation.engines.fast.time_shares import TrainingJob
from dralab.simulation.engines.fast.training import Training, TrainingRun
from dralab.simulation.engines.fleet_nodes import capacity_of
from dralab.simulation.engines.objects import GPU_PREFIX
from dralab.simulation.engines.scenario_run import Progress, Stop
from dralab.simulation.policies.user_policy import UserPolicy
from dralab.simulation.results.result import Result, SampleColumns, StateSample, Task, TaskStay
from dralab.simulation.scenario.scenario import Scenario, digest
from dralab.simulation.workloads.openb import WHOLE_GPU

ROUND: Final = 360 * SECOND
ALONE: Final = (
    "rounds share GPUs alone: cpu, memory and priority of tasks and nodes are not looked at"
)
Change = tuple[int, str, Task, TaskStay | None]


def _record(job: Any, number: int) -> JobProgress[Any]:
    """Return the record of a job that has arrived."""
    return (TrainingRun if isinstance(job, Training) else JobProgress)(job, number)


class RoundRun:
    """One run. InputError: the scenario has what rounds do not act out."""

    def __init__(self, scenario: Scenario, resume: Path | None = None) -> None:
        unsupported.refuse_in_rounds(scenario)
        self.scenario = scenario
        self.complete = False
        self.rounds = 0
        nodes = scenario.fleet.as_nodes()
        devices = {node.name: [f"{GPU_PREFIX}{at}" for at in range(node.gpus)] for node in nodes}
        self.lanes = lanes_of(devices)
        place = self._place = {lane: at for at, lane in enumerate(self.lanes)}
        self.nodes = {
            model: [node for node in nodes if node.model == model]
            for model in dict.fromkeys(node.model for node in nodes if node.gpus)
        }
        gpus = {
            model: [
                tuple(place[f"{node.name}/{name}"] for name in devices[node.name])
                for node in of_model
            ]
            for model, of_model in self.nodes.items()
        }
        self.model_of = {
            lane: model for model, found in gpus.items() for lanes in found for lane in lanes
        }
        capacity = {model: sum(map(len, found)) for model, found in gpus.items()}
        of_a_node = {
            model: len(found[0]) for model, found in gpus.items() if len({*map(len, found)}) == 1
        }
        groups = RoundJobs(scenario, capacity, of_a_node).groups()
        self.refused = {each.job.name: _too_wide(each, capacity) for each in groups}
        self.groups = [each for each in groups if not self.refused[each.job.name]]
        self.left_out = [each for each in groups if self.refused[each.job.name]]
        length = ROUND if scenario.round is None else scenario.round
        conditions = scenario.conditions
        self.places = GpuPlaces(self._policy(capacity, of_a_node, length), gpus)
        self.outages: RoundOutages | None = None
        if conditions.faults or conditions.random_faults is not None:
            stream = Randomness(scenario.seed).stream
            self.outages = RoundOutages(nodes, self.nodes, conditions, stream)
        self.simulation: RoundSimulation[Any] = RoundSimulation(
            [each.job for each in self.groups],
            capacity,
            self.places,
            RoundRules(length=length, fixed=bool(length), until=conditions.until),
            progress=_record,
            outages=self.outages,
        )
        if resume is not None:
            steps = checkpoints.read(resume, digest(scenario))
            self._go(lambda: self.rounds >= steps)

    def _policy(
        self, capacity: Mapping[str, int], of_a_node: Mapping[str, int], length: int
    ) -> RoundPolicy[Any]:
        scenario, jobs = self.scenario, [each.job for each in self.groups]
        chance = Randomness(scenario.seed).stream("policy")
        measured = [job for job in jobs if isinstance(job, Training)]
        if measured and not length:
            problem = "must be above 0: the epochs of trainings are measured in rounds of a length"
            raise InputError(scenario.file, problem, where="round")
        if scenario.is_own:
            return OwnRounds(UserPolicy(scenario, "rounds", chance), self.groups, self.nodes)
        setting = RoundSetting(
            capacity=capacity,
            of_a_node=of_a_node,
            length=length,
            chance=chance,
            needs=[
                max(1, round(job.gpus * job.work / max(speeds_of(job, capacity).values())))
                for job in jobs
                if isinstance(job, TrainingJob)
            ],
            penalties={job.kind: job.restart // SECOND for job in measured},
            measured=len(measured),
            jobs=len(jobs),
            widest=max((job.gpus for job in jobs), default=1),
        )
        try:
            return policy_named(scenario.scheduler.partition(":")[2], setting)
        except ValueError as error:
            problem = f"{scenario.scheduler} {error}"
            raise InputError(scenario.file, problem, where="scheduler") from None

    def _go(self, enough: Stop) -> bool:
        conditions, simulation = self.scenario.conditions, self.simulation

        def over() -> bool:
            if conditions.until is not None and simulation.now >= conditions.until:
                return True
            if conditions.ended is not None and self._ended() >= conditions.ended:
                return True
            if enough():
                return True
            self.rounds += 1
            return False

        try:
            return simulation.go(over)
        except NoProgressError:
            return True

    def _ended(self) -> int:
        return len(self.simulation.records) - len(self.simulation.active)

    def go(self, progress: Progress | None = None, stop: Stop | None = None) -> Result:
        """Continue the run."""
        total, stopped = len(self.groups), False

        def enough() -> bool:
            nonlocal stopped
            if progress is not None:
                progress(self.simulation.now, self._ended(), total)
            stopped = stop is not None and stop()
            return stopped

        self._go(enough)
        self.complete = not stopped
        return self.result()

    def save(self, path: Path) -> None:
        """Write a checkpoint of the progress. Resuming replays the run up to there."""
        checkpoints.write(path, digest(self.scenario), self.rounds)

    # --- results

    def result(self) -> Result:
        """Return the result so far."""
        scenario = self.scenario
        capacity, types = capacity_of(scenario.fleet.as_nodes())
        tasks, end = list(self._tasks()), self.simulation.now
        return Result(
            name=scenario.name,
            scheduler=scenario.scheduler,
            seed=scenario.seed,
            tasks=tasks,
            samples=self._samples(tasks, list(types)),
            lanes=self.lanes,
            capacity={"gpu": capacity["gpu"]},
            types=types,
            end=end,
            outages=[
                (self._place[name], since, until)
                for name, since, until in (self.outages.until(end) if self.outages else ())
            ],
            notes=[ALONE],
            complete=self.complete,
        )

    def _tasks(self) -> Iterator[Task]:
        records = self.simulation.records
        for number, (pods, _) in enumerate(self.groups):
            record = records[number] if number < len(records) else None
            stays = self.places.stays_of(number, self.simulation.now) if record else ()
            first = 0
            for pod in pods:
                part = slice(first, first + pod.request.gpus) if len(pods) > 1 else slice(None)
                mine = tuple(stay._replace(lanes=stay.lanes[part]) for stay in stays)
                first += pod.request.gpus
                yield self._task(pod, record, mine)
        for pods, job in self.left_out:
            for pod in pods:
                yield self._task(pod, None, (), self.refused[job.name])

    def _task(
        self, pod: Any, record: JobProgress[Any] | None, stays: tuple[TaskStay, ...], why: str = ""
    ) -> Task:
        started = stays[0].since if stays else None
        ended = None if record is None else record.ended
        holds = record is not None and record.gpus is not None
        waits = "" if record is None or holds else "waits for GPUs"
        return Task(
            id=pod.key,
            user=pod.user,
            state="Succeeded" if ended is not None else "Running" if stays else "Pending",
            submitted=pod.arrives,
            bound=started,
            started=started,
            ended=ended,
            width=pod.request.gpus,
            lanes=stays[-1].lanes if stays else (),
            gpu_milli=pod.request.gpus * WHOLE_GPU,
            reason=why or (waits if ended is None else ""),
            evictions=len(stays) - (ended is not None or holds),
            wasted=0 if record is None else record.wasted,
            idle=0 if record is None else record.loaded,
            stays=stays,
        )

    def _samples(self, tasks: Sequence[Task], models: Sequence[str]) -> SampleColumns:
        """Return the numbers of waiting and running tasks, and GPUs in use, over time."""
        changes = sorted(_changes(tasks), key=itemgetter(0))
        samples = SampleColumns(len(models))
        samples.add(StateSample(0, 0, 0, 0, 0, 0.0, types=(0,) * len(models)))
        count: Counter[str] = Counter()
        holders: Counter[int] = Counter()
        in_use: Counter[str] = Counter()
        for when, together in groupby(changes, key=itemgetter(0)):
            for _, what, _, stay in together:
                count[what] += 1
                for lane in () if stay is None else stay.lanes:
                    before = holders[lane] > 0
                    holders[lane] += 1 if what == "begins" else -1
                    in_use[self.model_of[lane]] += (holders[lane] > 0) - before
            running = count["begins"] - count["leaves"]
            types = tuple(WHOLE_GPU * in_use[model] for model in models)
            samples.add(
                StateSample(
                    when,
                    count["comes"] - count["ends"] - running,
                    running,
                    0,
                    sum(types),
                    0.0,
                    ended=count["ends"],
                    evicted=count["leaves"] - count["ends"],
                    types=types,
                )
            )
        return samples


def _changes(tasks: Sequence[Task]) -> Iterator[Change]:
    for task in tasks:
        yield task.submitted, "comes", task, None
        for at, stay in enumerate(task.stays, 1):
            yield stay.since, "begins", task, stay
            if at < len(task.stays) or task.ended is not None:
                yield stay.until, "leaves", task, stay
        if task.ended is not None:
            yield task.ended, "ends", task, None


def _too_wide(group: TaskGroup, capacity: Mapping[str, int]) -> str:
    """Return the reason for which a job never runs; empty if it can."""
    job = group.job
    able = {model: most for model, most in capacity.items() if job.runs_on(model)}
    if not able:
        return f"it runs on none of the models of the fleet: {', '.join(capacity)}"
    model = max(able, key=able.__getitem__)
    if job.gpus > able[model]:
        return f"it needs {job.gpus} GPUs of one model, and of {model} there are {able[model]}"
    return ""
