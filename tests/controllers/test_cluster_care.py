"""What keeps the cluster as a whole: owners, namespaces, nodes, quotas, events, accounts."""

from pathlib import Path

import pytest

from builders import pod
from dralab.controllers import registry
from dralab.kernel.clock import rfc3339_micro
from dralab.runtime.client import Resource
from dralab.runtime.resources import (
    CONFIG_MAPS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICE_ACCOUNTS,
)
from labs import Lab


def lab_with(*names):
    lab = Lab()
    for name in names:
        registry.CONTROLLERS[name](lab.manager)
    lab.start()
    return lab


def config_map(name, *owners, namespace="default", finalizers=()):
    references = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": True,
        }
        for owner in owners
    ]
    metadata = {"name": name, "namespace": namespace}
    metadata |= {"ownerReferences": references} if references else {}
    metadata |= {"finalizers": list(finalizers)} if finalizers else {}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


class TestGarbage:
    @pytest.fixture
    def lab(self):
        return lab_with("garbage-collector-controller")

    def family(self, lab):
        [top] = lab.add(CONFIG_MAPS, config_map("top"))
        [middle] = lab.add(CONFIG_MAPS, config_map("middle", top))
        lab.add(CONFIG_MAPS, config_map("leaf", middle))
        lab.settle()

    def test_in_the_background_dependents_follow_their_owner(self, lab):
        self.family(lab)
        lab.delete(CONFIG_MAPS, "top", propagationPolicy="Background")
        assert lab.names(CONFIG_MAPS) == ["leaf", "middle"]
        lab.settle()
        assert lab.names(CONFIG_MAPS) == []

    def test_in_the_foreground_the_owner_goes_last(self, lab):
        self.family(lab)
        order = []
        cache = lab.manager.cache(CONFIG_MAPS)
        cache.subscribe(lambda old, new: new is None and order.append(old["metadata"]["name"]))
        lab.delete(CONFIG_MAPS, "top", propagationPolicy="Foreground")
        assert "top" in lab.names(CONFIG_MAPS)
        lab.settle()
        assert order == ["leaf", "middle", "top"]

    def test_a_circle_of_owners_is_deleted_in_the_foreground(self, lab):
        made = lab.add(CONFIG_MAPS, *(config_map(name) for name in ("one", "two", "three")))
        for owned, owner in zip(made, made[-1:] + made[:-1], strict=True):
            references = config_map("", owner)["metadata"]["ownerReferences"]
            change = {"metadata": {"ownerReferences": references}}
            lab.client.patch(CONFIG_MAPS, owned["metadata"]["name"], change, "default")
        lab.settle()
        lab.delete(CONFIG_MAPS, "one", propagationPolicy="Foreground")
        lab.settle()
        assert lab.names(CONFIG_MAPS) == []

    def test_orphans_stay_without_their_owner(self, lab):
        self.family(lab)
        lab.delete(CONFIG_MAPS, "top", propagationPolicy="Orphan")
        lab.settle()
        assert lab.names(CONFIG_MAPS) == ["leaf", "middle"]
        assert not lab.get(CONFIG_MAPS, "middle")["metadata"].get("ownerReferences")

    def test_one_owner_of_two_is_enough(self, lab):
        one, two = lab.add(CONFIG_MAPS, config_map("one"), config_map("two"))
        lab.add(CONFIG_MAPS, config_map("child", one, two))
        lab.settle()
        lab.delete(CONFIG_MAPS, "one")
        lab.settle()
        references = lab.get(CONFIG_MAPS, "child")["metadata"]["ownerReferences"]
        assert [item["name"] for item in references] == ["two"]
        lab.delete(CONFIG_MAPS, "two")
        lab.settle()
        assert lab.names(CONFIG_MAPS) == []

    def test_an_owner_deleted_in_the_foreground_does_not_wait_for_what_another_owner_keeps(
        self, lab
    ):
        one, two = lab.add(CONFIG_MAPS, config_map("one"), config_map("two"))
        lab.add(CONFIG_MAPS, config_map("child", one, two))
        lab.settle()
        lab.delete(CONFIG_MAPS, "one", propagationPolicy="Foreground")
        lab.settle()
        assert lab.names(CONFIG_MAPS) == ["child", "two"]
        references = lab.get(CONFIG_MAPS, "child")["metadata"]["ownerReferences"]
        assert [item["name"] for item in references] == ["two"]

    def test_an_object_of_an_owner_that_never_was_is_garbage(self, lab):
        ghost = {"metadata": {"name": "ghost", "uid": "00000000-0000-4000-8000-000000000000"}}
        lab.add(CONFIG_MAPS, config_map("child", ghost))
        lab.settle()
        assert lab.names(CONFIG_MAPS) == []

    def test_an_owner_made_anew_under_its_name_is_another(self, lab):
        [first] = lab.add(CONFIG_MAPS, config_map("owner"))
        lab.add(CONFIG_MAPS, config_map("child", first))
        lab.settle()
        lab.delete(CONFIG_MAPS, "owner")
        lab.add(CONFIG_MAPS, config_map("owner"))
        lab.settle()
        assert lab.names(CONFIG_MAPS) == ["owner"]

    def test_a_kind_that_nobody_serves_is_left_alone(self, lab):
        child = config_map("child", {"metadata": {"name": "x", "uid": "1-2-3"}})
        child["metadata"]["ownerReferences"][0] |= {"apiVersion": "no.such/v1", "kind": "Thing"}
        lab.add(CONFIG_MAPS, child)
        lab.settle()
        assert lab.names(CONFIG_MAPS) == ["child"]

    def test_custom_resources_own_and_are_owned(self, lab):
        crds = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", False)
        lab.add(
            crds,
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": "labs.example.com"},
                "spec": {
                    "group": "example.com",
                    "scope": "Namespaced",
                    "names": {"plural": "labs", "singular": "lab", "kind": "Lab"},
                    "versions": [
                        {
                            "name": "v1",
                            "served": True,
                            "storage": True,
                            "schema": {"openAPIV3Schema": {"type": "object"}},
                        }
                    ],
                },
            },
        )
        lab.wait(2)
        labs = Resource("example.com", "v1", "labs")
        custom = {
            "apiVersion": "example.com/v1",
            "kind": "Lab",
            "metadata": {"name": "l", "namespace": "default"},
        }
        [owner] = lab.add(labs, custom)
        child = config_map("child", owner)
        child["metadata"]["ownerReferences"][0] |= {
            "apiVersion": "example.com/v1",
            "kind": "Lab",
        }
        lab.add(CONFIG_MAPS, child)
        lab.wait(2)
        assert lab.names(CONFIG_MAPS) == ["child"]
        lab.delete(labs, "l")
        lab.wait(2)
        assert lab.names(CONFIG_MAPS) == []


