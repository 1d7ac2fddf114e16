"""batkube: a real cluster's runs beside a scheduler in simulated time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from dralab.simulation import dispatch
from dralab.simulation.reproductions.registry import Case, ComparedNumber, DataFile, Reproduction
from dralab.simulation.results.metrics import metrics_of
from dralab.simulation.scenario import scenario as scenarios
from dralab.simulation.workloads import swf

REPOSITORY: Final = "https://github.com/oar-team/batkube-test"
SCHEDULER: Final = DataFile(
    name="kube-scheduler",
    address="https://dl.k8s.io/v1.37.2/bin/linux/amd64/kube-scheduler",
    licence="Apache-2.0",
)
KIT: Final = DataFile(
    name="KIT-10-80.swf",
    address=f"{REPOSITORY}/tree/master/swf",
    licence="KIT's log of the Parallel Workloads Archive, free with acknowledgement",
    sha256="70463da5bc36",
)
BURST: Final = {"name": "p", "count": 200, "duration": "170s", "cpu": 1}
# Jobs of equal size; "kit" is read from the log.
WORKLOADS: Final[Mapping[str, Mapping[str, Any]]] = {
    "burst": BURST,
    "spaced-170": BURST | {"every": "10s"},
    "spaced-160": BURST | {"every": "10s", "duration": "160s"},
}
METRICS: Final = (
    ("makespan", "makespan"), ("mean wait", "wait_mean"), ("longest wait", "wait_max"),
)  # fmt: skip
# Mean and standard deviation of the runs in `results`, of METRICS in their order.
Published = Mapping[str, tuple[tuple[float, float], ...]]
REAL: Final[Published] = {
    "burst": ((2467.164, 26.82), (1076.73, 10.041), (2284.143, 30.492)),
    "spaced-170": ((2468.268, 4.876), (145.987, 1.58), (1715.776, 159.535)),
    "spaced-160": ((2332.22, 3.532), (88.695, 2.282), (1448.801, 219.153)),
    "kit": ((32556.177, 0), (2884.251, 0), (13827.098, 0)),
}
SIMULATED: Final[Published] = {
    "burst": ((2214.824, 0.495), (970.091, 12.297), (2044.824, 0.495)),
    "spaced-170": ((2256.886, 16.439), (48.135, 9.2), (377.606, 94.214)),
    "kit": ((32554.713, 1.262), (2020.107, 926.426), (10846.586, 2931.904)),
}
# A core of the small real cluster stays occupied so long after a job's end: pods are removed late.
RELEASE: Final = {"lifecycle": {"release": "15s"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class _ComparedRuns:
    """What is compared with what: numbers agree within a share of them, or two deviations."""

    name: str
    published: Published
    scenario: Mapping[str, Any]
    least: float
    # A program of the user's in place of dralab's scheduler.
    programs: tuple[str, ...] = ()
    why: str = ""


GROUPS: Final = (
    _ComparedRuns(
        name="cluster", published=REAL, scenario=RELEASE, least=0.06, programs=(SCHEDULER.name,)
    ),
    _ComparedRuns(
        name="batkube",
        published=SIMULATED,
        scenario={},
        least=0.01,
        programs=(SCHEDULER.name,),
        why="batkube lets waiting pods in earlier: on the cluster the longest wait is 1716 s",
    ),
    _ComparedRuns(
        name="dralab",
        published=REAL,
        scenario=RELEASE,
        least=0.06,
        why="dralab's own scheduler retries waiting pods in order; kube-scheduler leaves some "
        "in back-off, and later ones start",
    ),
)


def _pods(workload: str, log: Path | None) -> list[dict[str, Any]]:
    """Return the pods of a scenario; of the log, as batkube's translation has them."""
    if log is None:
        return [dict(WORKLOADS[workload])]
    entries = swf.read(log).entries
    first = min(entry.submit for entry in entries)
    pods = []
    for entry in entries:
        # Of 1024 processors on one node of 6 cores, of which the node keeps a little for itself.
        cores = round(entry.procs * 6 / 1024, 3)
        pods.append(
            {
                "name": f"job-{entry.job:.0f}",
                "at": f"{entry.submit - first:.0f}s",
                "duration": f"{min(entry.run, 3600):.0f}s",
                "cpu": cores if cores < 6 else 5.9,
            }
        )
    return pods


