"""Neutral values as objects of each generation, with a note for what is lost."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dralab.objects.metadata import namespace_of
from dralab.prototypes.conversion.expressions import (
    UntranslatableError,
    driver_word,
    literal,
    translated,
)
from dralab.prototypes.conversion.neutral import (
    NeutralClaim,
    NeutralClass,
    NeutralConfig,
    NeutralExpression,
    NeutralPod,
    NeutralPool,
    NeutralRequest,
    Note,
    Option,
    Rule,
    Scene,
)
from dralab.values.json_types import JsonDict
from dralab.values.patches import copied
from dralab.values.quantity import parse_any, render

EVOLUTION = "resource.k8s.io/v1alpha2"
V1 = "resource.k8s.io/v1"
# Names that the prototypes' data use for what has a standard name today.
STANDARD = {
    "pcie-root": "resource.kubernetes.io/pcieRoot",
    "pcie_root": "resource.kubernetes.io/pcieRoot",
}
COUNTERS_PER_SET = 32
DEVICES_WITH_COUNTERS = 64
DEVICES = 128
SETS_PER_SLICE = 8


class SceneWriter(ABC):
    """Shared by the writers: the scene, notes, and translated expressions."""

    target = ""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.notes = scene.notes
        self.types = scene.attribute_types()

    def objects(self) -> list[JsonDict]:
        """Return the scene's objects in the target's generation, in order."""
        found: list[JsonDict] = []
        for part in self.scene.parts:
            match part:
                case NeutralClass():
                    found += self.device_class(part)
                case NeutralClaim():
                    found += self.claim(part)
                case NeutralPool():
                    found += self.pool(part)
                case NeutralPod():
                    found += self.pod(part)
        return found + self.scene.others

    @abstractmethod
    def device_class(self, part: NeutralClass) -> list[JsonDict]:
        """Return a class."""

    @abstractmethod
    def claim(self, part: NeutralClaim) -> list[JsonDict]:
        """Return a claim or a template."""

    @abstractmethod
    def pool(self, part: NeutralPool) -> list[JsonDict]:
        """Return a pool."""

    @abstractmethod
    def pod(self, part: NeutralPod) -> list[JsonDict]:
        """Return a pod."""

    @property
    def alternatives(self) -> str:
        """The field of the input that lists the alternatives of a request."""
        return "oneOf" if self.scene.source == "k8srm" else "firstAvailable"

    @property
    def everything(self) -> str:
        """The input's phrase for all devices that match."""
        return "allocationMode All" if self.scene.source == "v1" else "all devices"

    def lost(self, where: str, field: str, message: str) -> None:
        """Record what is lost."""
        self.notes.append(Note("lost", where, field, message))

    def changed(self, where: str, field: str, message: str) -> None:
        """Record what is expressed differently."""
        self.notes.append(Note("changed", where, field, message))

    def expression(self, each: NeutralExpression, where: str, drivers: Sequence[str]) -> str | None:
        """Return an expression in the target's words, or None after a note."""
        try:
            text = translated(each, self.target, self.types, drivers)
        except UntranslatableError as error:
            self.lost(where, each.text, f"has no equivalent in {self.target} because of {error}")
            return None
        if text != each.text:
            self.changed(where, each.text, f"written {text}")
        return text

    def qualified(self, attribute: str, drivers: Sequence[str], where: str) -> str | None:
        """Return an attribute's full name, or None after a note where it is ambiguous."""
        if "/" in attribute:
            return attribute
        plain = attribute.replace("-", "_")
        if attribute in STANDARD:
            return STANDARD[attribute]
        named = list(dict.fromkeys(drivers))
        if len(named) == 1:
            return f"{named[0]}/{plain}"
        self.lost(
            where,
            attribute,
            f"a name without a domain on devices of {', '.join(named) or 'unknown drivers'}: "
            "publish it under one common domain, such as resource.kubernetes.io",
        )
        return None

    def drivers(self, option: Option) -> tuple[str, ...]:
        """Return the drivers whose devices an option may get."""
        return self.scene.drivers_of(option.class_name)

    def group(self, part: NeutralClass) -> str | None:
        """Return a group of classes as one expression: any of its leaves."""
        words = []
        for leaf in self.scene.leaves(part):
            texts = [
                self.expression(e, f"DeviceClass {leaf.name}", leaf.drivers)
                for e in leaf.expressions
            ]
            if None in texts:
                return None
            drivers = [f"{driver_word(self.target)} == {literal(d)}" for d in leaf.drivers]
            named = " || ".join(drivers)
            named = f"({named})" if len(drivers) > 1 else named
            words.append(" && ".join(filter(None, [named, *texts])))
        self.changed(
            f"DeviceClass {part.name}",
            "spec.selector",
            "a group of classes, written as an expression over today's leaves: classes that join "
            "it later will not count",
        )
        return " || ".join(dict.fromkeys(words)) or "false"

    def class_expressions(self, part: NeutralClass) -> list[str]:
        """Return a class as expressions: its drivers, then its own."""
        where = f"DeviceClass {part.name}"
        if part.is_group:
            text = self.group(part)
            return [text] if text else []
        found = [" || ".join(f"{driver_word(self.target)} == {literal(d)}" for d in part.drivers)]
        found += [self.expression(e, where, part.drivers) or "false" for e in part.expressions]
        return [text for text in found if text]

    def opaque(
        self,
        configs: Iterable[NeutralConfig],
        drivers: Sequence[str],
        where: str,
        driver_field: str,
    ) -> list[JsonDict]:
        """Return configs as opaque parameters; referenced objects are included as copies."""
        found = []
        for config in configs:
            parameters = config.parameters
            driver = config.driver or (drivers[0] if drivers else "")
            if not driver:
                self.lost(where, "configs", "opaque parameters need a driver, and none is known")
                continue
            if config.reference is not None:
                wanted = config.reference
                item = self._referred(wanted)
                if item is None:
                    self.lost(where, "configs", f"{wanted['kind']} {wanted['name']} is not there")
                    continue
                parameters = item
                self.changed(
                    where, "configs", f"{wanted['kind']} {wanted['name']} is included as a copy"
                )
            found.append({"opaque": {driver_field: driver, "parameters": dict(parameters or {})}})
        return found

    def _referred(self, wanted: Mapping[str, Any]) -> JsonDict | None:
        for item in self.scene.others:
            metadata = item.get("metadata") or {}
            if (item.get("apiVersion"), item.get("kind"), metadata.get("name")) == (
                wanted["apiVersion"],
                wanted["kind"],
                wanted["name"],
            ):
                return item
        return None


