"""Whatever a file holds, reading it ends in a value or in an InputError, never in anything else."""

import json
import os
import random

import pytest

from dralab.scenarios.errors import InputError, InputProblems
from dralab.simulation.dispatch import begin
from dralab.simulation.engines.batch import external
from dralab.simulation.platforms import simgrid_xml
from dralab.simulation.scenario import scenario as scenarios
from dralab.simulation.scenario import simulator_config
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
        simgrid_xml.read,
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
        "name: n\nseed: 1\nfleet:\n  nodes:\n  - {name: a, count: 2, cpu: 500m, memory: 1Gi, gpus: 1, labels: {x: y}, taints: ['a=b:NoSchedule'], drivers: [gpu]}\n"
        "workload:\n  pods:\n  - {name: p, count: 3, every: 5s, duration: 1h30m, cpu: 1, gpus: 1, gpu_milli: 200}\n"
        "scheduler: {name: fgd, strict_order: true}\nlifecycle: {start: {delay: 1s, jitter: 2s}, failure: 0.5, retries: 2}\n"
        "faults:\n- {node: a-1, at: 5s, for: 3s}\n- {happens: 'prepare=slow:3x2', driver: d, at: 1}\n"
        "- {node: a-0, device: gpu-0, at: 1m, taint: {key: k, effect: NoExecute}}\n"
        "queues: {q: {cpu: 3, gpus: 1, pods: 2}}\nstop: {at: 5d, ended: 9}\n"
        "measure: {from: 1s, to: 1d}\noutputs: {report: out, parquet: false, picture: png}\n",
        scenarios.load,
    ),
    "ticks.yaml": (
        "tick: 5\nstartClock: 2024-05-01T00:00:00+09:00\ncluster:\n- metadata: {name: a, labels: {b: c}}\n  status: {allocatable: {cpu: 1, pods: 3}}\n",
        simulator_config.read,
    ),
    "cluster.yaml": (
        "tick: 5\ncluster:\n- metadata: {name: a, labels: {b: c}}\n  status: {allocatable: {cpu: 1, memory: 1Gi, nvidia.com/gpu: 2, pods: 3}}\n",
        None,
    ),
    "manifests.yaml": (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p, annotations: {simSpec: '- {seconds: 5, resourceUsage: {cpu: 1}}'}}\n"
        "spec: {priority: 3, nodeSelector: {a: b}, tolerations: [{key: a}], containers: [{name: c, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {nvidia.com/gpu: 1}}}]}\n",
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


