"""Argo Workflows: steps are pods, whose processes run and hand on what they say.

The published module lacks a file of Argo's executor, so that does not build. A program of the test
stands for it: the init container, what starts a step's command, and what reports its result.
"""

import sys
import tempfile
from pathlib import Path

import pytest

from dralab.cluster import Cluster, Options
from dralab.components.control_plane import ControlPlane
from dralab.components.nodes import PROCESS, NodeOptions, Nodes
from dralab.node import mount_namespaces
from dralab.runtime.client import Resource
from dralab.runtime.resources import CONFIG_MAPS, NAMESPACES
from operatorlab import NAMESPACE, kustomized
from waiting import until

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(
        sys.platform != "linux" or bool(mount_namespaces.problem()),
        reason="containers that are processes can't have mount namespaces here",
    ),
]
EXECUTOR = "quay.io/argoproj/argoexec"
WORKFLOWS = Resource("argoproj.io", "v1alpha1", "workflows")
SETTINGS = {
    "metadata": {"name": "workflow-controller-configmap"},
    "data": {"metricsConfig": "{enabled: false}"},
}


EXECUTOR_PROGRAM = """#!{python}
import json, os, pathlib, shutil, ssl, subprocess, sys, time, urllib.request

shared = pathlib.Path("/var/run/argo")
ended, said = shared / "exitcode", shared / "stdout"


def init():
    shutil.copy(sys.argv[0], shared / "argoexec")
    template = json.loads(os.environ["ARGO_TEMPLATE"])
    pathlib.Path("/argo/staging/script").write_text(template["script"]["source"])


def emissary():
    command = sys.argv[sys.argv.index("--") + 1 :]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    sys.stdout.write(done.stdout)
    said.write_text(done.stdout.strip())
    ended.write_text(str(done.returncode))
    sys.exit(done.returncode)


def wait():
    while not (ended.exists() and ended.read_text()):
        time.sleep(0.05)
    account = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
    namespace = (account / "namespace").read_text()
    labels = {{
        "workflows.argoproj.io/workflow": os.environ["ARGO_WORKFLOW_NAME"],
        "workflows.argoproj.io/report-outputs-completed": "true",
    }}
    result = {{
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "WorkflowTaskResult",
        "metadata": {{"name": os.environ["ARGO_NODE_ID"], "labels": labels}},
        "outputs": {{"result": said.read_text(), "exitCode": ended.read_text()}},
    }}
    server = "https://{{KUBERNETES_SERVICE_HOST}}:{{KUBERNETES_SERVICE_PORT}}".format(**os.environ)
    request = urllib.request.Request(
        f"{{server}}/apis/argoproj.io/v1alpha1/namespaces/{{namespace}}/workflowtaskresults",
        json.dumps(result).encode(),
        {{
            "Content-Type": "application/json",
            "Authorization": "Bearer " + (account / "token").read_text(),
        }},
    )
    trusting = ssl.create_default_context(cafile=account / "ca.crt")
    urllib.request.urlopen(request, context=trusting)


{{"init": init, "emissary": emissary, "wait": wait}}[sys.argv[1]]()
"""


@pytest.fixture
def image():
    """The folder of the executor: not below /tmp, where the container `wait` has a volume."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        executor = Path(folder, "argoexec")
        executor.write_text(EXECUTOR_PROGRAM.format(python=sys.executable))
        executor.chmod(0o755)
        yield folder


@pytest.fixture
def cluster(image, tmp_path):
    """A node whose containers find the executor in its image."""
    images = {EXECUTOR: [f"{image}/"]}
    wanted = NodeOptions(
        nodes=1, runtime=PROCESS, root=tmp_path / "nodes", namespaces=True, images=images
    )
    options = Options(tls=True, own_objects=True, mount_tokens=True)
    with Cluster(options, components=[ControlPlane(), Nodes(wanted)]) as found:
        yield found


@pytest.fixture
def kubeconfig(cluster):
    return cluster.kubeconfig


@pytest.fixture
def controller(cluster, apply, start, operator, kubectl):
    """Argo's controller, with its definitions."""
    sources, program = operator("workflow-controller")
    apply(kustomized(kubectl, sources / "manifests/base/crds/minimal"))
    cluster.client.create(NAMESPACES, {"metadata": {"name": "argo"}})
    cluster.client.create(CONFIG_MAPS, SETTINGS, "argo")
    image = f"--executor-image={EXECUTOR}:v3.7.4"
    start(program, "--namespace=argo", image, LEADER_ELECTION_DISABLE="true")


def script(name, source, **more):
    return {"name": name, "script": {"image": "box", "command": ["sh"], "source": source}, **more}


def run(cluster, name, *templates, **spec):
    """Run a workflow to its end; return its status."""
    spec = {"entrypoint": "main", "templates": [*templates], **spec}
    cluster.client.create(WORKFLOWS, {"metadata": {"name": name}, "spec": spec}, NAMESPACE)

    def status():
        return cluster.client.get(WORKFLOWS, name, NAMESPACE).get("status") or {}

    until(lambda: status().get("finishedAt"))
    return status()


def results(status):
    """What the steps of a workflow said, by their names."""
    nodes = status["nodes"].values()
    return {node["displayName"]: node.get("outputs", {}).get("result") for node in nodes}


def test_a_workflow_hands_on_results_and_succeeds(cluster, controller):
    number = {"parameters": [{"name": "number"}]}
    doubled = "echo $(({{inputs.parameters.number}} * 2))"
    drawn = {"parameters": [{"name": "number", "value": "{{tasks.draw.outputs.result}}"}]}
    each = {"parameters": [{"name": "number", "value": "{{item}}"}]}
    tasks = [
        {"name": "draw", "template": "draw"},
        {"name": "double", "template": "double", "depends": "draw", "arguments": drawn},
        {"name": "all", "template": "double", "withItems": [1, 2], "arguments": each},
    ]
    status = run(
        cluster,
        "sums",
        {"name": "main", "dag": {"tasks": tasks}},
        script("draw", "echo 21"),
        script("double", doubled, inputs=number),
    )
    assert status["phase"] == "Succeeded", status
    said = results(status)
    assert {name: said[name] for name in ("draw", "double", "all(0:1)", "all(1:2)")} == {
        "draw": "21",
        "double": "42",
        "all(0:1)": "2",
        "all(1:2)": "4",
    }


def test_a_step_that_fails_is_tried_again_and_fails_the_workflow(cluster, controller):
    status = run(
        cluster,
        "fails",
        script("main", "echo try; exit 3", retryStrategy={"limit": "1"}),
        script("farewell", "echo {{workflow.status}}"),
        onExit="farewell",
    )
    assert status["phase"] == "Failed"
    tries = [node for node in status["nodes"].values() if node["displayName"].startswith("fails(")]
    assert [node["outputs"]["exitCode"] for node in tries] == ["3", "3"]
    assert results(status)["fails.onExit"] == "Failed"
