"""One YAML file, read and checked: `load` it, then `run` it."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, get_args

from dralab.api.releases import DEFAULT, MIXED
from dralab.api.resource.features import Features, GateError, of_simulations, with_gates
from dralab.drivers.faults import parse as parse_fault
from dralab.kernel.clock import SECOND
from dralab.scenarios import code
from dralab.scenarios.errors import InputError, InputProblems
from dralab.scenarios.fields import Fields, FieldSource
from dralab.scenarios.fields import load as load_fields
from dralab.scenarios.tables import (
    LABEL,
    Given,
    Table,
    by_name,
    choice,
    duration,
    either,
    flag,
    label,
    probability,
    quantity,
    release,
    row,
    rows,
    whole,
)
from dralab.scenarios.tables import (
    field as field_rule,
)
from dralab.simulation import checkpoints
from dralab.simulation.lifecycle.model import (
    Fault,
    GangRestart,
    LifeCycle,
    Pod,
    Quota,
    RandomFaults,
    RunConditions,
    Stage,
)
from dralab.simulation.scenario import external, fleet, manifests, pools, recorded, workload
from dralab.simulation.scenario.fleet import ScenarioFleet, openb_nodes, simulator_fleet
from dralab.simulation.scenario.pools import ClusterAutoscalerRules, Rules, ScenarioPool
from dralab.simulation.scenario.schedulers import (
    ALLOCATION,
    BUILT_IN,
    ENGINES,
    EXTERNAL,
    FAST,
    JOBS,
    OWN,
    PODS,
    ROUNDS,
    TICKS,
    TICKS_PREEMPTION,
    unknown_scheduler,
)
from dralab.simulation.scenario.simulator_config import TickConfig
from dralab.simulation.scenario.workload import ScenarioWorkload, openb_pods
from dralab.values import json_schema
from dralab.values.json_schema import PYTHON, any_of, one_of_fields

PICTURES: Final = ("pdf", "png", "svg")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """The outputs of a run. `parquet` None: if the extra is installed."""

    report: Path | None = None
    parquet: bool | None = None
    picture: str | None = None

    def but(self, *, report: Path | None, parquet: bool | None, picture: str | None) -> "Outputs":
        """Return the outputs with the given fields replaced."""
        given: dict[str, Any] = {"report": report, "parquet": parquet, "picture": picture}
        return replace(self, **{name: each for name, each in given.items() if each is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The complete input of a run."""

    name: str
    file: Path
    seed: int
    fleet: ScenarioFleet
    work: ScenarioWorkload
    scheduler: str
    conditions: RunConditions
    external: dict[str, Any]
    skipped: int = 0
    energy: bool = False
    outputs: Outputs = field(default_factory=Outputs)
    measured: tuple[int, int] | None = None
    tick: int = 10 * SECOND
    policy: Callable[[], Any] | None = None
    engine: str = ""
    pools: tuple[ScenarioPool, ...] = ()
    autoscaler: Rules = field(default_factory=ClusterAutoscalerRules)
    version: str = MIXED
    # The gates of that release that are on; None: those that simulations have on.
    features: Features | None = None
    round: int | None = None

    @property
    def is_own(self) -> bool:
        """Whether a user's policy schedules: `policy`, or a class of a file."""
        return self.policy is not None or code.is_file(self.scheduler)

    def policy_class(self) -> Callable[[], Any]:
        """Return the class of a user's policy. InputError: there is no such file or class."""
        return self.policy or code.load_class(self.scheduler, self.file)

    @property
    def runs_in(self) -> str:
        """The engine of a user's policy: the one asked for, or the fastest for the workload."""
        jobs = self.work.jobs is not None and self.fleet.platform is not None
        return self.engine or ("batch" if jobs else "fast" if self.round is None else "rounds")

    @property
    def is_batch(self) -> bool:
        """Whether rigid jobs are scheduled, not pods."""
        return self.runs_in == "batch" if self.is_own else self.scheduler in JOBS

    @property
    def in_rounds(self) -> bool:
        """Whether trainings are scheduled in rounds of time slices."""
        return self.runs_in == "rounds" if self.is_own else self.scheduler in ROUNDS

    def pods(self) -> tuple[Pod, ...]:
        """Return the workload as pods."""
        if self.work.jobs is None:
            return self.work.pods
        return workload.as_pods(self.work.jobs, str(self.file))


