"""How long it takes to say why, beside asking the allocator once on every node.

    python -m benchmarks.explanations

Nodes of 8 GPUs of two kinds, 60 % of them in use at random: nearly every node is different.
"""

import random
import time

from benchmarks.board import record
from dralab.allocation import v1
from dralab.allocation.allocator import allocate
from dralab.allocation.pools import SliceCatalog
from dralab.allocation.problem import Node, Problem
from dralab.allocation.selectors import CelSelectorCompiler
from dralab.explanation.diagnose import diagnose
from dralab.explanation.text import Why
from dralab.values.json_types import JsonDict


def slices(nodes: int, chance: random.Random) -> list[JsonDict]:
    return [
        {
            "metadata": {"name": f"s{i}"},
            "spec": {
                "driver": "d",
                "nodeName": f"n{i}",
                "pool": {"name": f"n{i}", "generation": 1, "resourceSliceCount": 1},
                "devices": [
                    {
                        "name": f"gpu-{j}",
                        "attributes": {
                            "kind": {"string": chance.choice("xy")},
                            "numa": {"int": j // 4},
                        },
                    }
                    for j in range(8)
                ],
            },
        }
        for i in range(nodes)
    ]


def held(nodes: int, chance: random.Random) -> list[JsonDict]:
    return [
        {
            "metadata": {"name": f"c{i}-{j}"},
            "status": {
                "allocation": {
                    "devices": {
                        "results": [
                            {"request": "r", "driver": "d", "pool": f"n{i}", "device": f"gpu-{j}"}
                        ]
                    }
                }
            },
        }
        for i in range(nodes)
        for j in range(8)
        if chance.random() < 0.6
    ]


def asked(count: int, match: str = "") -> JsonDict:
    selectors = [{"cel": {"expression": "device.attributes['d'].kind == 'x'"}}]
    exactly = {"deviceClassName": "gpu", "count": count, "selectors": selectors}
    devices: JsonDict = {"requests": [{"name": "gpu", "exactly": exactly}]}
    devices |= {"constraints": [{"matchAttribute": match}]} if match else {}
    return {"metadata": {"name": "c"}, "spec": {"devices": devices}}


def main() -> None:
    print(f"{'nodes':>6} {'claim':24}{'explain s':>12}{'ask once s':>12}{'ratio':>8}")
    for nodes in (1, 100, 1000):
        chance = random.Random(1)
        reader = v1.V1Reader(CelSelectorCompiler())
        published = tuple(reader.slice(item) for item in slices(nodes, chance))
        classes = {"gpu": reader.device_class({"metadata": {"name": "gpu"}, "spec": {}})}
        in_use = v1.in_use(held(nodes, chance))
        places = [Node(f"n{i}") for i in range(nodes)]
        for name, claim in (("8 of a kind", asked(8)), ("7 on one NUMA node", asked(7, "d/numa"))):
            problem = Problem(
                claims=(reader.claim(claim),), classes=classes, slices=published, in_use=in_use
            )
            start = time.process_time()
            found = diagnose(problem, places)
            spent = time.process_time() - start
            assert found is not None
            assert found.settled
            catalog = SliceCatalog(published)
            start = time.process_time()
            for place in places:
                allocate(problem, place, catalog=catalog)
            once = time.process_time() - start
            print(f"{nodes:6} {name:24}{spent:12.3f}{once:12.3f}{spent / once:8.1f}")
            record(f"explain {name}, {nodes} nodes", spent * 1e3, "ms")
    assert found is not None
    print(Why(diagnosis=found).page())


if __name__ == "__main__":
    main()
