"""The built-in plugins: what they add to objects, and what they refuse."""

from typing import ClassVar

import pytest

from admissions import MERGE, ask
from dralab.api.kinds import Kinds
from dralab.api.releases import MIXED, versions
from dralab.apiserver.access.admission.chain import PluginChain, Review, Selective
from dralab.apiserver.access.admission.selection import settings_of
from dralab.apiserver.access.scope import RequestScope
from dralab.apiserver.access.users import User
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.apiserver.verbs.state.options import WriteOptions
from dralab.kernel.clock import ManualClock
from dralab.kernel.randomness import Randomness

HERE = "/api/v1/namespaces/default"
NETWORK = "/apis/networking.k8s.io/v1"


def new_server(**options):
    clock = ManualClock(1_800_000_000 * 10**9)
    return ApiServer(MemoryStore(), clock=clock, randomness=Randomness(1), **options)


@pytest.fixture
def server():
    return new_server()


class Unseen(dict):
    """An object that nobody may look at."""

    def _seen(self, *_):
        raise AssertionError("looked at")

    __getitem__ = get = setdefault = __setitem__ = items = _seen


class Unread:
    """Objects that nobody may ask for."""

    def _asked(self, *_):
        raise AssertionError("asked the store")

    get = list = count = _asked


def test_plugins_do_not_look_at_writes_that_they_are_not_asked_about():
    """The other way round it would be a hole: a plugin that never sees what it should refuse."""
    context = new_server(authorization=["Node", "RBAC"]).resources.context
    hubs = {kind.hub: kind for kind in context.kinds}
    releases = (MIXED, *versions())
    known = {kind.hub for release in releases for kind in Kinds.standard(release=release)}
    refused = []

    steps = [(each.admit, each) for each in context.admission]
    steps += [(each.validate, each) for each in context.validating]
    selective = [(act, each) for act, each in steps if isinstance(each, Selective)]
    assert len(selective) > 15
    for act, plugin in selective:
        assert set(plugin.concerns) <= known, plugin.name
        for hub, kind in hubs.items():
            for operation in ("CREATE", "UPDATE", "DELETE"):
                if operation in plugin.concerns.get(hub, ()):
                    refused.append((plugin.name, hub, operation))
                    continue
                review = Review(
                    operation=operation, kind=kind, namespace="default", name="x", subresource="",
                    value=None if operation == "DELETE" else Unseen(),
                    old=None if operation == "CREATE" else Unseen(),
                    scope=RequestScope(store=Unread(), user=User(name="jane")), options=WriteOptions(),
                )  # fmt: skip
                act(review)
    assert ("Priority", "pods", "CREATE") in refused


def test_plugins_are_asked_in_their_order():
    class Always:
        name = "Always"

        def admit(self, review):
            """Take no part."""

    class OfPods(Always):
        concerns: ClassVar = {"pods": frozenset({"CREATE"})}

    first, second, third = Always(), OfPods(), Always()
    plugins = PluginChain([first, second])
    plugins.append(third)
    assert list(plugins.of("pods", "CREATE")) == [first, second, third]
    assert list(plugins.of("pods", "DELETE")) == [first, third]
    assert list(plugins.of("example.com/foos", "CREATE")) == [first, third]
    plugins.remove(first)
    assert list(plugins.of("pods", "CREATE")) == [second, third]
    assert list(plugins) == [second, third]


def made(server, url, body):
    status, found = ask(server, "POST", url, body)
    assert status == 201, found
    return found


def pod(name="p", **spec):
    container = {"name": "c", "image": "x", **spec.pop("container", {})}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def claim(name="a", **spec):
    resources = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": resources, **spec}
    return {"metadata": {"name": name}, "spec": spec}


def storage_class(name, **more):
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    return {"metadata": {"name": name, "annotations": annotations}, "provisioner": "x", **more}


def limits(*items):
    return {"metadata": {"name": "l"}, "spec": {"limits": list(items)}}