# These act out neither nodes that change nor gates of pods, and have no release of Kubernetes.
NOT_REPLAYED: Final = frozenset({EXTERNAL, *TICKS, *JOBS, *ROUNDS, "batch", "rounds"})
EFFECTS: Final = dict.fromkeys(fleet.EFFECTS)
DECIDES: Final = any_of(json_schema.choice([*BUILT_IN, EXTERNAL]), PYTHON)
QUOTA: Final = Table({"cpu": quantity(scale=1000), "gpus": quantity(scale=1000), "pods": whole()})
STAGE: Final = {"delay": duration(default=0), "jitter": duration(default=0)}
STAGES: Final = either(
    duration(), row(Table(STAGE)), rows(Table({"name": label(required=True)} | STAGE))
)
LIFECYCLE: Final = Table(
    {
        "start": STAGES.described("Between the binding of a pod and its start."),
        "release": STAGES.described("Between its end and the release of its resources."),
        "failure": probability("The probability that a run fails.", default=0.0),
        "retries": whole(default=0),
        "checkpoint": duration(
            "Time between checkpoints; work done before the last one is kept. Default: none.",
            default=0,
        ),
        "restart": duration(
            "How much longer a run takes that continues from a checkpoint.", default=0
        ),
        "gangs": choice(
            get_args(GangRestart),
            "What the others of a gang do when it loses a pod: run on; or lose their runs, and are "
            "evicted, too, or wait for it on their nodes. Default: alone.",
            default="alone",
        ),
    }
)
TAINT: Final = Table(
    {
        "key": label(required=True),
        "value": label(default=""),
        "effect": choice(EFFECTS, required=True),
    }
)
FAULT: Final = Table(
    {
        "at": duration(required=True),
        "for": duration("Default: for the rest of the run."),
        "node": label(default=""),
        "device": label(default=""),
        "driver": label(default=""),
        "taint": row(TAINT, always=False),
        "happens": label("As of `dralab driver run --fault help`."),
    },
    rules={
        "anyOf": one_of_fields("node", "happens"),
        "not": {"required": ["happens", "taint"]},
        "dependentRequired": {"device": ["taint"]},
    },
)
AT_RANDOM: Final = Table(
    {
        "every": duration(required=True),
        "repair": duration(required=True),
        "of": choice(
            ("node", "gpu"),
            "What fails so often: a node, or each GPU of it.",
            default="node",
        ),
    }
)
OUTPUTS: Final = Table(
    {
        "report": field_rule(LABEL, Fields.new_folder, "A directory in the folder of this file."),
        "parquet": flag(),
        "picture": choice(PICTURES),
    }
)
SCENARIO: Final = Table(
    {
        "apiVersion": field_rule({}),
        "kind": field_rule({}),
        "name": label("Of the run; default: the name of the file."),
        "seed": whole("The same scenario and seed give the same bytes.", default=0),
        "version": release(" It takes objects, and decides, as its API and its gates say."),
        "feature_gates": label(
            f"Gates of that release (of {DEFAULT} without one) to enable or disable, as text: "
            "`A=true,B=false`.",
            default="",
        ),
        "fleet": row(
            fleet.FLEET, "The nodes that are there; needed without `pools`.", always=False
        ),
        "pools": rows(
            pools.POOL, "Nodes that an autoscaler adds and removes.", 1, always=False, default=()
        ),
        "autoscaler": either(
            label(schema=json_schema.choice(pools.AUTOSCALERS), default=pools.CLUSTER_AUTOSCALER),
            row(pools.AUTOSCALER),
            about="Who asks for nodes of `pools`; default: `cluster-autoscaler`.",
            needs="pools",
        ),
        "workload": row(workload.WORKLOAD, required=True),
        "scheduler": either(
            label(schema=DECIDES),
            row(
                Table(
                    {
                        "name": label(schema=DECIDES, default="default"),
                        "strict_order": flag(default=False),
                        "engine": choice(ENGINES, "That runs a class of yours."),
                    }
                )
            ),
            about="Who places pods or jobs; default: `default`.",
            default="default",
        ),
        "policy": label("The same as scheduler.", schema=DECIDES),
        "tick": duration("Of `ticks`: whole seconds, at least 1."),
        "round": duration(
            "Of trainings: how long a round of time slices lasts; 0: until a training comes, ends "
            "or changes its queue. Default: 6m."
        ),
        "queues": by_name(
            QUOTA, "The most that all pods of a queue use together, by the queue's name."
        ),
        "lifecycle": row(LIFECYCLE),
        "faults": either(
            rows(FAULT),
            row(AT_RANDOM),
            about="What goes wrong when, or how often at random.",
            default=(),
        ),
        "stop": row(
            Table({"at": duration(), "ended": whole(least=1)}),
            "When the run ends before all is done.",
        ),
        "measure": row(
            Table({"from": duration(default=0), "to": duration(required=True)}),
            "The interval that counts, without warm-up and drain.",
            always=False,
        ),
        "outputs": row(OUTPUTS),
        "energy": flag("Compute the energy that a platform's machines use.", default=False),
        "external": row(external.EXTERNAL, "For `scheduler: external`: your own program."),
    },
    rules={
        "not": {"required": ["scheduler", "policy"]},
        "anyOf": one_of_fields("fleet", "pools"),
    },
)


