"""Drivers that publish wrongly."""

import copy
from contextlib import suppress
from urllib.error import HTTPError
from urllib.request import urlopen

from referencedriver import Lamps, target

from dralab.api.status import ApiError
from dralab.drivers.publishing import SlicePublisher
from dralab.runtime.client import WatchEvent
from dralab.runtime.remote import RemoteClient
from dralab.runtime.resources import NODES, SLICES


def disguised(outgoing, incoming=lambda obj: None, driver=Lamps):
    """A driver whose slices are changed on their way to the server, and back on their way home."""

    def back(obj):
        obj = copy.deepcopy(obj)
        incoming(obj)
        return obj

    class Client(RemoteClient):
        def create(self, resource, body, namespace=""):
            if resource != SLICES:
                return super().create(resource, body, namespace)
            body = copy.deepcopy(body)
            outgoing(body)
            return back(super().create(resource, body, namespace))

        def list(self, resource, *args, **options):
            found = super().list(resource, *args, **options)
            if resource == SLICES:
                found.items[:] = [back(one) for one in found.items]
            return found

        def watch(self, resource, *args, **options):
            watch = super().watch(resource, *args, **options)
            return Watch(watch) if resource == SLICES else watch

    class Watch:
        def __init__(self, watch):
            self._watch = watch

        def next(self, timeout=None):
            event = self._watch.next(timeout)
            return WatchEvent(event.type, back(event.object)) if event is not None else None

        def __getattr__(self, name):
            return getattr(self._watch, name)

    return target(driver, client=Client)


def extra(**spec):
    """A driver that publishes one slice more, in a pool of its own."""

    def before(instance):
        if marked(instance):
            return
        node, name = instance.places.node, instance.code.name
        pool = {"name": "extra", "generation": 1, "resourceSliceCount": 1}
        own = {"driver": name, "nodeName": node, "pool": pool, **spec}
        with suppress(ApiError):
            owners = [owner(instance.client, node)]
            metadata = {"generateName": f"extra-{node}-", "ownerReferences": owners}
            instance.client.create(SLICES, {"metadata": metadata, "spec": own})

    return target(before=before, publisher=keeping_extra())


def keeping_extra():
    class Publisher(SlicePublisher):
        def _sync(self, place):
            find = self.slices.find
            own = [
                s
                for s in find("pool", f"{place.driver}/{place.node}")
                if s["spec"]["pool"]["name"] != "extra"
            ]
            self.slices.find = lambda *_: own
            try:
                return super()._sync(place)
            finally:
                self.slices.find = find

    return Publisher


def owner(client, name):
    node = client.get(NODES, name)
    found = {"apiVersion": "v1", "kind": "Node", "controller": True}
    return found | {"name": node["metadata"]["name"], "uid": node["metadata"]["uid"]}


def add_field(body):
    for device in body["spec"].get("devices") or ():
        device["colour"] = "red"


def count(change, which=lambda spec: True):
    def apply(sign):
        def to(body):
            if which(body["spec"]):
                body["spec"]["pool"]["resourceSliceCount"] += sign * change

        return to

    return lambda: disguised(apply(1), apply(-1))


def is_last(spec):
    return any(
        device["name"].startswith(("big-0", "lamp-0")) for device in spec.get("devices", ())
    ) and (len(spec["devices"]) == 3)


def same_name():
    def rename(old, new):
        def change(body):
            if is_last(body["spec"]):
                body["spec"]["devices"][-1]["name"] = new

        return change

    class Silent(Lamps):
        """Says nothing of the lamp that has another's name."""

        def health(self):
            return [one for one in super().health() if one.device != "big-0"]

    return disguised(rename("big-0", "lamp-11"), rename("lamp-11", "big-0"), Silent)


def consuming(**entry):
    def out(body):
        if is_last(body["spec"]):
            body["spec"]["devices"][-1]["consumesCounters"] = [entry]

    def home(body):
        if is_last(body["spec"]):
            counters = {"bulbs": {"value": "2"}}
            body["spec"]["devices"][-1]["consumesCounters"] = [
                {"counterSet": "big", "counters": counters}
            ]

    return lambda: disguised(out, home)


def drop_owner(body):
    del body["metadata"]["ownerReferences"]


def fixed_name(body):
    metadata = body["metadata"]
    index = metadata.pop("generateName").partition("-")[0]
    metadata["name"] = f"slice-{index}-{body['spec']['pool']['generation']}"


