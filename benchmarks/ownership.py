"""What a write costs besides storing it: ownership, patches, protobuf, tables, documents.

    python -m benchmarks.ownership

The yardstick is the JSON codec: the same object parsed and written once by the json module.
"""

import json
import time
from collections.abc import Callable
from typing import Any

from dralab.api.kinds import Kinds
from dralab.api.schemas import Schemas
from dralab.apiserver.http import openapi
from dralab.apiserver.http.tables import printer_for
from dralab.apiserver.managed_fields import FieldManager, apply, update
from dralab.apiserver.protobuf import decode
from dralab.values.patches import json_patch, merge_patch
from dralab.values.strategic import strategic_merge

NOW = 1_800_000_000 * 1_000_000_000


def pod() -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "registry.example/box:1",
        "env": [{"name": f"E{n}", "value": str(n)} for n in range(10)],
        "ports": [{"containerPort": 80, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}},
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }
    spec = {
        "containers": [container, {**container, "name": "side"}],
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    }
    labels = {f"label-{n}": "value" for n in range(5)}
    metadata = {"name": "box", "labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": {}}


def micros(what: Callable[[], Any], least: float = 0.3) -> float:
    what()
    count, spent = 0, 0.0
    while spent < least:
        start = time.perf_counter()
        what()
        spent += time.perf_counter() - start
        count += 1
    return spent / count * 1e6


def envelope(raw: bytes) -> bytes:
    meta = b"\x0a\x02v1\x12\x06Secret"
    return b"k8s\x00\x0a" + bytes([len(meta)]) + meta + b"\x12" + _size(len(raw)) + raw


def _size(length: int) -> bytes:
    return bytes([length & 0x7F | 0x80, length >> 7]) if length > 0x7F else bytes([length])


def secret(entries: int) -> bytes:
    entry = b"\x12\x0c\x0a\x03key\x12\x05value"
    return envelope(b"\x0a\x06\x0a\x04keys" + entry * entries)


def measurements() -> dict[str, Callable[[], Any]]:
    schema = Schemas.standard().schema_of("v1", "Pod")
    writer = FieldManager(manager="bench", api_version="v1", now="2026-01-01T00:00:00Z")
    new = pod()
    live = pod()
    live["metadata"]["managedFields"] = update(None, new, schema, writer)
    running = {**live, "status": {"phase": "Running"}}
    config = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "box", "labels": {"x": "y"}}}
    image = {"spec": {"containers": [{"name": "side", "image": "registry.example/side:2"}]}}
    change = [{"op": "replace", "path": "/spec/containers/1/image", "value": "side:2"}]
    body = secret(60)
    row = printer_for("", "pods").cells
    core = openapi.places(Kinds.standard())["api/v1"]
    return {
        "owners: create": lambda: update(None, new, schema, writer),
        "owners: status": lambda: update(live, running, schema, writer),
        "server-side apply": lambda: apply(live, config, schema, writer),
        "strategic merge": lambda: strategic_merge(live, image, schema),
        "merge patch": lambda: merge_patch(live, image),
        "JSON patch": lambda: json_patch(live, change),
        f"protobuf, {len(body)} B": lambda: decode(body),
        "table row": lambda: row(new, NOW),
        "OpenAPI of core/v1": lambda: openapi.version3(core, "v1.36.2"),
    }


def main() -> None:
    text = json.dumps(pod())
    codec = micros(lambda: json.dumps(json.loads(text)))
    print(f"a pod of {len(text)} bytes; json there and back: {codec:.1f} µs")
    print(f"{'what':24}{'µs':>12}{'ratio':>10}")
    for name, what in measurements().items():
        mine = micros(what)
        print(f"{name:24}{mine:12.1f}{mine / codec:10.2f}")


if __name__ == "__main__":
    main()
