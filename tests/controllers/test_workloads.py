import json
from collections import Counter

import pytest

from builders import pod
from dralab.api.status import ApiError
from dralab.controllers import registry
from dralab.objects.pods import is_ready
from dralab.runtime.resources import (
    CONTROLLER_REVISIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    EVENTS,
    NODES,
    PODS,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    STATEFUL_SETS,
    VOLUME_CLAIMS,
)
from labs import Lab


@pytest.fixture
def lab():
    """The controllers of workloads; pods are bound by the test's own scheduler of one line."""
    made = Lab()
    for name in (
        "replicaset-controller",
        "deployment-controller",
        "statefulset-controller",
        "daemonset-controller",
        "node-lifecycle-controller",
        "garbage-collector-controller",
    ):
        registry.CONTROLLERS[name](made.manager)
    made.add_node("n0")
    made.start()
    return made


def template(app="web", image="nginx:1"):
    return {
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": "main", "image": image}]},
    }


def workload(kind, name, *, app="web", image="nginx:1", **spec):
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": app}},
            "template": template(app, image),
            **spec,
        },
    }


def run(lab, rounds=4):
    """Scheduler, kubelet and controllers take turns."""
    for _ in range(rounds):
        for obj in lab.all(PODS):
            if not obj["spec"].get("nodeName") and "deletionTimestamp" not in obj["metadata"]:
                node = "n0"
                affinity = obj["spec"].get("affinity")
                if affinity:
                    required = affinity["nodeAffinity"][
                        "requiredDuringSchedulingIgnoredDuringExecution"
                    ]
                    node = required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
                lab.bind(obj["metadata"]["name"], node)
        lab.rounds(1)


class TestReplicaSets:
    def test_missing_pods_are_made_and_surplus_ones_deleted(self, lab):
        [stored] = lab.add(REPLICA_SETS, workload("ReplicaSet", "rs", replicas=3))
        run(lab)
        pods = lab.all(PODS)
        assert len(pods) == 3
        assert all(p["metadata"]["generateName"] == "rs-" for p in pods)
        assert pods[0]["metadata"]["ownerReferences"][0]["uid"] == stored["metadata"]["uid"]
        status = lab.get(REPLICA_SETS, "rs")["status"]
        assert (status["replicas"], status["readyReplicas"], status["availableReplicas"]) == (
            3,
            3,
            3,
        )
        lab.patch(REPLICA_SETS, "rs", {"spec": {"replicas": 1}})
        run(lab)
        assert len(lab.all(PODS)) == 1
        reasons = Counter(event["reason"] for event in lab.all(EVENTS))
        assert reasons["SuccessfulCreate"] == 3
        assert reasons["SuccessfulDelete"] == 2

    def test_a_failed_pod_is_replaced(self, lab):
        lab.add(REPLICA_SETS, workload("ReplicaSet", "rs", replicas=1))
        run(lab)
        [name] = lab.names(PODS)
        lab.end_pod(name, "Failed")
        run(lab)
        assert len(lab.names(PODS)) == 2

    def test_orphans_that_fit_are_adopted_and_strangers_let_go(self, lab):
        lab.add(PODS, pod("orphan", labels={"app": "web"}))
        lab.add(REPLICA_SETS, workload("ReplicaSet", "rs", replicas=2))
        run(lab)
        assert len(lab.all(PODS)) == 2
        assert lab.get(PODS, "orphan")["metadata"]["ownerReferences"][0]["name"] == "rs"
        lab.patch(PODS, "orphan", {"metadata": {"labels": {"app": "other"}}})
        run(lab)
        assert not lab.get(PODS, "orphan")["metadata"].get("ownerReferences")
        assert len(lab.all(PODS)) == 3

    def test_pods_that_are_not_ready_go_first(self, lab):
        lab.add(REPLICA_SETS, workload("ReplicaSet", "rs", replicas=2))
        run(lab)
        lab.patch(REPLICA_SETS, "rs", {"spec": {"replicas": 3}})
        lab.wait(1)
        ready = {p["metadata"]["name"] for p in lab.all(PODS) if p["spec"].get("nodeName")}
        lab.patch(REPLICA_SETS, "rs", {"spec": {"replicas": 2}})
        run(lab)
        assert set(lab.names(PODS)) == ready


