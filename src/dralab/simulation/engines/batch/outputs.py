"""Batsim's output files, column by column as version 4.2.1 writes them.

`scheduling_time` and `simulation_time` are real time, and no two runs have the same; they are
written as 0 so that the same input gives the same bytes.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from dralab import __version__
from dralab.kernel.clock import SECOND
from dralab.simulation.engines.batch.engine import BatchSimulation, JobRecord
from dralab.simulation.host_sets import render

JOB_COLUMNS: Final = (
    "job_id", "workload_name", "profile", "submission_time", "requested_number_of_resources",
    "requested_time", "success", "final_state", "starting_time", "execution_time", "finish_time",
    "waiting_time", "turnaround_time", "stretch", "allocated_resources", "consumed_energy",
    "metadata",
)  # fmt: skip
STATE_COLUMNS: Final = "time,nb_sleeping,nb_switching_on,nb_switching_off,nb_idle,nb_computing"
ENERGY_COLUMNS: Final = "time,energy,event_type,wattmin,epower"
PSTATE_COLUMNS: Final = "time,machine_id,new_pstate"

# What is written for a job that took no time at all (jobs_execution.cpp: "epsilon instead").
NO_TIME: Final = 10_000  # ns

Number = int | float


def write(simulation: BatchSimulation, prefix: str, *, dialect: int = 4) -> list[Path]:
    """Write `PREFIX_jobs.csv` and the others; return their paths.

    Version 5 joins the prefix without `_`, names profiles `w0!name`, writes `schedule.json`, and
    counts the makespan from the first submission.
    """
    joint = "" if dialect == 5 else "_"
    texts = {
        "jobs.csv": jobs_csv(simulation, dialect=dialect),
        "machine_states.csv": machine_states_csv(simulation),
    }
    if dialect == 5:
        texts["schedule.json"] = schedule_json(simulation)
    else:
        texts["schedule.csv"] = schedule_csv(simulation)
    hosts = simulation.hosts
    if hosts.energy:
        texts["consumed_energy.csv"] = consumed_energy_csv(simulation)
    if hosts.energy or hosts.switches:
        texts["pstate_changes.csv"] = pstate_changes_csv(simulation)
    paths = []
    for name, text in texts.items():
        path = Path(f"{prefix}{joint}{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths


def jobs_csv(simulation: BatchSimulation, *, dialect: int = 4) -> str:
    """Return one row per job that is over, in the order in which they ended."""
    energy = simulation.hosts.energy
    rows = []
    for record in simulation.finished:
        row = _row(record, energy=energy)
        if dialect == 5:
            row[2] = f"{record.job.workload}!{record.job.profile}"
            row[-1] = row[-1] if record.metadata else ""
        rows.append(",".join(row))
    return _lines(",".join(JOB_COLUMNS), rows)


def _row(record: JobRecord, *, energy: bool) -> list[str]:
    job = record.job
    row = [
        job.id,
        job.workload,
        job.profile,
        _fixed(job.submitted),
        str(job.width),
        "-1.000000" if job.walltime is None else _fixed(job.walltime),
        str(int(record.state == "COMPLETED_SUCCESSFULLY")),
        record.state or "",
    ]
    ended = _ended(record)
    if record.started is None or ended is None:
        row += [""] * 8
    else:
        turnaround, run = ended - job.submitted, ended - record.started
        row += [
            _fixed(record.started),
            _fixed(run),
            _fixed(ended),
            _fixed(record.started - job.submitted),
            _fixed(turnaround),
            f"{_ratio(turnaround, run):f}",
            render(record.machines),
            f"{record.joules:f}" if energy else "-1.000000",
        ]
    return [*row, '"' + record.metadata.replace('"', '""') + '"']


def _ended(record: JobRecord) -> int | None:
    """Return the end of a job that has run, as it is written; None if it has not."""
    if record.started is None or record.ended is None:
        return None
    return max(record.ended, record.started + NO_TIME * (record.ended == record.started))


def summary(simulation: BatchSimulation) -> dict[str, Number | str]:
    """Return the columns of `schedule.csv`, as numbers; times in seconds.

    As in 4.2.1: means divide by all jobs, refused ones too; the makespan is the last completion.
    """
    records = list(simulation.records.values())
    finished = [
        (r.job.submitted, r.started, ended)
        for r in simulation.finished
        if r.started is not None and (ended := _ended(r)) is not None
    ]
    jobs = len(records)
    waits = [started - submitted for submitted, started, _ in finished]
    turnarounds = [ended - submitted for submitted, _, ended in finished]
    slowdowns = [
        _ratio(ended - submitted, ended - started) for submitted, started, ended in finished
    ]
    success = sum(
        r.state == "COMPLETED_SUCCESSFULLY" and _ended(r) is not None for r in simulation.finished
    )
    hosts = simulation.hosts
    return {
        "batsim_version": f"dralab-{__version__}",
        "consumed_joules": hosts.joules_of_jobs,
        "makespan": max((ended for _, _, ended in finished), default=0) / SECOND,
        "max_slowdown": max(slowdowns, default=0.0),
        "max_turnaround_time": max(turnarounds, default=0) / SECOND,
        "max_waiting_time": max(waits, default=0) / SECOND,
        "mean_slowdown": sum(slowdowns) / jobs if jobs else 0.0,
        "mean_turnaround_time": _mean(turnarounds, jobs),
        "mean_waiting_time": _mean(waits, jobs),
        "nb_computing_machines": simulation.platform.width,
        "nb_grouped_switches": hosts.grouped_switches,
        "nb_jobs": jobs,
        "nb_jobs_finished": len(finished),
        "nb_jobs_killed": len(finished) - success,
        "nb_jobs_rejected": sum(r.state == "REJECTED" for r in records),
        "nb_jobs_success": success,
        "nb_machine_switches": hosts.switches,
        "scheduling_time": 0.0,
        "simulation_time": 0.0,
        "success_rate": success / jobs if jobs else 0.0,
        "time_computing": hosts.booked["computing"] / SECOND,
        "time_idle": hosts.booked["idle"] / SECOND,
        "time_sleeping": hosts.booked["sleeping"] / SECOND,
        "time_switching_off": hosts.booked["switching_off"] / SECOND,
        "time_switching_on": hosts.booked["switching_on"] / SECOND,
        "time_unavailable": hosts.booked["unavailable"] / SECOND,
    }


def schedule_csv(simulation: BatchSimulation) -> str:
    """Return the header and the one row of `schedule.csv`."""
    values = summary(simulation)
    row = ",".join(f"{v:f}" if isinstance(v, float) else str(v) for v in values.values())
    return _lines(",".join(values), [row])


def schedule_json(simulation: BatchSimulation) -> str:
    """Return version 5's `schedule.json`: no real times, numbers with six digits."""
    values = summary(simulation)
    del values["scheduling_time"], values["simulation_time"]
    first = min((r.job.submitted for r in simulation.records.values()), default=0) / SECOND
    values["makespan"] = max(0.0, float(values["makespan"]) - first)
    lines = [
        f'  "{key}": '
        + (f"{v:f}" if isinstance(v, float) else f'"{v}"' if isinstance(v, str) else str(v))
        for key, v in values.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def machine_states_csv(simulation: BatchSimulation) -> str:
    """Return one row per start and end of a job, and per change of a pstate."""
    return _lines(
        STATE_COLUMNS,
        (",".join((_general(when), *map(str, counts))) for when, counts in simulation.hosts.rows),
    )


def consumed_energy_csv(simulation: BatchSimulation) -> str:
    """Return the joules used up to each start, end and change of pstate."""
    rows = (
        f"{_fixed(r.when)},{r.joules:f},{r.event},{r.least_watts:f},"
        + ("NA" if r.mean_watts is None else f"{r.mean_watts:f}")
        for r in simulation.hosts.power_rows
    )
    return _lines(ENERGY_COLUMNS, rows)


def pstate_changes_csv(simulation: BatchSimulation) -> str:
    """Return one row per change of a pstate: when it begins (-1 on, -2 off) and when it is over."""
    rows = (
        f"{_general(row.when)},{render(row.machines)},{row.pstate}"
        for row in simulation.hosts.pstate_rows
    )
    return _lines(PSTATE_COLUMNS, rows)


def _lines(header: str, rows: Iterable[str]) -> str:
    return "\n".join([header, *rows]) + "\n"


def _fixed(nanoseconds: int) -> str:
    """Return seconds with six decimals, as C's %f writes them."""
    return f"{nanoseconds / SECOND:f}"


def _general(nanoseconds: int) -> str:
    """Return seconds as C++ streams write a double: six digits that count."""
    return f"{nanoseconds / SECOND:g}"


def _mean(values: list[int], count: int) -> float:
    return sum(values) / count / SECOND if count else 0.0


def _ratio(turnaround: int, run: int) -> float:
    return turnaround / run if run else float("inf") if turnaround else 1.0
