"""EndpointSlices: the addresses of a Service's pods.

Source: kube-controller-manager's endpointslice controller. Slices hold at most 100 endpoints; as
long as a slice has room, endpoints stay where they are.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from dralab.controllers.endpoint_times import CHANGED, ChangeTimes
from dralab.controllers.workloads import each
from dralab.kernel.clock import SECOND
from dralab.objects.metadata import (
    NamespacedName,
    annotations_of,
    is_deleting,
    key_of,
    labels_of,
    owner_reference,
    status_of,
    uid_of,
)
from dralab.objects.pods import is_finished, is_ready
from dralab.runtime.cache import Cache
from dralab.runtime.manager import Manager
from dralab.runtime.resources import ENDPOINT_SLICES, NODES, PODS, SERVICES
from dralab.values.json_types import JsonDict

MANAGER: Final = "endpointslice-controller.k8s.io"
MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
SERVICE_NAME: Final = "kubernetes.io/service-name"
HEADLESS: Final = "service.kubernetes.io/headless"
ZONE: Final = "topology.kubernetes.io/zone"
MOST: Final = 100
# Pods change by the thousand, and each look at a Service counts them all.
GATHER: Final = SECOND // 20

Ports = tuple[tuple[str, str, int], ...]


class SliceKeeper(ABC):
    """A controller of the slices with its label; `reconcile` gets the Service's key."""

    def __init__(self, manager: Manager, *, mark: str, queue: str) -> None:
        self.manager = manager
        self.client = manager.client
        self.slices = manager.cache(ENDPOINT_SLICES, label_selector=f"{MANAGED_BY}={mark}")
        self.queue = manager.queue(queue, self.reconcile)
        self.slices.subscribe_each(self._slice)

    def _slice(self, item: JsonDict) -> None:
        name = labels_of(item).get(SERVICE_NAME, "")
        self.queue.add(NamespacedName(key_of(item).namespace, name))

    @abstractmethod
    def reconcile(self, key: NamespacedName) -> int | None:
        """Bring the slices of a Service up to date."""

    def held(self, key: NamespacedName) -> list[JsonDict]:
        """Return the slices of a Service that are not being deleted."""
        return [
            item
            for item in self.slices.namespace(key.namespace)
            if labels_of(item).get(SERVICE_NAME) == key.name and not is_deleting(item)
        ]

    def delete(self, item: JsonDict) -> None:
        """Delete a slice."""
        key = key_of(item)
        options = {"preconditions": {"uid": uid_of(item)}}
        self.client.delete(ENDPOINT_SLICES, key.name, key.namespace, options=options)
        self.slices.learn_deletion(item, self.manager.now())


class EndpointSlices(SliceKeeper):
    """Keeps the slices of every Service with a selector."""

    def __init__(self, manager: Manager) -> None:
        self.services = manager.cache(SERVICES)
        self.pods = manager.cache(PODS)
        self.nodes = manager.cache(NODES)
        self.times = ChangeTimes()
        super().__init__(manager, mark=MANAGER, queue="endpointslices")
        self.services.subscribe(each(self.queue.add))
        self.pods.subscribe(self._pod)

    def _pod(self, old: JsonDict | None, new: JsonDict | None) -> None:
        for key in services_that_show(self.services, old, new):
            self.queue.add_after(key, GATHER)

    def reconcile(self, key: NamespacedName) -> int | None:
        """Bring a Service's slices up to date."""
        service = self.services.get(key)
        held = self.held(key)
        if service is None or is_deleting(service):
            self.times.forget(key)
            return None  # the slices go with their owner
        wanted = service["spec"].get("selector")
        if not wanted or service["spec"].get("type") == "ExternalName":
            return None
        by_ports: dict[Ports, dict[str, JsonDict]] = {}
        pods = self.pods.namespace(key.namespace)
        pods = [pod for pod in pods if wanted.items() <= labels_of(pod).items()]
        changed = self.times.changed(service, pods)
        for pod in pods:
            endpoint = self._endpoint(service, pod)
            if endpoint is not None:
                by_ports.setdefault(ports_of_pod(service, pod), {})[uid_of(pod)] = endpoint
        if not by_ports:
            by_ports[()] = {}
        for ports in sorted(by_ports):
            mine = [item for item in held if _ports_of(item) == ports]
            self._write(service, ports, by_ports[ports], mine, changed)
        for item in held:
            if _ports_of(item) not in by_ports:
                self.delete(item)
        return None

    def _write(
        self,
        service: JsonDict,
        ports: Ports,
        endpoints: dict[str, JsonDict],
        held: list[JsonDict],
        changed: dict[str, str],
    ) -> None:
        left = dict(endpoints)
        filled: list[tuple[JsonDict | None, list[JsonDict]]] = []
        for item in sorted(held, key=key_of):
            kept = []
            for old in item.get("endpoints") or ():
                found = left.pop((old.get("targetRef") or {}).get("uid", ""), None)
                if found is not None:
                    kept.append(found)
            filled.append((item, kept))
        new = [left[uid] for uid in sorted(left, key=lambda uid: left[uid]["targetRef"]["name"])]
        for _, kept in filled:
            room = MOST - len(kept)
            kept.extend(new[:room])
            new = new[room:]
        filled += [(None, new[start : start + MOST]) for start in range(0, len(new), MOST)]
        if not filled:
            filled = [(None, [])]
        used = any(kept for _, kept in filled)
        for number, (slice_, kept) in enumerate(filled):
            # One slice stays where there is no endpoint at all.
            if slice_ is not None and not kept and (used or number):
                self.delete(slice_)
            else:
                self._put(service, ports, kept, slice_, changed)

    def _put(
        self,
        service: JsonDict,
        ports: Ports,
        endpoints: list[JsonDict],
        held: JsonDict | None,
        changed: dict[str, str],
    ) -> None:
        key = key_of(service)
        own = {
            **labels_of(service),
            SERVICE_NAME: key.name,
            MANAGED_BY: MANAGER,
        }
        if service["spec"].get("clusterIP") == "None":
            own[HEADLESS] = ""
        listed = [{"name": name, "protocol": kind, "port": port} for name, kind, port in ports]
        content = {"addressType": "IPv4", "endpoints": endpoints, "ports": listed}
        if held is None:
            owner = owner_reference(service, api_version="v1", kind="Service")
            body: JsonDict = {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "generateName": f"{key.name}-",
                    "namespace": key.namespace,
                    "labels": own,
                    "annotations": changed,
                    "ownerReferences": [owner],
                },
                **content,
            }
            self.slices.learn(self.client.create(ENDPOINT_SLICES, body, key.namespace))
            return
        same = (held.get("endpoints") or []) == endpoints and (held.get("ports") or []) == listed
        if same and held["metadata"].get("labels") == own:
            return
        notes = {k: v for k, v in annotations_of(held).items() if k != CHANGED}
        metadata = {**held["metadata"], "labels": own, "annotations": {**notes, **changed}}
        body = {**held, **content, "metadata": metadata}
        self.slices.learn(self.client.update(ENDPOINT_SLICES, body))

    def _endpoint(self, service: JsonDict, pod: JsonDict) -> JsonDict | None:
        address = status_of(pod).get("podIP")
        if not address or is_finished(pod):
            return None
        ready, going = is_ready(pod), is_deleting(pod)
        any_time = bool(service["spec"].get("publishNotReadyAddresses"))
        found: JsonDict = {
            "addresses": [address],
            "conditions": {
                "ready": any_time or (ready and not going),
                "serving": ready,
                "terminating": going,
            },
            "targetRef": target_of(pod),
            **hostname_of(service, pod),
        }
        node = pod["spec"].get("nodeName")
        if node:
            found["nodeName"] = node
            at = self.nodes.get(NamespacedName("", node))
            zone = ((at or {}).get("metadata") or {}).get("labels", {}).get(ZONE)
            if zone:
                found["zone"] = zone
        return found


