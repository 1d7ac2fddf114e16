"""Sets of fields found by their shape, beside those that are made each time."""

from hypothesis import given
from hypothesis import strategies as st

from dralab.api.schemas import Schemas
from dralab.apiserver import managed_fields
from dralab.apiserver.managed_fields import FieldManager, typed
from dralab.apiserver.managed_fields.field_set_cache import FieldSetCache, shape_of
from dralab.apiserver.managed_fields.forms import Form
from dralab.values.remembering import KnownValues

POD = Form.from_schema(Schemas.standard().schema_of("v1", "Pod"))
TEXTS = st.sampled_from(["a", "b", ""])
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": TEXTS},
        optional={
            "image": TEXTS,
            "args": st.lists(TEXTS, max_size=2),
            "env": st.lists(
                st.fixed_dictionaries({"name": TEXTS}, optional={"value": TEXTS}), max_size=2
            ),
            "ports": st.lists(
                st.fixed_dictionaries(
                    {"containerPort": st.sampled_from([1, 2])}, optional={"protocol": TEXTS}
                ),
                max_size=2,
            ),
            "resources": st.dictionaries(
                st.sampled_from(["limits", "requests"]), st.dictionaries(TEXTS, TEXTS)
            ),
        },
    ),
    max_size=3,
)
PODS = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {},
            optional={
                "labels": st.dictionaries(TEXTS, TEXTS),
                "finalizers": st.lists(TEXTS, max_size=2),
            },
        ),
        "spec": st.fixed_dictionaries(
            {"containers": CONTAINERS},
            optional={"hostNetwork": st.booleans(), "nodeSelector": st.dictionaries(TEXTS, TEXTS)},
        ),
    }
)


@given(PODS, PODS)
def test_objects_of_one_shape_have_one_set(one, other):
    shapes = FieldSetCache()
    first = shape_of(one, POD)
    shapes.keep(POD, first, typed.compared({}, one, POD)[0])
    found = shapes.get(POD, shape_of(other, POD))
    if found is not None:
        assert found == typed.compared({}, other, POD)[0]


@given(PODS)
def test_values_that_tell_nothing_apart_are_no_part_of_a_shape(pod):
    renamed = {
        **pod,
        "metadata": {
            **pod["metadata"],
            "labels": dict.fromkeys(pod["metadata"].get("labels", {}), "z"),
        },
    }
    if "labels" in pod["metadata"]:
        assert shape_of(pod, POD) == shape_of(renamed, POD)


def test_a_key_of_another_type_is_another_shape():
    def pod(port):
        return {"spec": {"containers": [{"name": "c", "ports": [{"containerPort": port}]}]}}

    assert shape_of(pod(1), POD) != shape_of(pod(True), POD)


def test_what_is_null_has_no_owner_and_takes_none_from_others():
    claim = Form.from_schema(Schemas.standard().schema_of("resource.k8s.io/v1", "ResourceClaim"))
    for value in ({"requests": None}, {"requests": [], "config": None}):
        assert shape_of({"spec": {"devices": value}}, claim) is None
    assert shape_of({"spec": {"devices": {"requests": [{"name": "r"}]}}}, claim) is not None


def test_too_many_shapes_are_forgotten():
    shapes = FieldSetCache()
    for number in range(500):
        shapes.keep(POD, (number,) * 1000, {})
    assert shapes.get(POD, (0,) * 1000) is None
    assert shapes.get(POD, (499,) * 1000) == {}


def test_a_shape_with_long_names_is_not_kept():
    shapes = FieldSetCache()
    shapes.keep(POD, ("x" * 100_000,), {})
    assert shapes.get(POD, ("x" * 100_000,)) is None


@given(st.lists(PODS, max_size=4))
def test_copies_have_the_owned_fields_of_their_original(pods):
    writer = FieldManager(manager="m", api_version="v1", now="2026-01-01T00:00:00Z")
    schema = Schemas.standard().schema_of("v1", "Pod")
    POD.copies = KnownValues()
    for pod in pods * 2:
        found = managed_fields.update(None, pod, schema, writer)
        known, POD.copies = POD.copies, None
        assert found == managed_fields.update(None, pod, schema, writer)
        POD.copies = known
