"""One YAML file, read and checked: `load` it, then `run` it."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from dralab.drivers.faults import parse as parse_fault
from dralab.kernel.clock import SECOND
from dralab.simulation.errors import InputError, InputProblems
from dralab.simulation.lifecycle.model import (
    Fault,
    LifeCycle,
    Pod,
    Quota,
    RandomFaults,
    RunConditions,
    Stage,
)
from dralab.simulation.scenario import custom, fleet, workload
from dralab.simulation.scenario.fields import Fields, FieldSource
from dralab.simulation.scenario.fields import load as load_fields
from dralab.simulation.scenario.fleet import ScenarioFleet
from dralab.simulation.scenario.schedulers import (
    BUILT_IN,
    EXTERNAL,
    FAST,
    JOBS,
    OWN,
    TICKS,
)
from dralab.simulation.scenario.workload import ScenarioWorkload

PICTURES: Final = ("png", "svg")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """What is written where. `parquet` None: where the extra is installed."""

    report: Path | None = None
    parquet: bool | None = None
    picture: str | None = None

    def but(self, *, report: Path | None, parquet: bool | None, picture: str | None) -> "Outputs":
        """Return the outputs with the given fields replaced."""
        return Outputs(
            report=self.report if report is None else report,
            parquet=self.parquet if parquet is None else parquet,
            picture=self.picture if picture is None else picture,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything that decides a run."""

    name: str
    file: Path
    seed: int
    fleet: ScenarioFleet
    work: ScenarioWorkload
    scheduler: str
    conditions: RunConditions
    external: Mapping[str, object]
    skipped: int = 0
    energy: bool = False
    outputs: Outputs = field(default_factory=Outputs)
    measured: tuple[int, int] | None = None
    tick: int = 10 * SECOND
    policy: Callable[[], Any] | None = None

    @property
    def is_own(self) -> bool:
        """Whether a user's policy schedules: `policy`, or a class of a file."""
        return self.policy is not None or custom.is_file(self.scheduler)

    def own_policy(self, wanted: str) -> Any:
        """Return a new user's policy. InputError: it has no method `wanted`."""
        made = self.policy or custom.load_class(self.scheduler, self.file)
        if not hasattr(made, wanted):
            what = "jobs on machines" if wanted == "decide" else "pods on nodes"
            problem = f"{self.scheduler} places {what} only with a method {wanted}"
            raise InputError(self.file, problem, where="scheduler")
        return made()

    @property
    def is_batch(self) -> bool:
        """Whether rigid jobs are scheduled, not pods."""
        if self.is_own:
            return self.work.jobs is not None and self.fleet.platform is not None
        return self.scheduler in JOBS

    def pods(self) -> tuple[Pod, ...]:
        """Return the workload as pods."""
        if self.work.jobs is None:
            return self.work.pods
        return workload.as_pods(self.work.jobs, str(self.file))


def load(
    path: Path,
    *,
    content: Mapping[str, object] | None = None,
    seed: int | None = None,
    scheduler: str | None = None,
    problems: InputProblems | None = None,
    change: Callable[[Fields], None] | None = None,
    policy: Callable[[], Any] | None = None,
) -> Scenario:
    """Return the scenario of a file; `seed` and `scheduler` replace what it says.

    `content` stands for that of the file, which need not be there then. A `policy` schedules in
    place of any scheduler; it is named in `scheduler`.
    """
    problems = InputProblems() if problems is None else problems
    fields = load_fields(path) if content is None else Fields(FieldSource(path), "", content)
    if change is not None:
        change(fields)
    for key in ("apiVersion", "kind"):
        fields.raw(key)
    own_seed = fields.whole("seed", 0)
    own_scheduler, blocking = _scheduler(fields)
    chosen = scheduler or own_scheduler
    if policy is None and chosen not in {*BUILT_IN, EXTERNAL}:
        if not custom.is_file(chosen):
            known = ", ".join([*BUILT_IN, EXTERNAL, "file.py:Class"])
            raise fields.error("scheduler", f"{chosen!r} is not one of {known}")
        custom.check(chosen, path)
    if blocking and chosen in {EXTERNAL, FAST, OWN, *TICKS}:
        raise fields.error(
            "scheduler", f"{chosen} has its own order: strict_order is for built-in policies"
        )
    used_seed = own_seed if seed is None else seed
    machines = fleet.read(fields, problems)
    batch = chosen in JOBS
    hosts = machines.as_platform().width if batch else None
    work = workload.read(fields, used_seed, problems, hosts=hosts)
    external = fields.mapping("external").value
    conditions = _conditions(fields, machines, used_seed)
    scenario = Scenario(
        name=fields.text("name", path.stem),
        file=path,
        seed=used_seed,
        fleet=machines,
        work=work,
        scheduler=chosen,
        conditions=replace(conditions, blocking=blocking),
        external=external,
        skipped=len(problems.skipped),
        energy=fields.flag("energy", default=False),
        outputs=_outputs(fields),
        measured=_measured(fields),
        tick=_tick(fields, machines, chosen),
        policy=policy,
    )
    fields.done()
    return scenario


def _tick(fields: Fields, machines: ScenarioFleet, scheduler: str) -> int:
    if not fields.has("tick"):
        return machines.tick
    if scheduler not in TICKS:
        raise fields.error("tick", f"is for {' and '.join(TICKS)}, not for {scheduler!r}")
    tick = fields.duration("tick")
    if tick < SECOND or tick % SECOND:
        raise fields.error("tick", "must be whole seconds, at least 1")
    return tick