def _case(
    group: _ComparedRuns, workload: str, paths: Sequence[Path], seed: int
) -> Iterator[ComparedNumber]:
    log = paths[-1] if workload == "kit" else None
    scheduler: dict[str, Any] = {"scheduler": "dralab-fast"}
    if group.programs:
        command = [str(paths[0].resolve()), "--config={config}", "--secure-port=0"]
        scheduler = {"scheduler": "external", "external": {"command": command}}
    node = {"name": "node", "cpu": 6} if log else {"name": "node", "count": 16, "cpu": 1}
    content = {
        "fleet": {"nodes": [node]},
        "workload": {"pods": _pods(workload, log)},
        "seed": seed,
        **scheduler,
        **group.scenario,
    }
    run = dispatch.begin(scenarios.load(Path("batkube"), content=content))
    numbers = metrics_of(run.go())
    for (what, name), (mean, sd) in zip(METRICS, group.published[workload], strict=True):
        ours = float(numbers[name] or 0)
        within = round(max(group.least * mean, 2 * sd), 3)
        row = ComparedNumber(what=what, published=mean, ours=ours, unit="s", within=within)
        yield replace(row, why=group.why) if row.verdict == "differs" else row


TEXT: Final = """
batkube runs a real scheduler inside Batsim. Its authors ran the same jobs on a small real cluster
(k3s) and in batkube. Their repository has the jobs of every run, from which the published numbers
here are computed: the mean of 10 runs on the cluster (of 1 for *kit*), of 20 in batkube.

- *burst*: 200 jobs of 170 s at once on 16 nodes of one core; *spaced-170*: one each 10 s;
  *spaced-160*: the same, of 160 s. *kit*: 39 jobs of ten hours of KIT's log on a node of 6 cores.
- `cluster/…`: the unmodified kube-scheduler in simulated time, beside the real cluster. On that
  cluster a core stays occupied some 15 s after a job's end, until its pod is gone. That is the only
  number taken from the runs; in the scenario it is `lifecycle: {release: 15s}`.
- `batkube/…`: the same without the 15 s, beside batkube.
- `dralab/…`: dralab's own scheduler beside the real cluster. It needs no program.

A number agrees within two standard deviations of the published runs, or within 6 % beside the
cluster and 1 % beside batkube. batkube has no numbers of *spaced-160*, on which its scheduler
crashed. kube-scheduler 1.37.2 was used here; that of the k3s cluster was some years older. Its
longest waits, and the mean wait of *kit*, depend on which of the waiting pods its queue tries
first: pods with other names changed them by up to 5 %.

Five numbers differ, and none by chance:

- Four are of `dralab/…`, and dralab's. A waiting pod backs off for 1 s after its first attempt, and
  for 10 s after several, so on the cluster later pods overtake it. dralab's queue tries one pod
  for all that are alike, the oldest. With an attempt and a back-off for each pod, the longest waits
  of *spaced-170* and *spaced-160* were 1,175 s and 885 s here instead of 300 s and 180 s. Makespans
  and mean waits of equal jobs do not depend on it. kube-scheduler itself, in `cluster/…`, agrees
  in all twelve numbers.
- One is of batkube: its longest wait in *spaced-170* (378 s, with a standard deviation of 94 s
  in 20 runs) is far from that of the cluster which it models (1,716 s, 160 s in 10 runs).
  kube-scheduler waits for 1,520 s here, and for 1,700 s with the 15 s of the cluster.

The log is needed for *kit* only, and kube-scheduler for the first two groups (`chmod +x` it).
"""

REPRODUCTION: Final = Reproduction(
    name="batkube",
    title="batkube, and a small real cluster",
    paper="Théo Larue, batkube: real Kubernetes schedulers in Batsim (results in the repository)",
    address=REPOSITORY,
    cases=tuple(
        Case(
            name=f"{group.name}/{workload}",
            run=partial(_case, group, workload),
            data=(*group.programs, *([KIT.name] if workload == "kit" else ())),
        )
        for group in GROUPS
        for workload in group.published
    ),
    data=(SCHEDULER, KIT),
    time_there="14 to 53 s a run in batkube, 40 min to 9 h on the cluster",
    time_here=100,
    text=TEXT,
)
