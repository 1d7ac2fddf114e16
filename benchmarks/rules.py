"""How long the rules of resource.k8s.io take: defaulting, gates and validation of one object.

    python -m benchmarks.rules

The yardstick is the JSON codec: the same object parsed and written once by the json module.
"""

import json
import time
from collections.abc import Callable
from typing import Any

from benchmarks.board import record
from dralab.allocation.cel_compiler import compiled
from dralab.api.resource.rules import DEFAULT_1_36, default, validate_create, without_disabled


def claim() -> dict[str, Any]:
    selectors = [{"cel": {"expression": "device.attributes['d'].model == 'A100'"}}]
    exactly = {"deviceClassName": "gpu", "selectors": selectors}
    requests = [{"name": "r", "exactly": exactly}]
    return {"kind": "ResourceClaim", "spec": {"devices": {"requests": requests}}}


def slice_(devices: int) -> dict[str, Any]:
    made = [
        {
            "name": f"gpu-{i}",
            "attributes": {
                "model": {"string": "A100"},
                "uuid": {"string": f"gpu-{i}-0123456789"},
                "driver": {"version": "1.2.3"},
                "index": {"int": i},
                "numa": {"int": i % 2},
            },
            "capacity": {"memory": {"value": "40Gi"}, "cores": {"value": "108"}},
        }
        for i in range(devices)
    ]
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d", "nodeName": "n", "pool": pool, "devices": made}
    return {"kind": "ResourceSlice", "spec": spec}


def micros(what: Callable[[], Any], least: float = 0.3) -> float:
    what()
    count, spent = 0, 0.0
    while spent < least:
        start = time.process_time()
        what()
        spent += time.process_time() - start
        count += 1
    return spent / count * 1e6


def rules(obj: dict[str, Any]) -> None:
    stored = without_disabled(default(obj, now="2026-01-01T00:00:00Z"), DEFAULT_1_36)
    assert not validate_create(stored, DEFAULT_1_36, compiled)


def main() -> None:
    print(f"{'object':24}{'rules µs':>12}{'json µs':>12}{'ratio':>8}")
    for name, obj in (("claim", claim()), ("slice of 8", slice_(8)), ("slice of 128", slice_(128))):
        text = json.dumps(obj)
        mine = micros(lambda obj=obj: rules(obj))
        codec = micros(lambda text=text: json.dumps(json.loads(text)))
        print(f"{name:24}{mine:12.1f}{codec:12.1f}{mine / codec:8.2f}")
        record(f"rules: {name}", mine, "µs")


if __name__ == "__main__":
    main()
