"""Samples are stable, within limits, and equal to what the prototypes' generators shipped."""

from pathlib import Path

import pytest
import yaml

from dralab.fleet import rendering, shapes
from dralab.values import names

DATA = Path(__file__).parents[2] / ".." / "shared" / "testdata"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the shared test data are not here")


def test_there_are_shapes():
    assert {"foozer-1000-tiny", "foozer-4000-large", "dgxa100", "gb200-nvl72"} <= set(
        shapes.names()
    )


@pytest.mark.parametrize("api", rendering.WRITERS)
@pytest.mark.parametrize("shape", shapes.names())
def test_the_same_seed_gives_the_same_objects_with_distinct_names(shape, api):
    first = list(rendering.WRITERS[api](shapes.sample(shape, seed=7)))
    assert first == list(rendering.WRITERS[api](shapes.sample(shape, seed=7)))
    identities = [(item["kind"], item["metadata"]["name"]) for item in first]
    assert identities
    assert len(set(identities)) == len(identities)


def test_another_seed_gives_other_uuids():
    def uuid(seed):
        return shapes.sample("h100", seed=seed).pools[0].devices[0].attributes["uuid"]

    assert uuid(1) != uuid(2)


@pytest.mark.parametrize("shape", shapes.names())
def test_slices_keep_the_limits_of_v1(shape):
    slices = [o for o in rendering.v1(shapes.sample(shape)) if o["kind"] == "ResourceSlice"]
    assert slices
    for item in slices:
        spec = item["spec"]
        devices = spec.get("devices", [])
        assert len(devices) <= (64 if any("consumesCounters" in d for d in devices) else 128)
        assert len(spec.get("sharedCounters", [])) <= 8
        assert not names.subdomain_problems(item["metadata"]["name"])
        for device in devices:
            assert not names.label_problems(device["name"])
            assert len(device["attributes"]) + len(device.get("capacity", {})) <= 32
            for name in device["attributes"]:
                assert not names.c_identifier_problems(name.rpartition("/")[2])
            for value in device["attributes"].values():
                assert len(str(value.get("string", ""))) <= 64
    by_pool = {}
    for item in slices:
        by_pool.setdefault(item["spec"]["pool"]["name"], []).append(item["spec"])
    for specs in by_pool.values():
        assert {spec["pool"]["resourceSliceCount"] for spec in specs} == {len(specs)}


@pytest.mark.parametrize("shape", shapes.names())
def test_pools_keep_the_limits_of_evolution(shape):
    for item in rendering.evolution(shapes.sample(shape)):
        spec = item["spec"]
        assert len(spec["devices"]) <= 128
        assert len(spec.get("sharedCapacity", [])) <= 128
        assert not names.subdomain_problems(spec["driverName"])
        for device in spec["devices"]:
            assert not names.label_problems(device["name"])
            assert len(device["attributes"]) <= 32
            for attribute in device["attributes"]:
                assert not names.c_identifier_problems(attribute["name"].rpartition("/")[2])


def test_a_partition_never_asks_for_more_than_its_card_has():
    for shape in ("a100", "h100", "b200", "gb200-nvl72"):
        for pool in shapes.sample(shape, nodes=1).pools:
            for device in pool.devices:
                assert set(device.consumes) <= set(pool.units.get(device.unit, {}))


def test_trays_of_one_rack_share_an_nvlink_domain():
    sample = shapes.sample("gb200-nvl72", nodes=36)
    domains = [
        p.devices[0].attributes["nvlinkDomain"] for p in sample.pools if p.name.endswith("-gpus")
    ]
    assert len(domains) == 36
    assert len(set(domains[:18])) == len(set(domains[18:])) == 1
    assert domains[0] != domains[18]


def test_an_unknown_shape_lists_the_known_ones():
    with pytest.raises(shapes.UnknownShape, match="known shapes: a100, a100-40, b200"):
        shapes.sample("x")


def without_uuid(value):
    if isinstance(value, list):
        return [
            without_uuid(item)
            for item in value
            if not (isinstance(item, dict) and item.get("name") == "uuid")
        ]
    if isinstance(value, dict):
        return {key: without_uuid(item) for key, item in value.items()}
    return value


@needs_data
def test_dgxa100_of_k8srm_is_the_shipped_pool_with_its_slices_named_alike():
    text = (DATA / "k8srm-prototype" / "pools-two-nodes-one-dgxa100.yaml").read_text()
    shipped = list(
        yaml.safe_load_all(
            text.replace("memory-slices-0", "memory-slices-")
            .replace("memory-slices-\n", "memory-slices-0\n")
            .replace("memory-slices-:", "memory-slices-0:")
        )
    )
    ours = list(rendering.k8srm(shapes.sample("dgxa100", gpus=1)))
    assert without_uuid(ours) == without_uuid(shipped)


@pytest.mark.thorough
@needs_data
def test_dgxa100_of_evolution_is_the_shipped_pool_cut_in_two():
    shipped = yaml.safe_load((DATA / "dra-evolution" / "pools-two-nodes-dgxa100.yaml").read_text())
    ours = list(rendering.evolution(shapes.sample("dgxa100")))
    assert [len(pool["spec"]["devices"]) for pool in ours] == [104] * 4
    theirs = [device for pool in shipped for device in pool["spec"]["devices"]]
    mine = [device for pool in ours for device in pool["spec"]["devices"]]
    for theirs_one, mine_one in zip(theirs, mine, strict=True):
        assert mine_one["name"] == theirs_one["name"].replace(".", "-")
        assert without_uuid(mine_one["attributes"]) == [
            {**a, "name": a["name"].replace("-", "_")}
            for a in without_uuid(theirs_one["attributes"])
        ]
        assert sorted(
            (c["name"], c["capacity"]) for c in mine_one["sharedCapacityConsumed"]
        ) == sorted(
            (c["name"].replace("-", "_"), c["capacity"])
            for c in theirs_one["sharedCapacityConsumed"]
        )
    assert sum(len(pool["spec"]["sharedCapacity"]) for pool in ours) == 2 * 112
