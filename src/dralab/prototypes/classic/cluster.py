"""Classic DRA as an allocation problem, as far as the drivers' rules are known.

Named resources are given by the scheduler (structured parameters), devices of NodeAllocationStates
by the rules of the fake driver. Of any other driver only its controller knows the devices.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dralab.allocation import problem as core
from dralab.allocation.outcome import ClaimAllocation
from dralab.allocation.problem import DeviceId, InUse, NodeScope
from dralab.objects.claims import classic_pod_claims, consumer_of, consumers_of, uses_of
from dralab.objects.metadata import key_of, spec_of, status_of, uid_of
from dralab.prototypes.classic import fake
from dralab.prototypes.classic.kinds import API_VERSION, DRIVER
from dralab.prototypes.classic.reading import PARAMETERS, STATES
from dralab.prototypes.classic.selectors import NamedResourceSelector, attribute
from dralab.prototypes.classic.structured import (
    GROUP,
    MODEL,
    ClassicClaimsWait,
    claim_parameters,
    class_parameters,
    held_by,
)
from dralab.prototypes.findings import NormalizedDocument
from dralab.prototypes.k8srm.claim_reader import ConstraintReader
from dralab.prototypes.k8srm.expressions import K8srmExpressions
from dralab.prototypes.placement import PlacedDevice, PlacedPod, UnallocatableError
from dralab.prototypes.searching import ClaimInProblem, SearchedCluster
from dralab.scheduling.pods import PodInfo
from dralab.values.json_types import JsonDict, JsonObject
from dralab.values.labels import node_selector_accepts
from dralab.values.records import dataclass

REQUEST: Final = "devices"
READY: Final = "Ready"
# Devices of NodeAllocationStates are apart from the named resources of the same driver.
OF_STATES: Final = f"{DRIVER} NodeAllocationState"
NO_TERM: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class DriversOwn:
    """A claim whose devices only its driver's controller knows.

    `allowed` of `nodes` nodes are suitable for its class; `unsuitable` are those that the driver
    refused in the pod's PodSchedulingContext, None where it was not asked.
    """

    claim: str
    class_name: str
    driver: str
    parameters: str
    allowed: int
    nodes: int
    unsuitable: tuple[str, ...] | None

    def __str__(self) -> str:
        """Return it as lines."""
        asked = f"what {self.parameters} asks for" if self.parameters else "one device of it"
        lines = [
            f'claim {self.claim}: class "{self.class_name}" is of driver "{self.driver}", and only '
            f"its controller knows its devices and {asked}",
            f"  known: the class allows {self.allowed} of {self.nodes} nodes",
        ]
        if self.unsuitable is None:
            lines.append("  the driver was not asked: the pod has no PodSchedulingContext")
        elif self.unsuitable:
            lines.append(f"  the driver refuses: {', '.join(self.unsuitable)}")
        else:
            lines.append("  the driver refuses no node so far: see its log and the pod's events")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedClassicClaim(ClaimInProblem):
    """A claim of a pod, with its class."""

    class_: JsonDict

    @property
    def selectors(self) -> list[Mapping[str, Any]]:
        """The nodes that its class, or its allocation, leaves to a pod."""
        given = (self.allocation or {}).get("availableOnNodes")
        return [each for each in (given, self.class_.get("suitableNodes")) if each]


@dataclass(frozen=True, slots=True)
class OfDriver:
    """Devices of one driver: of its NodeAllocationStates, or its named resources."""

    driver: str
    named: bool

    @property
    def reads(self) -> frozenset[core.DevicePath]:
        """The driver alone."""
        return frozenset({("driver",)})

    @property
    def text(self) -> str:
        """What it asks for, in words."""
        return f"driver {self.driver}" + ("" if self.named else ", from a NodeAllocationState")

    def matches(self, device: core.Device) -> bool:
        """Return whether a device is one of them."""
        return device.driver == (self.driver if self.named else OF_STATES)


class ClassicCluster(SearchedCluster[AskedClassicClaim]):
    """The cluster of classic DRA objects; claims of pods are added as they are placed."""

    api_version = API_VERSION
    pool_kind = "NodeAllocationState that is Ready, and no ResourceSlice with namedResources"
    cluster_kinds = frozenset({"ResourceClass", "ResourceSlice", "DeviceClassParameters", "Node"})

    def __init__(
        self, objects: Iterable[JsonDict], refused: Iterable[NormalizedDocument] = ()
    ) -> None:
        super().__init__(objects, refused)
        self.expressions = K8srmExpressions()
        self.states = {
            key_of(item).name: item
            for item in self.objects_of_kind(STATES, "NodeAllocationState")
            if item.get("status") == READY
        }
        named = self._of("ResourceSlice")
        self.slices = (*map(_of_state, self.states.values()), *map(_of_slice, named))
        self.instances = {
            (item.get("nodeName") or "", item["driverName"], each["name"]): DeviceId(
                item["driverName"], item["metadata"]["name"], each["name"]
            )
            for item in named
            for each in (item.get(MODEL) or {}).get("instances") or ()
        }
        self.classes: dict[str, core.DeviceClass] = {}
        self.given: dict[DeviceId, tuple[str, ...]] = {}

    def apply(self, placed: PlacedPod) -> None:
        """Apply a placement."""
        super().apply(placed)
        namespace = key_of(placed.pod).namespace or "default"
        for each in placed.devices:
            device = DeviceId(each.driver, each.pool, each.device)
            self.given[device] = (f"{namespace}/{each.claim}",)

    def _info(self, pod: JsonDict) -> PodInfo:
        """Return a pod that may run only where its claims' classes and allocations allow."""
        try:
            asked = self._asked(pod) if classic_pod_claims(pod) else ()
        except UnallocatableError:
            return super()._info(pod)
        for selector in (each for claim in asked for each in claim.selectors):
            pod = _bound(pod, selector)
        return super()._info(pod)

    # --- what a pod asks

    def _asked(self, pod: JsonDict) -> list[AskedClassicClaim]:
        namespace = key_of(pod).namespace or "default"
        found = []
        for entry in classic_pod_claims(pod):
            item = self._claim(pod, entry.entry, entry.name, entry.template, namespace)
            name = f"{namespace}/{item['metadata']['name']}"
            spec, status = item["spec"], status_of(item)
            key = (API_VERSION, "ResourceClass", "", spec["resourceClassName"])
            class_ = self.objects.get(key)
            if class_ is None:
                raise UnallocatableError(f"claim {name}: {self.absent(key)}")
            users = [each for each in consumers_of(item) if each != consumer_of(pod)]
            if users and not (status.get("allocation") or {}).get("shareable"):
                user = f"{namespace}/{users[0]['name']}"
                raise UnallocatableError(f"claim {name} is not shareable and used by pod {user}")
            wanted = core.Claim(name=item["metadata"]["name"], namespace=namespace)
            if "allocation" not in status:
                wanted = self._wanted(pod, entry.entry, item, class_, name)
            found.append(
                AskedClassicClaim(entry=entry.entry, item=item, class_=class_, wanted=wanted)
            )
        return found

    def _claim(
        self, pod: JsonDict, entry: str, name: str | None, template: str, namespace: str
    ) -> JsonDict:
        if not template or name:
            return self.named("ResourceClaim", namespace, name or "")
        made = f"{pod['metadata']['name']}-{entry}"
        spec = self.named("ResourceClaimTemplate", namespace, template)["spec"]["spec"]
        item: JsonDict = {
            "apiVersion": API_VERSION,
            "kind": "ResourceClaim",
            "metadata": {"name": made, "namespace": namespace},
            "spec": spec,
        }
        return self.objects.get(self.key(item), item)

    def _wanted(
        self, pod: JsonDict, entry: str, item: JsonDict, class_: JsonDict, name: str
    ) -> core.Claim:
        if class_.get("structuredParameters"):
            try:
                requests = tuple(self._structured(item, class_))
            except ClassicClaimsWait as error:
                raise UnallocatableError(f"claim {name}: {error}") from error
        elif class_["driverName"] == DRIVER:
            try:
                requests = (self._of_fake_driver(item, class_),)
            except fake.DriverError as error:
                raise UnallocatableError(f"claim {name}: {error}") from error
        else:
            raise UnallocatableError(str(self._drivers_own(pod, entry, item, class_, name)))
        return core.Claim(
            name=item["metadata"]["name"],
            namespace=key_of(item).namespace or "default",
            uid=uid_of(item),
            requests=requests,
            limit=core.MAX_DEVICES_PER_CLAIM**2,
        )

    def _structured(self, item: JsonDict, class_: JsonDict) -> Iterator[core.Request]:
        reference = item["spec"].get("parametersRef") or {}
        if reference.get("apiGroup") == GROUP:
            self.named(reference["kind"], key_of(item).namespace or "default", reference["name"])
        asked = claim_parameters(item, class_, self._of("ResourceClaimParameters"))
        filters = class_parameters(class_, self._of("ResourceClassParameters"))
        title = _title(asked)
        several = sum(len(each.get("requests") or ()) for each in asked.get("driverRequests") or ())
        labels = iter([f"{REQUEST}[{n}]" for n in range(several)] if several > 1 else [REQUEST])
        for position, part in enumerate(asked.get("driverRequests") or ()):
            driver = part["driverName"]
            of_class = self._class(class_, driver, named=True)
            fine = [each for each in filters.get("filters") or () if each["driverName"] == driver]
            limits = tuple(NamedResourceSelector(each[MODEL]["selector"]) for each in fine[:1])
            self.classes[of_class.name] = replace(
                of_class, selectors=(*of_class.selectors, *limits)
            )
            for place, request in enumerate(part.get("requests") or ()):
                selector = request[MODEL]["selector"]
                path = f"{title} driverRequests[{position}].requests[{place}].{MODEL}.selector"
                written = {"": title, "selectors[0].cel.expression": path} if title else {}
                label = next(labels)
                yield core.Request(
                    name=label,
                    subrequests=(
                        core.SubRequest(
                            name=label,
                            class_name=of_class.name,
                            selectors=(NamedResourceSelector(selector),)
                            if selector != "true"
                            else (),
                            written=written,
                        ),
                    ),
                )

    def _of_fake_driver(self, item: JsonDict, class_: JsonDict) -> core.Request:
        namespace = key_of(item).namespace or "default"
        parameters, written = fake.DriverParameters(), dict[str, str]()
        if reference := item["spec"].get("parametersRef"):
            _check(reference, "ResourceClaim", "FakeClaimParameters")
            name = reference["name"]
            found = self.named("FakeClaimParameters", namespace, name, PARAMETERS)
            title = f"FakeClaimParameters {namespace}/{name}"
            parameters = fake.checked(found, title)
            written = {
                "": f"{title} spec",
                "count": f"{title} spec.count",
                "selectors[0].cel.expression": f"{title} spec.selector.model",
            }
        if reference := class_.get("parametersRef"):
            _check(reference, "ResourceClass", "DeviceClassParameters")
            chosen = self.named("DeviceClassParameters", "", reference["name"], PARAMETERS)
            of_class = self._class(class_, DRIVER, named=False)
            models = fake.DriverParameters(models=fake.models_of(chosen))
            limits = tuple(map(self._model, models.expressions()))
            self.classes[of_class.name] = replace(
                of_class, selectors=(*of_class.selectors, *limits)
            )
        else:
            of_class = self._class(class_, DRIVER, named=False)
        return core.Request(
            name=REQUEST,
            subrequests=(
                core.SubRequest(
                    name=REQUEST,
                    class_name=of_class.name,
                    selectors=tuple(map(self._model, parameters.expressions())),
                    count=parameters.count,
                    written=written,
                ),
            ),
        )

    def _model(self, text: str) -> ConstraintReader:
        expression = self.expressions.get(text)
        return ConstraintReader(text, expression.reads, expression)

    def _class(self, class_: JsonDict, driver: str, *, named: bool) -> core.DeviceClass:
        """Return a class's devices of one driver: its own, or another that a claim names."""
        name = class_["metadata"]["name"]
        name = name if driver == class_["driverName"] else f"{name} of {driver}"
        found = core.DeviceClass(name=name, selectors=(OfDriver(driver, named),))
        self.classes[name] = found
        return found

    def _drivers_own(
        self, pod: JsonDict, entry: str, item: JsonDict, class_: JsonDict, name: str
    ) -> DriversOwn:
        key = key_of(pod)
        context = self.objects.get(
            (API_VERSION, "PodSchedulingContext", key.namespace or "default", key.name)
        )
        told = (
            {each["name"]: each for each in status_of(context).get("resourceClaims") or ()}
            if context
            else {}
        )
        reference = item["spec"].get("parametersRef")
        nodes = {each["metadata"]["name"]: each for each in self.objects_of_kind("v1", "Node")}
        selector = class_.get("suitableNodes")
        allowed = [
            node
            for node, each in nodes.items()
            if not selector
            or node_selector_accepts(selector, each["metadata"].get("labels") or {}, node)
        ]
        return DriversOwn(
            claim=name,
            class_name=class_["metadata"]["name"],
            driver=class_["driverName"],
            parameters=f"{reference['kind']} {reference['name']}" if reference else "",
            allowed=len(allowed),
            nodes=len(nodes),
            unsuitable=tuple(told.get(entry, {}).get("unsuitableNodes") or ()) if context else None,
        )

    # --- the problem and its result

    def _in_use(self) -> InUse:
        held = dict(self.given)
        claims = self._of("ResourceClaim")
        names = {uid_of(item): "/".join(self.key(item)[2:]) for item in claims}
        for node, state in self.states.items():
            for uid, each in (spec_of(state).get("allocatedClaims") or {}).items():
                for device in (each.get("fake") or {}).get("devices") or ():
                    held[DeviceId(DRIVER, node, device["uuid"])] = (names.get(uid, uid),)
        for item in claims:
            holder = ("/".join(self.key(item)[2:]),)
            for node, driver, name in held_by(item):
                if (device := self.instances.get((node, driver, name))) is not None:
                    held[device] = holder
                if driver == DRIVER and node in self.states:
                    held[DeviceId(DRIVER, node, fake.device_of(name))] = holder
        return InUse(exclusive=frozenset(held), holders=held)

    def _write(
        self, claim: AskedClassicClaim, item: JsonDict, allocation: ClaimAllocation, node: str
    ) -> list[PlacedDevice]:
        here = {"key": "metadata.name", "operator": "In", "values": [node]}
        term = {"nodeSelectorTerms": [{"matchFields": [here]}]}
        item["status"]["allocation"] = {"availableOnNodes": term, "shareable": True}
        return [
            PlacedDevice(
                claim=claim.name,
                request=chosen.request,
                pool=chosen.device.pool,
                device=chosen.device.device,
                driver=chosen.device.driver,
            )
            for chosen in allocation.chosen
        ]

    def _containers(
        self,
        pod: JsonDict,
        asked: Sequence[AskedClassicClaim],
        claims: Sequence[JsonDict],  # noqa: ARG002 - they do not name devices
        devices: Sequence[PlacedDevice],
    ) -> dict[str, tuple[str, ...]]:
        names = {claim.entry: claim.name for claim in asked}
        return {
            container["name"]: tuple(
                str(device)
                for entry, _ in uses_of(container)
                for device in devices
                if device.claim == names.get(entry)
            )
            for container in pod["spec"].get("containers") or ()
        }