def load(
    path: Path,
    *,
    content: Mapping[str, object] | None = None,
    seed: int | None = None,
    scheduler: str | None = None,
    problems: InputProblems | None = None,
    change: Callable[[Fields], None] | None = None,
    policy: Callable[[], Any] | None = None,
    engine: str | None = None,
    version: str | None = None,
    feature_gates: str | None = None,
) -> Scenario:
    """Return the scenario of a file; what is given of its fields replaces what it says.

    `content` stands for that of the file, which need not be there then; a recording, or a
    snapshot, is fleet and workload. A `policy` schedules in
    place of any scheduler; it is named in `scheduler`, and `engine` runs it.
    """
    problems = InputProblems() if problems is None else problems
    if content is None:
        content = _of_cluster(path)
    fields = load_fields(path) if content is None else Fields(FieldSource(path), "", content)
    for name, asked in (("version", version), ("feature_gates", feature_gates)):
        if asked is not None:
            fields.value[name] = asked
    if change is not None:
        change(fields)
    given = SCENARIO.read(fields)
    own_scheduler, blocking, own_engine = _scheduler(given)
    chosen, used_engine = scheduler or own_scheduler, engine or own_engine or ""
    if policy is None and chosen not in {*BUILT_IN, EXTERNAL}:
        if not code.is_file(chosen):
            raise given.error("scheduler", unknown_scheduler(chosen))
        code.check(chosen, path)
    in_rounds = {*ROUNDS, "rounds"}
    own = policy is not None or code.is_file(chosen)
    if given.round is not None and (used_engine or ("rounds" if own else chosen)) not in in_rounds:
        raise given.error("round", f"is for {', '.join(ROUNDS)}, or a class of yours in rounds")
    if blocking and (used_engine or chosen) in {"cluster", EXTERNAL, FAST, OWN, *TICKS, *in_rounds}:
        raise given.error(
            "scheduler",
            f"{used_engine or chosen} has its own order: strict_order is for built-in policies",
        )
    if used_engine and not (policy or code.is_file(chosen)):
        raise given.error("scheduler", f"engine: is for classes of yours; {chosen} has its own")
    if used_engine not in {"", *ENGINES}:
        known = ", ".join(ENGINES)
        raise given.error("scheduler", f"engine: {used_engine!r} is not one of {known}")
    used_seed = given.seed if seed is None else seed
    of_class = "fast" if given.round is None else "rounds"
    machines = _fleet(given, used_engine or (of_class if own else chosen), problems)
    hosts = machines.as_platform().width if chosen in JOBS else None
    elsewhere = given.fleet is None or given.fleet.form != "recording"
    work = workload.read(given.workload, used_seed, problems, hosts=hosts, elsewhere=elsewhere)
    if given.pools and work.jobs is not None and machines.platform is not None:
        raise given.error("pools", "are for pods, and the workload has jobs for a platform")
    decides = used_engine or chosen
    if (machines.counted or work.until is not None) and decides in NOT_REPLAYED:
        raise given.error(
            "scheduler",
            f"{decides} replays no recording: choose {OWN}, {FAST}, or a policy for pods",
        )
    kubernetes, features = _release(given, decides)
    autoscaler, machines_to_come = pools.autoscaled(given, pools.read(given.pools, problems))
    conditions = _conditions(given, machines, used_seed)
    if conditions.until is None:
        conditions = replace(conditions, until=work.until)
    return Scenario(
        name=given.name or path.stem,
        file=path,
        seed=used_seed,
        fleet=machines,
        work=work,
        scheduler=chosen,
        conditions=replace(conditions, blocking=blocking),
        external=given.external.values,
        skipped=len(problems.skipped),
        energy=given.energy,
        outputs=Outputs(**given.outputs.values),
        measured=_measured(given.measure),
        tick=_tick(given, machines, used_engine or chosen),
        policy=policy,
        engine=used_engine,
        pools=machines_to_come,
        autoscaler=autoscaler,
        version=kubernetes,
        features=features,
        round=given.round,
    )


