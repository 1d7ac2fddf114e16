"""The same manifests under the stock kube-scheduler and kube-controller-manager, and under ours.

Server, nodes and drivers are ours both times. At the end the same pods run, their containers are
told of the same devices, and when all is deleted nothing is left.
"""

import re
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import yaml

import exampledriver
import stockparts
from dralab.api.status import ApiError
from dralab.cluster import Cluster
from dralab.components.control_plane import CONTROLLERS, SCHEDULER, ControlPlane
from dralab.components.nodes import NodeOptions, Nodes
from dralab.drivers import catalog
from dralab.drivers.catalog import device_class
from dralab.drivers.fake.gpu import FakeGpus
from dralab.objects.pods import is_ready
from dralab.runtime.resources import (
    CLAIMS,
    CLASSES,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    STATEFUL_SETS,
)
from exampledriver import SHARED
from labs import create_all
from processes import Processes
from readydevices import ReadyDevices

EXAMPLES = SHARED / "dra-example-driver" / "examples"
HERE = Path(__file__).parent
OURS = HERE.parents[1] / "examples" / "51-fake-driver-today"
# What the shells bash and sh say of a variable.
TOLD = re.compile(r"""^(?:declare -x|export) (\w+_DEVICE_\w+)=["'](.*)["']$""", re.MULTILINE)
PATIENCE = 120
EXTENDED = "example.com/gpu"

pytestmark = [
    pytest.mark.conformance,
    stockparts.needs(stockparts.SCHEDULER, stockparts.MANAGER),
]


