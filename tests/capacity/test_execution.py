"""Plans carried out in a cluster: server, scheduler and controllers, on simulated time."""

from dataclasses import replace

import pytest

from builders import DRIVER, device, device_class, obj, pool, request, worker
from dralab.api.status import ApiError
from dralab.capacity.defragment import defragment
from dralab.capacity.execution import Consent, Execution
from dralab.capacity.move_costs import MoveCosts
from dralab.capacity.steps import MoveStep, StartStep, steps
from dralab.components.simulated import SimulatedCluster
from dralab.objects.metadata import spec_of
from dralab.runtime.reading import read_cluster
from dralab.runtime.resources import (
    CLAIM_TEMPLATES,
    CLASSES,
    DISRUPTION_BUDGETS,
    NODES,
    PODS,
    REPLICA_SETS,
    SLICES,
)
from dralab.scheduling.model import ClusterModel

GPU = device_class("gpu", f'device.driver == "{DRIVER}"')


class Cluster(SimulatedCluster):
    """Nodes of GPUs, whose kubelets are played."""

    def __init__(self, **gpus):
        super().__init__()
        self.told = []
        self.files = {}
        self.allowed = Consent()
        self.client.create(CLASSES, GPU)
        for name, count in gpus.items():
            self.client.create(NODES, worker(name))
            self.client.patch(NODES, name, {"spec": {"taints": None}})
            self.client.patch(NODES, name, {"status": worker(name)["status"]}, subresource="status")
            for item in pool(name, *(device(f"gpu-{n}") for n in range(count)), node=name):
                self.client.create(SLICES, item)
        self.settle()

    def template(self, name, count):
        spec = {"spec": {"devices": {"requests": [request("gpus", "gpu", count=count)]}}}
        wire = obj("ResourceClaimTemplate", name, namespace="default", api="resource.k8s.io/v1")
        self.client.create(CLAIM_TEMPLATES, wire | {"spec": spec}, "default")

    def pod_spec(self, name, gpus):
        self.template(name, gpus)
        claims = [{"name": "gpus", "resourceClaimTemplateName": name}]
        container = {"name": "c", "image": "i", "resources": {"claims": [{"name": "gpus"}]}}
        return {"containers": [container], "resourceClaims": claims}

    def bare(self, name, gpus, **more):
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
        self.client.create(PODS, made | {"spec": self.pod_spec(name, gpus) | more}, "default")
        self.pass_time(3)

    def replica_set(self, name, gpus, node):
        """One pod of a ReplicaSet, on a node that all others are closed for."""
        labels = {"app": name}
        self.others(node, closed=True)
        spec = {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": self.pod_spec(name, gpus),
            },
        }
        wire = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}}
        self.client.create(REPLICA_SETS, wire | {"spec": spec}, "default")
        self.pass_time(5)
        self.others(node, closed=False)

    def others(self, node, *, closed):
        for item in self.client.list(NODES).items:
            name = item["metadata"]["name"]
            if name != node:
                self.client.patch(NODES, name, {"spec": {"unschedulable": closed or None}})

    def pass_time(self, seconds):
        """Let time pass; kubelets run what is bound, and end what is deleted."""
        for _ in range(max(1, int(seconds))):
            self.wait(1)
            for item in self.client.list(PODS).items:
                name, namespace = item["metadata"]["name"], item["metadata"]["namespace"]
                if "deletionTimestamp" in item["metadata"]:
                    now = {"gracePeriodSeconds": 0}
                    self.client.delete(PODS, name, namespace, options=now)
                elif spec_of(item).get("nodeName") and item["status"]["phase"] == "Pending":
                    ready = {"type": "Ready", "status": "True"}
                    status = {"phase": "Running", "conditions": [ready]}
                    patch = {"status": status}
                    self.client.patch(
                        PODS, name, patch, namespace, type="strategic", subresource="status"
                    )

    def model(self):
        return ClusterModel(read_cluster(self.client))

    def plan(self):
        model = self.model()
        found = defragment(model, model.waiting, MoveCosts(model))
        assert not found.unserved
        return list(steps(model, found))

    def execution(self, **more):
        given = {
            "client": self.client,
            "clock": self.engine.clock,
            "pause": self.pass_time,
            "tell": self.told.append,
            "keep": self.keep,
            "dropped": self.files.pop,
            "reread": self.model,
            "timeout": 60,
        }
        return Execution(**(given | more))

    def keep(self, pod):
        file = f"{pod['metadata']['name']}.json"
        self.files[file] = pod
        return file

    def node_of(self, prefix):
        found = [
            p for p in self.client.list(PODS).items if p["metadata"]["name"].startswith(prefix)
        ]
        assert len(found) == 1
        return spec_of(found[0]).get("nodeName")

    def cordoned(self):
        return [
            node["metadata"]["name"]
            for node in self.client.list(NODES).items
            if spec_of(node).get("unschedulable")
        ]


