"""The sample nodes of the early stages, as plain data in the shape of their files.

Numbers: k8srm-prototype 27183b1 and 1116416, `gen-example`.
"""

from typing import Any

Mapping = dict[str, Any]

K1_SHAPES = ("0", "1", "2", "3")


def k1_nodes(shape: str, count: int, nets: int = 2) -> list[Mapping]:
    """Return nodes of stage K1 of a shape `0` to `3`; ValueError for another.

    `nets` is over how many networks the nodes of shapes 2 and 3 spread.
    """
    if shape not in K1_SHAPES:
        raise ValueError(f'unknown shape "{shape}", valid shapes are: {", ".join(K1_SHAPES)}')
    words = {"0": "zero", "1": "one", "2": "two", "3": "three"}
    nodes = []
    for number in range(count):
        name = f"shape-{words[shape]}-{number:03d}"
        pools = [_primary("8" if shape == "0" else "4", "64Gi" if shape == "0" else "32Gi")]
        net = f"{number % nets:02d}"
        if shape == "1":
            pools.append(_foozers("foozer-1000-01", "7.8.1-gen6", 1000, f"foonet-one-{number:03d}"))
        elif shape == "2":
            pools.append(_foozers("foozer-4000-01", "7.8.2-gen8", 4000, f"foonet-two-{net}"))
        elif shape == "3":
            own, shared = f"foonet-three-{number:03d}", f"foonet-three-{net}"
            pools.append(_foozers("foozer-1000-01", "7.8.2-gen8", 1000, own))
            pools.append(_foozers("foozer-4000-01", "7.8.2-gen8", 4000, shared, range(4, 8)))
        nodes.append({"name": name, "pools": pools})
    return nodes


def _primary(cpu: str, memory: str) -> Mapping:
    capacities: list[Mapping] = [
        {"name": "pods", "counter": {"capacity": 100}},
        {"name": "containers", "counter": {"capacity": 1000}},
    ]
    for numa in ("numa-0", "numa-1"):
        where = [{"name": numa, "type": "numa", "groupInDevice": True}]
        capacities.append(
            {"name": "cpu", "block": {"capacity": cpu, "size": "10m"}, "topologies": where}
        )
        capacities.append(
            {"name": "memory", "block": {"capacity": memory, "size": "1Mi"}, "topologies": where}
        )
    return {
        "name": "primary",
        "driver": "kubelet",
        "attributes": [
            {"name": "os", "stringValue": "linux"},
            {"name": "kernel-release", "semVerValue": "5.15.0-1046-gcp"},
            {"name": "hardware-platform", "stringValue": "x86_64"},
        ],
        "devices": [{"name": "primary", "capacities": capacities}],
    }


# model → (cores, memory, interfaces, firmware, net speed)
FOOZERS = {
    1000: ("8", "64Gi", 16, "1.3.8", "10G"),
    4000: ("16", "256Gi", 64, "1.8.8", "40G"),
}


def _foozers(pool: str, driver: str, model: int, net: str, numbers: range | None = None) -> Mapping:
    cores, memory, interfaces, firmware, speed = FOOZERS[model]
    devices = []
    for number in numbers or range(8 if model == 4000 else 4):
        where = [
            {"name": f"numa-{number // 2}", "type": "numa"},
            {"name": f"pci-{number % 2}", "type": "pci"},
        ]
        prefix = "example.com/foozer/"
        devices.append(
            {
                "name": f"dev-foo-{number}",
                "attributes": [
                    {"name": "model", "stringValue": f"foozer-{model}"},
                    {"name": "firmware-version", "semVerValue": firmware},
                    {"name": "net-speed", "quantityValue": speed},
                ],
                "capacities": [
                    {
                        "name": f"{prefix}cores",
                        "quantity": {"capacity": cores},
                        "topologies": where,
                    },
                    {
                        "name": f"{prefix}memory",
                        "block": {"capacity": memory, "size": "256Mi"},
                        "topologies": where,
                    },
                    {
                        "name": f"{prefix}interfaces",
                        "counter": {"capacity": interfaces},
                        "topologies": [*where, {"name": net, "type": "foo-net"}],
                    },
                ],
            }
        )
    return {
        "name": pool,
        "driver": "example.com/foozer",
        "attributes": [{"name": "driver-version", "semVerValue": driver}],
        "devices": devices,
    }
