"""The sysfs and procfs of a sample's node, in which drivers read the topology.

`tree` says which files and links a node has, `write` puts them below a directory: CPUs and memory
by NUMA node, the PCI tree with functions of SR-IOV cards, network interfaces, and `/proc/devices`.
File names and formats are those of Linux (Documentation/ABI: sysfs-bus-pci, sysfs-devices-node,
sysfs-devices-system-cpu); vendors and devices of GPUs are those of the PCI ID database.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from os.path import relpath
from pathlib import Path
from typing import Final

from dralab.fleet.model import SampleDevice, SampleFleet, SampleNode
from dralab.fleet.shapes import GPU_DRIVER, NUMA_NODE, PCI_BUS_ID, PCIE_ROOT
from dralab.values import quantity
from dralab.values.records import dataclass

NVIDIA: Final = "0x10de"
EXAMPLE: Final = "0x1234"  # of no vendor
GPU_IDS: Final = {
    "A100-SXM4-40GB": "0x20b0",
    "L40S": "0x26b9",
    "H100-SXM5-80GB": "0x2330",
    "B200-180GB": "0x2901",
    "GB200-186GB": "0x2941",
}
GPU_CLASS, NIC_CLASS, ACCELERATOR_CLASS = "0x030200", "0x020000", "0x120000"
BRIDGE_CLASS: Final = "0x060400"
# Kernel drivers with the numbers of their character devices.
NVIDIA_DEVICES: Final = ("195 nvidia", "234 nvidia-caps", "235 nvidia-caps-imex-channels")
KIB: Final = 1024


@dataclass(slots=True)
class FileTree:
    """Files with their content, and links with their targets, by path without leading slash."""

    files: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)

    def add(self, directory: str, contents: Mapping[str, object]) -> None:
        """Add files to a directory, each with one value and a newline."""
        for name, content in contents.items():
            self.files[f"{directory}/{name}"] = f"{content}\n"

    def link(self, path: str, target: str) -> None:
        """Add a relative link to another path of the tree, as sysfs has them."""
        self.links[path] = relpath(target, path.rpartition("/")[0])


def tree(sample: SampleFleet, node: SampleNode) -> FileTree:
    """Return what `/sys` and `/proc` of a node hold."""
    found = FileTree()
    devices = [
        (pool.driver, {**pool.attributes, **device.attributes}, device)
        for pool in sample.pools
        if pool.node == node.name
        for device in pool.devices
    ]
    numas = 1 + max((int(str(own.get(NUMA_NODE, 0))) for _, own, _ in devices), default=0)
    cpus = _cpus(found, int(quantity.parse(node.cpu)), numas)
    _memory(found, int(quantity.parse(node.memory)), cpus)
    functions: dict[str, str] = {}
    for driver, own, device in devices:
        _function(found, functions, driver, own, device, cpus)
    drivers = {driver for driver, _, _ in devices}
    special = NVIDIA_DEVICES if GPU_DRIVER in drivers else ()
    characters = "\n".join(("  1 mem", "  5 /dev/tty", " 10 misc", *special))
    found.files["proc/devices"] = (
        f"Character devices:\n{characters}\n\nBlock devices:\n  8 sd\n259 blkext\n"
    )
    return found


def write(found: FileTree, directory: Path) -> int:
    """Write a tree below a directory; return how many files and links it has. OSError."""
    for name, content in found.files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    for name, target in found.links.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)
    return len(found.files) + len(found.links)


def _cpus(found: FileTree, count: int, numas: int) -> list[list[int]]:
    """Add CPUs, two to a core where that comes out even; return those of each NUMA node."""
    threads = 2 if count % 2 == 0 else 1
    cores = count // threads
    place = "sys/devices/system/cpu"
    every = _listed(range(count))
    found.add(
        place, {"online": every, "possible": every, "present": every, "kernel_max": count - 1}
    )
    members: list[list[int]] = [[] for _ in range(numas)]
    for cpu in range(count):
        members[(cpu % cores) * numas // cores].append(cpu)
    for numa, own in enumerate(members):
        package = _listed(own)
        for cpu in own:
            core = cpu % cores
            siblings = [core + cores * thread for thread in range(threads)]
            topology: dict[str, object] = {
                "physical_package_id": numa,
                "die_id": 0,
                "cluster_id": core,
                "core_id": core,
            }
            for names, of in ((("thread_siblings", "core_cpus"), siblings),
                              (("core_siblings", "package_cpus"), own)):  # fmt: skip
                for name in names:
                    topology |= {f"{name}_list": _listed(of), name: _mask(of, count)}
            found.add(f"{place}/cpu{cpu}/topology", topology)
            found.add(
                f"{place}/cpu{cpu}/cache/index3",
                {
                    "level": 3,
                    "type": "Unified",
                    "id": numa,
                    "shared_cpu_list": package,
                    "shared_cpu_map": _mask(own, count),
                },
            )
            found.link(f"{place}/cpu{cpu}/node{numa}", f"sys/devices/system/node/node{numa}")
            found.link(f"sys/devices/system/node/node{numa}/cpu{cpu}", f"{place}/cpu{cpu}")
    info = [
        f"processor\t: {cpu}\nvendor_id\t: example.com\ncpu family\t: 6\nmodel\t\t: 1\n"
        f"model name\t: Example\nstepping\t: 1\nphysical id\t: {numa}\ncore id\t\t: {cpu % cores}\n"
        for numa, own in enumerate(members)
        for cpu in own
    ]
    found.files["proc/cpuinfo"] = "\n".join(info)
    return members


def _memory(found: FileTree, size: int, cpus: Sequence[Sequence[int]]) -> None:
    """Add NUMA nodes with equal shares of the memory, in bytes."""
    place = "sys/devices/system/node"
    every = _listed(range(len(cpus)))
    names = ("online", "possible", "has_cpu", "has_memory", "has_normal_memory")
    found.add(place, dict.fromkeys(names, every))
    share = size // len(cpus) // KIB
    for numa, own in enumerate(cpus):
        lines = (f"Node {numa} {name}: {share} kB" for name in ("MemTotal", "MemFree"))
        distances = " ".join("10" if other == numa else "21" for other in range(len(cpus)))
        found.add(
            f"{place}/node{numa}",
            {
                "cpulist": _listed(own),
                "cpumap": _mask(own, sum(map(len, cpus))),
                "distance": distances,
                "meminfo": "\n".join(lines),
            },
        )
        pages = dict.fromkeys(("nr_hugepages", "free_hugepages", "surplus_hugepages"), 0)
        for kib in (2_048, 1_048_576):
            found.add(f"{place}/node{numa}/hugepages/hugepages-{kib}kB", pages)
    total = share * len(cpus)
    found.files["proc/meminfo"] = f"MemTotal: {total} kB\nMemAvailable: {total} kB\n"


def _function(  # noqa: PLR0917 - a node's tree, and a device with where it comes from
    found: FileTree,
    functions: dict[str, str],
    driver: str,
    own: Mapping[str, object],
    device: SampleDevice,
    cpus: Sequence[Sequence[int]],
) -> None:
    """Add the PCI function of a device; parts of a card, such as MIG devices, have none."""
    address, root = str(own.get(PCI_BUS_ID, "")), str(own.get(PCIE_ROOT, ""))
    if not address or address in functions:
        return
    numa = int(str(own.get(NUMA_NODE, 0)))
    kernel, vendor, kind, model = _identity(driver, own)
    port = f"sys/devices/{root}/{root.removeprefix('pci')}:01.0"
    _pci(found, port, (EXAMPLE, BRIDGE_CLASS, "0x0001"), "pcieport", numa, cpus)
    place = functions[address] = f"{port}/{address}"
    _pci(found, place, (vendor, kind, model), kernel, numa, cpus)
    if kind != NIC_CLASS:
        return
    if own.get("type") == "pf":
        total = device.consumes.get("vfs", "0")
        found.add(place, {"sriov_totalvfs": total, "sriov_numvfs": total})
    else:
        card, _, number = device.name.rpartition("-vf-")
        parent = next((p for p in functions.values() if f"{p}/net/{_interface(card)}/mtu"
                       in found.files), "")  # fmt: skip
        if parent:
            found.link(f"{place}/physfn", parent)
            found.link(f"{parent}/virtfn{number}", place)
    name = _interface(device.name.removesuffix("-pf"))
    found.add(
        f"{place}/net/{name}",
        {"address": own.get("mac", ""), "mtu": 1500, "operstate": "up", "speed": 400_000},
    )
    found.link(f"{place}/net/{name}/device", place)
    found.link(f"sys/class/net/{name}", f"{place}/net/{name}")


def _pci(  # noqa: PLR0917 - the parts of one function
    found: FileTree,
    place: str,
    identity: tuple[str, str, str],
    kernel: str,
    numa: int,
    cpus: Sequence[Sequence[int]],
) -> None:
    vendor, kind, model = identity
    address = place.rpartition("/")[2]
    slots = {
        "DRIVER": kernel,
        "PCI_CLASS": kind.removeprefix("0x").upper(),
        "PCI_ID": f"{vendor[2:]}:{model[2:]}".upper(),
        "PCI_SLOT_NAME": address,
    }
    found.add(
        place,
        {
            "vendor": vendor,
            "device": model,
            "class": kind,
            "revision": "0x00",
            "subsystem_vendor": vendor,
            "subsystem_device": model,
            "numa_node": numa,
            "local_cpulist": _listed(cpus[numa]),
            "uevent": "\n".join(f"{name}={value}" for name, value in slots.items()),
        },
    )
    found.link(f"sys/bus/pci/devices/{address}", place)
    found.link(f"sys/bus/pci/drivers/{kernel}/{address}", place)
    found.link(f"{place}/driver", f"sys/bus/pci/drivers/{kernel}")


def _identity(driver: str, own: Mapping[str, object]) -> tuple[str, str, str, str]:
    """Return the kernel's driver, the vendor, the class and the device of a function."""
    if driver == GPU_DRIVER:
        product = str(own.get("productName", "")).removeprefix("NVIDIA ")
        return "nvidia", NVIDIA, GPU_CLASS, GPU_IDS[product]
    if own.get("type") == "vf":
        return "example_nic", EXAMPLE, NIC_CLASS, "0x1002"
    if own.get("type") == "pf":
        return "example_nic", EXAMPLE, NIC_CLASS, "0x1001"
    return "example_fpga", EXAMPLE, ACCELERATOR_CLASS, "0x2001"


def _interface(name: str) -> str:
    """Return the name of a card's or virtual function's network interface: nic0, nic0v1."""
    return name.replace("-vf-", "v").replace("-", "")


def _listed(cpus: Sequence[int]) -> str:
    """Return numbers as Linux lists them.

    >>> _listed([0, 1, 2, 8, 10, 11])
    '0-2,8,10-11'
    """
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _mask(cpus: Sequence[int], count: int) -> str:
    """Return numbers as the mask that Linux writes for `count` CPUs: words of 32 bits.

    >>> _mask([0, 1, 2, 32], 40)
    '01,00000007'
    """
    value = sum(1 << cpu for cpu in cpus)
    words = []
    while count > 0:
        words.append(f"{value & 0xFFFFFFFF:0{min(8, -(-count // 4))}x}")
        value >>= 32
        count -= 32
    return ",".join(reversed(words))