class Lab:
    """A cluster with live nodes and drivers; the parts that decide are ours, or stock."""

    def __init__(self, folder, *, stock, nodes=3, drivers=("gpu", "nic", "cpu")):
        self.stock, self.folder, self.stack = stock, folder, ExitStack()
        self.nodes = Nodes(NodeOptions(nodes=nodes, drivers=drivers))

    def __enter__(self):
        without = (SCHEDULER, CONTROLLERS) if self.stock else ()
        cluster = Cluster(components=[ControlPlane(without=without), self.nodes])
        self.cluster = self.stack.enter_context(cluster)
        self.client = self.cluster.client
        if self.stock:
            place = self.cluster.kubeconfig, self.folder
            for start in (stockparts.scheduler, stockparts.controller_manager):
                self.stack.enter_context(start(*place, gates=stockparts.GATES))
        self.until(lambda: all(map(is_ready, self.client.list(NODES).items)))
        (found,) = self.until(lambda: self.client.list(CLASSES).items[:1])
        spec = {"spec": {"extendedResourceName": EXTENDED}}
        self.client.patch(CLASSES, found["metadata"]["name"], spec)
        return self

    def __exit__(self, *error):
        self.stack.__exit__(*error)

    def there(self, resource, name, namespace=""):
        try:
            return self.client.get(resource, name, namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    def until(self, holds, about=lambda: "it never came to be"):
        end = time.monotonic() + PATIENCE
        while not (found := holds()):
            if time.monotonic() > end:
                raise AssertionError(about())
            time.sleep(0.1)
        return found

    def create(self, text):
        create_all(self.client, self.cluster.server.resources.kinds, text)

    def pods(self, *namespaces):
        return [pod for each in namespaces for pod in self.client.list(PODS, each).items]

    def settled(self, *namespaces):
        """Wait until every pod is ready or has ended well, and none is being deleted."""

        def states():
            return [
                (pod["metadata"]["name"], pod["status"])
                for pod in self.pods(*namespaces)
                if "deletionTimestamp" in pod["metadata"]
                or not (is_ready(pod) or pod["status"].get("phase") == "Succeeded")
            ]

        self.until(
            lambda: all(self.pods(each) for each in namespaces) and not states(),
            lambda: str(states()),
        )

    def log(self, pod, container):
        found = self.nodes.kubelets.find_container(pod, container)
        return "".join(f"{line}\n" for _, line in found.log.read()[0])

    def picture(self, *namespaces):
        """Return which pods there are, what their containers are told, and which GPUs they share.

        Names that were made up and the numbers of devices are left out.
        """
        phases, told, sharers = Counter(), Counter(), {}
        for pod in self.pods(*namespaces):
            name = (pod["metadata"]["namespace"], _known_as(pod))
            phases[*name, pod["status"]["phase"]] += 1
            for container in pod["spec"]["containers"]:
                here = (*name, container["name"])
                variables = TOLD.findall(self.log(pod, container["name"]))
                names = Counter(re.sub(r"\d+", "#", variable) for variable, _ in variables)
                told[*here, *sorted(names.items())] += 1
                for _, value in variables:
                    if value.startswith(("gpu-", "FAKE-")) and is_ready(pod):
                        # Of pods that run: others get what those had that have ended. Within a
                        # namespace: an administrator's pods see what others have.
                        device = (name[0], pod["spec"]["nodeName"], value)
                        sharers.setdefault(device, []).append(here)
        return phases, told, Counter(tuple(sorted(found)) for found in sharers.values())

    def delete(self, *namespaces):
        """Delete all; wait until nothing is left, neither objects nor what drivers prepared."""
        for each in namespaces:
            self.client.delete(NAMESPACES, each)
        self.until(
            lambda: not any(self.there(NAMESPACES, each) for each in namespaces),
            lambda: str([self.there(NAMESPACES, each) for each in namespaces]),
        )
        for resource in (PODS, CLAIMS, POD_GROUPS):
            assert self.client.list(resource).items == []
        for kubelet in self.nodes.kubelets.nodes.values():
            left = [path for path in kubelet.directory.entries() if "common" not in path]
            assert not left


def _known_as(pod):
    """Return a name of a pod that is the same each time."""
    return pod["metadata"].get("labels", {}).get("app") or pod["metadata"]["name"]


def under_both(folder, act, **options):
    """Return what a demonstration shows under stock parts and under ours, side by side."""

    def shown(stock):
        place = folder / str(stock)
        place.mkdir()
        with Lab(place, stock=stock, **options) as lab:
            return act(lab)

    with ThreadPoolExecutor() as both:
        return list(both.map(shown, (True, False)))


def demonstrate(*manifests):
    """Return what applies manifests, looks at what comes of them, and deletes it."""

    def act(lab):
        texts = [path.read_text() for path in manifests]
        names = [
            obj["metadata"]["name"]
            for text in texts
            for obj in yaml.safe_load_all(text)
            if obj and obj["kind"] == "Namespace"
        ]
        for text in texts:
            lab.create(text)
        lab.settled(*names)
        found = lab.picture(*names)
        lab.delete(*names)
        return found

    return act


WHOLE = [
    "admin-access",
    "basic-multiple-requests",
    "basic-resourceclaim-opaque-config",
    "basic-resourceclaimtemplate",
    "basic-shared-claim-across-containers",
    "basic-shared-claim-across-pods",
    "cel-selector",
    "extended-resource-request",
    "initcontainer-shared-gpu",
    "native-resource-request",
    "net-consumable-capacity",
    "prioritized-alternatives",
]
# On how many nodes which cards are there for which demonstrations. Where claims may share a card,
# two nodes would leave it to chance whether they do; and kube-scheduler 1.36.2 may put a member of
# a group on another node than the device of the group's claim (an alpha feature there).
CARDS = {
    "whole": (3, {}, WHOLE),
    "groups": (1, {}, ["podgroup-resourceclaimtemplate"]),
    "partitioned": (1, {"partitions": 4}, ["partitionable-devices"]),
    "shared": (1, {"shared": True}, ["gpu-allow-multiple-allocations"]),
    "shared parts": (
        1,
        {"shared": True, "partitions": 4},
        ["gpu-allow-multiple-allocations-partitionable"],
    ),
}


def theirs(name):
    return EXAMPLES / name / f"{name}.yaml"


with_theirs = pytest.mark.skipif(
    not EXAMPLES.is_dir(), reason="the example driver's demos are not beside this checkout"
)


@with_theirs
@pytest.mark.parametrize("cards", CARDS)
def test_the_example_drivers_demonstrations_show_the_same(cards, tmp_path, monkeypatch):
    nodes, options, names = CARDS[cards]
    monkeypatch.setitem(catalog.DRIVERS, "gpu", partial(FakeGpus, **options))
    stock, ours = under_both(tmp_path, demonstrate(*map(theirs, names)), nodes=nodes)
    assert stock == ours
    phases, told, _ = ours
    assert {key[-1] for key in phases} == {"Running"}
    assert all(len(key) > 3 for key in told), "every container is told of a device"


@pytest.mark.parametrize("numbers", [(1, 2, 3, 4), (5,), (6,)])
def test_the_fake_drivers_demonstrations_show_the_same(numbers, tmp_path):
    act = demonstrate(*(OURS / f"fake-test{number}.yaml" for number in numbers))
    stock, ours = under_both(tmp_path, act, nodes=1, drivers=("fake",))
    assert stock == ours
    phases, told, _ = ours
    assert {key[-1] for key in phases} == {"Running"}
    assert all(len(key) > 3 for key in told), "every container is told of a device"


@with_theirs
def test_a_pod_waits_until_its_device_is_ready(tmp_path, monkeypatch):
    monkeypatch.setitem(catalog.DRIVERS, "gpu", partial(FakeGpus, binding=True))
    name = "binding-conditions"

    def act(lab):
        lab.create(theirs(name).read_text())
        lab.until(lambda: _allocated(lab, name))
        (pod,) = lab.pods(name)
        assert "nodeName" not in pod["spec"]
        manager = lab.nodes.manager
        lab.nodes.engine.soon(lambda: ReadyDevices(manager, exampledriver.NAME))
        lab.settled(name)
        found = lab.picture(name)
        lab.delete(name)
        return found

    stock, ours = under_both(tmp_path, act, nodes=1)
    assert stock == ours


def _allocated(lab, namespace):
    return [c for c in lab.client.list(CLAIMS, namespace).items if "allocation" in c["status"]]


def test_what_controllers_make_changes_and_goes_is_the_same(tmp_path):
    manifest = (HERE / "workloads.yaml").read_text()

    def act(lab):
        found = []
        lab.create(manifest)
        for change in (None, _more, _roll):
            if change is not None:
                change(lab)
            lab.until(lambda: _as_wanted(lab), lambda: str(lab.pods("workloads")))
            lab.settled("workloads")
            found.append(lab.picture("workloads"))
            found.append(_claims(lab))
        lab.delete("workloads")
        return found

    stock, ours = under_both(tmp_path, act)
    assert stock == ours
    first, claims, *_ = ours
    assert first[0] == {
        ("workloads", "web", "Running"): 3,
        ("workloads", "store", "Running"): 2,
        ("workloads", "agent", "Running"): 3,
        ("workloads", "train", "Succeeded"): 4,
        ("workloads", "alone", "Running"): 1,
    }
    assert claims == {"pod": 8, "": 1}, "those of the job are gone"


def _more(lab):
    lab.client.patch(STATEFUL_SETS, "store", {"spec": {"replicas": 4}}, "workloads")
    lab.client.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 1}}, "workloads")


