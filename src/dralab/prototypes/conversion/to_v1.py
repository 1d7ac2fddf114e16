"""Neutral values as resource.k8s.io/v1."""

from collections.abc import Mapping

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
    COUNTERS_PER_SET,
    DEVICES,
    DEVICES_WITH_COUNTERS,
    SETS_PER_SLICE,
    STANDARD,
    V1,
    ResourceClaimWriter,
    amount_text,
    identifier,
    label,
    metadata,
    rules_of,
)
from dralab.prototypes.k8srm.claim_forms import NO_MAXIMUM
from dralab.values.json_types import JsonDict

Counter = tuple[str, str]


class ToV1(ResourceClaimWriter):
    """Writes today's API."""

    target, version, pod_version = "v1", V1, "v1"

    def device_class(self, part: NeutralClass) -> list[JsonDict]:
        """Return a DeviceClass with CEL selectors."""
        selectors = [{"cel": {"expression": text}} for text in self.class_expressions(part)]
        spec: JsonDict = {"selectors": selectors} if selectors else {}
        configs = self.opaque(part.configs, part.drivers, f"DeviceClass {part.name}", "driver")
        if configs:
            spec["config"] = configs
        head = metadata(part.name.lower(), labels=part.labels)
        return [self.made("DeviceClass", head, spec)]

    def claim(self, part: NeutralClaim) -> list[JsonDict]:
        """Return a ResourceClaim or a ResourceClaimTemplate."""
        where = f"claim {part.namespace}/{part.name}"
        requests: list[JsonDict] = []
        configs: list[JsonDict] = []
        drivers: list[str] = []
        for request in part.requests:
            name = label(request.name)
            options = [self._option(option, where) for option in request.options]
            for option in request.options:
                mine = self.drivers(option)
                drivers += mine
                configs += [
                    {"requests": [name], **each}
                    for each in self.opaque(option.configs, mine, where, "driver")
                ]
            if len(options) == 1:
                requests.append({"name": name, "exactly": options[0]})
            else:
                named = [{"name": f"option-{n}", **option} for n, option in enumerate(options)]
                requests.append({"name": name, "firstAvailable": named})
        constraints = []
        for rule in rules_of(part):
            attribute = self.qualified(rule.attribute, drivers, where)
            if attribute is None:
                continue
            field = "matchAttribute" if rule.kind == "match" else "distinctAttribute"
            entry: JsonDict = {field: identifier(attribute)}
            if rule.requests:
                entry["requests"] = [label(name) for name in rule.requests]
            constraints.append(entry)
        configs += self.opaque(part.configs, drivers, where, "driver")
        if not part.shareable:
            self.changed(where, "spec.shareable", "v1 claims can always be shared by pods")
        devices: JsonDict = {"requests": requests}
        devices |= {"constraints": constraints} if constraints else {}
        devices |= {"config": configs} if configs else {}
        return [self.made_claim(part, {"devices": devices})]

    def _option(self, option: Option, where: str) -> JsonDict:
        drivers = self.drivers(option)
        found: JsonDict = {"deviceClassName": option.class_name.lower()}
        texts = [self.expression(each, where, drivers) for each in option.expressions]
        selectors = [{"cel": {"expression": text}} for text in texts if text]
        if selectors:
            found["selectors"] = selectors
        if option.everything:
            found["allocationMode"] = "All"
        elif option.count != 1:
            found |= {"allocationMode": "ExactCount", "count": option.count}
        if option.admin:
            found["adminAccess"] = True
        if option.totals:
            totals = ", ".join(f"{name}: {amount}" for name, amount in option.totals.items())
            self.lost(
                where,
                f"requests {totals}",
                "a total over several devices: v1 requests a number of devices; request as many "
                "as provide the total, or select devices that are large enough",
            )
        if option.most not in {None, option.count, NO_MAXIMUM}:
            self.lost(where, f"maxDevices "
                             f"{option.most}", "v1 counts are exact: use firstAvailable with one "
                                               "entry per number")  # fmt: skip
        return found

    def pool(self, part: NeutralPool) -> list[JsonDict]:
        """Return the ResourceSlices of a pool: counters first, then devices."""
        sets, of_device = _sets(part)
        for name, counters in sets.items():
            if len(counters) > COUNTERS_PER_SET:
                self.lost(
                    f"pool {part.name}",
                    name,
                    f"{len(counters)} counters that depend on each other; v1 allows "
                    f"{COUNTERS_PER_SET} in a set",
                )
        names = list(sets)
        groups = [names[at : at + SETS_PER_SLICE] for at in range(0, len(names), SETS_PER_SLICE)]
        size = DEVICES_WITH_COUNTERS if sets else DEVICES
        chunks = [part.devices[at : at + size] for at in range(0, len(part.devices), size)]
        pool: JsonDict = {
            "name": part.name,
            "generation": 1,
            "resourceSliceCount": len(groups) + len(chunks),
        }
        reach: JsonDict = {"nodeName": part.node} if part.node else {"allNodes": True}
        common: JsonDict = {"driver": part.driver.split("/")[0], "pool": pool, **reach}
        specs: list[JsonDict] = [
            {
                "sharedCounters": [
                    {"name": name, "counters": {k: {"value": v} for k, v in sets[name].items()}}
                    for name in group
                ]
            }
            for group in groups
        ]
        specs += [
            {"devices": [self._device(device, part, of_device) for device in chunk]}
            for chunk in chunks
        ]
        return [
            self.made("ResourceSlice", {"name": f"{part.name}-{number}"}, {**common, **spec})
            for number, spec in enumerate(specs)
        ]

    def _device(
        self, device: NeutralDevice, pool: NeutralPool, of_device: Mapping[str, str]
    ) -> JsonDict:
        attributes: JsonDict = {}
        capacity: JsonDict = {k: {"value": v} for k, v in device.provides.items()}
        for name, value in device.attributes.items():
            written = identifier(STANDARD.get(name, name))
            if value.type == "quantity":
                capacity[written] = {"value": amount_text(value.values[0])}
            else:
                attributes[written] = typed(value)
        found: JsonDict = {"name": label(device.name), "attributes": attributes}
        if capacity:
            found["capacity"] = capacity
        if device.consumes:
            counters = {label(k): {"value": v} for (_, k), v in device.consumes.items()}
            found["consumesCounters"] = [
                {"counterSet": of_device[device.name], "counters": counters}
            ]
        if label(device.name) != device.name:
            self.changed(f"pool {pool.name}", device.name, f"written {label(device.name)}")
        return found

    def one_device(self, name: str, class_name: str) -> JsonDict:
        """Return the spec of a claim for one device of a class."""
        request = {"name": name, "exactly": {"deviceClassName": class_name}}
        return {"devices": {"requests": [request]}}

    def use(self, part: NeutralPod, entry: str, request: str) -> list[JsonDict]:  # noqa: ARG002
        """Return how a container names a claim, or one request of it."""
        return [{"name": label(entry)} | ({"request": label(request)} if request else {})]


def typed(value: Attribute) -> JsonDict:
    """Return an attribute's value as v1 writes it."""
    [only] = value.values
    return {value.type or "string": only}


def _sets(pool: NeutralPool) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Return counter sets of at most the allowed size, and the set of each device.

    A set of an older pool is taken apart into counters that no device joins.
    """
    joined: list[tuple[set[Counter], list[str]]] = []
    for device in pool.devices:
        needs = set(device.consumes)
        if not needs:
            continue
        mine = [group for group in joined if group[0] & needs]
        for group in mine[1:]:
            mine[0][0].update(group[0])
            mine[0][1].extend(group[1])
            joined.remove(group)
        if mine:
            mine[0][0].update(needs)
            mine[0][1].append(device.name)
        else:
            joined.append((needs, [device.name]))
    sets: dict[str, dict[str, str]] = {}
    of_device: dict[str, str] = {}
    for counters, devices in joined:
        name = label(f"{devices[0]}-counters")
        sets[name] = {
            label(counter): amount
            for set_name, totals in pool.sets.items()
            for counter, amount in totals.items()
            if (set_name, counter) in counters
        }
        of_device |= dict.fromkeys(devices, name)
    return sets, of_device
