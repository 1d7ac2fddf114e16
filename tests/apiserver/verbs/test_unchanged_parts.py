"""What a change leaves as it was is neither decoded nor completed again; the result is the same."""

import copy

import orjson
import pytest

from builders import claim, pod, request
from dralab.api.resource import defaulting
from dralab.api.resource.structure import normalised
from dralab.api.status import ApiError
from dralab.apiserver.verbs.state import typed_objects
from dralab.kernel.clock import ManualClock
from dralab.runtime.resources import CLAIMS, PODS
from labs import Server

OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}


@pytest.fixture
def server():
    found = Server(ManualClock(1_800_000_000 * 10**9))
    found.create(CLAIMS, owned(claim("c", request("r", "gpu"))), "default")
    found.create(PODS, owned(pod("p", claims={"gpu": "c"})), "default")
    return found


def owned(body):
    body["metadata"]["ownerReferences"] = [dict(OWNER)]
    return body


def edited(body, **changes):
    """A copy of an object with values at paths, such as spec__replicas=1."""
    found = copy.deepcopy(body)
    for path, value in changes.items():
        *above, last = path.split("__")
        holder = found
        for part in above:
            holder = holder.setdefault(part, {})
        holder[last] = value
    return found


EDITS = {
    "nothing": {},
    "a label": {"metadata__labels": {"a": "b"}},
    "the status": {"status": {"message": "text", "bogus": None}},
    "the spec": {"spec__bogus": None},
    "an owner more": {
        "metadata__ownerReferences": [OWNER, {**OWNER, "uid": "v", "controller": None}]
    },
    "no owner": {"metadata__ownerReferences": []},
    "an unknown field": {"bogus": {"a": 1}},
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
@pytest.mark.parametrize(("resource", "name"), [(CLAIMS, "c"), (PODS, "p")])
def test_a_change_is_decoded_as_if_all_of_it_was_new(server, resource, name, edit):
    kind = server.resources.kind(resource.group, resource.version, resource.plural)
    context, before = server.resources.context, server.get(resource, name, "default")
    sent = edited(before, **edit)
    whole = typed_objects.decoded(context.scope(), kind, copy.deepcopy(sent))
    found = typed_objects.decoded_change(context.scope(), kind, copy.deepcopy(sent), before)
    assert orjson.dumps(found) == orjson.dumps(whole)


def test_an_equal_value_of_another_type_is_refused(server):
    held = server.get(CLAIMS, "c", "default")
    wrong = copy.deepcopy(held)
    [first] = wrong["spec"]["devices"]["requests"]
    first["exactly"]["count"] = True
    assert wrong["spec"] == held["spec"]  # as Python compares
    with pytest.raises(ApiError, match="cannot unmarshal bool into Go struct field"):
        server.update(CLAIMS, wrong)


def test_metadata_that_is_not_an_object_is_refused_in_a_patch(server):
    patch = [{"op": "replace", "path": "/metadata", "value": ["x"]}]
    with pytest.raises(ApiError) as error:
        server.patch(CLAIMS, "c", patch, "default", type="json")
    assert error.value.code < 500


@pytest.mark.parametrize("part", ["spec", "status"])
def test_known_parts_stand_where_normalised_ones_would(part):
    body = claim("c", request("r", "gpu"))
    body["status"] = {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}
    whole = normalised("v1", "ResourceClaim", body)
    found = normalised("v1", "ResourceClaim", body, {part: whole[part]})
    assert orjson.dumps(found) == orjson.dumps(whole)
    assert found[part] is whole[part]


def test_a_stored_object_without_todays_defaults_is_not_changed_by_another_write():
    """What an older server left out of a spec is not written into the store's own object."""
    bare = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    old = normalised("v1", "ResourceClaim", claim("c", bare))
    before = orjson.dumps(old)
    new = {**old, "status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}}
    defaulting.default_update(new, old, now="")
    assert orjson.dumps(old) == before
