"""The run time of a profile on given hosts, its load, and the links that it uses."""

from dataclasses import dataclass

from dralab.kernel.clock import SECOND
from dralab.scenarios.errors import InputError
from dralab.simulation.platforms.network import Network, Transfer
from dralab.simulation.platforms.platform import Host, Platform, Way
from dralab.simulation.workloads.jobs import (
    Composed,
    Delay,
    Homogeneous,
    Job,
    ParallelTask,
    Profile,
    SchedulerMessage,
    SmpiTrace,
    Staging,
    Storage,
    UsageTrace,
    Workload,
)

NOWHERE: frozenset[Way] = frozenset()
STILL = Transfer(0.0, 0.0, NOWHERE)


@dataclass(frozen=True, slots=True)
class ExpectedRun:
    """Nanoseconds of run time, the mean use of a host's speed (0 to 1), and the ways used.

    `computes` is False for a delay, which draws idle power however long it takes.
    """

    duration: int
    use: float = 0.0
    computes: bool = False
    ways: frozenset[Way] = NOWHERE


class Durations:
    """Runs of the profiles of one workload on one platform."""

    def __init__(self, workload: Workload, platform: Platform) -> None:
        self.workload = workload
        self.platform = platform
        self.network = Network(platform)
        self._by_name = {host.name: host for host in platform.hosts.values()}

    def expected_run(self, job: Job, hosts: tuple[Host, ...]) -> ExpectedRun:
        """Return the run of a job on these hosts, each profile alone on the network."""
        return self._run(job, self.workload.profiles[job.profile], hosts)

    def _run(self, job: Job, profile: Profile, hosts: tuple[Host, ...]) -> ExpectedRun:
        match profile:
            case Delay():
                return ExpectedRun(profile.duration)
            case SchedulerMessage():
                return ExpectedRun(0)
            case ParallelTask():
                return self._parallel(job, profile, hosts)
            case Homogeneous():
                return self._homogeneous(profile, hosts)
            case Composed():
                return self._composed(job, profile, hosts)
            case UsageTrace():
                return self._usage(profile, hosts)
            case SmpiTrace():
                return self._smpi(profile, hosts)
            case Storage():
                return self._storage(job, profile, hosts)
            case Staging():
                source = self._storage_host(job, profile.source)
                target = self._storage_host(job, profile.target)
                moved = self.network.transfer([(source, target, profile.size)])
                return _run(0.0, moved.sending, moved)

    def _parallel(self, job: Job, profile: ParallelTask, hosts: tuple[Host, ...]) -> ExpectedRun:
        if profile.width != len(hosts):
            raise InputError(
                self.workload.source,
                f"its profile is for {profile.width} machines and it got {len(hosts)}",
                where=f"job {job.id}",
            )
        busy = [amount / host.speed for amount, host in zip(profile.cpu, hosts, strict=False)]
        width = len(hosts)
        moved = self.network.transfer(
            (hosts[index // width], hosts[index % width], amount)
            for index, amount in enumerate(profile.com)
        )
        seconds = max(*busy, moved.sending, 0.0) if busy else moved.sending
        return _run(sum(busy) / width, seconds, moved)

    def _homogeneous(self, profile: Homogeneous, hosts: tuple[Host, ...]) -> ExpectedRun:
        width = len(hosts)
        flops, amount = profile.cpu, profile.com
        if profile.sharing != "each":
            flops /= width
            pairs = width if profile.sharing == "total-v4" else width * (width - 1)
            amount = amount / pairs if pairs else 0.0
        busy = [flops / host.speed for host in hosts]
        moved = self.network.all_to_all(hosts, amount)
        return _run(sum(busy) / width, max(*busy, moved.sending, 0.0), moved)

    def _composed(self, job: Job, profile: Composed, hosts: tuple[Host, ...]) -> ExpectedRun:
        runs = [self._run(job, self.workload.profiles[part], hosts) for part in profile.parts]
        once = sum(run.duration for run in runs)
        weighted = sum(run.use * run.duration for run in runs)
        return ExpectedRun(
            duration=once * profile.repeat,
            use=weighted / once if once else 0.0,
            computes=any(run.computes for run in runs),
            ways=frozenset().union(*(run.ways for run in runs)),
        )

    def _usage(self, profile: UsageTrace, hosts: tuple[Host, ...]) -> ExpectedRun:
        longest, used = 0.0, 0.0
        for rank, lines in enumerate(profile.ranks):
            speed = hosts[rank % len(hosts)].speed
            longest = max(longest, sum(flops for _, flops in lines) / speed)
            used += sum(usage * flops for usage, flops in lines) / speed
        return _run(used / len(profile.ranks), longest, STILL)

    def _smpi(self, profile: SmpiTrace, hosts: tuple[Host, ...]) -> ExpectedRun:
        """Model: ranks compute, then all their messages cross the network at once."""
        ranks = len(profile.ranks)
        busy, flows = [0.0] * ranks, []
        for rank, actions in enumerate(profile.ranks):
            here = hosts[rank % len(hosts)]
            for action, peer, amount in actions:
                if action == "compute":
                    busy[rank] += amount / here.speed
                elif action in {"send", "isend"}:
                    flows.append((here, hosts[peer % len(hosts)], amount))
                elif peer < 0 and amount > 0:
                    others = (hosts[other % len(hosts)] for other in range(ranks) if other != rank)
                    flows.extend((here, other, amount) for other in others)
        moved = self.network.transfer(flows)
        return _run(sum(busy) / ranks, max(busy) + moved.sending, moved)

    def _storage(self, job: Job, profile: Storage, hosts: tuple[Host, ...]) -> ExpectedRun:
        storage = self._storage_host(job, profile.storage)
        share = len(hosts) if profile.spread else 1
        flows = [(storage, host, profile.read / share) for host in hosts]
        flows += [(host, storage, profile.write / share) for host in hosts]
        moved = self.network.transfer(flows)
        return _run(0.0, moved.sending, moved)

    def _storage_host(self, job: Job, label: str) -> Host:
        """Find the storage host of a label: its name, or any label for the only one."""
        if label in self._by_name:
            return self._by_name[label]
        if len(self.platform.storage) == 1:
            return self.platform.storage[0]
        raise InputError(
            self.workload.source,
            f"there is no storage {label!r} on platform {self.platform.name}",
            where=f"job {job.id}",
        )


def _run(busy: float, seconds: float, moved: Transfer) -> ExpectedRun:
    """Return the run time and load, where latency also counts as computing as in SimGrid."""
    use = min(1.0, busy / seconds) if seconds > 0 else 0.0
    duration = round((seconds + moved.latency) * SECOND)
    return ExpectedRun(duration=duration, use=use, computes=True, ways=moved.ways)
