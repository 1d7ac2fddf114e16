"""The classes and devices of a random cluster: on nodes, and on a network."""

from builders import DRIVER, counter_set, device, device_class, obj, pool, taint
from clusters.draft import EXTENDED, NOW, ZONE, Draft, matching, rule
from dralab.values.json_types import JsonDict

NETWORK = "net.example.com"
SHARED = {
    "value": "40Gi",
    "requestPolicy": {"default": "10Gi", "validRange": {"min": "5Gi"}},
}
CONDITIONS = {
    "bindsToNode": True,
    "bindingConditions": ["example.com/attached"],
    "bindingFailureConditions": ["example.com/broken"],
}


def devices(draft: Draft) -> None:
    part = f'device.driver == "{DRIVER}" && has(device.attributes["{DRIVER}"].part)'
    draft.add(
        device_class("gpu", f'device.driver == "{DRIVER}"', extendedResourceName=EXTENDED),
        device_class("net", f'device.driver == "{NETWORK}"'),
        device_class("part", part),
    )
    for node in draft.of("Node"):
        if not draft.some("no-devices", 5):
            _on_node(draft, node["metadata"]["name"])
    if draft.some("network-devices", 2):
        _network(draft)


def _on_node(draft: Draft, node: str) -> None:
    made = [_gpu(draft, number) for number in range(draft.choice([1, 2, 2, 3, 4]))]
    sets = None
    if draft.some("partitions", 4):
        sets = [counter_set("card", slots=4)]
        made += [
            device(f"part-{number}", consumes={"card": {"slots": slots}}, part=slots)
            for number, slots in enumerate([2, 2, 1, 4])
        ]
        # Both together are the whole card.
        draft.parts[node] = [(node, "part-0"), (node, "part-1")]
    slices = pool(node, *made, node=node, counters=sets, generation=2)
    # kube-scheduler refuses requests for all devices on every node while such a pool has counters.
    if draft.some("incomplete-pool", 14) and not (sets and "incomplete-counters" in draft.without):
        for item in slices:
            item["spec"]["pool"]["resourceSliceCount"] = len(slices) + 1
    if draft.some("older-slice", 10):
        # What a driver published before counts no longer.
        (old,) = pool(node, device("gpu-0"), device("old"), node=node)
        old["metadata"]["name"] += "-old"
        slices.append(old)
    draft.add(*slices)
    for item in made:
        if "consumesCounters" not in item:
            kind = draft.shared if "allowMultipleAllocations" in item else draft.free
            kind.setdefault(node, []).append((node, item["name"]))
    if draft.some("taint-rule", 20):
        spec = {
            "deviceSelector": {"driver": DRIVER, "pool": node, "device": "gpu-0"},
            "taint": {**taint("maintenance"), "timeAdded": NOW},
        }
        api = "resource.k8s.io/v1beta2"
        draft.add(obj("DeviceTaintRule", f"{node}-rule", api=api, spec=spec))


def _gpu(draft: Draft, number: int) -> JsonDict:
    capacity: JsonDict = {"memory": draft.choice(["40Gi", "80Gi"])}
    shared = draft.some("shared-device", 8)
    effect = draft.choice(["NoSchedule", "NoExecute"])
    return device(
        f"gpu-{number}",
        model=draft.choice(["big", "small"]),
        numa=number % 2,
        capacity={"memory": SHARED} if shared else capacity,
        shared=shared,
        taints=[taint("faulty", effect)] if draft.some("device-taint", 8) else None,
        more=CONDITIONS if draft.some("binding-conditions", 25) else None,
    )


def _network(draft: Draft) -> None:
    ports = [device("port-0"), device("port-1")]
    (made,) = pool("fabric", *ports, driver=NETWORK, node=None)
    if draft.some("selected-nodes", 2):
        del made["spec"]["allNodes"]
        made["spec"]["nodeSelector"] = matching(rule(ZONE, draft.zones[0]))
    elif draft.some("device-nodes", 4):
        # Each device says itself where it can be reached.
        del made["spec"]["allNodes"]
        made["spec"]["perDeviceNodeSelection"] = True
        ports[0]["nodeName"] = "n0"
        ports[1]["nodeSelector"] = matching(rule(ZONE, draft.zones[-1]))
    draft.add(made)
