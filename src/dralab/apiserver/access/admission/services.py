"""Allocates addresses and node ports to Services, each from a range, without duplicates."""

import random
from collections.abc import Iterable
from ipaddress import IPv4Network, ip_address
from typing import Any, Final

from dralab.api import fields
from dralab.api.core.services import keep_addresses, service_address_errors
from dralab.api.status import ApiError
from dralab.apiserver.access.admission.chain import WRITES, Concerns, Review
from dralab.values.json_types import JsonDict

NODE_PORTS: Final = range(30000, 32768)
NETWORK: Final = "10.0.0.0/24"
TRIES: Final = 1000
NOT_CONFIGURED: Final = "not configured on this cluster"


class ServiceAddresses:
    """Remembers which service has which address; call `stored` for every stored service.

    Dry runs are answered with the address of the network itself, which is never assigned.
    """

    name = "ServiceAddresses"
    concerns: Final[Concerns] = {"services": WRITES}

    def __init__(self, chance: random.Random, network: str = NETWORK) -> None:
        self.network = IPv4Network(network)
        self.chance = chance
        self.addresses: dict[str, int] = {}
        self.ports: dict[int, int] = {}

    def reset(self, services: Iterable[JsonDict]) -> None:
        """Start again with the addresses of these services."""
        self.addresses.clear()
        self.ports.clear()
        for service in services:
            self.stored(None, service)

    def stored(self, before: JsonDict | None, after: JsonDict | None) -> None:
        """Record a change of a service: the addresses it has now and those it gave up."""
        for service, change in ((before, -1), (after, 1)):
            spec = (service or {}).get("spec") or {}
            for address in spec.get("clusterIPs") or ():
                _count(self.addresses, address, change)
            for port in spec.get("ports") or ():
                if number := port.get("nodePort"):
                    _count(self.ports, number, change)
            if number := spec.get("healthCheckNodePort"):
                _count(self.ports, number, change)

    def admit(self, review: Review) -> None:
        """Assign the missing addresses of a service; Invalid if it asks for one that is taken."""
        if review.kind.hub != "services" or review.value is None or review.subresource:
            return
        spec = review.value["spec"]
        kind = spec.get("type")
        if kind == "ExternalName":
            return
        # What is free depends on every service there is.
        review.scope.all_of("services", "")
        before = ((review.old or {}).get("spec") or {}) if review.old else {}
        if before.get("type") not in {None, "ExternalName"}:
            keep_addresses(spec, before)
        if errors := service_address_errors(spec):
            raise fields.invalid("Service", review.name, errors)
        self._check_stacks(review, spec)
        self._address(review, spec, before)
        self._families(spec)
        if kind in {"NodePort", "LoadBalancer"}:
            self._node_ports(review, spec, before)
        if kind == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local":
            self._health_port(review, spec, before)

    def _check_stacks(self, review: Review, spec: JsonDict) -> None:
        """Refuse what needs a second family of addresses, which this cluster does not have."""
        policy, path = spec.get("ipFamilyPolicy") or "SingleStack", "spec.ipFamilyPolicy"
        addresses, families = spec.get("clusterIPs") or (), spec.get("ipFamilies") or ()
        if spec.get("clusterIP") == "None" and not spec.get("selector"):
            return
        errors = []
        if policy == "SingleStack":
            why = "must be 'RequireDualStack' or 'PreferDualStack' when multiple {} are specified"
            errors = [
                fields.invalid_value(path, policy, why.format(what))
                for what, given in (("cluster IPs", addresses), ("IP families", families))
                if len(given) == 2
            ]
        errors += [
            fields.invalid_value(
                f"spec.clusterIPs[{index}]",
                list(addresses),
                "IPv6 is not configured on this cluster",
            )
            for index, address in enumerate(addresses)
            if ":" in address and index >= len(families)
        ]
        if errors:
            raise fields.invalid("Service", review.name, errors)
        why = "this cluster is not configured for dual-stack services"
        if policy == "RequireDualStack":
            errors = [fields.invalid_value(path, policy, why)]
        errors += [
            fields.invalid_value(f"spec.ipFamilies[{index}]", family, NOT_CONFIGURED)
            for index, family in enumerate(families)
            if family == "IPv6"
        ]
        if errors:
            raise fields.invalid("Service", review.name, errors)

    def _address(self, review: Review, spec: JsonDict, before: JsonDict) -> None:
        address = spec.get("clusterIP") or before.get("clusterIP") or ""
        if before.get("clusterIP") and before.get("type") != "ExternalName":
            return  # it stays: another one is refused later
        if address == "None":
            spec["clusterIP"], spec["clusterIPs"] = "None", ["None"]
            return
        if not address:
            address = self._free_address(review)
        elif address != before.get("clusterIP") and address in self.addresses:
            self._taken(
                review, "spec.clusterIPs", [address],
                f"failed to allocate IP {address}: provided IP is already allocated",
            )  # fmt: skip
        elif address != before.get("clusterIP") and not self._is_ours(address):
            self._taken(
                review, "spec.clusterIPs", [address],
                f"failed to allocate IP {address}: the provided network does not match the current "
                "range",
            )  # fmt: skip
        given = spec.get("clusterIPs") or ()
        spec["clusterIP"], spec["clusterIPs"] = address, [address, *given[1:]]

    def _is_ours(self, address: str) -> bool:
        """Whether an address is in the range; what is not an address is reported later."""
        try:
            return ip_address(address) in self.network
        except ValueError:
            return True

    def _free_address(self, review: Review) -> str:
        if review.options.dry_run:
            return str(self.network.network_address)
        size = self.network.num_addresses
        for _ in range(TRIES):
            address = str(self.network[self.chance.randrange(1, size - 1)])
            if address not in self.addresses:
                return address
        for host in self.network.hosts():
            if str(host) not in self.addresses:
                return str(host)
        raise _full("serviceIP")

    def _families(self, spec: JsonDict) -> None:
        if spec["clusterIP"] == "None" and not spec.get("selector"):
            # Headless without a selector: its endpoints are managed elsewhere, in any family.
            spec.setdefault("ipFamilies", ["IPv4", "IPv6"])
            spec.setdefault("ipFamilyPolicy", "RequireDualStack")
            return
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")

    def _node_ports(self, review: Review, spec: JsonDict, before: JsonDict) -> None:
        if (
            spec.get("type") == "LoadBalancer"
            and spec.get("allocateLoadBalancerNodePorts") is False
        ):
            return
        had = {port.get("nodePort") for port in before.get("ports") or ()}
        mine: set[int] = set()
        for index, port in enumerate(spec.get("ports") or ()):
            number = port.get("nodePort") or 0
            if not number:
                port["nodePort"] = number = self._free_port(review, mine)
            elif number not in had and number in self.ports:
                self._taken(
                    review,
                    f"spec.ports[{index}].nodePort",
                    number,
                    "provided port is already allocated",
                )
            elif number not in NODE_PORTS and number not in had and not review.options.dry_run:
                self._taken(
                    review,
                    f"spec.ports[{index}].nodePort",
                    number,
                    "provided port is not in the valid range. The range of valid ports is "
                    "30000-32767",
                )
            mine.add(number)

    def _health_port(self, review: Review, spec: JsonDict, before: JsonDict) -> None:
        """Assign the port at which a node says whether it has an endpoint of its own."""
        had = before.get("healthCheckNodePort") or 0
        mine = {port.get("nodePort") or 0 for port in spec.get("ports") or ()}
        number = spec.get("healthCheckNodePort") or had
        if number and number != had:
            why = ""
            if number in self.ports or number in mine:
                why = "provided port is already allocated"
            elif number not in NODE_PORTS:
                why = (
                    "provided port is not in the valid range. The range of valid ports is "
                    "30000-32767"
                )
            if why:
                text = f"failed to allocate requested HealthCheck NodePort {number}: {why}"
                raise ApiError("InternalError", f"Internal error occurred: {text}", code=500)
        spec["healthCheckNodePort"] = number or self._free_port(review, mine)

    def _free_port(self, review: Review, mine: set[int]) -> int:
        if review.options.dry_run:
            return NODE_PORTS.stop + 1
        for _ in range(TRIES):
            number = self.chance.choice(NODE_PORTS)
            if number not in self.ports and number not in mine:
                return number
        for number in NODE_PORTS:
            if number not in self.ports and number not in mine:
                return number
        raise _full("nodePort")

    def _taken(self, review: Review, field: str, value: Any, why: str) -> None:
        error = fields.invalid_value(field, value, why)
        raise fields.invalid("Service", review.name, [error])


def _full(what: str) -> ApiError:
    text = f"Internal error occurred: failed to allocate a {what}: range is full"
    return ApiError("InternalError", text, code=500)


def _count(counts: dict[Any, int], key: Any, change: int) -> None:
    left = counts.get(key, 0) + change
    if left > 0:
        counts[key] = left
    else:
        counts.pop(key, None)
