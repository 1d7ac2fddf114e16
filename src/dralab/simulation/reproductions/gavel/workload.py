"""The authors' workload: measured speeds of 26 kinds of training jobs, drawn at random."""

import math
import random
from collections.abc import Iterator, Sequence
from typing import Final

from dralab.kernel.clock import SECOND
from dralab.simulation.engines.fast.rounds import GpuSlice
from dralab.simulation.engines.fast.speed_table import SpeedTable
from dralab.simulation.engines.fast.time_shares import TrainingJob

Kind = tuple[str, Sequence[int], bool]
Templates = Sequence[tuple[str, bool]]
# By kind: the batch sizes of the jobs, and whether one can run on several GPUs.
KINDS: Final[Sequence[Kind]] = (
    ("ResNet-18", (16, 32, 64, 128, 256), True),
    ("ResNet-50", (16, 32, 64, 128), True),
    ("Transformer", (16, 32, 64, 128, 256), True),
    ("LM", (5, 10, 20, 40, 80), True),
    ("Recommendation", (512, 1024, 2048, 4096, 8192), False),
    ("A3C", (), False),
    ("CycleGAN", (), False),
)


def _templates(kinds: Sequence[Kind]) -> Templates:
    return [
        (f"{name} (batch size {size})" if size else name, wide)
        for name, sizes, wide in kinds
        for size in sizes or (0,)
    ]


TEMPLATES: Final = _templates(KINDS)
# Until 29 August 2020 (commit 19a0dd2) A3C came before LM. A draw is a place in this list, so that
# the same seed gave other jobs.
OLDER_TEMPLATES: Final = _templates((*KINDS[:3], KINDS[5], *KINDS[3:5], KINDS[6]))
REFERENCE: Final = "v100"
# What a number from 0 to 1 says of the GPUs of a job.
WIDTHS: Final = ((0.7, 1), (0.8, 2), (0.95, 4), (1.0, 8))


def drawn(
    speeds: SpeedTable,
    seed: int,
    *,
    every: float,
    several: bool = False,
    templates: Templates = TEMPLATES,
) -> Iterator[TrainingJob]:
    """Yield jobs without end, `every` so many seconds on average; `several`: some need 2 to 8 GPUs.

    The draws are those of the authors' simulator, in its order.
    """
    jobs, gaps = random.Random(seed + 2), random.Random(seed + 3)  # noqa: S311
    arrives, number = 0.0, 0
    while True:
        lot = jobs.uniform(0, 1)
        gpus = next(width for limit, width in WIDTHS if lot <= limit)
        long = jobs.random() >= 0.8
        minutes = 10 ** (jobs.uniform(3, 4) if long else jobs.uniform(1.5, 3))
        gpus = gpus if several else 1
        while True:
            kind, wide = jobs.choice(templates)
            if gpus == 1 or wide:
                break
        yield TrainingJob(
            name=str(number),
            kind=kind,
            arrives=round(arrives * SECOND),
            work=60 * minutes * speeds(kind, GpuSlice(REFERENCE, gpus)),
            gpus=gpus,
            throughputs=speeds,
        )
        number += 1
        if every:
            arrives += -math.log(1.0 - gaps.random()) / (1.0 / every)
