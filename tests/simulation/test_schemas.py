"""The JSON schemas of scenario and campaign files say what their readers do.

The same documents, whole and broken, go through both. A schema must not refuse what is read; what
it lets pass although it is refused are the rules that no schema can say, listed here.
"""

import re
from collections import defaultdict
from pathlib import Path

import pytest
import yaml

from dralab.scenarios import fields as field_reader
from dralab.scenarios.fields import Fields, FieldSource
from dralab.simulation import scenario_schema
from dralab.simulation.campaigns import grid
from dralab.simulation.scenario import scenario as scenarios
from jsonschemas import compare, problems, properties_by_path

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = {
    "nodes.csv": "sn,cpu_milli,memory_mib,gpu,model\nn0,8000,1000,2,T4\n",
    "pods.csv": "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np0,1000,10,1,500,T4\n",
    "log.swf": "; MaxProcs: 8\n1 0 0 10 2 -1 -1 2 15 -1 1 7 1 1 1 1 -1 -1\n",
    "jobs.json": '{"nb_res": 4, "jobs": [{"id": 1, "subtime": 0, "res": 2, "profile": "p"}],'
    ' "profiles": {"p": {"type": "delay", "delay": 3}}}',
    "cluster.xml": '<?xml version="1.0"?><platform version="4.1"><zone id="z" routing="Full">'
    '<host id="boss" speed="1f"/><host id="a" speed="1f"/></zone></platform>',
    "pods.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}]}\n",
    "nodes.yaml": "apiVersion: v1\nkind: Node\nmetadata: {name: n}\nstatus: {allocatable: {cpu: 4}}\n",
    "ticks.yaml": "cluster:\n- metadata: {name: a}\n  status: {allocatable: {cpu: 1, pods: 3}}\n",
    "jobs.csv": "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,"
    "job_type\n1,1,A10,1,1,1,0,900,HP\n",
    "speeds.json": "{}",
    "machines.csv": "gpu_model,gpu_capacity_num,cpu_num,node_name\nA10,1,128,0\n",
    "azure.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,1\n",
    "mine.py": "class Mine:\n    def prefer(self, pod, node):\n        return 1\n",
    "busy.yaml": "fleet: {hosts: 2}\nworkload: {jobs: []}\n",
}
# Together they have every field.
SCENARIOS = """
apiVersion: dralab.dev/v1
kind: Scenario
name: whole
seed: 7
fleet:
  nodes:
  - {name: a, count: 2, cpu: 500m, memory: 1Gi, gpus: 1, model: T4, pods: 9, labels: {x: y, z: 1},
     domains: {rack: 2}, taints: ['a=b:NoSchedule'], drivers: [gpu, 'mine.py:Mine']}
workload:
  pods:
  - {name: p, count: 3, every: 5s, at: 1, duration: 1h30m, cpu: 1, memory: 1Gi, gpus: 1,
     gpu_milli: 200, models: T4, node_labels: {x: y}, priority: -3, queue: q, user: u, scheduler: s,
     startup: 5m, checkpoint: 1h}
  - {name: r, until: 9h}
scheduler: {name: fgd, strict_order: true}
lifecycle: {start: {delay: 1s, jitter: 2s}, release: [{name: r, delay: 1, jitter: 0}], failure: 0.5, retries: 2, checkpoint: 30m, restart: 2m, gangs: wait}
faults:
- {node: a-1, at: 5s, for: 3s}
- {happens: 'prepare=slow:3x2', driver: d, at: 1}
- {node: a-0, device: gpu-0, at: 1m, taint: {key: k, value: v, effect: NoExecute}}
queues: {q: {cpu: 3, gpus: 1, pods: 2}}
stop: {at: 5d, ended: 9}
measure: {from: 1s, to: 1d}
outputs: {report: out, parquet: false, picture: png}
energy: false
---
fleet: {shape: {name: h100, nodes: 2, seed: 1, gpus: 8}}
workload:
  generate:
    name: g
    count: 3
    users: 2
    arrivals: {process: poisson, over: 1h, every: 1s, peak: 2}
    duration: {distribution: lognormal, median: 1h, sigma: 0.5}
    pods:
    - {weight: 2, gang: 2, topology: rack, startup: 1m, checkpoint: 1h, cpu: 1, memory: 1Gi, gpus: 1, gpu_milli: 500, models: T4, node_labels: {a: b},
       priority: 1, queue: q, user: u, scheduler: s, duration: {distribution: uniform, least: 1, most: 2}}
    - {duration: {distribution: weibull, scale: 1h, shape: 0.5}}
    - {duration: {distribution: exponential, mean: 1h}}
    - {cpu: 1}
    - {duration: {value: 1h}}
policy: firstfit
faults: {every: 1d, repair: 1h, of: gpu}
stop: {at: 2d}
---
fleet: {nodes: [{cpu: 1}]}
workload:
  generate: [{name: g, count: 3, arrivals: {process: burst}, duration: 5s, pods: [{cpu: 1}]}]
  serving:
  - name: chat
    over: 1d
    every: 1h
    stay: 2h
    requests: 5
    peak: 2
    tokens: {context: 1000, generated: 100}
    groups:
    - {name: all, of: context, rate: 5, load: 0.5, least: 0, most: 9, gang: 2, topology: rack, startup: 1m,
       checkpoint: 1h, cpu: 1, memory: 1Gi, gpus: 1, gpu_milli: 500, models: T4, node_labels: {a: b},
       priority: 1, queue: q, user: u, scheduler: s}
  - {name: search, over: 1d, azure: azure.csv, groups: [{name: all, rate: 5}]}
---
fleet: {nodes: [{cpu: 1, gpus: 8, model: T4}]}
workload:
  profiles: speeds.json
  trainings:
  - {name: a, count: 2, every: 1m, at: 1s, gpus: 2, steps: 100, speeds: {T4: 2.5}, weight: 2, startup: 5s, user: u, queue: q}
  - {name: b, gpus: 2, duration: 1h, speeds: {T4: {1: 1, 4: 3.5}}}
  - {name: c, kind: net, epochs: 3, batch: 32}
scheduler: rounds:max-min
round: 6m
---
fleet: {hosts: 4}
workload:
  generate:
    count: 3
    arrivals: {process: burst}
    duration: 5s
    overestimate: {least: 1, most: 3}
    jobs:
    - {weight: 1, user: u, machines: {distribution: powers, least: 1, most: 4}, duration: 9}
    - {machines: 2}
scheduler: easy
---
fleet: {platform: cluster.xml, master: boss}
workload: {jobs: [{name: j, count: 2, every: 1s, at: 1s, duration: 5s, machines: 1, walltime: 9s, user: u}]}
scheduler: fcfs
---
fleet: {openb: nodes.csv}
workload: {openb: pods.csv, inflate: 1.3}
scheduler: fgd
---
fleet: {trace: machines.csv}
workload: {trace: jobs.csv}
---
fleet: {hosts: 8}
workload: {swf: log.swf, walltime_factor: 2, requested_only: true, grain: 1}
scheduler: easy
---
fleet: {hosts: 8}
workload: {batsim: jobs.json}
scheduler: mine.py:Mine
---
fleet: {manifests: nodes.yaml}
workload: {manifests: pods.yaml}
scheduler: external
external: {command: [run, it], port: 0, tls: false, clock: virtual, start: '2026-01-01T00:00:00Z',
  controllers: [job-controller], heartbeats: 10, quiet_period: 0.1, restarts: 1, strict: true, rest: 5}
---
fleet: {simulator: ticks.yaml}
workload: {manifests: pods.yaml}
scheduler: ticks
tick: 5s
---
fleet: {manifests: nodes.yaml}
workload: {manifests: pods.yaml}
scheduler: external
external: {schedulers: {one: a b, two: [c]}, controllers: all, quiet_period: 0.5}
---
pools:
- {name: a, cpu: 500m, memory: 1Gi, gpus: 1, model: T4, pods: 9, labels: {x: y},
   taints: ['a=b:NoSchedule'], drivers: [gpu], min: 1, max: 3, price: 1.5, priority: 2,
   startup: {delay: 1s, jitter: 2s}, devices: 3s, failure: 0.5, spot: {every: 1h, notice: 30s}}
- {name: b, shape: h100, startup: 3m, devices: {delay: 1s, jitter: 2s}}
- {name: c, manifests: nodes.yaml}
autoscaler:
  cluster-autoscaler: {expander: [price, random], scan: 5s, unneeded: 1m, threshold: 0.3,
    delay_after_add: 1m, provision_timeout: 5m}
workload: {manifests: pods.yaml}
scheduler: dralab
stop: {at: 1d}
---
pools: [{name: a, cpu: 1}]
autoscaler: {karpenter: {batch_idle: 1s, batch_max: 9s, consolidation: Never, consolidate_after: 1m,
  budget: 20%, provision_timeout: 5m}}
workload: {pods: []}
scheduler: dralab
"""
CAMPAIGNS = """
name: c
scenarios: [busy.yaml]
openb: {nodes: nodes.csv, pods: [pods.csv], inflate: 1.3}
schedulers: [fgd, 'mine.py:Mine', external]
seeds: {from: 1, count: 2}
compare: [wait_mean, 'alloc_pct@100']
baseline: fgd
---
scenarios: [busy.yaml]
schedulers: [easy]
seeds: [1, -2]
"""
# What readers refuse and no schema can: names that must differ or exist, and one field's bounds
# that are another field's value.
BEYOND = {
    "scenario": r"^there is no (file|node) |must have the role master|^must be after `from`|^is for (ticks|rounds)"
    r"|^give `at`: with |^need `scheduler: |^must be whole seconds|^must be above 0|^must be given, as a duration above 0"
    r"|^must be after its arrival|^must be given, and be another|is not CALL=KIND|^None is not a duration|^is unknown; known: .*gpus|is not a time such as"
    r"|GPUs, and it asks for |^names a row of `profiles`",
    "campaign": r"^there is no file|is not one of the schedulers|is not a metric",
}


