"""A server with no sockets, a manager on a simulated engine, and time to spend."""

from contextlib import suppress

import yaml

from builders import worker
from dralab.api.kinds import Kinds
from dralab.api.releases import MIXED
from dralab.api.resource.features import of_simulations
from dralab.api.status import ApiError
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.kernel.randomness import Randomness
from dralab.runtime.client import Resource
from dralab.runtime.local import LocalClient
from dralab.runtime.manager import Manager
from dralab.runtime.resources import NAMESPACES, NODES, PODS, PRIORITY_CLASSES
from dralab.runtime.simulated import SimulatedEngine

START = 1_800_000_000 * 10**9


class Server(LocalClient):
    """The client of a server that keeps what was asked, and fails or goes silent on demand."""

    def __init__(self, clock, features=None, release=MIXED):
        on = of_simulations(release) if features is None else features
        self._clock, self._features, self._release = clock, on, release
        self.begin_anew()
        self.log = []
        self.watches = []
        self._failures = []
        self._first = []

    def begin_anew(self):
        """Forget everything, as a server whose data was lost."""
        self.api = ApiServer(
            MemoryStore(),
            clock=self._clock,
            randomness=Randomness(1),
            features=self._features,
            kinds=Kinds.standard(release=self._release),
        )
        super().__init__(self.api.resources, self.api.hub)

    def fail_next(self, verb, plural, error):
        """Answer the next request of that kind with an error: `("update status", "pods", …)`."""
        self._failures.append((verb, plural, error))

    def before_next(self, verb, plural, action):
        """Do something just before the next request of that kind, as another client would."""
        self._first.append((verb, plural, action))

    def _asked(self, verb, resource, name, subresource=""):
        verb = f"{verb} {subresource}".strip()
        self.log.append((verb, resource.plural, name))
        for number, (asked, plural, action) in enumerate(self._first):
            if (asked, plural) == (verb, resource.plural):
                del self._first[number]
                action()
                break
        for number, (failing, plural, error) in enumerate(self._failures):
            if (failing, plural) == (verb, resource.plural):
                del self._failures[number]
                raise error

    def get(self, resource, name, namespace=""):
        self._asked("get", resource, name)
        return super().get(resource, name, namespace)

    def list(self, resource, namespace="", **selectors):
        self._asked("list", resource, "")
        return super().list(resource, namespace, **selectors)

    def watch(self, resource, namespace="", **options):
        self._asked("watch", resource, "")
        watch = Watch(super().watch(resource, namespace, **options), resource, self.watches)
        self.watches.append(watch)
        return watch

    def create(self, resource, body, namespace=""):
        self._asked("create", resource, body["metadata"].get("name", ""))
        return super().create(resource, body, namespace)

    def update(self, resource, body, *, subresource=""):
        self._asked("update", resource, body["metadata"]["name"], subresource)
        return super().update(resource, body, subresource=subresource)

    def patch(self, resource, name, patch, namespace="", **options):
        self._asked("patch", resource, name, options.get("subresource", ""))
        return super().patch(resource, name, patch, namespace, **options)

    def delete(self, resource, name, namespace="", **options):
        self._asked("delete", resource, name)
        super().delete(resource, name, namespace, **options)

    def post(self, resource, name, subresource, body, namespace=""):
        self._asked(subresource, resource, name)
        return super().post(resource, name, subresource, body, namespace)

    # --- what tests do as well

    def add(self, resource, *objects):
        """Create objects, status included, with their namespaces and priority classes."""
        return [self._added(resource, obj) for obj in objects]

    def _added(self, resource, obj):
        namespace = obj["metadata"].get("namespace") or ("default" if resource.namespaced else "")
        if namespace not in {"", "default"}:
            with suppress(ApiError):
                self.create(NAMESPACES, {"metadata": {"name": namespace}})
        if resource == PODS and "priority" in obj["spec"]:
            obj = {**obj, "spec": {**obj["spec"], "priorityClassName": self._priority(obj["spec"])}}
        made = self.create(resource, obj, namespace)
        if obj.get("status") and made.get("status") != obj["status"]:
            status = {**(made.get("status") or {}), **obj["status"]}
            made = self.update(resource, {**made, "status": status}, subresource="status")
        if resource == NODES and made["spec"].get("taints") != obj["spec"].get("taints"):
            # A new node is tainted until it is ready; these are.
            patch = {"spec": {"taints": obj["spec"].get("taints")}}
            made = self.patch(NODES, obj["metadata"]["name"], patch)
        return made

    def _priority(self, spec):
        """Return the name of a class with a pod's priority."""
        value, policy = spec["priority"], spec.get("preemptionPolicy", "PreemptLowerPriority")
        name = f"priority-{value}-{policy.lower()}"
        body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy}
        with suppress(ApiError):
            self.create(PRIORITY_CLASSES, body)
        return name

    def all(self, resource):
        return list(super().list(resource).items)