def _roll(lab):
    template = {"metadata": {"annotations": {"change": "this"}}}
    for resource, name in ((DEPLOYMENTS, "web"), (STATEFUL_SETS, "store")):
        lab.client.patch(resource, name, {"spec": {"template": template}}, "workloads")


def _as_wanted(lab):
    """Tell whether each workload says that it is what its spec wants."""
    web = lab.client.get(DEPLOYMENTS, "web", "workloads")
    store = lab.client.get(STATEFUL_SETS, "store", "workloads")
    wants = {
        "replicas": web["spec"]["replicas"],
        "updatedReplicas": web["spec"]["replicas"],
        "availableReplicas": web["spec"]["replicas"],
        "observedGeneration": web["metadata"]["generation"],
    }
    return (
        wants.items() <= web["status"].items()
        and store["status"].get("observedGeneration") == store["metadata"]["generation"]
        and store["status"].get("updateRevision") == store["status"].get("currentRevision")
        and store["status"].get("availableReplicas") == store["spec"]["replicas"]
        and lab.client.get(JOBS, "train", "workloads")["status"].get("succeeded") == 4
    )


def _claims(lab):
    """Return how many claims belong to what kind of object."""
    return Counter(
        next((owner["kind"].lower() for owner in claim["metadata"].get("ownerReferences", ())), "")
        for claim in lab.client.list(CLAIMS, "workloads").items
    )


@pytest.mark.parametrize("driver", ["ours", "the example driver"])
def test_every_part_is_a_process_of_its_own(driver, tmp_path):
    pytest.importorskip("grpc", reason="the extra dralab[grpc] is not installed")
    if driver != "ours" and exampledriver.BINARY is None:
        pytest.skip(exampledriver.MISSING)
    with Processes("--without", "scheduler,controllers") as lab, ExitStack() as stack:
        for start in (stockparts.scheduler, stockparts.controller_manager):
            stack.enter_context(start(lab.kubeconfig, tmp_path))
        lab.node("n1")
        if driver == "ours":
            lab.driver("gpu", "n1")
        else:
            lab.client.create(CLASSES, device_class(exampledriver.NAME))
            exampledriver.start(lab, "n1")
        lab.create_pod()
        lab.until(lambda: lab.phase() == "Running")
        (claim,) = lab.client.list(CLAIMS).items
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        number = result["device"].removeprefix("gpu-")
        seen = lab.until(lambda: lab.environment().get(f"GPU_DEVICE_{number}"))
        assert seen == result["device"]
        assert len(lab.cdi()) == 1
        lab.client.delete(PODS, "job", "default")
        lab.until(lambda: not lab.client.list(CLAIMS).items)
        lab.until(lambda: not lab.client.list(PODS).items)
        assert lab.cdi() == []
