"""Each release beside a kube-apiserver that emulates it: what it serves, and what it answers."""

import json
import re
import time

import pytest
from benchmarks import kube

from dralab.api.kinds import Kinds
from dralab.api.resource import features
from dralab.apiserver.access.authorization.reconciliation import expected
from dralab.apiserver.conformance.senders import InProcess, OverHttp, Question
from etcds import Etcd
from randomrequests import NAMESPACE, place_of, requests

pytestmark = pytest.mark.conformance

# A kube-apiserver emulates its own release and the three before.
PAIRS = [
    (binary, f"1.{minor}")
    for binary in (36, 37)
    for minor in range(binary - 3, binary + 1)
]  # fmt: skip
COUNT = 300
# What may be answered differently, of so many: an emulated server words errors as its own binary
# does, and knows its fields. `docs/decisions/api-differences.md` says what differs.
MOST = {("1.36", "1.36"): 4, ("1.37", "1.37"): 8}
MOST_EMULATED = 30
# What a server of 1.37.2 has whatever it emulates.
KEPT = ("storage.k8s.io", "v1", "csinodes")
KEPT_PATH = "/apis/storage.k8s.io/v1/csinodes/{name}/status"
# Types and fields of the releases themselves that a newer binary does not have any more.
GONE = {"WorkloadReference", "NodeAllocatableResourceMapping"}
GONE |= {"PodSpec.workloadRef", "NodeAllocatableResourceClaimStatus.resources"}
GONE |= {"Device.nodeAllocatableResourceMappings"}
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
GATE = re.compile(r'kubernetes_feature_enabled\{name="(\w+)",stage="(\w*)"\} (\d)')
DEFINITIONS = "customresourcedefinitions"
OWN = ("uid", "resourceVersion", "creationTimestamp", "managedFields")


class Asking:
    """A server, as its administrator."""

    def __init__(self, sender, token):
        self.sender, self.token = sender, token

    def send(self, target, accept="application/json", method="GET", body=None):
        headers = {"Authorization": f"Bearer {self.token}", "Accept": accept}
        headers |= {"User-Agent": "t/1"}
        data = b""
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        return self.sender.send(Question(method=method, target=target, headers=headers, body=data))

    def get(self, target, accept="application/json"):
        return self.send(target, accept).json()


@pytest.fixture(scope="module", params=PAIRS, ids=lambda pair: f"1.{pair[0]}-as-{pair[1]}")
def both(request, tmp_path_factory):
    """The release, what it is in this process, and the real server that emulates it."""
    binary, release = request.param
    program = kube.program("" if binary == 36 else "1.37")
    if program is None:
        pytest.skip(f"no kube-apiserver of 1.{binary}: tools/build_clients.py says how it is built")
    place = tmp_path_factory.mktemp("kube")
    mine = Asking(InProcess(release), "tok")
    with Etcd(place) as etcd:
        flag = [f"--emulated-version={release}"]
        url = etcd.url.replace("etcd:", "http:")
        real = kube.KubeApiserver(program, place / "kube", url, more=flag)
        try:
            asking = Asking(OverHttp(real.url, insecure=True), kube.TOKEN)
            while asking.send("/readyz").status != 200:  # the roles are there
                time.sleep(0.2)
            yield f"1.{binary}", release, mine, asking
        finally:
            real.stop()


def flat(document):
    return {
        (group["metadata"].get("name", ""), version["version"], resource["resource"]): resource
        for group in document["items"]
        for version in group["versions"]
        for resource in version.get("resources", ())
    }


def test_the_same_resources_are_listed_in_the_same_order(both):
    binary, release, mine, real = both
    for place in ("api", "apis"):
        ours = flat(mine.get(f"/{place}", AGGREGATED))
        theirs = flat(real.get(f"/{place}", AGGREGATED))
        if binary != release:
            theirs.get(KEPT, {}).pop("subresources", None)
        assert list(ours) == list(theirs)
        assert ours == theirs


