"""Clients that compete for one server, and what must hold after whatever order they ran in.

`test_interleavings` runs them one step at a time, in orders drawn from seeds; `test_races` all at
once, over HTTP.
"""

import json
from functools import partial

from admissions import GROUP as ADMISSION
from admissions import RULE
from admissions import ask as ask_as
from dralab.api.status import ApiError
from dralab.apiserver.access.users import ADMIN, User
from dralab.apiserver.outgoing.client import CallAnswer
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import StorageUnavailable
from dralab.kernel.clock import ManualClock
from dralab.kernel.randomness import Randomness
from dralab.runtime.local import LocalClient
from dralab.runtime.resources import CONFIG_MAPS, PODS

SPACE = "/api/v1/namespaces/default"
FREE = "/api/v1/namespaces/kube-public"  # without a quota
RBAC = "/apis/rbac.authorization.k8s.io/v1"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FLOWS = "/apis/flowcontrol.apiserver.k8s.io/v1"
QUOTA = 3
GUARDED = 4  # pods of a budget that allows one disruption
COUNTER, SHARED = f"{SPACE}/configmaps/counter", f"{SPACE}/configmaps/shared"
POD = {"spec": {"containers": [{"name": "c", "image": "x"}]}}
PROTOBUF = "application/vnd.kubernetes.protobuf"
APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"
ON_MAPS = {**RULE, "resources": ["configmaps"], "operations": ["CREATE"]}
MODES = ["Node", "RBAC"]
ask = partial(ask_as, user=ADMIN)


class NotWritten(Exception):  # noqa: N818 - a step is over
    """The store failed: nothing of what was asked has happened."""


def named(name, **more):
    return {"metadata": {"name": name}, **more}


def prepare(server):
    """Store what the clients compete for."""

    def make(url, body):
        status, found = ask(server, "POST", url, body)
        assert status == 201, found
        return found

    make(f"{SPACE}/resourcequotas", named("q", spec={"hard": {"pods": str(QUOTA)}}))
    make(f"{SPACE}/configmaps", named("counter", data={"n": "0"}))
    make(f"{SPACE}/configmaps", named("shared", data={"first": "0"}))
    guard = {"selector": {"matchLabels": {"app": "guarded"}}, "minAvailable": GUARDED - 1}
    budgets = "/apis/policy/v1/namespaces/kube-public/poddisruptionbudgets"
    budget = make(budgets, named("guard", spec=guard))
    counts = {"currentHealthy": GUARDED, "desiredHealthy": GUARDED - 1, "expectedPods": GUARDED}
    status = {**counts, "disruptionsAllowed": 1, "observedGeneration": 1}
    assert ask(server, "PUT", f"{budgets}/guard/status", {**budget, "status": status})[0] == 200
    for number in range(GUARDED):
        pod = {"metadata": {"name": f"g{number}", "labels": {"app": "guarded"}}, **POD}
        pod = make(f"{FREE}/pods", pod)
        ready = [{"type": "Ready", "status": "True"}]
        running = {**pod, "status": {"phase": "Running", "conditions": ready}}
        assert ask(server, "PUT", f"{FREE}/pods/g{number}/status", running)[0] == 200


class Hooks:
    """The webhooks of all clients: they allow everything, and remember what they were asked."""

    def __init__(self, pause=lambda: None):
        self.pause, self.asked = pause, set()

    def call(self, target, body, **_):
        self.pause()
        request = json.loads(body)["request"]
        self.asked.add((target.path.strip("/"), request["name"]))
        self.pause()
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        review["response"] = {"uid": request["uid"], "allowed": True}
        return CallAnswer(200, {"content-type": "application/json"}, json.dumps(review).encode())

    def close(self):
        pass


