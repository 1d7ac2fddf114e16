"""What a cluster that asks who may do what has from the start, and what becomes of it."""

import json

import pytest

from builders import SHARED
from dralab.apiserver.access.authorization import reconciliation
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.apiserver.verbs import creating
from dralab.apiserver.verbs.upkeep import bootstrap
from dralab.kernel.clock import ManualClock
from dralab.kernel.randomness import Randomness
from offices import RBAC, Office, person, rule

MERGE = "application/merge-patch+json"
FLOW = "/apis/flowcontrol.apiserver.k8s.io/v1"
RECORDED = SHARED / "testdata/apiserver/bootstrap-v1.36.json"


def names(office, path):
    return {
        (item["metadata"].get("namespace", ""), item["metadata"]["name"]): item
        for item in office.ask("GET", path)[1]["items"]
    }


def test_a_server_has_the_objects_that_a_real_one_has(office):
    if not RECORDED.exists():
        pytest.skip(f"{RECORDED} is not there")
    recorded = json.loads(RECORDED.read_text())
    for plural, path in [
        ("clusterroles", RBAC),
        ("clusterrolebindings", RBAC),
        ("roles", RBAC),
        ("rolebindings", RBAC),
        ("flowschemas", FLOW),
        ("prioritylevelconfigurations", FLOW),
    ]:
        found = names(office, f"{path}/{plural}")
        assert len(found) == len(recorded[plural])
        for wanted in recorded[plural]:
            metadata = wanted["metadata"]
            made = found[metadata.get("namespace", ""), metadata["name"]]
            for part in ("rules", "roleRef", "subjects", "aggregationRule", "spec"):
                assert made.get(part) == wanted.get(part), (plural, metadata["name"], part)
            for part in ("labels", "annotations", "generation"):
                assert made["metadata"].get(part) == metadata.get(part), metadata["name"]


def test_the_first_objects_are_what_creating_them_would_make(monkeypatch):
    def made():
        server = ApiServer(
            MemoryStore(), clock=ManualClock(), randomness=Randomness(7), authorization=["RBAC"]
        )
        hubs = [f"{group}/{plural}" for plural, group in reconciliation.GROUPS.items()]
        return [one.encoded for hub in hubs for one in server.store.list(hub).items]

    as_they_are = made()
    monkeypatch.setattr(bootstrap, "create_as_is", creating.create)
    assert len(as_they_are) > 150
    assert as_they_are == made()


def test_a_second_start_writes_nothing(office):
    before = office.store.revision
    assert before > 150
    assert Office(store=office.store).store.revision == before


def test_everybody_may_look_at_the_kinds_and_the_health(office):
    for path in ("/version", "/livez", "/api", "/apis", "/apis/apps/v1", "/openapi/v3"):
        assert office.ask("GET", path, user="jane")[0] == 200
    assert office.ask("GET", "/metrics", user="jane")[0] == 403


def test_roles_that_were_deleted_or_cut_come_back(office):
    office.ask("DELETE", f"{RBAC}/clusterroles/system:basic-user")
    office.ask("PATCH", f"{RBAC}/clusterroles/system:discovery", {"rules": []}, type=MERGE)
    binding = f"{RBAC}/clusterrolebindings/system:discovery"
    office.ask("PATCH", binding, {"subjects": []}, type=MERGE)
    again = Office(store=office.store)
    assert again.ask("GET", f"{RBAC}/clusterroles/system:basic-user")[0] == 200
    assert again.ask("GET", f"{RBAC}/clusterroles/system:discovery")[1]["rules"]
    assert [each["name"] for each in again.ask("GET", binding)[1]["subjects"]] == [
        "system:authenticated"
    ]


def test_what_an_administrator_adds_stays(office):
    role = f"{RBAC}/clusterroles/system:discovery"
    more = [rule("get", "pods")]
    labels = {"labels": {"mine": "yes", "kubernetes.io/bootstrapping": "no"}}
    office.ask("PATCH", role, {"rules": more, "metadata": labels}, type=MERGE)
    found = Office(store=office.store).ask("GET", role)[1]
    assert found["rules"][0] == more[0]
    assert len(found["rules"]) > 1
    assert found["metadata"]["labels"] == labels["labels"]


def test_what_is_to_be_left_alone_is(office):
    role = f"{RBAC}/clusterroles/system:discovery"
    annotations = {"rbac.authorization.kubernetes.io/autoupdate": "false"}
    office.ask("PATCH", role, {"rules": [], "metadata": {"annotations": annotations}}, type=MERGE)
    assert not Office(store=office.store).ask("GET", role)[1]["rules"]


def test_a_binding_to_another_role_is_made_anew(office):
    path = f"{RBAC}/clusterrolebindings"
    found = office.ask("GET", f"{path}/system:discovery")[1]
    office.ask("DELETE", f"{path}/system:discovery")
    office.made(
        path,
        {
            "metadata": {"name": "system:discovery"},
            "roleRef": {**found["roleRef"], "name": "other"},
            "subjects": [],
        },
    )
    again = Office(store=office.store).ask("GET", f"{path}/system:discovery")[1]
    assert again["roleRef"] == found["roleRef"]
    assert again["metadata"]["uid"] != found["metadata"]["uid"]


@pytest.mark.parametrize(
    ("name", "annotations", "reset"),
    [
        ("workload-low", {"apf.kubernetes.io/autoupdate-spec": "true"}, True),
        ("workload-low", {"apf.kubernetes.io/autoupdate-spec": "false"}, False),
        ("workload-low", {"apf.kubernetes.io/autoupdate-spec": None}, False),
        ("catch-all", {"apf.kubernetes.io/autoupdate-spec": "false"}, True),
    ],
)
def test_a_priority_level_is_put_right_where_it_is_the_servers(office, name, annotations, reset):
    path = f"{FLOW}/prioritylevelconfigurations/{name}"
    spec = office.ask("GET", path)[1]["spec"]
    change = {
        "metadata": {"annotations": annotations},
        "spec": {"limited": {"nominalConcurrencyShares": 77}},
    }
    changed = office.ask("PATCH", path, change, type=MERGE)[1]["spec"]
    assert changed != spec
    found = Office(store=office.store).ask("GET", path)[1]["spec"]
    assert found == (spec if reset else changed)


def test_a_server_that_asks_nobody_makes_none():
    office = Office(())
    assert names(office, f"{RBAC}/clusterroles") == {}


def test_members_of_the_masters_have_the_role_of_administrators(office):
    root = person("root", "system:masters")
    listed = office.server.resources.context.authorizer.rules_for(root, "default")
    assert {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]} in listed.resource_rules