def _of_cluster(path: Path) -> Mapping[str, object] | None:
    """Return the scenario of a recording, or of a snapshot; None for other files."""
    if recorded.is_recording(path):
        parts = {key: {"recording": path.name} for key in ("fleet", "workload")}
        return {**parts, "scheduler": FAST}
    if fleet.is_snapshot_file(path):
        return {"fleet": {"snapshot": path.name}, "workload": {"pods": []}, "scheduler": OWN}
    return None


def _fleet(given: Given, scheduler: str, problems: InputProblems) -> ScenarioFleet:
    """Return the nodes that are there: with pools, there may be none."""
    if given.pools and scheduler not in {OWN, FAST, "cluster", "fast", *PODS, *ALLOCATION}:
        problem = f"need {OWN}, {FAST} or a policy for pods, and the scheduler is {scheduler}"
        raise given.error("pools", problem)
    never = any(each.spot or each.failure == 1 for each in given.pools)
    if never and given.stop.at is None:
        raise given.error("stop", "give `at`: with spot machines, or failures, a run may never end")
    if given.fleet is not None and given.fleet.form == "recording":
        return recorded.history_of(given.fleet.recording).fleet()
    if given.fleet is not None:
        return fleet.read(given.fleet, problems)
    if not given.pools:
        raise given.error("fleet", "must be given, or `pools`")
    return ScenarioFleet()


def _release(given: Given, decides: str) -> tuple[str, Features | None]:
    """Return the release of Kubernetes, and the gates that are on where some are switched."""
    where, gates = "version" if given.version != MIXED else "feature_gates", given.feature_gates
    if given.version == MIXED and not gates:
        return MIXED, None
    if decides in NOT_REPLAYED:
        raise given.error(
            where, f"{decides} has no release: choose {OWN}, {FAST}, or a policy for pods"
        )
    release = given.version or DEFAULT
    if not gates:
        return release, None
    try:
        return release, with_gates(gates, of_simulations(release), release)
    except GateError as error:
        raise given.error("feature_gates", str(error)) from None


def _tick(given: Given, machines: ScenarioFleet, scheduler: str) -> int:
    tick: int | None = given.tick
    if tick is None:
        return machines.tick
    if scheduler not in TICKS:
        raise given.error("tick", f"is for {' and '.join(TICKS)}, not for {scheduler!r}")
    if tick < SECOND or tick % SECOND:
        raise given.error("tick", "must be whole seconds, at least 1")
    return tick


def _measured(given: Given | None) -> tuple[int, int] | None:
    """Return the interval that is measured, where warm-up and drain are cut off."""
    if given is None:
        return None
    if given["from"] >= given.to:
        raise given.error("to", "must be after `from`")
    return given["from"], given.to


def _scheduler(given: Given) -> tuple[str, bool, str | None]:
    """Return what decides, whether the head of its queue blocks the rest, and its engine."""
    if given.policy is not None:
        if given.given.has("scheduler"):
            raise given.error("policy", "is an alias of `scheduler`: give only one")
        return given.policy, False, None
    found = given.scheduler
    if isinstance(found, Given):
        return found.name, found.strict_order, found.engine
    return found, False, None


def _conditions(given: Given, machines: ScenarioFleet, seed: int) -> RunConditions:
    life, stop, faults = given.lifecycle, given.stop, given.faults
    at_random = None
    if isinstance(faults, Given):
        at_random = RandomFaults(between=faults.every, repair=faults.repair, of=faults.of)
        faults = ()
        if stop.at is None:
            raise given.error("stop", "give `at`: with random faults a run may never end")
    names = {node.name for node in machines.as_nodes()} if faults else set()
    return RunConditions(
        seed=seed,
        life=LifeCycle(
            start=_stages(life.start, "start"),
            release=_stages(life.release, "release"),
            failure=life.failure,
            retries=life.retries,
            checkpoint=life.checkpoint,
            restart=life.restart,
            gangs=life.gangs,
        ),
        faults=[_fault(entry, names) for entry in faults],
        random_faults=at_random,
        quotas={
            name: Quota(cpu=each.cpu, gpu_milli=each.gpus, pods=each.pods)
            for name, each in given.queues.items()
        },
        until=stop.at,
        ended=stop.ended,
    )


