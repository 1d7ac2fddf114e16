"""GPUs where the next one saves the most time: Optimus, as Pollux was compared with it.

Source: Peng et al., EuroSys 2018, and the policy of that name in the simulator of Pollux, which
knows how many steps a training needs. Each gets one GPU as it arrived, while there are some; each
further GPU goes to whom it saves most.
"""

from dralab.simulation.engines.fast.attained_service import placed
from dralab.simulation.engines.fast.free_nodes import FreeNodes
from dralab.simulation.engines.fast.rounds import (
    GpuSlice,
    Grant,
    Job,
    JobProgress,
    RoundPolicy,
    RoundSimulation,
)


class MarginalGains(RoundPolicy[Job]):
    """GPUs of one type, which have a place with `nodes`."""

    def __init__(self, nodes: FreeNodes | None = None) -> None:
        self.nodes = nodes

    def grants(self, run: RoundSimulation[Job]) -> list[Grant[Job]]:
        """Return how many GPUs each gets in the round that begins."""
        [(model, free)] = run.capacity.items()
        given = dict.fromkeys(range(len(run.active)), 0)
        gains: dict[int, float] = {}
        for at, job in enumerate(run.active):
            if free:
                free -= 1
                given[at] = 1
            gains[at] = _gain(job, given[at], model) if free else 0
        while free and max(gains.values()) > 0:
            at = max(gains, key=gains.__getitem__)
            given[at] += 1
            gains[at] = _gain(run.active[at], given[at], model)
            free -= 1
        fewest_first = sorted(given, key=given.__getitem__)
        found = [Grant((run.active[at],), model, given[at]) for at in fewest_first if given[at]]
        return found if self.nodes is None else placed(found, self.nodes)


def _gain(job: JobProgress[Job], gpus: int, model: str) -> float:
    """Return the seconds that one more GPU saves."""
    if gpus >= job.most:
        return 0.0
    return job.saves(GpuSlice(model, gpus), GpuSlice(model, gpus + 1))
