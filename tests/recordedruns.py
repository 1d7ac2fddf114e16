"""Runs of scenarios that a recorder watches: what a recording should say is known exactly."""

import yaml

from dralab.runtime.recorder import ClusterRecorder, RecordingFile
from dralab.simulation import dispatch
from dralab.simulation.engines.cluster.run import ClusterRun
from dralab.simulation.fidelity import fidelity
from dralab.simulation.scenario import scenario as scenarios
from dralab.simulation.scenario.recorded import history_of

S = 1_000_000_000
ABOUT = {"anonymized": False, "of": "https://a.example"}


def recorded(folder, text, *, late=0, rename=lambda item: item, **files):
    """Run a scenario on a whole cluster, and record it from so many seconds on.

    Return the result, and the recording; `files` are objects, by the names of YAML files.
    """
    for name, objects in files.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump_all(objects))
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump({**text, "scheduler": "dralab"}))
    run = ClusterRun(scenarios.load(path))
    week = folder / "week.dralab"
    file = RecordingFile(week, ABOUT, rename)
    recorder = ClusterRecorder(
        run.cluster.engine, run.cluster.client, file, rate=10**9, most=1 << 40, full=lambda: None
    )
    run.cluster.engine.after(int(late * S), recorder.start)
    result = run.go()
    recorder.stop()
    file.close()
    return result, week


def replayed(week, scheduler="dralab-fast", **options):
    """Replay a recording; return the result, and how near it comes."""
    scenario = scenarios.load(week, scheduler=scheduler, **options)
    result = dispatch.begin(scenario).go()
    return result, fidelity(history_of(week), result)
