"""A run as a trace for Perfetto: valid, and slices of one row do not overlap."""

import json
from collections import defaultdict

from click.testing import CliRunner

from dralab.cli.main import main

SCENARIO = """
fleet: {nodes: [{name: node, count: 2, cpu: 4}]}
workload: {pods: [{name: p, count: 12, every: 7s, duration: 100s, cpu: 2}, {name: big, cpu: 9}]}
scheduler: dralab-fast
"""
JOBS = {"nb_res": 4, "profiles": {"d": {"type": "delay", "delay": 10}}, "jobs": [
    {"id": str(n), "subtime": n, "walltime": 20, "res": 3, "profile": "d"} for n in range(5)
]}  # fmt: skip


def events_of(tmp_path, name, content, *words):
    (tmp_path / name).write_text(content)
    command = [
        "simulate",
        "run",
        str(tmp_path / name),
        "--perfetto",
        "--write",
        str(tmp_path / "r"),
    ]
    done = CliRunner().invoke(main, [*command, *words])
    assert done.exit_code == 0, done.output
    return json.loads((tmp_path / "r" / "trace.json").read_text())["traceEvents"]


def rows_of(events):
    rows = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            rows[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    return rows


def test_pods_are_slices_on_their_nodes_and_wait_in_the_queue(tmp_path):
    events = events_of(tmp_path, "s.yaml", SCENARIO)
    groups = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    assert groups == {1: "queue", 2: "node-0", 3: "node-1"}
    assert all(
        before[1] <= after[0]
        for row in rows_of(events).values()
        for before, after in zip(sorted(row), sorted(row)[1:], strict=False)
    )
    runs = [e for e in events if e["ph"] == "X" and e["pid"] > 1]
    assert len(runs) == 12
    assert {e["dur"] for e in runs} == {100e6}
    waits = {e["name"]: e["args"].get("why") for e in events if e["ph"] == "X" and e["pid"] == 1}
    assert len(waits) == 9  # four fit at once
    assert any("big" in name and why for name, why in waits.items())
    assert max(e["args"]["value"] for e in events if e["name"] == "running") == 4


def test_a_job_of_batsim_is_a_slice_on_each_of_its_machines(tmp_path):
    events = events_of(tmp_path, "jobs.json", json.dumps(JOBS), "--export", str(tmp_path / "out"))
    first = [e for e in events if e["ph"] == "X" and e["ts"] == 0]
    assert [(e["pid"], e["dur"]) for e in first] == [(2, 10e6), (3, 10e6), (4, 10e6)]


def test_a_trace_needs_a_place(tmp_path):
    (tmp_path / "s.yaml").write_text(SCENARIO)
    done = CliRunner().invoke(main, ["simulate", "run", str(tmp_path / "s.yaml"), "--perfetto"])
    assert done.exit_code == 2
    assert "it needs --write DIRECTORY" in done.output
