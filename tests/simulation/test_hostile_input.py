"""Whatever a file holds, reading it ends in a value or in an InputError, never in anything else."""

import json
import os
import random

import pytest

from dralab.simulation.batch import external
from dralab.simulation.errors import Complaints, InputError
from dralab.simulation.platforms import xml
from dralab.simulation.scenarios import scenario as scenarios
from dralab.simulation.ticks import config as ticks
from dralab.simulation.workloads import batsim, openb, swf

ROUNDS = int(os.environ.get("DRALAB_HOSTILE", "250"))
PIECES = [
    "", "-1", "1e999", "NaN", "null", "true", '"x"', "[]", "{}", "0", "99999999999999999999", "a", ":", ",", "\n",
    "\x00", "\ufeff", "\xff", "é", "- ", "<x>", "&amp;", "&a;", "../..", "1.5", "Infinity", "'", '"',
]  # fmt: skip

FILES = {
    "jobs.json": (
        json.dumps(
            {
                "nb_res": 4,
                "jobs": [
                    {"id": 1, "subtime": 0, "res": 2, "walltime": 9, "profile": "p"},
                    {"id": 2, "subtime": 1.5, "res": 1, "profile": "q"},
                ],
                "profiles": {
                    "p": {"type": "delay", "delay": 3, "ret": 0},
                    "q": {"type": "composed", "repeat": 2, "seq": ["p"]},
                    "r": {"type": "parallel", "cpu": [1, 2], "com": [0, 1, 2, 3]},
                    "s": {
                        "type": "ParallelTaskHomogeneousProfile",
                        "cpu": 1,
                        "com": 2,
                        "generation_strategy": "DefinedAmountsSpreadUniformly",
                    },
                    "t": {"type": "smpi", "trace": "traces.txt"},
                },
            },
            indent=1,
        ),
        batsim.read,
    ),
    "cluster.xml": (
        '<?xml version="1.0"?>\n<platform version="4.1">\n<zone id="z" routing="Full">\n'
        '<cluster id="c" prefix="a" suffix=".b" radical="0-3,7" speed="1Gf,2Mf" bw="1GBps" lat="1us" bb_bw="2GBps" bb_lat="3us">\n'
        '<prop id="wattage_per_state" value="1:2,3:4:5"/></cluster>\n<host id="master_host" speed="1f" core="2"/>\n'
        '<link id="l" bandwidth="1Bps" latency="0" sharing_policy="SPLITDUPLEX"/>\n'
        '<route src="master_host" dst="c"><link_ctn id="l" direction="UP"/></route>\n</zone>\n</platform>\n',
        xml.read,
    ),
    "log.swf": (
        "; MaxProcs: 8\n1 0 0 10 2 -1 -1 2 15 -1 1 7 1 1 1 1 -1 -1\n2 5 0 10 2 -1 -1 2 15 -1 1 7 1 1 1 1 -1 -1\n",
        lambda p: swf.jobs(swf.read(p), hosts=4),
    ),
    "pods.csv": (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np0,1000,10,1,500,T4\np1,1000,10,0,0,\n",
        openb.read_pods,
    ),
    "nodes.csv": (
        "sn,cpu_milli,memory_mib,gpu,model\nn0,8000,1000,2,T4\nn1,8000,1000,0,\n",
        openb.read_nodes,
    ),
    "events.txt": (
        '{"type": "machine_unavailable", "resources": "0-3 5", "timestamp": 5}\n{"type": "x", "timestamp": 1.5}\n',
        external.read,
    ),
    "scenario.yaml": (
        "name: n\nseed: 1\nfleet:\n  nodes:\n  - {name: a, count: 2, cpu: 500m, memory: 1Gi, gpus: 1, labels: {x: y}}\n"
        "workload:\n  pods:\n  - {name: p, count: 3, every: 5s, duration: 1h30m, cpu: 1, gpus: 1, gpu_milli: 200}\n"
        "scheduler: {name: fgd, strict_order: true}\nlifecycle: {start: {delay: 1s, jitter: 2s}, failure: 0.5, retries: 2}\n"
        "faults: [{node: a-1, at: 5s, for: 3s}]\nqueues: {q: {cpu: 3, gpus: 1, pods: 2}}\nstop: {at: 5d}\n",
        scenarios.load,
    ),
    "ticks.yaml": (
        "tick: 5\nstartClock: 2024-05-01T00:00:00+09:00\ncluster:\n- metadata: {name: a, labels: {b: c}}\n  status: {allocatable: {cpu: 1, pods: 3}}\n",
        ticks.read,
    ),
    "cluster.yaml": (
        "tick: 5\ncluster:\n- metadata: {name: a, labels: {b: c}}\n  status: {allocatable: {cpu: 1, memory: 1Gi, nvidia.com/gpu: 2, pods: 3}}\n",
        None,
    ),
    "manifests.yaml": (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p, annotations: {simSpec: '- {seconds: 5, resourceUsage: {cpu: 1}}'}}\n"
        "spec: {priority: 3, nodeSelector: {a: b}, containers: [{name: c, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {nvidia.com/gpu: 1}}}]}\n",
        None,
    ),
}


def mutated(text, chance):
    """Cut, double or exchange some pieces of a text."""
    for _ in range(chance.randint(1, 4)):
        first = chance.randrange(len(text) + 1)
        last = min(len(text), first + chance.choice([0, 1, 1, 2, 5, 20]))
        piece = chance.choice([*PIECES, text[first:last] * 2])
        text = text[:first] + piece + text[last:]
    return text


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_damaged_file_is_read_or_refused_with_a_message(tmp_path, name):
    good, read = FILES[name]
    for other, (text, _) in FILES.items():
        (tmp_path / other).write_text(text)
    if read is None:
        (tmp_path / "with.yaml").write_text(
            "fleet: {simulator: cluster.yaml}\nworkload: {manifests: manifests.yaml}\n"
        )

        def read(_):
            return scenarios.load(tmp_path / "with.yaml")

    (tmp_path / "traces.txt").write_text("rank.txt\n")
    (tmp_path / "rank.txt").write_text("0 init\n0 compute 1e9\n0 send 1 0 5\n0 finalize\n")
    path = tmp_path / name
    path.write_text(good)
    read(path)
    chance = random.Random(name)
    refused = 0
    for _ in range(ROUNDS):
        text = mutated(good, chance)
        path.write_text(text, encoding="utf-8", errors="replace")
        try:
            read(path)
        except InputError:
            refused += 1
        except Exception as error:  # noqa: BLE001 - that is the point
            pytest.fail(f"{error!r} for:\n{text}")
    assert refused > 50


def test_lenient_reading_never_raises_for_one_broken_entry(tmp_path):
    good, _ = FILES["pods.csv"]
    for line in ("", "x", ",,,,,", "p0,1,1,1,1,", "p9,1,1,1,1,T4,extra"):
        path = tmp_path / "pods.csv"
        path.write_text(good + line + "\n")
        assert len(openb.read_pods(path, complaints=Complaints(lenient=True))) == 2
