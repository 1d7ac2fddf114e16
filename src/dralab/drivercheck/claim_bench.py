"""Claims of the checks: created, and allocated to devices that the driver has published.

The bench is its own scheduler: a check says which devices a claim gets.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from dralab.api.status import ApiError
from dralab.contracts.plugin import ClaimRef
from dralab.drivercheck.check_node import NAMESPACE
from dralab.drivercheck.devices import (
    ClaimUnderTest,
    Published,
    counters_of,
    published,
    request_of,
    result_of,
    together,
)
from dralab.drivercheck.rules import NotApplicable
from dralab.drivercheck.sockets import PluginInfo
from dralab.drivercheck.targets import Places
from dralab.kernel.randomness import Randomness
from dralab.runtime.client import Client
from dralab.runtime.resources import CLAIMS, SLICES
from dralab.values.json_types import JsonDict, JsonObject

CLASS: Final = "dralab-check"  # of requests; drivers look at allocations alone
# Drivers whose slices the bench itself creates.
FOREIGN: Final = frozenset({"foreign.dralab.dev"})


class ClaimBench(ABC):
    """The claims of one bench, and the devices that they are allocated to."""

    client: Client
    places: Places

    def __init__(self, randomness: Randomness) -> None:
        self.randomness = randomness
        self._claims: list[ClaimUnderTest] = []
        self._number = 0

    @property
    @abstractmethod
    def plugin(self) -> PluginInfo:
        """What the driver said at registration."""

    def slices(self) -> list[JsonDict]:
        """Return the slices of the driver on this node."""
        # registration.name-of-slices checks that the names are equal.
        wanted = f"spec.nodeName={self.places.node}"
        found = list(self.client.list(SLICES, field_selector=wanted).items)
        own = [one for one in found if one["spec"]["driver"] == self.plugin.name]
        return own or [one for one in found if one["spec"]["driver"] not in FOREIGN]

    def devices(self) -> list[Published]:
        """Return the devices that the driver has published."""
        return published(self.slices())

    def free(self, count: int = 1) -> list[Published]:
        """Return devices that can be allocated together. NotApplicable: there are fewer."""
        slices = self.slices()
        found = together(published(slices), counters_of(slices))
        if len(found) < count:
            raise NotApplicable(f"it needs {count} devices, and the driver publishes {len(found)}")
        return found[:count]

    def claim(
        self,
        *devices: Published,
        name: str = "",
        namespace: str = NAMESPACE,
        allocated: bool = True,
        admin: bool = False,
        configs: Sequence[JsonObject] = (),
        more: Sequence[JsonObject] = (),
        alternative: str = "",
    ) -> ClaimUnderTest:
        """Create a claim with a request for each device, allocated to them.

        `configs` are entries of the allocation's config, `more` results of other drivers.
        `alternative` names the subrequest of which the devices are.
        """
        self._number += 1
        name = name or f"claim-{self._number}"
        requests: list[JsonDict] = []
        results: list[JsonDict] = []
        for index, device in enumerate(devices):
            requests.append(request_of(f"r{index}", CLASS, alternative, admin=admin))
            request = f"r{index}/{alternative}" if alternative else f"r{index}"
            results.append(self._result(request, device, admin=admin))
        results += [dict(each) for each in more]
        requests += [request_of(each["request"], CLASS) for each in more]
        if not requests:
            requests = [request_of("r0", CLASS)]
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"devices": {"requests": requests}},
        }
        stored = self.client.create(CLAIMS, body, namespace)
        if allocated:
            self._allocate(stored, results, configs)
        found = ClaimUnderTest(ClaimRef(namespace, name, stored["metadata"]["uid"]), tuple(results))
        self._claims.append(found)
        return found

    def allocate(self, claim: ClaimUnderTest, device: Published) -> None:
        """Allocate a device to a claim without an allocation."""
        stored = self.client.get(CLAIMS, claim.ref.name, claim.ref.namespace)
        self._allocate(stored, [self._result("r0", device, admin=False)], ())

    def _allocate(
        self, stored: JsonDict, results: Sequence[JsonDict], configs: Sequence[JsonObject]
    ) -> None:
        name = stored["metadata"]["name"]
        allocation = {"devices": {"results": list(results), "config": list(configs)}}
        user = {"resource": "pods", "name": f"pod-{name}"[:253], "uid": self.uuid("pods")}
        status = {"allocation": allocation, "reservedFor": [user]}
        self.client.update(CLAIMS, {**stored, "status": status}, subresource="status")

    def _result(self, request: str, device: Published, *, admin: bool) -> JsonDict:
        # The driver's name in its slices: registration.name-of-slices compares the two.
        driver = next(iter(self.slices()))["spec"]["driver"]
        share = self.uuid("shares") if device.shared and not admin else ""
        return result_of(request, driver, device, share=share, admin=admin)

    def uuid(self, stream: str) -> str:
        """Return a random UUID of a stream."""
        return self.randomness.uuid(stream)

    def forget_claim(self, claim: ClaimUnderTest) -> None:
        """Delete a claim's object, as its pod's end does."""
        with suppress(ApiError):
            self.client.delete(CLAIMS, claim.ref.name, claim.ref.namespace)

    def forget_claims(self) -> None:
        """Delete the claims that a check has left."""
        for claim in self._claims:
            self.forget_claim(claim)
        self._claims = []
