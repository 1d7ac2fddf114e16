"""Objects of each generation as neutral values."""

from collections.abc import Iterable, Sequence

from dralab.allocation.problem import Attribute
from dralab.objects.metadata import namespace_of, spec_of
from dralab.prototypes.conversion import from_classic, from_k8srm
from dralab.prototypes.conversion.expressions import drivers_in
from dralab.prototypes.conversion.neutral import (
    NeutralClaim,
    NeutralClass,
    NeutralConfig,
    NeutralDevice,
    NeutralExpression,
    NeutralPod,
    NeutralPodClaim,
    NeutralPool,
    NeutralRequest,
    Note,
    Option,
    Part,
    Rule,
    Scene,
)
from dralab.prototypes.evolution import cluster as evolution_world
from dralab.values.json_types import JsonDict, JsonObject


def title(item: JsonObject) -> str:
    """Return an object as messages call it."""
    return f"{item.get('kind')} {(item.get('metadata') or {}).get('name', '')}"


def read(items: Iterable[JsonDict], generation: str) -> Scene:
    """Return what the (normalized) objects of a generation mean; others pass through."""
    if generation == "k8srm":
        return from_k8srm.read(items)
    if generation == "classic":
        return from_classic.read(list(items))
    scene = Scene(source=generation)
    for item in items:
        part = READERS[generation](item, scene.notes)
        if part is None:
            scene.others.append(item)
        else:
            scene.parts.append(part)
    if generation == "v1":
        scene.parts = _pools_joined(scene.parts)
    return scene


# --- dra-evolution ------------------------------------------------------------------------------


def _evolution(item: JsonDict, _: list[Note]) -> Part | None:
    if item.get("apiVersion") != "resource.k8s.io/v1alpha2":
        return None
    match item.get("kind"):
        case "DeviceClass":
            return _class_of(item, _selectors(item), "evolution", item.get("config"))
        case "ResourceClaim":
            return _evolution_claim(item, item["spec"], template=False)
        case "ResourceClaimTemplate":
            return _evolution_claim(item, item["spec"]["spec"], template=True)
        case "ResourcePool":
            return _evolution_pool(item)
        case "Pod":
            return _pod_of(item, "requestName")
        case _:
            return None


def _selectors(item: JsonObject) -> list[str]:
    found = (each.get("deviceSelector") for each in item.get("requirements") or ())
    return [text for text in found if text]


def _class_of(
    item: JsonDict, texts: Sequence[str], dialect: str, configs: Iterable[JsonObject] | None
) -> NeutralClass:
    drivers: tuple[str, ...] = ()
    expressions = []
    for text in texts:
        named, rest = drivers_in(NeutralExpression(text, dialect))
        if named and not drivers:
            drivers = named
            text = rest  # noqa: PLW2901 - the part about the driver is said by `drivers`
        if text:
            expressions.append(NeutralExpression(text, dialect))
    return NeutralClass(
        name=item["metadata"]["name"],
        labels=item["metadata"].get("labels") or {},
        drivers=drivers,
        expressions=tuple(
            NeutralExpression(each.text, each.dialect, drivers) for each in expressions
        ),
        configs=_opaque(configs),
    )


def _opaque(configs: Iterable[JsonObject] | None) -> tuple[NeutralConfig, ...]:
    found = []
    for config in configs or ():
        opaque = config.get("opaque") or {}
        driver = opaque.get("driverName") or opaque.get("driver") or ""
        found.append(NeutralConfig(driver=driver, parameters=opaque.get("parameters") or {}))
    return tuple(found)


def _evolution_claim(item: JsonDict, spec: JsonObject, *, template: bool) -> NeutralClaim:
    requests = []
    for number, request in enumerate(spec.get("requests") or ()):
        option = Option(
            class_name=request.get("deviceClassName") or "",
            expressions=tuple(NeutralExpression(each, "evolution") for each in _selectors(request)),
            admin=bool(request.get("adminAccess")),
            configs=_opaque(request.get("config")),
        )
        requests.append(
            NeutralRequest(name=request.get("name") or f"request-{number}", options=(option,))
        )
    return NeutralClaim(
        name=item["metadata"]["name"],
        namespace=namespace_of(item),
        template=template,
        requests=tuple(requests),
        rules=tuple(
            Rule("match", c["matchAttribute"])
            for c in spec.get("constraints") or ()
            if "matchAttribute" in c
        ),
        configs=_opaque(spec.get("config")),
        shareable=bool(spec.get("shareable")),
        labels=(item["spec"].get("metadata") or {}).get("labels") or {} if template else {},
    )


def _evolution_pool(item: JsonDict) -> NeutralPool:
    spec = item["spec"]
    return NeutralPool(
        name=item["metadata"]["name"],
        driver=spec["driverName"],
        node=spec.get("nodeName") or "",
        sets=(
            {"shared": {c["name"]: str(c["capacity"]) for c in spec["sharedCapacity"]}}
            if spec.get("sharedCapacity")
            else {}
        ),
        devices=tuple(
            NeutralDevice(
                name=device["name"],
                attributes={
                    part["name"]: evolution_world.attribute(part)
                    for part in device.get("attributes") or ()
                },
                consumes={
                    ("shared", c["name"]): str(c["capacity"])
                    for c in device.get("sharedCapacityConsumed") or ()
                },
            )
            for device in spec.get("devices") or ()
        ),
    )