def documents(text):
    return list(yaml.safe_load_all(text))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("files")
    for name, text in FILES.items():
        (made / name).write_text(text)
    return made


@pytest.fixture
def read(folder, monkeypatch):
    """Read a document as if it stood in a file of the folder; the second is a campaign's reader."""
    given = {}

    def fields(path):
        return Fields(FieldSource(path), "", given["value"])

    monkeypatch.setattr(scenarios, "load_fields", fields)
    monkeypatch.setattr(grid, "load", fields)

    def scenario(value):
        given["value"] = value
        scenarios.load(folder / "some.yaml")

    def campaign(value):
        given["value"] = value
        grid.read(folder / "some.yaml")

    return {"scenario": scenario, "campaign": campaign}


FORMS = {
    "scenario": (scenario_schema.schema(), documents(SCENARIOS)),
    "campaign": (grid.schema(), documents(CAMPAIGNS)),
}


@pytest.mark.parametrize("form", FORMS)
def test_what_is_read_fits_the_schema(form, read):
    schema, whole = FORMS[form]
    for value in whole:
        read[form](value)
        assert problems(schema, value) == []


def test_the_examples_fit_the_schemas():
    kinds = {"fleet": "scenario", "schedulers": "campaign"}
    seen = []
    for path in sorted(EXAMPLES.glob("*/*.yaml")):
        value = next(iter(yaml.safe_load_all(path.read_text())))
        form = next((form for key, form in kinds.items() if key in value), None)
        if form:
            seen.append(form)
            assert problems(FORMS[form][0], value) == [], path
    assert seen.count("scenario") > 5
    assert "campaign" in seen


