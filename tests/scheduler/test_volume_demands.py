"""What a pod needs in volumes: why it cannot be tried, which nodes are left, what is planned."""

import pytest

from builders import pod, worker
from dralab.objects import volumes as rules
from dralab.objects.metadata import NamespacedName, key_of
from dralab.scheduling.nodes import NodeTable
from dralab.scheduling.pods import pod_info
from dralab.scheduling.reasons import (
    NO_VOLUME,
    NO_VOLUME_ZONE,
    VOLUME_ELSEWHERE,
    VOLUME_IN_USE,
    Reason,
)
from dralab.scheduling.volumes import Volumes

OWNER = {"uid": "u"}


class Objects:
    """Objects of one kind, as a cache has them."""

    def __init__(self, *objects):
        self.objects = {key_of(each): each for each in objects}

    def get(self, key):
        return self.objects.get(key)

    def index(self, name, values):
        self.values = values
        assert name == rules.PLACE

    def find(self, _index, value):
        return [each for each in self.objects.values() if value in self.values(each)]


def on(zone):
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}


def volume(name, size="1Gi", storage="local", *, zone=None, of=None, labels=None, **spec):
    spec = {"capacity": {"storage": size}, "storageClassName": storage, **spec}
    spec |= on(zone) if zone else {}
    if of:
        spec["claimRef"] = {"namespace": "default", "name": of}
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": spec}


def volume_claim(name, size="1Gi", storage="local", *, bound="", phase="", owner=None, **spec):
    spec = {"storageClassName": storage, **spec}
    spec["resources"] = {"requests": {"storage": size}}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    if owner:
        metadata["ownerReferences"] = [owner]
    if bound:
        spec["volumeName"] = bound
        metadata["annotations"] = {rules.BIND_COMPLETED: "yes"}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


def storage_class(name, mode="WaitForFirstConsumer", provisioner=rules.NO_PROVISIONER, *zones):
    made = {"metadata": {"name": name}, "volumeBindingMode": mode, "provisioner": provisioner}
    if zones:
        made["allowedTopologies"] = [
            {"matchLabelExpressions": [{"key": "zone", "values": [zone]}]} for zone in zones
        ]
    return made


CLASSES = (
    storage_class("local"),
    storage_class("now", "Immediate"),
    storage_class("made", "WaitForFirstConsumer", "x.example"),
    storage_class("in-b", "WaitForFirstConsumer", "x.example", "b", "c"),
    storage_class("any", "WaitForFirstConsumer", None),
)


class Bench:
    def __init__(self, claims, volumes=(), zones=("a", "b")):
        self.table = NodeTable()
        for zone in zones:
            self.table.put_node(worker(f"n-{zone}", labels={"zone": zone}))
        self.volumes = Volumes(self.table, Objects(*claims), Objects(*volumes), Objects(*CLASSES))

    def demand(self, *names, own=()):
        used = [{"name": f"v{n}", "persistentVolumeClaim": {"claimName": each}}
                for n, each in enumerate(names)]  # fmt: skip
        used += [{"name": each, "ephemeral": {"volumeClaimTemplate": {}}} for each in own]
        made = pod("p", volumes=used)
        made["metadata"]["uid"] = "u"
        return self.volumes.demand_of(pod_info(made))

    def left(self, *names):
        found = self.volumes.restrictions(self.demand(*names))
        return {text: mask.tolist() for text, mask in found}

    def plans(self, *names, row=0):
        found = self.volumes.plans(self.demand(*names), row)
        return found and {
            plan.claim["metadata"]["name"]: plan.volume and plan.volume["metadata"]["name"]
            for plan in found
        }


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ([], 'persistentvolumeclaim "c" not found'),
        ([volume_claim("c", storage="now")], "pod has unbound immediate PersistentVolumeClaims"),
        (
            [volume_claim("c", storage="unknown")],
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        ([volume_claim("c", bound="gone")], "pod has unbound immediate PersistentVolumeClaims"),
        ([volume_claim("c", volumeName="v")], "pod has unbound immediate PersistentVolumeClaims"),
        (
            [volume_claim("c", bound="gone", phase="Lost")],
            'persistentvolumeclaim "c" bound to non-existent persistentvolume "gone"',
        ),
    ],
)
def test_a_pod_is_not_tried_before_its_claims_are_ready(claims, why):
    assert str(Bench(claims, [volume("v")]).demand("c")) == why


