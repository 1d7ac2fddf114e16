"""Endpoints, what there was before EndpointSlices: the addresses of a Service's pods.

Source: kube-controller-manager's endpoints controller. Clients that still read Endpoints (ingress
controllers, leader elections, `kubectl get endpoints`) find them here.
"""

from typing import Final

from dralab.api.status import ignoring
from dralab.controllers.endpoint_slices import (
    GATHER,
    HEADLESS,
    Ports,
    hostname_of,
    ports_of_pod,
    selects,
    services_that_show,
    target_of,
)
from dralab.controllers.endpoint_times import CHANGED, ChangeTimes
from dralab.objects.metadata import (
    NamespacedName,
    annotations_of,
    is_deleting,
    key_of,
    labels_of,
    status_of,
    uid_of,
)
from dralab.objects.pods import is_finished, is_ready
from dralab.runtime.manager import Manager
from dralab.runtime.resources import ENDPOINTS, PODS, SERVICES
from dralab.values.json_types import JsonDict

MANAGED_BY: Final = "endpoints.kubernetes.io/managed-by"
MANAGER: Final = "endpoint-controller"
OVER_CAPACITY: Final = "endpoints.kubernetes.io/over-capacity"
MOST: Final = 1000


class ServiceEndpoints:
    """Keeps the Endpoints of every Service with a selector."""

    def __init__(self, manager: Manager) -> None:
        self.client = manager.client
        self.services = manager.cache(SERVICES)
        self.pods = manager.cache(PODS)
        self.endpoints = manager.cache(ENDPOINTS)
        self.times = ChangeTimes()
        self.queue = manager.queue("endpoints", self.reconcile)
        self.services.subscribe_each(self._named)
        self.endpoints.subscribe_each(self._named)
        self.pods.subscribe(self._pod)

    def _named(self, obj: JsonDict) -> None:
        self.queue.add(key_of(obj))

    def _pod(self, old: JsonDict | None, new: JsonDict | None) -> None:
        for key in services_that_show(self.services, old, new):
            self.queue.add_after(key, GATHER)

    def reconcile(self, key: NamespacedName) -> int | None:
        """Update the Endpoints of a Service; delete them if it has none."""
        service, held = self.services.get(key), self.endpoints.get(key)
        if service is None:
            self.times.forget(key)
            if held is not None and labels_of(held).get(MANAGED_BY) == MANAGER:
                self._delete(held)
            return None
        spec = service["spec"]
        if is_deleting(service) or not spec.get("selector") or spec.get("type") == "ExternalName":
            return None
        pods = [pod for pod in self.pods.namespace(key.namespace) if selects(service, pod)]
        changed = self.times.changed(service, pods)
        subsets, over = _subsets(service, pods)
        own = {**labels_of(service), MANAGED_BY: MANAGER}
        if spec.get("clusterIP") == "None":
            own[HEADLESS] = ""
        notes = {OVER_CAPACITY: "truncated"} if over else {}
        body: JsonDict = {"apiVersion": "v1", "kind": "Endpoints", "subsets": subsets}
        if held is None:
            metadata = {"name": key.name, "namespace": key.namespace, "labels": own}
            body["metadata"] = {**metadata, "annotations": {**notes, **changed}}
            self.endpoints.learn(self.client.create(ENDPOINTS, body, key.namespace))
            return None
        kept = {
            name: value
            for name, value in annotations_of(held).items()
            if name not in {CHANGED, OVER_CAPACITY}
        }
        same = (held.get("subsets") or []) == subsets and labels_of(held) == own
        if same and over == (OVER_CAPACITY in annotations_of(held)):
            return None
        body["metadata"] = {
            **held["metadata"],
            "labels": own,
            "annotations": {**kept, **notes, **changed},
        }
        self.endpoints.learn(self.client.update(ENDPOINTS, body))
        return None

    def _delete(self, held: JsonDict) -> None:
        key = key_of(held)
        options = {"preconditions": {"uid": uid_of(held)}}
        with ignoring("NotFound"):
            self.client.delete(ENDPOINTS, key.name, key.namespace, options=options)


def _subsets(service: JsonDict, pods: list[JsonDict]) -> tuple[list[JsonDict], bool]:
    """Return the addresses by the ports they serve, and whether some were left out."""
    any_time = bool(service["spec"].get("publishNotReadyAddresses"))
    headless = service["spec"].get("clusterIP") == "None"
    by_ports: dict[Ports, tuple[list[JsonDict], list[JsonDict]]] = {}
    for pod in pods:
        address = status_of(pod).get("podIP")
        if not address or is_finished(pod) or (is_deleting(pod) and not any_time):
            continue
        ports = ports_of_pod(service, pod)
        if not ports and not (headless and not service["spec"].get("ports")):
            continue
        found = {"ip": address, **hostname_of(service, pod), "targetRef": target_of(pod)}
        if pod["spec"].get("nodeName"):
            found["nodeName"] = pod["spec"]["nodeName"]
        ready, waiting = by_ports.setdefault(ports, ([], []))
        (ready if any_time or is_ready(pod) else waiting).append(found)
    room, subsets, over = MOST, [], False
    for ports in sorted(by_ports):
        subset: JsonDict = {}
        names = ("addresses", "notReadyAddresses")
        for name, addresses in zip(names, by_ports[ports], strict=True):
            listed = sorted(addresses, key=lambda item: str(item["ip"]))[:room]
            over |= len(listed) < len(addresses)
            room -= len(listed)
            if listed:
                subset[name] = listed
        if not subset:
            continue
        if ports:
            subset["ports"] = [
                {**({"name": name} if name else {}), "port": port, "protocol": kind}
                for name, kind, port in ports
            ]
        subsets.append(subset)
    return subsets, over