class TestNamespaces:
    def test_contents_go_before_the_namespace(self):
        lab = lab_with("namespace-controller", "serviceaccount-controller")
        lab.add(NAMESPACES, {"metadata": {"name": "team"}})
        lab.add(CONFIG_MAPS, config_map("a", namespace="team"))
        lab.add(CONFIG_MAPS, config_map("held", namespace="team", finalizers=["example.com/x"]))
        lab.settle()
        lab.delete(NAMESPACES, "team")
        lab.wait(2)
        assert lab.names(CONFIG_MAPS, "team") == ["held"]
        namespace = lab.get(NAMESPACES, "team")
        assert namespace["status"]["phase"] == "Terminating"
        told = {c["type"]: (c["status"], c["message"]) for c in namespace["status"]["conditions"]}
        assert len(told) == 5
        assert told["NamespaceContentRemaining"] == (
            "True",
            "Some resources are remaining: configmaps. has 1 resource instances",
        )
        assert told["NamespaceFinalizersRemaining"] == (
            "True",
            "Some content in the namespace has finalizers remaining: "
            "example.com/x in 1 resource instances",
        )
        lab.patch(CONFIG_MAPS, "held", {"metadata": {"finalizers": None}}, "team")
        lab.wait(6)
        assert lab.find(NAMESPACES, "team") is None

    def test_each_namespace_has_its_account_and_the_root_certificate(self):
        lab = lab_with("serviceaccount-controller")
        lab.add(NAMESPACES, {"metadata": {"name": "team"}})
        lab.settle()
        assert lab.names(SERVICE_ACCOUNTS, "team") == ["default"]
        assert lab.names(CONFIG_MAPS, "team") == ["kube-root-ca.crt"]
        lab.delete(SERVICE_ACCOUNTS, "default", "team")
        lab.patch(CONFIG_MAPS, "kube-root-ca.crt", {"data": {"ca.crt": "spoilt"}}, "team")
        lab.settle()
        assert lab.names(SERVICE_ACCOUNTS, "team") == ["default"]
        assert lab.get(CONFIG_MAPS, "kube-root-ca.crt", "team")["data"] == {"ca.crt": ""}


