"""Schedulers that know nothing of simulated time, each through the API it has always used."""

import os
import shutil
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from dralab.apiserver.storage import Key, MemoryStore
from dralab.scenarios.errors import DecisionError, InputError
from dralab.simulation.engines.external import run as external
from dralab.simulation.engines.external.driver import Activity, DecisionWatch
from dralab.simulation.results import metrics
from dralab.simulation.scenario import scenario as scenarios

EXAMPLE = Path(__file__).parents[4] / "examples" / "31-external-scheduler" / "scheduler.py"

# Lists every 50 ms instead of every 6 s; otherwise the calls of the shell script: kubectl's
# discovery and lists, curl's binding with a trailing slash and without a namespace.
POLLING = """
import json, os, random, threading, urllib.request
server = "http://" + os.environ["SERVER"]
def call(path, agent="kubectl/v1.32.0", body=None):
    headers = {"User-Agent": agent, "Content-Type": "application/json", "Accept": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(server + path, data, headers)) as answer:
        text = answer.read().decode()
        if agent.startswith("curl"):
            assert "\\n  " in text, "curl gets JSON for people"
        return json.loads(text)
while True:
    call("/api?timeout=32s"); call("/apis?timeout=32s")
    for pod in call("/api/v1/pods?fieldSelector=status.phase%3D%3DPending&limit=500")["items"]:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        pod = call(f"/api/v1/namespaces/default/pods/{name}")
        if pod["spec"]["schedulerName"] == "bashScheduler" and not pod["spec"].get("nodeName"):
            nodes = call("/api/v1/nodes?limit=500")["items"]
            node = random.choice(nodes)["metadata"]["name"]
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                    "target": {"apiVersion": "v1", "kind": "Node", "name": node}}
            done = call(f"/api/v1/namespaces/{namespace}/pods/{name}/binding/", "curl/8.0", body)
            assert done["code"] == 201
    threading.Event().wait(0.05)
"""

# What the random scheduler of the blog posts does, in a cluster: HTTPS, a token, list, watch,
# a coin for each node, and nobody asks again for a pod that lost every toss.
COINS = """
import http.client, json, os, ssl, urllib.parse, base64, yaml
config = yaml.safe_load(open(os.environ["KUBECONFIG"]))
cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
host = urllib.parse.urlsplit(cluster["server"])
def ask(method, path, body=None):
    link = http.client.HTTPSConnection(host.hostname, host.port, context=context)
    link.request(method, path, None if body is None else json.dumps(body),
        {"Authorization": "Bearer " + user["token"], "Accept": "application/json, */*", "Content-Type": "application/json"})
    return link.getresponse()
nodes = json.load(ask("GET", "/api/v1/nodes?limit=500&resourceVersion=0"))["items"]
pods = json.load(ask("GET", "/api/v1/pods?limit=500&resourceVersion=0"))
toss = 0
watch = ask("GET", f"/api/v1/pods?resourceVersion={pods['metadata']['resourceVersion']}&timeoutSeconds=325&watch=true")
for line in iter(watch.readline, b""):
    event = json.loads(line)
    pod = event["object"]
    if event["type"] != "ADDED" or pod["spec"].get("nodeName") or pod["spec"]["schedulerName"] != "random-scheduler":
        continue
    toss += 1
    if toss % 3 == 0:
        continue
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    ask("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/binding", {"metadata": {"name": name, "namespace": namespace, "creationTimestamp": None},
        "target": {"kind": "Node", "apiVersion": "v1", "name": nodes[toss % len(nodes)]["metadata"]["name"]}}).read()
    ask("POST", f"/api/v1/namespaces/{namespace}/events", {"metadata": {"generateName": name + "-"}, "reason": "Scheduled",
        "message": "Placed", "type": "Normal", "involvedObject": {"kind": "Pod", "name": name, "namespace": namespace},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z", "eventTime": None}).read()
"""


