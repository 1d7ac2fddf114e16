"""Objects as a Go server reads them: typed, canonical, complaining."""

import copy
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralab.api import decoding
from dralab.api.decoding import Decoder, decoder_of
from dralab.api.kinds import Kinds
from dralab.api.scalar_decoding import DecodingError
from dralab.api.schemas import Schemas

DEFAULTS = (Path(__file__).parents[2] / ".." / "shared/testdata/apiserver/defaults.json").resolve()


def decoded(api_version, kind, value):
    decoder = decoder_of(api_version, kind)
    assert decoder is not None
    return decoder.decode(copy.deepcopy(value))


def test_every_served_kind_has_a_decoder_and_an_empty_object():
    kinds = list(Kinds.standard())
    assert len(kinds) > 70
    for kind in kinds:
        value, unknown = decoded(kind.api_version, kind.kind, {})
        assert unknown == []
        assert decoded(kind.api_version, kind.kind, value) == (value, [])


def test_what_a_real_server_answers_stays_as_it_is():
    if not DEFAULTS.exists():
        pytest.skip("the recordings of a real server are not beside this checkout")
    cases = json.loads(DEFAULTS.read_text().replace('"TIME"', '"2026-01-01T00:00:00Z"'))["cases"]
    assert len(cases) > 60
    for case in cases:
        answer = case["answer"]
        if answer["kind"] == "Event":
            continue  # whose times have six digits
        value, unknown = decoded(answer["apiVersion"], answer["kind"], answer)
        assert unknown == []
        value["metadata"].pop("creationTimestamp", None)
        assert value == answer


POD_CASES = [
    # (what comes in, what is kept)
    ({"hostNetwork": False, "priority": 0}, {"priority": 0}),
    ({"nodeSelector": {}, "tolerations": []}, {}),
    ({"nodeName": "", "hostname": None}, {}),
    ({"activeDeadlineSeconds": 5.0}, {"activeDeadlineSeconds": 5}),
    ({"nodeSelector": {"a": None}}, {"nodeSelector": {"a": ""}}),
    ({"overhead": {"cpu": 1, "memory": "1024Mi"}}, {"overhead": {"cpu": "1", "memory": "1Gi"}}),
    ({"overhead": {"cpu": 0.5}}, {"overhead": {"cpu": "500m"}}),
    ({"securityContext": {}}, {"securityContext": {}}),
]


@pytest.mark.parametrize(("given_spec", "kept"), POD_CASES)
def test_zero_and_empty_values_are_kept_where_go_tells_them_apart(given_spec, kept):
    value, _ = decoded("v1", "Pod", {"spec": {"containers": [{"name": "c"}], **given_spec}})
    assert value["spec"] == {"containers": [{"name": "c", "resources": {}}], **kept}


CONTAINER = {"name": "c", "resources": {}}
COPIED_SPECS = [
    {"containers": [CONTAINER]},
    {"containers": [{"name": "c"}], "overhead": {"cpu": "1000m"}, "priority": 0},
    {"containers": [CONTAINER], "nodeSelector": {}, "hostNetwork": False},
    {"containers": [CONTAINER], "bogus": 1},
    {"containers": None, "overhead": {"cpu": 2**70}},
    {"containers": [CONTAINER], "priority": 1.0},
    {"containers": [CONTAINER], "priority": True},
    {"containers": [{**CONTAINER, "args": ["a" * 9000]}]},
    {},
    None,
]


def decoded_with_notes(decoder, value):
    empties, gated = [], []
    try:
        found = decoder.decode(copy.deepcopy(value), empties, gated)
    except DecodingError as error:
        return str(error)
    return json.dumps(found), [each.name for each in empties], gated


@pytest.mark.parametrize("release", ["", "1.37"])
def test_a_copy_is_decoded_as_its_original(release):
    schema = Schemas.standard(release).schema_of("v1", "Pod")
    specs = [*COPIED_SPECS, {"containers": [CONTAINER], "schedulingGroup": {"podGroupName": "g"}}]
    one = Decoder(schema, "Pod")
    for number in range(3):
        for spec in specs:
            value = {"metadata": {"name": f"p{number}"}, "spec": spec, "status": {}}
            assert decoded_with_notes(one, value) == decoded_with_notes(
                Decoder(schema, "Pod"), value
            )


def test_copies_share_no_part_of_their_specs():
    one = Decoder(Schemas.standard().schema_of("v1", "Pod"), "Pod")
    sent = {"spec": {"containers": [{"name": "c"}]}}
    found = [one.decode(copy.deepcopy(sent), [], [])[0] for _ in range(3)]
    found[0]["spec"]["containers"][0]["name"] = found[1]["spec"]["nodeName"] = "changed"
    assert found[2]["spec"] == {"containers": [CONTAINER]}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05.678Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05+01:00", "2026-01-02T02:04:05Z"),
    ],
)
def test_times_are_told_in_utc_and_whole_seconds(text, kept):
    value, _ = decoded("v1", "ConfigMap", {"metadata": {"creationTimestamp": text}})
    assert value["metadata"]["creationTimestamp"] == kept


