"""How long a bench waits, and how much it does. Times in seconds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckLimits:
    """The kubelet's time-outs where it has one, else what a cluster can live with."""

    ready: float = 30.0  # a started driver serves its sockets and publishes its devices
    stop: float = 30.0  # terminationGracePeriodSeconds of a pod
    info: float = 1.0  # kubelet: GetInfo
    notify: float = 5.0  # kubelet: NotifyRegistrationStatus
    call: float = 45.0  # kubelet: NodePrepareResources, NodeUnprepareResources
    first_report: float = 5.0  # health is Unknown until the first report
    stale: float = 30.0  # kubelet: a report is too old
    # The Go library repairs 30 s after an event, or 60 s after it has created a slice.
    repair: float = 90.0
    remembered: float = 60.0  # the Go library does not look again at what it wrote
    settle: float = 5.0  # slices are written one after the other: how long a pool is incomplete
    quiet: float = 2.0  # without a reason to write, nothing is written for so long
    reports: int = 10  # health reports a second without a change: more is a flood
    crash_points: int = 10
    claims: int = 1_000
    load: float = 60.0  # the load ends then, however many claims are done
    memory: int = 48  # MiB by which a process may grow over all claims
    descriptors: int = 8  # by which a process may grow over all claims
    threads: int = 16  # by which a process may grow over all claims
    slow: float = 1.0  # how long a slow API server takes for each answer
    down: float = 1.0  # how long the API server is gone
