"""Controllers beside external schedulers, and pods that the scenario does not know."""

import copy
import json

import pytest
from tests.simulation.engines.external.cases import WATCHING, ScenarioWriter, run, tasks

from clocked import needs_clock
from dralab.scenarios.errors import InputError
from dralab.simulation.engines.external import options
from dralab.simulation.scenario import scenario as scenarios

pytestmark = needs_clock

NAMES = "[job-controller, cronjob-controller, garbage-collector-controller]"
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j", "annotations": {"simulation.dralab.dev/runs": "100s"}},
    "spec": {
        "completions": 4,
        "parallelism": 2,
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1000m"}}}
                ],
            }
        },
    },
}


@pytest.fixture
def scenario(tmp_path):
    write = ScenarioWriter(tmp_path, clock="virtual")

    def make(*objects, **values):
        text = "---\n".join(json.dumps(one) + "\n" for one in objects)
        (tmp_path / "objects.yaml").write_text(text)
        return write("", workload="{manifests: objects.yaml}", program=WATCHING, **values)

    return make


def test_a_job_is_a_real_one_where_its_controller_runs(scenario):
    result, _ = run(scenario(JOB, controllers=NAMES))
    # Two at a time, as the controller has it; played as pods both would have come at once.
    assert sorted(tasks(result).values()) == [
        ("Succeeded", 0, 0, 100, 0),
        ("Succeeded", 0, 0, 100, 0),
        ("Succeeded", 100, 100, 200, 0),
        ("Succeeded", 100, 100, 200, 0),
    ]
    assert run(scenario(JOB, controllers=NAMES))[0].tasks == result.tasks


def test_a_cron_job_makes_pods_until_the_run_is_stopped(scenario):
    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "h"},
        "spec": {
            "schedule": "0 * * * *",
            "jobTemplate": {"spec": copy.deepcopy(JOB["spec"]) | {"completions": 1}},
        },
    }
    cron["spec"]["jobTemplate"]["spec"]["template"] |= {
        "metadata": {"annotations": {"simulation.dralab.dev/runs": "60s"}}
    }
    result, _ = run(
        scenario(cron, controllers=NAMES, start="'2026-01-01T00:30:00Z'", more="stop: {at: 3h}")
    )
    assert [task.bound / 1e9 for task in result.tasks] == [1800, 5400, 9000]
    assert {task.state for task in result.tasks} == {"Succeeded"}


@pytest.mark.parametrize(
    ("job", "told"),
    [
        (JOB | {"spec": JOB["spec"] | {"suspend": True}}, "spec.suspend is true"),
        (
            JOB | {"metadata": {"name": "j", "labels": {"kueue.x-k8s.io/queue-name": "q"}}},
            "its label kueue.x-k8s.io/queue-name asks for a queue",
        ),
    ],
)
def test_a_job_that_somebody_has_to_admit_is_not_played_as_pods(scenario, job, told):
    with pytest.raises(InputError, match=f"Job j: {told}, and without a job controller"):
        run(scenario(job))


def test_a_suspended_job_waits_for_the_one_that_admits_it(scenario):
    held = JOB | {"spec": JOB["spec"] | {"suspend": True}}
    result, _ = run(scenario(held, controllers=NAMES, rest=30))
    assert not result.tasks


def test_a_kind_of_another_group_with_the_name_of_one_that_is_played_is_not_played(scenario):
    foreign = JOB | {"apiVersion": "batch.volcano.sh/v1alpha1"}
    with pytest.raises(
        InputError, match=r'Job j: no matches for kind "Job" in version "batch.volcano.sh/v1alpha1"'
    ):
        run(scenario(foreign))
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "jobs.batch.volcano.sh"},
        "spec": {
            "group": "batch.volcano.sh",
            "scope": "Namespaced",
            "names": {"kind": "Job", "plural": "jobs"},
            "versions": [
                {
                    "name": "v1alpha1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "x-kubernetes-preserve-unknown-fields": True,
                        }
                    },
                }
            ],
        },
    }
    result, _ = run(scenario(definition, foreign))
    assert not result.tasks


# Before it binds a pod, it holds the place with one of its own, which it then deletes.
PLACEHOLDERS = """
import json, os, time, urllib.request
server = "http://" + os.environ["SERVER"]
def ask(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server + path, data, {"Content-Type": "application/json"}, method=method)
    return json.load(urllib.request.urlopen(request))
pods = "/api/v1/namespaces/default/pods"
def bind(name):
    ask("POST", f"{pods}/{name}/binding", {"metadata": {"name": name}, "target": {"kind": "Node", "name": "node-0"}})
while True:
    for pod in ask("GET", pods + "?fieldSelector=spec.nodeName=")["items"]:
        name = pod["metadata"]["name"]
        ask("POST", pods, {"metadata": {"name": "holder"}, "spec": {"containers": pod["spec"]["containers"]}})
        bind("holder")
        time.sleep(20)
        assert ask("GET", pods + "/holder")["status"]["phase"] == "Running"
        ask("DELETE", pods + "/holder?gracePeriodSeconds=0")
        time.sleep(5)
        bind(name)
    time.sleep(1)
"""


def test_a_pod_that_a_scheduler_creates_runs_until_it_is_deleted(tmp_path):
    write = ScenarioWriter(tmp_path, clock="virtual")
    loaded = write("{name: p, count: 2, duration: 7s, cpu: 1}", program=PLACEHOLDERS,
                   nodes="{name: node, count: 2, cpu: 2}")  # fmt: skip
    result, _ = run(loaded)
    assert result.complete
    holders = [task for task in result.tasks if "holder" in task.id]
    assert [(task.state, task.reason) for task in holders] == [
        ("Failed", "deleted while it ran")
    ] * 2
    ran = sorted(task.ended - task.bound for task in result.tasks if "holder" not in task.id)
    assert [length / 1e9 for length in ran] == [7, 7]
    # The place was taken for 20 s before each.
    assert [(task.ended - task.bound) / 1e9 for task in holders] == [20, 20]


