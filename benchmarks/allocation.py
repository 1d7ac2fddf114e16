"""Claims per second, load times, memory and hard problems, beside Kubernetes' own allocator.

    python -m benchmarks.allocation                 all rows, each in a process of its own
    python -m benchmarks.allocation gpu mig hard    some rows

Claims go in as decoded resource.k8s.io/v1 mappings and come out as `status.allocation` mappings;
reading text is not counted. Seconds are those of the processor, one core. Kubernetes' figures
were measured once on one core of a 2-core x86-64 machine (source of July 2026, compiled, nearly
idle, within 50 %) and are frozen here: claims per second of allocator time on a nearly empty
cluster, first feasible node.
"""

import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dralab.allocation import v1
from dralab.allocation.allocator import allocate
from dralab.allocation.fleet import Fleet
from dralab.allocation.inventory.placements import DevicePlacement
from dralab.allocation.policy.policies import FragmentationAware
from dralab.allocation.problem import Problem
from dralab.allocation.selectors import CelSelectorCompiler
from dralab.values.json_types import JsonDict

DRIVER = "gpu.example.com"
CLASSES: list[JsonDict] = [
    {
        "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
    }
]
A100 = f'device.attributes["{DRIVER}"].model == "A100"'
# Partitions of an A100 with 40 GB: name, memory slices, multiprocessors, where it may begin.
PROFILES: Sequence[tuple[str, int, int, Sequence[int]]] = (
    ("1g.5gb", 1, 14, range(7)),
    ("1g.5gb+me", 1, 14, range(7)),
    ("1g.10gb", 2, 14, (0, 2, 4, 6)),
    ("2g.10gb", 2, 28, (0, 2, 4)),
    ("3g.20gb", 4, 42, (0, 4)),
    ("4g.20gb", 4, 56, (0,)),
    ("7g.40gb", 8, 98, (0,)),
)
MIX = (
    ("1g.5gb", 1.0),
    ("2g.10gb", 2.0),
    ("3g.20gb", 4.0),
    ("1g.5gb", 1.0),
    ("2g.10gb", 2.0),
    ("1g.10gb", 2.0),
)


# --- what is measured on -------------------------------------------------------------------------


def nodes(count: int) -> Iterator[JsonDict]:
    for number in range(count):
        yield {"metadata": {"name": f"node-{number}"}}


