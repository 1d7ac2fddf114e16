"""Which prepared devices a container gets: for its CDI edits, its status, and monitoring agents.

Source: kubelet 1.36, `pkg/kubelet/cm/dra/manager.go`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from dralab.contracts.plugin import ClaimRef, PreparedDevice
from dralab.node.claim_forms import uses_of_container
from dralab.node.plugins import Plugins
from dralab.objects.claims import claims_by_entry, uses_of
from dralab.objects.metadata import key_of
from dralab.values.json_types import JsonDict, JsonObject
from dralab.values.records import dataclass


@dataclass(frozen=True, slots=True)
class PreparedClaim:
    """A claim that the node holds, with its devices by driver, as far as they are prepared."""

    ref: ClaimRef
    devices: Mapping[str, tuple[PreparedDevice, ...]]


class ContainerDevices:
    """Devices of containers; `find` returns a claim of the node by namespace and name."""

    def __init__(self, plugins: Plugins, find: Callable[[str, str], PreparedClaim | None]) -> None:
        self.plugins = plugins
        self.find = find
        self.reports_health = True  # the gate ResourceHealthStatus

    def cdi_ids(self, pod: JsonDict, container: JsonObject) -> list[str]:
        """Return the ids of the devices that a container lists, in its order, each once."""
        found: list[str] = []
        for device in self._listed(pod, container):
            found += [name for name in device.cdi_ids if name not in found]
        return found

    def health_of(self, pod: JsonDict, container: JsonObject) -> list[dict[str, Any]]:
        """Return `allocatedResourcesStatus` of a container; empty if it has no devices.

        A device whose driver does not tell its health, or not any more, is `Unknown`.
        """
        uses = uses_of(container) if self.reports_health else []
        if not uses:
            return []
        names, namespace = claims_by_entry(pod), key_of(pod).namespace
        found = []
        for entry, request in uses:
            held = self.find(namespace, names.get(entry, ""))
            resources: dict[str, dict[str, Any]] = {}
            for driver, devices in held.devices.items() if held is not None else ():
                for device in devices:
                    if not _is_for(device, request):
                        continue
                    resource = (
                        device.cdi_ids[0]
                        if device.cdi_ids
                        else f"{driver}/{device.pool}/{device.device}"
                    )
                    if resource in resources:
                        continue  # The first of several devices with one id counts.
                    health = self.plugins.health_of(driver, device.pool, device.device)
                    resources[resource] = {"resourceID": resource, "health": health.health}
                    if health.message:
                        resources[resource]["message"] = health.message
            if resources:
                name = f"claim:{entry}" + (f"/{request}" if request else "")
                found.append({"name": name, "resources": list(resources.values())})
        return found

    def by_claim(
        self, pod: JsonDict, container: JsonObject
    ) -> list[tuple[ClaimRef, list[tuple[str, PreparedDevice]]]]:
        """Return the claims that a container uses, each with all its drivers and devices."""
        namespace = key_of(pod).namespace
        found = []
        for name in dict.fromkeys(name for name, _ in uses_of_container(pod, container)):
            held = self.find(namespace, name)
            if held is not None:
                devices = sorted(held.devices.items())
                pairs = [(driver, device) for driver, each in devices for device in each]
                found.append((held.ref, pairs))
        return found

    def _listed(self, pod: JsonDict, container: JsonObject) -> list[PreparedDevice]:
        namespace = key_of(pod).namespace
        return [
            device
            for name, request in uses_of_container(pod, container)
            if (held := self.find(namespace, name)) is not None
            for driver in sorted(held.devices)
            for device in held.devices[driver]
            if _is_for(device, request)
        ]


def _is_for(device: PreparedDevice, request: str) -> bool:
    """Return whether a device serves a request, named with or without its alternative."""
    return not request or not device.requests or request.partition("/")[0] in device.requests