class TestNodes:
    @pytest.fixture
    def lab(self):
        lab = lab_with("node-lifecycle-controller", "pod-garbage-collector-controller")
        lab.add_node("n0")
        lab.settle()
        return lab

    def taints(self, lab):
        return [
            (item["key"].partition("/")[2], item["effect"])
            for item in lab.get(NODES, "n0")["spec"].get("taints", ())
        ]

    def ready(self, lab, status):
        lab.set_status(NODES, "n0", conditions=[{"type": "Ready", "status": status}])
        lab.settle()

    def lease(self, lab):
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "n0", "namespace": "kube-node-lease"},
            "spec": {
                "holderIdentity": "n0",
                "leaseDurationSeconds": 40,
                "renewTime": rfc3339_micro(lab.engine.clock.now()),
            },
        }

    def test_a_ready_node_has_no_taints_and_a_broken_one_has(self, lab):
        assert self.taints(lab) == []
        self.ready(lab, "False")
        assert self.taints(lab) == [("not-ready", "NoSchedule"), ("not-ready", "NoExecute")]
        self.ready(lab, "True")
        assert self.taints(lab) == []

    def test_pressure_and_a_cordon_are_taints_and_others_stay(self, lab):
        own = [{"key": "mine", "effect": "NoSchedule"}]
        lab.patch(NODES, "n0", {"spec": {"unschedulable": True, "taints": own}})
        conditions = [
            {"type": "Ready", "status": "True"},
            {"type": "DiskPressure", "status": "True"},
        ]
        lab.set_status(NODES, "n0", conditions=conditions)
        lab.settle()
        keys = {item["key"] for item in lab.get(NODES, "n0")["spec"]["taints"]}
        assert keys == {
            "mine",
            "node.kubernetes.io/disk-pressure",
            "node.kubernetes.io/unschedulable",
        }

    def test_a_lease_renewed_in_the_year_0_counts_from_when_it_is_seen_and_hides_no_other(
        self, lab
    ):
        lease = self.lease(lab)
        lease["spec"]["renewTime"] = "0000-01-01T00:00:00.000000Z"
        lab.add(LEASES, lease)
        lab.add_node("n1")
        other = self.lease(lab)
        other["metadata"]["name"] = other["spec"]["holderIdentity"] = "n1"
        lab.add(LEASES, other)
        lab.wait(49)
        assert self.taints(lab) == []
        renewed = {"renewTime": rfc3339_micro(lab.engine.clock.now())}
        lab.patch(LEASES, "n1", {"spec": renewed}, "kube-node-lease")
        lab.wait(2)
        assert self.taints(lab) == [("unreachable", "NoSchedule"), ("unreachable", "NoExecute")]
        assert not lab.get(NODES, "n1")["spec"].get("taints")

    def test_a_node_whose_lease_runs_out_is_unknown_until_it_reports_again(self, lab):
        lab.add(LEASES, self.lease(lab))
        lab.wait(49)
        assert self.taints(lab) == []
        lab.wait(2)
        assert self.taints(lab) == [("unreachable", "NoSchedule"), ("unreachable", "NoExecute")]
        [condition] = [
            c for c in lab.get(NODES, "n0")["status"]["conditions"] if c["type"] == "Ready"
        ]
        assert (condition["status"], condition["reason"]) == ("Unknown", "NodeStatusUnknown")
        renewed = self.lease(lab)["spec"]
        lab.patch(LEASES, "n0", {"spec": renewed}, "kube-node-lease")
        self.ready(lab, "True")
        assert self.taints(lab) == []

    def test_a_node_whose_clock_is_ten_minutes_slow_stays_ready_while_it_renews_its_lease(
        self, lab
    ):
        lease = self.lease(lab)
        lease["spec"]["renewTime"] = "2000-01-01T00:00:00.000000Z"
        lab.add(LEASES, lease)
        for minute in range(1, 6):
            lab.wait(40)
            slow = f"2000-01-01T00:{minute:02}:00.000000Z"
            lab.patch(LEASES, "n0", {"spec": {"renewTime": slow}}, "kube-node-lease")
        assert self.taints(lab) == []

    def test_a_node_that_never_had_a_lease_is_believed(self, lab):
        lab.wait(3600)
        assert self.taints(lab) == []

    def test_a_node_whose_lease_is_taken_away_is_believed(self, lab):
        lab.add(LEASES, self.lease(lab))
        lab.wait(51)
        assert self.taints(lab) != []
        lab.delete(LEASES, "n0", "kube-node-lease")
        self.ready(lab, "True")
        lab.wait(3600)
        assert self.taints(lab) == []

    def test_pods_leave_an_unreachable_node_when_their_patience_ends(self, lab):
        lab.add(PODS, pod("patient"), pod("stays"), pod("leaves"))
        names = ["patient", "stays", "leaves"]
        for name in names:
            lab.bind(name, "n0")
        lab.settle()
        everything = [{"operator": "Exists"}]
        stored = lab.get(PODS, "stays")
        lab.delete(PODS, "stays", gracePeriodSeconds=0)
        again = pod("stays", tolerations=everything)
        lab.add(PODS, again)
        lab.bind("stays", "n0")
        assert stored["spec"]["tolerations"]
        self.ready(lab, "Unknown")
        lab.wait(299)
        assert not any("deletionTimestamp" in lab.get(PODS, name)["metadata"] for name in names)
        lab.wait(2)
        leaving = lab.get(PODS, "patient")
        assert "deletionTimestamp" in leaving["metadata"]
        reasons = [condition.get("reason") for condition in leaving["status"]["conditions"]]
        assert "DeletionByTaintManager" in reasons
        assert "deletionTimestamp" not in lab.get(PODS, "stays")["metadata"]

    def test_patience_begins_when_the_pod_and_an_undated_taint_are_there(self, lab):
        patience = {
            "key": "worn",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 7,
        }
        lab.add(PODS, pod("first", tolerations=[patience]), pod("hasty"))
        lab.bind("first", "n0")
        lab.bind("hasty", "n0")
        lab.add(PODS, pod("done"))
        lab.bind("done", "n0")
        lab.end_pod("done", "Succeeded")
        lab.wait(100)
        taint = {"key": "worn", "value": "out", "effect": "NoExecute"}
        lab.patch(NODES, "n0", {"spec": {"taints": [taint]}})
        lab.settle()

        def leaving(name):
            return "deletionTimestamp" in lab.get(PODS, name)["metadata"]

        assert [leaving(name) for name in ("first", "hasty", "done")] == [False, True, False]
        lab.patch(PODS, "hasty", {"metadata": {"labels": {"still": "here"}}})
        lab.settle()
        told = [each for each in lab.all(EVENTS) if each["reason"] == "TaintManagerEviction"]
        assert [each.get("count", 1) for each in told] == [1]
        lab.wait(6)
        assert not leaving("first")
        lab.wait(2)
        assert leaving("first")
        lab.wait(50)
        lab.add(PODS, pod("second", tolerations=[patience]))
        lab.bind("second", "n0")
        lab.wait(6)
        assert not leaving("second")
        lab.wait(2)
        assert leaving("second")

    def test_pods_of_a_node_that_is_gone_are_ended(self, lab):
        lab.add(PODS, pod("p"))
        lab.bind("p", "n0")
        lab.delete(NODES, "n0")
        lab.wait(50)
        assert lab.find(PODS, "p")
        lab.wait(40)
        assert lab.find(PODS, "p") is None


