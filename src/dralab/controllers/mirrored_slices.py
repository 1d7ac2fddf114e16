"""EndpointSlices of hand-written Endpoints, for a Service without a selector.

Source: kube-controller-manager's endpointslicemirroring controller.
"""

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

from dralab.controllers.endpoint_slices import MANAGED_BY, MOST, SERVICE_NAME, SliceKeeper
from dralab.objects.metadata import (
    NamespacedName,
    annotations_of,
    is_deleting,
    key_of,
    labels_of,
    owner_reference,
)
from dralab.runtime.manager import Manager
from dralab.runtime.resources import ENDPOINT_SLICES, ENDPOINTS, SERVICES
from dralab.values.json_types import JsonDict

MIRRORING: Final = "endpointslicemirroring-controller.k8s.io"
SKIPPED: Final = "endpointslice.kubernetes.io/skip-mirror"
LEADER: Final = "control-plane.alpha.kubernetes.io/leader"
APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
MOST_OF_A_SUBSET: Final = 1000


class MirroredSlices(SliceKeeper):
    """Mirrors Endpoints that no controller manages into slices."""

    def __init__(self, manager: Manager) -> None:
        self.services = manager.cache(SERVICES)
        self.endpoints = manager.cache(ENDPOINTS)
        super().__init__(manager, mark=MIRRORING, queue="mirrored slices")
        self.services.subscribe_each(self._named)
        self.endpoints.subscribe_each(self._named)

    def _named(self, obj: JsonDict) -> None:
        self.queue.add(key_of(obj))

    def reconcile(self, key: NamespacedName) -> int | None:
        """Bring the slices of hand-written Endpoints up to date."""
        held = self.held(key)
        endpoints = self.endpoints.get(key)
        mirrored = endpoints is not None and self._is_mirrored(endpoints)
        wanted = list(_contents(endpoints)) if endpoints is not None and mirrored else []
        for content in wanted:
            same = next((item for item in held if _is(item, content)), None)
            if same is not None:
                held.remove(same)
            elif endpoints is not None:
                self._create(endpoints, content)
        for item in held:
            self.delete(item)
        return None

    def _is_mirrored(self, endpoints: JsonDict) -> bool:
        service = self.services.get(key_of(endpoints))
        return (
            service is not None
            and not service["spec"].get("selector")
            and not is_deleting(endpoints)
            and labels_of(endpoints).get(SKIPPED) != "true"
            and LEADER not in annotations_of(endpoints)
        )

    def _create(self, endpoints: JsonDict, content: JsonDict) -> None:
        key = key_of(endpoints)
        body: JsonDict = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "generateName": f"{key.name}-",
                "namespace": key.namespace,
                "labels": content["labels"],
                "annotations": content["annotations"],
                "ownerReferences": [owner_reference(endpoints, api_version="v1", kind="Endpoints")],
            },
            **{name: content[name] for name in ("addressType", "endpoints", "ports")},
        }
        self.slices.learn(self.client.create(ENDPOINT_SLICES, body, key.namespace))


def _contents(endpoints: JsonDict) -> Iterable[JsonDict]:
    """Yield what each slice holds: at most 100 endpoints of one family and one set of ports."""
    own = {
        **{name: value for name, value in labels_of(endpoints).items() if name != MANAGED_BY},
        SERVICE_NAME: key_of(endpoints).name,
        MANAGED_BY: MIRRORING,
    }
    notes = {name: value for name, value in annotations_of(endpoints).items() if name != APPLIED}
    for subset in endpoints.get("subsets") or ():
        ports = [
            {"name": port.get("name") or "", "protocol": port.get("protocol") or "TCP"}
            | {name: port[name] for name in ("port", "appProtocol") if name in port}
            for port in subset.get("ports") or ()
        ]
        families: dict[str, list[JsonDict]] = {}
        listed = [(item, True) for item in subset.get("addresses") or ()]
        listed += [(item, False) for item in subset.get("notReadyAddresses") or ()]
        for item, ready in listed[:MOST_OF_A_SUBSET]:
            family = f"IPv{ip_address(item['ip']).version}"
            families.setdefault(family, []).append(_endpoint(item, ready=ready))
        for family, found in sorted(families.items()):
            for start in range(0, len(found), MOST):
                yield {
                    "addressType": family,
                    "endpoints": found[start : start + MOST],
                    "ports": ports,
                    "labels": own,
                    "annotations": notes,
                }


def _endpoint(address: JsonDict, *, ready: bool) -> JsonDict:
    found: JsonDict = {"addresses": [address["ip"]], "conditions": {"ready": ready}}
    for name in ("hostname", "targetRef", "nodeName"):
        if address.get(name):
            found[name] = address[name]
    return found


def _is(item: JsonDict, content: JsonDict) -> bool:
    """Whether a slice has the desired contents."""
    return bool(
        item.get("addressType") == content["addressType"]
        and (item.get("endpoints") or []) == content["endpoints"]
        and (item.get("ports") or []) == content["ports"]
        and labels_of(item) == content["labels"]
        and annotations_of(item) == content["annotations"]
    )