def test_a_missing_claim_is_told_before_one_that_is_not_bound():
    found = Bench([volume_claim("c", storage="now")]).demand("c", "none")
    assert str(found) == 'persistentvolumeclaim "none" not found'


def test_a_claim_for_one_pod_alone_is_not_shared():
    bench = Bench([volume_claim("c", bound="v", accessModes=["ReadWriteOncePod"])], [volume("v")])
    assert bench.left("c") == {}
    used = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    elsewhere = pod("other", namespace="elsewhere", volumes=used)
    bench.table.add_pod("n-a", pod_info(elsewhere))
    assert bench.left("c") == {}
    other = pod("other", volumes=used)
    other["metadata"]["uid"] = "other"
    bench.table.add_pod("n-a", pod_info(other))
    assert bench.left("c") == {Reason(VOLUME_IN_USE): [False, False]}


@pytest.mark.parametrize(
    ("labels", "left"),
    [
        ({"topology.kubernetes.io/zone": "a"}, [True, False, True]),
        ({"failure-domain.beta.kubernetes.io/zone": "b"}, [False, True, True]),
        ({"topology.kubernetes.io/zone": "a__b"}, [True, True, True]),
        ({"topology.kubernetes.io/region": "r"}, [False, False, True]),
        ({"rack": "a"}, None),
    ],
)
def test_labels_of_a_volume_name_its_zone(labels, left):
    bench = Bench([volume_claim("c", bound="v")], [volume("v", labels=labels)], zones=())
    for zone in ("a", "b"):
        bench.table.put_node(worker(f"n-{zone}", labels={"topology.kubernetes.io/zone": zone}))
    bench.table.put_node(worker("n-bare"))  # in a cluster of one zone nodes may not say so
    assert bench.left("c") == ({} if left is None else {Reason(NO_VOLUME_ZONE): left})


def test_a_claim_that_is_deleted_is_not_used():
    going = volume_claim("c")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert str(Bench([going]).demand("c")) == 'persistentvolumeclaim "c" is being deleted'


def test_a_claim_made_for_a_pod_must_be_its_own():
    waits = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-e"'
    assert str(Bench([]).demand(own=["e"])) == waits
    other = "PVC default/p-e was not created for pod default/p"
    assert str(Bench([volume_claim("p-e")]).demand(own=["e"])) == other
    mine = Bench([volume_claim("p-e", owner=OWNER)]).demand(own=["e"])
    assert [each["metadata"]["name"] for each in mine.unbound] == ["p-e"]


def test_claims_that_wait_come_the_largest_first():
    claims = [volume_claim("b", "2Gi"), volume_claim("a", "2Gi"), volume_claim("c", "9Gi")]
    claims.append(volume_claim("has", bound="v"))
    found = Bench(claims, [volume("v")]).demand("b", "a", "has", "c")
    assert [each["metadata"]["name"] for each in found.unbound] == ["c", "a", "b"]
    assert [each["metadata"]["name"] for each in found.bound] == ["v"]


def test_nodes_are_those_that_all_volumes_reach():
    volumes = [volume("va", zone="a"), volume("vb", zone="b"), volume("free")]
    claims = [volume_claim(name, bound=f"v{name}") for name in "ab"]
    bench = Bench([*claims, volume_claim("f", bound="free")], volumes)
    assert bench.left("a") == {Reason(VOLUME_ELSEWHERE): [True, False]}
    assert bench.left("a", "b") == {Reason(VOLUME_ELSEWHERE): [False, False]}
    assert bench.left("b", "f") == {Reason(VOLUME_ELSEWHERE): [False, True]}
    assert bench.left("f") == {}


def test_nodes_are_those_where_a_volume_is_left_or_made():
    claims = [volume_claim("c"), volume_claim("m", storage="made")]
    claims += [volume_claim("b", storage="in-b"), volume_claim("x", storage="any")]
    bench = Bench(claims, [volume("va", zone="a")])
    assert bench.left("c") == {Reason(NO_VOLUME): [True, False]}
    assert bench.left("m") == {Reason(NO_VOLUME): [True, True]}
    assert bench.left("b") == {Reason(NO_VOLUME): [False, True]}
    assert bench.left("x") == {Reason(NO_VOLUME): [False, False]}
    assert bench.left("c", "b") == {Reason(NO_VOLUME): [False, False]}