@pytest.fixture
def crowded():
    """`train` wants both GPUs of a node; `serve` has one of a, `batch` one of b."""
    cluster = Cluster(a=2, b=2)
    cluster.replica_set("serve", 1, "a")
    cluster.replica_set("batch", 1, "b")
    cluster.bare("train", 2)
    assert not cluster.node_of("train")
    return cluster


def test_the_pod_moves_and_the_waiting_one_starts(crowded):
    plan = crowded.plan()
    assert crowded.execution().run(plan) is None
    origin, target = plan[0].move.origin.node, plan[0].move.placement.node
    moved = plan[0].move.pod.key.name
    assert crowded.node_of("train") == origin
    assert crowded.node_of(moved.partition("-")[0]) == target
    assert not crowded.cordoned()
    assert crowded.told[:2] == [f"node/{origin} cordoned", f"pod/{moved} evicted"]
    assert crowded.told[-2:] == [f"node/{origin} uncordoned", f"pod/train scheduled to {origin}"]


def test_a_budget_that_refuses_stops_the_plan_and_leaves_no_node_cordoned(crowded):
    plan = crowded.plan()
    labels = plan[0].move.pod.obj["metadata"]["labels"]
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": labels["app"]}}}
    budget = obj("PodDisruptionBudget", "firm", namespace="default", api="policy/v1", spec=spec)
    crowded.client.create(DISRUPTION_BUDGETS, budget, "default")
    crowded.pass_time(3)
    stop = crowded.execution().run(plan)
    assert stop.moved == 0
    assert "violate the pod's disruption budget" in stop.why
    assert "firm needs 1 healthy pods and has 1" in stop.why
    assert not crowded.cordoned()
    assert crowded.node_of(labels["app"]) == plan[0].move.origin.node


def test_a_budget_that_is_behind_is_asked_again(crowded):
    plan = crowded.plan()
    post, refusals = crowded.client.post, iter([1, 1])

    def slow(resource, name, subresource, body, namespace=""):
        if subresource == "eviction" and next(refusals, None):
            raise ApiError("TooManyRequests", "Cannot evict pod")
        return post(resource, name, subresource, body, namespace)

    crowded.client.post = slow
    assert crowded.execution().run(plan) is None


def test_a_pod_that_comes_back_elsewhere_stops_the_plan(crowded):
    plan = crowded.plan()
    target = plan[0].move.placement.node
    late = Cluster.pass_time

    def pass_time(seconds):
        # Someone adds a node that the scheduler likes better.
        if not any(n["metadata"]["name"] == "c" for n in crowded.client.list(NODES).items):
            crowded.client.create(NODES, worker("c"))
            crowded.client.patch(NODES, "c", {"spec": {"taints": None}})
            status = {"status": worker("c")["status"]}
            crowded.client.patch(NODES, "c", status, subresource="status")
            for item in pool("c", device("gpu-0"), node="c"):
                crowded.client.create(SLICES, item)
            crowded.client.patch(NODES, target, {"spec": {"unschedulable": True}})
        late(crowded, seconds)

    stop = crowded.execution(pause=pass_time).run(plan)
    assert stop is not None
    assert f"came back on c, the plan needs it on {target}" in stop.why
    assert crowded.cordoned() == [target]  # by someone else
    assert stop.moved == 0


def test_a_pod_that_moved_meanwhile_is_left_alone(crowded):
    plan = crowded.plan()
    moved = plan[0].move.pod.key
    crowded.client.delete(PODS, moved.name, "default")
    crowded.pass_time(3)
    stop = crowded.execution().run(plan)
    assert "not found" in stop.why
    assert not crowded.told


