"""Who owns what: shared and lost ownership, conflicts, removal, order, and plain oracles."""

import copy

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dralab.api.schemas import Schemas, custom
from dralab.api.status import ApiError
from dralab.apiserver.managed_fields import ConflictError, FieldManager, apply, update
from dralab.apiserver.managed_fields.entries import ANCIENT

DEPLOYMENT = Schemas.standard().schema_of("apps/v1", "Deployment")
CONFIG_MAP = Schemas.standard().schema_of("v1", "ConfigMap")
FOO = custom(
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "n": {"type": "integer"},
                    "tags": {
                        "type": "array",
                        "items": {"type": "string"},
                        "x-kubernetes-list-type": "set",
                    },
                    "parts": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": {
                            "type": "object",
                            "properties": {
                                "name": {"type": "string"},
                                "a": {"type": "integer"},
                                "b": {"type": "integer"},
                            },
                        },
                    },
                    "whole": {
                        "type": "object",
                        "x-kubernetes-map-type": "atomic",
                        "additionalProperties": {"type": "integer"},
                    },
                    "plain": {"type": "array", "items": {"type": "integer"}},
                    "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            }
        },
    }
)


def writer(manager, *, now="2026-01-01T00:00:00Z", version="x.io/v1", **more):
    return FieldManager(manager=manager, api_version=version, now=now, **more)


def foo(**spec):
    return {"apiVersion": "x.io/v1", "kind": "Foo", "metadata": {"name": "f"}, "spec": spec}


def applied(live, manager, *, force=False, **spec):
    return apply(live, foo(**spec), FOO, writer(manager), force=force)


def updated(live, manager, **spec):
    new = {**live, "spec": spec}
    entries = update(live, new, FOO, writer(manager))
    return {**new, "metadata": {**live["metadata"], "managedFields": entries}}


def owned(obj, manager):
    for entry in obj["metadata"]["managedFields"]:
        if entry["manager"] == manager:
            return entry["fieldsV1"]
    return None


def test_an_apply_creates_what_is_not_there():
    obj = applied(None, "A", n=1, tags=["x"])
    assert obj["spec"] == {"n": 1, "tags": ["x"]}
    assert owned(obj, "A") == {"f:spec": {"f:n": {}, "f:tags": {'v:"x"': {}}}}


def test_what_another_applied_cannot_be_changed_without_force():
    obj = applied(None, "A", n=1)
    with pytest.raises(ConflictError, match=r'^Apply failed with 1 conflict: .*"A": \.spec\.n$'):
        applied(obj, "B", n=2)
    forced = applied(obj, "B", n=2, force=True)
    assert forced["spec"] == {"n": 2}
    assert owned(forced, "A") is None


def test_the_same_value_is_shared_and_stays_until_both_drop_it():
    obj = applied(applied(None, "A", n=1), "B", n=1)
    assert owned(obj, "A") == owned(obj, "B") == {"f:spec": {"f:n": {}}}
    obj = applied(obj, "A")
    assert obj["spec"] == {"n": 1}
    assert owned(obj, "A") is None or "f:n" not in str(owned(obj, "A"))
    obj = applied(obj, "B")
    assert "n" not in (obj.get("spec") or {})


def test_what_an_update_changed_belongs_to_it_and_is_not_removed_by_an_apply():
    obj = updated(applied(None, "A", n=1), "editor", n=5)
    assert owned(obj, "A") is None
    with pytest.raises(ConflictError, match=r'conflict with "editor" using x\.io/v1'):
        applied(obj, "A", n=1)
    assert applied(obj, "A", tags=["t"])["spec"] == {"n": 5, "tags": ["t"]}


