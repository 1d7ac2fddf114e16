"""What a deletion waits for, and what its options say."""

import pytest

from apiserver.verbs.asking import Asked
from builders import pod as new_pod
from dralab.api.core.definitions import FINALIZER

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
def ask() -> Asked:
    return Asked()


def made(ask: Asked, name: str = "a", **metadata: object) -> dict[str, object]:
    status, found = ask("POST", MAPS, {"metadata": {"name": name, **metadata}})
    assert status == 201, found
    return found["metadata"]


@pytest.mark.parametrize(
    ("url", "body", "finalizers"),
    [
        ("", None, ["x.io/f"]),
        ("", {"orphanDependents": True}, ["x.io/f", "orphan"]),
        ("", {"orphanDependents": False}, ["x.io/f"]),
        ("?orphanDependents=true", None, ["x.io/f", "orphan"]),
        ("?orphanDependents=false", None, ["x.io/f"]),
        ("?propagationPolicy=Orphan", None, ["x.io/f", "orphan"]),
        ("?propagationPolicy=Foreground", None, ["x.io/f", "foregroundDeletion"]),
        ("", {"propagationPolicy": "Background"}, ["x.io/f"]),
        # A body counts alone.
        ("?orphanDependents=true", {"propagationPolicy": "Background"}, ["x.io/f"]),
    ],
)
def test_the_options_say_what_becomes_of_dependents(ask, url, body, finalizers):
    made(ask, finalizers=["x.io/f"])
    status, found = ask("DELETE", f"{MAPS}/a{url}", body)
    assert status == 200
    assert found["metadata"]["finalizers"] == finalizers


@pytest.mark.parametrize(
    ("body", "finalizers"),
    [({"orphanDependents": False}, ["x.io/f"]), (None, ["x.io/f", "orphan"])],
)
def test_a_later_deletion_decides_anew_if_it_says_something(ask, body, finalizers):
    made(ask, finalizers=["x.io/f"])
    ask("DELETE", f"{MAPS}/a?propagationPolicy=Orphan")
    _, found = ask("DELETE", f"{MAPS}/a", body)
    assert found["metadata"]["finalizers"] == finalizers


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        ({"orphanDependents": True, "propagationPolicy": "Orphan"}, 422, "cannot be both set"),
        ({"orphanDependents": False, "propagationPolicy": "Orphan"}, 422, "cannot be both set"),
        (
            {"orphanDependents": "yes"},
            400,
            "cannot unmarshal string into Go struct field DeleteOptions.orphanDependents of type bool",
        ),
        ({"propagationPolicy": "Never"}, 422, "supported values"),
        (
            {"gracePeriodSeconds": True},
            400,
            "cannot unmarshal bool into Go struct field DeleteOptions.gracePeriodSeconds",
        ),
        ({"preconditions": {}}, 200, ""),
        ({"preconditions": []}, 400, "cannot unmarshal array into Go struct field DeleteOptions"),
        ({"preconditions": {"uid": 5}}, 400, "preconditions.uid of type types.UID"),
        ({"dryRun": 3}, 400, "cannot unmarshal number into Go struct field DeleteOptions.dryRun"),
        ({"dryRun": "All"}, 400, "cannot unmarshal string into Go struct field DeleteOptions"),
        (
            {"propagationPolicy": {}},
            400,
            "DeleteOptions.propagationPolicy of type v1.DeletionPropagation",
        ),
    ],
)
def test_options_that_contradict_each_other_or_are_of_another_type(ask, body, code, text):
    made(ask)
    status, found = ask("DELETE", f"{MAPS}/a", body)
    assert status == code
    assert text in found.get("message", "")


def test_preconditions_name_the_object_that_is_meant(ask):
    metadata = made(ask)
    uid, revision = metadata["uid"], metadata["resourceVersion"]
    for wrong in ({"uid": "other"}, {"resourceVersion": "1"}, {"uid": uid, "resourceVersion": "1"}):
        status, found = ask("DELETE", f"{MAPS}/a", {"preconditions": wrong})
        assert (status, found["reason"]) == (409, "Conflict")
    right = {"uid": uid, "resourceVersion": revision}
    assert ask("DELETE", f"{MAPS}/a", {"preconditions": right})[0] == 200


def test_an_object_goes_with_the_last_of_its_finalizers(ask):
    made(ask, finalizers=["x.io/f", "x.io/g"])
    ask("DELETE", f"{MAPS}/a")
    ask.merge(f"{MAPS}/a", {"metadata": {"finalizers": ["x.io/g"]}})
    assert ask("GET", f"{MAPS}/a")[0] == 200
    ask.merge(f"{MAPS}/a", {"metadata": {"finalizers": None}})
    assert ask("GET", f"{MAPS}/a")[0] == 404
    made(ask, "b", finalizers=["x.io/f"])
    ask.merge(f"{MAPS}/b", {"metadata": {"finalizers": None}})
    assert ask("GET", f"{MAPS}/b")[0] == 200, "nobody has deleted it"


def running_pod(ask: Asked, **metadata: object) -> None:
    value = new_pod("p")
    value["metadata"] = {"name": "p", **metadata}
    value["spec"]["nodeName"] = "n0"
    assert ask("POST", PODS, value)[0] == 201


def deadline(ask: Asked, url: str = f"{PODS}/p") -> tuple[int, int]:
    """Return the grace of a pod that is being deleted, and its generation."""
    metadata = ask("GET", url)[1]["metadata"]
    return metadata["deletionGracePeriodSeconds"], metadata["generation"]


