"""Selectors on objects that are kept as JSON alone choose what they choose on mappings."""

from typing import Any

import pytest

from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.kernel.clock import ManualClock
from dralab.kernel.randomness import Randomness
from dralab.runtime.client import Resource
from dralab.runtime.local import LocalClient

PODS = Resource("", "v1", "pods")


@pytest.fixture(scope="module")
def lab() -> LocalClient:
    server = ApiServer(MemoryStore(), clock=ManualClock(), randomness=Randomness(1))
    client = LocalClient(server.resources, server.hub)
    for index in range(40):
        spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}]}
        if index % 3:
            spec["nodeName"] = f"n{index % 5}"
        if index % 2:
            spec["hostNetwork"] = True
        labels = {"app": ["web", "db", "true", "1"][index % 4]}
        if index % 7 == 0:
            labels["only.example.org/seventh"] = "x"
        metadata = {"name": f"p{index:02}", "namespace": "default", "labels": labels}
        client.create(PODS, {"metadata": metadata, "spec": spec})
    return client


SELECTORS = [
    ("app=web", ""),
    ("app=true", ""),
    ("app=1", ""),
    ("app!=web", ""),
    ("app in (web,db)", ""),
    ("app in (db)", ""),
    ("app notin (db)", ""),
    ("only.example.org/seventh", ""),
    ("!only.example.org/seventh,app=web", ""),
    ("", "spec.nodeName=n1"),
    ("", "spec.nodeName="),
    ("", "spec.nodeName!=n1"),
    ("", "spec.hostNetwork=true"),
    ("", "spec.hostNetwork=false"),
    ("", "metadata.name=p07"),
    ("", "status.phase=Pending"),
    ("app=db", "spec.nodeName=n1,status.phase!=Failed"),
    ("app=nothing", ""),
]


@pytest.mark.parametrize(("label", "field"), SELECTORS)
def test_selectors_choose_alike_on_json_and_on_mappings(
    lab: LocalClient, label: str, field: str
) -> None:
    def chosen() -> list[str]:
        found = lab.list(PODS, label_selector=label, field_selector=field).items
        return [item["metadata"]["name"] for item in found]

    states = lab.hub.store.list("pods").items
    for state in states:
        assert state.value
    warm = chosen()
    for state in states:
        state.forget_value()
    assert chosen() == warm
    assert len(warm) < 40 or "!" in label + field or "phase" in field


def test_what_cannot_pass_is_not_parsed(lab: LocalClient) -> None:
    states = lab.hub.store.list("pods").items
    # An index of nodes looks into every pod when it is made, which is once.
    lab.list(PODS, field_selector="spec.nodeName=elsewhere")
    for state in states:
        state.forget_value()
    assert lab.list(PODS, field_selector="spec.nodeName=elsewhere").items == []
    assert not any(state.parsed for state in states)