def test_several_conflicts_are_listed_by_their_owners():
    obj = applied(applied(None, "A", n=1), "B", plain=[1])
    with pytest.raises(ConflictError) as refusal:
        applied(obj, "C", n=2, plain=[2])
    assert refusal.value.message == (
        "Apply failed with 2 conflicts: "
        'conflicts with "A":\n- .spec.n\nconflicts with "B":\n- .spec.plain'
    )
    assert [cause.field for cause in refusal.value.causes] == [".spec.n", ".spec.plain"]


def test_elements_of_a_list_are_owned_by_their_keys():
    obj = applied(None, "A", parts=[{"name": "x", "a": 1}, {"name": "y", "a": 1}])
    obj = applied(obj, "B", parts=[{"name": "x", "b": 2}])
    assert obj["spec"]["parts"] == [{"name": "x", "a": 1, "b": 2}, {"name": "y", "a": 1}]
    obj = applied(obj, "A", parts=[{"name": "y", "a": 1}])
    assert obj["spec"]["parts"] == [{"name": "x", "b": 2}, {"name": "y", "a": 1}]


def test_what_is_atomic_is_owned_whole():
    obj = applied(None, "A", whole={"p": 1}, plain=[1, 2])
    assert owned(obj, "A") == {"f:spec": {"f:plain": {}, "f:whole": {}}}
    with pytest.raises(ConflictError):
        applied(obj, "B", whole={"q": 1})
    assert applied(obj, "B", whole={"q": 1}, force=True)["spec"]["whole"] == {"q": 1}


def test_below_an_open_field_ownership_is_deduced():
    obj = applied(None, "A", open={"x": {"y": 1, "l": [1]}})
    below = {".": {}, "f:x": {".": {}, "f:l": {".": {}}, "f:y": {".": {}}}}
    del below["."]
    found = owned(obj, "A")["f:spec"]["f:open"]
    assert set(found) == {"f:x"}
    assert set(found["f:x"]) == {".", "f:l", "f:y"}


def test_without_any_schema_maps_are_owned_by_field_and_lists_whole():
    config = {
        "apiVersion": "x.io/v1",
        "kind": "Foo",
        "metadata": {"name": "f"},
        "spec": {"a": {"b": 1}, "l": [{"name": "x"}]},
    }
    obj = apply(None, config, custom(None), writer("A"))
    other = {**config, "spec": {"a": {"c": 1}}}
    both = apply(obj, other, custom(None), writer("B"))
    assert both["spec"] == {"a": {"b": 1, "c": 1}, "l": [{"name": "x"}]}
    with pytest.raises(ConflictError):
        apply(obj, {**config, "spec": {"l": []}}, custom(None), writer("B"))


def test_an_apply_that_changes_nothing_keeps_the_times():
    obj = applied(None, "A", n=1)
    again = apply(obj, foo(n=1), FOO, writer("A", now="2027-01-01T00:00:00Z"))
    assert again == obj


def test_an_update_that_changes_nothing_keeps_the_entries():
    obj = updated(applied(None, "A", n=1), "editor", n=2)
    entries = update(obj, obj, FOO, writer("editor", now="2027-01-01T00:00:00Z"))
    assert entries == obj["metadata"]["managedFields"]


def test_a_client_may_make_the_server_forget_all_owners():
    obj = applied(None, "A", n=1)
    new = {**obj, "metadata": {**obj["metadata"], "managedFields": [{}]}}
    assert update(obj, new, FOO, writer("editor")) == []
    bare = {**obj, "metadata": {"name": "f", "managedFields": []}}
    assert update(bare, {**bare, "spec": {"n": 7}}, FOO, writer("editor")) == []
    with pytest.raises(ConflictError, match="before-first-apply"):
        applied(bare, "B", n=2)


def test_entries_that_nobody_can_read_are_taken_from_the_object_as_it_was():
    obj = applied(None, "A", n=1)
    new = {**obj, "metadata": {**obj["metadata"], "managedFields": [{"operation": "Frob"}]}}
    assert update(obj, new, FOO, writer("editor")) == obj["metadata"]["managedFields"]