def test_a_plan_names_a_volume_or_leaves_it_to_the_provisioner():
    volumes = [volume("big", "9Gi"), volume("fit", "2Gi"), volume("kept", of="k"), volume("tiny")]
    claims = [volume_claim("c", "2Gi"), volume_claim("d", "2Gi"), volume_claim("k")]
    claims += [volume_claim("m", storage="made"), volume_claim("e", "2Gi")]
    bench = Bench(claims, volumes)
    assert bench.plans("c") == {"c": "fit"}
    assert bench.plans("c", "d") == {"c": "fit", "d": "big"}
    assert bench.plans("c", "d", "e") is None
    assert bench.plans("k", "m") == {"k": "kept", "m": None}
    assert bench.volumes.plans(None, 0) == ()
    plans = bench.volumes.plans(bench.demand("c", "m"), 0)
    bench.volumes.assume(plans)
    assert bench.plans("c") == {"c": "big"}
    bench.volumes.put_volume("fit", volume("fit"))  # It is as free as it was.
    assert bench.plans("c") == {"c": "big"}
    bench.volumes.forget_plans(plans)
    assert bench.plans("c") == {"c": "fit"}
    for told in (None, volume("fit", of="c")):
        bench.volumes.assume(plans)
        bench.volumes.put_volume("fit", told)
        assert bench.plans("c") == {"c": "fit"}


# --- which volume serves which claim ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "serves"),
    [
        (volume("v", "2Gi"), True),
        (volume("v", "2147483648"), True),
        (volume("v", "1Gi"), False),
        (volume("v", "2Gi", "other"), False),
        (volume("v", "2Gi", volumeMode="Filesystem"), True),
        (volume("v", "2Gi", volumeMode="Block"), False),
        (volume("v", "2Gi", accessModes=["ReadOnlyMany", "ReadWriteOnce"]), True),
        (volume("v", "2Gi", accessModes=["ReadOnlyMany"]), False),
        (volume("v", "2Gi", of="c"), False),
        (volume("v", "2Gi", labels={"disk": "ssd"}), True),
        (volume("v", "2Gi", labels={"disk": "hdd"}), False),
    ],
)
def test_a_volume_serves_a_claim_that_it_is_large_enough_and_right_for(given, serves):
    claim = volume_claim("c", "2Gi")
    if "accessModes" in given["spec"]:
        claim["spec"]["accessModes"] = ["ReadWriteOnce"]
    if given["metadata"]["labels"]:
        claim["spec"]["selector"] = {"matchLabels": {"disk": "ssd"}}
    assert rules.serves(given, claim) is serves
    given["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not rules.serves(given, claim)


def test_the_class_of_a_claim_may_be_an_old_annotation():
    claim = volume_claim("c")
    assert (rules.class_of(claim), rules.places_for(claim)) == (
        "local", ("claim default/c", "class local")
    )  # fmt: skip
    claim["metadata"]["annotations"] = {rules.OLD_CLASS: "old"}
    assert rules.class_of(claim) == "old"
    claim["metadata"]["annotations"] = {rules.OLD_CLASS: ""}
    assert rules.class_of(claim) == ""
    assert [rules.place_of(volume("v")), rules.place_of(volume("v", of="c"))] == [
        "class local", "claim default/c"
    ]  # fmt: skip


def test_a_volume_belongs_to_the_claim_that_it_names():
    claim, kept = volume_claim("c"), volume("v", of="c")
    assert rules.belongs_to(kept, claim)
    kept["spec"]["claimRef"]["uid"] = "uid-c"
    assert rules.belongs_to(kept, claim)
    kept["spec"]["claimRef"]["uid"] = "an earlier one"
    assert not rules.belongs_to(kept, claim)
    assert not rules.belongs_to(volume("v", of="d"), claim)
    assert not rules.belongs_to(volume("v"), claim)
    assert key_of(claim) == NamespacedName("default", "c")
    assert rules.is_bound(volume_claim("c", bound="v"))
    assert not rules.is_bound(volume_claim("c", volumeName="v"))
    unnamed = volume_claim("c", bound="v")
    del unnamed["spec"]["volumeName"]
    assert not rules.is_bound(unnamed)
