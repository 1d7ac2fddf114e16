"""Prefect's worker for Kubernetes, and its observer, which is written with kopf.

The worker makes a Job of each run of a flow; the observer follows the pods and Jobs, and tells
Prefect what became of them. The server, the worker and the flow itself run beside the cluster: the
flow in a container, under the runtime that starts processes.
"""

import json
import urllib.error
import urllib.request
from http import HTTPStatus

import pytest

from dralab.runtime.resources import JOBS
from operatorlab import NAMESPACE, free_port, names
from waiting import until

# FastAPI: the oldest that Prefect names, because a newer one breaks Prefect's server.
PACKAGES = ("prefect-kubernetes==0.8.0", "prefect==3.8.8", "fastapi==0.139.*")
POOL = "lab"
FLOWS = """
import time

from prefect import flow


@flow
def sums(n: int):
    return sum(range(n))


@flow
def waits(n: int):
    time.sleep(n)
"""
pytestmark = [pytest.mark.conformance, pytest.mark.dralab(runtime="process")]


def answer_to(request):
    """What a server answers; nothing while it is too busy."""
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code != HTTPStatus.SERVICE_UNAVAILABLE:
            raise
        return None


class Server:
    """Prefect's API, as far as it is asked here."""

    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}/api"

    def ask(self, method, path, body=None):
        request = urllib.request.Request(
            f"{self.url}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        return until(lambda: answer_to(request))

    def has(self, path):
        """Whether it answers, and has that."""
        try:
            return self.ask("GET", path)
        except urllib.error.URLError:  # nothing listens yet, or it has no such thing
            return False

    def run(self, flow, folder, command, n):
        """Start a flow with the worker's defaults but for the command; return the run's id."""
        made = self.ask("POST", "/flows/", {"name": flow})
        deployment = {
            "name": flow,
            "flow_id": made["id"],
            "work_pool_name": POOL,
            "entrypoint": f"flows.py:{flow}",
            "path": str(folder),
            "job_variables": {"image": "prefect", "command": command},
        }
        made = self.ask("POST", "/deployments/", deployment)
        path = f"/deployments/{made['id']}/create_flow_run"
        return self.ask("POST", path, {"parameters": {"n": n}})["id"]

    def state(self, run):
        return self.ask("GET", f"/flow_runs/{run}")["state"]

    def events(self, run):
        """What the observer reported about the pods of a run."""
        told = {
            "event": {"prefix": ["prefect.kubernetes.pod."]},
            "related": {"id": [f"prefect.flow-run.{run}"]},
        }
        found = self.ask("POST", "/events/filter", {"filter": told})["events"]
        return {each["event"].rpartition(".")[2] for each in found}


@pytest.fixture
def prefect(running_cluster, start, installed, tmp_path):
    """A server and a worker of Prefect; its command for a run."""
    program = installed(*PACKAGES) / "prefect"
    (tmp_path / "flows.py").write_text(FLOWS)
    port = free_port()
    server = Server(port)
    settings = {
        "PREFECT_API_URL": server.url,
        "PREFECT_HOME": str(tmp_path / "home"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    }
    start(program, "server", "start", "--host=127.0.0.1", f"--port={port}", "--no-ui", **settings)
    until(lambda: server.has("/health"))
    start(program, "worker", "start", "--type=kubernetes", f"--pool={POOL}", **settings)
    until(lambda: server.has(f"/work_pools/{POOL}"))  # which the worker makes
    return server, f"{program} flow-run execute"


def test_flows_run_as_jobs_and_prefect_hears_how_they_ended(prefect, client, tmp_path):
    server, command = prefect
    done = server.run("sums", tmp_path, command, n=4)
    until(lambda: server.state(done)["type"] == "COMPLETED")
    [job] = client.list(JOBS, NAMESPACE).items
    assert job["metadata"]["labels"]["prefect.io/flow-run-id"] == done
    until(lambda: client.get(JOBS, job["metadata"]["name"], NAMESPACE)["status"].get("succeeded"))
    until(lambda: {"pending", "running", "succeeded"} <= server.events(done))
    # The Job of a run that goes on is deleted: its observer notices.
    lost = server.run("waits", tmp_path, command, n=3600)
    until(lambda: server.state(lost)["type"] == "RUNNING")
    [doomed] = names(client, JOBS) - {job["metadata"]["name"]}
    client.delete(JOBS, doomed, NAMESPACE)
    state = until(lambda: (found := server.state(lost))["type"] == "CRASHED" and found)
    assert state["message"] == "Kubernetes job was deleted"