def test_the_server_owns_its_own_fields():
    live = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "d"}}
    new = copy.deepcopy(live)
    new["metadata"] |= {"uid": "u", "generation": 2, "labels": {"a": "b"}}
    entries = update(None, new, CONFIG_MAP, writer("A", version="v1"))
    assert [entry["fieldsV1"] for entry in entries] == [
        {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}}
    ]


def test_status_is_owned_under_its_own_name_and_only_through_its_own_path():
    live = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"replicas": 1},
    }
    entries = update(None, live, DEPLOYMENT, writer("A", version="apps/v1", reset=["status"]))
    live["metadata"]["managedFields"] = entries
    new = {**live, "status": {"replicas": 1}}
    through_spec = update(live, new, DEPLOYMENT, writer("B", version="apps/v1", reset=["status"]))
    assert through_spec == entries
    through_status = update(
        live,
        new,
        DEPLOYMENT,
        writer("B", version="apps/v1", subresource="status", reset=["spec"]),
    )
    assert {entry.get("subresource") for entry in through_status} == {None, "status"}
    status = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "status": {"replicas": 3},
    }
    live["metadata"]["managedFields"] = through_status
    live["status"] = {"replicas": 1}
    with pytest.raises(ConflictError, match=r'"B" with subresource "status" using apps/v1'):
        apply(live, status, DEPLOYMENT, writer("C", version="apps/v1", subresource="status"))


def test_only_so_many_updaters_are_told_apart():
    obj = applied(None, "A", n=0)
    for number in range(1, 15):
        new = {**obj, "spec": {**obj["spec"], "open": {f"k{number}": 1}}}
        new["spec"]["open"] |= obj["spec"].get("open", {})
        entries = update(
            obj, new, FOO, writer(f"u{number:02}", now=f"2026-01-{number:02}T00:00:00Z")
        )
        obj = {**new, "metadata": {**obj["metadata"], "managedFields": entries}}
    updaters = [e for e in obj["metadata"]["managedFields"] if e["operation"] == "Update"]
    assert len(updaters) == 10
    ancient = next(e for e in updaters if e["manager"] == ANCIENT)
    assert "f:k1" in ancient["fieldsV1"]["f:spec"]["f:open"]


def test_kubectl_may_take_over_what_its_client_side_apply_wrote():
    text = '{"apiVersion":"x.io/v1","kind":"Foo","metadata":{"name":"f"},"spec":{"n":1}}'
    annotation = "kubectl.kubernetes.io/last-applied-configuration"
    obj = foo(n=1)
    obj["metadata"]["annotations"] = {annotation: text}
    obj["metadata"]["managedFields"] = update(None, obj, FOO, writer("kubectl-client-side-apply"))
    taken = applied(obj, "kubectl", n=2)
    assert taken["spec"] == {"n": 2}
    assert '"n":2' in taken["metadata"]["annotations"][annotation]
    with pytest.raises(ConflictError):
        applied(obj, "somebody", n=2)


REFUSED = [
    (foo(bogus=1), "code 500", r"\.spec\.bogus: field not declared in schema"),
    (foo(parts=[{"a": 1}]), "code 500", "omits all key fields"),
    (foo(parts=[{"name": "x"}, {"name": "x"}]), "code 500", r'duplicate entries.*\[name="x"\]'),
    (foo(parts={"name": "x"}), "code 500", r"\.spec\.parts: expected list"),
    (foo(tags=[{}]), "code 500", "a map type"),
    ({**foo(), "spec": []}, "code 500", r"\.spec: expected map"),
    ({**foo(), "apiVersion": "x.io/v2"}, "code 400", "Incorrect version specified"),
    ({**foo(), "metadata": {"managedFields": [{}]}}, "code 400", "must be nil"),
]


@pytest.mark.parametrize(("config", "code", "message"), REFUSED)
def test_a_config_that_does_not_fit_is_refused(config, code, message):
    with pytest.raises(ApiError, match=message) as refusal:
        apply(None, config, FOO, writer("A"))
    assert f"code {refusal.value.code}" == code


