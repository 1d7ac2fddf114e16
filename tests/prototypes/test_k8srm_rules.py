"""What counts, totals, types and access mean in k8srm, on a few devices of our own."""

import pytest

from dralab.cli._older import reason_of
from dralab.prototypes.generations import GENERATIONS
from dralab.prototypes.k8srm.cluster import K8srmCluster
from dralab.prototypes.k8srm.normalize import normalize
from dralab.prototypes.placement import PlacedPod
from dralab.values.patches import copied

API = "devmgmtproto.k8s.io/v1alpha1"


def pool(*memories, node="node-a", driver="toys"):
    devices = [
        {
            "name": f"d{number}",
            "claimResourcesProvided": [{"name": "memory", "capacity": amount}],
        }
        for number, amount in enumerate(memories)
    ]
    spec = {"driver": driver, "nodeName": node, "devices": devices}
    return item("DevicePool", "pool", spec)


def item(kind, name, spec):
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}


def device_class(name="toy", **spec):
    return item("DeviceClass", name, {"definition": {"driver": "toys"}, **spec})


def claim(*details, one_of=(), name="shape"):
    instance = {"name": "toy", "allOf": list(details), "oneOf": list(one_of)}
    return item("DeviceClaim", name, {"devices": [{k: v for k, v in instance.items() if v}]})


