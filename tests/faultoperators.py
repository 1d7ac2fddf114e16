"""Operators with a bug that only one fault shows, and the one that each was made of.

`Sites` and its kind meet what happens to requests; `Members` watches pods, nodes and events, and
keeps a ConfigMap for each pod of a Deployment that is ready and for each node that is.
"""

from collections import Counter
from contextlib import suppress

from dralab.api.status import ApiError
from dralab.kernel.clock import SECOND
from dralab.objects.metadata import NamespacedName, key_of
from dralab.objects.pods import is_ready
from dralab.runtime.client import Resource
from dralab.runtime.resources import CONFIG_MAPS, NODES, PODS
from dralab.testing.process import ProgramSpec
from dralab.testing.trial_scenario import ClusterParts, ScriptStep, TrialScenario
from siteoperators import SITES, Sites

EVENTS = Resource("", "v1", "events")


class GivesUpOn(Sites):
    """Takes a code of the server, seen `patience` times in a row, for its last word."""

    code = 0
    patience = 1

    def __init__(self, manager):
        super().__init__(manager)
        self.refused = Counter()

    def reconcile(self, key):
        try:
            super().reconcile(key)
        except ApiError as error:
            if error.code != self.code:
                raise
            self.refused[key] += 1
            if self.refused[key] < self.patience:
                raise
            return
        self.refused.pop(key, None)


class GivesUpWhenThrottled(GivesUpOn):
    code, patience = 429, 3


class TakesADenialForGood(GivesUpOn):
    code = 403


class TakesExpiryForGood(GivesUpOn):
    code = 401


class Counts(Sites):
    """Writes each two seconds how many sites there are."""

    def __init__(self, manager):
        super().__init__(manager)
        manager.every(2 * SECOND, self.count)

    def count(self):
        with suppress(ApiError):
            self.write_count()

    def write_count(self):
        number = str(len(self.client.list(SITES).items))

        def change(obj):
            data = obj.setdefault("data", {})
            if data.get("number") == number:
                return False
            data["number"] = number
            return True

        self.change_directory(change)


class GivesUpInAnOutage(Counts):
    """Stops when the server did not answer three times in a row."""

    def __init__(self, manager):
        super().__init__(manager)
        self.failed = 0

    def count(self):
        if self.failed == 3:
            return
        try:
            self.write_count()
        except ApiError as error:
            self.failed += error.code == 503
        else:
            self.failed = 0


class Members:
    """Has a ConfigMap in `registry` for each pod and each node that is ready."""

    def __init__(self, manager):
        self.client = manager.client
        self.pods = manager.cache(PODS)
        self.nodes = manager.cache(NODES)
        self.queue = manager.queue("members", self.reconcile)
        self.pods.subscribe(lambda old, new: self.queue.add(("pod", key_of(new or old))))
        self.nodes.subscribe(lambda old, new: self.queue.add(("node", key_of(new or old))))
        # What was entered for a pod that went while this operator was away.
        self.entries = manager.cache(CONFIG_MAPS)
        self.entries.subscribe(lambda old, new: self.look_at(key_of(new or old)))

    def look_at(self, entry):
        kind, _, name = entry.name.partition("-")
        if entry.namespace == "registry" and kind in {"pod", "node"}:
            self.queue.add((kind, NamespacedName("default" if kind == "pod" else "", name)))

    def reconcile(self, item):
        kind, key = item
        cache = self.pods if kind == "pod" else self.nodes
        found = cache.get(key)
        if found is not None and self.counts(kind, found):
            self.enter(f"{kind}-{key.name}")
        else:
            self.leave(f"{kind}-{key.name}")

    def counts(self, kind, found):
        return is_ready(found) if kind == "pod" else self.node_is_ready(found)

    @staticmethod
    def node_is_ready(node):
        conditions = (node.get("status") or {}).get("conditions") or ()
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def enter(self, name):
        metadata = {"name": name} if "node" in name else {"generateName": "pod-", "name": name}
        try:
            self.client.create(CONFIG_MAPS, {"metadata": metadata}, "registry")
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    def leave(self, name):
        try:
            self.client.delete(CONFIG_MAPS, name, "registry")
        except ApiError as error:
            if error.reason != "NotFound":
                raise


class ForgetsRestarted(Members):
    """Takes a container that ended for the end of its pod."""

    def counts(self, kind, found):
        statuses = (found.get("status") or {}).get("containerStatuses") or ()
        ended = any((each.get("lastState") or {}).get("terminated") for each in statuses)
        return super().counts(kind, found) and not ended


class ForgetsNodes(Members):
    """Never takes a node back that was not ready once."""

    def __init__(self, manager):
        super().__init__(manager)
        self.was_ready, self.gone = set(), set()

    def counts(self, kind, found):
        ready = super().counts(kind, found)
        if kind == "node":
            name = found["metadata"]["name"]
            if ready:
                self.was_ready.add(name)
            elif name in self.was_ready:
                self.gone.add(name)
            return ready and name not in self.gone
        return ready


class ClosesNodes(Members):
    """Closes a node to pods for good when one of its drivers did not answer."""

    def __init__(self, manager):
        super().__init__(manager)
        self.events = manager.cache(EVENTS)
        self.events.subscribe(self.happened)

    def happened(self, old, new):
        if new is not None and new.get("reason") == "FailedPrepareDynamicResources":
            self.queue.add(("close", key_of(new)))

    def reconcile(self, item):
        kind, key = item
        if kind != "close":
            super().reconcile(item)
            return
        event = self.events.get(key)
        name = event["involvedObject"]["name"] if event else ""
        pod = self.pods.get(NamespacedName("default", name))
        if pod is not None:
            self.client.patch(
                NODES, pod["spec"]["nodeName"], {"metadata": {"labels": {"bad": "1"}}}
            )


TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "gpu", "namespace": "default"},
    "spec": {
        "spec": {
            "devices": {
                "requests": [{"name": "g", "exactly": {"deviceClassName": "gpu.example.com"}}]
            }
        }
    },
}
WEB = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "resourceClaims": [{"name": "g", "resourceClaimTemplateName": "gpu"}],
                "containers": [
                    {"name": "c", "image": "x:1", "resources": {"claims": [{"name": "g"}]}}
                ],
            },
        },
    },
}


def members_scenario(operator, **changes):
    """Return two nodes with a driver, and a Deployment whose pods have a claim."""
    web = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    registry = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "registry"}}
    given = {
        "name": operator.__name__,
        "programs": [ProgramSpec(name="operator", build=operator)],
        "manifests": [registry, TEMPLATE],
        "script": [
            ScriptStep(verb="apply", after=5 * SECOND, objects=[WEB]),
            ScriptStep(verb="scale", after=10 * SECOND, target=web, patch={"replicas": 3}),
            ScriptStep(verb="wait", after=60 * SECOND),
        ],
        "cluster": ClusterParts(nodes=2, drivers=["gpu"]),
    }
    return TrialScenario(**{**given, **changes})
