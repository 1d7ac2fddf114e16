"""Lists by an indexed field, beside the same lists without the index."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from apiserver.verbs.asking import Asked

PODS = "/api/v1/namespaces/default/pods"
NODES = ("n1", "n2")
NAMES = st.sampled_from(["a", "b", "c", "d"])


class Machine(RuleBasedStateMachine):
    """Pods come, are bound, and go; sometimes a write is taken back."""

    def __init__(self) -> None:
        super().__init__()
        self.ask = Asked()

    @rule(name=NAMES, node=st.sampled_from(["", *NODES]))
    def create(self, name, node):
        spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": node}
        self.ask("POST", PODS, {"metadata": {"name": name}, "spec": spec})

    @rule(name=NAMES, node=st.sampled_from(NODES))
    def bind(self, name, node):
        body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        self.ask("POST", f"{PODS}/{name}/binding", body)

    @rule(name=NAMES)
    def delete(self, name):
        self.ask("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")

    @rule(name=NAMES, node=st.sampled_from(NODES))
    def write_and_take_back(self, name, node):
        store = self.ask.store
        persist = store._persist

        def refuse(changes):
            from dralab.apiserver.storage import StorageUnavailable

            raise StorageUnavailable("the disk is full")

        store._persist = refuse
        try:
            self.create(name, node)
            self.bind(name, node)
            self.delete(name)
        finally:
            store._persist = persist

    @invariant()
    def lists_by_index_are_lists_by_looking(self):
        _, everything = self.ask("GET", PODS)
        for node in NODES:
            _, found = self.ask("GET", f"{PODS}?fieldSelector=spec.nodeName%3D{node}")
            wanted = [pod for pod in everything["items"] if pod["spec"].get("nodeName") == node]
            assert found["items"] == wanted
            _, some = self.ask("GET", f"{PODS}?fieldSelector=spec.nodeName%3D{node}&limit=1")
            assert some["items"] == wanted[:1]


TestIndexes = Machine.TestCase
TestIndexes.settings = settings(max_examples=20, stateful_step_count=20, deadline=None)


def test_slices_are_found_by_driver_and_node():
    ask = Asked()
    url = "/apis/resource.k8s.io/v1/resourceslices"
    for number in range(6):
        pool = {"name": "p", "generation": 1, "resourceSliceCount": 6}
        spec = {"driver": f"d{number % 2}.io", "nodeName": f"n{number % 3}", "pool": pool}
        ask("POST", url, {"metadata": {"name": f"s{number}"}, "spec": spec})
    _, found = ask("GET", f"{url}?fieldSelector=spec.driver%3Dd1.io,spec.nodeName%3Dn2")
    assert [item["metadata"]["name"] for item in found["items"]] == ["s5"]
    _, found = ask("GET", f"{url}?fieldSelector=spec.nodeName%3Dn0")
    assert [item["metadata"]["name"] for item in found["items"]] == ["s0", "s3"]
