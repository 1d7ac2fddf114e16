"""Builds a sample from a shape's name: its nodes and their devices.

The foozer shapes and `dgxa100` are those of the prototypes' generators, with distinct pool names;
the others are common today. The same name, number of nodes and seed give the same sample.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from dralab.fleet import catalog
from dralab.fleet.model import (
    RACK_LABEL,
    Attribute,
    SampleAmount,
    SampleDevice,
    SampleFleet,
    SampleNode,
    SamplePool,
)
from dralab.kernel.randomness import Randomness
from dralab.values.near_names import did_you_mean
from dralab.values.version import Version

# size → (NUMA nodes, devices per NUMA node)
FOOZER_SIZES: Final = {"tiny": (1, 2), "small": (1, 4), "medium": (2, 4), "large": (4, 4)}
FOOZER_MODELS: Final = ("1000", "4000")
NUMA_NODE: Final = "resource.kubernetes.io/numaNode"
PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"
MOST_NODES: Final = 100_000  # of a sample, and added to a cluster at once
PCI_BUS_ID: Final = "resource.kubernetes.io/pciBusID"
GPU_DRIVER: Final = "gpu.nvidia.com"

Builder = Callable[[int, Randomness], SampleFleet]


class UnknownShape(ValueError):  # noqa: N818 - it says what happened
    """An unknown shape."""

    def __init__(self, shape: str) -> None:
        hint = did_you_mean(shape, names())
        super().__init__(f'unknown shape "{shape}"{hint or ";"} known shapes: {", ".join(names())}')
        self.shape = shape


def names() -> list[str]:
    """Return the names of all shapes, sorted."""
    return sorted(SHAPES)


def sample(shape: str, *, nodes: int | None = None, seed: int = 0, gpus: int = 8) -> SampleFleet:
    """Return the sample of a shape with so many nodes (default: the shape's own number).

    `gpus` is how many cards a `dgxa100` node has. UnknownShape lists the names that are known.
    """
    if shape not in SHAPES:
        raise UnknownShape(shape)
    if nodes is not None and nodes < 1:
        raise ValueError(f"a sample needs at least one node, not {nodes}")
    default, build = SHAPES[shape]
    chance = Randomness(seed)
    if shape == "dgxa100":
        return _dgxa100(nodes or default, chance, gpus)
    return build(nodes or default, chance)


def _foozers(model: str, size: str) -> Builder:
    def build(count: int, _: Randomness) -> SampleFleet:
        numas, per_numa = FOOZER_SIZES[size]
        shape = f"foozer-{model}-{size}"
        pools = [
            SamplePool(
                name=f"{shape}-{number:02d}-pool-foozer",
                driver="example.com-foozer",
                node=f"{shape}-{number:02d}",
                attributes={
                    "vendor": "example.com",
                    "model": f"foozer-{model}",
                    "firmwareVersion": Version.parse("1.8.2"),
                    "driverVersion": Version.parse("4.2.1-gen3"),
                },
                devices=tuple(
                    SampleDevice(name=f"dev-{n:02d}", attributes={"numa": str(n // per_numa)})
                    for n in range(numas * per_numa)
                ),
            )
            for number in range(count)
        ]
        return SampleFleet(nodes=_nodes([pool.node for pool in pools]), pools=tuple(pools))

    return build


def _dgxa100(count: int, chance: Randomness, gpus: int) -> SampleFleet:
    names = [f"nvidia-{number:02d}" for number in range(count)]
    model = catalog.A100
    shared: dict[str, Attribute] = {
        "product-name": f"Mock NVIDIA {model.product}",
        "brand": "Nvidia",
        "architecture": model.architecture,
        "cuda-compute-capability": Version.parse(model.compute_capability),
        "driver-version": Version.parse(model.driver_version),
        "cuda-driver-version": Version.parse(model.cuda_version),
    }

    def whole(node: str, index: int) -> dict[str, Attribute]:
        uuid = f"GPU-{chance.uuid(f'{node}/gpu-{index}')}"
        numbers: dict[str, Attribute] = {"minor": index, "index": index}
        return numbers | {"uuid": uuid} | shared | {"mig-capable": True, "mig-enabled": False}

    pools = [
        SamplePool(
            name=f"{node}-dgxa100",
            driver="gpu.nvidia.com/dra",
            node=node,
            attributes={"vendor": "nvidia", "model": "dgxa100"},
            units={f"gpu-{g}": model.counters() for g in range(gpus)},
            devices=tuple(
                device
                for g in range(gpus)
                for device in partitions(model, f"gpu-{g}", whole(node, g), shared)
            ),
        )
        for node in names
    ]
    return SampleFleet(nodes=_nodes(names), pools=tuple(pools))


def partitions(
    model: catalog.GpuModel,
    unit: str,
    whole: Mapping[str, Attribute],
    shared: Mapping[str, Attribute],
) -> Iterator[SampleDevice]:
    """Yield a card as a whole and every MIG partition of it, in the catalog's order."""
    yield SampleDevice(
        name=unit,
        attributes=whole,
        unit=unit,
        consumes={"memory": model.memory},
        capacity={"memory": model.memory},
    )
    for profile in model.profiles:
        for start in profile.starts:
            yield SampleDevice(
                name=f"{unit}-mig-{profile.part}-{start}",
                attributes={"mig-profile": profile.name, **shared},
                unit=unit,
                consumes=profile.consumption(start),
                capacity={"memory": profile.memory},
            )


def _gpu_nodes(prefix: str, model: catalog.GpuModel, gpus: int, nics: int) -> Builder:
    """Return a builder of nodes of `gpus` cards and `nics` network cards on two sockets."""

    def build(count: int, chance: Randomness) -> SampleFleet:
        names = [f"{prefix}-{number:03d}" for number in range(count)]
        pools = [
            pool
            for node in names
            for pool in (_gpus(node, model, gpus, chance), _nics(node, nics, chance))
        ]
        return SampleFleet(nodes=_nodes(names, cpu="192", memory="2Ti"), pools=tuple(pools))

    return build


def _gpus(
    node: str,
    model: catalog.GpuModel,
    gpus: int,
    chance: Randomness,
    extra: Mapping[str, Attribute] | None = None,
) -> SamplePool:
    shared: dict[str, Attribute] = {
        "productName": f"NVIDIA {model.product}",
        "brand": "Nvidia",
        "architecture": model.architecture,
        "cudaComputeCapability": Version.parse(model.compute_capability),
        "driverVersion": Version.parse(model.driver_version),
        "cudaDriverVersion": Version.parse(model.cuda_version),
    }
    devices: list[SampleDevice] = []
    for index in range(gpus):
        place = _place(index, gpus)
        whole: dict[str, Attribute] = {
            "type": "gpu",
            "index": index,
            "uuid": f"GPU-{chance.uuid(f'{node}/gpu-{index}')}",
        }
        part: dict[str, Attribute] = {"type": "mig", "parentIndex": index}
        common = shared | place | dict(extra or {})
        devices += partitions(model, f"gpu-{index}", whole | common, part | common)
    return SamplePool(
        name=f"{node}-gpus",
        driver=GPU_DRIVER,
        node=node,
        units={f"gpu-{g}": model.counters() for g in range(gpus)},
        devices=tuple(devices),
    )


def _nics(node: str, cards: int, chance: Randomness, vfs: int = 2) -> SamplePool:
    """Return SR-IOV cards: a physical function uses all its virtual ones."""
    devices: list[SampleDevice] = []
    for card in range(cards):
        place = _place(card, cards)
        mac = chance.stream(f"{node}/nic-{card}").getrandbits(40)
        shared: dict[str, Attribute] = {
            "vendor": "example.com",
            "linkSpeed": "400G",
            "card": card,
            "mac": "02:" + ":".join(f"{mac >> shift & 255:02x}" for shift in range(32, -8, -8)),
            NUMA_NODE: place[NUMA_NODE],
            PCIE_ROOT: place[PCIE_ROOT],
        }
        unit = f"nic-{card}"
        bus = f"0000:{0x12 + card * 0x10:02x}"  # beside that of the GPU on this root
        devices.append(
            SampleDevice(
                name=f"{unit}-pf",
                attributes={"type": "pf", **shared, PCI_BUS_ID: f"{bus}:00.0"},
                unit=unit,
                consumes={"vfs": str(vfs)},
            )
        )
        devices += [
            SampleDevice(
                name=f"{unit}-vf-{vf}",
                attributes={"type": "vf", **shared, PCI_BUS_ID: _virtual(bus, vf)},
                unit=unit,
                consumes={"vfs": "1"},
            )
            for vf in range(vfs)
        ]
    return SamplePool(
        name=f"{node}-nics",
        driver="sriov.example.com",
        node=node,
        units={f"nic-{card}": {"vfs": str(vfs)} for card in range(cards)},
        devices=tuple(devices),
    )


def _virtual(bus: str, number: int) -> str:
    """Return the address of a virtual function: eight to a device, the physical one first."""
    device, function = divmod(number + 1, 8)
    return f"{bus}:{device:02x}.{function}"


def _place(index: int, count: int) -> dict[str, Attribute]:
    """Return the place of card `index` of `count`: half on each socket, one PCIe root each."""
    numa = index * 2 // count
    bus = 0x10 + index * 0x10
    return {
        NUMA_NODE: numa,
        PCIE_ROOT: f"pci0000:{bus:02x}",
        PCI_BUS_ID: f"0000:{bus + 1:02x}:00.0",
    }


def _nvl72(count: int, chance: Randomness) -> SampleFleet:
    """Return racks' compute trays: 18 trays of 4 GPUs make one NVLink domain of 72."""
    nodes: list[SampleNode] = []
    pools: list[SamplePool] = []
    for number in range(count):
        rack = number // 18
        name = f"gb200-{number:03d}"
        nodes.append(
            SampleNode(name=name, labels={RACK_LABEL: f"rack-{rack}"}, cpu="144", memory="960Gi")
        )
        domain: dict[str, Attribute] = {
            "nvlinkDomain": chance.uuid(f"rack-{rack}") if number % 18 == 0 else "",
            "rack": f"rack-{rack}",
        }
        if number % 18:
            domain["nvlinkDomain"] = pools[rack * 36].devices[0].attributes["nvlinkDomain"]
        pools.append(_gpus(name, catalog.GB200, 4, chance, domain))
        pools.append(_nics(name, 4, chance))
    return SampleFleet(nodes=tuple(nodes), pools=tuple(pools))


def _sriov(count: int, chance: Randomness) -> SampleFleet:
    names = [f"sriov-{number:03d}" for number in range(count)]
    pools = tuple(_nics(node, 2, chance, vfs=16) for node in names)
    return SampleFleet(nodes=_nodes(names, cpu="64", memory="512Gi"), pools=pools)


def _tpu(count: int, _: Randomness) -> SampleFleet:
    """Return hosts of four chips in a 2 x 2 square; four hosts make one 4 x 4 slice."""
    names = [f"tpu-{number:03d}" for number in range(count)]
    pools = []
    for number, node in enumerate(names):
        row, column = divmod(number % 4, 2)
        pools.append(
            SamplePool(
                name=f"{node}-tpus",
                driver="tpu.example.com",
                node=node,
                devices=tuple(
                    SampleDevice(
                        name=f"chip-{chip}",
                        attributes={
                            "generation": "t5",
                            "slice": f"slice-{number // 4}",
                            "x": column * 2 + chip % 2,
                            "y": row * 2 + chip // 2,
                            NUMA_NODE: chip // 2,
                        },
                        capacity={"hbm": "16Gi", "cores": "1"},
                    )
                    for chip in range(4)
                ),
            )
        )
    return SampleFleet(nodes=_nodes(names, cpu="112", memory="192Gi"), pools=tuple(pools))


def _fpga(count: int, _: Randomness) -> SampleFleet:
    """Return cards of four regions each: the whole card, or its regions one by one."""
    names = [f"fpga-{number:03d}" for number in range(count)]
    pools = []
    for node in names:
        devices: list[SampleDevice] = []
        for card in range(2):
            shared: dict[str, Attribute] = {
                "family": "example-7",
                "bandwidth": SampleAmount("100G"),
                **_place(card, 2),
            }
            unit = f"card-{card}"
            devices.append(
                SampleDevice(
                    name=unit,
                    attributes={"type": "card", **shared},
                    unit=unit,
                    consumes={"regions": "4"},
                    capacity={"luts": "1200k"},
                )
            )
            devices += [
                SampleDevice(
                    name=f"{unit}-region-{region}",
                    attributes={"type": "region", **shared},
                    unit=unit,
                    consumes={"regions": "1"},
                    capacity={"luts": "300k"},
                )
                for region in range(4)
            ]
        pools.append(
            SamplePool(
                name=f"{node}-fpgas",
                driver="fpga.example.com",
                node=node,
                units={f"card-{card}": {"regions": "4"} for card in range(2)},
                devices=tuple(devices),
            )
        )
    return SampleFleet(nodes=_nodes(names), pools=tuple(pools))


def _network(count: int, _: Randomness) -> SampleFleet:
    """Return racks of four nodes, each with a chassis of devices attached over the network."""
    nodes = tuple(
        SampleNode(name=f"host-{number:03d}", labels={RACK_LABEL: f"rack-{number // 4}"})
        for number in range(count)
    )
    racks = sorted({node.labels[RACK_LABEL] for node in nodes})
    pools = tuple(
        SamplePool(
            name=f"{rack}-chassis",
            driver="fabric.example.com",
            racks=(rack,),
            devices=tuple(
                SampleDevice(
                    name=f"accelerator-{n}",
                    attributes={"model": "remote-1", "rack": rack, "rail": n % 4},
                    capacity={"memory": "96Gi"},
                )
                for n in range(16)
            ),
        )
        for rack in racks
    )
    return SampleFleet(nodes=nodes, pools=pools)


def _nodes(names: list[str], cpu: str = "16", memory: str = "64Gi") -> tuple[SampleNode, ...]:
    return tuple(SampleNode(name=name, cpu=cpu, memory=memory) for name in names)


# name → (default number of nodes, builder)
SHAPES: Final[Mapping[str, tuple[int, Builder]]] = {
    **{
        f"foozer-{model}-{size}": (2, _foozers(model, size))
        for model in FOOZER_MODELS
        for size in FOOZER_SIZES
    },
    "dgxa100": (2, lambda count, chance: _dgxa100(count, chance, 8)),
    "a100": (2, _gpu_nodes("a100", catalog.A100, 8, 4)),
    "a100-40": (2, _gpu_nodes("a100-40", catalog.A100, 8, 4)),
    "l40s": (2, _gpu_nodes("l40s", catalog.L40S, 8, 2)),
    "h100": (2, _gpu_nodes("h100", catalog.H100, 8, 8)),
    "b200": (2, _gpu_nodes("b200", catalog.B200, 8, 8)),
    "gb200-nvl72": (18, _nvl72),
    "sriov": (2, _sriov),
    "tpu": (4, _tpu),
    "fpga": (2, _fpga),
    "network": (8, _network),
}
