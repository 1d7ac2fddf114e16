"""Scenarios with external schedulers, and the programs that play them."""

import sys
from pathlib import Path

from dralab.simulation.engines.external.run import ExternalRun
from dralab.simulation.results import metrics
from dralab.simulation.scenario import scenario as scenarios

# Watches, first node with enough CPU, says why not, and knows priorities. It needs nothing but
# Python, so that it starts fast. Arguments: its name, then what it does besides.
WATCHING = """
import json, os, sys, threading, urllib.error, urllib.request
name, ways = sys.argv[1], sys.argv[2:]
server = "http://" + os.environ["SERVER"]
kinds = {"POST": "application/json", "PATCH": "application/strategic-merge-patch+json", "DELETE": "application/json"}
def ask(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server + path, data, {"Content-Type": kinds.get(method, "")}, method=method)
    return urllib.request.urlopen(request)
def cpu(pod):
    return int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"].rstrip("m"))
def rank(pod):
    return pod["spec"].get("priority") or 0
pods, told, binds, nominated = {}, set(), 0, {}
def schedule():
    global binds
    nodes = [n for n in json.load(ask("GET", "/api/v1/nodes"))["items"] if not n["spec"].get("taints")]
    waiting = [p for p in pods.values() if not p["spec"].get("nodeName") and p["spec"]["schedulerName"] == name]
    for pod in sorted(waiting, key=lambda p: -rank(p)):
        where = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        left = {}
        for node in nodes:
            on = [p for p in pods.values() if p["spec"].get("nodeName") == node["metadata"]["name"]]
            left[node["metadata"]["name"]] = int(node["status"]["allocatable"]["cpu"].rstrip("m")) - sum(map(cpu, on))
        fitting = [n for n, free in left.items() if free >= cpu(pod)]
        if fitting:
            ask("POST", where + "/binding", {"metadata": {"name": pod["metadata"]["name"]}, "target": {"kind": "Node", "name": fitting[0]}}).read()
            pod["spec"]["nodeName"] = fitting[0]
            binds += 1
            if f"crash={binds}" in ways:
                print("out of luck", flush=True)
                os._exit(3)
            continue
        lower = [p for p in pods.values() if p["spec"].get("nodeName") and rank(p) < rank(pod) and "deletionTimestamp" not in p["metadata"]]
        uid = pod["metadata"]["uid"]
        if "preempt" in ways and lower and uid not in nominated:
            victim = min(lower, key=rank)
            nominated[uid] = victim["spec"]["nodeName"]
            victim["metadata"]["deletionTimestamp"] = "now"
            ask("DELETE", f"/api/v1/namespaces/{victim['metadata']['namespace']}/pods/{victim['metadata']['name']}").read()
        if uid not in told:
            told.add(uid)
            status = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node is free"}]}
            if uid in nominated:
                status["nominatedNodeName"] = nominated[uid]
            ask("PATCH", where + "/status", {"status": status}).read()
def watch(path, seen):
    for line in ask("GET", path):
        with lock:
            seen(json.loads(line))
            if "deaf" not in ways:
                schedule()
def pod_seen(event):
    pod = event["object"]
    key = pod["metadata"]["namespace"] + "/" + pod["metadata"]["name"]
    if event["type"] == "DELETED":
        pods.pop(key, None)
    elif event["type"] in ("ADDED", "MODIFIED"):
        if not (key in pods and pods[key]["spec"].get("nodeName") and not pod["spec"].get("nodeName")):
            pods[key] = pod
lock = threading.Lock()
threading.Thread(target=watch, args=("/api/v1/nodes?watch=true", lambda _: None), daemon=True).start()
def hurry():
    while True:
        ask("GET", "/api/v1/namespaces").read()
if "restless" in ways:
    threading.Thread(target=hurry, daemon=True).start()
selector = "fieldSelector=status.phase!=Succeeded,status.phase!=Failed"
listed = json.load(ask("GET", "/api/v1/pods?" + selector))
for pod in listed["items"]:
    pod_seen({"type": "ADDED", "object": pod})
with lock:
    schedule()
watch(f"/api/v1/pods?watch=true&resourceVersion={listed['metadata']['resourceVersion']}&{selector}", pod_seen)
"""


class ScenarioWriter:
    """Writes scenarios into a folder, and the scheduler's program beside them.

    Schedulers run in real time, or where there is one, under a virtual `clock`.
    """

    def __init__(self, folder: Path, *, clock: str = "real") -> None:
        self.folder = folder
        self.clock = clock

    def __call__(self, pods, *, nodes="{name: node, count: 16, cpu: 1}", program=None, more="", workload="",
                 arguments=("default-scheduler",), **external):  # fmt: skip
        real = {"quiet_period": 0.05, "answer_timeout": 0.3, "start_quiet_period": 0.1}
        external = {"clock": self.clock} | (real if self.clock == "real" else {}) | external
        if program is not None:
            (self.folder / "scheduler.py").write_text(program)
            external["command"] = [sys.executable, "scheduler.py", *arguments]
        values = ", ".join(f"{key}: {value}" for key, value in external.items())
        path = self.folder / "scenario.yaml"
        path.write_text(
            f"fleet: {{nodes: [{nodes}]}}\nworkload: {workload or f'{{pods: [{pods}]}}'}\n"
            f"scheduler: external\nexternal: {{{values}}}\n{more}\n"
        )
        return scenarios.load(path)


def run(scenario, *, resume=None, keep=None, say=lambda _: None, **options):
    """Run a scenario; return its result and the metrics of it. A run that leaves off is kept."""
    made = ExternalRun(scenario, resume, say=say)
    result = made.go(**options)
    if keep is not None and not result.complete:
        made.save(keep)
    return result, metrics.metrics_of(result)


def tasks(result):
    """Return the tasks of a result by name, with times in seconds."""
    return {
        task.id: (
            task.state,
            *(None if t is None else t / 1e9 for t in (task.bound, task.started, task.ended)),
            task.evictions,
        )
        for task in result.tasks
    }
