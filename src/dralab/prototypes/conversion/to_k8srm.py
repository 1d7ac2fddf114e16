"""Neutral values as k8srm's devmgmtproto.k8s.io/v1alpha1."""

from collections.abc import Sequence
from typing import Any

from dralab.allocation.problem import Attribute
from dralab.prototypes.conversion.expressions import driver_alternatives
from dralab.prototypes.conversion.neutral import (
    NeutralClaim,
    NeutralClass,
    NeutralConfig,
    NeutralDevice,
    NeutralExpression,
    NeutralPod,
    NeutralPool,
    NeutralRequest,
    Option,
)
from dralab.prototypes.conversion.writing import SceneWriter, amount_text, metadata
from dralab.prototypes.k8srm.kinds import API_VERSION as K8SRM
from dralab.values.json_types import JsonDict
from dralab.values.patches import copied


class ToK8srm(SceneWriter):
    """Writes k8srm's last stage."""

    target = "k8srm"

    def device_class(self, part: NeutralClass) -> list[JsonDict]:
        """Return a class for each driver, and a group over them where there are several."""
        where = f"DeviceClass {part.name}"
        if part.group is not None:
            return [_class(part.name, {"selector": dict(part.group)}, part.labels)]
        made, configs = self._configs(part.configs, part.name, "default")
        shared = {"configs": configs} if configs else {}
        leaves = self._leaves(part, where)
        if not leaves:
            self.lost(
                where, "", "left out: a class of k8srm names its driver, which cannot be inferred "
                           "from the expressions; add one"
            )  # fmt: skip
            return made
        if len(leaves) == 1:
            return [*made, _class(part.name, {"definition": leaves[0] | shared}, part.labels)]
        key = "dralab.dev/group"
        self.changed(where, "drivers", f"written as a group of {len(leaves)} classes")
        group = {"selector": {"matchLabels": {key: part.name}}}
        classes = [
            _class(f"{part.name}-{number}", {"definition": leaf | shared}, {key: part.name})
            for number, leaf in enumerate(leaves)
        ]
        return [*made, *classes, _class(part.name, group, part.labels)]

    def _leaves(self, part: NeutralClass, where: str) -> list[JsonDict]:
        """Return the definitions that a class stands for, one for each driver."""
        if not part.drivers and len(part.expressions) == 1:
            [only] = part.expressions
            choices = driver_alternatives(only)
            rests = [
                self.expression(NeutralExpression(rest, only.dialect), where, (driver,))
                if rest
                else ""
                for driver, rest in choices
            ]
            return [
                {"driver": driver} | ({"constraints": rest} if rest else {})
                for (driver, _), rest in zip(choices, rests, strict=True)
                if rest is not None
            ]
        texts = [self.expression(each, where, part.drivers) or "false" for each in part.expressions]
        text = " && ".join(f"({t})" if len(texts) > 1 else t for t in texts)
        constraints = {"constraints": text} if text else {}
        return [{"driver": driver, **constraints} for driver in part.drivers]

    def _configs(
        self, configs: Sequence[NeutralConfig], owner: str, namespace: str
    ) -> tuple[list[JsonDict], list[JsonDict]]:
        """Return objects for opaque parameters, and the references to them."""
        made, references = [], []
        for number, config in enumerate(configs):
            if config.reference is not None:
                references.append(dict(config.reference))
                continue
            parameters: dict[str, Any] = dict(config.parameters or {})
            name = (parameters.get("metadata") or {}).get("name") or f"{owner}-config-{number}"
            item = {
                "apiVersion": "v1alpha1.dralab.dev/v1",
                "kind": "OpaqueConfig",
                **parameters,
                "metadata": {"name": name, "namespace": namespace},
            }
            made.append(item)
            self.changed(owner, "config", f"opaque parameters, written as the object {name}")
            kind = {key: item[key] for key in ("apiVersion", "kind")}
            references.append({**kind, "namespace": namespace, "name": name})
        return made, references

    def claim(self, part: NeutralClaim) -> list[JsonDict]:
        """Return a DeviceClaim; k8srm's templates are claims that pods copy."""
        where = f"claim {part.namespace}/{part.name}"
        made: list[JsonDict] = []
        local: dict[str, list[tuple[str, str]]] = {}
        spec: JsonDict = {}
        for rule in part.rules:
            name = rule.attribute.rpartition("/")[2]
            field = "matchAttributes" if rule.kind == "match" else "distinctAttributes"
            covered = set(rule.requests) or {request.name for request in part.requests}
            if covered >= {request.name for request in part.requests}:
                spec.setdefault(field, []).append(name)
            elif len(covered) == 1:
                local.setdefault(covered.pop(), []).append((field, name))
            else:
                self.lost(where, f"{rule.kind} "
                                 f"{name}", "for some of the requests: k8srm supports it for one "
                                            "detail or for the whole claim")  # fmt: skip
        devices = []
        for request in part.requests:
            instance = self._instance(request, part, where, made)
            for field, name in local.get(request.name, ()):
                for detail in (*instance.get("allOf", ()), *instance.get("oneOf", ())):
                    detail.setdefault(field, []).append(name)
            devices.append(instance)
        if part.configs:
            objects, references = self._configs(part.configs, part.name, part.namespace)
            made += objects
            for instance in devices:
                for detail in (*instance.get("allOf", ()), *instance.get("oneOf", ())):
                    detail.setdefault("configs", []).extend(references)
        spec["devices"] = devices
        head = metadata(part.name, part.namespace, labels=part.labels)
        return [*made, _object("DeviceClaim", head, spec)]

    def _instance(
        self, request: NeutralRequest, part: NeutralClaim, where: str, made: list[JsonDict]
    ) -> JsonDict:
        """Return an instance; the objects that it refers to are added to `made`."""
        details = [self._detail(option, part, where, made) for option in request.options]
        return {"name": request.name, "allOf" if len(details) == 1 else "oneOf": details}

    def _detail(
        self, option: Option, part: NeutralClaim, where: str, made: list[JsonDict]
    ) -> JsonDict:
        drivers = self.drivers(option)
        found: JsonDict = {"class": option.class_name}
        texts = [t for e in option.expressions if (t := self.expression(e, where, drivers))]
        if texts:
            found["constraints"] = " && ".join(f"({t})" if len(texts) > 1 else t for t in texts)
        requests: JsonDict = dict(option.totals)
        if option.count != 1:
            requests["devices"] = option.count
        found |= {"requests": requests} if requests else {}
        found |= {"maxDevices": option.most} if option.most is not None else {}
        if option.admin:
            found["adminAccess"] = True
            if not option.everything:
                text = "k8srm gives all devices that match with admin access"
                self.lost(where, f"count {option.count}", text)
        elif option.everything:
            text = "k8srm gives all devices only with admin access: request as many as a node has"
            self.lost(where, self.everything, text)
        found |= {"matchAttributes": list(option.match)} if option.match else {}
        found |= {"distinctAttributes": list(option.distinct)} if option.distinct else {}
        objects, references = self._configs(option.configs, part.name, part.namespace)
        made += objects
        return found | ({"configs": references} if references else {})

    def pool(self, part: NeutralPool) -> list[JsonDict]:
        """Return a DevicePool."""
        several = len(part.sets) > 1
        shared = [
            {"name": f"{name}-{counter}" if several else counter, "capacity": amount}
            for name, totals in part.sets.items()
            for counter, amount in totals.items()
        ]
        spec: JsonDict = {"driver": part.driver}
        spec |= {"nodeName": part.node} if part.node else {}
        spec |= {"sharedResources": shared} if shared else {}
        spec["devices"] = [_device(device, several=several) for device in part.devices]
        return [_object("DevicePool", {"name": part.name}, spec)]

    def pod(self, part: NeutralPod) -> list[JsonDict]:
        """Return a core/v1 Pod with deviceClaims; several claims become entries of a list."""
        item = copied(part.item)
        item["apiVersion"] = "v1"
        spec = item["spec"]
        spec.pop("resourceClaims", None)
        whole = len(part.entries) == 1 and part.entries[0].how != "class"
        if whole:
            [entry] = part.entries
            spec["deviceClaims"] = (
                {"claimName": entry.source}
                if entry.how == "claim"
                else {"template": {"claimName": entry.source}}
            )
        else:
            fields = {"claim": "claimName", "template": "claimTemplateName"}
            spec["deviceClaims"] = [
                {"name": entry.name, fields.get(entry.how, "claimName"): entry.source}
                for entry in part.entries
            ]
        for container in spec.get("containers") or ():
            (container.get("resources") or {}).pop("claims", None)
            uses = part.uses.get(container["name"]) or ()
            names = [n for e, r in uses for n in self._seen(part, e, r, whole=whole)]
            if names:
                container["devices"] = [{"name": name} for name in dict.fromkeys(names)]
        return [item]

    def _seen(self, part: NeutralPod, entry: str, request: str, *, whole: bool) -> list[str]:
        if not whole:
            if request:
                self.lost(
                    f"Pod {part.item['metadata']['name']}",
                    f"request {request}",
                    "one request of several claims: in k8srm a container gets a whole claim",
                )
            return [entry]
        if request:
            return [request]
        source = part.entries[0].source
        for claim in self.scene.parts:
            if isinstance(claim, NeutralClaim) and claim.name == source:
                return [r.name for r in claim.requests]
        return []


