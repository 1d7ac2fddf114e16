"""How long it takes to save and load the snapshot of a large fleet, and to ask it a question.

    python -m benchmarks.snapshots [NODES]

5,000 nodes with eight A100 each, in 25 partitions, half of them used by 40,000 pods (one claim
each), and two pods that wait, one of them for more than any node has free. Seconds are those of
the processor, one core. Beside them: what reading the bytes costs alone, and the allocator once.
"""

import gzip
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import chain

import orjson

from benchmarks.allocation import CLASSES, DRIVER, claim, mig, nodes, profile, say
from dralab.api.snapshots.files import written
from dralab.api.snapshots.kept_fields import kept
from dralab.cli import objects
from dralab.cli._connection import ClusterConnection
from dralab.cli._inventory import InventorySource
from dralab.explanation.why import why
from dralab.values.json_types import JsonDict

CREATED = "2026-01-01T00:00:00Z"
USED = ("4g20gb-0", "3g20gb-4")


def stored(item: JsonDict, kind: str, number: int, api: str = "v1") -> JsonDict:
    metadata = {"uid": f"{kind}-{number}", "creationTimestamp": CREATED, **item["metadata"]}
    return {**item, "apiVersion": api, "kind": kind, "metadata": metadata}


def fleet(count: int) -> Iterator[JsonDict]:
    amounts = {"cpu": "128", "memory": "1Ti", "pods": "110"}
    for number, item in enumerate(nodes(count)):
        labels = {"kubernetes.io/hostname": item["metadata"]["name"]}
        named = {"metadata": {**item["metadata"], "labels": labels}}
        yield stored({**named, "status": {"allocatable": amounts}}, "Node", number)
    api = "resource.k8s.io/v1"
    yield from (stored(item, "DeviceClass", 0, api) for item in CLASSES)
    yield from (stored(item, "ResourceSlice", n, api) for n, item in enumerate(mig(count)))


def used(count: int) -> Iterator[JsonDict]:
    """Yield pods and claims that hold half of every node's GPUs, and one pod that waits."""
    number = 0
    for node in range(count):
        for gpu in range(4):
            for name in USED:
                number += 1
                yield from user(number, f"node-{node}", f"gpu-{gpu}-{name}")
    yield from user(number + 1, "", "")
    yield from user(number + 2, "", "", "7g.40gb", 5)


def user(
    number: int, node: str, device: str, kind: str = "1g.5gb", count: int = 1
) -> Iterator[JsonDict]:
    name = f"claim-{number}"
    asked = claim(number, profile(kind), count)
    pod = {
        "metadata": {"name": f"pod-{number}", "namespace": "default"},
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
        },
        "status": {"phase": "Running" if node else "Pending"},
    }
    if node:
        pod["spec"]["nodeName"] = node
        result = {"request": "gpu", "driver": DRIVER, "pool": node, "device": device}
        asked["status"] = {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": f"pod-{number}", "uid": f"Pod-{number}"}],
        }
    yield stored(asked, "ResourceClaim", number, "resource.k8s.io/v1")
    yield stored(pod, "Pod", number)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000
    saved = [part for item in chain(fleet(count), used(count)) if (part := kept(item))]
    slices = [item for item in saved if item["kind"] == "ResourceSlice"]
    devices = sum(len(item["spec"].get("devices") or ()) for item in slices)
    what = f"{count:,} nodes, {devices:,} partitions, half in use"
    start = time.process_time()
    packed = written(saved)
    say(f"save {what}", f"{time.process_time() - start:.2f} s", f"{len(packed) / 1e6:.1f} MB")
    del saved, slices
    start = time.process_time()
    orjson.loads(gzip.decompress(packed))
    alone = time.process_time() - start
    with tempfile.NamedTemporaryFile(suffix=".snapshot") as file:
        file.write(packed)
        file.flush()
        source = InventorySource(files=(file.name,), connection=ClusterConnection(kubeconfig=None))
        start = time.process_time()
        cluster = objects.snapshot(source)
        took = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    say(f"load {what}", f"{took:.2f} s", f"its JSON alone {alone:.2f} s; {peak:.0f} MiB in all")
    start = time.process_time()
    waiting, large = cluster.pending()
    candidates = cluster.candidates(waiting)
    listing = time.process_time() - start
    start = time.process_time()
    placed = cluster.place(waiting, candidates)
    once = time.process_time() - start
    assert placed is not None
    say("who waits, and where it may go", f"{listing:.2f} s", f"the allocator once {once:.3f} s")
    start = time.process_time()
    found = why(cluster, cluster.refreshed(large))
    assert found is not None
    page = found.page()
    say("the page of a pod that wants 5 GPUs of a node", f"{time.process_time() - start:.2f} s")
    print(page)


if __name__ == "__main__":
    main()