class ResourceClaimWriter(SceneWriter):
    """What dra-evolution and today's API share: claims, templates, and pods that name them."""

    version = ""
    pod_version = ""

    def made(self, kind: str, head: JsonDict, spec: JsonDict) -> JsonDict:
        """Return an object of the target's group."""
        return {"apiVersion": self.version, "kind": kind, "metadata": head, "spec": spec}

    def made_claim(self, part: NeutralClaim, spec: JsonDict) -> JsonDict:
        """Return a ResourceClaim or a ResourceClaimTemplate."""
        head = metadata(part.name.lower(), part.namespace)
        if not part.template:
            return self.made("ResourceClaim", head, spec)
        labelled = {"metadata": {"labels": dict(part.labels)}} if part.labels else {}
        return self.made("ResourceClaimTemplate", head, labelled | {"spec": spec})

    @abstractmethod
    def one_device(self, name: str, class_name: str) -> JsonDict:
        """Return the spec of a claim for one device of a class."""

    @abstractmethod
    def use(self, part: NeutralPod, entry: str, request: str) -> list[JsonDict]:
        """Return how a container names a claim, or one request of it."""

    def pod(self, part: NeutralPod) -> list[JsonDict]:
        """Return a Pod, and templates for devices that it asked for by class alone."""
        item = copied(part.item)
        item["apiVersion"] = self.pod_version
        spec = item["spec"]
        spec.pop("deviceClaims", None)
        templates: list[JsonDict] = []
        entries = []
        for entry in part.entries:
            source = entry.source.lower()
            if entry.how == "class":
                source = f"{item['metadata']['name']}-{entry.name}"
                claim = {"spec": self.one_device(label(entry.name), entry.source.lower())}
                head = metadata(source, namespace_of(item))
                templates.append(self.made("ResourceClaimTemplate", head, claim))
            field = "resourceClaimName" if entry.how == "claim" else "resourceClaimTemplateName"
            entries.append({"name": label(entry.name), field: source})
        spec["resourceClaims"] = entries
        for container in spec.get("containers") or ():
            container.pop("devices", None)
            uses = part.uses.get(container["name"]) or ()
            if claims := [each for use in uses for each in self.use(part, *use)]:
                container.setdefault("resources", {})["claims"] = claims
        return [*templates, item]


def metadata(name: str, namespace: str = "", **more: Any) -> JsonDict:
    """Return metadata without empty fields."""
    found = {"name": name} | ({"namespace": namespace} if namespace else {})
    return found | {key: dict(value) for key, value in more.items() if value}


def identifier(name: str) -> str:
    """Return an attribute's name with a C identifier; a domain stays."""
    domain, slash, last = name.rpartition("/")
    return f"{domain}{slash}{re.sub(r'[^A-Za-z0-9_]', '_', last)}"


def amount_text(text: object) -> str:
    """Return a quantity as a person would write it.

    >>> amount_text("17179869184"), amount_text("1000000000")
    ('16Gi', '1G')
    """
    number = parse_any(text)
    return render(number, "BinarySI" if number % 1024 == 0 else "DecimalSI")


def label(name: str) -> str:
    """Return a device's or request's name as a DNS label."""
    return re.sub(r"[^a-z0-9-]", "-", name.lower()).strip("-")[:63]


def each_device_name(requests: Sequence[NeutralRequest]) -> dict[str, list[str]]:
    """Return, for every request, the names of one-device requests in its place."""
    found = {}
    for request in requests:
        count = request.options[0].count if request.options else 1
        found[request.name] = (
            [label(request.name)]
            if count == 1
            else [f"{label(request.name)}-{n}" for n in range(count)]
        )
    return found


def rules_of(claim: NeutralClaim) -> list[Rule]:
    """Return a claim's rules, those of its requests' options included."""
    found = list(claim.rules)
    for request in claim.requests:
        for option in request.options:
            found += [Rule("match", name, (request.name,)) for name in option.match]
            found += [Rule("distinct", name, (request.name,)) for name in option.distinct]
    return list(dict.fromkeys(found))
