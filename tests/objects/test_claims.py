"""Which claims a pod has: the cases of kubelet, scheduler, controllers and simulation."""

import pytest

from dralab.objects.claims import (
    PodClaim,
    allocation_of,
    alternatives_of,
    claim_names,
    claims_by_entry,
    classic_claims_by_entry,
    classic_pod_claims,
    consumer_of,
    consumers_of,
    is_reserved_for,
    is_shared,
    made_claims,
    pod_claims,
    requests_of,
    results_of,
    uses_claims,
)

MADE = {"name": "made", "resourceClaimTemplateName": "t"}
NAMED = {"name": "named", "resourceClaimName": "c"}
CLASSIC = {"name": "old", "source": {"resourceClaimName": "before"}}
CLASSIC_MADE = {"name": "older", "source": {"resourceClaimTemplateName": "t"}}


def pod(*entries, extended="", **statuses):
    told = [{"name": name, "resourceClaimName": of} for name, of in statuses.items()]
    status = {"resourceClaimStatuses": told}
    if extended:
        status["extendedResourceClaimStatus"] = {"resourceClaimName": extended}
    return {"metadata": {"name": "p"}, "spec": {"resourceClaims": [*entries]}, "status": status}


@pytest.mark.parametrize(
    ("of", "names"),
    [
        ({"metadata": {"name": "p"}}, {}),
        ({"metadata": {"name": "p"}, "spec": {}, "status": None}, {}),
        (pod(NAMED), {"named": "c"}),
        (pod(MADE), {}),
        (pod(MADE, made="p-made-x"), {"made": "p-made-x"}),
        (pod(MADE, NAMED, made="p-made-x"), {"made": "p-made-x", "named": "c"}),
        # A template may want nothing for this pod: the status then has no name.
        (pod(MADE, made=None), {}),
        (pod(CLASSIC), {"old": "before"}),
        (pod(CLASSIC_MADE, older="p-older"), {"older": "p-older"}),
        # What nobody asks for any more is not the pod's.
        (pod(NAMED, gone="x"), {"named": "c"}),
    ],
)
def test_entries_name_claims_or_have_them_made(of, names):
    assert claims_by_entry(of) == names
    assert claim_names(of) == list(names.values())


def test_the_claim_for_extended_resources_comes_last():
    assert claim_names(pod(NAMED, extended="p-extended")) == ["c", "p-extended"]
    assert claim_names(pod(extended="p-extended")) == ["p-extended"]


def test_a_pod_uses_claims_before_they_are_made():
    assert uses_claims(pod(MADE))
    assert uses_claims(pod(extended="e"))
    assert not uses_claims(pod())
    assert made_claims(pod(MADE, made=None)) == {"made": ""}


def test_classic_entries_have_a_source():
    mixed = pod(NAMED, CLASSIC, CLASSIC_MADE, older="p-older")
    assert classic_claims_by_entry(mixed) == {"old": "before", "older": "p-older"}
    assert classic_claims_by_entry(pod(NAMED)) == {}


@pytest.mark.parametrize(
    ("entry", "shared"),
    [
        (MADE, True),
        ({**MADE, "resourceClaimTemplateName": "other"}, False),
        ({**MADE, "name": "other"}, False),
        (NAMED, False),
    ],
)
def test_an_entry_of_the_group_is_the_groups(entry, shared):
    (item,) = pod_claims(pod(entry))
    assert is_shared(item, {"spec": {"resourceClaims": [MADE]}}) is shared
    assert not is_shared(item, {"spec": {}})


@pytest.mark.parametrize(
    ("of", "item", "name"),
    [
        (pod(NAMED), PodClaim("named", "c", "", None, False), "c"),
        (pod(MADE), PodClaim("made", "", "t", None, False), None),
        (pod(MADE, made="p-made-x"), PodClaim("made", "", "t", "p-made-x", False), "p-made-x"),
        (pod(MADE, made=None), PodClaim("made", "", "t", "", False), ""),
        (pod(CLASSIC), PodClaim("old", "before", "", None, True), "before"),
        (pod(CLASSIC_MADE), PodClaim("older", "", "t", None, True), None),
    ],
)
def test_an_entry_says_where_its_claim_comes_from(of, item, name):
    assert pod_claims(of) == [item]
    assert item.name == name
    assert classic_pod_claims(of) == ([item] if item.is_classic else [])


@pytest.mark.parametrize(
    ("request_", "alternatives"),
    [
        ({"name": "r", "exactly": {"count": 2}}, [{"count": 2}]),
        (
            {"name": "r", "firstAvailable": [{"name": "a"}, {"name": "b"}]},
            [{"name": "a"}, {"name": "b"}],
        ),
        ({"name": "r"}, [{}]),
    ],
)
def test_a_request_has_one_alternative_or_several(request_, alternatives):
    assert list(alternatives_of(request_)) == alternatives
    assert list(requests_of({"devices": {"requests": [request_]}})) == [request_]
    assert list(requests_of({})) == []


def test_a_claim_says_who_has_what():
    result = {"driver": "d", "pool": "p", "device": "x"}
    allocation = {"devices": {"results": [result]}}
    users = [{"resource": "pods", "name": "p", "uid": "u"}]
    claim = {"status": {"allocation": allocation, "reservedFor": users}}
    assert list(results_of(allocation_of(claim))) == [result]
    assert (is_reserved_for(claim, "u"), is_reserved_for(claim, "v")) == (True, False)
    user = {"metadata": {"name": "p", "uid": "u"}}
    assert [consumer_of(user)] == list(consumers_of(claim)) == users
    bare = {"metadata": {"name": "c"}}
    assert (allocation_of(bare), list(results_of(None)), list(consumers_of(bare))) == (None, [], [])
