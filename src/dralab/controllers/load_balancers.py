"""Addresses for Services of type LoadBalancer, as a cloud's controller gives them.

Nothing listens there: balancing the connections themselves is left to others. Source:
k8s.io/cloud-provider `controllers/service`.
"""

from ipaddress import IPv4Network, ip_address
from typing import Final, Literal

from dralab.api.status import ignoring
from dralab.objects.metadata import NamespacedName, is_deleting, key_of, status_of
from dralab.runtime.client import amend, drop_finalizer
from dralab.runtime.manager import Manager
from dralab.runtime.resources import SERVICES
from dralab.values.json_types import JsonDict, JsonObject

FINALIZER: Final = "service.kubernetes.io/load-balancer-cleanup"
ACCOUNT: Final = "service-controller"


class LoadBalancers:
    """Gives each Service of type LoadBalancer an address of a network, the first that is free.

    Services with a class of their own are left to its controller. An address that a Service asks
    for (`spec.loadBalancerIP`) is given if it is free and of the network.
    """

    def __init__(self, manager: Manager, network: IPv4Network) -> None:
        self.client = manager.client
        self.network = network
        self.services = manager.cache(SERVICES)
        self.recorder = manager.recorder(ACCOUNT)
        self._taken: dict[str, NamespacedName] = {}
        self._of: dict[NamespacedName, str] = {}
        self._refused: dict[NamespacedName, str] = {}
        self.queue = manager.queue("load-balancers", self.reconcile)
        self.services.subscribe(self._service)

    def _service(self, old: JsonDict | None, new: JsonDict | None) -> None:
        service = new if new is not None else old
        if service is None:
            return
        key = key_of(service)
        concerns = new is not None and (
            _wants(new) or FINALIZER in (new["metadata"].get("finalizers") or ())
        )
        if new is None or not concerns:
            self._give_back(key)
        elif address := _address(new):
            self._take(key, address)
        elif old is not None and _address(old):
            self._give_back(key)
        if new is None or concerns:
            self.queue.add(key)

    def reconcile(self, key: NamespacedName) -> int | None:
        """Assign or release a service's address."""
        service = self.services.get(key)
        if service is None:
            self._refused.pop(key, None)
            return None
        if not _wants(service) or is_deleting(service):
            if FINALIZER in (service["metadata"].get("finalizers") or ()):
                self._end(key, service)
            else:
                self._give_back(key)  # one that was chosen and never written
            return None
        asked = service["spec"].get("loadBalancerIP") or ""
        now = _address(service)
        if now and asked in {"", now}:
            return None
        address, refusal = (asked, self._refusal(key, asked)) if asked else self._free(key)
        if refusal:
            if self._refused.get(key) != refusal:
                self._refused[key] = refusal
                told = f"Error syncing load balancer: failed to ensure load balancer: {refusal}"
                self._tell(service, "SyncLoadBalancerFailed", told, bad=True)
            return None
        self._tell(service, "EnsuringLoadBalancer", "Ensuring load balancer")
        self._take(key, address)

        def change(latest: JsonDict) -> bool:
            finalizers = latest["metadata"].setdefault("finalizers", [])
            if FINALIZER not in finalizers:
                finalizers.append(FINALIZER)
            held = latest.setdefault("status", {})
            held["loadBalancer"] = {"ingress": [{"ip": address, "ipMode": "VIP"}]}
            return True

        self.services.learn(amend(self.client, SERVICES, service, change, subresource="status"))
        self._tell(service, "EnsuredLoadBalancer", "Ensured load balancer")
        return None

    def _end(self, key: NamespacedName, service: JsonDict) -> None:
        self._tell(service, "DeletingLoadBalancer", "Deleting load balancer")

        def change(latest: JsonDict) -> bool:
            latest.setdefault("status", {})["loadBalancer"] = {}
            drop_finalizer(latest, FINALIZER)
            return True

        with ignoring("NotFound"):
            ended = amend(self.client, SERVICES, service, change, subresource="status")
            if not is_deleting(ended):
                self.services.learn(ended)
        self._give_back(key)
        self._tell(service, "DeletedLoadBalancer", "Deleted load balancer")

    # --- addresses

    def _take(self, key: NamespacedName, address: str) -> None:
        if self._of.get(key) != address:
            self._give_back(key)
            self._of[key] = address
            self._taken.setdefault(address, key)

    def _give_back(self, key: NamespacedName) -> None:
        address = self._of.pop(key, "")
        if self._taken.get(address) == key:
            del self._taken[address]
            # Those that found no address may have this one.
            for other in self._refused:
                self.queue.add(other)

    def _free(self, key: NamespacedName) -> tuple[str, str]:
        """Return a free address for a service, or an error."""
        for address in self.network.hosts():
            if self._taken.get(str(address), key) == key:
                return str(address), ""
        return "", f"all addresses of {self.network} are taken"

    def _refusal(self, key: NamespacedName, asked: str) -> str:
        try:
            known = ip_address(asked) in self.network
        except ValueError:
            return f'"{asked}" is not an IP address'
        if not known:
            return f"{asked} is not in {self.network}"
        holder = self._taken.get(asked, key)
        if holder != key:
            return f"{asked} belongs to service {holder.namespace}/{holder.name}"
        return ""

    def _tell(self, service: JsonDict, reason: str, message: str, *, bad: bool = False) -> None:
        type_: Literal["Normal", "Warning"] = "Warning" if bad else "Normal"
        self.recorder.event(service, "Service", reason, message, type=type_)


def _wants(service: JsonObject) -> bool:
    spec = service["spec"]
    return spec.get("type") == "LoadBalancer" and not spec.get("loadBalancerClass")


def _address(service: JsonObject) -> str:
    entries = (status_of(service).get("loadBalancer") or {}).get("ingress") or ()
    return str(entries[0].get("ip", "")) if entries else ""
