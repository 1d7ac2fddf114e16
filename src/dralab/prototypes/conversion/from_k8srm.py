"""Objects of k8srm as neutral values, read together: classes, types and claims need each other.

What a class adds to its claims (attributes to match, bounds, access) is written into the claims:
the other generations' classes do not have it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

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
from dralab.prototypes.conversion.writing import amount_text
from dralab.prototypes.k8srm import reading
from dralab.prototypes.k8srm.kinds import API_VERSION
from dralab.prototypes.k8srm.model import (
    ClaimSpec,
    ConfigRef,
    Detail,
    Instance,
    K8srmClass,
    PodEntry,
)
from dralab.values.json_types import JsonDict, JsonObject
from dralab.values.quantity import render


def read(items: Iterable[JsonDict]) -> Scene:
    """Return what normalized objects of k8srm mean; those of other APIs pass through."""
    scene, reader = Scene(source="k8srm"), _Reader(list(items))
    for item in reader.items:
        parts = reader.parts(item)
        if parts is None:
            scene.others.append(item)
        else:
            scene.parts += parts
    scene.parts = _templates_told_apart([*reader.types.values(), *scene.parts])
    scene.notes += reader.notes
    return scene


class _Reader:
    """Reads objects that belong together; `types` are the classes made for device types."""

    def __init__(self, items: Sequence[JsonDict]) -> None:
        self.items = items
        self.notes: list[Note] = []
        self.types: dict[str, NeutralClass] = {}
        self.classes = {
            item["metadata"]["name"]: reading.read_class(item)
            for item in self._of_kind("DeviceClass")
        }
        self.drivers = {
            item["metadata"]["name"]: tuple(item.get("deviceTypes") or ())
            for item in self._of_kind("DeviceDriver")
        }

    def _of_kind(self, kind: str) -> list[JsonDict]:
        return [
            item
            for item in self.items
            if (item.get("apiVersion"), item.get("kind")) == (API_VERSION, kind)
        ]

    def parts(self, item: JsonDict) -> Sequence[Part] | None:
        """Return what one object means; None for what is not of k8srm."""
        match (item.get("apiVersion"), item.get("kind")):
            case (_, "DeviceClass"):
                return [self._class(item)]
            case (_, "DeviceClaim"):
                return [self._claim(item)]
            case (_, "DevicePool"):
                return [_pool(item)]
            case (_, "DeviceDriver"):
                name = f"DeviceDriver {item['metadata']['name']}"
                self._note("changed", name, "", "left out: classes name their drivers")
                return []
            case (_, "Pod") if "deviceClaims" in item.get("spec", {}):
                return self._pod(item)
            case (version, kind) if version == API_VERSION:
                name = f"{kind} {item['metadata']['name']}"
                self._note("lost", name, "", f"left out: a {kind} has no counterpart")
                return []
            case _:
                return None

    def _note(self, level: str, where: str, field: str, message: str) -> None:
        self.notes.append(Note("lost" if level == "lost" else "changed", where, field, message))

    # --- classes

    def _class(self, item: JsonDict) -> NeutralClass:
        each = self.classes[item["metadata"]["name"]]
        drivers = self._drivers(each)
        text = each.constraints
        expressions = [NeutralExpression(text, "k8srm", drivers)] if text else []
        if each.selector is None and not drivers:
            where = f"DeviceClass {each.name}"
            message = f'no DeviceDriver lists "{each.device_type}": the class matches no device'
            self._note("changed", where, "spec.deviceType", message)
            expressions = [NeutralExpression("false", "k8srm")]
        return NeutralClass(
            name=each.name,
            labels=each.labels,
            drivers=drivers,
            group=item["spec"].get("selector"),
            expressions=tuple(expressions),
            configs=_configs(each.configs),
        )

    def _drivers(self, each: K8srmClass) -> tuple[str, ...]:
        if each.driver or not each.device_type:
            return (each.driver,) if each.driver else ()
        return tuple(name for name, types in self.drivers.items() if each.device_type in types)

    def _of_type(self, device_type: str) -> str:
        """Return the class that stands for a device type: the only one of it, or one made here."""
        found = [each for each in self.classes.values() if each.device_type == device_type]
        found = [each for each in found if not each.admin] or found
        if len(found) == 1:
            return found[0].name
        name = f"type-{device_type}"
        self.types[name] = NeutralClass(name=name, members=tuple(each.name for each in found))
        return name

    # --- claims

    def _claim(self, item: JsonDict) -> NeutralClaim:
        metadata = item["metadata"]
        namespace = metadata.get("namespace") or "default"
        spec = reading.read_claim_spec(item["spec"], namespace)
        return self._asked(spec, metadata["name"], namespace, metadata.get("labels") or {})

    def _asked(
        self, spec: ClaimSpec, name: str, namespace: str, labels: Mapping[str, str]
    ) -> NeutralClaim:
        where = f"claim {namespace}/{name}"
        rules = [Rule("match", attribute) for attribute in spec.match]
        rules += [Rule("distinct", attribute) for attribute in spec.distinct]
        return NeutralClaim(
            name=name,
            namespace=namespace,
            requests=tuple(
                request
                for instance in spec.instances
                for request in self._requests(instance, where)
            ),
            rules=tuple(rules),
            labels=labels,
        )

    def _requests(self, instance: Instance, where: str) -> Iterable[NeutralRequest]:
        name = instance.name
        alone = len(instance.all_of) == 1 and not instance.one_of
        for number, detail in enumerate(instance.all_of):
            option = self._option(detail, where)
            own = name if alone else f"{name}-{number}"
            yield NeutralRequest(name=own, options=(option,), part_of=name)
        if instance.one_of:
            options = tuple(self._option(detail, where) for detail in instance.one_of)
            own = f"{name}-one" if instance.all_of else name
            yield NeutralRequest(name=own, options=options, part_of=name)

    def _option(self, detail: Detail, where: str) -> Option:
        name = detail.class_name or (
            self._of_type(detail.device_type) if detail.device_type else ""
        )
        if not name:
            self._note(
                "lost", where, f"driver {detail.driver}", "a request without a class: add a class"
            )
        known = self.classes.get(name)
        admin = detail.admin or bool(known and known.admin)
        least = max(detail.minimum, known.minimum if known else 1)
        text = detail.constraints
        totals = {name: amount_text(amount) for name, amount in detail.totals.items()}
        return Option(
            class_name=name,
            expressions=(NeutralExpression(text, "k8srm"),) if text else (),
            count=least,
            most=detail.maximum,
            totals=totals,
            admin=admin,
            everything=detail.everything or (admin and not detail.counted),
            match=tuple(dict.fromkeys((*(known.match if known else ()), *detail.match))),
            distinct=detail.distinct,
            configs=_configs(detail.configs),
        )

    # --- pods

    def _pod(self, item: JsonDict) -> list[Part]:
        pod = reading.read_pod(item)
        made: list[Part] = []
        entries = []
        for entry in pod.entries:
            source = entry.source
            if entry.how == "embedded":
                source = f"{pod.name}-{entry.name}"
                spec = reading.read_claim_spec(entry.spec, pod.namespace)
                claim = self._asked(spec, source, pod.namespace, {})
                made.append(replace(claim, template=True, shareable=False))
            entries.append(_entry(entry, source))
        uses = {
            container: tuple(("devices", name) if pod.whole else (name, "") for name in names)
            for container, names in pod.containers.items()
        }
        return [*made, NeutralPod(item=item, entries=tuple(entries), uses=uses)]


def _entry(entry: PodEntry, source: str) -> NeutralPodClaim:
    name = entry.name or "devices"
    match entry.how:
        case "existing":
            return NeutralPodClaim(name=name, how="claim", source=source)
        case "class":
            return NeutralPodClaim(name=name, how="class", source=source)
        case _:
            return NeutralPodClaim(name=name, how="template", source=source)


def _configs(references: Iterable[ConfigRef]) -> tuple[NeutralConfig, ...]:
    return tuple(NeutralConfig(reference=_reference(each)) for each in references)


def _reference(config: ConfigRef) -> JsonObject:
    found = {"apiVersion": config.api_version, "kind": config.kind, "name": config.name}
    return found | ({"namespace": config.namespace} if config.namespace else {})


def _pool(item: JsonDict) -> NeutralPool:
    pool = reading.read_pool(item)
    return NeutralPool(
        name=pool.name,
        driver=pool.driver,
        node=pool.node,
        sets={"shared": {k: render(v) for k, v in pool.shared.items()}} if pool.shared else {},
        devices=tuple(
            NeutralDevice(
                name=device.name,
                attributes=device.attributes,
                consumes={("shared", k): render(v) for k, v in device.consumes.items()},
                provides={
                    k: render(v.amount, "BinarySI" if v.binary else "DecimalSI")
                    for k, v in device.provides.items()
                },
            )
            for device in pool.devices
        ),
    )


def _templates_told_apart(parts: Sequence[Part]) -> list[Part]:
    """Return parts with a k8srm claim that pods copy as a template, one they share as a claim."""
    entries = [entry for part in parts if isinstance(part, NeutralPod) for entry in part.entries]
    copied = {entry.source for entry in entries if entry.how == "template"}
    shared = {entry.source for entry in entries if entry.how == "claim"}
    found: list[Part] = []
    for part in parts:
        if isinstance(part, NeutralClaim) and part.name in copied:
            found.append(replace(part, template=True, shareable=False))
            if part.name not in shared:
                continue
        found.append(part)
    return found