class TestQuotas:
    def quota(self, **hard):
        return {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "q", "namespace": "default"},
            "spec": {"hard": {key.replace("__", "."): value for key, value in hard.items()}},
        }

    def test_what_is_used_is_counted_as_it_comes_and_goes(self):
        lab = lab_with("resourcequota-controller")
        quota = self.quota(pods="10", requests__cpu="4")
        quota["spec"]["hard"] |= {"count/secrets": "5", "count/deployments.apps": "2"}
        lab.add(RESOURCE_QUOTAS, quota)
        lab.add(PODS, pod("a", requests={"cpu": "500m"}), pod("b", requests={"cpu": "1"}))
        lab.add(SECRETS, {"metadata": {"name": "s", "namespace": "default"}})
        lab.settle()
        status = lab.get(RESOURCE_QUOTAS, "q")["status"]
        assert status["hard"] == quota["spec"]["hard"]
        assert status["used"] == {
            "pods": "2",
            "requests.cpu": "1500m",
            "count/secrets": "1",
            "count/deployments.apps": "0",
        }
        lab.delete(PODS, "b", gracePeriodSeconds=0)
        lab.settle()
        assert lab.get(RESOURCE_QUOTAS, "q")["status"]["used"]["requests.cpu"] == "500m"

    def test_devices_are_counted_by_class(self):
        from builders import claim, request
        from dralab.runtime.resources import CLAIMS

        lab = lab_with("resourcequota-controller")
        quota = self.quota()
        quota["spec"]["hard"] = {"gpu.deviceclass.resource.k8s.io/devices": "8"}
        lab.add(RESOURCE_QUOTAS, quota)
        wanted = claim("c", request("r", count=3), request("x", "nic"), namespace="default")
        lab.add(CLAIMS, wanted)
        lab.settle()
        used = lab.get(RESOURCE_QUOTAS, "q")["status"]["used"]
        assert used == {"gpu.deviceclass.resource.k8s.io/devices": "3"}


def test_every_controller_can_be_left_out_by_its_name():
    lab = Lab()
    files = (Path("ca.crt"), Path("ca.key"))
    made = registry.assemble(lab.manager, signing_files=files)
    assert len(made) == len(registry.CONTROLLERS) > 10
    rest = registry.assemble(Lab().manager, without=["job-controller"], signing_files=files)
    assert len(rest) == len(registry.CONTROLLERS) - 1
    with pytest.raises(ValueError, match="unknown controller 'x'"):
        registry.assemble(Lab().manager, without=["x"])
