"""Classes, pools and claims of k8srm as one allocation problem, and its result as their status."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson

from dralab.allocation.outcome import ClaimAllocation
from dralab.allocation.problem import DeviceId, InUse
from dralab.objects.claims import has_device_claims, uses_claims
from dralab.objects.metadata import status_of
from dralab.prototypes.findings import NormalizedDocument
from dralab.prototypes.k8srm import claim_reader, pool_reader, reading
from dralab.prototypes.k8srm.claim_forms import MAX_CONFIGS
from dralab.prototypes.k8srm.claim_reader import AskedClaim
from dralab.prototypes.k8srm.expressions import K8srmExpressions
from dralab.prototypes.k8srm.kinds import API_VERSION
from dralab.prototypes.k8srm.model import ConfigRef, K8srmClaim, K8srmPool, PodEntry
from dralab.prototypes.k8srm.pod_claims import claim_name
from dralab.prototypes.placement import PlacedDevice, UnallocatableError
from dralab.prototypes.searching import SearchedCluster
from dralab.values.json_types import JsonDict
from dralab.values.patches import copied

MAX_CONFIG_BYTES: Final = 16 * 1024


class K8srmCluster(SearchedCluster[AskedClaim]):
    """The cluster of k8srm objects; claims of pods are added as they are placed."""

    api_version = API_VERSION
    pool_kind = "DevicePool"
    cluster_kinds = frozenset({"DeviceClass", "DeviceDriver", "DevicePool", "Node"})

    def __init__(
        self, objects: Iterable[JsonDict], refused: Iterable[NormalizedDocument] = ()
    ) -> None:
        super().__init__(objects, refused)
        self.expressions = K8srmExpressions()
        self.pools = [reading.read_pool(item) for item in self._of("DevicePool")]
        self.catalog = claim_reader.Classes(
            [reading.read_class(item) for item in self._of("DeviceClass")],
            {
                item["metadata"]["name"]: tuple(item.get("deviceTypes") or ())
                for item in self._of("DeviceDriver")
            },
            self.expressions,
            absent=lambda name: self.absent((API_VERSION, "DeviceClass", "", name)),
            most=_most_devices(self.pools),
        )
        self.classes = self.catalog.everything
        self.slices = tuple(pool_reader.slices(self.pools))

    def failures(self) -> Mapping[str, str]:
        """Return expressions that failed for some device, with the first error of each."""
        return self.expressions.failures

    def _to_place(self, pod: JsonDict) -> list[AskedClaim]:
        self.expressions.failures.clear()
        if uses_claims(pod) and not has_device_claims(pod):
            raise UnallocatableError("spec.resourceClaims are not claims of k8srm")
        return [replace(claim, configs=self._configs(claim)) for claim in self._asked(pod)]

    # --- what a pod asks

    def _asked(self, pod: JsonDict) -> list[AskedClaim]:
        read = reading.read_pod(pod)
        return [self._claim(entry, read.name, read.namespace) for entry in read.entries]

    def _claim(self, entry: PodEntry, pod: str, namespace: str) -> AskedClaim:
        if entry.how == "existing":
            item = self.named("DeviceClaim", namespace, entry.source)
            return self.catalog.asked(reading.read_claim(item), item)
        spec: Mapping[str, Any]
        if entry.how == "template":
            spec = self.named("DeviceClaim", namespace, entry.source)["spec"]
        elif entry.how == "class":
            spec = reading.shorthand(entry.name, entry.source)
        else:
            spec = entry.spec
        owner = self._owner(pod, namespace)
        item = {
            "apiVersion": API_VERSION,
            "kind": "DeviceClaim",
            "metadata": {
                "name": claim_name(entry, pod, namespace),
                "namespace": namespace,
                **{k: v for k, v in entry.metadata.items() if v},
                "ownerReferences": [owner],
            },
            "spec": spec,
        }
        item = self.objects.get(self.key(item)) or item
        return self.catalog.asked(reading.read_claim(item), item)

    def _owner(self, pod: str, namespace: str) -> JsonDict:
        item = self.objects.get(("v1", "Pod", namespace, pod), {})
        uid = (item.get("metadata") or {}).get("uid", "")
        return {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid, "controller": True}

    def _configs(self, asked: AskedClaim) -> tuple[list[JsonDict], list[JsonDict]]:
        """Return copies of the class's and the claim's configs, as they are now."""
        found = []
        for refs in (asked.class_configs, asked.claim_configs):
            if len(refs) > MAX_CONFIGS:
                raise UnallocatableError(
                    f"claim {asked.claim}: {len(refs)} configs are more than the {MAX_CONFIGS} "
                    "that a status can hold"
                )
            found.append([self._config(ref, asked.claim) for ref in refs])
        return found[0], found[1]

    def _config(self, ref: ConfigRef, claim: K8srmClaim) -> JsonDict:
        key = (ref.api_version, ref.kind, ref.namespace, ref.name)
        item = self.objects.get(key) or self.objects.get((*key[:2], "", ref.name))
        if item is None:
            raise UnallocatableError(f"claim {claim}: config {ref} does not exist")
        size = len(orjson.dumps(item))
        if size > MAX_CONFIG_BYTES:
            raise UnallocatableError(
                f"claim {claim}: config {ref} has {size} bytes, more than {MAX_CONFIG_BYTES}"
            )
        copy: JsonDict = copied(item)
        return copy

    # --- the problem and its result

    def _in_use(self) -> InUse:
        numbers = {pool.name: number for number, pool in enumerate(self.pools)}
        held: dict[DeviceId, tuple[str, ...]] = {}
        for item in self.holding_claims():
            holder = "/".join(self.key(item)[2:])
            for part in status_of(item).get("allocations") or ():
                name = part["devicePoolName"]
                if name in numbers and part.get("deviceName"):
                    device = pool_reader.device_id(numbers[name], name, part["deviceName"])
                    held[device] = (holder,)
        return InUse(exclusive=frozenset(held), holders=held)

    def holding_claims(self) -> Iterator[JsonDict]:
        """Yield the claims that hold their devices: not those with administrative access alone."""
        for item in self._of("DeviceClaim"):
            spec = reading.read_claim(item).spec
            details = [d for i in spec.instances for d in (*i.all_of, *i.one_of)]
            if not details or not all(self.catalog.is_admin(detail) for detail in details):
                yield item
        for report in self.refused_of_kind(API_VERSION, "DeviceClaim").values():
            if report.has_readable("status"):
                yield report.document

    def _nodes_of(self, claim: AskedClaim) -> set[str]:
        nodes = {pool.name: pool.node for pool in self.pools}
        parts = claim.claim.status.get("allocations") or ()
        return {nodes.get(part["devicePoolName"], "") for part in parts} - {""}

    def _write(
        self,
        claim: AskedClaim,
        item: JsonDict,
        allocation: ClaimAllocation,
        node: str,  # noqa: ARG002 - the pools say it
    ) -> Iterable[PlacedDevice]:
        status = item["status"]
        status["classConfigs"], status["claimConfigs"] = claim.configs
        status["allocations"] = pool_reader.allocated(self.pools, claim, allocation)
        return self._devices(claim, allocation)

    def _reserve(self, status: JsonDict, pod: JsonDict) -> None:
        names = status.setdefault("podNames", [])
        if pod["metadata"]["name"] not in names:
            names.append(pod["metadata"]["name"])

    def _devices(self, claim: AskedClaim, allocation: ClaimAllocation) -> Iterable[PlacedDevice]:
        for chosen in allocation.chosen:
            pool = self.pools[int(chosen.device.pool)]
            yield PlacedDevice(
                claim=claim.name,
                request=claim.instances[chosen.request],
                pool=pool.name,
                device=chosen.device.device,
                driver=pool.driver,
            )

    def _containers(
        self,
        pod: JsonDict,
        asked: Sequence[AskedClaim],
        claims: Sequence[JsonDict],
        devices: Sequence[PlacedDevice],
    ) -> dict[str, tuple[str, ...]]:
        """Return the devices that each container names: by entry, or by instance of its claim."""
        read = reading.read_pod(pod)
        by_name: dict[str, list[str]] = {}
        for entry, claim, item in zip(read.entries, asked, claims, strict=True):
            mine = [device for device in devices if device.claim == claim.name]
            if not mine:
                parts = item["status"]["allocations"]
                shown = [f"{p['devicePoolName']}/{p.get('deviceName', '')}" for p in parts]
                names = [i.name for i in claim.claim.spec.instances] if read.whole else []
                for name in names or [entry.name]:
                    by_name.setdefault(name, []).extend(shown)
            for device in mine:
                name = device.request if read.whole else entry.name
                by_name.setdefault(name, []).append(str(device))
        return {
            container: tuple(text for name in names for text in by_name.get(name, ()))
            for container, names in read.containers.items()
        }


def _most_devices(pools: Iterable[K8srmPool]) -> int:
    """Return how many devices the richest node can use."""
    by_node = Counter[str]()
    for pool in pools:
        by_node[pool.node] += len(pool.devices)
    remote = by_node.pop("", 0)
    return remote + max(by_node.values(), default=0)
