"""`dralab simulate run`: run a scenario, or the files of another simulator."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from dralab.cli._components import duration_of
from dralab.cli._help import EverydayCommand
from dralab.cli._options import ANY_PATH, FILE, FiniteRange, arg, opt, options
from dralab.cli._output import echo_values, formats, places
from dralab.cli._progress import keeping_results
from dralab.cli._runs import ResumableRun, bad_input, keep, report_skipped, watched
from dralab.cli._terminal import echo
from dralab.cli.errors import refusing
from dralab.kernel.clock import SECOND
from dralab.scenarios.errors import InputProblems
from dralab.simulation import input_files
from dralab.simulation.input_files import (
    BATSIM,
    OPENB,
    SCENARIO,
    SWF,
    TICKS,
    TRACE,
    InputFiles,
)
from dralab.values.near_names import not_one_of

if TYPE_CHECKING:
    from dralab.simulation.engines.batch.engine import BatchSimulation
    from dralab.simulation.results.result import Result
    from dralab.simulation.scenario.scenario import Scenario

SCHEDULERS: Final = (
    "fcfs", "easy", "easy-counting", "easy-sjbf", "conservative", "conservative-counting",
)  # fmt: skip
POLICIES: Final = ("random", "dotprod", "clustering", "packing", "bestfit", "fgd", "firstfit")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of several formats."""

    scheduler: str | None = opt(
        "The scheduler, instead of the scenario's: file.py:Class, `external` for your own program, "
        f"or a policy; of jobs {', '.join(SCHEDULERS)}; of openb {', '.join(POLICIES)}."
    )
    seed: int | None = opt("The seed of random choices, instead of the scenario's.")
    hosts: int | None = opt("Number of machines.", least=1)
    write: tuple[Path, ...] = opt(
        "Write tables and an HTML report to this directory; with an openb trace also the metrics "
        "after each pod to this .csv file.",
        ANY_PATH,
        metavar="DIR",
    )
    export: str | None = opt(
        "Write Batsim's CSV files with this prefix.  [default of Batsim: out]", metavar="PREFIX"
    )
    resume: Path | None = opt("Resume a stopped run from its checkpoint.", FILE)
    lenient: bool = opt("Skip invalid entries and report how many.")
    perfetto: bool = opt("With --write: also write trace.json, for ui.perfetto.dev.")

    def decider(self, known: Sequence[str], usual: str) -> str:
        """Return the scheduler, one of those that are known. BadParameter."""
        if self.scheduler is not None and self.scheduler not in known:
            problem = not_one_of(self.scheduler, known)
            raise click.BadParameter(problem, param_hint="--scheduler")
        return self.scheduler or usual

    @property
    def folder(self) -> Path | None:
        """The directory of the report."""
        return places(self.write, "").get("")

    def perfetto_in(self, folder: Path | None) -> bool:
        """Whether a trace is wanted, which goes into `folder`. BadParameter."""
        if self.perfetto and folder is None:
            raise click.BadParameter("it needs --write DIRECTORY", param_hint="--perfetto")
        return self.perfetto


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioOptions:
    """Options of scenarios."""

    command: str | None = opt(
        "Start this external scheduler; {kubeconfig} is replaced by its path."
    )
    parquet: bool | None = opt(
        "Also write tables as Parquet; default: if the extra `parquet` is installed.",
        flags="--parquet/--no-parquet",
    )
    picture: str | None = opt(
        "Also write the charts as a picture for a paper (needs the extra `picture`).",
        ["pdf", "png", "svg"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatsimOptions:
    """Options of Batsim's workloads."""

    master: str = opt("The host that runs no jobs.", default="master_host")
    energy: bool = opt("Compute the energy use of the machines.")
    socket: str | None = opt("Connect to the scheduler at this address: tcp://host:28000.")
    protocol: str = opt(
        "The protocol of that scheduler: of Batsim 1 to 4, or of Batsim 5 (batprotocol).",
        ["4", "5"],
        default="4",
    )
    component_data: str = opt("With --protocol 5: data for the scheduler's start.")
    dynamic: bool = opt("Let that scheduler register jobs.", flags="--enable-dynamic-jobs")
    profiles: bool = opt(
        "Send profiles with jobs to the external scheduler.",
        flags="--forward-profiles-on-submission",
    )
    unknown: bool = opt(
        "Send events of unknown types to the external scheduler.", flags="--forward-unknown-events"
    )
    latency: bool = opt(
        "Let Batsim's own messages cross the platform, as in Batsim: jobs start later.",
        flags="--batsim-latency",
    )
    sharing: bool = opt("Let jobs share machines.", flags="--enable-compute-sharing")
    dialect: str = opt(
        "Batsim version of the output format.", ["4", "5"], show_default=False, default="4"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SwfOptions:
    """Options of traces in the Standard Workload Format."""

    walltime_factor: float = opt("Walltime as a multiple of the run time.", default=2.0)
    requested_only: bool = opt("Use only the requested time as walltime.")
    grain: int = opt("Round run times up to a multiple of this; Batsim uses 1.", default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenbOptions:
    """Options of openb's GPU traces."""

    inflate: float = opt(
        "Clone pods until they request this multiple of all GPUs.",
        FiniteRange(min=0, min_open=True, max=100),
        default=1.3,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TickOptions:
    """Options of k8s-cluster-simulator's configurations."""

    preemption: bool = opt("Delete pods of lower priority to make room.")
    until: str | None = opt("Stop after this simulated time, such as 24h.", metavar="DURATION")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRun:
    """A run that has not begun, and what becomes of its result."""

    title: str
    work: ResumableRun["Result"]
    # Writes what is asked for and returns what is printed.
    finish: Callable[["Result"], Mapping[str, Any]]
    measured: Callable[["Result"], "Result"] = field(default=lambda result: result)
    # Where and how the run is saved if it is stopped.
    checkpoint: Path = Path("checkpoint")
    save: Callable[[Path], None] | None = None


@click.command(
    cls=EverydayCommand,
    everyday=("scheduler", "seed", "write", "command", "resume", "lenient", "output"),
    subjects={
        "Scenarios": ("parquet", "picture"),
        "Jobs of Batsim and SWF": ("hosts", "export"),
        "Batsim workloads": (
            "master", "energy", "socket", "protocol", "component-data", "enable-", "forward-",
            "batsim-", "dialect",
        ),
        "SWF traces": ("walltime-factor", "requested-only", "grain"),
        "GPU traces of openb": ("inflate",),
        "Configurations of k8s-cluster-simulator": ("preemption", "until"),
    },
    epilog="""Examples:

\b
  dralab simulate run scenario.yaml --write results/
  dralab simulate run jobs.json cluster.xml --scheduler easy  (Batsim)
  dralab simulate run log.swf --hosts 128                     (SWF)
  dralab simulate run nodes.csv pods.csv --scheduler fgd      (openb)
  dralab simulate run config.yaml pods.yaml          (k8s-cluster-simulator)
  dralab simulate run cluster_job_log cluster_machine_list   (public traces)
""",
)  # fmt: skip
@options
@keeping_results
def run(
    *,
    files: tuple[Path, ...] = arg(ANY_PATH, required=True, metavar="FILE..."),
    given: RunOptions,
    scenario: ScenarioOptions,
    batsim: BatsimOptions,
    swf: SwfOptions,
    openb: OpenbOptions,
    ticks: TickOptions,
    output: str = formats("json", "yaml", "table"),
) -> None:
    """Run a scenario, a public trace, or the files of another simulator.

    A scenario defines fleet, workload, scheduler, life cycle, faults, seed and when to stop. Files
    of Batsim, SWF, openb, k8s-cluster-simulator and public traces (Philly, Alibaba, Google) are
    recognized by their content; give those of one run, in any order.
    """
    with refusing(input_files.UnknownInputError, kind=click.UsageError):
        found = input_files.classified(files)
    kind, shared, prepare = FORMATS[found.format]
    own = next(each for each in (scenario, batsim, swf, openb, ticks) if isinstance(each, kind))
    _check_options(found, {*shared, *(each.name for each in fields(kind)), "files", "output"})
    problems = InputProblems(lenient=given.lenient)
    with bad_input():
        prepared = prepare(found, given, own, problems)
    report_skipped(problems)
    result = prepared.measured(watched(prepared.title, prepared.work))
    with bad_input():
        summary = prepared.finish(result)
    for note in result.notes:
        echo(f"note: {note}", err=True)
    if not result.complete and prepared.save is not None:
        keep(prepared.save, prepared.checkpoint)
    elif not result.complete:
        echo("stopped; metrics up to here were written", err=True)
    echo_values(summary if output != "table" else _flat(summary), output)
    if not result.complete:
        raise SystemExit(1)


def _check_options(found: InputFiles, allowed: Collection[str]) -> None:
    """Refuse options that are not for the format. UsageError."""
    context = click.get_current_context()
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        is_given = source not in {click.core.ParameterSource.DEFAULT, None}
        if is_given and option.expose_value and option.name not in allowed:
            raise click.UsageError(f"{option.opts[0]} is not for input of {found.format}")


def _flat(summary: Mapping[str, Any]) -> dict[str, Any]:
    head = {k: v for k, v in summary.items() if k not in {"metrics", "notes"}}
    return head | dict(summary.get("metrics", {}))


def _scenario(
    files: InputFiles, given: RunOptions, own: ScenarioOptions, problems: InputProblems
) -> PreparedRun:
    from dralab.simulation.scenario import scenario as scenarios

    file = files.by_role["scenario"][0]
    return _loaded(
        scenarios.load(file, seed=given.seed, scheduler=given.scheduler, problems=problems),
        given,
        own,
    )


def _trace(
    files: InputFiles, given: RunOptions, own: ScenarioOptions, problems: InputProblems
) -> PreparedRun:
    from dralab.simulation.scenario import scenario as scenarios

    pods, nodes = (files.by_role[f"trace-{holds}"][0].resolve() for holds in ("pods", "nodes"))
    content = {
        "name": pods.stem,
        "fleet": {"trace": os.path.relpath(nodes, pods.parent)},
        "workload": {"trace": pods.name},
    }
    loaded = scenarios.load(
        pods, content=content, seed=given.seed, scheduler=given.scheduler, problems=problems
    )
    return _loaded(loaded, given, own)


def _loaded(loaded: "Scenario", given: RunOptions, own: ScenarioOptions) -> PreparedRun:
    from dralab.simulation import dispatch
    from dralab.simulation.reports import run as reports
    from dralab.simulation.results import outputs

    wanted = loaded.outputs.but(report=given.folder, parquet=own.parquet, picture=own.picture)
    perfetto = given.perfetto_in(wanted.report)
    outputs.check(wanted.report, parquet=wanted.parquet, picture=wanted.picture)
    work = dispatch.begin(
        loaded, given.resume, command=own.command, say=lambda text: echo(text, err=True)
    )

    def finish(result: "Result") -> Mapping[str, Any]:
        if wanted.report is not None:
            picture = wanted.picture or ""
            reports.write(
                result,
                wanted.report,
                parquet=wanted.parquet,
                picture=picture,
                perfetto=perfetto,
            )
        return outputs.summary(result)

    return PreparedRun(
        title=loaded.name,
        work=work,
        finish=finish,
        measured=partial(dispatch.measured, loaded),
        checkpoint=(wanted.report or Path()) / "checkpoint",
        save=work.save,
    )


def _batsim(
    files: InputFiles, given: RunOptions, own: BatsimOptions, problems: InputProblems
) -> PreparedRun:
    from dralab.simulation.engines.batch import run as runs
    from dralab.simulation.engines.batch.engine import BatchOptions

    workloads = files.by_role["workload"]
    others = [files.one("platform"), files.one("events")]
    made = runs.of_batsim(
        list(workloads),
        platform=others[0],
        scheduler=given.decider(SCHEDULERS, "easy"),
        events=others[1],
        master=own.master,
        hosts=given.hosts,
        options=BatchOptions(
            energy=own.energy,
            dynamic_jobs=own.dynamic,
            forward_unknown_events=own.unknown,
            share_machines=own.sharing,
            latency=own.latency,
            settings={"profiles-forwarded-on-submission": own.profiles},
        ),
        socket=own.socket,
        component=own.component_data if own.protocol == "5" else None,
        problems=problems,
    )
    parts = (own.master, given.hosts, own.energy, own.sharing, own.latency, *map(str, workloads))
    read = [*workloads, *(path for path in others if path is not None)]
    return _jobs(made, given, problems, (parts, read), own)


def _swf(
    files: InputFiles, given: RunOptions, own: SwfOptions, problems: InputProblems
) -> PreparedRun:
    from dralab.simulation.engines.batch import run as runs
    from dralab.simulation.workloads.swf import SwfConversion

    trace = files.by_role["trace"][0]
    conversion = SwfConversion(
        walltime_factor=own.walltime_factor, requested_only=own.requested_only, grain=own.grain
    )
    made = runs.of_swf(
        trace,
        hosts=given.hosts,
        scheduler=given.decider(SCHEDULERS, "easy"),
        conversion=conversion,
        problems=problems,
    )
    return _jobs(made, given, problems, ((given.hosts, conversion), [trace]), None)


def _jobs(
    made: "BatchSimulation",
    given: RunOptions,
    problems: InputProblems,
    identity: tuple[Sequence[object], Sequence[Path]],
    batsim: BatsimOptions | None,
) -> PreparedRun:
    """Return a run of rigid jobs on whole machines; `identity` is what makes it another one."""
    from dralab.simulation import checkpoints
    from dralab.simulation.engines.batch import outputs
    from dralab.simulation.engines.batch.run import BatchRun
    from dralab.simulation.reports import run as reports

    parts, files = identity
    decider = given.decider(SCHEDULERS, "easy")
    key = checkpoints.digest((decider, given.lenient, *parts), files)
    decider = batsim.socket or decider if batsim is not None else decider
    work = BatchRun(made, key, name=files[0].stem, scheduler=decider, resume=given.resume)
    prefix = given.export if batsim is None else given.export or "out"
    folder = given.folder
    perfetto = given.perfetto_in(folder)

    def finish(result: "Result") -> Mapping[str, Any]:
        if prefix is not None:
            outputs.write(work.simulation, prefix, dialect=int(batsim.dialect) if batsim else 4)
        if folder is not None:
            reports.write(result, folder, perfetto=perfetto)
        counts = {"nb_entries_skipped": len(problems.skipped)}
        if batsim is None:
            (workload,) = work.simulation.workloads.values()
            counts["nb_entries_dropped"] = sum(workload.dropped.values())
        return outputs.summary(work.simulation) | counts

    place = Path(f"{prefix}_checkpoint") if prefix else (folder or Path()) / "checkpoint"
    return PreparedRun(
        title=files[0].stem, work=work, finish=finish, checkpoint=place, save=work.save
    )


def _openb(
    files: InputFiles, given: RunOptions, own: OpenbOptions, problems: InputProblems
) -> PreparedRun:
    from dralab.simulation.engines.placement import PlacementRun, write_curve
    from dralab.simulation.reproductions.fgd import page as pages
    from dralab.simulation.scenario.scenario import placement

    scenario = placement(
        files.by_role["nodes"][0],
        files.by_role["pods"][0],
        policy=given.decider(POLICIES, "fgd"),
        seed=42 if given.seed is None else given.seed,
        inflate=own.inflate,
        problems=problems,
    )
    work = PlacementRun(scenario, given.resume)
    targets = places(given.write, "", ".csv")

    def finish(_: "Result") -> Mapping[str, Any]:
        outcome = work.outcome()
        if ".csv" in targets:
            write_curve(outcome, targets[".csv"])
        if "" in targets:
            pages.write(outcome, targets[""])
        return outcome.table()

    return PreparedRun(
        title=scenario.name,
        work=work,
        finish=finish,
        checkpoint=targets.get("", Path()) / "checkpoint",
        save=work.save,
    )


def _ticks(files: InputFiles, _: RunOptions, own: TickOptions, __: InputProblems) -> PreparedRun:
    from dralab.simulation.engines.fast.tick_metrics import MetricsWriter
    from dralab.simulation.engines.fast.ticks import TickRun
    from dralab.simulation.scenario import scenario as scenarios
    from dralab.simulation.scenario import simulator_config

    config = simulator_config.read(files.by_role["config"][0])
    until = None if own.until is None else duration_of(own.until, "--until") // SECOND
    scenario = scenarios.ticks(
        config, files.by_role["manifests"][0], preemption=own.preemption, until=until
    )
    writer = MetricsWriter(config)
    work = TickRun(
        scenario, start=config.start, metrics_tick=config.metrics_tick, write=writer.write
    )

    def finish(_: "Result") -> Mapping[str, Any]:
        writer.close()
        return work.counts()

    return PreparedRun(title=scenario.name, work=work, finish=finish)


# Each format's own options, those of RunOptions that it has, and what prepares its run.
JOBS: Final = ("scheduler", "hosts", "write", "export", "resume", "lenient", "perfetto")
PODS: Final = ("scheduler", "seed", "write", "resume", "lenient", "perfetto")
FORMATS: Final[Mapping[str, tuple[type[Any], tuple[str, ...], Callable[..., PreparedRun]]]] = {
    SCENARIO: (ScenarioOptions, PODS, _scenario),
    BATSIM: (BatsimOptions, JOBS, _batsim),
    SWF: (SwfOptions, JOBS, _swf),
    OPENB: (OpenbOptions, ("scheduler", "seed", "write", "resume", "lenient"), _openb),
    TICKS: (TickOptions, (), _ticks),
    TRACE: (ScenarioOptions, PODS, _trace),
}
