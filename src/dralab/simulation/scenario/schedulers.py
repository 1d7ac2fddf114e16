"""The names of schedulers, by the engine that runs them."""

from typing import Final

from dralab.allocation.policy.policies import POLICIES as ALLOCATION_POLICIES
from dralab.values.near_names import not_one_of

# Rigid jobs on machines: `engines.batch`.
JOBS: Final = (
    "fcfs", "easy", "easy-counting", "easy-sjbf", "conservative", "conservative-counting",
)  # fmt: skip
# Policies that choose nodes for pods: `engines.fast`.
PODS: Final = (
    "random", "dotprod", "clustering", "packing", "bestfit", "fgd", "firstfit", "worstfit",
    "default",
)  # fmt: skip
ALLOCATION_PREFIX: Final = "allocation:"
ALLOCATION: Final = tuple(f"{ALLOCATION_PREFIX}{name}" for name in ALLOCATION_POLICIES)
# The scheduler of `dralab up`: `engines.cluster`.
OWN: Final = "dralab"
# The same scheduler without a cluster around it: `engines.fast`.
FAST: Final = "dralab-fast"
# Schedulers of others: `engines.external`.
EXTERNAL: Final = "external"
# k8s-cluster-simulator's, without and with preemption: `engines.fast.ticks`.
TICKS_PREEMPTION: Final = "ticks-preemption"
TICKS: Final = ("ticks", TICKS_PREEMPTION)
# Those that divide the time of GPUs among trainings: `engines.fast.round_policies`.
ROUNDS: Final = tuple(
    f"rounds:{name}"
    for name in (
        "fifo", "fifo-fit", "fewest-gpus", "shortest", "shortest-service", "las", "las-2d",
        "gittins-2d", "max-min", "max-min-agnostic", "finish-time", "finish-time-agnostic",
        "makespan", "makespan-agnostic", "allox", "gandiva", "fifo-shares", "fifo-shares-agnostic",
        "pop-max-min", "pop-finish-time", "pop-makespan", "throughput", "optimus", "pollux", "sia",
    )
)  # fmt: skip
BUILT_IN: Final = (*JOBS, *PODS, *ALLOCATION, *TICKS, *ROUNDS, FAST, OWN)
# What runs a class of a user's own: without a server, tick by tick, in a whole cluster, for jobs,
# in rounds of time slices.
ENGINES: Final = ("fast", "ticks", "cluster", "batch", "rounds")
# What each of them schedules.
FOR: Final = (
    *((name, "jobs on machines") for name in JOBS),
    *((name, "pods, by the node they choose") for name in PODS),
    *((name, "pods with claims, by the devices they choose") for name in ALLOCATION),
    *((name, "pods, as k8s-cluster-simulator does") for name in TICKS),
    *((name, "trainings in rounds, and pods with whole GPUs") for name in ROUNDS),
    (FAST, "pods, as kube-scheduler does"),
    (OWN, "pods and their controllers, in a whole cluster"),
    (EXTERNAL, "pods, by a program of yours"),
)


def unknown_scheduler(name: str) -> str:
    """Return the error for a scheduler that does not exist."""
    listed = "`dralab simulate schedulers`, or give file.py:Class"
    return not_one_of(name, [*BUILT_IN, EXTERNAL], listed)