class TestDeployments:
    def revision(self, lab, name="web"):
        annotations = lab.get(DEPLOYMENTS, name)["metadata"]["annotations"]
        return annotations["deployment.kubernetes.io/revision"]

    def test_a_deployment_runs_its_pods_and_says_so(self, lab):
        lab.add(DEPLOYMENTS, workload("Deployment", "web", replicas=3))
        run(lab)
        status = lab.get(DEPLOYMENTS, "web")["status"]
        assert (status["replicas"], status["updatedReplicas"], status["availableReplicas"]) == (
            3,
            3,
            3,
        )
        conditions = {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}
        assert conditions == {
            "Available": ("True", "MinimumReplicasAvailable"),
            "Progressing": ("True", "NewReplicaSetAvailable"),
        }
        [replica_set] = lab.all(REPLICA_SETS)
        digest = replica_set["metadata"]["labels"]["pod-template-hash"]
        assert replica_set["metadata"]["name"] == f"web-{digest}"
        assert self.revision(lab) == "1"

    def test_a_rolling_update_never_leaves_its_limits(self, lab):
        limits = {"maxSurge": 1, "maxUnavailable": 1}
        strategy = {"type": "RollingUpdate", "rollingUpdate": limits}
        lab.add(DEPLOYMENTS, workload("Deployment", "web", replicas=4, strategy=strategy))
        run(lab)
        lab.patch(
            DEPLOYMENTS, "web", {"spec": {"template": template(image="nginx:2")}}, type="merge"
        )
        for _ in range(20):
            run(lab, 1)
            alive = [p for p in lab.all(PODS) if "deletionTimestamp" not in p["metadata"]]
            ready = [
                p
                for p in alive
                if any(
                    c["type"] == "Ready" and c["status"] == "True"
                    for c in p["status"].get("conditions", ())
                )
            ]
            assert len(alive) <= 5
            assert len(ready) >= 3
        images = Counter(p["spec"]["containers"][0]["image"] for p in lab.all(PODS))
        assert images == {"nginx:2": 4}
        assert self.revision(lab) == "2"

    def test_recreate_lets_all_old_pods_go_first(self, lab):
        lab.add(
            DEPLOYMENTS,
            workload("Deployment", "web", replicas=2, strategy={"type": "Recreate"}),
        )
        run(lab)
        lab.patch(DEPLOYMENTS, "web", {"spec": {"template": template(image="nginx:2")}})
        lab.wait(1)
        assert all("deletionTimestamp" in p["metadata"] for p in lab.all(PODS))
        run(lab)
        images = Counter(p["spec"]["containers"][0]["image"] for p in lab.all(PODS))
        assert images == {"nginx:2": 2}

    def test_going_back_reuses_the_old_set_under_a_new_revision(self, lab):
        lab.add(DEPLOYMENTS, workload("Deployment", "web", replicas=1))
        run(lab)
        [first] = lab.names(REPLICA_SETS)
        lab.patch(DEPLOYMENTS, "web", {"spec": {"template": template(image="nginx:2")}})
        run(lab)
        lab.patch(DEPLOYMENTS, "web", {"spec": {"template": template(image="nginx:1")}})
        run(lab)
        assert len(lab.names(REPLICA_SETS)) == 2
        assert lab.get(REPLICA_SETS, first)["spec"]["replicas"] == 1
        assert self.revision(lab) == "3"

    def test_old_sets_beyond_the_limit_are_forgotten(self, lab):
        lab.add(DEPLOYMENTS, workload("Deployment", "web", replicas=1, revisionHistoryLimit=1))
        run(lab)
        for number in range(2, 5):
            changed = {"spec": {"template": template(image=f"nginx:{number}")}}
            lab.patch(DEPLOYMENTS, "web", changed)
            run(lab)
        assert len(lab.names(REPLICA_SETS)) == 2

    def test_a_paused_deployment_scales_but_does_not_roll(self, lab):
        lab.add(DEPLOYMENTS, workload("Deployment", "web", replicas=1))
        run(lab)
        changed = {"paused": True, "replicas": 2, "template": template(image="nginx:2")}
        lab.patch(DEPLOYMENTS, "web", {"spec": changed})
        run(lab)
        assert len(lab.names(REPLICA_SETS)) == 1
        assert len(lab.names(PODS)) == 2
        conditions = lab.get(DEPLOYMENTS, "web")["status"]["conditions"]
        progress = next(c for c in conditions if c["type"] == "Progressing")
        assert (progress["status"], progress["reason"]) == ("Unknown", "DeploymentPaused")
        lab.patch(DEPLOYMENTS, "web", {"spec": {"paused": False}})
        run(lab)
        assert self.revision(lab) == "2"

    def test_a_canary_keeps_its_share_when_its_deployment_grows_and_shrinks(self, lab):
        lab.add(DEPLOYMENTS, workload("Deployment", "web", replicas=8))
        run(lab)
        lab.patch(DEPLOYMENTS, "web", {"spec": {"template": template(image="nginx:2")}})
        lab.settle()
        lab.patch(DEPLOYMENTS, "web", {"spec": {"paused": True}})
        run(lab)
        old, new = sorted(lab.all(REPLICA_SETS), key=self.number)
        before = old["spec"]["replicas"], new["spec"]["replicas"]
        assert sum(before) == 10
        for size, most in ((16, 20), (4, 5)):
            lab.patch(DEPLOYMENTS, "web", {"spec": {"replicas": size}})
            run(lab)
            old, new = sorted(lab.all(REPLICA_SETS), key=self.number)
            share = old["spec"]["replicas"], new["spec"]["replicas"]
            assert sum(share) == most
            assert abs(share[0] / most - before[0] / 10) < 0.11

    def number(self, replica_set):
        return int(replica_set["metadata"]["annotations"]["deployment.kubernetes.io/revision"])

    def test_a_set_that_cannot_make_its_pods_is_a_failure_of_its_deployment(self, lab):
        metadata = {"name": "q", "namespace": "default"}
        limit = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata}
        lab.add(RESOURCE_QUOTAS, limit | {"spec": {"hard": {"pods": "1"}}})
        lab.settle()
        lab.add(DEPLOYMENTS, workload("Deployment", "web", replicas=2))
        run(lab)

        def failure():
            found = lab.get(DEPLOYMENTS, "web")["status"]["conditions"]
            return next((c for c in found if c["type"] == "ReplicaFailure"), None)

        assert (failure()["status"], failure()["reason"]) == ("True", "FailedCreate")
        assert "exceeded quota: q" in failure()["message"]
        lab.delete(RESOURCE_QUOTAS, "q")
        lab.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 1}})
        run(lab)
        assert failure() is None

    def test_the_cause_of_a_change_is_told_with_its_revision(self, lab):
        lab.add(DEPLOYMENTS, workload("Deployment", "web", replicas=1))
        run(lab)
        lab.patch(DEPLOYMENTS, "web", {"spec": {"template": template(image="nginx:2")}})
        run(lab)
        cause = {"kubernetes.io/change-cause": "a newer one"}
        lab.patch(DEPLOYMENTS, "web", {"metadata": {"annotations": cause}})
        run(lab)
        told = {
            self.number(item): item["metadata"]["annotations"].get("kubernetes.io/change-cause")
            for item in lab.all(REPLICA_SETS)
        }
        assert told == {1: None, 2: "a newer one"}

    def test_a_rollout_that_does_not_move_is_reported(self, lab):
        lab.add(DEPLOYMENTS, workload("Deployment", "web", replicas=1, progressDeadlineSeconds=60))
        lab.wait(200)
        conditions = lab.get(DEPLOYMENTS, "web")["status"]["conditions"]
        progress = next(c for c in conditions if c["type"] == "Progressing")
        assert (progress["status"], progress["reason"]) == ("False", "ProgressDeadlineExceeded")
        run(lab)
        conditions = lab.get(DEPLOYMENTS, "web")["status"]["conditions"]
        progress = next(c for c in conditions if c["type"] == "Progressing")
        assert (progress["status"], progress["reason"]) == ("True", "NewReplicaSetAvailable")

    def test_deleting_a_deployment_deletes_what_it_made(self, lab):
        lab.add(DEPLOYMENTS, workload("Deployment", "web", replicas=2))
        run(lab)
        lab.delete(DEPLOYMENTS, "web")
        run(lab)
        assert (lab.names(REPLICA_SETS), lab.names(PODS)) == ([], [])


