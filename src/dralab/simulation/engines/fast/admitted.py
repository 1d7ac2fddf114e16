"""The objects of a scenario as a server stores them: defaulted, admitted, or refused.

Pods that differ only in their names are one kind: the server sees the first of them.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from dralab.allocation.problem import AllocationFeatures
from dralab.api.releases import MIXED
from dralab.api.resource.features import off_in
from dralab.api.status import ApiError
from dralab.components.control_plane import CONTROLLERS, SCHEDULER
from dralab.components.simulated import SimulatedCluster
from dralab.kernel.clock import SECOND
from dralab.objects.claims import PodClaim
from dralab.objects.metadata import NamespacedName, labels_of, metadata_of
from dralab.runtime.client import Resource
from dralab.runtime.resources import NAMESPACES, PODS
from dralab.scenarios.errors import InputError
from dralab.scheduling.pods import DEFAULT_SCHEDULER, PodInfo, changed, pod_info
from dralab.scheduling.shares import Shares
from dralab.simulation.engines import objects
from dralab.simulation.engines.cluster.created_objects import CreatedObjects
from dralab.simulation.engines.cluster.submission import TaskObjects, gangs_of
from dralab.simulation.engines.cluster.tasks import ClusterTask
from dralab.simulation.engines.fast.inventory import GpusAre
from dralab.simulation.engines.objects import GPU
from dralab.simulation.lifecycle.model import Pod
from dralab.simulation.scenario.manifests import ARRIVES, RUNS, STARTS, Arrival
from dralab.simulation.scenario.scenario import Scenario
from dralab.simulation.workloads.openb import PodRequest
from dralab.values import labels
from dralab.values.json_types import JsonDict

OF_ONE_POD: Final = frozenset({ARRIVES, RUNS, STARTS})


@dataclass(frozen=True, slots=True)
class AdmittedKind:
    """Pods that differ only in name; `entries` are their claims' entries.

    `extended`: they request extended resources.
    """

    info: PodInfo
    entries: tuple[PodClaim, ...]
    extended: bool

    def pod(self, task: ClusterTask, now: int, made: Mapping[str, str]) -> PodInfo:
        """Return the pod of a task; `made` are the names of its claims, by entry."""
        first = self.info
        obj = first.obj
        if self.extended:
            # A claim may be made for its extended resources, which names it. In nothing else that
            # is asked of the objects do pods of a kind differ.
            metadata = {**obj["metadata"], "name": task.name, "uid": task.uid}
            obj = {**obj, "metadata": metadata}
        return changed(
            first,
            obj=obj,
            key=NamespacedName(first.key.namespace, task.name),
            uid=task.uid,
            created=now - now % SECOND,
            claims=tuple(
                [
                    PodClaim(*item[:3], made.get(item.entry), item.is_classic)
                    for item in first.claims
                ]
            ),
        )


class PodRefusedError(InputError):
    """The release that a scenario asks for does not take a pod."""


def sharing(info: PodInfo, request: PodRequest) -> PodInfo:
    """Return a pod that asks for shares of GPUs."""
    return replace(info, shares=Shares(request.gpus, request.milli, request.models))


def sharing_pod(name: str, request: PodRequest, memory: int) -> PodInfo:
    """Return a pod of plain amounts that asks for shares of GPUs, without a server."""
    plain = request._replace(gpus=0, milli=0, models="")
    info = pod_info(objects.pod(Pod(name=name, request=plain, memory=memory), DEFAULT_SCHEDULER))
    return sharing(info, request) if request.gpus else info


def _count_no_gpus(body: JsonDict) -> None:
    """Remove counted GPUs from a pod that requests shares instead."""
    for container in body["spec"].get("containers") or ():
        for amounts in (container.get("resources") or {}).values():
            if isinstance(amounts, dict):
                amounts.pop(GPU, None)


class AdmittedObjects:
    """The objects of a scenario as a server stores them.

    `gpus` are what pods ask for when they ask for GPUs: devices, parts of devices, or shares.
    """

    def __init__(self, scenario: Scenario, gpus: GpusAre = "parts") -> None:
        self.file = scenario.file
        self.gpus = gpus
        self.pods = scenario.pods()
        self.cluster = SimulatedCluster(
            seed=scenario.seed,
            version=scenario.version,
            features=scenario.features,
            without=(SCHEDULER, CONTROLLERS),
        )
        self.release = scenario.version
        self.created = CreatedObjects(self.cluster, counted=scenario.fleet.counted)
        self.gangs = gangs_of(self.pods)
        self.bodies = TaskObjects(self.cluster, self.gangs, parts=gpus == "parts")
        self._kinds: dict[Hashable, AdmittedKind] = {}
        self._texts: dict[int, bytes] = {}
        self._stored: dict[tuple[Resource, NamespacedName], JsonDict] = {}

    def features(self) -> AllocationFeatures | None:
        """Return what the release of the scenario has switched on; None: everything."""
        if self.release == MIXED:
            return None
        return AllocationFeatures.without(off_in(self.release, self.cluster.server.features))

    def create(self, body: Mapping[str, Any], where: str) -> JsonDict | None:
        """Store an object; return its stored form. InputError: the server refuses it.

        None: the release that the scenario asks for does.
        """
        self.bodies.namespace(str(metadata_of(body).get("namespace") or "default"))
        return self.created.create_written(body, self.file, where, self.pods)

    def stored(self, resource: Resource, key: NamespacedName) -> JsonDict | None:
        """Return an object; None if it does not exist. It is taken never to change."""
        found = self._stored.get((resource, key))
        if found is None:
            try:
                found = self.cluster.client.get(resource, key.name, key.namespace)
            except ApiError as error:
                if error.reason != "NotFound":
                    raise
                return None
            self._stored[resource, key] = found
        return found

    def change(self, arrival: Arrival) -> bool:
        """Change or delete an object of a recorded history; False if there is none."""
        self._stored.clear()
        try:
            return self.created.change(arrival)
        except ApiError as error:
            title = f"workload: {arrival.body['kind']} {metadata_of(arrival.body)['name']}"
            raise InputError(self.file, error.message, where=title) from None

    def running(self, pod: Pod, body: JsonDict) -> PodInfo:
        """Return a pod that runs at the beginning of a recorded history."""
        if self.gpus != "shares" or not pod.request.gpus:
            return pod_info(body, self._select_namespaces)
        copy: JsonDict = orjson.loads(orjson.dumps(body))
        _count_no_gpus(copy)
        return sharing(pod_info(copy, self._select_namespaces), pod.request)

    def kind_of(self, pod: Pod) -> AdmittedKind:
        """Return the kind of a pod. InputError, PodRefusedError: the server refuses such a pod."""
        key = self._key(pod)
        found = self._kinds.get(key)
        if found is None:
            found = self._kinds[key] = self._admit(pod)
        return found

    def _key(self, pod: Pod) -> Hashable:
        if pod.body is None:
            return pod.namespace, pod.request, pod.memory, pod.priority, pod.gang
        text = self._texts.get(id(pod.body))
        if text is None:
            metadata = metadata_of(pod.body)
            own = metadata.get("annotations") or {}
            kept = {name: value for name, value in own.items() if name not in OF_ONE_POD}
            shown = {**metadata, "name": "", "annotations": kept}
            text = orjson.dumps({**pod.body, "metadata": shown})
            if pod.owner:  # the pods of a Job share one object
                self._texts[id(pod.body)] = text
        return pod.namespace, pod.gang, pod.duration is None, text

    def _admit(self, pod: Pod) -> AdmittedKind:
        request, shared = pod.request, self.gpus == "shares"
        try:
            if shared:
                pod = replace(pod, request=request._replace(gpus=0, milli=0, models=""))
            body = self.bodies.pod(pod, pod.name, gated=False)
            if shared:
                _count_no_gpus(body)
            body = self.created.without_gates(body)
            made = self.cluster.client.create(PODS, body, pod.namespace)
        except ApiError as error:
            kind = InputError if self.release == MIXED else PodRefusedError
            raise kind(self.file, error.message, where=f"workload: Pod {pod.key}") from None
        info = pod_info(made, self._select_namespaces)
        if shared and request.gpus:
            info = sharing(info, request)
        return AdmittedKind(
            info,
            entries=tuple(item for item in info.claims if item.template),
            extended=any("/" in resource for resource in info.requests),
        )

    def _select_namespaces(self, selector: Any) -> list[str]:
        chosen = labels.from_mapping(selector)
        listed = self.cluster.client.list(NAMESPACES).items
        return [obj["metadata"]["name"] for obj in listed if chosen.accepts(labels_of(obj))]
