"""A cluster with the classic fake driver, each part a process of its own; some are killed."""

import sys

import pytest
import yaml
from click.testing import CliRunner

from dralab.cli.main import main
from dralab.drivers.fake.demo import DRIVER, children, parents
from dralab.runtime.client import Resource
from dralab.runtime.resources import (
    ALLOCATION_STATES,
    CLASSIC_CLAIMS,
    NAMED_SLICES,
    NAMESPACES,
    PODS,
)
from fakelab import EXAMPLES
from processes import Processes

pytestmark = pytest.mark.conformance
NODE = "fake-dra-driver-cluster-worker"
CLASS = yaml.safe_load("""
apiVersion: resource.k8s.io/v1alpha2
kind: ResourceClass
metadata: {name: fake.3-shake.com}
driverName: fake.resource.3-shake.com
""")
MANIFESTS = {
    "test5": EXAMPLES / "50-fake-driver/fake-test5.yaml",
    "test7": EXAMPLES / "53-fake-driver-structured/fake-test7.yaml",
}


@pytest.fixture
def lab():
    pytest.importorskip("grpc", reason="the extra dralab[grpc] is not installed")
    with Processes("--api", "v1,classic", "--without", "scheduler,controllers") as running:
        command = [sys.executable, "-m", "dralab", "scheduler", "--kubeconfig", running.kubeconfig]
        running.run("scheduler", command)
        running.dralab("controllers", "controllers")
        create(
            running.client,
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fake-system"}},
        )
        create(running.client, CLASS)
        running.node(NODE)
        controller(running)
        plugin(running)
        running.until(lambda: running.client.list(NAMED_SLICES).items, "plugin")
        yield running


def create(client, *objects):
    for obj in objects:
        group, _, version = obj["apiVersion"].rpartition("/")
        plural = obj["kind"].lower()
        plural += "" if plural.endswith("parameters") else "es" if plural.endswith("s") else "s"
        namespace = obj["metadata"].get("namespace", "")
        client.create(Resource(group, version, plural, bool(namespace)), obj, namespace)


def controller(lab):
    lab.dralab("controller", "driver", "classic", "controller")


def plugin(lab):
    lab.dralab("plugin", "driver", "classic", "plugin", "--node", NODE, *lab.shared)


def phase(lab, namespace):
    found = lab.client.get(PODS, "pod0", namespace)
    return (found.get("status") or {}).get("phase")


def devices(lab, namespace):
    (log,) = (lab.root / "k" / "logs").glob(f"{namespace}_pod0_*/ctr0/0.log")
    lines = [line.split(" ", 3)[3] for line in log.read_text().splitlines()]
    found = dict(line.removeprefix("export ").split("=", 1) for line in lines if "DEVICE_" in line)
    return [found[f"FAKE_DEVICE_{number}"].strip("'") for number in range(len(found))]


@pytest.mark.parametrize("namespace", MANIFESTS)
@pytest.mark.parametrize("killed", ["plugin", "controller", "node"])
def test_a_pod_outlives_the_kill_of_any_part_and_everything_comes_back(lab, namespace, killed):
    create(lab.client, *filter(None, yaml.safe_load_all(MANIFESTS[namespace].read_text())))
    lab.until(lambda: phase(lab, namespace) == "Running")
    wanted = [child for parent in parents(NODE)[:4] for child in children(parent, 2)]
    lab.until(lambda: devices(lab, namespace) == wanted)
    lab.kill(killed)
    {"plugin": plugin, "controller": controller, "node": lambda it: it.node(NODE)}[killed](lab)
    assert phase(lab, namespace) == "Running"
    lab.client.delete(NAMESPACES, namespace)

    def clean():
        state = lab.client.get(ALLOCATION_STATES, NODE, "fake-system")
        return set(state["spec"]) == {"allocatableDevice"} and state["status"] == "Ready"

    lab.until(clean, killed)
    lab.until(lambda: not lab.client.list(CLASSIC_CLAIMS).items)
    lab.until(lambda: not lab.cdi())
    (left,) = lab.until(offered_in_full(lab))
    assert left["driverName"] == DRIVER


def offered_in_full(lab):
    def found():
        slices = lab.client.list(NAMED_SLICES).items
        whole = [len(each["namedResources"]["instances"]) == 8 for each in slices]
        return slices if whole == [True] else None

    return found


def test_a_node_is_said_not_to_be_ready_before_its_plugin_is_there():
    with Processes("--api", "v1,classic") as lab:
        metadata = {"name": "fake-system"}
        create(lab.client, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        lab.node(NODE)
        command = ["dralab", "driver", "classic", "set-nas-status", "--node", NODE]
        for status, said in [("notready", "NotReady"), ("Ready", "Ready")]:
            words = [*command[1:], "--status", status, "--kubeconfig", str(lab.kubeconfig)]
            done = CliRunner().invoke(main, words)
            assert done.exit_code == 0, done.output
            state = lab.client.get(ALLOCATION_STATES, NODE, "fake-system")
            assert state["status"] == said
        assert state["metadata"]["ownerReferences"][0]["name"] == NODE