class TestStatefulSets:
    def test_pods_come_one_after_the_other_and_go_in_reverse(self, lab):
        lab.add(STATEFUL_SETS, workload("StatefulSet", "db", replicas=3, serviceName="db"))
        lab.wait(1)
        assert lab.names(PODS) == ["db-0"]
        run(lab, 1)
        assert lab.names(PODS) == ["db-0", "db-1"]
        run(lab)
        assert lab.names(PODS) == ["db-0", "db-1", "db-2"]
        labels = lab.get(PODS, "db-1")["metadata"]["labels"]
        assert labels["statefulset.kubernetes.io/pod-name"] == "db-1"
        assert labels["apps.kubernetes.io/pod-index"] == "1"
        lab.patch(STATEFUL_SETS, "db", {"spec": {"replicas": 1}})
        lab.wait(1)
        gone = [
            p["metadata"]["name"] for p in lab.all(PODS) if "deletionTimestamp" in p["metadata"]
        ]
        assert gone == ["db-2"]
        run(lab)
        assert lab.names(PODS) == ["db-0"]

    @pytest.mark.parametrize(
        ("unready", "gone"), [((0, 1, 2), []), ((1, 2), []), ((1,), ["db-2"]), ((2,), ["db-2"])]
    )
    def test_one_that_shrinks_waits_for_pods_before_the_last_that_are_not_ready(
        self, lab, unready, gone
    ):
        """As of `processCondemned`: one that is not ready goes only if it is the first such."""
        lab.add(STATEFUL_SETS, workload("StatefulSet", "db", replicas=3))
        run(lab)
        for number in unready:
            lab.end_pod(f"db-{number}", "Running")
        lab.patch(STATEFUL_SETS, "db", {"spec": {"replicas": 0}})
        lab.wait(1)
        found = [
            p["metadata"]["name"] for p in lab.all(PODS) if "deletionTimestamp" in p["metadata"]
        ]
        assert found == gone

    def test_parallel_sets_do_not_wait(self, lab):
        lab.add(
            STATEFUL_SETS,
            workload("StatefulSet", "db", replicas=3, podManagementPolicy="Parallel"),
        )
        lab.wait(1)
        assert lab.names(PODS) == ["db-0", "db-1", "db-2"]

    def test_updates_go_from_the_last_to_the_partition(self, lab):
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
        lab.add(STATEFUL_SETS, workload("StatefulSet", "db", replicas=3, updateStrategy=strategy))
        run(lab, 6)
        lab.patch(STATEFUL_SETS, "db", {"spec": {"template": template(image="nginx:2")}})
        run(lab, 12)
        images = {p["metadata"]["name"]: p["spec"]["containers"][0]["image"] for p in lab.all(PODS)}
        assert images == {"db-0": "nginx:1", "db-1": "nginx:2", "db-2": "nginx:2"}
        assert len(lab.names(CONTROLLER_REVISIONS)) == 2

    def test_one_that_is_made_again_adopts_what_its_namesake_left(self, lab):
        lab.add(STATEFUL_SETS, workload("StatefulSet", "db"))
        run(lab)
        lab.client.delete(STATEFUL_SETS, "db", "default", options={"propagationPolicy": "Orphan"})
        run(lab)
        (left,) = lab.all(CONTROLLER_REVISIONS)
        assert not left["metadata"].get("ownerReferences")
        lab.add(STATEFUL_SETS, workload("StatefulSet", "db"))
        run(lab)
        (kept,) = lab.all(CONTROLLER_REVISIONS)
        owner = lab.get(STATEFUL_SETS, "db")["metadata"]["uid"]
        assert [each["uid"] for each in kept["metadata"]["ownerReferences"]] == [owner]
        assert kept["metadata"]["uid"] == left["metadata"]["uid"]

    def test_each_pod_has_its_own_volume_claims(self, lab):
        size = {"requests": {"storage": "1Gi"}}
        wanted = {"accessModes": ["ReadWriteOnce"], "resources": size}
        volumes = [{"metadata": {"name": "data"}, "spec": wanted}]
        lab.add(
            STATEFUL_SETS,
            workload("StatefulSet", "db", replicas=2, volumeClaimTemplates=volumes),
        )
        run(lab)
        assert lab.names(VOLUME_CLAIMS) == ["data-db-0", "data-db-1"]
        assert lab.get(PODS, "db-1")["spec"]["volumes"] == [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-1"}}
        ]

    def test_a_pod_that_is_gone_comes_back_under_its_name(self, lab):
        lab.add(STATEFUL_SETS, workload("StatefulSet", "db", replicas=1))
        run(lab)
        before = lab.get(PODS, "db-0")["metadata"]["uid"]
        lab.delete(PODS, "db-0")
        run(lab)
        assert lab.get(PODS, "db-0")["metadata"]["uid"] != before