class Watch:
    """A watch that a test can silence or end, as if its revisions were compacted."""

    def __init__(self, watch, resource, watches):
        self._watch, self.resource, self._watches = watch, resource, watches
        self._ready = lambda: None
        self._silent = self._expired = False

    def next(self, timeout=None):
        if self._expired:
            raise ApiError("Expired", "too old resource version")
        found = self._watch.next(timeout)
        return None if self._silent else found

    def notify(self, ready):
        self._ready = ready
        self._watch.notify(ready)

    def silence(self):
        """Say nothing of what comes."""
        self._silent = True

    def expire(self):
        self._expired = True
        self._ready()

    def close(self):
        self._watch.close()
        self._watches.remove(self)


class Lab:
    """The real server in this process, on a simulated clock; nodes and kubelets are played."""

    def __init__(self, server=None, *, features=None, release=MIXED):
        self.engine = SimulatedEngine()
        self.engine.clock.advance_to(START)
        self.server = self.client = server or Server(self.engine.clock, features, release)
        self.api = self.server.api
        self.manager = Manager(self.engine, self.client, Randomness(7))

    def start(self):
        self.manager.start()
        self.settle()

    def settle(self):
        """Let everything happen that needs no more than a moment: retries included."""
        self.wait(0.2)

    def wait(self, seconds):
        self.engine.run(self.engine.clock.now() + int(seconds * 10**9))

    def add(self, resource, *objects):
        added = self.server.add(resource, *objects)
        self.engine.settle()
        return added

    def add_node(self, name, **more):
        """A node whose status is there from the start, as a kubelet's would be soon after."""
        obj = worker(name, **more)
        made = self.client.create(NODES, obj)
        if made.get("status") != obj["status"]:
            self.client.update(NODES, {**made, "status": obj["status"]}, subresource="status")

    def get(self, resource, name, namespace="default"):
        return self.client.get(resource, name, namespace if resource.namespaced else "")

    def find(self, resource, name, namespace="default"):
        try:
            return self.get(resource, name, namespace)
        except ApiError as error:
            if error.reason != "NotFound":
                raise
            return None

    def all(self, resource, namespace="", **selectors):
        return list(self.client.list(resource, namespace, **selectors).items)

    def names(self, resource, namespace="default"):
        return sorted(obj["metadata"]["name"] for obj in self.all(resource, namespace))

    def patch(self, resource, name, patch, namespace="default", **options):
        space = namespace if resource.namespaced else ""
        return self.client.patch(resource, name, patch, space, **options)

    def delete(self, resource, name, namespace="default", **options):
        space = namespace if resource.namespaced else ""
        self.client.delete(resource, name, space, options=options or None)

    def set_status(self, resource, name, namespace="default", **status):
        obj = self.get(resource, name, namespace)
        body = {**obj, "status": {**(obj.get("status") or {}), **status}}
        return self.client.update(resource, body, subresource="status")

    # --- what a kubelet would do

    def run_pods(self):
        """Let every pod with a node run and be ready, and every deleted one end."""
        for obj in self.all(PODS):
            name, namespace = obj["metadata"]["name"], obj["metadata"]["namespace"]
            if "deletionTimestamp" in obj["metadata"]:
                self.delete(PODS, name, namespace, gracePeriodSeconds=0)
            elif obj["spec"].get("nodeName") and obj["status"]["phase"] == "Pending":
                ready = {
                    "type": "Ready",
                    "status": "True",
                    "lastTransitionTime": self.manager.now(),
                }
                others = [c for c in obj["status"].get("conditions", ()) if c["type"] != "Ready"]
                self.set_status(PODS, name, namespace, phase="Running", conditions=[*others, ready])

    def rounds(self, count):
        """Let controllers and kubelets take turns."""
        for _ in range(count):
            self.run_pods()
            self.wait(1)

    def end_pod(self, name, phase="Succeeded", namespace="default"):
        obj = self.get(PODS, name, namespace)
        others = [c for c in obj["status"].get("conditions", ()) if c["type"] != "Ready"]
        ready = {"type": "Ready", "status": "False", "lastTransitionTime": self.manager.now()}
        self.set_status(PODS, name, namespace, phase=phase, conditions=[*others, ready])

    def bind(self, name, node, namespace="default"):
        body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        self.client.post(PODS, name, "binding", body, namespace)


def create_all(client, kinds, document):
    """Create the objects of a mapping or of a YAML text; return them as they are stored."""
    made = []
    for obj in yaml.safe_load_all(document) if isinstance(document, str) else [document]:
        if obj is not None:
            namespace = obj["metadata"].get("namespace", "")
            made.append(client.create(resource_of(obj, kinds), obj, namespace))
    return made


def resource_of(obj, kinds):
    group, _, version = obj["apiVersion"].rpartition("/")
    for kind in kinds:
        if (kind.group, kind.version, kind.kind) == (group, version, obj["kind"]):
            return Resource(kind.group, kind.version, kind.plural, kind.namespaced)
    raise AssertionError(f"no kind {obj['apiVersion']} {obj['kind']}")