# Sessions once a second: a queue that is owed something takes it back from pods of equal priority;
# the pods of a gang are bound together or not at all.
SESSIONS = """
import json, os, time, urllib.request
server = "http://" + os.environ["SERVER"]
def ask(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server + path, data, {"Content-Type": "application/json"}, method=method)
    return json.load(urllib.request.urlopen(request))
pods = "/api/v1/namespaces/default/pods"
def bind(name):
    ask("POST", f"{pods}/{name}/binding", {"metadata": {"name": name}, "target": {"kind": "Node", "name": "node"}})
while True:
    found = [p for p in ask("GET", pods)["items"] if p["status"]["phase"] in ("Pending", "Running")]
    held = [p["metadata"]["name"] for p in found if p["spec"].get("nodeName")]
    waiting = [p["metadata"]["name"] for p in found if not p["spec"].get("nodeName")]
    owed = [name for name in waiting if name.startswith("owed")]
    gang = [name for name in waiting if name.startswith("gang")]
    leaving = [p for p in found if "deletionTimestamp" in p["metadata"]]
    if owed and len(held) < 4:
        bind(owed[0])
    elif owed and not leaving:
        victim = next(name for name in held if name.startswith("taker"))
        ask("DELETE", f"{pods}/{victim}?gracePeriodSeconds=10")
    elif gang and len(held) + len(gang) <= 4:
        for name in gang: bind(name)
    elif not gang and not owed:
        for name in waiting[:4 - len(held)]: bind(name)
    time.sleep(1)
"""


def test_reclaim_between_equal_priorities_and_gangs_need_no_knowledge_of_their_rules(tmp_path):
    write = ScenarioWriter(tmp_path, clock="virtual")
    loaded = write(
        "{name: taker, count: 4, duration: 100s, cpu: 1}, "
        "{name: owed, at: 30s, duration: 50s, cpu: 1}, "
        "{name: gang, count: 3, at: 60s, duration: 20s, cpu: 1}",
        program=SESSIONS, nodes="{name: node, cpu: 4}",
    )  # fmt: skip
    result, _ = run(loaded)
    found = tasks(result)
    # A session sees it at 31 s and deletes one, which is gone after its grace of 10 s.
    assert found["owed"][:3] == ("Succeeded", 42, 42)
    # There was room for one of them at 92 s: judged pod by pod, it would be late.
    assert {found[f"gang-{n}"][1] for n in range(3)} == {102}
    assert sorted(found[f"taker-{n}"][4] for n in range(4)) == [0, 0, 0, 1]
    assert "late binds: 0" in result.notes


def test_controllers_are_named_as_kube_controller_manager_names_them(tmp_path):
    write = ScenarioWriter(tmp_path, clock="virtual")
    with pytest.raises(
        InputError, match=r"external\.controllers: 'jobs' is unknown; known: .*job-c"
    ):
        write("", controllers="[jobs]")
    assert options.controllers_of(write("", controllers="external")).heartbeats == 10
    assert len(options.controllers_of(write("", controllers="all")).own) > 15
    with pytest.raises(InputError, match=r"controllers need the virtual clock: external\.clock is"):
        run(scenarios.load(write("", program=WATCHING, controllers="all", clock="real").file))


# Binds pods each ten seconds; in its fourth round it makes one call that a person or an evictor would make.
ONE_CALL = """
import json, os, time, urllib.request
server = "http://" + os.environ["SERVER"]
def ask(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server + path, data, {{"Content-Type": "application/json"}}, method=method)
    return json.load(urllib.request.urlopen(request))
pods, calls = "/api/v1/namespaces/default/pods", 0
while True:
    found = ask("GET", pods)["items"]
    for pod in found:
        if not pod["spec"].get("nodeName"):
            name = pod["metadata"]["name"]
            ask("POST", f"{{pods}}/{{name}}/binding", {{"metadata": {{"name": name}}, "target": {{"kind": "Node", "name": "node"}}}})
    calls += bool(found)
    if calls == 4:
        name = min((p["metadata"]["name"] for p in found), default="")
        ask("DELETE", {path})
    time.sleep(10)
"""


def after_a_call(tmp_path, path):
    write = ScenarioWriter(tmp_path, clock="virtual")
    (tmp_path / "objects.yaml").write_text(
        json.dumps(JOB | {"spec": JOB["spec"] | {"completions": 2}})
    )
    result, _ = run(
        write("", workload="{manifests: objects.yaml}", program=ONE_CALL.format(path=path),
              controllers=NAMES, start="'2026-01-01T00:00:00Z'", nodes="{name: node, cpu: 4}")
    )  # fmt: skip
    return sorted((task.state, (task.ended or 0) / 1e9) for task in result.tasks)


def test_a_pod_that_is_evicted_comes_again_as_its_controller_makes_it(tmp_path):
    assert after_a_call(tmp_path, 'f"{pods}/{name}?gracePeriodSeconds=5"') == [
        ("Failed", 45),  # evicted at 40 s
        ("Succeeded", 110),
        ("Succeeded", 150),  # bound at 50 s, for its 100 s
    ]


def test_the_pods_of_a_deleted_job_are_collected(tmp_path):
    path = '"/apis/batch/v1/namespaces/default/jobs/j?propagationPolicy=Background"'
    # After the grace of 30 s that every pod has.
    assert after_a_call(tmp_path, path) == [("Failed", 70), ("Failed", 70)]