def _stages(given: Given | list[Given] | int | None, key: str) -> tuple[Stage, ...]:
    """Return the stages before a run, or after it: a duration, a delay with jitter, or a list."""
    if isinstance(given, list):
        return tuple(Stage(**each.values) for each in given)
    if isinstance(given, Given):
        return (Stage(name=key, **given.values),)
    return (Stage(name=key, delay=given),) if given else ()


def _fault(entry: Given, names: Collection[str]) -> Fault:
    if entry.node not in names and (entry.node or entry.happens is None):
        raise entry.error("node", f"there is no node {entry.node!r}")
    happens = None
    if entry.happens is not None:
        try:
            happens = parse_fault(entry.happens)
        except ValueError as error:
            raise entry.error("happens", str(error)) from None
        if entry.taint is not None:
            raise entry.error("taint", "cannot be combined with `happens`: use two entries")
    taint = entry.taint
    if entry.device and taint is None:
        raise entry.error("device", "needs `taint`; for driver faults use `happens`")
    return Fault(
        at=entry.at,
        duration=entry["for"],
        node=entry.node,
        device=entry.device,
        taint=None if taint is None else (taint.key, taint.value, taint.effect),
        driver=entry.driver,
        happens=happens,
    )


def digest(scenario: Scenario) -> str:
    """Return a digest of everything that a run depends on."""
    fleet = scenario.fleet
    # Labels are sets, and the text of a set has another order in another process.
    known = (*fleet.nodes, *(node for pool in scenario.pools for node in pool.fleet.nodes))
    nodes = [(replace(node, labels=frozenset()), sorted(node.labels)) for node in known]
    pools = [replace(pool, fleet=replace(pool.fleet, nodes=())) for pool in scenario.pools]
    named = {scenario.scheduler, *(name for node in known for name in node.drivers)}
    files = [
        scenario.file.parent / name.rpartition(":")[0]
        for name in sorted(named)
        if code.is_file(name)
    ]
    parts = (
        scenario.seed, scenario.scheduler, scenario.conditions, scenario.energy, nodes,
        fleet.platform, fleet.objects, fleet.running, fleet.changes, scenario.work, scenario.tick,
        scenario.engine, pools, scenario.autoscaler, scenario.version,
        sorted(scenario.features or ()), scenario.round,
    )  # fmt: skip
    return checkpoints.digest(parts, files)


def placement(
    nodes: Path,
    pods: Path,
    *,
    policy: str,
    seed: int,
    inflate: float,
    problems: InputProblems | None = None,
) -> Scenario:
    """Return the placement of an openb trace, each pod once. InputError: the files."""
    problems = InputProblems() if problems is None else problems
    fleet = ScenarioFleet(nodes=tuple(openb_nodes(nodes, problems)))
    work = ScenarioWorkload(pods=tuple(openb_pods(pods, problems)), inflate=inflate)
    if not any(node.gpus for node in fleet.nodes):
        raise InputError(nodes, "no node has a GPU")
    if not work.pods:
        raise InputError(pods, "there are no pods")
    return Scenario(
        name=pods.stem,
        file=pods,
        seed=seed,
        fleet=fleet,
        work=work,
        scheduler=policy,
        conditions=RunConditions(seed=seed),
        external={},
        skipped=len(problems.skipped),
    )


def ticks(config: TickConfig, pods: Path, *, preemption: bool, until: int | None) -> Scenario:
    """Return a run of k8s-cluster-simulator; `until` are seconds. InputError: the file."""
    found, objects = manifests.read(pods, InputProblems())
    fleet = simulator_fleet(config)
    return Scenario(
        name=config.file.stem,
        file=pods,
        seed=0,
        fleet=fleet,
        work=ScenarioWorkload(pods=found, objects=objects),
        scheduler=TICKS_PREEMPTION if preemption else TICKS[0],
        conditions=RunConditions(until=None if until is None else until * SECOND),
        external={},
        tick=fleet.tick,
    )