parts = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from("xyz")}, optional={"a": st.integers(0, 1), "b": st.integers(0, 1)}
    ),
    max_size=3,
    unique_by=lambda part: part["name"],
)
specs = st.fixed_dictionaries(
    {},
    optional={
        "n": st.integers(0, 2),
        "tags": st.lists(st.sampled_from("pqr"), unique=True, max_size=3),
        "parts": parts,
        "whole": st.dictionaries(st.sampled_from("st"), st.integers(0, 1)),
        "plain": st.lists(st.integers(0, 2), max_size=2),
    },
)
writes = st.lists(st.tuples(st.sampled_from(["A", "B", "update"]), specs), max_size=6)


def leaves(spec):
    """Return each thing that can be owned, with its value: the slow model of the schema above."""
    found = {}
    for name, value in spec.items():
        if name == "tags":
            found |= {("tags", tag): True for tag in value}
        elif name == "parts":
            for part in value:
                found[("parts", part["name"])] = True
                found |= {("parts", part["name"], key): item for key, item in part.items()}
        else:
            # Equal maps are equal in whatever order their keys were written.
            found[(name,)] = str(sorted(value.items()) if isinstance(value, dict) else value)
    return found


@settings(max_examples=60)
@given(writes)
@example(
    [
        ("A", {"n": 0, "plain": [], "whole": {}, "parts": [{"name": "x"}]}),
        ("update", {"n": 0, "plain": [], "parts": [{"name": "x", "a": 0}]}),
        ("A", {}),
    ]
)
def test_after_each_write_the_object_is_what_the_plain_model_says(sequence):
    obj = applied(None, "first", n=0)
    values, owners = leaves({"n": 0}), {("n",): {"first"}}
    for manager, spec in sequence:
        before = copy.deepcopy(obj)
        wanted = leaves(spec)
        if manager == "update":
            changed = {leaf for leaf, value in wanted.items() if values.get(leaf) != value}
            owners = {leaf: owners.get(leaf, set()) for leaf in wanted}
            owners |= {leaf: {"update"} for leaf in changed}
            values = wanted
            new = updated(obj, manager, **spec)
        else:
            for leaf, value in wanted.items():
                if leaf in values and values[leaf] != value:
                    owners[leaf] = set()
                owners.setdefault(leaf, set()).add(manager)
                values[leaf] = value
            for leaf in sorted(values.keys() - wanted.keys(), key=len):
                if manager not in owners.get(leaf, ()):
                    continue
                owners[leaf].discard(manager)
                if not owners[leaf]:
                    # An element goes with all that is below it, whoever owns that.
                    for gone in [other for other in values if other[: len(leaf)] == leaf]:
                        del values[gone], owners[gone]
            new = applied(obj, manager, force=True, **spec)
        assert obj == before, "what goes in is never changed"
        obj = new
        assert leaves(obj.get("spec") or {}) == values, (manager, spec)


@settings(max_examples=60)
@given(specs, specs)
def test_an_apply_twice_is_an_apply_once(first, second):
    obj = applied(applied(None, "A", **first), "B", force=True, **second)
    assert applied(obj, "B", force=True, **second) == obj


@settings(max_examples=60)
@given(specs, specs)
def test_a_forced_apply_gives_what_was_asked_and_keeps_the_order_asked(first, second):
    obj = applied(applied(None, "A", **first), "B", force=True, **second)
    spec = obj.get("spec") or {}
    for name in ("n", "whole", "plain"):
        if name in second:
            assert spec[name] == second[name]
    wanted = [part["name"] for part in second.get("parts", [])]
    assert [p["name"] for p in spec.get("parts") or [] if p["name"] in wanted] == wanted
    tags = second.get("tags", [])
    assert [tag for tag in spec.get("tags") or [] if tag in tags] == tags
