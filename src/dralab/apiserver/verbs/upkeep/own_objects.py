"""The objects that describe a server in its cluster.

The Service `kubernetes` with its endpoints, the range of service addresses and an IPAddress for
each address in use, the ConfigMaps for aggregated API servers and for tokens, the server's lease.
They are written when the server starts; the lease is renewed as long as it runs.

Sources: k8s.io/kubernetes `pkg/controlplane` (controller/kubernetesservice,
controller/clusterauthenticationtrust, controller/legacytokentracking, reconcilers),
`pkg/registry/core/service/ipallocator`; k8s.io/apiserver `pkg/reconcilers`.
"""

import base64
import hashlib
import ipaddress
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from types import MappingProxyType
from typing import Any, Final

from dralab.api.status import ApiError
from dralab.apiserver.storage import StorageUnavailable
from dralab.apiserver.verbs.patching import patch
from dralab.apiserver.verbs.server import Resources
from dralab.apiserver.verbs.state.context import key_of
from dralab.kernel.clock import SECOND
from dralab.kernel.times import rfc3339, rfc3339_micro
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

MANAGER: Final = "kube-apiserver"
NAME: Final = "kubernetes"
READY: Final = "Kubernetes default Service CIDR is ready"
LEASE_SECONDS: Final = 3600
# A real server renews every ten seconds; each renewal is a write that watchers of leases see.
RENEWAL: Final = 600 * SECOND
DAY: Final = len("2006-01-02")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnAddress:
    """Where the server is: `host` and `port` of its socket, the name of its machine.

    `network` is the range of service addresses (CIDR), `authentication` the data of the ConfigMap
    `extension-apiserver-authentication`.
    """

    host: str
    port: int
    machine: str
    network: str
    authentication: Mapping[str, str] = field(default_factory=dict)

    @property
    def service_address(self) -> str:
        """The address of the Service `kubernetes`: the first of the range."""
        return str(ipaddress.ip_network(self.network)[1])

    @property
    def endpoint(self) -> str:
        """The address for clients elsewhere; empty where there is none.

        Endpoints on the loopback are not valid, so a real server has none either.
        """
        try:
            found = ipaddress.ip_address(self.host)
        except ValueError:
            return ""
        return "" if found.is_loopback or found.is_unspecified else str(found)


