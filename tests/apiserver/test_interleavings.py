"""Requests in the loop and in lanes, in orders drawn from seeds: what must hold after each.

`--seeds N` tries as many; `make conformance` 10,000. A failure names its seed.
"""

import json

import pytest

from admissions import ask
from dralab.apiserver.access.users import User
from dralab.apiserver.http.messages import HEAVY_LANE, LARGE_LANE, LOOP, HttpRequest, TakesLong
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.kernel.clock import ManualClock
from dralab.kernel.randomness import Randomness
from interleavings import Deadlock, Interleaving

SEEDS = 40
SPACE = "/api/v1/namespaces/default"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
QUOTA = 3
COUNTER = f"{SPACE}/configmaps/counter"
POD = {"spec": {"containers": [{"name": "c", "image": "x"}]}}
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["secrets"]}


def server_of(order, monkeypatch):
    """A server whose threads switch at each lock."""
    for place in ("made_once.RLock", "access.admission.quotas.Lock", "http.application.Lock"):
        monkeypatch.setattr(f"dralab.apiserver.{place}", order.lock)
    store = MemoryStore()
    store.lock = order.lock()
    clock = ManualClock(1_800_000_000 * 10**9)
    server = ApiServer(store, clock=clock, randomness=Randomness(1), authorization=["RBAC"])
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": str(QUOTA)}}}
    assert ask(server, "POST", f"{SPACE}/resourcequotas", quota)[0] == 201
    counter = {"metadata": {"name": "counter"}, "data": {"n": "0"}}
    assert ask(server, "POST", f"{SPACE}/configmaps", counter)[0] == 201
    return server