def services_that_show(
    services: Cache, old: JsonDict | None, new: JsonDict | None
) -> Iterator[NamespacedName]:
    """Yield the Services whose endpoints a change of a pod is seen in."""
    if old is not None and new is not None and _shown(old) == _shown(new):
        return
    for pod in (old, new):
        if pod is not None:
            for service in services.namespace(key_of(pod).namespace):
                if selects(service, pod):
                    yield key_of(service)


def selects(service: JsonDict, pod: JsonDict) -> bool:
    """Whether a Service has a selector, and a pod its labels."""
    wanted = service["spec"].get("selector")
    return bool(wanted) and wanted.items() <= labels_of(pod).items()


def target_of(pod: JsonDict) -> JsonDict:
    """Return the reference of an endpoint to its pod."""
    key = key_of(pod)
    return {"kind": "Pod", "namespace": key.namespace, "name": key.name, "uid": uid_of(pod)}


def hostname_of(service: JsonDict, pod: JsonDict) -> dict[str, str]:
    """Return the host name of an endpoint, where the pod asks for one within the Service."""
    hostname = pod["spec"].get("hostname")
    if hostname and pod["spec"].get("subdomain") == key_of(service).name:
        return {"hostname": hostname}
    return {}


def ports_of_pod(service: JsonDict, pod: JsonDict) -> Ports:
    """Return a Service's ports as this pod has them: named ones differ from pod to pod."""
    found = []
    for port in service["spec"].get("ports") or ():
        target = port.get("targetPort") or port["port"]
        protocol = port.get("protocol") or "TCP"
        number = target if isinstance(target, int) else _named(pod, target, protocol)
        if number is not None:
            found.append((port.get("name") or "", protocol, number))
    return tuple(found)


def _named(pod: JsonDict, name: str, protocol: str) -> int | None:
    """Return the number of a port that a container has, or a sidecar."""
    spec = pod["spec"]
    inits = spec.get("initContainers") or ()
    sidecars = [each for each in inits if each.get("restartPolicy") == "Always"]
    containers: Iterable[Mapping[str, Any]] = (*(spec.get("containers") or ()), *sidecars)
    for container in containers:
        for port in container.get("ports") or ():
            if port.get("name") == name and (port.get("protocol") or "TCP") == protocol:
                number: int = port["containerPort"]
                return number
    return None


def _ports_of(item: JsonDict) -> Ports:
    return tuple(
        (port.get("name") or "", port.get("protocol") or "TCP", port["port"])
        for port in item.get("ports") or ()
    )


def _shown(pod: JsonDict) -> tuple[Any, ...]:
    """Return the parts of a pod that an endpoint shows."""
    return (
        status_of(pod).get("podIP"),
        pod["metadata"].get("labels"),
        is_ready(pod),
        is_deleting(pod),
        is_finished(pod),
        pod["spec"].get("nodeName"),
    )