def test_the_same_paths_and_fields_are_described(both):
    binary, release, mine, real = both
    compared = {"v2": [server.get("/openapi/v2") for server in (mine, real)]}
    places = [server.get("/openapi/v3")["paths"] for server in (mine, real)]
    assert set(places[0]) == set(places[1])
    for place in places[0]:
        compared[place] = [server.get(f"/openapi/v3/{place}") for server in (mine, real)]
    for place, (ours, theirs) in compared.items():
        kept = {KEPT_PATH} if binary != release else set()
        assert set(ours["paths"]) - kept == set(theirs["paths"]) - kept, place
        known, there = fields(ours), fields(theirs)
        if binary == release:
            assert known == there, place
        assert known - there <= {each for each in known if GONE & {each, each.partition(".")[0]}}, (
            place
        )


def fields(document):
    schemas = document.get("components", {}).get("schemas") or document.get("definitions") or {}
    return {
        f"{name.rpartition('.')[2]}.{field}"
        for name, schema in schemas.items()
        for field in schema.get("properties", {})
    }


def test_the_same_gates_are_on(both):
    _, release, _, real = both
    body = real.send("/metrics", "text/plain").body.decode()
    theirs = {name: (on == "1", stage or "GA") for name, stage, on in GATE.findall(body)}
    ours = {
        name: (gate.default, gate.stage.upper()) for name, gate in features.gates(release).items()
    }
    known = ours.keys() & theirs.keys()
    assert len(known) > 140
    assert {name: ours[name] for name in known} == {
        name: (on, "GA" if stage == "GA" else stage) for name, (on, stage) in theirs.items()
        if name in known
    }  # fmt: skip


def test_the_same_columns_are_printed(both):
    binary, release, mine, real = both
    kinds = Kinds.standard(also=(), release=release)
    asked = [place_of(kind) for kind in kinds if "list" in kind.verbs]
    assert len(asked) > 50
    found = {
        place: [
            [(c["name"], c["type"], c["format"], c["priority"]) for c in each["columnDefinitions"]]
            for each in (server.get(place, TABLE) for server in (mine, real))
        ]
        for place in asked
    }
    different = {place for place, pair in found.items() if pair[0] != pair[1]}
    # The columns of definitions are those of the binary.
    assert {place for place in different if binary == release or DEFINITIONS not in place} == set()


def test_the_same_roles_are_there(both):
    binary, release, _, real = both
    if binary != release:
        pytest.skip("a server that emulates a release has the roles of its own one")
    group = "/apis/rbac.authorization.k8s.io/v1"
    for plural, made in expected(release).items():
        if not plural.startswith(("cluster", "role")):
            continue
        part = "rules" if plural.endswith("roles") else "subjects"
        theirs = real.get(f"{group}/{plural}")["items"]
        assert {key(each): each.get(part) for each in made} == {
            key(each): each.get(part) for each in theirs
        }


def key(obj):
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def answer_of(reply):
    found = {"code": reply.status, "warning": reply.headers.get("warning")}
    body = reply.json() or {}
    if reply.status >= 400:
        causes = (body.get("details") or {}).get("causes") or ()
        told = sorted(f"{each.get('field', '')}: {each['message']}" for each in causes)
        return {**found, "told": told or body.get("message")}
    for part in OWN:
        body.get("metadata", {}).pop(part, None)
    return {**found, "answer": body}


def test_random_requests_are_answered_alike(both):
    binary, release, mine, real = both
    for server in (mine, real):
        made = server.send(
            "/api/v1/namespaces", method="POST", body={"metadata": {"name": NAMESPACE}}
        )
        assert made.status in {201, 409}
    kinds = Kinds.standard(also=(), release=release)
    different = []
    for asked in requests(kinds, COUNT, release, later=binary == release):
        ours, theirs = (
            answer_of(server.send(asked.target, method=asked.method, body=asked.body))
            for server in (mine, real)
        )
        if ours != theirs:
            shown = json.dumps(asked.body)[:600]
            different.append(f"{asked.target} {shown}\n  real {theirs}\n  ours {ours}")
    most = MOST.get((binary, release), MOST_EMULATED)
    assert len(different) <= most, "\n".join(different)