def pod(name="p", **claims):
    spec = {"containers": [{"name": "c"}], "deviceClaims": claims or {"claimName": "shape"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def cluster(*objects):
    reports = [normalize(each) for each in objects]
    assert [str(f) for r in reports for f in r.findings if f.level == "invalid"] == []
    return K8srmCluster([report.document for report in reports])


def devices(world, of=None):
    """The devices that a pod gets, or why it gets none."""
    placed = world.place(of or world.pods()[0])
    if not isinstance(placed, PlacedPod):
        return placed.reason or "unschedulable"
    world.apply(placed)
    return [device.device for device in placed.devices]


def findings(of, level="invalid"):
    return [str(finding) for finding in normalize(of).findings if finding.level == level]


def test_a_total_counts_only_the_devices_that_are_chosen_from_a_range():
    wanted = claim({"class": "toy", "maxDevices": 2, "requests": {"memory": "60Gi"}})
    assert devices(cluster(pool("40Gi", "40Gi"), device_class(), wanted, pod())) == ["d0", "d1"]
    assert devices(cluster(pool("40Gi", "64Gi"), device_class(), wanted, pod())) == ["d1"]
    assert devices(cluster(pool("20Gi", "32Gi"), device_class(), wanted, pod())) == "unschedulable"


def test_a_total_of_one_alternative_does_not_bind_another():
    ways = [{"class": "toy", "requests": {"memory": size}} for size in ("60Gi", "30Gi")]
    wanted = claim(one_of=ways)
    assert devices(cluster(pool("20Gi", "40Gi"), device_class(), wanted, pod())) == ["d1"]


def test_a_range_far_larger_than_any_node_ends_at_the_devices_of_a_node():
    wanted = claim({"class": "toy", "maxDevices": 10**9, "requests": {"memory": "60Gi"}})
    assert devices(cluster(pool("40Gi", "40Gi"), device_class(), wanted, pod())) == ["d0", "d1"]


@pytest.mark.parametrize("definition", [{"driver": "toys"}, {}])
def test_a_claim_for_a_type_gets_a_device_of_any_class_of_the_type(definition):
    driver = {"apiVersion": API, "kind": "DeviceDriver", "metadata": {"name": "toys"}}
    driver["deviceTypes"] = ["gpu"]
    gpus = device_class(deviceType="gpu", definition=definition)
    world = cluster(driver, pool("1Gi"), gpus, claim({"deviceType": "gpu"}), pod())
    assert devices(world) == ["d0"]


def test_a_claim_for_a_type_without_a_class_says_so():
    world = cluster(pool("1Gi"), device_class(), claim({"deviceType": "nic"}), pod())
    assert devices(world) == 'claim default/shape: no DeviceClass has type "nic"'


def test_a_limit_may_be_written_as_any_quantity():
    wanted = claim({"class": "toy", "limits": {"count": "2"}, "requests": {"memory": "60Gi"}})
    assert devices(cluster(pool("40Gi", "40Gi"), device_class(), wanted, pod())) == ["d0", "d1"]


@pytest.mark.parametrize("count", [-1, 0, "1500m", "-1"])
@pytest.mark.parametrize("field", ["requests", "limits"])
def test_a_number_of_devices_is_a_whole_number_from_one(field, count):
    name = "devices" if field == "requests" else "count"
    [found] = findings(claim({"class": "toy", field: {name: count}}))
    assert found.startswith(f'spec.devices[0].allOf[0].{field}.{name}: "{count}" is not a ')


def test_a_claim_embedded_in_a_pod_is_checked_like_any_other():
    embedded = {
        "devices": [{"name": "x", "allOf": [{"class": "toy", "requests": {"devices": -1}}]}]
    }
    entry = {"name": "gpu", "claim": embedded}
    of = pod() | {"spec": {"containers": [{"name": "c"}], "deviceClaims": [entry]}}
    [found] = findings(of)
    assert found.startswith("spec.deviceClaims[0].claim.devices[0].allOf[0].requests.devices: ")


def test_bounds_of_a_class_and_a_claim_that_exclude_each_other_are_said():
    def answer(wanted, **bounds):
        return devices(cluster(pool("1Gi", "1Gi", "1Gi"), device_class(**bounds), wanted, pod()))

    most = claim({"class": "toy", "maxDevices": 1})
    assert "at most 1 devices are fewer than the 2 that" in answer(most, minDeviceCount=2)
    more = claim({"class": "toy", "requests": {"devices": 2}, "maxDevices": 3})
    assert "3 devices are more than the 2 that class toy allows" in answer(more, maxDeviceCount=2)


def test_a_class_with_admin_access_gives_all_its_devices_whoever_has_them():
    plain, admin = claim({"class": "toy"}, name="plain"), claim({"class": "admin"})
    first, second = pod("first", claimName="plain"), pod("second", claimName="shape")
    watching = device_class("admin", adminAccess=True)
    objects = (pool("1Gi", "1Gi"), device_class(), watching, plain, admin)
    world = cluster(*objects, first, second)
    assert devices(world, first) == ["d0"]
    assert devices(world, second) == ["d0", "d1"]
    third = pod("third", template={"claimName": "plain"})
    assert devices(world, third) == ["d1"]


def test_naming_a_type_gives_no_admin_access_beside_ordinary_classes():
    watching = device_class("admin", deviceType="gpu", adminAccess=True)
    gpus = device_class(deviceType="gpu")
    world = cluster(pool("1Gi", "1Gi"), watching, gpus, claim({"deviceType": "gpu"}), pod())
    assert devices(world) == ["d0"]


def test_a_capacity_that_blocks_cannot_divide_is_said():
    offered = pool("1Gi")
    [part] = offered["spec"]["devices"][0]["claimResourcesProvided"]
    path = "spec.devices[0].claimResourcesProvided[0]"
    part["blockSize"] = "0"
    assert findings(offered) == [f'{path}.blockSize: "0" must be greater than zero']
    part |= {"capacity": "1500m", "blockSize": "1"}
    [found] = findings(offered, "warning")
    assert found.startswith(f'{path}.capacity: "1500m" is not a multiple of blockSize 1')


def test_drivers_beside_a_class_say_whether_anything_is_of_its_type():
    driver = {"apiVersion": API, "kind": "DeviceDriver", "metadata": {"name": "toys"}}
    driver["deviceTypes"] = ["gpu"]
    of_type = item("DeviceClass", "gpus", {"deviceType": "gpu"})
    generation = GENERATIONS["k8srm"]

    def said(*items):
        return [str(f) for r in generation.read_all(items) for f in r.findings]

    assert said(driver, of_type) == []
    [alone] = said(of_type)
    assert 'no DeviceDriver here lists "gpu": the class matches nothing' in alone


def test_instances_of_a_claim_have_names_of_their_own():
    twice = item("DeviceClaim", "c", {"devices": [{"name": "a", "allOf": [{"class": "toy"}]}] * 2})
    assert findings(twice) == ['spec.devices[1].name: "a" appears twice']


def test_requests_are_called_as_their_author_called_them():
    both = claim({"class": "toy"}, one_of=[{"class": "toy"}, {"class": "toy"}])
    world = cluster(device_class(), claim({"class": "toy"}), both | {"metadata": {"name": "both"}})
    names = [
        [
            way.name
            for request in world.problem(of).claims[0].requests
            for way in request.subrequests
        ]
        for of in (pod(), pod(claimName="both"))
    ]
    assert names == [["toy"], ["toy.allOf[0]", "toy.oneOf/oneOf[0]", "toy.oneOf/oneOf[1]"]]


def test_a_cluster_without_pools_says_that_there_are_none():
    world = cluster(device_class(), claim({"class": "toy"}), pod())
    assert devices(world) == "there are no devices: no DevicePool"


def test_fields_are_read_in_any_case():
    written = item("DeviceClass", "toy", None) | {"Spec": {"Definition": {"Driver": "toys"}}}
    del written["spec"]
    read = normalize(written)
    assert read.document["spec"] == {"definition": {"driver": "toys"}}
    assert [str(finding) for finding in read.findings] == [
        "Spec: read as spec",
        "spec.Definition: read as definition",
        "spec.definition.Driver: read as driver",
    ]
    twice = item("DeviceClass", "toy", {"definition": {"driver": "a", "Driver": "b"}})
    assert "spec.definition.Driver: means the same as driver: set one of them" in findings(twice)


def test_what_is_stored_and_not_acted_on_is_said():
    [found] = findings(item("DevicePrivilegedClaim", "c", {"driver": "toys"}), "warning")
    assert "nothing allocates it: use a DeviceClaim with adminAccess" in found
    [found] = findings(device_class(accessMode="shared"), "warning")
    assert found.startswith("spec.accessMode: ")


def early(*details, name="shape", **spec):
    return item("DeviceClaim", name, {"claims": list(details), **spec})


TYPO = 'Forbidden: unknown field, did you mean "'


@pytest.mark.parametrize(
    ("spec", "finding"),
    [
        ({"claims": [{"deviceClass": "toy", "constraint": "x"}]}, f'claims[0].constraint: {TYPO}constraints"?'),
        ({"claims": [{"deviceClass": "toy", "limit": {"count": 2}}]}, f'claims[0].limit: {TYPO}limits"?'),
        ({"claims": [{"requests": ["count"]}]}, 'claims[0].requests: Invalid value: ["count"]: must be a mapping'),
        ({"claims": [{"deviceClass": "toy", "constraints": 5}]}, "claims[0].constraints: Invalid value: 5: must be a string"),
        ({"claims": [{"oneOf": {}}]}, "claims[0].oneOf: Invalid value: {}: must be a list"),
        ({"claims": [{"oneOf": []}]}, "claims[0].oneOf: has no alternative: at least one is required"),
        ({"claims": [{"oneOf": [{}]}]}, "claims[0].oneOf[0].deviceClass: a deviceClass is required"),
        ({"claims": [{"deviceClass": "toy", "matchAttributes": "model"}]}, 'claims[0].matchAttributes: Invalid value: "model": must be a list'),
        ({"claims": [{"deviceClass": ["gpu"]}]}, 'claims[0].deviceClass: Invalid value: ["gpu"]: must be a string'),
        ({"claims": [None]}, "claims[0]: Invalid value: null: must be a mapping"),
        ({"claims": []}, "claims: is required: the devices that the claim is for"),
        ({"devices": []}, "devices: is required: the devices that the claim is for"),
        ({}, "devices: is required: the devices that the claim is for"),
        ({"claims": [{"deviceClass": "toy", "requests": {"count": 0}}]}, 'claims[0].requests.count: "0" is not a number of devices'),
        ({"claims": [{"deviceClass": "toy", "count": 2, "limits": {"count": 1}}]}, "claims[0].limits.count: 1 is less than the 2 requested"),
        ({"claims": [{"deviceClass": "toy", "count": 2, "requests": {"devices": 1}}]}, "claims[0].count: means the same as spec.claims[0].requests.devices: set one of them"),
        ({"claims": [{"deviceClass": "toy", "oneOf": [{"deviceClass": "toy"}]}]}, "claims[0]: deviceClass beside oneOf: write them into each alternative"),
        ({"claims": [{"deviceClass": "toy"}], "driver": "toys"}, "driver: has no place beside claims: write it into an entry of claims"),
        ({"claims": [], "devices": [{"name": "x", "class": "toy"}]}, "claims: has no place beside devices: write it into an entry of devices"),
        ({"deviceClass": "toy", "distinctAttributes": ["a"]}, "distinctAttributes: has no place in a claim without devices"),
        ({"deviceClass": "toy", "minDeviceCount": 2, "maxDeviceCount": 1}, "maxDeviceCount: 1 is less than the 2 requested"),
        ({"devices": [{"name": "x", "requests": {"count": "x"}, "class": "toy"}]}, 'devices[0].requests.count: Invalid value: "x": must be a quantity, such as'),
    ],
)  # fmt: skip
def test_a_claim_of_any_stage_is_refused_by_the_path_that_its_author_wrote(spec, finding):
    [found] = findings(item("DeviceClaim", "c", spec))
    assert found.startswith(f"spec.{finding}")


@pytest.mark.parametrize("stage", ["claims", "devices"])
@pytest.mark.parametrize("field", ["apiVersion", "kind", "name"])
def test_a_config_of_a_claim_names_what_it_is_and_no_namespace(stage, field):
    def claimed(config):
        detail = {"class": "toy", "configs": [config]}
        return claim(detail) if stage == "devices" else early(detail)

    config = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x"}
    path = "spec.claims[0]" if stage == "claims" else "spec.devices[0].allOf[0]"
    assert findings(claimed(config)) == []
    rest = {key: value for key, value in config.items() if key != field}
    assert findings(claimed(rest)) == [f"{path}.configs[0].{field}: Required value"]
    [found] = findings(claimed(config | {"namespace": "other"}))
    assert found.startswith(f'{path}.configs[0].namespace: "other": a claim\'s config is looked up')


def test_a_claim_of_stage_k3_without_limits_takes_the_devices_that_its_totals_need():
    pools = pool("40Gi", "40Gi"), device_class()
    wanted = {"deviceClass": "toy", "requests": {"memory": "60Gi"}}
    assert devices(cluster(*pools, early(wanted), pod())) == ["d0", "d1"]
    limited = early(wanted | {"limits": {"count": 1}})
    assert devices(cluster(*pools, limited, pod())) == "unschedulable"
    assert devices(cluster(*pools, early({"oneOf": [wanted]}), pod())) == ["d0", "d1"]
    of_class = pool("40Gi", "40Gi"), device_class(maxDeviceCount=1)
    assert devices(cluster(*of_class, early(wanted), pod())) == "unschedulable"


def test_a_class_with_admin_access_gives_as_many_devices_as_the_claim_counts():
    watching = device_class("admin", adminAccess=True)
    objects = (pool("1Gi", "1Gi"), device_class(), watching, claim({"class": "toy"}, name="plain"))
    counted = early({"deviceClass": "admin", "requests": {"count": 1}}, name="one")
    two = early({"deviceClass": "admin", "requests": {"count": 2}}, name="two")
    unsaid = early({"deviceClass": "admin"}, name="unsaid")
    world = cluster(*objects, counted, two, unsaid)
    assert devices(world, pod("first", claimName="plain")) == ["d0"]
    assert devices(world, pod("second", claimName="one")) == ["d0"]
    assert devices(world, pod("third", claimName="two")) == ["d0", "d1"]
    assert devices(world, pod("fourth", claimName="unsaid")) == ["d0"]


def versions(*texts):
    described = pool(*("1Gi" for _ in texts))
    for device, text in zip(described["spec"]["devices"], texts, strict=True):
        device["attributes"] = [{"name": "fw", "semVerValue": text}]
    return described


def test_a_version_is_accepted_as_written_and_ordered_where_it_is_semantic():
    described = versions("v1.0", "1.10.0")
    [said] = findings(described, "warning")
    assert said.startswith('spec.devices[0].attributes[0].semVerValue: "v1.0" is not a semantic')

    def answer(text):
        world = cluster(
            described, device_class(), claim({"class": "toy", "constraints": text}), pod()
        )
        return devices(world), sorted(world.failures().values())

    assert answer("device.fw == 'v1.0'") == (["d0"], [])
    assert answer("device.fw >= '1.9.0'") == (
        ["d1"],
        ['attribute "fw" is not a semantic version: compare it with == or !='],
    )
    assert answer("device.fw in ['v1.0']")[0] == ["d0"]


def test_another_version_of_the_group_is_not_valid():
    other = device_class() | {"apiVersion": "devmgmtproto.k8s.io/v1alpha2"}
    assert findings(other) == [
        'apiVersion: "devmgmtproto.k8s.io/v1alpha2" must be devmgmtproto.k8s.io/v1alpha1'
    ]


def test_an_invalid_claim_keeps_its_devices_and_stops_only_its_own_pod():
    held = early({"deviceClass": "toy", "constraint": "x"}, name="held")
    held["status"] = {"allocations": [{"devicePoolName": "pool", "deviceName": "d0"}]}
    objects = (pool("1Gi", "1Gi"), device_class(), claim({"class": "toy"}))
    world = K8srmCluster(map(copied, objects), [normalize(held)])
    assert devices(world, pod("stuck", claimName="held")) == (
        'DeviceClaim "default/held" is invalid: spec.claims[0].constraint: Forbidden: unknown '
        'field, did you mean "constraints"?'
    )
    assert devices(world, pod()) == ["d1"]


def test_a_preferred_match_is_an_alternative_without_it():
    def answer(*models):
        described = pool(*("1Gi" for _ in models))
        for device, model in zip(described["spec"]["devices"], models, strict=True):
            device["attributes"] = [{"name": "model", "stringValue": model}]
        alike = {"class": "toy", "requests": {"devices": 2}, "matchAttributes": ["model"]}
        unlike = {"class": "toy", "requests": {"devices": 2}}
        return devices(cluster(described, device_class(), claim(one_of=[alike, unlike]), pod()))

    assert answer("a", "b", "a") == ["d0", "d2"]
    assert answer("a", "b", "c") == ["d0", "d1"]


def explained(wanted):
    described = pool("40Gi", "40Gi")
    described["spec"]["attributes"] = [{"name": "vendor", "stringValue": "x"}]
    for device, model in zip(described["spec"]["devices"], ("a", "b"), strict=True):
        device["attributes"] = [
            {"name": "model", "stringValue": model},
            {"name": "mem", "quantityValue": "10Gi"},
        ]
    world = cluster(described, device_class(), wanted, pod())
    placed = world.place(world.pods()[0])
    return placed.reason or reason_of(world, placed).text


@pytest.mark.parametrize(
    ("detail", "lines"),
    [
        ({"deviceClass": "toyy"}, ['DeviceClass "toyy" does not exist; did you mean "toy"?']),
        (
            {"deviceClass": "toy", "constraints": "device.vendr == 'x'"},
            ['no toy has attribute "vendr"', "with mem, model, vendor", "did you mean 'vendor'?"],
        ),
        (
            {"deviceClass": "toy", "constraints": "device.model == 'A' && device.vendor == 'x'"},
            ['no toy has model "A"', "model: a (1), b (1)", "did you mean 'a'?"],
        ),
        (
            {"deviceClass": "toy", "constraints": "device.mem >= '50Gi'"},
            ["no toy has mem ≥ 50Gi", "the largest mem is 10Gi", "ask for 10Gi mem or less"],
        ),
        (
            {"deviceClass": "toy", "requests": {"memory": "60Gi"}, "limits": {"count": 1}},
            [
                "no node has 1 device with 60Gi memory in total",
                "write `limits: {count: 2}` in spec.claims[0]",
            ],
        ),
        (
            {"deviceClass": "toy", "requests": {"count": 3}},
            [
                "spec.claims[0].requests.count   count: 3",
                "write `requests: {count: 2}` in spec.claims[0]",
            ],
        ),
        (
            {"oneOf": [{"deviceClass": "toy", "constraints": "device.model == 'c'"}]},
            ["spec.claims[0].oneOf[0].constraints   device.model == 'c'"],
        ),
    ],
)
def test_an_explanation_names_what_is_there_and_a_help_that_was_confirmed(detail, lines):
    page = explained(early(detail))
    assert [line for line in lines if line not in page] == []


def test_a_help_for_a_claim_of_the_last_stage_writes_its_own_field():
    page = explained(claim({"class": "toy", "requests": {"memory": "60Gi"}}))
    assert "write `maxDevices: 2` in spec.devices[0].allOf[0]" in page


def test_a_maximum_of_the_class_is_not_raised_by_a_help():
    bounded = device_class(maxDeviceCount=1)
    wanted = early({"deviceClass": "toy", "requests": {"memory": "60Gi"}, "limits": {"count": 1}})
    world = cluster(pool("40Gi", "40Gi"), bounded, wanted, pod())
    page = reason_of(world, world.place(world.pods()[0])).text
    assert "limits" not in page
    assert "help: leave out the constraint on memory" in page


def test_a_device_in_use_is_named_with_its_pool():
    taken = claim({"class": "toy"}, name="other")
    taken["status"] = {"allocations": [{"devicePoolName": "pool", "deviceName": "d0"}]}
    described = pool("40Gi", "40Gi")
    lone = {"name": "model", "stringValue": "a"}
    described["spec"]["devices"][0]["attributes"] = [lone]
    wanted = claim({"class": "toy", "constraints": "device.model == 'b'"})
    world = cluster(described, device_class(), taken, wanted, pod())
    page = reason_of(world, world.place(world.pods()[0])).text
    assert "pool/d0" in page
    assert "000000" not in page