def test_the_defaults_of_a_namespace_are_noted_in_the_pod(server):
    item = {"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "500m"}}
    made(server, f"{HERE}/limitranges", limits(item))
    found = made(server, f"{HERE}/pods", pod())
    resources = {"limits": {"cpu": "1"}, "requests": {"cpu": "500m"}}
    assert found["spec"]["containers"][0]["resources"] == resources
    assert found["metadata"]["annotations"] == {
        "kubernetes.io/limit-ranger": "LimitRanger plugin set: cpu request for container c; cpu "
        "limit for container c"
    }


@pytest.mark.parametrize(
    ("item", "resources", "words"),
    [
        (
            {"type": "Container", "max": {"cpu": "2"}},
            {"limits": {"cpu": "3"}},
            "maximum cpu usage per Container is 2, but limit is 3",
        ),
        (
            {"type": "Container", "min": {"cpu": "2"}},
            {"requests": {"cpu": "1"}},
            "minimum cpu usage per Container is 2, but request is 1",
        ),
        (
            {"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}},
            {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}},
            "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
        ),
        (
            {"type": "Pod", "max": {"cpu": "1"}},
            {"limits": {"cpu": "2"}},
            "maximum cpu usage per Pod is 1, but limit is 2",
        ),
    ],
)
def test_a_pod_outside_of_a_range_is_refused(server, item, resources, words):
    made(server, f"{HERE}/limitranges", limits(item))
    body = pod(container={"resources": resources})
    code, found = ask(server, "POST", f"{HERE}/pods", body)
    assert (code, found["message"]) == (403, f'pods "p" is forbidden: {words}')


def test_a_claim_outside_of_a_range_is_refused(server):
    item = {"type": "PersistentVolumeClaim", "max": {"storage": "500Mi"}}
    made(server, f"{HERE}/limitranges", limits(item))
    code, found = ask(server, "POST", f"{HERE}/persistentvolumeclaims", claim())
    assert code == 403
    assert (
        "maximum storage usage per PersistentVolumeClaim is 500Mi, but request is 1Gi"
        in (found["message"])
    )


def test_the_status_of_a_quota_tells_what_is_used_with_the_object(server):
    hard = {"pods": "2", "requests.cpu": "1"}
    made(server, f"{HERE}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    used = {"status": {"hard": hard, "used": {"pods": "0", "requests.cpu": "0"}}}
    ask(server, "PATCH", f"{HERE}/resourcequotas/q/status", used, MERGE)
    body = pod(container={"resources": {"requests": {"cpu": "100m"}}})
    made(server, f"{HERE}/pods", body)
    found = ask(server, "GET", f"{HERE}/resourcequotas/q")[1]
    assert found["status"]["used"] == {"pods": "1", "requests.cpu": "100m"}
    assert ask(server, "POST", f"{HERE}/pods", body)[0] == 409
    body["metadata"]["name"] = "dry"
    assert ask(server, "POST", f"{HERE}/pods?dryRun=All", body)[0] == 201
    assert ask(server, "GET", f"{HERE}/resourcequotas/q")[1] == found


def test_the_newest_default_class_is_given_to_a_claim(server):
    claims = f"{HERE}/persistentvolumeclaims"
    assert "storageClassName" not in made(server, claims, claim("a"))["spec"]
    classes = "/apis/storage.k8s.io/v1/storageclasses"
    made(server, classes, storage_class("old"))
    server.resources.context.clock.advance(10**9)
    made(server, classes, storage_class("new"))
    assert made(server, claims, claim("b"))["spec"]["storageClassName"] == "new"
    assert made(server, claims, claim("c", storageClassName=""))["spec"]["storageClassName"] == ""


def test_volumes_and_claims_stay_while_they_are_used(server):
    found = made(server, f"{HERE}/persistentvolumeclaims", claim())
    assert found["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]


def test_only_a_bound_claim_of_a_class_that_allows_it_grows(server):
    classes, claims = "/apis/storage.k8s.io/v1/storageclasses", f"{HERE}/persistentvolumeclaims"
    made(server, classes, storage_class("fixed"))
    made(server, classes, storage_class("grows", allowVolumeExpansion=True))
    larger = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    bound = {"status": {"phase": "Bound"}}
    for name in ("fixed", "grows"):
        made(server, claims, claim(name, storageClassName=name))
    code, found = ask(server, "PATCH", f"{claims}/grows", larger, MERGE)
    # A real server looks at the change first, and shows it as it holds it in memory.
    assert (code, found["message"].partition("\n")[2]) == (
        422,
        '@@ -6,7 +6,7 @@\n  "Resources": {\n   "Limits": null,\n   "Requests": {\n'
        '-   "storage": "1Gi"\n+   "storage": "2Gi"\n   }\n  },\n  "VolumeName": "",\n',
    )
    for name in ("fixed", "grows"):
        assert ask(server, "PATCH", f"{claims}/{name}/status", bound, MERGE)[0] == 200
    assert ask(server, "PATCH", f"{claims}/grows", larger, MERGE)[0] == 200
    code, found = ask(server, "PATCH", f"{claims}/fixed", larger, MERGE)
    assert code == 403
    assert "the storageclass that provisions the pvc must support resize" in found["message"]


def test_a_runtime_class_places_a_pod_and_says_what_it_costs(server):
    body = {
        "metadata": {"name": "sandbox"},
        "handler": "s",
        "overhead": {"podFixed": {"cpu": "100m"}},
        "scheduling": {
            "nodeSelector": {"sandbox": "yes"},
            "tolerations": [{"key": "sandbox", "operator": "Exists"}],
        },
    }
    made(server, "/apis/node.k8s.io/v1/runtimeclasses", body)
    found = made(server, f"{HERE}/pods", pod(runtimeClassName="sandbox"))["spec"]
    assert (found["overhead"], found["nodeSelector"]) == ({"cpu": "100m"}, {"sandbox": "yes"})
    assert {"key": "sandbox", "operator": "Exists"} in found["tolerations"]
    for spec, words in (
        ({"runtimeClassName": "none"}, 'pod rejected: RuntimeClass "none" not found'),
        (
            {"runtimeClassName": "sandbox", "nodeSelector": {"sandbox": "no"}},
            "conflict: runtimeClass.scheduling.nodeSelector[sandbox] = yes; "
            "pod.spec.nodeSelector[sandbox] = no",
        ),
        (
            {"overhead": {"cpu": "1"}},
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        ),
    ):
        code, refused = ask(server, "POST", f"{HERE}/pods", pod("q", **spec))
        assert (code, refused["message"]) == (403, f'pods "q" is forbidden: {words}')


def test_the_default_class_is_given_to_an_ingress(server):
    annotations = {"ingressclass.kubernetes.io/is-default-class": "true"}
    body = {"metadata": {"name": "c", "annotations": annotations}, "spec": {"controller": "x.io/y"}}
    made(server, f"{NETWORK}/ingressclasses", body)
    backend = {"service": {"name": "s", "port": {"number": 80}}}
    ingress = {"metadata": {"name": "i"}, "spec": {"defaultBackend": backend}}
    found = made(server, f"{NETWORK}/namespaces/default/ingresses", ingress)
    assert found["spec"]["ingressClassName"] == "c"


OFF = {
    "LimitRanger": lambda server: (
        "annotations" not in made(server, f"{HERE}/pods", pod())["metadata"]
    ),
    "TaintNodesByCondition": lambda server: (
        "taints" not in made(server, "/api/v1/nodes", {"metadata": {"name": "n"}})["spec"]
    ),
    "StorageObjectInUseProtection": lambda server: (
        "finalizers" not in made(server, f"{HERE}/persistentvolumeclaims", claim())["metadata"]
    ),
    "RuntimeClass": lambda server: made(server, f"{HERE}/pods", pod(runtimeClassName="none")),
    "ResourceQuota": lambda server: made(server, f"{HERE}/pods", pod()),
}


@pytest.mark.parametrize("plugin", OFF)
def test_each_plugin_can_be_switched_off(plugin):
    server = new_server(admission=settings_of(disabled=[plugin]))
    item = {"type": "Container", "default": {"cpu": "1"}}
    made(server, f"{HERE}/limitranges", limits(item))
    hard = {"pods": "0"}
    if plugin == "ResourceQuota":
        made(server, f"{HERE}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    assert OFF[plugin](server)