def _pod_of(item: JsonDict, request_field: str) -> NeutralPod | None:
    spec = spec_of(item)
    if not spec.get("resourceClaims"):
        return None
    entries = tuple(
        NeutralPodClaim(
            name=entry["name"],
            how="claim" if "resourceClaimName" in entry else "template",
            source=entry.get("resourceClaimName") or entry.get("resourceClaimTemplateName", ""),
        )
        for entry in spec["resourceClaims"]
    )
    uses = {
        container["name"]: tuple(
            (use["name"], use.get(request_field) or "")
            for use in (container.get("resources") or {}).get("claims") or ()
        )
        for container in spec.get("containers") or ()
    }
    return NeutralPod(item=item, entries=entries, uses=uses)


# --- resource.k8s.io/v1 -------------------------------------------------------------------------


def _v1(item: JsonDict, notes: list[Note]) -> Part | None:
    if (item.get("apiVersion"), item.get("kind")) == ("v1", "Pod"):
        return _pod_of(item, "request")
    if item.get("apiVersion") != "resource.k8s.io/v1":
        return None
    match item.get("kind"):
        case "DeviceClass":
            spec = spec_of(item)
            texts = [s["cel"]["expression"] for s in spec.get("selectors") or () if "cel" in s]
            if spec.get("extendedResourceName"):
                notes.append(
                    Note("lost", title(item), "spec.extendedResourceName", "older APIs have none")
                )
            return _class_of(item, texts, "v1", spec.get("config"))
        case "ResourceClaim":
            return _v1_claim(item, item["spec"], notes, template=False)
        case "ResourceClaimTemplate":
            return _v1_claim(item, item["spec"]["spec"], notes, template=True)
        case "ResourceSlice":
            return _v1_slice(item, notes)
        case _:
            return None


def _v1_claim(
    item: JsonDict, spec: JsonObject, notes: list[Note], *, template: bool
) -> NeutralClaim:
    devices = spec.get("devices") or {}
    requests = []
    for number, request in enumerate(devices.get("requests") or ()):
        where = f"spec.devices.requests[{number}]"
        parts = (
            [request["exactly"]] if "exactly" in request else request.get("firstAvailable") or []
        )
        options = tuple(_v1_option(part, title(item), where, notes) for part in parts)
        requests.append(NeutralRequest(name=request["name"], options=options))
    rules = []
    for constraint in devices.get("constraints") or ():
        for kind, field in (("match", "matchAttribute"), ("distinct", "distinctAttribute")):
            if field in constraint:
                names = tuple(constraint.get("requests") or ())
                rules.append(Rule(kind, constraint[field], names))  # type: ignore[arg-type]
    return NeutralClaim(
        name=item["metadata"]["name"],
        namespace=namespace_of(item),
        template=template,
        requests=tuple(requests),
        rules=tuple(rules),
        configs=_opaque(devices.get("config")),
        labels=(item["spec"].get("metadata") or {}).get("labels") or {} if template else {},
    )


def _v1_option(part: JsonObject, name: str, where: str, notes: list[Note]) -> Option:
    notes += [
        Note("lost", name, f"{where}.{field}", "older APIs have no equivalent")
        for field in ("tolerations", "capacity", "derivedAttributes")
        if part.get(field)
    ]
    texts = [s["cel"]["expression"] for s in part.get("selectors") or () if "cel" in s]
    return Option(
        class_name=part["deviceClassName"],
        expressions=tuple(NeutralExpression(text, "v1") for text in texts),
        count=int(part.get("count") or 1),
        everything=part.get("allocationMode") == "All",
        admin=bool(part.get("adminAccess")),
    )


LOST_OF_DEVICES = (
    "taints",
    "bindingConditions",
    "allowMultipleAllocations",
    "nodeAllocatableResources",
    "nodeAllocatableResourceMappings",
    "nodeSelector",
)


def _v1_slice(item: JsonDict, notes: list[Note]) -> NeutralPool:
    spec = item["spec"]
    devices = []
    for device in spec.get("devices") or ():
        notes += [
            Note("lost", title(item), f"devices[{device['name']}].{field}", "older APIs have none")
            for field in LOST_OF_DEVICES
            if device.get(field)
        ]
        attributes = {
            name: Attribute(kind, (value,))
            for name, typed in (device.get("attributes") or {}).items()
            for kind, value in typed.items()
        }
        devices.append(
            NeutralDevice(
                name=device["name"],
                attributes=attributes,
                consumes={
                    (drawn["counterSet"], counter): str(amount["value"])
                    for drawn in device.get("consumesCounters") or ()
                    for counter, amount in drawn["counters"].items()
                },
                provides={k: str(v["value"]) for k, v in (device.get("capacity") or {}).items()},
            )
        )
    if not spec.get("nodeName") and not spec.get("allNodes"):
        notes.append(
            Note("lost", title(item), "spec.nodeSelector", "read as accessible from every node")
        )
    return NeutralPool(
        name=spec["pool"]["name"],
        driver=spec["driver"],
        node=spec.get("nodeName") or "",
        sets={
            each["name"]: {k: str(v["value"]) for k, v in each["counters"].items()}
            for each in spec.get("sharedCounters") or ()
        },
        devices=tuple(devices),
    )


def _pools_joined(parts: Sequence[Part]) -> list[Part]:
    """Return parts with the slices of one pool made one."""
    found: list[Part] = []
    places: dict[tuple[str, str], int] = {}
    for part in parts:
        if not isinstance(part, NeutralPool):
            found.append(part)
            continue
        key = (part.driver, part.name)
        if key not in places:
            places[key] = len(found)
            found.append(part)
            continue
        before = found[places[key]]
        assert isinstance(before, NeutralPool)  # noqa: S101 - placed there above
        found[places[key]] = NeutralPool(
            name=before.name,
            driver=before.driver,
            node=before.node,
            sets={**before.sets, **part.sets},
            devices=before.devices + part.devices,
        )
    return found


READERS = {"evolution": _evolution, "v1": _v1}
