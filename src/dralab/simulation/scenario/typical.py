"""A scenario of what a GPU cluster does, written from a few numbers: `dralab generate workload`.

`SOURCES` says where the numbers come from; docs/guides/what-clusters-do.md cites each of them, and
what is assumed is called so there and in the file.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dralab.fleet.model import RACK_LABEL
from dralab.kernel.clock import SECOND

BLOCK_LABEL: Final = "topology.dralab.dev/block"
HOUR: Final = 3600 * SECOND
SOURCES: Final[Mapping[str, str]] = {
    "llama3": "https://arxiv.org/abs/2407.21783",
    "lablup": "https://arxiv.org/abs/2605.09370",
    "philly": "https://github.com/msr-fiddle/philly-traces",
    "openb": "https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2023",
    "azure": "https://github.com/Azure/AzurePublicDataset",
    "deepseek": "https://github.com/deepseek-ai/open-infra-index",
    "sglang": "https://lmsys.org/blog/2025-05-05-large-scale-ep/",
    "jobset": "https://github.com/kubernetes-sigs/jobset/blob/release-0.5/examples/simple/max-restarts.yaml",
    "superpod": "https://docs.nvidia.com/dgx-superpod/",
}
# Llama 3: 419 unexpected interruptions of 16,384 GPUs in 54 days.
GPU_MTBF: Final = round(16_384 * 54 * 24 / 419) * HOUR
# Shares of the GPU time that is asked for: assumed.
SHARES: Final[Mapping[str, float]] = {
    "training": 0.6, "serving": 0.2, "batch": 0.15, "notebook": 0.05,
}  # fmt: skip
# Run times of Philly's jobs in seconds, log-normal: median and standard deviation of logarithms.
PHILLY: Final = (1186, 2.18)
# One-, two-, four- and eight-GPU pods of openb's default trace.
OPENB_GPUS: Final = {1: 6989, 2: 16, 4: 15, 8: 44}
TRAINING: Final = (6 * 3600, 1.0)
NOTEBOOK: Final = (2 * 3600, 0.8)
# Of Azure's conversations; of a node of 8 GPUs with SGLang.
TOKENS: Final = {"context": 1155, "generated": 211}
TOKENS_A_GPU: Final = {"context": 52_300 / 8, "generated": 22_300 / 8}
BUSY: Final = 0.8
# Nodes of a prefill and of a decode replica, by how many nodes the service keeps busy.
UNITS: Final = ((40, (4, 9)), (6, (1, 2)), (0, (1, 1)))
# Tray of an NVL72 rack, of which there are 18; other nodes have 8 GPUs, and racks of 4 are assumed.
NVL72_GPUS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNumbers:
    """What is known of a cluster. Durations are nanoseconds; an `mtbf` of 0 means no failures.

    `load` is the GPU time that is asked for, of all there is, `shares` how it is divided.
    """

    nodes: int = 64
    gpus: int = 8
    length: int = 30 * 24 * HOUR
    seed: int = 0
    load: float = 0.85
    mtbf: int = GPU_MTBF
    shares: Mapping[str, float] = field(default_factory=lambda: SHARES)

    @property
    def rack(self) -> int:
        """The nodes of a rack."""
        return 18 if self.gpus == NVL72_GPUS else 4

    def gpus_for(self, kind: str) -> float:
        """Return how many GPUs a kind of work keeps busy on average."""
        whole = sum(self.shares.values())
        part = self.shares.get(kind, 0.0) / whole if whole else 0.0
        return self.nodes * self.gpus * self.load * part

    def count(self, kind: str, gpu_seconds: float) -> int:
        """Return how many tasks of so many GPU seconds it takes to keep those GPUs busy."""
        return round(self.gpus_for(kind) * self.length / SECOND / gpu_seconds)


def scenario_text(cluster: ClusterNumbers) -> str:
    """Return the scenario, with a comment on each number: its source, or that it is assumed."""
    parts = [
        _training(cluster),
        _drawn("batch", cluster, PHILLY, "[philly]", _batch_kinds(cluster.gpus)),
        _drawn("notebook", cluster, NOTEBOOK, "assumed", [(1, 1, "gpu_milli: 500, ")]),
    ]
    generators = "".join(part for part in parts if part)
    sources = "".join(f"# [{name}] {url}\n" for name, url in SOURCES.items())
    block = 8 * cluster.rack
    faults = ""
    if cluster.mtbf:
        faults = (
            f"faults: {{every: {_long(cluster.mtbf)}, repair: 4h, of: gpu}}"
            f"  # {_from('[llama3]', cluster.mtbf == GPU_MTBF)}; the repair is assumed\n"
        )
    return f"""\
# What {cluster.nodes} nodes with {cluster.gpus} GPUs do in {_long(cluster.length)}, \
written by `dralab generate workload`.
# Each number has its source, or is assumed: change what you know better.
{sources}name: {cluster.nodes} nodes for {_long(cluster.length)}
seed: {cluster.seed}
fleet:
  nodes:
    - name: gpu
      count: {cluster.nodes}
      gpus: {cluster.gpus}
      cpu: {12 * cluster.gpus}  # assumed, as memory
      memory: {128 * cluster.gpus}Gi
      model: {"GB200" if cluster.gpus == NVL72_GPUS else "H100"}
      domains:  # a block has 8 racks, whose GPUs of a rank share a rail [superpod]
        {RACK_LABEL}: {cluster.rack}
        {BLOCK_LABEL}: {block}