class OwnObjects:
    """Writes the objects, and follows the services' addresses; `renew` keeps the lease.

    `also` are called with the first writing, in its batch.
    """

    def __init__(
        self, resources: Resources, address: OwnAddress, *, also: Sequence[Callable[[], None]] = ()
    ) -> None:
        self.resources = resources
        self.address = address
        self._renewed = 0
        self._published = False
        self._also = also
        digest = hashlib.sha256(address.machine.encode()).digest()[:16]
        name = base64.b32encode(digest).decode("ascii").rstrip("=").lower()
        self.identity = f"apiserver-{name}"

    def publish(self) -> None:
        """Write everything that is missing or out of date; later, where the disk is full."""
        self.resources.context.rules.observe("services", self._addressed, writes=True)
        self.renew()

    def renew(self) -> None:
        """Renew the lease if it is time. If the disk is full, try again the next time."""
        with suppress(StorageUnavailable):
            if not self._published:
                self._write_all()
                self._published = True
            self._write_lease()

    def _write_all(self) -> None:
        context = self.resources.context
        with context.store.lock, context.store.batch():
            self._put("networking.k8s.io", "servicecidrs", "", self._range())
            self._put("", "services", "default", self._service())
            if self.address.endpoint:
                self._put("", "endpoints", "default", self._endpoints())
                self._put("discovery.k8s.io", "endpointslices", "default", self._slice())
            self._put("", "configmaps", "kube-system", self._authentication())
            self._put("", "configmaps", "kube-system", self._tracking(), replace=False)
            for service in context.store.list("services").items:
                self._addressed(None, service.value)
            for publish in self._also:
                publish()

    def _write_lease(self) -> None:
        now = self.resources.context.clock.now()
        if self._renewed and now - self._renewed < RENEWAL:
            return
        self._put("coordination.k8s.io", "leases", "kube-system", self._lease(now))
        self._renewed = now

    def _put(
        self, group: str, plural: str, namespace: str, value: JsonDict, *, replace: bool = True
    ) -> None:
        """Create an object, or give it the content that it should have."""
        context = self.resources.context
        kind = self.resources.kinds.get(group, "v1", plural)
        if kind is None:
            return  # switched off
        name = value["metadata"]["name"]
        scope = context.own_write(MANAGER)
        status = value.pop("status", None)
        key = key_of(kind, namespace, name)
        if key in context.store.damaged(kind.hub):
            return
        try:
            found = context.store.get(key)
            if found is None:
                self.resources.create(kind, value, namespace, scope)
                if status is not None:
                    status = {"status": status}
                    patch(scope, kind, name, status, namespace=namespace, subresource="status")
            elif replace:
                patch(scope, kind, name, value, namespace=namespace)
        except ApiError as error:
            # Another server on the same store may be doing the same; and the address of the Service
            # may have been given to another one before.
            if error.reason not in {"AlreadyExists", "Conflict", "NotFound", "Invalid"}:
                raise

    def _addressed(self, before: JsonDict | None, after: JsonDict | None) -> None:
        """Create an IPAddress for each address of a service, and delete those it gave up."""
        old, new = _addresses(before), _addresses(after)
        metadata = (after or before or {}).get("metadata") or {}
        kind = self.resources.kinds.get("networking.k8s.io", "v1", "ipaddresses")
        if kind is None:
            return
        for address in old - new:
            try:
                self.resources.delete(kind, address, "")
            except ApiError:
                continue  # gone already
        for address in sorted(new):
            if self.resources.context.store.get(key_of(kind, "", address)) is None:
                self._put("networking.k8s.io", "ipaddresses", "", _ip_address(address, metadata))

    def _range(self) -> JsonDict:
        condition = {
            "type": "Ready",
            "status": "True",
            "reason": "",
            "message": READY,
            "lastTransitionTime": self.resources.context.now(),
        }
        return {
            "metadata": {"name": NAME},
            "spec": {"cidrs": [self.address.network]},
            "status": {"conditions": [condition]},
        }

    def _service(self) -> JsonDict:
        address = self.address.service_address
        port = {"name": "https", "protocol": "TCP", "port": 443, "targetPort": self.address.port}
        return {
            "metadata": {"name": NAME, "labels": {"component": "apiserver", "provider": NAME}},
            "spec": {
                "clusterIP": address,
                "clusterIPs": [address],
                "ports": [port],
                "sessionAffinity": "None",
                "type": "ClusterIP",
            },
        }

    def _endpoints(self) -> JsonDict:
        subset = {
            "addresses": [{"ip": self.address.endpoint}],
            "ports": [{"name": "https", "port": self.address.port, "protocol": "TCP"}],
        }
        labels = {"endpointslice.kubernetes.io/skip-mirror": "true"}
        return {"metadata": {"name": NAME, "labels": labels}, "subsets": [subset]}

    def _slice(self) -> JsonDict:
        version = ipaddress.ip_address(self.address.endpoint).version
        return {
            "metadata": {"name": NAME, "labels": {"kubernetes.io/service-name": NAME}},
            "addressType": f"IPv{version}",
            "endpoints": [{"addresses": [self.address.endpoint], "conditions": {"ready": True}}],
            "ports": [{"name": "https", "port": self.address.port, "protocol": "TCP"}],
        }

    def _authentication(self) -> JsonDict:
        name = "extension-apiserver-authentication"
        return {"metadata": {"name": name}, "data": dict(self.address.authentication)}

    def _tracking(self) -> JsonDict:
        name = "kube-apiserver-legacy-service-account-token-tracking"
        since = rfc3339(self.resources.context.clock.now())[:DAY]
        return {"metadata": {"name": name}, "data": {"since": since}}

    def _lease(self, now: int) -> JsonDict:
        labels = {
            "apiserver.kubernetes.io/identity": "kube-apiserver",
            "kubernetes.io/hostname": self.address.machine,
        }
        peer = f"{self.address.host}:{self.address.port}"
        return {
            "metadata": {
                "name": self.identity,
                "labels": labels,
                "annotations": {"kubernetes.io/peer-advertise-address": peer},
            },
            "spec": {
                "holderIdentity": f"{self.identity}_{self.address.port}",
                "leaseDurationSeconds": LEASE_SECONDS,
                "renewTime": rfc3339_micro(now),
            },
        }


def authentication_data(
    *,
    client_cas: str,
    proxy_cas: str = "",
    names: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> dict[str, str]:
    """Return the data of `extension-apiserver-authentication`: PEM texts, and lists by flag.

    >>> authentication_data(client_cas="", proxy_cas="PEM", names={"allowed-names": ["proxy"]})
    {'requestheader-client-ca-file': 'PEM', 'requestheader-allowed-names': '["proxy"]'}
    """
    found = {"client-ca-file": client_cas} if client_cas else {}
    if proxy_cas:
        found["requestheader-client-ca-file"] = proxy_cas
        for name, values in names.items():
            found[f"requestheader-{name}"] = json.dumps(list(values), separators=(",", ":"))
    return found


def _addresses(service: JsonDict | None) -> set[str]:
    given = (service or {}).get("spec") or {}
    return {address for address in given.get("clusterIPs") or () if address != "None"}


def _ip_address(address: str, service: Mapping[str, Any]) -> JsonDict:
    labels = {
        "ipaddress.kubernetes.io/ip-family": f"IPv{ipaddress.ip_address(address).version}",
        "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
    }
    parent = {"resource": "services", "namespace": service["namespace"], "name": service["name"]}
    return {"metadata": {"name": address, "labels": labels}, "spec": {"parentRef": parent}}