@pytest.fixture
def scenario(tmp_path):
    def write(pods, *, nodes="{name: node, count: 16, cpu: 1}", program=None, **external):
        external = {
            "clock": "real",
            "quiet_period": 0.05,
            "answer_timeout": 0.3,
            "start_quiet_period": 0.4,
        } | external
        if program is not None:
            (tmp_path / "scheduler.py").write_text(textwrap.dedent(program))
            external["command"] = [sys.executable, "scheduler.py"]
        values = ", ".join(f"{key}: {value}" for key, value in external.items())
        path = tmp_path / "scenario.yaml"
        path.write_text(
            f"fleet: {{nodes: [{nodes}]}}\nworkload: {{pods: [{pods}]}}\n"
            f"scheduler: external\nexternal: {{{values}}}\n"
        )
        return scenarios.load(path)

    return write


def run(scenario):
    said = []
    result = external.ExternalRun(scenario, say=said.append).go()
    return result, metrics.metrics_of(result)


@pytest.mark.thorough
def test_a_scheduler_of_twenty_lines_runs_in_simulated_time(scenario):
    result, found = run(
        scenario("{name: p, count: 30, duration: 170s, cpu: 1}", program=EXAMPLE.read_text(),
                 nodes="{name: node, count: 10, cpu: 1}")
    )  # fmt: skip
    assert (found["makespan"], found["wait_mean"], found["wait_max"]) == (510, 170, 340)
    assert "late binds: 0" in result.notes


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ("{name: p, count: 200, duration: 170s, cpu: 1}", (2210, 979.2, 2040)),
        ("{name: p, count: 200, duration: 170s, every: 10s, cpu: 1}", (2280, 57.6, 120)),
        ("{name: p, count: 200, duration: 160s, every: 10s, cpu: 1}", (2150, 0, 0)),
    ],
)
def test_the_workloads_of_batkube_have_their_ideal_numbers(scenario, pods, expected):
    result, found = run(scenario(pods, program=EXAMPLE.read_text()))
    assert (found["makespan"], round(found["wait_mean"], 3), found["wait_max"]) == expected
    assert "late binds: 0" in result.notes


@pytest.mark.thorough
@pytest.mark.parametrize("polls", ["true", "false"], ids=["told", "found out"])
def test_a_scheduler_that_polls_is_waited_for_until_a_round_without_a_write(scenario, polls):
    _, found = run(
        scenario("{name: p, count: 6, duration: 30s, every: 20s, cpu: 1}", program=POLLING,
                 nodes="{name: node, count: 2, cpu: 8}", polls=polls, scheduler_name="bashScheduler",
                 answer_timeout=5)
    )  # fmt: skip
    assert (found["succeeded"], found["wait_max"], found["makespan"]) == (6, 0, 130)


KUBECTL = os.environ.get("DRALAB_KUBECTL", "").split(os.pathsep)[0] or shutil.which("kubectl")


@pytest.mark.conformance
@pytest.mark.skipif(KUBECTL is None, reason="no kubectl: set DRALAB_KUBECTL")
@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_a_loop_of_kubectl_and_curl_makes_the_calls_it_always_made(tmp_path, monkeypatch):
    place = tmp_path / "bin"
    place.mkdir()
    (place / "kubectl").symlink_to(Path(KUBECTL).resolve())
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")
    calls, observe = [], Activity.observe

    def listen(self, request, answer):
        agent = request.headers.get("user-agent", "").split("/")[0]
        calls.append(f"{agent} {request.method} {request.path}?{request.query}".rstrip("?"))
        observe(self, request, answer)

    monkeypatch.setattr(Activity, "observe", listen)
    loaded = scenarios.load(EXAMPLE.parents[1] / "56-shell-scheduler" / "pods.yaml")
    result, found = run(loaded)
    # The loop looks each minute, and first 10 s before the run begins (warm_up).
    assert (found["succeeded"], found["makespan"], found["wait_max"]) == (3, 2150, 50)
    assert "late binds: 0" in result.notes
    assert {
        "kubectl GET /api/v1/pods?fieldSelector=status.phase%3D%3DPending&limit=500",
        "kubectl GET /api/v1/namespaces/default/pods/job-1",
        "kubectl GET /api/v1/nodes?limit=500",
        "curl POST /api/v1/namespaces/default/pods/job-1/binding/",
    } <= set(calls)


