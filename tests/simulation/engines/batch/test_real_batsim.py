"""The files that a real Batsim 4.2.1 wrote, row by row.

The same decision process drives both, unmodified but for its socket. Without the option for
Batsim's own latencies only what does not depend on them is equal.
"""

import csv
import io
import json
import math
import shutil
import socket
import subprocess
from itertools import zip_longest

import pytest
from tests.simulation.engines.batch.decision_files import DecisionFile

from dralab.simulation.engines.batch import outputs
from dralab.simulation.engines.batch import run as runs
from dralab.simulation.engines.batch.engine import BatchOptions, BatchSimulation
from dralab.simulation.platforms import simgrid_xml
from dralab.simulation.workloads import batsim

TOLERANCE = 10e-6  # seconds
REAL_TIME = {"batsim_version", "scheduling_time", "simulation_time"}
# Recorded with an earlier decision process, which wakes machines for the first job alone.
WAKES_FOR_ONE = {"cl128-delays-sleep", "e128-min50-sleep"}
FOR_ALL = "sum(w for _, w in waiting) - len(free) - len(waking) if waiting else 0"
FOR_ONE = "waiting[0][1] - len(free) if waiting else 0"
# Recorded with another platform than it says: of one host.
PLATFORMS = {"energy-min50-sleep": "energy_platform_homogeneous_no_net_1.xml"}
# Two messages of one instant: which comes first is up to the last bit of a double.
TIES = {"various-kill5": 15.1e-6, "sametime-sorted": TOLERANCE}
DECIDED = [
    "cl128-delays-sleep", "cl128-min100-fcfs", "delays-fcfs", "dyn-delays", "e128-delays-sleep",
    "e128-min50-sleep", "energy-min50-sleep", "energy-various-fcfs", "het-fcfs", "long-fcfs",
    "onecomp-fcfs", "sametime-sorted", "seqdelay-fcfs", "smpi-compute", "smpi-walltime",
    "various-fcfs", "various-kill5", "various-sorted", "walltime-fcfs", "walltime-sorted",
]  # fmt: skip


@pytest.fixture
def files(testdata):
    return testdata("batsim")


def simulated(name, files, tmp_path, *, latency=True):
    real = files / "real-4.2.1"
    case = json.loads((real / "cases.json").read_text())[name]

    def found(name):
        return next(path for base in (real, files / "batsim-v4") for path in base.rglob(name))

    platform = simgrid_xml.read(found(PLATFORMS.get(name, case["platform"])))
    script = tmp_path / "decide.py"
    text = (real / "decide.py").read_text()
    assert FOR_ALL in text
    script.write_text(text.replace(FOR_ALL, FOR_ONE) if name in WAKES_FOR_ONE else text)
    options = BatchOptions(
        energy="--energy" in case["flags"],
        dynamic_jobs="--enable-dynamic-jobs" in case["flags"],
        latency=latency,
    )
    with DecisionFile(script, case["scheduler"].split()[-1]) as process:
        simulation = BatchSimulation(
            platform, [batsim.read(found(case["workload"]))], process, options=options
        )
        simulation.run()
    return simulation


def written(simulation):
    texts = {
        "jobs": outputs.jobs_csv(simulation),
        "machine_states": outputs.machine_states_csv(simulation),
        "schedule": outputs.schedule_csv(simulation),
    }
    if simulation.hosts.energy:
        texts["consumed_energy"] = outputs.consumed_energy_csv(simulation)
        texts["pstate_changes"] = outputs.pstate_changes_csv(simulation)
    return texts


def rows_of(name, text):
    rows = list(csv.DictReader(io.StringIO(text)))
    if name == "jobs":  # of one instant in any order
        rows.sort(key=lambda row: (row["workload_name"], row["job_id"]))
    if name == "machine_states":  # the last of an instant: the others are ties
        rows = list({round(float(row["time"]), 4): row for row in rows}.values())
    return rows


def differences(name, ours, theirs, tolerance):
    """Yield what differs by more than the tolerance, the last bit of times, or six digits."""
    mine, real = rows_of(name, ours), rows_of(name, theirs)
    for number, (row, other) in enumerate(zip_longest(mine, real)):
        if row is None or other is None:
            yield f"{len(mine)} rows, not {len(real)}"
            return
        when = float(other.get("finish_time") or other.get("makespan") or 0)
        for column, wanted in other.items():
            if column in REAL_TIME or row[column] == wanted:
                continue
            if column == "epower" and "NA" in (row[column], wanted):
                continue  # the power of a span without length, or nearly
            try:
                least = tolerance + 4 * math.ulp(when)
                if column == "stretch" or column.endswith("slowdown"):
                    least /= 1e-3  # of runs of a millisecond
                if column == "epower" or column.startswith("time_"):
                    least = 1e-2 if column == "epower" else 100 * least
                if math.isclose(float(row[column]), float(wanted), rel_tol=1e-5, abs_tol=least):
                    continue
            except ValueError:
                pass
            yield f"row {number}, {column}: {row[column]}, not {wanted}"


@pytest.mark.parametrize("name", DECIDED)
def test_every_row_is_that_of_batsim(name, files, tmp_path):
    tolerance = TIES.get(name, TOLERANCE)
    wrong = {
        file: list(
            differences(
                file, text, (files / "real-4.2.1" / name / f"{file}.csv").read_text(), tolerance
            )
        )
        for file, text in written(simulated(name, files, tmp_path)).items()
    }
    assert not any(wrong.values()), wrong


@pytest.mark.parametrize("name", DECIDED)
def test_without_latencies_the_same_jobs_end_the_same_way(name, files, tmp_path):
    jobs = rows_of("jobs", outputs.jobs_csv(simulated(name, files, tmp_path, latency=False)))
    real = rows_of("jobs", (files / "real-4.2.1" / name / "jobs.csv").read_text())
    assert [(row["job_id"], row["final_state"]) for row in jobs] == [
        (row["job_id"], row["final_state"]) for row in real
    ]


def test_the_latencies_are_those_of_the_messages(files, tmp_path):
    simulation = simulated("delays-fcfs", files, tmp_path)
    starts = [record.started for record in simulation.finished]
    assert starts[0] == 4 * 15_002
    assert simulated("delays-fcfs", files, tmp_path, latency=False).finished[0].started == 0


@pytest.mark.conformance
def test_pybatsim_schedules_250_jobs_as_on_a_real_batsim(files, tmp_path):
    program = shutil.which("pybatsim")
    if program is None:
        pytest.skip("pybatsim is not installed (pip install --no-deps pybatsim==3.2.1)")
    real = files / "real-4.2.1" / "hpc1-pybatsim-easy"
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [program, "easyBackfill", "-s", f"tcp://*:{port}", "-t", "600000"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as other:
        simulation = runs.of_batsim(
            [next(files.rglob("example_workload_hpc_seed1_jobs250.json"))],
            platform=next(files.rglob("cluster512.xml")),
            scheduler="easy",
            options=BatchOptions(latency=True),
            socket=f"tcp://localhost:{port}",
        )
        simulation.run()
        assert other.wait(60) == 0
    texts = written(simulation)
    for name in ("jobs", "schedule"):
        wanted = (real / f"{name}.csv").read_text()
        assert not list(differences(name, texts[name], wanted, TOLERANCE))