class Client:
    """A client whose requests are answered by one thread, in the loop or apart."""

    def __init__(self, server, chance, name):
        self.server, self.chance, self.name = server, chance, name
        self.added, self.statuses = 0, []
        self.steps = [self.chance.choice(STEPS) for _ in range(3)]

    def run(self):
        for number, step in enumerate(self.steps):
            step(self, f"{self.name}{number}")

    def ask(self, method, path, body=None, media="application/json", user=None):
        lane = self.chance.choice((LOOP, HEAVY_LANE, LARGE_LANE))
        text = b"" if body is None else json.dumps(body).encode()
        path, _, query = path.partition("?")
        head = {"content-type": media}
        request = HttpRequest(method=method, path=path, query=query, headers=head, body=text)
        request.user = user or User(name="admin")
        request.lane = lane
        while True:
            try:
                if request.lane == LOOP:
                    with self.server.store.batch():
                        answer = self.server.handle(request)
                else:
                    answer = self.server.handle_apart(request)
            except TakesLong as condition:
                request.lane = condition.lane
                continue
            self.statuses.append((method, path, answer.status))
            return answer.status, json.loads(answer.content)

    def pod(self, name):
        self.ask("POST", f"{SPACE}/pods", {**POD, "metadata": {"name": name}})

    def pod_that_goes(self, name):
        if self.ask("POST", f"{SPACE}/pods", {**POD, "metadata": {"name": name}})[0] == 201:
            self.ask("DELETE", f"{SPACE}/pods/{name}?gracePeriodSeconds=0")

    def service(self, name):
        spec = {"type": "NodePort", "ports": [{"port": 80}]}
        self.ask("POST", f"{SPACE}/services", {"metadata": {"name": name}, "spec": spec})

    def count(self, _name):
        found = self.ask("GET", COUNTER)[1]
        found["data"]["n"] = str(int(found["data"]["n"]) + 1)
        self.added += self.ask("PUT", COUNTER, found)[0] == 200

    def policy(self, name):
        spec = {
            "matchConstraints": {"resourceRules": [RULE]},
            "validations": [{"expression": "true"}],
        }
        bound = {"policyName": name, "validationActions": ["Deny"]}
        policies = f"{ADMISSION}/validatingadmissionpolic"
        self.ask("POST", f"{policies}ies", {"metadata": {"name": name}, "spec": spec})
        self.ask("POST", f"{policies}ybindings", {"metadata": {"name": name}, "spec": bound})
        if self.chance.random() < 0.5:
            self.ask("DELETE", f"{policies}ies/{name}")

    def role(self, name):
        rules = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}]
        subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name}
        role = {"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": name}
        body = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
        self.ask("POST", f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
        self.ask("POST", f"{RBAC}/clusterrolebindings", body)
        user = User(name=name, groups=())
        assert self.ask("GET", f"{SPACE}/secrets", user=user)[0] == 200
        self.ask("DELETE", f"{RBAC}/clusterrolebindings/{name}")
        assert self.ask("GET", f"{SPACE}/secrets", user=user)[0] == 403

    def definition(self, name):
        schema = {
            "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        }
        version = {"name": "v1", "served": True, "storage": True, "schema": schema}
        names = {"plural": f"{name}s", "kind": name.title()}
        spec = {"group": "x.io", "scope": "Cluster", "names": names, "versions": [version]}
        self.ask("POST", CRDS, {"metadata": {"name": f"{name}s.x.io"}, "spec": spec})
        own = {"apiVersion": "x.io/v1", "kind": name.title(), "metadata": {"name": "a"}}
        assert self.ask("POST", f"/apis/x.io/v1/{name}s", own)[0] == 201
        if self.chance.random() < 0.5:
            self.ask("DELETE", f"{CRDS}/{name}s.x.io")


STEPS = [
    Client.pod, Client.pod, Client.pod_that_goes, Client.service, Client.count, Client.count,
    Client.policy, Client.role, Client.definition,
]  # fmt: skip


def check(server, clients):
    """What must hold after any order."""
    statuses = [status for each in clients for *_, status in each.statuses]
    assert all(status < 500 for status in statuses), [each.statuses for each in clients]
    pods = ask(server, "GET", f"{SPACE}/pods")[1]["items"]
    used = ask(server, "GET", f"{SPACE}/resourcequotas/q")[1]["status"].get("used") or {"pods": "0"}
    assert len(pods) <= QUOTA
    account = next(iter(limits_of(server).accounts["default"].values()))
    assert account.sums["pods"] in {len(pods), 0}, "0: nothing was counted yet"
    assert int(used["pods"]) <= QUOTA
    services = ask(server, "GET", "/api/v1/services")[1]["items"]
    addresses = [each["spec"]["clusterIP"] for each in services]
    ports = [
        port["nodePort"]
        for each in services
        for port in each["spec"]["ports"]
        if "nodePort" in port
    ]
    assert len(set(addresses)) == len(addresses)
    assert len(set(ports)) == len(ports)
    counted = int(ask(server, "GET", COUNTER)[1]["data"]["n"])
    assert counted == sum(each.added for each in clients), "an acknowledged write was lost"
    policies = {
        policy.name
        for plugin in server.resources.context.dynamic.validating
        if hasattr(plugin, "policies")
        for policy, _ in plugin.policies.all
    }
    stored = ask(server, "GET", f"{ADMISSION}/validatingadmissionpolicies")[1]["items"]
    bound = ask(server, "GET", f"{ADMISSION}/validatingadmissionpolicybindings")[1]["items"]
    names = [{each["metadata"]["name"] for each in listed} for listed in (stored, bound)]
    assert policies == names[0] & names[1]
    definitions = {each["metadata"]["name"] for each in ask(server, "GET", CRDS)[1]["items"]}
    custom = {f"{each.plural}.{each.group}" for each in server.resources.kinds if each.custom}
    assert custom == definitions


def limits_of(server):
    return next(
        each for each in server.resources.context.validating if each.name == "ResourceQuota"
    )


@pytest.mark.parametrize("number", [SEEDS, pytest.param(10_000, marks=pytest.mark.conformance)])
def test_requests_in_any_order_keep_what_they_promise(number, request, monkeypatch):
    for seed in range(request.config.getoption("--seeds") or number):
        order = Interleaving(seed)
        server = server_of(order, monkeypatch)
        clients = [Client(server, order.chance, name) for name in ("ann", "bob", "cyd")]
        try:
            order.run(*(each.run for each in clients))
            check(server, clients)
        except (AssertionError, Deadlock) as error:
            raise AssertionError(f"seed {seed}, turns {order.order}: {error}") from error
        finally:
            server.close()


def test_the_same_seed_is_the_same_order(monkeypatch):
    orders = []
    for _ in range(2):
        order = Interleaving(7)
        server = server_of(order, monkeypatch)
        order.run(*(Client(server, order.chance, name).run for name in ("ann", "bob")))
        server.close()
        orders.append(order.order)
    assert orders[0] == orders[1]
    assert len(set(orders[0])) == 2


def test_a_lost_update_is_found():
    """The tool itself: two threads that read and write without a lock around both."""
    found = set()
    for seed in range(20):
        order, box = Interleaving(seed), {"n": 0}
        lock = order.lock()

        def add(box=box, lock=lock):
            with lock:
                n = box["n"]
            with lock:
                box["n"] = n + 1

        order.run(add, add)
        found.add(box["n"])
    assert found == {1, 2}


def test_a_deadlock_is_found():
    seen = []
    for seed in range(20):
        order = Interleaving(seed)
        one, two = order.lock(), order.lock()

        def take(first, second):
            with first, second:
                pass

        try:
            order.run(lambda: take(one, two), lambda: take(two, one))  # noqa: B023 - runs here
        except Deadlock:
            seen.append(seed)
    assert 0 < len(seen) < 20