@pytest.mark.conformance
def test_a_random_scheduler_over_https_loses_pods_and_the_run_says_which(scenario):
    result, found = run(
        scenario("{name: p, count: 6, duration: 30s, every: 20s, cpu: 1}", program=COINS,
                 nodes="{name: node, count: 2, cpu: 8}", tls="true", scheduler_name="random-scheduler")
    )  # fmt: skip
    assert (found["succeeded"], found["never_started"]) == (4, 2)
    assert any(
        note.startswith("2 pods never bound: default/p-2, default/p-5") for note in result.notes
    )


@pytest.mark.conformance
def test_pods_bound_where_there_is_no_room_fail_as_a_kubelet_would_have_it(scenario):
    crowd = EXAMPLE.read_text().replace("left >= cpu", "True")
    result, _ = run(
        scenario("{name: p, count: 3, duration: 30s, cpu: 1}", program=crowd,
                 nodes="{name: node, cpu: 2}")
    )  # fmt: skip
    assert [task.state for task in result.tasks].count("Failed") == 1
    assert any("no room" in note for note in result.notes)


def test_a_scheduler_that_ends_or_cannot_start_is_told_with_its_last_output(scenario):
    with pytest.raises(DecisionError, match=r"did not ask for pods.*exit code 0.*no luck"):
        run(
            scenario(
                "{name: p}",
                program="print('no luck', flush=True)",
                start_timeout=20,
                start_quiet_period=0.1,
            )
        )
    with pytest.raises(DecisionError, match="cannot be started"):
        run(scenario("{name: p}", command="[no-such-scheduler]"))


def test_what_external_may_say_is_checked(scenario):
    with pytest.raises(InputError, match=r"external\.settel: is unknown"):
        run(scenario("{name: p}", settel=1))
    with pytest.raises(InputError, match=r"external\.quiet_period: must be a number"):
        run(scenario("{name: p}", quiet_period="soon"))


@pytest.mark.conformance
def test_a_bind_that_could_have_come_a_step_earlier_is_late_and_lengthens_the_settle(scenario):
    # It thinks for 0.1 s about each pod, and the quiet period is far too short for that.
    slow = EXAMPLE.read_text().replace(
        "            target =",
        "            import threading; threading.Event().wait(0.1)\n            target =",
    )
    result, _ = run(
        scenario("{name: p, count: 40, duration: 1s, every: 1s, cpu: 1}", program=slow,
                 nodes="{name: node, count: 40, cpu: 1}", quiet_period=0.01, answer_timeout=0.02, bind_grace=0)
    )  # fmt: skip
    assert not any(note == "late binds: 0" for note in result.notes)


def in_a_thread(call):
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def test_a_change_of_a_pod_by_anyone_else_is_its_answer():
    store = MemoryStore()
    decisions = DecisionWatch(store)

    def pod(name, node=None, **metadata):
        key = Key("pods", "a", name)
        spec = {"nodeName": node} if node else {}
        own = {"name": name, "uid": f"{name}-1", **metadata}
        return key, {"metadata": own, "spec": spec, "status": {}}

    for name in "pqrs":
        store.create(*pod(name))
    store.update(*pod("p", "mine"))
    assert not decisions.any, "that was the driver's own thread"
    decisions.expect({"a/q", "a/r", "a/s"})

    def decide():
        store.update(*pod("q", "n"))
        store.update(*pod("r", labels={"seen": "yes"}))
        store.update(*pod("p", "mine", deletionTimestamp="soon", deletionGracePeriodSeconds=30))
        store.delete(Key("pods", "a", "s"))

    in_a_thread(decide)
    assert (decisions.awaited, decisions.answers, decisions.refusals) == (set(), 3, 2)
    assert decisions.take_bound() == [("a/q", "n")]
    assert decisions.take_deleted() == [("a/p", "p-1", 30), ("a/s", "s-1", None)]
    assert not decisions.any
    decisions.stop()
    in_a_thread(lambda: store.update(*pod("r", "n")))
    assert not decisions.any