def test_the_grace_of_a_pod_becomes_shorter_and_never_longer(ask):
    running_pod(ask)
    ask("DELETE", f"{PODS}/p?gracePeriodSeconds=20")
    first = deadline(ask)
    assert first[0] == 20
    before = ask("GET", f"{PODS}/p")[1]["metadata"]["resourceVersion"]
    ask("DELETE", f"{PODS}/p?gracePeriodSeconds=20")
    ask("DELETE", f"{PODS}/p?gracePeriodSeconds=40")
    assert deadline(ask) == first
    assert ask("GET", f"{PODS}/p")[1]["metadata"]["resourceVersion"] == before, "nothing changed"
    ask("DELETE", f"{PODS}/p?gracePeriodSeconds=5")
    assert deadline(ask)[0] == 5
    assert ask("DELETE", f"{PODS}/p?gracePeriodSeconds=0")[0] == 200
    assert ask("GET", f"{PODS}/p")[0] == 404


def test_the_end_of_the_grace_is_seen_before_the_deletion(ask):
    running_pod(ask)
    ask("DELETE", f"{PODS}/p?gracePeriodSeconds=20")
    before = ask.store.revision
    assert ask("DELETE", f"{PODS}/p?gracePeriodSeconds=0")[0] == 200
    shortened, gone = ask.store.changes(before, "pods")
    assert shortened.after.value["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (gone.after, gone.before) == (None, shortened.after)


def test_a_pod_with_finalizers_outlives_its_grace(ask):
    running_pod(ask, finalizers=["x.io/f"])
    ask("DELETE", f"{PODS}/p?gracePeriodSeconds=0")
    assert deadline(ask)[0] == 0
    ask.merge(f"{PODS}/p", {"metadata": {"finalizers": None}})
    assert ask("GET", f"{PODS}/p")[0] == 404


def test_a_pod_without_its_finalizers_still_has_its_grace(ask):
    running_pod(ask, finalizers=["x.io/f"])
    ask("DELETE", f"{PODS}/p?gracePeriodSeconds=20")
    ask.merge(f"{PODS}/p", {"metadata": {"finalizers": None}})
    assert deadline(ask)[0] == 20


@pytest.mark.parametrize("path", ["/apis/apps/v1/namespaces/default/deployments/d"])
def test_the_mark_of_a_deletion_is_a_new_generation_once(ask, path):
    spec = {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
    }
    value = {"metadata": {"name": "d", "finalizers": ["x.io/f"]}, "spec": spec}
    assert ask("POST", path.rpartition("/")[0], value)[0] == 201
    for _ in range(2):
        status, found = ask("DELETE", path)
        assert (status, found["metadata"]["generation"]) == (200, 2)


def test_an_object_that_goes_at_once_is_written_once(ask):
    made(ask)
    before = ask.store.revision
    ask("DELETE", f"{MAPS}/a")
    assert ask.store.revision == before + 1


def test_a_deleted_pod_without_a_node_is_written_and_removed(ask):
    value = new_pod("p")
    value["metadata"] = {"name": "p", "finalizers": ["x.io/f"]}
    ask("POST", PODS, value)
    ask("DELETE", f"{PODS}/p")
    before = ask.store.revision
    ask("DELETE", f"{PODS}/p")
    assert ask.store.revision == before, "nothing changed"


def definition(**metadata: object) -> dict[str, object]:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object"}},
    }
    return {
        "metadata": {"name": "foos.x.io", **metadata},
        "spec": {
            "group": "x.io",
            "scope": "Cluster",
            "names": {"plural": "foos", "kind": "Foo"},
            "versions": [version],
        },
    }


def test_a_definition_that_goes_gets_no_finalizer_again(ask):
    path = CRDS
    ask("POST", path, definition(finalizers=["x.io/f"]))
    for _ in range(2):
        ask("DELETE", f"{path}/foos.x.io")
        assert ask("GET", f"{path}/foos.x.io")[1]["metadata"]["finalizers"] == ["x.io/f"]
    assert ask("GET", f"{path}/foos.x.io")[1]["metadata"]["generation"] == 1


@pytest.mark.parametrize("given", [[], ["x.io/f"], [FINALIZER], ["x.io/f", FINALIZER]])
def test_a_definition_that_is_deleted_waits_for_its_objects(ask, given):
    value = definition(finalizers=given)
    assert ask("POST", CRDS, value)[0] == 201
    foo = {"apiVersion": "x.io/v1", "kind": "Foo", "metadata": {"name": "a"}}
    foo["metadata"]["finalizers"] = ["x.io/f"]
    assert ask("POST", "/apis/x.io/v1/foos", foo)[0] == 201
    ask("DELETE", f"{CRDS}/foos.x.io")
    found = ask("GET", f"{CRDS}/foos.x.io")[1]["metadata"]["finalizers"]
    assert sorted(found) == sorted({*given, FINALIZER})
    ask.merge("/apis/x.io/v1/foos/a", {"metadata": {"finalizers": None}})
    left = ask("GET", f"{CRDS}/foos.x.io")
    if "x.io/f" in given:
        assert left[1]["metadata"]["finalizers"] == ["x.io/f"]
    else:
        assert left[0] == 404


def test_a_namespace_waits_for_its_finalize(ask):
    ask("POST", "/api/v1/namespaces", {"metadata": {"name": "x"}})
    for _ in range(2):
        assert ask("DELETE", "/api/v1/namespaces/x")[0] == 200
    _, found = ask("GET", "/api/v1/namespaces/x")
    assert found["status"]["phase"] == "Terminating"
    assert found["spec"]["finalizers"] == ["kubernetes"]
    found["spec"]["finalizers"] = []
    ask("PUT", "/api/v1/namespaces/x/finalize", found)
    assert ask("GET", "/api/v1/namespaces/x")[0] == 404