def alike(where):
    """Return where a field is, without the user's names, and with one name for what is read alike."""
    for pattern, name in (
        (r"\[\d+\]", "[]"),
        (r"^queues\.\w+", "queues.*"),
        (r"^workload\.generate\[\]", "workload.generate"),
        (r"^(workload.generate)\.(pods|jobs)\[\]\.duration", r"\1.duration"),
        (r"^lifecycle\.(start|release)", "lifecycle.start"),
    ):
        where = re.sub(pattern, name, where)
    return where


@pytest.mark.parametrize("form", FORMS)
def test_the_schema_has_the_fields_that_the_reader_asks_for(form, read, monkeypatch):
    schema, whole = FORMS[form]
    asked = defaultdict(set)
    ended = Fields.done

    def done(self):
        if self.place.path.name == "some.yaml":
            asked[alike(self.where)] |= self._known
        ended(self)

    monkeypatch.setattr(field_reader.Fields, "done", done)
    for value in whole:
        read[form](value)
    listed = defaultdict(set)
    for where, properties in properties_by_path(schema):
        listed[alike(where)] |= properties
    assert dict(asked) == dict(listed)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("every", [60, pytest.param(1, marks=pytest.mark.conformance)])
def test_a_broken_file_is_refused_by_the_schema_or_for_a_reason_beyond_it(form, every, read):
    schema, whole = FORMS[form]
    compared = compare(schema, whole, read[form], BEYOND[form], every)
    assert compared.odd == []
    assert compared.refused > 3 * compared.beyond
