"""The numbers of Gavel's authors, beside ours, and those of POP on the same simulator."""

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Final

from dralab.simulation.engines.fast.share_policies import InParts, MinMakespan
from dralab.simulation.engines.fast.speed_table import read_speeds
from dralab.simulation.reproductions.gavel.experiment import continuous, static
from dralab.simulation.reproductions.gavel.workload import OLDER_TEMPLATES
from dralab.simulation.reproductions.registry import Case, ComparedNumber, DataFile, Reproduction

REPOSITORY: Final = "https://github.com/stanford-futuredata/gavel"
POP: Final = "https://github.com/stanford-futuredata/POP"
SPEEDS: Final = "simulation_throughputs.json"

# By seed: jobs per hour, mean seconds and utilization, as the README prints them for AlloX.
README: Final[Mapping[int, Sequence[tuple[float, float, float]]]] = {
    42: ((0.4, 59492.106756, 0.060797), (0.8, 59770.441018, 0.121262)),
    1234: ((0.4, 64494.582453, 0.061878), (0.8, 64695.450528, 0.123312)),
    15: ((0.4, 54834.129989, 0.060839), (0.8, 55072.401336, 0.121365)),
}
# By policy: hours at 0.8 jobs an hour, of one GPU (figure 8) and of several (figure 9).
FIGURES: Final[Mapping[str, Mapping[str, float]]] = {
    "one-gpu": {
        "fifo": 17.64, "fifo_perf": 15.38, "max_min_fairness": 23.33,
        "max_min_fairness_perf": 17.64, "allox": 17.64, "gandiva": 17.64,
    },
    "several-gpus": {"fifo_perf": 17.10, "max_min_fairness_perf": 18.51, "gandiva": 18.76},
}  # fmt: skip
# By policy: jobs per hour, whether some need several GPUs, the watched jobs, and the seconds that
# the authors' program printed when it ran beside ours.
PROGRAM: Final[Sequence[tuple[str, float, bool, range, float]]] = (
    ("fifo", 2.0, False, range(1000, 1500), 55157.958841),
    ("fifo_perf", 2.0, False, range(2000, 3000), 52144.591388),
    ("allox", 4.0, False, range(2000, 3000), 57456.308920),
    ("gandiva", 2.0, False, range(1000, 1500), 54648.105618),
    ("max_min_fairness", 2.0, False, range(2000, 3000), 79094.086507),
    ("max_min_fairness_perf", 4.0, False, range(2000, 3000), 56461.698442),
    ("max_min_fairness_perf", 1.5, True, range(1000, 1500), 64025.936400),
    ("finish_time_fairness", 1.5, True, range(1000, 1500), 91933.005267),
)
# By number of parts: the makespan in hours.
PARTS: Final[Mapping[int, float]] = {1: 255.021, 2: 255.989, 4: 256.861, 8: 270.696}

NOISE: Final = 1e-3
_speeds = cache(read_speeds)


def _readme(start: int, paths: Sequence[Path], seed: int) -> Iterator[ComparedNumber]:
    for rate, completion, utilization in README[start]:
        ours = continuous(_speeds(paths[0]), "allox", seed=start + seed, rate=rate)
        what = f"at {rate:g} jobs an hour"
        yield ComparedNumber(
            what=f"mean completion {what}",
            published=completion,
            ours=ours.completion,
            unit="s",
            within=NOISE,
        )
        yield ComparedNumber(
            what=f"utilization {what}",
            published=100 * utilization,
            ours=100 * ours.utilization,
            unit="%",
            within=1e-4,
        )


def _figure(group: str, policy: str, paths: Sequence[Path], seed: int) -> Iterator[ComparedNumber]:
    ours = continuous(
        _speeds(paths[0]),
        policy,
        seed=seed,
        rate=0.8,
        several=group != "one-gpu",
        templates=OLDER_TEMPLATES,
    )
    yield ComparedNumber(
        what="mean completion at 0.8 jobs an hour",
        published=FIGURES[group][policy],
        ours=ours.completion / 3600,
        unit="h",
        # The notebooks print two digits.
        within=0.005,
    )


def _program(number: int, paths: Sequence[Path], seed: int) -> Iterator[ComparedNumber]:
    policy, rate, several, watched, completion = PROGRAM[number]
    ours = continuous(
        _speeds(paths[0]), policy, seed=seed, rate=rate, several=several, watched=watched
    )
    yield ComparedNumber(
        what=f"mean completion of jobs {watched.start} to {watched.stop - 1}",
        published=completion,
        ours=ours.completion,
        unit="s",
        within=round(completion * 1e-3, 1),
    )


def _parts(parts: int, paths: Sequence[Path], seed: int) -> Iterator[ComparedNumber]:
    start = seed + 1
    chance = random.Random(start + 1)  # noqa: S311
    policy = InParts([MinMakespan(least=True) for _ in range(parts)], chance)
    ours = static(_speeds(paths[0]), policy, seed=start, count=700, gpus=32)
    yield ComparedNumber(
        what="makespan of 700 jobs",
        published=PARTS[parts],
        ours=ours.makespan / 3600,
        unit="h",
        within=round(PARTS[parts] * 0.02, 1),
    )