def _object(kind: str, head: JsonDict, spec: JsonDict) -> JsonDict:
    return {"apiVersion": K8SRM, "kind": kind, "metadata": head, "spec": spec}


def _class(name: str, spec: JsonDict, labels: Any) -> JsonDict:
    return _object("DeviceClass", metadata(name, labels=labels), spec)


def _device(device: NeutralDevice, *, several: bool) -> JsonDict:
    found: JsonDict = {
        "name": device.name,
        "attributes": [
            {"name": name.rpartition("/")[2], **typed(value)}
            for name, value in device.attributes.items()
        ],
    }
    if device.consumes:
        found["sharedResourcesConsumed"] = {
            f"{name}-{counter}" if several else counter: amount
            for (name, counter), amount in device.consumes.items()
        }
    if device.provides:
        found["claimResourcesProvided"] = [
            {"name": name, "capacity": amount} for name, amount in device.provides.items()
        ]
    return found


def typed(value: Attribute) -> JsonDict:
    """Return an attribute's value as k8srm writes it; it has no booleans."""
    [only] = value.values
    match value.type:
        case "int":
            return {"intValue": only}
        case "quantity":
            return {"quantityValue": amount_text(only)}
        case "version":
            return {"semVerValue": only}
        case "bool":
            return {"stringValue": str(only).lower()}
        case _:
            return {"stringValue": str(only)}
