"""Objects of classic DRA as neutral values; there is no way back.

A class names its driver and nothing else, parameters mean what the driver makes of them: those of
the fake driver are understood, others are copied as opaque configuration.
"""

from collections.abc import Iterable, Mapping, Sequence

from dralab.allocation.problem import Attribute
from dralab.objects.metadata import full_key, spec_of
from dralab.prototypes.classic.kinds import API_VERSION, DRIVER, IMMEDIATE, STATE_GROUP
from dralab.prototypes.classic.structured import GROUP
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
    Scene,
)
from dralab.values.json_types import JsonDict, JsonObject

REQUEST = "devices"


def read(items: Sequence[JsonDict]) -> Scene:
    """Return what objects of classic DRA mean; parameters go into the claims that name them."""
    scene = Scene(source="classic")
    parameters: dict[tuple[str, str], JsonDict] = {
        full_key(item): item for item in items if item.get("kind") == "FakeClaimParameters"
    }
    for item in items:
        version, kind = item.get("apiVersion"), item.get("kind")
        match kind:
            case "ResourceClass" if version == API_VERSION:
                scene.parts.append(_class(item, scene.notes))
            case "ResourceClaim" | "ResourceClaimTemplate" if version == API_VERSION:
                scene.parts.append(_claim(item, parameters, scene.notes))
            case "NodeAllocationState" if str(version).startswith(STATE_GROUP):
                scene.parts.append(_state(item))
            case "PodSchedulingContext" | "FakeClaimParameters" | "DeviceClassParameters":
                continue  # the first has no meaning today, the others are in what names them
            case "ResourceSlice" if version == API_VERSION:
                scene.notes.append(_left_out(item, "drivers publish theirs themselves today"))
            case "ResourceClaimParameters" | "ResourceClassParameters" if version == API_VERSION:
                if not item.get("generatedFrom"):
                    message = "requests and selectors are in claims and classes themselves today"
                    scene.notes.append(_left_out(item, message))
            case "Pod" if any("source" in e for e in item["spec"].get("resourceClaims") or ()):
                scene.parts.append(_pod(item))
            case _ if "template" in (item.get("spec") or {}):
                scene.others.append(_workload(item))
            case _:
                scene.others.append(item)
    return scene


def _left_out(item: JsonObject, why: str) -> Note:
    return Note("lost", f"{item['kind']} {item['metadata']['name']}", "", why)


def _class(item: JsonObject, notes: list[Note]) -> NeutralClass:
    name = item["metadata"]["name"]
    where = f"ResourceClass {name}"
    if item.get("suitableNodes"):
        message = "classes do not select nodes any more: use the pods' node affinity"
        notes.append(Note("lost", where, "suitableNodes", message))
    if item.get("parametersRef"):
        message = (
            "parameters in the driver's own format: write them into the class's config by hand"
        )
        notes.append(Note("lost", where, "parametersRef", message))
    driver = str(item.get("driverName") or "")
    return NeutralClass(name=name, drivers=(driver,) if driver else ())


def _claim(
    item: JsonObject,
    parameters: Mapping[tuple[str, str], JsonObject],
    notes: list[Note],
) -> NeutralClaim:
    template = item["kind"] == "ResourceClaimTemplate"
    spec = item["spec"]["spec"] if template else item["spec"]
    namespace, name = full_key(item)
    where = f"{item['kind']} {namespace}/{name}"
    class_name = spec["resourceClassName"]
    option = Option(class_name=class_name)
    configs: tuple[NeutralConfig, ...] = ()
    reference = spec.get("parametersRef")
    if reference is not None:
        found = parameters.get((namespace, reference["name"]))
        fake = (reference.get("apiGroup"), reference["kind"]) == (DRIVER, "FakeClaimParameters")
        if fake and found is not None:
            option, configs = _fake(found.get("spec") or {}, option)
        else:
            why = "belongs to another driver, and only that driver can read it"
            if fake:
                why = "is not in the input"
            elif reference.get("apiGroup") == GROUP:
                why = "has requests and selectors that a claim holds itself today: write them there"
            message = f"{reference['kind']} {reference['name']} {why}; one device is requested"
            notes.append(Note("lost", where, "parametersRef", message))
    if spec.get("allocationMode") == IMMEDIATE:
        message = "devices are always allocated when the first consumer is scheduled"
        notes.append(Note("lost", where, "allocationMode: Immediate", message))
    return NeutralClaim(
        name=name,
        namespace=namespace,
        template=template,
        requests=(NeutralRequest(name=REQUEST, options=(option,)),),
        configs=configs,
        labels=(item["spec"].get("metadata") or {}).get("labels") or {} if template else {},
    )


def _fake(spec: JsonObject, option: Option) -> tuple[Option, tuple[NeutralConfig, ...]]:
    model = (spec.get("selector") or {}).get("model")
    words = f"device.attributes['{DRIVER}'].model == '{model}'"
    expressions = (NeutralExpression(words, "v1", (DRIVER,)),) if model else ()
    found = Option(
        class_name=option.class_name, expressions=expressions, count=int(spec.get("count", 1))
    )
    if not spec.get("split"):
        return found, ()
    parameters = {
        "apiVersion": f"{DRIVER}/v1alpha1",
        "kind": "FakeClaimParameters",
        "spec": {"split": spec["split"]},
    }
    return found, (NeutralConfig(driver=DRIVER, parameters=parameters),)


def _state(item: JsonObject) -> NeutralPool:
    """Return a node's allocatable devices; what was allocated or prepared is not carried over."""
    node = item["metadata"]["name"]
    fakes = [d["fake"] for d in spec_of(item).get("allocatableDevice") or ()]
    return NeutralPool(
        name=node,
        driver=DRIVER,
        node=node,
        devices=tuple(
            NeutralDevice(
                name=fake["uuid"],
                attributes={
                    "uuid": Attribute("string", (fake["uuid"],)),
                    "model": Attribute("string", (fake["name"],)),
                },
            )
            for fake in fakes
        ),
    )


def _entries(claims: Iterable[JsonObject]) -> tuple[NeutralPodClaim, ...]:
    found = []
    for entry in claims:
        source = entry.get("source") or {}
        template = source.get("resourceClaimTemplateName")
        found.append(
            NeutralPodClaim(
                name=entry["name"],
                how="template" if template else "claim",
                source=template or source.get("resourceClaimName") or "",
            )
        )
    return tuple(found)


def _pod(item: JsonDict) -> NeutralPod:
    uses = {
        container["name"]: tuple(
            (use["name"], "") for use in (container.get("resources") or {}).get("claims") or ()
        )
        for container in item["spec"].get("containers") or ()
    }
    return NeutralPod(item=item, entries=_entries(item["spec"]["resourceClaims"]), uses=uses)


def _workload(item: JsonDict) -> JsonDict:
    """Return a workload whose template's entries have their sources one level higher."""
    template = item["spec"]["template"]
    spec = spec_of(template)
    claims = spec.get("resourceClaims")
    if not claims:
        return item
    flat = [
        {"name": entry["name"], **(entry.get("source") or {})} if "source" in entry else entry
        for entry in claims
    ]
    changed = {**template, "spec": {**spec, "resourceClaims": flat}}
    return {**item, "spec": {**item["spec"], "template": changed}}