def gpus(count: int, *, each: int = 8, unlike: bool = True) -> Iterator[JsonDict]:
    """One slice per node: GPUs with ten attributes and three capacities, two NUMA nodes."""
    for number in range(count):
        devices = [
            {
                "name": f"gpu-{index}",
                "attributes": {
                    "index": {"int": index},
                    "uuid": {"string": f"GPU-{number if unlike else 0}-{index}"},
                    "model": {"string": "A100"},
                    "brand": {"string": "Nvidia"},
                    "numa": {"int": 2 * index // each},
                    "driverVersion": {"version": "550.54.15"},
                    "cudaVersion": {"version": "12.4.0"},
                    "architecture": {"string": "Ampere"},
                    "root": {"string": f"pci{index // 2}"},
                    "type": {"string": "gpu"},
                },
                "capacity": {
                    "memory": {"value": "40Gi"},
                    "multiprocessors": {"value": "108"},
                    "engines": {"value": "7"},
                },
            }
            for index in range(each)
        ]
        yield slice_of(number, "", 1, devices=devices)


def slice_of(number: int, part: str, count: int, **content: Any) -> JsonDict:
    pool = {"name": f"node-{number}", "generation": 1, "resourceSliceCount": count}
    spec = {"driver": DRIVER, "nodeName": f"node-{number}", "pool": pool, **content}
    return {"metadata": {"name": f"node-{number}{part}"}, "spec": spec}


def mig(count: int, *, each: int = 8) -> Iterator[JsonDict]:
    """Per node eight A100 with 25 partitions each, which draw on memory slices and processors."""
    devices, counters = [], []
    for gpu in range(each):
        slices = {f"memory-slice-{place}": {"value": "1"} for place in range(8)}
        counters.append(
            {"name": f"gpu-{gpu}", "counters": {**slices, "multiprocessors": {"value": "98"}}}
        )
        for name, size, processors, places in PROFILES:
            for place in places:
                drawn = {f"memory-slice-{at}": {"value": "1"} for at in range(place, place + size)}
                devices.append(
                    {
                        "name": f"gpu-{gpu}-{name.replace('.', '').replace('+', '')}-{place}",
                        "attributes": {
                            "profile": {"string": name},
                            "type": {"string": "mig"},
                            "index": {"int": gpu},
                        },
                        "capacity": {"memory": {"value": f"{5 * size}Gi"}},
                        "consumesCounters": [
                            {
                                "counterSet": f"gpu-{gpu}",
                                "counters": {
                                    **drawn,
                                    "multiprocessors": {"value": str(processors)},
                                },
                            }
                        ],
                    }
                )
    parts = [devices[start : start + 64] for start in range(0, len(devices), 64)]
    for number in range(count):
        yield slice_of(number, "-a", len(parts) + 1, sharedCounters=counters)
        for index, part in enumerate(parts):
            yield slice_of(number, f"-b{index}", len(parts) + 1, devices=part)


def claim(number: int, expression: str, count: int = 1, match: str = "") -> JsonDict:
    asked = {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": count,
        "selectors": [{"cel": {"expression": expression}}],
    }
    devices: JsonDict = {"requests": [{"name": "gpu", "exactly": asked}]}
    if match:
        devices["constraints"] = [{"matchAttribute": f"{DRIVER}/{match}"}]
    return {
        "metadata": {"name": f"claim-{number}", "namespace": "default", "uid": str(number)},
        "spec": {"devices": devices},
    }


def profile(name: str) -> str:
    return f'device.attributes["{DRIVER}"].profile == "{name}"'


# --- rows ----------------------------------------------------------------------------------------


def say(what: str, figure: str, beside: str = "") -> None:
    print(f"{what:<62}{figure:>22}   {beside}", flush=True)


def rate(fleet: Fleet, claims: Sequence[JsonDict]) -> tuple[int, float]:
    """Return how many claims were served until one was not, and how many per second."""
    start = time.process_time()
    served = 0
    for each in claims:
        if not isinstance(fleet.allocate([each]), DevicePlacement):
            break
        served += 1
    return served, served / (time.process_time() - start)


def compared(figure: float, upstream: float) -> str:
    return f"{figure / upstream:,.0f} x Kubernetes ({upstream:,.0f}/s)"


def gpu() -> None:
    for count in (1_000, 10_000):
        fleet = Fleet(nodes(count), gpus(count), CLASSES)
        served, figure = rate(fleet, [claim(number, A100) for number in range(8 * count)])
        say(
            f"1 GPU per claim, {count:,} nodes x 8, {served:,} claims",
            f"{figure:,.0f}/s",
            compared(figure, 1_660),
        )


def numa() -> None:
    for count in (1_000, 10_000):
        fleet = Fleet(nodes(count), gpus(count), CLASSES)
        served, figure = rate(
            fleet, [claim(number, A100, 4, "numa") for number in range(2 * count)]
        )
        say(
            f"4 GPUs of one NUMA node, {count:,} nodes x 8, {served:,} claims",
            f"{figure:,.0f}/s",
            compared(figure, 908),
        )


def partitions() -> None:
    chance = random.Random(1)
    fleet = Fleet(nodes(1_000), mig(1_000), CLASSES)
    claims = [claim(number, profile(chance.choice(MIX)[0])) for number in range(30_000)]
    served, figure = rate(fleet, claims)
    say(
        f"MIG, 1,000 nodes x 8 A100 x 25 partitions, {served:,} claims",
        f"{figure:,.0f}/s",
        compared(figure, 60),
    )


def unlike() -> None:
    """Every node filled differently before."""
    chance = random.Random(3)
    names = [name for name, *_ in PROFILES]
    fleet = Fleet(nodes(1_000), mig(1_000), CLASSES)
    for number in range(1_000):
        for _ in range(chance.randint(3, 18)):
            placed = fleet.allocate([claim(0, profile(chance.choice(names)))], 1 << number)
            if isinstance(placed, DevicePlacement) and chance.random() < 0.3:
                fleet.release(placed.allocations[0])
    states = len({id(each.state) for each in fleet.use.occupancies})
    one = [claim(number, profile(chance.choice(MIX)[0])) for number in range(8_000)]
    served, figure = rate(fleet.copied(), one)
    say(f"MIG, 1,000 nodes in {states} different states, {served:,} claims", f"{figure:,.0f}/s")
    both = []
    for number in range(3_000):
        two = claim(number, profile("1g.5gb"), 2)
        more = claim(number, profile(chance.choice(("2g.10gb", "3g.20gb"))))["spec"]["devices"][
            "requests"
        ][0]
        two["spec"]["devices"]["requests"].append(more | {"name": "more"})
        if number % 2:
            two["spec"]["devices"]["constraints"] = [{"matchAttribute": f"{DRIVER}/index"}]
        both.append(two)
    served, figure = rate(fleet.copied(), both)
    say(
        f"  the same, two requests per claim, half of them on one GPU, {served:,}",
        f"{figure:,.0f}/s",
    )


def load() -> None:
    start = time.process_time()
    for _ in gpus(10_000):
        pass
    making = time.process_time() - start
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start = time.process_time()
    fleet = Fleet(nodes(10_000), gpus(10_000), CLASSES)
    took = time.process_time() - start - making
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    say(
        "load 80,000 devices, 10,000 nodes (making the mappings apart)",
        f"{took:.2f} s",
        f"{peak:.0f} MiB in all ({before:.0f} before)",
    )
    assert isinstance(fleet.allocate([claim(0, A100)]), DevicePlacement)
    start = time.process_time()
    fleet.copied()
    say("what-if copy of it", f"{1e3 * (time.process_time() - start):.1f} ms")


def templates() -> None:
    start = time.process_time()
    fleet = Fleet(nodes(10_000), mig(10_000), CLASSES)
    took = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    say("load 2,000,000 partitions, 10,000 nodes", f"{took:.2f} s", f"{peak:.0f} MiB in all")
    assert isinstance(fleet.allocate([claim(0, profile("1g.5gb"))]), DevicePlacement)


def changes() -> None:
    fleet = Fleet(nodes(1_000), mig(1_000), CLASSES)
    chance = random.Random(5)
    placed = []
    for number in range(20_000):
        found = fleet.allocate([claim(number, profile(chance.choice(MIX)[0]))])
        if isinstance(found, DevicePlacement):
            placed.append(found.allocations[0])
    chance.shuffle(placed)
    start = time.process_time()
    for each in placed[:10_000]:
        fleet.release(each)
    say("releases, MIG, 1,000 nodes", f"{10_000 / (time.process_time() - start):,.0f}/s")


def hard() -> None:
    """Problems on which a search over single devices takes exponential time."""
    reader = v1.V1Reader(CelSelectorCompiler())
    classes = {each["metadata"]["name"]: reader.device_class(each) for each in CLASSES}
    node = v1.node(next(nodes(1)))
    worst = 0.0
    for what, slices, claims, upstream in difficult():
        problem = Problem(
            claims=tuple(map(reader.claim, claims)),
            classes=classes,
            slices=tuple(map(reader.slice, slices)),
        )
        start = time.process_time()
        outcome = allocate(problem, node)
        took = 1e3 * (time.process_time() - start)
        worst = max(worst, took)
        say(
            f"{what}: {type(outcome).__name__.lower()}, {outcome.steps:,} steps",
            f"{took:.2f} ms",
            f"Kubernetes: {upstream}" if upstream else "",
        )
    say("the slowest of them", f"{worst:.2f} ms")


def difficult() -> Iterator[tuple[str, list[JsonDict], list[JsonDict], str]]:
    def several(*asked: tuple[str, int], pairs: int = 0) -> JsonDict:
        whole = claim(0, "true")
        template = whole["spec"]["devices"]["requests"][0]["exactly"]
        whole["spec"]["devices"]["requests"] = [
            {
                "name": f"r{index}",
                "exactly": template
                | {"count": count, "selectors": [{"cel": {"expression": text}}]},
            }
            for index, (text, count) in enumerate(asked)
        ]
        if pairs:
            whole["spec"]["devices"]["constraints"] = [
                {
                    "matchAttribute": f"{DRIVER}/root",
                    "requests": [f"r{2 * pair}", f"r{2 * pair + 1}"],
                }
                for pair in range(pairs)
            ]
        return whole

    index = f'device.attributes["{DRIVER}"].index'
    for count, upstream in ((8, "0.4 s"), (22, "9.3 s"), (31, "more than 30 s")):
        yield (
            f"{count + 1} of {count} equal GPUs",
            list(gpus(1, each=count)),
            [claim(0, "true", count + 1)],
            upstream,
        )
    for count, upstream in ((10, "18.7 s"), (32, "about 10^22 years")):
        first = [("true", 1)] * (count - 1)
        yield (
            f"{count} requests, the last matches nothing",
            list(gpus(1, each=count)),
            [several(*first, (f"{index} == 99", 1))],
            upstream,
        )
        yield (
            f"{count} requests, the last matches the first GPU",
            list(gpus(1, each=count)),
            [several(*first, (f"{index} == 0", 1))],
            "",
        )
    for count in (16, 32):
        kinds = [
            (f"{index} == {count - 1}", 1),
            *((f"{index} >= {least}", 1) for least in range(1, count)),
        ]
        yield f"{count} distinct kinds", list(gpus(1, each=count)), [several(*kinds)], ""
    for count, upstream in ((2, "3.5 ms"), (3, "0.12 s"), (4, "6.9 s"), (6, ""), (8, "")):
        small = [("true", 4 * count - 1), ("true", 2)] if count == 8 else [("true", 4 * count + 1)]
        claims = [several(small[0]), several(small[1])] if count == 8 else [several(*small)]
        yield (
            f"MIG: {4 * count + 1} partitions of {count} GPUs",
            list(quarters(count)),
            claims,
            upstream,
        )
    for count, upstream in ((3, "41 ms"), (4, "295 ms")):
        pairs = [
            ('device.attributes["gpu.example.com"].type == "gpu"', 1),
            ('device.attributes["gpu.example.com"].type == "nic"', 1),
        ] * count
        missing = ('device.attributes["gpu.example.com"].type == "tpu"', 1)
        yield (
            f"{count} GPU+NIC pairs, and what is not there",
            pairs_of(),
            [several(*pairs, missing, pairs=count)],
            upstream,
        )
    pairs = [
        ('device.attributes["gpu.example.com"].type == "gpu"', 1),
        ('device.attributes["gpu.example.com"].type == "nic"', 1),
    ] * 5
    yield "5 GPU+NIC pairs where 4 are", pairs_of(), [several(*pairs, pairs=5)], ""


def quarters(count: int) -> Iterator[JsonDict]:
    """GPUs of eight units in partitions of 8, 4 and 2."""
    devices = []
    for gpu in range(count):
        for name, size, number in (("full", 8, 1), ("half", 4, 2), ("quarter", 2, 4)):
            devices += [
                {
                    "name": f"g{gpu}-{name}-{each}",
                    "consumesCounters": [
                        {"counterSet": f"g{gpu}", "counters": {"m": {"value": str(size)}}}
                    ],
                }
                for each in range(number)
            ]
    yield slice_of(0, "-a", 2, devices=devices)
    yield slice_of(
        0,
        "-b",
        2,
        sharedCounters=[
            {"name": f"g{gpu}", "counters": {"m": {"value": "8"}}} for gpu in range(count)
        ],
    )


def pairs_of() -> list[JsonDict]:
    """Eight GPUs on four roots, eight NICs on two of them."""
    devices = [
        {
            "name": f"{kind}-{number}",
            "attributes": {"type": {"string": kind}, "root": {"int": number // per}},
        }
        for kind, per in (("gpu", 2), ("nic", 4))
        for number in range(8)
    ]
    return [slice_of(0, "", 1, devices=devices)]


def policies() -> None:
    """1,680 claims in random order on 50 nodes x 8 A100: how many find a place."""
    sequence = [MIX[number % 6] for number in range(1_680)]
    random.Random(1).shuffle(sequence)
    demand = tuple((claim(0, profile(name)), worth) for name, worth in dict(MIX).items())
    for what, policy in (
        ("Kubernetes' choice", None),
        ("fragmentation-aware", FragmentationAware(demand)),
    ):
        fleet = Fleet(nodes(50), mig(50), CLASSES)
        start = time.process_time()
        served = sum(
            isinstance(
                fleet.allocate([claim(number, profile(name))], policy=policy), DevicePlacement
            )
            for number, (name, _) in enumerate(sequence)
        )
        took = time.process_time() - start
        say(
            f"50 nodes x 8 A100, 1,680 claims shuffled: {what}",
            f"{served} served",
            f"{1_680 / took:,.0f} claims/s",
        )


def optimal() -> None:
    from dralab.allocation.optimum import allocate_batch

    fleet = Fleet(nodes(50), mig(50), CLASSES)
    pods = [[claim(number, profile(MIX[number % 6][0]))] for number in range(1_680)]
    allocate_batch(Fleet(nodes(1), gpus(1), CLASSES), [[claim(0, A100)]])  # imports the solver
    start = time.process_time()
    best = allocate_batch(fleet, pods)
    say(
        "50 nodes x 8 A100, 1,680 claims as one batch: optimum",
        f"{best.served} served",
        f"bound {best.bound:.0f}, {time.process_time() - start:.2f} s",
    )
    for claims, count in ((200, 100), (1_000, 500), (10_000, 5_000)):
        chance = random.Random(1)
        fleet = Fleet(nodes(count), gpus(count), CLASSES)
        for number in range(0, count, 2):
            for _ in range(chance.randint(1, 5)):
                fleet.allocate([claim(0, A100)], 1 << number)
        pods = []
        for number in range(claims):
            size = chance.choice((1, 2, 4, 8))
            pods.append([claim(number, A100, size, "numa" if size == 4 else "")])
        straight = fleet.copied()
        served = sum(isinstance(straight.allocate(pod), DevicePlacement) for pod in pods)
        start = time.process_time()
        best = allocate_batch(fleet, pods)
        say(
            f"{claims:,} claims x {count:,} nodes half used: optimum",
            f"{time.process_time() - start:.2f} s",
            f"{best.served:,} served, bound {best.bound:,.0f}; going straight {served:,}",
        )


ROWS: Mapping[str, Callable[[], None]] = {
    "gpu": gpu, "numa": numa, "mig": partitions, "unlike": unlike, "load": load,
    "templates": templates, "changes": changes, "hard": hard, "policies": policies,
    "optimal": optimal,
}  # fmt: skip


def main() -> None:
    asked = sys.argv[1:] or list(ROWS)
    if len(asked) == 1:
        ROWS[asked[0]]()
        return
    for row in asked:
        if subprocess.run(
            [sys.executable, "-m", "benchmarks.allocation", row], check=False
        ).returncode:
            sys.exit(f"row {row} failed")


if __name__ == "__main__":
    main()
