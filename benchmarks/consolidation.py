"""How many more pods a fleet accepts if running ones may be moved, on a trace of Alibaba's.

    python -m benchmarks.consolidation openb_pod_list_default.csv [--gpus 24,32,40] [--moves 0,1,2]

The setting follows GRMU (arXiv 2502.01909) as far as its abstract and the public traces tell it:
virtual machines that ask for MIG profiles come and go as in a trace; one that finds no room when it
comes is turned away. Here each pod of openb with one GPU asks for the smallest partition of an A100
with 40 GB that has its share of the GPU; it leaves at the time in the trace. Nodes have eight GPUs.
With moves, a pod that finds no room gets the fewest moves that `dralab plan moves` finds, if these
are no more than allowed. A move is made at once and costs nothing.
"""

import argparse
import heapq
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.allocation import CLASSES, claim, mig, profile
from dralab.capacity.defragment import carry_out
from dralab.capacity.departures import Departures
from dralab.capacity.move_costs import MoveCosts
from dralab.capacity.moves import clear_for
from dralab.objects.metadata import key_of
from dralab.scheduling.model import ClusterModel
from dralab.simulation.workloads.openb import read_pods
from dralab.values.json_types import JsonDict

SEVENTHS: Final = {1: "1g.5gb", 2: "2g.10gb", 3: "3g.20gb", 4: "4g.20gb"}
PER_NODE: Final = 8


class Machine(NamedTuple):
    """A pod of the trace: when it comes and goes, and what it asks for."""

    created: int
    deleted: int
    name: str
    asks: str


def machines(path: Path, below: int) -> list[Machine]:
    found = [
        Machine(
            each.created,
            max(each.deleted, each.created),
            each.name,
            SEVENTHS.get(-(-each.request.milli * 7 // 1000), "7g.40gb"),
        )
        for each in read_pods(path)
        if each.request.gpus == 1
        and each.request.milli < below
        and each.created is not None
        and each.deleted is not None
    ]
    return sorted(found)


def fleet(gpus: int) -> list[JsonDict]:
    count = -(-gpus // PER_NODE)
    room = {"cpu": "10000", "memory": "100Ti", "pods": "1000"}
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"node-{number}"},
            "spec": {},
            "status": {"allocatable": room, "capacity": room},
        }
        for number in range(count)
    ]
    api = {"apiVersion": "resource.k8s.io/v1"}
    slices = [{**api, "kind": "ResourceSlice", **item} for item in mig(count, each=PER_NODE)]
    return [*nodes, *slices, *({**api, "kind": "DeviceClass", **item} for item in CLASSES)]


class Outcome(NamedTuple):
    accepted: Counter[str]
    moves: int
    moved: int


def run(trace: Sequence[Machine], gpus: int, most: int) -> Outcome:
    model = ClusterModel(fleet(gpus))
    leaving: list[tuple[int, int, str]] = []
    accepted: Counter[str] = Counter()
    moves, moved = 0, set[str]()
    for number, each in enumerate(trace):
        while leaving and leaving[0][0] <= each.created:
            model.take_away(heapq.heappop(leaving)[2])
        asked = claim(number, profile(each.asks))
        model.claims[key_of(asked)] = asked
        pod = model.info(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": each.name, "namespace": "default", "uid": each.name},
                "spec": {
                    "containers": [{"name": "c", "image": "i"}],
                    "resourceClaims": [
                        {"name": "gpu", "resourceClaimName": asked["metadata"]["name"]}
                    ],
                },
            }
        )
        place = model.find_place(pod)
        if place is not None:
            model.place(place)
        elif most:
            found = clear_for(Departures(model, MoveCosts(model)), pod, most=most, sets=20_000)
            if found.placement is None:
                continue
            carry_out(model, found)
            moves += len(found.moves)
            moved |= {move.pod.uid for move in found.moves}
        else:
            continue
        accepted[each.asks] += 1
        heapq.heappush(leaving, (each.deleted, number, each.name))
    return Outcome(accepted, moves, len(moved))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("trace", type=Path)
    parser.add_argument("--gpus", default="24,32,40")
    parser.add_argument("--moves", default="0,1,2")
    parser.add_argument("--below", type=int, default=1001, help="only pods that ask for less")
    given = parser.parse_args()
    trace = machines(given.trace, given.below)
    asked = Counter(each.asks for each in trace)
    print(len(trace), "pods:", dict(asked))
    print("gpus  moves  accepted        of   moves  pods moved  accepted by profile")
    for gpus in map(int, given.gpus.split(",")):
        for most in map(int, given.moves.split(",")):
            start = time.process_time()
            found = run(trace, gpus, most)
            total = found.accepted.total()
            shares = ", ".join(
                f"{name} {found.accepted[name] / asked[name]:.1%}" for name in sorted(asked)
            )
            print(
                f"{gpus:4}  {most:5}  {total:8}  {total / len(trace):8.2%}  {found.moves:6}  "
                f"{found.moved / max(1, total):10.2%}  {shares}  "
                f"({time.process_time() - start:.0f} s)",
                flush=True,
            )


if __name__ == "__main__":
    main()
