"""Eviction from tainted devices, and what pools have left."""

import pytest

from builders import claim, counter_set, device, pod, pool, request, taint
from dralab.controllers.device_taints import DeviceTaintEviction
from dralab.controllers.pool_status import PoolStatus, pool_status
from dralab.runtime.resources import (
    CLAIMS,
    EVENTS,
    PODS,
    POOL_STATUS_REQUESTS,
    SLICES,
    TAINT_RULES,
)
from labs import Lab

DRIVER = "gpu.example.com"


class TestEviction:
    @pytest.fixture
    def lab(self):
        lab = Lab()
        DeviceTaintEviction(lab.manager)
        lab.add(SLICES, *pool("n0", device("d0"), device("d1"), node="n0"))
        lab.start()
        return lab

    def use(self, lab, name, number=0, tolerations=()):
        """A running pod whose claim holds a device, its tolerations copied into the result."""
        lab.add(CLAIMS, claim(name, request("r"), namespace="default"))
        [stored] = lab.add(PODS, pod(name, claims={"g": name}))
        lab.bind(name, "n0")
        result = {"request": "r", "driver": DRIVER, "pool": "n0", "device": f"d{number}"}
        if tolerations:
            result["tolerations"] = list(tolerations)
        uid = stored["metadata"]["uid"]
        lab.set_status(
            CLAIMS,
            name,
            allocation={"devices": {"results": [result]}},
            reservedFor=[{"resource": "pods", "name": name, "uid": uid}],
        )
        lab.settle()

    def rule(self, lab, effect="NoExecute", name="rule", **selector):
        lab.add(
            TAINT_RULES,
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "DeviceTaintRule",
                "metadata": {"name": name},
                "spec": {
                    "deviceSelector": selector,
                    "taint": {"key": "broken", "value": "yes", "effect": effect},
                },
            },
        )
        lab.settle()

    def leaving(self, lab):
        return {
            p["metadata"]["name"] for p in lab.all(PODS) if "deletionTimestamp" in p["metadata"]
        }

    def test_a_pod_leaves_a_device_that_a_rule_taints(self, lab):
        self.use(lab, "a", 0)
        self.use(lab, "b", 1)
        self.rule(lab, driver=DRIVER, device="d0")
        assert self.leaving(lab) == {"a"}
        conditions = lab.get(PODS, "a")["status"]["conditions"]
        assert "DeletionByDeviceTaintManager" in [item.get("reason") for item in conditions]
        assert "DeviceTaintManagerEviction" in [event["reason"] for event in lab.all(EVENTS)]

    @pytest.mark.parametrize(
        ("tolerations", "after"),
        [
            ([], 0),
            ([{"operator": "Exists"}], 0),
            ([{"operator": "Exists", "effect": "NoSchedule"}], 0),
            ([{"operator": "Exists", "effect": "NoExecute"}], None),
            ([{"key": "broken", "value": "no", "effect": "NoExecute"}], 0),
            ([{"key": "broken", "value": "yes", "effect": "NoExecute"}], None),
            ([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}], 60),
            ([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": -5}], 0),
            (
                [
                    {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
                    {
                        "key": "broken",
                        "operator": "Exists",
                        "effect": "NoExecute",
                        "tolerationSeconds": 9,
                    },
                ],
                9,
            ),
        ],
    )
    def test_only_tolerations_of_exactly_noexecute_keep_a_pod(self, lab, tolerations, after):
        self.use(lab, "p", tolerations=tolerations)
        self.rule(lab, driver=DRIVER)
        if after is None:
            lab.wait(10_000)
            assert self.leaving(lab) == set()
            return
        if after:
            lab.wait(after - 1)
            assert self.leaving(lab) == set()
            lab.wait(2)
        assert self.leaving(lab) == {"p"}

    def test_a_taint_that_goes_in_time_evicts_nobody(self, lab):
        patience = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
        self.use(lab, "p", tolerations=[patience])
        self.rule(lab, driver=DRIVER)
        lab.wait(30)
        lab.delete(TAINT_RULES, "rule")
        lab.wait(60)
        assert self.leaving(lab) == set()

    def test_a_taint_of_the_slice_evicts_too(self, lab):
        self.use(lab, "p")
        stored = lab.get(SLICES, "n0")
        spec = dict(stored["spec"])
        spec["devices"] = [
            {**spec["devices"][0], "taints": [taint("k", "NoExecute")]},
            spec["devices"][1],
        ]
        lab.client.update(SLICES, {**stored, "spec": spec})
        lab.settle()
        assert self.leaving(lab) == {"p"}

    @pytest.mark.parametrize(
        ("effect", "reason", "status"),
        [
            ("NoExecute", "PodsPendingEviction", "True"),
            ("NoSchedule", "OtherEffect", "False"),
            ("None", "NoEffect", "False"),
        ],
    )
    def test_a_rule_says_how_far_it_is(self, lab, effect, reason, status):
        patience = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
        self.use(lab, "p", tolerations=[patience])
        self.rule(lab, effect, driver=DRIVER)
        [condition] = lab.get(TAINT_RULES, "rule")["status"]["conditions"]
        assert (condition["type"], condition["reason"], condition["status"]) == (
            "EvictionInProgress",
            reason,
            status,
        )
        assert ("1 pod" in condition["message"]) == (effect != "NoSchedule")

    def test_a_rule_counts_who_must_go_and_who_went(self, lab):
        patience = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
        self.use(lab, "hasty")
        self.use(lab, "patient", 1, tolerations=[patience])
        self.rule(lab, driver=DRIVER)
        lab.wait(30)
        told = (
            "1 pod needs to be evicted in 1 namespace. 1 pod evicted since starting the controller."
        )
        [condition] = lab.get(TAINT_RULES, "rule")["status"]["conditions"]
        assert (condition["status"], condition["message"]) == ("True", told)
        lab.wait(60)
        [condition] = lab.get(TAINT_RULES, "rule")["status"]["conditions"]
        told = "2 pods evicted since starting the controller."
        assert (condition["reason"], condition["message"]) == ("Completed", told)

    def test_a_rule_whose_pods_are_gone_is_completed(self, lab):
        self.use(lab, "p")
        self.rule(lab, driver=DRIVER)
        lab.delete(PODS, "p", gracePeriodSeconds=0)
        lab.set_status(CLAIMS, "p", allocation=None, reservedFor=[])
        lab.wait(25)
        [condition] = lab.get(TAINT_RULES, "rule")["status"]["conditions"]
        assert (condition["reason"], condition["status"]) == ("Completed", "False")


class TestPoolStatus:
    def held(self, name, number, **more):
        result = {"request": "r", "driver": DRIVER, "pool": "n0", "device": f"d{number}", **more}
        return claim(name, request("r"), status={"allocation": {"devices": {"results": [result]}}})

    def test_devices_are_counted_once_whoever_holds_them(self):
        slices = pool(
            "n0",
            device("d0"),
            device("d1", taints=[taint("k")]),
            device("d2"),
            device("d3", taints=[taint("k", "None")]),
        )
        claims = [self.held("a", 0), self.held("b", 0), self.held("c", 2, adminAccess=True)]
        status = pool_status({"driver": DRIVER}, slices, claims, [])
        assert status == {
            "poolCount": 1,
            "pools": [
                {
                    "driver": DRIVER,
                    "poolName": "n0",
                    "generation": 1,
                    "nodeName": "node-1",
                    "resourceSliceCount": 1,
                    "totalDevices": 4,
                    "allocatedDevices": 1,
                    "unavailableDevices": 1,
                    "availableDevices": 2,
                }
            ],
        }

    def test_rules_taint_as_slices_do(self):
        rule = {"spec": {"deviceSelector": {"pool": "n0"}, "taint": {"effect": "NoSchedule"}}}
        [found] = pool_status({"driver": DRIVER}, pool("n0", device("d0")), [], [rule])["pools"]
        assert (found["unavailableDevices"], found["availableDevices"]) == (1, 0)

    def test_all_pools_are_counted_and_the_first_are_shown(self):
        slices = [item for name in "cab" for item in pool(name, device("d0"))]
        status = pool_status({"driver": DRIVER, "limit": 2}, slices, [], [])
        assert status["poolCount"] == 3
        assert [item["poolName"] for item in status["pools"]] == ["a", "b"]
        only = pool_status({"driver": DRIVER, "poolName": "c"}, slices, [], [])
        assert [item["poolName"] for item in only["pools"]] == ["c"]

    def test_an_incomplete_pool_has_no_numbers(self):
        [half] = pool("n0", device("d0"))
        half["spec"]["pool"]["resourceSliceCount"] = 2
        [found] = pool_status({"driver": DRIVER}, [half], [], [])["pools"]
        assert found["validationError"] == "pool is incomplete: 1 of 2 slices are published"
        assert "totalDevices" not in found

    def test_partitions_are_counted_by_what_the_counters_still_give(self):
        devices = [device("d0", type="full", consumes={"gpu": {"memory": 4}})]
        devices += [device(f"d{i}", type="half", consumes={"gpu": {"memory": 2}}) for i in (1, 2)]
        slices = pool("n0", *devices, counters=[counter_set("gpu", memory=4)])
        slices[0]["spec"]["partitionTypeAttribute"] = f"{DRIVER}/type"
        [found] = pool_status({"driver": DRIVER}, slices, [self.held("c", 1)], [])["pools"]
        assert found["partitionSummary"] == [
            {"attribute": f"{DRIVER}/type", "type": "full", "total": 1, "allocatable": 0},
            {"attribute": f"{DRIVER}/type", "type": "half", "total": 2, "allocatable": 1},
        ]

    def test_shared_devices_tell_their_capacity(self):
        slices = pool(
            "n0",
            device("d0", shared=True, capacity={"memory": "10Gi"}),
            device("d1", shared=True, capacity={"memory": "10Gi"}),
        )
        taken = self.held("c", 0, shareID="s", consumedCapacity={"memory": "4Gi"})
        [found] = pool_status({"driver": DRIVER}, slices, [taken], [])["pools"]
        assert found["shareableSummary"] == {
            "fullyAvailableDevices": 1,
            "partiallyAvailableDevices": 1,
            "capacity": [
                {"name": "memory", "total": "20Gi", "consumed": "4Gi", "available": "16Gi"}
            ],
        }

    def test_a_request_is_answered_once_and_forgotten_after_an_hour(self):
        lab = Lab()
        PoolStatus(lab.manager)
        lab.add(SLICES, *pool("n0", device("d0"), node="n0"))
        lab.start()
        asked = {
            "apiVersion": "resource.k8s.io/v1alpha3",
            "kind": "ResourcePoolStatusRequest",
            "metadata": {"name": "q"},
            "spec": {"driver": DRIVER},
        }
        lab.add(POOL_STATUS_REQUESTS, asked)
        lab.settle()
        status = lab.get(POOL_STATUS_REQUESTS, "q")["status"]
        assert status["pools"][0]["totalDevices"] == 1
        assert status["conditions"][0]["type"] == "Complete"
        lab.wait(3590)
        assert lab.find(POOL_STATUS_REQUESTS, "q")
        lab.wait(20)
        assert lab.find(POOL_STATUS_REQUESTS, "q") is None

    @pytest.mark.parametrize(("mended", "answered"), [(None, 31), (2, 3), (4, 7)])
    def test_an_incomplete_pool_is_looked_at_five_times_more(self, mended, answered):
        lab = Lab()
        PoolStatus(lab.manager)
        [half], [other] = pool("n0", device("d0")), pool("n0", device("d1"))
        other["metadata"]["name"] = "n0-more"
        for each in (half, other):
            each["spec"]["pool"]["resourceSliceCount"] = 2
        lab.add(SLICES, half)
        lab.start()
        asked = {
            "apiVersion": "resource.k8s.io/v1alpha3",
            "kind": "ResourcePoolStatusRequest",
            "metadata": {"name": "q"},
            "spec": {"driver": DRIVER},
        }
        lab.add(POOL_STATUS_REQUESTS, asked)
        seconds = 0
        while "status" not in lab.get(POOL_STATUS_REQUESTS, "q"):
            lab.wait(1)
            seconds += 1
            if seconds == mended:
                lab.add(SLICES, other)
        assert seconds == answered
        [found] = lab.get(POOL_STATUS_REQUESTS, "q")["status"]["pools"]
        assert ("validationError" in found) == (mended is None)
