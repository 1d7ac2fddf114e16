import hashlib
from itertools import islice

import orjson
import pytest

from dralab.drivers.fake.demo import children, parents
from dralab.drivers.go_random import draws, table, text_hash, uuids
from exampledriver import SHARED

VECTORS = SHARED / "fake-dra-driver" / "uuid-vectors.json"


def test_the_table_is_the_state_after_seven_point_eight_million_million_draws():
    words = b"".join(word.to_bytes(8, "little") for word in table())
    assert hashlib.sha256(words).hexdigest() == (
        "1928503b93a563e491119a5889baba73d1605b90b63634c14a408805797a7c7b"
    )


def test_a_seed_gives_the_draws_of_go():
    assert list(islice(draws(1), 3)) == [
        5577006791947779410,
        8674665223082153551,
        15352856648520921629,
    ]


@pytest.mark.skipif(not VECTORS.exists(), reason="the vectors are not beside this checkout")
def test_all_recorded_seeds_give_the_recorded_uuids():
    vectors = orjson.loads(VECTORS.read_bytes())["vectors"]
    assert len(vectors) == 15
    for vector in vectors:
        assert text_hash(vector["seed"]) == vector["hash"]
        assert uuids(vector["seed"], len(vector["uuids"])) == vector["uuids"]


def test_the_node_of_the_documentation_has_the_devices_that_it_shows():
    found = parents("fake-dra-driver-cluster-worker")
    assert found[0] == "FAKE-4d6cc6e5-e22d-3807-f026-783d55841ea5"
    assert found[7] == "FAKE-5bb9fd80-12c1-17f8-de47-7a3e76d565dc"
    assert children(found[6], 2) == [
        "FAKE-c3d6644d-29b2-c7b6-5393-95af636f14f8",
        "FAKE-b60e3cc1-54b4-1093-36b6-b8b0d59938c0",
    ]
    assert children(found[6], 5)[:2] == children(found[6], 2)