@pytest.mark.parametrize(
    "text", ["", "x", "2026-13-01T00:00:00Z", "2026-01-01", "2026-01-01T00:00:00"]
)
def test_what_is_no_time_is_refused(text):
    with pytest.raises(DecodingError, match="parsing time"):
        decoded("v1", "ConfigMap", {"metadata": {"creationTimestamp": text}})


def test_unknown_fields_are_told_with_their_place_and_dropped():
    pod = {
        "bogus": 1,
        "spec": {"containers": [{"name": "c", "env": [{"name": "A", "valu": "1"}]}], "x.y": {}},
    }
    value, unknown = decoded("v1", "Pod", pod)
    assert unknown == ["bogus", "spec.containers[0].env[0].valu", "spec.x.y"]
    assert decoded("v1", "Pod", value) == (value, [])


@pytest.mark.parametrize("default", [[], {}, "", 0, False, [{}]])
def test_a_default_in_a_schema_is_kept_even_if_it_is_empty(default):
    """As a kube-apiserver 1.36.2 answers for the CRDs of NATS, whose lists default to `[]`."""
    schema = {"type": "object", "default": default, "example": default, "enum": []}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    value, _ = decoded(
        "apiextensions.k8s.io/v1", "CustomResourceDefinition", {"spec": {"versions": [version]}}
    )
    [found] = value["spec"]["versions"]
    kept = {"type": "object", "default": default, "example": default}
    assert found["schema"]["openAPIV3Schema"] == kept


def test_definitions_may_hold_themselves():
    schema = {
        "type": "object",
        "properties": {"a": {"type": "object", "properties": {"b": {"type": "string"}}}},
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    crd = {"spec": {"group": "x.io", "names": {}, "scope": "Cluster", "versions": [version]}}
    value, unknown = decoded("apiextensions.k8s.io/v1", "CustomResourceDefinition", crd)
    assert unknown == []
    assert value["spec"]["versions"][0]["schema"]["openAPIV3Schema"] == schema


def test_what_nests_too_deeply_is_refused():
    deep: dict = {"type": "string"}
    for _ in range(400):
        deep = {"not": deep}
    version = {"name": "v1", "schema": {"openAPIV3Schema": deep}}
    with pytest.raises(DecodingError, match="exceeded max depth"):
        decoded(
            "apiextensions.k8s.io/v1", "CustomResourceDefinition", {"spec": {"versions": [version]}}
        )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["spec", "metadata", "containers", "name", "image", "labels", "data", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
DECODER = Decoder(Schemas.standard().schema_of("v1", "Pod"), "Pod")


NAMES = st.sampled_from(["a", ""])
FILLED_IN = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries({"name": NAMES, "creationTimestamp": st.just(None)}),
        "spec": st.fixed_dictionaries(
            {
                "hostNetwork": st.booleans(),
                "nodeSelector": st.sampled_from([{}, {"k": "v"}, {"k": None}]),
                "terminationGracePeriodSeconds": st.sampled_from([0, 30]),
                "containers": st.lists(
                    st.fixed_dictionaries(
                        {
                            "name": NAMES,
                            "image": NAMES | st.just(1),
                            "args": st.lists(NAMES, max_size=1),
                            "resources": st.sampled_from(
                                [{}, {"limits": {}}, {"limits": {"cpu": "0.1"}}]
                            ),
                        }
                    ),
                    min_size=1,
                    max_size=2,
                ),
            },
            optional={"hostname": NAMES, "other": NAMES},
        ),
    }
)


@given(FILLED_IN | st.dictionaries(st.sampled_from(["spec", "metadata", "status", "x"]), JSON))
def test_anything_is_decoded_once_and_for_all_or_refused(value):
    try:
        first, _ = DECODER.decode(copy.deepcopy(value))
    except DecodingError:
        return
    assert DECODER.decode(copy.deepcopy(first)) == (first, [])


def test_a_struct_that_two_threads_compile_at_once_has_each_field_once():
    pod = Schemas.standard().schema_of("v1", "Pod")
    found = {}

    class Halfway(dict):
        def items(self):
            """Yield the fields; another thread compiles the struct after the first."""
            each = iter(super().items())
            yield next(each)
            if not found:
                found["other"] = None
                found["other"] = struct({}, decoding.DecodingNotes())
            yield from each

    schema = SimpleNamespace(
        name=pod.name, properties=Halfway(pod.properties), shows=pod.shows, release=pod.release
    )
    struct = decoding._Struct(schema)
    assert struct({}, decoding.DecodingNotes()) == found["other"]
    names = [name for name, _ in struct.always]
    assert len(names) == len(set(names)) > 0
