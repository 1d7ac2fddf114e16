"""Normalized documents as values of the model that the scheduler uses."""

from collections.abc import Iterable, Mapping
from typing import Any

from dralab.allocation.problem import Attribute
from dralab.objects.metadata import namespace_of, spec_of
from dralab.prototypes.k8srm.claim_forms import NormalizedClaimSpec, normalized_claim_spec
from dralab.prototypes.k8srm.model import (
    ClaimSpec,
    ConfigRef,
    Detail,
    Instance,
    K8srmClaim,
    K8srmClass,
    K8srmDevice,
    K8srmPod,
    K8srmPool,
    PodEntry,
    Provided,
)
from dralab.values import labels
from dralab.values.json_types import JsonObject
from dralab.values.quantity import form_of, parse_any, render


def read_class(item: JsonObject) -> K8srmClass:
    """Return a normalized DeviceClass."""
    spec = spec_of(item)
    definition = spec.get("definition") or {}
    selector = spec.get("selector")
    return K8srmClass(
        name=item["metadata"]["name"],
        labels=item["metadata"].get("labels") or {},
        selector=labels.from_mapping(selector) if selector is not None else None,
        driver=definition.get("driver") or "",
        device_type=spec.get("deviceType") or "",
        constraints=definition.get("constraints") or "",
        configs=_configs(definition, ""),
        minimum=int(spec.get("minDeviceCount") or 1),
        maximum=spec.get("maxDeviceCount"),
        match=tuple(spec.get("matchAttributes") or ()),
        admin=bool(spec.get("adminAccess")),
    )


def read_claim(item: JsonObject) -> K8srmClaim:
    """Return a normalized DeviceClaim."""
    metadata = item["metadata"]
    namespace = namespace_of(item)
    return K8srmClaim(
        name=metadata["name"],
        namespace=namespace,
        spec=read_claim_spec(item["spec"], namespace),
        status=item.get("status") or {},
    )


def read_claim_spec(spec: JsonObject, namespace: str) -> ClaimSpec:
    """Return a normalized claim spec; configs are looked for in the claim's namespace."""
    places = iter(spec.places if isinstance(spec, NormalizedClaimSpec) else ())
    return ClaimSpec(
        instances=tuple(
            Instance(
                name=instance["name"],
                all_of=tuple(
                    _detail(part, namespace, next(places, {}))
                    for part in instance.get("allOf") or ()
                ),
                one_of=tuple(
                    _detail(part, namespace, next(places, {}))
                    for part in instance.get("oneOf") or ()
                ),
            )
            for instance in spec.get("devices") or ()
        ),
        match=tuple(spec.get("matchAttributes") or ()),
        distinct=tuple(spec.get("distinctAttributes") or ()),
    )


def shorthand(name: str, class_name: str) -> dict[str, Any]:
    """Return the claim spec for which a pod's `{name, class}` stands."""
    return {"devices": [{"name": name, "allOf": [{"class": class_name}]}]}


def read_pool(item: JsonObject) -> K8srmPool:
    """Return a normalized DevicePool; a device's attributes win over the pool's."""
    spec = item["spec"]
    common = attributes(spec.get("attributes") or ())
    return K8srmPool(
        name=item["metadata"]["name"],
        driver=spec["driver"],
        node=spec.get("nodeName") or "",
        shared={
            part["name"]: parse_any(part["capacity"]) for part in spec.get("sharedResources") or ()
        },
        devices=tuple(
            K8srmDevice(
                name=device["name"],
                attributes=common | attributes(device.get("attributes") or ()),
                consumes={
                    name: parse_any(amount)
                    for name, amount in (device.get("sharedResourcesConsumed") or {}).items()
                },
                provides={
                    part["name"]: Provided(
                        parse_any(part["capacity"]),
                        parse_any(part.get("blockSize", 1)),
                        form_of(str(part["capacity"])) == "BinarySI",
                    )
                    for part in device.get("claimResourcesProvided") or ()
                },
            )
            for device in spec.get("devices") or ()
        ),
    )


