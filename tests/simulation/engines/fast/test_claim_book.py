"""Claims and allocations of simulated pods are kept small, and read as if they were whole."""

from types import SimpleNamespace

from dralab.objects.claims import PodClaim
from dralab.objects.metadata import NamespacedName, owner_uids
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
    pod = SimpleNamespace(
        key=NamespacedName("default", "p-0"), claims=(entry._replace(made="p-0-gpu"),)
    )
    assert book.forget_made(pod) == ["claim/7.0/gpu"]
    assert book.get(KEY) is None
    assert book.forget_made(pod) == []
