"""The numbers of the authors' own runs, beside ours.

`published.csv` has, of each trace and policy, the mean ± standard deviation over ten seeds, from
the tables in `experiments/analysis/expected_results` of the authors' repository.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Final

from dralab.simulation.engines.placement import run
from dralab.simulation.reproductions.registry import Case, ComparedNumber, DataFile, Reproduction
from dralab.simulation.workloads import openb

REPOSITORY: Final = "https://github.com/hkust-adsl/kubernetes-scheduler-simulator"
FOLDER: Final = f"{REPOSITORY}/tree/main/data/csv"
NODES: Final = "openb_node_list_gpu_node.csv"
# The first digits of the SHA-256 of the nodes, and of the pods of each trace.
NODES_SHA256: Final = "2beca64b4d3d"
PODS_SHA256: Final[Mapping[str, str]] = {
    "cpu050": "747f43247bff", "cpu100": "bec1c33fbdde", "cpu200": "b7e9d8a1a601",
    "cpu250": "134c21ff96d5", "default": "1ee7ed79c27a", "gpushare100": "12dbc07d6a49",
    "gpushare40": "d83ce79a4eb6", "gpushare60": "d31809628128", "gpushare80": "88b6649369ce",
    "gpuspec10": "2dc7e4cb9480", "gpuspec20": "6b9b89ab8913", "gpuspec25": "9d030679a2cc",
    "gpuspec33": "eca4f746db1e", "multigpu20": "d9ec6f6c74fb", "multigpu30": "a5e479c6444b",
    "multigpu40": "32c9e8731ca0", "multigpu50": "206f2f5959db",
}  # fmt: skip
SEEDS: Final = 3
# Of the difference between a mean of ten seeds and one of three, in standard deviations of a seed.
STANDARD_ERROR: Final = (1 / 10 + 1 / SEEDS) ** 0.5


def _published() -> dict[str, dict[str, Mapping[str, tuple[float, float]]]]:
    """Return mean and standard deviation by trace, policy and number."""
    found: dict[str, dict[str, Mapping[str, tuple[float, float]]]] = {}
    text = files(__package__).joinpath("published.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        trace, policy = row.pop("trace"), row.pop("policy")
        split = {name: cell.split("±") for name, cell in row.items()}
        numbers = {name: (float(mean), float(sd)) for name, (mean, sd) in split.items()}
        found.setdefault(trace, {})[policy] = numbers
    return found


PUBLISHED: Final = _published()
_nodes, _pods = cache(openb.read_nodes), cache(openb.read_pods)


def _case(trace: str, policy: str, paths: Sequence[Path], seed: int) -> Iterator[ComparedNumber]:
    nodes, pods = _nodes(paths[0]), _pods(paths[1])
    runs = [
        run(nodes, pods, policy=policy, seed=each).numbers() for each in range(seed, seed + SEEDS)
    ]
    for name, (mean, sd) in PUBLISHED[trace][policy].items():
        yield ComparedNumber(
            what=name,
            published=mean,
            ours=fmean(each[name] or 0 for each in runs),
            unit="%",
            within=max(0.5, round(4 * STANDARD_ERROR * sd, 3)),
        )


def _pods_file(trace: str) -> str:
    return f"openb_pod_list_{trace}.csv"


TEXT: Final = """
1. Pods are sorted by name and shuffled with the seed. Then clones of random pods are added until
   all pods together request 1.3 times all GPUs.
2. Each pod is tried once. A placed pod is never deleted; a pod that fits nowhere is dropped. There
   is no simulated time.
3. The policy scores every node that the pod fits on. Among equal scores, the first node in a random
   order wins.
4. After every pod, the run records arrived demand, allocated GPU and fragmentation. *alloc_pct@r*
   is the mean over the moments when the arrived demand rounds to r % of all GPUs.

The *fragmentation* of a node is the idle GPU that *typical pods* (the most frequent shapes, which
make up 95 % of the trace) could not use there, weighted by how often they arrive.

The authors published ten seeds (42 to 51) of 17 traces and six policies; here each case is the mean
of three seeds. A number agrees if it is within four standard errors of the difference of these two
means, or within half a point. (At three standard errors, 5 of the 918 numbers differ; chance alone
lets one expect two or three.) Equal numbers cannot be expected: the authors draw from Go's random
numbers. The figures of the paper are drawn from these tables; the paper itself was not read again.

dralab differs from the original in two ways. The random order of nodes spreads every kind of node
evenly: otherwise packing and clustering differ by more than a point between seeds for this reason
alone. The mean is the same, the spread is half. Scores are cached per pod shape and updated only
for nodes that changed, which saves most of the time; a test compares them with freshly computed
scores.

One run by hand, with its curve (the paper's figures 7 and 9):

```console
$ dralab simulate run openb_node_list_gpu_node.csv openb_pod_list_default.csv \\
    --scheduler fgd --inflate 1.3 --seed 42 --write curve.csv
```
"""

REPRODUCTION: Final = Reproduction(
    name="fgd",
    title="FGD and five policies on Alibaba's GPU traces",
    paper="Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing Workloads with "
    "Fragmentation Gradient Descent, USENIX ATC 2023",
    address=REPOSITORY,
    cases=tuple(
        Case(
            name=f"{trace}/{policy}",
            run=partial(_case, trace, policy),
            data=(NODES, _pods_file(trace)),
        )
        for trace, policies in PUBLISHED.items()
        for policy in policies
    ),
    data=tuple(
        DataFile(name=name, address=FOLDER, licence="Apache-2.0", sha256=sha256)
        for name, sha256 in (
            (NODES, NODES_SHA256),
            *((_pods_file(trace), sha256) for trace, sha256 in PODS_SHA256.items()),
        )
    ),
    seed=42,
    time_there="some 10 minutes a run on 2 virtual CPUs",
    time_here=330,
    text=TEXT,
)
