"""A fleet that is loaded once: allocate, answer what-if questions, use a custom policy."""

from dralab.allocation.fleet import Fleet
from dralab.allocation.inventory.placements import DevicePlacement
from dralab.allocation.policy.policies import NodeOutlook, Pack

DRIVER = "gpu.example.com"


def node(number: int) -> dict:
    return {"metadata": {"name": f"node-{number}"}}


def gpus(number: int, count: int) -> dict:
    devices = [
        {"name": f"gpu-{index}", "attributes": {"numa": {"int": 2 * index // count}}}
        for index in range(count)
    ]
    pool = {"name": f"node-{number}", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": f"node-{number}", "pool": pool, "devices": devices}
    return {"metadata": {"name": f"slice-{number}"}, "spec": spec}


def claim(name: str, count: int) -> dict:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": count}}
    together = {"matchAttribute": f"{DRIVER}/numa"}
    return {
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [request], "constraints": [together]}},
    }


class LeaveWholeHalves:
    """A policy: starting on an unused half costs more than filling a used one."""

    def cost(self, before: NodeOutlook, after: NodeOutlook) -> float:
        return after.free % 2 - before.free % 2


def show(what: str, placed: object) -> None:
    if not isinstance(placed, DevicePlacement):
        print(f"{what}: no place")
        return
    devices = [item["device"] for item in placed.allocations[0]["devices"]["results"]]
    print(f"{what}: {placed.node} {' '.join(devices)}")


classes = [{"metadata": {"name": "gpu"}, "spec": {}}]
sizes = (8, 5, 4)
fleet = Fleet(map(node, range(3)), (gpus(n, size) for n, size in enumerate(sizes)), classes)

show("Kubernetes' choice", fleet.allocate([claim("a", 3)]))
show("the fullest node  ", fleet.allocate([claim("b", 2)], policy=Pack()))
show("my own policy     ", fleet.allocate([claim("c", 1)], policy=LeaveWholeHalves()))

what_if = fleet.copied()
served = 0
while isinstance(what_if.allocate([claim("more", 2)]), DevicePlacement):
    served += 1
print(f"what if only pairs came now: {served} more would fit")

placed = fleet.allocate([claim("d", 4)])
show("four on one half  ", placed)
if isinstance(placed, DevicePlacement):
    fleet.release(placed.allocations[0])
    show("released, asked again", fleet.allocate([claim("e", 4)]))
show("five on one half  ", fleet.allocate([claim("f", 5)]))
