"""What became of every pod: counted while it happens, and in the form of all results at the end."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dralab.simulation.pods.model import Pod
from dralab.simulation.results import Sample, Task

# As kube-scheduler and ours say it: how many nodes lack what, then what preemption could do.
REASONS: Final = re.compile(r"^\d+/\d+ nodes are available: (.*?)(?:\.(?:\s|$)|$)")
COUNT: Final = re.compile(r"^\d+ ")


@dataclass(slots=True)
class Seen:
    """A task. `name` is that of its present pod: one that has to begin anew gets another."""

    pod: Pod
    name: str
    uid: str = ""
    state: str = "Pending"
    node: str = ""
    devices: tuple[str, ...] = ()
    bound: int | None = None
    started: int | None = None
    ended: int | None = None
    failed: bool = False
    gone: bool = False
    runs: int = 0
    failures: int = 0
    evictions: int = 0
    reason: str = ""

    @property
    def over(self) -> bool:
        """Whether nothing more will become of it."""
        return self.state in {"Succeeded", "Failed"}

    def again(self) -> None:
        """Begin anew, with another pod."""
        self.runs += 1
        self.name = f"{self.pod.name}-again-{self.runs}"
        self.uid = self.node = ""
        self.state, self.devices, self.failed, self.gone = "Pending", (), False, False
        self.bound = self.started = self.ended = None


@dataclass(slots=True)
class Tasks:
    """All tasks, how many wait and run, and what they hold."""

    seen: list[Seen] = field(default_factory=list)
    by_uid: dict[str, Seen] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    refusals: Counter[str] = field(default_factory=Counter)
    over: int = 0
    waiting: int = 0
    running: int = 0
    cpu: int = 0
    gpu: int = 0

    def hold(self, seen: Seen, sign: int) -> None:
        """Count what a task takes when it is bound, or gives back."""
        self.running += sign
        self.cpu += sign * seen.pod.shape.cpu
        self.gpu += sign * seen.pod.shape.demand

    def refused(self, seen: Seen, message: str) -> None:
        """Take it that a pod cannot be placed, and why."""
        if seen.reason != message:
            seen.reason = message
            self.refusals.update(dict.fromkeys(reasons(message), 1))

    def sample(self, now: int) -> None:
        """Note how things stand."""
        sample = Sample(
            when=now, waiting=self.waiting, running=self.running, cpu=self.cpu, gpu=self.gpu,
            fragmented=0.0,
        )  # fmt: skip
        if self.samples and self.samples[-1].when == now:
            self.samples[-1] = sample
        elif not self.samples or self.samples[-1][1:] != sample[1:]:
            self.samples.append(sample)

    def finished(self, begin: int, lanes: Sequence[str]) -> Iterator[Task]:
        """Yield the tasks as results have them; lanes are those of their devices, or their node."""
        place = {lane: index for index, lane in enumerate(lanes)}

        def since(when: int | None) -> int | None:
            return None if when is None else when - begin

        for seen in self.seen:
            pod = seen.pod
            devices = [name for name in seen.devices if name in place]
            used = devices or ([seen.node] if seen.node in place else [])
            yield Task(
                id=pod.name if pod.namespace == "default" else pod.key,
                user=pod.user,
                state=seen.state,
                submitted=pod.arrives,
                bound=since(seen.bound),
                started=since(seen.started),
                ended=since(seen.ended),
                width=max(1, -(-pod.shape.cpu // 1000)),
                lanes=tuple(sorted(place[name] for name in used)),
                gpu_milli=pod.shape.demand,
                reason=seen.reason,
                evictions=seen.evictions,
            )


def reasons(message: str) -> Iterator[str]:
    """Yield the reasons of a message that no node is available, without their numbers.

    >>> list(reasons("0/3 nodes are available: 2 Insufficient cpu, 1 Too many pods. Details"))
    ['Insufficient cpu', 'Too many pods']
    """
    match = REASONS.match(message)
    if match is None:
        yield message
        return
    for part in match[1].split(", "):
        yield COUNT.sub("", part)


def lanes_of(devices: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the lanes of a chart: each node, and after it its devices."""
    found: list[str] = []
    for node, names in devices.items():
        found += [node, *(f"{node}/{name}" for name in names)]
    return found
