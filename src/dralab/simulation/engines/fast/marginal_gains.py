"""GPUs where the next one saves the most time: Optimus, as Pollux was compared with it.

Source: Peng et al., EuroSys 2018, and the policy of that name in the simulator of Pollux, which
knows how many steps a training needs. Each gets one GPU as it arrived, while there are some; each
further GPU goes to whom it saves most.
"""

from dralab.simulation.engines.fast.attained_service import placed
from dralab.simulation.engines.fast.free_nodes import FreeNodes
from dralab.simulation.engines.fast.rounds import GpuSlice, Grant, JobProgress
from dralab.simulation.engines.fast.training import Training, TrainingRun, Trainings, runs_of


class MarginalGains:
    """A `RoundPolicy` for GPUs of one type."""

    def __init__(self, nodes: FreeNodes) -> None:
        self.nodes = nodes
        self._times: dict[tuple[int, int], float] = {}

    def arrived(self, job: JobProgress[Training]) -> None:
        """Do nothing: who arrived is known of the run."""

    def ran(self, grant: Grant[Training], time: int) -> None:
        """Do nothing: progress is the training's."""

    def grants(self, run: Trainings) -> list[Grant[Training]]:
        """Return how many GPUs each gets in the round that begins."""
        [(model, free)] = run.capacity.items()
        jobs = runs_of(run)
        given = dict.fromkeys(range(len(jobs)), 0)
        gains: dict[int, float] = {}
        for at, job in enumerate(jobs):
            if free:
                free -= 1
                given[at] = 1
            gains[at] = self._gain(job, given[at], model) if free else 0
        while free and max(gains.values()) > 0:
            at = max(gains, key=gains.__getitem__)
            given[at] += 1
            gains[at] = self._gain(jobs[at], given[at], model)
            free -= 1
        fewest_first = sorted(given, key=given.__getitem__)
        found = [Grant((jobs[at],), model, given[at]) for at in fewest_first if given[at]]
        return placed(found, self.nodes)

    def _gain(self, job: TrainingRun, gpus: int, model: str) -> float:
        """Return the seconds that one more GPU saves."""
        profile, batch = job.job.profiles[model], job.job.batch or 0
        if gpus >= min(job.job.most, batch // profile.smallest_local):
            return 0.0
        last = profile.epochs - 1
        steps = 1.0
        if job.epoch < last:
            steps = profile.iteration(batch, last) - profile.iteration(batch, job.epoch)
        return (self._step(job, gpus, model) - self._step(job, gpus + 1, model)) * steps

    def _step(self, job: TrainingRun, gpus: int, model: str) -> float:
        key = job.number, gpus
        if key not in self._times:
            self._times[key] = 1 / job.job.speed(GpuSlice(model, gpus), 0)
        return self._times[key]
