"""The releases of Kubernetes, beside what real servers of each answer.

The recorded servers are kube-apiservers of 1.36.2 and 1.37.2 with `--emulated-version`. These keep
the Go types of their binary: of an older release, the fields and definitions of the newer one are
there, too, and their gates keep them from being used.
"""

import gzip
import json
from pathlib import Path

import pytest

from dralab.api import releases
from dralab.api.decoding import decoder_of
from dralab.api.kinds import Kinds
from dralab.api.resource import features
from dralab.api.schemas import Schemas
from dralab.apiserver.http.messages import HttpRequest
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore

RECORDED = (Path(__file__).parents[2] / ".." / "shared/testdata/apiserver/versions").resolve()
RELEASES = ("1.33", "1.34", "1.35", "1.36", "1.37")
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
# What a server of 1.37.2 has whatever it emulates.
KEPT = ("storage.k8s.io", "v1", "csinodes")
KEPT_PATH = "/apis/storage.k8s.io/v1/csinodes/{name}/status"


def recorded(release):
    path = RECORDED / f"{release}.json.gz"
    if not path.exists():
        pytest.skip("the answers of real servers by release are not beside this checkout")
    return json.loads(gzip.decompress(path.read_bytes()))


def server_of(release):
    return ApiServer(MemoryStore(), kinds=Kinds.standard(also=(), release=release))


def answer(server, path, accept="application/json"):
    request = HttpRequest(method="GET", path=path, headers={"accept": accept})
    return json.loads(server.handle(request).body)


def flat(document):
    return {
        (group["metadata"].get("name", ""), version["version"], resource["resource"]): resource
        for group in document["items"]
        for version in group["versions"]
        for resource in version.get("resources", ())
    }


@pytest.mark.parametrize("release", RELEASES)
def test_a_release_lists_its_resources_as_a_real_server_does_and_in_its_order(release):
    server, there = server_of(release), recorded(release)
    for place in ("api", "apis"):
        mine, theirs = flat(answer(server, f"/{place}", AGGREGATED)), flat(there[place])
        if there["server"].startswith("kube-apiserver 1.37.2") and release != "1.37":
            theirs.get(KEPT, {}).pop("subresources", None)
        assert list(mine) == list(theirs)
        assert mine == theirs


@pytest.mark.parametrize("release", RELEASES)
def test_a_release_says_which_one_it_is(release):
    found = answer(server_of(release), "/version")
    there = recorded(release)["version"]
    assert found["emulationMinor"] == there["emulationMinor"] == release.partition(".")[2]
    assert found["gitVersion"] == releases.version_of(release)


@pytest.mark.parametrize("release", RELEASES)
def test_a_release_describes_the_paths_and_fields_of_a_real_server(release):
    server, there = server_of(release), recorded(release)
    document = answer(server, "/openapi/v2")
    paths = set(there["paths"])
    assert set(document["paths"]) == paths - ({KEPT_PATH} if release != "1.37" else set())
    fields = {
        name: sorted(definition.get("properties", {}))
        for name, definition in document["definitions"].items()
    }
    if release == "1.37":
        assert fields == {name: sorted(each) for name, each in there["fields"].items()}
    gone = {"PodSpec.workloadRef", "NodeAllocatableResourceClaimStatus.resources"}
    gone.add("Device.nodeAllocatableResourceMappings")
    more = {
        f"{name.rpartition('.')[2]}.{field}"
        for name, known in fields.items()
        if name in there["fields"]
        for field in known
        if field not in there["fields"][name]
    }
    assert more <= gone


@pytest.mark.parametrize("release", RELEASES)
def test_the_gates_of_a_release_are_as_a_real_server_has_them(release):
    there = recorded(release)["gates"]
    mine = features.gates(release)
    both = mine.keys() & there.keys()
    assert len(both) > 140
    assert {name: (mine[name].default, mine[name].stage.upper()) for name in both} == {
        name: (there[name]["enabled"], there[name]["stage"] or "GA") for name in both
    }
    on = {name for name, gate in mine.items() if gate.default}
    assert features.default_of(release) - features.CHANGES.keys() == on


def test_the_definitions_of_a_release_are_its_own():
    had = {"1.32": False, "1.33": True, "1.34": True, "1.36": True, "1.37": True}
    for release, has in had.items():
        request = Schemas.standard(release).definition("io.k8s.api.resource.v1beta1.DeviceRequest")
        assert ("firstAvailable" in request.properties) is has
    assert Schemas.standard("1.33").schema_of("resource.k8s.io/v1", "ResourceClaim") is None
    assert Schemas.standard("1.36").schema_of("scheduling.k8s.io/v1alpha2", "PodGroup")
    assert Schemas.standard("1.37").schema_of("scheduling.k8s.io/v1alpha2", "PodGroup") is None


def test_a_field_of_a_later_release_is_unknown_to_an_earlier_one():
    pod = {"spec": {"evictionResponders": [{"name": "a"}]}}
    for release, unknown in (("1.37", []), ("1.36", ["spec.evictionResponders"])):
        decoder = decoder_of("v1", "Pod", release)
        value, found = decoder.decode(json.loads(json.dumps(pod)))
        assert found == unknown
        assert ("evictionResponders" in value["spec"]) is not unknown


@pytest.mark.parametrize("release", [*RELEASES, "1.32"])
def test_every_kind_of_a_release_has_a_definition_of_it(release):
    kinds = list(Kinds.standard(release=release))
    assert len(kinds) > 75
    schemas = Schemas.standard(release)
    without = {k.kind for k in kinds if schemas.schema_of(k.api_version, k.kind) is None}
    assert without == set()


@pytest.mark.parametrize("text", ["1.31", "1.38", "v1", "1.36.x", "", "stable"])
def test_an_unknown_release_is_refused_with_those_that_are_known(text):
    with pytest.raises(releases.ReleaseError, match=r"1\.32, .*1\.37"):
        releases.parse(text)


def test_a_gate_that_is_locked_or_of_another_release_is_refused():
    with pytest.raises(features.GateError, match=r"locked to true in Kubernetes 1\.36\.2"):
        features.with_gates("DRAAdminAccess=false", release="1.36")
    assert "DRAAdminAccess" not in features.with_gates("DRAAdminAccess=false", release="1.35")
    with pytest.raises(features.GateError, match=r"Kubernetes 1\.33\.\d+ has none"):
        features.with_gates("DRAConsumableCapacity=true", release="1.33")


def test_a_gate_whose_needs_are_off_is_refused():
    text = r"CompositePodGroup is on, .* GenericWorkload, TopologyAwareWorkloadScheduling"
    with pytest.raises(features.GateError, match=text):
        features.with_gates("CompositePodGroup=true", release="1.37")
    with pytest.raises(features.GateError, match=r"DRADeviceTaintRules is on, .*DRADeviceTaints"):
        features.with_gates("DRADeviceTaints=false", release="1.37")
    both = "GenericWorkload=true,GangScheduling=true"
    assert {"GenericWorkload", "GangScheduling"} <= features.with_gates(both, release="1.36")
    assert "GangScheduling" not in features.needs("1.34")


def test_a_named_gate_has_the_last_word_over_a_group():
    for text in (
        "AllBeta=false,DRAConsumableCapacity=true",
        "DRAConsumableCapacity=true,AllBeta=false",
    ):
        found = features.with_gates(text, release="1.36")
        assert {"DRAConsumableCapacity", "DRAPartitionableDevices"} & found == {
            "DRAConsumableCapacity"
        }
