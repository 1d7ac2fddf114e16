"""The gauges that are read for /metrics: objects, sizes, limits, and availability of APIs.

Source of names: k8s.io/apiserver `storage/etcd3/metrics`, `storage/cacher/metrics`,
`util/flowcontrol/metrics`; k8s.io/kube-aggregator `pkg/controllers/status/metrics`.
"""

import resource
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

from dralab.apiserver.metrics.families import COLLECTION, collection
from dralab.apiserver.metrics.meters import values
from dralab.apiserver.storage import Store
from dralab.objects.conditions import is_true
from dralab.values.json_types import JsonObject

SERVICES: Final = "apiregistration.k8s.io/apiservices"
UNLIMITED: Final = 2**64 - 1


class Limits(Protocol):
    """Tells how many requests of each priority level may be answered at a time."""

    def seats(self) -> Mapping[str, int]:
        """Return the seats by the name of the level."""
        ...


class ServerGauges:
    """The gauges of one server. `in_flight` has the requests that are answered right now."""

    def __init__(self, store: Store, limits: Limits, in_flight: Mapping[str, int]) -> None:
        self.store, self.limits, self.in_flight = store, limits, in_flight

    def lines(self) -> Iterator[str]:
        """Yield all of them in Prometheus' text format."""
        store = self.store
        hubs = store.resources()
        yield from values(
            "apiserver_resource_objects",
            "gauge",
            "Stored objects.",
            COLLECTION,
            [(collection(hub), store.count(hub)) for hub in hubs],
        )
        yield from values(
            "apiserver_watch_cache_resource_version",
            "gauge",
            "The revision up to which watches have seen a collection.",
            COLLECTION,
            [(collection(hub), store.revision) for hub in hubs],
        )
        path: Path | None = getattr(store, "path", None)
        if path is not None and path.is_file():
            size = path.stat().st_size
            yield from values(
                "apiserver_storage_size_bytes",
                "gauge",
                "Bytes of the file of the store.",
                ("storage_cluster_id",),
                [((path.name,), size)],
            )
        yield from values(
            "apiserver_current_inflight_requests",
            "gauge",
            "Requests that are being answered.",
            ("request_kind",),
            [((kind,), count) for kind, count in sorted(self.in_flight.items())],
        )
        yield from values(
            "apiserver_flowcontrol_nominal_limit_seats",
            "gauge",
            "The share of a priority level in the requests that may be answered at a time.",
            ("priority_level",),
            [((name,), seats) for name, seats in sorted(self.limits.seats().items())],
        )
        services = [each.value for each in store.list(SERVICES).items]
        yield from values(
            "aggregator_unavailable_apiservice",
            "gauge",
            "Whether an APIService is unavailable.",
            ("name",),
            [((each["metadata"]["name"],), _is_unavailable(each)) for each in services],
        )
        for calls in store.measured:
            yield from calls.lines()
            yield from calls.counts("etcd_requests_total", "Writes that etcd was asked for.")
        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        most = UNLIMITED if most == resource.RLIM_INFINITY else most
        yield from values(
            "process_virtual_memory_max_bytes",
            "gauge",
            "The most memory that the process may map.",
            (),
            [((), most)],
        )


def _is_unavailable(service: JsonObject) -> int:
    return 0 if is_true(service, "Available") else 1