def test_a_wait_ends_with_silence_or_with_its_limit():
    activity = Activity()
    assert activity.wait(lambda silence: silence > 0.01, 1)
    assert not activity.wait(lambda _: False, 0.05)


KUBE_SCHEDULER = os.environ.get("DRALAB_KUBE_SCHEDULER") or shutil.which("kube-scheduler")


@pytest.mark.conformance
@pytest.mark.skipif(KUBE_SCHEDULER is None, reason="no kube-scheduler: set DRALAB_KUBE_SCHEDULER")
@pytest.mark.parametrize(
    ("pods", "nodes", "expected"),
    [
        ("{name: p, count: 200, duration: 170s, cpu: 1}", 16, (2210, 979.2)),
        ("{name: p, count: 200, duration: 170s, every: 10s, cpu: 1}", 16, (2280, 57.6)),
        ("{name: p, count: 200, duration: 160s, every: 10s, cpu: 1}", 16, (2150, 0)),
        ("{name: p, count: 300, duration: 200s, cpu: 1}", 16, (3800, 1776)),
        ("{name: p, count: 2000, duration: 170s, cpu: 1}", 160, (2210, 979.2)),
    ],
)
def test_the_stock_kube_scheduler_runs_in_simulated_time(scenario, pods, nodes, expected):
    command = f"[{KUBE_SCHEDULER}, '--config={{config}}', --secure-port=0]"
    fleet = f"{{name: n, count: {nodes}, cpu: 1}}"
    result, found = run(scenario(pods, nodes=fleet, command=command, answer_timeout=10))
    assert (found["makespan"], round(found["wait_mean"], 3)) == expected
    assert "late binds: 0" in result.notes


@pytest.mark.conformance
@pytest.mark.skipif(KUBE_SCHEDULER is None, reason="no kube-scheduler: set DRALAB_KUBE_SCHEDULER")
def test_the_stock_kube_scheduler_may_lead_speak_protobuf_and_keep_its_own_pace(scenario):
    command = f"[{KUBE_SCHEDULER}, '--kubeconfig={{kubeconfig}}', --secure-port=0]"
    pods = "{name: p, count: 200, duration: 170s, cpu: 1}"
    result, found = run(scenario(pods, command=command, answer_timeout=10))
    assert (found["makespan"], round(found["wait_mean"], 3)) == (2210, 979.2)
    assert "late binds: 0" in result.notes
    assert not any(" 0 of leases" in note for note in result.notes)


@pytest.mark.conformance
@pytest.mark.skipif(KUBE_SCHEDULER is None, reason="no kube-scheduler: set DRALAB_KUBE_SCHEDULER")
def test_several_stock_kube_schedulers_share_a_cluster(scenario):
    command = f"[{KUBE_SCHEDULER}, '--config={{config}}', --secure-port=0]"
    pods = ", ".join(
        f"{{name: {name}, count: 60, at: {at}s, duration: 170s, every: 10s, cpu: 1, scheduler: {name}}}"
        for name, at in (("one", 0), ("two", 5))
    )
    result, found = run(
        scenario(pods, nodes="{name: n, count: 16, cpu: 4}", answer_timeout=10,
                 schedulers=f"{{one: {command}, two: {command}}}")
    )  # fmt: skip
    assert (found["succeeded"], found["wait_max"], found["makespan"]) == (120, 0, 765)
    assert "late binds: 0" in result.notes