class Client:
    """A client that takes some steps; `send` answers a request with status, headers and body."""

    def __init__(self, server, hooks, chance, name, send, count=3):
        self.server, self.hooks, self.chance, self.name = server, hooks, chance, name
        self.send = send
        self.engine = LocalClient(server.resources, server.hub)
        self.added, self.evicted, self.statuses = 0, 0, []
        self.kept = {}  # what was acknowledged of the shared object
        self.watches = []
        self.steps = [chance.choice(STEPS) for _ in range(count)]

    def run(self):
        for number, step in enumerate(self.steps):
            try:
                step(self, f"{self.name}{number}")
            except (NotWritten, StorageUnavailable):
                continue

    def ask(self, method, path, body=None, media="application/json", user=None, accept=""):
        status, self.headers, content = self.send(method, path, body, media, user, accept)
        self.statuses.append((method, path, status))
        if status == 503:
            raise NotWritten
        return status, content if accept else json.loads(content)

    def expect(self, expected, *asked, **more):
        status, found = self.ask(*asked, **more)
        assert status == expected, (self.name, asked, status, found)
        return found

    # --- what is counted

    def pod(self, name):
        self.ask("POST", f"{SPACE}/pods", {**POD, **named(name)})

    def pod_that_goes(self, name):
        if self.ask("POST", f"{SPACE}/pods", {**POD, **named(name)})[0] == 201:
            self.ask("DELETE", f"{SPACE}/pods/{name}?gracePeriodSeconds=0")

    def service(self, name):
        spec = {"type": "NodePort", "ports": [{"port": 80}]}
        self.ask("POST", f"{SPACE}/services", named(name, spec=spec))
        if self.chance.random() < 0.5:
            self.ask("DELETE", f"{SPACE}/services/{name}")

    def eviction(self, _name):
        pod = f"g{self.chance.randrange(GUARDED)}"
        body = {"apiVersion": "policy/v1", "kind": "Eviction", **named(pod)}
        self.evicted += self.ask("POST", f"{FREE}/pods/{pod}/eviction", body)[0] == 201

    # --- one object, written by all

    def count(self, _name):
        found = self.ask("GET", COUNTER)[1]
        found["data"]["n"] = str(int(found["data"]["n"]) + 1)
        self.added += self.ask("PUT", COUNTER, found)[0] == 200

    def count_inside(self, _name):
        """Do it as a controller in the server's process does."""
        found = self.engine.get(CONFIG_MAPS, "counter", "default")
        data = {"n": str(int(found["data"]["n"]) + 1)}
        try:
            self.engine.update(CONFIG_MAPS, {**found, "data": data})
            self.added += 1
        except ApiError as error:
            if error.reason != "Conflict":
                raise

    def applied(self, name):
        body = {"apiVersion": "v1", "kind": "ConfigMap", **named("shared", data={name: "a"})}
        if self.ask("PATCH", f"{SHARED}?fieldManager={name}", body, APPLY)[0] == 200:
            self.kept[name] = "a"

    def merged(self, name):
        if self.ask("PATCH", SHARED, {"data": {name: "m"}}, MERGE)[0] == 200:
            self.kept[name] = "m"

    # --- what is derived from objects

    def policy(self, name):
        deny = {"expression": f"!object.metadata.name.startsWith('{name}')"}
        spec = {"matchConstraints": {"resourceRules": [ON_MAPS]}, "validations": [deny]}
        bound = {"policyName": name, "validationActions": ["Deny"]}
        policies = f"{ADMISSION}/validatingadmissionpolic"
        self.expect(201, "POST", f"{policies}ies", named(name, spec=spec))
        self.expect(201, "POST", f"{policies}ybindings", named(name, spec=bound))
        self.expect(422, "POST", f"{FREE}/configmaps", named(f"{name}-refused"))
        if self.chance.random() < 0.7:
            which = self.chance.choice(["ies", "ybindings"])
            self.expect(200, "DELETE", f"{policies}{which}/{name}")
            self.expect(201, "POST", f"{FREE}/configmaps", named(f"{name}-let-in"))

    def mutating_policy(self, name):
        patch = f"[JSONPatch{{op: 'add', path: '/data/{name}', value: 'p'}}]"
        spec = {
            "matchConstraints": {"resourceRules": [ON_MAPS]},
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
            "matchConditions": [{"name": "own", "expression": "has(object.data)"}],
        }
        policies = f"{ADMISSION}/mutatingadmissionpolic"
        self.expect(201, "POST", f"{policies}ies", named(name, spec=spec))
        bound = named(name, spec={"policyName": name})
        self.expect(201, "POST", f"{policies}ybindings", bound)
        body = named(f"{name}-changed", data={"own": "1"})
        assert name in self.expect(201, "POST", f"{FREE}/configmaps", body)["data"]
        if self.chance.random() < 0.7:
            which = self.chance.choice(["ies", "ybindings"])
            self.expect(200, "DELETE", f"{policies}{which}/{name}")
            body = named(f"{name}-left", data={"own": "1"})
            assert name not in self.expect(201, "POST", f"{FREE}/configmaps", body)["data"]

    def webhook(self, name):
        sort = self.chance.choice(["validating", "mutating"])
        hook = {
            "name": "h.x.io",
            "rules": [ON_MAPS],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": f"https://127.0.0.1:9/{name}"},
        }
        hooks = f"{ADMISSION}/{sort}webhookconfigurations"
        self.expect(201, "POST", hooks, named(name, webhooks=[hook]))
        self.ask("POST", f"{FREE}/configmaps", named(f"{name}-asked"))
        assert (name, f"{name}-asked") in self.hooks.asked
        if self.chance.random() < 0.7:
            self.expect(200, "DELETE", f"{hooks}/{name}")
            self.ask("POST", f"{FREE}/configmaps", named(f"{name}-unasked"))
            assert (name, f"{name}-unasked") not in self.hooks.asked

    def role(self, name):
        rules = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}]
        subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name}
        role = {"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": name}
        self.expect(201, "POST", f"{RBAC}/clusterroles", named(name, rules=rules))
        body = named(name, roleRef=role, subjects=[subject])
        self.expect(201, "POST", f"{RBAC}/clusterrolebindings", body)
        user = User(name=name, groups=())
        self.expect(200, "GET", f"{SPACE}/secrets", user=user)
        which = self.chance.choice(["clusterroles", "clusterrolebindings"])
        self.expect(200, "DELETE", f"{RBAC}/{which}/{name}")
        self.expect(403, "GET", f"{SPACE}/secrets", user=user)

    def node(self, name):
        """What a node may read follows its pods, as an index finds them."""
        self.expect(201, "POST", f"{FREE}/secrets", named(name))
        volumes = [{"name": "v", "secret": {"secretName": name}}]
        spec = {**POD["spec"], "nodeName": name, "volumes": volumes}
        self.expect(201, "POST", f"{FREE}/pods", named(name, spec=spec))
        user = User(name=f"system:node:{name}", groups=("system:nodes",))
        self.expect(200, "GET", f"{FREE}/secrets/{name}", user=user)
        found = self.expect(200, "GET", f"/api/v1/pods?fieldSelector=spec.nodeName={name}")
        assert [each["metadata"]["name"] for each in found["items"]] == [name]
        self.expect(200, "DELETE", f"{FREE}/pods/{name}?gracePeriodSeconds=0")
        self.expect(403, "GET", f"{FREE}/secrets/{name}", user=user)

    def flow(self, name):
        level = {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}
        self.expect(201, "POST", f"{FLOWS}/prioritylevelconfigurations", named(name, spec=level))
        everything = {
            "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
            "namespaces": ["*"], "clusterScope": True,
        }  # fmt: skip
        rule = {"subjects": [{"kind": "User", "user": {"name": name}}]}
        rule |= {"resourceRules": [everything]}
        spec = {"priorityLevelConfiguration": {"name": name}, "rules": [rule]}
        spec["matchingPrecedence"] = 2
        uid = self.expect(201, "POST", f"{FLOWS}/flowschemas", named(name, spec=spec))
        uid = uid["metadata"]["uid"]
        user = User(name=name, groups=())
        self.ask("GET", COUNTER, user=user)
        assert self._schema() == uid, "a new FlowSchema is used"
        self.expect(200, "DELETE", f"{FLOWS}/flowschemas/{name}")
        self.ask("GET", COUNTER, user=user)
        assert self._schema() != uid, "a deleted FlowSchema is still used"

    def _schema(self):
        return {name.lower(): value for name, value in self.headers}.get(
            "x-kubernetes-pf-flowschema-uid"
        )

    def definition(self, name):
        schema = {
            "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        }
        version = {"name": "v1", "served": True, "storage": True, "schema": schema}
        names = {"plural": f"{name}s", "kind": name.title()}
        spec = {"group": "x.io", "scope": "Cluster", "names": names, "versions": [version]}
        self.expect(201, "POST", CRDS, named(f"{name}s.x.io", spec=spec))
        own = {"apiVersion": "x.io/v1", "kind": name.title(), **named("a")}
        self.expect(201, "POST", f"/apis/x.io/v1/{name}s", own)
        if self.chance.random() < 0.5:
            self.expect(200, "DELETE", f"{CRDS}/{name}s.x.io")

    def versions(self, name):
        """A version of a definition is served from its write on, and until it goes."""
        schema = {"openAPIV3Schema": {"type": "object"}}
        first = {"name": "v1", "served": True, "storage": True, "schema": schema}
        names = {"plural": f"{name}s", "kind": name.title()}
        spec = {"group": "x.io", "scope": "Cluster", "names": names, "versions": [first]}
        place, second = f"{CRDS}/{name}s.x.io", f"/apis/x.io/v2/{name}s"
        self.expect(201, "POST", CRDS, named(f"{name}s.x.io", spec=spec))
        more = [first, {**first, "name": "v2", "storage": False}]
        self.expect(200, "PATCH", place, {"spec": {"versions": more}}, media=MERGE)
        own = {"apiVersion": "x.io/v2", "kind": name.title(), **named("a")}
        self.expect(201, "POST", second, own)
        self.expect(200, "PATCH", place, {"spec": {"versions": [first]}}, media=MERGE)
        assert self.send("GET", second, None, "", None, "")[0] == 404
        self.expect(200, "GET", f"/apis/x.io/v1/{name}s/a")

    def protobuf(self, name):
        """What was written is what is read in every form, though some are kept."""
        self.expect(201, "POST", f"{FREE}/configmaps", named(name, data={"n": f"first-{name}"}))
        for now, before in ((f"first-{name}", "none"), (f"second-{name}", f"first-{name}")):
            patch = {"data": {"n": now}}
            self.expect(200, "PATCH", f"{FREE}/configmaps/{name}", patch, media=MERGE)
            found = self.expect(200, "GET", f"{FREE}/configmaps/{name}", accept=PROTOBUF)
            assert now.encode() in found
            assert before.encode() not in found

    def event(self, name):
        involved = {"kind": "ConfigMap", "namespace": "default", "name": name}
        self.ask("POST", f"{SPACE}/events", named(name, involvedObject=involved))
        if self.chance.random() < 0.5:
            self.ask("DELETE", f"{SPACE}/events/{name}")

    # --- lives of objects

    def finalized(self, name):
        body = {"metadata": {"name": name, "finalizers": ["x.io/f"]}}
        self.expect(201, "POST", f"{FREE}/secrets", body)
        self.expect(200, "DELETE", f"{FREE}/secrets/{name}")
        found = self.expect(200, "GET", f"{FREE}/secrets/{name}")
        assert "deletionTimestamp" in found["metadata"]
        patch = {"metadata": {"finalizers": None}}
        self.expect(200, "PATCH", f"{FREE}/secrets/{name}", patch, media=MERGE)
        self.expect(404, "GET", f"{FREE}/secrets/{name}")

    def collection(self, name):
        for number in range(2):
            body = {"metadata": {"name": f"{name}-{number}", "labels": {"of": name}}}
            self.expect(201, "POST", f"{FREE}/secrets", body)
        self.ask("DELETE", f"{FREE}/secrets?labelSelector=of={name}")
        found = self.expect(200, "GET", f"{FREE}/secrets?labelSelector=of={name}")
        assert found["items"] == []

    def namespace(self, name):
        self.expect(201, "POST", "/api/v1/namespaces", named(name))
        self.expect(201, "POST", f"/api/v1/namespaces/{name}/pods", {**POD, **named("p")})
        self.expect(200, "GET", f"/api/v1/namespaces/{name}/serviceaccounts/default")

    def pages(self, _name):
        """A list in pages is of one moment, whatever is written meanwhile."""
        names, page, revisions = [], "", set()
        while True:
            found = self.expect(200, "GET", f"/api/v1/configmaps?limit=1{page}")
            names += [(i["metadata"]["namespace"], i["metadata"]["name"]) for i in found["items"]]
            revisions.add(found["metadata"]["resourceVersion"])
            if not found["metadata"].get("continue"):
                break
            page = f"&continue={found['metadata']['continue']}"
        assert names == sorted(set(names))
        assert len(revisions) == 1

    def watch(self, _name):
        """List, and watch from there: whether the changes lead to what is stored is seen later."""
        kind = self.chance.choice([PODS, CONFIG_MAPS])
        listed = self.engine.list(kind)
        state = {place(each): each for each in listed.items}
        watch = self.engine.watch(kind, revision=listed.revision)
        self.watches.append((kind, state, int(listed.revision), watch))

    def turn(self, _name):
        """What the server does every few seconds."""
        self.server.tick()


def place(obj):
    return obj["metadata"].get("namespace"), obj["metadata"]["name"]


STEPS = [
    Client.pod, Client.pod, Client.pod_that_goes, Client.service, Client.eviction, Client.count,
    Client.count, Client.count_inside, Client.applied, Client.merged, Client.policy,
    Client.mutating_policy, Client.webhook, Client.role, Client.node, Client.flow,
    Client.definition, Client.versions, Client.protobuf, Client.event, Client.finalized, Client.collection, Client.namespace,
    Client.pages, Client.watch, Client.turn,
]  # fmt: skip


def plugin(server, name):
    return next(each for each in server.resources.context.validating if each.name == name)


def addresses_of(server):
    return next(
        each for each in server.resources.context.admission if each.name == "ServiceAddresses"
    )


def derived(server):
    """Return what a server has made from its objects."""
    context = server.resources.context
    dynamic = context.dynamic
    addresses = addresses_of(server)
    rbac = context.authorizer.authorizers[-1].index
    nodes = {(pod.value["spec"].get("nodeName") or "-") for pod in server.store.list("pods").items}
    found = context.indexes.candidates
    return {
        "addresses": addresses.addresses,
        "node ports": addresses.ports,
        "quotas": {space: sorted(held) for space, held in plugin(server, QUOTAS).accounts.items()},
        "policies": {
            (each.name, policy.name, bound.name)
            for each in (*dynamic.mutating, *dynamic.validating)
            if hasattr(each, "policies")
            for policy, bindings in each.policies.all
            for bound in bindings
        },
        "webhooks": {
            (each.name, hook.uid)
            for each in (*dynamic.mutating, *dynamic.validating)
            if hasattr(each, "hooks")
            for hook in each.hooks.all
        },
        "asked": dynamic.active,
        "roles": rbac._roles,
        "bindings": rbac._bindings,
        "definitions": {
            f"{each.plural}.{each.group}" for each in context.kinds if each.group == "x.io"
        },
        "events": set(server.leases._written),
        "flows": server.flows.schemas.names,
        "pods of nodes": {
            node: [one.key for one in found("pods", "spec.nodeName", node, "")] for node in nodes
        },
    }


QUOTAS = "ResourceQuota"


def check(server, clients):
    """What must hold after any order."""
    statuses = [status for each in clients for *_, status in each.statuses]
    assert all(status < 500 or status == 503 for status in statuses), [
        each.statuses for each in clients
    ]
    fresh = ApiServer(
        server.store,
        clock=ManualClock(server.resources.context.clock.now()),
        randomness=Randomness(2),
        authorization=MODES,
    )
    now, then = derived(server), derived(fresh)
    assert now == then, {part: (now[part], then[part]) for part in now if now[part] != then[part]}
    check_counts(server, clients)
    check_shared(server, clients)
    for client in clients:
        for kind, state, revision, watch in client.watches:
            check_watch(client.engine, kind, state, revision, watch)


def check_counts(server, clients):
    pods = ask(server, "GET", f"{SPACE}/pods")[1]["items"]
    used = ask(server, "GET", f"{SPACE}/resourcequotas/q")[1]["status"].get("used") or {"pods": "0"}
    assert len(pods) <= QUOTA
    account = next(iter(plugin(server, QUOTAS).accounts["default"].values()))
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
    assert sum(each.evicted for each in clients) <= 1, "the budget allows one disruption"


def check_shared(server, clients):
    counted = int(ask(server, "GET", COUNTER)[1]["data"]["n"])
    assert counted == sum(each.added for each in clients), "an acknowledged write was lost"
    data = ask(server, "GET", SHARED)[1]["data"]
    kept = {name: value for each in clients for name, value in each.kept.items()}
    assert kept.items() <= data.items(), "an acknowledged patch was lost"


def check_watch(engine, kind, state, revision, watch):
    """The changes come in order, and lead from what was listed to what is stored."""
    while (event := watch.next(0)) is not None:
        if event.type == "BOOKMARK":
            continue
        at = int(event.object["metadata"]["resourceVersion"])
        assert at > revision, "in order"
        revision = at
        if event.type == "DELETED":
            assert place(event.object) in state
            del state[place(event.object)]
        else:
            assert (place(event.object) in state) == (event.type == "MODIFIED")
            state[place(event.object)] = event.object
    stored = {place(each): each for each in engine.list(kind).items}
    assert state == stored, "no change is missing"
    watch.close()