class TestDaemonSets:
    def nodes(self, lab):
        lab.add_node("n1", labels={"disk": "ssd"})
        lab.add_node("tainted", taints=[{"key": "k", "effect": "NoSchedule"}])
        lab.wait(1)

    def test_every_node_that_takes_the_pod_gets_one(self, lab):
        self.nodes(lab)
        lab.add(DAEMON_SETS, workload("DaemonSet", "ds"))
        run(lab)
        assert sorted(p["spec"]["nodeName"] for p in lab.all(PODS)) == ["n0", "n1"]
        status = lab.get(DAEMON_SETS, "ds")["status"]
        assert (status["desiredNumberScheduled"], status["numberReady"]) == (2, 2)
        lab.add_node("n2")
        run(lab)
        assert len(lab.all(PODS)) == 3

    def test_a_node_that_no_longer_fits_loses_its_pod(self, lab):
        self.nodes(lab)
        daemon = workload("DaemonSet", "ds")
        daemon["spec"]["template"]["spec"]["nodeSelector"] = {"disk": "ssd"}
        lab.add(DAEMON_SETS, daemon)
        run(lab)
        assert [p["spec"]["nodeName"] for p in lab.all(PODS)] == ["n1"]
        lab.patch(NODES, "n1", {"metadata": {"labels": {"disk": "hdd"}}})
        run(lab)
        assert lab.all(PODS) == []

    def test_an_update_replaces_one_pod_after_the_other(self, lab):
        self.nodes(lab)
        lab.add(DAEMON_SETS, workload("DaemonSet", "ds"))
        run(lab)
        lab.patch(DAEMON_SETS, "ds", {"spec": {"template": template(image="nginx:2")}})
        lab.wait(1)
        assert sum("deletionTimestamp" in p["metadata"] for p in lab.all(PODS)) == 1
        run(lab, 8)
        images = Counter(p["spec"]["containers"][0]["image"] for p in lab.all(PODS))
        assert images == {"nginx:2": 2}

    def surging(self, lab):
        self.nodes(lab)
        rolling = {"maxSurge": 1, "maxUnavailable": 0}
        strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
        lab.add(DAEMON_SETS, workload("DaemonSet", "ds", updateStrategy=strategy))
        run(lab)

    def test_an_update_with_a_surge_never_leaves_a_node_without_a_ready_pod(self, lab):
        self.surging(lab)
        lab.patch(DAEMON_SETS, "ds", {"spec": {"template": template(image="nginx:2")}})
        for _ in range(12):
            run(lab, 1)
            pods = [p for p in lab.all(PODS) if "deletionTimestamp" not in p["metadata"]]
            assert len(pods) <= 3
            assert {p["spec"].get("nodeName") for p in pods if is_ready(p)} == {"n0", "n1"}
        images = Counter(p["spec"]["containers"][0]["image"] for p in lab.all(PODS))
        assert images == {"nginx:2": 2}
        assert lab.get(DAEMON_SETS, "ds")["status"]["updatedNumberScheduled"] == 2

    def test_an_old_pod_stays_as_long_as_its_successor_is_not_ready(self, lab):
        self.surging(lab)
        lab.patch(DAEMON_SETS, "ds", {"spec": {"template": template(image="nginx:2")}})
        lab.wait(600)  # nobody runs the new pod
        pods = lab.all(PODS)
        assert not any("deletionTimestamp" in p["metadata"] for p in pods)
        images = Counter(p["spec"]["containers"][0]["image"] for p in pods)
        assert images == {"nginx:1": 2, "nginx:2": 1}

    def test_a_surge_replaces_pods_that_are_not_ready_at_once(self, lab):
        self.surging(lab)
        for each in lab.all(PODS):
            conditions = [{"type": "Ready", "status": "False"}]
            lab.set_status(PODS, each["metadata"]["name"], "default", conditions=conditions)
        lab.patch(DAEMON_SETS, "ds", {"spec": {"template": template(image="nginx:2")}})
        lab.wait(1)
        images = Counter(
            p["spec"]["containers"][0]["image"]
            for p in lab.all(PODS)
            if "deletionTimestamp" not in p["metadata"]
        )
        assert images == {"nginx:2": 2}

    def test_its_history_can_be_read_and_is_bounded(self, lab):
        lab.add(DAEMON_SETS, workload("DaemonSet", "ds", revisionHistoryLimit=1))
        run(lab)
        for number in (2, 3):
            lab.patch(DAEMON_SETS, "ds", {"spec": {"template": template(image=f"nginx:{number}")}})
            run(lab)
        kept = sorted(lab.all(CONTROLLER_REVISIONS), key=lambda item: item["revision"])
        assert [item["revision"] for item in kept] == [2, 3]
        images = [
            item["data"]["spec"]["template"]["spec"]["containers"][0]["image"] for item in kept
        ]
        assert images == ["nginx:2", "nginx:3"]
        assert kept[0]["data"]["spec"]["template"]["$patch"] == "replace"
        lab.patch(DAEMON_SETS, "ds", {"spec": {"template": template(image="nginx:2")}})
        run(lab)
        assert sorted(item["revision"] for item in lab.all(CONTROLLER_REVISIONS)) == [3, 4]

    def test_its_pods_tolerate_troubled_nodes(self, lab):
        lab.add(DAEMON_SETS, workload("DaemonSet", "ds"))
        run(lab)
        [made] = lab.all(PODS)
        tolerated = {(t.get("key"), t["effect"]) for t in made["spec"]["tolerations"]}
        assert ("node.kubernetes.io/unschedulable", "NoSchedule") in tolerated
        assert ("node.kubernetes.io/not-ready", "NoExecute") in tolerated