def curious():
    class Publisher(SlicePublisher):
        def __init__(self, manager, **options):
            super().__init__(manager, mend_after=options["mend_after"])

    return target(publisher=Publisher)


def marked(instance):
    """Whether an instance ran here before."""
    marker = instance.places.root / "marker"
    found = marker.exists()
    marker.touch()
    return found


def restless():
    def before(instance):
        again = marked(instance)

        def touch():
            mine = f"spec.driver={instance.code.name}"
            for one in instance.client.list(SLICES, field_selector=mine).items:
                note = {"touched": str(instance.engine.clock.now())}
                patch = {"metadata": {"annotations": note}}
                instance.client.patch(SLICES, one["metadata"]["name"], patch)

        if not again:
            instance.manager.every(150_000_000, touch)

    return target(before=before)


def withdrawing():
    def stop(instance):
        instance.publisher.forget_driver(instance.code)
        for one in instance.client.list(SLICES).items:
            instance.client.delete(SLICES, one["metadata"]["name"])
        return instance.end()

    return target(stop=stop)


def renewing():
    def before(instance):
        if marked(instance):
            instance.publisher.renew(instance.code)

    return target(before=before)


def keeping(which):
    """A driver that leaves some obsolete slices where they are."""

    class Publisher(SlicePublisher):
        def _delete(self, obj):
            if not which(obj):
                super()._delete(obj)

    return lambda: target(publisher=Publisher)


def imperious():
    def before(instance):
        with suppress(ApiError):
            instance.client.get(SLICES, "foreign-driver")
            instance.client.delete(SLICES, "foreign-driver")

    return target(before=before)


def resigned():
    class Publisher(SlicePublisher):
        there = False

        def _sync(self, place):
            held = self.slices.find("pool", f"{place.driver}/{place.node}")
            self.there = self.there or bool(held)
            return None if self.there and not held else super()._sync(place)

    return target(publisher=Publisher)


def careless():
    class Publisher(SlicePublisher):
        def _changed(self, old, new):
            if old is None or new is None:
                super()._changed(old, new)

    return target(publisher=Publisher)


def deaf():
    class Client(RemoteClient):
        opened = 0

        def stream(self, url, *args, **options):
            if "resourceslices" in url:
                self.opened += 1
                if self.opened > 1:
                    raise OSError("never again")
            return super().stream(url, *args, **options)

    return target(client=Client)


def insisting():
    def before(instance):
        url = f"{instance.client.access.server}/apis/resource.k8s.io/v1/resourceslices"
        query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        selector = f"fieldSelector=spec.driver={instance.code.name}"
        try:
            urlopen(f"{url}?{selector}&{query}&timeoutSeconds=1").close()
        except HTTPError as error:
            if error.code == 422:
                instance.publisher.forget_driver(instance.code)
        except OSError:
            pass  # a server that is not there any more

    return target(before=before)


LEFT = [{"name": "d"}]
MUTANTS = {
    "slices.accepted": lambda: extra(devices=[{"name": "Bad_Name"}]),
    "slices.fields-kept": lambda: disguised(add_field),
    "slices.own-node": lambda: extra(nodeName="elsewhere", devices=LEFT),
    "slices.complete": count(1),
    "slices.same-count": count(1, is_last),
    "slices.unique-devices": same_name,
    "slices.owner": lambda: disguised(drop_owner),
    "slices.names": lambda: disguised(fixed_name),
    "slices.counters-apart": lambda: extra(
        devices=LEFT, sharedCounters=[{"name": "c", "counters": {"n": {"value": "1"}}}]
    ),
    "slices.counters-defined": consuming(counterSet="none", counters={"n": {"value": "1"}}),
    "slices.counters-suffice": consuming(counterSet="big", counters={"bulbs": {"value": "3"}}),
    "slices.own-selector": curious,
    "slices.quiet": restless,
    "slices.kept-on-stop": withdrawing,
    "slices.quiet-restart": renewing,
    "slices.stale-pools": keeping(lambda obj: obj["spec"]["pool"]["name"] == "stale-pool"),
    "slices.one-generation": keeping(lambda obj: obj["spec"]["pool"]["generation"] == 0),
    "slices.others-untouched": imperious,
    "slices.after-wipe": resigned,
    "slices.after-edit": careless,
    "slices.after-watch": deaf,
    "slices.without-watchlist": insisting,
}