def _check(reference: Mapping[str, Any], of: str, kind: str) -> None:
    if why := fake.reference_problem(reference, of, kind):
        raise fake.DriverError(why)


def _title(parameters: JsonObject) -> str:
    """Return the object of a claim's parameters; empty for a claim that names none."""
    if "metadata" not in parameters:
        return ""
    key = key_of(parameters)
    return f"ResourceClaimParameters {key.namespace or 'default'}/{key.name}"


def _of_state(item: JsonDict) -> core.Slice:
    node = item["metadata"]["name"]
    fakes = [each["fake"] for each in spec_of(item).get("allocatableDevice") or ()]
    return core.Slice(
        name=node,
        driver=DRIVER,
        pool=node,
        node_scope=NodeScope(node=node),
        devices=tuple(
            core.Device(
                name=each["uuid"],
                driver=OF_STATES,
                attributes={"model": core.Attribute("string", (each["name"],))},
            )
            for each in fakes
        ),
    )


def _of_slice(item: JsonDict) -> core.Slice:
    name, node = item["metadata"]["name"], item.get("nodeName") or ""
    return core.Slice(
        name=name,
        driver=item["driverName"],
        # A node may have a NodeAllocationState of the same driver, too.
        pool=name,
        node_scope=NodeScope(node=node, everywhere=not node),
        devices=tuple(
            core.Device(
                name=each["name"],
                driver=item["driverName"],
                attributes={part["name"]: attribute(part) for part in each.get("attributes") or ()},
            )
            for each in (item.get(MODEL) or {}).get("instances") or ()
        ),
    )


def _bound(pod: JsonDict, selector: Mapping[str, Any]) -> JsonDict:
    """Return a pod whose required node affinity holds for a node selector, too."""
    spec = pod["spec"]
    affinity = spec.get("affinity") or {}
    of_nodes = affinity.get("nodeAffinity") or {}
    required = of_nodes.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = [
        {
            field: [*(first.get(field) or ()), *(second.get(field) or ())]
            for field in ("matchExpressions", "matchFields")
        }
        for first in required.get("nodeSelectorTerms") or (NO_TERM,)
        for second in selector.get("nodeSelectorTerms") or ()
    ]
    wanted = {
        **of_nodes,
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
    }
    return {**pod, "spec": {**spec, "affinity": {**affinity, "nodeAffinity": wanted}}}
