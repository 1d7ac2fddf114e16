"""EASY with an index of the jobs that wait decides as the plain form that asks each of them."""

import random

import pytest

from dralab.simulation.engines.batch.engine import BatchSimulation
from dralab.simulation.engines.batch.external import ExternalEvent
from dralab.simulation.engines.batch.schedulers import Easy, _Reserving
from dralab.simulation.engines.batch.waiting_jobs import WaitingJobs
from dralab.simulation.platforms.platform import plain
from dralab.simulation.workloads.jobs import Delay, Job, Workload


class PlainEasy(_Reserving):
    """The oracle: after every end, each job of the queue is asked, in order."""

    def __init__(self):
        super().__init__()
        self.head = None

    def act(self, news, fresh):
        changed = self.renew(news)
        if changed or self.head is None or self.head not in self.queue:
            self._advance_head()
        if news.ended or changed:
            self._refill()
            return
        for job in fresh:
            if not self.usable:
                break
            if job.key in self.queue and job.key != self.head:
                self._try(job)

    def _advance_head(self):
        for job in list(self.queue.values()):
            if self.fits_ever(job) and self.place(job):
                continue
            self.head = job.key
            return
        self.head = None

    def _refill(self):
        for job in list(self.queue.values()):
            if not self.usable:
                return
            self.release_reservation(job)
            if not self._try(job) and job.key == self.head and self.fits_ever(job):
                self.place(job)
            elif job.key == self.head and job.key not in self.queue:
                self.head = next(iter(self.queue), None)

    def _try(self, job):
        if job.width > self.usable.bit_count():
            return False
        if self.place(job):
            return True
        self.release_reservation(job)
        return False


def crowded(seed, jobs=60, machines=12):
    """Jobs that come faster than they can run, with walltimes that are too long."""
    chance = random.Random(seed)
    made, profiles, now = [], {}, 0
    for number in range(jobs):
        now += chance.choice((0, 0, 1, 2, 5))
        length = chance.randint(1, 40)
        profiles[str(number)] = Delay(duration=length)
        made.append(
            Job(
                id=str(number), submitted=now, width=chance.choice((1, 1, 2, 3, 5, 8, 12)),
                walltime=length + chance.choice((-1, 0, 0, 3, 20)) or 1, profile=str(number),
            )
        )  # fmt: skip
    return Workload(jobs=tuple(made), profiles=profiles, machines=machines)


def failing(seed, machines=12):
    """Machines that cannot be used for a while."""
    chance = random.Random(seed)
    broken = chance.sample(range(machines), 8)
    for one, other in zip(broken[:4], broken[4:], strict=True):
        lost, when = 1 << one | 1 << other, chance.randint(1, 150)
        yield ExternalEvent(type="machine_unavailable", when=when, machines=lost)
        back = when + chance.randint(1, 60)
        yield ExternalEvent(type="machine_available", when=back, machines=lost)


def starts(scheduler, work, external=()):
    run = BatchSimulation(plain(work.machines), [work], scheduler, external=external)
    run.run()
    return [(each.job.id, each.started, each.machines) for each in run.records.values()]


@pytest.mark.parametrize("breaks", [False, True])
def test_it_starts_the_same_jobs_on_the_same_machines_as_the_plain_form(breaks):
    waited = 0
    for seed in range(60):
        work = crowded(seed)
        external = list(failing(seed)) if breaks else []
        ours = starts(Easy(), work, external)
        assert ours == starts(PlainEasy(), work, external), seed
        waited += sum(
            started != job.submitted for job, (_, started, _) in zip(work.jobs, ours, strict=True)
        )
    assert waited > 1000


def test_the_next_job_that_is_short_enough_is_found_whatever_was_removed():
    chance = random.Random(7)
    waiting, kept, number = WaitingJobs(), [], 0
    for _ in range(3000):
        if kept and chance.random() < 0.48:
            gone = kept.pop(chance.randrange(min(len(kept), 5)))
            waiting.remove(gone[1])
        else:
            job = Job(id=str(number), submitted=0, width=chance.choice((1, 2, 4)), profile="")
            walltime = chance.randint(1, 50)
            waiting.add(job, walltime)
            kept.append((number, job, walltime))
            number += 1
        after = chance.choice((-1, number // 2, number - 5))
        longest = {width: chance.randint(0, 50) for width in (1, 2, 4) if chance.random() < 0.8}
        expected = next(
            (
                (place, job)
                for place, job, walltime in kept
                if place > after and walltime <= longest.get(job.width, -1)
            ),
            None,
        )
        assert (
            waiting.next_one(
                after, {w: t for w, t in longest.items() if w in set(waiting.widths())}
            )
            == expected
        )
