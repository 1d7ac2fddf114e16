"""Claims and allocations of simulated pods are kept small, and read as if they were whole."""

from types import SimpleNamespace

from builders import device_class, pod
from dralab.objects.claims import PodClaim
from dralab.objects.metadata import NamespacedName, owner_uids
from dralab.scheduling.demands import DemandReader
from dralab.scheduling.pods import changed, pod_info
from dralab.simulation.engines.fast.claim_book import ClaimBook

KEY = NamespacedName("default", "p-0-gpu")


def test_a_claim_made_for_a_pod_is_written_out_when_asked_for_and_forgotten_with_the_pod():
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
    template = {"metadata": {"name": "one"}, "spec": {"spec": spec}}
    book = ClaimBook({NamespacedName("default", "one"): template}.get)
    entry = PodClaim("gpu", "", "one", None, is_classic=False)
    task = SimpleNamespace(pod=SimpleNamespace(namespace="default"), name="p-0", uid="7.0")
    assert book.make_for(SimpleNamespace(entries=(entry,)), task) == {"gpu": "p-0-gpu"}
    claim = book.get(KEY)
    assert claim["metadata"]["uid"] == "claim/7.0/gpu"
    assert owner_uids(claim) == ["7.0"]
    assert claim["spec"] is spec
    user = SimpleNamespace(uid="7.0")
    assert [made.written for made in book.made_for(user)] == [claim]
    assert book.forget_made(user) == ["claim/7.0/gpu"]
    assert book.get(KEY) is None
    assert book.forget_made(user) == []


def test_claims_that_were_made_for_a_pod_are_asked_for_as_if_they_were_found_by_name():
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]
    template = {"metadata": {"name": "one"}, "spec": {"spec": {"devices": {"requests": requests}}}}
    book = ClaimBook({NamespacedName("default", "one"): template}.get)
    entries = [{"name": name, "resourceClaimTemplateName": "one"} for name in ("a", "b")]
    asked = pod_info(pod("p", resourceClaims=entries))
    task = SimpleNamespace(pod=SimpleNamespace(namespace="default"), name="p", uid="7.0")
    made = book.make_for(SimpleNamespace(entries=asked.claims), task)
    asked = changed(
        asked,
        uid="7.0",
        claims=tuple(item._replace(made=made[item.entry]) for item in asked.claims),
    )
    decided = {"claim/7.0/b": {"devices": {}}}

    def demand(own):
        reader = DemandReader(book.get, lambda _: None, decided.get, own=own)
        reader.put_class("gpu", device_class("gpu"))
        found = reader.demand_of(asked)
        claims = [(each.claim, each.consumer, each.allocation) for each in found.claims]
        return claims, found.extended, found.signature, found.ranked, found.volumes

    assert demand(book.made_for) == demand(None)
    assert [each[2] for each in demand(book.made_for)[0]] == [None, {"devices": {}}]