workload:
{"  generate:" + chr(10) if generators else ""}{generators}{_serving(cluster)}\
scheduler: default
lifecycle:
  gangs: recreate  # [jobset]
  restart: 11m  # median interval of retries [lablup]
{faults}stop: {{at: {_long(cluster.length)}}}
"""


def _training(cluster: ClusterNumbers) -> str:
    """Return jobs of 1, 2, 4 … nodes, up to a quarter of the cluster, with equal GPU time each."""
    sizes = [1 << n for n in range(12) if 1 << n <= max(1, cluster.nodes // 4)]
    gpu_seconds = len(sizes) * cluster.gpus * _mean(TRAINING) / sum(1 / size for size in sizes)
    count = cluster.count("training", gpu_seconds)
    kinds = "".join(
        f"        - {{weight: {1 / size:g}, gang: {size}, {_asked(cluster.gpus)}, "
        f"{_topology(cluster, size)}startup: 5m, checkpoint: 30m, priority: 10}}\n"
        for size in sizes
    )
    return _generator("train", cluster, count, (TRAINING, "assumed"), kinds)


def _topology(cluster: ClusterNumbers, size: int) -> str:
    for label, nodes in ((RACK_LABEL, cluster.rack), (BLOCK_LABEL, 8 * cluster.rack)):
        if 1 < size <= nodes:
            return f"topology: {label}, "
    return ""


def _batch_kinds(most: int) -> list[tuple[float, int, str]]:
    return [(weight, gpus, "") for gpus, weight in OPENB_GPUS.items() if gpus <= most]


def _drawn(
    name: str,
    cluster: ClusterNumbers,
    length: tuple[float, float],
    source: str,
    given: list[tuple[float, int, str]],
) -> str:
    """Return single pods that come by day more than at night."""
    weights = sum(weight for weight, _, _ in given)
    gpus = sum(w * n * (0.5 if more else 1) for w, n, more in given) / weights
    count = cluster.count(name, gpus * _mean(length))
    priority = ", priority: 50, startup: 1m" if name == "notebook" else ""
    kinds = "".join(
        f"        - {{weight: {weight:g}, {more}{_asked(n)}{priority}}}\n"
        for weight, n, more in given
    )
    return _generator(name, cluster, count, (length, source), kinds)


def _generator(
    name: str,
    cluster: ClusterNumbers,
    count: int,
    length: tuple[tuple[float, float], str],
    kinds: str,
) -> str:
    if not count:
        return ""
    (median, sigma), source = length
    process = "poisson" if name == "train" else "daily"
    sizes = "  # sizes [openb]" if name == "batch" else "  # assumed"
    return f"""\
    - name: {name}
      count: {count}
      users: 20
      arrivals: {{process: {process}, over: {_long(cluster.length)}}}
      duration: {{distribution: lognormal, median: {median}s, sigma: {sigma:g}}}  # {source}
      pods:{sizes}
{kinds}"""


def _serving(cluster: ClusterNumbers) -> str:
    """Return a service with prefill and decode, each a gang as LeaderWorkerSet makes them."""
    busy = cluster.gpus_for("serving")
    if not busy:
        return ""
    gpu_seconds = sum(TOKENS[part] / TOKENS_A_GPU[part] for part in TOKENS) / BUSY
    # DeepSeek's units have 4 and 18 nodes, those of SGLang 4 and 9: here, where there is room.
    sizes = next(s for least, s in UNITS if busy >= least * cluster.gpus)
    groups = "".join(
        f"        - {{name: {name}, of: {part}, "
        f"rate: {TOKENS_A_GPU[part] * cluster.gpus * size:g}, load: {BUSY}, gang: {size}, "
        f"{_asked(cluster.gpus)}, {_topology(cluster, size)}"
        f"startup: 6m, priority: 100}}\n"
        for name, part, size in zip(("prefill", "decode"), TOKENS, sizes, strict=True)
    )
    tokens = ", ".join(f"{part}: {number}" for part, number in TOKENS.items())
    return f"""\
  serving:
    - name: chat
      over: {_long(cluster.length)}
      stay: 1h  # assumed
      requests: {busy / gpu_seconds:.1f}
      peak: 1.23  # 278 nodes at the peak, 226.75 on average [deepseek]
      tokens: {{{tokens}}}  # means of AzureLLMInferenceTrace_conv.csv [azure]
      groups:  # tokens a second of a node [sglang]; start-up is assumed
{groups}"""


def _asked(gpus: int) -> str:
    return f"gpus: {gpus}, cpu: {8 * gpus}, memory: {64 * gpus}Gi"


def _mean(length: tuple[float, float]) -> float:
    """Return the mean of a log-normal duration."""
    median, sigma = length
    return median * math.exp(sigma * sigma / 2)


def _from(source: str, usual: bool) -> str:  # noqa: FBT001 - private
    return source if usual else "as given"


def _long(length: int) -> str:
    """Return a duration in days or hours, where it is a whole number of them, or in seconds."""
    for unit, size in (("d", 24 * HOUR), ("h", HOUR)):
        if length % size == 0:
            return f"{length // size}{unit}"
    return f"{length / SECOND:g}s"