CLUSTER = """apiVersion: v1
kind: Node
metadata: {name: n, labels: {a: b}}
spec: {taints: [{key: t, value: v, effect: NoSchedule}]}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec: {driver: d.example.com, nodeName: n, pool: {name: n, generation: 1, resourceSliceCount: 1}, devices: [{name: d0}]}
"""
PODS = """apiVersion: v1
kind: Pod
metadata: {name: p, namespace: x, labels: {pod-group.scheduling.sigs.k8s.io: g}, annotations: {simulation.dralab.dev/runs: 5s, simulation.dralab.dev/arrives: 1s}}
spec:
  tolerations: [{key: t, operator: Exists}]
  containers: [{name: c, image: i, resources: {requests: {cpu: "1"}, limits: {nvidia.com/gpu: "1"}}}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: j, annotations: {simulation.dralab.dev/runs: 5s}}
spec: {parallelism: 2, completions: 2, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}
"""


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["nodes.yaml", "pods.yaml"])
def test_damaged_manifests_run_on_a_simulated_cluster_or_are_refused(tmp_path, name):
    (tmp_path / "with.yaml").write_text(
        "fleet: {manifests: nodes.yaml}\nworkload: {manifests: pods.yaml}\nscheduler: dralab\n"
        "stop: {at: 60s}\n"
    )
    good = {"nodes.yaml": CLUSTER, "pods.yaml": PODS}
    chance = random.Random(name)
    for number in range(ROUNDS // 5):
        text = mutated(good[name], chance) if number else good[name]
        for other, content in good.items():
            (tmp_path / other).write_text(
                text if other == name else content, encoding="utf-8", errors="replace"
            )
        try:
            begin(scenarios.load(tmp_path / "with.yaml")).go()
        except InputError:
            assert number, "the manifests are good"
        except Exception as error:  # noqa: BLE001 - that is the point
            pytest.fail(f"{error!r} for:\n{text}")


def test_lenient_reading_never_raises_for_one_broken_entry(tmp_path):
    good, _ = FILES["pods.csv"]
    for line in ("", "x", ",,,,,", "p0,1,1,1,1,", "p9,1,1,1,1,T4,extra"):
        path = tmp_path / "pods.csv"
        path.write_text(good + line + "\n")
        assert len(openb.read_pods(path, problems=InputProblems(lenient=True))) == 2


XML = "<platform version='4.1'><zone id='z' routing='Full'>{}</zone></platform>"
HOST = "<host id='master_host' speed='1f'/>"
POD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n{},10,1,500,T4\n"
BOMB = "".join(f"<!ENTITY a{n} '{f'&a{n - 1};' * 10}'>" for n in range(1, 10))
ATTACKS = {
    "entities that multiply": (
        "cluster.xml",
        f"<!DOCTYPE p [<!ENTITY a0 'x'>{BOMB}]>" + XML.format("<host id='&a9;' speed='1f'/>"),
        "entities are not read",
    ),
    "a file of the machine": (
        "cluster.xml",
        "<!DOCTYPE p [<!ENTITY a SYSTEM 'file:///etc/passwd'>]>" + XML.format("&a;"),
        "entities are not read",
    ),
    "depth": (
        "cluster.xml",
        "<platform version='4.1'>" + "<zone routing='Full'>" * 50_000,
        "nested more|zone",
    ),
    "a billion hosts": (
        "cluster.xml",
        XML.format(
            "<cluster id='c' prefix='a' suffix='b' radical='0-999999999' speed='1f' bw='1Bps'"
            " lat='1s'/>"
        ),
        "radical",
    ),
    "an encoding that does not exist": (
        "cluster.xml",
        "<?xml version='1.0' encoding='klingon'?>" + XML.format(HOST),
        "has an encoding that cannot be read: write UTF-8",
    ),
    "an encoding of several bytes": (
        "cluster.xml",
        "<?xml version='1.0' encoding='gbk'?>" + XML.format(HOST),
        "has an encoding that cannot be read: write UTF-8",
    ),
    "a codec that is not one of text": (
        "cluster.xml",
        "<?xml version='1.0' encoding='idna'?>" + XML.format(HOST),
        "has an encoding that cannot be read: write UTF-8",
    ),
    "a cell of 200 kB": ("pods.csv", POD.format('p,"' + "x" * 200_000 + '"'), "is not CSV: field"),
    "a number of 5000 digits": ("pods.csv", POD.format("p," + "9" * 5000), "cpu_milli"),
    "a name with a null byte": ("pods.csv", POD.format("p\0,1"), "control characters"),
    "a name that ends a line": ("pods.csv", POD.format('"p\x1b[2J",1'), "control characters"),
    "a line of a million columns": ("log.swf", "1 " * 1_000_000, "must have 18 columns"),
    "no line at all": ("log.swf", "\0" * 1_000_000, "must have 18 columns"),
    "arrays in arrays": ("jobs.json", "[" * 100_000, "is not JSON"),
    "profiles in profiles": (
        "jobs.json",
        json.dumps(
            {
                "nb_res": 1,
                "jobs": [{"id": 1, "subtime": 0, "res": 1, "profile": "p200"}],
                "profiles": {"p0": {"type": "delay", "delay": 1}}
                | {f"p{n}": {"type": "composed", "seq": [f"p{n - 1}"] * 2} for n in range(1, 201)},
            }
        ),
        "is nested more than 64 deep",
    ),
}


@pytest.mark.parametrize(("name", "text", "says"), ATTACKS.values(), ids=ATTACKS)
def test_an_attack_is_refused_in_one_line(tmp_path, name, text, says):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match=says) as caught:
        FILES[name][1](path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 6_000 + len(str(path))