@pytest.mark.parametrize(
    ("resource", "kind"), [(DAEMON_SETS, "DaemonSet"), (STATEFUL_SETS, "StatefulSet")]
)
def test_a_revision_holds_its_template_as_go_encodes_it(lab, resource, kind):
    """Clients compare the bytes with those that they encode themselves (`Match`)."""
    lab.add(resource, workload(kind, "d"))
    run(lab)
    patch = {"spec": {"template": {**lab.get(resource, "d")["spec"]["template"]}}}
    patch["spec"]["template"]["$patch"] = "replace"
    [revision] = lab.client.list(CONTROLLER_REVISIONS, "default").items
    assert json.dumps(revision["data"]) == json.dumps(patch, sort_keys=True)


class TestDisruptionBudgets:
    def budget(self, lab, **spec):
        lab.add(
            DISRUPTION_BUDGETS,
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": "b", "namespace": "default"},
                "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec},
            },
        )
        registry.CONTROLLERS["disruption-controller"](lab.manager)
        run(lab)

    @pytest.mark.parametrize(
        ("spec", "desired", "allowed"),
        [
            ({"minAvailable": 2}, 2, 1),
            ({"minAvailable": "50%"}, 2, 1),
            ({"maxUnavailable": 1}, 2, 1),
            ({"maxUnavailable": "34%"}, 1, 2),
            ({"minAvailable": 5}, 5, 0),
        ],
    )
    def test_what_may_go_is_what_is_healthy_beyond_need(self, lab, spec, desired, allowed):
        lab.add(REPLICA_SETS, workload("ReplicaSet", "rs", replicas=3))
        run(lab)
        self.budget(lab, **spec)
        status = lab.get(DISRUPTION_BUDGETS, "b")["status"]
        assert (status["expectedPods"], status["currentHealthy"]) == (3, 3)
        assert (status["desiredHealthy"], status["disruptionsAllowed"]) == (desired, allowed)

    def test_an_eviction_that_a_budget_allows_goes_through_and_the_next_waits(self, lab):
        lab.add(REPLICA_SETS, workload("ReplicaSet", "rs", replicas=2))
        run(lab)
        self.budget(lab, maxUnavailable=1)
        first, second = lab.names(PODS)
        for name in (first, second):
            body = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": name, "namespace": "default"},
            }
            if name == first:
                lab.client.post(PODS, name, "eviction", body, "default")
                lab.settle()
            else:
                with pytest.raises(ApiError) as caught:
                    lab.client.post(PODS, name, "eviction", body, "default")
                assert caught.value.code == 429

    @pytest.mark.parametrize(
        ("spec", "ready", "goes"),
        [
            ({"minAvailable": 2}, 2, True),
            ({"minAvailable": 2, "unhealthyPodEvictionPolicy": "IfHealthyBudget"}, 2, True),
            ({"minAvailable": 3}, 2, False),
            ({"minAvailable": 3, "unhealthyPodEvictionPolicy": "IfHealthyBudget"}, 2, False),
            ({"minAvailable": 3, "unhealthyPodEvictionPolicy": "AlwaysAllow"}, 2, True),
            ({"minAvailable": 3, "unhealthyPodEvictionPolicy": "AlwaysAllow"}, 3, False),
        ],
    )
    def test_a_pod_that_is_not_ready_goes_by_the_policy_of_its_budget(self, lab, spec, ready, goes):
        """And takes nothing of what the budget allows."""
        lab.add(REPLICA_SETS, workload("ReplicaSet", "rs", replicas=3))
        run(lab)
        name = lab.names(PODS)[0]
        if ready < 3:
            lab.end_pod(name, "Running")
        self.budget(lab, **spec)
        before = lab.get(DISRUPTION_BUDGETS, "b")["status"]["disruptionsAllowed"]
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        if goes:
            lab.client.post(PODS, name, "eviction", body, "default")
            assert lab.get(DISRUPTION_BUDGETS, "b")["status"]["disruptionsAllowed"] == before == 0
        else:
            with pytest.raises(ApiError, match="disruption budget"):
                lab.client.post(PODS, name, "eviction", body, "default")
