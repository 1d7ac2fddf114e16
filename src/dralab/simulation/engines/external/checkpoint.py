"""The checkpoint of a run with an external scheduler: the server's objects and future events.

The file is JSON. The scheduler itself is not in it: it is started again, lists the objects, and
continues from the stored state at the stored virtual time. Its internal state (pods in back-off) is
lost, as when a live one restarts. Events and leases are not kept.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from dralab.api.status import ApiError
from dralab.apiserver.storage import Key, Store
from dralab.cluster import Cluster
from dralab.runtime.client import Resource
from dralab.scenarios.errors import InputError, content_of
from dralab.simulation.engines.external.driver import DriverReport
from dralab.simulation.engines.external.served_cluster import ServedCluster
from dralab.simulation.results.result import StateSample

KIND: Final = "dralab external run 3"
LEFT_OUT: Final = frozenset(
    {"events", "events.k8s.io/events", "coordination.k8s.io/leases", "endpoints"}
)
DEFINITIONS: Final = "apiextensions.k8s.io/customresourcedefinitions"
DEFINITION: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False
)
# Of a pod, besides the one thing that happens to it next.
KEPT: Final = (
    "state", "created", "bound", "started", "ended", "node", "reason", "attempts", "evictions",
    "leaving", "claims", "stage", "fails", "uid", "adopted",
)  # fmt: skip
COUNTED: Final = ("steps", "late_binds", "unanswered", "passed_over", "nobodys", "restarts")


def content(digest: str, served: ServedCluster, report: DriverReport) -> bytes:
    """Return a checkpoint; the schedulers have ended."""
    outages = served.lives.faults.outages
    found = {
        "kind": KIND,
        "digest": digest,
        "begin": served.begin,
        "now": served.agenda.now(),
        "resumed": served.resumed + 1,
        "deleted": served.deleted,
        "over_capacity": served.over_capacity,
        "outages": [outages.over, outages.depth, outages.since],
        "pods": {
            key: [getattr(item, name) for name in KEPT]
            for key, item in served.pods.items()
            if item.created is not None
        },
        "agenda": [[*entry[:4], dict(entry.detail)] for entry in served.agenda.entries()],
        "samples": [list(sample) for sample in served.samples],
        "report": {name: getattr(report, name) for name in COUNTED},
        "quiet_period": report.quiet_period,
        "objects": _objects(served.store),
    }
    return orjson.dumps(found)


def load(path: Path, digest: str) -> Mapping[str, Any]:
    """Return a checkpoint of the same scenario; InputError."""
    raw = content_of(path)
    try:
        content = orjson.loads(raw)
    except orjson.JSONDecodeError:
        content = None
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise InputError(path, "is not a checkpoint of a run with an external scheduler")
    if content.get("digest") != digest:
        raise InputError(path, "belongs to another scenario, seed or version")
    return content


def restore(
    content: Mapping[str, Any], cluster: Cluster, served: ServedCluster, report: DriverReport
) -> None:
    """Restore the saved state, before anything is prepared.

    The clock shows the time at which the run goes on, or an earlier one.
    """
    _put(content["objects"], cluster)
    served.resumed = content["resumed"]
    served.deleted = content["deleted"]
    served.over_capacity = list(content["over_capacity"])
    over, depth, since = content["outages"]
    outages = served.lives.faults.outages
    outages.over, outages.depth, outages.since = [(n, a, b) for n, a, b in over], depth, since
    served.capacity.down = set(since)
    served.samples = [StateSample(*values) for values in content["samples"]]
    for key, values in content["pods"].items():
        item = served.pods.get(key) or served.adopted_again(key)
        if item is None:
            continue  # a program had created it, and it is over and gone
        for name, value in zip(KEPT, values, strict=True):
            setattr(item, name, value)
    for when, priority, what, whom, detail in content["agenda"]:
        event = served.agenda.schedule(when, priority, what, whom, **detail)
        if whom in served.pods and what != "arrive":
            served.pods[whom].next = event
    served.count_again()
    for name in COUNTED:
        setattr(report, name, content["report"][name])
    report.quiet_period = max(report.quiet_period, content["quiet_period"])


def _objects(store: Store) -> list[list[Any]]:
    found = []
    with store.lock:
        for resource in store.resources():
            if resource not in LEFT_OUT:
                found += [
                    [*stored.key, _without_revision(stored.value)]
                    for stored in store.list(resource).items
                ]
    # Definitions first: they make the collections that others are kept in.
    return sorted(found, key=lambda entry: (entry[0] != DEFINITIONS, *entry[:3]))


def _put(objects: list[list[Any]], cluster: Cluster) -> None:
    store = cluster.server.store
    for resource, namespace, name, value in objects:
        key = Key(resource, namespace, name)
        if resource == DEFINITIONS:
            try:
                cluster.client.create(DEFINITION, value)
            except ApiError as error:
                raise InputError("checkpoint", f"{name}: {error}") from None
        elif store.get(key) is None:
            store.create(key, value)
        else:
            store.update(key, value)


def _without_revision(value: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {k: v for k, v in value["metadata"].items() if k != "resourceVersion"}
    return {**value, "metadata": metadata}