def test_a_pod_that_lost_its_controller_is_not_evicted(crowded):
    plan = crowded.plan()
    moved = plan[0].move.pod.key
    crowded.client.patch(PODS, moved.name, {"metadata": {"ownerReferences": None}}, "default")
    stop = crowded.execution().run(plan)
    assert "another controller than in the plan, or none" in stop.why
    assert not crowded.told


def test_a_controller_that_makes_no_pod_is_named(crowded):
    plan = crowded.plan()
    name = plan[0].move.pod.key.name.partition("-")[0]
    crowded.client.patch(REPLICA_SETS, name, {"spec": {"replicas": 0}}, "default")
    stop = crowded.execution(timeout=5).run(plan)
    assert "not found" in stop.why or f"ReplicaSet {name} makes no pod in place" in stop.why
    assert not crowded.cordoned()


def test_a_pod_without_a_controller_needs_consent_and_is_created_again():
    cluster = Cluster(a=2, b=1)
    cluster.others("a", closed=True)
    cluster.bare("notebook", 1, volumes=[{"name": "scratch", "emptyDir": {}}])
    cluster.others("a", closed=False)
    cluster.bare("train", 2)
    plan = cluster.plan()
    execution = cluster.execution()
    objections = execution.objections(plan, Consent())
    assert [text.partition(" has ")[0] for text in objections] == ["pod default/notebook"] * 2
    assert "--force" in objections[0]
    assert "--delete-emptydir-data" in objections[1]
    assert not execution.objections(plan, Consent(force=True, delete_emptydir_data=True))
    assert execution.run(plan) is None
    assert cluster.node_of("notebook") == "b"
    assert cluster.node_of("train") == "a"
    assert not cluster.files
    assert not cluster.cordoned()


def test_a_pod_that_cannot_be_created_again_is_kept_in_a_file():
    cluster = Cluster(a=2, b=1)
    cluster.others("a", closed=True)
    cluster.bare("notebook", 1)
    cluster.others("a", closed=False)
    cluster.bare("train", 2)
    plan = cluster.plan()
    create = cluster.client.create

    def refuses(resource, body, namespace=""):
        if resource == PODS:
            raise ApiError("Forbidden", "no more pods here")
        return create(resource, body, namespace)

    cluster.client.create = refuses
    stop = cluster.execution().run(plan)
    assert "cannot be created again: no more pods here; its spec is in notebook.json" in stop.why
    assert list(cluster.files) == ["notebook.json"]
    assert "nodeName" not in cluster.files["notebook.json"]["spec"]


@pytest.fixture
def two_moves():
    """`train` wants all three GPUs of a, where `x` and `y` have one each."""
    cluster = Cluster(a=3, b=1, c=1)
    cluster.replica_set("x", 1, "a")
    cluster.replica_set("y", 1, "a")
    cluster.bare("train", 3)
    plan = cluster.plan()
    assert [type(each) for each in plan] == [MoveStep, MoveStep, StartStep]
    # As if the scheduler had chosen other devices than the plan.
    first = plan[0].move
    other = replace(first, placement=first.placement._replace(plans=()))
    return cluster, [replace(plan[0], move=other), *plan[1:]]


def test_other_devices_than_planned_do_no_harm_where_the_rest_still_works(two_moves):
    cluster, plan = two_moves
    read = []
    execution = cluster.execution(reread=lambda: read.append(1) or cluster.model())
    assert execution.run(plan) is None
    assert read == [1]
    assert cluster.node_of("train") == "a"


def test_other_devices_than_planned_stop_a_plan_that_no_longer_works(two_moves):
    cluster, plan = two_moves
    left = plan[1].move.placement.node

    def without_room():
        objects = read_cluster(cluster.client)
        return ClusterModel(
            item
            for item in objects
            if item["kind"] != "ResourceSlice" or item["spec"]["nodeName"] != left
        )

    stop = cluster.execution(reread=without_room).run(plan)
    assert stop.moved == 1
    assert "chose other devices than the plan" in stop.why
    assert f"would not fit on {left}" in stop.why
    assert not cluster.cordoned()
