"""What the guide to schedulers shows is what runs."""

import re
from pathlib import Path

from dralab.simulation.engines.batch.engine import BatchSimulation
from dralab.simulation.platforms.platform import plain
from dralab.simulation.workloads.jobs import Delay, Job, Workload

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
GUIDE = ROOT / "docs" / "guides" / "write-a-scheduler.md"


def test_the_policy_of_the_guide_is_that_of_the_example():
    example = ROOT / "examples" / "36-own-scheduler" / "together.py"
    assert BLOCK.findall(GUIDE.read_text())[0] in example.read_text()


def test_the_scheduler_of_the_guide_fills_the_machines():
    names = {}
    exec(BLOCK.findall(GUIDE.read_text())[1], names)  # noqa: S102 - our own guide
    jobs = tuple(
        Job(id=str(i), submitted=0, width=width, profile="d") for i, width in enumerate((3, 2, 1))
    )
    work = Workload(jobs=jobs, profiles={"d": Delay(duration=10)}, machines=4)
    run = BatchSimulation(plain(4), [work], names["Filler"]())
    run.run()
    assert [record.started for record in run.records.values()] == [0, 10, 0]
