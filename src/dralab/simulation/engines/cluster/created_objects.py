"""Objects of a scenario's fleet and workload manifests."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dralab.api.gated_fields import paths_of, uses, without
from dralab.api.releases import MIXED
from dralab.api.resource.features import off_in
from dralab.api.status import ApiError
from dralab.components.simulated import SimulatedCluster
from dralab.contracts.cdi import ContainerEdits
from dralab.drivers.driver import AllocatedClaim, AllocatedDevice, Driver
from dralab.objects.metadata import NamespacedName, metadata_of, spec_of
from dralab.runtime.client import Resource, amend, find
from dralab.runtime.resources import resource_of
from dralab.scenarios.errors import InputError
from dralab.simulation.engines.cluster.containers import annotation
from dralab.simulation.lifecycle.model import Pod
from dralab.simulation.scenario.fleet import GPU_RESOURCES
from dralab.simulation.scenario.manifests import RUNS, Arrival
from dralab.values.json_types import JsonDict

# Made before what may refer to them.
FIRST: Final = ("Namespace", "PriorityClass", "DeviceClass")


class ManifestDriver(Driver):
    """A driver whose slices come from manifests; it prepares all of their devices."""

    def __init__(self, node: str, name: str) -> None:
        super().__init__(node)
        self.name = name

    def prepare(self, claim: AllocatedClaim) -> Mapping[AllocatedDevice, ContainerEdits]:
        """Make every device ready."""
        return {result: self.edits(claim, result) for result in claim.results}


class CreatedObjects:
    """Creates objects as they were written, and knows the drivers that their slices need.

    GPUs of nodes that are `counted` stay numbers. `refused` says which objects the release that a
    scenario asks for does not take, and why; `dropped` are fields whose gates are off in it.
    """

    def __init__(self, cluster: SimulatedCluster, *, counted: bool = False) -> None:
        self.cluster = cluster
        self._counted = counted
        self.devices: dict[str, list[str]] = {}
        self._drivers: dict[str, set[str]] = {}
        self.refused: dict[str, str] = {}
        self.dropped: set[str] = set()
        server = cluster.server
        self._release = server.resources.kinds.release
        self._off = off_in(self._release, server.features)

    @staticmethod
    def ordered(objects: Sequence[JsonDict]) -> list[JsonDict]:
        """Return objects sorted so that references come first."""
        return sorted(objects, key=lambda obj: obj.get("kind") not in FIRST)

    def drivers(self, node: str) -> list[Driver]:
        """Return the drivers of the slices that a node may use."""
        names = self._drivers.get(node, set()) | self._drivers.get("", set())
        return [ManifestDriver(node, name) for name in sorted(names)]

    def create(self, given: Mapping[str, Any], pods: Sequence[Pod] = ()) -> JsonDict | None:
        """Create an object, and return it as it is stored. ApiError: the server refuses it.

        None: the release that the scenario asks for does. The pods of a Job get its run time.
        """
        try:
            return self._create(self.without_gates(dict(given)), pods)
        except ApiError as error:
            if self._release == MIXED or error.reason == "AlreadyExists":
                raise
            self.refused.setdefault(_title(given), error.message)
            return None

    def without_gates(self, body: JsonDict) -> JsonDict:
        """Return an object without the fields that the release drops, and note them."""
        if self._release == MIXED:
            return body
        kind = str(body.get("kind"))
        paths = paths_of(MIXED, str(body.get("apiVersion")), kind, self._off)
        self.dropped |= {f"{kind} {'.'.join(path)}" for path in paths if uses(body, path)}
        return without(body, paths)

    def knows(self, body: JsonDict) -> bool:
        """Whether the release has the kind of an object that is there already; if not, note it."""
        try:
            self._resource(body)
        except ApiError as error:
            if self._release == MIXED:
                raise
            self.refused.setdefault(_title(body), error.message)
            return False
        return True

    def notes(self) -> Iterator[str]:
        """Yield what the release of a scenario makes of its objects."""
        for title, why in self.refused.items():
            yield f"{self._release} refuses {title}: {why}"
        for field in sorted(self.dropped):
            yield f"{self._release} drops {field}: its feature gate is off"

    def _resource(self, body: Mapping[str, Any]) -> Resource:
        """Return the collection of an object, in the version that it is written in. ApiError."""
        kinds = self.cluster.server.resources.kinds
        kind = kinds.of_object_within(str(body.get("apiVersion")), str(body.get("kind")))
        if kind is None:
            return resource_of(kinds, body)
        return Resource(kind.group, kind.version, kind.plural, kind.namespaced)

    def _create(self, given: Mapping[str, Any], pods: Sequence[Pod]) -> JsonDict:
        body: JsonDict = copy.deepcopy(dict(given))
        kind = str(body.get("kind", ""))
        resource = self._resource(body)
        metadata = body.setdefault("metadata", {})
        metadata.pop("resourceVersion", None)
        metadata.pop("uid", None)
        namespace = (metadata.get("namespace") or "default") if resource.namespaced else ""
        if kind == "Node":
            self._node(body)
        elif kind == "Job":
            owner = f"Job {namespace}/{metadata.get('name')}"
            self._job(body, next((pod for pod in pods if pod.owner == owner), None))
        elif kind == "ResourceSlice":
            self.expect(body)
        return self.cluster.client.create(resource, body, namespace)

    def create_written(
        self, body: Mapping[str, Any], file: Path, where: str, pods: Sequence[Pod]
    ) -> JsonDict | None:
        """Create an object of a part of a scenario's file, as `create` does. InputError."""
        title = f"{where}: {body.get('kind')} {metadata_of(body).get('name')}"
        try:
            return self.create(body, pods)
        except ApiError as error:
            raise InputError(file, error.message, where=title) from None
        except InputError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            problem = f"has a field of the wrong kind: {error!r}"
            raise InputError(file, problem, where=title) from None

    def change(self, arrival: Arrival) -> bool:
        """Change an object to what it is then, or delete it; False if there is none. ApiError."""
        body, client = arrival.body, self.cluster.client
        metadata = metadata_of(body)
        if _title(body) in self.refused:
            return True
        resource = self._resource(body)
        name, namespace = metadata["name"], metadata.get("namespace", "")
        held = find(client, resource, name, namespace)
        if held is None:
            return arrival.gone
        if arrival.gone:
            client.delete(resource, name, namespace)
            return True

        def take_over(latest: JsonDict) -> bool:
            latest["metadata"]["labels"] = dict(metadata.get("labels") or {})
            latest |= {key: body[key] for key in body if key not in {"metadata", "status"}}
            return True

        def offer(latest: JsonDict) -> bool:
            latest["status"] = {**(latest.get("status") or {}), **body["status"]}
            return True

        held = amend(client, resource, held, take_over)
        if body.get("status"):
            amend(client, resource, held, offer, subresource="status")
        return True

    def _node(self, body: JsonDict) -> None:
        metadata, status = body["metadata"], body.setdefault("status", {})
        labels = metadata.setdefault("labels", {})
        for key, value in (
            ("kubernetes.io/hostname", metadata.get("name")),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", "amd64"),
        ):
            labels.setdefault(key, value)
        for part in ("capacity", "allocatable"):
            amounts = status.get(part) or {}
            if not self._counted:  # GPUs are devices here, not a number.
                status[part] = {k: v for k, v in amounts.items() if k not in GPU_RESOURCES}
        # A node reports itself that it is ready.
        status.pop("conditions", None)
        status.pop("nodeInfo", None)

    @staticmethod
    def _job(body: JsonDict, pod: Pod | None) -> None:
        template = body["spec"].setdefault("template", {})
        spec = template.setdefault("spec", {})
        # What a simulation need not know may be left out, as with pods.
        for container in spec.get("containers") or ():
            container.setdefault("image", "simulated")
        spec.setdefault("restartPolicy", "Never")
        if pod is None or pod.duration is None:
            return
        metadata = template.setdefault("metadata", {})
        metadata["annotations"] = {
            **(metadata.get("annotations") or {}), RUNS: annotation(pod.duration),
        }  # fmt: skip

    def expect(self, obj: Mapping[str, Any]) -> None:
        """Let the driver of a slice, that is there or will come, be ready on its node."""
        spec = spec_of(obj)
        node = str(spec.get("nodeName") or "")
        self._drivers.setdefault(node, set()).add(str(spec.get("driver")))
        if node:
            known = self.devices.setdefault(node, [])
            names = [str(device["name"]) for device in spec.get("devices") or ()]
            known.extend(name for name in names if name not in known)


def _title(body: Mapping[str, Any]) -> str:
    metadata = metadata_of(body)
    key = NamespacedName(metadata.get("namespace") or "", str(metadata.get("name")))
    return f"{body.get('kind')} {key}"
