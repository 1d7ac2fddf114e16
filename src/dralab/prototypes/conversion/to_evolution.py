"""Neutral values as dra-evolution's resource.k8s.io/v1alpha2."""

from collections import Counter
from functools import cached_property

from dralab.allocation.problem import Attribute
from dralab.prototypes.conversion.neutral import (
    NeutralClaim,
    NeutralClass,
    NeutralDevice,
    NeutralPod,
    NeutralPool,
    Option,
)
from dralab.prototypes.conversion.writing import (
    EVOLUTION,
    STANDARD,
    ResourceClaimWriter,
    amount_text,
    each_device_name,
    identifier,
    label,
    metadata,
    rules_of,
)
from dralab.values.json_types import JsonDict


class ToEvolution(ResourceClaimWriter):
    """Writes dra-evolution."""

    target, version, pod_version = "evolution", EVOLUTION, EVOLUTION

    def device_class(self, part: NeutralClass) -> list[JsonDict]:
        """Return a DeviceClass with requirements."""
        found: JsonDict = {
            "apiVersion": EVOLUTION,
            "kind": "DeviceClass",
            "metadata": metadata(part.name.lower(), labels=part.labels),
            "requirements": [{"deviceSelector": text} for text in self.class_expressions(part)],
        }
        configs = self.opaque(part.configs, part.drivers, f"DeviceClass {part.name}", "driverName")
        return [found | ({"config": configs} if configs else {})]

    def claim(self, part: NeutralClaim) -> list[JsonDict]:
        """Return a ResourceClaim or template: one request for every device."""
        where = f"claim {part.namespace}/{part.name}"
        names = each_device_name(part.requests)
        requests = []
        drivers: list[str] = []
        for request in part.requests:
            if len(request.options) > 1:
                self.lost(
                    where,
                    f"{request.name}.{self.alternatives}",
                    "dra-evolution has no alternatives; the first is kept, write one claim for "
                    "each of the others",
                )
            option = request.options[0]
            drivers += self.drivers(option)
            body = self._request(option, where)
            requests += [{"name": name, **body} for name in names[request.name]]
            if len(names[request.name]) > 1:
                self.changed(where, request.name, f"written as {len(names[request.name])} requests")
        constraints = []
        for rule in rules_of(part):
            attribute = self.qualified(rule.attribute, drivers, where)
            covered = [n for r in rule.requests for n in names.get(r, [])]
            if rule.kind == "distinct":
                self.lost(where, f"distinct {rule.attribute}", "dra-evolution has no such rule")
            elif covered and len(covered) < sum(map(len, names.values())):
                self.lost(
                    where,
                    f"match {rule.attribute}",
                    "for some of the requests: a constraint of dra-evolution covers the whole "
                    "claim; put these requests into a separate claim",
                )
            elif attribute is not None:
                constraints.append({"matchAttribute": identifier(attribute)})
        spec: JsonDict = {"requests": requests, "shareable": part.shareable}
        spec |= {"constraints": constraints} if constraints else {}
        configs = self.opaque(part.configs, drivers, where, "driverName")
        spec |= {"config": configs} if configs else {}
        return [self.made_claim(part, spec)]

    def _request(self, option: Option, where: str) -> JsonDict:
        drivers = self.drivers(option)
        found: JsonDict = {"deviceClassName": option.class_name.lower()}
        texts = [self.expression(each, where, drivers) for each in option.expressions]
        requirements = [{"deviceSelector": text} for text in texts if text]
        if requirements:
            found["requirements"] = requirements
        if option.admin:
            found["adminAccess"] = True
        if option.everything:
            text = "dra-evolution requests one device at a time: write one request for each device"
            self.lost(where, self.everything, text)
        if option.totals or option.most not in {None, option.count}:
            self.lost(where, "totals", "dra-evolution has no count ranges and no totals")
        configs = self.opaque(option.configs, drivers, where, "driverName")
        return found | ({"config": configs} if configs else {})

    @cached_property
    def shared_names(self) -> set[tuple[str, str, str]]:
        """(driver, node, device) that several pools publish: there it would be one device."""
        pools = [part for part in self.scene.parts if isinstance(part, NeutralPool)]
        counts = Counter((p.driver, p.node, label(d.name)) for p in pools for d in p.devices)
        return {key for key, count in counts.items() if count > 1}

    def pool(self, part: NeutralPool) -> list[JsonDict]:
        """Return a ResourcePool."""
        where = f"pool {part.name}"
        if not part.node:
            self.lost(where, "spec.nodeName", "it has no network-attached devices")
        shared = [
            {"name": _counter(part, name, counter), "capacity": amount}
            for name, totals in part.sets.items()
            for counter, amount in totals.items()
            if amount != "0"
        ]
        spec: JsonDict = {"driverName": part.driver.split("/")[0]}
        spec |= {"nodeName": part.node} if part.node else {}
        spec |= {"sharedCapacity": shared} if shared else {}
        spec["devices"] = [self._device(device, part) for device in part.devices]
        return [self.made("ResourcePool", {"name": part.name}, spec)]

    def _device(self, device: NeutralDevice, pool: NeutralPool) -> JsonDict:
        attributes = [
            {"name": identifier(STANDARD.get(name, name)), **typed(value)}
            for name, value in device.attributes.items()
        ]
        # What a device provides is an attribute here: there is nothing to add up.
        attributes += [
            {"name": identifier(name), "quantity": amount}
            for name, amount in device.provides.items()
        ]
        name = label(device.name)
        if (pool.driver, pool.node, name) in self.shared_names:
            name = label(f"{pool.name}-{device.name}")
            self.changed(
                f"pool {pool.name}", device.name, f"written {name}: names are unique on a node"
            )
        found: JsonDict = {"name": name, "attributes": attributes}
        if device.consumes:
            found["sharedCapacityConsumed"] = [
                {"name": _counter(pool, name, counter), "capacity": amount}
                for (name, counter), amount in device.consumes.items()
            ]
        return found

    def one_device(self, name: str, class_name: str) -> JsonDict:
        """Return the spec of a claim for one device of a class."""
        return {"requests": [{"name": name, "deviceClassName": class_name}], "shareable": False}

    def use(self, part: NeutralPod, entry: str, request: str) -> list[JsonDict]:
        """Return how a container names a claim, or the one-device requests for a request."""
        return [
            {"name": label(entry)} | ({"requestName": name} if name else {})
            for name in self._names(part, entry, request)
        ]

    def _names(self, part: NeutralPod, entry: str, request: str) -> list[str]:
        """Return the one-device requests that a container's use stands for; "" for all."""
        if not request:
            return [""]
        source = next((e.source for e in part.entries if e.name == entry), "")
        for claim in self.scene.parts:
            if isinstance(claim, NeutralClaim) and claim.name == source:
                found = [r for r in claim.requests if request in {r.name, r.part_of}]
                names = each_device_name(found)
                return [name for each in names.values() for name in each] or [label(request)]
        return [label(request)]


def typed(value: Attribute) -> JsonDict:
    """Return an attribute's value as dra-evolution writes it; integers became quantities."""
    [only] = value.values
    match value.type:
        case "int":
            return {"quantity": str(only)}
        case "quantity":
            return {"quantity": amount_text(only)}
        case "bool" | "version":
            return {value.type: only}
        case _:
            return {"string": str(only)}


def _counter(pool: NeutralPool, name: str, counter: str) -> str:
    """Return the name of a counter: with its set's where a pool has several."""
    return identifier(f"{name}-{counter}" if len(pool.sets) > 1 else counter)