TEXT: Final = """
A job has a number of steps and a speed on each type of GPU, alone and beside each other kind of
job. Time goes in rounds of at most 6 minutes. A *policy* divides the time of the GPUs among the
jobs; the *mechanism* lets those run first that are furthest behind their share. Shares are computed
again when jobs have come or gone, at most every 32 minutes. Jobs and gaps between them are drawn as
in the authors' simulator, with the same generator of random numbers; 36 V100, 36 P100 and 36 K80.

| cases | what was published |
|---|---|
| `readme` | what the README prints for AlloX, with seeds 42, 1234 and 15: digits, not figures |
| `one-gpu` | figure 8 and others, jobs of one GPU, as the notebooks record them; seed 0 |
| `several-gpus` | figure 9, jobs of 1 to 8 GPUs, in the same way |
| `program` | the authors' simulator at its last commit (c4fa400), run beside ours with ECOS |
| `pop` | POP on the same simulator: makespan of 700 jobs on 3 x 32 GPUs in 1 to 8 parts, seed 1 |

**Job by job.** Ours was compared with their program for each job that had ended (`program`):

| policy | jobs | the same to a millisecond | mean there | mean here |
|---|--:|--:|--:|--:|
| AlloX, the README's sample | 5,077 | 5,077 | 59,770.441018 s | 59,770.441045 s |
| FIFO | 3,261 | 3,261 | 52,144.591388 s | 52,144.591390 s |
| FIFO without speeds | 1,768 | 1,768 | 55,157.958841 s | 55,157.958843 s |
| Gandiva, in pairs | 1,778 | 1,778 | 54,648.105618 s | 54,648.105620 s |
| AlloX, at 4 jobs an hour | 3,911 | 1,876 | 57,456.3 s | 57,463.4 s |
| max-min, several GPUs | 1,709 | 1,697 | 64,025.9 s | 64,026.6 s |
| max-min, at 4 jobs an hour | 3,667 | 576 | 56,461.7 s | 56,463.2 s |
| max-min without speeds | 3,449 | 183 | 79,094.1 s | 79,071.3 s |

What remains has three causes. Their times are floating-point seconds, which are added for weeks;
dralab's are whole nanoseconds. (With floating-point seconds in ours, all 5,077 times of the sample
are theirs, bit for bit, and so is the mean of AlloX at 4 jobs an hour.) Jobs that are owed the same
take turns by the last digit of such sums. And most programs of these policies have many optimal
solutions: dralab follows the method of their solver, ECOS, and comes as near to its solution as the
solver's own tolerance, some 1e-6.

**Two lists of kinds.** A job's kind is drawn from a list of 26. On 29 August 2020 (commit 19a0dd2),
after the figures were made, A3C moved from before LM to after Recommendation: since then, the same
seed draws other kinds. `one-gpu` and `several-gpus` use the older list, the other cases the present
one. For FIFO with speeds the notebook has 15.38 h; their program, run here, gives 15.381266707 h at
the commit of the figures (d96df69), and 15.574281602 h at its last one; ours, 15.381266711 h.

**Accidents that are kept**, because the numbers depend on them: FIFO without speeds draws a type,
but takes the last one by name; a new job can be chosen before it has a share, and its GPUs stay
idle; a job with fewer steps left than GPUs makes no progress, and is given up after five rounds.

Not reproduced: space sharing with max-min, finish-time fairness and makespan (their `packed`
policies), water filling, costs and service levels, estimated speeds. POP's authors used MOSEK,
whose solutions are others; its parts are drawn as theirs. Its traffic engineering and load
balancing are no part of this.
"""

CASES: Final = (
    *(
        Case(name=f"readme/{start}", run=partial(_readme, start), data=(SPEEDS,))
        for start in README
    ),
    *(
        Case(name=f"{group}/{policy}", run=partial(_figure, group, policy), data=(SPEEDS,))
        for group, policies in FIGURES.items()
        for policy in policies
    ),
    *(
        Case(
            name=f"program/{policy}{'-several-gpus' * several}",
            run=partial(_program, number),
            data=(SPEEDS,),
        )
        for number, (policy, _, several, _, _) in enumerate(PROGRAM)
    ),
    *(Case(name=f"pop/{parts}", run=partial(_parts, parts), data=(SPEEDS,)) for parts in PARTS),
)
REPRODUCTION: Final = Reproduction(
    name="gavel",
    title="Gavel and POP: training jobs on GPUs of three types, in rounds",
    paper="Narayanan et al., Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning "
    "Workloads, OSDI 2020",
    address=REPOSITORY,
    cases=CASES,
    data=(
        DataFile(
            name=SPEEDS,
            address=f"{REPOSITORY}/blob/master/scheduler/{SPEEDS}",
            licence="MIT",
            sha256="17111f7295f0",
        ),
    ),
    time_there="46 s for a run of the sample (9 s here), 161 s for Gandiva in `program` (6 s), on "
    "the same machine, which was busy",
    time_here=600,
    text=TEXT,
)
