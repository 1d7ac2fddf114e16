"""Scores of designs: what the numbers mean, the same for every generation."""

import xml.etree.ElementTree as ET
from fractions import Fraction

import pytest
import yaml

from dralab.allocation.problem import DeviceId, InUse
from dralab.allocation.room import Room
from dralab.prototypes.generations import GENERATIONS
from dralab.prototypes.score_picture import picture
from dralab.prototypes.scoring import repeated, score

POOL = """\
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DevicePool
metadata: {name: cards}
spec:
  driver: cards
  nodeName: n
  sharedResources: [{name: memory, capacity: "2"}]
  devices:
  - {name: FIRST}
  - {name: SECOND}
  - {name: THIRD}
---
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DevicePool
metadata: {name: nics}
spec: {driver: nics, nodeName: n, devices: [{name: nic-0}, {name: nic-1}]}
---
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DeviceClass
metadata: {name: card}
spec: {definition: {driver: cards}}
---
apiVersion: v1
kind: Pod
metadata: {name: one}
spec:
  containers: [{name: c, image: i, devices: [{name: card}]}]
  deviceClaims: {devices: [{name: card, class: card}]}
---
apiVersion: v1
kind: Pod
metadata: {name: plain}
spec: {containers: [{name: c, image: i}]}
"""


def objects(*order):
    found = list(yaml.safe_load_all(POOL))
    found[0]["spec"]["devices"] = [
        {"name": name, "sharedResourcesConsumed": {"memory": "2" if name == "whole" else "1"}}
        for name in order
    ]
    return found


def measured(found, times=1):
    k8srm = GENERATIONS["k8srm"]
    return score(k8srm.cluster([each.document for each in k8srm.read_all(repeated(found, times))]))


def test_a_card_counts_as_one_and_a_pod_without_devices_not_at_all():
    found = measured(objects("half-0", "half-1", "whole"))
    assert (found.pods, found.placed) == (1, 1)
    assert found.units == 3
    # Of the card a half is left: one of its three partitions.
    assert found.left == 2 + Fraction(1, 3)
    assert found.ways == (3,)
    assert found.oversized == 0


def test_a_whole_card_where_half_would_do_is_oversized():
    found = measured(objects("whole", "half-0", "half-1"), times=2)
    assert (found.pods, found.placed) == (2, 1)
    assert found.given == 1
    assert found.needed == Fraction(2, 3)
    assert measured(objects("half-0", "half-1", "whole"), times=2).placed == 2


def test_what_no_pod_of_the_load_asks_for_is_useless():
    found = measured(objects("half-0", "half-1", "whole"))
    assert found.stranded == 2  # both network cards
    assert found.useless == 2 / (2 + Fraction(1, 3))


def test_a_claim_that_cannot_be_met_has_no_ways():
    found = objects("whole")
    found[3]["spec"]["deviceClaims"]["devices"][0]["class"] = "absent"
    assert measured(found).ways == (0,)
    assert (measured(found).least_ways, measured(found).median_ways) == (0, 0)


def test_of_a_shared_device_the_scarcest_amount_is_left():
    v1 = GENERATIONS["v1"]
    device = {
        "name": "d",
        "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": "8Gi"}, "lanes": {"value": "4"}},
    }
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    item = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {"driver": "x.example.com", "nodeName": "n", "pool": pool, "devices": [device]},
    }
    room = Room(v1.cluster([v1.read(item).document]).fleet().slices)
    name = DeviceId("x.example.com", "p", "d")
    assert room.left(InUse()) == 1
    consumed = {name: {"memory": 2 * 2**30, "lanes": 3}}
    assert room.left(InUse(consumed=consumed)) == Fraction(1, 4)
    assert room.left(InUse(exclusive=frozenset([name]))) == 0


@pytest.mark.parametrize("api", ["evolution", "v1"])
def test_other_generations_are_measured_alike(api):
    from dralab.prototypes.conversion import reading
    from dralab.prototypes.conversion.to_evolution import ToEvolution
    from dralab.prototypes.conversion.to_v1 import ToV1

    k8srm = GENERATIONS["k8srm"]
    source = [each.document for each in k8srm.read_all(objects("whole", "half-0", "half-1"))]
    made = {"evolution": ToEvolution, "v1": ToV1}[api](reading.read(source, "k8srm")).objects()
    generation = GENERATIONS[api]
    found = score(generation.cluster([generation.read(item).document for item in made]))
    assert found == measured(objects("whole", "half-0", "half-1"))


def test_a_picture_has_a_bar_for_every_number_and_escapes_names():
    one = measured(objects("whole", "half-0", "half-1"))
    text = picture({"k8srm": one, "<mine>": one})
    assert text == picture({"k8srm": one, "<mine>": one})
    root = ET.fromstring(text)  # noqa: S314 - our own
    bars = [each for each in root.iter() if each.tag.endswith("rect")]
    assert len(bars) == 1 + 2 * 5 * 2
    assert "<mine>" in [each.text for each in root.iter()]