def _outputs(fields: Fields) -> Outputs:
    inner = fields.mapping("outputs")
    found = Outputs(
        report=inner.new_folder("report") if inner.has("report") else None,
        parquet=inner.flag("parquet", default=False) if inner.has("parquet") else None,
        picture=inner.choice("picture", dict.fromkeys(PICTURES)) if inner.has("picture") else None,
    )
    inner.done()
    return found


def _measured(fields: Fields) -> tuple[int, int] | None:
    """Return the interval that is measured, where warm-up and drain are cut off."""
    if not fields.has("measure"):
        return None
    inner = fields.mapping("measure")
    found = inner.duration("from", 0), inner.duration("to")
    if found[0] >= found[1]:
        raise inner.error("to", "must be after `from`")
    inner.done()
    return found


def _scheduler(fields: Fields) -> tuple[str, bool]:
    """Return the name of what decides, and whether the head of its queue blocks the rest."""
    if fields.has("policy"):
        if fields.has("scheduler"):
            raise fields.error("policy", "is an alias of `scheduler`: give only one")
        return fields.text("policy"), False
    if not isinstance(fields.raw("scheduler"), Mapping):
        return fields.text("scheduler", "default"), False
    inner = fields.mapping("scheduler")
    found = inner.text("name", "default"), inner.flag("strict_order", default=False)
    inner.done()
    return found


def _conditions(fields: Fields, machines: ScenarioFleet, seed: int) -> RunConditions:
    life = fields.mapping("lifecycle")
    failure = life.number("failure", 0.0)
    if failure > 1:
        raise life.error("failure", "is a probability: from 0 to 1")
    cycle = LifeCycle(
        start=_stages(life, "start"),
        release=_stages(life, "release"),
        failure=failure,
        retries=life.whole("retries", 0),
    )
    life.done()
    stop = fields.mapping("stop")
    until = stop.duration("at") if stop.has("at") else None
    ended = stop.whole("ended", least=1) if stop.has("ended") else None
    stop.done()
    faults, at_random = _faults(fields, machines)
    if at_random is not None and until is None:
        raise fields.error("stop", "give `at`: with random faults a run may never end")
    queues = fields.mapping("queues")
    return RunConditions(
        seed=seed,
        life=cycle,
        faults=faults,
        random_faults=at_random,
        quotas={name: _quota(queues.mapping(name)) for name in sorted(queues.value)},
        until=until,
        ended=ended,
    )


def _stages(life: Fields, key: str) -> tuple[Stage, ...]:
    """Return the stages before a run, or after it: a duration, a delay with jitter, or a list."""
    if isinstance(life.raw(key), list):
        return tuple(_stage(inner, inner.text("name")) for inner in life.mappings(key))
    if isinstance(life.raw(key), Mapping):
        return (_stage(life.mapping(key), key),)
    delay = life.duration(key, 0)
    return (Stage(name=key, delay=delay),) if delay else ()


def _stage(fields: Fields, name: str) -> Stage:
    delay, jitter = fields.duration("delay", 0), fields.duration("jitter", 0)
    fields.done()
    return Stage(name=name, delay=delay, jitter=jitter)


def _faults(fields: Fields, machines: ScenarioFleet) -> tuple[list[Fault], RandomFaults | None]:
    if isinstance(fields.raw("faults"), Mapping):
        inner = fields.mapping("faults")
        found = RandomFaults(between=inner.duration("every"), repair=inner.duration("repair"))
        inner.done()
        return [], found
    names = {node.name for node in machines.as_nodes()} if fields.has("faults") else set()
    faults = []
    for entry in fields.mappings("faults"):
        faults.append(_fault(entry, names))
        entry.done()
    return faults, None


def _fault(entry: Fields, names: Collection[str]) -> Fault:
    node = entry.text("node", "")
    if node not in names and (node or not entry.has("happens")):
        raise entry.error("node", f"there is no node {node!r}")
    happens = None
    if entry.has("happens"):
        try:
            happens = parse_fault(entry.text("happens"))
        except ValueError as error:
            raise entry.error("happens", str(error)) from None
    taint = None
    if entry.has("taint"):
        inner = entry.mapping("taint")
        effects = dict.fromkeys(fleet.EFFECTS)
        taint = inner.text("key"), inner.text("value", ""), inner.choice("effect", effects)
        inner.done()
    if happens is not None and taint is not None:
        raise entry.error("taint", "cannot be combined with `happens`: use two entries")
    device = entry.text("device", "")
    if device and taint is None:
        raise entry.error("device", "needs `taint`; for driver faults use `happens`")
    return Fault(
        at=entry.duration("at"),
        duration=entry.duration("for") if entry.has("for") else None,
        node=node,
        device=device,
        taint=taint,
        driver=entry.text("driver", ""),
        happens=happens,
    )


def _quota(fields: Fields) -> Quota:
    quota = Quota(
        cpu=fields.quantity("cpu", scale=1000) if fields.has("cpu") else None,
        gpu_milli=fields.quantity("gpus", scale=1000) if fields.has("gpus") else None,
        pods=fields.whole("pods") if fields.has("pods") else None,
    )
    fields.done()
    return quota