def attributes(items: Iterable[JsonObject]) -> dict[str, Attribute]:
    """Return attributes by name; names have no domain in this generation."""
    found = {}
    for item in items:
        if "intValue" in item:
            found[item["name"]] = Attribute("int", (int(item["intValue"]),))
        elif "quantityValue" in item:
            text = render(parse_any(item["quantityValue"]))
            found[item["name"]] = Attribute("quantity", (text,))
        elif "semVerValue" in item:
            found[item["name"]] = Attribute("version", (str(item["semVerValue"]),))
        else:
            found[item["name"]] = Attribute("string", (str(item.get("stringValue", "")),))
    return found


def read_pod(item: JsonObject) -> K8srmPod:
    """Return a normalized Pod, of the last stage (a struct) or an earlier one (a list)."""
    metadata, spec = item["metadata"], item.get("spec") or {}
    claims = spec.get("deviceClaims") or {}
    whole = isinstance(claims, dict) and "devices" not in claims
    return K8srmPod(
        name=metadata["name"],
        namespace=metadata.get("namespace") or "default",
        node=spec.get("nodeName") or "",
        entries=tuple(_early_entries(claims) if isinstance(claims, list) else _entries(claims)),
        containers={
            container["name"]: tuple(
                device["name"] for device in container.get("devices") or () if "name" in device
            )
            for container in spec.get("containers") or ()
        },
        whole=whole,
    )


def _entries(claims: JsonObject) -> Iterable[PodEntry]:
    for entry in claims.get("devices") or ():
        yield PodEntry(name=entry["name"], how="class", source=entry["class"])
    if "claimName" in claims:
        yield PodEntry(name="", how="existing", source=claims["claimName"])
    if "template" in claims:
        template = claims["template"]
        metadata = {k: v for k, v in template.items() if k in {"labels", "annotations"}}
        metadata |= template.get("metadata") or {}
        yield PodEntry(name="", how="template", source=template["claimName"], metadata=metadata)


def _early_entries(claims: Iterable[JsonObject]) -> Iterable[PodEntry]:
    for index, entry in enumerate(claims):
        name = entry.get("name") or f"claim-{index}"
        if "claimName" in entry:
            yield PodEntry(name=name, how="existing", source=entry["claimName"])
        elif "claimTemplateName" in entry:
            yield PodEntry(name=name, how="template", source=entry["claimTemplateName"])
        else:
            embedded = entry.get("claim") or entry.get("template") or {}
            spec = normalized_claim_spec(dict(embedded), name, f"spec.deviceClaims[{index}]", [])
            yield PodEntry(name=name, how="embedded", spec=spec)


def _detail(part: JsonObject, namespace: str, written: Mapping[str, str]) -> Detail:
    requests = dict(part.get("requests") or {})
    counted = "devices" in requests
    minimum = int(parse_any(requests.pop("devices", 1)))
    return Detail(
        class_name=part.get("class") or "",
        device_type=part.get("deviceType") or "",
        driver=part.get("driver") or "",
        constraints=part.get("constraints") or "",
        admin=bool(part.get("adminAccess")),
        everything=bool(part.get("adminAccess")),
        minimum=minimum,
        counted=counted,
        maximum=part.get("maxDevices"),
        totals={name: parse_any(amount) for name, amount in requests.items()},
        match=tuple(part.get("matchAttributes") or ()),
        distinct=tuple(part.get("distinctAttributes") or ()),
        configs=_configs(part, namespace),
        written=written,
    )


def _configs(part: JsonObject, namespace: str) -> tuple[ConfigRef, ...]:
    return tuple(
        ConfigRef(c["apiVersion"], c["kind"], namespace or c.get("namespace") or "", c["name"])
        for c in part.get("configs") or ()
    )
